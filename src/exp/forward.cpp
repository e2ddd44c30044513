// Functions of libibverbs and libmlx5 that only need a front replaced by rdma-core's object.
// Versions and types are those of their own libraries; a function that the
// installed rdma-core does not have fails with ENOTSUP.
//
// They get their names by .symver, since headers of many ages declare them.
#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "base/real.h"
#include "translate/queue/attributes.h"
#include "translate/queue/beside.h"
#include "translate/queue/driven.h"
#include "translate/state/context_state.h"

namespace ibvexp {

namespace {

using queue::behind;

template <class R>
R without() noexcept {
  errno = EOPNOTSUPP;
  if constexpr (std::is_pointer_v<R>) return nullptr;
  else return EOPNOTSUPP;
}

// The real function, looked up once for each Tag.
template <class Tag, class R, class... Args>
R call(const char *name, const char *version, Args... arguments) noexcept {
  static auto *const function = reinterpret_cast<R (*)(Args...)>(find_real(name, version));
  return function != nullptr ? function(arguments...) : without<R>();
}

// Offset in a handle, from mlx5dv_init_obj(); 0: not known.
[[gnu::noinline]] std::ptrdiff_t place_of_vector(ibv_ah *ah) noexcept {
  mlx5dv_ah facts{};
  mlx5dv_obj object{};
  object.ah.in = ah;
  object.ah.out = &facts;
  if (mlx5dv_init_obj(&object, MLX5DV_OBJ_AH) != 0 || facts.av == nullptr) return 0;
  return reinterpret_cast<std::uint8_t *>(facts.av) - reinterpret_cast<std::uint8_t *>(ah);
}

// libmlx5 of today says that a vector is an extended one only when it posts; programs
// that copy vectors out of handles leave the extension out unless it says so there.
ibv_ah *extended(ibv_ah *ah) noexcept {
  if (ah == nullptr) return nullptr;
  const ContextState *state = find_state(ah->context);
  if (state == nullptr || state->behind == nullptr) return ah;
  // The vector is where it is in all handles of one library, and not at their beginning.
  static std::atomic<std::ptrdiff_t> place{0};
  std::ptrdiff_t at = place.load(std::memory_order_relaxed);
  if (at == 0) [[unlikely]] {
    at = place_of_vector(ah);
    if (at == 0) return ah;
    place.store(at, std::memory_order_relaxed);
  }
  auto &vector = *reinterpret_cast<mlx5_wqe_av *>(reinterpret_cast<std::uint8_t *>(ah) + at);
  vector.dqp_dct |= htobe32(MLX5_EXTENDED_UD_AV);
  return ah;
}

// mlx5dv_init_obj() of rdma-core's objects. A copy gets those that replace fronts: the caller's
// structure may be read-only, and is shorter in programs of older headers.
template <class Init>
int init_objects(mlx5dv_obj &of, std::uint64_t kinds, Init init) noexcept {
  constexpr std::uint64_t with_fronts = MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ;
  if ((kinds & with_fronts) == 0) return init(&of, kinds);
  mlx5dv_obj copy{};
  queue::CqFront *front = nullptr;
  if ((kinds & MLX5DV_OBJ_QP) != 0) copy.qp = {behind(of.qp.in), of.qp.out};
  if ((kinds & MLX5DV_OBJ_SRQ) != 0) copy.srq = {behind(of.srq.in), of.srq.out};
  if ((kinds & MLX5DV_OBJ_CQ) != 0) {
    front = queue::front_of(of.cq.in);
    copy.cq = {front != nullptr ? queue::described(*front) : of.cq.in, of.cq.out};
    if (copy.cq.in == nullptr && front != nullptr) return errno = ENOTSUP;
  }
  const int error = init(&copy, kinds & with_fronts);
  if (error != 0) return error;
  if (front != nullptr && copy.cq.in == front->own.back) queue::correct(*front, *copy.cq.out);
  // The device's queue of strides is on the rings of the object behind.
  if (const auto *srq = (kinds & MLX5DV_OBJ_SRQ) != 0 ? queue::front_of(of.srq.in) : nullptr;
      srq != nullptr && srq->own.strides != nullptr &&
      (of.srq.out->comp_mask & MLX5DV_SRQ_MASK_SRQN) != 0)
    of.srq.out->srqn = srq->legacy.srq_num;
  return (kinds & ~with_fronts) == 0 ? 0 : init(&of, kinds & ~with_fronts);
}

// What a flow leads to; size: of an element, which newer headers have larger. The
// caller's array stays as it is. Throws bad_alloc.
class Actions {
 public:
  Actions(const void *from, std::size_t count, std::size_t size)
      : copy_(std::make_unique<std::uint8_t[]>(count * size)) {
    std::memcpy(copy_.get(), from, count * size);
    for (std::size_t i = 0; i < count; ++i) {
      auto &action = *reinterpret_cast<mlx5dv_flow_action_attr *>(copy_.get() + i * size);
      if (action.type == MLX5DV_FLOW_ACTION_DEST_IBV_QP) action.qp = behind(action.qp);
    }
  }
  void *get() const { return copy_.get(); }

 private:
  std::unique_ptr<std::uint8_t[]> copy_;
};

template <class Create>
ibv_flow *create_flow(const void *actions, std::size_t count, std::size_t size,
                      Create create) noexcept {
  try {
    const Actions behind_them(actions, count, size);
    return create(behind_them.get());
  } catch (const std::bad_alloc &) {
    errno = ENOMEM;
    return nullptr;
  }
}

}  // namespace

}  // namespace ibvexp

using namespace ibvexp;

// R ibvexp_front_NAME PARAMETERS { ... real(ARGUMENTS) ... } under NAME@@VERSION.
#define IBVEXP_FRONT(R, name, version, parameters)                            \
  extern "C" [[gnu::visibility("default")]] R ibvexp_front_##name parameters; \
  asm(".symver ibvexp_front_" #name "," #name "@@" version);                  \
  R ibvexp_front_##name parameters
#define IBVEXP_REAL(R, name, version, ...) \
  call<struct name##_tag, R>(#name, version __VA_OPT__(, ) __VA_ARGS__)

// libibverbs

IBVEXP_FRONT(ibv_ah *, ibv_create_ah, "IBVERBS_1.1", (ibv_pd * pd, ibv_ah_attr *attr)) {
  return extended(IBVEXP_REAL(ibv_ah *, ibv_create_ah, "IBVERBS_1.1", pd, attr));
}

IBVEXP_FRONT(ibv_ah *, ibv_create_ah_from_wc, "IBVERBS_1.1",
             (ibv_pd * pd, ibv_wc *wc, ibv_grh *grh, std::uint8_t port)) {
  return extended(IBVEXP_REAL(ibv_ah *, ibv_create_ah_from_wc, "IBVERBS_1.1", pd, wc, grh, port));
}

// Builders are of the object behind, which other verbs take as well.
IBVEXP_FRONT(ibv_qp_ex *, ibv_qp_to_qp_ex, "IBVERBS_1.6", (ibv_qp * qp)) {
  return IBVEXP_REAL(ibv_qp_ex *, ibv_qp_to_qp_ex, "IBVERBS_1.6", behind(qp));
}

IBVEXP_FRONT(int, ibv_set_ece, "IBVERBS_1.10", (ibv_qp * qp, void *ece)) {
  return IBVEXP_REAL(int, ibv_set_ece, "IBVERBS_1.10", behind(qp), ece);
}

IBVEXP_FRONT(int, ibv_query_ece, "IBVERBS_1.10", (ibv_qp * qp, void *ece)) {
  return IBVEXP_REAL(int, ibv_query_ece, "IBVERBS_1.10", behind(qp), ece);
}

IBVEXP_FRONT(int, ibv_query_qp_data_in_order, "IBVERBS_1.14",
             (ibv_qp * qp, int opcode, std::uint32_t flags)) {
  return IBVEXP_REAL(int, ibv_query_qp_data_in_order, "IBVERBS_1.14", behind(qp), opcode, flags);
}

// libmlx5

IBVEXP_FRONT(int, mlx5dv_init_obj, "MLX5_1.2", (mlx5dv_obj * object, std::uint64_t kinds)) {
  return init_objects(*object, kinds, [](mlx5dv_obj *of, std::uint64_t some) {
    return IBVEXP_REAL(int, mlx5dv_init_obj, "MLX5_1.2", of, some);
  });
}

IBVEXP_FRONT(ibv_qp *, mlx5dv_create_qp, "MLX5_1.3",
             (ibv_context * context, ibv_qp_init_attr_ex *wanted, void *more)) {
  ContextState *const state = find_state(context);
  if (state == nullptr)
    return IBVEXP_REAL(ibv_qp *, mlx5dv_create_qp, "MLX5_1.3", context, wanted, more);
  ibv_qp_init_attr_ex attr = queue::attributes_behind(*wanted);
  const queue::Joining joining(*state, queue::ends_of(*wanted), &attr.send_cq, &attr.recv_cq,
                               attr.srq, queue::By::libmlx5);
  if (!joining) {
    errno = joining.failure().code;
    return nullptr;
  }
  ibv_qp *made = IBVEXP_REAL(ibv_qp *, mlx5dv_create_qp, "MLX5_1.3", context, &attr, more);
  if (made != nullptr) wanted->cap = attr.cap;
  return queue::as_guest(*state, joining, made, attr.recv_cq, attr.srq);
}

IBVEXP_FRONT(ibv_wq *, mlx5dv_create_wq, "MLX5_1.3",
             (ibv_context * context, ibv_wq_init_attr *wanted, void *more)) {
  ContextState *const state = find_state(context);
  if (state == nullptr)
    return IBVEXP_REAL(ibv_wq *, mlx5dv_create_wq, "MLX5_1.3", context, wanted, more);
  ibv_wq_init_attr attr = queue::attributes_behind(*wanted);
  const queue::Joining joining(*state, &attr.cq, nullptr, queue::By::libmlx5);
  if (!joining) {
    errno = joining.failure().code;
    return nullptr;
  }
  return IBVEXP_REAL(ibv_wq *, mlx5dv_create_wq, "MLX5_1.3", context, &attr, more);
}

IBVEXP_FRONT(ibv_flow *, mlx5dv_create_flow, "MLX5_1.6",
             (void *matcher, void *value, std::size_t count, void *actions)) {
  return create_flow(actions, count, sizeof(mlx5dv_flow_action_attr), [&](void *behind_them) {
    return IBVEXP_REAL(ibv_flow *, mlx5dv_create_flow, "MLX5_1.6", matcher, value, count,
                       behind_them);
  });
}

// What today's headers make of it.
IBVEXP_FRONT(ibv_flow *, __mlx5dv_create_flow, "MLX5_1.25.1",
             (void *matcher, void *value, std::size_t count, void *actions, std::size_t size)) {
  return create_flow(actions, count, size, [&](void *behind_them) {
    return IBVEXP_REAL(ibv_flow *, __mlx5dv_create_flow, "MLX5_1.25.1", matcher, value, count,
                       behind_them, size);
  });
}

#define IBVEXP_FRONT_DEVX(name, Object)                                                        \
  IBVEXP_FRONT(int, name, "MLX5_1.8",                                                          \
               (Object * object, const void *in, std::size_t in_length, void *out,             \
                std::size_t out_length)) {                                                     \
    return IBVEXP_REAL(int, name, "MLX5_1.8", behind(object), in, in_length, out, out_length); \
  }
IBVEXP_FRONT_DEVX(mlx5dv_devx_cq_modify, ibv_cq)
IBVEXP_FRONT_DEVX(mlx5dv_devx_cq_query, ibv_cq)
IBVEXP_FRONT_DEVX(mlx5dv_devx_qp_modify, ibv_qp)
IBVEXP_FRONT_DEVX(mlx5dv_devx_qp_query, ibv_qp)
IBVEXP_FRONT_DEVX(mlx5dv_devx_srq_modify, ibv_srq)
IBVEXP_FRONT_DEVX(mlx5dv_devx_srq_query, ibv_srq)

IBVEXP_FRONT(void *, mlx5dv_dr_action_create_dest_ibv_qp, "MLX5_1.10", (ibv_qp * qp)) {
  return IBVEXP_REAL(void *, mlx5dv_dr_action_create_dest_ibv_qp, "MLX5_1.10", behind(qp));
}

IBVEXP_FRONT(int, mlx5dv_modify_qp_lag_port, "MLX5_1.14", (ibv_qp * qp, std::uint8_t port)) {
  return IBVEXP_REAL(int, mlx5dv_modify_qp_lag_port, "MLX5_1.14", behind(qp), port);
}

IBVEXP_FRONT(int, mlx5dv_query_qp_lag_port, "MLX5_1.14",
             (ibv_qp * qp, std::uint8_t *port, std::uint8_t *active)) {
  return IBVEXP_REAL(int, mlx5dv_query_qp_lag_port, "MLX5_1.14", behind(qp), port, active);
}

IBVEXP_FRONT(int, mlx5dv_modify_qp_sched_elem, "MLX5_1.17",
             (ibv_qp * qp, const void *requestor, const void *responder)) {
  return IBVEXP_REAL(int, mlx5dv_modify_qp_sched_elem, "MLX5_1.17", behind(qp), requestor,
                     responder);
}

IBVEXP_FRONT(int, mlx5dv_modify_qp_udp_sport, "MLX5_1.17", (ibv_qp * qp, std::uint16_t port)) {
  return IBVEXP_REAL(int, mlx5dv_modify_qp_udp_sport, "MLX5_1.17", behind(qp), port);
}

IBVEXP_FRONT(int, mlx5dv_dci_stream_id_reset, "MLX5_1.21", (ibv_qp * qp, std::uint16_t stream)) {
  return IBVEXP_REAL(int, mlx5dv_dci_stream_id_reset, "MLX5_1.21", behind(qp), stream);
}

// The version of libmlx5's first release, in which one member had another meaning.
extern "C" [[gnu::visibility("default")]] int ibvexp_1_0_mlx5dv_init_obj(mlx5dv_obj *object,
                                                                         std::uint64_t kinds);
asm(".symver ibvexp_1_0_mlx5dv_init_obj,mlx5dv_init_obj@MLX5_1.0");
int ibvexp_1_0_mlx5dv_init_obj(mlx5dv_obj *object, std::uint64_t kinds) {
  return init_objects(*object, kinds, [](mlx5dv_obj *of, std::uint64_t some) {
    return call<struct init_obj_1_0_tag, int>("mlx5dv_init_obj", "MLX5_1.0", of, some);
  });
}
