// Refusals. The first function that decides that a request fails says so here,
// naming entry point, field and value; its callers only pass the errno on.
#pragma once

#include <string_view>

#include "base/result.h"
#include "table/compat.h"
#include "table/feature_bits.h"

namespace ibvexp {

// ENOTSUP for a whole entry point. Warns once per process, and aborts under
// IBVEXP_STRICT.
Error unsupported(EntryId entry);

// ENOTSUP for one feature of a request; field says where it was found. Warns
// once per feature.
Error unsupported(EntryId entry, FeatureId feature, const char *field, std::uint64_t value);

// As above, for a request that has no row of its own, or whose row does not say
// what exactly is missing. Warns every time.
Error unsupported(EntryId entry, const char *field, std::uint64_t value, const char *why);

// EINVAL. Warns every time: it is the caller's mistake.
Error invalid(EntryId entry, const char *field, std::uint64_t value, const char *why);

// Part of a request that means nothing, and that the legacy provider did not look at: the
// request is served without it.
void ignored(EntryId entry, const char *field, std::uint64_t value, const char *why);

// A request is served that only a switch opens. With IBVEXP_BEYOND=auto each switch says so, once
// per process.
void opened_by(Beyond by, std::string_view what);

// Judges a word of flags: EINVAL for a bit that no row knows, unless it may be ignored, the
// row's refusal for a bit that is not served.
Result<void> judge_bits(EntryId entry, const char *field, std::uint64_t word, FeatureBits known,
                        std::uint64_t ignorable);
inline Result<void> check_bits(EntryId entry, const char *field, std::uint64_t word,
                               JudgedBits known, std::uint64_t ignorable = 0) {
  if ((word & ~known.served) == 0) [[likely]]
    return {};
  return judge_bits(entry, field, word, known, ignorable);
}

}  // namespace ibvexp
