// The QP burst family and the WQ family.
#include <cerrno>

#include "translate/queue/engine/endpoint.h"
#include "translate/queue/engine/frames.h"
#include "translate/queue/engine/receive_queue.h"
#include "translate/queue/engine/segments.h"
#include "translate/queue/faces.h"
#include "translate/queue/front.h"

namespace ibvexp::queue {

namespace {

using engine::Endpoint;
using engine::Guard;
using engine::ReceiveQueue;
using engine::SendQueue;

constexpr std::uint32_t known_flags = IBV_EXP_QP_BURST_SIGNALED | IBV_EXP_QP_BURST_SOLICITED |
                                      IBV_EXP_QP_BURST_IP_CSUM | IBV_EXP_QP_BURST_TUNNEL |
                                      IBV_EXP_QP_BURST_FENCE;

[[gnu::cold]] int refuse_flags(std::uint32_t flags) {
  return (flags & ~known_flags) != 0 ? EINVAL : ENOTSUP;
}

// Burst flags as the control segment has them.
constexpr std::uint32_t to_control(std::uint32_t flags) {
  static_assert(IBV_EXP_QP_BURST_SIGNALED << 3 == MLX5_WQE_CTRL_CQ_UPDATE &&
                int{IBV_EXP_QP_BURST_SOLICITED} == MLX5_WQE_CTRL_SOLICITED &&
                IBV_EXP_QP_BURST_FENCE << 3 == MLX5_WQE_CTRL_FENCE);
  return (flags & (IBV_EXP_QP_BURST_SIGNALED | IBV_EXP_QP_BURST_FENCE)) << 3 |
         (flags & IBV_EXP_QP_BURST_SOLICITED);
}

unsigned to_send_flags(std::uint32_t flags) {
  return ((flags & IBV_EXP_QP_BURST_SIGNALED) != 0 ? unsigned{IBV_SEND_SIGNALED} : 0u) |
         ((flags & IBV_EXP_QP_BURST_SOLICITED) != 0 ? unsigned{IBV_SEND_SOLICITED} : 0u) |
         ((flags & IBV_EXP_QP_BURST_FENCE) != 0 ? unsigned{IBV_SEND_FENCE} : 0u);
}

// Known to be there.
SendQueue &send_queue(const ibv_qp *qp) { return *reinterpret_cast<const QpFront *>(qp)->own.send; }
Endpoint &endpoint(const ibv_qp *qp) { return *reinterpret_cast<const QpFront *>(qp)->own.engine; }
Endpoint &endpoint(const ibv_exp_wq *wq) {
  return *reinterpret_cast<const WqFront *>(wq)->own.engine;
}

void await_doorbell(SendQueue &queue, std::uint64_t head) {
  queue.pending_head = head;
  queue.pending_end = *queue.posted;
}

// Requests that were posted by verbs since have rung for all before them.
void ring_pending(SendQueue &queue) {
  if (queue.pending_head == 0) return;
  if (queue.pending_end == *queue.posted) queue.doorbell.ring(*queue.posted, queue.pending_head);
  queue.pending_head = 0;
}

// What the queue was before requests that go together.
class Mark {
 public:
  explicit Mark(const SendQueue &queue)
      : count_(queue.count),
        posted_(*queue.posted),
        head_(queue.pending_head),
        end_(queue.pending_end) {}
  void restore(SendQueue &queue) const {
    queue.count = count_;
    *queue.posted = posted_;
    queue.pending_head = head_;
    queue.pending_end = end_;
  }

 private:
  std::uint32_t count_, posted_;
  std::uint64_t head_;
  std::uint32_t end_;
};

// Any send. Returns 0, or an errno value and has done nothing. tci: null, or a VLAN tag
// to put in.
int put_any(SendQueue &queue, const ibv_sge *list, std::uint32_t count, std::uint32_t flags,
            const std::uint16_t *tci, bool is_inline) {
  if ((flags & queue.refused_burst) != 0) return refuse_flags(flags);
  if (queue.count == queue.limit()) return ENOMEM;
  const std::uint32_t slot = *queue.posted & queue.mask;
  const int error = engine::put_message(
      queue, {.data = engine::Gather(list, count),
              .flags = to_send_flags(flags) | (is_inline ? unsigned{IBV_SEND_INLINE} : 0u),
              .checksums = (flags & IBV_EXP_QP_BURST_IP_CSUM) != 0,
              .tag = tci});
  if (error != 0) return error;
  await_doorbell(
      queue, engine::load<std::uint64_t>(queue.begin + (std::size_t{slot} << engine::log_block)));
  return 0;
}

// The common case: one piece that fits one block.
template <bool frames>
[[gnu::always_inline]] inline int put_piece(SendQueue &queue, std::uint64_t address,
                                            std::uint32_t length, std::uint32_t lkey,
                                            std::uint32_t flags) {
  constexpr std::uint32_t header = frames ? engine::eth_inline_bytes : 0;
  if ((flags & queue.refused_burst) != 0 || !engine::is_length(length - header) || queue.fence != 0)
      [[unlikely]] {
    const ibv_sge piece{address, length, lkey};
    return put_any(queue, &piece, 1, flags, nullptr, false);
  }
  const std::uint32_t count = queue.count;
  if (count == queue.limit()) [[unlikely]]
    return ENOMEM;
  const std::uint32_t posted = *queue.posted;
  const std::uint32_t slot = posted & queue.mask;
  std::uint8_t *const at = queue.begin + (std::size_t{slot} << engine::log_block);
  constexpr std::uint32_t segments = frames ? 4 : 2;
  const std::uint64_t head = engine::control_head(posted, MLX5_OPCODE_SEND, queue.number, segments);
  engine::write_control(at, head, to_control(flags | queue.always_burst), 0);
  if constexpr (frames) {
    const bool checksums = (flags & IBV_EXP_QP_BURST_IP_CSUM) != 0;
    engine::write_ethernet(at + engine::segment_bytes,
                           checksums ? MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM : 0,
                           reinterpret_cast<const void *>(address));
    engine::write_data(at + 3 * engine::segment_bytes, address + header, length - header, lkey);
  } else {
    engine::write_data(at + engine::segment_bytes, address, length, lkey);
  }
  queue.sent[slot] = {0, count};
  queue.count = count + 1;
  *queue.posted = posted + 1;
  queue.pending_head = head;
  queue.pending_end = posted + 1;
  return 0;
}

template <bool frames, bool checked>
struct Burst {
  // 0, or why nothing can be sent.
  static int fault(const ibv_qp *qp) {
    if constexpr (checked)
      if (qp->state < IBV_QPS_RTS) return EINVAL;
    return 0;
  }
  static bool bad(const void *pointer, std::uint32_t count) {
    return checked && pointer == nullptr && count != 0;
  }

  static int pending(ibv_qp *qp, std::uint64_t address, std::uint32_t length, std::uint32_t lkey,
                     std::uint32_t flags) {
    if (const int error = fault(qp)) return error;
    SendQueue &queue = send_queue(qp);
    const Guard guard(queue.lock);
    return put_piece<frames>(queue, address, length, lkey, flags);
  }

  static int any(ibv_qp *qp, const ibv_sge *list, std::uint32_t count, std::uint32_t flags,
                 const std::uint16_t *tci, bool is_inline) {
    if (const int error = fault(qp)) return error;
    if (tci != nullptr && !frames) return EINVAL;
    SendQueue &queue = send_queue(qp);
    const Guard guard(queue.lock);
    return put_any(queue, list, count, flags, tci, is_inline);
  }

  static int pending_vlan(ibv_qp *qp, std::uint64_t address, std::uint32_t length,
                          std::uint32_t lkey, std::uint32_t flags, std::uint16_t *tci) {
    const ibv_sge piece{address, length, lkey};
    return any(qp, &piece, 1, flags, tci, false);
  }
  static int inline_vlan(ibv_qp *qp, void *data, std::uint32_t length, std::uint32_t flags,
                         std::uint16_t *tci) {
    if (bad(data, length)) return EINVAL;
    const ibv_sge piece{reinterpret_cast<std::uintptr_t>(data), length, 0};
    return any(qp, &piece, 1, flags, tci, true);
  }
  static int pending_inline(ibv_qp *qp, void *data, std::uint32_t length, std::uint32_t flags) {
    return inline_vlan(qp, data, length, flags, nullptr);
  }
  static int list_vlan(ibv_qp *qp, ibv_sge *list, std::uint32_t count, std::uint32_t flags,
                       std::uint16_t *tci) {
    if (bad(list, count)) return EINVAL;
    return any(qp, list, count, flags, tci, false);
  }
  static int pending_list(ibv_qp *qp, ibv_sge *list, std::uint32_t count, std::uint32_t flags) {
    return list_vlan(qp, list, count, flags, nullptr);
  }

  static int flush(ibv_qp *qp) {
    SendQueue &queue = send_queue(qp);
    const Guard guard(queue.lock);
    ring_pending(queue);
    return 0;
  }

  // All messages or none, so that the caller knows what is on its way.
  static int burst(ibv_qp *qp, ibv_sge *list, std::uint32_t count, std::uint32_t flags) {
    if (const int error = fault(qp)) return error;
    if (bad(list, count)) return EINVAL;
    SendQueue &queue = send_queue(qp);
    const Guard guard(queue.lock);
    const Mark before(queue);
    for (const ibv_sge *const end = list + count; list != end; ++list) {
      if (const int error = put_piece<frames>(queue, list->addr, list->length, list->lkey, flags);
          error != 0) [[unlikely]] {
        before.restore(queue);
        return error;
      }
    }
    ring_pending(queue);
    return 0;
  }

  static int recv_burst(ibv_qp *qp, ibv_sge *list, std::uint32_t count) {
    if (bad(list, count)) return EINVAL;
    return engine::post_pieces(endpoint(qp), list, count);
  }

  static constexpr ibv_exp_qp_burst_family_v1 table{pending,      pending_inline, pending_list,
                                                    flush,        burst,          recv_burst,
                                                    pending_vlan, inline_vlan,    list_vlan};
};

template <bool checked>
struct Receive {
  static int fault(const ibv_exp_wq *wq, const ibv_sge *list, std::uint32_t count) {
    if constexpr (checked) {
      if (wq->state != IBV_EXP_WQS_RDY) return EINVAL;
      if (list == nullptr && count != 0) return EINVAL;
      // Shorter than the strides that the device fills.
      const ReceiveQueue &queue = endpoint(wq).receive;
      if (queue.strides != 0)
        for (std::uint32_t i = 0; i < count; ++i)
          if (list[i].length >> queue.log_stride_bytes < queue.strides) return EINVAL;
    }
    return 0;
  }

  static int list(ibv_exp_wq *wq, ibv_sge *list, std::uint32_t count) {
    if (const int error = fault(wq, list, count)) return error;
    return engine::post_list(endpoint(wq), list, count);
  }
  static int burst(ibv_exp_wq *wq, ibv_sge *list, std::uint32_t count) {
    if (const int error = fault(wq, list, count)) return error;
    return engine::post_pieces(endpoint(wq), list, count);
  }

  static constexpr ibv_exp_wq_family table{list, burst};
};

}  // namespace

const ibv_exp_qp_burst_family_v1 *burst_face(const FaceChoice &choice) {
  if (choice.frames) return choice.checked ? &Burst<true, true>::table : &Burst<true, false>::table;
  return choice.checked ? &Burst<false, true>::table : &Burst<false, false>::table;
}

const ibv_exp_wq_family *wq_face(const FaceChoice &choice) {
  return choice.checked ? &Receive<true>::table : &Receive<false>::table;
}

}  // namespace ibvexp::queue
