// The objects that a program holds: blocks of ours in the legacy provider's layout,
// with rdma-core's object behind each for everything but the data path.
//
//   public structure      what verbs document, and legacy_layout.h from its end on:
//                         what a program with the private header reads and writes
//   own                   ours, where no legacy layout has anything
//
// In front of a block stands what the legacy provider had there: the kind and the
// number of the resource.
//
// All blocks come from one range of addresses (block_range.h), so an object of
// ours is told from any other by its address alone. A tag inside would not do: the
// legacy inline of ibv_exp_create_cq() initialises mutex and condition of what it
// is given, and all else is rdma-core's in an object that is not ours. Blocks are
// used again for objects of the same kind and never returned: who is late with a
// pointer reads an object that is gone, with no object behind it.
//
// The words that a direct program and the engine share are the legacy ones, not
// copies: scur_post and rq.head of a queue pair, cons_index of a completion queue,
// head, tail and counter of a shared receive queue, rq.head of a work queue.
#pragma once

#include "translate/queue/block_range.h"
#include "translate/queue/engine_state.h"
#include "translate/queue/legacy_layout.h"

#include <infiniband/verbs.h>
#include <infiniband/verbs_exp.h>

namespace ibvexp::queue {

struct QpFront;
struct CqFront;
struct SrqFront;
struct WqFront;

// The data path of an object. Never null in a block that is in use. Results are
// those of the verbs.
struct QpFunctions {
  int (*post_send)(QpFront &, ibv_send_wr *, ibv_send_wr **bad);
  int (*post_exp_send)(QpFront &, ibv_exp_send_wr *, ibv_exp_send_wr **bad);
  int (*post_recv)(QpFront &, ibv_recv_wr *, ibv_recv_wr **bad);
  int (*bind_mw)(QpFront &, ibv_mw *, ibv_mw_bind *);
};

struct CqFunctions {
  int (*poll)(CqFront &, int entries, ibv_wc *);
  // wc_size: bytes from one completion to the next. Negative errno on failure.
  int (*poll_exp)(CqFront &, int entries, ibv_exp_wc *, std::uint32_t wc_size);
  int (*arm)(CqFront &, int solicited_only);
};

struct SrqFunctions {
  int (*post_recv)(SrqFront &, ibv_recv_wr *, ibv_recv_wr **bad);
};

struct WqFunctions {
  int (*post_recv)(WqFront &, ibv_recv_wr *, ibv_recv_wr **bad);
};

// The program's context value is in the public structure; rdma-core's object has
// the front in that place.

struct QpFront {
  ibv_qp shown;
  legacy::Qp legacy;
  struct alignas(64) Own {
    ibv_qp *back;
    QpFunctions call;
    // The legacy word in the layout of this process.
    std::uint32_t *scur_post;
    legacy::Register bf;
    QpEngine engine;
    QpFront *next_free;
  } own;
};

struct CqFront {
  ibv_cq shown;
  legacy::Cq legacy;
  struct alignas(64) Own {
    ibv_cq *back;
    CqFunctions call;
    CqEngine engine;
    CqFront *next_free;
  } own;
};

struct SrqFront {
  ibv_srq shown;
  legacy::Srq legacy;
  struct alignas(64) Own {
    ibv_srq *back;
    SrqFunctions call;
    SrqEngine engine;
    SrqFront *next_free;
  } own;
};

struct WqFront {
  ibv_exp_wq shown;
  legacy::Rwq legacy;
  struct alignas(64) Own {
    ibv_wq *back;
    WqFunctions call;
    WqEngine engine;
    WqFront *next_free;
  } own;
};

static_assert(sizeof(ibv_qp) == legacy::qp_at && sizeof(ibv_cq) == legacy::cq_at);
static_assert(sizeof(ibv_srq) == legacy::srq_at && sizeof(ibv_exp_wq) == legacy::rwq_at);
static_assert(offsetof(QpFront, legacy) == legacy::qp_at && offsetof(QpFront, own) == 960);
static_assert(offsetof(CqFront, legacy) == legacy::cq_at && offsetof(CqFront, own) == 704);
static_assert(offsetof(SrqFront, legacy) == legacy::srq_at && offsetof(SrqFront, own) == 448);
static_assert(offsetof(WqFront, legacy) == legacy::rwq_at && offsetof(WqFront, own) == 384);

// The object of ours that a program's pointer is, or null: somebody else's.
inline QpFront *front_of(const ibv_qp *qp) noexcept {
  return blocks.contain(qp) ? reinterpret_cast<QpFront *>(const_cast<ibv_qp *>(qp)) : nullptr;
}
inline CqFront *front_of(const ibv_cq *cq) noexcept {
  return blocks.contain(cq) ? reinterpret_cast<CqFront *>(const_cast<ibv_cq *>(cq)) : nullptr;
}
inline SrqFront *front_of(const ibv_srq *srq) noexcept {
  return blocks.contain(srq) ? reinterpret_cast<SrqFront *>(const_cast<ibv_srq *>(srq)) : nullptr;
}
inline WqFront *front_of(const ibv_exp_wq *wq) noexcept {
  return blocks.contain(wq) ? reinterpret_cast<WqFront *>(const_cast<ibv_exp_wq *>(wq)) : nullptr;
}

// rdma-core's object of any pointer, which may be null.
template <class Object>
Object *behind(Object *object) noexcept {
  if (auto *front = front_of(object)) return front->own.back;
  return object;
}

// The program's object of one of rdma-core's, which may be null.
inline ibv_qp *shown(ibv_qp *qp) noexcept {
  if (qp == nullptr || !blocks.contain(qp->qp_context)) return qp;
  auto *front = static_cast<QpFront *>(qp->qp_context);
  return front->own.back == qp ? &front->shown : qp;
}
inline ibv_cq *shown(ibv_cq *cq) noexcept {
  if (cq == nullptr || !blocks.contain(cq->cq_context)) return cq;
  auto *front = static_cast<CqFront *>(cq->cq_context);
  return front->own.back == cq ? &front->shown : cq;
}
inline ibv_srq *shown(ibv_srq *srq) noexcept {
  if (srq == nullptr || !blocks.contain(srq->srq_context)) return srq;
  auto *front = static_cast<SrqFront *>(srq->srq_context);
  return front->own.back == srq ? &front->shown : srq;
}

// A block for an object of that type, all zero but for what the blocks of an
// earlier object left in own.engine. Throws bad_alloc.
template <class Front>
Front &take_block();
template <>
QpFront &take_block<QpFront>();
template <>
CqFront &take_block<CqFront>();
template <>
SrqFront &take_block<SrqFront>();
template <>
WqFront &take_block<WqFront>();

// own.back is null from here on.
void give_back(QpFront &) noexcept;
void give_back(CqFront &) noexcept;
void give_back(SrqFront &) noexcept;
void give_back(WqFront &) noexcept;

// What stands in front of a block.
template <class Front>
legacy::Resource &resource_of(Front &front) noexcept {
  // A work queue has another word between the two.
  constexpr std::size_t distance = std::is_same_v<Front, WqFront> ? 16 : 8;
  return *reinterpret_cast<legacy::Resource *>(reinterpret_cast<std::uint8_t *>(&front) - distance);
}

}  // namespace ibvexp::queue
