#include "translate/queue/engine/managed.h"

#include <algorithm>
#include <cerrno>

#include "trace/diagnose.h"
#include "translate/queue/engine/endpoint.h"
#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/front.h"

namespace ibvexp::engine {

namespace {

constexpr EntryId posting = EntryId::ibv_exp_post_send;
constexpr std::uint32_t op_wait = 0x0f, op_receive_enable = 0x16, op_send_enable = 0x17;
constexpr std::uint32_t index_mask = 0xffffff;

// Protects all counters below: masters of several threads may name one queue.
Lock &counting() {
  static Lock &lock = *new Lock;
  return lock;
}

// The place that is `count` behind the last one that was kept.
std::uint32_t advance(std::uint32_t &kept, std::uint32_t &longest, std::uint32_t count, bool last) {
  const std::uint32_t place = kept + count;
  longest = std::max(longest, count);
  if (last) {
    kept += longest;
    longest = 0;
  }
  return place;
}

int refused(const char *field, std::uint64_t value, const char *why) {
  return invalid(posting, field, value, why).code;
}

// What the device reads behind the control segment.
struct Named {
  std::uint32_t number = 0, index = 0;
};

int name_completions(const ibv_context *context, const ibv_exp_send_wr &wr, bool last, Named &to) {
  auto *const front = queue::find_front<queue::CqFront>(wr.task.cqe_wait.cq);
  if (front == nullptr || front->shown.context != context)
    return refused("task.cqe_wait.cq", 0, "not a CQ of ibv_create_cq() or ibv_exp_create_cq()");
  if (wr.task.cqe_wait.cq_count < 0)
    return refused("task.cqe_wait.cq_count", 0, "must not be negative");
  to.number = front->legacy.cqn;
  to.index = advance(front->legacy.wait_index, front->legacy.wait_count,
                     static_cast<std::uint32_t>(wr.task.cqe_wait.cq_count), last);
  return 0;
}

// Moves over that many requests of a send queue, from the block at which one begins.
std::uint32_t blocks_behind(const SendQueue &queue, std::uint32_t block, std::uint32_t requests) {
  for (; requests != 0; --requests) {
    const std::uint8_t *const entry = queue.begin + (std::size_t{block & queue.mask} << log_block);
    block += blocks_of(entry[7] & max_segments);
  }
  return block;
}

// Finds the request behind the last that is released, of the `posted` ones of a managed queue.
int name_request(const Managed &managed, std::uint32_t posted, std::int32_t asked,
                 std::uint32_t &count) {
  const std::uint32_t held = posted - managed.kept;
  count = asked == 0 ? held : static_cast<std::uint32_t>(asked);
  if (asked < 0 || count > held)
    return refused("task.wqe_enable.wqe_count", count, "more WQEs than are posted");
  return 0;
}

int name_sends(SendQueue &slave, std::int32_t asked, bool last, Named &to) {
  Managed &managed = slave.managed;
  std::uint32_t count = 0;
  if (const int error = name_request(managed, slave.count, asked, count); error != 0) return error;
  to.index = blocks_behind(slave, managed.block, count);
  const std::uint32_t before = managed.kept;
  advance(managed.kept, managed.longest, count, last);
  if (last) managed.block = blocks_behind(slave, managed.block, managed.kept - before);
  return 0;
}

int name_receives(ReceiveQueue &slave, std::int32_t asked, bool last, Named &to) {
  std::uint32_t count = 0;
  const std::uint32_t posted = slave.counters->head;
  if (const int error = name_request(slave.managed, posted, asked, count); error != 0) return error;
  to.index = advance(slave.managed.kept, slave.managed.longest, count, last);
  return 0;
}

int name_queue(const ibv_context *context, bool sends, const ibv_exp_send_wr &wr, bool last,
               Named &to) {
  auto *const front = queue::find_front<queue::QpFront>(wr.task.wqe_enable.qp);
  if (front == nullptr || front->shown.context != context || front->own.engine == nullptr)
    return refused("task.wqe_enable.qp", 0, "not a queue pair of this context");
  Endpoint &slave = *front->own.engine;
  if (!(sends ? slave.send.managed.is_slave : slave.receive.managed.is_slave))
    return refused("task.wqe_enable.qp", front->shown.qp_num,
                   sends ? "made without IBV_EXP_QP_CREATE_MANAGED_SEND"
                         : "made without IBV_EXP_QP_CREATE_MANAGED_RECV");
  to.number = front->shown.qp_num;
  const std::int32_t asked = wr.task.wqe_enable.wqe_count;
  return sends ? name_sends(slave.send, asked, last, to)
               : name_receives(slave.receive, asked, last, to);
}

}  // namespace

int put_managing(SendQueue &queue, std::uint32_t opcode, const ibv_exp_send_wr &wr) {
  if (!queue.managed.is_master)
    return refused("exp_opcode", opcode, "made without IBV_EXP_QP_CREATE_CROSS_CHANNEL");
  const ibv_context *const context = queue.qp->context;
  const bool waits = opcode == IBV_EXP_WR_CQE_WAIT, sends = opcode == IBV_EXP_WR_SEND_ENABLE;
  const bool last = (wr.exp_send_flags & IBV_EXP_SEND_WAIT_EN_LAST) != 0;
  Named to;
  {
    const Guard guard(counting());
    const int error =
        waits ? name_completions(context, wr, last, to) : name_queue(context, sends, wr, last, to);
    if (error != 0) return error;
  }
  EntryWriter entry(queue);
  std::uint8_t *const segment = entry.segment();
  store(segment, std::uint64_t{0});
  store(segment + 8, be(to.index & index_mask));
  store(segment + 12, be(to.number));
  entry.commit(waits   ? op_wait
               : sends ? op_send_enable
                       : op_receive_enable,
               0, wr.exp_send_flags, 0, wr.wr_id);
  return 0;
}

}  // namespace ibvexp::engine
