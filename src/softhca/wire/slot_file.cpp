#include "wire/slot_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>

#include "base/limits.h"
#include "base/log.h"
#include "base/memory_calls.h"

namespace softhca {

namespace {

constexpr char slot_prefix[] = "slot.";
constexpr int claim_max_wait_ms = 10000;

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

// A child must not keep its parent's lock or rings, nor fill core files.
void keep_private(void *p, u64 bytes) {
  calls::madvise(p, bytes, MADV_DONTFORK);
  calls::madvise(p, bytes, MADV_DONTDUMP);
}

// Keeps the lock of the open file for as long as it is mapped.
void *map_lock(int fd) {
  void *p = calls::mmap(nullptr, page_size, PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return nullptr;
  keep_private(p, page_size);
  return p;
}

// Attaches to the whole and keeps a part: memory has no other way. By system
// call, because programs with hooks on these functions keep books on memory.
u8 *attach(i32 memory, u64 bytes, u64 offset, u64 kept) {
  const long address = syscall(SYS_shmat, memory, nullptr, 0);
  if (address == -1) return nullptr;
  auto *whole = reinterpret_cast<u8 *>(address);
  if (offset != 0) syscall(SYS_munmap, whole, offset);
  if (offset + kept != bytes) syscall(SYS_munmap, whole + offset + kept, bytes - offset - kept);
  keep_private(whole + offset, kept);
  return whole + offset;
}

// 0 or the errno that says what to do: ESRCH when the memory is gone.
int memory_size(i32 memory, u64 &bytes) {
  shmid_ds status;
  if (shmctl(memory, IPC_STAT, &status) != 0)
    return errno == EINVAL || errno == EIDRM ? ESRCH : errno;
  bytes = status.shm_segsz;
  return 0;
}

// What is reserved cannot fail to be touched. Kernels before 5.14 do not know
// how; there a machine without memory ends processes as it always did.
int reserve_pages(void *p, u64 bytes) {
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE
  if (calls::madvise(p, bytes, populate_write) == 0 || errno == EINVAL) return 0;
  return errno;
}

// The lock that makes claims one at a time. Not waited for without end: its
// holder may be a stopped process.
bool lock_claims(int fd) {
  for (int ms = 0; ms < claim_max_wait_ms; ++ms) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    const timespec one_ms{0, 1000000};
    nanosleep(&one_ms, nullptr);
  }
  errno = EBUSY;
  return false;
}

// Memory of our own, gone when its last user is.
int create_memory(u32 ring_bytes, OwnSlot &own) {
  const u64 bytes = memory_bytes(ring_bytes);
  own.memory = shmget(IPC_PRIVATE, bytes, IPC_CREAT | SHM_NORESERVE | 0600);
  if (own.memory < 0) {
    const int error = errno;
    SOFTHCA_LOG(error, "fabric: cannot create System V shared memory: %s%s", strerror(error),
                error == ENOSPC   ? " (kernel.shmmni or kernel.shmall)"
                : error == EINVAL ? " (kernel.shmmax)"
                                  : limit_behind(error).text);
    return error;
  }
  u8 *p = attach(own.memory, bytes, 0, control_bytes);
  int error = p == nullptr ? errno : 0;
  shmctl(own.memory, IPC_RMID, nullptr);
  if (p != nullptr && (error = reserve_pages(p, control_bytes)) != 0)
    calls::munmap(p, control_bytes);
  if (error != 0) {
    SOFTHCA_LOG(error, "fabric: %llu bytes of shared memory cannot be mapped: %s%s",
                static_cast<unsigned long long>(bytes), strerror(error), limit_behind(error).text);
    return error;
  }
  own.control = new (p) Control{};
  return 0;
}

// Makes the file complete and locked under another name, so that whoever finds
// it under its slot's name finds it usable.
int create_slot_file(const std::string &directory, u32 ring_bytes, u16 primary, OwnSlot &own) {
  const std::string fresh = directory + "/new";
  unlink(fresh.c_str());
  const Descriptor fd(open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const SlotRecord record{.magic = control_magic,
                          .version = control_version,
                          .pid = static_cast<u32>(getpid()),
                          .ring_bytes = ring_bytes,
                          .memory = own.memory,
                          .primary = primary};
  struct stat st;
  const auto fails = [&] {
    if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return true;
    if ((errno = write_all(fd.get(), &record, sizeof record, 0)) != 0) return true;
    return fstat(fd.get(), &st) != 0 || (own.lock = map_lock(fd.get())) == nullptr ||
           rename(fresh.c_str(), slot_path(directory, own.number).c_str()) != 0;
  };
  if (fails()) {
    const int error = errno;
    unlink(fresh.c_str());
    const std::string file = slot_path(directory, own.number);
    SOFTHCA_LOG(error, "fabric: %s cannot be made: %s%s", file.c_str(), strerror(error),
                limit_behind(error, file.c_str()).text);
    return error;
  }
  own.identity = identity_of(st);
  return 0;
}

Descriptor open_slot(const std::string &directory, u16 slot) {
  return Descriptor(open(slot_path(directory, slot).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace

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

namespace {

// `make` has a free slot's number in `own` and makes the rest of it; 0 or errno.
template <class Make>
bool claim(const std::string &directory, OwnSlot &own, Make make) {
  const std::string path = directory + "/claim";
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || !lock_claims(file.get())) {
    const int error = errno;
    SOFTHCA_LOG(error, "fabric: %s: %s%s", path.c_str(), strerror(error), limit_behind(error).text);
    errno = error;
    return false;
  }

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
  own = OwnSlot{};
  own.number = free_slot;
  int error = 0;
  if (free_slot == 0) {
    error = ENOSPC;
    SOFTHCA_LOG(error, "fabric: all %u slots of %s are taken", max_slots - 1, directory.c_str());
  } else {
    error = make();
  }
  flock(file.get(), LOCK_UN);  // a child forked meanwhile shares the lock: closing is not enough
  errno = error;
  return error == 0;
}

}  // namespace

bool claim_slot(const std::string &directory, u32 ring_bytes, OwnSlot &own) {
  return claim(directory, own, [&] {
    int error = create_memory(ring_bytes, own);
    if (error == 0 && (error = create_slot_file(directory, ring_bytes, 0, own)) != 0)
      leave_slot(directory, own);
    return error;
  });
}

bool claim_further_slot(const std::string &directory, u32 ring_bytes, const OwnSlot &primary,
                        OwnSlot &own) {
  return claim(directory, own, [&] {
    own.memory = primary.memory;
    return create_slot_file(directory, ring_bytes, primary.number, own);
  });
}

void abandon_slot(const std::string &directory, OwnSlot &own) {
  if (own.control != nullptr) own.control->closed.store(1, std::memory_order_release);
  unlink(slot_path(directory, own.number).c_str());
  calls::munmap(own.lock, page_size);
  own.lock = nullptr;
}

void leave_slot(const std::string &directory, OwnSlot &own) {
  if (own.lock != nullptr) {
    unlink(slot_path(directory, own.number).c_str());
    calls::munmap(own.lock, page_size);
  }
  if (own.control != nullptr) calls::munmap(own.control, control_bytes);
  own = OwnSlot{};
}

namespace {

bool read_record(int fd, SlotRecord &record) {
  const ssize_t n = pread(fd, &record, sizeof record, 0);
  const u32 ring = record.ring_bytes;
  if (n == sizeof record && record.magic == control_magic && record.version == control_version &&
      ring >= min_ring_bytes && ring <= max_ring_bytes && (ring & (ring - 1)) == 0 &&
      record.primary < max_slots)
    return true;
  errno = EPROTO;
  return false;
}

}  // namespace

bool read_slot(const std::string &directory, u16 slot, SlotRecord &record) {
  const Descriptor fd = open_slot(directory, slot);
  if (fd) return read_record(fd.get(), record);
  if (errno == ENOENT) errno = ESRCH;
  return false;
}

bool map_control(const std::string &directory, u16 slot, PeerSlot &peer) {
  const Descriptor fd = open_slot(directory, slot);
  struct stat st;
  if (!fd) {
    if (errno == ENOENT) errno = ESRCH;
    return false;
  }
  if (fstat(fd.get(), &st) != 0) return false;
  if (!owner_alive(fd.get())) {
    errno = ESRCH;
    return false;
  }
  SlotRecord record;
  u64 bytes = 0;
  if (!read_record(fd.get(), record)) return false;
  if (record.primary != 0) {
    peer = {.primary = static_cast<u16>(record.primary), .identity = identity_of(st)};
    return true;
  }
  if (const int error = memory_size(record.memory, bytes)) {
    // Alive, but its memory is not to be seen: a container that shares
    // /dev/shm with us and not the IPC namespace.
    errno = error == ESRCH && owner_alive(fd.get()) ? EXDEV : error;
    return false;
  }
  if (bytes != memory_bytes(record.ring_bytes)) {
    errno = EPROTO;
    return false;
  }
  u8 *p = attach(record.memory, bytes, 0, control_bytes);
  if (p == nullptr) return false;
  peer = {.control = reinterpret_cast<Control *>(p),
          .memory = record.memory,
          .ring_bytes = record.ring_bytes,
          .pid = record.pid,
          .identity = identity_of(st)};
  return true;
}

u8 *map_segment(i32 memory, u16 sender, u32 ring_bytes, bool allocate) {
  u64 bytes = 0;
  int error = memory_size(memory, bytes);
  if (error == 0 && bytes != memory_bytes(ring_bytes)) error = ESRCH;
  u8 *p = nullptr;
  if (error == 0 &&
      (p = attach(memory, bytes, segment_offset(sender, ring_bytes), ring_bytes)) == nullptr)
    error = errno == EINVAL || errno == EIDRM ? ESRCH : errno;
  if (p != nullptr && allocate && (error = reserve_pages(p, ring_bytes)) != 0) {
    calls::munmap(p, ring_bytes);
    p = nullptr;
  }
  errno = error;
  return p;
}

bool live_identity(const std::string &directory, u16 slot, FileIdentity &identity) {
  const Descriptor fd = open_slot(directory, slot);
  struct stat st;
  if (!fd || fstat(fd.get(), &st) != 0 || !owner_alive(fd.get())) return false;
  identity = identity_of(st);
  return true;
}

}  // namespace softhca
