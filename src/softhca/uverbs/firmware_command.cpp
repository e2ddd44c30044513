#include "uverbs/firmware_command.h"

#include <cerrno>

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
  answer(c, status);
  const int error = attrs.write(c.out_id, c.out.data(), static_cast<u32>(c.out.size()));
  return error != 0 ? error : status != Status::ok ? EREMOTEIO : 0;
}

}  // namespace softhca::uverbs
