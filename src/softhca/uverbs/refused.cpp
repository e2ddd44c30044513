// What a kernel with this interface has and this device does not do: known
// commands, refused with EOPNOTSUPP. (EPROTONOSUPPORT would make libibverbs
// fall back to an older command and remember it.)
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "uverbs/dispatch.h"

namespace softhca::uverbs {

int refuse(File &, Attrs &) { return EOPNOTSUPP; }

namespace {

// clang-format off
constexpr Method methods[] = {
    {UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_ESP_CREATE, "FLOW_ACTION/ESP_CREATE", refuse, {}},
    {UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_DESTROY, "FLOW_ACTION/DESTROY", refuse, {}},
    {UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY, "FLOW_ACTION/ESP_MODIFY", refuse, {}},
    {UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER,
     "FLOW_ACTION/CREATE_MODIFY_HEADER", refuse, {}},
    {UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT,
     "FLOW_ACTION/CREATE_PACKET_REFORMAT", refuse, {}},
    {MLX5_IB_OBJECT_STEERING_ANCHOR, MLX5_IB_METHOD_STEERING_ANCHOR_CREATE, "STEERING_ANCHOR/CREATE", refuse, {}},
    {MLX5_IB_OBJECT_STEERING_ANCHOR, MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY, "STEERING_ANCHOR/DESTROY", refuse, {}},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, "COUNTERS/CREATE", refuse, {}},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, "COUNTERS/DESTROY", refuse, {}},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, "COUNTERS/READ", refuse, {}},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, "MR/REG_DMABUF_MR", refuse, {}},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR, "DM/MAP_OP_ADDR", refuse, {}},
    {MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_ALLOC, "VAR/ALLOC", refuse, {}},
    {MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_DESTROY, "VAR/DESTROY", refuse, {}},
};
// clang-format on

}  // namespace

constinit const Family refused_family = {methods, {}};

}  // namespace softhca::uverbs
