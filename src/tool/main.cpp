// ibvexp-main and ibvexp-audit: the command-line tool of libibverbs_exp, but for its launcher.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string_view>

#include "tool/command.h"
#include "tool/start/hidden.h"
#include "tool/usage.h"

namespace ibvexp::tool {

namespace {

// What the launcher hid. From here on it counts for the programs that are started.
void take_back_environment() {
  for (char **variable = environ; *variable != nullptr; ++variable)
    for (const std::string_view name : {HIDDEN_PRELOAD, HIDDEN_LIBRARY_PATH, HIDDEN_AUDIT})
      if (**variable == HIDDEN_LETTER &&
          std::string_view(*variable + 1).starts_with(name.substr(1)))
        **variable = name.front();
}

// Where in argv the words of another program begin; argc if there are none. As with
// env and nice that is the first word after the subcommand that is neither an option
// nor the value of one; all words after "migrate" and "vm" are for other programs.
int begin_of_program(const CLI::App &app, int argc, char **argv) {
  const std::string subcommand = argc > 1 ? argv[1] : "";
  if (subcommand == "migrate" || subcommand == "vm") return 2;
  if (subcommand != "run" && subcommand != "doctor") return argc;
  const CLI::App *command = app.get_subcommand(subcommand);
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return i + 1;
    if (word.size() < 2 || word.front() != '-') return i;
    const CLI::Option *option = command->get_option_no_throw(std::string(word));
    if (option != nullptr && option->get_expected_max() > 0) ++i;
  }
  return argc;
}

int run(int argc, char **argv) {
  CLI::App app("Experimental verbs (ibv_exp_*) on today's rdma-core", "ibvexp");
  app.set_version_flag("--version", "ibvexp " IBVEXP_VERSION);
  app.require_subcommand(1);

  Action action;
  Words program;
  add_commands(app, action, program);

  // CLI11 takes lists in brackets apart and options out of any place, so it never
  // sees these.
  const int own = begin_of_program(app, argc, argv);
  program.assign(argv + own, argv + argc);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError &e) {
    return end_of_parsing(app, e);
  }
  return action();
}

}  // namespace

}  // namespace ibvexp::tool

int main(int argc, char **argv) {
  ibvexp::tool::take_back_environment();
  try {
    return ibvexp::tool::run(argc, argv);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "ibvexp: %s\n", e.what());
    return ibvexp::tool::exit_trouble;
  }
}
