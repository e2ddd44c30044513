#include "wire/slot_file.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <new>
#include <string_view>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

namespace softhca {

namespace {

constexpr char slot_prefix[] = "slot.";
constexpr int claim_patience_ms = 10000;

// Closes on scope exit and keeps errno for the caller.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd_ < 0) return;
    const int saved = errno;
    close(fd_);
    errno = saved;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

bool private_directory(const std::string &path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) return false;
  // Below a world-writable directory somebody else may have been first.
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
    errno = EACCES;
    return false;
  }
  if ((st.st_mode & 07777) != 0700 && chmod(path.c_str(), 0700) != 0) return false;
  return access(path.c_str(), W_OK | X_OK) == 0;
}

// Only the owner holds the lock exclusively, so a shared one succeeds exactly
// when the owner is dead; shared, so that testers do not mislead one another.
bool owner_alive(int fd) {
  if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
    flock(fd, LOCK_UN);
    return false;
  }
  return true;
}

FileIdentity identity_of(const struct stat &st) { return {st.st_dev, st.st_ino}; }

void *map_shared(int fd, u64 offset, u64 bytes) {
  void *p =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (p == MAP_FAILED) return nullptr;
  // A child must not keep its parent's lock or rings, nor fill core files.
  madvise(p, bytes, MADV_DONTFORK);
  madvise(p, bytes, MADV_DONTDUMP);
  return p;
}

int reserve_bytes(int fd, u64 offset, u64 bytes) {
  int e;
  do {
    e = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (e == EINTR);
  return e;
}

// Exceeding RLIMIT_FSIZE raises a signal whose default is death.
bool size_permitted(u64 bytes) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         bytes <= limit.rlim_cur;
}

// The lock that makes claims one at a time. Not waited for without end: its
// holder may be a stopped process.
bool lock_claims(int fd) {
  for (int ms = 0; ms < claim_patience_ms; ++ms) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    const timespec one_ms{0, 1000000};
    nanosleep(&one_ms, nullptr);
  }
  errno = EBUSY;
  return false;
}

// Makes the file complete and locked under another name, so that whoever finds
// it under its slot's name finds it usable.
Control *create_slot_file(const std::string &directory, u16 slot, u32 ring_bytes) {
  const u64 bytes = control_file_bytes(ring_bytes);
  if (!size_permitted(bytes)) {
    SOFTHCA_LOG(error, "fabric: RLIMIT_FSIZE is below the %llu bytes (sparse) of a control file",
                static_cast<unsigned long long>(bytes));
    errno = EFBIG;
    return nullptr;
  }
  const std::string fresh = directory + "/new";
  unlink(fresh.c_str());
  const Descriptor fd(open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return nullptr;
  int error = 0;
  void *p = nullptr;
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 ||
      ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    error = errno;
  else if ((error = reserve_bytes(fd.get(), 0, control_bytes)) == 0) {
    p = map_shared(fd.get(), 0, control_bytes);
    if (p == nullptr) error = errno;
  }
  if (error == 0) {
    auto *control = new (p) Control{};
    control->magic = control_magic;
    control->version = control_version;
    control->pid = static_cast<u32>(getpid());
    control->ring_bytes = ring_bytes;
    if (rename(fresh.c_str(), slot_path(directory, slot).c_str()) == 0) return control;
    error = errno;
    munmap(p, control_bytes);
  }
  unlink(fresh.c_str());
  errno = error;
  return nullptr;
}

Descriptor open_slot(const std::string &directory, u16 slot) {
  return Descriptor(open(slot_path(directory, slot).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace

std::string fabric_directory(const std::string &name) {
  constexpr std::string_view allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (name.empty() || name.size() > 64 || name.find_first_not_of(allowed) != std::string::npos) {
    errno = EINVAL;
    return {};
  }
  const char *tmpdir = getenv("TMPDIR");
  for (const char *base : {"/dev/shm", tmpdir, "/tmp"}) {
    if (base == nullptr || *base == 0) continue;
    std::string path = std::string(base) + "/softhca-" + std::to_string(geteuid()) + "-" + name;
    if (private_directory(path)) return path;
  }
  return {};
}

std::string slot_path(const std::string &directory, u16 slot) {
  return directory + "/" + slot_prefix + std::to_string(slot);
}

void existing_slots(const std::string &directory, u64 (&bits)[max_slots / 64]) {
  for (u64 &word : bits) word = 0;
  DIR *dir = opendir(directory.c_str());
  if (dir == nullptr) return;
  while (const dirent *entry = readdir(dir)) {
    const std::string_view file = entry->d_name;
    if (!file.starts_with(slot_prefix)) continue;
    const std::string_view digits = file.substr(sizeof slot_prefix - 1);
    unsigned slot = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slot);
    if (error == std::errc{} && end == digits.data() + digits.size() && slot > 0 &&
        slot < max_slots)
      bits[slot / 64] |= u64{1} << slot % 64;
  }
  closedir(dir);
}

Control *claim_slot(const std::string &directory, u32 ring_bytes, u16 &slot) {
  const Descriptor claim(
      open((directory + "/claim").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!claim || !lock_claims(claim.get())) return nullptr;

  u64 taken[max_slots / 64];
  existing_slots(directory, taken);
  u16 free_slot = 0;
  for (u16 s = max_slots - 1; s > 0; --s) {
    if (taken[s / 64] >> s % 64 & 1) {
      const Descriptor fd = open_slot(directory, s);
      if (fd ? owner_alive(fd.get()) : errno != ENOENT) continue;
      if (fd && unlink(slot_path(directory, s).c_str()) != 0 && errno != ENOENT) continue;
    }
    free_slot = s;
  }
  Control *control = nullptr;
  if (free_slot != 0) control = create_slot_file(directory, free_slot, ring_bytes);
  else errno = ENOSPC;
  const int saved = errno;
  flock(claim.get(), LOCK_UN);  // a child forked meanwhile shares the lock: closing is not enough
  errno = saved;
  slot = free_slot;
  return control;
}

Control *map_control(const std::string &directory, u16 slot, FileIdentity &identity) {
  const Descriptor fd = open_slot(directory, slot);
  struct stat st;
  if (!fd) {
    if (errno == ENOENT) errno = ESRCH;
    return nullptr;
  }
  if (fstat(fd.get(), &st) != 0) return nullptr;
  if (!owner_alive(fd.get())) {
    errno = ESRCH;
    return nullptr;
  }
  // Reading beyond the end of a file is SIGBUS: look before mapping.
  if (static_cast<u64>(st.st_size) < control_bytes) {
    errno = EPROTO;
    return nullptr;
  }
  void *p = map_shared(fd.get(), 0, control_bytes);
  if (p == nullptr) return nullptr;
  auto *control = static_cast<Control *>(p);
  const u32 ring = control->ring_bytes;
  if (control->magic != control_magic || control->version != control_version ||
      ring < min_ring_bytes || ring > max_ring_bytes || (ring & (ring - 1)) != 0 ||
      static_cast<u64>(st.st_size) < control_file_bytes(ring)) {
    munmap(p, control_bytes);
    errno = EPROTO;
    return nullptr;
  }
  identity = identity_of(st);
  return control;
}

u8 *map_segment(const std::string &directory, u16 slot, const FileIdentity &identity, u16 sender,
                u32 ring_bytes, bool allocate) {
  const Descriptor fd = open_slot(directory, slot);
  struct stat st;
  if (!fd || fstat(fd.get(), &st) != 0) return nullptr;
  if (identity_of(st) != identity ||
      static_cast<u64>(st.st_size) < control_file_bytes(ring_bytes)) {
    errno = ESRCH;
    return nullptr;
  }
  const u64 offset = segment_offset(sender, ring_bytes);
  if (allocate) {
    if (!size_permitted(offset + ring_bytes)) {
      errno = EFBIG;
      return nullptr;
    }
    if (const int e = reserve_bytes(fd.get(), offset, ring_bytes)) {
      errno = e;
      return nullptr;
    }
  }
  return static_cast<u8 *>(map_shared(fd.get(), offset, ring_bytes));
}

bool live_identity(const std::string &directory, u16 slot, FileIdentity &identity) {
  const Descriptor fd = open_slot(directory, slot);
  struct stat st;
  if (!fd || fstat(fd.get(), &st) != 0 || !owner_alive(fd.get())) return false;
  identity = identity_of(st);
  return true;
}

}  // namespace softhca
