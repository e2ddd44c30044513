#include "model/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/log.h"
#include "base/memory_calls.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

// Everything that names application memory goes through raw system calls: the
// application may interpose the C library's functions, and sanitizers would
// report the device's accesses as races or overflows of the application.

namespace softhca {

namespace {

enum class Direction { from_application, to_application };

constexpr size_t batch_spans = 64;  // iovecs per system call, on the stack

std::atomic<MemoryAccess> g_access{MemoryAccess::process_vm};

// Gives up `denied` for the rest of the process's life.
void degrade(MemoryAccess denied, MemoryAccess next, const char *why) {
  MemoryAccess expected = denied;
  if (!g_access.compare_exchange_strong(expected, next)) return;
  if (next == MemoryAccess::plain)
    SOFTHCA_LOG(
        error,
        "memory: cannot create a pipe (%s): application memory is copied directly from now on; "
        "unmapping memory in use will crash",
        why);
  else SOFTHCA_LOG(info, "memory: process_vm access is denied (%s), using a pipe", why);
}

// A child must reach its own memory, not its parent's, and asking for the pid
// each time is a system call. The kernel clears this page at fork.
pid_t own_pid() {
  static std::atomic<pid_t> *const cached = [] {
    void *p =
        calls::mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED && calls::madvise(p, page_size, MADV_WIPEONFORK) != 0) {
      calls::munmap(p, page_size);
      p = MAP_FAILED;
    }
    return p == MAP_FAILED ? nullptr : static_cast<std::atomic<pid_t> *>(p);
  }();
  if (cached == nullptr) return getpid();
  pid_t pid = cached->load(std::memory_order_relaxed);
  if (pid == 0) {
    pid = getpid();
    cached->store(pid, std::memory_order_relaxed);
  }
  return pid;
}

// --- the pipe --------------------------------------------------------------
//
// write(pipe, application) and read(pipe, application) fail with EFAULT where
// a load or store would trap, and respect page protection. /proc/self/mem does
// not: it writes to read-only pages and reads inaccessible ones.

struct Pipe {
  std::mutex mutex;
  pid_t pid = 0;
  int read_end = -1, write_end = -1;
  dev_t device = 0;
  ino_t inode = 0;

  bool open_ends() {
    int ends[2];
    if (syscall(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    struct stat st;
    if (fstat(ends[0], &st) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    device = st.st_dev;
    inode = st.st_ino;
    return true;
  }
  // A program that closes all descriptors may have opened its own under our
  // numbers since.
  bool ours(int fd) const {
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
  }
  bool intact() const { return ours(read_end) && ours(write_end); }
  void abandon() {
    if (ours(read_end)) close(read_end);
    if (ours(write_end)) close(write_end);
    read_end = write_end = -1;
  }
};

std::atomic<Pipe *> g_pipe{nullptr};

// The pipe of this process: a forked child must not share its parent's, nor
// wait for a mutex that a thread of the parent held.
Pipe &process_pipe() {
  const pid_t pid = own_pid();
  Pipe *pipe = g_pipe.load(std::memory_order_acquire);
  while (pipe == nullptr || pipe->pid != pid) {
    auto *fresh = new Pipe;
    fresh->pid = pid;
    if (g_pipe.compare_exchange_strong(pipe, fresh, std::memory_order_acq_rel)) {
      if (pipe != nullptr) pipe->abandon();  // the child's copies of the parent's ends
      return *fresh;
    }
    delete fresh;
  }
  return *pipe;
}

enum class Outcome { done, fault, unavailable };

Outcome pipe_copy(Direction direction, u8 *application, u8 *device, u64 length) {
  Pipe &pipe = process_pipe();
  const std::lock_guard lock(pipe.mutex);
  if (!pipe.intact() && !pipe.open_ends()) return Outcome::unavailable;
  const bool in = direction == Direction::from_application;
  const u8 *source = in ? application : device;
  u8 *target = in ? device : application;
  while (length != 0) {
    // The pipe is empty here, so one page always fits and nothing blocks.
    const long put = syscall(SYS_write, pipe.write_end, source, std::min<u64>(length, 65536));
    if (put <= 0) {
      if (put < 0 && errno == EINTR) continue;
      const bool fault = put < 0 && errno == EFAULT;
      pipe.abandon();
      return fault ? Outcome::fault : Outcome::unavailable;
    }
    for (long left = put; left != 0;) {
      const long got = syscall(SYS_read, pipe.read_end, target, left);
      if (got <= 0) {
        if (got < 0 && errno == EINTR) continue;
        const bool fault = got < 0 && errno == EFAULT;
        pipe.abandon();  // with what is still in it
        return fault ? Outcome::fault : Outcome::unavailable;
      }
      target += got;
      left -= got;
    }
    source += put;
    length -= static_cast<u64>(put);
  }
  return Outcome::done;
}

// --- one batch of application memory ---------------------------------------

bool by_process_vm(Direction direction, iovec *spans, size_t count, u8 *device, u64 length,
                   u64 &done) {
  const long call =
      direction == Direction::from_application ? SYS_process_vm_readv : SYS_process_vm_writev;
  const pid_t self = own_pid();
  while (done < length) {
    const iovec local{device + done, length - done};
    const long n = syscall(call, self, &local, 1ul, spans, count, 0ul);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    done += static_cast<u64>(n);
    // A short copy stops at a fault or at the kernel's limit per call; the
    // next round shows which.
    for (u64 skip = static_cast<u64>(n); skip != 0;) {
      const u64 here = std::min<u64>(skip, spans->iov_len);
      spans->iov_base = static_cast<u8 *>(spans->iov_base) + here;
      spans->iov_len -= here;
      skip -= here;
      if (spans->iov_len != 0) break;
      ++spans;
      --count;
    }
    while (count != 0 && spans->iov_len == 0) {
      ++spans;
      --count;
    }
  }
  return true;
}

// Copies between `spans`, `length` bytes in all, and `device`. Modifies `spans`.
bool transfer(Direction direction, iovec *spans, size_t count, u8 *device, u64 length) {
  if (memory_access() == MemoryAccess::process_vm) {
    u64 done = 0;
    errno = 0;
    if (by_process_vm(direction, spans, count, device, length, done)) return true;
    const int error = errno;
    if (done != 0 || (error != EPERM && error != ENOSYS && error != ESRCH)) return false;
    degrade(MemoryAccess::process_vm, MemoryAccess::pipe, strerror(error));
  }
  for (; count != 0; ++spans, --count) {
    auto *application = static_cast<u8 *>(spans->iov_base);
    if (memory_access() == MemoryAccess::pipe) {
      const Outcome outcome = pipe_copy(direction, application, device, spans->iov_len);
      if (outcome == Outcome::fault) return false;
      if (outcome == Outcome::unavailable)
        degrade(MemoryAccess::pipe, MemoryAccess::plain, strerror(errno));
    }
    if (memory_access() == MemoryAccess::plain) {
      const bool writing = direction == Direction::to_application;
      if (probe(reinterpret_cast<u64>(application), spans->iov_len, writing) != 0) return false;
      if (writing) std::memcpy(application, device, spans->iov_len);
      else std::memcpy(device, application, spans->iov_len);
    }
    device += spans->iov_len;
  }
  return true;
}

bool wraps(u64 address, u64 length) { return length != 0 && address + (length - 1) < address; }

bool copy_spans(Direction direction, const SpanList &list, u64 offset, u8 *device, u64 length) {
  iovec batch[batch_spans];
  size_t count = 0;
  u64 pending = 0;  // bytes of the batch; they start at `device`
  const auto flush = [&] {
    const bool ok = count == 0 || transfer(direction, batch, count, device, pending);
    device += pending;
    count = 0;
    pending = 0;
    return ok;
  };
  for (const Span &span : list) {
    if (length == 0) break;
    if (offset >= span.length) {
      offset -= span.length;
      continue;
    }
    if (span.kind == Span::Kind::gone) return false;
    const u64 address = span.address + offset;
    const u64 bytes = std::min(span.length - offset, length);
    offset = 0;
    length -= bytes;
    if (span.kind == Span::Kind::application) {
      if (wraps(address, bytes)) return false;
      batch[count++] = {reinterpret_cast<void *>(address), bytes};
      pending += bytes;
      if (count == batch_spans && !flush()) return false;
      continue;
    }
    if (!flush()) return false;
    if (span.kind == Span::Kind::direct) {
      auto *own = reinterpret_cast<u8 *>(address);
      if (direction == Direction::from_application) std::memcpy(device, own, bytes);
      else std::memcpy(own, device, bytes);
    } else if (direction == Direction::from_application) {
      std::memset(device, 0, bytes);
    }
    device += bytes;
  }
  return flush() && length == 0;
}

bool copy_one(Direction direction, u64 address, u8 *device, u64 length) {
  if (length == 0) return true;
  if (wraps(address, length)) return false;
  iovec one{reinterpret_cast<void *>(address), length};
  return transfer(direction, &one, 1, device, length);
}

// --- probing ---------------------------------------------------------------

// MADV_POPULATE_* came with Linux 5.14; their EINVAL also says "no such right".
bool populate_supported() {
  static char page[1];
  const u64 at = reinterpret_cast<u64>(page) & ~u64{page_size - 1};
  return calls::madvise(reinterpret_cast<void *>(at), page_size, MADV_POPULATE_READ) == 0;
}

// What old kernels offer instead: whether /proc/self/maps shows the whole range with the
// rights needed. True too when there is no such file to ask.
bool mapped_with_rights(u64 begin, u64 end, bool writable) {
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;
  char buffer[2 * 4096];  // longer than any line: a path is at most 4096
  size_t fill = 0;
  bool ok = false, more = true;
  while (more && !ok) {
    const ssize_t n = read(fd, buffer + fill, sizeof buffer - fill);
    if (n <= 0) break;
    fill += static_cast<size_t>(n);
    char *line = buffer;
    while (auto *newline = static_cast<char *>(
               std::memchr(line, '\n', fill - static_cast<size_t>(line - buffer)))) {
      *newline = 0;
      char *rest = nullptr;
      const u64 low = strtoull(line, &rest, 16);
      const u64 high = *rest == '-' ? strtoull(rest + 1, &rest, 16) : 0;
      line = newline + 1;
      if (high <= begin) continue;
      // Mappings are listed in order: a gap or a wrong right ends the search.
      if (low > begin || rest + 2 >= newline || rest[1] != 'r' || (writable && rest[2] != 'w')) {
        more = false;
        break;
      }
      begin = high;
      if (begin >= end) {
        ok = true;
        break;
      }
    }
    fill -= static_cast<size_t>(line - buffer);
    std::memmove(buffer, line, fill);
  }
  close(fd);
  return ok;
}

// Reading one byte per page brings it in; rights are only looked up, for a
// write could undo what another thread stores meanwhile.
int probe_by_touching(u64 begin, u64 end, bool writable) {
  if (!mapped_with_rights(begin, end, writable)) return EFAULT;
  if (memory_access() == MemoryAccess::plain) return 0;
  u8 byte;
  for (u64 page = begin; page < end; page += page_size)
    if (!read_application(page, &byte, 1)) return EFAULT;
  return 0;
}

}  // namespace

void set_memory_access(bool process_vm) {
  g_access.store(process_vm ? MemoryAccess::process_vm : MemoryAccess::pipe);
}
void force_memory_access(MemoryAccess access) { g_access.store(access); }
MemoryAccess memory_access() { return g_access.load(std::memory_order_relaxed); }

u64 total_length(const SpanList &spans) {
  u64 sum = 0;
  for (const Span &span : spans) sum += span.length;
  return sum;
}

bool read_spans(const SpanList &spans, u64 offset, void *to, u64 length) {
  return copy_spans(Direction::from_application, spans, offset, static_cast<u8 *>(to), length);
}

bool write_spans(const SpanList &spans, u64 offset, const void *from, u64 length) {
  return copy_spans(Direction::to_application, spans, offset,
                    static_cast<u8 *>(const_cast<void *>(from)), length);
}

bool read_application(u64 address, void *to, u64 length) {
  return copy_one(Direction::from_application, address, static_cast<u8 *>(to), length);
}

bool write_application(u64 address, const void *from, u64 length) {
  return copy_one(Direction::to_application, address, static_cast<u8 *>(const_cast<void *>(from)),
                  length);
}

int probe(u64 address, u64 length, bool writable) {
  if (length == 0) return 0;
  if (wraps(address, length) || address + (length - 1) > ~u64{page_size - 1} - 1) return EINVAL;
  const u64 begin = address & ~u64{page_size - 1};
  const u64 end = align_up(address + length, page_size);
  while (calls::madvise(reinterpret_cast<void *>(begin), end - begin,
                        writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // ENOMEM says "not mapped" or "out of memory"; msync shows which.
    if (errno == ENOMEM && msync(reinterpret_cast<void *>(begin), end - begin, MS_ASYNC) == 0)
      return ENOMEM;
    if (errno == EINVAL && !populate_supported()) return probe_by_touching(begin, end, writable);
    return EFAULT;
  }
  return 0;
}

}  // namespace softhca
