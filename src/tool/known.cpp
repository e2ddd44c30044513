#include "tool/known.h"

#include <fmt/core.h>
#include <fnmatch.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/nearest.h"
#include "programs_text.h"
#include "table/compat.h"
#include "tool/elf_head.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

constexpr auto known_keys =
    std::to_array<std::string_view>({"title", "file", "has", "lacks", "where", "arguments", "ends",
                                     "switch", "launcher", "set", "run", "do", "why", "since"});

std::string trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return std::string(text.substr(from, text.find_last_not_of(" \t\r") - from + 1));
}

// Adds the entries of a text, in the place of those of the same name.
class Reader {
 public:
  Reader(std::string file, std::vector<Known> &out) : file_(std::move(file)), out_(out) {}

  void read(std::istream &text) {
    for (std::string line; std::getline(text, line);) {
      ++number_;
      const std::string content = trimmed(line);
      if (content.empty() || content.front() == '#') continue;
      if (line.front() == ' ' || line.front() == '\t') proceed(content);
      else if (content.front() == '[') begin(content);
      else take(content);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string &why) const {
    throw std::runtime_error(fmt::format("{}:{}: {}", file_, number_, why));
  }

  void begin(const std::string &content) {
    if (!content.ends_with(']') || content.size() < 3) refuse("[name] expected");
    const std::string name = content.substr(1, content.size() - 2);
    std::erase_if(out_, [&](const Known &k) { return k.name == name; });
    out_.push_back({name, {}});
    value_ = nullptr;
    begun_ = true;
  }

  void take(const std::string &content) {
    const std::size_t equals = content.find('=');
    const std::string key = trimmed(content.substr(0, equals));
    if (!begun_) refuse("[name] expected");
    if (equals == std::string::npos) refuse("KEY = VALUE expected");
    if (std::ranges::count(known_keys, key) == 0) {
      const std::string_view meant = nearest(key, known_keys, [](std::string_view k) { return k; });
      refuse(fmt::format("unknown key {}{}", key,
                         meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
    }
    value_ = &out_.back().keys[key];
    *value_ = trimmed(content.substr(equals + 1));
  }

  void proceed(const std::string &content) {
    if (value_ == nullptr) refuse("nothing to continue");
    *value_ += " " + content;
  }

  std::string file_;
  std::vector<Known> &out_;
  std::size_t number_ = 0;
  std::string *value_ = nullptr;
  bool begun_ = false;
};

fs::path file_of_user() {
  const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
  if (config != nullptr && *config == '/') return fs::path(config) / "ibvexp/programs.def";
  return home != nullptr ? fs::path(home) / ".config/ibvexp/programs.def" : fs::path();
}

std::vector<Known> all() {
  std::vector<Known> out;
  std::istringstream own{std::string(programs_text)};
  Reader("programs.def", out).read(own);
  const fs::path users = file_of_user();
  std::ifstream text(users);
  if (text) Reader(users.string(), out).read(text);
  return out;
}

bool fits(const std::string &patterns, const std::string &word) {
  bool found = false;
  for_each_word(patterns, ' ', [&](std::string_view pattern) {
    found = found || fnmatch(std::string(pattern).c_str(), word.c_str(), 0) == 0;
  });
  return found;
}

std::vector<int> version(const std::string &text) {
  std::vector<int> out;
  std::istringstream words(text);
  for (int number; words >> number;) {
    out.push_back(number);
    if (words.get() != '.') break;
  }
  return out;
}

// "glibc >= 2.34"
bool holds(const std::string &condition) {
  if (condition.empty()) return true;
  std::string what, how, than;
  std::istringstream(condition) >> what >> how >> than;
  utsname system{};
  uname(&system);
  if ((what != "glibc" && what != "linux") || (how != ">=" && how != "<"))
    throw std::runtime_error(
        fmt::format("where = {}: glibc or linux, >= or <, a version", condition));
  const std::vector<int> here = version(what == "glibc" ? gnu_get_libc_version() : system.release);
  return (here < version(than)) == (how == "<");
}

bool is_file(const Known &k, const fs::path &file) {
  if (!fits(k.at("file"), file.filename().string())) return false;
  const std::string has = k.at("has"), lacks = k.at("lacks");
  if (has.empty() && lacks.empty()) return true;
  const ElfHead head(file);
  const auto contains = [&](const std::string &text) {
    return head.has_constant_with(text) || head.has_name_with(text);
  };
  return (has.empty() || contains(has)) && (lacks.empty() || !contains(lacks));
}

bool has_arguments(const Known &k, const std::vector<std::string> &arguments) {
  bool all = true;
  for_each_word(k.at("arguments"), ' ', [&](std::string_view pattern) {
    all = all && std::ranges::any_of(arguments, [&](const std::string &word) {
            return fits(std::string(pattern), word);
          });
  });
  return all;
}

// By its user, or a time limit: `timeout` ends with 124.
bool was_stopped(int wait_status) {
  constexpr int timed_out = 124, by_signal = 128;
  const int number =
      WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status) - by_signal;
  const auto stops = {SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGALRM, SIGTERM};
  return std::ranges::count(stops, number) != 0 ||
         (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == timed_out);
}

}  // namespace

bool Known::explains(int wait_status) const {
  return at("ends") != "hang" || was_stopped(wait_status);
}

std::string Known::sentence() const {
  std::string out = at("title") + " " + at("why");
  for (const char *key : {"run", "do"})
    if (const std::string text = at(key); !text.empty()) out += " " + text;
  if (const std::string variable = at("set"); !variable.empty())
    out += fmt::format(" `ibvexp run` sets {}.", variable);
  return out;
}

std::vector<Known> known_about(const std::vector<fs::path> &files,
                               const std::vector<std::string> &arguments) {
  std::vector<Known> out = all();
  std::erase_if(out, [&](const Known &k) {
    return !has_arguments(k, arguments) || !holds(k.at("where")) ||
           std::ranges::none_of(files, [&](const fs::path &f) { return is_file(k, f); });
  });
  return out;
}

}  // namespace ibvexp::tool
