#include "tool/audit/binary/arm64.h"

#include <capstone/capstone.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ibvexp::audit::arm64 {
namespace {

using Kind = Operand::Kind;

// Arguments, the stack pointer and what calls preserve have the numbers of the same on
// x86-64. Results are in x0, which is an argument too: a call is followed by a copy,
// and a return comes behind one.
constexpr std::uint8_t numbers[32] = {rdi, rsi, rdx, rcx, r8, r9, r10, r11, 16,  17,  18,
                                      19,  20,  21,  22,  23, 24, 25,  26,  rbx, rbp, r12,
                                      r13, r14, r15, 27,  28, 29, 30,  31,  32,  rsp};
constexpr std::uint8_t scratch = 33;
constexpr int x0 = 0, first_preserved = 19, last_preserved = 29, stack = 31;

// 0 to 30, 31 for the stack pointer, -1 for none.
int number_of(unsigned reg) {
  if (reg >= ARM64_REG_X0 && reg <= ARM64_REG_X28) return static_cast<int>(reg - ARM64_REG_X0);
  if (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30) return static_cast<int>(reg - ARM64_REG_W0);
  if (reg == ARM64_REG_X29) return 29;
  if (reg == ARM64_REG_X30) return 30;
  if (reg == ARM64_REG_SP || reg == ARM64_REG_WSP) return stack;
  return -1;
}

bool is_word(unsigned reg) {
  return (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30) || reg == ARM64_REG_WSP ||
         reg == ARM64_REG_WZR;
}

Operand general(int number, std::uint8_t size = 8) {
  Operand out;
  out.kind = Kind::general;
  out.size = size;
  out.reg = number == scratch ? scratch : numbers[number];
  return out;
}

Operand immediate(std::uint64_t value, std::uint8_t size = 8) {
  Operand out;
  out.kind = Kind::immediate;
  out.size = size;
  out.value = static_cast<std::int64_t>(value);
  return out;
}

Operand result_register() {
  Operand out = general(x0);
  out.reg = rax;
  return out;
}

// The operand for a vector register: Machine follows the first sixteen.
Operand vector(unsigned reg) {
  Operand out;
  out.kind = Kind::other;
  unsigned number = vector_count;
  if (reg >= ARM64_REG_Q0 && reg <= ARM64_REG_Q31) {
    number = reg - ARM64_REG_Q0;
    out.size = 16;
  } else if (reg >= ARM64_REG_D0 && reg <= ARM64_REG_D31) {
    number = reg - ARM64_REG_D0;
    out.size = 8;
  }
  if (number < vector_count) {
    out.kind = Kind::vector;
    out.reg = static_cast<std::uint8_t>(number);
  }
  return out;
}

Operand operand(const cs_arm64_op &op) {
  if (op.type == ARM64_OP_IMM) {
    const auto shift = op.shift.type == ARM64_SFT_LSL ? op.shift.value : 0;
    return immediate(static_cast<std::uint64_t>(op.imm) << shift);
  }
  if (op.type == ARM64_OP_REG) {
    if (op.reg == ARM64_REG_XZR) return immediate(0);
    if (op.reg == ARM64_REG_WZR) return immediate(0, 4);
    if (const int number = number_of(op.reg); number >= 0)
      return general(number, is_word(op.reg) ? 4 : 8);
    return vector(op.reg);
  }
  if (op.type == ARM64_OP_MEM) {
    Operand out;
    out.kind = Kind::memory;
    out.value = op.mem.disp;
    const int base = number_of(op.mem.base);
    if (base >= 0) out.base = static_cast<std::int8_t>(numbers[base]);
    else out.foreign = true;
    if (op.mem.index != ARM64_REG_INVALID) {
      const int index = number_of(op.mem.index);
      if (index < 0 || op.ext != ARM64_EXT_INVALID || op.shift.value > 4) out.foreign = true;
      else out.index = static_cast<std::int8_t>(numbers[index]);
      out.scale = static_cast<std::uint8_t>(1U << (op.shift.value & 7));
    }
    return out;
  }
  Operand out;
  out.kind = Kind::other;
  return out;
}

bool plain(const cs_arm64_op &op) {
  return op.ext == ARM64_EXT_INVALID && (op.shift.type == ARM64_SFT_INVALID || op.shift.value == 0);
}

bool same(const Operand &a, const Operand &b) {
  return a.kind == Kind::general && b.kind == Kind::general && a.reg == b.reg;
}

// What one instruction becomes.
class Conversion {
 public:
  Conversion(csh handle, const cs_insn &insn, std::vector<Instruction> &out)
      : handle_(handle), insn_(insn), arm_(insn.detail->arm64), out_(out), first_(out.size()) {
    for (int i = 0; i < count(); ++i) ops_[i] = operand(arm_.operands[i]);
  }

  void run() {
    if (!known()) other();
    finish();
  }

 private:
  int count() const { return std::min<int>(arm_.op_count, 4); }
  bool sets_flags() const { return arm_.update_flags; }
  bool named(std::string_view start) const {
    return std::string_view(insn_.mnemonic).starts_with(start);
  }

  Instruction &emit(unsigned id, std::initializer_list<Operand> operands) {
    Instruction i;
    i.id = id;
    i.keeps_flags = true;
    for (const Operand &op : operands) i.operands[i.operand_count++] = op;
    out_.push_back(i);
    return out_.back();
  }

  // The parts lie one behind the other, a byte each.
  void finish() {
    const std::size_t parts = out_.size() - first_;
    for (std::size_t i = 0; i < parts; ++i) {
      Instruction &part = out_[first_ + i];
      part.address = insn_.address + i;
      part.length = static_cast<std::uint8_t>(i + 1 < parts ? 1 : insn_.size - i);
      if (writes_first_operand(part.id) && part.operands[0].kind == Kind::general)
        part.writes |= Registers{1} << part.operands[0].reg;
      if (part.id == X86_INS_MOVDQU && part.operands[0].kind == Kind::vector)
        part.writes_vector |= 1U << part.operands[0].reg;
    }
  }
  static bool writes_first_operand(unsigned id) {
    return id == X86_INS_MOV || id == X86_INS_LEA || id == X86_INS_MOVSXD || id == X86_INS_ADD ||
           id == X86_INS_SUB || id == X86_INS_AND || id == X86_INS_OR || id == X86_INS_XOR ||
           id == X86_INS_NEG || id == X86_INS_NOT || id == X86_INS_SHL || id == X86_INS_CMOVNE ||
           id == X86_INS_MOVQ;
  }

  bool known() { return control() || comparisons() || memory() || moves() || arithmetic(); }

  bool control() {
    switch (insn_.id) {
      case ARM64_INS_B: {
        const bool always = arm_.cc == ARM64_CC_INVALID || arm_.cc == ARM64_CC_AL;
        emit(always                   ? X86_INS_JMP
             : arm_.cc == ARM64_CC_EQ ? X86_INS_JE
             : arm_.cc == ARM64_CC_NE ? X86_INS_JNE
                                      : X86_INS_JA,
             {ops_[0]});
        return true;
      }
      case ARM64_INS_CBZ:
      case ARM64_INS_CBNZ:
        emit(X86_INS_TEST, {ops_[0], ops_[0]});
        emit(insn_.id == ARM64_INS_CBZ ? X86_INS_JE : X86_INS_JNE, {ops_[1]});
        return true;
      case ARM64_INS_TBZ:
      case ARM64_INS_TBNZ: emit(X86_INS_JA, {ops_[2]}); return true;
      case ARM64_INS_BL:
      case ARM64_INS_BLR:
        emit(X86_INS_CALL, {ops_[0]});
        emit(X86_INS_MOV, {general(x0), result_register()});
        return true;
      case ARM64_INS_BR: emit(X86_INS_JMP, {ops_[0]}); return true;
      case ARM64_INS_RET:
        emit(X86_INS_MOV, {result_register(), general(x0)});
        emit(X86_INS_RET, {});
        return true;
      case ARM64_INS_BRK:
      case ARM64_INS_HLT: emit(X86_INS_UD2, {}); return true;
      case ARM64_INS_NOP:
      case ARM64_INS_HINT: emit(X86_INS_NOP, {}); return true;
      default: return false;
    }
  }

  bool comparisons() {
    switch (insn_.id) {
      case ARM64_INS_CMP:
      case ARM64_INS_CMN:
        if (count() < 2 || !plain(arm_.operands[1])) {
          if (ops_[1].kind != Kind::immediate) return false;
        }
        if (insn_.id == ARM64_INS_CMN) {
          if (ops_[1].kind != Kind::immediate) return false;
          ops_[1].value = -ops_[1].value;
        }
        emit(X86_INS_CMP, {ops_[0], ops_[1]});
        return true;
      case ARM64_INS_CCMP: {
        emit(X86_INS_CMP, {ops_[0], ops_[1]});
        // Whether it was compared depends: no more is known of the flags.
        Operand nothing;
        nothing.kind = Kind::other;
        emit(X86_INS_TEST, {ops_[0], nothing});
        return true;
      }
      case ARM64_INS_TST: emit(X86_INS_TEST, {ops_[0], ops_[1]}); return true;
      default: return false;
    }
  }

  std::uint8_t access_size(const Operand &data) const {
    if (named("ldrb") || named("ldurb") || named("strb") || named("sturb")) return 1;
    if (named("ldrh") || named("ldurh") || named("strh") || named("sturh")) return 2;
    if (named("ldrsw") || named("ldursw")) return 4;
    return data.size;
  }

  void transfer(const Operand &data, Operand place, bool load) {
    place.size = access_size(data);
    if (data.kind == Kind::vector) {
      const unsigned id = data.size == 16 ? X86_INS_MOVDQU : X86_INS_MOVQ;
      if (load) emit(id, {data, place});
      else emit(id, {place, data});
    } else if (data.kind == Kind::other) {
      if (place.size == 0) place.size = 16;
      touch(place, load);
    } else if (!load) {
      emit(X86_INS_MOV, {place, data});
    } else {
      emit(named("ldrsw") || named("ldursw") ? X86_INS_MOVSXD
           : place.size < data.size          ? X86_INS_MOVZX
                                             : X86_INS_MOV,
           {data, place});
      out_.back().writes |= Registers{1} << data.reg;
    }
  }

  // An access whose value is not followed.
  void touch(const Operand &place, bool load) {
    Operand nothing;
    nothing.kind = Kind::other;
    if (load) emit(X86_INS_CPUID, {nothing, place});
    else emit(X86_INS_CPUID, {place, nothing});
  }

  bool memory() {
    bool load = false, pair = false;
    switch (insn_.id) {
      case ARM64_INS_LDR:
      case ARM64_INS_LDUR:
      case ARM64_INS_LDRB:
      case ARM64_INS_LDURB:
      case ARM64_INS_LDRH:
      case ARM64_INS_LDURH:
      case ARM64_INS_LDRSW:
      case ARM64_INS_LDURSW: load = true; break;
      case ARM64_INS_LDP: load = pair = true; break;
      case ARM64_INS_STR:
      case ARM64_INS_STUR:
      case ARM64_INS_STRB:
      case ARM64_INS_STURB:
      case ARM64_INS_STRH:
      case ARM64_INS_STURH: break;
      case ARM64_INS_STP: pair = true; break;
      default: return false;
    }
    const int at = pair ? 2 : 1;
    if (count() <= at) return false;
    Operand place = ops_[at];
    if (place.kind == Kind::immediate) {  // at a distance from here
      place.kind = Kind::memory;
    } else if (place.kind != Kind::memory) {
      return false;
    }
    const Operand base = place;
    const bool writes_back = arm_.writeback && base.base >= 0;
    const bool behind = writes_back && count() > at + 1;  // moved after the access
    Operand moved = base;
    if (behind) moved.value = ops_[at + 1].value;
    Operand pointer;
    pointer.kind = Kind::general;
    pointer.size = 8;
    if (writes_back) pointer.reg = static_cast<std::uint8_t>(base.base);
    if (writes_back && !behind) {
      emit(X86_INS_LEA, {pointer, moved});
      place.value = 0;
    }
    if (!pair) {
      transfer(ops_[0], place, load);
    } else {
      Operand second = place;
      second.value += ops_[0].size != 0 ? ops_[0].size : 16;
      // The first may be the base.
      const bool swap = load && ops_[0].kind == Kind::general && place.base >= 0 &&
                        ops_[0].reg == static_cast<std::uint8_t>(place.base);
      if (swap) transfer(ops_[1], second, load);
      transfer(ops_[0], place, load);
      if (!swap) transfer(ops_[1], second, load);
    }
    if (behind) emit(X86_INS_LEA, {pointer, moved});
    return true;
  }

  bool moves() {
    const Operand &to = ops_[0];
    switch (insn_.id) {
      case ARM64_INS_MOV:
        if (to.kind != Kind::general || ops_[1].kind == Kind::other || ops_[1].kind == Kind::vector)
          return false;
        emit(X86_INS_MOV, {to, ops_[1]});
        return true;
      case ARM64_INS_MOVZ: emit(X86_INS_MOV, {to, ops_[1]}); return true;
      case ARM64_INS_MOVN:
        emit(X86_INS_MOV, {to, immediate(~static_cast<std::uint64_t>(ops_[1].value))});
        return true;
      case ARM64_INS_MOVK: {
        const unsigned shift = arm_.operands[1].shift.value;
        emit(X86_INS_AND, {to, immediate(~(std::uint64_t{0xffff} << shift))});
        emit(X86_INS_OR, {to, ops_[1]});
        return true;
      }
      case ARM64_INS_ADR:
      case ARM64_INS_ADRP: emit(X86_INS_MOV, {to, ops_[1]}); return true;
      case ARM64_INS_SXTW: emit(X86_INS_MOVSXD, {to, ops_[1]}); return true;
      case ARM64_INS_FMOV:
        if (to.kind == Kind::general ? ops_[1].kind != Kind::vector
                                     : to.kind != Kind::vector || ops_[1].kind != Kind::general)
          return false;
        if (to.size != 8 || ops_[1].size != 8) return false;
        emit(X86_INS_MOVQ, {to, ops_[1]});
        if (to.kind == Kind::vector) out_.back().writes_vector |= 1U << to.reg;
        return true;
      case ARM64_INS_CSEL:
        if (same(to, ops_[1])) {
          emit(X86_INS_CMOVNE, {to, ops_[2]});
        } else if (same(to, ops_[2])) {
          emit(X86_INS_CMOVNE, {to, ops_[1]});
        } else {
          emit(X86_INS_MOV, {to, ops_[1]});
          emit(X86_INS_CMOVNE, {to, ops_[2]});
        }
        return true;
      default: return false;
    }
  }

  // to = a id b
  void binary(unsigned id, const Operand &to, const Operand &a, const Operand &b) {
    if (same(to, a)) {
      emit(id, {to, b}).keeps_flags = !sets_flags();
    } else if (!same(to, b)) {
      emit(X86_INS_MOV, {to, a});
      emit(id, {to, b}).keeps_flags = !sets_flags();
    } else {
      Operand between = general(scratch, to.size);
      emit(X86_INS_MOV, {between, a});
      emit(id, {between, b}).keeps_flags = !sets_flags();
      emit(X86_INS_MOV, {to, between});
    }
  }

  bool arithmetic() {
    const Operand &to = ops_[0];
    if (to.kind != Kind::general) return false;
    switch (insn_.id) {
      case ARM64_INS_ADD:
        if (count() != 3) return false;
        // With a shifted index, as an address.
        if (ops_[1].kind == Kind::general && ops_[2].kind == Kind::general && to.size == 8 &&
            !sets_flags() && arm_.operands[2].ext == ARM64_EXT_INVALID &&
            (plain(arm_.operands[2]) ||
             (arm_.operands[2].shift.type == ARM64_SFT_LSL && arm_.operands[2].shift.value <= 6))) {
          Operand sum;
          sum.kind = Kind::memory;
          sum.base = static_cast<std::int8_t>(ops_[1].reg);
          sum.index = static_cast<std::int8_t>(ops_[2].reg);
          sum.scale = static_cast<std::uint8_t>(
              1U << (plain(arm_.operands[2]) ? 0 : arm_.operands[2].shift.value));
          emit(X86_INS_LEA, {to, sum});
          return true;
        }
        [[fallthrough]];
      case ARM64_INS_SUB:
      case ARM64_INS_AND:
      case ARM64_INS_ORR:
      case ARM64_INS_EOR: {
        if (count() != 3) return false;
        const bool number = ops_[2].kind == Kind::immediate;
        if (!number && (ops_[2].kind != Kind::general || !plain(arm_.operands[2]))) return false;
        const unsigned id = insn_.id == ARM64_INS_ADD   ? X86_INS_ADD
                            : insn_.id == ARM64_INS_SUB ? X86_INS_SUB
                            : insn_.id == ARM64_INS_AND ? X86_INS_AND
                            : insn_.id == ARM64_INS_ORR ? X86_INS_OR
                                                        : X86_INS_XOR;
        binary(id, to, ops_[1], ops_[2]);
        return true;
      }
      case ARM64_INS_NEG:
      case ARM64_INS_MVN:
        if (count() != 2 || !plain(arm_.operands[1])) return false;
        emit(X86_INS_MOV, {to, ops_[1]});
        emit(insn_.id == ARM64_INS_NEG ? X86_INS_NEG : X86_INS_NOT, {to});
        return true;
      case ARM64_INS_LSL:
        if (count() != 3 || ops_[2].kind != Kind::immediate) return false;
        binary(X86_INS_SHL, to, ops_[1], ops_[2]);
        return true;
      default: return false;
    }
  }

  // Not followed: what it writes is unknown from here on.
  void other() {
    out_.resize(first_);
    Operand nothing;
    nothing.kind = Kind::other;
    Instruction &i = emit(X86_INS_CPUID, {nothing});
    for (int k = 0; k < count(); ++k)
      if (ops_[k].kind == Kind::memory && i.operand_count < 4) {
        ops_[k].size = 8;
        i.operands[i.operand_count++] = ops_[k];
      }
    const auto written = [&](unsigned reg) {
      if (const int number = number_of(reg); number >= 0)
        i.writes |= Registers{1} << numbers[number];
      else if (const Operand v = vector(reg); v.kind == Kind::vector)
        i.writes_vector |= 1U << v.reg;
      else if (reg >= ARM64_REG_V0 && reg < ARM64_REG_V0 + vector_count)
        i.writes_vector |= 1U << (reg - ARM64_REG_V0);
    };
    cs_regs read, writes;
    std::uint8_t reads = 0, count_of_writes = 0;
    if (cs_regs_access(handle_, &insn_, read, &reads, writes, &count_of_writes) == CS_ERR_OK)
      for (std::size_t k = 0; k < count_of_writes; ++k) written(writes[k]);
    // Capstone forgets some forms: the first register is the result but of stores and
    // comparisons.
    const bool result =
        !named("st") && !named("cm") && !named("cc") && !named("fcm") && !named("ts");
    if (result && arm_.op_count > 0 && arm_.operands[0].type == ARM64_OP_REG)
      written(arm_.operands[0].reg);
  }

  csh handle_;
  const cs_insn &insn_;
  const cs_arm64 &arm_;
  std::vector<Instruction> &out_;
  std::size_t first_;
  std::array<Operand, 4> ops_{};
};

}  // namespace

Registers caller_saved() {
  Registers out = Registers{1} << rax | Registers{1} << scratch;
  for (int i = 0; i <= 30; ++i)
    if (i < first_preserved || i > last_preserved) out |= Registers{1} << numbers[i];
  return out;
}

void convert(std::size_t handle, const cs_insn &insn, std::vector<Instruction> &out) {
  if (insn.id != 0 && insn.detail != nullptr) return Conversion(handle, insn, out).run();
  Instruction data;
  data.address = insn.address;
  data.length = static_cast<std::uint8_t>(insn.size);
  out.push_back(data);
}

bool may_look_up(std::span<const std::uint8_t> code) {
  for (std::size_t i = 0; i + 4 <= code.size(); i += 4) {
    std::uint32_t word;
    std::memcpy(&word, &code[i], sizeof word);
    const unsigned base = word >> 5 & 31;
    // ldur x, [x, #-8], of no variable.
    if ((word & 0xfffffc00) == 0xf85f8000 && base != 29 && base != 31) return true;
    // tbz and tbnz of bit 62.
    if ((word & 0xfef80000) == 0xb6f00000) return true;
    // and, ands with that bit; mov of it.
    if ((word & 0xdffffc00) == 0x92420000 || (word & 0xffffffe0) == 0xd2e80000) return true;
  }
  return false;
}

}  // namespace ibvexp::audit::arm64
