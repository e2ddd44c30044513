#include "wire/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "base/limits.h"
#include "base/log.h"
#include "base/memory_calls.h"
#include "wire/listing.h"

namespace softhca {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "softhca-";
constexpr char users_file[] = "/users";
// Ends the name of a directory that is being removed, before its number: no
// fabric's name has it.
constexpr char removed_mark = '~';
// A cleaner holds the lock for the time it takes to remove a few files.
constexpr int lock_max_wait_ms = 5000;
constexpr int exit_max_wait_ms = 1000;

// A directory in use. Never freed, and reached without a lock: a thread that
// another one forked beside must not leave one locked.
struct Use {
  std::string name, path;
  std::atomic<void *> lock;
  Use *next;
};
constinit std::atomic<Use *> g_uses{nullptr};
constinit std::atomic<int> g_complained{0};

struct HeldSlot {
  std::string directory;
  OwnSlot *own;
  pid_t pid;
};
std::mutex &slots_mutex() {
  static auto &mutex = *new std::mutex;
  return mutex;
}
std::vector<HeldSlot> &held_slots() {
  static auto &list = *new std::vector<HeldSlot>;
  return list;
}

int fail(const std::string &path, int error, const char *why = nullptr) {
  // Not for every path that a program looks up.
  if (g_complained.exchange(error) != error)
    SOFTHCA_LOG(error, "fabric: %s: %s%s", path.c_str(), why != nullptr ? why : strerror(error),
                limit_behind(error, path.c_str()).text);
  return error;
}

void nap_1ms() {
  const timespec one_ms{0, 1000000};
  nanosleep(&one_ms, nullptr);
}

std::string base_directory() {
  const char *tmpdir = getenv("TMPDIR");
  for (const char *base : {"/dev/shm", tmpdir})
    if (base != nullptr && *base == '/' && access(base, W_OK | X_OK) == 0) return base;
  return "/tmp";
}

// 0 or errno, logged. Not found elsewhere: the other processes of the fabric
// would not follow.
int make_private(const std::string &path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail(path, errno);
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) return errno == ENOENT ? EAGAIN : fail(path, errno);
  // Below a world-writable directory another user may have been first.
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
    return fail(path, EACCES,
                ("the name is taken by user " + std::to_string(st.st_uid) +
                 "; SOFTHCA_FABRIC gives the fabric another one")
                    .c_str());
  if ((st.st_mode & 07777) != 0700 && chmod(path.c_str(), 0700) != 0) return fail(path, errno);
  return 0;
}

bool same_file(int fd, const std::string &path) {
  struct stat open_one, named;
  return fstat(fd, &open_one) == 0 && lstat(path.c_str(), &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

// Holds the shared lock. EAGAIN: the directory went away meanwhile.
int hold(const std::string &path, void *&lock) {
  const std::string users = path + users_file;
  const int fd = open(users.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno == ENOENT ? EAGAIN : fail(users, errno);
  int error = EBUSY;
  for (int ms = 0; error == EBUSY && ms < lock_max_wait_ms; ++ms) {
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
      error = 0;
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      error = errno;
    } else {
      nap_1ms();
    }
  }
  if (error == 0 && !same_file(fd, users)) error = EAGAIN;
  if (error == 0) {
    lock = calls::mmap(nullptr, page_size, PROT_READ, MAP_SHARED, fd, 0);  // never touched
    if (lock == MAP_FAILED) error = errno;
  }
  close(fd);
  return error == 0 || error == EAGAIN ? error : fail(users, error);
}

bool valid_name(const std::string &name) {
  constexpr std::string_view allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 64 && name.find_first_not_of(allowed) == std::string::npos;
}

// "softhca-<uid>-<name>" to its parts.
bool parse_entry(std::string_view file, FabricEntry &out) {
  if (!file.starts_with(prefix)) return false;
  const std::string_view rest = file.substr(prefix.size());
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out.uid);
  const size_t digits = static_cast<size_t>(end - rest.data());
  if (error != std::errc{} || digits + 1 >= rest.size() || *end != '-') return false;
  out.name = rest.substr(digits + 1);
  return true;
}

std::vector<FabricEntry> entries_below(const std::string &base) {
  std::vector<FabricEntry> list;
  DIR *dir = opendir(base.c_str());
  if (dir == nullptr) return list;
  while (const dirent *entry = readdir(dir)) {
    FabricEntry e;
    if (!parse_entry(entry->d_name, e)) continue;
    e.path = base + '/' + entry->d_name;
    struct stat st;
    if (lstat(e.path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) list.push_back(std::move(e));
  }
  closedir(dir);
  return list;
}

// Two users, one name: they would wait for each other.
void report_namesakes(const std::string &base, const std::string &name) {
  for (const FabricEntry &e : entries_below(base))
    if (e.name == name && e.uid != geteuid())
      SOFTHCA_LOG(warn,
                  "fabric %s: user %u has one of this name as well; processes of different users "
                  "do not see one another",
                  name.c_str(), e.uid);
}

bool any_live_slot(const std::string &path) {
  u64 slots[max_slots / 64];
  existing_slots(path, slots);
  FileIdentity ignored;
  for (u16 s = 1; s < max_slots; ++s)
    if ((slots[s / 64] >> s % 64 & 1) != 0 && live_identity(path, s, ignored)) return true;
  return false;
}

std::vector<std::string> names_in(const std::string &path, std::error_code &ec) {
  std::vector<std::string> names;
  for (const fs::directory_entry &entry : fs::directory_iterator(path, ec))
    names.push_back(entry.path().filename());
  return names;
}

// Takes one descriptor at a time, however deep it goes.
void remove_tree(const std::string &path, std::error_code &ec) {
  if (unlink(path.c_str()) == 0) return;
  for (const std::string &name : names_in(path, ec)) remove_tree(path + '/' + name, ec);
  if (!ec && rmdir(path.c_str()) != 0) ec = std::error_code(errno, std::generic_category());
}

// Removes all of a directory whose file of users is locked as `fd`; 0 or errno.
// It gives up its name first: a process can end in the middle, and what it
// leaves must not be taken for a fabric.
int remove_directory(const std::string &path, int fd) {
  std::string gone = path;
  struct stat st;
  if (fstat(fd, &st) != 0) return errno;
  if (path.find(removed_mark) == std::string::npos) {
    gone += removed_mark + std::to_string(st.st_ino);
    if (rename(path.c_str(), gone.c_str()) != 0) return errno;
  }
  const std::string users = gone + users_file;
  std::error_code ec;
  for (const std::string &name : names_in(gone, ec))
    if (const std::string entry = gone + '/' + name; entry != users) remove_tree(entry, ec);
  if (ec) return ec.value();
  // Last: it marks the directory as a fabric, so that another process can remove the rest.
  return unlink(users.c_str()) == 0 && rmdir(gone.c_str()) == 0 ? 0 : errno;
}

// Removes an unused fabric; 0 or errno. Without `always`, only what says that
// it is a fabric of this version.
int remove_unused(const std::string &path, bool always) {
  const std::string users = path + users_file;
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) return errno;
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) return EACCES;
  // All that is left of one whose removal stopped behind its last file; whoever
  // is about to fill a new one makes another.
  if (!always && rmdir(path.c_str()) == 0) return 0;
  const int fd =
      open(users.c_str(), O_RDWR | (always ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  int error = 0;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 || any_live_slot(path)) {
    error = EBUSY;
  } else if (same_file(fd, users)) {
    error = remove_directory(path, fd);
  }
  close(fd);
  return error;
}

}  // namespace

std::string fabric_directory(const std::string &name) {
  for (const Use *u = g_uses.load(std::memory_order_acquire); u != nullptr; u = u->next)
    if (u->name == name && u->lock.load(std::memory_order_relaxed) != nullptr) return u->path;
  if (!valid_name(name)) {
    errno = EINVAL;
    return {};
  }
  leave_fabrics_at_exit();
  const std::string base = base_directory();
  const std::string path =
      base + '/' + std::string(prefix) + std::to_string(geteuid()) + '-' + name;
  void *lock = nullptr;
  int error = EAGAIN;
  // Again only when the last user removed it between two steps of ours.
  for (int attempt = 0; error == EAGAIN && attempt < 1000; ++attempt)
    if ((error = make_private(path)) == 0) error = hold(path, lock);
  if (error != 0) {
    errno = error;
    return {};
  }
  report_namesakes(base, name);
  auto *use = new Use{name, path, lock, g_uses.load()};
  while (!g_uses.compare_exchange_weak(use->next, use)) {
  }
  return path;
}

void remember_slot(const std::string &directory, OwnSlot &own) {
  const std::lock_guard lock(slots_mutex());
  held_slots().push_back({directory, &own, getpid()});
}

void forget_slot(OwnSlot &own) {
  const std::lock_guard lock(slots_mutex());
  std::erase_if(held_slots(), [&](const HeldSlot &h) { return h.own == &own; });
}

void leave_fabrics() {
  {
    // try: a thread may have been forked away while it held this.
    const std::unique_lock lock(slots_mutex(), std::try_to_lock);
    if (lock.owns_lock())
      for (const HeldSlot &h : held_slots())
        if (h.pid == getpid()) abandon_slot(h.directory, *h.own);
  }
  std::string bases;
  for (Use *u = g_uses.load(std::memory_order_acquire); u != nullptr; u = u->next) {
    void *lock = u->lock.exchange(nullptr);
    if (lock == nullptr) continue;
    calls::munmap(lock, page_size);
    (void)remove_unused(u->path, false);
    // What killed processes left is removed by the next process of the same user.
    const std::string base = u->path.substr(0, u->path.rfind('/'));
    if (bases.find(base + '\n') != std::string::npos) continue;
    bases += base + '\n';
    for (const FabricEntry &e : entries_below(base))
      if (e.uid == geteuid()) (void)remove_unused(e.path, false);
  }
}

namespace {

// Leaving takes a few descriptors at a time.
bool has_descriptors() {
  int fds[3];
  size_t count = 0;
  while (count < std::size(fds) && (fds[count] = open("/", O_PATH | O_CLOEXEC)) >= 0) ++count;
  for (size_t i = 0; i < count; ++i) close(fds[i]);
  return count == std::size(fds);
}

// Where the program has used them up: by a thread with a table of its own, which closes its
// copies of the first ones. The program's stay open: its streams are flushed after this.
void leave_by_thread() {
  const auto leave = [](void *) -> void * {
    if (syscall(SYS_unshare, CLONE_FILES) == 0)
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) syscall(SYS_close, fd);
    leave_fabrics();
    return nullptr;
  };
  pthread_t thread;
  if (pthread_create(&thread, nullptr, leave, nullptr) == 0) pthread_join(thread, nullptr);
}

}  // namespace

void leave_fabrics_at_exit() {
  static std::atomic<bool> once{false};
  if (once.exchange(true)) return;
  // Unlike atexit() this does not belong to a library: registered before
  // main(), it comes after the destructors of all of them.
  static std::atomic<bool> left{false};
  // Called last, by a second thread that calls exit() while the first one is
  // about the other function, or has only just taken it: the process would end in
  // the middle of it.
  on_exit(
      [](int, void *) {
        for (int ms = 0; !left.load() && ms < exit_max_wait_ms; ++ms) nap_1ms();
      },
      nullptr);
  on_exit(
      [](int, void *) {
        if (has_descriptors()) leave_fabrics();
        else leave_by_thread();
        left.store(true);
      },
      nullptr);
}

std::vector<FabricEntry> list_fabrics() {
  std::vector<std::string> bases = {"/dev/shm", "/tmp"};
  if (const char *tmpdir = getenv("TMPDIR"); tmpdir != nullptr && *tmpdir == '/') {
    std::string base = tmpdir;
    while (base.size() > 1 && base.back() == '/') base.pop_back();
    if (std::find(bases.begin(), bases.end(), base) == bases.end()) bases.push_back(base);
  }
  std::vector<FabricEntry> all;
  for (const std::string &base : bases)
    for (FabricEntry &e : entries_below(base)) {
      e.readable = access(e.path.c_str(), R_OK | X_OK) == 0;
      if (e.readable) {
        const int fd = open((e.path + users_file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        e.used = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
        if (fd >= 0) close(fd);
        u64 slots[max_slots / 64];
        existing_slots(e.path, slots);
        for (u16 s = 1; s < max_slots; ++s) {
          FileIdentity ignored;
          SlotRecord record{};
          if ((slots[s / 64] >> s % 64 & 1) == 0 || !live_identity(e.path, s, ignored)) continue;
          e.used = true;
          (void)read_slot(e.path, s, record);
          if (record.primary != 0) continue;  // another number of a member
          e.members.push_back({s, record.pid});
        }
      }
      all.push_back(std::move(e));
    }
  return all;
}

bool remove_fabric(const std::string &path) {
  errno = remove_unused(path, true);
  return errno == 0;
}

}  // namespace softhca
