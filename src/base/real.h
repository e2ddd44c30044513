// The functions behind the ones that this library interposes: calling them by
// name from inside would reach our own wrappers, which tests/static/one_way.py looks
// for. And those that the oldest supported rdma-core, release 28, lacks: linking with
// them would keep the library from being loaded there. Both go through real().
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <memory>

namespace ibvexp {

// name, version node. The node is named because an unversioned look-up finds
// the oldest one, whose structures are of another age.
#define IBVEXP_REAL_FUNCTIONS(X)             \
  X(ibv_get_device_list, "IBVERBS_1.1")      \
  X(ibv_open_device, "IBVERBS_1.1")          \
  X(ibv_close_device, "IBVERBS_1.1")         \
  X(ibv_import_device, "IBVERBS_1.10")       \
  X(ibv_import_dm, "IBVERBS_1.13")           \
  X(ibv_create_qp, "IBVERBS_1.1")            \
  X(ibv_destroy_qp, "IBVERBS_1.1")           \
  X(ibv_modify_qp, "IBVERBS_1.1")            \
  X(ibv_resize_cq, "IBVERBS_1.1")            \
  X(ibv_get_cq_event, "IBVERBS_1.1")         \
  X(ibv_get_async_event, "IBVERBS_1.1")      \
  X(ibv_ack_async_event, "IBVERBS_1.1")      \
  X(ibv_modify_srq, "IBVERBS_1.1")           \
  X(ibv_query_srq, "IBVERBS_1.1")            \
  X(ibv_destroy_srq, "IBVERBS_1.1")          \
  X(ibv_dereg_mr, "IBVERBS_1.1")             \
  X(ibv_create_cq, "IBVERBS_1.1")            \
  X(ibv_destroy_cq, "IBVERBS_1.1")           \
  X(ibv_ack_cq_events, "IBVERBS_1.1")        \
  X(ibv_create_srq, "IBVERBS_1.1")           \
  X(ibv_query_qp, "IBVERBS_1.1")             \
  X(ibv_attach_mcast, "IBVERBS_1.1")         \
  X(ibv_detach_mcast, "IBVERBS_1.1")         \
  X(_ibv_query_gid_ex, "IBVERBS_1.11")       \
  X(mlx5dv_create_qp, "MLX5_1.3")            \
  X(mlx5dv_create_wq, "MLX5_1.3")            \
  X(mlx5dv_open_device, "MLX5_1.7")          \
  X(mlx5dv_init_obj, "MLX5_1.2")             \
  X(mlx5dv_devx_cq_modify, "MLX5_1.8")       \
  X(mlx5dv_devx_qp_query, "MLX5_1.8")        \
  X(mlx5dv_modify_qp_udp_sport, "MLX5_1.17") \
  X(mlx5dv_pp_alloc, "MLX5_1.13")            \
  X(ibv_qp_to_qp_ex, "IBVERBS_1.6")

struct Real {
#define IBVEXP_REAL_MEMBER(name, version) decltype(&::name) name;
  IBVEXP_REAL_FUNCTIONS(IBVEXP_REAL_MEMBER)
#undef IBVEXP_REAL_MEMBER
};

// Looked up at the first call. A function that exists nowhere is null; that can
// only be one that the installed rdma-core does not have.
[[gnu::visibility("hidden")]] extern std::atomic<const Real *> known_real;
const Real &find_all_real();
inline const Real &real() {
  const Real *const known = known_real.load(std::memory_order_acquire);
  return known != nullptr ? *known : find_all_real();
}

// The same where there is a front: its device was opened through real().
inline const Real &real_behind_front() { return *known_real.load(std::memory_order_relaxed); }

// Whether ibv_dm shows its handle, which it does since release 35 for the sake of those
// who import it.
inline bool shows_memory_handle() { return real().ibv_import_dm != nullptr; }

// Whether ibv_open_device() makes contexts for DEVX where the kernel has it, which it does since
// release 29.
inline bool opens_for_devx() { return real().mlx5dv_pp_alloc != nullptr; }

// Whether libmlx5 refuses requests of a queue pair that is in no state for them, which it does since
// release 40.
bool checks_state();

// An object that goes with its owner, by the function behind the one that we interpose. It may
// change errno: declare the owner inside the scope that keeps it.
struct DestroysReal {
  void operator()(ibv_qp *qp) const noexcept { real().ibv_destroy_qp(qp); }
  void operator()(ibv_cq *cq) const noexcept { real().ibv_destroy_cq(cq); }
  void operator()(ibv_srq *srq) const noexcept { real().ibv_destroy_srq(srq); }
  void operator()(ibv_mr *mr) const noexcept { real().ibv_dereg_mr(mr); }
};
template <class Object>
using OwnedReal = std::unique_ptr<Object, DestroysReal>;

// What mlx5dv_init_obj() says of an object; zeros where it refuses. Once it was asked about a CQ,
// libmlx5 leaves the entries to us: it does not take out those of queue pairs that go.
mlx5dv_qp facts_of(ibv_qp *qp) noexcept;
mlx5dv_cq facts_of(ibv_cq *cq) noexcept;
mlx5dv_srq facts_of(ibv_srq *srq) noexcept;  // with its number
mlx5dv_rwq facts_of(ibv_wq *wq) noexcept;
mlx5dv_pd facts_of(ibv_pd *pd) noexcept;
mlx5dv_dm facts_of(ibv_dm *dm) noexcept;

// One function of another library, by name and version: the next definition
// after ours, or that of the library itself when ours was loaded too late to
// stand in front of it. Null if there is none. Without a version: of names that
// never had two.
void *find_real(const char *name, const char *version);

}  // namespace ibvexp
