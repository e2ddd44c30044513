// The context of a queue pair as commands carry it: qpc and ads of mlx5_ifc.h.
#pragma once

#include "base/fields.h"
#include "model/qp.h"

namespace softhca::firmware {

constexpr u32 qp_context_bytes = 232;

struct QpField {
  u32 offset, width;  // in bits
  u32 in(const u8 *context) const { return get_field(context, offset, width); }
  void put(u8 *context, u32 value) const { set_field(context, offset, width, value); }
};

// The fields of a QP context that mean something here.
namespace qpc {
constexpr QpField state{0, 4}, service{8, 8}, pm_state{19, 2}, offload{24, 4}, wq_signature{32, 1},
    block_multicast{33, 1}, counter_set{96, 8}, drain_sigerr{37, 1}, pd{40, 24}, mtu{64, 3},
    log_msg_max{67, 5}, log_rq_size{73, 4}, log_rq_stride{77, 3}, no_sq{80, 1}, log_sq_size{81, 4},
    ts_format{88, 2}, reserved_lkey{91, 1}, stateless_offload{92, 4}, uar_page{104, 24},
    send_dbr_mode{128, 2}, user_index{136, 24}, log_page_size{163, 5}, remote_qpn{168, 24},
    log_sra_max{904, 3}, retry_count{909, 3}, rnr_retry{912, 3}, next_send_psn{968, 24},
    log_streams{995, 5}, log_errored_streams{1027, 5}, cqn_send{1000, 24}, last_acked_psn{1096, 24},
    log_rra_max{1160, 3}, atomic_mode{1164, 4}, remote_read{1168, 1}, remote_write{1169, 1},
    remote_atomic{1170, 1}, page_offset{1172, 6}, cross_channel{1181, 3}, min_rnr_nak{1187, 5},
    next_receive_psn{1192, 24}, xrcd{1224, 24}, cqn_receive{1256, 24}, q_key{1344, 32},
    rq_type{1381, 3}, srqn{1384, 24}, hw_sq_counter{1440, 16}, sw_sq_counter{1456, 16},
    hw_rq_counter{1472, 32}, sw_rq_counter{1504, 32}, scatter_requester{1584, 8},
    scatter_responder{1592, 8}, dbr_umem_valid{1667, 1}, dbr_umem{1824, 32};
constexpr u32 primary_path_at = 24, secondary_path_at = 68, dbr_at = 160, dc_key_at = 200;  // bytes
// What pm_state says.
constexpr u32 pm_armed = 0, pm_rearm = 1, pm_migrated = 3;
}  // namespace qpc

// And of its address paths.
namespace path {
constexpr QpField pkey_index{16, 16}, grh{40, 1}, source_path{41, 7}, rlid{48, 16},
    ack_timeout{64, 5}, source_index{72, 8}, rate{84, 4}, hop_limit{88, 8}, traffic_class{100, 8},
    flow_label{108, 20}, ecn{264, 2}, dscp{266, 6}, udp_sport{272, 16}, priority{289, 3},
    sl{292, 4}, port{296, 8};
constexpr u32 gid_at = 16;  // bytes
}  // namespace path

// Reads a path of port `port`. Whether it is valid, check_address() says.
AddressVector read_path(const Device &, u8 port, const u8 *path);
// Writes the context of a queue pair: all that the device keeps of it.
void describe_qp(const Qp &, u8 *context);

}  // namespace softhca::firmware
