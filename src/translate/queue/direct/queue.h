// Queues whose memory we drive ourselves, past libmlx5. ownership.h says how one
// comes to be here; from then on libmlx5's data path must not touch it, because
// it keeps counters of its own that we can neither read nor write.
//
// Each queue has a lock, as in libmlx5. What the other side of a queue pair has
// completed (done, tail) is written under the lock of the completion queue and
// read under that of the queue.
#pragma once

#include "base/lock.h"
#include "base/number_table.h"
#include "translate/queue/direct/cqe.h"
#include "translate/queue/direct/wqe.h"
#include "translate/queue/engine/barrier.h"

#include <infiniband/verbs_exp.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

namespace ibvexp::direct {

using Guard = std::lock_guard<SpinLock>;

template <class T>
T relaxed(const T &value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}
template <class T>
void set_relaxed(T &to, std::type_identity_t<T> value) {
  __atomic_store_n(&to, value, __ATOMIC_RELAXED);
}

// Entries are in memory before the doorbell record says so.
inline void ring_record(std::uint32_t *record, std::uint32_t value) {
  engine::before_record();
  __atomic_store_n(record, be(value), __ATOMIC_RELEASE);
}

// All counters wrap at 16 bits, as the device's do; no queue is longer than half
// of that.
struct SendQueue {
  Ring ring;
  std::uint32_t blocks = 0;
  std::uint16_t posted = 0;  // blocks written
  std::uint16_t rung = 0;    // blocks that the device knows of
  std::uint16_t done = 0;    // blocks completed
  std::uint32_t number = 0;  // of the queue pair, shifted left by 8
  std::uint32_t max_inline = 0;
  std::uint32_t refused = 0;  // burst flags that cannot be served
  std::uint32_t always = 0;   // burst flags of every request
  std::uint64_t doorbell = 0;
  std::uint32_t *record = nullptr;
  void *page = nullptr;
  std::unique_ptr<std::uint64_t[]> ids;  // by block
  SpinLock lock;

  std::uint32_t room() const { return blocks - static_cast<std::uint16_t>(posted - relaxed(done)); }

  // Makes an entry known to the next doorbell.
  void enter(std::uint8_t *at, std::uint64_t head, unsigned entry_blocks, std::uint64_t id) {
    doorbell = head;
    ids[static_cast<std::size_t>(at - ring.begin) / block_bytes] = id;
    posted = static_cast<std::uint16_t>(posted + entry_blocks);
  }

  // The page may be shared with queues of libmlx5: eight bytes at once need no
  // lock of theirs.
  void ring_doorbell() {
    if (rung == posted) return;
    rung = posted;
    ring_record(record, posted);
    engine::before_doorbell();
    __atomic_store_n(static_cast<std::uint64_t *>(page), doorbell, __ATOMIC_RELAXED);
    engine::after_doorbell();
  }

  void reset() { posted = rung = done = 0; }
};

struct ReceiveQueue {
  std::uint8_t *buffer = nullptr;
  std::uint32_t entries = 0;
  std::uint32_t entry_bytes = 0;
  std::uint32_t skip = 0;  // bytes in front of the scatter list
  std::uint16_t head = 0;  // entries posted
  std::uint16_t tail = 0;  // entries completed
  // The same, as far as was seen when the program read completions itself and the queue
  // looked full.
  std::uint16_t done = 0;
  // The receive queue of a raw packet QP works from INIT on, which no queue pair
  // may: the device learns of its entries in RTR.
  const ibv_qp *held_for = nullptr;
  std::uint32_t *record = nullptr;
  std::unique_ptr<std::uint64_t[]> ids;
  SpinLock lock;

  // Of a multi-packet queue; 0 otherwise.
  std::uint32_t strides = 0;
  std::uint32_t log_stride_bytes = 0;
  std::uint32_t shift = 0;  // bytes in front of each packet

  std::uint32_t room() const {
    const auto posted = static_cast<std::uint16_t>(head - relaxed(tail));
    return entries < posted ? 0 : entries - posted;
  }
  std::uint8_t *scatter(std::uint16_t index) const {
    return buffer + std::size_t{index & (entries - 1)} * entry_bytes + skip;
  }
  std::uint32_t pieces() const { return (entry_bytes - skip) / segment_bytes; }
  std::uint64_t &id(std::uint16_t index) const { return ids[index & (entries - 1)]; }

  void ring_doorbell() {
    if (held_for != nullptr) [[unlikely]] {
      if (held_for->state < IBV_QPS_RTR) return;
      held_for = nullptr;
    }
    ring_record(record, head);
  }
  void reset() { head = tail = done = 0; }
};

// A queue pair or a work queue, and which of its sides are ours.
struct Endpoint {
  ibv_qp *qp = nullptr;
  const ibv_exp_wq *wq = nullptr;
  const ibv_cq *send_cq = nullptr;
  const ibv_cq *recv_cq = nullptr;
  std::uint32_t user_index = 0;  // how completions name it
  bool raw_packet = false;
  bool owns_send = false;
  bool owns_receive = false;
  SendQueue send;
  ReceiveQueue receive;
};

struct CompletionQueue {
  ibv_cq *cq = nullptr;
  std::uint8_t *entries = nullptr;  // the halves of 64 bytes that matter
  std::uint32_t mask = 0;
  std::uint32_t log_bytes = 0;
  std::uint32_t log_entries = 0;
  std::uint32_t consumer = 0;
  std::uint32_t *record = nullptr;
  std::uint32_t number = 0;
  std::uint8_t *page = nullptr;
  std::uint32_t arm_count = 0;
  std::uint32_t striding = 0;  // multi-packet queues that complete here
  bool system_time = false;    // time stamps are reported as the time of day
  const NumberTable<Endpoint> *endpoints = nullptr;
  Endpoint *last = nullptr;
  SpinLock lock;

  Cqe entry(std::uint32_t index) const {
    return Cqe(entries + (std::size_t{index & mask} << log_bytes));
  }
  std::uint8_t owner(std::uint32_t index) const { return index >> log_entries & 1; }

  // The queue that a completion is of, or null: it was not created through us.
  Endpoint *endpoint(Cqe cqe) {
    const std::uint32_t index = cqe.user_index();
    if (last != nullptr && last->user_index == index) [[likely]]
      return last;
    Endpoint *found = endpoints->find(index);
    if (found != nullptr) last = found;
    return found;
  }

  // Takes completions: what was read may be overwritten.
  void release() { ring_record(record, consumer & 0xffffff); }

  // The next completion, made readable; false if there is none.
  bool next(Cqe &cqe, std::uint8_t &op_own) {
    for (;;) {
      cqe = entry(consumer);
      op_own = cqe.op_own();
      if ((op_own & 1) != owner(consumer) || opcode_of(op_own) == MLX5_CQE_INVALID) return false;
      if (is_compressed(op_own)) [[unlikely]] {
        unpack();
        continue;
      }
      if (opcode_of(op_own) == opcode_dropped) [[unlikely]] {
        ++consumer;
        continue;
      }
      return true;
    }
  }

  [[gnu::cold]] void unpack() {
    const Endpoint *of = endpoints->find(entry(consumer).user_index());
    decompress([this](std::uint32_t k) { return entry(consumer + k).bytes(); },
               [this](std::uint32_t k) { return owner(consumer + k); }, mask + 1,
               of != nullptr && of->receive.strides != 0);
  }
};

// The entry of a completed request is free, and all before it.
inline void complete_send(SendQueue &queue, Cqe cqe) {
  const std::uint16_t index = cqe.counter();
  const unsigned segments = queue.ring.block(index)[7] & max_segments;
  set_relaxed(queue.done, static_cast<std::uint16_t>(index + blocks_of(segments)));
}

inline bool ends_entry(const ReceiveQueue &queue, const Strides &s) {
  return std::uint32_t{s.first} + s.consumed >= queue.strides;
}

inline void complete_receive(ReceiveQueue &queue, Cqe cqe) {
  if (queue.strides != 0 && !ends_entry(queue, strides_of(cqe))) return;
  set_relaxed(queue.tail, static_cast<std::uint16_t>(queue.tail + 1));
}

// Data that came inside a completion, to where the request wanted it. Returns
// false if it is longer than that.
bool scatter_inline(const std::uint8_t *segments, unsigned count, const std::uint8_t *data,
                    std::uint32_t bytes);

// What a context keeps about its directly driven queues. Made at the first one.
struct Context {
  // The provider's functions, which still serve everything else.
  int (*post_send)(ibv_qp *, ibv_send_wr *, ibv_send_wr **) = nullptr;
  int (*post_recv)(ibv_qp *, ibv_recv_wr *, ibv_recv_wr **) = nullptr;
  int (*poll_cq)(ibv_cq *, int, ibv_wc *) = nullptr;
  int (*req_notify_cq)(ibv_cq *, int) = nullptr;

  NumberTable<CompletionQueue> cqs;   // by handle
  NumberTable<Endpoint> endpoints;    // by user index
  NumberTable<Endpoint> queue_pairs;  // by number

  // Changes to all of it.
  Mutex mutex;
  std::vector<std::unique_ptr<CompletionQueue>> owned_cqs;
  std::vector<std::unique_ptr<Endpoint>> owned_endpoints;
};

inline CompletionQueue *find(const Context *context, const ibv_cq *cq) {
  if (context == nullptr) [[likely]]
    return nullptr;
  CompletionQueue *found = context->cqs.find(cq->handle);
  return found != nullptr && found->cq == cq ? found : nullptr;
}

inline Endpoint *find(const Context *context, const ibv_qp *qp) {
  if (context == nullptr) [[likely]]
    return nullptr;
  Endpoint *found = context->queue_pairs.find(qp->qp_num);
  return found != nullptr && found->qp == qp ? found : nullptr;
}

}  // namespace ibvexp::direct
