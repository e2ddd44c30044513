#include "tool/audit/subjects.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tool/audit/effort.h"

namespace ibvexp::audit {
namespace {

using Subjects = std::unordered_map<std::string_view, Subject>;

std::string_view words(Verdict v) {
  switch (v) {
    case Verdict::noop: return "no-op";
    case Verdict::query_only: return "query only";
    default: return name_of(v);
  }
}

Subject make(std::string_view name, Family family, const Answer &a) {
  Subject out{name,   words(a.verdict), info(family).title, a.target,
              a.note, severity_of(a),   effort_of(a),       {}};
  if (is_switch(a.beyond) && info(a.beyond).status == SwitchStatus::done)
    out.switch_name = name_of(a.beyond);
  return out;
}

// A program that refers to a symbol that no library exports does not start.
Subject make(const Entry &e) {
  Subject out = make(e.name, e.family, e.answer);
  if (e.door == Door::absent) out.severity = Severity::fails;
  return out;
}

struct TypeName {
  std::string_view beginning;
  Family family;
};
constexpr TypeName types[] = {
#define IBVEXP_TYPE(beginning, family) {#beginning, Family::family},
#include "tool/audit/types.def"
};

// Types and macros of the headers, which have no rows: using one of them is not a use of a verb.
Subject make_part(std::string_view name) {
  std::string stem(name.substr(std::string_view("ibv_exp_").size()));
  std::transform(stem.begin(), stem.end(), stem.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const TypeName *best = nullptr;
  for (const TypeName &t : types)
    if (stem.starts_with(t.beginning) &&
        (best == nullptr || t.beginning.size() > best->beginning.size()))
      best = &t;
  return {name,
          "part of the API",
          best != nullptr ? info(best->family).title : "Types and macros",
          "",
          "A type or macro: see the verbs that take it.",
          Severity::works,
          Effort::adapt,
          {}};
}

constexpr std::string_view api_names[] = {
#include "api_names.inc"
};

// Paths of the members of the API's structures, with the structure in front.
constexpr std::string_view api_members[] = {
#define API_STRUCTURE(...)
#define API_TAKES(...)
#define API_MEMBER(structure, path, type) #structure "." path,
#include "api_structures.inc"
};

bool several_structures_have(std::string_view member) {
  return std::ranges::count_if(api_members, [&](std::string_view path) {
           return path.substr(path.find('.') + 1) == member;
         }) > 1;
}

// Whether some other structure's member may be meant: path is structure.member, and inner the
// member that is named behind it.
bool may_be_of_another(std::string_view path, std::string_view inner) {
  const std::string inside = fmt::format("{}.", path);
  const auto begins = [&](std::string_view p) { return p.starts_with(inside); };
  return several_structures_have(path.substr(path.find('.') + 1)) &&
         std::ranges::any_of(api_members, begins) &&
         std::ranges::count(api_members, inside + std::string(inner)) == 0;
}

Subjects make_all() {
  Subjects out;
  for (const Entry &e : entries) out.emplace(e.name, make(e));
  for (const Feature &f : features)
    if (f.kind != Kind::modern && f.kind != Kind::application)
      out.emplace(f.name, make(f.name, f.family, f.answer));
  for (const std::string_view name : api_names)
    if (!out.contains(name)) out.emplace(name, make_part(name));
  return out;
}

}  // namespace

bool is_experimental(std::string_view name) {
  return name.starts_with("ibv_exp_") || name.starts_with("IBV_EXP_");
}

const Subject *subject_of(std::string_view name) {
  static const Subjects all = make_all();
  const auto it = all.find(name);
  return it == all.end() ? nullptr : &it->second;
}

const Subject *refused_member(std::string_view name, std::string_view inner) {
  constexpr std::size_t least = 5;  // "task" is too common a name
  static const std::unordered_map<std::string_view, const Subject *> all = [] {
    std::unordered_map<std::string_view, const Subject *> out;
    for (const Feature &f : features) {
      const std::size_t dot = f.name.rfind('.');
      if (f.kind != Kind::field || dot == std::string_view::npos) continue;
      const Subject *s = subject_of(f.name);
      const std::string_view member = f.name.substr(dot + 1);
      if (s->severity >= Severity::beyond && member.size() >= least) out.emplace(member, s);
    }
    return out;
  }();
  const auto it = all.find(name);
  return it == all.end() || may_be_of_another(it->second->name, inner) ? nullptr : it->second;
}

const Subject &private_layout() {
  static const Subject s{
      "mlx5_hw.h",
      "private layout",
      "Private layouts of libmlx5",
      "mlx5dv_init_obj",
      "The header reads structures inside the legacy libmlx5 by their layout. On mlx5 devices "
      "libibverbs_exp hands out objects in that of 4.x, with IBVEXP_LAYOUT=3.x in that of 3.x. Tag "
      "matching and PeerDirect through them are refused; those of mlx4_hw.h are not served.",
      Severity::layout,
      Effort::rework,
      {}};
  return s;
}

const Subject &old_lookup() {
  static const Subject s{"2.x operation table",
                         "old header",
                         "Binary interface",
                         "",
                         "It is compiled with headers of MLNX_OFED 2.x, which look for the table "
                         "elsewhere: every call would find none. It must be rebuilt.",
                         Severity::fails,
                         Effort::adapt,
                         {}};
  return s;
}

const Subject &provider_plugin() {
  static const Subject s{"provider plug-in",
                         "unsupported",
                         "Provider internals",
                         "",
                         "It is a provider of the legacy libibverbs, which today's does not load: "
                         "applications do not need it.",
                         Severity::fails,
                         Effort::replace,
                         {}};
  return s;
}

const Subject &unknown_name(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, Subject, std::less<>> all;
  const std::scoped_lock lock(mutex);
  auto it = all.find(name);
  if (it == all.end()) {
    it = all.emplace(std::string(name), Subject{}).first;
    it->second = {it->first,
                  "unknown",
                  "Not in the tables",
                  "",
                  "No release of MLNX_OFED that the tables cover has this name.",
                  Severity::unknown,
                  Effort::adapt,
                  {}};
  }
  return it->second;
}

}  // namespace ibvexp::audit
