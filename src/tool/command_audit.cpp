// ibvexp audit: what experimental verbs do programs, sources and traces use?
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "tool/audit/audit.h"
#include "tool/audit/baseline.h"
#include "tool/audit/config.h"
#include "tool/audit/outputs.h"
#include "tool/audit/printable.h"
#include "tool/audit/progress.h"
#include "tool/audit/trace_audit.h"
#include "tool/command.h"
#include "tool/write_file.h"
#include "trace/trace_document.h"

namespace ibvexp::tool {
namespace {

struct AuditOptions {
  audit::Options audit;
  std::string json, sarif, html;
  std::string format = "table";
  std::string baseline, config;
  std::vector<std::string> diff;
  std::string colour = "auto";
  std::vector<std::string> fail_on;
  std::vector<std::string> run;  // NAME=VALUE
  bool quiet = false;
  bool plain = false;
};

// "-" is standard output.
void write_report(const std::string &path, const std::string &text) {
  if (path != "-") return write_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error("cannot write to standard output");
}

bool use_colour(const std::string &when) {
  if (when != "auto") return when == "always";
  const char *never = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (never == nullptr || *never == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col
                                                                          : audit::usual_width;
}

// What a killed process used lies beside its trace until it is gathered, by
// `ibvexp run`, by the next process that writes there, or, if the process had a trace of its
// own, here.
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
  if (what == "unjudged" && report.unjudged() != 0) return true;
  for (const audit::FileReport &f : report.files) {
    const bool any = std::any_of(f.uses.begin(), f.uses.end(), audit::counts);
    if (any && !f.cannot_run.empty()) return true;
    for (const audit::Use &u : f.uses)
      if (!audit::counts(u)) continue;
      else if (what == "any" || what == name_of(u.severity) || u.severity == audit::Severity::fails)
        return true;
      else if (what == name_of(audit::Severity::refused) && u.refused) return true;
  }
  return false;
}

constexpr const char *severities_to_fail_on[] = {"refused", "beyond", "private", "unjudged", "any"};

std::string formatted(const audit::Report &report, const AuditOptions &o) {
  if (o.format == "json") return audit::as_json(report);
  if (o.format == "sarif") return audit::as_sarif(report);
  if (o.format == "html") return audit::as_html(report);
  if (o.format == "gcc") return audit::as_gcc(report);
  if (o.format == "github") return audit::as_github(report);
  if (o.format == "md") return audit::as_markdown(report);
  if (o.format == "csv") return audit::as_csv(report);
  return audit::as_table(report, use_colour(o.colour), terminal_width());
}

// Two reports instead of an audit.
int show_difference(const AuditOptions &o) {
  const audit::Difference found = audit::compare(o.diff.front(), o.diff.back());
  write_report("-", o.format == "json" ? found.json : found.text);
  for (const std::string &what : o.fail_on)
    for (const std::string &severity : found.added)
      if (what == "any" || what == severity || severity == name_of(audit::Severity::fails))
        return exit_findings;
  return exit_ok;
}

// The command line comes in front of the configuration.
audit::Config configure(AuditOptions &o) {
  audit::Config config;
  std::error_code none;
  const bool named = !o.config.empty();
  if (named || std::filesystem::exists(audit::default_config, none))
    config = audit::read_config(named ? o.config : audit::default_config);
  o.audit.exclude.insert(o.audit.exclude.end(), config.exclude.begin(), config.exclude.end());
  o.audit.recursive = o.audit.recursive || config.recursive;
  if (o.fail_on.empty()) o.fail_on = config.fail_on;
  if (o.baseline.empty()) o.baseline = config.baseline;
  for (const std::string &what : o.fail_on)
    if (std::find(std::begin(severities_to_fail_on), std::end(severities_to_fail_on), what) ==
        std::end(severities_to_fail_on))
      throw std::runtime_error("fail-on: unknown \"" + what +
                               "\"; known: refused beyond private unjudged any");
  return config;
}

// What `ibvexp run` says of the run, and how many verbs its processes called.
void add_facts(audit::Report &report, const std::vector<std::string> &facts) {
  for (const std::string &fact : facts) {
    const std::size_t equals = fact.find('=');
    report.run.emplace_back(fact.substr(0, equals), fact.substr(equals + 1));
  }
  if (facts.empty()) return;
  std::uint64_t calls = 0;
  for (const audit::FileReport &f : report.files)
    for (const audit::Use &u : f.uses)
      if (find_entry(u.subject->name) != nullptr) calls += u.count;
  report.run.emplace_back("calls of experimental verbs", std::to_string(calls));
}

int run(AuditOptions &o) {
  if (!o.diff.empty()) return show_difference(o);
  if (o.audit.paths.empty())
    throw std::runtime_error("audit: PATH is required: a file or folder to audit");
  // For each member of an archive libarchive asks for local time, and the C library then for
  // /etc/localtime.
  setenv("TZ", "UTC0", 0);
  if (o.plain) {
    write_report("-", audit::as_json(audit::run(o.audit, {})));
    return exit_ok;
  }
  const audit::Config config = configure(o);
  for (const std::string &file : {o.json, o.sarif, o.html})
    if (!file.empty() && file != "-") check_writable(file);
  gather_killed(o.audit.paths);
  audit::Report report;
  {
    audit::ProgressBar bar;
    report =
        audit::run(o.audit, [&](std::size_t done, std::size_t total) { bar.show(done, total); });
  }
  audit::suppress(report, config);
  add_facts(report, o.run);
  if (!o.baseline.empty()) audit::mark_known(report, o.baseline);
  for (const audit::FileReport &f : report.files)
    if (!f.error.empty()) fmt::print(stderr, "ibvexp: {}: {}\n", audit::printable(f.path), f.error);
  if (!o.json.empty()) write_report(o.json, audit::as_json(report));
  if (!o.sarif.empty()) write_report(o.sarif, audit::as_sarif(report));
  if (!o.html.empty()) write_report(o.html, audit::as_html(report));
  const bool taken = o.json == "-" || o.sarif == "-" || o.html == "-";
  if (!taken && !o.quiet) write_report("-", formatted(report, o));

  const bool found = std::any_of(o.fail_on.begin(), o.fail_on.end(),
                                 [&](const std::string &what) { return has(report, what); });
  return (found ? exit_findings : exit_ok) | (report.errors() != 0 ? exit_trouble : exit_ok);
}

}  // namespace

void add_commands(CLI::App &app, Action &action, const Words &) {
  CLI::App *sub = app.add_subcommand("audit", audit_title);
  const auto o = std::make_shared<AuditOptions>();
  sub->add_option("PATH", o->audit.paths,
                  "Files and folders: C and C++ sources, build files, ELF "
                  "files (stripped too), traces of `ibvexp run`, packages and "
                  "archives");
  sub->add_option("--json", o->json, "Write JSON to FILE (- for standard output)")
      ->type_name("FILE");
  sub->add_option("--sarif", o->sarif, "Write SARIF 2.1.0 to FILE")->type_name("FILE");
  sub->add_option("--html", o->html, "Write one self-contained HTML page to FILE")
      ->type_name("FILE");
  sub->add_option("--format", o->format, "Format of standard output")
      ->check(CLI::IsMember({"table", "json", "sarif", "html", "gcc", "github", "md", "csv"}))
      ->capture_default_str();
  sub->add_option("--baseline", o->baseline,
                  "Earlier --json report; findings already in it are ignored by --fail-on")
      ->type_name("FILE");
  sub->add_option("--config", o->config,
                  "Configuration (.ibvexp-audit.json of the current folder): exclude, recursive, "
                  "fail-on, baseline, ignore")
      ->type_name("FILE");
  sub->add_option("--diff", o->diff, "Do not audit: print what changed between two --json reports")
      ->expected(2)
      ->type_name("OLD NEW");
  sub->add_flag("-q,--quiet", o->quiet, "Print no table");
  sub->add_flag("-r,--recursive", o->audit.recursive,
                "Also audit the libraries that binaries load");
  sub->add_option("--exclude", o->audit.exclude, "Names of folders to leave out")
      ->type_name("NAME")
      ->allow_extra_args(false);
  sub->add_option("-j,--jobs", o->audit.threads, "Threads (one per processor)")->type_name("N");
  sub->add_option(
         "--fail-on", o->fail_on,
         "Exit with 1 on: refused (with every switch, too), beyond (refused unless --beyond "
         "turns it on), private (structures of libmlx5), unjudged (files that cannot be "
         "judged), any (use of the API), separated by commas; each also on a program that "
         "does not work")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"refused", "beyond", "private", "unjudged", "any"}))
      ->type_name("WHAT");
  sub->add_option("--color", o->colour, "Colours in the table")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  // From other commands of ibvexp: not shown. The second is as JSON, without configuration,
  // messages and progress.
  sub->add_option("--run-fact", o->run)->allow_extra_args(false)->group("");
  sub->add_flag("--plain", o->plain)->group("");
  sub->footer(
      "Exit status: 0; 1 if --fail-on found something; 2 if an input could not be read; 3 if "
      "both.");
  sub->callback([&action, o] { action = [o] { return run(*o); }; });
}

}  // namespace ibvexp::tool
