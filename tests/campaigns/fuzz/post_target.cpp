// Chains of requests in both layouts to send queues of every transport, with completions
// that make room in between; receive requests to both kinds of queues.
//
// What was written is read back as a device would: every request that was accepted is an
// entry of the right place and size, and nothing else has moved.
#include <cerrno>

#include "bytes.h"
#include "engine_queues.h"

namespace {

using namespace fuzz;

constexpr std::size_t longest = 12;
std::uint8_t data[1 << 12];

struct Handle {  // an address handle as libmlx5 lays it out
  ibv_ah ah;
  std::uint8_t vector[sizeof(mlx5_wqe_av)];
};
Handle handle;

struct Chain {
  std::vector<ibv_exp_send_wr> exp{longest};
  std::vector<ibv_send_wr> base{longest};
  std::vector<ibv_recv_wr> receives{longest};
  std::vector<std::vector<ibv_sge>> lists{longest};
  std::size_t size = 0;
};

// A list of as many pieces as it says, in memory of its own; lengths are small, or wild
// where data are not looked at.
ibv_sge *list_of(Bytes &in, std::vector<ibv_sge> &list, int &count, bool looked_at) {
  static constexpr int counts[] = {0, 1, 1, 1, 2, 3, 4, 5, -1, 1 << 30};
  count = counts[in.below(10)];
  const bool absent = in.below(16) == 0;
  list.assign(count > 0 && count < 8 ? static_cast<std::size_t>(count) : 8, ibv_sge{});
  for (ibv_sge &piece : list) {
    piece.addr = reinterpret_cast<std::uintptr_t>(data) + in.below(1024);
    piece.length = in.below(200);
    if (!looked_at && in.below(8) == 0) piece.length = in.take<std::uint32_t>();
    piece.lkey = in.take<std::uint32_t>();
  }
  return absent ? nullptr : list.data();
}

void fill(Bytes &in, Chain &chain, bool datagrams) {
  chain.size = 1 + in.below(longest);
  for (std::size_t i = 0; i < chain.size; ++i) {
    ibv_exp_send_wr &wr = chain.exp[i];
    in.take_into(&wr, sizeof(wr));
    static constexpr int opcodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(in.below(16) == 0 ? in.take<std::int32_t>()
                                                                     : opcodes[in.below(15)]);
    wr.exp_send_flags = in.below(8) == 0 ? in.take<std::uint64_t>() : in.below(32);
    wr.wr_id = in.take<std::uint64_t>();
    // Inline data and headers of frames are read; so are those of segmentation.
    wr.sg_list =
        list_of(in, chain.lists[i], wr.num_sge, (wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0);
    if (datagrams) {
      wr.wr.ud.ah = in.below(8) != 0 ? &handle.ah : nullptr;
      wr.dc.ah = in.below(8) != 0 ? &handle.ah : nullptr;
    }
    // What a program points to is there, or null: keys, windows, headers.
    if (wr.exp_opcode == IBV_EXP_WR_TSO || static_cast<int>(wr.exp_opcode) > 7) {
      wr.tso.hdr = data;
      wr.tso.hdr_sz = static_cast<std::uint16_t>(in.below(80));
      std::memset(&wr.ext_op, 0, sizeof(wr.ext_op));
      std::memset(&wr.bind_mw, 0, sizeof(wr.bind_mw));
      wr.exp_send_flags |= in.below(4) == 0 ? std::uint64_t{IBV_EXP_SEND_INLINE} : 0;
      if (wr.exp_opcode == IBV_EXP_WR_TSO) {
        wr.tso.hdr = data;
        wr.tso.hdr_sz = static_cast<std::uint16_t>(in.below(80));
        wr.tso.mss = in.take<std::uint16_t>();
      }
    }
    wr.next = i + 1 < chain.size ? &chain.exp[i + 1] : nullptr;

    ibv_send_wr &base = chain.base[i];
    std::memset(static_cast<void *>(&base), 0, sizeof(base));
    std::memcpy(static_cast<void *>(&base), &wr, offsetof(ibv_exp_send_wr, task));
    base.opcode = static_cast<ibv_wr_opcode>(wr.exp_opcode);
    base.send_flags = static_cast<unsigned>(wr.exp_send_flags);
    if (base.opcode == IBV_WR_TSO) {
      base.tso.hdr = data;
      base.tso.hdr_sz = static_cast<std::uint16_t>(in.below(80));
      base.tso.mss = 100;
    }
    base.next = i + 1 < chain.size ? &chain.base[i + 1] : nullptr;
  }
}

// The entries between two positions, as the device walks them.
void walk(const SendQueue &queue, std::uint32_t from, std::uint32_t to, std::uint32_t requests) {
  std::uint32_t found = 0;
  while (from != to) {
    const std::uint8_t *at = queue.begin + (std::size_t{from & queue.mask} << log_block);
    const std::uint32_t segments = load_be<std::uint32_t>(at + 4) & max_segments;
    PROMISE(segments != 0);
    PROMISE(load_be<std::uint32_t>(at + 4) >> 8 == 0x123456);
    PROMISE((load_be<std::uint32_t>(at) >> 8 & 0xffff) == (from & 0xffff));
    PROMISE(blocks_of(segments) <= queue.max_blocks);
    PROMISE(to - from >= blocks_of(segments));
    from += blocks_of(segments);
    ++found;
  }
  PROMISE(found == requests);
}

template <class Wr>
void post(QueuePair &qp, std::vector<Wr> &chain, int (*call)(SendQueue &, Wr *, Wr **)) {
  SendQueue &queue = qp.endpoint.send;
  const std::uint32_t before = *queue.posted, count = queue.count;
  Wr *bad = nullptr;
  const int error = call(queue, chain.data(), &bad);
  PROMISE(error >= 0 && error < 200);
  PROMISE((error != 0) == (bad != nullptr));
  const std::uint32_t done = queue.count - count;
  if (bad != nullptr) PROMISE(bad == &chain[done]);
  PROMISE(queue.count - queue.done <= queue.max_posted);
  PROMISE(*queue.posted - before <= send_blocks);
  walk(queue, before, *queue.posted, done);
  PROMISE(be(qp.records[1]) == (*queue.posted & 0xffff) || done == 0);
}

void receive(Bytes &in, QueuePair &qp, Chain &chain) {
  chain.size = 1 + in.below(longest);
  for (std::size_t i = 0; i < chain.size; ++i) {
    ibv_recv_wr &wr = chain.receives[i];
    wr.wr_id = i;
    wr.sg_list = list_of(in, chain.lists[i], wr.num_sge, false);
    wr.next = i + 1 < chain.size ? &chain.receives[i + 1] : nullptr;
  }
  ReceiveQueue &queue = qp.endpoint.receive;
  const std::uint32_t head = queue.counters->head;
  ibv_recv_wr *bad = nullptr;
  const int error = post_receive(queue, chain.receives.data(), &bad);
  const std::uint32_t done = queue.counters->head - head;
  PROMISE((error != 0) == (bad != nullptr));
  if (bad != nullptr) PROMISE(bad == &chain.receives[done]);
  PROMISE(queue.counters->head - queue.counters->tail <= receives);
  for (std::uint32_t i = 0; i < done; ++i) PROMISE(queue.ids[(head + i) & queue.mask] == i);
  PROMISE(be(qp.records[0]) == (queue.counters->head & 0xffff) || done == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *input, std::size_t size) {
  Bytes in(input, size);
  const auto transport = static_cast<Transport>(in.below(6));
  QueuePair qp(transport, 7);
  qp.endpoint.send.windows = in.below(2) != 0;
  Chain chain;
  while (!in.empty()) {
    const bool datagrams = transport == Transport::ud || transport == Transport::dc;
    switch (in.below(8)) {
      case 0: receive(in, qp, chain); break;
      case 1: {  // some of them have completed
        SendQueue &queue = qp.endpoint.send;
        queue.done += in.below(queue.count - queue.done + 1);
        ReceiveQueue &receives_of = qp.endpoint.receive;
        receives_of.counters->tail +=
            in.below(receives_of.counters->head - receives_of.counters->tail + 1);
        break;
      }
      default:
        fill(in, chain, datagrams);
        if (in.below(2) != 0) post(qp, chain.exp, qp.endpoint.send.post_exp);
        else post(qp, chain.base, qp.endpoint.send.post);
        break;
    }
  }
  return 0;
}
