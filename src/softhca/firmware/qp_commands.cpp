// CREATE_QP and QUERY_QP.
#include <algorithm>

#include "firmware/qp_context.h"
#include "firmware/queues.h"

namespace softhca::firmware {

namespace {

constexpr u32 context_at = qp_context_at, create_bytes = 272;
constexpr RingFields ring_fields{
    .umem_offset_at = 256, .umem_id_at = 264, .umem_valid_bit = 2144, .pages_at = 272};

enum Service : u32 {
  service_rc = 0,
  service_uc = 1,
  service_ud = 2,
  service_xrc = 3,
  service_dci = 5,
  service_qp0 = 7,
  service_qp1 = 8,
  service_umr = 12,  // the driver's own, for memory keys
};
enum ReceiveQueue : u32 { own_queue = 0, shared_queue = 1, no_queue = 3 };

Status choose_type(const Scope &scope, const u8 *context, Qp &qp) {
  const Capabilities &caps = scope.caps();
  switch (qpc::service.in(context)) {
    case service_rc: qp.type = QpType::rc; return Status::ok;
    case service_uc: qp.type = QpType::uc; return Status::ok;
    case service_ud: qp.type = QpType::ud; return Status::ok;
    case service_dci: qp.type = QpType::dci; return caps.dc ? Status::ok : Status::bad_param;
    default: break;
  }
  if (!scope.of_driver()) return Status::bad_param;
  switch (qpc::service.in(context)) {
    case service_xrc:
      // A target has no send queue.
      qp.type = qpc::no_sq.in(context) != 0 ? QpType::xrc_tgt : QpType::xrc_ini;
      qp.xrcd = qpc::xrcd.in(context);
      return caps.xrc ? Status::ok : Status::bad_param;
    case service_qp0: qp.type = QpType::ud; return Status::ok;
    case service_qp1:
      qp.type = QpType::ud;
      qp.general_services = true;
      return Status::ok;
    case service_umr:
      qp.type = QpType::rc;
      qp.for_keys = true;
      return Status::ok;
    default: return Status::bad_param;
  }
}

bool xrc(const Qp &qp) { return qp.type == QpType::xrc_ini || qp.type == QpType::xrc_tgt; }

// What would change a queue pair in a way that is not there: real-time stamps, sends without
// doorbell records and the like.
bool asks_for_more(const Scope &scope, const u8 *context) {
  const Capabilities &caps = scope.caps();
  constexpr u32 real_time = 2, rendezvous = 1;
  const u32 offload = qpc::offload.in(context);
  return qpc::ts_format.in(context) >= real_time || qpc::send_dbr_mode.in(context) != 0 ||
         (qpc::cross_channel.in(context) != 0 && !caps.cross_channel) ||
         qpc::stateless_offload.in(context) != 0 ||
         (qpc::reserved_lkey.in(context) != 0 && !scope.of_driver()) ||
         (offload != 0 && (offload != rendezvous || !caps.tag_matching)) ||
         (qpc::drain_sigerr.in(context) != 0 && !caps.signature);
}

// Streams of a DC initiator: how many may fail before it does.
Status choose_streams(const Capabilities &caps, const u8 *context, Qp &qp) {
  const u32 streams = qpc::log_streams.in(context), errored = qpc::log_errored_streams.in(context);
  if (streams == 0 && errored == 0) return Status::ok;
  if (!caps.dci_streams || qp.type != QpType::dci || streams > caps.log_max_streams ||
      errored > caps.log_max_errored_streams)
    return Status::bad_param;
  qp.max_errored_streams = 1u << errored;
  return Status::ok;
}

// Cross-channel: which sides are managed is a matter of queues that are there.
Status choose_channel(const u8 *context, Qp &qp) {
  constexpr u32 master = 1, slave_send = 2, slave_receive = 4;
  const u32 bits = qpc::cross_channel.in(context);
  qp.master = (bits & master) != 0;
  qp.slave_send = (bits & slave_send) != 0;
  qp.slave_receive = (bits & slave_receive) != 0;
  const bool fits = (!qp.slave_send || qp.sq_wqebbs != 0) && (!qp.slave_receive || qp.rq_wqes != 0);
  return fits ? Status::ok : Status::bad_param;
}

// The objects that it names.
Status find_partners(Scope &scope, const u8 *context, Qp &qp) {
  qp.pdn = qpc::pd.in(context);
  const bool receives = qp.type != QpType::dci && !xrc(qp) && !qp.for_keys;
  if (xrc(qp) && !scope.use_xrcd(qp.xrcd)) return Status::bad_resource;
  if (!qp.for_keys && !scope.use_pd(qp.pdn)) return Status::bad_resource;
  qp.send_cq = scope.use_cq(qpc::cqn_send.in(context));
  if (!xrc(qp)) qp.recv_cq = scope.use_cq(qpc::cqn_receive.in(context));
  if ((qp.sq_wqebbs != 0 && qp.send_cq == nullptr) || (receives && qp.recv_cq == nullptr))
    return Status::bad_resource;
  if (!receives || qpc::rq_type.in(context) != shared_queue) return Status::ok;
  qp.srq = scope.use_srq(qpc::srqn.in(context));
  if (qp.srq == nullptr) return Status::bad_resource;
  const bool fits = qp.srq->type != SrqType::xrc && (!qp.srq->tags || qp.type == QpType::rc);
  return fits ? Status::ok : Status::bad_param;
}

// The receive queue stands in front of the send queue.
Status use_rings(Scope &scope, const Command &c, Qp &qp) {
  const u8 *context = c.in.data() + context_at;
  const u64 rq_bytes = u64{qp.rq_wqes} * qp.rq_stride, sq_bytes = u64{qp.sq_wqebbs} * wqe_bb;
  const RingPlace place =
      ring_place(c, ring_fields, qpc::log_page_size.in(context), qpc::page_offset.in(context));
  if (qp.type == QpType::xrc_tgt) return Status::ok;
  if (const Status s = scope.use_ring(place, rq_bytes + sq_bytes, RingUse::read, qp.rq);
      s != Status::ok)
    return s;
  qp.sq = qp.rq + rq_bytes;
  const RecordPlace record{qpc::dbr_umem_valid.in(context) != 0, qpc::dbr_umem.in(context),
                           load_be64(context + qpc::dbr_at)};
  return scope.use_record(record, qp.dbrec);
}

void choose_sizes(const u8 *context, Qp &qp) {
  if (qpc::no_sq.in(context) == 0) qp.sq_wqebbs = 1u << qpc::log_sq_size.in(context);
  if (qp.type == QpType::dci || xrc(qp) || qpc::rq_type.in(context) != own_queue) return;
  qp.rq_wqes = 1u << qpc::log_rq_size.in(context);
  qp.rq_stride = 16u << qpc::log_rq_stride.in(context);
}

// What queries of verbs would say of it, and checks of posted requests look at.
void describe_sizes(const Capabilities &caps, Qp &qp) {
  qp.cap_max_send_wr = qp.sq_wqebbs;
  qp.cap_max_send_sge = qp.sq_wqebbs != 0 ? caps.max_sge : 0;
}

}  // namespace

Status create_qp(Scope &scope, const Command &c, Qp &qp) {
  if (c.in.size() < create_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  const Capabilities &caps = scope.caps();
  qp.device = &scope.device;
  if (const Status s = choose_type(scope, context, qp); s != Status::ok) return s;
  if (const Status s = choose_streams(caps, context, qp); s != Status::ok) return s;
  const u32 rq_type = qpc::rq_type.in(context);
  if (rq_type != own_queue && rq_type != shared_queue && rq_type != no_queue)
    return Status::bad_param;
  const bool rings = qp.type != QpType::xrc_tgt;
  if (asks_for_more(scope, context) || (rings && !scope.uar_exists(qpc::uar_page.in(context))))
    return Status::bad_param;
  choose_sizes(context, qp);
  if (qp.sq_wqebbs > caps.max_qp_wr || qp.rq_wqes > caps.max_qp_wr) return Status::bad_param;
  if (const Status s = choose_channel(context, qp); s != Status::ok) return s;
  if (const Status s = find_partners(scope, context, qp); s != Status::ok) return s;
  if (const Status s = use_rings(scope, c, qp); s != Status::ok) return s;
  describe_sizes(caps, qp);
  qp.uidx = qpc::user_index.in(context);
  qp.wqe_signature = qpc::wq_signature.in(context) != 0;
  qp.block_multicast_loopback = qpc::block_multicast.in(context) != 0;
  qp.drain_sigerr = qpc::drain_sigerr.in(context) != 0;
  qp.scatter_to_cqe_requester = qpc::scatter_requester.in(context) != 0;
  qp.scatter_to_cqe_responder = qpc::scatter_responder.in(context) != 0;
  return Status::ok;
}

void query_qp(const Qp &qp, std::span<const u8> created, Command &c) {
  std::array<u8, qp_context_bytes> context{};
  std::copy(created.begin(), created.end(), context.begin());
  describe_qp(qp, context.data());
  fill(c, context_at, context);
}

}  // namespace softhca::firmware
