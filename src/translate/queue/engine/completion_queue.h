// A completion queue: entries (CQEs) that the device writes and software reads.
#pragma once

#include "base/number_table.h"
#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/cqe.h"
#include "translate/queue/engine/endpoint.h"
#include "translate/state/cq_state.h"

namespace ibvexp::engine {

struct CompletionQueue : Allocated {
  Lock lock;
  std::uint8_t *entries = nullptr;  // the halves of 64 bytes that matter
  std::uint32_t mask = 0;           // size - 1
  std::uint32_t size = 0;           // entries
  std::uint32_t entry_bytes = 0;
  std::uint32_t *consumed = &own_consumed;           // the program's own word; not masked
  std::uint32_t *record = nullptr;                   // [0]: consumed, [1]: armed
  Endpoint *last = no_endpoint();                    // of the latest completion
  const NumberTable<Endpoint> *endpoints = nullptr;  // by user index

  StampKind stamps = StampKind::none;
  bool reports_strides = false;  // ibv_exp_poll_cq() may report completions in strides
  bool dropped_one = false;      // a completion of a queue that the library does not know
  std::uint64_t arm_tail = 0;    // the queue's number, as the doorbell has it
  std::uint8_t *page = nullptr;  // where it is armed
  ibv_cq *cq = nullptr;          // the program's
  std::uint32_t own_consumed = 0;
  LibcLock libc_lock;  // the counter is the other lock's

  std::uint32_t number() const { return be(static_cast<std::uint32_t>(arm_tail >> 32)); }
  std::uint8_t *entry(std::uint32_t index) const {
    return entries + std::size_t{index & mask} * entry_bytes;
  }
  // What the device writes into the lowest bit of the entry.
  std::uint8_t owner(std::uint32_t index) const { return (index & size) != 0; }

  // The device has written the entry of that index. Ownership and opcode.
  bool has(std::uint32_t index, std::uint8_t &op_own) const {
    op_own = read_owner(entry(index) + 63);
    return (op_own & 1) == owner(index) && op_own >> 4 != MLX5_CQE_INVALID;
  }

  // Makes the queue that a completion is of the last one, unless it is. False: it was not created
  // through us.
  [[gnu::always_inline]] bool finds(Cqe cqe) {
    const std::uint32_t tag = cqe.tag();
    if (last->tag == tag) [[likely]]
      return true;
    Endpoint *const found = endpoints->find(be(tag));
    if (found == nullptr) [[unlikely]]
      return false;
    last = found;
    return true;
  }

  bool is_empty() {
    const Guard guard(lock);
    std::uint8_t op_own;
    return !has(*consumed, op_own);
  }

  // What was read may be overwritten.
  [[gnu::always_inline]] void release(std::uint32_t index) {
    set_relaxed(*consumed, index);
    __atomic_store_n(record, be(index & 0xffffff), __ATOMIC_RELEASE);
  }

  // What ends a poll that found nothing: unlocks the queue.
  [[gnu::always_inline]] int found_nothing() {
    if (libc_lock.is_due()) [[unlikely]]
      return pass_libc_lock();
    lock.unlock();
    return 0;
  }
  int pass_libc_lock();  // 0

  // Expands compressed completions from the title at that index on.
  void unpack(std::uint32_t index);
};

// ibv_poll_cq(): the number of completions, or -1 with errno set.
int poll(CompletionQueue &queue, int count, ibv_wc *wc);

// ibv_exp_poll_cq(): the number, or a negative errno value, with errno set and the reason
// reported. Completions are wc_size bytes apart, and nothing is written beyond.
int poll(CompletionQueue &queue, int count, ibv_exp_wc *wc, std::uint32_t wc_size);

// ibv_req_notify_cq(). The caller holds the lock, or sees to it that the queue stays where it is.
// events: that were taken, counted where the device wants their lowest bits.
inline constexpr std::uint32_t arm_step = 1u << 28;
[[gnu::always_inline]] inline void arm(const CompletionQueue &queue, std::uint32_t events,
                                       std::uint32_t consumed, bool solicited_only) {
  static_assert(MLX5_CQ_DB_REQ_NOT == 0 && MLX5_CQ_DB_REQ_NOT_SOL == 1 << 24);
  const std::uint32_t word =
      be((events & 3 * arm_step) | std::uint32_t{solicited_only} << 24 | (consumed & 0xffffff));
  before_record();
  __atomic_store_n(queue.record + 1, word, __ATOMIC_RELEASE);
  before_doorbell();
  __atomic_store_n(reinterpret_cast<std::uint64_t *>(queue.page + MLX5_CQ_DOORBELL),
                   word | queue.arm_tail, __ATOMIC_RELAXED);
  after_doorbell();
}

// Takes the unread completions of a queue that is reset or goes out, as libmlx5
// does: the others move up, and the consumer index with them.
void clean(CompletionQueue &queue, Endpoint &endpoint);

// The queue has another ring of that many entries, which the device fills already: it has
// closed the old one with an entry of its own. Moves the unread completions into the new
// one. The caller holds the lock. False: the entry is not there, and completions are lost.
bool move_to(CompletionQueue &queue, std::uint8_t *ring, std::uint32_t entries);

}  // namespace ibvexp::engine
