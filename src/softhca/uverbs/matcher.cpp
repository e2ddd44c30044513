// Flow rules on raw match parameters (mlx5dv_create_flow_matcher, mlx5dv_create_flow;
// kernel: mlx5/fs.c).
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>

#include "firmware/flow_match.h"
#include "uverbs/dispatch.h"
#include "uverbs/flow.h"
#include "uverbs/privilege.h"

namespace softhca::uverbs {

namespace {

using firmware::match_bytes;
constexpr u8 criteria_outer = 1, criteria_misc = 2, criteria_inner = 4;

int read_parameters(const Attrs &attrs, u16 id, std::vector<u8> &out) {
  if (attrs.length(id) > match_bytes) return EINVAL;
  if (const int error = attrs.bytes(id, out); error != 0) return error;
  out.resize(match_bytes);
  return 0;
}

int create_matcher(File &file, Attrs &attrs) {
  constexpr u32 dont_trap = 1 << 1, egress = 1 << 2;  // ib_flow_flags
  constexpr u16 last_priority = 15;
  auto object = std::make_unique<MatcherObject>(file);
  if (const int error = read_parameters(attrs, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, object->mask);
      error != 0)
    return error;
  const u16 priority = attrs.value<u16>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE);
  const u8 criteria = attrs.value<u8>(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA);
  u32 flags = 0;
  u64 table = MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX;
  if (const int error =
          attrs.flags(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, dont_trap | egress, flags);
      error != 0)
    return error;
  attrs.constant(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, table);
  // Only what arrives can be steered, and only by headers.
  if (!file.caps().raw_ethernet || table != MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX ||
      (flags & egress) != 0 || (criteria & ~(criteria_outer | criteria_misc | criteria_inner)) != 0)
    return EOPNOTSUPP;
  if (priority > last_priority) return EINVAL;
  if (!firmware::match_is_known(object->mask.data())) return EOPNOTSUPP;
  object->rule.priority = priority;
  object->rule.dont_trap = (flags & dont_trap) != 0;
  return commit(file, attrs, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, std::move(object));
}

int destroy_matcher(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE);
}

int create_flow(File &file, Attrs &attrs) {
  constexpr u32 max_tag = 1u << 24;
  if (!has_capability(CAP_NET_RAW)) return EPERM;
  auto *matcher = attrs.object<MatcherObject>(MLX5_IB_ATTR_CREATE_FLOW_MATCHER);
  auto *qp = attrs.object<QpObject>(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
  u32 flags = 0;
  if (const int error = attrs.flags(
          MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
          MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS | MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP, flags);
      error != 0)
    return error;
  // Destinations and actions made by firmware command cannot be made here.
  if (attrs.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX) ||
      attrs.has(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS) ||
      attrs.has(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX) ||
      (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS) != 0)
    return EOPNOTSUPP;
  const bool drop = (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP) != 0;
  if (drop == (qp != nullptr)) return EINVAL;  // one destination
  if (qp != nullptr && qp->qp->type != QpType::raw_packet) return EINVAL;
  std::vector<u8> value;
  if (const int error = read_parameters(attrs, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value);
      error != 0)
    return error;

  for (size_t i = 0; i < value.size(); ++i)
    if ((value[i] & ~matcher->mask[i]) != 0) return EINVAL;

  FlowRule rule = matcher->rule;
  rule.device = file.device_number;
  rule.port = qp != nullptr ? std::max<u8>(qp->qp->attr.port, 1) : u8{1};
  rule.qp = qp != nullptr ? qp->qp : nullptr;
  rule.drop = drop;
  rule.has_tag = attrs.in(MLX5_IB_ATTR_CREATE_FLOW_TAG, rule.tag) == 0;
  if (rule.tag >= max_tag) return EINVAL;
  if (const int error =
          firmware::read_match(value.data(), matcher->mask.data(), rule.value, rule.mask);
      error != 0)
    return error;
  if (!file.device().ethernet(rule.port)) return EOPNOTSUPP;
  auto flow = std::make_unique<FlowObject>(file, qp);
  flow->matcher.reset(matcher);
  if (const int error = flow->add(rule); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_CREATE_FLOW_HANDLE, std::move(flow));
}

int destroy_flow(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_DESTROY_FLOW_HANDLE);
}

constexpr AttrSpec matcher_specs[] = {
    created(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE),
    in_bytes(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, 1),
    in<u16>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE),  // of an enumeration; normal rules are 0
    in<u8>(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA),
    flags(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS),
    constant(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE).optional(),
};
constexpr AttrSpec destroy_matcher_specs[] = {
    destroyed(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, ObjectClass::flow_matcher)};
constexpr AttrSpec flow_specs[] = {
    created(MLX5_IB_ATTR_CREATE_FLOW_HANDLE),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, 1),
    object(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, ObjectClass::flow_matcher),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, ObjectClass::qp).optional(),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, ObjectClass::devx_object).optional(),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, 0).optional(),
    in<u32>(MLX5_IB_ATTR_CREATE_FLOW_TAG).optional(),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, 0).optional(),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, 0).optional(),
    flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS),
};
constexpr AttrSpec destroy_flow_specs[] = {
    destroyed(MLX5_IB_ATTR_DESTROY_FLOW_HANDLE, ObjectClass::flow)};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, "FLOW_MATCHER/CREATE",
     create_matcher, matcher_specs},
    {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, "FLOW_MATCHER/DESTROY",
     destroy_matcher, destroy_matcher_specs},
    {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, "FLOW/CREATE", create_flow, flow_specs},
    {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, "FLOW/DESTROY", destroy_flow,
     destroy_flow_specs},
};

}  // namespace

constinit const Family matcher_family = {methods, {}};

}  // namespace softhca::uverbs
