#include "trace/trace_document.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/output_file.h"
#include "trace/trace_record.h"

namespace ibvexp::trace {

namespace {

constexpr std::string_view head = "{\"format\":\"ibvexp-trace\",\"version\":1,\"processes\":[\n";
constexpr std::string_view tail = "\n]}\n";

bool reads(int fd, off_t at, std::string_view wanted) {
  char have[64];
  return pread(fd, have, wanted.size(), at) == static_cast<ssize_t>(wanted.size()) &&
         std::memcmp(have, wanted.data(), wanted.size()) == 0;
}

// 0 or an errno value.
int write_at(int fd, off_t at, const char *bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t written = pwrite(fd, bytes, count, at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes += written;
    at += written;
    count -= static_cast<std::size_t>(written);
  }
  return 0;
}

// From /proc/PID/stat, fields 3 and 22. 0 if it is not there.
struct ProcessStat {
  char state;
  std::uint64_t start_ticks;
};

ProcessStat stat_of(int pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t got = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (got <= 0) return {};
  text[got] = '\0';
  // The name of the program may contain anything; the state follows it.
  const char *at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0') return {};
  const char state = at[2];
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return {state, at != nullptr ? std::strtoull(at, nullptr, 10) : 0};
}

template <std::size_t n>
bool same_text(const char (&a)[n], const char (&b)[n]) {
  return std::strncmp(a, b, n) == 0;
}

bool is_own(const Header &h, const Identity &me) {
  return same_text(h.host, me.host) && h.pid_namespace == me.pid_namespace && h.pid == me.pid &&
         h.start_ticks == me.start_ticks;
}

// Only what can be seen from here can be called gone.
bool is_gone(const Header &h, const Identity &me) {
  if (!same_text(h.host, me.host) || h.pid_namespace != me.pid_namespace) return false;
  if (kill(h.pid, 0) != 0 && errno == ESRCH) return true;
  const ProcessStat now = stat_of(h.pid);
  return now.state == 'Z' || (now.start_ticks != 0 && now.start_ticks != h.start_ticks);
}

// A copy of a file of the size of an image. It may be of another user, who may shorten it at
// any time: a mapping of it would end in SIGBUS.
class Copied {
 public:
  explicit Copied(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size == static_cast<off_t>(sizeof(Image)))
      at_ =
          mmap(nullptr, sizeof(Image), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at_ != MAP_FAILED &&
        pread(fd, at_, sizeof(Image), 0) == static_cast<ssize_t>(sizeof(Image)))
      whole_ = true;
    close(fd);
  }
  ~Copied() {
    if (at_ != MAP_FAILED) munmap(at_, sizeof(Image));
  }
  Copied(const Copied &) = delete;
  Copied &operator=(const Copied &) = delete;

  const Image *image() const {
    return whole_ && is_image(at_, sizeof(Image)) ? static_cast<const Image *>(at_) : nullptr;
  }

 private:
  void *at_ = MAP_FAILED;
  bool whole_ = false;
};

}  // namespace

Document::Document(const char *path) noexcept {
  fd_ = open_output(path, O_RDWR | O_CREAT);
  if (fd_ < 0) {
    error_ = errno;
    return;
  }
  // Some file systems have no locks; the time between look and write is short.
  while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat st;
  if (fstat(fd_, &st) != 0) {
    error_ = errno;
  } else if (!S_ISREG(st.st_mode)) {
    error_ = EEXIST;
  } else if (st.st_size == 0) {
    error_ = write_at(fd_, 0, head.data(), head.size());
    if (error_ == 0) error_ = write_at(fd_, head.size(), tail.data(), tail.size());
    if (error_ != 0 && ftruncate(fd_, 0) != 0) error_ = EIO;
  } else if (!reads(fd_, 0, head)) {
    error_ = EEXIST;
  } else if (!reads(fd_, st.st_size - static_cast<off_t>(tail.size()), tail)) {
    error_ = EILSEQ;
  }
}

Document::~Document() {
  if (fd_ >= 0) close(fd_);
}

int Document::append(const Image &image, std::string_view state) noexcept {
  struct stat st;
  if (fstat(fd_, &st) != 0) return errno;
  const off_t end = st.st_size - static_cast<off_t>(tail.size());
  const bool is_first = end == static_cast<off_t>(head.size());

  void *buffer =
      mmap(nullptr, record_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) return errno;
  char *text = static_cast<char *>(buffer);
  const std::size_t lead = is_first ? 0 : 2;
  text[0] = ',';
  text[1] = '\n';
  const std::size_t length =
      write_record(image, state, text + lead, record_bytes - lead - tail.size());
  int error = length != 0 ? 0 : EFBIG;
  if (error == 0) {
    std::memcpy(text + lead + length, tail.data(), tail.size());
    error = write_at(fd_, end, text, lead + length + tail.size());
    // A full disk: as it was.
    if (error != 0 &&
        (ftruncate(fd_, end) != 0 || write_at(fd_, end, tail.data(), tail.size()) != 0))
      error = EIO;
  }
  munmap(buffer, record_bytes);
  return error;
}

const char *explain_error(int error) noexcept {
  if (error == EEXIST) return "exists and is no trace; it is left alone";
  if (error == EILSEQ) return "is a damaged trace; it is left alone";
#if __GLIBC_PREREQ(2, 32)
  const char *text = strerrordesc_np(error);
#else
  const char *text = strerror(error);
#endif
  return text != nullptr ? text : "unknown error";
}

bool is_image(const void *bytes, std::size_t size) noexcept {
  const auto *header = static_cast<const Header *>(bytes);
  return size == sizeof(Image) &&
         std::memcmp(header->magic, image_magic.data(), sizeof(header->magic)) == 0 &&
         header->tables == tables_hash;
}

Identity own_identity() noexcept {
  Identity me{};
  gethostname(me.host, sizeof(me.host) - 1);
  me.pid = getpid();
  me.start_ticks = stat_of(me.pid).start_ticks;
  struct stat st;
  if (stat("/proc/self/ns/pid", &st) == 0) me.pid_namespace = st.st_ino;
  return me;
}

int live_name(char *out, std::size_t size, const char *file, const Identity &who) noexcept {
  return std::snprintf(out, size, "%s.%.63s.%d.%llu.live", file, who.host, who.pid,
                       static_cast<unsigned long long>(who.start_ticks));
}

int gather(const char *file, bool own_too) noexcept {
  char folder[PATH_MAX], path[PATH_MAX];
  std::snprintf(folder, sizeof(folder), "%s", file);
  char *slash = std::strrchr(folder, '/');
  const char *base = slash != nullptr ? slash + 1 : folder;
  const std::string_view stem(file + (base - folder));
  if (slash != nullptr) *slash = '\0';
  const char *where = slash == nullptr ? "." : *folder != '\0' ? folder : "/";

  DIR *all = opendir(where);
  if (all == nullptr) return 0;
  const Identity me = own_identity();
  int count = 0;
  while (const dirent *entry = readdir(all)) {
    const std::string_view name(entry->d_name);
    if (!name.starts_with(stem) || !name.ends_with(".live") || name.size() < stem.size() + 6 ||
        name[stem.size()] != '.')
      continue;
    const int length = std::snprintf(path, sizeof(path), "%s/%s", where, entry->d_name);
    if (length >= static_cast<int>(sizeof(path))) continue;
    // With the lock, since others may gather at the same time.
    Document document(file);
    if (document.error() != 0) break;
    const Copied copied(path);
    const Image *image = copied.image();
    if (image == nullptr) continue;
    const bool ready = is_own(image->header, me) ? own_too : is_gone(image->header, me);
    if (!ready || document.append(*image, state_ended) != 0) continue;
    unlink(path);
    ++count;
  }
  closedir(all);
  return count;
}

}  // namespace ibvexp::trace
