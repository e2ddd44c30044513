// The boxes of a firmware command.
//
// A command that firmware does not know or refuses fails with EREMOTEIO, and
// the output box says why: status in byte 0, syndrome in bytes 4-7.
#pragma once

#include <vector>

#include "uverbs/attrs.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

enum class Status : u8 {
  ok = 0x0,
  bad_op = 0x2,
  bad_param = 0x3,
  bad_resource = 0x5,
  no_resources = 0xf,
  bad_qp_state = 0x10,
  bad_input_length = 0x50,
};

constexpr u16 header_bytes = 16;  // of every input and output box

struct Command {
  std::vector<u8> in;
  std::vector<u8> out;
  u16 out_id = 0;
  u16 opcode() const { return load_be16(in.data()); }
  u32 op_mod() const { return load_be16(in.data() + 6); }
};

// Reads the input box of attribute `in_id` and makes room for the output box.
int read_command(const File &, const Attrs &, u16 in_id, u16 out_id, Command &);
// Returns the output box with `status`; what the method is to return.
int reply(const Attrs &, Command &, Status);

}  // namespace softhca::uverbs
