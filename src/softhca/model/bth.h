// The transport header of a packet (BTH), and the sizes of what stands before
// and behind it. From the InfiniBand specification, volume 1, chapter 9.
#pragma once

#include "base/types.h"

namespace softhca {

constexpr u32 ether_bytes = 14, ipv4_bytes = 20, ipv6_bytes = 40, udp_bytes = 8, lrh_bytes = 8;
constexpr u32 bth_bytes = 12, deth_bytes = 8, reth_bytes = 16, atomic_eth_bytes = 28;
constexpr u32 aeth_bytes = 4, atomic_ack_bytes = 8, imm_bytes = 4, xrceth_bytes = 4, icrc_bytes = 4;
constexpr u32 max_mtu_bytes = 4096;

namespace bth {

// Opcodes: the upper three bits are the service.
enum Opcode : u8 {
  send_first = 0,
  send_middle,
  send_last,
  send_last_imm,
  send_only,
  send_only_imm,
  write_first,
  write_middle,
  write_last,
  write_last_imm,
  write_only,
  write_only_imm,
  read_request,
  read_first,
  read_middle,
  read_last,
  read_only,
  acknowledge,
  atomic_acknowledge,
  compare_swap,
  fetch_add,
  send_last_inv = 22,
  send_only_inv = 23,
};

constexpr u8 service_mask = 0xe0;
enum ServiceBits : u8 { rc = 0x00, uc = 0x20, ud = 0x60, xrc = 0xa0 };

}  // namespace bth

}  // namespace softhca
