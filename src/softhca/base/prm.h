// Numbers and layouts of the ConnectX programming interface that software and
// device share: WQE opcodes, CQE opcodes, syndromes, segment sizes. Sources:
// the driver and provider headers of Linux and rdma-core.
#pragma once

#include "base/types.h"

namespace softhca {

enum class WqeOpcode : u8 {
  nop = 0x00,
  send_inv = 0x01,
  rdma_write = 0x08,
  rdma_write_imm = 0x09,
  send = 0x0a,
  send_imm = 0x0b,
  tso = 0x0e,
  wait = 0x0f,
  rdma_read = 0x10,
  atomic_cs = 0x11,
  atomic_fa = 0x12,
  masked_cs = 0x14,
  masked_fa = 0x15,
  receive_enable = 0x16,
  send_enable = 0x17,
  local_inv = 0x1b,
  set_psv = 0x20,
  umr = 0x25,
  tag_matching = 0x28,
  multi_packet = 0x29,  // "enhanced"
  mmo = 0x2f,
};

enum class CqeOpcode : u8 {
  req = 0,
  resp_rdma_write_imm = 1,
  resp_send = 2,
  resp_send_imm = 3,
  resp_send_inv = 4,
  resize_cq = 5,
  no_packet = 6,
  signature_error = 12,
  req_err = 13,
  resp_err = 14,
  invalid = 15,
};

// Completion syndromes (CQE byte 55).
enum class Syndrome : u8 {
  ok = 0,
  local_length = 0x01,
  local_qp_op = 0x02,
  local_protection = 0x04,
  flush = 0x05,
  mw_bind = 0x06,
  bad_response = 0x10,
  local_access = 0x11,
  remote_invalid_request = 0x12,
  remote_access = 0x13,
  remote_operation = 0x14,
  retry_exceeded = 0x15,
  rnr_retry_exceeded = 0x16,
  remote_aborted = 0x22,
  page_fault = 0xff,  // internal: a page has to be fetched first, see model/paging.h
};

// Vendor error syndromes as seen on hardware.
constexpr u8 vendor_syndrome(Syndrome s, bool responder) {
  switch (s) {
    case Syndrome::local_qp_op: return 0x68;
    case Syndrome::local_protection: return 0x52;
    case Syndrome::flush: return responder ? 0xf9 : 0xf5;
    case Syndrome::remote_invalid_request: return 0x8a;
    case Syndrome::remote_access: return 0x88;
    case Syndrome::remote_operation: return 0x89;
    case Syndrome::retry_exceeded: return 0x81;
    case Syndrome::rnr_retry_exceeded: return 0x82;
    case Syndrome::remote_aborted: return 0x93;
    default: return 0;
  }
}

constexpr u32 wqe_bb = 64;  // bytes of a send WQE basic block
constexpr u32 wqe_ds = 16;  // bytes of a data segment unit
constexpr u32 terminator_lkey = 0x100;
constexpr u32 null_lkey_default = 0x00000100;
constexpr u32 unused_uidx = 0xffffff;
constexpr u32 mad_bytes = 256;  // a management datagram

// Async event types of the uverbs interface.
enum class EventType : u32 {
  cq_err = 0,
  qp_fatal = 1,
  qp_req_err = 2,
  qp_access_err = 3,
  comm_est = 4,
  sq_drained = 5,
  path_mig = 6,
  path_mig_err = 7,
  device_fatal = 8,
  port_active = 9,
  port_err = 10,
  lid_change = 11,
  pkey_change = 12,
  sm_change = 13,
  srq_err = 14,
  srq_limit = 15,
  qp_last_wqe = 16,
  client_reregister = 17,
  gid_change = 18,
  wq_fatal = 19,
};

// The 64-byte completion as the device builds it; all fields big-endian.
struct Cqe {
  u8 raw[64] = {};
  void uidx(u32 v) { store_be32(raw + 32, v); }
  void imm_raw(u32 network_order) { std::memcpy(raw + 36, &network_order, 4); }
  void imm_host(u32 v) { store_be32(raw + 36, v); }
  void byte_count(u32 v) { store_be32(raw + 44, v); }
  void timestamp(u64 v) { store_be64(raw + 48, v); }
  void opcode_qpn(u8 op, u32 qpn) { store_be32(raw + 56, u32{op} << 24 | (qpn & 0xffffff)); }
  void wqe_counter(u16 v) { store_be16(raw + 60, v); }
  void wqe_id(u16 v) { store_be16(raw + 2, v); }
  void stride_index(u16 v) { store_be16(raw + 20, v); }  // of messages; frames have the counter
  void slid(u16 v) { store_be16(raw + 22, v); }
  void flags_rqpn(u32 v) { store_be32(raw + 24, v); }
  void application(u8 operation, u16 info) {  // tag matching is the only one
    raw[40] = 1;
    raw[41] = operation;
    store_be16(raw + 42, info);
  }
  void pkey_raw(u16 pkey) { store_be16(raw + 38, pkey); }
  void error(Syndrome s, u8 vendor) {
    raw[54] = vendor;
    raw[55] = static_cast<u8>(s);
  }
};

}  // namespace softhca
