// Protection domains.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

int alloc_pd(File &file, Attrs &attrs) {
  ib_uverbs_alloc_pd req{};
  if (const int error = request(attrs, req); error != 0) return error;
  Process &p = process();
  const u32 pdn = p.next_pdn++ & 0xffffff;
  const mlx5_ib_alloc_pd_resp driver{pdn};
  if (const int error = driver_respond(attrs, driver); error != 0) return error;
  const ib_uverbs_alloc_pd_resp resp{file.objects.reserve()};
  if (const int error = respond(attrs, resp); error != 0) return error;
  file.objects.insert(resp.pd_handle, std::make_unique<PdObject>(file, pdn));
  return 0;
}

int pd_destroy(File &file, Attrs &attrs) {
  return destroy(file, attrs, UVERBS_ATTR_DESTROY_PD_HANDLE);
}

int pd_query(File &, Attrs &attrs) {
  return attrs.out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN,
                   attrs.object<PdObject>(MLX5_IB_ATTR_QUERY_PD_HANDLE)->pdn);
}

constexpr AttrSpec destroy_specs[] = {destroyed(UVERBS_ATTR_DESTROY_PD_HANDLE, ObjectClass::pd)};
constexpr AttrSpec query_specs[] = {
    object(MLX5_IB_ATTR_QUERY_PD_HANDLE, ObjectClass::pd),
    out<u32>(MLX5_IB_ATTR_QUERY_PD_RESP_PDN),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, "PD/DESTROY", pd_destroy, destroy_specs},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, "PD/QUERY", pd_query, query_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, "WRITE/ALLOC_PD", sizeof(ib_uverbs_alloc_pd),
     sizeof(ib_uverbs_alloc_pd_resp), alloc_pd},
};

}  // namespace

constinit const Family pd_family = {methods, commands};

}  // namespace softhca::uverbs
