// Commands of the device (DEVX): their inputs and outputs, in its byte order.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/keep_errno.h"

namespace ibvexp::translate {

template <std::size_t bytes>
class CommandBox {
 public:
  CommandBox() = default;
  explicit CommandBox(std::uint32_t opcode) { put(0, 16, opcode); }
  // About the object of that number.
  CommandBox(std::uint32_t opcode, std::uint32_t number) : CommandBox(opcode) {
    put(72, 24, number);
  }

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
  std::uint64_t get_64(std::size_t bit) const {
    return std::uint64_t{get(bit, 32)} << 32 | get(bit + 32, 32);
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

// Makes an object: the caller's, for mlx5dv_devx_obj_destroy().
template <std::size_t bytes>
Result<void> create_object(ibv_context *context, const CommandBox<bytes> &in,
                           mlx5dv_devx_obj *&object, std::uint32_t &number) {
  const KeepErrno keep;
  CommandBox<16> out;
  object = mlx5dv_devx_obj_create(context, in.data(), in.size(), out.data(), out.size());
  if (object == nullptr) return keep.reason();
  number = out.get(72, 24);
  return {};
}

template <std::size_t bytes>
Result<void> modify_object(mlx5dv_devx_obj *object, const CommandBox<bytes> &in) {
  CommandBox<16> out;
  return outcome(mlx5dv_devx_obj_modify(object, in.data(), in.size(), out.data(), out.size()));
}

}  // namespace ibvexp::translate
