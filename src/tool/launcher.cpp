#include "tool/launcher.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

#include "tool/libraries.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

using Words = std::vector<std::string>;

// Options of sudo, doas and pkexec whose value is the next word.
bool takes_next_word(std::string_view option) {
  constexpr std::string_view letters = "CDghpRrTtUu";
  constexpr auto names = std::to_array<std::string_view>(
      {"--chdir", "--chroot", "--close-from", "--command-timeout", "--group", "--host",
       "--other-user", "--prompt", "--role", "--type", "--user"});
  if (option.starts_with("--")) return std::ranges::count(names, option) != 0;
  return option.find_first_of(letters, 1) == option.size() - 1;
}

// NAME=VALUE
bool is_assignment(std::string_view word) {
  const std::size_t equals = word.find('=');
  return equals != word.npos && equals != 0 &&
         std::ranges::all_of(word.substr(0, equals),
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// Where the words of the program begin; their number if it has none.
std::size_t begin_of_program(const Words &words) {
  std::size_t i = 1;
  while (i < words.size()) {
    const std::string &word = words[i];
    if (word == "--") return i + 1;
    if (word.size() > 1 && word.front() == '-') i += takes_next_word(word) ? 2 : 1;
    else if (is_assignment(word)) ++i;
    else break;
  }
  return std::min(i, words.size());
}

// What a shell is given with -c; its number of words if there is none.
std::size_t place_of_script(const Words &words) {
  const auto option = std::ranges::find_if(
      words, [](const std::string &word) { return word == "-c" || word == "--command"; });
  return option == words.end() ? words.size()
                               : static_cast<std::size_t>(option - words.begin()) + 1;
}

// A command without anything that only a shell does.
bool is_plain(std::string_view script) {
  return script.find_first_of("|&;<>()$`\\\"'*?[#~=\n") == script.npos;
}

// As another user finds it: sudo and su set PATH anew.
std::string name_for_others() {
  const fs::path own = own_path();
  const fs::path folder = own.parent_path();
  return folder == "/usr/bin" || folder == "/usr/local/bin" || folder == "/bin" ? "ibvexp"
                                                                                : own.string();
}

std::string joined(const Words &words) {
  std::string out;
  for (const std::string &word : words) out += (out.empty() ? "" : " ") + quoted(word);
  return out;
}

}  // namespace

std::string behind_launcher(const std::string &kind, const RunCommand &command) {
  const Words &words = command.program;
  const std::size_t at = kind == "words"   ? begin_of_program(words)
                         : kind == "shell" ? place_of_script(words)
                                           : words.size();
  if (at >= words.size()) return {};
  RunCommand inner = command;
  inner.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  Words outer(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
  const auto line = [&] { return command_line(inner, {}, command.beyond, name_for_others()); };
  if (kind == "words") return joined(outer) + " " + line();
  const std::string script = words[at];
  inner.program = {"sh", "-c", script};
  if (!is_plain(script)) {
    outer.push_back(line());
  } else {
    inner.program.clear();
    outer.push_back(line() + " " + script);
  }
  outer.insert(outer.end(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  return joined(outer);
}

}  // namespace ibvexp::tool
