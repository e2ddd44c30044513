// What a kernel with this interface has and this device does not do: known
// commands, refused with EOPNOTSUPP. (EPROTONOSUPPORT would make libibverbs
// fall back to an older command and remember it.)
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
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
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "DEVX/SUBSCRIBE_EVENT", refuse, {}},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, "DEVX_OBJ/ASYNC_QUERY", refuse, {}},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "DEVX_UMEM/REG", refuse, {}},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "DEVX_UMEM/DEREG", refuse, {}},
    {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, "DEVX_ASYNC_CMD_FD/ALLOC", refuse, {}},
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
     "DEVX_ASYNC_EVENT_FD/ALLOC", refuse, {}},
    {MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_ALLOC, "VAR/ALLOC", refuse, {}},
    {MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_DESTROY, "VAR/DESTROY", refuse, {}},
};
// clang-format on

constexpr u32 extended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr WriteCommand commands[] = {
    {extended | IB_USER_VERBS_EX_CMD_CREATE_WQ, "WRITE/EX_CREATE_WQ", 0, 0, refuse},
    {extended | IB_USER_VERBS_EX_CMD_DESTROY_WQ, "WRITE/EX_DESTROY_WQ", 0, 0, refuse},
};

}  // namespace

constinit const Family refused_family = {methods, commands};

}  // namespace softhca::uverbs
