// The CQ family.
#include <cerrno>

#include "translate/convert/clock_convert.h"
#include "translate/queue/engine/complete.h"
#include "translate/queue/faces.h"
#include "translate/queue/front.h"
#include "translate/state/clock_info.h"

namespace ibvexp::queue {

namespace {

using engine::CompletionQueue;
using engine::Cqe;
using engine::Endpoint;
using engine::ReceiveQueue;

// What else a caller of poll_length wants to know.
struct Wanted {
  bool multi_packet = false;
  bool flags = false;
  bool vlan = false;
  bool timestamp = false;
};

struct Outputs {
  void *buffer = nullptr;
  std::uint32_t *copied = nullptr;
  std::uint32_t *offset = nullptr;
  std::uint32_t *flags = nullptr;
  std::uint16_t *tci = nullptr;
  std::uint64_t *timestamp = nullptr;
};

// The time of day; 0 where the clock cannot be read.
[[gnu::cold, gnu::noinline]] std::uint64_t time_of_day(ibv_context *context, std::uint64_t cycles) {
  const auto clock = translate::read_clock_info(context);
  return clock ? translate::cycles_to_ns(clock.value(), cycles) : 0;
}

// Known to be there.
CompletionQueue &known_queue(const ibv_cq *cq) {
  return *reinterpret_cast<const CqFront *>(cq)->own.engine;
}

// The next completion, made readable; false if there is none.
inline bool next(CompletionQueue &queue, std::uint32_t index, std::uint8_t &op_own) {
  while (queue.has(index, op_own)) {
    if (!engine::is_compressed(op_own)) [[likely]]
      return true;
    queue.unpack(index);
  }
  return false;
}

// The data of a message that came inside the completion: to the caller, or where the
// request wanted them.
[[gnu::cold, gnu::noinline]] void keep_inline(const Endpoint &of, Cqe cqe, void *buffer,
                                              std::uint32_t *copied) {
  const std::uint32_t bytes = cqe.byte_count();
  if (buffer != nullptr) {
    std::memcpy(buffer, cqe.inline_data(), bytes);
    if (copied != nullptr) *copied = 1;
  } else {
    const engine::Received place = engine::place_of(of, cqe);
    engine::scatter_inline(place.list, place.places, cqe.inline_data(), bytes);
  }
}

// Accounts for a good completion; false if it is not to be taken this way.
inline bool account(CompletionQueue &queue, Cqe cqe, std::uint8_t op_own) {
  const std::uint8_t opcode = engine::opcode_of(op_own);
  if (opcode > MLX5_CQE_RESP_SEND_INV) [[unlikely]]
    return false;
  if (!queue.finds(cqe)) [[unlikely]]
    return false;
  Endpoint *const of = queue.last;
  if (opcode == MLX5_CQE_REQ) {
    // Data of an answer in the completion: ibv_poll_cq() puts it in its place.
    if (Cqe::is_inline(op_own)) [[unlikely]]
      return false;
    engine::complete_send(of->send, cqe);
  } else {
    if (Cqe::is_inline(op_own)) [[unlikely]]
      keep_inline(*of, cqe, nullptr, nullptr);
    if (of->receive.strides == 0 || engine::strides_of(cqe).end(of->receive.strides))
      engine::complete_receive(*of, cqe);
  }
  return true;
}

std::int32_t poll_cnt(ibv_cq *cq, std::uint32_t max) {
  CompletionQueue &queue = known_queue(cq);
  queue.lock.lock();
  const std::uint32_t first = *queue.consumed;
  std::uint32_t index = first;
  std::uint8_t op_own = 0;
  while (index - first < max && next(queue, index, op_own)) {
    if (!account(queue, Cqe(queue.entry(index)), op_own)) [[unlikely]] {
      // It stays for ibv_poll_cq().
      if (index == first) return queue.lock.unlock(), -1;
      break;
    }
    ++index;
  }
  if (index == first) return queue.found_nothing();
  queue.release(index);
  queue.lock.unlock();
  return static_cast<std::int32_t>(index - first);
}

enum class Got { one, nothing, unusual };

// The length of a message, 0 without one, -1 for what is not to be taken this way. The
// queue is locked. Unusual are compressed completions, data in them, tunnels and shared
// queues: more is called for them than a function of few registers can. usual: nothing
// has been done for these.
template <Wanted wanted, bool usual>
[[gnu::always_inline]] inline Got take(CompletionQueue &queue, const Outputs &out,
                                       std::int32_t &length) {
  length = 0;
  const std::uint32_t index = *queue.consumed;
  std::uint8_t op_own = 0;
  if constexpr (usual) {
    if (!queue.has(index, op_own)) return Got::nothing;
    if (engine::has_format(op_own)) [[unlikely]]
      return Got::unusual;
  } else {
    if (!next(queue, index, op_own)) return Got::nothing;
  }
  if (!engine::is_receive(engine::opcode_of(op_own))) [[unlikely]]
    return length = -1, Got::one;
  const Cqe cqe(queue.entry(index));
  if (!queue.finds(cqe)) [[unlikely]]
    return length = -1, Got::one;
  Endpoint *const of = queue.last;
  ReceiveQueue &receive = of->receive;
  // The two kinds of receive queues have functions of their own.
  if ((receive.strides != 0) != wanted.multi_packet) [[unlikely]]
    return length = -1, Got::one;
  const bool by_clock = wanted.timestamp && queue.stamps == StampKind::system_time;
  if (usual && (of->shared != nullptr || by_clock || (wanted.flags && cqe.tunnel() != 0)))
      [[unlikely]]
    return Got::unusual;
  const auto flags = [&] {
    return usual ? engine::plain_receive_flags(cqe) : engine::receive_flags(cqe);
  };

  bool ends = true;
  if constexpr (wanted.multi_packet) {
    const engine::Strides s = engine::strides_of(cqe, receive.shift);
    ends = s.end(receive.strides);
    length = s.bytes;
    *out.offset =
        (std::uint32_t{s.first} << receive.log_stride_bytes) + (s.filler ? 0 : receive.shift);
    if constexpr (wanted.flags) {
      if (!s.filler) *out.flags = flags();
      if (ends) *out.flags |= IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1;
    }
  } else {
    length = static_cast<std::int32_t>(cqe.byte_count());
    if (out.copied != nullptr) *out.copied = 0;
    if (!usual && Cqe::is_inline(op_own)) keep_inline(*of, cqe, out.buffer, out.copied);
    if constexpr (wanted.flags) *out.flags = flags();
  }
  if constexpr (wanted.vlan) *out.tci = cqe.vlan();
  if constexpr (wanted.timestamp) {
    *out.timestamp = cqe.timestamp();
    if (!usual && by_clock && *out.timestamp != 0)
      *out.timestamp = time_of_day(queue.cq->context, *out.timestamp);
    if (*out.timestamp != 0) *out.flags |= IBV_EXP_CQ_RX_WITH_TIMESTAMP;
  }
  if constexpr (usual) {
    if (ends) engine::complete_own_receive(receive);
  } else {
    if (ends) engine::complete_receive(*of, cqe);
  }
  queue.release(index + 1);
  return Got::one;
}

template <Wanted wanted>
[[gnu::noinline]] std::int32_t take_unusual(CompletionQueue &queue, Outputs out) {
  std::int32_t length;
  if (take<wanted, false>(queue, out, length) == Got::nothing) return queue.found_nothing();
  queue.lock.unlock();
  return length;
}

// When another thread has the lock.
template <Wanted wanted>
[[gnu::noinline, gnu::cold]] std::int32_t take_late(CompletionQueue &queue, Outputs out) {
  queue.libc_lock.pass();
  queue.lock.lock();
  return take_unusual<wanted>(queue, out);
}

template <bool checked, Wanted wanted>
[[gnu::always_inline]] inline std::int32_t poll_length(ibv_cq *cq, const Outputs &out) {
  if constexpr (checked) {
    if ((wanted.multi_packet && out.offset == nullptr) || (wanted.flags && out.flags == nullptr) ||
        (wanted.vlan && out.tci == nullptr) || (wanted.timestamp && out.timestamp == nullptr)) {
      errno = EINVAL;
      return -1;
    }
  }
  CompletionQueue &queue = known_queue(cq);
  // Nothing stale, whatever the caller looks at.
  if constexpr (wanted.flags) *out.flags = 0;
  if (!queue.lock.try_lock()) [[unlikely]]
    return take_late<wanted>(queue, out);
  std::int32_t length;
  const Got got = take<wanted, true>(queue, out, length);
  if (got == Got::unusual) [[unlikely]]
    return take_unusual<wanted>(queue, out);
  if (got == Got::nothing) return queue.found_nothing();
  queue.lock.unlock();
  return length;
}

template <bool checked>
struct Poll {
  static std::int32_t length(ibv_cq *cq, void *buffer, std::uint32_t *copied) {
    return poll_length<checked, Wanted{}>(cq, {.buffer = buffer, .copied = copied});
  }
  static std::int32_t length_flags(ibv_cq *cq, void *buffer, std::uint32_t *copied,
                                   std::uint32_t *flags) {
    return poll_length<checked, Wanted{.flags = true}>(
        cq, {.buffer = buffer, .copied = copied, .flags = flags});
  }
  static std::int32_t mp(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags) {
    return poll_length<checked, Wanted{.multi_packet = true, .flags = true}>(
        cq, {.offset = offset, .flags = flags});
  }
  static std::int32_t cvlan(ibv_cq *cq, void *buffer, std::uint32_t *copied, std::uint32_t *flags,
                            std::uint16_t *tci) {
    return poll_length<checked, Wanted{.flags = true, .vlan = true}>(
        cq, {.buffer = buffer, .copied = copied, .flags = flags, .tci = tci});
  }
  static std::int32_t mp_cvlan(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags,
                               std::uint16_t *tci) {
    return poll_length<checked, Wanted{.multi_packet = true, .flags = true, .vlan = true}>(
        cq, {.offset = offset, .flags = flags, .tci = tci});
  }
  static std::int32_t ts(ibv_cq *cq, void *buffer, std::uint32_t *copied, std::uint32_t *flags,
                         std::uint64_t *timestamp) {
    return poll_length<checked, Wanted{.flags = true, .timestamp = true}>(
        cq, {.buffer = buffer, .copied = copied, .flags = flags, .timestamp = timestamp});
  }
  static std::int32_t mp_ts(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags,
                            std::uint64_t *timestamp) {
    return poll_length<checked, Wanted{.multi_packet = true, .flags = true, .timestamp = true}>(
        cq, {.offset = offset, .flags = flags, .timestamp = timestamp});
  }
  static std::int32_t cvlan_ts(ibv_cq *cq, void *buffer, std::uint32_t *copied,
                               std::uint32_t *flags, std::uint16_t *tci, std::uint64_t *timestamp) {
    return poll_length<checked, Wanted{.flags = true, .vlan = true, .timestamp = true}>(
        cq,
        {.buffer = buffer, .copied = copied, .flags = flags, .tci = tci, .timestamp = timestamp});
  }
  static std::int32_t mp_cvlan_ts(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags,
                                  std::uint16_t *tci, std::uint64_t *timestamp) {
    return poll_length<checked, Wanted{true, true, true, true}>(
        cq, {.offset = offset, .flags = flags, .tci = tci, .timestamp = timestamp});
  }

  static constexpr ibv_exp_cq_family_v1 table{
      poll_cnt, length, length_flags, mp, cvlan, mp_cvlan, ts, mp_ts, cvlan_ts, mp_cvlan_ts};
};

}  // namespace

const ibv_exp_cq_family_v1 *cq_face(const FaceChoice &choice) {
  return choice.checked ? &Poll<true>::table : &Poll<false>::table;
}

}  // namespace ibvexp::queue
