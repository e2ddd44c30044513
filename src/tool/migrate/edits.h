// Changes of source files, collected from several translation units and applied
// at once.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ibvexp::migrate {

// What is done to text, or why nothing is. The ids are stable: programs filter by them.
enum class Kind {
  layout = 1000,        // follows from another change: indentation, braces
  name = 1001,          // a constant
  type = 1002,          // a structure or enumeration
  member = 1003,        // a member
  call = 1004,          // a call
  include = 1005,       // a header
  build = 1010,         // a line of a build file
  gone = 1006,          // what rdma-core does without being asked
  test = 1007,          // a bit that says what is always so, or what a value says
  mask = 1008,          // a bit that rdma-core insists on
  lost = 1009,          // removed, and with it something that the program asked for
  no_rule = 1101,       // no successor, or none that is known to this program
  form = 1102,          // a use of a form that is not understood
  in_macro = 1103,      // in the body of a macro
  not_compiled = 1104,  // left out by the preprocessor
  conflict = 1105,      // means different things to different translation units
  build_left = 1107,    // a line of a build file
  portable = 1106,      // in a file that also compiles without the experimental header
};

std::string id_of(Kind kind);  // IBVEXP1001

struct Edit {
  std::size_t offset, length;
  std::string text;
  Kind kind;
  std::string legacy;  // the name, or type.member
  bool operator==(const Edit &) const = default;
};

// What is left for a human, or has to be known to one.
struct Finding {
  std::size_t offset;
  Kind kind;
  std::string legacy;
  auto operator<=>(const Finding &) const = default;  // NOLINT(modernize-use-nullptr): not ours
};

// What to do about it, or what to know.
std::string advice(const Finding &finding);

// A directive, with the brackets or quotes of its name.
struct Include {
  std::size_t length;
  std::string name;
};

// One file, as far as it is known.
struct File {
  std::string text;
  std::vector<Edit> edits;
  std::set<Finding> findings;
  std::map<std::size_t, std::string> uses;              // legacy names outside comments, by offset
  std::map<std::size_t, Include> includes;              // by offset of the name
  std::map<std::size_t, std::vector<Finding>> earlier;  // comments of an earlier run, by line

  // Comments that say what is left are made again by each run.
  void take_out_comments();
  // A compiler's error there is expected if such a comment stands above the line.
  bool leave_again(std::size_t offset);
  // Nothing changes, because of these macros.
  void leave_alone(const std::string &macros);
  bool alone() const;

  void add(Edit edit);
  // Drops edits inside others and those that contradict each other, and turns what
  // no edit reaches into findings.
  void settle();
  // Findings that need a human, those of code that is not compiled among them.
  std::size_t left() const;
  bool whole() const { return left() == 0; }
  // Uses that are compiled, and what else is left: the converted ones and the left ones.
  std::set<std::size_t> places() const;
  std::size_t left_places() const;
  std::size_t not_compiled() const;  // of the uses
  // The text with the edits, and with a comment above each line with a finding.
  std::string result() const;
  std::string changed() const;  // without comments

 private:
  // Comments by the start of the line that they stand above.
  std::string with(const std::map<std::size_t, std::string> &above) const;
  void remove_blanks();
  void remove_blank_lines();
};

using Files = std::map<std::string, File>;  // by path

// After settle(): the headers that the new text needs, those of ours from the folder
// helper, and not the legacy one if nothing is left of it.
void change_includes(Files &files, const std::string &helper);

}  // namespace ibvexp::migrate
