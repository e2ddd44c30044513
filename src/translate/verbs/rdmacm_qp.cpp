// A queue pair on a connection identifier, with experimental attributes.
#include <rdma/rdma_cma.h>

#include <cerrno>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "trace/diagnose.h"
#include "translate/queue/front.h"
#include "translate/verbs/cq.h"
#include "translate/verbs/qp.h"
#include "translate/verbs/rdmacm.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::rdma_create_qp_exp;

bool is_datagram(const rdma_cm_id *id) { return id->qp_type == IBV_QPT_UD; }

int destroy_shown(ibv_cq *cq) { return destroy_cq(find_state(cq->context), queue::behind(cq)); }

// The completion queue of one side: the identifier's, or one made for it.
// rdma_destroy_qp() frees it with the queue pair.
struct Side {
  ibv_cq *of_identifier;
  Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel;
  Owned<ibv_cq, destroy_shown> made;

  ibv_cq *cq() const { return made ? made.get() : of_identifier; }

  // Where neither the request nor the identifier names one.
  Result<void> make(rdma_cm_id *id, const ibv_cq *named, std::uint32_t entries) {
    if (named != nullptr || of_identifier != nullptr || entries == 0) return {};
    const KeepErrno keep;
    channel.reset(ibv_create_comp_channel(id->verbs));
    if (!channel) return keep.reason(ENOMEM);
    const auto cq = create_base_cq(find_state(id->verbs), id->verbs, static_cast<int>(entries), id,
                                   channel.get(), 0);
    if (!cq) return cq.failure();
    made.reset(cq.value());
    return {};
  }

  void hand_over(ibv_cq *&cq, ibv_comp_channel *&of_cq) {
    if (!made) return;
    cq = made.release();
    of_cq = channel.release();
  }
};

int destroy(ibv_qp *qp) { return destroy_qp(find_state(qp->context), queue::behind(qp)); }

// The request with what the identifier adds, for the time of the call. In place,
// since older releases have shorter structures: only the caller's masks show which.
class Completed {
 public:
  Completed(const rdma_cm_id &id, ibv_cq *send, ibv_cq *receive, ibv_exp_qp_init_attr &attr)
      : attr_(attr),
        comp_mask_(attr.comp_mask),
        type_(attr.qp_type),
        send_(attr.send_cq),
        receive_(attr.recv_cq),
        srq_(attr.srq),
        pd_(attr.pd) {
    if ((attr.comp_mask & IBV_EXP_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) attr.pd = id.pd;
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_PD;
    if (attr.qp_type == 0) attr.qp_type = id.qp_type;
    if (attr.send_cq == nullptr) attr.send_cq = send;
    if (attr.recv_cq == nullptr) attr.recv_cq = receive;
    if (attr.srq == nullptr) attr.srq = id.srq;
  }
  ~Completed() {
    attr_.comp_mask = comp_mask_;
    attr_.qp_type = type_;
    attr_.send_cq = send_;
    attr_.recv_cq = receive_;
    attr_.srq = srq_;
    attr_.pd = pd_;
  }

 private:
  ibv_exp_qp_init_attr &attr_;
  const std::uint32_t comp_mask_;
  const ibv_qp_type type_;
  ibv_cq *const send_, *const receive_;
  ibv_srq *const srq_;
  ibv_pd *const pd_;
};

Result<void> check(const rdma_cm_id *id, const ibv_exp_qp_init_attr &attr) {
  if (id->verbs == nullptr) return invalid(creating, "id", 0, "not bound to a device yet");
  if (id->qp != nullptr) return invalid(creating, "id", id->qp->qp_num, "has a queue pair already");
  if (attr.recv_cq != nullptr && id->recv_cq != nullptr && attr.recv_cq != id->recv_cq)
    return invalid(creating, "recv_cq", 0, "differs from recv_cq of the identifier");
  if (attr.send_cq != nullptr && id->send_cq != nullptr && attr.send_cq != id->send_cq)
    return invalid(creating, "send_cq", 0, "differs from send_cq of the identifier");
  // The identifier's own domain is hidden inside librdmacm.
  if (id->qp_type == IBV_QPT_XRC_RECV &&
      ((attr.comp_mask & IBV_EXP_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr))
    return invalid(creating, "xrcd", 0, "an XRC target needs an XRC domain");
  return {};
}

// One step as the connection manager wants it: it knows the port, partition and
// keys.
Result<void> move(rdma_cm_id *id, ibv_qp *qp, ibv_qp_state state) {
  ibv_qp_attr modern{};
  modern.qp_state = state;
  int mask = 0;
  if (const auto asked = init_qp_attr(id, &modern, &mask); !asked) return asked;

  // Through the experimental verb, which knows what a DCI takes.
  ibv_exp_qp_attr attr{};
  attr.qp_state = modern.qp_state;
  attr.port_num = modern.port_num;
  attr.pkey_index = modern.pkey_index;
  attr.qkey = modern.qkey;
  attr.qp_access_flags = static_cast<int>(modern.qp_access_flags);
  attr.sq_psn = modern.sq_psn;
  return modify_qp(queue::behind(qp), &attr, static_cast<unsigned>(mask));
}

// As far as librdmacm drives the queue pairs that it makes itself: datagrams are
// ready at once, the others when the connection is.
Result<void> initialise(rdma_cm_id *id, ibv_qp *qp) {
  if (const auto moved = move(id, qp, IBV_QPS_INIT); !moved || !is_datagram(id)) return moved;
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  if (const auto moved = modify_qp(queue::behind(qp), &attr, IBV_EXP_QP_STATE); !moved)
    return moved;
  attr.qp_state = IBV_QPS_RTS;
  return modify_qp(queue::behind(qp), &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN);
}

}  // namespace

Result<void> create_qp_exp(rdma_cm_id *id, ibv_exp_qp_init_attr *attr) {
  if (id == nullptr || attr == nullptr)
    return invalid(creating, "arguments", 0, "must not be null");
  if (const auto checked = check(id, *attr); !checked) return checked;

  const KeepErrno keep;
  Side receive{id->recv_cq, {}, {}}, send{id->send_cq, {}, {}};
  if (const auto made = receive.make(id, attr->recv_cq, attr->cap.max_recv_wr); !made) return made;
  if (const auto made = send.make(id, attr->send_cq, attr->cap.max_send_wr); !made) return made;
  const Completed completed(*id, send.cq(), receive.cq(), *attr);
  const auto created = create_qp(*attached(id->verbs), id->verbs, attr);
  if (!created) return created.failure();
  Owned<ibv_qp, destroy> qp(created.value());
  if (const auto ready = initialise(id, qp.get()); !ready) return ready;

  id->pd = qp->pd;
  id->qp = qp.release();
  receive.hand_over(id->recv_cq, id->recv_cq_channel);
  send.hand_over(id->send_cq, id->send_cq_channel);
  return {};
}

}  // namespace ibvexp::translate
