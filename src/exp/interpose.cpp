// The base verbs that this library puts in front of rdma-core: where contexts
// come to exist and go, and where objects come and go that a context keeps
// something about. rdma-core's own libraries call these names too, so each
// wrapper does nothing of its own to objects it does not know.
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/real.h"
#include "base/uncancelled.h"
#include "exp/announce.h"
#include "exp/attachment.h"
#include "exp/boundary.h"
#include "exp/caller.h"
#include "trace/tally.h"
#include "trace/trace_live.h"
#include "translate/queue/beside.h"
#include "translate/queue/cq_events.h"
#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/cq.h"
#include "translate/verbs/device.h"
#include "translate/verbs/mr.h"
#include "translate/verbs/qp.h"
#include "translate/verbs/stride_queue.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp {

namespace {

// Runs work of ours beside a call that has succeeded already: a failure is
// logged and changes neither the result nor errno.
template <class Work>
void beside(const char *what, Work work) noexcept {
  const KeepErrno keep;
  try {
    const Result<ContextState *> done = work();
    if (!done && done.error() != ENOTSUP)
      log(LogLevel::error, "%s: errno %d; experimental verbs will not work", what, done.error());
  } catch (...) {
    log(LogLevel::error, "%s: errno %d; experimental verbs will not work", what,
        detail::error_of_exception());
  }
}

// Without memory a device is not opened: later calls would find no experimental verbs on it,
// and say that they are not there. Other failures leave the context to base verbs.
ibv_context *attached(const char *what, ibv_context *context) noexcept {
  if (context == nullptr) return nullptr;
  bool lacks_memory = false;
  beside(what, [&]() -> Result<ContextState *> {
    try {
      const auto done = attach(context);
      if (!done) return done;
      done.value()->sees_base_verbs = true;
      queue::install_doors(*done.value());
      announce_device(*done.value());
      return done;
    } catch (const std::bad_alloc &) {
      lacks_memory = true;
      throw;
    }
  });
  if (!lacks_memory) return context;
  detach(context);
  real().ibv_close_device(context);
  errno = ENOMEM;
  return nullptr;
}

// What a creation returns to C.
template <class Make>
auto made(const char *verb, Make make) noexcept -> decltype(make().value()) {
  const Uncancelled whole;
  try {
    const auto object = make();
    detail::log_answer(verb, object.error());
    if (object) return object.value();
    errno = object.error();
  } catch (...) {
    errno = detail::error_of_exception();
    detail::log_answer(verb, errno);
  }
  return nullptr;
}

// A base verb called without what it takes.
int missing(const char *verb, const char *what) noexcept {
  log(LogLevel::warn, "%s: %s must not be null", verb, what);
  return errno = EINVAL;
}

// The state of the context of an object, with its front: null for those of others.
template <class Front>
ContextState *state_of(const Front *front, ibv_context *context) noexcept {
  return front != nullptr ? ibvexp::attached(context) : find_state(context);
}

// Destroys the object behind.
template <class Object, class Front>
int destroy_behind(const char *verb, Object *object,
                   int (*destroy)(ContextState *, Front *, Object *)) {
  const Uncancelled whole;
  Front *const front = queue::front_of(object);
  Object *const back = front != nullptr ? front->own.back : object;
  if (back == nullptr) return queue::gone(verb);
  return destroy(state_of(front, back->context), front, back);
}

// For DEVX, without which libmlx5 makes no memory keys, and which ibv_open_device() of release 28
// does not ask for. Without it, as release 29 does, where the kernel refuses that.
ibv_context *open_device(ibv_device *device) {
  if (!opens_for_devx() && mlx5dv_is_supported(device)) {
    mlx5dv_context_attr attr{};
    attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    const int before = errno;
    errno = 0;
    ibv_context *const context = real().mlx5dv_open_device(device, &attr);
    if (context != nullptr || errno == ENOMEM) return context;
    errno = before;
  }
  return real().ibv_open_device(device);
}

// Options are read, and log complaints about them come, before anything else.
[[gnu::constructor]] void on_load() {
  trace::start(process_options().trace_file);
  trace::join_tally(process_options().tally_file);
  announce_library();
}

}  // namespace

}  // namespace ibvexp

using namespace ibvexp;

#define IBVEXP_INTERPOSED extern "C" [[gnu::visibility("default")]]

IBVEXP_INTERPOSED ibv_device **ibv_get_device_list(int *count) {
  pthread_testcancel();  // as in libibverbs
  const Uncancelled whole;
  return translate::shown_devices(count);
}

// Contexts. rdma_cm and the IBVERBS_1.0 form of the first come through here by
// themselves.

IBVEXP_INTERPOSED ibv_context *ibv_open_device(ibv_device *device) {
  pthread_testcancel();  // as in libibverbs
  const Uncancelled whole;
  return attached("ibv_open_device", open_device(device));
}

IBVEXP_INTERPOSED ibv_context *ibv_import_device(int cmd_fd) {
  if (real().ibv_import_device == nullptr) {
    errno = ENOTSUP;
    return nullptr;
  }
  const Uncancelled whole;
  return attached("ibv_import_device", real().ibv_import_device(cmd_fd));
}

IBVEXP_INTERPOSED ibv_context *mlx5dv_open_device(ibv_device *device, mlx5dv_context_attr *attr) {
  if (real().mlx5dv_open_device == nullptr) {
    errno = ENOTSUP;
    return nullptr;
  }
  const Uncancelled whole;
  return attached("mlx5dv_open_device", real().mlx5dv_open_device(device, attr));
}

IBVEXP_INTERPOSED int ibv_close_device(ibv_context *context) {
  if (context == nullptr) return missing("ibv_close_device", "the context");
  pthread_testcancel();  // as in libibverbs
  const Uncancelled whole;
  const ContextState *const state = find_state(context);
  if (const Calculation *const of = Calculation::reporting();
      of != nullptr && state != nullptr && state->calculations.find(of) != nullptr) {
    log(LogLevel::error,
        "ibv_close_device: refused (EBUSY): called from the done function of an erasure coding "
        "calculation of this context");
    errno = EBUSY;
    return -1;
  }
  detach(context);
  return real().ibv_close_device(context);
}

// Objects.

// Inlines of legacy programs come here when a request has nothing experimental
// but its protection domain, and legacy QP types with them.
IBVEXP_INTERPOSED ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) {
  if (pd == nullptr) {
    errno = invalid(EntryId::ibv_exp_create_qp, "pd", 0, "must not be null").code;
    return nullptr;
  }
  return made("ibv_create_qp", [&] {
    // Null, or a context of an old provider: rdma-core answers as it always did.
    ContextState *state = find_state(pd->context);
    if (state == nullptr)
      if (const auto known = attach(pd->context)) state = known.value();
    return translate::create_base_qp(state, pd, attr);
  });
}

// The requests of a queue pair are counted, and a reset takes them away.
IBVEXP_INTERPOSED int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask) {
  return translate::modify_base_qp(qp, attr, attr_mask);
}

namespace {

// Legacy libibverbs looked at no bit of the mask, and programs ask for all of them. rdma-core
// refuses those that its command has no room for.
int known_bits(ContextState *state, int mask) noexcept {
  if (state != nullptr && state->is_legacy) [[unlikely]]
    return mask & (IBV_QP_RATE_LIMIT - 1);
  return mask;
}

}  // namespace

IBVEXP_INTERPOSED int ibv_query_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask,
                                   ibv_qp_init_attr *init) {
  queue::QpFront *const front = queue::front_of(qp);
  if (front == nullptr)
    return real().ibv_query_qp(qp, attr, known_bits(find_state(qp->context), attr_mask), init);
  if (front->own.back == nullptr) return queue::gone("ibv_query_qp");
  const int mask = known_bits(ibvexp::attached(qp->context), attr_mask);
  const int error = front->own.connection != nullptr
                        ? translate::query(*front->own.connection, *attr, *init)
                        : real_behind_front().ibv_query_qp(front->own.back, attr, mask, init);
  if (error != 0) return error;
  queue::refresh(*front);
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->srq = qp->srq;
  init->qp_type = qp->qp_type;
  translate::show_grants(front->own.known, *attr, *init);
  return 0;
}

IBVEXP_INTERPOSED int ibv_destroy_qp(ibv_qp *qp) {
  return destroy_behind("ibv_destroy_qp", qp, translate::destroy_qp);
}

IBVEXP_INTERPOSED int ibv_attach_mcast(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid) {
  ibv_qp *const back = queue::behind(qp);
  if (back == nullptr) return queue::gone("ibv_attach_mcast");
  return real().ibv_attach_mcast(back, gid, lid);
}

IBVEXP_INTERPOSED int ibv_detach_mcast(ibv_qp *qp, const ibv_gid *gid, std::uint16_t lid) {
  ibv_qp *const back = queue::behind(qp);
  if (back == nullptr) return queue::gone("ibv_detach_mcast");
  return real().ibv_detach_mcast(back, gid, lid);
}

// What a program later asks an interface family for has to be known as a queue.
IBVEXP_INTERPOSED ibv_cq *ibv_create_cq(ibv_context *context, int cqe, void *cq_context,
                                        ibv_comp_channel *channel, int comp_vector) {
  // libmlx5 has queues of its own for flow steering.
  if (is_of_rdma_core(__builtin_return_address(0)))
    return real().ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
  if (context == nullptr) {
    missing("ibv_create_cq", "the context");
    return nullptr;
  }
  return made("ibv_create_cq", [&] {
    return translate::create_base_cq(find_state(context), context, cqe, cq_context, channel,
                                     comp_vector);
  });
}

IBVEXP_INTERPOSED int ibv_destroy_cq(ibv_cq *cq) {
  return destroy_behind("ibv_destroy_cq", cq, translate::destroy_cq);
}

// libmlx5 counts what a completion queue holds when it is resized or has reported
// an event. For queues that we drive that is our business.
IBVEXP_INTERPOSED int ibv_resize_cq(ibv_cq *cq, int cqe) {
  const Uncancelled whole;
  ibv_cq *const back = queue::behind(cq);
  if (back == nullptr) return queue::gone("ibv_resize_cq");
  return translate::resize_cq(back, cqe);
}

// What the provider does with an event: rdma-core keeps it where programs of old find it. Null:
// not any more.
namespace {

using CountEvent = void (*)(ibv_cq *);
CountEvent provider_count(const ibv_context *context) noexcept {
  return reinterpret_cast<CountEvent>(reinterpret_cast<void (*)()>(context->ops._compat_cq_event));
}

[[gnu::noinline]] int get_cq_event_of_rdma_core(ibv_comp_channel *channel, ibv_cq **cq,
                                                void **cq_context) {
  const int error = real().ibv_get_cq_event(channel, cq, cq_context);
  if (error != 0) return error;
  if (queue::CqFront *front = queue::before(*cq)) {
    queue::count_event(*front, *cq, queue::Event::completion);
    *cq = &front->shown;
    *cq_context = front->shown.cq_context;
  }
  return 0;
}

// An event of a queue that the engine does not have alone.
[[gnu::noinline]] int take_cq_event(ibv_cq *back, ibv_cq **cq, void **cq_context) {
  provider_count(back->context)(back);
  ibv_cq *taken = back;
  if (queue::CqFront *front = queue::before(back)) {
    queue::count_event(*front, back, queue::Event::completion);
    taken = &front->shown;
  }
  *cq = taken;
  *cq_context = taken->cq_context;
  return 0;
}

}  // namespace

// Reads the event itself, as rdma-core does: libmlx5 need not count those of the engine.
IBVEXP_INTERPOSED int ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) {
  if (provider_count(channel->context) == nullptr) [[unlikely]]
    return get_cq_event_of_rdma_core(channel, cq, cq_context);
  ib_uverbs_comp_event_desc event;
  if (read(channel->fd, &event, sizeof(event)) != sizeof(event)) return -1;
  auto *const back = reinterpret_cast<ibv_cq *>(event.cq_handle);
  if (!queue::blocks.contain(back->cq_context)) [[unlikely]]
    return take_cq_event(back, cq, cq_context);
  auto *const front = static_cast<queue::CqFront *>(back->cq_context);
  if (operand(front->own.counted) != back) [[unlikely]]
    return take_cq_event(back, cq, cq_context);
  engine::set_relaxed(front->own.events, engine::relaxed(front->own.events) + engine::arm_step);
  *cq = &front->shown;
  *cq_context = front->shown.cq_context;
  return 0;
}

IBVEXP_INTERPOSED void ibv_ack_cq_events(ibv_cq *cq, unsigned count) {
  queue::CqFront *const front = queue::front_of(cq);
  if (front == nullptr) return real().ibv_ack_cq_events(cq, count);
  if (!queue::acknowledge(*front, count)) [[unlikely]]
    queue::gone("ibv_ack_cq_events");
}

IBVEXP_INTERPOSED ibv_srq *ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *attr) {
  if (pd == nullptr || attr == nullptr) {
    missing("ibv_create_srq", pd == nullptr ? "the protection domain" : "attributes");
    return nullptr;
  }
  const Uncancelled whole;
  ibv_srq *const back = real().ibv_create_srq(pd, attr);
  if (back == nullptr) return nullptr;
  return queue::before_or_destroyed(find_state(pd->context), back, attr->attr.max_sge);
}

// Legacy XRC has shared receive queues of another shape.

IBVEXP_INTERPOSED int ibv_modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int attr_mask) {
  ibv_srq *const back = translate::behind_any_kind(srq);
  if (back == nullptr) return queue::gone("ibv_modify_srq");
  const queue::SrqFront *const front = queue::front_of(srq);
  if (front != nullptr && front->own.strides != nullptr) [[unlikely]] {
    log(LogLevel::warn,
        "ibv_modify_srq: an SRQ of strides has no limit event and cannot be resized");
    return ENOTSUP;
  }
  return real().ibv_modify_srq(back, attr, attr_mask);
}

IBVEXP_INTERPOSED int ibv_query_srq(ibv_srq *srq, ibv_srq_attr *attr) {
  ibv_srq *const back = translate::behind_any_kind(srq);
  if (back == nullptr) return queue::gone("ibv_query_srq");
  const int error = real().ibv_query_srq(back, attr);
  // What a legacy program was granted: libmlx5 makes the queue twice as large.
  const queue::SrqFront *const front = queue::front_of(srq);
  if (error == 0 && front != nullptr && ibvexp::attached(srq->context)->is_legacy &&
      front->legacy.max > 1)
    attr->max_wr = std::min(attr->max_wr, static_cast<std::uint32_t>(front->legacy.max) - 1);
  return error;
}

IBVEXP_INTERPOSED int ibv_destroy_srq(ibv_srq *srq) {
  return destroy_behind("ibv_destroy_srq", srq, translate::destroy_srq);
}

IBVEXP_INTERPOSED int ibv_dereg_mr(ibv_mr *mr) {
  if (mr == nullptr) return missing("ibv_dereg_mr", "the region");
  if (!special_regions) [[likely]]
    return real().ibv_dereg_mr(mr);
  const Uncancelled whole;
  return translate::dereg_mr(find_state(mr->context), mr);
}

// The same names as of 2006, with other structures: passed on unseen. They exist
// so that a reference without a version finds a whole generation here, as it
// would in libibverbs alone, and not a mixture.
namespace {

template <class R, class... Args>
R forward_1_0(const char *name, Args... arguments) {
  using F = R(Args...);
  auto *function = reinterpret_cast<F *>(find_real(name, "IBVERBS_1.0"));
  if (function != nullptr) return function(arguments...);
  errno = ENOSYS;
  if constexpr (std::is_pointer_v<R>) return nullptr;
  else if constexpr (!std::is_void_v<R>) return ENOSYS;
}

}  // namespace

#define IBVEXP_FORWARD_1_0(R, name, parameters, ...)         \
  IBVEXP_INTERPOSED R ibvexp_1_0_##name parameters;          \
  asm(".symver ibvexp_1_0_" #name "," #name "@IBVERBS_1.0"); \
  R ibvexp_1_0_##name parameters { return forward_1_0<R>(#name, __VA_ARGS__); }

IBVEXP_FORWARD_1_0(void *, ibv_get_device_list, (int *count), count)
IBVEXP_FORWARD_1_0(void *, ibv_open_device, (void *device), device)
IBVEXP_FORWARD_1_0(int, ibv_close_device, (void *context), context)
IBVEXP_FORWARD_1_0(void *, ibv_create_qp, (void *pd, void *attr), pd, attr)
IBVEXP_FORWARD_1_0(int, ibv_modify_qp, (void *qp, void *attr, int mask), qp, attr, mask)
IBVEXP_FORWARD_1_0(int, ibv_destroy_qp, (void *qp), qp)
IBVEXP_FORWARD_1_0(void *, ibv_create_cq,
                   (void *context, int cqe, void *cq_context, void *channel, int comp_vector),
                   context, cqe, cq_context, channel, comp_vector)
IBVEXP_FORWARD_1_0(int, ibv_query_qp, (void *qp, void *attr, int mask, void *init), qp, attr, mask,
                   init)
IBVEXP_FORWARD_1_0(int, ibv_attach_mcast, (void *qp, void *gid, std::uint16_t lid), qp, gid, lid)
IBVEXP_FORWARD_1_0(int, ibv_detach_mcast, (void *qp, void *gid, std::uint16_t lid), qp, gid, lid)
IBVEXP_FORWARD_1_0(int, ibv_destroy_cq, (void *cq), cq)
IBVEXP_FORWARD_1_0(void, ibv_ack_cq_events, (void *cq, unsigned count), cq, count)
IBVEXP_FORWARD_1_0(void *, ibv_create_ah, (void *pd, void *attr), pd, attr)
IBVEXP_FORWARD_1_0(void *, ibv_create_srq, (void *pd, void *attr), pd, attr)
IBVEXP_FORWARD_1_0(int, ibv_resize_cq, (void *cq, int cqe), cq, cqe)
IBVEXP_FORWARD_1_0(int, ibv_get_cq_event, (void *channel, void **cq, void **context), channel, cq,
                   context)
IBVEXP_FORWARD_1_0(int, ibv_modify_srq, (void *srq, void *attr, int mask), srq, attr, mask)
IBVEXP_FORWARD_1_0(int, ibv_query_srq, (void *srq, void *attr), srq, attr)
IBVEXP_FORWARD_1_0(int, ibv_destroy_srq, (void *srq), srq)
IBVEXP_FORWARD_1_0(int, ibv_get_async_event, (void *context, void *event), context, event)
IBVEXP_FORWARD_1_0(void, ibv_ack_async_event, (void *event), event)
IBVEXP_FORWARD_1_0(int, ibv_dereg_mr, (void *mr), mr)

// The kernel's half of ibv_modify_qp(), without the provider's: the one call of
// the legacy plug-in interface that an application (UCX) has been seen to import.
// rdma-core keeps it, with the same meaning, under a node whose name changes. The
// command of the caller is scratch space there and here; ours has today's size.
extern "C" [[gnu::visibility("default")]] int ibvexp_1_0_ibv_cmd_modify_qp(
    ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, void *command, std::size_t command_size);
asm(".symver ibvexp_1_0_ibv_cmd_modify_qp,ibv_cmd_modify_qp@IBVERBS_1.0");
int ibvexp_1_0_ibv_cmd_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, void * /*command*/,
                                 std::size_t /*command_size*/) {
  struct {
    ib_uverbs_cmd_hdr head;
    ib_uverbs_modify_qp request;
  } command{};
  static auto *const modify =
      reinterpret_cast<int (*)(ibv_qp *, ibv_qp_attr *, int, void *, std::size_t)>(
          find_real("ibv_cmd_modify_qp", nullptr));
  if (modify != nullptr)
    return modify(queue::behind(qp), attr, attr_mask, &command, sizeof(command));
  log(LogLevel::error, "ibv_modify_qp: this libibverbs does not export ibv_cmd_modify_qp");
  return ENOSYS;
}
