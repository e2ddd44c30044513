// The subcommands of ibvexp-main. What an audit needs takes longer to load than most of them
// take: it is a program of its own.
#include <CLI/CLI.hpp>
#include <stdexcept>

#include "tool/command.h"

namespace ibvexp::tool {

void add_commands(CLI::App &app, Action &action, const Words &program) {
  // For --help: the launcher does not start ibvexp-main for it.
  app.add_subcommand("audit", audit_title)->callback([] {
    throw std::runtime_error("the command is in ibvexp-audit");
  });
  add_run(app, action, program);
  add_doctor(app, action, program);
  add_fabric(app, action);
  add_matrix(app, action);
  add_migrate(app, action, program);
  add_verify(app, action);
  add_vm(app, action, program);
}

}  // namespace ibvexp::tool
