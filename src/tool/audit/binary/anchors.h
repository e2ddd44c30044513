// A cheap look at bytes: may this code look up the operation table at all?
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ibvexp::audit {

// Whether the code of a function has one of the instructions with which look-ups
// begin. False means it certainly has not, unless a function that it calls has.
bool may_look_up(std::span<const std::uint8_t> function);

// Where the first such instruction stands at or behind an offset, or the size without:
// for code whose functions are not known.
std::size_t next_sign(std::span<const std::uint8_t> code, std::size_t from);

// Whether that one may belong to a look-up in a function of more than small_look_up bytes. In a
// smaller one it may be enough by itself.
bool may_be_inlined(std::span<const std::uint8_t> code, std::size_t sign);
constexpr std::size_t small_look_up = 256;

}  // namespace ibvexp::audit
