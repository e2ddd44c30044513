// What is known about registers and memory at one point of a function.
#pragma once

#include <span>

#include "tool/audit/binary/values.h"

namespace ibvexp::audit {

struct Cell {
  Value address;
  Value value;
  std::uint8_t size;
  bool operator==(const Cell &) const = default;
};

// Cells by address, for store-to-load forwarding. Two expressions are taken for
// two places: stores through one do not touch the other.
class Memory {
 public:
  const Cell *find(Value address) const;
  void store(Value address, Value value, std::uint8_t size);
  void forget_all_but_frame(const Values &values);
  std::vector<Cell> &cells() { return cells_; }
  const std::vector<Cell> &cells() const { return cells_; }
  // How many cells are kept; more are forgotten as they come.
  void limit(std::uint32_t cells) { limit_ = cells; }
  bool operator==(const Memory &) const = default;

 private:
  std::uint32_t limit_ = 400;
  std::vector<Cell> cells_;  // sorted by address
};

struct State {
  std::array<Value, register_count> reg{};
  std::array<std::array<Value, 2>, vector_count> xmm{};  // halves of 64 bits
  Memory memory;
  Value zero_test = unknown;  // the zero flag says whether this is 0
  bool operator==(const State &) const = default;
};

// At entry every register holds a symbol of its own.
State entry_state(Values &values);

// The value at a place where two ways meet. A table address wins over anything:
// what may be a dispatch counts. 0 yields if it shall, since what fails gives NULL.
// What else differs becomes a symbol of the place.
Value join(Values &values, Value a, Value b, std::uint64_t place, std::uint64_t location,
           bool zero_yields = true);

State join(Values &values, std::span<const State *const> states, std::uint64_t block,
           bool zero_yields = true);

// After a test found it to be zero.
void replace_by_zero(Values &values, State &state, Value v);

}  // namespace ibvexp::audit
