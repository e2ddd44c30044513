#include "tool/audit/binary/machine.h"

#include <capstone/capstone.h>

#include <algorithm>

#include "tool/audit/binary/arm64.h"

namespace ibvexp::audit {
namespace {

constexpr Registers bit(Register r) { return Registers{1} << r; }
constexpr Registers caller_saved =
    bit(rax) | bit(rcx) | bit(rdx) | bit(rsi) | bit(rdi) | bit(r8) | bit(r9) | bit(r10) | bit(r11);

std::uint64_t truncated(std::uint64_t v, unsigned size) {
  return size >= 8 ? v : v & ((std::uint64_t{1} << (8 * size)) - 1);
}

}  // namespace

Summary foreign_summary(bool arm64) {
  return {unknown, arm64 ? arm64::caller_saved() : caller_saved, 0xffff, {}};
}

Value Machine::defined_by(const Instruction &insn, std::uint64_t which) {
  return values_.symbol({Symbol::Kind::defined, insn.address, which});
}

Value Machine::address_of(const Instruction &, const Operand &m) {
  if (m.foreign) return unknown;
  Value v = values_.constant(static_cast<std::uint64_t>(m.value));
  if (m.base >= 0) v = values_.add(v, state.reg[static_cast<std::uint8_t>(m.base)]);
  if (m.index >= 0)
    v = values_.add(v, values_.times(state.reg[static_cast<std::uint8_t>(m.index)], m.scale));
  return v;
}

Value Machine::load(const Instruction &insn, Value address, unsigned size) {
  if (address == unknown) return unknown;
  observer_.touch(insn, address, size, false);
  const Cell *cell = state.memory.find(address);
  if (size == 8) {
    observer_.access(insn, address);
    if (cell == nullptr) return values_.load(address);
    return cell->size == 8 ? cell->value : unknown;
  }
  if (cell != nullptr && cell->size >= size)
    if (const auto c = values_.as_constant(cell->value))
      return values_.constant(truncated(*c, size));
  return unknown;
}

void Machine::store(const Instruction &insn, Value address, Value v, unsigned size) {
  if (address == unknown) return;
  observer_.touch(insn, address, size, true);
  if (size == 8) observer_.access(insn, address);
  state.memory.store(address, v, static_cast<std::uint8_t>(size));
}

// The value of an operand, zero-extended; unknown what cannot be said.
Value Machine::read(const Instruction &insn, const Operand &op) {
  switch (op.kind) {
    case Operand::Kind::immediate:
      return values_.constant(truncated(static_cast<std::uint64_t>(op.value), op.size));
    case Operand::Kind::memory: return load(insn, address_of(insn, op), op.size);
    case Operand::Kind::general: {
      const Value v = state.reg[op.reg];
      if (op.size == 8) return v;
      const auto c = values_.as_constant(v);
      return c && !op.high_byte ? values_.constant(truncated(*c, op.size)) : unknown;
    }
    default: return unknown;
  }
}

void Machine::write(const Instruction &insn, const Operand &op, Value v) {
  if (op.kind == Operand::Kind::memory) return store(insn, address_of(insn, op), v, op.size);
  if (op.kind != Operand::Kind::general) return;
  if (op.size == 4) {
    // Writing the lower half clears the upper one.
    const auto c = values_.as_constant(v);
    v = c ? values_.constant(truncated(*c, 4)) : unknown;
  } else if (op.size < 4) {
    v = unknown;
  }
  set_register(op.reg, v != unknown ? v : defined_by(insn, op.reg));
}

void Machine::clobber_writes(const Instruction &insn) {
  for (std::uint8_t r = 0; r < register_count; ++r) {
    if ((insn.writes >> r) & 1) set_register(r, defined_by(insn, r));
    if (r < vector_count && ((insn.writes_vector >> r) & 1)) state.xmm[r] = {unknown, unknown};
  }
}

// Reads and writes of memory by instructions whose effect is not followed.
void Machine::touch_memory_operands(const Instruction &insn) {
  for (std::size_t i = 0; i < insn.operand_count; ++i) {
    const Operand &op = insn.operands[i];
    if (op.kind != Operand::Kind::memory) continue;
    const Value address = address_of(insn, op);
    if (address == unknown) continue;
    observer_.touch(insn, address, op.size, i == 0);
    if (op.size == 8) observer_.access(insn, address);
    if (i == 0 && state.memory.find(address) != nullptr)
      state.memory.store(address, unknown, op.size);
  }
}

bool Machine::moves(const Instruction &insn) {
  const Operand &to = insn.operands[0], &from = insn.operands[1];
  switch (insn.id) {
    case X86_INS_MOV:
    case X86_INS_MOVABS:
      if (to.kind == Operand::Kind::other || from.kind == Operand::Kind::other) return false;
      if (from.kind == Operand::Kind::immediate) {
        write(insn, to,
              values_.constant(truncated(static_cast<std::uint64_t>(from.value), to.size)));
      } else {
        write(insn, to, read(insn, from));
      }
      return true;
    case X86_INS_LEA: {
      const Value v = address_of(insn, from);
      write(insn, to, v);
      return true;
    }
    case X86_INS_MOVZX: {
      const Value v = read(insn, from);
      write(insn, to, v);
      return true;
    }
    case X86_INS_MOVSXD:
    case X86_INS_MOVSX: {
      const auto c = values_.as_constant(read(insn, from));
      const unsigned shift = 64 - 8 * from.size;
      write(insn, to,
            c ? values_.constant(
                    static_cast<std::uint64_t>(static_cast<std::int64_t>(*c << shift) >> shift))
              : unknown);
      return true;
    }
    case X86_INS_XCHG: {
      if (to.kind != Operand::Kind::general || to.size != 8) return false;
      const Value a = read(insn, to), b = read(insn, from);
      write(insn, to, b);
      write(insn, from, a);
      return true;
    }
    case X86_INS_CMOVA:
    case X86_INS_CMOVAE:
    case X86_INS_CMOVB:
    case X86_INS_CMOVBE:
    case X86_INS_CMOVE:
    case X86_INS_CMOVG:
    case X86_INS_CMOVGE:
    case X86_INS_CMOVL:
    case X86_INS_CMOVLE:
    case X86_INS_CMOVNE:
    case X86_INS_CMOVNO:
    case X86_INS_CMOVNP:
    case X86_INS_CMOVNS:
    case X86_INS_CMOVO:
    case X86_INS_CMOVP:
    case X86_INS_CMOVS:
      write(insn, to, join(values_, read(insn, to), read(insn, from), insn.address, to.reg));
      return true;
    default: return false;
  }
}

bool Machine::arithmetic(const Instruction &insn) {
  const Operand &to = insn.operands[0], &by = insn.operands[1];
  Value result = unknown;
  switch (insn.id) {
    case X86_INS_CMP: {
      const Value a = read(insn, to);
      const Value b =
          by.kind == Operand::Kind::immediate
              ? values_.constant(truncated(static_cast<std::uint64_t>(by.value), to.size))
              : read(insn, by);
      if (to.size == 8) observer_.compare(insn, a, b);
      state.zero_test = values_.as_constant(b) == 0 ? a : unknown;
      return true;
    }
    case X86_INS_TEST: {
      const Value a = read(insn, to);
      const bool same = to.kind == Operand::Kind::general && by.kind == Operand::Kind::general &&
                        to.reg == by.reg;
      if (by.kind == Operand::Kind::memory) read(insn, by);
      state.zero_test = same ? a : unknown;
      return true;
    }
    case X86_INS_ADD:
    case X86_INS_SUB: {
      const Value a = read(insn, to);
      const Value b = by.kind == Operand::Kind::immediate
                          ? values_.constant(static_cast<std::uint64_t>(by.value))
                          : read(insn, by);
      result = insn.id == X86_INS_ADD ? values_.add(a, b) : values_.sub(a, b);
      break;
    }
    case X86_INS_INC: result = values_.plus(read(insn, to), 1); break;
    case X86_INS_DEC: result = values_.plus(read(insn, to), -1); break;
    case X86_INS_NEG: result = values_.times(read(insn, to), -1); break;
    case X86_INS_NOT: result = values_.plus(values_.times(read(insn, to), -1), -1); break;
    case X86_INS_SHL:
      if (by.kind != Operand::Kind::immediate || by.value < 0 || by.value > 62) return false;
      result = values_.times(read(insn, to), std::int64_t{1} << by.value);
      break;
    case X86_INS_IMUL:
      if (insn.operand_count != 3 || insn.operands[2].kind != Operand::Kind::immediate)
        return false;
      result = values_.times(read(insn, by), insn.operands[2].value);
      break;
    case X86_INS_XOR:
    case X86_INS_AND:
    case X86_INS_OR: {
      if (insn.id == X86_INS_XOR && to.kind == Operand::Kind::general &&
          by.kind == Operand::Kind::general && to.reg == by.reg) {
        result = values_.constant(0);
        break;
      }
      const auto a = values_.as_constant(read(insn, to));
      const auto b = by.kind == Operand::Kind::immediate
                         ? std::optional<std::uint64_t>(static_cast<std::uint64_t>(by.value))
                         : values_.as_constant(read(insn, by));
      if (a && b)
        result = values_.constant(insn.id == X86_INS_XOR   ? *a ^ *b
                                  : insn.id == X86_INS_AND ? *a & *b
                                                           : *a | *b);
      else if (insn.id == X86_INS_AND && to.kind == Operand::Kind::general && to.reg == rsp)
        result = values_.symbol({Symbol::Kind::frame, insn.address, 0});
      else if (insn.id == X86_INS_OR && b == ~std::uint64_t{0}) result = values_.constant(*b);
      break;
    }
    default: return false;
  }
  write(insn, to, result);
  if (insn.keeps_flags) return true;
  state.zero_test = to.kind == Operand::Kind::general && to.size == 8 ? state.reg[to.reg] : unknown;
  return true;
}

bool Machine::stack(const Instruction &insn) {
  switch (insn.id) {
    case X86_INS_PUSH: {
      const Value v = read(insn, insn.operands[0]);
      set_register(rsp, values_.plus(state.reg[rsp], -8));
      if (state.reg[rsp] != unknown) state.memory.store(state.reg[rsp], v, 8);
      return true;
    }
    case X86_INS_POP: {
      const Value v = load(insn, state.reg[rsp], 8);
      set_register(rsp, values_.plus(state.reg[rsp], 8));
      write(insn, insn.operands[0], v);
      return true;
    }
    case X86_INS_LEAVE:
      set_register(rsp, state.reg[rbp]);
      set_register(rbp, load(insn, state.reg[rsp], 8));
      if (state.reg[rbp] == unknown) set_register(rbp, defined_by(insn, rbp));
      set_register(rsp, values_.plus(state.reg[rsp], 8));
      return true;
    default: return false;
  }
}

void Machine::step(const Instruction &insn) {
  if (insn.id == X86_INS_CALL || insn.id == X86_INS_LCALL) return call(insn);
  if (moves(insn) || arithmetic(insn) || stack(insn) || vectors(insn)) return;
  if (insn.id == X86_INS_NOP) return;
  touch_memory_operands(insn);
  clobber_writes(insn);
}

Value Machine::call_target(const Instruction &insn) {
  return insn.operand_count == 0 ? unknown : read(insn, insn.operands[0]);
}

void Machine::call(const Instruction &insn) {
  const Value target = call_target(insn);
  if (values_.as_constant(target) == insn.next()) {  // how old code learns its address
    set_register(rsp, values_.plus(state.reg[rsp], -8));
    state.memory.store(state.reg[rsp], values_.constant(insn.next()), 8);
    return;
  }
  observer_.call(insn, target, state);
  return_from(insn, observer_.summary(target));
}

void Machine::tail_call(const Instruction &insn) {
  const Value target = call_target(insn);
  observer_.call(insn, target, state);
  return_from(insn, observer_.summary(target));
}

void Machine::return_from(const Instruction &insn, const Summary &summary) {
  const Value result = substitute(insn, summary.result, 0);
  for (const auto &[size, limit] : summary.size_tests)
    observer_.compare(insn, substitute(insn, size, 0), substitute(insn, limit, 0));
  for (std::uint8_t r = 0; r < register_count; ++r) {
    if ((summary.clobbers >> r) & 1) set_register(r, defined_by(insn, r));
    if (r < vector_count && ((summary.clobbers_vector >> r) & 1)) state.xmm[r] = {unknown, unknown};
  }
  set_register(rax, result != unknown ? result : defined_by(insn, rax));
  state.memory.forget_all_but_frame(values_);
  state.zero_test = unknown;
}

// A value in terms of the called function's entry, in terms of its caller's.
Value Machine::substitute(const Instruction &insn, Value v, int depth) {
  if (v == unknown || depth > 6) return unknown;
  const Values::Linear l = values_.linear(v);
  Value out = values_.constant(l.constant);
  for (std::uint32_t i = 0; i < l.count; ++i) {
    const Symbol s = values_.at(l.terms[i].symbol);
    Value term = unknown;
    switch (s.kind) {
      case Symbol::Kind::entry:
        term = s.a == rsp ? values_.plus(state.reg[rsp], -8) : state.reg[s.a];
        break;
      case Symbol::Kind::load: {
        const Value address = substitute(insn, static_cast<Value>(s.a), depth + 1);
        const Cell *cell = state.memory.find(address);
        term = cell == nullptr ? values_.load(address) : cell->size == 8 ? cell->value : unknown;
        break;
      }
      case Symbol::Kind::table: {
        Value p = substitute(insn, static_cast<Value>(s.a), depth + 1);
        // A table it is, whatever it was found from.
        if (values_.linear(p).count != 1) p = defined_by(insn, register_count);
        term = values_.sub(p, values_.load(values_.plus(p, -8)));
        break;
      }
      default: break;
    }
    out = values_.add(out, values_.times(term, l.terms[i].factor));
  }
  return out;
}

}  // namespace ibvexp::audit
