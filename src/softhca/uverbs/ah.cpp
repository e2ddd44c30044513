// Address handles. libmlx5 builds the address vector itself and asks only for
// the destination MAC address, on Ethernet ports.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>

#include "base/gid.h"
#include "uverbs/address.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

using Mac = std::array<u8, 6>;

// What address resolution gives in the emulated network. MAC addresses are
// those of config/identity.h: 02:53:48:<host>:<device>:<port>, and IPv4
// addresses 10.<device>.<port>.<host> unless configured otherwise. Nothing
// routes by them; they only have to be plausible and stable.
Mac resolve_mac(const u8 *gid) {
  if (gid[0] == 0xff) return {0x33, 0x33, gid[12], gid[13], gid[14], gid[15]};
  if (is_ipv4_gid(gid)) {
    if (gid[12] >= 224 && gid[12] < 240)
      return {0x01, 0x00, 0x5e, static_cast<u8>(gid[13] & 0x7f), gid[14], gid[15]};
    if (gid[12] == 10) return {0x02, 0x53, 0x48, gid[15], gid[13], gid[14]};
    return {0x02, 0x53, gid[12], gid[13], gid[14], gid[15]};
  }
  // Modified EUI-64 of a link-local address.
  return {static_cast<u8>(gid[8] ^ 0x02), gid[9], gid[10], gid[13], gid[14], gid[15]};
}

int create_ah(File &file, Attrs &attrs) {
  ib_uverbs_create_ah req{};
  if (const int error = request(attrs, req); error != 0) return error;
  AddressVector av;
  read_address(req.attr, av);
  av.sgid_index = req.attr.grh.sgid_index;
  std::copy(std::begin(req.attr.grh.dgid), std::end(req.attr.grh.dgid), av.dgid);
  if (!file.valid_port(av.port)) return EINVAL;
  int error = 0;
  PdObject *pd = file.objects.get<PdObject>(req.pd_handle, error);
  if (pd == nullptr) return error;
  if (error = check_address(file, av); error != 0) return error;
  if (!can_resolve(file, av)) return EINVAL;

  auto ah = std::make_unique<AhObject>(file, pd);
  if (file.device().ethernet(av.port)) {
    mlx5_ib_create_ah_resp driver{};
    constexpr u32 minimum = SOFTHCA_END_OF(mlx5_ib_create_ah_resp, dmac);
    if (driver_response_room(attrs) != 0 && driver_response_room(attrs) < minimum) return EINVAL;
    driver.response_length = minimum;
    const Mac mac = resolve_mac(req.attr.grh.dgid);
    std::copy(mac.begin(), mac.end(), driver.dmac);
    if (error = driver_respond(attrs, driver); error != 0) return error;
  }
  const ib_uverbs_create_ah_resp resp{file.objects.reserve()};
  if (error = respond(attrs, resp); error != 0) return error;
  file.objects.insert(resp.ah_handle, std::move(ah));
  return 0;
}

int ah_destroy(File &file, Attrs &attrs) {
  return destroy(file, attrs, UVERBS_ATTR_DESTROY_AH_HANDLE);
}

constexpr AttrSpec destroy_specs[] = {destroyed(UVERBS_ATTR_DESTROY_AH_HANDLE, ObjectClass::ah)};
constexpr Method methods[] = {
    {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, "AH/DESTROY", ah_destroy, destroy_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_CREATE_AH, "WRITE/CREATE_AH", sizeof(ib_uverbs_create_ah),
     sizeof(ib_uverbs_create_ah_resp), create_ah},
};

}  // namespace

constinit const Family ah_family = {methods, commands};

}  // namespace softhca::uverbs
