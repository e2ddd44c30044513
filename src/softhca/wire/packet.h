// What travels between the processes of a fabric. One record carries a burst:
// up to burst_bytes of one message, standing for `npsn` consecutive packets of
// the path MTU, so that PSN arithmetic is that of real packets without paying
// for each of them.
#pragma once

#include "base/types.h"

namespace softhca {

enum class PacketKind : u8 {
  request = 1,      // RC, UC, XRC, DC request burst
  ack,              // positive, RNR or negative acknowledge
  read_response,    // payload of an RDMA READ
  atomic_response,  // original value of an atomic
  datagram,         // UD, unicast or multicast
  dc_disconnect,    // the DCI turns to another target
  ethernet,         // a raw frame
  cm,               // connection manager message
  roce,             // a packet of another host for the process in this slot, as it came
};

enum class Service : u8 { rc = 1, uc, ud, xrc, dc };

// The destination of datagrams to a multicast group.
constexpr u32 multicast_qpn = 0xffffff;
// The general services interface of every port, where management datagrams go.
constexpr u32 general_services_qpn = 1;

// BTH-like flags of a request burst.
enum PacketFlags : u8 {
  packet_first = 1,  // first burst of its message
  packet_last = 2,   // last burst of its message
  packet_solicited = 4,
  packet_imm = 8,            // imm holds immediate data (network order)
  packet_inv = 16,           // imm holds the rkey to invalidate (host order)
  packet_grh = 32,           // the packet carries a global route header
  packet_connect = 64,       // DC: first burst of a connection
  packet_ack_request = 128,  // acknowledged though its message goes on
};

// AETH syndromes as the requester sees them.
enum class Nak : u8 {
  none = 0,  // acknowledge
  rnr,       // `timer` holds the 5-bit RNR code
  sequence,  // PSN gap: go back to `psn`
  invalid_request,
  remote_access,
  remote_operation,
};

struct PacketHeader {
  PacketKind kind;
  Service service;
  u8 opcode;  // send opcode of the WQE (WqeOpcode)
  u8 flags;   // PacketFlags
  Nak nak;    // ack
  u8 timer;   // ack: RNR timer code
  u8 sl;
  u8 traffic_class;
  u16 src_slot;  // process that sent it; filled in by the fabric
  u16 src_lid;
  u16 dst_lid;
  u16 pkey;
  u32 src_qpn;
  u32 dst_qpn;
  u32 psn;
  u32 npsn;            // number of PSNs this record stands for
  u32 payload;         // bytes behind the header
  u32 message_bytes;   // length of the whole message (RETH length); answers: MSN
  u64 remote_address;  // of this burst's first byte
  u32 rkey;
  u32 imm;
  u64 key;  // UD: Q_Key; DC: access key
  u32 xrc_srqn;
  u32 connection;  // DC: number of the connection at this initiator
  u32 offset;      // of this burst in its message
  u32 flow_label;
  u8 hop_limit;
  u8 atomic_size;      // bytes per operand (4..32); plain atomics 8
  u8 port;             // sending port
  u8 migration_asked;  // MigReq is 0: the sender is armed, or wants to be
  u8 reserved[10];
  u16 udp_sport;  // RoCE v2; 0: derived from the QP numbers
  u8 sgid[16];
  u8 dgid[16];
};
static_assert(sizeof(PacketHeader) == 128);

// Whether its sender waits to hear of it.
constexpr bool wants_answer(const PacketHeader &h) {
  return (h.kind == PacketKind::request && h.service != Service::uc) || h.kind == PacketKind::cm;
}

constexpr u32 burst_bytes = 16 * 1024;

}  // namespace softhca
