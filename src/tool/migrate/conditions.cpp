#include "tool/migrate/conditions.h"

#include <functional>
#include <regex>

#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

namespace {

const std::regex directive("^[ \\t]*#[ \\t]*(if|ifdef|ifndef|elif|else|endif)\\b(.*)$");
const std::regex word("[A-Za-z_]\\w*");

struct Open {
  Condition condition;
  std::set<std::string> macros;
  bool guard;
};

// #ifndef X and #define X behind it.
bool is_guard(const std::string &name, const std::string &rest, const std::string &next) {
  std::smatch macro;
  return name == "ifndef" && std::regex_search(rest, macro, word) &&
         std::regex_search(next, std::regex("^[ \\t]*#[ \\t]*define[ \\t]+" + macro.str() + "\\b"));
}

// Calls at_line for each line that is no directive, with the conditions around it, until it
// returns false.
void walk(const std::string &text,
          const std::function<bool(std::size_t begin, std::size_t end, const std::vector<Open> &)>
              &at_line) {
  std::vector<Open> open;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    std::smatch found;
    if (!std::regex_match(line, found, directive)) {
      if (!at_line(begin, end, open)) return;
    } else {
      const std::string name = found[1], rest = found[2];
      if (name == "endif") {
        if (!open.empty()) open.pop_back();
      } else if (name.starts_with("if")) {
        const std::size_t next = std::min(text.find('\n', end + 1), text.size());
        const std::string behind = end < text.size() ? text.substr(end + 1, next - end - 1) : "";
        open.push_back({{line, false}, {}, is_guard(name, rest, behind)});
      } else if (!open.empty()) {
        open.back().condition.other_branch = true;
      }
      if (name != "endif" && !open.empty())
        for (std::sregex_iterator at(rest.begin(), rest.end(), word), last; at != last; ++at)
          open.back().macros.insert(at->str());
    }
    begin = end + 1;
  }
}

}  // namespace

std::set<std::string> macros_around_legacy(const std::string &text) {
  std::set<std::string> found;
  walk(text, [&](std::size_t begin, std::size_t end, const std::vector<Open> &open) {
    if (open.empty()) return true;
    const std::string line = text.substr(begin, end - begin);
    bool legacy = line.find("infiniband/verbs_exp.h") != std::string::npos;
    for (std::sregex_iterator at(line.begin(), line.end(), word), last; at != last && !legacy; ++at)
      legacy = is_legacy(at->str());
    if (legacy)
      for (const Open &condition : open)
        if (!condition.guard)
          for (const std::string &macro : condition.macros)
            if (macro != "defined" && !macro.starts_with("__")) found.insert(macro);
    return true;
  });
  return found;
}

std::vector<Condition> conditions_at(const std::string &text, std::size_t offset) {
  std::vector<Condition> found;
  walk(text, [&](std::size_t, std::size_t end, const std::vector<Open> &open) {
    if (end < offset) return true;
    for (const Open &condition : open)
      if (!condition.guard) found.push_back(condition.condition);
    return false;
  });
  return found;
}

std::string without_definitions(const std::string &text, const std::set<std::string> &macros) {
  std::string out = text;
  for (const std::string &macro : macros)
    out = std::regex_replace(
        out, std::regex("(^|\n)[ \\t]*#[ \\t]*define[ \\t]+" + macro + "\\b[^\n]*"), "$1");
  return out;
}

}  // namespace ibvexp::migrate
