// Flag words of the legacy API as the feature tables describe them: for each
// enum, its single bits and their rows. Values come from the public header.
#pragma once

#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "table/compat.h"

namespace ibvexp {

struct FeatureBit {
  std::uint64_t bit;
  FeatureId id;
};

using FeatureBits = std::span<const FeatureBit>;

// The bits of a word; served: of them, those that are not refused, whatever is switched on.
struct JudgedBits : FeatureBits {
  std::uint64_t served;
};

// A literal as template argument.
template <std::size_t n>
struct Literal {
  char text[n];
  consteval Literal(const char (&from)[n]) { std::copy_n(from, n, text); }
  constexpr std::string_view view() const { return {text, n - 1}; }
};

namespace detail {

struct Valued {
  std::uint64_t value;
  FeatureId id;
};

// The sign of an int enumerator must not spread: bit 31 is one.
template <class Enum>
constexpr std::uint64_t plain(Enum value) {
  if constexpr (sizeof(Enum) == sizeof(std::uint32_t)) return static_cast<std::uint32_t>(value);
  else return static_cast<std::uint64_t>(value);
}

inline constexpr auto values = std::to_array<Valued>({
#define IBVEXP_CONSTANT(name, ...) {plain(::name), FeatureId::name},
#include "table/features.def"
});

// Limits are no flags, and some coincide with one.
constexpr bool is_bit_of(const Valued &v, std::string_view owner) {
  const Feature &f = row(v.id);
  return f.owner == owner && f.kind != Kind::limit && std::has_single_bit(v.value);
}

template <Literal owner>
consteval auto collect() {
  constexpr auto count = std::count_if(values.begin(), values.end(),
                                       [](const Valued &v) { return is_bit_of(v, owner.view()); });
  static_assert(count > 0, "no such enum in the tables");
  std::array<FeatureBit, count> out{};
  std::size_t n = 0;
  for (const Valued &v : values)
    if (is_bit_of(v, owner.view())) out[n++] = {v.value, v.id};
  return out;
}

template <Literal owner>
inline constexpr auto bits = collect<owner>();

template <Literal owner>
consteval std::uint64_t served() {
  std::uint64_t out = 0;
  for (const FeatureBit &b : bits<owner>)
    if (effective(row(b.id).answer).verdict != Verdict::unsupported) out |= b.bit;
  return out;
}

}  // namespace detail

// The bits of an enum, by its name.
template <Literal owner>
constexpr JudgedBits bits_of() {
  return {FeatureBits(detail::bits<owner>), detail::served<owner>()};
}

// The bits of an enum that requests may carry and that ask for something: a
// conversion has to do it. Not what only a switch allows, and not no-ops.
template <Literal owner>
consteval std::uint64_t accepted() {
  std::uint64_t out = 0;
  for (const FeatureBit &b : bits_of<owner>()) {
    const Verdict verdict = effective(row(b.id).answer).verdict;
    if (verdict == Verdict::native || verdict == Verdict::translated || verdict == Verdict::partial)
      out |= b.bit;
  }
  return out;
}

}  // namespace ibvexp
