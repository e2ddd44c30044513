#include "base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace softhca {

namespace {
std::atomic<LogLevel> g_level{LogLevel::warn};
}

LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }
void set_log_level(LogLevel l) { g_level.store(l, std::memory_order_relaxed); }

void log_line(LogLevel level, const char *format, ...) {
  static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
  const int saved = errno;
  char line[640];
  int n = std::snprintf(line, sizeof line, "softhca[%d] %s: ", static_cast<int>(getpid()),
                        names[static_cast<int>(level)]);
  va_list args;
  va_start(args, format);
  n += std::vsnprintf(line + n, sizeof line - static_cast<size_t>(n) - 1, format, args);
  va_end(args);
  if (n > static_cast<int>(sizeof line) - 2) n = static_cast<int>(sizeof line) - 2;
  line[n++] = '\n';
  // One raw system call per line: lines of several processes do not mix, and
  // an application that interposes write() is not disturbed.
  (void)!syscall(SYS_write, 2, line, static_cast<size_t>(n));
  errno = saved;
}

}  // namespace softhca
