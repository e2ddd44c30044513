#include "firmware/command.h"

#include <algorithm>

#include "base/log.h"

namespace softhca::firmware {

void answer(Command &c, Status status) {
  c.out[0] = static_cast<u8>(status);
  if (status == Status::ok) return;
  std::fill(c.out.begin() + 1, c.out.end(), u8{0});
  // Firmware's syndromes are opaque; ours names the opcode.
  store_be32(c.out.data() + 4, 0x534800u << 8 | c.opcode());
  SOFTHCA_LOG(info, "firmware command %#x, op_mod %#x: status %#x", c.opcode(), c.op_mod(),
              static_cast<u32>(status));
}

}  // namespace softhca::firmware
