// Products of symbols, and sums over memory in pieces.
#include "translate/convert/galois.h"

#include <catch.h>
#include <field_product.h>

#include <numeric>
#include <vector>

using namespace ibvexp::translate;

namespace {

ibv_sge piece(std::vector<std::uint8_t> &bytes, std::size_t at, std::size_t length) {
  return {reinterpret_cast<std::uintptr_t>(bytes.data()) + at, static_cast<std::uint32_t>(length),
          0};
}

}  // namespace

TEST_CASE("every factor by every byte") {
  for (unsigned factor = 0; factor < 256; ++factor) {
    const Products wide = products(factor, 8), narrow = products(factor, 4);
    for (unsigned byte = 0; byte < 256; ++byte) {
      REQUIRE(wide[byte] == support::field_product(factor, byte, 8));
      // Two symbols, and of the factor one.
      REQUIRE(narrow[byte] == (support::field_product(factor & 15, byte & 15, 4) |
                               support::field_product(factor & 15, byte >> 4, 4) << 4));
    }
  }
  for (int w = -1; w < 70; ++w) CHECK(is_symbol_width(w) == (w == 4 || w == 8));
}

TEST_CASE("sums go across pieces that are cut differently, and no further") {
  std::vector<std::uint8_t> from(200), to(200, 0x5a);
  std::iota(from.begin(), from.end(), std::uint8_t{3});
  ibv_sge in[] = {piece(from, 100, 7), piece(from, 0, 0), piece(from, 10, 61),
                  piece(from, 150, 40)};
  ibv_sge out[] = {piece(to, 8, 64), piece(to, 90, 1), piece(to, 120, 60)};
  std::vector<std::uint8_t> source;
  for (const ibv_sge &p : in)
    for (std::uint32_t i = 0; i < p.length; ++i)
      source.push_back(*reinterpret_cast<std::uint8_t *>(p.addr + i));
  const Products by = products(9, 8);
  const auto expected = [&](std::size_t skip_in, std::size_t skip_out, std::size_t length,
                            bool adds) {
    std::vector<std::uint8_t> then = to;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < 64; ++i) places.push_back(8 + i);
    places.push_back(90);
    for (std::size_t i = 0; i < 60; ++i) places.push_back(120 + i);
    for (std::size_t i = 0; i < length; ++i) {
      auto &byte = then[places[skip_out + i]];
      byte = static_cast<std::uint8_t>((adds ? byte : 0) ^
                                       support::field_product(9, source[skip_in + i], 8));
    }
    return then;
  };
  for (const bool adds : {false, true}) {
    for (const std::size_t skip : {0, 7, 20}) {
      const auto then = expected(skip, 64, 50, adds);
      multiply(Cursor(out, 64), Cursor(in, skip), 50, by, adds);
      CHECK(to == then);
    }
  }
  const auto all = expected(0, 0, 100, true);
  multiply(Cursor(out, 0), Cursor(in, 0), 100, by, true);
  CHECK(to == all);
  multiply(Cursor(out, 0), Cursor(in, 0), 0, by, false);
  CHECK(to == all);
}
