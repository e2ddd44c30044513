// The send side of a QP: WQEs fetched from the send queue and not yet retired.
// Private to the device model.
#pragma once

#include <deque>
#include <memory>

#include "base/types.h"
#include "model/memory.h"
#include "model/prm.h"
#include "model/qp.h"
#include "wire/packet.h"

namespace softhca {

// Where a message goes. For connected QPs it comes from the QP's address
// vector, for UD and DCI from the WQE.
struct Destination {
  u32 qpn = 0;
  u16 dlid = 0;
  u8 sl = 0;
  u8 traffic_class = 0;
  u8 hop_limit = 0;
  u8 sgid_index = 0;
  bool grh = false;
  u32 flow_label = 0;
  u64 key = 0;               // Q_Key or DC access key
  u8 dgid[16] = {};

  bool same_target(const Destination &o) const {
    return qpn == o.qpn && dlid == o.dlid && key == o.key && grh == o.grh &&
           std::memcmp(dgid, o.dgid, sizeof dgid) == 0;
  }
};

struct SendWqe {
  u16 counter = 0;           // index of its first basic block, as in the CQE
  WqeOpcode opcode = WqeOpcode::nop;
  bool signaled = false;
  bool solicited = false;
  bool local = false;        // finished inside the device: nothing to transmit
  bool done = false;
  bool requested = false;    // READ and atomics: the request is out
  Syndrome status = Syndrome::ok;
  u8 vendor = 0;
  u8 atomic_size = 0;
  u32 first_psn = 0;
  u32 npsn = 0;
  u32 length = 0;            // bytes of the message, or of the response
  u32 sent = 0;              // request bytes handed to the wire
  u32 received = 0;          // response bytes scattered
  u64 remote_address = 0;
  u32 rkey = 0;
  u32 imm = 0;
  u32 xrc_srqn = 0;
  u64 stalled_ns = 0;        // datagrams: since when the ring has been full
  Destination dest;
  SpanList spans;            // gather list, or scatter list of the response
  std::vector<u8> inline_data;   // inline payload, or operands of an atomic

  bool has_response() const {
    return opcode == WqeOpcode::rdma_read || opcode == WqeOpcode::atomic_cs ||
           opcode == WqeOpcode::atomic_fa || opcode == WqeOpcode::masked_cs ||
           opcode == WqeOpcode::masked_fa;
  }
  bool is_atomic() const { return has_response() && opcode != WqeOpcode::rdma_read; }
  u32 last_psn() const { return psn_add(first_psn, npsn - 1); }
  void clear();
};

struct SendEngine {
  std::deque<std::unique_ptr<SendWqe>> inflight;
  size_t cursor = 0;         // first WQE of `inflight` with something to transmit
  u32 next_psn = 0;          // of the next WQE fetched
  u32 responses_due = 0;     // READs and atomics requested and not answered
  bool blocked = false;      // a WQE has failed: fetch nothing behind it
  u8 retries_left = 0;
  u8 rnr_left = 0;
  u64 timer_ns = 0;          // last progress, 0 while nothing is outstanding
  u64 stalled_since_ns = 0;  // outstanding without progress since
  u64 rnr_until_ns = 0;      // nothing is transmitted before
  u64 wire_position = 0;     // of the last record sent, for Fabric::consumed
  u16 wire_slot = 0;

  // DC initiator: the connection in use.
  bool connected = false;
  u32 connection = 0;
  u32 connection_psn = 0;    // its first PSN
  Destination target;
};

// How many WQEs are fetched ahead of their completion.
constexpr size_t max_inflight = 256;

// Parses the WQE at the QP's consumer index into `out`: local operations are
// executed. Returns the number of basic blocks it takes (at least 1), or 0
// when it has to wait for outstanding responses (fence). A refusal is stored
// in out.status.
u32 fetch_wqe(Qp &, SendWqe &out);

// The payload size of one packet on this QP's path, in bytes.
u32 path_mtu_bytes(const Qp &);

// Completes all fetched and posted send WQEs with flush errors.
void flush_send(Qp &);

const char *opcode_name(WqeOpcode);

}  // namespace softhca
