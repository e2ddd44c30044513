// The receive side of a QP (or of one DC connection). Private to the model.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/prm.h"
#include "base/types.h"
#include "model/memory.h"
#include "model/mkey.h"
#include "model/qp.h"
#include "model/signature.h"
#include "model/tag_matching.h"
#include "wire/packet.h"

namespace softhca {

// A receive WQE taken from the RQ or SRQ, or a buffer of the tag list.
struct ReceiveWqe {
  u16 counter = 0;
  bool taken = false;
  u64 capacity = 0;
  std::vector<Span> spans;                                // resolved for the bytes asked for
  std::vector<std::unique_ptr<SignedPart>> signed_parts;  // what some of them are
  Syndrome status = Syndrome::ok;
  u32 stride = 0;  // SRQ of strides: the first one of the packet

  // Tag matching SRQ:
  TagOutcome tag = TagOutcome::none;
  u16 entry = 0;                    // of the tag list, if there was a match
  u32 header_bytes = 0;             // at the start of the message, not delivered
  std::array<u8, 32> tag_header{};  // the first half goes into completions

  bool matched() const {
    return tag != TagOutcome::none && tag != TagOutcome::unexpected && tag != TagOutcome::untagged;
  }
  void reset();  // for the next message
};

// One thing to send back, in order.
struct Response {
  enum class Kind : u8 { ack, nak, read, atomic } kind = Kind::ack;
  Nak nak = Nak::none;
  u8 timer = 0;
  u32 psn = 0;
  u32 npsn = 1;    // read: PSNs that it answers
  u32 length = 0;  // and bytes asked for,
  u32 base = 0;    // where they start in the whole READ,
  u32 offset = 0;  // and how many are sent
  SpanList spans;
  u8 result[32] = {};  // atomic
  u8 result_bytes = 0;

  // A negative acknowledge that ends the connection.
  bool ends() const { return kind == Kind::nak && nak != Nak::rnr && nak != Nak::sequence; }
};

struct Responder {
  u32 expected_psn = 0;
  bool nak_sent = false;  // a gap is reported; wait for the expected PSN
  bool dead = false;      // DC: connection failed, ignore until reconnect
  u32 connection = 0;     // DC

  // The message being received.
  bool in_message = false;
  WqeOpcode opcode = WqeOpcode::nop;
  u32 xrc_srqn = 0;
  u32 received = 0;
  ReceiveWqe wqe;
  SpanList target;  // RDMA WRITE

  std::deque<Response> responses;
  struct Replay {
    u32 psn;
    u8 bytes;
    u8 result[32];
  };
  std::deque<Replay> atomics;  // results kept for duplicate requests

  // The requester's address: where answers go.
  u32 peer_qpn = 0;
  u16 peer_lid = 0, own_lid = 0;
  u8 peer_gid[16] = {}, own_gid[16] = {};
  bool grh = false;
  Service service = Service::rc;
  u32 message_number = 0;  // MSN: messages completed

  // DC target: one responder per initiator.
  std::unordered_map<u32, std::unique_ptr<Responder>> connections;
  std::vector<u32> pending;  // initiators with responses to push
  bool listed = false;       // this connection is in `pending`
};

constexpr size_t atomic_replays = 64;

// Resolves a scatter list as far as `bytes` reach: like the hardware, an entry
// that is not needed is not looked at.
// With `missing` its status may be page_fault.
void resolve_scatter(const u8 *segments, u32 count, u64 bytes, const Requester &, ReceiveWqe &out,
                     PageFault *missing = nullptr);
// Takes the next receive WQE and resolves its scatter list for `bytes`.
// False when none is posted, or its memory is yet to come.
bool take_receive_wqe(Qp &, Srq *, u64 bytes, ReceiveWqe &out);
// The same of an SRQ of strides, for one packet.
bool take_strides(Qp &, Srq &, u32 bytes, ReceiveWqe &out);
// The whole message has arrived: what lies under keys with signatures goes to memory.
Syndrome settle_signed(const Qp &, const Srq *, const ReceiveWqe &, u64 bytes);
// Where a receive completes.
Cq *completion_queue(const Qp &, const Srq *);
// Completes a taken receive WQE.
void complete_receive(Qp &, Srq *, const ReceiveWqe &, CqeOpcode, const PacketHeader &, u32 bytes,
                      const u8 *inline_data = nullptr, u32 inline_bytes = 0);
void complete_receive_error(Qp &, Srq *, const ReceiveWqe &, Syndrome);

// The message being received will never be complete. A receive WQE of it ends with a flush
// error; on an unreliable connection with a queue of its own the next message gets it.
void abandon_message(Qp &, Responder &);

// Unreliable datagrams, unicast and multicast.
void receive_datagram(Qp &, const PacketHeader &, const u8 *payload);

// Executes an atomic on `target` (one span list of `size` bytes). `operands`
// are big-endian as in the WQE. Returns ok, remote_invalid_request or
// remote_access; `result` receives what the requester's buffer gets.
Syndrome execute_atomic(const SpanList &target, u64 address, WqeOpcode, u32 size,
                        const u8 *operands, u8 *result);

}  // namespace softhca
