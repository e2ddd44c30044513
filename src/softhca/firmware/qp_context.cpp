#include "firmware/qp_context.h"

#include <algorithm>

#include "model/device.h"

namespace softhca::firmware {

namespace {

u32 log2_of(u32 n) { return n == 0 ? 0 : 31 - static_cast<u32>(__builtin_clz(n)); }

void describe_route(const AddressVector &av, u8 *at) {
  path::grh.put(at, av.is_global ? 1 : 0);
  path::source_path.put(at, av.src_path_bits);
  path::rlid.put(at, av.dlid);
  path::source_index.put(at, av.sgid_index);
  path::rate.put(at, av.static_rate);
  path::hop_limit.put(at, av.hop_limit);
  path::traffic_class.put(at, av.traffic_class);
  path::flow_label.put(at, av.flow_label);
  std::copy(std::begin(av.dgid), std::end(av.dgid), at + path::gid_at);
}

void describe_paths(const Qp &qp, u8 *context) {
  const QpAttributes &a = qp.attr;
  u8 *at = context + qpc::primary_path_at, *other = context + qpc::secondary_path_at;
  describe_route(a.av, at);
  path::pkey_index.put(at, a.pkey_index);
  path::ack_timeout.put(at, a.timeout);
  path::port.put(at, a.port);
  qpc::pm_state.put(context, a.path_state == PathState::armed   ? qpc::pm_armed
                             : a.path_state == PathState::rearm ? qpc::pm_rearm
                                                                : qpc::pm_migrated);
  if (!qp.device->ethernet(std::max<u8>(a.port, 1))) {
    path::sl.put(at, a.av.sl);
    if (a.alt_port == 0) return;
    describe_route(a.alt_av, other);
    path::pkey_index.put(other, a.alt_pkey_index);
    path::ack_timeout.put(other, a.alt_timeout);
    path::port.put(other, a.alt_port);
    return path::sl.put(other, a.alt_av.sl);
  }
  path::ecn.put(at, a.av.traffic_class & 3);
  path::dscp.put(at, a.av.traffic_class >> 2);
  path::udp_sport.put(at, a.udp_sport);
  path::priority.put(at, a.av.sl);
}

void describe_rings(const Qp &qp, u8 *context) {
  qpc::log_sq_size.put(context, log2_of(qp.sq_wqebbs));
  qpc::no_sq.put(context, qp.sq_wqebbs == 0 ? 1 : 0);
  if (qp.rq_wqes != 0) {
    qpc::log_rq_size.put(context, log2_of(qp.rq_wqes));
    qpc::log_rq_stride.put(context, log2_of(qp.rq_stride / 16));
  }
  if (qp.send_cq != nullptr) qpc::cqn_send.put(context, qp.send_cq->cqn);
  if (qp.recv_cq != nullptr) qpc::cqn_receive.put(context, qp.recv_cq->cqn);
  if (qp.srq != nullptr) {
    qpc::rq_type.put(context, 1);
    qpc::srqn.put(context, qp.srq->srqn);
  }
  qpc::hw_sq_counter.put(context, qp.sq_consumed);
  qpc::hw_rq_counter.put(context, qp.rq_consumed);
  if (qp.dbrec == nullptr) return;
  qpc::sw_sq_counter.put(context, read_doorbell(&qp.dbrec[1]));
  qpc::sw_rq_counter.put(context, read_doorbell(&qp.dbrec[0]) & 0xffff);
}

}  // namespace

AddressVector read_path(const Device &device, u8 port, const u8 *at) {
  AddressVector av;
  av.port = port;
  av.dlid = static_cast<u16>(path::rlid.in(at));
  av.src_path_bits = static_cast<u8>(path::source_path.in(at));
  av.static_rate = static_cast<u8>(path::rate.in(at));
  av.sgid_index = static_cast<u8>(path::source_index.in(at));
  av.hop_limit = static_cast<u8>(path::hop_limit.in(at));
  av.flow_label = path::flow_label.in(at);
  std::copy_n(at + path::gid_at, sizeof av.dgid, av.dgid);
  if (device.ethernet(port)) {
    av.is_global = true;
    av.sl = static_cast<u8>(path::priority.in(at));
    av.traffic_class = static_cast<u8>(path::dscp.in(at) << 2 | path::ecn.in(at));
  } else {
    av.is_global = path::grh.in(at) != 0;
    av.sl = static_cast<u8>(path::sl.in(at));
    av.traffic_class = static_cast<u8>(path::traffic_class.in(at));
  }
  return av;
}

void describe_qp(const Qp &qp, u8 *context) {
  // RST, INIT, RTR, RTS, SQDRAINED, SQER, ERR, in the order of ib_qp_state.
  static constexpr u8 states[] = {0, 1, 2, 3, 5, 4, 6};
  // RC, UC, UD, XRC, XRC, DCI, DCT and Ethernet frames, in that of QpType.
  static constexpr u8 services[] = {0, 1, 2, 3, 3, 5, 6, 9};
  const QpAttributes &a = qp.attr;
  qpc::state.put(context, states[static_cast<u32>(qp.state)]);
  qpc::service.put(context, services[static_cast<u32>(qp.type)]);
  qpc::pd.put(context, qp.pdn);
  qpc::mtu.put(context, a.path_mtu);
  qpc::log_msg_max.put(context, log2_of(std::min(qp.max_message_bytes, 1u << 30)));
  qpc::user_index.put(context, qp.uidx);
  qpc::remote_qpn.put(context, a.dest_qpn);
  describe_paths(qp, context);
  qpc::log_sra_max.put(context, log2_of(a.max_rd_atomic));
  qpc::log_rra_max.put(context, log2_of(a.max_dest_rd_atomic));
  qpc::retry_count.put(context, a.retry_count);
  qpc::rnr_retry.put(context, a.rnr_retry);
  qpc::min_rnr_nak.put(context, a.min_rnr_timer);
  qpc::next_send_psn.put(context, qp_live_sq_psn(qp));
  qpc::next_receive_psn.put(context, qp_live_rq_psn(qp));
  qpc::remote_read.put(context, (a.access & access_remote_read) != 0 ? 1 : 0);
  qpc::remote_write.put(context, (a.access & access_remote_write) != 0 ? 1 : 0);
  qpc::remote_atomic.put(context, (a.access & access_remote_atomic) != 0 ? 1 : 0);
  qpc::q_key.put(context, a.qkey);
  if (qp.counters) qpc::counter_set.put(context, qp.counters->number);
  describe_rings(qp, context);
}

}  // namespace softhca::firmware
