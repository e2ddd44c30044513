#include "uverbs/devx_queue.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include "engine/doorbells.h"
#include "uverbs/dispatch.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

// Where an event entry (mlx5_eqe) names its queue.
constexpr u32 type_at = 1, cq_error_at = 32, cq_syndrome_at = 43, number_in_entry_at = 56;
constexpr u8 overrun = 1;

template <class T>
T *own(Object *o, const Command &c) {
  auto *queue = dynamic_cast<T *>(o);
  return queue != nullptr && queue->number == number_in(c) ? queue : nullptr;
}

}  // namespace

void DevxQueue::raise(QueueEvent event) {
  if (subscriptions.empty()) return;
  EventEntry entry{};
  entry[type_at] = static_cast<u8>(event);
  const bool cq_failed = event == QueueEvent::cq_error;
  store_be32(entry.data() + (cq_failed ? cq_error_at : number_in_entry_at), number);
  if (cq_failed) entry[cq_syndrome_at] = overrun;
  subscriptions.deliver(static_cast<u8>(event), entry);
}

void DevxQueue::subscribed(u8 event) {
  if (event == static_cast<u8>(QueueEvent::completion)) completions_wanted();
}

DevxCq::~DevxCq() {
  cq_forget(cq);
  file.cqs.remove(cq.cqn, this);
}

// Arming a completion queue has no effect as long as no event channel listens to it.
void DevxCq::completions_wanted() {
  cq.completion.listener = this;
  cq_watch(cq);
}

DevxQp::~DevxQp() {
  if (qp == nullptr) return;
  if (process().started && !inherited()) send_posted_datagrams(*qp);
  if (thread_uar != nullptr && !inherited()) doorbells_remove(thread_uar);
  qp_unregister(qp);
}

DevxSrq::~DevxSrq() {
  srq_unregister(&srq);
  file.srqs.remove(srq.srqn, this);
}

int created_with(File &file, Attrs &attrs, Command &c, u32 number,
                 std::unique_ptr<DevxObject> object) {
  store_be32(c.out.data() + number_at, number);
  if (const int error = reply(attrs, c, Status::ok); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, std::move(object));
}

Cq *cq_of(Object *o, const Command &c) {
  if (o->object_class == ObjectClass::cq) {
    Cq *cq = &static_cast<CqObject *>(o)->cq;
    return cq->cqn == number_in(c) ? cq : nullptr;
  }
  auto *queue = own<DevxCq>(o, c);
  return queue != nullptr ? &queue->cq : nullptr;
}

Qp *qp_of(Object *o, const Command &c) {
  Qp *qp = nullptr;
  if (o->object_class == ObjectClass::qp) qp = static_cast<QpObject *>(o)->qp;
  else if (auto *queue = own<DevxQp>(o, c)) qp = queue->qp;
  return qp != nullptr && qp->type != QpType::dct && qp->qpn == number_in(c) ? qp : nullptr;
}

Qp *dct_of(Object *o, const Command &c) {
  Qp *qp = nullptr;
  if (o->object_class == ObjectClass::qp) qp = static_cast<QpObject *>(o)->qp;
  else if (auto *queue = own<DevxQp>(o, c)) qp = queue->qp;
  return qp != nullptr && qp->type == QpType::dct && qp->state == QpState::rtr &&
                 qp->qpn == number_in(c)
             ? qp
             : nullptr;
}

DevxSrq *srq_of(Object *o, const Command &c) { return own<DevxSrq>(o, c); }

}  // namespace softhca::uverbs
