// What an audit found: the model that all outputs are made from.
#pragma once

#include "table/compat.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ibvexp::audit {

// How much a use hurts. In CI, --fail-on names the least one that fails.
enum class Severity : std::uint8_t {
  fine,         // works, or needs nothing
  partial,      // some requests are refused
  beyond,       // refused unless switched on with IBVEXP_BEYOND
  unsupported,  // refused, or cannot work at all
};
inline constexpr std::string_view severity_names[] = {"fine", "partial", "beyond", "unsupported"};
constexpr std::string_view name_of(Severity s) {
  return severity_names[static_cast<std::size_t>(s)];
}

// Work to move a use to rdma-core by hand, see effort.h.
enum class Effort : std::uint8_t { none, rename, adapt, rework, replace };
inline constexpr std::string_view effort_names[] = {"none", "rename", "adapt", "rework", "replace"};
constexpr std::string_view name_of(Effort e) { return effort_names[static_cast<std::size_t>(e)]; }

// What the tables say about a name; one for all its uses.
struct Subject {
  std::string_view name;
  std::string_view verdict;  // of the tables, or a class of its own
  std::string_view family;   // title
  std::string_view replacement;
  std::string_view note;
  Severity severity = Severity::fine;
  Effort effort = Effort::none;
  bool planned = false;  // not what callers get yet
};

enum class Evidence : std::uint8_t {
  code,        // source code
  string,      // a name in a string, as dlsym() is given
  probe,       // a build file or a preprocessor condition asks for it
  slot_call,   // machine code that calls through the operation table
  slot_load,   // machine code that loads a slot without calling it
  hint,        // a value that machine code puts into a request
  import,      // an undefined symbol
  debug_info,  // DWARF
  trace,       // it happened
};
inline constexpr std::string_view evidence_names[] = {
    "code", "string", "probe", "slot call", "slot load", "hint", "import", "debug info", "trace"};
constexpr std::string_view name_of(Evidence e) {
  return evidence_names[static_cast<std::size_t>(e)];
}

struct Use {
  const Subject *subject;
  Evidence evidence;
  std::uint32_t line = 0;  // source line, if known
  std::uint32_t column = 0;
  std::uint64_t address = 0;  // in binaries
  std::uint64_t count = 1;    // in traces
  std::string where;          // function, or source file of a binary's code
  std::string detail;
};

enum class FileKind : std::uint8_t { source, build_file, binary, trace, other };
inline constexpr std::string_view file_kind_names[] = {"source", "build file", "binary", "trace",
                                                       "other"};
constexpr std::string_view name_of(FileKind k) {
  return file_kind_names[static_cast<std::size_t>(k)];
}

struct FileReport {
  std::string path;
  FileKind kind = FileKind::other;
  std::vector<Use> uses;
  std::vector<std::string> notes;
  std::string header_release;          // of the header a binary was compiled with
  std::vector<std::string> libraries;  // that a binary loads
  std::string error;                   // why it could not be read
};

struct Report {
  std::vector<FileReport> files;  // those with something to tell
  std::size_t sources = 0, build_files = 0, binaries = 0, traces = 0, skipped = 0;
  double seconds = 0;

  std::size_t errors() const;
  std::optional<Severity> worst() const;  // none without a use
};

}  // namespace ibvexp::audit
