#include "tool/audit/subjects.h"

#include "tool/audit/effort.h"

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

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
  return {name,   words(a.verdict), info(family).title, a.target,
          a.note, severity_of(a),   effort_of(a),       a.state == State::planned};
}

// What the headers have beside rows: types, macros. They have no answer of their
// own and are as good as the verb whose name begins theirs.
Subject make_part(std::string_view name, const Subjects &rows) {
  Subject out{name,
              "part of the API",
              "Types and macros",
              "",
              "A type or macro: see the verbs that take it.",
              Severity::fine,
              Effort::adapt,
              false};
  std::size_t longest = 0;
  for (const Entry &e : entries) {
    if (e.name.size() <= longest || !name.starts_with(e.name)) continue;
    longest = e.name.size();
    const Subject &verb = rows.at(e.name);
    out.family = verb.family;
    out.severity = verb.severity;
    out.planned = verb.planned;
  }
  if (longest == 0)
    for (const Feature &f : features)
      if (f.owner == name) {
        out.family = info(f.family).title;
        break;
      }
  return out;
}

constexpr std::string_view api_names[] = {
#include "api_names.inc"
};

Subjects make_all() {
  Subjects out;
  for (const Entry &e : entries) out.emplace(e.name, make(e.name, e.family, e.answer));
  for (const Feature &f : features)
    if (f.kind != Kind::modern && f.kind != Kind::application)
      out.emplace(f.name, make(f.name, f.family, f.answer));
  for (const std::string_view name : api_names)
    if (!out.contains(name)) out.emplace(name, make_part(name, out));
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

const Subject &private_layout() {
  static const Subject s{
      "mlx5_hw.h",
      "private layout",
      "Private layouts of libmlx5",
      "mlx5dv_init_obj",
      "The header reads structures inside the legacy libmlx5 by their layout. No library can serve "
      "that: such code must be rebuilt on mlx5dv. Where the program has other transports, restrict "
      "it to those.",
      Severity::unsupported,
      Effort::rework,
      false};
  return s;
}

const Subject &old_lookup() {
  static const Subject s{"2.x operation table",
                         "old header",
                         "Binary interface",
                         "",
                         "Compiled with headers of MLNX_OFED 2.x, which look for the table "
                         "elsewhere: every call would "
                         "find none. Must be rebuilt.",
                         Severity::unsupported,
                         Effort::adapt,
                         false};
  return s;
}

const Subject &provider_plugin() {
  static const Subject s{"provider plug-in",
                         "unsupported",
                         "Provider internals",
                         "",
                         "A provider of the legacy libibverbs. Today's libibverbs does not load "
                         "it, and applications do "
                         "not need it.",
                         Severity::unsupported,
                         Effort::replace,
                         false};
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
                  Severity::partial,
                  Effort::adapt,
                  false};
  }
  return it->second;
}

}  // namespace ibvexp::audit
