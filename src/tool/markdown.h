// Words, cells and anchors of the generated documents.
#pragma once

#include <cctype>
#include <initializer_list>
#include <string>
#include <string_view>

#include "table/compat.h"

namespace ibvexp::tool {

inline std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// A bar would end the table cell, asterisks would set off the text between them.
inline std::string cell(std::string_view text) { return escaped(text, "|*"); }

inline std::string code(std::string_view text) {
  return text.empty() ? std::string() : "`" + escaped(text, "|") + "`";
}

// Heading -> fragment, as GitHub forms it.
inline std::string anchor(std::string_view heading) {
  std::string out;
  for (const char c : heading) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0) out += static_cast<char>(std::tolower(u));
    else if (c == ' ' || c == '-') out += '-';
  }
  return out;
}

inline void line(std::string &out, std::initializer_list<std::string> cells) {
  for (const auto &c : cells) out += "| " + c + (c.empty() ? "" : " ");
  out += "|\n";
}

inline std::string_view words(Verdict v) {
  switch (v) {
    case Verdict::noop: return "no-op";
    case Verdict::query_only: return "query only";
    default: return name_of(v);
  }
}

inline std::string verdict(const Answer &a) {
  std::string out(words(a.verdict));
  if (a.verdict == Verdict::query_only && a.target.empty()) out = "never reported";
  if (is_switch(a.beyond)) out += " (" + code(name_of(a.beyond)) + ")";
  return out;
}

}  // namespace ibvexp::tool
