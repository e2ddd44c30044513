// Arithmetic of erasure codes. Bytes hold symbols of a Galois field: one of 8 bits, or two of 4.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ibvexp::translate {

// Bits of a symbol: x^4 + x + 1 and x^8 + x^4 + x^3 + x^2 + 1, the fields of Jerasure.
constexpr bool is_symbol_width(int w) { return w == 4 || w == 8; }

// Data blocks beside one code block in the larger field, and calculations under way for one object:
// what a device reports.
constexpr std::uint32_t max_coded_blocks = 255, max_calculations = 1024;

// What each byte is, multiplied by one factor.
using Products = std::array<std::uint8_t, 256>;

constexpr Products products(unsigned factor, int w) {
  const unsigned above = 1u << w, polynomial = w == 4 ? 0x13 : 0x11d;
  std::array<unsigned, 8> of_bit{};
  unsigned power = factor & (above - 1);
  for (int bit = 0; bit < w; ++bit) {
    for (int at = bit; at < 8; at += w) of_bit[static_cast<std::size_t>(at)] = power << (at - bit);
    power <<= 1;
    if ((power & above) != 0) power ^= polynomial;
  }
  Products all{};
  for (unsigned byte = 1; byte < all.size(); ++byte)
    all[byte] = static_cast<std::uint8_t>(all[byte & (byte - 1)] ^
                                          of_bit[static_cast<std::size_t>(std::countr_zero(byte))]);
  return all;
}

// A place in the memory that pieces, one after another, make up.
class Cursor {
 public:
  Cursor(const ibv_sge *pieces, std::uint64_t offset) : piece_(pieces), offset_(offset) {}

  struct Rest {
    std::uint8_t *bytes;
    std::size_t length;
  };
  // Up to the end of the piece. There is one more byte.
  Rest rest() {
    for (; offset_ >= piece_->length; ++piece_) offset_ -= piece_->length;
    return {reinterpret_cast<std::uint8_t *>(piece_->addr) + offset_, piece_->length - offset_};
  }
  void skip(std::size_t bytes) { offset_ += bytes; }

 private:
  const ibv_sge *piece_;
  std::uint64_t offset_;
};

// to = factor * from, or, if it adds, to + factor * from.
inline void multiply(Cursor to, Cursor from, std::size_t length, const Products &by, bool adds) {
  while (length != 0) {
    const auto [out, room] = to.rest();
    const auto [in, there] = from.rest();
    const std::size_t now = std::min({length, room, there});
    for (std::size_t i = 0; i < now; ++i)
      out[i] = static_cast<std::uint8_t>((adds ? out[i] : 0) ^ by[in[i]]);
    to.skip(now);
    from.skip(now);
    length -= now;
  }
}

}  // namespace ibvexp::translate
