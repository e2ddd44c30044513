// The input or output of a command of the device, in its byte order.
#pragma once

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace ibvexp::translate {

template <std::size_t bytes>
class CommandBox {
 public:
  CommandBox() = default;
  explicit CommandBox(std::uint32_t opcode) { put(0, 16, opcode); }

  // Fields count bits from the most significant one of the first byte, and lie in one word.
  void put(std::size_t bit, unsigned width, std::uint32_t value) {
    std::uint32_t &word = words_[bit / 32];
    const unsigned shift = 32 - static_cast<unsigned>(bit % 32) - width;
    const std::uint32_t mask = width < 32 ? (1u << width) - 1 : ~0u;
    word = htobe32((be32toh(word) & ~(mask << shift)) | (value & mask) << shift);
  }
  void put_64(std::size_t bit, std::uint64_t value) {
    put(bit, 32, static_cast<std::uint32_t>(value >> 32));
    put(bit + 32, 32, static_cast<std::uint32_t>(value));
  }
  std::uint32_t get(std::size_t bit, unsigned width) const {
    const std::uint32_t word = be32toh(words_[bit / 32]);
    return word >> (32 - bit % 32 - width) & (width < 32 ? (1u << width) - 1 : ~0u);
  }
  std::uint8_t *at(std::size_t byte) {
    return reinterpret_cast<std::uint8_t *>(words_.data()) + byte;
  }
  const void *data() const { return words_.data(); }
  void *data() { return words_.data(); }
  static constexpr std::size_t size() { return bytes; }

 private:
  std::array<std::uint32_t, bytes / 4> words_{};
};

}  // namespace ibvexp::translate
