// Rules of the compatibility tables. Each function names the first rule that a
// row breaks, or returns an empty string. The assertions at the end take a second
// to evaluate, so this file is not part of compat.h: the matrix generator, which
// every build makes, includes it, and a table that breaks a rule does not compile.
// The unit tests print which row it was.
#pragma once

#include "table/compat.h"

namespace ibvexp::rules {

constexpr bool is_text(std::string_view s) {
  return s.empty() ||
         (s.front() != ' ' && s.back() != ' ' && s.find('\n') == std::string_view::npos &&
          s.find("  ") == std::string_view::npos);
}

// First release of rdma-core as one project; older than that nothing is.
inline constexpr int first_core = 12;

constexpr std::string_view fault(const Answer &a) {
  const bool has_target = !a.target.empty();
  if (!is_text(a.target) || !is_text(a.rows) || !is_text(a.note)) return "stray blanks in a text";
  if (!a.note.empty() && a.note.back() != '.') return "a note is made of sentences";
  if (has_target != (a.min_core >= first_core)) return "a target has a first release, and only it";
  if (a.refusal != 0 && a.refusal != ENOTSUP && a.refusal != EINVAL)
    return "refusals are ENOTSUP or EINVAL";

  switch (a.verdict) {
    case Verdict::native:
    case Verdict::translated:
      if (!has_target) return "needs a target";
      if (a.refusal != 0) return "refuses nothing, or else it is partial";
      break;
    case Verdict::partial:
      if (!has_target) return "needs a target";
      if (a.refusal == 0) return "partial has an errno for what it refuses";
      if (a.note.empty()) return "partial says what it refuses";
      break;
    case Verdict::noop:
      if (has_target) return "nothing to do has no target";
      if (a.refusal != 0) return "nothing to do refuses nothing";
      if (a.note.empty()) return "says why there is nothing to do";
      break;
    case Verdict::query_only:
      if (a.refusal != 0) return "a query is not refused";
      if (!has_target && a.note.empty()) return "says why it is never reported";
      break;
    case Verdict::beyond:
      if (!is_switch(a.beyond)) return "beyond names its switch";
      if (info(a.beyond).status == SwitchStatus::declined)
        return "a declined switch is unsupported";
      if (!has_target) return "needs the route of its switch";
      if (a.note.empty()) return "says why it is off by default";
      break;
    case Verdict::unsupported:
      if (has_target) return "unsupported has no target";
      if (a.note.empty()) return "unsupported has a reason";
      if (is_switch(a.beyond) && info(a.beyond).status != SwitchStatus::declined)
        return "can be switched on, so it is beyond";
      break;
    case Verdict::sentinel:
      if (has_target || !a.rows.empty()) return "a sentinel is not a request";
      if (a.note.empty()) return "says what it limits";
      break;
  }
  return {};
}

constexpr std::string_view fault(const Entry &e) {
  if (const auto f = fault(e.answer); !f.empty()) return f;
  const bool absent = e.door == Door::absent;
  const bool refuses =
      e.answer.verdict == Verdict::unsupported || e.answer.verdict == Verdict::beyond;
  if (absent != (e.shape == Shape::no_symbol)) return "absent entry points have no error shape";
  if ((absent || e.door == Door::inline_only) != (e.node == Node::none))
    return "exported symbols have a version node, and only they";
  if (refuses && (e.answer.refusal != 0) == absent) return "a refusal has an errno unless absent";
  if (e.answer.verdict == Verdict::sentinel || e.answer.verdict == Verdict::query_only)
    return "not a verdict for an entry point";
  return {};
}

constexpr std::string_view fault(const Feature &f) {
  if (const auto s = fault(f.answer); !s.empty()) return s;
  if (f.owner.empty()) return "belongs to an enum or structure";
  if ((f.kind == Kind::limit) != (f.answer.verdict == Verdict::sentinel))
    return "limits are sentinels, and only they";
  if (f.answer.verdict == Verdict::unsupported && f.answer.refusal == 0)
    return "a refusal has an errno";
  if (f.answer.verdict == Verdict::beyond && f.answer.refusal == 0 && f.kind != Kind::capability &&
      f.kind != Kind::mask && f.kind != Kind::field && f.kind != Kind::opcode &&
      f.kind != Kind::flag && f.kind != Kind::usage && f.owner != "ibv_event_type" &&
      f.owner != "ibv_exp_ec_status")
    return "only what is reported may be off without an errno";
  return {};
}

constexpr std::string_view fault(const Slot &s) {
  if (s.fill == Fill::function) {
    const Entry *e = find_entry(s.entry);
    if (e == nullptr) return "the entry point has no row";
    if (e->door != Door::slot_and_symbol) return "the entry point is not behind a slot";
    return {};
  }
  if (!s.entry.empty()) return "an empty slot has no entry point";
  return s.note.empty() ? "says why it is empty" : std::string_view();
}

constexpr std::string_view fault(const Option &o) {
  if (!o.name.starts_with("IBVEXP_")) return "options begin with IBVEXP_";
  if (o.help.empty() || !is_text(o.help)) return "an option has help";
  const bool anything = o.type == OptionType::path || o.type == OptionType::text;
  if (!anything && o.allowed.empty()) return "says what is allowed";
  return {};
}

constexpr std::string_view fault(const BeyondSwitch &s) {
  if (s.help.empty() || !is_text(s.help)) return "a switch has help";
  if (s.route.empty() || s.since < first_core) return "a switch has a route and its first release";
  return {};
}

// First row of a table that breaks a rule, or null.
template <class Table>
constexpr auto first_fault(const Table &table) -> decltype(table.data()) {
  for (const auto &row : table)
    if (!fault(row).empty()) return &row;
  return nullptr;
}

constexpr bool before(const Entry &a, const Entry &b) {
  return a.family != b.family ? a.family < b.family : a.name < b.name;
}
constexpr bool before(const Feature &a, const Feature &b) {
  if (a.family != b.family) return a.family < b.family;
  return a.owner != b.owner ? a.owner < b.owner : a.name < b.name;
}
constexpr bool before(const Option &a, const Option &b) { return a.name < b.name; }
constexpr bool before(const BeyondSwitch &a, const BeyondSwitch &b) { return a.name < b.name; }

// First row that is not after its predecessor, or null. Also finds duplicates
// next to each other; others are doubled enumerators of EntryId and FeatureId.
template <class Table>
constexpr auto first_misplaced(const Table &table) -> decltype(table.data()) {
  for (std::size_t i = 1; i < table.size(); ++i)
    if (!before(table[i - 1], table[i])) return &table[i];
  return nullptr;
}

static_assert(first_fault(entries) == nullptr);
static_assert(first_fault(features) == nullptr);
static_assert(first_fault(slots) == nullptr);
static_assert(first_fault(options) == nullptr);
static_assert(first_fault(beyond_switches) == nullptr);
static_assert(first_misplaced(entries) == nullptr);
static_assert(first_misplaced(features) == nullptr);
static_assert(first_misplaced(options) == nullptr);
static_assert(first_misplaced(beyond_switches) == nullptr);
static_assert(slots.back().fill == Fill::size, "the size word ends the table");

}  // namespace ibvexp::rules
