// Fields of the programming interface's structures, as mlx5_ifc.h has them: bit
// `offset` counts from the most significant one of the first byte. No field
// crosses a 32-bit word.
#pragma once

#include "base/types.h"

namespace softhca {

constexpr u32 field_mask(u32 width) { return width == 32 ? ~0u : (1u << width) - 1; }

inline u32 get_field(const u8 *from, u32 offset, u32 width) {
  return load_be32(from + offset / 32 * 4) >> (32 - offset % 32 - width) & field_mask(width);
}

inline void set_field(u8 *to, u32 offset, u32 width, u32 value) {
  u8 *word = to + offset / 32 * 4;
  const u32 shift = 32 - offset % 32 - width, mask = field_mask(width);
  store_be32(word, (load_be32(word) & ~(mask << shift)) | (value & mask) << shift);
}

}  // namespace softhca
