// Messages to the user: standard error, or IBVEXP_LOG_FILE. Never standard
// output. errno is kept, nothing is allocated: the library runs inside processes
// that replace the allocator.
#pragma once

#include <cstdint>

namespace ibvexp {

// In the order of IBVEXP_LOG_LEVEL in table/options.def.
enum class LogLevel : std::uint8_t { error, warn, info, debug };

// Where messages go and from which level on. options.cpp calls it once, with what
// the environment says; until then warnings go to standard error. file stays the
// caller's and must last; empty: standard error.
void set_log(LogLevel level, const char *file);

[[gnu::visibility("hidden")]] extern LogLevel lowest_logged;
inline bool log_enabled(LogLevel level) { return level <= lowest_logged; }

[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char *format, ...);

// One line to standard error, whatever the options say.
void log_raw(const char *message);

}  // namespace ibvexp
