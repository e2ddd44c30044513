// The compatibility tables: what the legacy API offers and what became of it.
// The .def files are expanded here, once; all other code reads these arrays.
// The rules that the rows obey are in compat_rules.h.
#pragma once

#include <array>
#include <cerrno>
#include <span>

#include "table/compat_types.h"

namespace ibvexp {

enum class EntryId : std::uint16_t {
#define IBVEXP_ENTRY(name, ...) name,
#include "table/entries.def"
};

enum class FeatureId : std::uint16_t {
#define IBVEXP_CONSTANT(name, ...) name,
#define IBVEXP_FEATURE(id, ...) id,
#include "table/features.def"
};

inline constexpr auto families = std::to_array<FamilyInfo>({
#define IBVEXP_FAMILY(token, title, summary) {#token, title, summary},
#include "table/families.def"
});

inline constexpr auto entries = std::to_array<Entry>({
#define IBVEXP_ENTRY(name, family, door, node, shape, verdict, beyond, min_core, refusal, target, \
                     rows, note)                                                                  \
  {#name,        Family::family,                                                                  \
   Door::door,   Node::node,                                                                      \
   Shape::shape, {Verdict::verdict, Beyond::beyond, min_core, refusal, target, rows, note}},
#include "table/entries.def"
});

inline constexpr auto features = std::to_array<Feature>({
#define IBVEXP_CONSTANT(name, family, owner, kind, verdict, beyond, min_core, refusal, target, \
                        rows, note)                                                            \
  {#name,  Family::family,                                                                     \
   #owner, Kind::kind,                                                                         \
   true,   {Verdict::verdict, Beyond::beyond, min_core, refusal, target, rows, note}},
#define IBVEXP_FEATURE(id, name, family, owner, kind, verdict, beyond, min_core, refusal, target, \
                       rows, note)                                                                \
  {name,   Family::family,                                                                        \
   #owner, Kind::kind,                                                                            \
   false,  {Verdict::verdict, Beyond::beyond, min_core, refusal, target, rows, note}},
#include "table/features.def"
});

inline constexpr auto slots = std::to_array<Slot>({
#define IBVEXP_SLOT(name, entry) {#name, Fill::function, #entry, ""},
#define IBVEXP_SLOT_EMPTY(name, fill, note) {#name, Fill::fill, "", note},
#include "table/slots.def"
});

inline constexpr auto options = std::to_array<Option>({
#define IBVEXP_OPTION(name, type, default_value, allowed, help) \
  {#name, OptionType::type, default_value, allowed, help},
#include "table/options.def"
});

inline constexpr auto beyond_switches = std::to_array<BeyondSwitch>({
#define IBVEXP_BEYOND_SWITCH(name, status, since, route, help) \
  {#name, SwitchStatus::status, since, route, help},
#include "table/options.def"
});

constexpr const FamilyInfo &info(Family f) { return families[static_cast<std::size_t>(f)]; }
constexpr const Entry &row(EntryId id) { return entries[static_cast<std::size_t>(id)]; }
constexpr const Feature &row(FeatureId id) { return features[static_cast<std::size_t>(id)]; }

// Byte offset of a slot from the start of the table.
constexpr std::size_t offset_of(const Slot &slot) {
  return static_cast<std::size_t>(&slot - slots.data()) * sizeof(void *);
}

// In place of the names of switches: all that work.
inline constexpr std::string_view automatic_switches = "auto";

// none and by_default share the column with the switches without being any.
constexpr bool is_switch(Beyond b) { return b != Beyond::none && b != Beyond::by_default; }

constexpr const BeyondSwitch &info(Beyond b) {
  return beyond_switches[static_cast<std::size_t>(b) - 2];
}

constexpr std::string_view name_of(Family f) { return info(f).token; }

constexpr std::string_view name_of(Beyond b) {
  if (b == Beyond::none) return "none";
  if (b == Beyond::by_default) return "by_default";
  return info(b).name;
}

namespace detail {
template <class Table>
constexpr auto find(const Table &table, std::string_view name) -> decltype(table.data()) {
  for (const auto &row : table)
    if (row.name == name) return &row;
  return nullptr;
}

// Rows of a family lie together, because the tables are sorted by family.
template <class Row, std::size_t n>
constexpr std::span<const Row> of_family(const std::array<Row, n> &table, Family family) {
  std::size_t first = 0;
  while (first < n && table[first].family != family) ++first;
  std::size_t last = first;
  while (last < n && table[last].family == family) ++last;
  return std::span<const Row>(table).subspan(first, last - first);
}
}  // namespace detail

// Look-up by legacy name; null when the name is unknown.
constexpr const Entry *find_entry(std::string_view name) { return detail::find(entries, name); }
constexpr const Feature *find_feature(std::string_view name) {
  return detail::find(features, name);
}
constexpr const Slot *find_slot(std::string_view name) { return detail::find(slots, name); }
constexpr const Option *find_option(std::string_view name) { return detail::find(options, name); }
constexpr const BeyondSwitch *find_switch(std::string_view name) {
  return detail::find(beyond_switches, name);
}

constexpr std::span<const Entry> entries_of(Family f) { return detail::of_family(entries, f); }
constexpr std::span<const Feature> features_of(Family f) { return detail::of_family(features, f); }

// Calls fn with each word of a list, as the rows column (separated by spaces)
// and the allowed values of options (separated by commas) are.
template <class Fn>
constexpr void for_each_word(std::string_view list, char separator, Fn fn) {
  while (!list.empty()) {
    const std::size_t end = list.find(separator);
    if (const auto word = list.substr(0, end); !word.empty()) fn(word);
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
}

// What a caller gets today, as opposed to what the row promises.
struct Effective {
  Verdict verdict;
  int refusal;
};

// switched_on: the row's switch is named in IBVEXP_BEYOND. A declined one
// changes nothing.
constexpr Effective effective(const Answer &a, bool switched_on = false) {
  // A query never fails for what it does not know: it leaves the bit clear.
  const bool refuses =
      a.verdict != Verdict::query_only && !(a.verdict == Verdict::beyond && a.refusal == 0);
  const Effective refused{refuses ? Verdict::unsupported : Verdict::query_only,
                          refuses ? ENOTSUP : 0};
  if (a.verdict == Verdict::sentinel) return {Verdict::sentinel, a.refusal};
  if (a.verdict != Verdict::beyond) return {a.verdict, a.refusal};
  if (switched_on && is_switch(a.beyond) && info(a.beyond).status == SwitchStatus::done)
    return {refuses ? Verdict::translated : Verdict::query_only, 0};
  return refused;
}

// Whether a capability bit or field may be reported to a caller.
constexpr bool reportable(const Answer &a, bool switched_on = false) {
  if (a.target.empty()) return false;
  if (a.verdict == Verdict::beyond)
    return switched_on && is_switch(a.beyond) && info(a.beyond).status == SwitchStatus::done;
  return a.verdict == Verdict::query_only || a.verdict == Verdict::native ||
         a.verdict == Verdict::translated;
}

}  // namespace ibvexp
