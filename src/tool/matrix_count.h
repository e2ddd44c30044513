// Rows counted by verdict, for the summary and for its JSON twin.
#pragma once

#include "table/compat.h"

namespace ibvexp::tool {

inline constexpr std::size_t verdict_count = std::size(names_of_Verdict);

struct Count {
  std::array<int, verdict_count> by_verdict{};
  int rows = 0;

  constexpr void add(const Answer &a) {
    ++by_verdict[static_cast<std::size_t>(a.verdict)];
    ++rows;
  }
  constexpr int of(Verdict v) const { return by_verdict[static_cast<std::size_t>(v)]; }
};

constexpr Count count(Family family) {
  Count n;
  for (const Entry &e : entries_of(family)) n.add(e.answer);
  for (const Feature &f : features_of(family)) n.add(f.answer);
  return n;
}

constexpr Count count_all() {
  Count n;
  for (const Entry &e : entries) n.add(e.answer);
  for (const Feature &f : features) n.add(f.answer);
  return n;
}

}  // namespace ibvexp::tool
