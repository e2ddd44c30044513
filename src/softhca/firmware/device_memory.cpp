// Memory of the device, behind the registers in BAR 0: ALLOC_MEMIC and DEALLOC_MEMIC.
#include <algorithm>
#include <cstring>

#include "firmware/resources.h"

namespace softhca::firmware {

namespace {

constexpr u32 address_at = 16;

struct MemicResource final : Resource {
  MemicResource(u32 n, u16 u, u64 length) : Resource(Kind::memic, n, u), bytes(length) {}
  const u64 bytes;
};

}  // namespace

// The driver says which pages it may be: it counts them, too.
Status Hca::memic_alloc(Command &c) {
  constexpr u32 range_at = 24, size_at = 28, log_alignment_at = 15, answer_at = 8;
  constexpr u8 max_log_alignment = 6;
  const u64 start = load_be64(c.in.data() + address_at);
  const u64 range = load_be32(c.in.data() + range_at), size = load_be32(c.in.data() + size_at);
  if (!device.caps.device_memory) return Status::bad_op;
  if (size == 0 || size > range || start % page_size != 0 || start < memic_at ||
      c.in[log_alignment_at] > max_log_alignment)
    return Status::bad_param;
  const u64 first = start - memic_at, bytes = align_up(size, page_size);
  if (first > memic_.size() || bytes > memic_.size() - first) return Status::bad_param;
  for (const auto &[key, resource] : resources_) {
    if (key.first != Kind::memic) continue;
    const u64 at = u64{key.second} * page_size;
    if (first < at + static_cast<MemicResource &>(*resource).bytes && at < first + bytes)
      return Status::no_resources;
  }
  const u32 number = static_cast<u32>(first / page_size);
  std::memset(memic_.data() + first, 0, bytes);
  resources_[{Kind::memic, number}] = std::make_unique<MemicResource>(number, c.uid(), bytes);
  store_be64(c.out.data() + answer_at, start);
  return Status::ok;
}

Status Hca::memic_free(Command &c) {
  const u64 start = load_be64(c.in.data() + address_at);
  if (start % page_size != 0 || start < memic_at || start - memic_at >= memic_.size())
    return Status::bad_param;
  const auto number = static_cast<u32>((start - memic_at) / page_size);
  return resources_.erase({Kind::memic, number}) != 0 ? Status::ok : Status::bad_resource;
}

u8 *Hca::device_memory(u64 address, u64 bytes) {
  if (address < memic_at || address - memic_at > memic_.size() ||
      bytes > memic_.size() - (address - memic_at))
    return nullptr;
  return memic_.data() + (address - memic_at);
}

}  // namespace softhca::firmware
