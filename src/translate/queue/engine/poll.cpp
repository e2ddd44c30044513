// Polling for both kinds of completions.
#include "translate/queue/engine/completion_words.h"
#include "translate/queue/stamps.h"
#include "translate/queue/engine/take.h"

#include <cerrno>

namespace ibvexp::engine {

namespace {

constexpr std::uint8_t solicited = 2;  // in the last byte of an entry

// Its tag is no completion's.
struct Nobody : Endpoint {
  Nobody() { tag = 1; }
} nobody;

// Puts the data of a short message, which came inside the completion, where they
// belong. False where there are none, or too many, or the completion is no message.
[[gnu::noinline]] bool puts_data(const Endpoint &of, Cqe cqe, std::uint32_t mark,
                                 std::uint32_t tag) {
  const std::uint32_t kind = mark >> 4;
  const std::uint32_t format = mark & 0xc;
  if (format == 0 || format == 0xc || kind - 1 >= MLX5_CQE_RESP_SEND_INV || of.tag != tag ||
      of.receive.strides != 0)
    return false;
  const Received place = place_of(of, cqe);
  return scatter_inline(place.list, place.places, cqe.inline_data(), cqe.byte_count());
}

// Takes completions while there are any, and unlocks the queue. done: how many of
// them have been taken already.
template <class Sink>
[[gnu::always_inline]] inline int take_all(CompletionQueue &queue, int count, Sink sink,
                                           int done = 0) {
  const std::uint32_t first = *queue.consumed;
  const std::uint32_t size = queue.mask + 1;
  std::uint32_t index = first;
  Endpoint *of = queue.last;
  int refused = 0;
  while (done < count) {
    Cqe cqe(queue.entry(index));
    const std::uint32_t owner = (index & size) != 0;
    // What matters is zero in the most frequent ones: completions of requests.
    const std::uint32_t mark = (cqe.op_own() ^ owner) & ~std::uint32_t{solicited};
    const std::uint32_t tag = load<std::uint32_t>(cqe.bytes() + 32) & 0xffffff00;
    if (of->tag != tag) [[unlikely]] {
      // Of an entry that the device has not written, too: it is nobody's then.
      Endpoint *const found = queue.endpoints->find(be(tag));
      of = found != nullptr ? found : no_endpoint();
    }
    if (mark == 0) {
      if (of->tag != tag) [[unlikely]]
        goto other;
      sink.send(*of, cqe);
    } else {
      const std::uint32_t kind = mark >> 4;
      if ((mark & 0xf) != 0 || kind > MLX5_CQE_RESP_SEND_INV || of->tag != tag ||
          (of->special && of->receive.strides != 0)) [[unlikely]] {
        if ((mark & 1) != 0) break;
        if (!puts_data(*of, cqe, mark, tag)) goto other;
      }
      sink.receive(*of, cqe, kind);
    }
    sink.next();
    ++index;
    ++done;
    continue;

  other:
    const Take got = sink.other(queue, index);
    if (got == Take::again) continue;
    if (got == Take::none) break;
    if (got == Take::refused) {
      refused = 1;
      break;
    }
    ++index;
    if (got == Take::one) {
      sink.next();
      ++done;
    }
  }
  if (index != first || done != 0) [[likely]] {
    queue.last = of;
    queue.release(index);
  }
  queue.lock.unlock();
  return refused != 0 && done == 0 ? -ENOTSUP : done;
}

struct PlainSink {
  std::uint8_t *at;

  [[gnu::always_inline]] void send(Endpoint &of, Cqe cqe) const { write_send<0>(of, cqe, at); }
  [[gnu::always_inline]] void receive(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    write_receive<0>(of, cqe, kind, at);
  }
  [[gnu::always_inline]] void receive_plainly(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    write_receive<0, true>(of, cqe, kind, at);
  }
  [[gnu::always_inline]] void next() { at += sizeof(ibv_wc); }
  [[gnu::noinline, gnu::cold]] Take other(CompletionQueue &queue, std::uint32_t index) const {
    Taken taken;
    return take_other(queue, index, false, *reinterpret_cast<ibv_wc *>(at), taken);
  }
};

// (exp <- completion) What ibv_wc has no room for.
void add(const MultiPacket &packet, ibv_exp_wc &wc) {
  if (!packet.is_one) return;
  if (packet.strides.filler) {
    // Strides went, no packet came: nothing else in the entry means anything.
    ibv_exp_wc nothing{};
    nothing.wr_id = wc.wr_id;
    nothing.qp_num = wc.qp_num;
    nothing.exp_opcode = IBV_EXP_WC_RECV_NOP;
    wc = nothing;
  }
  wc.byte_len = 0;
  wc.mp_wr.strides_offset = packet.strides.first;
  wc.mp_wr.byte_len = packet.strides.bytes;
  if (packet.ends_entry) wc.exp_wc_flags |= IBV_EXP_WC_MP_WR_CONSUMED;
}

// The structure as the caller knows it: of which there are two sizes, and
// whatever else somebody may pass.
template <std::uint32_t size>
struct ExpSink {
  std::uint8_t *at;

  [[gnu::always_inline]] void send(Endpoint &of, Cqe cqe) const { write_send<size>(of, cqe, at); }
  [[gnu::always_inline]] void receive(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    write_receive<size>(of, cqe, kind, at);
  }
  [[gnu::always_inline]] void receive_plainly(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    write_receive<size, true>(of, cqe, kind, at);
  }
  [[gnu::always_inline]] void next() { at += size; }
  [[gnu::noinline, gnu::cold]] Take other(CompletionQueue &queue, std::uint32_t index) const {
    return other_into(queue, index, at, size, nullptr);
  }

  static Take other_into(CompletionQueue &queue, std::uint32_t index, void *to,
                         std::uint32_t wc_size, translate::Stamps *stamps) {
    ibv_wc modern;
    Taken taken;
    const Take got = take_other(queue, index, queue.reports_strides, modern, taken);
    if (got != Take::one) return got;
    const Endpoint &of = *taken.of;
    ibv_exp_wc legacy =
        translate::to_legacy(modern, {of.qp, taken.receive ? of.srq : nullptr, of.dct, false},
                             wc_size == translate::wc_size_4_0);
    if (stamps != nullptr) stamps->put(Cqe(queue.entry(index)).timestamp(), legacy);
    add(taken.packet, legacy);
    translate::store(legacy, to, wc_size);
    return got;
  }
};

// Time stamps, and sizes that no release had.
struct SlowSink {
  std::uint8_t *at;
  std::uint32_t size;
  translate::Stamps *stamps;

  void finish(Cqe cqe, ibv_exp_wc &wc) const {
    stamps->put(cqe.timestamp(), wc);
    translate::store(wc, at, size);
  }
  void send(Endpoint &of, Cqe cqe) const {
    ibv_exp_wc wc;
    write_send<sizeof(wc)>(of, cqe, &wc);
    finish(cqe, wc);
  }
  void receive(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    ibv_exp_wc wc;
    write_receive<sizeof(wc)>(of, cqe, kind, &wc);
    if (size == translate::wc_size_4_0 && (wc.exp_wc_flags & IBV_EXP_WC_WITH_INV) != 0)
      wc.exp_wc_flags |= translate::with_inv_3x;
    finish(cqe, wc);
  }
  void next() { at += size; }
  Take other(CompletionQueue &queue, std::uint32_t index) const {
    return ExpSink<0>::other_into(queue, index, at, size, stamps);
  }
};

template <class Sink>
[[gnu::noinline]] int take_rest(CompletionQueue &queue, int count, Sink sink, int done) {
  return take_all(queue, count, sink, done);
}

// With nothing in front of it: the queue is not locked.
template <class Sink>
[[gnu::noinline, gnu::cold]] int take_late(CompletionQueue &queue, int count, Sink sink) {
  queue.lock.lock();
  return take_all(queue, count, sink);
}

// The device has written an entry with that index.
[[gnu::always_inline]] inline bool is_ready(std::uint32_t op_own, std::uint32_t index,
                                            std::uint32_t size) {
  if (op_own >= MLX5_CQE_INVALID << 4) return false;
  const bool owner = (index & size) != 0;
  return owner == ((op_own & 1) != 0);
}

// One has been taken, and there may be more.
template <class Sink>
[[gnu::always_inline]] inline int go_on(CompletionQueue &queue, int count, Sink sink,
                                        std::uint32_t index) {
  if (count > 1 && is_ready(Cqe(queue.entry(index)).op_own(), index, queue.mask + 1)) {
    set_relaxed(*queue.consumed, index);
    sink.next();
    return take_rest(queue, count, sink, 1);
  }
  queue.release(index);
  queue.lock.unlock();
  return 1;
}

// Calls nothing on its way either, so that it needs no more registers.
template <class Sink>
[[gnu::noinline]] int take_receive(CompletionQueue &queue, int count, Sink sink, Cqe cqe) {
  Endpoint &of = *queue.last;
  if (of.special) return take_rest(queue, count, sink, 0);
  sink.receive_plainly(of, cqe, cqe.op_own() >> 4);
  return go_on(queue, count, sink, *queue.consumed + 1);
}

// Most polling finds nothing or one completion. That much is done with the registers
// of a function that calls none. To find nothing takes no lock: who looks while others
// take completions may miss one that they leave, as if it had looked before.
template <class Sink>
[[gnu::always_inline]] inline int take_first(CompletionQueue &queue, int count, Sink sink) {
  const std::uint32_t index = relaxed(*queue.consumed);
  Cqe cqe(queue.entry(index));
  const std::uint32_t op_own = cqe.op_own();
  if (!is_ready(op_own, index, queue.mask + 1) || count < 1) return 0;
  if (!queue.lock.try_lock()) [[unlikely]]
    return take_late(queue, count, sink);
  if (*queue.consumed != index || (op_own & 0xc) != 0 ||
      op_own >= (MLX5_CQE_RESP_SEND_INV + 1) << 4) [[unlikely]]
    return take_rest(queue, count, sink, 0);
  const std::uint32_t tag = load<std::uint32_t>(cqe.bytes() + 32) & 0xffffff00;
  if (queue.last->tag != tag) {
    Endpoint *const found = queue.endpoints->find(be(tag));
    if (found == nullptr) [[unlikely]]
      return take_rest(queue, count, sink, 0);
    queue.last = found;
  }
  Endpoint &of = *queue.last;
  if (op_own >> 4 != MLX5_CQE_REQ) return take_receive(queue, count, sink, cqe);
  sink.send(of, cqe);
  return go_on(queue, count, sink, index + 1);
}

[[gnu::noinline]] int take_slowly(CompletionQueue &queue, int count, std::uint8_t *at,
                                  std::uint32_t wc_size) {
  using Kind = CqRing::Stamps;
  const Kind kind = queue.stamps == Stamps::none     ? Kind::none
                    : queue.stamps == Stamps::cycles ? Kind::cycles
                                                     : Kind::system_time;
  translate::Stamps stamps(queue.cq != nullptr ? queue.cq->context : nullptr, kind);
  queue.lock.lock();
  return take_all(queue, count, SlowSink{at, wc_size, &stamps});
}

[[gnu::noinline]] int take_smaller(CompletionQueue &queue, int count, std::uint8_t *at) {
  return take_first(queue, count, ExpSink<translate::wc_size_4_0>{at});
}

}  // namespace

int poll(CompletionQueue &queue, int count, ibv_wc *wc) {
  return take_first(queue, count, PlainSink{reinterpret_cast<std::uint8_t *>(wc)});
}

int poll(CompletionQueue &queue, int count, ibv_exp_wc *wc, std::uint32_t wc_size) {
  auto *at = reinterpret_cast<std::uint8_t *>(wc);
  if (queue.stamps == Stamps::none) [[likely]] {
    if (wc_size == translate::wc_size_4_1) [[likely]]
      return take_first(queue, count, ExpSink<translate::wc_size_4_1>{at});
    if (wc_size == translate::wc_size_4_0) return take_smaller(queue, count, at);
  }
  // No release had a smaller one than 88. The head of 48 bytes is ibv_wc.
  if (wc_size < sizeof(ibv_wc)) return -EINVAL;
  return take_slowly(queue, count, at, wc_size);
}

Endpoint *no_endpoint() { return &nobody; }

}  // namespace ibvexp::engine
