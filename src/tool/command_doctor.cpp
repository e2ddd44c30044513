// ibvexp doctor: would legacy programs work on this machine, and what is missing?
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "tool/audited.h"
#include "tool/child.h"
#include "tool/command.h"
#include "tool/doctor.h"
#include "tool/known.h"
#include "tool/libraries.h"
#include "tool/loaded.h"
#include "tool/plural.h"
#include "tool/program.h"

namespace ibvexp::tool {

namespace {

using namespace doctor;

struct DoctorOptions {
  std::string device;
  bool json = false;
  bool rows = false;
  Words program;
  // Of a doctor that another one starts: where to say so, and what it had to leave out.
  int examine = -1;
  std::string hindrance;
};

constexpr std::array columns = {Word::works,   Word::off,    Word::device,
                                Word::upgrade, Word::beyond, Word::refused};

constexpr std::size_t title_width =
    std::max_element(families.begin(), families.end(), [](const auto &a, const auto &b) {
      return a.title.size() < b.title.size();
    }) -> title.size();

// What can be said of one program before it runs.
struct AboutProgram {
  std::string name, verdict;
  std::vector<std::string> known;
};

AboutProgram examine_program(const Words &command) {
  const std::string file = find_program(command.front()).string();
  AboutProgram out{file, {}, {}};
  const nlohmann::json report = audited({file}, true);
  // A script stands for what it starts. Libraries are part of their program.
  std::set<std::string> named;
  for (const auto &f : report.at("files"))
    if (f.contains("named")) named.insert(f.at("path").get<std::string>());
  for (const auto &p : report.at("programs")) {
    const std::string name = p.at("name");
    if (!named.contains(name)) continue;
    if (!out.verdict.empty()) out.verdict += "; ";
    if (name != report.at("inputs").at(0)) out.verdict += fmt::format("it starts {}: ", name);
    out.verdict += p.at("verdict");
  }
  if (out.verdict.empty()) out.verdict = "uses no experimental verbs";
  const ElfHead head(file);
  if (const auto trouble = doctor::trouble_with(doctor::libraries_for(head));
      trouble && head.is_elf())
    out.verdict = fmt::format("does not work: {}. Way out: {}", trouble->what, trouble->advice);
  for (const Known &k : known_about(loaded_with(file), command)) out.known.push_back(k.sentence());
  try {
    check_preloadable(file);
  } catch (const CannotRun &e) {
    out.known.emplace_back(fmt::format("`ibvexp run` refuses it: {}", e.what()));
  }
  return out;
}

void print(const AboutProgram &program) {
  fmt::print("\nProgram {}\n  {}\n", program.name, program.verdict);
  for (const std::string &sentence : program.known) fmt::print("  -  {}\n", sentence);
}

void print(const char *title, const std::vector<Finding> &findings) {
  fmt::print("\n{}\n", title);
  for (const Finding &f : findings) {
    fmt::print("  {} {}\n",
               f.grade == Grade::good  ? "ok "
               : f.grade == Grade::bad ? "!! "
                                       : "-  ",
               f.what);
    if (!f.advice.empty()) fmt::print("       {}\n", f.advice);
  }
  if (findings.empty()) fmt::print("  -  nothing found\n");
}

void print_devices(const System &system) {
  fmt::print("\nDevices\n");
  for (const Device &d : system.devices) {
    std::string line = fmt::format("{} {}", d.error.empty() ? "ok " : "!! ", d.name);
    if (!d.model.empty()) line += fmt::format(": {}, firmware {}", d.model, d.firmware);
    for (const Port &p : d.ports) line += fmt::format("; port {} {} {}", p.number, p.link, p.state);
    fmt::print("  {}\n", line);
    if (!d.error.empty()) fmt::print("       {}\n", d.error);
    if (!d.warning.empty()) fmt::print("       {}\n", d.warning);
  }
  if (system.devices.empty())
    fmt::print(
        "  !!  none\n{}",
        system.soft ? "" : "       ibvexp run --device soft -- PROGRAM takes the software HCA\n");
}

void print_rows(const std::vector<RowHere> &rows, bool all) {
  fmt::print("\nRows of the matrix here\n  {:<{}}", "", title_width);
  for (const Word word : columns) fmt::print("{:>8}", name_of(word));
  fmt::print("\n");
  std::array<std::array<int, all_words.size()>, families.size()> counts{};
  std::array<int, all_words.size()> sum{};
  std::map<std::string, std::vector<std::string_view>> upgrades;
  for (const RowHere &r : rows) {
    ++counts[static_cast<std::size_t>(r.family)][static_cast<std::size_t>(r.here)];
    ++sum[static_cast<std::size_t>(r.here)];
    if (r.here == Word::upgrade || r.here == Word::beyond) upgrades[r.advice].push_back(r.name);
  }
  const auto line = [](std::string_view title, const auto &numbers) {
    fmt::print("  {:<{}}", title, title_width);
    for (const Word word : columns) {
      const int n = numbers[static_cast<std::size_t>(word)];
      fmt::print("{:>8}", n == 0 ? "." : std::to_string(n));
    }
    fmt::print("\n");
  };
  for (std::size_t f = 0; f < families.size(); ++f) line(families[f].title, counts[f]);
  line("all", sum);
  for (const Word word : columns) fmt::print("  {:<8} {}\n", name_of(word), info(word).meaning);
  if (!upgrades.empty()) fmt::print("\nMore with\n");
  for (const auto &[what, names] : upgrades) {
    fmt::print("  {} ({})\n", what, plural(names.size(), "row"));
    for (const std::string_view name : names) fmt::print("       {}\n", name);
  }
  if (!all) {
    fmt::print("\nRow by row: ibvexp doctor --rows\n");
    return;
  }
  fmt::print("\n");
  for (const RowHere &r : rows) fmt::print("  {:<10}{:<52}{}\n", name_of(r.here), r.name, r.advice);
}

void print_conclusion(const Conclusion &c) {
  if (c.outcome == Outcome::works) fmt::print("Legacy programs work here: {}\n", c.what);
  else fmt::print("Legacy programs do not work here: {}\n", c.what);
  if (!c.advice.empty()) fmt::print("  Way out: {}\n", c.advice);
}

void print_text(const System &system, const Conclusion &conclusion,
                const std::optional<AboutProgram> &program, const std::vector<RowHere> &rows,
                bool all) {
  print_conclusion(conclusion);
  if (program) print(*program);
  fmt::print("\nrdma-core\n");
  for (const Library &l : system.libraries) {
    if (!l.error.empty()) fmt::print("  !!  {} does not load: {}\n", l.name, l.error);
    else if (l.file.empty())
      fmt::print("  !!  {} is not installed\n       apt-get install ibverbs-providers librdmacm1\n",
                 l.name);
    else if (l.has_experimental) fmt::print("  !!  {}: MLNX_OFED's own ({})\n", l.name, l.file);
    else
      fmt::print("  {} {}: release {} ({})\n",
                 l.release && *l.release < oldest_rdma_core ? "!! " : "ok ", l.name,
                 l.release ? std::to_string(*l.release) : "unknown", l.file);
  }
  print("Kernel", system.kernel);
  print_devices(system);
  print("Permissions", system.permissions);
  print("Environment", system.environment);
  print_rows(rows, all);
}

nlohmann::ordered_json as_json(const std::vector<Finding> &findings) {
  auto out = nlohmann::ordered_json::array();
  for (const Finding &f : findings)
    out.push_back({{"grade", f.grade == Grade::good  ? "good"
                             : f.grade == Grade::bad ? "bad"
                                                     : "note"},
                   {"what", f.what},
                   {"advice", f.advice}});
  return out;
}

void print_json(const System &system, const Conclusion &conclusion,
                const std::optional<AboutProgram> &program, const std::vector<RowHere> &rows) {
  nlohmann::ordered_json out;
  out["version"] = IBVEXP_VERSION;
  out["conclusion"] = {{"outcome", conclusion.name()},
                       {"status", static_cast<int>(conclusion.outcome)},
                       {"what", conclusion.what},
                       {"advice", conclusion.advice}};
  out["usable"] = system.usable();
  if (program)
    out["program"] = {
        {"file", program->name}, {"verdict", program->verdict}, {"known", program->known}};
  out["libraries"] = nlohmann::ordered_json::array();
  for (const Library &l : system.libraries) {
    nlohmann::ordered_json library{{"name", l.name}, {"file", l.file}, {"error", l.error}};
    library["release"] = l.release ? nlohmann::ordered_json(*l.release) : nlohmann::ordered_json();
    out["libraries"].push_back(std::move(library));
  }
  out["kernel"] = as_json(system.kernel);
  out["devices"] = nlohmann::ordered_json::array();
  for (const Device &d : system.devices) {
    nlohmann::ordered_json device{{"name", d.name},
                                  {"model", d.model},
                                  {"firmware", d.firmware},
                                  {"error", d.error},
                                  {"warning", d.warning}};
    device["ports"] = nlohmann::ordered_json::array();
    for (const Port &p : d.ports)
      device["ports"].push_back({{"number", p.number}, {"link", p.link}, {"state", p.state}});
    device["exp_device_cap_flags"] = fmt::format("{:#x}", d.capabilities);
    out["devices"].push_back(std::move(device));
  }
  out["permissions"] = as_json(system.permissions);
  out["environment"] = as_json(system.environment);
  out["rows"] = nlohmann::ordered_json::array();
  for (const RowHere &r : rows)
    out["rows"].push_back({{"name", r.name},
                           {"family", name_of(r.family)},
                           {"here", name_of(r.here)},
                           {"advice", r.advice}});
  fmt::print("{}\n", out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Its exit status; nothing if it did not start.
std::optional<int> examine_in_child(const DoctorOptions &o, const std::string &hindrance) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  Words command = {own_path().string(), "doctor", "--examine", std::to_string(ends[1])};
  if (!hindrance.empty()) command.insert(command.end(), {"--hindrance", hindrance});
  if (o.json) command.push_back("--json");
  if (o.rows) command.push_back("--rows");
  if (!o.program.empty()) command.emplace_back("--");
  command.insert(command.end(), o.program.begin(), o.program.end());
  const char *users = std::getenv("LD_PRELOAD");
  const std::string kept = users != nullptr ? users : "";
  if (o.device == "soft" && kept.find("libsofthca") == std::string::npos)
    put_in_front("LD_PRELOAD", find_libsofthca().string());
  const int status = run_program(running_file().string(), command);
  setenv("LD_PRELOAD", kept.c_str(), 1);
  close(ends[1]);
  char byte;
  const bool started = read(ends[0], &byte, 1) == 1;
  close(ends[0]);
  if (!started) return {};
  if (!WIFEXITED(status)) end_as(status);
  return WEXITSTATUS(status);
}

// The examination sees what programs see: it needs the user's LD_PRELOAD and
// LD_LIBRARY_PATH, and the software HCA before libibverbs looks for devices, from its
// start. What keeps it from starting is left out and reported.
int examine_as_programs(const DoctorOptions &o) {
  std::string hindrance;
  for (const char *suspect : {"LD_PRELOAD", "LD_LIBRARY_PATH"}) {
    if (const auto status = examine_in_child(o, hindrance)) return *status;
    if (const char *value = std::getenv(suspect); value != nullptr && *value != '\0')
      hindrance = fmt::format("{}={}", suspect, value);
    unsetenv(suspect);
  }
  if (const auto status = examine_in_child(o, hindrance)) return *status;
  throw std::runtime_error("cannot start anew");
}

int run(const DoctorOptions &o) {
  const auto is_set = [](const char *name) {
    const char *value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (o.examine < 0 && (o.device == "soft" || is_set("LD_PRELOAD") || is_set("LD_LIBRARY_PATH")))
    return examine_as_programs(o);
  if (o.examine >= 0) {
    if (write(o.examine, "", 1) != 1) throw std::runtime_error("--examine is for ibvexp itself");
    close(o.examine);
  }
  System system = examine();
  if (!o.hindrance.empty())
    system.environment.push_back(
        {Grade::bad, o.hindrance + ": programs without RDMA do not start with it",
         "set it for the program alone: ibvexp run env " + o.hindrance + " PROGRAM"});
  const std::vector<RowHere> rows = judge_rows(system);
  const Conclusion conclusion = conclude(system);
  std::optional<AboutProgram> program;
  if (!o.program.empty()) program = examine_program(o.program);
  if (o.json) print_json(system, conclusion, program, rows);
  else print_text(system, conclusion, program, rows, o.rows);
  return static_cast<int>(conclusion.outcome);
}

}  // namespace

void add_doctor(CLI::App &app, Action &action, const Words &program) {
  CLI::App *sub = app.add_subcommand("doctor",
                                     "Check what works on this machine, and say how to "
                                     "mend the rest: ibvexp doctor [OPTIONS] [PROGRAM ARGS]");
  const auto o = std::make_shared<DoctorOptions>();
  sub->add_option("--device", o->device, "Examine the software HCA")
      ->check(CLI::IsMember({"soft"}));
  sub->add_flag("--json", o->json, "Print JSON, with the rows");
  sub->add_flag("--rows", o->rows, "Print each row of the matrix");
  // For itself: not shown.
  sub->add_option("--examine", o->examine)->group("");
  sub->add_option("--hindrance", o->hindrance)->group("");
  sub->footer(
      "Exit status: 0 if legacy programs find a usable device; 1 if there is none; 3 without "
      "rdma-core; 4 if it is too old; 5 if MLNX_OFED's own libibverbs comes first; 6 without a "
      "provider for the device; 7 if the device may not be opened; 8 if it fails.");
  sub->callback([&action, &program, o] {
    o->program = program;
    action = [o] { return run(*o); };
  });
}

}  // namespace ibvexp::tool
