// What connection managers send one another: the messages of the InfiniBand CM
// (IBTA volume 1, chapter 12) with the fields that the RDMA CM uses, and what
// both sides must know about the path. One record on the wire each.
#pragma once

#include "base/types.h"
#include "cm/cm_address.h"
#include "cm/registry.h"

namespace softhca::cm {

enum class MessageType : u8 { req = 1, mra, rep, rtu, rej, dreq, drep, sidr_req, sidr_rep };

// A path record, from the requester's point of view.
struct Path {
  Ip sgid{}, dgid{};
  u32 flow_label = 0;
  u16 slid = 0, dlid = 0;
  u16 pkey = 0xffff;
  u8 hop_limit = 0;
  u8 traffic_class = 0;
  u8 sl = 0;
  u8 mtu = 0;       // enum ib_mtu
  u8 rate = 0;      // enum ib_rate
  u8 lifetime = 0;  // 4.096 us * 2^n
  u8 global = 0;    // packets carry a GRH
  u8 reserved[3] = {};

  Path reversed() const;
};

constexpr u32 message_version = 1;
constexpr u32 max_private_data = 216;  // SIDR_REQ has the longest

struct Message {
  u32 version = message_version;
  MessageType type{};
  u8 qp_type = 0;  // enum ibv_qp_type
  u8 status = 0;   // REJ: reason, SIDR_REP: status
  u8 private_length = 0;
  u64 incarnation = 0;     // of the sender
  u64 to_incarnation = 0;  // of the receiver; another process ignores the message
  u32 comm_id = 0;         // the sender's id; 0 in refusals of unknown ones
  u32 to_comm_id = 0;      // the receiver's; in a first message, its listener's
  u64 service = 0;
  Ip source_ip{}, destination_ip{};
  u16 family = 0;
  u16 source_port = 0;
  u32 qpn = 0;
  u32 qkey = 0;
  u32 starting_psn = 0;  // that the receiver is to send with
  u32 ece_vendor = 0, ece_options = 0;
  Path path;
  u8 responder_resources = 0;
  u8 initiator_depth = 0;
  u8 flow_control = 0;
  u8 retry_count = 0;
  u8 rnr_retry_count = 0;
  u8 srq = 0;
  u8 ack_timeout = 0;
  u8 service_timeout = 0;  // MRA: 4.096 us * 2^n until the answer comes
  u8 private_data[max_private_data] = {};
};
static_assert(sizeof(Message) % 8 == 0);

// Reasons of a REJ and status of a SIDR_REP.
constexpr u8 reject_timeout = 4, reject_invalid_service = 8, reject_invalid_gid = 12,
             reject_consumer = 28, reject_vendor_option = 35;
constexpr u8 sidr_success = 0, sidr_unsupported = 1, sidr_reject = 2;

// Private data that fits, by message; of the first messages, the RDMA CM takes
// 36 bytes for the IP addresses (not with native InfiniBand addresses).
constexpr u32 req_private = 92, rep_private = 196, rej_private = 148;
constexpr u32 sidr_req_private = 216, sidr_rep_private = 136;
constexpr u32 ip_header_bytes = 36;
constexpr u32 private_header(u16 family) { return family == family_ib ? 0 : ip_header_bytes; }

// Sends to a process, in order; when its ring is full, at a later flush().
// Messages to the dead are lost, as on a real wire.
void send(const Party &to, const Message &);
bool flush_messages();
// Whether some are left for the next time.
bool messages_waiting();
// Messages that had to wait are numbered; whether one younger than `number` is
// still waiting.
u64 newest_waiting();
bool waiting_since(u64 number);
void forget_messages();  // in a forked child

}  // namespace softhca::cm
