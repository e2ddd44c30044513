// The rows of Mellanox's migration guide, from guide.def. For documents only: what
// is served stands in compat.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ibvexp {

// In the words of guide.def.
enum class GuideVerdict : std::uint8_t {
  supported,
  replaced,
  by_default,
  deprecated,
  not_supported
};

struct GuideFeature {
  std::string_view prefix;  // of the ids of its rows, up to the first dot
  std::string_view title;
};

struct GuideRow {
  std::string_view id;
  GuideVerdict verdict;

  constexpr std::string_view prefix() const { return id.substr(0, id.find('.')); }
};

inline constexpr auto guide_features = std::to_array<GuideFeature>({
#define IBVEXP_GUIDE_FEATURE(prefix, title) {#prefix, title},
#define IBVEXP_GUIDE_ROW(id, verdict)
#include "table/guide.def"
});

// Those of a feature lie together, in the order of the features.
inline constexpr auto guide_rows = std::to_array<GuideRow>({
#define IBVEXP_GUIDE_FEATURE(prefix, title)
#define IBVEXP_GUIDE_ROW(id, verdict) {id, GuideVerdict::verdict},
#include "table/guide.def"
});

}  // namespace ibvexp
