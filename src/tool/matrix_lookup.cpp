// One name of the API: what becomes of it, what replaces it, an example.
#include <fmt/format.h>

#include <cctype>
#include <stdexcept>
#include <vector>

#include "base/nearest.h"
#include "migrating_text.h"
#include "table/compat.h"
#include "tool/markdown.h"
#include "tool/matrix.h"
#include "tool/matrix_types.h"
#include "tool/words.h"

namespace ibvexp::tool {

namespace {

bool is_part_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::size_t find_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part_of_word(text[at - 1])) &&
        (end == text.size() || !is_part_of_word(text[end])))
      return at;
  }
  return text.npos;
}

// What the migration guide writes in the place of code that has the name; empty if it has
// no such code.
std::string example(std::string_view name) {
  const std::string_view text = migrating_text, before = "```c before\n";
  for (std::size_t at = text.find(before); at != text.npos;) {
    const std::size_t next = text.find(before, at + 1);
    const std::string_view pair = text.substr(at + before.size(), next - at - before.size());
    at = next;
    const std::size_t end = pair.find("```");
    if (find_word(pair.substr(0, end), name) == pair.npos) continue;
    for (const std::string_view after : {"```c by hand\n", "```c after\n"}) {
      const std::size_t found = pair.find(after, end);
      if (found == pair.npos) continue;
      const std::string_view code = pair.substr(found + after.size());
      return fmt::format("Example, from docs/migrating.md:\n\n{}",
                         code.substr(0, code.find("```")));
    }
  }
  return {};
}

std::string described(std::string_view name, Family family, const Answer &a) {
  std::string out = fmt::format("{}: {}\n", name, words(a.verdict));
  const auto add = [&](std::string_view what, std::string_view text) {
    if (!text.empty()) out += fmt::format("  {:<14}{}\n", what, text);
  };
  const bool has_switch = is_switch(a.beyond) && info(a.beyond).status == SwitchStatus::done;
  add("feature", info(family).title);
  add("on rdma-core", a.target);
  if (a.min_core > 0) add("since", fmt::format("rdma-core {}", a.min_core));
  if (has_switch) add("turned on by", fmt::format("--beyond {}", info(a.beyond).name));
  add("note", a.note);
  if (const std::string code = example(name); !code.empty()) out += "\n" + code;
  return out;
}

// The names of the rows that a switch serves.
std::string rows_of(const BeyondSwitch &s) {
  std::string out;
  const auto add = [&](std::string_view name, const Answer &a) {
    if (is_switch(a.beyond) && info(a.beyond).name == s.name) out += fmt::format("\n    {}", name);
  };
  for (const Entry &e : entries) add(e.name, e.answer);
  for (const Feature &f : features) add(f.name, f.answer);
  return out;
}

std::string described(const BeyondSwitch &s) {
  return fmt::format(
      "{0}: a switch\n"
      "  turned on by  --beyond {0}, or IBVEXP_BEYOND={0}\n"
      "  since         rdma-core {1}\n"
      "  note          {2}\n"
      "  rows{3}\n",
      s.name, s.since, s.help, rows_of(s));
}

std::string listed(const std::vector<std::string_view> &names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string described(const TypeInfo &type) {
  std::string out =
      fmt::format("{}: {} {}\n", type.name, type.kind == TypeInfo::Kind::enumeration ? "an" : "a",
                  name_of(type.kind));
  const auto add = [&](std::string_view what, std::string_view text) {
    if (!text.empty()) out += fmt::format("  {:<14}{}\n", what, text);
  };
  add("of", listed(type.part_of));
  add("for", listed(type.taken_by));
  add("on rdma-core", type.modern);
  if (!type.parts.empty())
    out += type.kind == TypeInfo::Kind::structure ? "  members\n" : "  values\n";
  for (const TypeInfo::Part &part : type.parts) {
    const std::string_view said = part.row != nullptr ? words(part.row->answer.verdict) : "",
                           modern = part.row != nullptr ? part.row->answer.target : part.modern;
    out += fmt::format("    {}{}{}{}{}\n", part.name, said.empty() ? "" : ": ", said,
                       modern.empty() ? "" : " -> ", modern);
  }
  if (const std::string code = example(type.name); !code.empty()) out += "\n" + code;
  return out;
}

std::string described(const Option &o) {
  std::string out = fmt::format("{}: an environment variable\n", o.name);
  if (!o.allowed.empty()) out += fmt::format("  allowed       {}\n", o.allowed);
  if (!o.default_value.empty()) out += fmt::format("  default       {}\n", o.default_value);
  return out + fmt::format("  note          {}\n", o.help);
}

}  // namespace

std::string matrix_lookup(std::string_view name) {
  std::vector<std::string_view> all;
  for (const BeyondSwitch &s : beyond_switches) {
    if (s.name == name) return described(s);
    all.push_back(s.name);
  }
  for (const Option &o : options) {
    if (o.name == name) return described(o);
    all.push_back(o.name);
  }
  for (const Entry &e : entries) {
    if (e.name == name) return described(e.name, e.family, e.answer);
    all.push_back(e.name);
  }
  for (const Feature &f : features) {
    if (f.name == name) return described(f.name, f.family, f.answer);
    all.push_back(f.name);
  }
  if (const std::optional<TypeInfo> type = find_type(name)) return described(*type);
  if (const std::vector<std::string_view> with = structures_with(name); !with.empty())
    throw std::runtime_error(
        fmt::format("{0} is a member of {1}: look up {2}.{0}", name, listed(with), with.front()));
  const std::vector<std::string> types = type_names();
  all.insert(all.end(), types.begin(), types.end());
  const std::string_view meant = nearest(name, all, [](std::string_view n) { return n; });
  throw std::runtime_error(fmt::format(
      "{} is no name of the matrix{}", name,
      meant.empty() ? "; ibvexp matrix lists them" : fmt::format("; did you mean {}?", meant)));
}

}  // namespace ibvexp::tool
