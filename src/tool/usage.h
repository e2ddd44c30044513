// What the programs of this folder say of a wrong command line.
#pragma once

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace ibvexp::tool {

// Prints what parsing ended with: the help that was asked for, or two lines on standard error
// that name the command, what is wrong, and what an unknown word may stand for. Returns the exit
// status.
int end_of_parsing(const CLI::App &app, const CLI::ParseError &error);

}  // namespace ibvexp::tool
