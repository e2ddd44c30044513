#include "trace/tally.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ibvexp::trace {

namespace {

Tally *mine = nullptr;

Tally *map(int fd) noexcept {
  void *at = mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at != MAP_FAILED ? static_cast<Tally *>(at) : nullptr;
}

void note_object(const char *path) noexcept {
  const std::size_t length = std::strlen(path) + 1;
  const std::uint32_t at =
      mine->objects_used.fetch_add(static_cast<std::uint32_t>(length), std::memory_order_relaxed);
  if (at + length <= sizeof(mine->objects)) std::memcpy(mine->objects + at, path, length);
}

int note_each(dl_phdr_info *info, std::size_t, void *) noexcept {
  // The program itself has no name here, and a virtual object of the kernel none
  // that is a path.
  if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') note_object(info->dlpi_name);
  return 0;
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

void join_tally(const char *file) noexcept {
  if (*file == '\0') return;
  const int fd = open(file, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  struct stat status;
  if (fstat(fd, &status) == 0 && status.st_size == static_cast<off_t>(sizeof(Tally)))
    mine = map(fd);
  close(fd);
  if (mine == nullptr) return;
  // Of another build of the tool: rows have other numbers.
  if (std::memcmp(mine->magic, tally_magic, sizeof(tally_magic)) != 0 ||
      mine->tables != tables_hash) {
    munmap(mine, sizeof(Tally));
    mine = nullptr;
    return;
  }
  mine->processes.fetch_add(1, std::memory_order_relaxed);
}

void count_refusal(RowIndex row) noexcept {
  if (mine != nullptr) mine->refused[row].fetch_add(1, std::memory_order_relaxed);
}

void note_objects() noexcept {
  static std::atomic<bool> noted{false};
  if (mine == nullptr || noted.exchange(true)) return;
  char program[512];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length > 0) {
    program[length] = '\0';
    note_object(program);
  }
  dl_iterate_phdr(note_each, nullptr);
}

}  // namespace ibvexp::trace
