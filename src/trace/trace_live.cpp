#include "trace/trace_live.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/keep_errno.h"
#include "base/lock.h"
#include "base/log.h"
#include "table/options.h"
#include "trace/trace.h"
#include "trace/trace_document.h"

namespace ibvexp::trace {

namespace {

char file_name[PATH_MAX];
char live_path[PATH_MAX];

// Held while the image is opened.
Mutex mutex;
std::atomic<Image *> image{nullptr};
bool impossible = false;  // said once
bool prepared = false;    // handlers are in place

void complain(const char *what, const char *why) {
  char message[600];
  std::snprintf(message, sizeof(message), "IBVEXP_TRACE: %.300s: %.200s", what, why);
  log_raw(message);
}

// %h is the host, %p the process; relative to where the process starts.
bool expand(const char *pattern) {
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  std::size_t used = 0;
  const auto put = [&](const char *text) {
    const int n = std::snprintf(file_name + used, sizeof(file_name) - used, "%s", text);
    used += static_cast<std::size_t>(n);
    return used < sizeof(file_name) - 128;  // room for the name of the image
  };
  if (*pattern != '/') {
    char here[PATH_MAX];
    if (getcwd(here, sizeof(here)) == nullptr || !put(here) || !put("/")) return false;
  }
  for (const char *at = pattern; *at != '\0'; ++at) {
    char text[16] = {*at, '\0'};
    bool fits = true;
    if (at[0] == '%' && at[1] == 'h') {
      fits = put(host);
      ++at;
    } else if (at[0] == '%' && at[1] == 'p') {
      std::snprintf(text, sizeof(text), "%d", getpid());
      fits = put(text);
      ++at;
    } else {
      fits = put(text);
    }
    if (!fits) return false;
  }
  return true;
}

template <std::size_t n>
void read_file(const char *path, char (&to)[n]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = read(fd, to, n - 1);
  if (got >= 0) to[got] = '\0';
  close(fd);
}

void fill_header(Header &header, const Identity &who) {
  header.tables = tables_hash;
  header.start_ticks = who.start_ticks;
  header.pid_namespace = who.pid_namespace;
  header.started = time(nullptr);
  header.pid = who.pid;
  header.parent = getppid();
  std::memcpy(header.host, who.host, sizeof(header.host));
  const ssize_t length = readlink("/proc/self/exe", header.program, sizeof(header.program) - 1);
  if (length < 0) header.program[0] = '\0';
  read_file("/proc/self/cmdline", header.command);
  std::snprintf(header.version, sizeof(header.version), "%s", IBVEXP_VERSION);
  std::size_t used = 0;
  for (std::size_t i = 0; i < beyond_switches.size(); ++i) {
    if (!process_options().beyond[i] || used >= sizeof(header.beyond)) continue;
    const std::string_view name = beyond_switches[i].name;
    used += static_cast<std::size_t>(
        std::snprintf(header.beyond + used, sizeof(header.beyond) - used, "%s%.*s",
                      used == 0 ? "" : ",", static_cast<int>(name.size()), name.data()));
  }
  // Last: a file without it is not an image.
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header.magic, image_magic.data(), sizeof(header.magic));
}

// Writes the image to FILE. Not while this thread may be interrupted by the
// handler that does the same.
void write_document(std::string_view state) {
  sigset_t usr1, before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);
  if (Image *mine = image.load(std::memory_order_acquire)) {
    int error;
    {
      Document document(file_name);
      error = document.error() != 0 ? document.error() : document.append(*mine, state);
    }
    if (error != 0) complain(file_name, explain_error(error));
    else if (state == state_exited) unlink(live_path);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void on_usr1(int) {
  const KeepErrno keep;
  write_document(state_running);
}

void prepare() {
  prepared = true;
  pthread_atfork(nullptr, nullptr, [] {
    if (Image *parents = image.exchange(nullptr)) munmap(parents, sizeof(Image));
  });
  struct sigaction now;
  // A program that handles the signal keeps it.
  if (sigaction(SIGUSR1, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL) {
    struct sigaction ours {};
    ours.sa_handler = on_usr1;
    ours.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &ours, nullptr);
  }
}

int create_live(const Identity &who) {
  live_name(live_path, sizeof(live_path), file_name, who);
  int fd = open(live_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EEXIST) {
    // This process before exec().
    gather(file_name, true);
    unlink(live_path);
    fd = open(live_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  }
  return fd;
}

// 0 or an errno value.
int open_image() {
  {
    const Document document(file_name);
    if (document.error() != 0) return document.error();
  }
  const Identity who = own_identity();
  const int fd = create_live(who);
  if (fd < 0) return errno;
  // All of it, or a full disk would kill the process later.
  int error = posix_fallocate(fd, 0, sizeof(Image));
  void *at = MAP_FAILED;
  if (error == 0) {
    at = mmap(nullptr, sizeof(Image), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) error = errno;
  }
  close(fd);
  if (error != 0) {
    unlink(live_path);
    return error;
  }
  auto *mine = static_cast<Image *>(at);
  fill_header(mine->header, who);
  if (!prepared) prepare();
  image.store(mine, std::memory_order_release);
  return 0;
}

// After destructors and exit handlers of the program.
[[gnu::destructor]] void at_exit() {
  if (image.load(std::memory_order_acquire) == nullptr) return;
  write_document(state_exited);
  gather(file_name, false);
}

}  // namespace

void start(const char *file) noexcept {
  if (file == nullptr || *file == '\0') return;
  if (expand(file)) on_at_load = true;
  else complain(file, "the name is too long; nothing is traced");
}

Image *live_image() noexcept {
  Image *mine = image.load(std::memory_order_acquire);
  if (mine != nullptr) [[likely]]
    return mine;
  if (!on_at_load) return nullptr;
  const KeepErrno keep;
  mutex.lock();
  if (image.load(std::memory_order_acquire) == nullptr && !impossible) {
    const int error = open_image();
    if (error != 0) {
      impossible = true;
      char why[200];
      std::snprintf(why, sizeof(why), "%s; nothing is traced", explain_error(error));
      complain(file_name, why);
    }
  }
  mine = image.load(std::memory_order_acquire);
  mutex.unlock();
  return mine;
}

}  // namespace ibvexp::trace
