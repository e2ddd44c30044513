// Calls about memory, straight to the kernel. Programs that watch memory (libfabric, UCX)
// write a jump over the first instructions of libc's functions for it, while they run: a
// thread of ours that is in one of them then returns into the middle of that jump. Nor
// are their watchers meant to be called from here, with the device's lock held.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

namespace softhca::calls {

// As those of libc: MAP_FAILED or -1, and errno.
inline void *mmap(void *at, size_t bytes, int rights, int flags, int fd, off_t offset) {
  return reinterpret_cast<void *>(syscall(SYS_mmap, at, bytes, rights, flags, fd, offset));
}
inline int munmap(void *at, size_t bytes) {
  return static_cast<int>(syscall(SYS_munmap, at, bytes));
}
inline int madvise(void *at, size_t bytes, int advice) {
  return static_cast<int>(syscall(SYS_madvise, at, bytes, advice));
}

}  // namespace softhca::calls
