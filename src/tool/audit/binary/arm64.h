// Translates AArch64 code for the recogniser: each instruction becomes one to three that
// Machine has, with mapped register numbers.
#pragma once

#include "tool/audit/binary/code.h"

struct cs_insn;

namespace ibvexp::audit::arm64 {

// Registers that a call may change.
Registers caller_saved();

// Appends the translation of an instruction.
void convert(std::size_t handle, const cs_insn &insn, std::vector<Instruction> &out);

// Whether a function has one of the instructions with which look-ups begin.
bool may_look_up(std::span<const std::uint8_t> code);

}  // namespace ibvexp::audit::arm64
