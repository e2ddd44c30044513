// Structures of older releases, which end before some members: nothing behind them can be read.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

class PageEnd {
 public:
  PageEnd()
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        at_(static_cast<char *>(
            mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(at_ + page_, page_, PROT_NONE);
  }
  PageEnd(const PageEnd &) = delete;
  PageEnd &operator=(const PageEnd &) = delete;
  ~PageEnd() { munmap(at_, 2 * page_); }

  // All zero, and only so many bytes of it.
  template <class Structure>
  Structure &make(std::size_t bytes) const {
    return *reinterpret_cast<Structure *>(at_ + page_ - bytes);
  }

 private:
  std::size_t page_;
  char *at_;
};
