// Machine code as the recogniser wants it: decoded x86-64 instructions, or what those of
// AArch64 come to.
#pragma once

#include <span>
#include <vector>

#include "tool/audit/binary/values.h"

namespace ibvexp::audit {

struct Operand {
  enum class Kind : std::uint8_t { none, general, vector, memory, immediate, other };
  Kind kind = Kind::none;
  std::uint8_t size = 0;   // bytes
  std::uint8_t reg = 0;    // general or vector: its number
  bool high_byte = false;  // general: ah, bh, ch or dh
  bool foreign = false;    // memory: relative to fs or gs, or not computable
  std::int8_t base = -1;   // memory: register numbers, -1 without
  std::int8_t index = -1;
  std::uint8_t scale = 1;
  std::int64_t value = 0;  // immediate, or displacement (rip already added)
};

struct Instruction {
  std::uint64_t address = 0;
  std::uint8_t length = 0;
  unsigned id = 0;  // x86_insn of Capstone; 0 for bytes that are no code
  std::uint8_t operand_count = 0;
  std::array<Operand, 4> operands{};
  bool keeps_flags = false;  // although the same on x86-64 changes them
  Registers writes = 0;      // general
  std::uint32_t writes_vector = 0;
  std::uint64_t next() const { return address + length; }
};

// Not thread-safe: each thread has its own.
class Disassembler {
 public:
  explicit Disassembler(bool arm64);
  ~Disassembler();
  Disassembler(const Disassembler &) = delete;
  Disassembler &operator=(const Disassembler &) = delete;

  std::vector<Instruction> decode(std::span<const std::uint8_t> code, std::uint64_t address);

 private:
  bool arm64_;
  std::size_t handle_;
  void *scratch_;
};

}  // namespace ibvexp::audit
