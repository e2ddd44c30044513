// The CQ family.
#include "translate/queue/direct/families.h"
#include "translate/queue/direct/lookup.h"
#include "translate/queue/families_common.h"

namespace ibvexp::direct {

namespace {

using queue::Outputs;
using queue::time_of_day;
using queue::Wanted;

[[gnu::cold, gnu::noinline]] void keep_inline(const ReceiveQueue &queue, Cqe cqe, void *buffer,
                                              std::uint32_t *copied) {
  const std::uint32_t bytes = cqe.byte_count();
  if (buffer != nullptr) {
    std::memcpy(buffer, cqe.inline_data(), bytes);
    if (copied != nullptr) *copied = 1;
  } else {
    scatter_inline(queue.scatter(queue.tail), queue.pieces(), cqe.inline_data(), bytes);
  }
}

// Accounts for a good completion; false if it is not to be taken this way.
inline bool account(CompletionQueue &cq, Cqe cqe, std::uint8_t op_own) {
  const std::uint8_t opcode = opcode_of(op_own);
  if (opcode > MLX5_CQE_RESP_SEND_INV) [[unlikely]]
    return false;
  Endpoint *endpoint = cq.endpoint(cqe);
  if (endpoint == nullptr) [[unlikely]]
    return false;
  if (opcode == MLX5_CQE_REQ) {
    // Data of an answer in the completion: ibv_poll_cq() puts it in its place.
    if (Cqe::is_inline(op_own)) [[unlikely]]
      return false;
    complete_send(endpoint->send, cqe);
  } else {
    if (Cqe::is_inline(op_own)) [[unlikely]]
      keep_inline(endpoint->receive, cqe, nullptr, nullptr);
    complete_receive(endpoint->receive, cqe);
  }
  return true;
}

template <bool locked>
std::int32_t poll_cnt(ibv_cq *ibv, std::uint32_t max) {
  CompletionQueue &cq = known_cq(ibv);
  const MaybeGuard<locked> guard(cq.lock);
  const std::uint32_t before = cq.consumer;
  Cqe cqe(nullptr);
  std::uint8_t op_own = 0;
  std::int32_t count = 0;
  while (static_cast<std::uint32_t>(count) < max && cq.next(cqe, op_own)) {
    if (!account(cq, cqe, op_own)) [[unlikely]] {
      // It stays for ibv_poll_cq().
      if (count == 0) count = -1;
      break;
    }
    ++cq.consumer;
    ++count;
  }
  if (cq.consumer != before) cq.release();
  return count;
}

template <bool locked, bool checked, Wanted wanted>
inline std::int32_t poll_length(ibv_cq *ibv, const Outputs &out) {
  if constexpr (checked) {
    if ((wanted.multi_packet && out.offset == nullptr) || (wanted.flags && out.flags == nullptr) ||
        (wanted.vlan && out.tci == nullptr) || (wanted.timestamp && out.timestamp == nullptr)) {
      errno = EINVAL;
      return -1;
    }
  }
  CompletionQueue &cq = known_cq(ibv);
  const MaybeGuard<locked> guard(cq.lock);
  Cqe cqe(nullptr);
  std::uint8_t op_own = 0;
  // Nothing stale, whatever the caller looks at.
  if constexpr (wanted.flags) *out.flags = 0;
  if (!cq.next(cqe, op_own)) return 0;
  if (!is_receive(opcode_of(op_own))) [[unlikely]]
    return -1;
  Endpoint *endpoint = cq.endpoint(cqe);
  if (endpoint == nullptr) [[unlikely]]
    return -1;
  ReceiveQueue &queue = endpoint->receive;
  // The two kinds of receive queues have functions of their own.
  if ((queue.strides != 0) != wanted.multi_packet) [[unlikely]]
    return -1;

  std::int32_t length = 0;
  bool ends = true;
  if constexpr (wanted.multi_packet) {
    const Strides s = strides_of(cqe, queue.shift);
    ends = ends_entry(queue, s);
    length = s.bytes;
    *out.offset = (std::uint32_t{s.first} << queue.log_stride_bytes) + (s.filler ? 0 : queue.shift);
    if constexpr (wanted.flags) {
      if (!s.filler) *out.flags = receive_flags(cqe);
      if (ends) *out.flags |= IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1;
    }
  } else {
    length = static_cast<std::int32_t>(cqe.byte_count());
    if (out.copied != nullptr) *out.copied = 0;
    if (Cqe::is_inline(op_own)) [[unlikely]]
      keep_inline(queue, cqe, out.buffer, out.copied);
    if constexpr (wanted.flags) *out.flags = receive_flags(cqe);
  }
  if constexpr (wanted.vlan) *out.tci = cqe.vlan();
  if constexpr (wanted.timestamp) {
    *out.timestamp = cqe.timestamp();
    if (cq.system_time && *out.timestamp != 0) [[unlikely]]
      *out.timestamp = time_of_day(cq.cq->context, *out.timestamp);
    if (*out.timestamp != 0) *out.flags |= IBV_EXP_CQ_RX_WITH_TIMESTAMP;
  }
  if (ends) set_relaxed(queue.tail, static_cast<std::uint16_t>(queue.tail + 1));
  ++cq.consumer;
  cq.release();
  return length;
}

template <bool locked, bool checked>
struct Poll {
  static std::int32_t length(ibv_cq *cq, void *buffer, std::uint32_t *copied) {
    return poll_length<locked, checked, Wanted{}>(cq, {.buffer = buffer, .copied = copied});
  }
  static std::int32_t length_flags(ibv_cq *cq, void *buffer, std::uint32_t *copied,
                                   std::uint32_t *flags) {
    return poll_length<locked, checked, Wanted{.flags = true}>(
        cq, {.buffer = buffer, .copied = copied, .flags = flags});
  }
  static std::int32_t mp(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags) {
    return poll_length<locked, checked, Wanted{.multi_packet = true, .flags = true}>(
        cq, {.offset = offset, .flags = flags});
  }
  static std::int32_t cvlan(ibv_cq *cq, void *buffer, std::uint32_t *copied, std::uint32_t *flags,
                            std::uint16_t *tci) {
    return poll_length<locked, checked, Wanted{.flags = true, .vlan = true}>(
        cq, {.buffer = buffer, .copied = copied, .flags = flags, .tci = tci});
  }
  static std::int32_t mp_cvlan(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags,
                               std::uint16_t *tci) {
    return poll_length<locked, checked, Wanted{.multi_packet = true, .flags = true, .vlan = true}>(
        cq, {.offset = offset, .flags = flags, .tci = tci});
  }
  static std::int32_t ts(ibv_cq *cq, void *buffer, std::uint32_t *copied, std::uint32_t *flags,
                         std::uint64_t *timestamp) {
    return poll_length<locked, checked, Wanted{.flags = true, .timestamp = true}>(
        cq, {.buffer = buffer, .copied = copied, .flags = flags, .timestamp = timestamp});
  }
  static std::int32_t mp_ts(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags,
                            std::uint64_t *timestamp) {
    return poll_length<locked, checked,
                       Wanted{.multi_packet = true, .flags = true, .timestamp = true}>(
        cq, {.offset = offset, .flags = flags, .timestamp = timestamp});
  }
  static std::int32_t cvlan_ts(ibv_cq *cq, void *buffer, std::uint32_t *copied,
                               std::uint32_t *flags, std::uint16_t *tci, std::uint64_t *timestamp) {
    return poll_length<locked, checked, Wanted{.flags = true, .vlan = true, .timestamp = true}>(
        cq,
        {.buffer = buffer, .copied = copied, .flags = flags, .tci = tci, .timestamp = timestamp});
  }
  static std::int32_t mp_cvlan_ts(ibv_cq *cq, std::uint32_t *offset, std::uint32_t *flags,
                                  std::uint16_t *tci, std::uint64_t *timestamp) {
    return poll_length<locked, checked, Wanted{true, true, true, true}>(
        cq, {.offset = offset, .flags = flags, .tci = tci, .timestamp = timestamp});
  }

  static constexpr ibv_exp_cq_family_v1 table{
      poll_cnt<locked>, length, length_flags, mp,       cvlan,
      mp_cvlan,         ts,     mp_ts,        cvlan_ts, mp_cvlan_ts};
};

}  // namespace

const ibv_exp_cq_family_v1 *cq_family(const FamilyChoice &choice) {
  switch (choice.locked << 1 | choice.checked) {
    case 0: return &Poll<false, false>::table;
    case 1: return &Poll<false, true>::table;
    case 2: return &Poll<true, false>::table;
    default: return &Poll<true, true>::table;
  }
}

}  // namespace ibvexp::direct
