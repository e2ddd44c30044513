// Firmware commands from user space (mlx5/devx.c): capabilities, indirect
// memory keys, transport domains, general objects, and what can be asked about a
// DCT.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>

#include "uverbs/context.h"
#include "uverbs/dispatch.h"
#include "uverbs/firmware_command.h"
#include "uverbs/general_object.h"
#include "uverbs/hca_caps.h"
#include "uverbs/psv.h"
#include "uverbs/schedule_object.h"
#include "uverbs/tis.h"

namespace softhca::uverbs {

namespace {

enum Opcode : u16 {
  query_hca_cap = 0x100,
  create_mkey = 0x200,
  rts2rts_qp = 0x505,
  query_qp = 0x50b,
  init2init_qp = 0x50e,
  create_psv = 0x600,
  query_dct = 0x713,
  arm_dct = 0x714,
  nop = 0x80d,
  alloc_transport_domain = 0x816,
  modify_sq = 0x905,
  create_tis = 0x912,
  query_tis = 0x915,
  create_general_object = 0xa00,
  modify_general_object = 0xa01,
};

constexpr u32 mkc_offset = 16, mkc_bytes = 64, actual_octowords_offset = 96;

int other(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, c);
      error != 0)
    return error;
  switch (c.opcode()) {
    case nop: return reply(attrs, c, Status::ok);
    case query_hca_cap: {
      const std::vector<u8> page = hca_caps(file.device(), c.op_mod() >> 1);
      if (page.empty()) return reply(attrs, c, Status::bad_param);
      std::copy_n(page.begin(), std::min(page.size(), c.out.size() - header_bytes),
                  c.out.begin() + header_bytes);
      return reply(attrs, c, Status::ok);
    }
    default: return reply(attrs, c, Status::bad_op);
  }
}

int object_create(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, c);
      error != 0)
    return error;
  if (c.opcode() == create_general_object) return general_object_create(file, attrs, c);
  if (c.opcode() == alloc_transport_domain) return transport_domain_create(file, attrs, c);
  if (c.opcode() == create_tis) return tis_create(file, attrs, c);
  if (c.opcode() == create_psv && file.caps().signature) return psv_create(file, attrs, c);
  if (c.opcode() != create_mkey || !file.caps().umr) return reply(attrs, c, Status::bad_op);
  if (c.in.size() < mkc_offset + mkc_bytes) return EINVAL;
  const u8 *mkc = c.in.data() + mkc_offset;
  const u32 octowords = c.in.size() >= actual_octowords_offset + 4
                            ? load_be32(c.in.data() + actual_octowords_offset)
                            : 0;
  auto object = std::make_unique<DevxMkey>(
      file, create_devx_mkey(process().mkeys, mkc, octowords, file.caps().signature));
  if (!object->key) return reply(attrs, c, Status::bad_param);
  store_be32(c.out.data() + 8, object->key->index);
  if (const int error = reply(attrs, c, Status::ok); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, std::move(object));
}

int object_destroy(File &file, Attrs &attrs) {
  return destroy_settled(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
}

// The DCT that a command is about. The number in it must be that of the
// object whose handle was given (devx_is_valid_obj_id).
Qp *dct_of(Object *o, const Command &c) {
  if (o->object_class != ObjectClass::qp) return nullptr;
  Qp *qp = static_cast<QpObject *>(o)->qp;
  const u32 number = load_be32(c.in.data() + 8) & 0xffffff;
  return qp->type == QpType::dct && qp->state == QpState::rtr && qp->qpn == number ? qp : nullptr;
}

// dct_context of mlx5_ifc.h, the fields that mean something here.
void describe_dct(const Qp &qp, u8 *ctx) {
  const QpAttributes &a = qp.attr;
  store_be32(ctx + 0x04, qp.uidx);
  store_be32(ctx + 0x08, qp.recv_cq->cqn);
  ctx[0x0d] = static_cast<u8>(((a.access & access_remote_read) != 0 ? 8 : 0) |
                              ((a.access & access_remote_write) != 0 ? 4 : 0) |
                              ((a.access & access_remote_atomic) != 0 ? 2 : 0));
  ctx[0x12] = a.min_rnr_timer;
  store_be32(ctx + 0x14, qp.srq->srqn);
  store_be32(ctx + 0x18, qp.pdn);
  store_be32(ctx + 0x1c, u32{a.av.traffic_class} << 24 | a.av.flow_label);
  store_be64(ctx + 0x20, qp.dc_key);
  ctx[0x28] = a.path_mtu;
  ctx[0x29] = a.port;
  store_be16(ctx + 0x2a, a.pkey_index);
  ctx[0x2d] = a.av.sgid_index;
  ctx[0x2f] = a.av.hop_limit;
  store_be32(ctx + 0x30, static_cast<u32>(qp.dc_key_violations));
}

// A queue pair made by verbs, as the command names it.
Qp *qp_of(const Object *o, const Command &c) {
  if (o->object_class != ObjectClass::qp) return nullptr;
  Qp *qp = static_cast<const QpObject *>(o)->qp;
  return (load_be32(c.in.data() + 8) & 0xffffff) == qp->qpn ? qp : nullptr;
}

// QUERY_QP: the state, and how far the send queue has been read.
int qp_query(const Attrs &attrs, Command &c, const Object *o) {
  constexpr u32 state_at = 0x18, sq_counter_at = 0x18 + 0xb4, end = sq_counter_at + 4;
  const Qp *qp = qp_of(o, c);
  if (qp == nullptr || c.out.size() < end) return EINVAL;
  // Of qpc: RST, INIT, RTR, RTS, SQDRAINED, SQER, ERR, in the order of ib_qp_state.
  static constexpr u8 states[] = {0, 1, 2, 3, 5, 4, 6};
  c.out[state_at] = static_cast<u8>(states[static_cast<u32>(qp->state)] << 4);
  store_be16(c.out.data() + sq_counter_at, qp->sq_consumed);
  store_be16(c.out.data() + sq_counter_at + 2,
             static_cast<u16>(qp->dbrec != nullptr ? read_doorbell(&qp->dbrec[1]) : 0));
  return reply(attrs, c, Status::ok);
}

int object_query(File &file, Attrs &attrs) {
  constexpr size_t dct_context_bytes = 64;
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, c);
      error != 0)
    return error;
  if (c.opcode() == query_tis)
    return tis_query(attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE));
  if (c.opcode() == query_qp)
    return qp_query(attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE));
  if (c.opcode() != query_dct) return reply(attrs, c, Status::bad_op);
  const Qp *qp = dct_of(attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE), c);
  if (qp == nullptr) return EINVAL;
  std::array<u8, dct_context_bytes> ctx{};
  describe_dct(*qp, ctx.data());
  std::copy_n(ctx.begin(), std::min(ctx.size(), c.out.size() - header_bytes),
              c.out.begin() + header_bytes);
  return reply(attrs, c, Status::ok);
}

// RTS2RTS_QP: of all that a QP context holds, one of the two below.
constexpr u32 mask_31_at = 0x10, mask_at = 0x108;         // opt_param_mask and opt_param_mask_95_32
constexpr u32 context_at = 0x18, context_ext_at = 0x110;  // qpc and qpc_data_ext

// mlx5dv_modify_qp_udp_sport: the UDP source port of RoCE v2, under which
// switches spread the flows.
Status modify_udp_sport(const Command &c, Qp &qp) {
  constexpr u32 udp_sport_at = context_at + 0x3a;  // primary_address_path.udp_sport
  const bool connected = qp.type == QpType::rc || qp.type == QpType::uc;
  if (!connected || !qp.device->ethernet(std::max<u8>(qp.attr.port, 1))) return Status::bad_param;
  if (qp.state != QpState::rts) return Status::bad_qp_state;
  qp.attr.udp_sport = load_be16(c.in.data() + udp_sport_at);
  return Status::ok;
}

// mlx5dv_dci_stream_id_reset.
Status reset_stream(const Command &c, Qp &qp) {
  if (c.in.size() < context_ext_at + 4 || qp.max_errored_streams == 0) return Status::bad_param;
  if (qp.state != QpState::rts) return Status::bad_qp_state;
  return qp_reset_stream(qp, load_be16(c.in.data() + context_ext_at + 2)) ? Status::ok
                                                                          : Status::bad_resource;
}

// mlx5dv_modify_qp_sched_elem.
Status modify_schedule(const File &file, const Command &c, Qp &qp) {
  if (c.in.size() < context_ext_at + 12 || !qp.device->caps.qp_scheduling) return Status::bad_param;
  std::shared_ptr<ScheduleElement> request, response;
  const u8 *ids = c.in.data() + context_ext_at + 4;
  if (!find_schedule(file, load_be32(ids), request) ||
      !find_schedule(file, load_be32(ids + 4), response))
    return Status::bad_resource;
  qp.request_schedule = std::move(request);
  qp.response_schedule = std::move(response);
  return Status::ok;
}

constexpr u64 stream_bit = 1 << 0, schedule_bit = 1 << 1, udp_sport_bit = 1 << 2;

int modify_rts(const File &file, const Attrs &attrs, Command &c, const Object *o) {
  Qp *const found = qp_of(o, c);
  if (found == nullptr || c.in.size() < mask_at + 8) return EINVAL;
  Qp &qp = *found;
  if (load_be32(c.in.data() + mask_31_at) != 0) return reply(attrs, c, Status::bad_param);
  switch (load_be64(c.in.data() + mask_at)) {
    case stream_bit: return reply(attrs, c, reset_stream(c, qp));
    case schedule_bit:
      return reply(attrs, c,
                   qp.state == QpState::rts ? modify_schedule(file, c, qp) : Status::bad_qp_state);
    case udp_sport_bit: return reply(attrs, c, modify_udp_sport(c, qp));
    default: return reply(attrs, c, Status::bad_param);
  }
}

// MODIFY_SQ: the scheduling element of a raw packet QP, whose send queue has its number.
int modify_send_queue(const File &file, const Attrs &attrs, Command &c, const Object *o) {
  constexpr u32 select_at = 16, group_at = 66, end = 68;
  constexpr u64 select_group = 1 << 2;
  constexpr u8 ready = 1;
  Qp *qp = qp_of(o, c);
  if (qp == nullptr || qp->type != QpType::raw_packet || c.in.size() < end) return EINVAL;
  if (load_be64(c.in.data() + select_at) != select_group || !qp->device->caps.qp_scheduling)
    return reply(attrs, c, Status::bad_param);
  if (qp->state != QpState::rts || c.in[8] >> 4 != ready)
    return reply(attrs, c, Status::bad_qp_state);
  const bool found = find_schedule(file, load_be16(c.in.data() + group_at), qp->request_schedule);
  return reply(attrs, c, found ? Status::ok : Status::bad_resource);
}

// INIT2INIT_QP: the queue pair is to stop at a wrong signature, or gets its scheduling
// elements.
int modify_init(const File &file, const Attrs &attrs, Command &c, const Object *o) {
  constexpr u32 drain_bit = 1 << 11, drain_sigerr = 1u << 26;
  Qp *qp = qp_of(o, c);
  if (qp == nullptr || c.in.size() < context_at + 8) return EINVAL;
  if (qp->state != QpState::init) return reply(attrs, c, Status::bad_qp_state);
  const u32 mask = load_be32(c.in.data() + mask_31_at);
  const u64 mask_ext = c.in.size() >= mask_at + 8 ? load_be64(c.in.data() + mask_at) : 0;
  if (mask == 0 && mask_ext == schedule_bit) return reply(attrs, c, modify_schedule(file, c, *qp));
  if (mask != drain_bit || mask_ext != 0 || !qp->device->caps.signature)
    return reply(attrs, c, Status::bad_param);
  qp->drain_sigerr = (load_be32(c.in.data() + context_at + 4) & drain_sigerr) != 0;
  return reply(attrs, c, Status::ok);
}

int object_modify(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, c);
      error != 0)
    return error;
  if (c.opcode() == modify_general_object)
    return schedule_modify(attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE));
  if (c.opcode() == rts2rts_qp)
    return modify_rts(file, attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE));
  if (c.opcode() == modify_sq)
    return modify_send_queue(file, attrs, c,
                             attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE));
  if (c.opcode() == init2init_qp)
    return modify_init(file, attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE));
  if (c.opcode() != arm_dct) return reply(attrs, c, Status::bad_op);
  if (dct_of(attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE), c) == nullptr)
    return EINVAL;
  // The event goes to subscribers of DCTs made by firmware command only, of
  // which there are none.
  return reply(attrs, c, Status::ok);
}

int query_eqn(File &file, Attrs &attrs) {
  u32 vector = 0;
  if (const int error = attrs.in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector); error != 0)
    return error;
  if (vector >= completion_vectors()) return EINVAL;
  constexpr u32 first_completion_queue = 8;  // the low ones are the driver's
  const u32 eqn = first_completion_queue + vector;
  return attrs.out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn);
}

// UARs are dynamic: user and device index are the same.
int query_uar(File &file, Attrs &attrs) {
  u32 index = 0;
  if (const int error = attrs.in(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, index); error != 0)
    return error;
  if (file.uars.count(index) == 0) return EINVAL;
  return attrs.out(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, index);
}

constexpr AttrSpec other_specs[] = {
    in_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, header_bytes),
};
constexpr AttrSpec create_specs[] = {
    created(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, header_bytes),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, ObjectClass::devx_object)};
constexpr AttrSpec modify_specs[] = {
    object(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, ObjectClass::any),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, header_bytes),
};
constexpr AttrSpec query_specs[] = {
    object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, ObjectClass::any),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, header_bytes),
};
constexpr AttrSpec eqn_specs[] = {
    in<u32>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC),
    out<u32>(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN),
};
constexpr AttrSpec uar_specs[] = {
    in<u32>(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX),
    out<u32>(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX),
};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX/OTHER", other, other_specs},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX/QUERY_EQN", query_eqn, eqn_specs},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, "DEVX/QUERY_UAR", query_uar, uar_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_OBJ/CREATE", object_create,
     create_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_OBJ/DESTROY", object_destroy,
     destroy_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_OBJ/MODIFY", object_modify,
     modify_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_OBJ/QUERY", object_query,
     query_specs},
};

}  // namespace

constinit const Family devx_family = {methods, {}};

}  // namespace softhca::uverbs
