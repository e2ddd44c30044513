// What tests and fuzz targets of a PCI function put into the command queue.
#pragma once

#include <vector>

#include "base/fields.h"

namespace softhca::test {

// The input box of a command.
struct Box : std::vector<u8> {
  explicit Box(u16 opcode, size_t bytes = 16) : std::vector<u8>(bytes) {
    store_be16(data(), opcode);
  }
  Box &put(u32 bit, u32 width, u32 value) {
    set_field(data(), bit, width, value);
    return *this;
  }
  Box &put64(u32 byte, u64 value) {
    store_be64(data() + byte, value);
    return *this;
  }
  Box &op_mod(u16 value) {
    store_be16(data() + 6, value);
    return *this;
  }
};

}  // namespace softhca::test
