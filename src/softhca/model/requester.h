// The send side of a QP: WQEs fetched from the send queue and not yet retired.
// Private to the device model.
#pragma once

#include <deque>
#include <memory>
#include <set>

#include "base/prm.h"
#include "base/types.h"
#include "model/memory.h"
#include "model/qp.h"
#include "model/signature.h"
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
  u64 key = 0;  // Q_Key or DC access key
  u8 dgid[16] = {};

  bool same_target(const Destination &o) const {
    return qpn == o.qpn && dlid == o.dlid && key == o.key && grh == o.grh &&
           std::memcmp(dgid, o.dgid, sizeof dgid) == 0;
  }
};

// A raw packet WQE. Its inline_data is one frame, or with TSO the headers and
// all of the payload.
struct EthWork {
  u8 checksums = 0;  // cs_flags of the Ethernet segment
  u16 mss = 0;
  u32 header_bytes = 0;
  u32 segments = 0;   // frames to transmit; 0: the wire does not take them
  u32 segment = 0;    // the next one
  u16 next_slot = 0;  // the first receiver that does not have it yet
};

// Work requests that come from no send queue: tag matching reads the data of a
// rendezvous and answers it.
enum class OwnWork : u8 { no, rendezvous_read, rendezvous_fin };

// What of a work request is plain: reset by assignment.
struct SendWqeFields {
  OwnWork own = OwnWork::no;
  u16 tag_entry = 0;     // rendezvous_read: of the tag list
  u16 stream = 0;        // DCI with streams
  bool flushed = false;  // its stream has failed before
  bool lost = false;     // failed before the target had all of it
  u16 counter = 0;       // index of its first basic block, as in the CQE
  WqeOpcode opcode = WqeOpcode::nop;
  bool signaled = false;
  bool solicited = false;
  bool local = false;  // finished inside the device: nothing to transmit
  bool done = false;
  bool requested = false;  // READ and atomics: the request is out
  Syndrome status = Syndrome::ok;
  u8 vendor = 0;
  u8 atomic_size = 0;
  u32 first_psn = 0;
  u32 npsn = 0;
  u32 length = 0;    // bytes of the message, or of the response
  u32 sent = 0;      // request bytes handed to the wire
  u32 received = 0;  // response bytes scattered
  u32 asked = 0;     // and asked for: all of them, or with UDP as many as the wire holds
  u64 remote_address = 0;
  u32 rkey = 0;
  u32 imm = 0;
  u32 xrc_srqn = 0;
  bool fanned_out = false;  // multicast: `slots` is filled in
  Destination dest;
  EthWork eth;  // raw packet only

  bool has_response() const {
    return opcode == WqeOpcode::rdma_read || opcode == WqeOpcode::atomic_cs ||
           opcode == WqeOpcode::atomic_fa || opcode == WqeOpcode::masked_cs ||
           opcode == WqeOpcode::masked_fa;
  }
  bool is_atomic() const { return has_response() && opcode != WqeOpcode::rdma_read; }
  u32 last_psn() const { return psn_add(first_psn, npsn - 1); }
};

struct SendWqe : SendWqeFields {
  std::vector<u16> slots;  // multicast: receivers still to be served
  std::vector<u32> ends;   // raw packet, several in the WQE: where each ends in the data
  SpanList spans;          // gather list, or scatter list of the response
  std::vector<std::unique_ptr<SignedPart>> signed_parts;  // what spans of keys with signatures are
  std::vector<u8> postponed;    // the whole WQE, whose effect on a memory key is to come
  std::vector<u8> inline_data;  // inline payload, operands of an atomic, or header of a rendezvous

  void clear();
};

struct SendEngine {
  std::deque<std::unique_ptr<SendWqe>> inflight;
  std::deque<std::unique_ptr<SendWqe>> own;  // goes before what is posted
  size_t cursor = 0;                         // first WQE of `inflight` with something to transmit
  u32 next_psn = 0;                          // of the next WQE fetched
  u32 acked_psn = 0;                         // the newest that was acknowledged
  u32 nak_psn = 0;                           // and was so when packets were reported missing
  u32 responses_due = 0;                     // READs and atomics requested and not answered
  bool blocked = false;                      // a WQE has failed: fetch nothing behind it
  bool draining = false;                     // a wrong signature: likewise, and then SQD
  u8 retries_left = 0;
  u8 rnr_left = 0;
  u64 timer_ns = 0;          // last progress, 0 while nothing is outstanding
  u64 stalled_since_ns = 0;  // outstanding without progress since
  u64 rnr_until_ns = 0;      // nothing is transmitted before
  u64 pace_ns = 0;           // raw packet: no frame leaves before
  u64 schedule_ns = 0;       // its scheduling element lets nothing out before
  u64 wire_position = 0;     // of the last record sent, for Fabric::consumed
  u16 wire_slot = 0;

  // DC initiator: the connection in use.
  bool connected = false;
  u32 connection = 0;
  u32 connection_psn = 0;  // its first PSN
  Destination target;
  std::set<u16> errored_streams;  // and not reset
};

// How many WQEs are fetched ahead of their completion.
constexpr size_t max_inflight = 256;

// Parses the WQE at the QP's consumer index into `out`: local operations are
// executed. Returns the number of basic blocks it takes (at least 1), or 0
// when it has to wait for outstanding responses (fence) or pages. A refusal is stored
// in out.status.
u32 fetch_wqe(Qp &, SendWqe &out);

// The effect on a memory key that a WQE in flight has been waiting for, see
// DeviceConfig::strict_ordering. A failure is stored in its status.
void change_key_now(Qp &, SendWqe &);

// Puts a work request of the device itself on the way to the QP's peer.
void queue_own_work(Qp &, std::unique_ptr<SendWqe>);

// DCI with streams: `w`, the oldest work request, has failed and is completed.
// Only its stream stops. False when it takes the QP with it.
bool stop_stream(Qp &, const SendWqe &w);
// Ends the DC connection in use.
void disconnect_target(Qp &);

// The QP has another path: what was sent by the old one and is not answered goes again.
void send_by_new_path(Qp &);
// Where the messages of a connected QP go.
void connected_destination(const Qp &, Destination &);

// The payload size of one packet on this QP's path, in bytes.
u32 path_mtu_bytes(const Qp &);
// What its packets travel as.
Service service_of(const Qp &);

// Raw packet QPs: the size of the Ethernet segment at the start of `room`
// bytes (0: malformed), and what a WQE with its data resolved makes of it.
u32 eth_segment_bytes(const u8 *segment, size_t room);
Syndrome prepare_frames(const Qp &, const u8 *segment, SendWqe &);
// The same for several packets in a WQE: what has been gathered is one more, or with
// a size each as many as it makes. They are added to `all`, which finish_packets() takes.
Syndrome add_packets(const Qp &, const u8 *segment, u32 each, SendWqe &, std::vector<u8> &all);
Syndrome finish_packets(SendWqe &, std::vector<u8> &all);
// Transmits what is left of the WQE. False when the wire or the rate limit
// takes nothing more for now.
bool transmit_frames(Qp &, SendWqe &, u64 now_ns);

// Executes a memory copy WQE (linearised).
Syndrome execute_memcpy(const Qp &, const u8 *wqe, u32 ds);

// A response that is one packet of a real wire: where in its READ it belongs. False
// when it is not as long as it has to be there, or answers nothing.
bool place_response(const Qp &, PacketHeader &);

// Completes all fetched and posted send WQEs with flush errors.
void flush_send(Qp &);

const char *opcode_name(WqeOpcode);

}  // namespace softhca
