// Queues of the engine over plain memory, and what a device reads and writes there.
#pragma once

#include <catch.h>

#include <numeric>
#include <vector>

#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/engine/open.h"

namespace engine_rig {

using namespace ibvexp::engine;

using Bytes = std::vector<std::uint8_t>;

inline Bytes operator+(Bytes a, const Bytes &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline Bytes big(std::uint64_t value, int bytes) {
  Bytes out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  return out;
}
inline Bytes zeros(std::size_t n) { return Bytes(n); }
inline Bytes counted(std::size_t n, std::uint8_t first = 1) {
  Bytes out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

inline constexpr std::uint32_t number = 0x123456;

// What the device reads (PRM, mlx5dv.h).
inline Bytes control(std::uint32_t index, std::uint8_t opcode, std::uint32_t segments,
                     std::uint8_t flags, std::uint32_t imm = 0, std::uint8_t modifier = 0) {
  return Bytes{modifier} + big(index, 2) + Bytes{opcode} + big(number, 3) +
         Bytes{static_cast<std::uint8_t>(segments)} + Bytes{0, 0, 0, flags} + big(imm, 4);
}
inline Bytes remote(std::uint64_t address, std::uint32_t rkey) {
  return big(address, 8) + big(rkey, 4) + zeros(4);
}
inline Bytes pointer(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
  return big(length, 4) + big(lkey, 4) + big(address, 8);
}
inline Bytes end_of_list() { return zeros(4) + big(0x100, 4) + zeros(8); }

// A send queue of eight blocks, four requests of two blocks each.
struct SendRig {
  static constexpr std::uint32_t blocks = 8;
  alignas(64) std::uint8_t memory[blocks * 64];
  std::uint32_t records[2] = {};
  alignas(64) std::uint8_t page[1024] = {};
  ibv_qp qp{};
  SendQueue queue;

  explicit SendRig(Transport transport, QpFacts facts = {}) {
    std::memset(memory, 0xee, sizeof(memory));
    mlx5dv_qp of{};
    of.dbrec = records;
    of.sq = {memory, blocks, 64};
    of.bf = {page, 512};
    facts.transport = transport;
    facts.number = number;
    facts.granted = {4, 4, 4, 4, 100};
    open(queue, of, facts);
    queue.max_blocks = 2;
    queue.qp = &qp;
    queue.select(true);
  }

  Bytes at(std::uint32_t block, std::size_t count) const {
    Bytes out;
    for (std::size_t i = 0; i < count; ++i)
      out.push_back(memory[(block * 64 + i) % sizeof(memory)]);
    return out;
  }
  std::uint32_t record() const { return be(records[1]); }
  Bytes rung() const { return Bytes(page, page + 8); }

  // From block n on, as if so many had been posted and were done.
  void advance(std::uint32_t n) { *queue.posted = n; }
  // All that has been posted is done.
  void finish() { queue.done = queue.count; }

  int post(ibv_send_wr *wr, ibv_send_wr **bad = nullptr) { return queue.post(queue, wr, bad); }
  int post(ibv_exp_send_wr *wr, ibv_exp_send_wr **bad = nullptr) {
    return queue.post_exp(queue, wr, bad);
  }
};

// The same request in both layouts; the legacy one with rubbish where nothing is
// said, as programs leave it.
inline ibv_exp_send_wr to_exp(const ibv_send_wr &wr) {
  ibv_exp_send_wr exp;
  std::memset(static_cast<void *>(&exp), 0xa5, sizeof(exp));
  std::memcpy(static_cast<void *>(&exp), &wr, offsetof(ibv_exp_send_wr, task));
  exp.exp_opcode = static_cast<ibv_exp_wr_opcode>(wr.opcode);
  exp.exp_send_flags = wr.send_flags & 0xf;
  if ((wr.send_flags & IBV_SEND_IP_CSUM) != 0) exp.exp_send_flags |= IBV_EXP_SEND_IP_CSUM;
  exp.next = nullptr;
  return exp;
}

struct Request : ibv_send_wr {
  std::vector<ibv_sge> pieces;

  Request(ibv_wr_opcode what, unsigned flags, std::vector<ibv_sge> list = {}) : ibv_send_wr{} {
    wr_id = 0x1122334455667788;
    opcode = what;
    send_flags = flags;
    pieces = std::move(list);
    sg_list = pieces.data();
    num_sge = static_cast<int>(pieces.size());
  }
  Request &rdma(std::uint64_t address, std::uint32_t rkey) {
    wr.rdma.remote_addr = address;
    wr.rdma.rkey = rkey;
    return *this;
  }
};

inline ibv_sge piece_of(const Bytes &data, std::uint32_t lkey = 7) {
  return {reinterpret_cast<std::uintptr_t>(data.data()), static_cast<std::uint32_t>(data.size()),
          lkey};
}

}  // namespace engine_rig
