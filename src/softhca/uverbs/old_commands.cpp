// Commands of the write() interface that became methods of their own: what
// libibverbs before release 32 creates and destroys queues with. Each is turned
// into the message that a later library sends.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include <cstring>
#include <vector>

#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

// What is put in by address has to live until run().
class Message {
 public:
  Message(u16 object, u16 method) {
    header_.object_id = object;
    header_.method_id = method;
    header_.driver_id = RDMA_DRIVER_MLX5;
  }

  void constant(u16 id, u64 value) { attrs_.push_back(attr(id, 0, value)); }
  void object(u16 id, u32 handle) { attrs_.push_back(attr(id, 0, handle)); }
  void created(u16 id) { attrs_.push_back(attr(id, 0, 0)); }
  void flags(u16 id, u64 value) { attrs_.push_back(attr(id, sizeof value, value)); }
  template <class T>
  void in(u16 id, const T &value) {
    u64 data = 0;
    if constexpr (sizeof value <= sizeof data) std::memcpy(&data, &value, sizeof value);
    else data = reinterpret_cast<u64>(&value);
    attrs_.push_back(attr(id, sizeof value, data));
  }
  template <class T>
  void out(u16 id, T &value) {
    attrs_.push_back(attr(id, sizeof value, reinterpret_cast<u64>(&value)));
  }

  // With the driver's data of the command, which is the same in both. `made`: the
  // handle that came back.
  int run(File &file, Attrs &command, u32 *made = nullptr) {
    for (const u16 id : {UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT})
      if (const ib_uverbs_attr *given = command.wire(id)) attrs_.push_back(*given);
    header_.num_attrs = static_cast<u16>(attrs_.size());
    header_.length = static_cast<u16>(sizeof header_ + attrs_.size() * sizeof attrs_[0]);
    std::vector<u64> bytes(header_.length / sizeof(u64));
    std::memcpy(bytes.data(), &header_, sizeof header_);
    std::memcpy(bytes.data() + sizeof header_ / sizeof(u64), attrs_.data(),
                attrs_.size() * sizeof attrs_[0]);
    const int error = dispatch(file, reinterpret_cast<ib_uverbs_ioctl_hdr *>(bytes.data()));
    if (error != 0) return error;
    // The first attribute of a creation.
    if (made != nullptr)
      *made = static_cast<u32>(
          reinterpret_cast<ib_uverbs_ioctl_hdr *>(bytes.data())->attrs[0].data_s64);
    return command.mark_written(UVERBS_ATTR_UHW_OUT);
  }

 private:
  static ib_uverbs_attr attr(u16 id, size_t length, u64 data) {
    ib_uverbs_attr a{};
    a.attr_id = id;
    a.len = static_cast<u16>(length);
    a.flags = UVERBS_ATTR_F_MANDATORY;
    a.data = data;
    return a;
  }

  MessageHeader header_{};
  std::vector<ib_uverbs_attr> attrs_;
};

// Kernel: create_qp, of both commands.
int create_qp(File &file, Attrs &attrs, const ib_uverbs_ex_create_qp &req,
              ib_uverbs_create_qp_resp &resp) {
  constexpr u32 with_source = 1 << 10;  // IB_QP_CREATE_SOURCE_QPN
  const u32 channel = req.create_flags & cross_channel_flags;
  const bool target = req.qp_type == IB_UVERBS_QPT_XRC_TGT;
  const bool initiator = req.qp_type == IB_UVERBS_QPT_XRC_INI;
  const bool scales = (req.comp_mask & IB_UVERBS_CREATE_QP_MASK_IND_TABLE) != 0;
  if ((req.comp_mask & ~u32{IB_UVERBS_CREATE_QP_SUP_COMP_MASK}) != 0 || req.reserved != 0)
    return EINVAL;

  Message m(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
  m.created(UVERBS_ATTR_CREATE_QP_HANDLE);
  m.object(target ? UVERBS_ATTR_CREATE_QP_XRCD_HANDLE : UVERBS_ATTR_CREATE_QP_PD_HANDLE,
           req.pd_handle);
  if (scales) m.object(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, req.rwq_ind_tbl_handle);
  if (!target && (!scales || req.max_send_wr != 0))
    m.object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, req.send_cq_handle);
  if (!target && !scales && !initiator)
    m.object(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, req.recv_cq_handle);
  if (!target && !initiator && req.is_srq != 0)
    m.object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, req.srq_handle);

  const ib_uverbs_qp_cap cap{req.max_send_wr, req.max_recv_wr, req.max_send_sge, req.max_recv_sge,
                             req.max_inline_data};
  ib_uverbs_qp_cap granted{};
  m.in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, req.user_handle);
  m.in(UVERBS_ATTR_CREATE_QP_CAP, cap);
  m.constant(UVERBS_ATTR_CREATE_QP_TYPE, req.qp_type);
  m.flags(UVERBS_ATTR_CREATE_QP_FLAGS,
          (req.create_flags & ~(with_source | channel)) |
              (req.sq_sig_all != 0 ? u32{IB_UVERBS_QP_CREATE_SQ_SIG_ALL} : 0));
  if ((req.create_flags & with_source) != 0) m.in(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, req.source_qpn);
  m.out(UVERBS_ATTR_CREATE_QP_RESP_CAP, granted);
  m.out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, resp.qpn);
  file.write_create_flags = channel;
  const int error = m.run(file, attrs, &resp.qp_handle);
  file.write_create_flags = 0;
  resp.max_send_wr = granted.max_send_wr;
  resp.max_recv_wr = granted.max_recv_wr;
  resp.max_send_sge = granted.max_send_sge;
  resp.max_recv_sge = granted.max_recv_sge;
  resp.max_inline_data = granted.max_inline_data;
  return error;
}

int create_qp_plain(File &file, Attrs &attrs) {
  ib_uverbs_create_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  ib_uverbs_ex_create_qp ex{};
  // The same members, without the address of the answer in front.
  std::memcpy(&ex, &req.user_handle, offsetof(ib_uverbs_ex_create_qp, comp_mask));
  ib_uverbs_create_qp_resp resp{};
  const int error = create_qp(file, attrs, ex, resp);
  return error != 0 ? error : respond(attrs, resp);
}
static_assert(offsetof(ib_uverbs_create_qp, driver_data) -
                  offsetof(ib_uverbs_create_qp, user_handle) ==
              offsetof(ib_uverbs_ex_create_qp, comp_mask));

int create_qp_extended(File &file, Attrs &attrs) {
  ib_uverbs_ex_create_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  ib_uverbs_ex_create_qp_resp resp{};
  if (const int error = create_qp(file, attrs, req, resp.base); error != 0) return error;
  resp.response_length = response_length(attrs, sizeof resp);
  return respond(attrs, resp);
}

int destroy_qp(File &file, Attrs &attrs) {
  ib_uverbs_destroy_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  ib_uverbs_destroy_qp_resp resp{};
  Message m(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
  m.object(UVERBS_ATTR_DESTROY_QP_HANDLE, req.qp_handle);
  m.out(UVERBS_ATTR_DESTROY_QP_RESP, resp);
  const int error = m.run(file, attrs);
  return error != 0 ? error : respond(attrs, resp);
}

int create_srq(File &file, Attrs &attrs, const ib_uverbs_create_xsrq &req) {
  Message m(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
  ib_uverbs_create_srq_resp resp{};
  m.created(UVERBS_ATTR_CREATE_SRQ_HANDLE);
  m.object(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, req.pd_handle);
  if (req.srq_type == IB_UVERBS_SRQT_XRC)
    m.object(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, req.xrcd_handle);
  if (req.srq_type != IB_UVERBS_SRQT_BASIC)
    m.object(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, req.cq_handle);
  if (req.srq_type == IB_UVERBS_SRQT_TM)
    m.in(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, req.max_num_tags);
  m.in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, req.user_handle);
  m.in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, req.max_wr);
  m.in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, req.max_sge);
  m.in(UVERBS_ATTR_CREATE_SRQ_LIMIT, req.srq_limit);
  m.constant(UVERBS_ATTR_CREATE_SRQ_TYPE, req.srq_type);
  m.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, resp.max_wr);
  m.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, resp.max_sge);
  m.out(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, resp.srqn);
  const int error = m.run(file, attrs, &resp.srq_handle);
  return error != 0 ? error : respond(attrs, resp);
}

int create_srq_plain(File &file, Attrs &attrs) {
  ib_uverbs_create_srq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  ib_uverbs_create_xsrq x{};
  x.user_handle = req.user_handle;
  x.srq_type = IB_UVERBS_SRQT_BASIC;
  x.pd_handle = req.pd_handle;
  x.max_wr = req.max_wr;
  x.max_sge = req.max_sge;
  x.srq_limit = req.srq_limit;
  return create_srq(file, attrs, x);
}

int create_srq_extended(File &file, Attrs &attrs) {
  ib_uverbs_create_xsrq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  return create_srq(file, attrs, req);
}

int destroy_srq(File &file, Attrs &attrs) {
  ib_uverbs_destroy_srq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  ib_uverbs_destroy_srq_resp resp{};
  Message m(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY);
  m.object(UVERBS_ATTR_DESTROY_SRQ_HANDLE, req.srq_handle);
  m.out(UVERBS_ATTR_DESTROY_SRQ_RESP, resp);
  const int error = m.run(file, attrs);
  return error != 0 ? error : respond(attrs, resp);
}

int create_wq(File &file, Attrs &attrs) {
  ib_uverbs_ex_create_wq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.comp_mask != 0) return EOPNOTSUPP;
  ib_uverbs_ex_create_wq_resp resp{};
  Message m(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE);
  m.created(UVERBS_ATTR_CREATE_WQ_HANDLE);
  m.object(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, req.pd_handle);
  m.object(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, req.cq_handle);
  m.in(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, req.user_handle);
  m.constant(UVERBS_ATTR_CREATE_WQ_TYPE, req.wq_type);
  m.in(UVERBS_ATTR_CREATE_WQ_MAX_WR, req.max_wr);
  m.in(UVERBS_ATTR_CREATE_WQ_MAX_SGE, req.max_sge);
  m.flags(UVERBS_ATTR_CREATE_WQ_FLAGS, req.create_flags);
  m.out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, resp.max_wr);
  m.out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, resp.max_sge);
  m.out(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, resp.wqn);
  if (const int error = m.run(file, attrs, &resp.wq_handle); error != 0) return error;
  resp.response_length = response_length(attrs, sizeof resp);
  return respond(attrs, resp);
}

int destroy_wq(File &file, Attrs &attrs) {
  ib_uverbs_ex_destroy_wq req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.comp_mask != 0) return EOPNOTSUPP;
  ib_uverbs_ex_destroy_wq_resp resp{};
  Message m(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY);
  m.object(UVERBS_ATTR_DESTROY_WQ_HANDLE, req.wq_handle);
  m.out(UVERBS_ATTR_DESTROY_WQ_RESP, resp.events_reported);
  if (const int error = m.run(file, attrs); error != 0) return error;
  resp.response_length = response_length(attrs, sizeof resp);
  return respond(attrs, resp);
}

constexpr u32 extended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_CREATE_QP, "WRITE/CREATE_QP", sizeof(ib_uverbs_create_qp),
     sizeof(ib_uverbs_create_qp_resp), create_qp_plain},
    {extended | IB_USER_VERBS_EX_CMD_CREATE_QP, "WRITE/EX_CREATE_QP",
     offsetof(ib_uverbs_ex_create_qp, comp_mask), SOFTHCA_END_OF(ib_uverbs_ex_create_qp_resp, base),
     create_qp_extended},
    {IB_USER_VERBS_CMD_DESTROY_QP, "WRITE/DESTROY_QP", sizeof(ib_uverbs_destroy_qp),
     sizeof(ib_uverbs_destroy_qp_resp), destroy_qp},
    {IB_USER_VERBS_CMD_CREATE_SRQ, "WRITE/CREATE_SRQ", sizeof(ib_uverbs_create_srq),
     sizeof(ib_uverbs_create_srq_resp), create_srq_plain},
    {IB_USER_VERBS_CMD_CREATE_XSRQ, "WRITE/CREATE_XSRQ", sizeof(ib_uverbs_create_xsrq),
     sizeof(ib_uverbs_create_srq_resp), create_srq_extended},
    {IB_USER_VERBS_CMD_DESTROY_SRQ, "WRITE/DESTROY_SRQ", sizeof(ib_uverbs_destroy_srq),
     sizeof(ib_uverbs_destroy_srq_resp), destroy_srq},
    {extended | IB_USER_VERBS_EX_CMD_CREATE_WQ, "WRITE/EX_CREATE_WQ",
     SOFTHCA_END_OF(ib_uverbs_ex_create_wq, max_sge),
     SOFTHCA_END_OF(ib_uverbs_ex_create_wq_resp, wqn), create_wq},
    {extended | IB_USER_VERBS_EX_CMD_DESTROY_WQ, "WRITE/EX_DESTROY_WQ",
     sizeof(ib_uverbs_ex_destroy_wq), SOFTHCA_END_OF(ib_uverbs_ex_destroy_wq_resp, events_reported),
     destroy_wq},
};

}  // namespace

constinit const Family old_family = {{}, commands};

}  // namespace softhca::uverbs
