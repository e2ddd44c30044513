// ibvexp run: runs a legacy program with libibverbs_exp preloaded.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "table/compat.h"
#include "tool/afterword.h"
#include "tool/child.h"
#include "tool/command.h"
#include "tool/doctor.h"
#include "tool/elf_head.h"
#include "tool/known.h"
#include "tool/launcher.h"
#include "tool/layout.h"
#include "tool/libraries.h"
#include "tool/loaded.h"
#include "tool/program.h"
#include "tool/write_file.h"
#include "trace/trace_document.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

struct RunOptions {
  std::string device, beyond, trace, report;
  Words command;
  bool fail_on_refused = false;
  bool no_follow = false;
};

// The runtime of a program compiled with -fsanitize=address ends it unless it is the
// first library of all. Empty for others; scripts and what they start are not known.
std::string sanitizer_of(const ElfHead &program) {
  for (const std::string &name : program.needed())
    if (name.starts_with("libasan.so.")) return name;
  return {};
}

// In front of what is there already; both lists are separated by colons or
// spaces, so names cannot have any.
// With follow they stay in the processes that the program starts.
void preload(const std::vector<fs::path> &libraries, bool follow) {
  std::string list;
  for (const fs::path &library : libraries) {
    if (library.string().find_first_of(" :") != std::string::npos)
      throw std::runtime_error(
          fmt::format("{}: LD_PRELOAD takes no name with a space or a colon", library.string()));
    list += (list.empty() ? "" : ":") + library.string();
  }
  put_in_front("LD_PRELOAD", list);
  if (follow) setenv("IBVEXP_FOLLOW", list.c_str(), 1);
}

void check_beyond(const std::string &list) {
  for_each_word(list, ',', [](std::string_view word) {
    if (word == automatic_switches) return;
    for (const BeyondSwitch &s : beyond_switches)
      if (s.name == word) return;
    const std::string_view meant =
        nearest(word, beyond_switches, [](const BeyondSwitch &s) { return s.name; });
    std::string names;
    for (const BeyondSwitch &s : beyond_switches)
      if (s.status == SwitchStatus::done) names += fmt::format(" {}", s.name);
    throw std::runtime_error(
        fmt::format("--beyond: unknown feature \"{}\"; {}:{}", word,
                    meant.empty() ? "known" : fmt::format("did you mean {}? Known", meant), names));
  });
}

void choose_device(const std::string &device, std::vector<fs::path> &libraries) {
  if (device == "soft") {
    libraries.push_back(find_libsofthca());
    return;
  }
  if (device.empty()) return;
  std::error_code error;
  if (device.find('/') == std::string::npos &&
      fs::exists("/sys/class/infiniband/" + device, error)) {
    setenv("IBVEXP_DEVICE", device.c_str(), 1);
    return;
  }
  std::string names = " soft";
  for (const auto &found : fs::directory_iterator("/sys/class/infiniband", error))
    names += " " + found.path().filename().string();
  throw std::runtime_error(
      fmt::format("--device: no device \"{}\"; devices here:{}", device, names));
}

// Programs that look behind their objects expect those of a release.
void choose_layout(const std::string &file, const std::vector<fs::path> &loaded) {
  if (const char *chosen = std::getenv("IBVEXP_LAYOUT"); chosen != nullptr && *chosen != '\0')
    return;
  std::optional<LayoutReader> reader;
  try {
    reader = find_layout(file, loaded);
  } catch (const std::exception &e) {
    fmt::print(stderr, "ibvexp: {}; objects have the 4.x layout\n", e.what());
  }
  if (!reader) return;
  setenv("IBVEXP_LAYOUT", reader->release.c_str(), 1);
  fmt::print(stderr, "ibvexp: setting IBVEXP_LAYOUT={}, the layout that {} reads\n",
             reader->release, reader->file);
}

// What programs.def has to be set for such programs.
void set_for(const std::vector<fs::path> &loaded, const Words &command) {
  for (const Known &k : known_about(loaded, command)) {
    const std::string setting = k.at("set"), variable = setting.substr(0, setting.find('='));
    if (setting.empty() || std::getenv(variable.c_str()) != nullptr) continue;
    setenv(variable.c_str(), setting.c_str() + std::min(variable.size() + 1, setting.size()), 1);
    fmt::print(stderr, "ibvexp: {}: {}\n", setting, k.at("title"));
  }
}

// libibverbs_exp needs libibverbs and libmlx5 of rdma-core: those that the program gets.
void check_libraries(const ElfHead &program) {
  if (const auto trouble = doctor::trouble_with(doctor::libraries_for(program)))
    throw CannotRun(exit_cannot_run,
                    fmt::format("{}. Way out: {}", trouble->what, trouble->advice));
}

// The file that processes append to, checked before the program starts.
fs::path open_trace(const RunOptions &o) {
  fs::path file = o.trace;
  if (file.empty()) {
    std::string name = (temporary_folder() / "ibvexp-trace-XXXXXX").string();
    const int fd = mkstemp(name.data());
    if (fd < 0)
      throw std::runtime_error(fmt::format("cannot create {}: {}: set TMPDIR to another folder",
                                           name, std::strerror(errno)));
    close(fd);
    file = name;
  }
  file = fs::absolute(file);
  // Names with placeholders are made by each process.
  if (file.string().find('%') == std::string::npos) {
    const trace::Document document(file.c_str());
    if (document.error() != 0)
      throw std::runtime_error(fmt::format("cannot write {}: {}", file.string(),
                                           trace::explain_error(document.error())));
  }
  setenv("IBVEXP_TRACE", file.c_str(), 1);
  return file;
}

// What has been run, and how it ended.
struct Ended {
  int status;
  double seconds;
  std::size_t running;  // processes that still do
};

std::string words_of(const Words &command) {
  std::string out;
  for (const std::string &word : command) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string value_or(const char *name, const char *otherwise) {
  const char *value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

Words run_facts(const RunOptions &o, const Ended &ended) {
  const doctor::Library verbs = doctor::find_library("libibverbs.so.1");
  const std::pair<const char *, std::string> facts[] = {
      {"program", words_of(o.command)},
      {"device", o.device.empty()     ? "any"
                 : o.device == "soft" ? "soft, the software HCA"
                                      : o.device},
      {"rdma-core", verbs.release ? std::to_string(*verbs.release) : "unknown"},
      {"engine", value_or("IBVEXP_ENGINE", "own")},
      {"layout", value_or("IBVEXP_LAYOUT", "4.x")},
      {"switches", value_or("IBVEXP_BEYOND", "none")},
      {"ended", WIFSIGNALED(ended.status)
                    ? fmt::format("by signal {} ({})", WTERMSIG(ended.status),
                                  strsignal(WTERMSIG(ended.status)))
                    : fmt::format("with status {}", WEXITSTATUS(ended.status))},
      {"processes still running", std::to_string(ended.running)},
      {"duration", fmt::format("{:.1f} s", ended.seconds)}};
  Words out;
  for (const auto &[name, value] : facts)
    out.insert(out.end(), {"--run-fact", fmt::format("{}={}", name, value)});
  return out;
}

int write_report(const RunOptions &o, const fs::path &trace_file, const Ended &ended) {
  Words command = {"ibvexp", "audit", "--quiet", o.report.ends_with(".json") ? "--json" : "--html",
                   o.report};
  for (std::string &word : run_facts(o, ended)) command.push_back(std::move(word));
  command.push_back(trace_file.string());
  unsetenv("LD_PRELOAD");
  unsetenv("IBVEXP_TRACE");
  const int status = run_program(own_path().string(), command);
  if (o.trace.empty()) fs::remove(trace_file);
  return status;
}

RunCommand command_of(const RunOptions &o) {
  RunCommand out{{}, o.beyond, o.command};
  const auto add = [&](const char *name, const std::string &value) {
    if (!value.empty()) out.options.insert(out.options.end(), {name, value});
  };
  add("--device", o.device);
  add("--trace", o.trace);
  add("--report", o.report);
  if (o.fail_on_refused) out.options.emplace_back("--fail-on-refused");
  if (o.no_follow) out.options.emplace_back("--no-follow");
  return out;
}

// With what to type where the program starts others.
void check_program(const std::string &file, const RunOptions &o) {
  try {
    check_preloadable(file);
  } catch (const CannotRun &e) {
    for (const Known &k : known_about({file}, o.command)) {
      const std::string kind = k.at("launcher");
      if (kind.empty()) continue;
      const std::string instead = behind_launcher(kind, command_of(o));
      if (instead.empty()) throw CannotRun(e.status, k.sentence());
      throw CannotRun(e.status, fmt::format("{} is not started. {} Type: {}", o.command.front(),
                                            k.at("why"), instead));
    }
    throw;
  }
}

// For CI: a program that copes with a refusal ends well all the same.
bool is_doubtful(const TallyFile &tally) {
  const std::vector<std::string> lines = doubts(tally);
  for (const std::string &line : lines) fmt::print(stderr, "ibvexp: {}\n", line);
  return !lines.empty();
}

// ibvexp's launcher is static, and what it starts is not what runs legacy programs.
bool is_ibvexp(const fs::path &program) {
  std::error_code error;
  return fs::equivalent(program, own_path(), error);
}

int run(const RunOptions &o) {
  const std::string file = find_program(o.command.front()).string();
  if (!is_ibvexp(file)) check_program(file, o);
  check_beyond(o.beyond);
  const ElfHead program(file);
  check_libraries(program);
  std::vector<fs::path> libraries;
  if (const std::string first = sanitizer_of(program); !first.empty())
    libraries.emplace_back(first);
  libraries.push_back(find_libibverbs_exp());
  choose_device(o.device, libraries);
  libraries.push_back(find_follow());
  const std::vector<fs::path> loaded = loaded_with(file);
  choose_layout(file, loaded);
  set_for(loaded, o.command);

  if (!o.report.empty() && o.trace.find('%') != std::string::npos)
    throw std::runtime_error(
        "--report reads one file: no %h or %p in the name of --trace, or "
        "afterwards ibvexp audit --html REPORT TRACES");
  if (!o.report.empty()) check_writable(o.report);

  const bool traced = !o.trace.empty() || !o.report.empty();
  fs::path trace_file;
  if (traced) trace_file = open_trace(o);
  preload(libraries, !o.no_follow);
  if (!o.beyond.empty()) setenv("IBVEXP_BEYOND", o.beyond.c_str(), 1);

  Ended ended{};
  int &status = ended.status;
  bool doubtful = false;
  {
    const TallyFile tally(o.fail_on_refused || o.no_follow);
    if (o.fail_on_refused && tally.get() == nullptr)
      throw std::runtime_error(
          fmt::format("--fail-on-refused needs room for a file in {}: set TMPDIR to another folder",
                      temporary_folder().string()));
    const auto start = std::chrono::steady_clock::now();
    status = run_program(file, o.command);
    ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!o.report.empty()) ended.running = tally.users();
    // Another ibvexp counts by itself.
    if (tally.get() != nullptr && !is_ibvexp(file))
      for (const std::string &line : afterword(*tally.get(), command_of(o), file, status))
        fmt::print(stderr, "ibvexp: {}\n", line);
    if (o.fail_on_refused && status == 0) {
      doubtful = is_doubtful(tally);
    } else if (o.no_follow) {
      for (const std::string &line : lost_programs(tally))
        fmt::print(stderr, "ibvexp: {}; it has it without --no-follow\n", line);
    }
  }
  // Of processes that had no time to write themselves.
  if (traced && trace_file.string().find('%') == std::string::npos)
    trace::gather(trace_file.c_str(), false);
  if (!o.report.empty() && write_report(o, trace_file, ended) != 0)
    fmt::print(stderr, "ibvexp: the report {} was not written\n", o.report);
  if (doubtful) return exit_refused;
  end_as(status);
}

}  // namespace

void add_run(CLI::App &app, Action &action, const Words &program) {
  CLI::App *sub = app.add_subcommand(
      "run",
      "Run a legacy program with libibverbs_exp preloaded: ibvexp run [OPTIONS] PROGRAM ARGS");
  const auto o = std::make_shared<RunOptions>();
  sub->add_option("--device", o->device,
                  "soft for the software HCA, or the only device that the program sees")
      ->type_name("soft|NAME");
  sub->add_option("--beyond", o->beyond,
                  "Features to switch on that are off by default, separated by commas; auto for "
                  "all, with a line for each that the program needs")
      ->type_name("LIST");
  sub->add_option("--trace", o->trace, "Append what the program used to FILE (JSON)")
      ->type_name("FILE");
  sub->add_option("--report", o->report,
                  "Write what the program used to FILE as an HTML page, or as JSON if its name "
                  "ends in .json")
      ->type_name("FILE");
  sub->add_flag("--fail-on-refused", o->fail_on_refused,
                "Exit with 125 if the program succeeded but one of its requests was refused, a "
                "program that it started ran without the library, or nothing opened a device");
  sub->add_flag(
      "--no-follow", o->no_follow,
      "Do not preload the library into processes that are started with another LD_PRELOAD");
  sub->footer(
      "Put options in front of PROGRAM. Exit status and signals are the program's own; 127 if it "
      "does not exist, 126 if nothing can be preloaded into it, 2 for wrong usage.");
  sub->callback([&action, &program, o] {
    if (program.empty()) throw CLI::RequiredError("PROGRAM");
    o->command = program;
    action = [o] {
      try {
        return run(*o);
      } catch (const CannotRun &e) {
        fmt::print(stderr, "ibvexp: {}\n", e.what());
        return e.status;
      }
    };
  });
}

}  // namespace ibvexp::tool
