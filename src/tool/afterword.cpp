#include "tool/afterword.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tool/audited.h"
#include "tool/doctor.h"
#include "tool/elf_head.h"
#include "tool/known.h"
#include "tool/loaded.h"
#include "tool/program.h"
#include "tool/refused.h"
#include "tool/start/started.h"
#include "tool/write_file.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

const Answer &answer_of(std::size_t row) {
  return row < entries.size() ? entries[row].answer : features[row - entries.size()].answer;
}

bool names(std::string_view list, std::string_view wanted) {
  bool found = false;
  for_each_word(list, ',', [&](std::string_view word) { found = found || word == wanted; });
  return found;
}

std::string often(std::uint32_t times) {
  return times == 1 ? "once" : fmt::format("{} times", times);
}

bool is_off(const BeyondSwitch &s, const RunCommand &command) {
  return s.status == SwitchStatus::done && !names(command.beyond, s.name) &&
         !names(command.beyond, automatic_switches);
}

// What a switch that is off would have served.
std::string refused_without_need(const trace::Tally &tally, const RunCommand &command) {
  std::vector<std::string> what;
  std::set<std::string> switches;
  for (std::size_t row = 0; row < trace::row_count; ++row) {
    const std::uint32_t times = tally.refused[row].load(std::memory_order_relaxed);
    const Answer &answer = answer_of(row);
    if (times == 0 || !is_switch(answer.beyond)) continue;
    const BeyondSwitch &s = info(answer.beyond);
    if (!is_off(s, command)) continue;
    what.push_back(fmt::format("{} ({})", trace::name_of_row(row), often(times)));
    switches.insert(std::string(s.name));
  }
  if (what.empty()) return {};
  std::string beyond = command.beyond;
  for (const std::string &name : switches) beyond += (beyond.empty() ? "" : ",") + name;
  return fmt::format("refused: {}. Served by: {}", fmt::join(what, ", "),
                     command_line(command, {}, beyond));
}

// The line for a program that failed although nothing was refused: it may have looked for a
// capability that a switch shows, and given up by itself.
std::string missed(const trace::Tally &tally, const RunCommand &command) {
  std::set<std::string> switches;
  for (std::size_t row = 0; row < trace::row_count; ++row)
    if (tally.hidden[row].load(std::memory_order_relaxed) != 0)
      if (const BeyondSwitch &s = info(answer_of(row).beyond); is_off(s, command))
        switches.emplace(s.name);
  if (switches.empty()) return {};
  return fmt::format(
      "features off by default were not shown to the program: {}. If it misses one: {}",
      fmt::join(switches, ", "), command_line(command, {}, std::string(automatic_switches)));
}

// Whether the program looked for what a switch that is off shows, or asked for it.
bool misses(const trace::Tally &tally, std::string_view name) {
  for (std::size_t row = 0; row < trace::row_count; ++row)
    if (tally.hidden[row].load() != 0 || tally.refused[row].load() != 0)
      if (const Beyond beyond = answer_of(row).beyond; is_switch(beyond) && name_of(beyond) == name)
        return true;
  return false;
}

// For a program that failed: adds what is known about it and about the file that it crashed in,
// unless `ibvexp run` has dealt with it before the start.
void add_known(const trace::Tally &tally, const RunCommand &command, const fs::path &file,
               int wait_status, std::vector<std::string> &lines) {
  std::vector<fs::path> files = loaded_with(file);
  if (tally.crashes.load() != 0) files.emplace_back(tally.crashed_in);
  for (const Known &k : known_about(files, command.program)) {
    const std::string of_switch = k.at("switch");
    if (!k.explains(wait_status) || (!of_switch.empty() && !misses(tally, of_switch))) continue;
    const std::string setting = k.at("set");
    const bool set = std::getenv(setting.substr(0, setting.find('=')).c_str()) != nullptr;
    if (!k.at("do").empty()) lines.push_back(k.sentence());
    else if (!setting.empty() && !set)
      lines.push_back(fmt::format("{} Set {}.", k.at("title"), setting));
  }
}

bool is_crash(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return false;
  const int number = WTERMSIG(wait_status);
  return number == SIGSEGV || number == SIGBUS || number == SIGILL;
}

std::string environment(const char *name, const char *otherwise) {
  const char *value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// What to change for such a program, where it is known.
std::string way_out(const fs::path &reader, const std::string &layout) {
  if (environment("IBVEXP_ENGINE", "own") == "native")
    return "IBVEXP_ENGINE=native has no such structures: unset it";
  const std::string had = environment("IBVEXP_LAYOUT", "4.x");
  if (!layout.empty() && layout != had)
    return fmt::format("it expects the layout {0} and got {1}: set IBVEXP_LAYOUT={0}", layout, had);
  const std::string name = reader.filename().string();
  if (name.find("uct") != std::string::npos || name.find("ucp") != std::string::npos)
    return "UCX does not read them with UCX_TLS=rc_verbs,ud_verbs,self,sm";
  return "see mlx5_hw.h in docs/faq.md";
}

// The line for a crash in code that reads private structures; empty for other crashes.
std::string cause(const trace::Tally &tally, int wait_status) {
  if (tally.crashed_in[0] == '\0' || is_provider(tally.crashed_in)) return {};
  nlohmann::json report;
  try {
    report = audited({tally.crashed_in}, false);
  } catch (const std::exception &) {
    return {};
  }
  for (const auto &file : report.at("files"))
    for (const auto &use : file.at("uses"))
      if (use.at("severity") == name_of(Word::layout))
        return fmt::format(
            "ended by {} in {}, which reads private structures of the legacy libmlx5; {}",
            strsignal(WTERMSIG(wait_status)), tally.crashed_in,
            way_out(tally.crashed_in, file.value("layout", "")));
  return {};
}

// Whether the program looked for devices and never found one. A device that was chosen
// answers for itself.
bool lacks_device(const trace::Tally &tally, const RunCommand &command) {
  const bool chosen = std::find(command.options.begin(), command.options.end(), "--device") !=
                      command.options.end();
  return !chosen && tally.searches.load() != 0 && tally.finds.load() == 0;
}

std::string no_device(const RunCommand &command) {
  return fmt::format("{}. What is missing: ibvexp doctor. On the software HCA: {}",
                     doctor::conclude(doctor::examine()).what,
                     command_line(command, "soft", command.beyond));
}

// What a libibverbs reads first, in all releases.
constexpr std::string_view folder_of_verbs = "/class/infiniband_verbs";

// Why a program that was started ran without the library; empty if it had it, or is a
// static program that has no libibverbs inside.
std::string lost_library(const std::string &entry) {
  const std::string file = entry.substr(1);
  try {
    const ElfHead elf(file);
    if (elf.is_elf() && elf.interpreter().empty() && !elf.has_constant_with(folder_of_verbs))
      return {};
    check_preloadable(file);
  } catch (const CannotRun &e) {
    return e.what();
  }
  return entry.front() == STARTED_WITHOUT ? file + " was started without it in LD_PRELOAD"
                                          : std::string();
}

// Adds what was counted in one file to another. Who ran the program says where it crashed.
void add(const trace::Tally &from, trace::Tally &to) {
  const auto move = [](const auto &some, auto &sum) { sum.fetch_add(some.load()); };
  move(from.processes, to.processes);
  move(from.openers, to.openers);
  move(from.searches, to.searches);
  move(from.finds, to.finds);
  for (std::size_t row = 0; row < trace::row_count; ++row) {
    move(from.refused[row], to.refused[row]);
    move(from.hidden[row], to.hidden[row]);
  }
}

fs::path list_beside(const fs::path &tally) { return tally.string() + STARTED_PROGRAMS; }

}  // namespace

std::string quoted(const std::string &word) {
  constexpr std::string_view plain = "_@%+=:,./-";
  const bool needs_quotes =
      word.empty() || std::any_of(word.begin(), word.end(), [&](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 && plain.find(c) == plain.npos;
      });
  if (!needs_quotes) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command_line(const RunCommand &command, const std::string &device,
                         const std::string &beyond, const std::string &ibvexp) {
  std::string out = quoted(ibvexp) + " run";
  if (!device.empty()) out += " --device " + device;
  for (const std::string &option : command.options) out += " " + quoted(option);
  if (!beyond.empty()) out += " --beyond " + quoted(beyond);
  out += " --";
  for (const std::string &word : command.program) out += " " + quoted(word);
  return out;
}

std::vector<std::string> lost_programs(const TallyFile &file) {
  std::vector<std::string> out;
  for (const std::string &entry : file.programs())
    if (const std::string why = lost_library(entry); !why.empty())
      out.push_back("without the library: " + why);
  return out;
}

std::vector<std::string> doubts(const TallyFile &file) {
  const trace::Tally &tally = *file.get();
  std::vector<std::string> out;
  for (std::size_t row = 0; row < trace::row_count; ++row)
    if (const std::uint32_t times = tally.refused[row].load(std::memory_order_relaxed);
        was_refused(trace::name_of_row(row), times))
      out.push_back(fmt::format("refused: {} ({})", trace::name_of_row(row), often(times)));
  std::ranges::move(lost_programs(file), std::back_inserter(out));
  // One that is about to end is given a second.
  std::size_t running = file.users();
  for (int i = 0; running != 0 && i < 100; ++i) {
    usleep(10000);
    running = file.users();
  }
  if (running != 0)
    out.push_back(fmt::format("{} of this program still run{}: what they ask for is not known",
                              running == 1 ? "a process" : fmt::format("{} processes", running),
                              running == 1 ? "s" : ""));
  if (tally.openers.load() == 0)
    out.emplace_back("no process of this program opened a device with the library");
  return out;
}

TallyFile::TallyFile(bool list_programs) : outer_(environment("IBVEXP_TALLY", "")) {
  std::string name = (temporary_folder() / "ibvexp-run-XXXXXX").string();
  const int fd = mkstemp(name.data());
  if (fd < 0) return;
  close(fd);
  path_ = name;
  tally_ = trace::make_tally(path_.c_str());
  if (tally_ == nullptr) return;
  std::error_code none;
  if (list_programs || (!outer_.empty() && fs::exists(list_beside(outer_), none)))
    std::ofstream(list_beside(path_));
  setenv("IBVEXP_TALLY", path_.c_str(), 1);
}

TallyFile::~TallyFile() {
  if (path_.empty()) return;
  if (trace::Tally *outer = trace::open_tally(outer_.c_str());
      outer != nullptr && tally_ != nullptr) {
    add(*tally_, *outer);
    std::ofstream list(list_beside(outer_), std::ios::app | std::ios::in);
    for (const std::string &entry : programs()) list.write(entry.c_str(), entry.size() + 1);
  }
  std::error_code ignored;
  fs::remove(path_, ignored);
  fs::remove(list_beside(path_), ignored);
}

std::size_t TallyFile::users() const {
  std::size_t out = 0;
  std::error_code error;
  for (const fs::directory_entry &process : fs::directory_iterator("/proc", error)) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (name == std::to_string(getpid())) continue;  // maps it, too
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (line.ends_with(path_.string())) {
        ++out;
        break;
      }
  }
  return out;
}

std::set<std::string> TallyFile::programs() const {
  std::set<std::string> out;
  std::ifstream list(list_beside(path_));
  for (std::string entry; std::getline(list, entry, '\0');)
    if (entry.size() > 1) out.insert(entry);
  return out;
}

std::vector<std::string> afterword(const trace::Tally &tally, const RunCommand &command,
                                   const fs::path &file, int wait_status) {
  std::vector<std::string> lines;
  if (tally.processes.load(std::memory_order_relaxed) == 0 &&
      !(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == exit_cannot_run))
    lines.emplace_back(
        "no process of this program loaded libibverbs_exp: it may be static, or clear LD_PRELOAD");
  if (lacks_device(tally, command)) lines.push_back(no_device(command));
  if (is_crash(wait_status))
    if (std::string line = cause(tally, wait_status); !line.empty())
      lines.push_back(std::move(line));
  if (wait_status != 0) add_known(tally, command, file, wait_status, lines);
  std::string line = refused_without_need(tally, command);
  if (line.empty() && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0)
    line = missed(tally, command);
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace ibvexp::tool
