#include "uverbs/address.h"

#include "config/identity.h"

#include <cerrno>

namespace softhca::uverbs {

namespace {

// enum ib_rate: 0 (the port's own) or 2.5 .. 800 Gb/s.
constexpr u8 rate_2_5_gbps = 2, rate_800_gbps = 23;

}  // namespace

int check_address(const File &file, const AddressVector &av) {
  if (!file.valid_port(av.port)) return EINVAL;
  const Device &device = file.device();
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

}  // namespace softhca::uverbs
