// The limits of a process that make system calls fail, by name: an errno alone
// does not say which of them it was.
#pragma once

#include <csignal>

#include "base/types.h"

namespace softhca {

// " (RLIMIT_AS is 1000000 bytes)" for ENOMEM, when there is such a limit; empty
// for what no limit explains. Fits a line of the log; errno is not touched.
struct LimitText {
  char text[128];
};
LimitText limit_behind(int error);
// The same for a file, with the size of a /dev/shm that is full.
LimitText limit_behind(int error, const char *file);

// While it lives, what exceeds RLIMIT_FSIZE in this thread fails with EFBIG. The
// signal that goes with it, whose default is the death of the program, is not
// delivered.
class FileSizeErrors {
 public:
  FileSizeErrors();
  ~FileSizeErrors();
  FileSizeErrors(const FileSizeErrors &) = delete;
  FileSizeErrors &operator=(const FileSizeErrors &) = delete;

 private:
  sigset_t before_;
  bool pending_;  // was pending before: left to the program
};

// Writes all of it at `offset` of a file. 0 or errno, that of the limit that
// ended it half-way included.
int write_all(int fd, const void *data, size_t bytes, u64 offset);

}  // namespace softhca
