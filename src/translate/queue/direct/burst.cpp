// The QP burst family and the WQ family.
#include "translate/queue/direct/families.h"
#include "translate/queue/direct/lookup.h"
#include "translate/queue/direct/receive.h"
#include "translate/queue/direct/send.h"
#include "translate/queue/families_common.h"
#include "translate/queue/front.h"
#include "translate/state/work_queue.h"

namespace ibvexp::direct {

namespace {

// Whether that many entries are free, although the completions that were polled say
// otherwise: the program may read them itself.
[[gnu::cold, gnu::noinline]] bool has_room(Endpoint &of, std::uint32_t count) {
  ReceiveQueue &queue = of.receive;
  const std::uint16_t tail = relaxed(queue.tail);
  if (static_cast<std::int16_t>(queue.done - tail) < 0) queue.done = tail;
  const auto posted = [&] { return static_cast<std::uint16_t>(queue.head - queue.done); };
  const auto is_free = [&] { return queue.entries - posted() >= count; };
  CompletionQueue *const completions =
      known_context(of.recv_cq->context).cqs.find(of.recv_cq->handle);
  if (is_free() || completions == nullptr) return is_free();
  const Guard guard(completions->lock);
  std::uint16_t most = 0;
  for (std::uint32_t i = 0; i <= completions->mask; ++i) {
    const Cqe cqe = completions->entry(i);
    const std::uint8_t opcode = opcode_of(cqe.op_own());
    if (cqe.user_index() != of.user_index || !(is_receive(opcode) || opcode == MLX5_CQE_RESP_ERR))
      continue;
    const auto more = static_cast<std::uint16_t>(receives_done(cqe, queue.strides) - queue.done);
    if (more <= posted()) most = std::max(most, more);
  }
  queue.done = static_cast<std::uint16_t>(queue.done + most);
  return is_free();
}

// Requests of one piece each: all of them, or none and an errno value.
int receive_burst(Endpoint &of, const ibv_sge *list, std::uint32_t count) {
  ReceiveQueue &queue = of.receive;
  if (queue.room() < count && !has_room(of, count)) [[unlikely]]
    return ENOMEM;
  const std::uint16_t before = queue.head;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const int error = write_receive(queue, &list[i], 1, 0); error != 0) [[unlikely]] {
      queue.head = before;
      return error;
    }
  }
  queue.ring_doorbell();
  return 0;
}

template <bool raw_packet, bool locked, bool checked>
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
    Endpoint &endpoint = known_endpoint(qp);
    const MaybeGuard<locked> guard(endpoint.send.lock);
    return put_piece<raw_packet>(endpoint, address, length, lkey, flags);
  }

  static int pending_vlan(ibv_qp *qp, std::uint64_t address, std::uint32_t length,
                          std::uint32_t lkey, std::uint32_t flags, std::uint16_t *tci) {
    ibv_sge piece{address, length, lkey};
    return list_vlan(qp, &piece, 1, flags, tci);
  }

  static int inline_vlan(ibv_qp *qp, void *data, std::uint32_t length, std::uint32_t flags,
                         std::uint16_t *tci) {
    if (const int error = fault(qp)) return error;
    if (bad(data, length)) return EINVAL;
    if (tci != nullptr && !raw_packet) return EINVAL;
    Endpoint &endpoint = known_endpoint(qp);
    const ibv_sge piece{reinterpret_cast<std::uintptr_t>(data), length, 0};
    const MaybeGuard<locked> guard(endpoint.send.lock);
    return put_send(endpoint, &piece, 1, flags, tci, true);
  }

  static int pending_inline(ibv_qp *qp, void *data, std::uint32_t length, std::uint32_t flags) {
    return inline_vlan(qp, data, length, flags, nullptr);
  }

  static int list_vlan(ibv_qp *qp, ibv_sge *list, std::uint32_t count, std::uint32_t flags,
                       std::uint16_t *tci) {
    if (const int error = fault(qp)) return error;
    if (bad(list, count)) return EINVAL;
    if (tci != nullptr && !raw_packet) return EINVAL;
    Endpoint &endpoint = known_endpoint(qp);
    const MaybeGuard<locked> guard(endpoint.send.lock);
    return put_send(endpoint, list, count, flags, tci, false);
  }

  static int pending_list(ibv_qp *qp, ibv_sge *list, std::uint32_t count, std::uint32_t flags) {
    return list_vlan(qp, list, count, flags, nullptr);
  }

  static int flush(ibv_qp *qp) {
    Endpoint &endpoint = known_endpoint(qp);
    const MaybeGuard<locked> guard(endpoint.send.lock);
    endpoint.send.ring_doorbell();
    return 0;
  }

  // All messages or none, so that the caller knows what is on its way.
  static int burst(ibv_qp *qp, ibv_sge *list, std::uint32_t count, std::uint32_t flags) {
    if (const int error = fault(qp)) return error;
    if (bad(list, count)) return EINVAL;
    Endpoint &endpoint = known_endpoint(qp);
    SendQueue &queue = endpoint.send;
    const MaybeGuard<locked> guard(queue.lock);
    if (queue.room() < count) [[unlikely]]
      return ENOMEM;
    const std::uint16_t before = queue.posted;
    const std::uint64_t doorbell = queue.doorbell;
    for (std::uint32_t i = 0; i < count; ++i) {
      const ibv_sge &m = list[i];
      if (const int error = put_piece<raw_packet>(endpoint, m.addr, m.length, m.lkey, flags);
          error != 0) [[unlikely]] {
        queue.posted = before;
        queue.doorbell = doorbell;
        return error;
      }
    }
    queue.ring_doorbell();
    return 0;
  }

  template <bool own_receive>
  static int recv_burst(ibv_qp *qp, ibv_sge *list, std::uint32_t count) {
    if (bad(list, count)) return EINVAL;
    if constexpr (!own_receive) return queue::receive_through_verbs(qp, list, count);
    Endpoint &endpoint = known_endpoint(qp);
    const MaybeGuard<locked> guard(endpoint.receive.lock);
    return receive_burst(endpoint, list, count);
  }

  template <bool own_receive>
  static constexpr ibv_exp_qp_burst_family_v1 table{
      pending,      pending_inline, pending_list, flush, burst, recv_burst<own_receive>,
      pending_vlan, inline_vlan,    list_vlan};
};

template <bool locked, bool checked>
struct Receive {
  static int fault(const ibv_exp_wq *wq, const ibv_sge *list, std::uint32_t count) {
    if constexpr (checked) {
      if (wq->state != IBV_EXP_WQS_RDY) return EINVAL;
      if (list == nullptr && count != 0) return EINVAL;
      // Shorter than the strides that the device fills.
      const ReceiveQueue &queue = known_endpoint(wq).receive;
      if (queue.strides != 0)
        for (std::uint32_t i = 0; i < count; ++i)
          if (list[i].length >> queue.log_stride_bytes < queue.strides) return EINVAL;
    }
    return 0;
  }
  static Endpoint &known_endpoint(const ibv_exp_wq *wq) {
    return *static_cast<const translate::WorkQueue *>(queue::behind(wq))->direct;
  }

  static int list(ibv_exp_wq *wq, ibv_sge *list, std::uint32_t count) {
    if (const int error = fault(wq, list, count)) return error;
    Endpoint &endpoint = known_endpoint(wq);
    ReceiveQueue &queue = endpoint.receive;
    const MaybeGuard<locked> guard(queue.lock);
    if (queue.room() == 0 && !has_room(endpoint, 1)) [[unlikely]]
      return ENOMEM;
    const int error = write_receive(queue, list, count, 0);
    if (error == 0) queue.ring_doorbell();
    return error;
  }
  static int burst(ibv_exp_wq *wq, ibv_sge *list, std::uint32_t count) {
    if (const int error = fault(wq, list, count)) return error;
    Endpoint &endpoint = known_endpoint(wq);
    const MaybeGuard<locked> guard(endpoint.receive.lock);
    return receive_burst(endpoint, list, count);
  }

  static constexpr ibv_exp_wq_family table{list, burst};
};

template <bool... chosen>
const ibv_exp_qp_burst_family_v1 *choose_burst(const FamilyChoice &choice) {
  using Functions = Burst<chosen...>;
  if (choice.own_receive) return &Functions::template table<true>;
  return &Functions::template table<false>;
}

}  // namespace

const ibv_exp_qp_burst_family_v1 *qp_burst_family(const FamilyChoice &choice) {
  switch (choice.raw_packet << 2 | choice.locked << 1 | choice.checked) {
    case 0: return choose_burst<false, false, false>(choice);
    case 1: return choose_burst<false, false, true>(choice);
    case 2: return choose_burst<false, true, false>(choice);
    case 3: return choose_burst<false, true, true>(choice);
    case 4: return choose_burst<true, false, false>(choice);
    case 5: return choose_burst<true, false, true>(choice);
    case 6: return choose_burst<true, true, false>(choice);
    default: return choose_burst<true, true, true>(choice);
  }
}

const ibv_exp_wq_family *wq_family(const FamilyChoice &choice) {
  switch (choice.locked << 1 | choice.checked) {
    case 0: return &Receive<false, false>::table;
    case 1: return &Receive<false, true>::table;
    case 2: return &Receive<true, false>::table;
    default: return &Receive<true, true>::table;
  }
}

}  // namespace ibvexp::direct
