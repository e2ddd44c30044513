// A send queue: a ring of blocks of 64 bytes, an entry (WQE) one or more of them,
// made of segments of 16 bytes.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/owned.h"
#include "translate/queue/engine/doorbell.h"
#include "translate/queue/engine/lock.h"
#include "translate/queue/engine/managed.h"

namespace ibvexp {
struct IndirectKey;
template <class T>
class NumberTable;
}  // namespace ibvexp

namespace ibvexp::engine {

inline constexpr std::uint32_t log_block = 6;
inline constexpr std::uint32_t block_bytes = 1u << log_block;
inline constexpr std::uint32_t segment_bytes = 16;
inline constexpr std::uint32_t max_segments = 63;  // six bits of the control segment

constexpr std::uint32_t blocks_of(std::uint32_t segments) { return (segments + 3) / 4; }
constexpr std::uint32_t segments_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + segment_bytes - 1) / segment_bytes);
}

struct SendQueue;

using PostSend = int (*)(SendQueue &, ibv_send_wr *, ibv_send_wr **);
using PostExpSend = int (*)(SendQueue &, ibv_exp_send_wr *, ibv_exp_send_wr **);

// The posting functions of a queue pair in RTS or beyond, by Transport, and of one before that.
struct Posts {
  PostSend post;
  PostExpSend post_exp;
};
[[gnu::visibility("hidden")]] extern const Posts when_ready[], when_not;

// What is remembered of a request, at its first block. Without initialisers, which would be a
// loop where many are made.
struct Sent {
  std::uint64_t wr_id;
  // The number of requests before it; above, the opcode of its completion where
  // the entry does not say.
  std::uint64_t packed;

  std::uint32_t count() const { return static_cast<std::uint32_t>(packed); }
  std::uint32_t completion_opcode() const { return static_cast<std::uint32_t>(packed >> 32); }
};

enum class Transport : std::uint8_t { rc, uc, ud, raw_packet, xrc, dc };

// The counters are those of the program's view (scur_post of the legacy layout),
// or any two words.
struct SendQueue {
  // By state of the queue pair and transport: select().
  PostSend post = nullptr;
  PostExpSend post_exp = nullptr;

  Lock lock;
  std::uint32_t mask = 0;        // blocks - 1
  std::uint32_t max_posted = 0;  // requests, as granted
  std::uint32_t max_pieces = 0;  // of a gather list
  std::uint32_t max_inline = 0;  // bytes
  std::uint32_t number = 0;      // of the queue pair, shifted left by 8
  std::uint8_t fence = 0;        // for the next entry, which waits for a key change
  bool atomics = true;           // the device has them
  Transport transport = Transport::rc;
  bool checksums = false;  // the device fills them in
  // FENCE, SIGNALED and SOLICITED of a request, as a control segment has them.
  std::uint8_t control[8] = {};
  std::uint32_t count = 0;              // requests posted
  std::uint32_t *posted = &own_posted;  // blocks written
  std::uint8_t *begin = nullptr;
  std::uint8_t *end = nullptr;
  Zeros<Sent> sent;  // by block
  Doorbell doorbell;

  std::uint64_t refused_flags = 0;   // of experimental requests
  std::uint32_t max_blocks = 0;      // of one entry
  std::uint32_t max_umr_pieces = 0;  // of a key change in an entry; 0: none may be posted
  std::uint16_t max_tso_header = 0;  // bytes
  bool windows = true;               // may be bound
  // For key_change.h: the indirect keys of the context, and the most pieces of a list and
  // of a pattern in an entry.
  struct {
    const NumberTable<IndirectKey> *known = nullptr;
    const ibv_context *context = nullptr;
    std::uint32_t most_pieces[2] = {};
  } keys;
  // Flags of the burst family: IBV_EXP_QP_BURST_*.
  std::uint32_t refused_burst = ~0u;
  std::uint32_t always_burst = 0;
  // What the doorbell has not been rung for yet: the last entry's first eight bytes, and
  // the blocks written up to its end.
  std::uint64_t pending_head = 0;
  std::uint32_t pending_end = 0;
  ibv_qp *qp = nullptr;  // the program's
  Managed managed;
  std::uint32_t own_posted = 0;

  // Requests completed: written under the lock of the completion queue.
  alignas(64) std::uint32_t done = 0;

  // What count may not reach.
  std::uint32_t limit() const { return max_posted + relaxed(done); }

  void select(bool ready) {
    const Posts &now = ready ? when_ready[static_cast<std::size_t>(transport)] : when_not;
    post = now.post;
    post_exp = now.post_exp;
  }

  // Forgets what was posted. Its completions have been cleaned out.
  void reset() {
    count = *posted = done = 0;
    fence = 0;
    pending_head = 0;
    managed.reset();
  }
};

}  // namespace ibvexp::engine
