#include "uverbs/firmware_command.h"

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace softhca::uverbs {

int read_command(const File &file, const Attrs &attrs, u16 in_id, u16 out_id, Command &c) {
  // The context must have been opened for firmware commands.
  if (!file.devx) return EINVAL;
  if (const int error = attrs.bytes(in_id, c.in); error != 0) return error;
  c.out.assign(attrs.length(out_id), 0);
  c.out_id = out_id;
  return 0;
}

int reply(const Attrs &attrs, Command &c, Status status) {
  c.out[0] = static_cast<u8>(status);
  if (status != Status::ok) {
    std::fill(c.out.begin() + 1, c.out.end(), u8{0});
    // Firmware's syndromes are opaque; ours names the opcode.
    store_be32(c.out.data() + 4, 0x534800u << 8 | c.opcode());
    SOFTHCA_LOG(info, "firmware command %#x, op_mod %#x: status %u", c.opcode(), c.op_mod(),
                static_cast<u32>(status));
  }
  const int error = attrs.write(c.out_id, c.out.data(), static_cast<u32>(c.out.size()));
  return error != 0 ? error : status != Status::ok ? EREMOTEIO : 0;
}

}  // namespace softhca::uverbs
