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

// Requests of one piece each: all of them, or none and an errno value.
int receive_burst(ReceiveQueue &queue, const ibv_sge *list, std::uint32_t count) {
  if (queue.room() < count) [[unlikely]]
    return ENOMEM;
  const std::uint16_t before = queue.head;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const int error = put_receive(queue, &list[i], 1, 0); error != 0) [[unlikely]] {
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
    ReceiveQueue &queue = known_endpoint(qp).receive;
    const MaybeGuard<locked> guard(queue.lock);
    return receive_burst(queue, list, count);
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
      const ReceiveQueue &queue = known_queue(wq);
      if (queue.strides != 0)
        for (std::uint32_t i = 0; i < count; ++i)
          if (list[i].length >> queue.log_stride_bytes < queue.strides) return EINVAL;
    }
    return 0;
  }
  static ReceiveQueue &known_queue(const ibv_exp_wq *wq) {
    return static_cast<const translate::WorkQueue *>(queue::behind(wq))->direct->receive;
  }

  static int list(ibv_exp_wq *wq, ibv_sge *list, std::uint32_t count) {
    if (const int error = fault(wq, list, count)) return error;
    ReceiveQueue &queue = known_queue(wq);
    const MaybeGuard<locked> guard(queue.lock);
    const int error = put_receive(queue, list, count, 0);
    if (error == 0) queue.ring_doorbell();
    return error;
  }
  static int burst(ibv_exp_wq *wq, ibv_sge *list, std::uint32_t count) {
    if (const int error = fault(wq, list, count)) return error;
    ReceiveQueue &queue = known_queue(wq);
    const MaybeGuard<locked> guard(queue.lock);
    return receive_burst(queue, list, count);
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
