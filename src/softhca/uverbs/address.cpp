#include "uverbs/address.h"

#include <algorithm>
#include <iterator>

#include "base/gid.h"
#include "firmware/scope.h"

namespace softhca::uverbs {

int check_address(const File &file, const AddressVector &av) {
  return firmware::check_route(file.device(), av);
}

bool can_resolve(const File &file, const AddressVector &av) {
  constexpr u8 link_local[] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0};
  if (!file.device().ethernet(av.port)) return true;
  const GidEntry &source = file.device().gids[av.port - 1u][av.sgid_index];
  const bool ipv4 = is_ipv4_gid(av.dgid);
  // The address is in the GID itself.
  if (av.dgid[0] == 0xff || (ipv4 && av.dgid[12] >> 4 == 0xe)) return true;  // multicast
  if (source.type == GidType::roce_v1 && std::equal(link_local, std::end(link_local), av.dgid))
    return true;
  return is_ipv4_gid(source.gid.data()) == ipv4;
}

}  // namespace softhca::uverbs
