// Names the resource limit that made a system call fail, which the errno alone does
// not show.
#pragma once

#include <csignal>

#include "base/types.h"

namespace softhca {

// " (RLIMIT_AS is 1000000 bytes)" for ENOMEM, when there is such a limit; empty
// if no limit explains the error. Fits a log line; errno is not changed.
struct LimitText {
  char text[128];
};
LimitText limit_behind(int error);
// The same for a file, with the size of a /dev/shm that is full.
LimitText limit_behind(int error, const char *file);

// During its lifetime, writes of this thread beyond RLIMIT_FSIZE fail with EFBIG. The
// signal SIGXFSZ, whose default ends the program, is not
// delivered.
class FileSizeErrors {
 public:
  FileSizeErrors();
  ~FileSizeErrors();
  FileSizeErrors(const FileSizeErrors &) = delete;
  FileSizeErrors &operator=(const FileSizeErrors &) = delete;

 private:
  sigset_t before_;
  bool pending_;  // was pending before: stays for the program
};

// Writes all of it at `offset` of a file. 0 or errno, that of the limit that
// ended it half-way included.
int write_all(int fd, const void *data, size_t bytes, u64 offset);

}  // namespace softhca
