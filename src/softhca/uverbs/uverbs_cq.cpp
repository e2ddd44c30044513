// Completion queues (core/uverbs_std_types_cq.c, mlx5/cq.c).
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "uverbs/context.h"
#include "uverbs/dispatch.h"
#include "uverbs/queue.h"
#include "uverbs/uverbs_limits.h"

namespace softhca::uverbs {

namespace {

bool valid_cqe_size(u32 size) { return size == 64 || size == 128; }

u8 *pointer(u64 address) { return reinterpret_cast<u8 *>(address); }

int choose_compression(const Capabilities &caps, const mlx5_ib_create_cq &d, CqeCompression &out) {
  out = CqeCompression::off;
  if (d.cqe_comp_en != 1) return 0;
  if (!(d.cqe_size == 128 ? caps.cqe_128_compression : caps.cqe_compression)) return EOPNOTSUPP;
  switch (d.cqe_comp_res_format) {
    case MLX5_IB_CQE_RES_FORMAT_HASH: out = CqeCompression::hash; return 0;
    case MLX5_IB_CQE_RES_FORMAT_CSUM: out = CqeCompression::checksum; return 0;
    case MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX: out = CqeCompression::checksum_stridx; return 0;
    default: return EINVAL;  // none, or several
  }
}

int check_driver_data(const File &file, const mlx5_ib_create_cq &d) {
  constexpr u32 known = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD |
                        MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX |
                        MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS;
  if ((d.flags & ~known) != 0 || !valid_cqe_size(d.cqe_size) || d.reserved0 != 0 ||
      d.reserved1 != 0)
    return EINVAL;
  // A context with UARs of its own arms completion queues through the first.
  if (!file.bfregs.in_use() && ((d.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) == 0 ||
                                file.uars.count(d.uar_page_index) == 0))
    return EINVAL;
  if ((d.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) != 0 && d.cqe_size != 128) return EOPNOTSUPP;
  // One clock only: the kernel accepts the flag here and refuses at QP
  // creation; there is no QP that could want it.
  if ((d.flags & MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS) != 0) return EOPNOTSUPP;
  return 0;
}

int cq_create(File &file, Attrs &attrs) {
  const Capabilities &caps = file.caps();
  const u32 vector = attrs.value<u32>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
  const u32 cqe = attrs.value<u32>(UVERBS_ATTR_CREATE_CQ_CQE);
  u32 flags = 0;
  if (const int error = attrs.flags(
          UVERBS_ATTR_CREATE_CQ_FLAGS,
          IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, flags);
      error != 0)
    return error;
  if (vector >= completion_vectors() || cqe == 0 || cqe > caps.max_cqe) return EINVAL;
  const u32 entries = round_up_pow2(cqe + 1);
  mlx5_ib_create_cq driver{};
  if (const int error = driver_request(attrs, driver, offsetof(mlx5_ib_create_cq, flags));
      error != 0)
    return error;
  if (const int error = check_driver_data(file, driver); error != 0) return error;
  CqeCompression compression;
  if (const int error = choose_compression(caps, driver, compression); error != 0) return error;
  if (const int error = claim_buffer(driver.buf_addr, u64{entries} * driver.cqe_size); error != 0)
    return error;
  if (const int error = claim_doorbell(driver.db_addr); error != 0) return error;
  if (const int error = start_device(); error != 0) return error;

  auto object = std::make_unique<CqObject>(file);
  Cq &cq = object->cq;
  cq.cqn = process().next_cqn++ & 0xffffff;
  cq.user_handle = attrs.value<u64>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
  cq.buffer = pointer(driver.buf_addr);
  cq.dbrec = reinterpret_cast<u32 *>(driver.db_addr);
  cq.entries = entries;
  cq.cqe_size = driver.cqe_size;
  cq.ignore_overrun = (flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
  cq.compression = compression;
  attach_events(cq.completion, attrs.channel(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL));
  attach_events(cq.async, async_channel(file, attrs, UVERBS_ATTR_CREATE_CQ_EVENT_FD));
  cq_start(cq);
  file.cqs.add(cq.cqn, object.get(), &cq);

  const u32 resp_cqe = entries - 1;
  const mlx5_ib_create_cq_resp resp{cq.cqn, 0};
  if (const int error = driver_respond(attrs, resp); error != 0) return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, resp_cqe); error != 0)
    return error;
  return commit(file, attrs, UVERBS_ATTR_CREATE_CQ_HANDLE, std::move(object));
}

int cq_destroy(File &file, Attrs &attrs) {
  auto *object = attrs.object<CqObject>(UVERBS_ATTR_DESTROY_CQ_HANDLE);
  if (const int error = object->can_destroy(); error != 0) return error;
  ib_uverbs_destroy_cq_resp resp{};
  resp.comp_events_reported = object->end_completion_events();
  resp.async_events_reported = object->end_async_events();
  file.objects.destroy(object);
  return attrs.out(UVERBS_ATTR_DESTROY_CQ_RESP, resp);
}

int resize_cq(File &file, Attrs &attrs) {
  ib_uverbs_resize_cq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  int error = 0;
  CqObject *object = file.objects.get<CqObject>(req.cq_handle, error);
  if (object == nullptr) return error;
  Cq &cq = object->cq;
  if (req.cqe < 1 || req.cqe > file.caps().max_cqe) return EINVAL;
  const u32 entries = round_up_pow2(req.cqe + 1);
  if (entries != cq.entries) {
    mlx5_ib_resize_cq driver{};
    if (error = driver_request(attrs, driver, offsetof(mlx5_ib_resize_cq, reserved0)); error != 0)
      return error;
    if (driver.reserved0 != 0 || driver.reserved1 != 0 || !valid_cqe_size(driver.cqe_size))
      return EINVAL;
    if (error = claim_buffer(driver.buf_addr, u64{entries} * driver.cqe_size); error != 0)
      return error;
    // Completions of what was posted before count as unread, also where the program took
    // no lock in which the device runs.
    settle(*object);
    if (error = cq_resize(cq, pointer(driver.buf_addr), entries, driver.cqe_size); error != 0)
      return error;
  }
  // The kernel copies only the first word.
  const u32 resp_cqe = cq.entries - 1;
  return respond(attrs, resp_cqe);
}

int modify_cq(File &file, Attrs &attrs) {
  constexpr u32 moderate = 1;  // IB_CQ_MODERATE
  ib_uverbs_ex_modify_cq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.attr_mask == 0 || (req.attr_mask & ~moderate) != 0) return EOPNOTSUPP;
  int error = 0;
  CqObject *object = file.objects.get<CqObject>(req.cq_handle, error);
  if (object == nullptr) return error;
  if (!file.caps().cq_moderation) return EOPNOTSUPP;
  if (req.attr.cq_period > max_moderation_period) return EINVAL;
  object->cq.moderation_count = req.attr.cq_count;
  object->cq.moderation_period = req.attr.cq_period;
  return 0;
}

constexpr AttrSpec create_specs[] = {
    created(UVERBS_ATTR_CREATE_CQ_HANDLE),      in<u32>(UVERBS_ATTR_CREATE_CQ_CQE),
    in<u64>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE), channel_fd(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL),
    in<u32>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR), flags(UVERBS_ATTR_CREATE_CQ_FLAGS),
    out<u32>(UVERBS_ATTR_CREATE_CQ_RESP_CQE),   async_fd(UVERBS_ATTR_CREATE_CQ_EVENT_FD),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_CQ_HANDLE, ObjectClass::cq),
    out_struct<ib_uverbs_destroy_cq_resp>(
        UVERBS_ATTR_DESTROY_CQ_RESP,
        SOFTHCA_END_OF(ib_uverbs_destroy_cq_resp, async_events_reported)),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CQ/CREATE", cq_create, create_specs, true},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, "CQ/DESTROY", cq_destroy, destroy_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_RESIZE_CQ, "WRITE/RESIZE_CQ", sizeof(ib_uverbs_resize_cq),
     sizeof(ib_uverbs_resize_cq_resp), resize_cq},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_CQ, "WRITE/EX_MODIFY_CQ",
     SOFTHCA_END_OF(ib_uverbs_ex_modify_cq, reserved), 0, modify_cq},
};

}  // namespace

constinit const Family cq_family = {methods, commands};

}  // namespace softhca::uverbs
