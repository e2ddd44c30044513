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
// ours is told apart from any other by its address alone. A tag inside would not do: the
// legacy inline of ibv_exp_create_cq() initialises mutex and condition of what it
// is given, and all else is rdma-core's in an object that is not ours. Blocks are
// used again for objects of the same kind and never returned: who is late with a
// pointer reads an object that is gone, with no object behind it.
//
// The counters that a direct program writes are those of the block: cons_index of
// a completion queue, scur_post and rq.head of a queue pair, counter of a shared
// receive queue. The engine counts with the same words; rdma-core's data path behind
// has its own.
#pragma once

#include <infiniband/verbs.h>
#include <infiniband/verbs_exp.h>

#include <cstring>

#include "translate/queue/block_range.h"
#include "translate/queue/engine/lock.h"
#include "translate/queue/legacy_layout.h"
#include "translate/state/qp_state.h"

namespace ibvexp::engine {
struct CompletionQueue;
struct Endpoint;
struct ReceiveQueue;
struct SendQueue;
struct SharedReceiver;
}  // namespace ibvexp::engine

namespace ibvexp::queue {

struct Connection;
struct OnRings;

// The library whose data path an object has (driven.h).
enum class By : std::uint8_t { libmlx5, engine };

// The same of the two sides of a queue pair.
struct Sides {
  By send = By::libmlx5;
  By receive = By::libmlx5;
};

// The program's context value is in the public structure; rdma-core's object has
// the front in that place.

struct QpFront {
  ibv_qp shown;
  legacy::Qp legacy;
  struct alignas(64) Own {
    ibv_qp *back;
    // What serves the object behind.
    const ibv_context_ops *inner;
    QpNotes *known;  // what verbs keep about it: notes, or a QpState; null: nothing
    // Null: libmlx5 drives that side, or both.
    engine::SendQueue *send;
    engine::ReceiveQueue *receive;
    engine::Endpoint *engine;
    legacy::Register bf;
    QpFront *next_free;
    Connection *connection;  // of a shared queue of strides; null: the object behind serves
    QpNotes notes;           // if the engine drives both sides
    // A change of state takes more than rdma-core's: of a DC initiator, of a connection, or where a
    // UDP port waits.
    bool special;
  } own;
};

// A CQ of rdma-core's, for queues that libmlx5 drives (beside.h).
struct Beside {
  engine::Lock lock;  // cq may go while others poll it
  ibv_cq *cq = nullptr;
  ibv_cq *leaving = nullptr;  // the same while it is being destroyed, which waits for its events
  unsigned polls = 0;         // of both
};

// How a front was armed.
constexpr std::uint8_t armed_for_solicited = 1, armed_for_all = 2;

struct CqFront {
  ibv_cq shown;
  legacy::Cq legacy;
  struct alignas(64) Own {
    ibv_cq *back;
    const ibv_context_ops *inner;
    engine::CompletionQueue *engine;    // null: as above
    engine::CompletionQueue *alone;     // the same, unless there is another queue beside it
    Beside *beside;                     // null: there never was one
    engine::CompletionQueue *released;  // of libmlx5 now; another thread may still be reading it
    bool joined;                        // something that the engine drives completes here, or did
    bool plain;                         // of ibv_create_cq(), and nothing but that
    bool described;                     // the program called mlx5dv_init_obj()
    std::uint8_t armed;
    // By solicited_only: alone, where the queue has been armed so before. Null: arm_first().
    engine::CompletionQueue *arms[2];
    ibv_cq *counted;  // back, where the engine counts its events; null: libmlx5 does
    bool moderated, ignores_overrun;
    bool tags;  // a queue that matches them completes here, or did
    ibv_modify_cq_attr moderation;
    int comp_vector;
    std::uint32_t events;        // of the engine's that the program took, by engine::arm_step
    unsigned unacknowledged[2];  // events of libmlx5's, by Event
    std::uint32_t settled;       // acknowledged events that the object behind knows of
    std::uint32_t joining;       // creations under way of what it is going to drive
    std::uint8_t *ring;          // that a resize has given it; null: libmlx5's
    std::size_t ring_bytes;
    CqFront *next_free;
  } own;
};

struct SrqFront {
  ibv_srq shown;
  legacy::Srq legacy;
  struct alignas(64) Own {
    ibv_srq *back;
    const ibv_context_ops *inner;
    ibv_srq *held;  // what the program holds: shown, or an object of legacy XRC
    engine::SharedReceiver *engine;
    engine::SharedReceiver *released;
    bool joined;
    std::uint32_t tags;  // it has room for so many; 0: does not match them
    std::uint32_t joining;
    OnRings *strides;  // null: whole messages
    SrqFront *next_free;
  } own;
};

struct WqFront {
  ibv_exp_wq shown;
  legacy::Rwq legacy;
  struct alignas(64) Own {
    ibv_exp_wq *back;  // a translate::WorkQueue
    engine::Endpoint *engine;
    WqFront *next_free;
  } own;
};

// What a queue pair completes on and receives from. Null: nothing, or an object without a front.
struct Ends {
  CqFront *send = nullptr, *receive = nullptr;
  SrqFront *shared = nullptr;
};

#if defined(__x86_64__)
static_assert(sizeof(ibv_qp) == legacy::qp_at && sizeof(ibv_cq) == legacy::cq_at);
static_assert(sizeof(ibv_srq) == legacy::srq_at && sizeof(ibv_exp_wq) == legacy::rwq_at);
static_assert(offsetof(QpFront, legacy) == legacy::qp_at && offsetof(QpFront, own) == 960);
static_assert(offsetof(CqFront, legacy) == legacy::cq_at && offsetof(CqFront, own) == 704);
static_assert(offsetof(SrqFront, legacy) == legacy::srq_at && offsetof(SrqFront, own) == 448);
static_assert(offsetof(WqFront, legacy) == legacy::rwq_at && offsetof(WqFront, own) == 384);
#endif

// The front at a program's pointer, or null: not an object of this library.
template <class Front>
Front *front_at(const void *object) noexcept {
  if (!blocks.contain(object)) return nullptr;
  if (object == nullptr) __builtin_unreachable();
  return static_cast<Front *>(const_cast<void *>(object));
}
inline QpFront *front_of(const ibv_qp *qp) noexcept { return front_at<QpFront>(qp); }
inline CqFront *front_of(const ibv_cq *cq) noexcept { return front_at<CqFront>(cq); }
inline SrqFront *front_of(const ibv_srq *srq) noexcept { return front_at<SrqFront>(srq); }
inline WqFront *front_of(const ibv_exp_wq *wq) noexcept { return front_at<WqFront>(wq); }

// The fronts in the attributes with which a program creates a queue pair.
template <class Attr>
[[gnu::always_inline]] inline Ends ends_of(const Attr &attr) noexcept {
  return {front_of(attr.send_cq), front_of(attr.recv_cq), front_of(attr.srq)};
}

// The same of what a program may have mistaken for an object of that type: null where it is none,
// or gone.
template <class Front>
Front *find_front(const void *object) noexcept;

// rdma-core's object of any pointer, which may be null.
template <class Object>
Object *behind(Object *object) noexcept {
  if (auto *front = front_of(object)) return front->own.back;
  return object;
}

// The same of what a program may have mistaken for an object: null where it is inside,
// and cannot be one.
template <class Object>
Object *behind_any(void *pointer) noexcept {
  auto *object = static_cast<Object *>(pointer);
  if (blocks.contain(pointer) && !blocks.taken(pointer, sizeof(QpFront))) return nullptr;
  return behind(object);
}

// What stands before one of rdma-core's objects, or null.
inline QpFront *before(const ibv_qp *qp) noexcept {
  if (qp == nullptr || !blocks.contain(qp->qp_context)) return nullptr;
  auto *front = static_cast<QpFront *>(qp->qp_context);
  return front->own.back == qp ? front : nullptr;
}
inline CqFront *before(const ibv_cq *cq) noexcept {
  if (cq == nullptr || !blocks.contain(cq->cq_context)) return nullptr;
  auto *front = static_cast<CqFront *>(cq->cq_context);
  if (front->own.back == cq) return front;
  return front->own.beside != nullptr && front->own.beside->cq == cq ? front : nullptr;
}
inline SrqFront *before(const ibv_srq *srq) noexcept {
  if (srq == nullptr || !blocks.contain(srq->srq_context)) return nullptr;
  auto *front = static_cast<SrqFront *>(srq->srq_context);
  return front->own.back == srq ? front : nullptr;
}

// The program's object of one of rdma-core's, which may be null.
template <class Object>
Object *shown(Object *object) noexcept {
  if (auto *front = before(object)) return &front->shown;
  return object;
}

// A block for an object of that type, all zero. Throws bad_alloc.
template <class Front>
Front &take_block();

// own.back is null from here on.
template <class Front>
void give_back(Front &front) noexcept;

// The kind and number that libmlx5 has in front of an object, as the legacy provider
// had.
inline legacy::Resource resource_before(const void *back) noexcept {
  legacy::Resource of;
  std::memcpy(&of, static_cast<const std::uint8_t *>(back) - sizeof(of), sizeof(of));
  return of;
}

// What stands in front of a block.
template <class Front>
legacy::Resource &resource_of(Front &front) noexcept {
  // A work queue has another word between the two.
  constexpr std::size_t distance = std::is_same_v<Front, WqFront> ? 16 : 8;
  return *reinterpret_cast<legacy::Resource *>(reinterpret_cast<std::uint8_t *>(&front) - distance);
}

}  // namespace ibvexp::queue
