// Polling for both kinds of completions.
#include <algorithm>
#include <cerrno>

#include "trace/diagnose.h"
#include "translate/queue/engine/completion_words.h"
#include "translate/queue/engine/take.h"
#include "translate/queue/stamps.h"

namespace ibvexp::engine {

NoEndpoint of_no_completion;

namespace {

constexpr std::uint8_t solicited = 2;  // in the last byte of an entry

// Puts the data of a short message, which came inside the completion, where they
// belong. False where there are too many.
[[gnu::always_inline]] inline bool puts_data(const Endpoint &of, Cqe cqe) {
  const Received place = place_of(of, cqe);
  const std::uint32_t bytes = cqe.byte_count();
  // In the first piece, most often. No bytes are too many for it.
  if (place.places == 0 || bytes - 1 >= (load_be<std::uint32_t>(place.list) & 0x7fffffff))
      [[unlikely]]
    return scatter_inline(place.list, place.places, cqe.inline_data(), bytes);
  std::memcpy(reinterpret_cast<void *>(load_be<std::uint64_t>(place.list + 8)), cqe.inline_data(),
              bytes);
  return true;
}

// What an entry is, apart from whether it was solicited: all that follows is zero in
// the most frequent ones, completions of requests.
constexpr std::uint32_t not_ours = 1;  // the device has not written it
constexpr std::uint32_t format = 0xc;  // 0, or data inside, or compressed
// Neither, nor anything but good requests and messages that invalidate no key.
constexpr std::uint32_t rare = not_ours | format | 0xc0;
constexpr std::uint32_t kind_of(std::uint32_t mark) { return mark >> 4; }
[[gnu::always_inline]] inline std::uint32_t mark_of(const CompletionQueue &queue,
                                                    std::uint32_t index, Cqe cqe) {
  return (cqe.op_own() ^ std::uint32_t{(index & queue.size) != 0}) & ~std::uint32_t{solicited};
}
// The device has written an entry of that mark.
constexpr bool is_ready(std::uint32_t mark) {
  return (mark & not_ours) == 0 && kind_of(mark) != MLX5_CQE_INVALID;
}
constexpr bool is_message(std::uint32_t kind) { return kind - 1 < MLX5_CQE_RESP_SEND_INV; }
static_assert(MLX5_CQE_RESP_ERR == MLX5_CQE_REQ_ERR + 1);
constexpr bool is_error(std::uint32_t kind) { return kind - MLX5_CQE_REQ_ERR < 2; }
constexpr bool is_packed(std::uint32_t mark) { return (mark & format) == format; }
constexpr bool has_data(std::uint32_t mark) {
  return (mark & format) != 0 && (mark & format) != format;
}

// Compressed completions of whole messages, from their title on, without expanding
// them in their places. Returns how many they are, or 0: there is no room for all.
template <class Sink>
[[gnu::noinline]] std::uint32_t take_packed(CompletionQueue &queue, Endpoint &of, Sink sink,
                                            std::uint32_t index, std::uint32_t room) {
  alignas(cqe_bytes) std::uint8_t full[cqe_bytes];
  std::memcpy(full, queue.entry(index), sizeof(full));
  const Cqe cqe(full);
  const std::uint32_t count = cqe.byte_count();
  if (count > room || count > queue.size) return 0;
  const std::uint32_t kind = full[63] >> 4;
  std::uint16_t counter = cqe.counter();
  store(full + 48, std::uint64_t{0});  // one time stamp for all is none
  full[63] &= 0xf0;
  std::uint8_t small[8][8];
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint8_t *const place = queue.entry(index + i);
    // Copied before the first of the places is written.
    if (i % 8 == 0) std::memcpy(small, i == 0 ? queue.entry(index + 1) : place, sizeof(small));
    std::memcpy(full + 44, small[i % 8] + 4, 4);
    store(full + 60, be(counter++));
    sink.template receive<Known::messages>(of, cqe, kind);
    sink.next();
    // As if the device had written it there.
    place[63] = static_cast<std::uint8_t>(full[63] | queue.owner(index + i));
  }
  return count;
}

// What the completion is of, most often what the one before it was of.
[[gnu::always_inline]] inline Endpoint *endpoint_of(const CompletionQueue &queue, Endpoint *before,
                                                    Cqe cqe, std::uint32_t mark) {
  const std::uint32_t tag = cqe.tag();
  if (before->tag == tag) [[likely]]
    return before;
  // An old entry may name, by a number that was given out again, a queue that completes
  // elsewhere. Destroying that queue neither waits for this poll nor cleans this CQ.
  Endpoint *found = nullptr;
  if ((mark & rare) == 0 || is_ready(mark)) [[likely]]
    found = queue.endpoints->find(be(tag));
  return found != nullptr ? found : no_endpoint();
}

// Takes a completion of a usual kind. False: it is none, or there is none.
template <class Sink>
[[gnu::always_inline]] inline bool take_usual(Endpoint &of, Sink &sink, Cqe cqe,
                                              std::uint32_t mark) {
  if (of.tag != cqe.tag()) [[unlikely]]
    return false;
  if (mark == 0) {
    sink.send(of, cqe);
    return true;
  }
  const std::uint32_t kind = kind_of(mark);
  if ((mark & rare) == 0) [[likely]] {
    if (!of.special) sink.template receive<Known::plain>(of, cqe, kind);
    else if (of.messages) sink.template receive<Known::keeping>(of, cqe, kind);
    else if (of.receive.strides == 0) sink.template receive<Known::nothing>(of, cqe, kind);
    else return false;
    return true;
  }
  if ((mark & not_ours) != 0) return false;
  if (is_error(kind)) {
    sink.error(of, cqe, kind);
    return true;
  }
  if (!is_message(kind) || !of.messages || is_packed(mark)) return false;
  if ((mark & format) != 0 && !puts_data(of, cqe)) [[unlikely]]
    return false;
  sink.template receive<Known::messages>(of, cqe, kind);
  return true;
}

// --- the loop, over any number of completions. A sink has the place for the next one: send(),
// receive() and error() write a usual completion there, other() any other.

// Takes completions while there are any, of which done have been taken already. The queue is
// locked, and unlocked at the end.
template <class Sink>
[[gnu::always_inline]] inline int take_and_unlock(CompletionQueue &queue, int count, Sink sink,
                                                  int done = 0) {
  const std::uint32_t first = *queue.consumed;
  std::uint32_t index = first;
  Endpoint *of = queue.last;
  bool refused = false;
  while (done < count) {
    const Cqe cqe(queue.entry(index));
    const std::uint32_t mark = mark_of(queue, index, cqe);
    of = endpoint_of(queue, of, cqe, mark);
    if (take_usual(*of, sink, cqe, mark)) [[likely]] {
      sink.next();
      ++index;
      ++done;
      continue;
    }
    if ((mark & not_ours) != 0) {
      of = queue.last;
      break;
    }
    if (is_packed(mark) && is_message(kind_of(mark)) && of->messages && of->tag == cqe.tag()) {
      const std::uint32_t taken =
          take_packed(queue, *of, sink, index, static_cast<std::uint32_t>(count - done));
      for (std::uint32_t i = 0; i < taken; ++i) sink.next();
      index += taken;
      done += static_cast<int>(taken);
      if (taken != 0) continue;
    }
    const Take got = sink.other(queue, index);
    if (got == Take::again) continue;
    if (got == Take::none) {
      of = queue.last;
      break;
    }
    refused = got == Take::refused;
    if (refused) break;
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
  return refused && done == 0 ? sink.refuse(queue) : done;
}

// --- sinks, by the structures that callers pass

[[gnu::noinline, gnu::cold]] int refuse_strides(const CompletionQueue &queue) {
  errno = unsupported(EntryId::ibv_exp_poll_cq, FeatureId::mprq_poll_mp_wr, "cq: handle",
                      queue.cq != nullptr ? queue.cq->handle : 0)
              .code;
  return -errno;
}

// The usual completions, into structures of that size; 0: ibv_wc.
template <std::uint32_t size>
struct UsualSink {
  std::uint8_t *at;

  [[gnu::always_inline]] void send(Endpoint &of, Cqe cqe) const { write_send<size>(of, cqe, at); }
  template <Known known>
  [[gnu::always_inline]] void receive(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    write_receive<size, known>(of, cqe, kind, at);
  }
  [[gnu::always_inline]] void error(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    write_error<size>(of, cqe, kind, at);
  }
  [[gnu::always_inline]] void next() { at += size != 0 ? size : sizeof(ibv_wc); }
};

struct PlainSink : UsualSink<0> {
  [[gnu::noinline, gnu::cold]] static int refuse(const CompletionQueue &) {
    errno = ENOTSUP;
    return -1;
  }
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
  if (!packet.written) {
    wc.byte_len = 0;
    wc.mp_wr.strides_offset = packet.strides.first;
    wc.mp_wr.byte_len = packet.strides.bytes;
  }
  if (packet.opcode != 0) wc.exp_opcode = static_cast<ibv_exp_wc_opcode>(packet.opcode);
  if (packet.more) wc.exp_wc_flags |= IBV_EXP_WC_MP_WR_MORE_IN_MSG;
  if (packet.ends_entry) wc.exp_wc_flags |= IBV_EXP_WC_MP_WR_CONSUMED;
}

// The structure in the caller's size: there are two usual ones, and any other may be passed.
template <std::uint32_t size>
struct ExpSink : UsualSink<size> {
  static int refuse(const CompletionQueue &queue) { return refuse_strides(queue); }
  [[gnu::noinline, gnu::cold]] Take other(CompletionQueue &queue, std::uint32_t index) const {
    return other_into(queue, index, this->at, size, nullptr);
  }

  static Take other_into(CompletionQueue &queue, std::uint32_t index, void *to,
                         std::uint32_t wc_size, translate::Stamps *stamps) {
    ibv_wc modern;
    Taken taken;
    const Take got = take_other(queue, index, true, modern, taken);
    if (got != Take::one) return got;
    const Endpoint &of = *taken.of;
    ibv_exp_wc legacy =
        translate::to_legacy(modern, {of.qp, taken.receive ? of.srq : nullptr, of.dct},
                             wc_size == translate::wc_size_4_0);
    const Cqe cqe(queue.entry(index));
    if (of.frames && taken.receive && legacy.status == IBV_WC_SUCCESS)
      legacy.exp_wc_flags = (legacy.exp_wc_flags & ~frame_flags_mask) | completion_flags(cqe);
    if (stamps != nullptr) stamps->put(cqe.timestamp(), legacy);
    add(taken.packet, legacy);
    translate::store(legacy, to, wc_size);
    return got;
  }
};

// The same with the device's clock. In completions with an error their reasons lie over the
// end of it; the legacy provider reported the word all the same.
template <std::uint32_t size>
struct StampSink : ExpSink<size> {
  using Base = ExpSink<size>;

  [[gnu::always_inline]] void stamp(Cqe cqe) const {
    const std::uint64_t cycles = cqe.timestamp();
    auto *to = reinterpret_cast<Word *>(this->at);
    to[6] = cycles;
    to[10] |= cycles != 0 ? std::uint64_t{IBV_EXP_WC_WITH_TIMESTAMP} : 0;
  }
  [[gnu::always_inline]] void send(Endpoint &of, Cqe cqe) const {
    Base::send(of, cqe);
    stamp(cqe);
  }
  template <Known known>
  [[gnu::always_inline]] void receive(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    Base::template receive<known>(of, cqe, kind);
    stamp(cqe);
  }
  [[gnu::always_inline]] void error(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    Base::error(of, cqe, kind);
    stamp(cqe);
  }
  [[gnu::noinline, gnu::cold]] Take other(CompletionQueue &queue, std::uint32_t index) const {
    translate::Stamps stamps(nullptr, StampKind::cycles);
    return Base::other_into(queue, index, this->at, size, &stamps);
  }
};

// The time of day, and sizes that no release had.
struct SlowSink {
  std::uint8_t *at;
  std::uint32_t size;
  translate::Stamps *stamps;

  // What is there already, since not all of it is written.
  ibv_exp_wc load() const {
    ibv_exp_wc wc{};
    std::memcpy(static_cast<void *>(&wc), at, std::min<std::size_t>(size, sizeof(wc)));
    return wc;
  }
  void finish(Cqe cqe, ibv_exp_wc &wc) const {
    stamps->put(cqe.timestamp(), wc);
    translate::store(wc, at, size);
  }
  void send(Endpoint &of, Cqe cqe) const {
    ibv_exp_wc wc = load();
    write_send<sizeof(wc)>(of, cqe, &wc);
    finish(cqe, wc);
  }
  template <Known known>
  void receive(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    ibv_exp_wc wc = load();
    write_receive<sizeof(wc), known>(of, cqe, kind, &wc);
    if (size == translate::wc_size_4_0 && (wc.exp_wc_flags & IBV_EXP_WC_WITH_INV) != 0)
      wc.exp_wc_flags |= translate::with_inv_3x;
    finish(cqe, wc);
  }
  void error(Endpoint &of, Cqe cqe, std::uint32_t kind) const {
    ibv_exp_wc wc = load();
    write_error<sizeof(wc)>(of, cqe, kind, &wc);
    finish(cqe, wc);
  }
  void next() { at += size; }
  static int refuse(const CompletionQueue &queue) { return refuse_strides(queue); }
  Take other(CompletionQueue &queue, std::uint32_t index) const {
    return ExpSink<0>::other_into(queue, index, at, size, stamps);
  }
};

// --- the first completion of a call, after which most calls end

template <class Sink>
[[gnu::noinline]] int take_rest(CompletionQueue &queue, int count, Sink sink, int done) {
  return take_and_unlock(queue, count, sink, done);
}

// When another thread has the lock.
template <class Sink>
[[gnu::noinline, gnu::cold]] int take_late(CompletionQueue &queue, int count, Sink sink) {
  queue.libc_lock.pass();
  queue.lock.lock();
  return take_and_unlock(queue, count, sink);
}

// One has been taken. rest: takes more of them.
template <class Sink>
using TakeRest = int (*)(CompletionQueue &, int count, Sink, int done);
template <class Sink>
[[gnu::always_inline]] inline int go_on(CompletionQueue &queue, int count, Sink sink,
                                        std::uint32_t index, TakeRest<Sink> rest) {
  if (count > 1 && is_ready(mark_of(queue, index, Cqe(queue.entry(index))))) {
    set_relaxed(*queue.consumed, index);
    sink.next();
    return rest(queue, count, sink, 1);
  }
  queue.release(index);
  queue.lock.unlock();
  return 1;
}

// These call nothing on their way, so that they need few registers. known: plain, or a frame in a
// queue that is not shared.
template <Known known, class Sink>
[[gnu::noinline]] int take_receive(CompletionQueue &queue, int count, Sink sink, Cqe cqe,
                                   std::uint32_t kind) {
  sink.template receive<known>(*queue.last, cqe, kind);
  return go_on(queue, count, sink, *queue.consumed + 1, take_rest<Sink>);
}

// Messages of the same endpoint under one lock of its shared queue.
template <class Sink>
[[gnu::noinline]] int take_more_shared(CompletionQueue &queue, int count, Sink sink, int done) {
  Endpoint &of = *queue.last;
  SharedQueue &shared = *of.shared;
  if (!shared.lock.try_lock()) [[unlikely]]
    return take_rest(queue, count, sink, done);
  std::uint32_t index = *queue.consumed;
  while (done < count) {
    const Cqe cqe(queue.entry(index));
    const std::uint32_t mark = mark_of(queue, index, cqe);
    const std::uint32_t kind = kind_of(mark);
    if ((mark & rare) != 0 || kind == MLX5_CQE_REQ || cqe.tag() != of.tag) [[unlikely]] {
      if (!is_ready(mark)) break;
      shared.lock.unlock();
      set_relaxed(*queue.consumed, index);
      return take_rest(queue, count, sink, done);
    }
    sink.template receive<Known::shared>(of, cqe, kind);
    sink.next();
    ++index;
    ++done;
  }
  shared.lock.unlock();
  queue.release(index);
  queue.lock.unlock();
  return done;
}
template <class Sink>
[[gnu::noinline]] int take_shared(CompletionQueue &queue, int count, Sink sink, Cqe cqe,
                                  std::uint32_t kind) {
  Endpoint &of = *queue.last;
  if (!of.shared->lock.try_lock()) [[unlikely]]
    return take_rest(queue, count, sink, 0);
  sink.template receive<Known::shared>(of, cqe, kind);
  of.shared->lock.unlock();
  return go_on(queue, count, sink, *queue.consumed + 1, take_more_shared<Sink>);
}

// A message that came with its data.
template <class Sink>
[[gnu::noinline]] int take_data(CompletionQueue &queue, int count, Sink sink, Cqe cqe,
                                std::uint32_t kind) {
  if (!is_message(kind) || !queue.finds(cqe)) [[unlikely]]
    return take_rest(queue, count, sink, 0);
  Endpoint &of = *queue.last;
  if (!of.messages || !puts_data(of, cqe)) [[unlikely]]
    return take_rest(queue, count, sink, 0);
  sink.template receive<Known::messages>(of, cqe, kind);
  return go_on(queue, count, sink, *queue.consumed + 1, take_rest<Sink>);
}

// One that failed.
template <class Sink>
[[gnu::noinline]] int take_error(CompletionQueue &queue, int count, Sink sink, Cqe cqe,
                                 std::uint32_t kind) {
  if (!queue.finds(cqe)) [[unlikely]]
    return take_rest(queue, count, sink, 0);
  sink.error(*queue.last, cqe, kind);
  return go_on(queue, count, sink, *queue.consumed + 1, take_rest<Sink>);
}

// Most polling finds nothing or one completion. That much is done with the registers
// of a function that calls none. The lock is taken for a look, too: another thread may be
// resizing the queue, and what it was is freed then.
template <class Sink>
[[gnu::always_inline]] inline int take_first(CompletionQueue &queue, int count, Sink sink) {
  if (!queue.lock.try_lock()) [[unlikely]]
    return take_late(queue, count, sink);
  const std::uint32_t index = *queue.consumed;
  Cqe cqe(queue.entry(index));
  const std::uint32_t mark = mark_of(queue, index, cqe);
  if ((mark & rare) != 0 || count < 1) {
    if (is_ready(mark) && count > 0) [[unlikely]]
      return has_data(mark)            ? take_data(queue, count, sink, cqe, kind_of(mark))
             : is_error(kind_of(mark)) ? take_error(queue, count, sink, cqe, kind_of(mark))
                                       : take_rest(queue, count, sink, 0);
    return queue.found_nothing();
  }
  if (!queue.finds(cqe)) [[unlikely]]
    return take_rest(queue, count, sink, 0);
  Endpoint &of = *queue.last;
  if (const std::uint32_t kind = kind_of(mark); kind != MLX5_CQE_REQ) {
    if (!of.special) [[likely]]
      return take_receive<Known::plain>(queue, count, sink, cqe, kind);
    if (of.shared != nullptr && of.messages) return take_shared(queue, count, sink, cqe, kind);
    return of.shared == nullptr && of.frames && of.receive.strides == 0
               ? take_receive<Known::frame>(queue, count, sink, cqe, kind)
               : take_rest(queue, count, sink, 0);
  }
  sink.send(of, cqe);
  return go_on(queue, count, sink, index + 1, take_rest<Sink>);
}

[[gnu::noinline]] int take_slowly(CompletionQueue &queue, int count, std::uint8_t *at,
                                  std::uint32_t wc_size) {
  translate::Stamps stamps(queue.cq != nullptr ? queue.cq->context : nullptr, queue.stamps);
  queue.lock.lock();
  if (std::uint8_t op_own; !queue.has(*queue.consumed, op_own)) return queue.found_nothing();
  return take_and_unlock(queue, count, SlowSink{at, wc_size, &stamps});
}

template <std::uint32_t size>
[[gnu::noinline]] int take_stamped(CompletionQueue &queue, int count, std::uint8_t *at) {
  return take_first(queue, count, StampSink<size>{{at}});
}

[[gnu::noinline]] int take_smaller(CompletionQueue &queue, int count, std::uint8_t *at) {
  return take_first(queue, count, ExpSink<translate::wc_size_4_0>{at});
}

// There is no room for a completion, which does not matter where there is none.
[[gnu::noinline, gnu::cold]] int refuse_size(CompletionQueue &queue, int count,
                                             std::uint32_t wc_size) {
  if (count < 1 || queue.is_empty()) return 0;
  errno = invalid(EntryId::ibv_exp_poll_cq, "wc_size", wc_size, "less than struct ibv_wc has").code;
  return -errno;
}

// Another structure than the usual one, or time stamps.
[[gnu::noinline]] int take_otherwise(CompletionQueue &queue, int count, std::uint8_t *at,
                                     std::uint32_t wc_size) {
  if (queue.stamps == StampKind::cycles) [[likely]] {
    if (wc_size == translate::wc_size_4_1)
      return take_stamped<translate::wc_size_4_1>(queue, count, at);
    if (wc_size == translate::wc_size_4_0)
      return take_stamped<translate::wc_size_4_0>(queue, count, at);
  }
  if (queue.stamps == StampKind::none && wc_size == translate::wc_size_4_0)
    return take_smaller(queue, count, at);
  // No release had a smaller one than 88. The head of 48 bytes is ibv_wc.
  if (wc_size < sizeof(ibv_wc)) return refuse_size(queue, count, wc_size);
  return take_slowly(queue, count, at, wc_size);
}

}  // namespace

[[gnu::cold]] int CompletionQueue::pass_libc_lock() {
  lock.unlock();
  libc_lock.pass();
  return 0;
}

int poll(CompletionQueue &queue, int count, ibv_wc *wc) {
  return take_first(queue, count, PlainSink{reinterpret_cast<std::uint8_t *>(wc)});
}

int poll(CompletionQueue &queue, int count, ibv_exp_wc *wc, std::uint32_t wc_size) {
  auto *at = reinterpret_cast<std::uint8_t *>(wc);
  if (wc_size != translate::wc_size_4_1 || queue.stamps != StampKind::none) [[unlikely]]
    return take_otherwise(queue, count, at, wc_size);
  return take_first(queue, count, ExpSink<translate::wc_size_4_1>{at});
}

}  // namespace ibvexp::engine
