// AArch64 code for the recogniser: each instruction as one to three of those that
// Machine knows, with its registers by other numbers.
#pragma once

#include "tool/audit/binary/code.h"

struct cs_insn;

namespace ibvexp::audit::arm64 {

// Registers that a call may change.
Registers caller_saved();

// Appends what an instruction comes to.
void convert(std::size_t handle, const cs_insn &insn, std::vector<Instruction> &out);

// Whether a function has one of the instructions with which look-ups begin.
bool may_look_up(std::span<const std::uint8_t> code);

}  // namespace ibvexp::audit::arm64
