#include "tool/audit/binary/code.h"

#include <capstone/capstone.h>

#include <stdexcept>

#include "tool/audit/binary/arm64.h"

namespace ibvexp::audit {
namespace {

struct RegisterName {
  std::int8_t number = -1;
  bool high_byte = false;
};

RegisterName general(unsigned reg) {
  switch (reg) {
#define LEGACY(n, r8, r16, r32, r64) \
  case X86_REG_##r8:                 \
  case X86_REG_##r16:                \
  case X86_REG_##r32:                \
  case X86_REG_##r64: return {n, false};
    LEGACY(rax, AL, AX, EAX, RAX)
    LEGACY(rcx, CL, CX, ECX, RCX)
    LEGACY(rdx, DL, DX, EDX, RDX)
    LEGACY(rbx, BL, BX, EBX, RBX)
    LEGACY(rsp, SPL, SP, ESP, RSP)
    LEGACY(rbp, BPL, BP, EBP, RBP)
    LEGACY(rsi, SIL, SI, ESI, RSI)
    LEGACY(rdi, DIL, DI, EDI, RDI)
    LEGACY(r8, R8B, R8W, R8D, R8)
    LEGACY(r9, R9B, R9W, R9D, R9)
    LEGACY(r10, R10B, R10W, R10D, R10)
    LEGACY(r11, R11B, R11W, R11D, R11)
    LEGACY(r12, R12B, R12W, R12D, R12)
    LEGACY(r13, R13B, R13W, R13D, R13)
    LEGACY(r14, R14B, R14W, R14D, R14)
    LEGACY(r15, R15B, R15W, R15D, R15)
#undef LEGACY
    case X86_REG_AH: return {rax, true};
    case X86_REG_CH: return {rcx, true};
    case X86_REG_DH: return {rdx, true};
    case X86_REG_BH: return {rbx, true};
    default: return {};
  }
}

// xmm and ymm 0 to 15; later ones are not followed.
int vector(unsigned reg) {
  if (reg >= X86_REG_XMM0 && reg <= X86_REG_XMM15) return static_cast<int>(reg - X86_REG_XMM0);
  if (reg >= X86_REG_YMM0 && reg <= X86_REG_YMM15) return static_cast<int>(reg - X86_REG_YMM0);
  return -1;
}

Operand operand(const cs_x86_op &op, const cs_insn &insn) {
  Operand out;
  out.size = op.size;
  switch (op.type) {
    case X86_OP_REG:
      if (const RegisterName r = general(op.reg); r.number >= 0) {
        out.kind = Operand::Kind::general;
        out.reg = static_cast<std::uint8_t>(r.number);
        out.high_byte = r.high_byte;
      } else if (const int v = vector(op.reg); v >= 0) {
        out.kind = Operand::Kind::vector;
        out.reg = static_cast<std::uint8_t>(v);
      } else {
        out.kind = Operand::Kind::other;
      }
      break;
    case X86_OP_IMM:
      out.kind = Operand::Kind::immediate;
      out.value = op.imm;
      break;
    case X86_OP_MEM:
      out.kind = Operand::Kind::memory;
      out.value = op.mem.disp;
      out.scale = static_cast<std::uint8_t>(op.mem.scale);
      out.foreign = op.mem.segment == X86_REG_FS || op.mem.segment == X86_REG_GS;
      if (op.mem.base == X86_REG_RIP)
        out.value += static_cast<std::int64_t>(insn.address + insn.size);
      else if (op.mem.base != X86_REG_INVALID) {
        out.base = general(op.mem.base).number;
        if (out.base < 0) out.foreign = true;
      }
      if (op.mem.index != X86_REG_INVALID && op.mem.index != X86_REG_RIZ) {
        out.index = general(op.mem.index).number;
        if (out.index < 0) out.foreign = true;
      }
      break;
    default: out.kind = Operand::Kind::other; break;
  }
  return out;
}

Instruction convert(csh handle, const cs_insn &insn) {
  Instruction out;
  out.address = insn.address;
  out.length = static_cast<std::uint8_t>(insn.size);
  out.id = insn.id;
  if (insn.id == 0 || insn.detail == nullptr) return out;  // skipped data
  const cs_x86 &x86 = insn.detail->x86;
  out.operand_count = static_cast<std::uint8_t>(std::min<std::size_t>(x86.op_count, 4));
  for (std::size_t i = 0; i < out.operand_count; ++i)
    out.operands[i] = operand(x86.operands[i], insn);
  cs_regs read, written;
  std::uint8_t reads = 0, writes = 0;
  if (cs_regs_access(handle, &insn, read, &reads, written, &writes) == CS_ERR_OK)
    for (std::size_t i = 0; i < writes; ++i) {
      if (const RegisterName r = general(written[i]); r.number >= 0)
        out.writes |= Registers{1} << r.number;
      else if (const int v = vector(written[i]); v >= 0) out.writes_vector |= 1U << v;
    }
  return out;
}

}  // namespace

Disassembler::Disassembler(bool arm64) : arm64_(arm64) {
  csh handle = 0;
  if ((arm64 ? cs_open(CS_ARCH_ARM64, CS_MODE_ARM, &handle)
             : cs_open(CS_ARCH_X86, CS_MODE_64, &handle)) != CS_ERR_OK)
    throw std::runtime_error("Capstone does not know this machine");
  cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
  cs_option(handle, CS_OPT_SKIPDATA, CS_OPT_ON);
  handle_ = handle;
  scratch_ = cs_malloc(handle);
}

Disassembler::~Disassembler() {
  cs_free(static_cast<cs_insn *>(scratch_), 1);
  csh handle = handle_;
  cs_close(&handle);
}

std::vector<Instruction> Disassembler::decode(std::span<const std::uint8_t> code,
                                              std::uint64_t address) {
  std::vector<Instruction> out;
  const std::uint8_t *bytes = code.data();
  std::size_t left = code.size();
  auto *insn = static_cast<cs_insn *>(scratch_);
  while (left > 0 && cs_disasm_iter(handle_, &bytes, &left, &address, insn))
    if (arm64_) arm64::convert(handle_, *insn, out);
    else out.push_back(convert(handle_, *insn));
  return out;
}

}  // namespace ibvexp::audit
