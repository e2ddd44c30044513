// Vector registers, as far as they carry pointers: two halves of 64 bits. gcc
// fetches a context together with its neighbour, for example.
#include <capstone/capstone.h>

#include "tool/audit/binary/machine.h"

namespace ibvexp::audit {

Machine::Halves Machine::read_vector(const Instruction &insn, const Operand &op) {
  if (op.kind == Operand::Kind::vector) return state.xmm[op.reg];
  if (op.kind == Operand::Kind::general) return {read(insn, op), values_.constant(0)};
  if (op.kind != Operand::Kind::memory) return {unknown, unknown};
  const Value address = address_of(insn, op);
  if (op.size < 8) return {unknown, unknown};
  const Value low = load(insn, address, 8);
  const Value high = op.size >= 16 ? load(insn, values_.plus(address, 8), 8) : values_.constant(0);
  return {low, high};
}

void Machine::write_vector(const Instruction &insn, const Operand &op, Halves v) {
  if (op.kind == Operand::Kind::vector) {
    state.xmm[op.reg] = v;
  } else if (op.kind == Operand::Kind::general) {
    write(insn, op, v[0]);
  } else if (op.kind == Operand::Kind::memory) {
    const Value address = address_of(insn, op);
    if (op.size < 8) return store(insn, address, unknown, op.size);
    store(insn, address, v[0], 8);
    if (op.size >= 16) store(insn, values_.plus(address, 8), v[1], 8);
    // The upper half of a ymm register is not followed.
    for (int i = 16; i < op.size; i += 8) store(insn, values_.plus(address, i), unknown, 8);
  }
}

bool Machine::vectors(const Instruction &insn) {
  const Operand &to = insn.operands[0];
  const Operand &a = insn.operands[1];
  // The forms with three operands do not read their destination.
  const bool three = insn.operand_count >= 3;
  const Operand &b = three ? insn.operands[2] : a;
  const Operand &first = three ? a : to;
  // clang-format off
  switch (insn.id) {
  case X86_INS_MOVDQU: case X86_INS_MOVDQA: case X86_INS_MOVUPS: case X86_INS_MOVAPS:
  case X86_INS_MOVUPD: case X86_INS_MOVAPD: case X86_INS_VMOVDQU: case X86_INS_VMOVDQA:
  case X86_INS_VMOVUPS: case X86_INS_VMOVAPS: case X86_INS_VMOVUPD: case X86_INS_VMOVAPD:
  case X86_INS_LDDQU: case X86_INS_VLDDQU:
    write_vector(insn, to, read_vector(insn, a));
    return true;
  case X86_INS_MOVD: case X86_INS_VMOVD:
    if (to.size != 8 && a.size != 8) return false;
    [[fallthrough]];
  case X86_INS_MOVQ: case X86_INS_VMOVQ: {
    const Halves v = read_vector(insn, a);
    write_vector(insn, to, {v[0], values_.constant(0)});
    return true;
  }
    // clang-format on
    case X86_INS_MOVLPS:
    case X86_INS_MOVLPD:
    case X86_INS_VMOVLPS:
    case X86_INS_VMOVLPD:
      if (to.kind == Operand::Kind::memory) write_vector(insn, to, read_vector(insn, a));
      else write_vector(insn, to, {read_vector(insn, b)[0], read_vector(insn, first)[1]});
      return true;
    case X86_INS_MOVHPS:
    case X86_INS_MOVHPD:
    case X86_INS_VMOVHPS:
    case X86_INS_VMOVHPD:
      if (to.kind == Operand::Kind::memory)
        store(insn, address_of(insn, to), read_vector(insn, a)[1], 8);
      else write_vector(insn, to, {read_vector(insn, first)[0], read_vector(insn, b)[0]});
      return true;
    case X86_INS_MOVHLPS:
    case X86_INS_VMOVHLPS:
      write_vector(insn, to, {read_vector(insn, b)[1], read_vector(insn, first)[1]});
      return true;
    case X86_INS_MOVLHPS:
    case X86_INS_VMOVLHPS:
    case X86_INS_PUNPCKLQDQ:
    case X86_INS_VPUNPCKLQDQ:
    case X86_INS_UNPCKLPD:
    case X86_INS_VUNPCKLPD:
      write_vector(insn, to, {read_vector(insn, first)[0], read_vector(insn, b)[0]});
      return true;
    case X86_INS_PUNPCKHQDQ:
    case X86_INS_VPUNPCKHQDQ:
    case X86_INS_UNPCKHPD:
    case X86_INS_VUNPCKHPD:
      write_vector(insn, to, {read_vector(insn, first)[1], read_vector(insn, b)[1]});
      return true;
    case X86_INS_PSHUFD:
    case X86_INS_VPSHUFD: {
      // 0xee doubles the upper half, 0x4e swaps the halves, 0x44 doubles the lower.
      const Halves v = read_vector(insn, a);
      const auto order = insn.operands[2].value & 0xff;
      write_vector(insn, to,
                   order == 0xee   ? Halves{v[1], v[1]}
                   : order == 0x4e ? Halves{v[1], v[0]}
                   : order == 0x44 ? Halves{v[0], v[0]}
                                   : Halves{unknown, unknown});
      return true;
    }
    case X86_INS_PEXTRQ:
    case X86_INS_VPEXTRQ:
      write(insn, to, read_vector(insn, a)[insn.operands[2].value & 1]);
      return true;
    case X86_INS_PINSRQ:
    case X86_INS_VPINSRQ: {
      const bool vex = insn.operand_count == 4;
      Halves v = read_vector(insn, vex ? a : to);
      v[insn.operands[vex ? 3 : 2].value & 1] = read(insn, vex ? insn.operands[2] : a);
      write_vector(insn, to, v);
      return true;
    }
    case X86_INS_PXOR:
    case X86_INS_XORPS:
    case X86_INS_XORPD:
    case X86_INS_VPXOR:
    case X86_INS_VXORPS:
    case X86_INS_VXORPD: {
      const bool zero = first.kind == Operand::Kind::vector && b.kind == Operand::Kind::vector &&
                        first.reg == b.reg;
      if (!zero) return false;
      const Value none = values_.constant(0);
      write_vector(insn, to, {none, none});
      return true;
    }
    default: return false;
  }
}

}  // namespace ibvexp::audit
