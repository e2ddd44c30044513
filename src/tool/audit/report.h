// What an audit found: the model that all outputs are made from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "table/compat.h"
#include "tool/words.h"

namespace ibvexp::audit {

// What becomes of one use, from works to fails.
using Severity = Word;
inline constexpr std::size_t severity_count = static_cast<std::size_t>(Severity::fails) + 1;
// As compilers, SARIF and GitHub call it.
constexpr std::string_view level(Severity s) {
  if (s >= Severity::refused) return "error";
  return s >= Severity::unknown ? "warning" : "note";
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
  Severity severity = Severity::works;  // of a request by that name
  Effort effort = Effort::none;
  std::string_view switch_name;  // of IBVEXP_BEYOND, if that serves it
};

enum class Evidence : std::uint8_t {
  code,         // source code
  declaration,  // source code that declares the name
  string,       // a name in a string, as dlsym() is given
  probe,        // a build file or a preprocessor condition asks for it
  slot_call,    // machine code that calls through the operation table
  slot_load,    // machine code that loads a slot without calling it
  hint,         // a value that machine code puts into a request
  import,       // an undefined symbol
  layout,       // machine code that reads private structures
  source_name,  // the name of a source file in data
  debug_info,   // DWARF
  trace,        // it happened
};
inline constexpr std::string_view evidence_names[] = {
    "code", "declaration", "string",      "probe",       "slot call",  "slot load",
    "hint", "import",      "layout read", "source name", "debug info", "trace"};
constexpr std::string_view name_of(Evidence e) {
  return evidence_names[static_cast<std::size_t>(e)];
}

// How the calls of a row ended, in traces, and of how many processes they are.
struct Outcomes {
  std::uint64_t successes = 0, refusals = 0, failures = 0, processes = 0;
};

struct Use {
  const Subject *subject;
  Evidence evidence;
  Severity severity = Severity::works;
  std::uint32_t line = 0;  // source line, if known
  std::uint32_t column = 0;
  std::uint64_t address = 0;  // in binaries
  std::int64_t offset = -1;   // of the address in the function `where`, -1 if not known
  std::uint64_t count = 1;    // in traces
  bool suppressed = false;    // a comment in the source, or the configuration, says so
  bool known = false;         // the baseline has it
  bool refused = false;       // in traces: it happened
  Outcomes outcomes;
  std::string where;   // function; in traces the program
  std::string source;  // of a binary's code, which `line` is in
  std::string detail;
};

// Asking whether the build finds a name, or declaring it, is no request.
constexpr Severity severity_of(const Subject &s, Evidence e) {
  return e == Evidence::probe || e == Evidence::declaration ? Severity::works : s.severity;
}

inline Use make_use(const Subject &s, Evidence e) {
  Use out{};
  out.subject = &s;
  out.evidence = e;
  out.severity = severity_of(s, e);
  return out;
}

// Whether a use counts in verdicts and for --fail-on.
constexpr bool counts(const Use &u) { return !u.suppressed && !u.known; }

enum class FileKind : std::uint8_t { source, build_file, binary, trace, archive, other };
inline constexpr std::string_view file_kind_names[] = {"source", "build file", "binary",
                                                       "trace",  "archive",    "other"};
constexpr std::string_view name_of(FileKind k) {
  return file_kind_names[static_cast<std::size_t>(k)];
}

// Uses of one file that are kept. Files that were made up have any number of them.
inline constexpr std::size_t most_uses = 100'000;

struct FileReport {
  std::string path;
  std::size_t input = 0;  // which of Report::inputs it was reached from
  bool named = false;     // itself, not a folder that it is in
  bool member = false;    // of an archive
  FileKind kind = FileKind::other;
  std::vector<Use> uses;
  std::vector<std::string> notes;
  std::vector<std::string> declared;   // names like the API's that a source has itself
  std::string header_release;          // of the header a binary was compiled with
  std::vector<std::string> libraries;  // that a binary loads
  std::string layout;                  // 3.x or 4.x, of the private structures it reads
  std::string cannot_run;              // why a preloaded library cannot reach a binary
  std::string unjudged;                // why nothing can be said of it
  bool program = false;                // a binary that can be started
  std::string error;                   // why it could not be read

  // False if there are too many: it is cut, and not judged.
  bool add(Use use);
  void cut();
};

struct Report {
  std::vector<std::string> inputs;  // as the user named them
  std::vector<FileReport> files;    // those with findings
  // Files of libraries by the binary that loads them, if they are audited as well.
  std::map<std::string, std::vector<std::string>> loads;
  std::size_t sources = 0, build_files = 0, binaries = 0, traces = 0, skipped = 0;
  double seconds = 0;
  std::string date;  // when it was made: UTC, ISO 8601
  // Of the run that a trace is of: names and values, if `ibvexp run` asks for the report.
  std::vector<std::pair<std::string, std::string>> run;

  std::size_t read() const { return sources + build_files + binaries + traces; }
  std::size_t errors() const;
  std::size_t unjudged() const;
};

}  // namespace ibvexp::audit
