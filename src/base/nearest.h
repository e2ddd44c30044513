// The word of a list that a misspelt one most likely stands for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace ibvexp {

namespace detail {

constexpr char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

}  // namespace detail

// Letters to insert, leave out, replace or exchange until one word is the other. Words of
// more than 40 letters are as far apart as they are long.
constexpr std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t most = 40;
  if (a.size() > most || b.size() > most) return std::max(a.size(), b.size());
  std::array<std::array<std::size_t, most + 1>, 3> rows{};  // [i - 2], [i - 1], [i], modulo 3
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto &now = rows[i % 3];
    const auto &last = rows[(i - 1) % 3];
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto same = [&](std::size_t x, std::size_t y) {
        return detail::folded(a[x]) == detail::folded(b[y]);
      };
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same(i - 1, j - 1) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1))
        now[j] = std::min(now[j], rows[(i + 1) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

// Empty: none is near. name() makes a word of an element.
template <class List, class Name>
constexpr std::string_view nearest(std::string_view word, const List &list, Name name) {
  std::string_view best;
  std::size_t least = 1 + word.size() / 4;
  for (const auto &element : list) {
    const std::string_view candidate = name(element);
    const std::size_t distance = edit_distance(word, candidate);
    if (distance > least || (distance == least && !best.empty())) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

static_assert(edit_distance("adit", "audit") == 1);
static_assert(edit_distance("docotr", "doctor") == 1);
static_assert(edit_distance("FAIL_ON", "fail-on") == 0);

}  // namespace ibvexp
