#include "trace/diagnose.h"

#include <atomic>
#include <cstdlib>

#include "base/log.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/tally.h"
#include "trace/trace.h"

namespace ibvexp {

namespace {

// Flags of what has been said already.
std::atomic<bool> said_entry[entries.size()];
std::atomic<bool> said_feature[features.size()];

bool first_time(std::atomic<bool> &said) { return !said.exchange(true, std::memory_order_relaxed); }

int length(std::string_view s) { return static_cast<int>(s.size()); }

// What the operator can do about a refusal, as the end of its log line.
struct SwitchHint {
  const char *before = "", *after = "";
  std::string_view name;

  explicit SwitchHint(const Answer &answer) {
    if (!is_switch(answer.beyond) || switched_on(answer.beyond) ||
        info(answer.beyond).status != SwitchStatus::done)
      return;
    before = " IBVEXP_BEYOND=";
    name = info(answer.beyond).name;
    after = " serves it.";
  }
};

// IBVEXP_STRICT shows where a program depends on something refused: a core file
// of the very place.
void stop_if_strict() {
  if (process_options().strict) std::abort();
}

}  // namespace

Error unsupported(EntryId entry) {
  const Entry &e = row(entry);
  if (first_time(said_entry[static_cast<std::size_t>(entry)])) {
    const SwitchHint hint(e.answer);
    log(LogLevel::warn, "%.*s: not supported: %.*s%s%.*s%s", length(e.name), e.name.data(),
        length(e.answer.note), e.answer.note.data(), hint.before, length(hint.name),
        hint.name.data(), hint.after);
  }
  if (trace::on()) trace::explain("entry point", 0, "not supported");
  stop_if_strict();
  return {ENOTSUP};
}

Error unsupported(EntryId entry, FeatureId feature, const char *field, std::uint64_t value) {
  const Entry &e = row(entry);
  const Feature f = feature_row(feature);
  const Effective now = effective_now(f.answer);
  if (first_time(said_feature[static_cast<std::size_t>(feature)])) {
    const SwitchHint hint(f.answer);
    log(LogLevel::warn, "%.*s: %s 0x%llx: %.*s is not supported: %.*s%s%.*s%s", length(e.name),
        e.name.data(), field, static_cast<unsigned long long>(value), length(f.name), f.name.data(),
        length(f.answer.note), f.answer.note.data(), hint.before, length(hint.name),
        hint.name.data(), hint.after);
  }
  trace::count_refusal(trace::row_index(feature));
  if (trace::on()) trace::refuse(feature, field, value, f.name.data());
  stop_if_strict();
  return {now.refusal != 0 ? now.refusal : ENOTSUP};
}

Error unsupported(EntryId entry, const char *field, std::uint64_t value, const char *why) {
  const Entry &e = row(entry);
  log(LogLevel::warn, "%.*s: %s 0x%llx: not supported: %s", length(e.name), e.name.data(), field,
      static_cast<unsigned long long>(value), why);
  if (trace::on()) trace::explain(field, value, why);
  stop_if_strict();
  return {ENOTSUP};
}

Error invalid(EntryId entry, const char *field, std::uint64_t value, const char *why) {
  const Entry &e = row(entry);
  log(LogLevel::warn, "%.*s: %s 0x%llx: %s", length(e.name), e.name.data(), field,
      static_cast<unsigned long long>(value), why);
  if (trace::on()) trace::explain(field, value, why);
  return {EINVAL};
}

void ignored(EntryId entry, const char *field, std::uint64_t value, const char *why) {
  const Entry &e = row(entry);
  log(LogLevel::info, "%.*s: %s 0x%llx: ignored: %s", length(e.name), e.name.data(), field,
      static_cast<unsigned long long>(value), why);
}

void opened_by(Beyond by, std::string_view what) {
  if (!process_options().automatic) [[likely]]
    return;
  static std::atomic<bool> said[beyond_switches.size()];
  if (!is_switch(by) || !first_time(said[static_cast<std::size_t>(by) - 2])) return;
  const std::string_view name = info(by).name;
  log(LogLevel::warn, "IBVEXP_BEYOND=auto: a request needs %.*s (%.*s)", length(name), name.data(),
      length(what), what.data());
}

Result<void> judge_bits(EntryId entry, const char *field, std::uint64_t word, FeatureBits known,
                        std::uint64_t ignorable) {
  std::uint64_t unknown = word;
  for (const FeatureBit &b : known) unknown &= ~b.bit;
  if ((unknown & ~ignorable) != 0) return invalid(entry, field, word, "unknown bits");
  if (unknown != 0) ignored(entry, field, unknown, "unknown bits");
  for (const FeatureBit &b : known) {
    if ((word & b.bit) == 0) continue;
    const Feature f = feature_row(b.id);
    if (effective_now(f.answer).verdict == Verdict::unsupported)
      return unsupported(entry, b.id, field, word);
    if (f.answer.verdict == Verdict::beyond) opened_by(f.answer.beyond, f.name);
  }
  return {};
}

}  // namespace ibvexp
