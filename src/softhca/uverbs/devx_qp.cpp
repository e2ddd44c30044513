// CREATE_QP and QUERY_QP.
#include <algorithm>

#include "engine/doorbells.h"
#include "uverbs/devx_queue.h"
#include "uverbs/qp_context.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

constexpr u32 context_at = 24, umem_offset_at = 256, umem_id_at = 264, create_bytes = 272;

enum Service : u32 { service_rc = 0, service_uc = 1, service_ud = 2, service_dci = 5 };
enum ReceiveQueue : u32 { own_queue = 0, shared_queue = 1, no_queue = 3 };

Status choose_type(const Capabilities &caps, const u8 *context, Qp &qp) {
  switch (qpc::service.in(context)) {
    case service_rc: qp.type = QpType::rc; return Status::ok;
    case service_uc: qp.type = QpType::uc; return Status::ok;
    case service_ud: qp.type = QpType::ud; return Status::ok;
    case service_dci: qp.type = QpType::dci; return caps.dc ? Status::ok : Status::bad_param;
    default: return Status::bad_param;
  }
}

// What would change a queue pair in a way that is not there: real-time stamps, sends without
// doorbell records, cross-channel work requests and the like.
bool asks_for_more(const Capabilities &caps, const u8 *context) {
  constexpr u32 real_time = 2, rendezvous = 1;
  const u32 offload = qpc::offload.in(context);
  return qpc::ts_format.in(context) >= real_time || qpc::send_dbr_mode.in(context) != 0 ||
         qpc::cross_channel.in(context) != 0 || qpc::stateless_offload.in(context) != 0 ||
         qpc::reserved_lkey.in(context) != 0 ||
         (offload != 0 && (offload != rendezvous || !caps.tag_matching)) ||
         (qpc::drain_sigerr.in(context) != 0 && !caps.signature);
}

// The objects that it names, which must be those of the context that asks.
Status find_partners(const File &file, const u8 *context, DevxQp &o, Qp &qp) {
  qp.pdn = qpc::pd.in(context);
  const auto pd = file.pds.find(qp.pdn);
  const auto send = file.cqs.find(qpc::cqn_send.in(context));
  const auto receive = file.cqs.find(qpc::cqn_receive.in(context));
  const bool receives = qp.type != QpType::dci;
  if (!pd || (qp.sq_wqebbs != 0 && !send) || (receives && !receive)) return Status::bad_resource;
  if (receives && qpc::rq_type.in(context) == shared_queue) {
    const auto srq = file.srqs.find(qpc::srqn.in(context));
    if (!srq) return Status::bad_resource;
    if (srq.thing->type == SrqType::xrc || (srq.thing->tags && qp.type != QpType::rc))
      return Status::bad_param;
    qp.srq = srq.thing;
    o.srq.reset(srq.owner);
  }
  o.pd.reset(pd.owner);
  qp.send_cq = send.thing;
  o.send_cq.reset(send.owner);
  qp.recv_cq = receive.thing;
  o.recv_cq.reset(receive.owner);
  return Status::ok;
}

// The receive queue stands in front of the send queue.
Status claim_rings(const File &file, const Command &c, DevxQp &o, Qp &qp) {
  const u8 *context = c.in.data() + context_at;
  const u64 rq_bytes = u64{qp.rq_wqes} * qp.rq_stride, sq_bytes = u64{qp.sq_wqebbs} * wqe_bb;
  const u64 offset =
      load_be64(c.in.data() + umem_offset_at) + u64{qpc::page_offset.in(context)} * 64;
  if (const Status s = claim_umem(file, load_be32(c.in.data() + umem_id_at), offset,
                                  rq_bytes + sq_bytes, UmemUse::read, o.rings, qp.rq);
      s != Status::ok)
    return s;
  qp.sq = qp.rq + rq_bytes;
  return claim_umem_doorbell(file, qpc::dbr_umem.in(context), load_be64(context + qpc::dbr_at),
                             o.record, qp.dbrec);
}

void choose_sizes(const u8 *context, Qp &qp) {
  if (qpc::no_sq.in(context) == 0) qp.sq_wqebbs = 1u << qpc::log_sq_size.in(context);
  if (qp.type == QpType::dci || qpc::rq_type.in(context) != own_queue) return;
  qp.rq_wqes = 1u << qpc::log_rq_size.in(context);
  qp.rq_stride = 16u << qpc::log_rq_stride.in(context);
}

// What queries of verbs would say of it, and checks of posted requests look at.
void describe_sizes(const Capabilities &caps, Qp &qp) {
  qp.cap_max_send_wr = qp.sq_wqebbs;
  qp.cap_max_send_sge = qp.sq_wqebbs != 0 ? caps.max_sge : 0;
}

Status build(const File &file, const Command &c, DevxQp &o, Qp &qp) {
  const u8 *context = c.in.data() + context_at;
  const Capabilities &caps = file.caps();
  qp.device = &file.device();
  if (const Status s = choose_type(caps, context, qp); s != Status::ok) return s;
  const u32 rq_type = qpc::rq_type.in(context);
  if (rq_type != own_queue && rq_type != shared_queue && rq_type != no_queue)
    return Status::bad_param;
  if (asks_for_more(caps, context) || !uar_exists(file, qpc::uar_page.in(context)))
    return Status::bad_param;
  choose_sizes(context, qp);
  if (qp.sq_wqebbs > caps.max_qp_wr || qp.rq_wqes > caps.max_qp_wr) return Status::bad_param;
  if (const Status s = find_partners(file, context, o, qp); s != Status::ok) return s;
  if (const Status s = claim_rings(file, c, o, qp); s != Status::ok) return s;
  describe_sizes(caps, qp);
  qp.uidx = qpc::user_index.in(context);
  qp.wqe_signature = qpc::wq_signature.in(context) != 0;
  qp.block_multicast_loopback = qpc::block_multicast.in(context) != 0;
  qp.drain_sigerr = qpc::drain_sigerr.in(context) != 0;
  qp.scatter_to_cqe_requester = qpc::scatter_requester.in(context) != 0;
  qp.scatter_to_cqe_responder = qpc::scatter_responder.in(context) != 0;
  return Status::ok;
}

}  // namespace

int devx_qp_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < create_bytes) return reply(attrs, c, Status::bad_input_length);
  auto object = std::make_unique<DevxQp>(file);
  auto qp = std::make_unique<Qp>();
  if (const Status s = build(file, c, *object, *qp); s != Status::ok) return reply(attrs, c, s);
  if (const int error = start_device(); error != 0) return error;
  object->qp = qp_register(std::move(qp));
  if (object->qp == nullptr) return reply(attrs, c, Status::no_resources);
  object->qp->async.listener = object.get();
  object->number = object->qp->qpn;
  std::copy_n(c.in.begin() + context_at, qp_context_bytes, object->context.begin());
  if (const u32 page = qpc::uar_page.in(object->context.data());
      file.bfregs.in_use() && page >= thread_uar_page) {
    object->thread_uar = file.page(page);
    doorbells_add(object->thread_uar);
  }
  const u32 number = object->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int devx_qp_query(const Attrs &attrs, Command &c, Object *o) {
  const Qp *qp = qp_of(o, c);
  if (qp == nullptr) return EINVAL;
  std::array<u8, qp_context_bytes> context{};
  if (const auto *own = dynamic_cast<const DevxQp *>(o)) context = own->context;
  describe_qp(*qp, context.data());
  if (c.out.size() > context_at)
    std::copy_n(context.begin(), std::min(context.size(), c.out.size() - context_at),
                c.out.begin() + context_at);
  return reply(attrs, c, Status::ok);
}

}  // namespace softhca::uverbs
