// The subcommands of ibvexp. Each registers itself in a file of its own: it adds
// its options to the command line and sets the action that main() runs if the
// user chose it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ibvexp::tool {

// Exit statuses of ibvexp (run passes on the program's own instead).
inline constexpr int exit_ok = 0;
inline constexpr int exit_findings = 1;  // what --fail-on names was found
inline constexpr int exit_trouble = 2;   // wrong usage, or input that could not be read
// Both at once are 3.

// What the chosen subcommand does; returns the exit status.
using Action = std::function<int()>;

// A program and its arguments, byte for byte as they were typed.
using Words = std::vector<std::string>;

// ibvexp-audit has the one, ibvexp-main all others.
inline constexpr const char *audit_title =
    "Find uses of experimental verbs in sources, binaries and traces";
void add_commands(CLI::App &app, Action &action, const Words &program);

void add_doctor(CLI::App &app, Action &action, const Words &program);
void add_fabric(CLI::App &app, Action &action);
void add_matrix(CLI::App &app, Action &action);
void add_migrate(CLI::App &app, Action &action, const Words &arguments);
void add_run(CLI::App &app, Action &action, const Words &program);
void add_verify(CLI::App &app, Action &action);
void add_vm(CLI::App &app, Action &action, const Words &arguments);

}  // namespace ibvexp::tool
