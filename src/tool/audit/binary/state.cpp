#include "tool/audit/binary/state.h"

#include <algorithm>

namespace ibvexp::audit {
namespace {

// Locations of joined values: registers, then halves of vector registers.
constexpr std::uint64_t xmm_location = 0x100, memory_location = 0x10000;

auto position(auto &cells, Value address) {
  return std::lower_bound(cells.begin(), cells.end(), address,
                          [](const Cell &c, Value a) { return c.address < a; });
}

std::optional<Value> common(const Values &values, Value a, Value b, bool zero_yields) {
  if (a == b) return a;
  if (values.as_table(a)) return a;
  if (values.as_table(b)) return b;
  const auto x = values.as_constant(a), y = values.as_constant(b);
  if (!zero_yields || (x && y)) return {};
  if (x == 0) return b;
  if (y == 0) return a;
  return {};
}

void join_memory(Values &values, Memory &into, const Memory &other, std::uint64_t place,
                 bool zero_yields) {
  std::vector<Cell> out;
  auto a = into.cells().begin();
  auto b = other.cells().begin();
  const auto a_end = into.cells().end();
  const auto b_end = other.cells().end();
  while (a != a_end || b != b_end) {
    if (b == b_end || (a != a_end && a->address < b->address)) {
      if (values.as_table(a->value)) out.push_back(*a);
      ++a;
    } else if (a == a_end || b->address < a->address) {
      if (values.as_table(b->value)) out.push_back(*b);
      ++b;
    } else {
      // What differs is forgotten, but for constants: a symbol for each would be too many.
      const bool chosen =
          !values.constants_of(a->value).empty() && !values.constants_of(b->value).empty();
      if (a->size == b->size) {
        if (const auto v = common(values, a->value, b->value, zero_yields && !chosen))
          out.push_back({a->address, *v, a->size});
        else if (chosen)
          out.push_back(
              {a->address,
               join(values, a->value, b->value, place, memory_location + a->address, false),
               a->size});
      }
      ++a, ++b;
    }
  }
  into.cells() = std::move(out);
}

}  // namespace

const Cell *Memory::find(Value address) const {
  const auto it = position(cells_, address);
  return it != cells_.end() && it->address == address ? &*it : nullptr;
}

void Memory::store(Value address, Value value, std::uint8_t size) {
  const auto it = position(cells_, address);
  if (it != cells_.end() && it->address == address) *it = {address, value, size};
  else if (cells_.size() < limit_) cells_.insert(it, {address, value, size});
}

void Memory::forget_all_but_frame(const Values &values) {
  std::erase_if(cells_, [&](const Cell &c) { return !values.in_frame(c.address); });
}

State entry_state(Values &values) {
  State s;
  for (std::size_t r = 0; r < register_count; ++r)
    s.reg[r] = values.symbol({Symbol::Kind::entry, r, 0});
  return s;
}

Value join(Values &values, Value a, Value b, std::uint64_t place, std::uint64_t location,
           bool zero_yields) {
  if (const auto v = common(values, a, b, zero_yields)) return *v;
  const Value phi = values.symbol({Symbol::Kind::phi, place, location});
  values.choose(phi, a, b);
  return phi;
}

State join(Values &values, std::span<const State *const> states, std::uint64_t block,
           bool zero_yields) {
  State out = *states.front();
  for (const State *s : states.subspan(1)) {
    for (std::size_t r = 0; r < register_count; ++r) {
      out.reg[r] = join(values, out.reg[r], s->reg[r], block, r, zero_yields);
      if (r >= vector_count) continue;
      for (const std::size_t half : {0, 1})
        out.xmm[r][half] = join(values, out.xmm[r][half], s->xmm[r][half], block,
                                xmm_location + 2 * r + half, zero_yields);
    }
    join_memory(values, out.memory, s->memory, block, zero_yields);
    if (out.zero_test != s->zero_test) out.zero_test = unknown;
  }
  return out;
}

void replace_by_zero(Values &values, State &state, Value v) {
  if (v == unknown || values.as_constant(v)) return;
  const Value zero = values.constant(0);
  for (Value &r : state.reg)
    if (r == v) r = zero;
  for (Cell &c : state.memory.cells())
    if (c.value == v) c.value = zero;
}

}  // namespace ibvexp::audit
