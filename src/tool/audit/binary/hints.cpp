#include "tool/audit/binary/hints.h"

#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace ibvexp::audit {
namespace {

struct Constant {
  std::string_view name;
  std::string_view enumeration;
  std::uint64_t value;
};

// Every constant that has a row, with the value of the public header.
const auto &constants() {
  static const auto all = std::to_array<Constant>({
#define IBVEXP_CONSTANT(name, family, owner, ...) {#name, #owner, static_cast<std::uint64_t>(name)},
#include "table/features.def"
      // No enumerator, so its row is about the type.
      {"IBV_EXP_QPT_DC_INI", "qp_type", static_cast<std::uint64_t>(IBV_EXP_QPT_DC_INI)},
  });
  return all;
}

enum class How : std::uint8_t { bits, value };

struct Field {
  std::string_view verb;
  int argument;
  int offset;  // -1: the argument itself
  std::size_t size;
  std::string_view field;
  std::string_view enumeration;
  How how;
};

constexpr auto fields = std::to_array<Field>({
#define IBVEXP_HINT_FIELD(verb, argument, structure, member, enumeration, how) \
  {#verb,                                                                      \
   argument,                                                                   \
   static_cast<int>(offsetof(structure, member)),                              \
   sizeof(structure::member),                                                  \
   #structure "." #member,                                                     \
   #enumeration,                                                               \
   How::how},
#define IBVEXP_HINT_ARGUMENT(verb, argument, enumeration, how) \
  {#verb, argument, -1, 8, "argument " #argument, #enumeration, How::how},
#include "tool/audit/binary/hints.def"
});

// The values of a field, also as a half of an 8-byte store.
std::vector<std::uint64_t> values_of(const Field &f, const ArgumentValues &arguments) {
  const auto at = [&](int offset) { return arguments.find({f.argument, offset}); };
  std::vector<std::uint64_t> out;
  if (const auto it = at(f.offset); it != arguments.end() && it->second.size >= f.size) {
    for (const std::uint64_t v : it->second.values) out.push_back(f.size == 4 ? v & 0xffffffff : v);
  } else if (f.offset >= 4 && f.size == 4) {
    if (const auto before = at(f.offset - 4); before != arguments.end() && before->second.size == 8)
      for (const std::uint64_t v : before->second.values) out.push_back(v >> 32);
  }
  return out;
}

// IBV_EXP_DEVICE_ATTR_RESERVED - 1 of some release: all that its header knows, and so nothing in
// particular.
bool asks_for_all(const Field &f, std::uint64_t value) {
  constexpr int fewest = 16;
  return f.verb == "ibv_exp_query_device" && (value & (value + 1)) == 0 &&
         std::popcount(value) >= fewest;
}

void add(std::vector<Hint> &out, const Field &f, std::vector<std::uint64_t> values) {
  std::erase_if(values, [&](std::uint64_t value) { return asks_for_all(f, value); });
  for (const Constant &c : constants()) {
    if (c.enumeration != f.enumeration) continue;
    const bool seen = std::any_of(values.begin(), values.end(), [&](std::uint64_t value) {
      return f.how == How::value ? c.value == value
                                 : std::has_single_bit(c.value) && (value & c.value) != 0;
    });
    if (seen) out.push_back({c.name, f.field});
  }
}

}  // namespace

std::vector<Hint> hints_of(std::string_view verb, const ArgumentValues &arguments) {
  std::vector<Hint> out;
  for (const Field &f : fields)
    if (f.verb == verb) add(out, f, values_of(f, arguments));
  return out;
}

}  // namespace ibvexp::audit
