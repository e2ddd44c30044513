#include "tool/migrate/rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "table/compat.h"

namespace ibvexp::migrate {

namespace {

constexpr auto types = std::to_array<TypeRule>({
#define MIGRATE_TYPE(legacy, modern) {#legacy, "", modern},
#define MIGRATE_TYPE_MORE(legacy, of, modern) {#legacy, #of, modern},
#include "tool/migrate/rules.def"
});

constexpr auto members = std::to_array<MemberRule>({
#define MIGRATE_MEMBER(type, path, modern) {#type, "", path, modern},
#define MIGRATE_MEMBER_MORE(type, of, path, modern) {#type, #of, path, modern},
#include "tool/migrate/rules.def"
});

constexpr auto names = std::to_array<NameRule>({
#define MIGRATE_NAME(name, modern) {#name, "", modern},
#define MIGRATE_NAME_MORE(name, of, modern) {#name, #of, modern},
#include "tool/migrate/rules.def"
});

constexpr auto tests = std::to_array<TestRule>({
#define MIGRATE_TEST(type, member, name, expression) {#type, member, #name, expression},
#include "tool/migrate/rules.def"
});

constexpr auto calls = std::to_array<CallRule>({
#define MIGRATE_CALL(verb, modern, arguments) {#verb, "", modern, arguments},
#define MIGRATE_CALL_MORE(verb, of, modern, arguments) {#verb, #of, modern, arguments},
#include "tool/migrate/rules.def"
});

constexpr auto sets = std::to_array<SetRule>({
#define MIGRATE_SET(type, member, function) {#type, member, function, ""},
#define MIGRATE_SET_AFTER(type, member, other, function) {#type, member, function, other},
#include "tool/migrate/rules.def"
});

constexpr auto gets = std::to_array<SetRule>({
#define MIGRATE_GET(type, member, function) {#type, member, function, ""},
#include "tool/migrate/rules.def"
});

constexpr auto fills = std::to_array<FillRule>({
#define MIGRATE_FILL(type, name, member) {#type, #name, member},
#include "tool/migrate/rules.def"
});

constexpr auto others = std::to_array<std::string_view>({
#define MIGRATE_OTHER(name) #name,
#include "tool/migrate/rules.def"
});

constexpr auto compares = std::to_array<CompareRule>({
#define MIGRATE_COMPARE(type, member, modern, other, function) \
  {#type, member, modern, other, function},
#include "tool/migrate/rules.def"
});

constexpr auto no_compare = std::to_array<std::string_view>({
#define MIGRATE_NO_COMPARE(name) #name,
#include "tool/migrate/rules.def"
});

struct Loss {
  std::string_view what, sentence;
};
constexpr auto left = std::to_array<Loss>({
#define MIGRATE_LEFT(what, sentence) {what, sentence},
#include "tool/migrate/rules.def"
});

constexpr auto losses = std::to_array<Loss>({
#define MIGRATE_LOST(what, sentence) {what, sentence},
#include "tool/migrate/rules.def"
});

struct Need {
  std::string_view type, what;
};
constexpr auto needs = std::to_array<Need>({
#define MIGRATE_NEEDS_MORE(type, what) {#type, what},
#include "tool/migrate/rules.def"
});

// The rule of the wider form if that is needed, else the plain one.
template <class Table, class Matches>
auto choose(const Table &table, const std::set<std::string_view> &more, Matches matches)
    -> decltype(table.data()) {
  const typename Table::value_type *plain = nullptr;
  for (const auto &rule : table) {
    if (!matches(rule)) continue;
    if (rule.more.empty()) plain = &rule;
    else if (more.contains(rule.more)) return &rule;
  }
  return plain;
}

template <class Table, class Matches>
auto find(const Table &table, Matches matches) -> decltype(table.data()) {
  const auto found = std::find_if(table.begin(), table.end(), matches);
  return found == table.end() ? nullptr : &*found;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    if ((at == 0 || !is_word(text[at - 1])) &&
        (at + word.size() == text.size() || !is_word(text[at + word.size()])))
      return true;
  return false;
}

// Whether a row's target is what a program may call or name itself.
bool is_public(std::string_view target, Verdict verdict) {
  if (target.empty() || target.starts_with('(')) return false;
  if (has_word(target, "our") || has_word(target, "ours")) return false;
  if (verdict != Verdict::beyond) return true;
  // Of the rows that are refused by default, most say how a switch does it.
  for (const std::string_view prefix : {"ibv_", "IBV_", "mlx5dv_", "MLX5DV_"})
    if (target.starts_with(prefix)) return true;
  return false;
}

}  // namespace

bool is_legacy(std::string_view name) {
  return name.starts_with("ibv_exp_") || name.starts_with("IBV_EXP_") ||
         std::find(others.begin(), others.end(), name) != others.end();
}

void Rules::note_use(std::string_view what) {
  for (const Need &need : needs)
    if (need.what == what) more_.insert(need.type);
  if (std::find(no_compare.begin(), no_compare.end(), what) != no_compare.end())
    by_function_ = true;
}

void Rules::note_modern(std::string_view text) {
  const auto note = [&](const auto &table) {
    for (const auto &rule : table)
      if (!rule.more.empty() && rule.modern.starts_with("ibvexp_") && has_word(text, rule.modern))
        more_.insert(rule.more);
  };
  note(types);
  note(calls);
}

const TypeRule *Rules::type(std::string_view legacy) const {
  return usable(choose(types, more_, [&](const TypeRule &r) { return r.legacy == legacy; }));
}

const MemberRule *Rules::member(std::string_view type, std::string_view path) const {
  return choose(members, more_,
                [&](const MemberRule &r) { return r.type == type && r.path == path; });
}

const NameRule *Rules::name(std::string_view legacy) const {
  return usable(choose(names, more_, [&](const NameRule &r) { return r.legacy == legacy; }));
}

const TestRule *Rules::test(std::string_view type, std::string_view member,
                            std::string_view name) const {
  return find(tests, [&](const TestRule &r) {
    return r.type == type && r.member == member && r.name == name;
  });
}

const CallRule *Rules::call(std::string_view legacy) const {
  return usable(choose(calls, more_, [&](const CallRule &r) { return r.legacy == legacy; }));
}

const SetRule *Rules::set(std::string_view type, std::string_view member) const {
  if (!helper_) return nullptr;
  return find(sets, [&](const SetRule &r) { return r.type == type && r.member == member; });
}

const SetRule *Rules::get(std::string_view type, std::string_view member) const {
  if (!helper_) return nullptr;
  return find(gets, [&](const SetRule &r) { return r.type == type && r.member == member; });
}

const FillRule *Rules::fill(std::string_view type) const {
  return find(fills, [&](const FillRule &r) { return r.type == type; });
}

const CompareRule *Rules::compare(std::string_view type, std::string_view member) const {
  if (by_function_ && !helper_) return nullptr;
  return find(compares, [&](const CompareRule &r) { return r.type == type && r.member == member; });
}

std::string_view Rules::name_by_table(std::string_view legacy) {
  constexpr std::string_view prefix = "IBV_EXP_";
  const Feature *row = find_feature(legacy);
  if (row == nullptr || !legacy.starts_with(prefix)) return {};
  const std::string_view target = row->answer.target;
  const bool same = target.starts_with("IBV_") && target.substr(4) == legacy.substr(prefix.size());
  return same ? target : std::string_view{};
}

std::string_view row_of(std::string_view legacy) {
  if (const Entry *row = find_entry(legacy)) return row->name;
  if (const Feature *row = find_feature(legacy)) return row->name;
  return {};
}

std::string_view loss(std::string_view legacy) {
  const Loss *found = find(losses, [&](const Loss &l) { return l.what == legacy; });
  return found == nullptr ? std::string_view() : found->sentence;
}

std::string advice(std::string_view legacy) {
  const auto holds = [&](const Loss &l) {
    return legacy.starts_with(l.what) &&
           (legacy.size() == l.what.size() || legacy[l.what.size()] == '.');
  };
  if (const Loss *found = find(left, holds)) return std::string(found->sentence);
  const Answer *answer = nullptr;
  if (const Entry *row = find_entry(legacy)) answer = &row->answer;
  else if (const Feature *feature = find_feature(legacy)) answer = &feature->answer;
  if (answer == nullptr) return "no successor is known; docs/migrating.md has examples";
  std::string successor;
  if (is_public(answer->target, answer->verdict))
    successor = fmt::format("rdma-core has {}", answer->target);
  if (answer->verdict == Verdict::beyond)
    return fmt::format(
        "{}; libibverbs_exp serves it with IBVEXP_BEYOND={} only, see ibvexp matrix {}",
        successor.empty() ? "has no successor in rdma-core" : successor, name_of(answer->beyond),
        legacy);
  if (!successor.empty()) return successor;
  if (answer->verdict == Verdict::unsupported) return "has no successor in rdma-core";
  return fmt::format("ibvexp matrix {} says what became of it", legacy);
}

}  // namespace ibvexp::migrate
