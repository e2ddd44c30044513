// Evaluates one instruction after another over abstract values.
#pragma once

#include "tool/audit/binary/code.h"
#include "tool/audit/binary/state.h"

namespace ibvexp::audit {

// What a function looks like from its callers.
struct Summary {
  Value result = unknown;  // in terms of the registers at entry
  Registers clobbers = 0;  // general registers that may have changed
  std::uint32_t clobbers_vector = 0;
  // Comparisons of a table's size word with a limit, in the same terms: a look-up
  // may be a function of its own that gets the slot.
  std::vector<std::pair<Value, Value>> size_tests;
};

// By the calling convention, for code that is not here.
Summary foreign_summary(bool arm64);

// Learns what happens while code is evaluated, and knows the functions called.
class Observer {
 public:
  virtual ~Observer() = default;
  // An 8-byte access to memory at an address that is known to some extent.
  virtual void access(const Instruction &at, Value address) = 0;
  // Any access to memory at an address that is known to some extent.
  virtual void touch(const Instruction &, Value /*address*/, unsigned /*size*/, bool /*write*/) {}
  // A comparison of two 8-byte values.
  virtual void compare(const Instruction &at, Value a, Value b) = 0;
  // Before a call or a jump out of the function. target is the address called, as
  // far as it is known; state still holds the arguments.
  virtual void call(const Instruction &at, Value target, const State &state) = 0;
  // What that call does.
  virtual Summary summary(Value target) = 0;
};

class Machine {
 public:
  Machine(Values &values, Observer &observer) : values_(values), observer_(observer) {}

  State state;

  void step(const Instruction &insn);
  // A jump that leaves the function: what it returns is left in rax.
  void tail_call(const Instruction &insn);
  Value address_of(const Instruction &insn, const Operand &memory);

 private:
  Value defined_by(const Instruction &insn, std::uint64_t which);
  Value load(const Instruction &insn, Value address, unsigned size);
  Value read(const Instruction &insn, const Operand &op);
  void write(const Instruction &insn, const Operand &op, Value v);
  void store(const Instruction &insn, Value address, Value v, unsigned size);
  void set_register(std::uint8_t reg, Value v) { state.reg[reg] = v; }
  void touch_memory_operands(const Instruction &insn);
  void clobber_writes(const Instruction &insn);
  void call(const Instruction &insn);
  void return_from(const Instruction &insn, const Summary &summary);
  Value substitute(const Instruction &insn, Value v, int depth);
  Value call_target(const Instruction &insn);

  bool arithmetic(const Instruction &insn);
  bool moves(const Instruction &insn);
  bool stack(const Instruction &insn);
  bool vectors(const Instruction &insn);
  using Halves = std::array<Value, 2>;
  Halves read_vector(const Instruction &insn, const Operand &op);
  void write_vector(const Instruction &insn, const Operand &op, Halves v);

  Values &values_;
  Observer &observer_;
};

}  // namespace ibvexp::audit
