// ibvexp audit: what experimental verbs do programs, sources and traces use?
#include "tool/audit/audit.h"
#include "tool/audit/outputs.h"
#include "tool/audit/progress.h"
#include "tool/audit/trace.h"
#include "tool/command.h"
#include "trace/trace_document.h"

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace ibvexp::tool {
namespace {

struct AuditOptions {
  audit::Options audit;
  std::string json, sarif, html;
  std::string colour = "auto";
  std::vector<std::string> fail_on;
  bool quiet = false;
};

// "-" is standard output.
void write(const std::string &path, const std::string &text) {
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      throw std::runtime_error("cannot write to standard output");
    return;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw std::runtime_error("cannot write " + path);
}

bool use_colour(const std::string &when) {
  if (when != "auto") return when == "always";
  const char *never = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (never == nullptr || *never == '\0');
}

// What a killed process used lies beside its trace until somebody gathers it:
// `ibvexp run`, the next process that writes there, or, of those that had a trace
// to themselves, nobody before.
void gather_killed(const std::vector<std::string> &paths) {
  for (const std::string &path : paths) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) continue;
    char start[256] = "";
    std::ifstream file(path, std::ios::binary);
    file.read(start, sizeof(start));
    if (audit::looks_like_trace({start, static_cast<std::size_t>(file.gcount())}))
      trace::gather(path.c_str(), false);
  }
}

// Whether something was found that --fail-on calls by that name. What cannot run at
// all counts as each of them.
bool has(const audit::Report &report, std::string_view what) {
  for (const audit::FileReport &f : report.files) {
    if (!f.uses.empty() && !f.cannot_run.empty()) return true;
    for (const audit::Use &u : f.uses)
      if (what == "any" || what == name_of(u.severity) || u.severity == audit::Severity::impossible)
        return true;
  }
  return false;
}

int run(const AuditOptions &o) {
  gather_killed(o.audit.paths);
  audit::Report report;
  {
    audit::ProgressBar bar;
    report =
        audit::run(o.audit, [&](std::size_t done, std::size_t total) { bar.show(done, total); });
  }
  for (const audit::FileReport &f : report.files)
    if (!f.error.empty()) fmt::print(stderr, "ibvexp: {}: {}\n", f.path, f.error);
  if (!o.json.empty()) write(o.json, audit::as_json(report));
  if (!o.sarif.empty()) write(o.sarif, audit::as_sarif(report));
  if (!o.html.empty()) write(o.html, audit::as_html(report));
  const bool taken = o.json == "-" || o.sarif == "-" || o.html == "-";
  if (!taken && !o.quiet) write("-", audit::as_table(report, use_colour(o.colour)));

  const bool found = std::any_of(o.fail_on.begin(), o.fail_on.end(),
                                 [&](const std::string &what) { return has(report, what); });
  return (found ? exit_findings : exit_ok) | (report.errors() != 0 ? exit_trouble : exit_ok);
}

}  // namespace

void add_audit(CLI::App &app, Action &action) {
  CLI::App *sub = app.add_subcommand(
      "audit", "Find uses of experimental verbs in sources, binaries and traces");
  const auto o = std::make_shared<AuditOptions>();
  sub->add_option("PATH", o->audit.paths,
                  "Files and folders: C and C++ sources, build files, ELF "
                  "files (stripped too), traces of `ibvexp run`")
      ->required();
  sub->add_option("--json", o->json, "Write JSON to FILE (- for standard output)")
      ->type_name("FILE");
  sub->add_option("--sarif", o->sarif, "Write SARIF 2.1.0 to FILE")->type_name("FILE");
  sub->add_option("--html", o->html, "Write one self-contained HTML page to FILE")
      ->type_name("FILE");
  sub->add_flag("-q,--quiet", o->quiet, "No table on standard output");
  sub->add_flag("-r,--recursive", o->audit.recursive, "Also the libraries that binaries load");
  sub->add_option("--exclude", o->audit.exclude, "Names of folders to leave out")
      ->type_name("NAME")
      ->allow_extra_args(false);
  sub->add_option("-j,--jobs", o->audit.threads, "Threads (one per processor)")->type_name("N");
  sub->add_option("--fail-on", o->fail_on,
                  "Exit with 1 if that is found: refused (whatever is switched on), switch "
                  "(refused unless switched on), private (layouts), any (use of the API); what "
                  "cannot run counts as each; several, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"refused", "switch", "private", "any"}))
      ->type_name("WHAT");
  sub->add_option("--color", o->colour, "Colours in the table")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  sub->footer(
      "Exit status: 0; 1 if --fail-on found something; 2 if an input could not be read; 3 if "
      "both.");
  sub->callback([&action, o] { action = [o] { return run(*o); }; });
}

}  // namespace ibvexp::tool
