// Diagnostics on standard error (SOFTHCA_LOG selects the level). Never touches
// errno, never allocates, may be called from any thread.
#pragma once

namespace softhca {

enum class LogLevel { error = 0, warn = 1, info = 2, debug = 3, trace = 4 };

LogLevel log_level();
void set_log_level(LogLevel);
[[gnu::format(printf, 2, 3)]] void log_line(LogLevel, const char *format, ...);

}  // namespace softhca

// The arguments are evaluated only when the level is on.
#define SOFTHCA_LOG(level, ...)                                     \
  do {                                                              \
    if (::softhca::LogLevel::level <= ::softhca::log_level())       \
      ::softhca::log_line(::softhca::LogLevel::level, __VA_ARGS__); \
  } while (0)
