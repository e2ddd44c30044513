// What completions are of: a queue pair, a work queue, a target of the DC
// transport, or a shared receive queue of XRC.
#pragma once

#include <cstdlib>
#include <new>

#include "base/number_table.h"
#include "translate/queue/engine/receive_queue.h"
#include "translate/queue/engine/send_queue.h"
#include "translate/queue/engine/shared_queue.h"

namespace ibvexp::engine {

struct CompletionQueue;

// Base of types in the C library's memory: the operators of the C++ library check more than they
// need.
struct Allocated {
  static void *operator new(std::size_t bytes) {
    void *const memory = std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  static void operator delete(void *memory) { std::free(memory); }
};
// The same for types that have cache lines of their own.
struct CacheAligned {
  static void *operator new(std::size_t bytes, std::align_val_t alignment) {
    void *const memory = std::aligned_alloc(static_cast<std::size_t>(alignment), bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  static void operator delete(void *memory, std::align_val_t) { std::free(memory); }
};

struct Endpoint : CacheAligned {
  // Posting reads its last cache line, which has room for what polling reads.
  [[no_unique_address]] SendQueue send;

  // How completions name it (their user index), in network order with the lowest
  // byte of the word, which means something else, zero.
  std::uint32_t tag = 0;

  // For the program: what ibv_exp_wc says.
  ibv_qp *qp = nullptr;
  ibv_srq *srq = nullptr;  // the one that it receives from
  ibv_exp_dct *dct = nullptr;
  std::uint32_t number = 0;  // of the queue, which completions of frames do not have
  // IBV_EXP_WC_* that say which of these are set.
  std::uint64_t send_flags = 0;
  std::uint64_t receive_flags = 0;
  bool frames = false;    // receives Ethernet frames, whose checksums the device checks
  bool special = false;   // receives in another way than most
  bool messages = false;  // receives whole messages, one for each entry

  // The queues of send and of receive completions. May be one, or null.
  CompletionQueue *completes_on[2] = {};

  SharedQueue *shared = nullptr;
  NumberTable<Endpoint>::Place place;  // where completions find it; none before it is entered
  ReceiveQueue receive;

  std::uint32_t user_index() const { return be(tag); }
  void set_user_index(std::uint32_t index) { tag = be(index); }

  // After everything else has been set.
  void set_flags() {
    if (qp != nullptr) number = qp->qp_num;
    messages = !frames && receive.strides == 0;
    special = !messages || shared != nullptr || qp == nullptr;
    send_flags = qp != nullptr ? std::uint64_t{IBV_EXP_WC_QP} : 0;
    receive_flags = send_flags | (srq != nullptr ? std::uint64_t{IBV_EXP_WC_SRQ} : 0) |
                    (dct != nullptr ? std::uint64_t{IBV_EXP_WC_DCT} : 0);
  }
};

// An endpoint that no completion belongs to: its tag is none of a completion.
struct NoEndpoint : Endpoint {
  NoEndpoint() { tag = 1; }
};
[[gnu::visibility("hidden")]] extern NoEndpoint of_no_completion;
inline Endpoint *no_endpoint() { return &of_no_completion; }

}  // namespace ibvexp::engine
