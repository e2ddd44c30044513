// What becomes of something that a program asks for: one vocabulary for `ibvexp audit`,
// `ibvexp doctor`, their reports and the matrix.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ibvexp {

enum class Word : std::uint8_t {
#define IBVEXP_WORD(token, ...) token,
#include "tool/words.def"
};

struct WordInfo {
  std::string_view name, meaning;
};

inline constexpr auto all_words = std::to_array<WordInfo>({
#define IBVEXP_WORD(token, name, meaning) {name, meaning},
#include "tool/words.def"
});

constexpr const WordInfo &info(Word word) { return all_words[static_cast<std::size_t>(word)]; }
constexpr std::string_view name_of(Word word) { return info(word).name; }

}  // namespace ibvexp
