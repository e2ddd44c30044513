// ibvexp migrate: rewrites sources. A program of its own does it, which needs
// Clang's libraries and may not be there.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "tool/child.h"
#include "tool/command.h"
#include "tool/libraries.h"

namespace ibvexp::tool {

void add_migrate(CLI::App &app, Action &action, const Words &arguments) {
  CLI::App *sub =
      app.add_subcommand("migrate", "Rewrite sources from experimental verbs to rdma-core's");
  sub->callback([&action, &arguments] {
    action = [&arguments] {
      Words command{"ibvexp-migrate"};
      command.insert(command.end(), arguments.begin(), arguments.end());
      const int error = exec_program(find_migrate(), command);
      throw std::runtime_error(fmt::format("ibvexp-migrate: {}", std::strerror(error)));
      return exit_trouble;
    };
  });
}

}  // namespace ibvexp::tool
