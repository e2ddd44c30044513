#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/keep_errno.h"
#include "base/output_file.h"
#include "base/uncancelled.h"

namespace ibvexp {

LogLevel lowest_logged = LogLevel::warn;

namespace {

constexpr std::string_view prefix = "ibvexp: ";

const char *log_file = "";

// Opened once and left open. A file that cannot be opened falls back to
// standard error and says so.
int destination() {
  static const int fd = [] {
    if (*log_file == '\0') return STDERR_FILENO;
    const int opened = open_output(log_file, O_WRONLY | O_CREAT | O_APPEND);
    if (opened >= 0) return opened;
    char line[256];
    std::snprintf(line, sizeof(line),
                  "IBVEXP_LOG_FILE: cannot be opened: %s: %s; writing to standard error", log_file,
                  std::strerror(errno));
    log_raw(line);
    return STDERR_FILENO;
  }();
  return fd;
}

// A line in one write, so that lines of several threads stay whole.
void put(int fd, const char *line, std::size_t length) {
  while (length > 0) {
    const ssize_t written = ::write(fd, line, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line += written;
    length -= static_cast<std::size_t>(written);
  }
}

[[gnu::format(printf, 3, 0)]] void line_to(int fd, const char *level, const char *format,
                                           va_list arguments) {
  char line[1024];
  int used = std::snprintf(line, sizeof(line), "%s%s", prefix.data(), level);
  const int room = static_cast<int>(sizeof(line)) - used - 1;
  const int wanted = std::vsnprintf(line + used, static_cast<std::size_t>(room), format, arguments);
  used += wanted < room ? wanted : room - 1;
  line[used++] = '\n';
  put(fd, line, static_cast<std::size_t>(used));
}

}  // namespace

void set_log(LogLevel level, const char *file) {
  lowest_logged = level;
  log_file = file;
}

void log(LogLevel level, const char *format, ...) {
  if (!log_enabled(level)) return;
  const Uncancelled whole;
  static constexpr const char *names[] = {"error: ", "", "", ""};
  const KeepErrno keep;
  va_list arguments;
  va_start(arguments, format);
  line_to(destination(), names[static_cast<int>(level)], format, arguments);
  va_end(arguments);
}

void log_raw(const char *message) {
  const Uncancelled whole;
  const KeepErrno keep;
  char line[512];
  const int used = std::snprintf(line, sizeof(line) - 1, "%s%s", prefix.data(), message);
  const std::size_t length =
      used < static_cast<int>(sizeof(line)) - 1 ? static_cast<std::size_t>(used) : sizeof(line) - 2;
  line[length] = '\n';
  put(STDERR_FILENO, line, length + 1);
}

}  // namespace ibvexp
