// What the device and its ports say about themselves.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>

#include "config/identity.h"
#include "firmware/hca_caps.h"
#include "model/tag_matching.h"
#include "uverbs/dispatch.h"
#include "uverbs/uverbs_limits.h"

namespace softhca::uverbs {

namespace {

constexpr u32 mellanox_oui = 0x02c9;
constexpr u32 clock_khz = 1'000'000;  // the device counts nanoseconds

// Only what behaves: no P_Key / Q_Key counters.
u32 device_cap_flags(const Capabilities &caps) {
  u32 f = IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT | IB_UVERBS_DEVICE_SYS_IMAGE_GUID |
          IB_UVERBS_DEVICE_RC_RNR_NAK_GEN;
  if (caps.path_migration) f |= IB_UVERBS_DEVICE_AUTO_PATH_MIG;
  if (caps.xrc) f |= IB_UVERBS_DEVICE_XRC;
  if (caps.memory_windows) f |= IB_UVERBS_DEVICE_MEM_WINDOW | IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B;
  if (caps.umr) f |= IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS;
  if (caps.raw_ethernet) f |= IB_UVERBS_DEVICE_RAW_IP_CSUM | IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING;
  return f;
}

ib_uverbs_query_device_resp describe_device(const Device &device) {
  const Capabilities &caps = device.caps;
  const ModelIdentity &model = model_identity(device.config->model);
  u16 pkeys = 0;
  for (const PortConfig &p : device.config->ports)
    pkeys = std::max(pkeys, static_cast<u16>(pkey_table_size(p.link)));

  ib_uverbs_query_device_resp r{};
  r.fw_ver = u64{model.fw_major} << 32 | u64{model.fw_minor} << 16 | model.fw_sub;
  r.node_guid = swap64(node_guid(config(), device.number));
  r.sys_image_guid = r.node_guid;
  r.max_mr_size = ~u64{0};
  r.page_size_cap = ~u64{page_size - 1};
  r.vendor_id = mellanox_oui;
  r.vendor_part_id = caps.vendor_part_id;
  r.max_qp = caps.max_qp;
  r.max_qp_wr = caps.max_qp_wr;
  r.device_cap_flags = device_cap_flags(caps);
  r.max_sge = caps.max_sge;
  r.max_sge_rd = caps.max_sge_rd;
  r.max_cq = caps.max_cq;
  r.max_cqe = caps.max_cqe;
  r.max_mr = caps.max_mr;
  r.max_pd = caps.max_pd;
  r.max_qp_rd_atom = caps.max_rd_atomic;
  r.max_qp_init_rd_atom = caps.max_rd_atomic;
  r.max_res_rd_atom = caps.max_rd_atomic * caps.max_qp;
  r.atomic_cap = caps.atomics ? 1 : 0;  // IB_ATOMIC_HCA
  r.max_mw = caps.memory_windows ? caps.max_mw : 0;
  r.max_mcast_grp = caps.max_mcast_group;
  r.max_mcast_qp_attach = caps.max_mcast_attach;
  r.max_total_mcast_qp_attach = caps.max_mcast_group * caps.max_mcast_attach;
  r.max_ah = 0x7fffffff;
  r.max_srq = caps.max_srq;
  r.max_srq_wr = caps.max_srq_wr;
  r.max_srq_sge = caps.max_srq_sge;
  r.max_pkeys = pkeys;
  r.local_ca_ack_delay = 16;
  r.phys_port_cnt = static_cast<u8>(device.port_count());
  return r;
}

constexpr u32 raw_packet_qpt = 1u << IB_UVERBS_QPT_RAW_PACKET;

void describe_ethernet(const Capabilities &caps, ib_uverbs_ex_query_device_resp &r) {
  if (!caps.raw_ethernet) return;
  r.device_cap_flags_ex |=
      IB_UVERBS_DEVICE_RAW_SCATTER_FCS | IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING;
  r.rss_caps.supported_qpts = raw_packet_qpt;
  r.rss_caps.max_rwq_indirection_tables = caps.max_indirection_tables;
  r.rss_caps.max_rwq_indirection_table_size = caps.max_indirection_entries;
  r.max_wq_type_rq = caps.max_rq;
  r.raw_packet_caps = IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING |
                      IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS | IB_UVERBS_RAW_PACKET_CAP_IP_CSUM;
}

void describe_ethernet(const Capabilities &caps, mlx5_ib_query_device_resp &r) {
  if (caps.tso) {
    r.tso_caps.max_tso = caps.max_tso;
    r.tso_caps.supported_qpts = raw_packet_qpt;
  }
  if (caps.multi_packet_send)
    r.mlx5_ib_support_multi_pkt_send_wqes = MLX5_IB_ALLOW_MPW | MLX5_IB_SUPPORT_EMPW;
  if (caps.raw_ethernet) {
    r.rss_caps.rx_hash_fields_mask = supported_hash_fields;
    r.rss_caps.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
    r.tunnel_offloads_caps = MLX5_IB_TUNNELED_OFFLOADS_VXLAN;
  }
  if (caps.packet_pacing) {
    r.packet_pacing_caps.qp_rate_limit_min = caps.min_rate_kbps;
    r.packet_pacing_caps.qp_rate_limit_max = caps.max_rate_kbps;
    r.packet_pacing_caps.supported_qpts = raw_packet_qpt;
    r.packet_pacing_caps.cap_flags = MLX5_IB_PP_SUPPORT_BURST;
  }
  if (caps.striding_rq)
    r.striding_rq_caps = {min_log_stride_bytes, max_log_stride_bytes, min_log_strides,
                          max_log_strides,      raw_packet_qpt,       0};
}

mlx5_ib_query_device_resp describe_driver(const Capabilities &caps) {
  mlx5_ib_query_device_resp r{};
  if (caps.cqe_compression) {
    r.cqe_comp_caps.max_num = 64;
    r.cqe_comp_caps.supported_format = MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM |
                                       MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX;
  }
  if (caps.cqe_128_compression) r.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP;
  // Padding of 128-byte CQEs is a matter of the bus, invisible to software.
  r.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD;
  if (caps.dci_streams) r.dci_streams_caps = {caps.log_max_streams, caps.log_max_errored_streams};
  if (caps.dc) r.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT;
  describe_ethernet(caps, r);
  return r;
}

int query_device(File &file, Attrs &attrs) {
  ib_uverbs_query_device req{};
  if (const int error = request(attrs, req); error != 0) return error;
  return respond(attrs, describe_device(file.device()));
}

int query_device_ex(File &file, Attrs &attrs) {
  ib_uverbs_ex_query_device req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.comp_mask != 0 || req.reserved != 0) return EINVAL;
  // mlx5_ib_query_device: no input, and room for at least the two words that
  // say what the rest is.
  constexpr u32 driver_minimum = SOFTHCA_END_OF(mlx5_ib_query_device_resp, response_length);
  const u32 room = driver_response_room(attrs);
  if (!attrs.cleared_from(UVERBS_ATTR_UHW_IN, 0) || (room != 0 && room < driver_minimum))
    return EINVAL;

  const Capabilities &caps = file.caps();
  ib_uverbs_ex_query_device_resp r{};
  r.base = describe_device(file.device());
  r.response_length = response_length(attrs, sizeof r);
  if (caps.odp) {
    const u32 atomic = caps.atomics ? firmware::odp_atomic : 0u;
    r.odp_caps.general_caps = 3;  // explicit and implicit
    r.odp_caps.per_transport_caps.rc_odp_caps = firmware::odp_connected | atomic;
    r.odp_caps.per_transport_caps.ud_odp_caps = firmware::odp_datagram;
    if (caps.xrc) r.xrc_odp_caps = firmware::odp_connected | atomic;
  }
  if (caps.timestamps) {
    r.timestamp_mask = ~u64{0} >> 1;
    r.hca_core_clock = clock_khz;
  }
  r.device_cap_flags_ex = r.base.device_cap_flags;
  describe_ethernet(caps, r);
  if (caps.tag_matching) {
    constexpr u32 reliable_connections = 1;  // IB_TM_CAP_RNDV_RC
    r.tm_caps = {max_rendezvous_header,
                 (1u << caps.log_max_tags) - 1,
                 reliable_connections,
                 caps.max_qp_wr,
                 1,
                 0};
  }
  if (caps.cq_moderation) {
    r.cq_moderation_caps.max_cq_moderation_count = 65535;
    r.cq_moderation_caps.max_cq_moderation_period = max_moderation_period;
  }
  r.max_dm_size = caps.max_dm_bytes;
  if (const int error = respond(attrs, r); error != 0) return error;

  mlx5_ib_query_device_resp driver = describe_driver(caps);
  driver.response_length = std::min<u32>(room, sizeof driver);
  return driver_respond(attrs, driver);
}

// mlx5dv_query_port. What it reports is about the ports of an embedded switch.
int query_switch_port(File &file, Attrs &attrs) {
  if (!file.valid_port(attrs.value<u32>(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM))) return EINVAL;
  return attrs.out(MLX5_IB_ATTR_QUERY_PORT, mlx5_ib_uapi_query_port{});
}

u8 mtu_code(u32 bytes) {  // enum ib_mtu
  u8 code = 1;
  while (code < 5 && (256u << (code - 1)) < bytes) ++code;
  return code;
}

ib_uverbs_query_port_resp describe_port(const Device &device, u32 number) {
  const PortConfig &port = device.port(number);
  const bool ethernet = device.ethernet(number);
  ib_uverbs_query_port_resp r{};
  r.port_cap_flags = port_cap_mask(port.link);
  r.max_msg_sz = device.caps.max_message_bytes;
  r.gid_tbl_len = gid_table_size(port.link);
  r.pkey_tbl_len = static_cast<u16>(pkey_table_size(port.link));
  r.lid = ethernet ? 0 : port.lid;
  r.sm_lid = ethernet ? u16{0} : subnet_manager_lid;
  r.state = device.up(number) ? 4 : 1;       // IB_PORT_ACTIVE, IB_PORT_DOWN
  r.phys_state = device.up(number) ? 5 : 3;  // LinkUp, Disabled
  r.max_mtu = mtu_code(4096);
  r.active_mtu = mtu_code(port.active_mtu);
  r.max_vl_num = ethernet ? 0 : 4;
  r.subnet_timeout = ethernet ? 0 : 18;
  r.active_width = active_width_4x;
  r.active_speed = active_speed_edr;
  r.link_layer = ethernet ? 2 : 1;  // IB_LINK_LAYER_ETHERNET, _INFINIBAND
  if (ethernet) r.flags = IB_UVERBS_QPF_GRH_REQUIRED;
  return r;
}

int query_port(File &file, Attrs &attrs) {
  u64 number = 0;
  attrs.constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, number);
  if (!file.valid_port(number)) return EINVAL;
  ib_uverbs_query_port_resp_ex r{};
  r.legacy_resp = describe_port(file.device(), static_cast<u32>(number));
  return attrs.out(UVERBS_ATTR_QUERY_PORT_RESP, r);
}

int query_port_write(File &file, Attrs &attrs) {
  ib_uverbs_query_port req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (!file.valid_port(req.port_num)) return EINVAL;
  return respond(attrs, describe_port(file.device(), req.port_num));
}

ib_uverbs_gid_entry describe_gid(const GidEntry &gid, u32 port, u32 index) {
  ib_uverbs_gid_entry e{};
  std::memcpy(e.gid, gid.gid.data(), sizeof e.gid);
  e.gid_index = index;
  e.port_num = port;
  e.gid_type = static_cast<u32>(gid.type);
  return e;
}

int query_gid_entry(File &file, Attrs &attrs) {
  u64 port = 0, index = 0;
  u32 flags = 0;
  attrs.constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port);
  attrs.constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index);
  if (const int error = attrs.flags(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0, flags); error != 0)
    return error;
  if (!file.valid_port(port)) return EINVAL;
  const Device &device = file.device();
  if (index >= gid_table_size(device.port(static_cast<u32>(port)).link)) return EINVAL;
  const std::vector<GidEntry> &table = device.gids[port - 1];
  if (index >= table.size() || !table[index].valid) return ENODATA;
  return attrs.out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                   describe_gid(table[index], static_cast<u32>(port), static_cast<u32>(index)));
}

int query_gid_table(File &file, Attrs &attrs) {
  u64 entry_size = 0;
  u32 flags = 0;
  attrs.constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, entry_size);
  if (const int error = attrs.flags(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0, flags); error != 0)
    return error;
  const u32 bytes = attrs.length(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  if (entry_size == 0 || bytes % entry_size != 0 || bytes / entry_size == 0) return EINVAL;
  const u64 room = bytes / entry_size;

  std::vector<u8> entries;
  u64 count = 0;
  const Device &device = file.device();
  for (u32 port = 1; port <= device.port_count(); ++port) {
    const std::vector<GidEntry> &table = device.gids[port - 1];
    for (u32 i = 0; i < table.size(); ++i) {
      if (!table[i].valid) continue;
      if (++count > room) return EINVAL;
      const ib_uverbs_gid_entry e = describe_gid(table[i], port, i);
      entries.resize(count * entry_size);
      std::memcpy(entries.data() + (count - 1) * entry_size, &e,
                  std::min<u64>(entry_size, sizeof e));
    }
  }
  if (const int error = attrs.write(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries.data(),
                                    static_cast<u32>(entries.size()));
      error != 0)
    return error;
  return attrs.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
}

constexpr AttrSpec port_specs[] = {
    constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM),
    out_struct<ib_uverbs_query_port_resp_ex>(
        UVERBS_ATTR_QUERY_PORT_RESP, SOFTHCA_END_OF(ib_uverbs_query_port_resp_ex, reserved)),
};
constexpr AttrSpec switch_port_specs[] = {
    in<u32>(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM),
    out_struct<mlx5_ib_uapi_query_port>(MLX5_IB_ATTR_QUERY_PORT,
                                        SOFTHCA_END_OF(mlx5_ib_uapi_query_port, reg_c0)),
};
constexpr AttrSpec gid_entry_specs[] = {
    constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
    constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX),
    flags(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS),
    out_struct<ib_uverbs_gid_entry>(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                                    SOFTHCA_END_OF(ib_uverbs_gid_entry, netdev_ifindex)),
};
constexpr AttrSpec gid_table_specs[] = {
    constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE),
    flags(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS),
    out_bytes(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 0),
    out<u64>(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES),
};

constexpr Method methods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "DEVICE/QUERY_PORT", query_port, port_specs},
    {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, "DEVICE/MLX5_QUERY_PORT", query_switch_port,
     switch_port_specs},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, "DEVICE/QUERY_GID_ENTRY", query_gid_entry,
     gid_entry_specs},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, "DEVICE/QUERY_GID_TABLE", query_gid_table,
     gid_table_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_QUERY_DEVICE, "WRITE/QUERY_DEVICE", sizeof(ib_uverbs_query_device),
     sizeof(ib_uverbs_query_device_resp), query_device},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, "WRITE/EX_QUERY_DEVICE",
     SOFTHCA_END_OF(ib_uverbs_ex_query_device, reserved),
     SOFTHCA_END_OF(ib_uverbs_ex_query_device_resp, response_length), query_device_ex},
    {IB_USER_VERBS_CMD_QUERY_PORT, "WRITE/QUERY_PORT", sizeof(ib_uverbs_query_port),
     sizeof(ib_uverbs_query_port_resp), query_port_write},
};

}  // namespace

constinit const Family device_family = {methods, commands};

}  // namespace softhca::uverbs
