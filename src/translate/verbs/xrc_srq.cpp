#include "translate/verbs/xrc_srq.h"

#include <cerrno>
#include <cstddef>
#include <memory>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/owned.h"
#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/queue/engine/post_shared.h"
#include "translate/queue/fronts.h"
#include "translate/queue/on_rings.h"
#include "translate/queue/operation.h"
#include "translate/verbs/dct.h"
#include "translate/verbs/xrc.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_create_xrc_srq;

static_assert(sizeof(ibv_srq_legacy) == sizeof(ibv_srq) + 48);  // 176 on x86-64
static_assert(offsetof(ibv_srq_legacy, handle) == offsetof(ibv_srq, handle));

// In the context's slots, once it has such a queue.

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) {
  ContextState *state = find_state(srq->context);
  if (state == nullptr) [[unlikely]] {
    *bad_wr = wr;
    return EINVAL;  // being closed
  }
  if (is_legacy(srq)) {
    srq = behind_any_kind(srq);
    const queue::SrqFront *front = queue::before(srq);
    if (front != nullptr && front->own.engine != nullptr)
      return engine::post_receive(front->own.engine->queue, wr, bad_wr);
  }
  return state->native_srq.post_recv(srq, wr, bad_wr);
}

int get_srq_num(ibv_srq *srq, std::uint32_t *number) {
  ContextState *state = find_state(srq->context);
  if (state == nullptr) return EINVAL;
  if (is_legacy(srq)) srq = behind_any_kind(srq);
  return state->native_srq.get_number(srq, number);
}

// The caller holds the mutex.
void install(ContextState &state) {
  if (state.native_srq.post_recv != nullptr) return;
  auto &number = state.behind != nullptr ? state.behind->get_srq_num
                                         : verbs_get_ctx(state.context)->get_srq_num;
  ibv_context_ops &ops = state.operations();
  state.native_srq = {ops.post_srq_recv, number};
  replace(number, &get_srq_num);
  replace(ops.post_srq_recv, &post_srq_recv);
}

Result<void> check(const ContextState &state, const ibv_pd *pd, const ibv_xrc_domain *domain,
                   const ibv_cq *cq, const ibv_srq_init_attr *attr) {
  if (domain == nullptr) return invalid(creating, "xrc_domain", 0, "must not be null");
  if (cq == nullptr) return invalid(creating, "xrc_cq", 0, "must not be null");
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (context_of_domain(domain) != pd->context)
    return invalid(creating, "xrc_domain", 0, "closed, or of another context");
  if (cq->context != pd->context) return invalid(creating, "xrc_cq", 0, "of another context");
  // Without the interposed ibv_destroy_srq() the larger object could not be freed.
  if (!state.sees_base_verbs)
    return unsupported(creating, "xrc_domain", 0,
                       "the context was opened without this library: preload it, or link it first");
  return {};
}

// rdma-core leaves some members of such a queue empty.
void fill(ibv_srq_legacy &shown, ibv_srq *real, std::uint32_t number, ibv_xrc_domain *domain,
          const ibv_srq_init_attr_ex &wanted) {
  shown.context = real->context;
  shown.srq_context = wanted.srq_context;
  shown.pd = wanted.pd;
  shown.handle = LEGACY_XRC_SRQ_HANDLE;
  shown.xrc_srq_num = shown.xrc_srq_num_bin_compat = number;
  shown.xrc_domain = shown.xrc_domain_bin_compat = domain;
  shown.xrc_cq = shown.xrc_cq_bin_compat = queue::shown(wanted.cq);
  pthread_mutex_init(&shown.mutex, nullptr);
  pthread_cond_init(&shown.cond, nullptr);
  shown.ibv_srq = queue::shown(real);
}

}  // namespace

Result<ibv_srq *> create_xrc_srq(ContextState &state, ibv_pd *pd, ibv_xrc_domain *domain,
                                 ibv_cq *cq, ibv_srq_init_attr *attr) {
  cq = queue::behind(cq);
  if (const auto checked = check(state, pd, domain, cq, attr); !checked) return checked.failure();

  ibv_srq_init_attr_ex wanted{};
  wanted.srq_context = attr->srq_context;
  wanted.attr = attr->attr;
  wanted.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD;
  wanted.srq_type = IBV_SRQT_XRC;
  wanted.pd = pd;
  wanted.xrcd = reinterpret_cast<ibv_xrcd *>(domain);
  wanted.cq = cq;

  const queue::Joining joining(state, &wanted.cq, nullptr, queue::By::engine);
  if (!joining) return joining.failure();
  KeepErrno keep;
  auto legacy = std::make_unique<ibv_srq_legacy>();
  Owned<ibv_srq, queue::destroy_with_front> made(queue::create_native(pd->context, wanted));
  if (!made) return keep.reason();
  std::uint32_t number = 0;
  if (const auto named = outcome(ibv_get_srq_num(made.get(), &number)); !named)
    return named.failure();
  queue::put_before(&state, made.get(), wanted.attr.max_sge, joining.receives(), wanted.cq);
  fill(*legacy, made.get(), number, domain, wanted);

  const MutexGuard guard(state.mutex);
  ibv_srq_legacy *const handle = state.legacy_srqs.add(std::move(legacy));
  auto *const shown = reinterpret_cast<ibv_srq *>(handle);
  // Where events find it.
  if (queue::SrqFront *front = queue::before(made.get())) queue::show_as(*front, shown);
  else made->srq_context = shown;
  install(state);
  static_cast<void>(made.release());
  attr->attr = wanted.attr;
  return shown;
}

namespace {

[[gnu::noinline]] int destroy_legacy(ContextState &state, ibv_srq *srq) {
  const auto gone = state.legacy_srqs.claim(srq);
  if (!gone) {
    log(LogLevel::warn, "ibv_destroy_srq: the object was destroyed before");
    return EINVAL;
  }
  const int error = queue::destroy_with_front(behind_any_kind(srq));
  static_cast<void>(state.legacy_srqs.settle(gone, error));
  return error;
}

}  // namespace

int destroy_any(ContextState *state, queue::SrqFront *front, ibv_srq *srq) {
  if (state != nullptr) {
    if (is_legacy(srq)) return destroy_legacy(*state, srq);
    if (has_targets_by_command(*state, srq)) return EBUSY;
    if (front != nullptr && front->own.strides != nullptr && front->own.strides->destroy() != 0)
      return EBUSY;
  }
  return queue::destroy_with_front(srq);
}

void show_srq(ContextState &state, ibv_async_event &event) {
  if (ibv_srq_legacy *known = state.legacy_srqs.find(event.element.srq->srq_context))
    event.element.srq = reinterpret_cast<ibv_srq *>(known);
}

}  // namespace ibvexp::translate
