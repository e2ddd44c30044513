// ibvexp-matrix: prints, writes or checks the compatibility matrix.
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tool/matrix.h"

namespace {

constexpr char usage[] =
    "usage: ibvexp-matrix [--json | --guide] [--output FILE | --check FILE]\n"
    "\n"
    "Prints the compatibility matrix made from the tables of this library.\n"
    "  --json         JSON instead of Markdown\n"
    "  --guide        the rows of the migration guide instead of the matrix\n"
    "  --output FILE  write it to FILE instead of standard output\n"
    "  --check FILE   say whether FILE is what would be written; exit 1 if not\n";

int fail(const std::string &what) {
  std::cerr << "ibvexp-matrix: " << what << "\n";
  return 2;
}

// Where two texts part, as a line number starting at 1.
int first_difference(const std::string &a, const std::string &b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  for (int number = 1;; ++number) {
    const bool more_left = static_cast<bool>(std::getline(left, x));
    const bool more_right = static_cast<bool>(std::getline(right, y));
    if (more_left != more_right || x != y || !more_left) return number;
  }
}

int check(const std::string &path, const std::string &want) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail("cannot read " + path);
  std::ostringstream have;
  have << file.rdbuf();
  if (have.str() == want) return 0;
  std::cerr << path << ":" << first_difference(have.str(), want)
            << ": differs from the tables; regenerate it with 'ninja matrix'\n";
  return 1;
}

int write(const std::string &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  return file ? 0 : fail("cannot write " + path);
}

}  // namespace

int main(int argc, char **argv) {
  bool json = false, guide = false;
  std::string output, reference;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool takes_file = arg == "--output" || arg == "--check";
    if (arg == "--help" || arg == "-h") {
      std::cout << usage;
      return 0;
    }
    if (arg == "--json") json = true;
    else if (arg == "--guide") guide = true;
    else if (takes_file && i + 1 < argc) (arg == "--output" ? output : reference) = argv[++i];
    else {
      std::cerr << usage;
      return fail((takes_file ? "missing file after " : "unknown argument ") + arg);
    }
  }
  if (!output.empty() && !reference.empty()) return fail("--output and --check exclude each other");

  using namespace ibvexp::tool;
  const std::string text = guide ? guide_markdown() : json ? matrix_json() : matrix_markdown();
  if (!reference.empty()) return check(reference, text);
  if (!output.empty()) return write(output, text);
  std::cout << text << std::flush;
  return std::cout ? 0 : fail("cannot write to standard output");
}
