// Queues of the engine over plain memory, each with guards around it that ASan knows.
#pragma once

#include <memory>
#include <vector>

#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/engine/open.h"

namespace fuzz {

using namespace ibvexp::engine;

// Aligned heap memory, so that an access behind it is seen.
struct Memory {
  std::uint8_t *bytes;
  explicit Memory(std::size_t size)
      : bytes(static_cast<std::uint8_t *>(std::aligned_alloc(128, (size + 127) / 128 * 128))) {
    std::memset(bytes, 0, (size + 127) / 128 * 128);
  }
  ~Memory() { std::free(bytes); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
};

inline constexpr std::uint32_t send_blocks = 16, receives = 8;

// Sixteen blocks for requests of at most max_blocks, a receive queue of eight entries of
// four pieces.
struct QueuePair {
  static constexpr std::uint32_t pieces = 4, inline_bytes = 100;
  Memory sends{send_blocks * block_bytes}, receive_entries{receives * 64}, page{4096};
  std::uint32_t records[2] = {};
  ibv_qp qp{};
  Endpoint endpoint;

  QueuePair(Transport transport, std::uint32_t user_index) {
    mlx5dv_qp of{};
    of.dbrec = records;
    of.sq = {sends.bytes, send_blocks, block_bytes};
    of.rq = {receive_entries.bytes, receives, 64};
    of.bf = {page.bytes, 512};
    QpFacts facts;
    facts.transport = transport;
    facts.number = 0x123456;
    facts.granted = {4, receives, pieces, pieces, inline_bytes};
    facts.checksums = true;
    facts.atomics = true;
    open(endpoint.send, of, facts);
    open(endpoint.receive, of, facts);
    qp.state = IBV_QPS_RTS;
    endpoint.send.max_blocks = 4;
    endpoint.send.max_umr_pieces = 4;
    endpoint.send.max_tso_header = 60;
    endpoint.send.qp = &qp;
    endpoint.send.select(true);
    endpoint.qp = &qp;
    endpoint.set_user_index(user_index);
    endpoint.set_flags();
  }
};

}  // namespace fuzz
