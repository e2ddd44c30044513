// Shared receive queues (core/uverbs_std_types_srq.c, mlx5/srq.c).
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>

#include "model/tag_matching.h"
#include "uverbs/dispatch.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

constexpr u32 next_segment = 16;  // in front of the data segments

int read_tag_matching(File &file, Attrs &attrs, SrqObject &object) {
  auto *cq = attrs.object<CqObject>(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE);
  u32 tags = 0;
  if (cq == nullptr || attrs.in(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, tags) != 0) return ENOENT;
  // One entry more than tags: the next addition names its successor.
  const u32 log_size = tags == 0 ? 0 : 32 - static_cast<u32>(__builtin_clz(tags));
  if (!file.caps().tag_matching || log_size > file.caps().log_max_tags) return EINVAL;
  object.srq.type = SrqType::tag_matching;
  object.srq.tags = std::make_unique<TagList>(log_size);
  object.cq.reset(cq);
  object.srq.cq = &cq->cq;
  return 0;
}

// Kernel: the type decides which of CQ and XRCD are wanted, before anything
// else is looked at.
int read_type(File &file, Attrs &attrs, SrqObject &object) {
  u64 type = 0;
  attrs.constant(UVERBS_ATTR_CREATE_SRQ_TYPE, type);
  switch (type) {
    case IB_UVERBS_SRQT_BASIC: object.srq.type = SrqType::basic; return 0;
    case IB_UVERBS_SRQT_TM: return read_tag_matching(file, attrs, object);
    case IB_UVERBS_SRQT_XRC: break;
    default: return EINVAL;
  }
  auto *xrcd = attrs.object<XrcdObject>(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE);
  auto *cq = attrs.object<CqObject>(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE);
  if (xrcd == nullptr || cq == nullptr) return ENOENT;
  if (!file.caps().xrc) return EOPNOTSUPP;
  object.srq.type = SrqType::xrc;
  object.xrcd.reset(xrcd);
  object.cq.reset(cq);
  object.srq.xrcd = xrcd->domain->number;
  object.srq.cq = &cq->cq;
  return 0;
}

int srq_create(File &file, Attrs &attrs) {
  const Capabilities &caps = file.caps();
  auto object =
      std::make_unique<SrqObject>(file, attrs.object<PdObject>(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE));
  Srq &srq = object->srq;
  srq.user_handle = attrs.value<u64>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE);
  const u32 max_wr = attrs.value<u32>(UVERBS_ATTR_CREATE_SRQ_MAX_WR);
  const u32 max_sge = attrs.value<u32>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
  if (const int error = read_type(file, attrs, *object); error != 0) return error;
  if (max_wr > caps.max_srq_wr || max_sge > caps.max_srq_sge + 1) return EINVAL;

  mlx5_ib_create_srq driver{};
  if (const int error = driver_request(attrs, driver, offsetof(mlx5_ib_create_srq, uidx));
      error != 0)
    return error;
  if (driver.reserved0 != 0 || driver.reserved1 != 0) return EINVAL;
  // A signature segment per WQE is a debugging aid of libmlx5 that the device
  // does not know for SRQs.
  if (driver.flags != 0) return EINVAL;
  if (srq.type != SrqType::basic) {
    if (const int error = check_uidx(driver.uidx); error != 0) return error;
    srq.uidx = driver.uidx;
  }
  srq.entries = round_up_pow2(max_wr + 1);
  srq.stride = std::max(32u, round_up_pow2(next_segment + 16 * max_sge));
  srq.max_sge = max_sge;
  srq.pdn = object->pd->pdn;
  if (const int error = claim_buffer(driver.buf_addr, u64{srq.entries} * srq.stride); error != 0)
    return error;
  if (const int error = claim_doorbell(driver.db_addr); error != 0) return error;
  srq.buffer = reinterpret_cast<u8 *>(driver.buf_addr);
  srq.dbrec = reinterpret_cast<u32 *>(driver.db_addr);
  if (const int error = start_device(); error != 0) return error;
  attach_events(srq.async, async_channel(file, attrs, UVERBS_ATTR_CREATE_SRQ_EVENT_FD));
  srq_register(&srq);
  file.srqs.add(srq.srqn, object.get(), &srq);
  // The limit given here is ignored by the hardware driver: only modify_srq arms.

  const u32 resp_wr = srq.entries - 1;
  const mlx5_ib_create_srq_resp resp{srq.srqn, 0};
  if (const int error = driver_respond(attrs, resp); error != 0) return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, resp_wr); error != 0)
    return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, max_sge); error != 0)
    return error;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, srq.srqn); error != 0)
    return error;
  return commit(file, attrs, UVERBS_ATTR_CREATE_SRQ_HANDLE, std::move(object));
}

int srq_destroy(File &file, Attrs &attrs) {
  auto *object = attrs.object<SrqObject>(UVERBS_ATTR_DESTROY_SRQ_HANDLE);
  if (const int error = object->can_destroy(); error != 0) return error;
  ib_uverbs_destroy_srq_resp resp{};
  resp.events_reported = object->end_events();
  file.objects.destroy(object);
  return attrs.out(UVERBS_ATTR_DESTROY_SRQ_RESP, resp);
}

int modify_srq(File &file, Attrs &attrs) {
  constexpr u32 set_max_wr = 1, set_limit = 2;  // IB_SRQ_MAX_WR, IB_SRQ_LIMIT
  ib_uverbs_modify_srq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  int error = 0;
  SrqObject *object = file.objects.get<SrqObject>(req.srq_handle, error);
  if (object == nullptr) return error;
  if ((req.attr_mask & set_max_wr) != 0) return EINVAL;  // an SRQ cannot be resized
  if ((req.attr_mask & set_limit) != 0) {
    if (req.srq_limit >= object->srq.entries) return EINVAL;
    object->srq.limit = req.srq_limit;
    srq_check_limit(object->srq);
  }
  return 0;
}

int query_srq(File &file, Attrs &attrs) {
  ib_uverbs_query_srq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  int error = 0;
  SrqObject *object = file.objects.get<SrqObject>(req.srq_handle, error);
  if (object == nullptr) return error;
  const Srq &srq = object->srq;
  return respond(attrs, ib_uverbs_query_srq_resp{srq.entries - 1, srq.max_sge, srq.limit, 0});
}

constexpr AttrSpec create_specs[] = {
    created(UVERBS_ATTR_CREATE_SRQ_HANDLE),
    object(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, ObjectClass::pd),
    object(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, ObjectClass::xrcd).optional(),
    object(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, ObjectClass::cq).optional(),
    in<u64>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE),
    in<u32>(UVERBS_ATTR_CREATE_SRQ_MAX_WR),
    in<u32>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE),
    in<u32>(UVERBS_ATTR_CREATE_SRQ_LIMIT),
    in<u32>(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS).optional(),
    constant(UVERBS_ATTR_CREATE_SRQ_TYPE),
    async_fd(UVERBS_ATTR_CREATE_SRQ_EVENT_FD),
    out<u32>(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR),
    out<u32>(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE),
    out<u32>(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM).optional(),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_SRQ_HANDLE, ObjectClass::srq),
    out_struct<ib_uverbs_destroy_srq_resp>(
        UVERBS_ATTR_DESTROY_SRQ_RESP, SOFTHCA_END_OF(ib_uverbs_destroy_srq_resp, events_reported)),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, "SRQ/CREATE", srq_create, create_specs, true},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, "SRQ/DESTROY", srq_destroy, destroy_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_MODIFY_SRQ, "WRITE/MODIFY_SRQ", sizeof(ib_uverbs_modify_srq), 0, modify_srq},
    {IB_USER_VERBS_CMD_QUERY_SRQ, "WRITE/QUERY_SRQ", sizeof(ib_uverbs_query_srq),
     sizeof(ib_uverbs_query_srq_resp), query_srq},
};

}  // namespace

constinit const Family srq_family = {methods, commands};

}  // namespace softhca::uverbs
