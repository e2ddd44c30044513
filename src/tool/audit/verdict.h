// Will it run? One verdict per program, from what it uses. A program is a
// binary, a source tree that was named, or an executable that a trace is about.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

// The verdict in one word; the sentence has the details. The worst one applies.
enum class Standing : std::uint8_t {
  unused,    // no experimental verbs
  works,     // everything it uses is served
  beyond,    // everything is served once switches are set
  off,       // works, and some requests are refused
  unjudged,  // cannot be judged
  fails,     // does not work
};
inline constexpr std::string_view standing_names[] = {"unused", "works",    "beyond",
                                                      "off",    "unjudged", "fails"};
constexpr std::string_view name_of(Standing s) {
  return standing_names[static_cast<std::size_t>(s)];
}

// One name that the verdict rests on.
struct Reason {
  const Subject *subject;
  Severity severity;
  std::size_t count = 0;            // uses
  std::vector<std::string> places;  // file:line or function+offset, the first few
};

struct Program {
  std::string name;
  FileKind kind = FileKind::other;
  Standing standing = Standing::unused;
  std::string sentence;
  std::vector<Reason> reasons;        // the worst first
  std::vector<std::string> switches;  // of IBVEXP_BEYOND
  std::string layout;                 // release of private layouts: 3.x or 4.x
  std::string command;                // to type, empty if none helps
};

// Programs with findings, and binaries that were named.
std::vector<Program> judge(const Report &report);

// The place of a use, as file:line or function+offset.
std::string place_of(const FileReport &file, const Use &use);

}  // namespace ibvexp::audit
