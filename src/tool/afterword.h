// What `ibvexp run` says when its program has ended, on standard error and only if
// the user can do something: that no process had the library, that there is no device,
// which switch would have served what was refused or shown what was missed, and where a
// crash was, if private structures are read there.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "trace/tally.h"

namespace ibvexp::tool {

// The command that ran, for the one that is to be typed instead.
struct RunCommand {
  std::vector<std::string> options;  // between "ibvexp run" and "--", without --beyond
  std::string beyond;                // its value
  std::vector<std::string> program;  // and its arguments
};

// As a shell takes it back.
std::string quoted(const std::string &word);

// "ibvexp run ...", with a name of ibvexp instead of "ibvexp" if there is one. device and beyond may
// be empty.
std::string command_line(const RunCommand &command, const std::string &device,
                         const std::string &beyond, const std::string &ibvexp = "ibvexp");

// The file that the program's processes count in. Without one (no room for
// temporary files) there is nothing to say.
class TallyFile {
 public:
  // Makes it, and names it in the environment. With list_programs there is a list of the
  // programs that are started beside it. If this process is part of a program of another
  // `ibvexp run`, that one counts and lists the same.
  explicit TallyFile(bool list_programs);
  ~TallyFile();
  TallyFile(const TallyFile &) = delete;
  TallyFile &operator=(const TallyFile &) = delete;

  const trace::Tally *get() const { return tally_; }
  // Programs of the list: an entry of start/started.h each, without the null.
  std::set<std::string> programs() const;
  // Processes that still count there: a program may go to the background.
  std::size_t users() const;

 private:
  std::filesystem::path path_, outer_;
  const trace::Tally *tally_ = nullptr;
};

// Why a program that ended well has shown nothing or not all: what was refused, that
// nothing opened a device, programs without the library. Lines, each without its end.
std::vector<std::string> doubts(const TallyFile &tally);

// For --no-follow: the programs that were started without the library. Lines, each without its end.
std::vector<std::string> lost_programs(const TallyFile &tally);

// Lines, each without its end. wait_status is that of the program, file its executable.
std::vector<std::string> afterword(const trace::Tally &tally, const RunCommand &command,
                                   const std::filesystem::path &file, int wait_status);

}  // namespace ibvexp::tool
