// A program in a process of its own, of which nothing is noticed from outside:
// signals go to it, and its status comes back.
#pragma once

#include <string>
#include <vector>

namespace ibvexp::tool {

// Replaces this process. Returns an errno value if that fails.
int exec_program(const std::string &file, const std::vector<std::string> &arguments);

// Runs it and waits; returns the status as waitpid() does. SIGINT and SIGQUIT
// from the terminal reach both, others are passed on.
int run_program(const std::string &file, const std::vector<std::string> &arguments);

// Ends this process as the status says: with its exit status, or by its signal.
[[noreturn]] void end_as(int wait_status);

}  // namespace ibvexp::tool
