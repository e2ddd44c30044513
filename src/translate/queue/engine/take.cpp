#include "translate/queue/engine/take.h"

#include "base/log.h"
#include "table/feature_rows.h"
#include "trace/diagnose.h"
#include "translate/queue/engine/completion_words.h"

namespace ibvexp::engine {

namespace {

// By whom, if it is known at all.
void complain_of_stranger(const CompletionQueue &queue, Cqe cqe) {
  log(LogLevel::error,
      "CQ %#x: a completion of a queue (user index %u) that was not created through this library "
      "is dropped",
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
  // Of a resize, or of a signature: not reported.
  if (!error && !receive && opcode != MLX5_CQE_REQ) return Take::silent;
  if (!queue.finds(cqe)) {
    complain_of_stranger(queue, cqe);
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
    if (!multi_packet) return Take::refused;
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
