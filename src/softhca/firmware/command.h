// A command of the programming interface: its boxes, and how firmware answers.
//
// A command that firmware does not know or refuses says why in its output box:
// status in byte 0, syndrome in bytes 4-7.
#pragma once

#include <vector>

#include "base/types.h"

namespace softhca::firmware {

enum class Status : u8 {
  ok = 0x0,
  internal_error = 0x1,
  bad_op = 0x2,
  bad_param = 0x3,
  bad_system_state = 0x4,
  bad_resource = 0x5,
  bad_resource_state = 0x9,
  no_resources = 0xf,
  bad_qp_state = 0x10,
  bad_input_length = 0x50,
  bad_output_length = 0x51,
};

constexpr u16 header_bytes = 16;  // of every input and output box

struct Command {
  std::vector<u8> in;  // header_bytes at least, as is `out`
  std::vector<u8> out;
  u16 opcode() const { return load_be16(in.data()); }
  u16 uid() const { return load_be16(in.data() + 2); }  // who gives it: 0 is the driver itself
  u32 op_mod() const { return load_be16(in.data() + 6); }
};

// Puts the status into the output box, which is otherwise empty when it is not ok,
// and logs it then.
void answer(Command &, Status);

enum class Opcode : u16 {
  query_hca_cap = 0x100,
  create_mkey = 0x200,
  create_cq = 0x400,
  query_cq = 0x402,
  modify_cq = 0x403,
  create_qp = 0x500,
  rst2init_qp = 0x502,
  init2rtr_qp = 0x503,
  rtr2rts_qp = 0x504,
  rts2rts_qp = 0x505,
  sqerr2rts_qp = 0x506,
  to_err_qp = 0x507,
  to_rst_qp = 0x50a,
  query_qp = 0x50b,
  sqd_rts_qp = 0x50c,
  init2init_qp = 0x50e,
  create_psv = 0x600,
  arm_rq = 0x703,
  create_dct = 0x710,
  query_dct = 0x713,
  arm_dct = 0x714,
  create_xrq = 0x717,
  query_xrq = 0x719,
  arm_xrq = 0x71a,
  query_hca_vport_context = 0x762,
  alloc_pd = 0x800,
  nop = 0x80d,
  alloc_transport_domain = 0x816,
  modify_sq = 0x905,
  create_rmp = 0x90c,
  modify_rmp = 0x90d,
  query_rmp = 0x90f,
  create_tis = 0x912,
  query_tis = 0x915,
  create_general_object = 0xa00,
  modify_general_object = 0xa01,
};

constexpr u32 number_at = 8;  // of an object, in 24 bits
inline u32 number_in(const Command &c) { return load_be32(c.in.data() + number_at) & 0xffffff; }

// The object types of CREATE_GENERAL_OBJECT that the device knows.
inline constexpr u32 object_type_reserved_qpn = 0x2c, object_type_av_qp_mapping = 0x3a,
                     object_type_scheduling_element = 0x26;

}  // namespace softhca::firmware
