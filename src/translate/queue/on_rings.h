// What a command of the device made on the rings of one of rdma-core's objects, which the device
// does not look at for that object.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

namespace ibvexp::queue {

struct OnRings {
  OnRings() = default;
  ~OnRings() { destroy(); }
  OnRings(const OnRings &) = delete;
  OnRings &operator=(const OnRings &) = delete;

  // 0, or an errno value: others need it, and it stays.
  [[gnu::noinline, gnu::cold]] int destroy() noexcept {
    if (object != nullptr && mlx5dv_devx_obj_destroy(object) != 0) return EBUSY;
    object = nullptr;
    give_back(ring);
    give_back(record);
    return 0;
  }

  mlx5dv_devx_umem *ring = nullptr, *record = nullptr;
  mlx5dv_devx_obj *object = nullptr;
  std::uint32_t number = 0;

 private:
  static void give_back(mlx5dv_devx_umem *&pages) noexcept {
    if (pages != nullptr) mlx5dv_devx_umem_dereg(pages);
    pages = nullptr;
  }
};

// A queue pair, and what it was changed to: rdma-core's stays in RESET.
struct Connection : OnRings {
  ibv_qp_attr attr{};
  ibv_qp_cap cap{};
  bool signal_all = false;
};

}  // namespace ibvexp::queue
