// CREATE_DCT and QUERY_DCT.
#include <algorithm>
#include <array>

#include "base/fields.h"
#include "config/identity.h"
#include "firmware/queues.h"

namespace softhca::firmware {

namespace {

constexpr u32 context_at = dct_context_at, context_bytes = dct_context_bytes;
// dctc of mlx5_ifc.h, bits; the key in bytes.
constexpr u32 offload = 24, user_index = 40, cqn = 72, counter_set = 96, atomic_mode = 104,
              remote_read = 108, remote_write = 109, remote_atomic = 110, scatter = 136,
              rnr_timer = 147, srqn = 168, pd = 200, traffic_class = 224, flow_label = 236,
              mtu = 325, port = 328, pkey_index = 336, source_index = 360, hop_limit = 376,
              violations = 384, dscp = 442;
constexpr u32 key_at = 32;

Status find_partners(Scope &scope, const u8 *context, Qp &qp) {
  qp.pdn = get_field(context, pd, 24);
  if (!scope.use_pd(qp.pdn)) return Status::bad_resource;
  qp.recv_cq = scope.use_cq(get_field(context, cqn, 24));
  qp.srq = scope.use_srq(get_field(context, srqn, 24));
  if (qp.recv_cq == nullptr || qp.srq == nullptr) return Status::bad_resource;
  return qp.srq->type == SrqType::basic ? Status::ok : Status::bad_param;
}

Status read_attributes(const Scope &scope, const u8 *context, Qp &qp) {
  constexpr u32 largest_mtu = 5;
  QpAttributes &a = qp.attr;
  const Device &device = scope.device;
  const u32 number = get_field(context, port, 8), key = get_field(context, pkey_index, 16);
  if (number < 1 || number > device.port_count() ||
      key >= pkey_table_size(device.port(number).link))
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
  if (check_route(device, a.av) != 0) return Status::bad_param;
  // The responder's depth is the device's default.
  a.max_dest_rd_atomic = static_cast<u8>(scope.caps().max_rd_atomic);
  return Status::ok;
}

// The fields of its context that mean something here.
void describe(const Qp &qp, u8 *context) {
  const QpAttributes &a = qp.attr;
  const auto flag = [&](u32 access) { return (a.access & access) != 0 ? 1u : 0u; };
  set_field(context, user_index, 24, qp.uidx);
  set_field(context, cqn, 24, qp.recv_cq->cqn);
  if (qp.counters) set_field(context, counter_set, 8, qp.counters->number);
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

Status create_dct(Scope &scope, const Command &c, Qp &qp) {
  if (c.in.size() < context_at + context_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  if (!scope.caps().dc || get_field(context, offload, 4) != 0) return Status::bad_param;
  qp.device = &scope.device;
  qp.type = QpType::dct;
  if (const Status s = find_partners(scope, context, qp); s != Status::ok) return s;
  qp.uidx = get_field(context, user_index, 24);
  qp.counters = scope.find_counters(get_field(context, counter_set, 8));
  qp.dc_key = load_be64(context + key_at);
  qp.scatter_to_cqe_responder = get_field(context, scatter, 8) != 0 && qp.recv_cq->cqe_size == 128;
  return read_attributes(scope, context, qp);
}

void query_dct(const Qp &qp, Command &c) {
  std::array<u8, context_bytes> context{};
  describe(qp, context.data());
  fill(c, context_at, context);
}

}  // namespace softhca::firmware
