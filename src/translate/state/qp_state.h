// What verbs keep about a queue pair, and what rdma-core's data path has to know.
#pragma once

#include <infiniband/verbs_exp.h>

#include <atomic>
#include <cstdint>

#include "base/state_pool.h"
#include "translate/state/builders.h"

namespace ibvexp {

struct QpNotes {
  ibv_qp_cap granted{};          // to a legacy program; zeros: rdma-core knows all of it
  bool no_windows = false;       // MLX5_SHUT_UP_MW
  std::uint8_t port = 0;         // of a DC initiator; 0: not seen
  std::uint16_t udp_source = 0;  // of RoCE v2, for when it is in RTS; 0: as the kernel has it
};

// State of a queue pair of which the engine drives at most one side.
struct QpState : QpNotes {
  std::atomic<ibv_qp *> qp{nullptr};
  std::atomic<ibv_qp *> shown{nullptr};  // what the program holds
  ibv_srq *srq = nullptr;                // as the program holds it
  ibv_exp_dct *dct = nullptr;            // a target: qp is null
  std::uint32_t max_inline_data = 0;     // granted
  bool atomics = false;                  // the device has them
  bool raw = false;                      // receives frames
  bool checksums = false;                // of raw packets: the device fills them in
  std::uint16_t max_tso_header = 0;
  ibv_cq *recv_cq = nullptr;
  native::Builders builders;  // closed for most

  void retire() noexcept {
    qp.store(nullptr, std::memory_order_relaxed);
    shown.store(nullptr, std::memory_order_relaxed);
    dct = nullptr;
    udp_source = 0;
    builders.ex = nullptr;
  }
};

using QpPool = StatePool<QpState>;

}  // namespace ibvexp
