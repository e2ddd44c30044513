#include "translate/queue/engine/take.h"

#include "base/log.h"
#include "table/feature_rows.h"
#include "trace/diagnose.h"
#include "translate/queue/engine/completion_words.h"

namespace ibvexp::engine {

namespace {

// One line for a queue: each of its completions may be of such a one.
void report_foreign(CompletionQueue &queue, Cqe cqe) {
  if (queue.dropped_one) return;
  queue.dropped_one = true;
  log(LogLevel::error,
      "CQ %#x: a completion of a queue (user index %u) that was not created through this library "
      "is dropped, and so is each further one",
      queue.number(), cqe.user_index());
}

void fill_strides(Endpoint &of, Cqe cqe, ibv_wc &wc, MultiPacket &packet) {
  ReceiveQueue &queue = of.receive;
  const Strides s = strides_of(cqe, queue.shift);
  packet = {true, s.end(queue.strides), s};
  const std::uint32_t tail = queue.counters->tail;
  // Not before the last packet of an entry does it leave the queue.
  if (!packet.ends_entry) set_relaxed(queue.counters->tail, tail - 1);
  write_receive<0>(of, cqe, opcode_of(cqe.op_own()), &wc);
  wc.wr_id = queue.ids[tail & queue.mask];
  wc.qp_num = of.number;
  set_relaxed(queue.counters->tail, packet.ends_entry ? tail + 1 : tail);
}

// Completions of several queue pairs may come in another order than their strides lie: an entry is
// done when all of it is.
void fill_shared_strides(Endpoint &of, Cqe cqe, ibv_wc &wc, MultiPacket &packet) {
  constexpr std::uint8_t unexpected = 3, untagged = 4;  // of tag matching
  SharedQueue &queue = *of.shared;
  const std::uint32_t entry = cqe.counter(), count = of.receive.strides;
  packet.is_one = true;
  packet.written = opcode_of(cqe.op_own()) == MLX5_CQE_RESP_WR_IMM;
  packet.strides = message_strides_of(cqe, of.receive.log_stride_bytes, packet.written);
  packet.more = !packet.written && !packet.strides.filler && !is_last_packet(cqe);
  const std::uint8_t outcome = packet.strides.filler ? std::uint8_t{0} : cqe.outcome();
  if (outcome == unexpected) packet.opcode = IBV_EXP_WC_TM_RECV;
  if (outcome == untagged) packet.opcode = IBV_EXP_WC_TM_NO_TAG;
  const std::uint32_t used =
      packet.strides.filler ? count - packet.strides.first : std::uint32_t{packet.strides.consumed};
  std::uint32_t &done = queue.strides_used[entry];
  done += used;
  packet.ends_entry = done >= count;
  write_receive<0, Known::kept>(of, cqe, opcode_of(cqe.op_own()), &wc);
  if (!packet.ends_entry) return;
  done = 0;
  queue.free_entry(entry);
}

}  // namespace

Take take_other(CompletionQueue &queue, std::uint32_t index, bool multi_packet, ibv_wc &wc,
                Taken &taken) {
  std::uint8_t op_own = 0;
  if (!queue.has(index, op_own)) return Take::none;
  if (is_compressed(op_own)) {
    queue.unpack(index);
    return Take::again;
  }
  Cqe cqe(queue.entry(index));
  const std::uint8_t opcode = opcode_of(op_own);
  const bool error = opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR;
  const bool receive = is_of_receive(opcode);
  // CQEs of a resize or of a signature are not reported.
  if (!error && !receive && opcode != MLX5_CQE_REQ) return Take::silent;
  if (!queue.finds(cqe)) {
    report_foreign(queue, cqe);
    return Take::silent;
  }
  Endpoint *const of = queue.last;
  taken.of = of;
  taken.receive = receive;
  taken.packet = {};
  wc = {};
  if (error) {
    write_error<0>(*of, cqe, opcode, &wc);
    return Take::one;
  }
  if (!receive) {
    const bool fits = !cqe.has_inline() || scatter_answer(of->send, cqe);
    write_send<0>(*of, cqe, &wc);
    if (!fits) wc.status = IBV_WC_LOC_LEN_ERR;
    return Take::one;
  }
  if (of->receive.strides != 0) {
    if (multi_packet && of->shared != nullptr) {
      fill_shared_strides(*of, cqe, wc, taken.packet);
      return Take::one;
    }
    if (!multi_packet || !queue.reports_strides) return Take::refused;
    opened_by(Beyond::mp_rq_poll, name_of_feature<FeatureId::mprq_poll_mp_wr>);
    fill_strides(*of, cqe, wc, taken.packet);
    return Take::one;
  }
  bool fits = true;
  if (cqe.has_inline()) {
    const Received place = place_of(*of, cqe);
    fits = scatter_inline(place.list, place.places, cqe.inline_data(), cqe.byte_count());
  }
  write_receive<0>(*of, cqe, opcode, &wc);
  if (!fits) wc.status = IBV_WC_LOC_LEN_ERR;
  return Take::one;
}

void CompletionQueue::unpack(std::uint32_t index) {
  const Endpoint *of = endpoints->find(Cqe(entry(index)).user_index());
  decompress([this, index](std::uint32_t k) { return entry(index + k); },
             [this, index](std::uint32_t k) { return owner(index + k); }, size,
             of != nullptr && of->receive.strides != 0);
}

}  // namespace ibvexp::engine
