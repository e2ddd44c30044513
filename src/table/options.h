// The environment variables of options.def, read once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/log.h"
#include "table/compat.h"

namespace ibvexp {

// What programs hold, and who drives its queues, in the order of IBVEXP_ENGINE's values:
// rdma-core's objects; ours, driven by libmlx5; ours, driven by us.
enum class ObjectsOf : std::uint8_t { native, own };

// The legacy provider's, in the order of IBVEXP_LAYOUT's values.
enum class ObjectLayout : std::uint8_t { v3, v4 };

struct Options {
  std::array<bool, beyond_switches.size()> beyond{};
  bool automatic = false;  // IBVEXP_BEYOND=auto: all of them, and each says when it first serves
  const char *device = "";
  const char *log_file = "";
  const char *trace_file = "";
  const char *tally_file = "";
  ObjectsOf objects = ObjectsOf::own;
  ObjectLayout layout = ObjectLayout::v4;
  LogLevel log_level = LogLevel::warn;
  bool strict = false;
};

// Where variables come from and where complaints go; tests have their own.
using Lookup = const char *(*)(const char *name);
using Complain = void (*)(const char *message);

// A variable that does not parse keeps its default and is reported together
// with what is allowed. IBVEXP_BEYOND reports names that are unknown or whose
// feature is not there (yet), and takes the others.
Options parse_options(Lookup lookup, Complain complain);

// Variables of an environment that begin like those of this library and are none.
void complain_of_unknown(const char *const *environment, Complain complain);

// Those of this process. The first call reads them; the library makes that call
// when it is loaded, so that none is made from a data path.
[[gnu::visibility("hidden")]] extern std::atomic<const Options *> known_options;
const Options &read_process_options();
inline const Options &process_options() {
  const Options *const known = known_options.load(std::memory_order_acquire);
  return known != nullptr ? *known : read_process_options();
}

// Whether IBVEXP_BEYOND asks for it. none and by_default are never asked for.
inline bool switched_on(Beyond b) {
  return is_switch(b) && process_options().beyond[static_cast<std::size_t>(b) - 2];
}

// The answer of a row under the options of this process.
inline Effective effective_now(const Answer &a) { return effective(a, switched_on(a.beyond)); }
inline bool reportable_now(const Answer &a) { return reportable(a, switched_on(a.beyond)); }

}  // namespace ibvexp
