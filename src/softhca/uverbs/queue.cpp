#include "uverbs/queue.h"

#include "engine/callers.h"
#include "model/memory.h"

namespace softhca::uverbs {

int claim_buffer(u64 address, u64 bytes) {
  if (bytes == 0) return 0;
  return probe(address, bytes, true) != 0 ? EFAULT : 0;
}

int claim_doorbell(u64 address) {
  constexpr u64 record_bytes = 8;
  if (address % record_bytes != 0) return EINVAL;
  return claim_buffer(address, record_bytes);
}

int check_uidx(u32 uidx) { return uidx < unused_uidx ? 0 : EINVAL; }

int start_device() {
  if (process().started) return 0;
  const int error = process().start();
  if (error == 0) callers_find();
  return error;
}

EventChannel *async_channel(const File &file, const Attrs &attrs, u16 id) {
  return attrs.has(id) ? attrs.channel(id) : file.async;
}

}  // namespace softhca::uverbs
