// Reading a QP back (core/uverbs_cmd.c ib_uverbs_query_qp, mlx5_ib_query_qp).
#include <rdma/ib_user_verbs.h>

#include <algorithm>

#include "uverbs/address.h"
#include "uverbs/dispatch.h"
#include "uverbs/qp_masks.h"

namespace softhca::uverbs {

namespace {

void write_route(const AddressVector &from, ib_uverbs_qp_dest &to) {
  std::copy(std::begin(from.dgid), std::end(from.dgid), to.dgid);
  to.flow_label = from.flow_label;
  to.dlid = from.dlid;
  to.sgid_index = from.sgid_index;
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port;
}

// Sizes of the send queue are known to the library only.
void write_sizes(const Qp &qp, ib_uverbs_query_qp_resp &r) {
  r.max_recv_wr = qp.rq_wqes;
  r.max_recv_sge = qp.rq_wqes == 0 ? 0 : qp.rq_stride / wqe_ds - (qp.wqe_signature ? 1 : 0);
  r.sq_sig_all = qp.sq_signal_all;
}

// What firmware returns does not depend on the mask. Depths come back as
// powers of two, so never as 0; PSNs are the next ones on the wire.
ib_uverbs_query_qp_resp describe(const Qp &qp) {
  const QpAttributes &a = qp.attr;
  ib_uverbs_query_qp_resp r{};
  r.qp_state = r.cur_qp_state = static_cast<u8>(qp.state);
  write_sizes(qp, r);
  // Behind a raw packet QP there are two queues that know their state only.
  if (qp.type == QpType::raw_packet) {
    r.port_num = 1;
    return r;
  }
  r.path_mtu = a.path_mtu;
  r.path_mig_state = static_cast<u8>(a.path_state);
  r.qkey = a.qkey;
  r.rq_psn = qp_live_rq_psn(qp);
  r.sq_psn = qp_live_sq_psn(qp);
  r.dest_qp_num = a.dest_qpn;
  r.qp_access_flags = a.access;
  if (has_route(qp.type)) {
    write_route(a.av, r.dest);
    // The port is that of INIT. On Ethernet nothing is kept of a path in InfiniBand's terms.
    r.dest.port_num = a.port;
    if (a.port != 0 && qp.device->ethernet(a.port)) {
      r.dest.dlid = 0;
      r.dest.sl = r.dest.src_path_bits = 0;
      r.dest.is_global = 1;
    }
    write_route(a.alt_av, r.alt_dest);
    r.alt_pkey_index = a.alt_pkey_index;
    r.alt_port_num = a.alt_port;
    r.alt_timeout = a.alt_timeout;
  }
  r.pkey_index = a.pkey_index;
  r.port_num = a.port;
  r.max_rd_atomic = std::max<u8>(a.max_rd_atomic, 1);
  r.max_dest_rd_atomic = std::max<u8>(a.max_dest_rd_atomic, 1);
  r.min_rnr_timer = a.min_rnr_timer;
  r.timeout = a.timeout;
  r.retry_cnt = a.retry_count;
  r.rnr_retry = a.rnr_retry;
  return r;
}

// Only what was asked for. The driver has no flag for the route of a DCT, without which the
// kernel does not copy it.
int describe_dct(const Qp &qp, u32 mask, ib_uverbs_query_qp_resp &r) {
  constexpr u32 known =
      mask_state | mask_access | mask_port | mask_rnr_timer | mask_av | mask_mtu | mask_pkey;
  if ((mask & ~known) != 0 || qp.state != QpState::rtr) return EINVAL;
  const QpAttributes &a = qp.attr;
  if ((mask & mask_state) != 0) r.qp_state = static_cast<u8>(qp.state);
  if ((mask & mask_access) != 0) r.qp_access_flags = a.access;
  if ((mask & mask_port) != 0) r.port_num = a.port;
  if ((mask & mask_rnr_timer) != 0) r.min_rnr_timer = a.min_rnr_timer;
  if ((mask & mask_mtu) != 0) r.path_mtu = a.path_mtu;
  if ((mask & mask_pkey) != 0) r.pkey_index = a.pkey_index;
  return 0;
}

int query_qp(File &file, Attrs &attrs) {
  ib_uverbs_query_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  int error = 0;
  const QpObject *object = file.objects.get<QpObject>(req.qp_handle, error);
  if (object == nullptr) return error;
  if (object->table) return ENOSYS;
  ib_uverbs_query_qp_resp resp{};
  if (object->qp->type == QpType::dct) error = describe_dct(*object->qp, req.attr_mask, resp);
  else resp = describe(*object->qp);
  return error != 0 ? error : respond(attrs, resp);
}

constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_QUERY_QP, "WRITE/QUERY_QP", sizeof(ib_uverbs_query_qp),
     sizeof(ib_uverbs_query_qp_resp), query_qp},
};

}  // namespace

constinit const Family qp_query_family = {{}, commands};

}  // namespace softhca::uverbs
