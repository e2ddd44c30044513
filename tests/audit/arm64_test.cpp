// What instructions of AArch64 come to. The words are encoded as the Arm Architecture
// Reference Manual has it; no compiler for that machine is needed.
#include <capstone/capstone.h>
#include <catch.h>

#include "tool/audit/binary/code.h"

using namespace ibvexp::audit;

namespace {

using Kind = Operand::Kind;

std::vector<Instruction> decode(std::uint32_t word) {
  Disassembler arm64(true);
  const std::uint8_t bytes[4] = {
      static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
      static_cast<std::uint8_t>(word >> 16), static_cast<std::uint8_t>(word >> 24)};
  return arm64.decode(bytes, 0x1000);
}

void is_load(const Instruction &i, Register to, Register base, std::int64_t at) {
  CHECK(i.id == X86_INS_MOV);
  CHECK(i.writes == Registers{1} << to);
  CHECK(i.operands[0].reg == to);
  CHECK(i.operands[1].kind == Kind::memory);
  CHECK(i.operands[1].base == static_cast<int>(base));
  CHECK(i.operands[1].value == at);
}

void moves(const Instruction &i, Register pointer, std::int64_t by) {
  CHECK(i.id == X86_INS_LEA);
  CHECK(i.writes == Registers{1} << pointer);
  CHECK(i.operands[0].reg == pointer);
  CHECK(i.operands[1].base == static_cast<int>(pointer));
  CHECK(i.operands[1].value == by);
}

}  // namespace

// x0, x1 and x2 are rdi, rsi and rdx: arguments of the same place.
TEST_CASE("a pointer of AArch64 moves before its access, behind it, or not") {
  auto code = decode(0xf9400401);  // ldr x1, [x0, #8]
  REQUIRE(code.size() == 1);
  is_load(code[0], rsi, rdi, 8);

  code = decode(0xf8408c01);  // ldr x1, [x0, #8]!
  REQUIRE(code.size() == 2);
  moves(code[0], rdi, 8);
  is_load(code[1], rsi, rdi, 0);

  code = decode(0xf8408401);  // ldr x1, [x0], #8
  REQUIRE(code.size() == 2);
  is_load(code[0], rsi, rdi, 0);
  moves(code[1], rdi, 8);

  code = decode(0xa8c10be1);  // ldp x1, x2, [sp], #16
  REQUIRE(code.size() == 3);
  is_load(code[0], rsi, rsp, 0);
  is_load(code[1], rdx, rsp, 8);
  moves(code[2], rsp, 16);

  // The second one first: the first one is the pointer.
  code = decode(0xa9400400);  // ldp x0, x1, [x0]
  REQUIRE(code.size() == 2);
  is_load(code[0], rsi, rdi, 8);
  is_load(code[1], rdi, rdi, 0);

  code = decode(0xa9bf0be1);  // stp x1, x2, [sp, #-16]!
  REQUIRE(code.size() == 3);
  moves(code[0], rsp, -16);
  CHECK(code[1].operands[0].value == 0);
  CHECK(code[1].operands[1].reg == rsi);
  CHECK(code[2].operands[0].value == 8);
  CHECK(code[2].operands[1].reg == rdx);
}

TEST_CASE("which vector register an instruction of AArch64 writes is known") {
  auto code = decode(0x9e670023);  // fmov d3, x1
  REQUIRE(code.size() == 1);
  CHECK(code[0].writes_vector == 1U << 3);
  CHECK(code[0].writes == 0);
  code = decode(0x9e660061);  // fmov x1, d3
  REQUIRE(code.size() == 1);
  CHECK(code[0].writes_vector == 0);
  CHECK(code[0].writes == Registers{1} << rsi);
}
