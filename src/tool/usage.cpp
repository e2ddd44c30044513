#include "tool/usage.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "tool/command.h"

namespace ibvexp::tool {

namespace {

// The command that was chosen, down to its last part.
struct Chosen {
  explicit Chosen(const CLI::App &app) : command(&app), name(app.get_name()) {
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      name += " " + command->get_name();
    }
  }

  const CLI::App *command;
  std::string name;
};

void print(const Chosen &chosen, const std::string &what) {
  fmt::print(stderr, "ibvexp: {}\n{} --help lists what there is\n", what, chosen.name);
}

// The first word that is neither a command nor an option, and what it may stand for.
void print_unknown(const CLI::App &app, const Chosen &chosen, const std::string &word) {
  const bool is_option = word.starts_with('-');
  std::vector<std::string> known;
  if (is_option) {
    for (const CLI::Option *option : chosen.command->get_options())
      for (const std::string &name : option->get_lnames()) known.push_back("--" + name);
  } else {
    for (const CLI::App *other : chosen.command->get_subcommands({}))
      known.push_back(other->get_name());
  }
  const std::string asked = word.substr(0, word.find('='));
  std::string meant(
      nearest(asked, known, [](const std::string &name) { return std::string_view(name); }));
  std::error_code error;
  if (meant.empty() && !is_option && chosen.command == &app &&
      std::filesystem::is_regular_file(word, error))
    meant = "ibvexp run -- " + word;
  if (meant.empty() && word == "trace") meant = "ibvexp run --trace FILE -- PROGRAM";
  print(chosen, fmt::format("unknown {} {}{}",
                            is_option       ? "option"
                            : known.empty() ? "argument"
                                            : "command",
                            word, meant.empty() ? "" : "; did you mean " + meant + "?"));
}

}  // namespace

int end_of_parsing(const CLI::App &app, const CLI::ParseError &error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const Chosen chosen(app);
  if (const std::vector<std::string> unknown = app.remaining(true); !unknown.empty()) {
    print_unknown(app, chosen, unknown.front());
  } else {
    std::string what = error.what();
    // CLI11's "--device: 1 required soft|NAME missing".
    const std::size_t count = what.find(": 1 required ");
    if (count != what.npos && what.ends_with(" missing"))
      what = what.substr(0, count) +
             " needs a value: " + what.substr(count + 13, what.size() - count - 21);
    const std::size_t first = chosen.name.find(' ');
    print(chosen, (first == chosen.name.npos ? "" : chosen.name.substr(first + 1) + ": ") +
                      (what == "A subcommand is required" ? "a command is required" : what));
  }
  return exit_trouble;
}

}  // namespace ibvexp::tool
