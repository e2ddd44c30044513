// ibvexp vm: a command in a virtual machine. A program in Python does it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "tool/child.h"
#include "tool/command.h"
#include "tool/libraries.h"

namespace ibvexp::tool {

void add_vm(CLI::App &app, Action &action, const Words &arguments) {
  CLI::App *sub = app.add_subcommand(
      "vm", "Run a command in a virtual machine, on its kernel's own mlx5 driver");
  sub->callback([&action, &arguments] {
    action = [&arguments] {
      Words command{"ibvexp-vm"};
      command.insert(command.end(), arguments.begin(), arguments.end());
      const int error = exec_program(find_vm(), command);
      throw std::runtime_error(fmt::format("ibvexp-vm: {}", std::strerror(error)));
      return exit_trouble;
    };
  });
}

}  // namespace ibvexp::tool
