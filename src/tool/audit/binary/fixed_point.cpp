#include "tool/audit/binary/fixed_point.h"

#include <capstone/capstone.h>

#include <algorithm>
#include <limits>
#include <set>

namespace ibvexp::audit {
namespace {

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
// A block that is not stable by then stays as it is: code is odd, not endless.
constexpr int max_visits = 60;
// From then on a 0 no longer yields to what comes in by another way: around a loop
// that would not come to rest.
constexpr int precise_visits = 4;

// There is a state for each way between blocks: in functions with many, they are small.
constexpr std::size_t many_blocks = 4000;
constexpr std::uint32_t few_cells = 48;

bool is_conditional(unsigned id) {
  switch (id) {
    case X86_INS_JAE:
    case X86_INS_JA:
    case X86_INS_JBE:
    case X86_INS_JB:
    case X86_INS_JE:
    case X86_INS_JGE:
    case X86_INS_JG:
    case X86_INS_JLE:
    case X86_INS_JL:
    case X86_INS_JNE:
    case X86_INS_JNO:
    case X86_INS_JNP:
    case X86_INS_JNS:
    case X86_INS_JO:
    case X86_INS_JP:
    case X86_INS_JS:
    case X86_INS_JRCXZ:
    case X86_INS_JECXZ:
    case X86_INS_LOOP: return true;
    default: return false;
  }
}

bool is_jump(unsigned id) { return id == X86_INS_JMP || id == X86_INS_LJMP; }

bool stops(unsigned id) {
  return id == X86_INS_RET || id == X86_INS_RETF || id == X86_INS_UD2 || id == X86_INS_HLT ||
         id == X86_INS_INT3 || id == 0;
}

bool is_direct(const Instruction &i) {
  return i.operand_count > 0 && i.operands[0].kind == Operand::Kind::immediate;
}

// While states are still in motion nothing is reported.
class Quiet final : public Observer {
 public:
  explicit Quiet(Observer &real) : real_(real) {}
  void access(const Instruction &, Value) override {}
  void compare(const Instruction &, Value, Value) override {}
  void call(const Instruction &, Value, const State &) override {}
  Summary summary(Value target) override { return real_.summary(target); }

 private:
  Observer &real_;
};

}  // namespace

Flow::Flow(std::vector<Instruction> code) : code_(std::move(code)) { split(); }

std::size_t Flow::block_at(std::uint64_t address) const {
  const auto it =
      std::lower_bound(blocks_.begin(), blocks_.end(), address,
                       [&](const Block &b, std::uint64_t a) { return code_[b.first].address < a; });
  return it != blocks_.end() && code_[it->first].address == address
             ? static_cast<std::size_t>(it - blocks_.begin())
             : none;
}

void Flow::split() {
  std::vector<std::uint64_t> leaders;
  for (std::size_t i = 0; i < code_.size(); ++i) {
    const Instruction &insn = code_[i];
    const bool branch = is_conditional(insn.id) || is_jump(insn.id);
    if (branch && is_direct(insn))
      leaders.push_back(static_cast<std::uint64_t>(insn.operands[0].value));
    const bool gap = i + 1 < code_.size() && code_[i + 1].address != insn.next();
    if ((branch || stops(insn.id) || gap) && i + 1 < code_.size())
      leaders.push_back(code_[i + 1].address);
  }
  std::sort(leaders.begin(), leaders.end());
  for (std::size_t i = 0; i < code_.size(); ++i) {
    if (i == 0 || std::binary_search(leaders.begin(), leaders.end(), code_[i].address))
      blocks_.push_back({i, i, End::falls, {}});
    blocks_.back().last = i;
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    Block &block = blocks_[b];
    const Instruction &last = code_[block.last];
    const bool follows = b + 1 < blocks_.size() && code_[block.last + 1].address == last.next();
    const bool conditional = is_conditional(last.id);
    std::size_t target = none;
    if ((conditional || is_jump(last.id)) && is_direct(last))
      target = block_at(static_cast<std::uint64_t>(last.operands[0].value));
    if (conditional) {
      block.end = End::branches;
      if (target != none) block.edges.push_back({target, last.id == X86_INS_JE});
      if (follows) block.edges.push_back({b + 1, last.id == X86_INS_JNE});
    } else if (is_jump(last.id)) {
      block.end = !is_direct(last) ? End::indirect : target == none ? End::leaves : End::jumps;
      if (target != none) block.edges.push_back({target, false});
    } else if (stops(last.id)) {
      block.end = End::returns;
    } else if (follows) {
      block.edges.push_back({b + 1, false});
    }
  }
}

State Flow::through(Values &values, Observer &observer, std::size_t index, const State &in) const {
  Machine machine(values, observer);
  machine.state = in;
  const Block &block = blocks_[index];
  for (std::size_t i = block.first; i <= block.last; ++i) {
    const bool leaves = i == block.last && (block.end == End::leaves || block.end == End::indirect);
    if (leaves) machine.tail_call(code_[i]);
    else if (i < block.last ||
             (block.end != End::branches && block.end != End::jumps && block.end != End::returns))
      machine.step(code_[i]);
  }
  return std::move(machine.state);
}

Flow::Shared Flow::joined(Values &values, std::size_t block) const {
  const auto &in = incoming_[block];
  if (in.size() == 1) return in.front().second;
  std::vector<const State *> states;
  for (const auto &[edge, state] : in) states.push_back(state.get());
  return std::make_shared<const State>(
      join(values, states, code_[blocks_[block].first].address, visits_[block] <= precise_visits));
}

void Flow::settle(Values &values, Observer &quiet, std::vector<std::size_t> start, bool only_new) {
  std::set<std::size_t> work(start.begin(), start.end());
  const std::vector<char> before = reached_;
  while (!work.empty()) {
    const std::size_t b = *work.begin();
    work.erase(work.begin());
    if (++visits_[b] > max_visits) continue;
    reached_[b] = 1;
    const Shared in = joined(values, b);
    if (blocks_[b].edges.empty()) continue;
    const auto out = std::make_shared<const State>(through(values, quiet, b, *in));
    for (std::size_t e = 0; e < blocks_[b].edges.size(); ++e) {
      const Edge &edge = blocks_[b].edges[e];
      if (only_new && before[edge.to]) continue;
      Shared passed = out;
      if (edge.on_zero && out->zero_test != unknown) {
        State zeroed = *out;
        replace_by_zero(values, zeroed, out->zero_test);
        passed = std::make_shared<const State>(std::move(zeroed));
      }
      auto &in_to = incoming_[edge.to];
      const std::size_t id = 2 * b + e;
      const auto old =
          std::find_if(in_to.begin(), in_to.end(), [&](const auto &x) { return x.first == id; });
      if (old == in_to.end()) in_to.emplace_back(id, passed);
      else if (*old->second == *passed) continue;
      else old->second = passed;
      work.insert(edge.to);
    }
  }
}

// Code behind jump tables and landing pads of exceptions: begins with what is
// known wherever the function jumps indirectly, but for constants.
void Flow::start_unreached(Values &values, Observer &quiet) {
  std::vector<Shared> sources;
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    if (reached_[b] && blocks_[b].end == End::indirect) sources.push_back(joined(values, b));
  State state;
  if (sources.empty()) {
    state = entry_state(values);
    const Registers caller_saved = quiet.summary(unknown).clobbers;
    for (std::size_t r = 0; r < register_count; ++r)
      if (caller_saved >> r & 1) state.reg[r] = unknown;
  } else {
    std::vector<State> outs;
    std::vector<const State *> states;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (!reached_[b] || blocks_[b].end != End::indirect) continue;
      Machine machine(values, quiet);
      machine.state = *joined(values, b);
      for (std::size_t i = blocks_[b].first; i < blocks_[b].last; ++i) machine.step(code_[i]);
      outs.push_back(std::move(machine.state));
    }
    states.reserve(outs.size());
    for (const State &s : outs) states.push_back(&s);
    state = join(values, states, 1);
    for (Value &r : state.reg)
      if (values.as_constant(r)) r = unknown;
  }
  const auto shared = std::make_shared<const State>(std::move(state));
  std::vector<char> has_way_in(blocks_.size(), 0);
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    if (!reached_[b])
      for (const Edge &e : blocks_[b].edges) has_way_in[e.to] = 1;
  std::vector<std::size_t> work;
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    if (!reached_[b] && !has_way_in[b]) {
      incoming_[b].emplace_back(none, shared);
      work.push_back(b);
    }
  settle(values, quiet, work, true);
  // Loops that only a table leads into.
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    if (!reached_[b]) {
      incoming_[b].emplace_back(none, shared);
      settle(values, quiet, {b}, true);
    }
}

Value Flow::run(Values &values, Observer &observer, const State &entry) {
  if (blocks_.empty()) return unknown;
  incoming_.assign(blocks_.size(), {});
  reached_.assign(blocks_.size(), 0);
  visits_.assign(blocks_.size(), 0);
  Quiet quiet(observer);
  State first = entry;
  if (blocks_.size() > many_blocks) first.memory.limit(few_cells);
  incoming_[0].emplace_back(none, std::make_shared<const State>(std::move(first)));
  settle(values, quiet, {0}, false);
  if (std::find(reached_.begin(), reached_.end(), 0) != reached_.end())
    start_unreached(values, quiet);

  std::optional<Value> result;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const State out = through(values, observer, b, *joined(values, b));
    const bool ends = blocks_[b].end == End::leaves || blocks_[b].end == End::indirect ||
                      (blocks_[b].end == End::returns && code_[blocks_[b].last].id == X86_INS_RET);
    if (ends) result = result ? join(values, *result, out.reg[rax], 2, rax) : out.reg[rax];
  }
  return result.value_or(unknown);
}

}  // namespace ibvexp::audit
