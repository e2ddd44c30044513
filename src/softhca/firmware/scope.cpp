#include "firmware/scope.h"

#include <cerrno>

#include "base/fields.h"
#include "config/identity.h"

namespace softhca::firmware {

RingPlace ring_place(const Command &c, const RingFields &f, u32 log_page_size, u32 page_offset) {
  RingPlace p;
  p.umem_valid = get_field(c.in.data(), f.umem_valid_bit, 1) != 0;
  p.umem = load_be32(c.in.data() + f.umem_id_at);
  p.umem_offset = load_be64(c.in.data() + f.umem_offset_at);
  if (c.in.size() > f.pages_at) {
    p.pages = c.in.data() + f.pages_at;
    p.pages_bytes = c.in.size() - f.pages_at;
  }
  // The unit of the offset is the 64th part of a page.
  p.log_page = 12 + log_page_size;
  p.offset = u64{page_offset} << (p.log_page - 6);
  return p;
}

int check_route(const Device &device, const AddressVector &av) {
  // enum ib_rate: 0 (the port's own) or 2.5 .. 800 Gb/s.
  constexpr u8 rate_2_5_gbps = 2, rate_800_gbps = 23;
  if (av.port < 1 || av.port > device.port_count()) return EINVAL;
  if (device.ethernet(av.port) && !av.is_global) return EINVAL;
  if (av.is_global) {
    const std::vector<GidEntry> &gids = device.gids[av.port - 1u];
    if (av.sgid_index >= gid_table_size(device.port(av.port).link)) return EINVAL;
    if (av.sgid_index >= gids.size() || !gids[av.sgid_index].valid) return ENODATA;
  }
  if (av.static_rate != 0 && (av.static_rate < rate_2_5_gbps || av.static_rate > rate_800_gbps))
    return EINVAL;
  return 0;
}

}  // namespace softhca::firmware
