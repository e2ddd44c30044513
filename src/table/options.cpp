#include "table/options.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/nearest.h"

namespace ibvexp {

namespace {

// Position of a word in a list separated by commas, or -1.
int position(std::string_view list, std::string_view wanted) {
  int at = 0, found = -1;
  for_each_word(list, ',', [&](std::string_view word) {
    if (word == wanted) found = at;
    ++at;
  });
  return found;
}

// Value of a choice or boolean as its position among the allowed ones.
int choose(std::string_view name, Lookup lookup, Complain complain) {
  const Option &option = *find_option(name);
  const int fallback = position(option.allowed, option.default_value);
  const char *text = lookup(name.data());
  if (text == nullptr || *text == '\0') return fallback;
  const int chosen = position(option.allowed, text);
  if (chosen >= 0) return chosen;
  char message[256];
  std::snprintf(message, sizeof(message), "%s: unknown value \"%.64s\", allowed: %.*s", name.data(),
                text, static_cast<int>(option.allowed.size()), option.allowed.data());
  complain(message);
  return fallback;
}

void switch_on(std::string_view word, Options &out, Complain complain) {
  char message[256];
  if (word == automatic_switches) {
    out.automatic = true;
    for (std::size_t i = 0; i < beyond_switches.size(); ++i)
      if (beyond_switches[i].status == SwitchStatus::done) out.beyond[i] = true;
    return;
  }
  const BeyondSwitch *wanted = find_switch(word);
  const int length = static_cast<int>(word.size());
  if (wanted == nullptr) {
    const std::string_view meant =
        nearest(word, beyond_switches, [](const BeyondSwitch &s) { return s.name; });
    std::snprintf(message, sizeof(message), "IBVEXP_BEYOND: unknown feature \"%.*s\"%s%.*s%s",
                  length > 64 ? 64 : length, word.data(),
                  meant.empty() ? "; compat-matrix.md lists them" : "; did you mean ",
                  static_cast<int>(meant.size()), meant.data(), meant.empty() ? "" : "?");
    complain(message);
    return;
  }
  out.beyond[static_cast<std::size_t>(wanted - beyond_switches.data())] = true;
  if (wanted->status != SwitchStatus::done) {
    std::snprintf(message, sizeof(message),
                  "IBVEXP_BEYOND: %.*s is not available in this release (%s); it changes nothing",
                  length, word.data(), std::string(name_of(wanted->status)).c_str());
    complain(message);
  }
}

// Options are read before the log has a level, so complaints do not go through
// it: they must be seen whatever the level.
void complain_to_stderr(const char *message) { log_raw(message); }

}  // namespace

Options parse_options(Lookup lookup, Complain complain) {
  Options out;
  out.log_level = static_cast<LogLevel>(choose("IBVEXP_LOG_LEVEL", lookup, complain));
  out.strict = choose("IBVEXP_STRICT", lookup, complain) == 1;
  out.objects = static_cast<ObjectsOf>(choose("IBVEXP_ENGINE", lookup, complain));
  out.layout = static_cast<ObjectLayout>(choose("IBVEXP_LAYOUT", lookup, complain));
  if (const char *name = lookup("IBVEXP_DEVICE")) out.device = name;
  if (const char *file = lookup("IBVEXP_LOG_FILE")) out.log_file = file;
  if (const char *file = lookup("IBVEXP_TRACE")) out.trace_file = file;
  if (const char *file = lookup("IBVEXP_TALLY")) out.tally_file = file;
  if (const char *list = lookup("IBVEXP_BEYOND"))
    for_each_word(list, ',', [&](std::string_view word) { switch_on(word, out, complain); });
  return out;
}

void complain_of_unknown(const char *const *environment, Complain complain) {
  static constexpr std::string_view prefix = "IBVEXP_";
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(prefix) || find_option(name) != nullptr) continue;
    const std::string_view meant =
        nearest(name.substr(prefix.size()), options,
                [](const Option &o) { return o.name.substr(prefix.size()); });
    char message[256];
    std::snprintf(message, sizeof(message), "%.*s: unknown variable%s%.*s%s",
                  static_cast<int>(std::min<std::size_t>(name.size(), 64)), name.data(),
                  meant.empty() ? "; compat-matrix.md lists them" : "; did you mean IBVEXP_",
                  static_cast<int>(meant.size()), meant.data(), meant.empty() ? "" : "?");
    complain(message);
  }
}

std::atomic<const Options *> known_options{nullptr};

const Options &read_process_options() {
  static const Options parsed = [] {
    // Nothing that makes a privileged program write files.
    const Options read = parse_options(
        [](const char *name) -> const char * { return secure_getenv(name); }, complain_to_stderr);
    if (getauxval(AT_SECURE) == 0) complain_of_unknown(environ, complain_to_stderr);
    set_log(read.log_level, read.log_file);
    return read;
  }();
  known_options.store(&parsed, std::memory_order_release);
  return parsed;
}

}  // namespace ibvexp
