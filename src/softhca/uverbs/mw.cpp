// Memory windows: keys that are bound with UMR work requests.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u8 type_1 = 1, type_2 = 2;

// mlx5_ib_alloc_mw: a free KLM key without range or access.
int alloc_mw(File &file, Attrs &attrs) {
  ib_uverbs_alloc_mw req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (!file.caps().memory_windows) return EOPNOTSUPP;
  int error = 0;
  PdObject *pd = file.objects.get<PdObject>(req.pd_handle, error);
  if (pd == nullptr) return error;
  if (req.mw_type != type_1 && req.mw_type != type_2) return EINVAL;
  mlx5_ib_alloc_mw driver{};
  if (error = driver_request(attrs, driver, 0, EOPNOTSUPP); error != 0) return error;
  if (driver.comp_mask != 0 || driver.reserved1 != 0 || driver.reserved2 != 0) return EOPNOTSUPP;

  auto mw = std::make_unique<MwObject>(file, pd);
  if (!mw->key) return ENOMEM;
  mw->key->kind = Mkey::Kind::indirect;
  mw->key->free = true;
  mw->key->umr_en = true;
  mw->key->remote_invalidate = req.mw_type == type_2;
  mw->key->max_entries = driver.num_klms == 0 ? 4 : static_cast<u32>(align_up(driver.num_klms, 4));
  ib_uverbs_alloc_mw_resp resp{};
  resp.mw_handle = file.objects.reserve();
  resp.rkey = mw->key->key();
  if (error = respond(attrs, resp); error != 0) return error;
  file.objects.insert(resp.mw_handle, std::move(mw));
  return 0;
}

int mw_destroy(File &file, Attrs &attrs) {
  return destroy_settled(file, attrs, UVERBS_ATTR_DESTROY_MW_HANDLE);
}

constexpr AttrSpec destroy_specs[] = {destroyed(UVERBS_ATTR_DESTROY_MW_HANDLE, ObjectClass::mw)};
constexpr Method methods[] = {
    {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, "MW/DESTROY", mw_destroy, destroy_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_ALLOC_MW, "WRITE/ALLOC_MW", sizeof(ib_uverbs_alloc_mw),
     sizeof(ib_uverbs_alloc_mw_resp), alloc_mw},
};

}  // namespace

constinit const Family mw_family = {methods, commands};

}  // namespace softhca::uverbs
