// What `ibvexp run` says when its program has ended, on standard error and only if
// the user can do something: that no process had the library, which switch would
// have served what was refused, and where a crash was, if private structures are read there.
#pragma once

#include "trace/tally.h"

#include <filesystem>
#include <string>
#include <vector>

namespace ibvexp::tool {

// The command that ran, for the one that is to be typed instead.
struct RunCommand {
  std::vector<std::string> options;  // between "ibvexp run" and "--", without --beyond
  std::string beyond;                // its value
  std::vector<std::string> program;  // and its arguments
};

// The file that the program's processes count in. Without one (no room for
// temporary files) there is nothing to say.
class TallyFile {
 public:
  // Makes it, and names it in the environment.
  TallyFile();
  ~TallyFile();
  TallyFile(const TallyFile &) = delete;
  TallyFile &operator=(const TallyFile &) = delete;

  const trace::Tally *get() const { return tally_; }

 private:
  std::filesystem::path path_;
  const trace::Tally *tally_ = nullptr;
};

// Rows that were refused and how often: "ibv_exp_create_dct (3 times)".
std::vector<std::string> refusals(const trace::Tally &tally);

// Lines, each without its end. wait_status is that of the program.
std::vector<std::string> afterword(const trace::Tally &tally, const RunCommand &command,
                                   int wait_status);

}  // namespace ibvexp::tool
