// Creating and destroying QPs: core/uverbs_std_types_qp.c, then the chain of
// checks of mlx5_ib_create_qp in its order.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <optional>

#include "engine/doorbells.h"
#include "uverbs/dispatch.h"
#include "uverbs/privilege.h"
#include "uverbs/queue.h"
#include "uverbs/rwq.h"
#include "uverbs/tis.h"

namespace softhca::uverbs {

namespace {

constexpr u32 no_bfreg = 1u << 31;  // bfreg_index of QPs on dynamic UARs
constexpr u32 scatter_flags = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;
constexpr u32 dc_flags = MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT;

// Everything that one creation is about.
struct Request {
  u64 type = 0;  // enum ib_uverbs_qp_type
  QpType kind = QpType::rc;
  u64 user_handle = 0;
  ib_uverbs_qp_cap cap{};
  u32 flags = 0;
  u32 channel = 0;  // cross_channel_flags
  mlx5_ib_create_qp driver{};
  PdObject *pd = nullptr;
  XrcdObject *xrcd = nullptr;
  CqObject *send_cq = nullptr, *recv_cq = nullptr;
  SrqObject *srq = nullptr;
  IndTableObject *table = nullptr;  // RSS: no queues of its own
  std::unique_ptr<EthQp> eth;       // raw packet

  bool has_rq() const {
    return table == nullptr && kind != QpType::xrc_ini && kind != QpType::xrc_tgt &&
           kind != QpType::dct && srq == nullptr && cap.max_recv_wr != 0;
  }
};

// The part of the handler above the driver: which objects belong to the type.
int read_objects(Attrs &attrs, Request &r) {
  r.pd = attrs.object<PdObject>(UVERBS_ATTR_CREATE_QP_PD_HANDLE);
  r.xrcd = attrs.object<XrcdObject>(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE);
  r.send_cq = attrs.object<CqObject>(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
  r.recv_cq = attrs.object<CqObject>(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
  r.srq = attrs.object<SrqObject>(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
  r.table = attrs.object<IndTableObject>(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE);
  switch (r.type) {
    case IB_UVERBS_QPT_XRC_TGT:
      if (r.pd != nullptr || r.send_cq != nullptr || r.recv_cq != nullptr) return EINVAL;
      return r.xrcd == nullptr ? ENOENT : 0;
    case IB_UVERBS_QPT_RAW_PACKET:
      if (!has_capability(CAP_NET_RAW)) return EPERM;
      break;
    case IB_UVERBS_QPT_RC:
    case IB_UVERBS_QPT_UC:
    case IB_UVERBS_QPT_UD:
    case IB_UVERBS_QPT_XRC_INI:
    case IB_UVERBS_QPT_DRIVER: break;
    default: return EINVAL;
  }
  if (r.table != nullptr) {
    if (r.type != IB_UVERBS_QPT_RAW_PACKET || r.cap.max_recv_wr != 0 || r.cap.max_recv_sge != 0 ||
        r.recv_cq != nullptr || r.srq != nullptr || r.xrcd != nullptr)
      return EINVAL;
    return r.pd == nullptr ? ENOENT : 0;
  }
  if (r.xrcd != nullptr || (r.srq != nullptr && r.type == IB_UVERBS_QPT_XRC_INI)) return EINVAL;
  if (r.pd == nullptr || r.send_cq == nullptr) return ENOENT;
  if (r.type == IB_UVERBS_QPT_XRC_INI) r.recv_cq = nullptr;
  else if (r.recv_cq == nullptr) return ENOENT;
  return 0;
}

int read_flags(Attrs &attrs, Request &r) {
  constexpr u32 allowed = IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK |
                          IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING |
                          IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
                          IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  if (const int error = attrs.flags(UVERBS_ATTR_CREATE_QP_FLAGS, allowed, r.flags); error != 0)
    return error;
  const u32 special = r.flags & ~u32{IB_UVERBS_QP_CREATE_SQ_SIG_ALL};
  if (special == 0 || r.type == IB_UVERBS_QPT_DRIVER) return 0;
  return r.type == IB_UVERBS_QPT_RAW_PACKET || r.type == IB_UVERBS_QPT_UD ? 0 : EINVAL;
}

int check_srq_type(const Request &r) {
  if (r.srq == nullptr) return 0;
  const bool xrc = r.srq->srq.type == SrqType::xrc;
  if (r.srq->srq.tags && r.type != IB_UVERBS_QPT_RC) return EINVAL;
  return xrc == (r.type == IB_UVERBS_QPT_XRC_TGT) ? 0 : EINVAL;
}

// Driver step 1: the kind of QP (check_qp_type).
int choose_kind(const Capabilities &caps, Request &r) {
  const u32 dc = r.driver.flags & dc_flags;
  switch (r.type) {
    case IB_UVERBS_QPT_RC: r.kind = QpType::rc; break;
    case IB_UVERBS_QPT_UC: r.kind = QpType::uc; break;
    case IB_UVERBS_QPT_UD: r.kind = QpType::ud; break;
    case IB_UVERBS_QPT_XRC_INI: r.kind = QpType::xrc_ini; break;
    case IB_UVERBS_QPT_XRC_TGT: r.kind = QpType::xrc_tgt; break;
    case IB_UVERBS_QPT_RAW_PACKET:
      if (!caps.raw_ethernet) return EOPNOTSUPP;
      r.kind = QpType::raw_packet;
      break;
    default:
      if (!caps.dc) return EOPNOTSUPP;
      if (dc != MLX5_QP_FLAG_TYPE_DCI && dc != MLX5_QP_FLAG_TYPE_DCT) return EINVAL;
      r.kind = dc == MLX5_QP_FLAG_TYPE_DCI ? QpType::dci : QpType::dct;
      return 0;
  }
  if (dc != 0) return EINVAL;
  const bool xrc = r.kind == QpType::xrc_ini || r.kind == QpType::xrc_tgt;
  return xrc && !caps.xrc ? EOPNOTSUPP : 0;
}

bool uses_uar(const Request &r) {
  return r.kind != QpType::dct && r.kind != QpType::xrc_tgt && r.table == nullptr;
}

// Flags and offloads that only raw packet QPs have.
constexpr u32 raw_flags = MLX5_QP_FLAG_TUNNEL_OFFLOADS | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC |
                          MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;

// Padding of writes to whole cache lines is a matter of the bus, which is not
// emulated: it may be asked for and changes nothing.
u32 creation_flags(const Request &r) {
  u32 allowed =
      IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING;
  if (r.kind == QpType::raw_packet)
    allowed |= IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
  return allowed;
}

void choose_offloads(Request &r) {
  r.eth = std::make_unique<EthQp>();
  r.eth->offloads.strip_vlan = (r.flags & IB_UVERBS_QP_CREATE_CVLAN_STRIPPING) != 0;
  r.eth->offloads.scatter_fcs = (r.flags & IB_UVERBS_QP_CREATE_SCATTER_FCS) != 0;
  r.eth->offloads.tunnel = (r.driver.flags & MLX5_QP_FLAG_TUNNEL_OFFLOADS) != 0;
}

int check_streams(const Capabilities &caps, const Request &r) {
  const mlx5_ib_create_qp_dci_streams &s = r.driver.dci_streams;
  if ((r.driver.flags & MLX5_QP_FLAG_DCI_STREAM) == 0)
    return s.log_num_concurent != 0 || s.log_num_errored != 0 ? EINVAL : 0;
  if (!caps.dci_streams || r.kind != QpType::dci) return EINVAL;
  return s.log_num_concurent > caps.log_max_streams ||
                 s.log_num_errored > caps.log_max_errored_streams
             ? EINVAL
             : 0;
}

// A page that was allocated by itself, a register of a thread domain, or the driver's choice:
// with dynamic UARs there is no table of bfregs for these two. A master names what it rings.
int check_uar(const File &file, const Request &r) {
  const mlx5_ib_create_qp &d = r.driver;
  switch (d.flags & (MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX)) {
    case MLX5_QP_FLAG_UAR_PAGE_INDEX: return file.has_uar(d.bfreg_index) ? 0 : EINVAL;
    case MLX5_QP_FLAG_BFREG_INDEX:
      return file.bfregs.in_use() && d.bfreg_index < Bfregs::dynamic ? 0 : EINVAL;
    case 0: return file.bfregs.in_use() && (r.channel & create_master) == 0 ? 0 : EINVAL;
    default: return EINVAL;
  }
}

void take_doorbell(File &file, const Request &r, QpObject &object) {
  const u32 index = r.driver.bfreg_index;
  const bool whole_page = (r.driver.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) != 0;
  const bool chosen = whole_page || (r.driver.flags & MLX5_QP_FLAG_BFREG_INDEX) != 0;
  if (!uses_uar(r)) return;
  if (!chosen) {
    object.bfreg = file.bfregs.take();
    return;
  }
  // The other pages are watched from the opening of the context, or from their allocation, on.
  const u32 page = whole_page ? index : thread_uar_page + index / Bfregs::per_page;
  if (!file.bfregs.in_use() || page < thread_uar_page) return;
  object.thread_uar = file.page(page);
  doorbells_add(object.thread_uar);
}

// Driver steps 3 to 7.
int check_driver_data(const File &file, const Request &r) {
  const u32 known = dc_flags | scatter_flags | MLX5_QP_FLAG_SIGNATURE | MLX5_QP_FLAG_BFREG_INDEX |
                    MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_DCI_STREAM |
                    (r.kind == QpType::raw_packet ? raw_flags : 0);
  const mlx5_ib_create_qp &d = r.driver;
  if ((d.flags & ~known) != 0) return EINVAL;
  // The first version of extended connection establishment is a trigger that
  // drivers without it ignore; reserved bytes and DCI streams are not.
  if (d.reserved != 0) return EINVAL;
  if (const int error = check_streams(file.caps(), r); error != 0) return error;
  if (r.kind != QpType::xrc_tgt)
    if (const int error = check_uidx(d.uidx); error != 0) return error;

  const u32 special = r.flags & ~u32{IB_UVERBS_QP_CREATE_SQ_SIG_ALL};
  if (r.kind == QpType::dct && (special != 0 || r.channel != 0)) return EINVAL;
  if (r.channel != 0 && !file.caps().cross_channel) return EOPNOTSUPP;
  if ((special & ~creation_flags(r)) != 0) return EOPNOTSUPP;

  if (r.kind == QpType::dct && (r.srq == nullptr || r.recv_cq == nullptr)) return EINVAL;
  if (r.kind == QpType::dci && (r.cap.max_recv_wr != 0 || r.cap.max_recv_sge != 0)) return EINVAL;
  return uses_uar(r) ? check_uar(file, r) : 0;
}

constexpr bool power_of_two(u32 n) { return n != 0 && (n & (n - 1)) == 0; }

// Driver step 8 (set_rq_size, set_user_buf_size, and what firmware refuses).
int check_sizes(const Capabilities &caps, const Request &r) {
  const mlx5_ib_create_qp &d = r.driver;
  constexpr u32 min_rq_shift = 4, max_rq_shift = 11;
  if (!uses_uar(r)) return 0;  // no queues of its own: not looked at
  if (r.cap.max_recv_wr > caps.max_qp_wr) return EINVAL;
  if (r.has_rq()) {
    if (!power_of_two(d.rq_wqe_count) || d.rq_wqe_count > caps.max_qp_wr) return EINVAL;
    if (d.rq_wqe_shift < min_rq_shift || d.rq_wqe_shift > max_rq_shift) return EINVAL;
    const bool signature = (d.flags & MLX5_QP_FLAG_SIGNATURE) != 0;
    if (signature && d.rq_wqe_shift == min_rq_shift) return EINVAL;  // no room for data
  } else if (d.rq_wqe_count != 0 || d.rq_wqe_shift != 0) {
    return EINVAL;
  }
  if (d.sq_wqe_count != 0 && (!power_of_two(d.sq_wqe_count) || d.sq_wqe_count > caps.max_qp_wr))
    return EINVAL;
  if (r.kind == QpType::raw_packet && d.sq_wqe_count == 0 && d.rq_wqe_count == 0) return EINVAL;
  if ((r.channel & create_slave_send) != 0 && d.sq_wqe_count == 0) return EINVAL;
  if ((r.channel & create_slave_receive) != 0 && d.rq_wqe_count == 0) return EINVAL;
  return 0;
}

int claim_queues(const Request &r, Qp &qp) {
  const mlx5_ib_create_qp &d = r.driver;
  const u64 rq_bytes = u64{d.rq_wqe_count} << d.rq_wqe_shift;
  const u64 sq_bytes = u64{d.sq_wqe_count} * wqe_bb;
  // The two queues of a raw packet QP are separate objects of the device.
  const bool split = r.kind == QpType::raw_packet;
  const u64 sq_address = split ? d.sq_buf_addr : d.buf_addr + rq_bytes;
  if (const int error = claim_buffer(d.buf_addr, rq_bytes + (split ? 0 : sq_bytes)); error != 0)
    return error;
  if (const int error = claim_buffer(sq_address, sq_bytes); error != 0) return error;
  if (const int error = claim_doorbell(d.db_addr); error != 0) return error;
  qp.dbrec = reinterpret_cast<u32 *>(d.db_addr);
  qp.rq_wqes = d.rq_wqe_count;
  qp.rq_stride = r.has_rq() ? 1u << d.rq_wqe_shift : 0;
  qp.rq = reinterpret_cast<u8 *>(d.buf_addr);
  qp.sq_wqebbs = d.sq_wqe_count;
  qp.sq = reinterpret_cast<u8 *>(sq_address);
  return 0;
}

// Driver step 10: who writes small payloads into completions.
void choose_scatter(const Request &r, Qp &qp) {
  const u32 flags = r.driver.flags;
  if ((flags & MLX5_QP_FLAG_SCATTER_CQE) == 0) return;
  if (r.kind == QpType::rc || r.kind == QpType::uc) qp.scatter_to_cqe_responder = true;
  if (r.kind == QpType::dct) qp.scatter_to_cqe_responder = r.recv_cq->cq.cqe_size == 128;
  if (r.kind == QpType::rc || r.kind == QpType::dci)
    qp.scatter_to_cqe_requester = qp.sq_signal_all || (flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE) != 0;
}

std::unique_ptr<Qp> build(const File &file, Request &r) {
  auto qp = std::make_unique<Qp>();
  qp->device = &file.device();
  qp->type = r.kind;
  qp->pdn = r.pd != nullptr ? r.pd->pdn : 0;
  qp->uidx = r.kind == QpType::xrc_tgt ? unused_uidx : r.driver.uidx;
  qp->user_handle = r.user_handle;
  qp->dc_key = r.kind == QpType::dct ? r.driver.access_key : 0;
  if ((r.driver.flags & MLX5_QP_FLAG_DCI_STREAM) != 0 && r.table == nullptr)
    qp->max_errored_streams = 1u << r.driver.dci_streams.log_num_errored;
  qp->xrcd = r.xrcd != nullptr ? r.xrcd->domain->number : 0;
  qp->cap_max_send_wr = r.cap.max_send_wr;
  qp->cap_max_send_sge = r.cap.max_send_sge;
  qp->cap_max_inline = r.cap.max_inline_data;
  qp->sq_signal_all = (r.flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0;
  qp->master = (r.channel & create_master) != 0;
  qp->slave_send = (r.channel & create_slave_send) != 0;
  qp->slave_receive = (r.channel & create_slave_receive) != 0;
  qp->wqe_signature = (r.driver.flags & MLX5_QP_FLAG_SIGNATURE) != 0;
  qp->block_multicast_loopback = (r.flags & IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK) != 0;
  qp->send_cq = r.send_cq != nullptr ? &r.send_cq->cq : nullptr;
  qp->recv_cq = r.recv_cq != nullptr ? &r.recv_cq->cq : nullptr;
  qp->srq = r.srq != nullptr ? &r.srq->srq : nullptr;
  choose_scatter(r, *qp);
  qp->eth = std::move(r.eth);
  return qp;
}

int reply(Attrs &attrs, const Request &r, const QpObject &object) {
  const Qp &qp = *object.qp;
  mlx5_ib_create_qp_resp driver{};
  if (uses_uar(r))
    driver.bfreg_index = object.bfreg ? Bfregs::as_library_counts(*object.bfreg) : no_bfreg;
  if (object.tis != nullptr && object.file.devx) {
    driver.comp_mask |= MLX5_IB_CREATE_QP_RESP_MASK_TISN | MLX5_IB_CREATE_QP_RESP_MASK_SQN;
    driver.tisn = object.tis->number;
    driver.sqn = qp.qpn;
  }
  if (const int error = driver_respond(attrs, driver); error != 0) return error;
  ib_uverbs_qp_cap cap = r.cap;  // send sizes are the library's own business
  if (!r.has_rq()) cap.max_recv_wr = cap.max_recv_sge = 0;
  if (const int error = attrs.out(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap); error != 0) return error;
  // A DCT gets its number when it reaches RTR, an RSS QP has none.
  const u32 number = r.kind == QpType::dct || r.table != nullptr ? 0 : qp.qpn;
  return attrs.out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number);
}

// RSS QPs have driver data of their own.
int read_rss_request(const File &file, const Attrs &attrs, Request &r) {
  if (!file.caps().raw_ethernet) return EOPNOTSUPP;
  r.kind = QpType::raw_packet;
  r.eth = std::make_unique<EthQp>();
  if (const int error = read_rss(file, attrs, r.table->table, *r.eth); error != 0) return error;
  const bool special = (r.flags & ~u32{IB_UVERBS_QP_CREATE_SQ_SIG_ALL}) != 0;
  return special || r.send_cq != nullptr || r.cap.max_send_wr != 0 ? EINVAL : 0;
}

int read_request(File &file, Attrs &attrs, Request &r) {
  if (const int error = attrs.in(UVERBS_ATTR_CREATE_QP_CAP, r.cap); error != 0) return error;
  r.user_handle = attrs.value<u64>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  attrs.constant(UVERBS_ATTR_CREATE_QP_TYPE, r.type);
  if (const int error = read_objects(attrs, r); error != 0) return error;
  if (const int error = read_flags(attrs, r); error != 0) return error;
  r.channel = file.write_create_flags;
  // Underlay QPs (source_qpn) belong to IPoIB, which is not emulated.
  if (attrs.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN)) return EOPNOTSUPP;
  if (const int error = check_srq_type(r); error != 0) return error;

  if (r.table != nullptr) return read_rss_request(file, attrs, r);
  if (const int error = driver_request(attrs, r.driver, offsetof(mlx5_ib_create_qp, ece_options));
      error != 0)
    return error;
  if (const int error = choose_kind(file.caps(), r); error != 0) return error;
  if (const int error = check_driver_data(file, r); error != 0) return error;
  if (r.kind == QpType::raw_packet) choose_offloads(r);
  return check_sizes(file.caps(), r);
}

int qp_create(File &file, Attrs &attrs) {
  Request r;
  if (const int error = read_request(file, attrs, r); error != 0) return error;
  if (const int error = start_device(); error != 0) return error;
  auto qp = build(file, r);
  if (uses_uar(r))
    if (const int error = claim_queues(r, *qp); error != 0) return error;

  auto object = std::make_unique<QpObject>(file);
  object->qp = qp_register(std::move(qp));
  if (object->qp == nullptr) return ENOMEM;
  object->user_handle = r.user_handle;
  take_doorbell(file, r, *object);
  object->pd.reset(r.pd);
  object->send_cq.reset(r.send_cq);
  object->recv_cq.reset(r.recv_cq);
  object->srq.reset(r.srq);
  object->table.reset(r.table);
  if (r.kind == QpType::raw_packet && object->qp->sq_wqebbs != 0) object->tis = context_tis(file);
  EventChannel *events = async_channel(file, attrs, UVERBS_ATTR_CREATE_QP_EVENT_FD);
  if (r.kind == QpType::xrc_tgt) {
    auto *shared = new SharedQp{object->qp, r.xrcd->domain, 0, 0};
    r.xrcd->domain->targets[object->qp->qpn] = shared;
    object->open_target(shared, r.xrcd, r.user_handle, events);
  } else {
    attach_events(object->qp->async, events);
  }
  if (const int error = reply(attrs, r, *object); error != 0) return error;
  return commit(file, attrs, UVERBS_ATTR_CREATE_QP_HANDLE, std::move(object));
}

int qp_destroy(File &file, Attrs &attrs) {
  auto *object = attrs.object<QpObject>(UVERBS_ATTR_DESTROY_QP_HANDLE);
  if (const int error = object->can_destroy(); error != 0) return error;
  settle(*object);
  ib_uverbs_destroy_qp_resp resp{};
  resp.events_reported = object->end_events();
  file.objects.destroy(object);
  return attrs.out(UVERBS_ATTR_DESTROY_QP_RESP, resp);
}

constexpr AttrSpec create_specs[] = {
    created(UVERBS_ATTR_CREATE_QP_HANDLE),
    object(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, ObjectClass::xrcd).optional(),
    object(UVERBS_ATTR_CREATE_QP_PD_HANDLE, ObjectClass::pd).optional(),
    object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, ObjectClass::srq).optional(),
    object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, ObjectClass::cq).optional(),
    object(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, ObjectClass::cq).optional(),
    object(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, ObjectClass::ind_table).optional(),
    in<u64>(UVERBS_ATTR_CREATE_QP_USER_HANDLE),
    in_struct<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP,
                                SOFTHCA_END_OF(ib_uverbs_qp_cap, max_inline_data)),
    constant(UVERBS_ATTR_CREATE_QP_TYPE),
    flags(UVERBS_ATTR_CREATE_QP_FLAGS),
    in<u32>(UVERBS_ATTR_CREATE_QP_SOURCE_QPN).optional(),
    async_fd(UVERBS_ATTR_CREATE_QP_EVENT_FD),
    out_struct<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_RESP_CAP,
                                 SOFTHCA_END_OF(ib_uverbs_qp_cap, max_inline_data)),
    out<u32>(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_QP_HANDLE, ObjectClass::qp),
    out_struct<ib_uverbs_destroy_qp_resp>(
        UVERBS_ATTR_DESTROY_QP_RESP, SOFTHCA_END_OF(ib_uverbs_destroy_qp_resp, events_reported)),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "QP/CREATE", qp_create, create_specs, true},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, "QP/DESTROY", qp_destroy, destroy_specs},
};

}  // namespace

constinit const Family qp_create_family = {methods, {}};

}  // namespace softhca::uverbs
