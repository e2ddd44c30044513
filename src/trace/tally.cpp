#include "trace/tally.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace ibvexp::trace {

namespace {

Tally *mine = nullptr;

Tally *map(int fd) noexcept {
  void *at = mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at != MAP_FAILED ? static_cast<Tally *>(at) : nullptr;
}

std::uintptr_t instruction_of(const void *context) noexcept {
  const auto &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
#ifdef __x86_64__
  return static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#else
  return machine.pc;
#endif
}

// Finds the file that is mapped at an address, in the lines of /proc/self/maps.
class FileAt {
 public:
  // A path has room for its end.
  FileAt(std::uintptr_t address, char *path, std::size_t room) noexcept
      : address_(address), path_(path), room_(room) {}

  // True: the path is complete.
  bool take(char c) noexcept {
    if (c == '\n') {
      const bool found = bounds_[0] <= address_ && address_ < bounds_[1];
      path_[found ? length_ : 0] = '\0';
      bounds_[0] = bounds_[1] = 0;
      bound_ = length_ = 0;
      return found;
    }
    if (bound_ < 2) {
      if (c == '-' || c == ' ') ++bound_;
      else
        bounds_[bound_] =
            bounds_[bound_] << 4 | static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    } else if ((c == '/' || length_ != 0) && length_ + 1 < room_) {
      path_[length_++] = c;
    }
    return false;
  }

 private:
  const std::uintptr_t address_;
  char *const path_;
  const std::size_t room_;
  std::uintptr_t bounds_[2]{};
  unsigned bound_ = 0;
  std::size_t length_ = 0;
};

void note_crash(std::uintptr_t address) noexcept {
  if (mine->crashes.fetch_add(1, std::memory_order_relaxed) != 0) return;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  FileAt file(address, mine->crashed_in, sizeof(mine->crashed_in));
  char lines[512];
  bool found = false;
  for (ssize_t got; !found && (got = read(fd, lines, sizeof(lines))) > 0;)
    for (ssize_t i = 0; !found && i < got; ++i) found = file.take(lines[i]);
  close(fd);
}

// The action is the default one again. The instruction fails once more then; a signal that
// another process sent does not come again by itself.
void crash(int number, siginfo_t *info, void *context) noexcept {
  if (info->si_code > 0) note_crash(instruction_of(context));
  else raise(number);
}

}  // namespace

Tally *make_tally(const char *file) noexcept {
  const int fd = open(file, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  // All of it, or a full disk would kill the program later.
  const int error = posix_fallocate(fd, 0, sizeof(Tally));
  Tally *made = error == 0 ? map(fd) : nullptr;
  const int reason = error != 0 ? error : errno;
  close(fd);
  errno = reason;
  if (made == nullptr) return nullptr;
  made->tables = tables_hash;
  std::memcpy(made->magic, tally_magic, sizeof(tally_magic));
  return made;
}

Tally *open_tally(const char *file) noexcept {
  if (*file == '\0') return nullptr;
  const int fd = open(file, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  Tally *found = nullptr;
  struct stat status;
  if (fstat(fd, &status) == 0 && status.st_size == static_cast<off_t>(sizeof(Tally)))
    found = map(fd);
  close(fd);
  if (found == nullptr) return nullptr;
  // Of another build of the tool: rows have other numbers.
  if (std::memcmp(found->magic, tally_magic, sizeof(tally_magic)) == 0 &&
      found->tables == tables_hash)
    return found;
  munmap(found, sizeof(Tally));
  return nullptr;
}

void join_tally(const char *file) noexcept {
  mine = open_tally(file);
  if (mine != nullptr) mine->processes.fetch_add(1, std::memory_order_relaxed);
}

void count_refusal(RowIndex row) noexcept {
  if (mine != nullptr) mine->refused[row].fetch_add(1, std::memory_order_relaxed);
}

void count_hidden(RowIndex row) noexcept {
  if (mine != nullptr) mine->hidden[row].fetch_add(1, std::memory_order_relaxed);
}

bool is_counting() noexcept { return mine != nullptr; }

void note_crashes() noexcept {
  if (mine == nullptr) return;
  for (const int number : {SIGSEGV, SIGBUS, SIGILL}) {
    struct sigaction had, ours{};
    ours.sa_sigaction = crash;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
    if (sigaction(number, nullptr, &had) == 0 && (had.sa_flags & SA_SIGINFO) == 0 &&
        had.sa_handler == SIG_DFL)
      sigaction(number, &ours, nullptr);
  }
}

void count_search(bool found) noexcept {
  if (mine == nullptr) return;
  mine->searches.fetch_add(1, std::memory_order_relaxed);
  if (found) mine->finds.fetch_add(1, std::memory_order_relaxed);
}

void count_opener() noexcept {
  static std::atomic<bool> counted{false};
  if (mine == nullptr || counted.exchange(true)) return;
  mine->openers.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ibvexp::trace
