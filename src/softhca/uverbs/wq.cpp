// Receive work queues (core/uverbs_std_types_wq.c, mlx5_ib_create_wq and
// mlx5_ib_modify_wq).
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>

#include "uverbs/dispatch.h"
#include "uverbs/privilege.h"
#include "uverbs/queue.h"
#include "uverbs/uverbs_limits.h"

namespace softhca::uverbs {

namespace {

// Flags that the driver knows, then what this device can do of them.
int read_flags(const Attrs &attrs, ReceiveOffloads &out) {
  constexpr u32 known = IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING | IB_UVERBS_WQ_FLAGS_SCATTER_FCS |
                        IB_UVERBS_WQ_FLAGS_DELAY_DROP | IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING;
  u32 flags = 0;
  if (const int error = attrs.flags(UVERBS_ATTR_CREATE_WQ_FLAGS, known, flags); error != 0)
    return error;
  if ((flags & IB_UVERBS_WQ_FLAGS_DELAY_DROP) != 0)
    return has_capability(CAP_SYS_RAWIO) ? EOPNOTSUPP : EPERM;
  out.strip_vlan = (flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING) != 0;
  out.scatter_fcs = (flags & IB_UVERBS_WQ_FLAGS_SCATTER_FCS) != 0;
  return 0;
}

bool within(u32 v, u32 low, u32 high) { return v >= low && v <= high; }

// prepare_user_rq and set_user_rq_size.
int read_layout(const File &file, const Attrs &attrs, u32 max_wr, mlx5_ib_create_wq &d, Wq &wq) {
  constexpr u32 min_shift = 4, max_shift = 11;
  constexpr u32 minimum = SOFTHCA_END_OF(mlx5_ib_create_wq, single_stride_log_num_of_bytes);
  if (const int error = driver_request(attrs, d, minimum, EOPNOTSUPP); error != 0) return error;
  if ((d.comp_mask & ~u32{MLX5_IB_CREATE_WQ_STRIDING_RQ}) != 0) return EOPNOTSUPP;
  if ((d.comp_mask & MLX5_IB_CREATE_WQ_STRIDING_RQ) != 0) {
    if (!file.caps().striding_rq) return EOPNOTSUPP;
    if (!within(d.single_stride_log_num_of_bytes, min_log_stride_bytes, max_log_stride_bytes) ||
        !within(d.single_wqe_log_num_of_strides, min_log_strides, max_log_strides))
      return EINVAL;
    wq.strides = {d.single_stride_log_num_of_bytes, d.single_wqe_log_num_of_strides};
    wq.two_byte_shift = d.two_byte_shift_en != 0;
  }
  if ((d.flags & ~u32{MLX5_WQ_FLAG_SIGNATURE}) != 0) return EINVAL;
  wq.signature = (d.flags & MLX5_WQ_FLAG_SIGNATURE) != 0;
  const u32 limit = file.caps().max_qp_wr;
  if (max_wr > limit || d.rq_wqe_count == 0 || d.rq_wqe_count > limit ||
      (d.rq_wqe_count & (d.rq_wqe_count - 1)) != 0 ||
      !within(d.rq_wqe_shift, min_shift, max_shift) || d.buf_addr == 0)
    return EINVAL;
  wq.entries = d.rq_wqe_count;
  wq.stride = 1u << d.rq_wqe_shift;
  // Room for at least one data segment.
  if (((wq.strides.on() ? 2u : 1u) + (wq.signature ? 1u : 0u)) * wqe_ds > wq.stride) return EINVAL;
  if (const int error = check_uidx(d.user_index); error != 0) return error;
  wq.uidx = d.user_index;
  return 0;
}

int wq_create(File &file, Attrs &attrs) {
  u64 type = 0;
  attrs.constant(UVERBS_ATTR_CREATE_WQ_TYPE, type);
  if (type != IB_UVERBS_WQT_RQ) return EINVAL;
  auto object =
      std::make_unique<WqObject>(file, attrs.object<PdObject>(UVERBS_ATTR_CREATE_WQ_PD_HANDLE),
                                 attrs.object<CqObject>(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE));
  Wq &wq = object->wq;
  wq.user_handle = attrs.value<u64>(UVERBS_ATTR_CREATE_WQ_USER_HANDLE);
  const u32 max_wr = attrs.value<u32>(UVERBS_ATTR_CREATE_WQ_MAX_WR);
  const u32 max_sge = attrs.value<u32>(UVERBS_ATTR_CREATE_WQ_MAX_SGE);
  if (const int error = read_flags(attrs, wq.offloads); error != 0) return error;
  if (!file.caps().raw_ethernet) return EOPNOTSUPP;
  mlx5_ib_create_wq driver{};
  if (const int error = read_layout(file, attrs, max_wr, driver, wq); error != 0) return error;
  if (const int error = claim_buffer(driver.buf_addr, u64{wq.entries} * wq.stride); error != 0)
    return error;
  if (const int error = claim_doorbell(driver.db_addr); error != 0) return error;
  wq.buffer = reinterpret_cast<const u8 *>(driver.buf_addr);
  wq.dbrec = reinterpret_cast<u32 *>(driver.db_addr);
  if (const int error = start_device(); error != 0) return error;
  static u32 next_wqn = 1;
  wq.wqn = next_wqn++ & 0xffffff;
  wq.pdn = object->pd->pdn;
  wq.device = &file.device();
  wq.cq = &object->cq->cq;
  attach_events(wq.async, async_channel(file, attrs, UVERBS_ATTR_CREATE_WQ_EVENT_FD));

  const mlx5_ib_create_wq_resp resp{sizeof resp, 0};
  if (const int error = driver_respond(attrs, resp); error != 0) return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, max_wr); error != 0)
    return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, max_sge); error != 0)
    return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, wq.wqn); error != 0)
    return error;
  return commit(file, attrs, UVERBS_ATTR_CREATE_WQ_HANDLE, std::move(object));
}

int wq_destroy(File &file, Attrs &attrs) {
  auto *object = attrs.object<WqObject>(UVERBS_ATTR_DESTROY_WQ_HANDLE);
  if (const int error = object->can_destroy(); error != 0) return error;
  const u32 reported = object->end_events();
  file.objects.destroy(object);
  return attrs.out(UVERBS_ATTR_DESTROY_WQ_RESP, reported);
}

bool transition_allowed(WqState from, WqState to) {
  return to == WqState::reset || from == to || (from == WqState::reset && to == WqState::ready) ||
         (from == WqState::ready && to == WqState::error);
}

int modify_wq(File &file, Attrs &attrs) {
  constexpr u32 set_state = 1, check_state = 2, set_flags = 4;  // IB_WQ_STATE, _CUR_STATE, _FLAGS
  constexpr u32 last_state = static_cast<u32>(WqState::error);
  ib_uverbs_ex_modify_wq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.attr_mask == 0 || req.attr_mask > (set_state | check_state | set_flags)) return EINVAL;
  int error = 0;
  WqObject *object = file.objects.get<WqObject>(req.wq_handle, error);
  if (object == nullptr) return error;
  mlx5_ib_modify_wq driver{};
  if (error = driver_request(attrs, driver, sizeof driver, EOPNOTSUPP); error != 0) return error;
  if (driver.comp_mask != 0 || driver.reserved != 0) return EOPNOTSUPP;

  Wq &wq = object->wq;
  const bool has_state = (req.attr_mask & set_state) != 0,
             has_check = (req.attr_mask & check_state) != 0;
  if ((has_state && req.wq_state > last_state) || (has_check && req.curr_wq_state > last_state))
    return EINVAL;
  const auto from = has_check ? static_cast<WqState>(req.curr_wq_state) : wq.state;
  const auto to = has_state ? static_cast<WqState>(req.wq_state) : from;
  const bool flags = (req.attr_mask & set_flags) != 0;
  if (flags && (req.flags_mask & ~u32{IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING}) != 0) return EOPNOTSUPP;
  if (from != wq.state || !transition_allowed(from, to)) return EINVAL;
  if (flags && (req.flags_mask & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING) != 0)
    wq.offloads.strip_vlan = (req.flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING) != 0;
  if (has_state) wq_set_state(wq, to);
  return 0;
}

constexpr AttrSpec create_specs[] = {
    created(UVERBS_ATTR_CREATE_WQ_HANDLE),
    object(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, ObjectClass::pd),
    object(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, ObjectClass::cq),
    in<u64>(UVERBS_ATTR_CREATE_WQ_USER_HANDLE),
    constant(UVERBS_ATTR_CREATE_WQ_TYPE),
    async_fd(UVERBS_ATTR_CREATE_WQ_EVENT_FD),
    in<u32>(UVERBS_ATTR_CREATE_WQ_MAX_WR),
    in<u32>(UVERBS_ATTR_CREATE_WQ_MAX_SGE),
    flags(UVERBS_ATTR_CREATE_WQ_FLAGS),
    out<u32>(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR),
    out<u32>(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE),
    out<u32>(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM).optional(),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_WQ_HANDLE, ObjectClass::wq),
    out<u32>(UVERBS_ATTR_DESTROY_WQ_RESP),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, "WQ/CREATE", wq_create, create_specs, true},
    {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, "WQ/DESTROY", wq_destroy, destroy_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_WQ, "WRITE/EX_MODIFY_WQ",
     sizeof(ib_uverbs_ex_modify_wq), 0, modify_wq},
};

}  // namespace

constinit const Family wq_family = {methods, commands};

}  // namespace softhca::uverbs
