// DEVX_OBJ/CREATE, /MODIFY and /QUERY of queues: which object a command is about, and its
// place in the file. What the commands do is in firmware/.
#include <algorithm>

#include "engine/doorbells.h"
#include "firmware/qp_context.h"
#include "firmware/queues.h"
#include "uverbs/context.h"
#include "uverbs/devx_queue.h"
#include "uverbs/dispatch.h"
#include "uverbs/queue.h"
#include "uverbs/schedule_object.h"

namespace softhca::uverbs {

int devx_cq_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < cq_context_at + cq_context_bytes)
    return reply(attrs, c, Status::bad_input_length);
  auto object = std::make_unique<DevxCq>(file);
  DevxScope scope(file, object->needs);
  // The kernel's own: the event queue must be one of a completion vector.
  if (!scope.eq_exists(cq_event_queue(c))) return ENOENT;
  Cq &cq = object->cq;
  if (const Status s = create_cq(scope, c, cq); s != Status::ok) return reply(attrs, c, s);
  if (const int error = start_device(); error != 0) return error;
  cq.cqn = object->number = process().next_cqn++ & 0xffffff;
  cq.async.listener = object.get();
  std::copy_n(c.in.begin() + cq_context_at, cq_context_bytes, object->context.begin());
  cq_start(cq);
  file.cqs.add(cq.cqn, object.get(), &cq);
  const u32 number = object->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int devx_cq_modify(File &file, const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 op_resize = 1;
  Cq *cq = cq_of(o, c);
  if (cq == nullptr) return EINVAL;
  Needs fresh;
  DevxScope scope(file, fresh);
  if (c.op_mod() == 0) return reply(attrs, c, modify_cq_fields(scope, c, *cq));
  auto *own = dynamic_cast<DevxCq *>(o);
  if (c.op_mod() != op_resize || own == nullptr) return reply(attrs, c, Status::bad_param);
  const Status status = resize_cq(scope, c, *cq);
  if (status == Status::ok) own->needs.rings.swap(fresh.rings);
  return reply(attrs, c, status);
}

int devx_cq_query(const Attrs &attrs, Command &c, Object *o) {
  const Cq *cq = cq_of(o, c);
  if (cq == nullptr) return EINVAL;
  const auto *own = dynamic_cast<const DevxCq *>(o);
  query_cq(*cq, own != nullptr ? std::span<const u8>(own->context) : std::span<const u8>(), c);
  return reply(attrs, c, Status::ok);
}

int devx_qp_create(File &file, Attrs &attrs, Command &c) {
  auto object = std::make_unique<DevxQp>(file);
  auto qp = std::make_unique<Qp>();
  DevxScope scope(file, object->needs);
  if (const Status s = create_qp(scope, c, *qp); s != Status::ok) return reply(attrs, c, s);
  if (const int error = start_device(); error != 0) return error;
  object->qp = qp_register(std::move(qp));
  if (object->qp == nullptr) return reply(attrs, c, Status::no_resources);
  object->qp->async.listener = object.get();
  object->number = object->qp->qpn;
  std::copy_n(c.in.begin() + qp_context_at, qp_context_bytes, object->context.begin());
  if (const u32 page = qpc::uar_page.in(object->context.data());
      file.bfregs.in_use() && page >= thread_uar_page) {
    object->thread_uar = file.page(page);
    doorbells_add(object->thread_uar);
  }
  const u32 number = object->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int devx_qp_query(const Attrs &attrs, Command &c, Object *o) {
  const Qp *qp = qp_of(o, c);
  if (qp == nullptr) return EINVAL;
  const auto *own = dynamic_cast<const DevxQp *>(o);
  query_qp(*qp, own != nullptr ? std::span<const u8>(own->context) : std::span<const u8>(), c);
  return reply(attrs, c, Status::ok);
}

int devx_qp_modify(File &file, const Attrs &attrs, Command &c, Object *o) {
  Qp *const qp = qp_of(o, c);
  if (qp == nullptr || qp->type == QpType::raw_packet) return EINVAL;
  // As in verbs: what was posted and what has come are settled before.
  const bool works = qp->state >= QpState::rtr && qp->state != QpState::err;
  if (works && ends_qp(c.opcode())) settle(*o);
  Needs none;
  DevxScope scope(file, none);
  bool accessed = false;
  const Status status = modify_qp(scope, c, *qp, accessed);
  // The bits of verbs' modify_qp are those of its last one.
  if (accessed && o->object_class == ObjectClass::qp)
    static_cast<QpObject *>(o)->requested_access() = qp->attr.access;
  return reply(attrs, c, status);
}

// The scheduling element of a raw packet QP, whose send queue has its number.
int devx_sq_modify(const File &file, const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 select_at = 16, group_at = 66, end = 68;
  constexpr u64 select_group = 1 << 2;
  constexpr u8 ready = 1;
  Qp *qp = qp_of(o, c);
  if (qp == nullptr || qp->type != QpType::raw_packet || c.in.size() < end) return EINVAL;
  if (load_be64(c.in.data() + select_at) != select_group || !qp->device->caps.qp_scheduling)
    return reply(attrs, c, Status::bad_param);
  if (qp->state != QpState::rts || c.in[8] >> 4 != ready)
    return reply(attrs, c, Status::bad_qp_state);
  const bool found = find_schedule(file, load_be16(c.in.data() + group_at), qp->request_schedule);
  return reply(attrs, c, found ? Status::ok : Status::bad_resource);
}

namespace {

int enter(File &file, Attrs &attrs, Command &c, std::unique_ptr<DevxSrq> object, Status status) {
  if (status != Status::ok) return reply(attrs, c, status);
  if (const int error = start_device(); error != 0) return error;
  object->srq.async.listener = object.get();
  const u32 number = object->number = srq_register(&object->srq);
  file.srqs.add(number, object.get(), &object->srq);
  return created_with(file, attrs, c, number, std::move(object));
}

}  // namespace

int devx_rmp_create(File &file, Attrs &attrs, Command &c) {
  auto object = std::make_unique<DevxSrq>(file);
  DevxScope scope(file, object->needs);
  const Status status = create_rmp(scope, c, object->srq, object->work_queue);
  return enter(file, attrs, c, std::move(object), status);
}

int devx_rmp_modify(const Attrs &attrs, Command &c, Object *o) {
  DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || queue->srq.tags) return EINVAL;
  return reply(attrs, c, modify_rmp(c, queue->srq));
}

int devx_rmp_query(const Attrs &attrs, Command &c, Object *o) {
  const DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || queue->srq.tags) return EINVAL;
  query_rmp(queue->srq, queue->work_queue, c);
  return reply(attrs, c, Status::ok);
}

int devx_xrq_create(File &file, Attrs &attrs, Command &c) {
  auto object = std::make_unique<DevxSrq>(file);
  DevxScope scope(file, object->needs);
  const Status status = create_xrq(scope, c, object->srq, object->work_queue);
  return enter(file, attrs, c, std::move(object), status);
}

int devx_xrq_query(const Attrs &attrs, Command &c, Object *o) {
  const DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || !queue->srq.tags) return EINVAL;
  query_xrq(queue->srq, queue->work_queue, c);
  return reply(attrs, c, Status::ok);
}

int devx_srq_arm(const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 limit_at = 14, end = 16;
  DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || !queue->srq.tags || c.in.size() < end) return EINVAL;
  return reply(attrs, c, set_srq_limit(queue->srq, load_be16(c.in.data() + limit_at)));
}

int devx_dct_create(File &file, Attrs &attrs, Command &c) {
  auto object = std::make_unique<DevxQp>(file);
  auto qp = std::make_unique<Qp>();
  DevxScope scope(file, object->needs);
  if (const Status s = create_dct(scope, c, *qp); s != Status::ok) return reply(attrs, c, s);
  if (const int error = start_device(); error != 0) return error;
  object->qp = qp_register(std::move(qp));
  if (object->qp == nullptr) return reply(attrs, c, Status::no_resources);
  object->qp->async.listener = object.get();
  object->number = object->qp->qpn;
  qp_set_state(*object->qp, QpState::init);
  qp_set_state(*object->qp, QpState::rtr);
  const u32 number = object->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int devx_dct_query(const Attrs &attrs, Command &c, Object *o) {
  const Qp *qp = dct_of(o, c);
  if (qp == nullptr) return EINVAL;
  query_dct(*qp, c);
  return reply(attrs, c, Status::ok);
}

// The next request with a wrong key is an event, once.
int devx_dct_arm(const Attrs &attrs, Command &c, Object *o) {
  Qp *qp = dct_of(o, c);
  if (qp == nullptr) return EINVAL;
  qp->dc_key_armed = true;
  return reply(attrs, c, Status::ok);
}

}  // namespace softhca::uverbs
