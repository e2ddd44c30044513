// CREATE_DCT, QUERY_DCT and ARM_DCT.
#include <algorithm>
#include <array>

#include "base/fields.h"
#include "config/identity.h"
#include "uverbs/address.h"
#include "uverbs/devx_queue.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

constexpr u32 context_at = 16, context_bytes = 64;
// dctc of mlx5_ifc.h, bits; the key in bytes.
constexpr u32 offload = 24, user_index = 40, cqn = 72, atomic_mode = 104, remote_read = 108,
              remote_write = 109, remote_atomic = 110, scatter = 136, rnr_timer = 147, srqn = 168,
              pd = 200, traffic_class = 224, flow_label = 236, mtu = 325, port = 328,
              pkey_index = 336, source_index = 360, hop_limit = 376, violations = 384, dscp = 442;
constexpr u32 key_at = 32;

Status find_partners(const File &file, const u8 *context, DevxQp &o, Qp &qp) {
  qp.pdn = get_field(context, pd, 24);
  const auto domain = file.pds.find(qp.pdn);
  const auto cq = file.cqs.find(get_field(context, cqn, 24));
  const auto srq = file.srqs.find(get_field(context, srqn, 24));
  if (!domain || !cq || !srq) return Status::bad_resource;
  if (srq.thing->type != SrqType::basic) return Status::bad_param;
  o.pd.reset(domain.owner);
  o.recv_cq.reset(cq.owner);
  o.srq.reset(srq.owner);
  qp.recv_cq = cq.thing;
  qp.srq = srq.thing;
  return Status::ok;
}

Status read_attributes(const File &file, const u8 *context, Qp &qp) {
  constexpr u32 largest_mtu = 5;
  QpAttributes &a = qp.attr;
  const Device &device = file.device();
  const u32 number = get_field(context, port, 8), key = get_field(context, pkey_index, 16);
  if (!file.valid_port(number) || key >= pkey_table_size(device.port(number).link))
    return Status::bad_param;
  a.port = a.av.port = static_cast<u8>(number);
  a.pkey_index = static_cast<u16>(key);
  a.path_mtu = static_cast<u8>(get_field(context, mtu, 3));
  if (a.path_mtu == 0 || a.path_mtu > largest_mtu) return Status::bad_param;
  a.min_rnr_timer = static_cast<u8>(get_field(context, rnr_timer, 5));
  if (get_field(context, remote_read, 1) != 0) a.access |= access_remote_read;
  if (get_field(context, remote_write, 1) != 0) a.access |= access_remote_write;
  if (get_field(context, remote_atomic, 1) != 0 && get_field(context, atomic_mode, 4) != 0)
    a.access |= access_remote_atomic;
  a.av.is_global = true;
  a.av.sgid_index = static_cast<u8>(get_field(context, source_index, 8));
  a.av.hop_limit = static_cast<u8>(get_field(context, hop_limit, 8));
  a.av.flow_label = get_field(context, flow_label, 20);
  a.av.traffic_class = static_cast<u8>(get_field(context, traffic_class, 8));
  if (device.ethernet(number) && get_field(context, dscp, 6) != 0)
    a.av.traffic_class = static_cast<u8>(get_field(context, dscp, 6) << 2);
  if (check_address(file, a.av) != 0) return Status::bad_param;
  // The responder's depth is the device's default.
  a.max_dest_rd_atomic = static_cast<u8>(file.caps().max_rd_atomic);
  return Status::ok;
}

Status build(const File &file, const u8 *context, DevxQp &o, Qp &qp) {
  if (!file.caps().dc || get_field(context, offload, 4) != 0) return Status::bad_param;
  qp.device = &file.device();
  qp.type = QpType::dct;
  if (const Status s = find_partners(file, context, o, qp); s != Status::ok) return s;
  qp.uidx = get_field(context, user_index, 24);
  qp.dc_key = load_be64(context + key_at);
  qp.scatter_to_cqe_responder = get_field(context, scatter, 8) != 0 && qp.recv_cq->cqe_size == 128;
  return read_attributes(file, context, qp);
}

// The fields of its context that mean something here.
void describe(const Qp &qp, u8 *context) {
  const QpAttributes &a = qp.attr;
  const auto flag = [&](u32 access) { return (a.access & access) != 0 ? 1u : 0u; };
  set_field(context, user_index, 24, qp.uidx);
  set_field(context, cqn, 24, qp.recv_cq->cqn);
  set_field(context, remote_read, 1, flag(access_remote_read));
  set_field(context, remote_write, 1, flag(access_remote_write));
  set_field(context, remote_atomic, 1, flag(access_remote_atomic));
  set_field(context, rnr_timer, 5, a.min_rnr_timer);
  set_field(context, srqn, 24, qp.srq->srqn);
  set_field(context, pd, 24, qp.pdn);
  set_field(context, traffic_class, 8, a.av.traffic_class);
  set_field(context, flow_label, 20, a.av.flow_label);
  store_be64(context + key_at, qp.dc_key);
  set_field(context, mtu, 3, a.path_mtu);
  set_field(context, port, 8, a.port);
  set_field(context, pkey_index, 16, a.pkey_index);
  set_field(context, source_index, 8, a.av.sgid_index);
  set_field(context, hop_limit, 8, a.av.hop_limit);
  set_field(context, violations, 32, static_cast<u32>(qp.dc_key_violations));
}

}  // namespace

int devx_dct_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < context_at + context_bytes) return reply(attrs, c, Status::bad_input_length);
  auto object = std::make_unique<DevxQp>(file);
  auto qp = std::make_unique<Qp>();
  if (const Status s = build(file, c.in.data() + context_at, *object, *qp); s != Status::ok)
    return reply(attrs, c, s);
  if (const int error = start_device(); error != 0) return error;
  object->qp = qp_register(std::move(qp));
  if (object->qp == nullptr) return reply(attrs, c, Status::no_resources);
  object->qp->async.listener = object.get();
  object->number = object->qp->qpn;
  qp_set_state(*object->qp, QpState::init);
  qp_set_state(*object->qp, QpState::rtr);
  const u32 number = object->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int devx_dct_query(const Attrs &attrs, Command &c, Object *o) {
  const Qp *qp = dct_of(o, c);
  if (qp == nullptr) return EINVAL;
  std::array<u8, context_bytes> context{};
  describe(*qp, context.data());
  if (c.out.size() > context_at)
    std::copy_n(context.begin(), std::min<size_t>(context_bytes, c.out.size() - context_at),
                c.out.begin() + context_at);
  return reply(attrs, c, Status::ok);
}

// The next request with a wrong key is an event, once.
int devx_dct_arm(const Attrs &attrs, Command &c, Object *o) {
  Qp *qp = dct_of(o, c);
  if (qp == nullptr) return EINVAL;
  qp->dc_key_armed = true;
  return reply(attrs, c, Status::ok);
}

}  // namespace softhca::uverbs
