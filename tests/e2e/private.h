// The private structures behind what a program holds, as its inlines find them.
#pragma once

#include <infiniband/mlx5dv.h>

#include <bit>

#include "private_layouts.h"
#include "rig.h"

#ifndef RELEASE
#define RELEASE Release49
#endif
using Layout = RELEASE;

// What is in front of the public structure.
template <class Private>
Private &around(const void *object, std::size_t distance) {
  return *reinterpret_cast<Private *>(reinterpret_cast<std::uintptr_t>(object) - distance);
}
inline auto &private_of(const ibv_qp *qp) { return around<Layout::mlx5_qp>(qp, 8); }
inline auto &private_of(const ibv_cq *cq) { return around<Layout::mlx5_cq>(cq, 0); }
inline auto &private_of(const ibv_srq *srq) { return around<Layout::mlx5_srq>(srq, 8); }
inline auto &private_of(const ibv_exp_wq *wq) { return around<Layout::mlx5_rwq>(wq, 16); }

inline mlx5dv_qp facts_of(ibv_qp *qp) {
  mlx5dv_qp facts{};
  mlx5dv_obj object{};
  object.qp = {qp, &facts};
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0);
  return facts;
}
inline mlx5dv_cq facts_of(ibv_cq *cq) {
  mlx5dv_cq facts{};
  mlx5dv_obj object{};
  object.cq = {cq, &facts};
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  return facts;
}
inline mlx5dv_srq facts_of(ibv_srq *srq) {
  mlx5dv_srq facts{};
  facts.comp_mask = MLX5DV_SRQ_MASK_SRQN;
  mlx5dv_obj object{};
  object.srq = {srq, &facts};
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ) == 0);
  return facts;
}

template <class T>
std::uintptr_t number(T *pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}
