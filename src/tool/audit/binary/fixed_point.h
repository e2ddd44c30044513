// Evaluates one function to a fixed point: blocks, the states between them, and a
// last pass that shows an observer what the code does.
#pragma once

#include <memory>

#include "tool/audit/binary/machine.h"

namespace ibvexp::audit {

class Flow {
 public:
  // code: the instructions of the function, ordered by address; may consist of
  // several parts (cold ones lie apart).
  explicit Flow(std::vector<Instruction> code);

  // Evaluates from `entry`; observer hears of each instruction once, in its final
  // state. Returns what the function returns.
  Value run(Values &values, Observer &observer, const State &entry);

  const std::vector<Instruction> &code() const { return code_; }

 private:
  enum class End : std::uint8_t { falls, jumps, branches, leaves, returns, indirect };
  struct Edge {
    std::size_t to;
    bool on_zero;  // taken only if the value tested was zero
  };
  struct Block {
    std::size_t first, last;  // instructions, last included
    End end = End::falls;
    std::vector<Edge> edges;
  };
  using Shared = std::shared_ptr<const State>;

  void split();
  void settle(Values &values, Observer &quiet, std::vector<std::size_t> work, bool only_new);
  State through(Values &values, Observer &observer, std::size_t block, const State &in) const;
  void start_unreached(Values &values, Observer &quiet);
  Shared joined(Values &values, std::size_t block) const;
  std::size_t block_at(std::uint64_t address) const;

  std::vector<Instruction> code_;
  std::vector<Block> blocks_;
  // Per block, the states that come in: from the entry, then by edge.
  std::vector<std::vector<std::pair<std::size_t, Shared>>> incoming_;
  std::vector<char> reached_;
  std::vector<int> visits_;
};

}  // namespace ibvexp::audit
