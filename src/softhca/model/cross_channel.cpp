#include "model/cross_channel.h"

#include <utility>

#include "base/log.h"
#include "model/device.h"

namespace softhca {

namespace {

// The segment behind the control segment, as Linux and DPDK fill it.
constexpr u32 segments = 2, index_at = 24, number_at = 28;
constexpr u32 number_mask = 0xffffff;

template <class Table>
auto find(Table &table, const u8 *wqe) {
  const auto it = table.find(load_be32(wqe + number_at) & number_mask);
  return it == table.end() ? nullptr : it->second;
}

Cq *awaited(const Qp &qp, const u8 *wqe, u32 ds) {
  return qp.master && ds == segments ? find(process().cqs, wqe) : nullptr;
}

// Indices have 24 bits, and one that is less than half of them behind is reached.
bool reached(const Cq &cq, u32 index) {
  constexpr u32 half = 1u << 23;
  return ((cq.producer - index) & number_mask) < half;
}

bool release(u16 &released, u32 index) {
  const u16 more = static_cast<u16>(index - released);
  if (more == 0 || more >= 0x8000) return false;
  released = static_cast<u16>(index);
  return true;
}

}  // namespace

bool waits_for_completions(Qp &qp, const u8 *wqe, u32 ds) {
  Cq *cq = awaited(qp, wqe, ds);
  if (cq == nullptr || reached(*cq, load_be32(wqe + index_at))) return false;
  if (!qp.waits) cq->waiting.push_back(qp.qpn);
  qp.waits = true;
  return true;
}

Syndrome execute_cross_channel(const Qp &qp, WqeOpcode op, const u8 *wqe, u32 ds) {
  if (op == WqeOpcode::wait)
    return awaited(qp, wqe, ds) != nullptr ? Syndrome::ok : Syndrome::local_qp_op;
  Qp *slave = qp.master && ds == segments ? find(process().qps, wqe) : nullptr;
  const bool sends = op == WqeOpcode::send_enable;
  if (slave == nullptr || slave->device != qp.device ||
      !(sends ? slave->slave_send : slave->slave_receive)) {
    SOFTHCA_LOG(debug, "QP %#x: %#x has no managed %s queue", qp.qpn,
                load_be32(wqe + number_at) & number_mask, sends ? "send" : "receive");
    return Syndrome::local_qp_op;
  }
  if (slave == &qp && !sends) return Syndrome::ok;
  if (release(sends ? slave->send_released : slave->receive_released, load_be32(wqe + index_at)))
    qp_wake(*slave);
  return Syndrome::ok;
}

void wake_waiting(Cq &cq) {
  // By number: a queue pair may have ended meanwhile.
  for (const u32 qpn : std::exchange(cq.waiting, {})) {
    const auto it = process().qps.find(qpn);
    if (it == process().qps.end()) continue;
    it->second->waits = false;
    qp_wake(*it->second);
  }
}

}  // namespace softhca
