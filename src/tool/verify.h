// The end-to-end checks as `ibvexp verify` runs them, and what they say about the
// rows of the matrix.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ibvexp::tool::verify {

// A file of checks, a line of the manifest that lies beside the program:
// "mprq eth", "atomic ib,eth masked_atomics".
struct CheckFile {
  std::string name;
  std::vector<std::string> links;
  std::string beyond;  // what it switches on
};
std::vector<CheckFile> read_manifest(const std::filesystem::path &file);

enum class Outcome { passed, failed, not_run };

struct Check {
  std::string file;
  std::string name;               // without the rows
  std::vector<std::string> rows;  // that it is about
  Outcome outcome = Outcome::not_run;
  std::string where;  // what failed: source line and expression, without values
};

// What the program wrote in Catch2's XML. It may end in the middle.
std::vector<Check> read_results(std::string_view xml, const std::string &file);

// Of the release that uname(2) names, what says nothing of the site: "6.1" of
// "6.1.0-21-amd64" or of "6.1.0-of-this-machine"; empty if it is no number.
std::string kernel_series(std::string_view release);

// "debian 12", from a file like /etc/os-release; empty if it does not say.
std::string distribution(std::istream &os_release);

// What became of a row on a device.
enum class Judgement {
  as_expected,  // as on the software HCA
  differs,
  absent,  // the device or the installed rdma-core does not have it
};
inline constexpr const char *judgement_names[] = {"as on the software HCA", "differs", "not there"};
// Behind the number of rows: "row differs" of 1, "rows differ" of others.
std::string in_words(Judgement judgement, std::size_t rows);

struct RowResult {
  Judgement judgement = Judgement::as_expected;
  std::vector<const Check *> checks;  // that say so
};

// `expected`: of the software HCA, where a check that fails says nothing. `there`:
// whether doctor finds a row served on this device; unknown names are.
std::map<std::string, RowResult> judge(const std::vector<Check> &expected,
                                       const std::vector<Check> &found,
                                       const std::map<std::string, bool> &there);

}  // namespace ibvexp::tool::verify
