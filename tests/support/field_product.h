// Products in the fields of erasure codes, bit by bit: what tests compare the library's tables with.
#pragma once

namespace support {

// a * b, for symbols of w bits: 4 (x^4 + x + 1) or 8 (x^8 + x^4 + x^3 + x^2 + 1).
inline unsigned field_product(unsigned a, unsigned b, int w) {
  const unsigned polynomial = w == 4 ? 0b1'0011 : 0b1'0001'1101;
  unsigned product = 0;
  for (int bit = 0; bit < w; ++bit)
    if ((b >> bit & 1) != 0) product ^= a << bit;
  for (int bit = 2 * w; bit >= w; --bit)
    if ((product >> bit & 1) != 0) product ^= polynomial << (bit - w);
  return product;
}

}  // namespace support
