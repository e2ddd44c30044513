// Prints the configuration reference, or with a file name checks that the file
// holds it between its two markers (--write FILE puts it there).
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/docs.h"

namespace {

constexpr const char *start_marker = "<!-- begin: configuration (./run docs) -->\n";
constexpr const char *end_marker = "<!-- end: configuration -->\n";

}  // namespace

int main(int argc, char **argv) {
  const std::string reference = softhca::config_reference();
  const bool write = argc == 3 && std::strcmp(argv[1], "--write") == 0;
  if (argc == 1) {
    std::fputs(reference.c_str(), stdout);
    return 0;
  }
  const char *path = argv[argc - 1];
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  const std::string old = content.str();
  const size_t from = old.find(start_marker);
  const size_t to = old.find(end_marker);
  if (from == std::string::npos || to == std::string::npos || to < from) {
    std::fprintf(stderr, "%s: markers for the configuration reference are missing\n", path);
    return 1;
  }
  const std::string fresh =
      old.substr(0, from) + start_marker + '\n' + reference + '\n' + old.substr(to);
  if (fresh == old) return 0;
  if (!write) {
    std::fprintf(stderr, "%s: the configuration reference is out of date; ./run docs writes it\n",
                 path);
    return 1;
  }
  std::ofstream(path) << fresh;
  return 0;
}
