#include "base/real.h"

#include <dlfcn.h>

#include <string_view>

#include "base/opener.h"

namespace ibvexp {

namespace {

const char *library_of(std::string_view name) {
  if (name.starts_with("mlx5dv_")) return "libmlx5.so.1";
  if (name.starts_with("rdma_")) return "librdmacm.so.1";
  return "libibverbs.so.1";
}

void *find_in(void *where, const char *name, const char *version) {
  return version != nullptr ? ::dlvsym(where, name, version) : ::dlsym(where, name);
}

// comp_mask: what is wanted beside the usual.
template <class Facts, class Object, class Member>
[[gnu::always_inline]] inline Facts ask(Object *object, Member mlx5dv_obj::*member,
                                        std::uint64_t kind, std::uint64_t comp_mask = 0) noexcept {
  mlx5dv_obj asked;  // only the member of that kind is read
  Facts facts;       // and all that is wanted is written
  facts.comp_mask = comp_mask;
  asked.*member = {object, &facts};
  if (real().mlx5dv_init_obj(&asked, kind) != 0) facts = {};
  return facts;
}

}  // namespace

void *find_real(const char *name, const char *version) {
  if (void *next = find_in(RTLD_NEXT, name, version)) return next;
  // Not in our scope: the library came in before us or privately. It is loaded
  // already, or the program could not have called us with an object of it.
  void *library = real_dlopen()(library_of(name), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? find_in(library, name, version) : nullptr;
}

OpenLibrary *real_dlopen() {
  static auto *const found = reinterpret_cast<OpenLibrary *>(::dlsym(RTLD_NEXT, "dlopen"));
  return found;
}

std::atomic<const Real *> known_real{nullptr};

const Real &find_all_real() {
  static const Real found = [] {
    Real r{};
#define IBVEXP_REAL_LOAD(name, version) \
  r.name = reinterpret_cast<decltype(r.name)>(find_real(#name, version));
    IBVEXP_REAL_FUNCTIONS(IBVEXP_REAL_LOAD)
#undef IBVEXP_REAL_LOAD
    return r;
  }();
  known_real.store(&found, std::memory_order_release);
  return found;
}

bool checks_state() {
  // A function that came with it.
  static const bool checks = find_real("mlx5dv_devx_create_eq", "MLX5_1.23") != nullptr;
  return checks;
}

mlx5dv_qp facts_of(ibv_qp *qp) noexcept {
  return ask<mlx5dv_qp>(qp, &mlx5dv_obj::qp, MLX5DV_OBJ_QP);
}
mlx5dv_cq facts_of(ibv_cq *cq) noexcept {
  return ask<mlx5dv_cq>(cq, &mlx5dv_obj::cq, MLX5DV_OBJ_CQ);
}
mlx5dv_srq facts_of(ibv_srq *srq) noexcept {
  return ask<mlx5dv_srq>(srq, &mlx5dv_obj::srq, MLX5DV_OBJ_SRQ, MLX5DV_SRQ_MASK_SRQN);
}
mlx5dv_rwq facts_of(ibv_wq *wq) noexcept {
  return ask<mlx5dv_rwq>(wq, &mlx5dv_obj::rwq, MLX5DV_OBJ_RWQ);
}
mlx5dv_pd facts_of(ibv_pd *pd) noexcept {
  return ask<mlx5dv_pd>(pd, &mlx5dv_obj::pd, MLX5DV_OBJ_PD);
}
mlx5dv_dm facts_of(ibv_dm *dm) noexcept {
  return ask<mlx5dv_dm>(dm, &mlx5dv_obj::dm, MLX5DV_OBJ_DM);
}

}  // namespace ibvexp
