// Completions as a device may write them, in any order and of any content that hardware
// can produce, to every way of polling.
//
// A device is trusted with what it names: the place of a completion is one of the queue's,
// data inside an entry are no longer than the entry, a compressed session is no longer
// than what was free. All else is the input's.
#include <cerrno>

#include "bytes.h"
#include "engine_queues.h"
#include "translate/queue/engine/post_shared.h"

namespace {

using namespace fuzz;

constexpr std::uint32_t entries = 16;
constexpr std::uint32_t first_index = 0x100;

// A shared receive queue of eight entries, all posted.
struct Shared {
  Memory memory{8 * 64};
  std::uint32_t record = 0;
  ibv_srq srq{};
  SharedQueue queue;
  Endpoint endpoint;  // XRC: completions are of the queue itself

  Shared() {
    for (std::uint32_t i = 0; i < 8; ++i)
      store(memory.bytes + i * 64 + 2, be(static_cast<std::uint16_t>((i + 1) % 8)));
    mlx5dv_srq of{};
    of.buf = memory.bytes;
    of.dbrec = &record;
    of.stride = 64;
    of.head = 0;
    of.tail = 7;
    open(queue, of, 7, 3);
    for (std::uint32_t i = 0; i < 8; ++i) write_end(queue.scatter(i));
    endpoint.srq = &srq;
    endpoint.shared = &queue;
    endpoint.set_user_index(first_index + 4);
    endpoint.set_flags();
  }
};

struct World {
  QueuePair rc{Transport::rc, first_index}, with_srq{Transport::rc, first_index + 1},
      frames{Transport::raw_packet, first_index + 2},
      strided{Transport::raw_packet, first_index + 3};
  Shared shared;
  ibvexp::NumberTable<Endpoint> table;
  Memory cqes, page{4096};
  std::uint32_t records[2] = {};
  ibv_cq cq{};
  CompletionQueue queue;
  std::uint32_t produced = 0;
  std::uint32_t answered = ~0u;  // the latest request that fetches data, by its block
  alignas(16) std::uint8_t room[4096];
  const std::uint32_t entry_bytes;

  World(bool wide, Bytes &in) : cqes(entries * (wide ? 128 : 64)), entry_bytes(wide ? 128 : 64) {
    for (std::uint32_t i = 0; i < entries; ++i) cqe(i)[63] = 0xf0;
    mlx5dv_cq of{};
    of.buf = cqes.bytes;
    of.dbrec = records;
    of.cqe_cnt = entries;
    of.cqe_size = entry_bytes;
    of.cqn = 0x77;
    of.cq_uar = page.bytes;
    open(queue, of);
    queue.endpoints = &table;
    static_cast<void>(in.take<std::uint8_t>());  // means nothing; the seeds have it
    queue.reports_strides = in.take<std::uint8_t>() % 2 != 0;
    with_srq.endpoint.shared = &shared.queue;
    with_srq.endpoint.srq = &shared.srq;
    with_srq.endpoint.set_flags();
    frames.endpoint.frames = strided.endpoint.frames = true;
    strided.endpoint.receive.strides = 64;
    strided.endpoint.receive.log_stride_bytes = 6;
    strided.endpoint.receive.shift = in.take<std::uint8_t>() % 2 * 2;
    frames.endpoint.set_flags();
    strided.endpoint.set_flags();
    for (QueuePair *qp : {&rc, &with_srq, &frames, &strided})
      table.set(qp->endpoint.user_index(), &qp->endpoint);
    table.set(first_index + 4, &shared.endpoint);
    // Every entry has been posted once: what completes has a list.
    for (QueuePair *qp : {&rc, &with_srq, &frames, &strided})
      for (std::uint32_t i = 0; i < receives; ++i) write_end(qp->endpoint.receive.scatter(i));
  }

  std::uint8_t *cqe(std::uint32_t index) {
    return cqes.bytes + (index % entries + 1) * entry_bytes - 64;
  }

  // The next entry, as far as there is room.
  void produce(Bytes &in) {
    const std::uint32_t room = entries - (produced - *queue.consumed);
    if (room == 0) return;
    std::uint8_t *const at = cqe(produced);
    in.take_into(at, 63);
    std::uint8_t op = in.take<std::uint8_t>();
    std::uint32_t format = op >> 2 & 3, count = 1;
    // Opcodes that are none mean an empty entry, and compressed ones need a second place.
    if (op >> 4 == 15) op &= 0x7f;
    if (format == 3 && room < 2) op = static_cast<std::uint8_t>(op & ~0xcu), format = op >> 2 & 3;
    if (format == 3) {
      count = 2 + load_be<std::uint32_t>(at + 44) % (room - 1);
      store(at + 44, be(count));
      for (std::uint32_t i = 1; i < count; i += i == 1 ? 7 : 8) in.take_into(cqe(produced + i), 64);
      for (std::uint32_t i = 1; i < count; ++i) {
        // Sizes of messages: strides that are consumed are in the upper half.
        std::uint8_t *mini = cqe(produced + (i < 8 ? 1 : i / 8 * 8)) + i % 8 * 8;
        mini[4] &= 0x7f;
      }
      // Ownership of what is overwritten later stays the device's.
      for (std::uint32_t i = 1; i < count; ++i)
        cqe(produced + i)[63] =
            static_cast<std::uint8_t>(0xf0 | (((produced + i) / entries & 1) ^ 1));
    } else if (format != 0) {
      const std::uint32_t most = format == 1 ? 32 : entry_bytes == 128 ? 64 : 32;
      if (entry_bytes == 64) op = static_cast<std::uint8_t>((op & ~0xcu) | 4);
      store(at + 44, be(load_be<std::uint32_t>(at + 44) % (most + 1)));
    }
    const std::uint32_t which = in.below(6);  // the last is of no queue
    const bool shared = which == 1 || which == 4;
    const auto receives_only = [](unsigned opcode) {
      return (opcode >= 1 && opcode <= 4) || opcode == 0xe;
    };
    // A shared queue has no requests.
    if (which == 4 && !receives_only(op >> 4)) op = static_cast<std::uint8_t>((op & 0xf) | 0x20);
    if (op >> 4 != 0 && op >> 4 != 0xd && shared)
      store(at + 60, be(static_cast<std::uint16_t>(load_be<std::uint16_t>(at + 60) % 8)));
    if (shared && format == 3)  // places go up from the first
      store(at + 60, std::uint16_t{0}), count > 8 ? store(at + 44, be(count = 8)) : void();
    store(at + 32, be(first_index + which) | (load<std::uint32_t>(at + 32) & 0xff));
    // Data come with the answer to a request that asked for some.
    if (!receives_only(op >> 4) && (op >> 2 & 3) != 3 && (op >> 2 & 3) != 0) {
      if (which == 0 && answered != ~0u) store(at + 60, be(static_cast<std::uint16_t>(answered)));
      else op = static_cast<std::uint8_t>(op & ~0xcu);
    }
    at[63] = static_cast<std::uint8_t>((op & ~1u) | (produced / entries & 1));
    produced += count;
  }

  // Nothing behind the last completion is touched.
  template <class Poll>
  void poll(std::uint32_t wc_size, int count, Poll call) {
    std::memset(room, 0xee, sizeof(room));
    const std::uint32_t before = *queue.consumed;
    const int got = call(count);
    PROMISE(got <= std::max(count, 0) && got >= -ENOTSUP);
    PROMISE(*queue.consumed - before <= produced - before);
    for (std::size_t i = static_cast<std::size_t>(std::max(count, 0)) * wc_size; i < sizeof(room);
         ++i)
      PROMISE(room[i] == 0xee);
  }
};

void post(World &world, Bytes &in) {
  static ibv_sge list[QueuePair::pieces];
  static std::uint8_t target[4096];
  for (ibv_sge &piece : list)
    piece = {reinterpret_cast<std::uintptr_t>(target) + in.below(1024), in.below(128), 7};
  QueuePair *qps[] = {&world.rc, &world.frames, &world.strided};
  QueuePair &qp = *qps[in.below(3)];
  ibv_recv_wr receive{};
  receive.sg_list = list;
  receive.num_sge = static_cast<int>(in.below(QueuePair::pieces + 1));
  ibv_send_wr send{};
  send.sg_list = list;
  send.num_sge = static_cast<int>(in.below(QueuePair::pieces + 1));
  send.opcode = in.below(2) != 0 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (in.below(2) != 0) post_receive(qp.endpoint.receive, &receive, nullptr);
  else post_receive(world.shared.queue, &receive, nullptr);
  SendQueue &queue = world.rc.endpoint.send;
  const std::uint32_t at = *queue.posted;
  if (queue.post(queue, &send, nullptr) == 0) world.answered = at;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes in(data, size);
  World world(in.take<std::uint8_t>() % 2 != 0, in);
  // Every block says what was posted there.
  while (!in.empty()) {
    switch (in.take<std::uint8_t>() % 6) {
      case 0: post(world, in); break;
      case 1: {
        const int count = static_cast<int>(in.below(10)) - 1;
        world.poll(sizeof(ibv_wc), count, [&](int n) {
          return poll(world.queue, n, reinterpret_cast<ibv_wc *>(world.room));
        });
        break;
      }
      case 2: {
        const std::uint32_t sizes[] = {88, 104, 96, 48};
        const std::uint32_t wc_size = sizes[in.below(4)];
        world.poll(wc_size, static_cast<int>(in.below(10)) - 1, [&](int n) {
          return poll(world.queue, n, reinterpret_cast<ibv_exp_wc *>(world.room), wc_size);
        });
        break;
      }
      case 3: {
        Endpoint *const all[] = {&world.rc.endpoint, &world.with_srq.endpoint,
                                 &world.frames.endpoint, &world.strided.endpoint};
        clean(world.queue, *all[in.below(4)]);
        break;
      }
      default: world.produce(in); break;
    }
    if (in.take<std::uint8_t>() % 16 == 0) arm(world.queue, 0, *world.queue.consumed, false);
  }
  return 0;
}
