// Queue pair attributes, legacy to modern. No calls. What is refused has been
// refused before: check_bits() knows the rows.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ibvexp::translate {

// Creation flags that libmlx5 takes beside the verbs attributes.
struct ModernQpInit {
  ibv_qp_init_attr_ex attr;
  mlx5dv_qp_init_attr dv;
  bool needs_dv;
  std::uint32_t max_umr_pieces;  // inline, of a key change; 0: none is posted
  bool builders;                 // requests go through libmlx5's builders
  std::uint32_t channel;         // channel_flags that the kernel or the engine sees to

  // Receive-side scaling.
  bool scales() const { return (attr.comp_mask & IBV_QP_INIT_ATTR_RX_HASH) != 0; }
};

// Creation flags of cross-channel: rdma-core has none of them.
inline constexpr std::uint32_t managing_flags = IBV_EXP_QP_CREATE_CROSS_CHANNEL |
                                                IBV_EXP_QP_CREATE_MANAGED_SEND |
                                                IBV_EXP_QP_CREATE_MANAGED_RECV;
inline constexpr std::uint32_t channel_flags =
    managing_flags | IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW | IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW;

// (modern <- exp)
constexpr ibv_qp_type to_modern_type(ibv_qp_type type) {
  switch (int{type}) {
    case IBV_EXP_QPT_DC_INI: return IBV_QPT_DRIVER;
    case IBV_QPT_XRC: return IBV_QPT_XRC_SEND;
    default: return type;
  }
}

// Initiators receive nothing. Programs fill that part in nevertheless, and the
// kernel refuses it; the completion queue it wants.
constexpr void set_type(ModernQpInit &to, ibv_qp_type type) {
  to.attr.qp_type = to_modern_type(type);
  if (to.attr.qp_type != IBV_QPT_DRIVER && to.attr.qp_type != IBV_QPT_XRC_SEND) return;
  to.attr.srq = nullptr;
  to.attr.cap.max_recv_wr = to.attr.cap.max_recv_sge = 0;
  if (to.attr.qp_type != IBV_QPT_DRIVER) return;
  if (to.attr.recv_cq == nullptr) to.attr.recv_cq = to.attr.send_cq;
  to.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
  to.dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  to.needs_dv = true;
}

// (modern <- base) Only the head that structures of all ages share is read.
inline ModernQpInit to_modern(const ibv_qp_init_attr &from, ibv_pd *pd) {
  ModernQpInit to{};
  to.attr.qp_context = from.qp_context;
  to.attr.send_cq = from.send_cq;
  to.attr.recv_cq = from.recv_cq;
  to.attr.srq = from.srq;
  to.attr.cap = from.cap;
  to.attr.sq_sig_all = from.sq_sig_all;
  to.attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  to.attr.pd = pd;
  set_type(to, from.qp_type);
  return to;
}

// (modern <- exp) Not the bits of ibv_qp_create_flags. Left out: ATOMIC_BE_REPLY,
// since replies come in the device's order anyway, and UMR, which is how the queue
// pair is made (verbs/qp_make.h).
constexpr std::uint32_t to_modern_create_flags(std::uint32_t exp_flags) {
  std::uint32_t flags = 0;
  if ((exp_flags & IBV_EXP_QP_CREATE_SCATTER_FCS) != 0) flags |= IBV_QP_CREATE_SCATTER_FCS;
  if ((exp_flags & IBV_EXP_QP_CREATE_RX_END_PADDING) != 0)
    flags |= IBV_QP_CREATE_PCI_WRITE_END_PADDING;
  return flags;
}

// (mlx5dv <- exp)
constexpr std::uint32_t to_dv_create_flags(std::uint32_t exp_flags) {
  std::uint32_t flags = 0;
  if ((exp_flags & IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE) != 0)
    flags |= MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE;
  if ((exp_flags & IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS) != 0)
    flags |= MLX5DV_QP_CREATE_TUNNEL_OFFLOADS;
  return flags;
}

// (modern <- exp)
constexpr ModernQpInit to_modern(const ibv_exp_qp_init_attr &from) {
  ModernQpInit to{};
  ibv_qp_init_attr_ex &attr = to.attr;
  const auto has = [&](ibv_exp_qp_init_attr_comp_mask bit) { return (from.comp_mask & bit) != 0; };

  attr.qp_context = from.qp_context;
  attr.send_cq = from.send_cq;
  attr.recv_cq = from.recv_cq;
  attr.srq = from.srq;
  attr.cap = from.cap;
  attr.sq_sig_all = from.sq_sig_all;

  if (has(IBV_EXP_QP_INIT_ATTR_PD)) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attr.pd = from.pd;
  }
  if (has(IBV_EXP_QP_INIT_ATTR_XRCD)) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = from.xrcd;
  }
  if (has(IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN)) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.create_flags |= IBV_QP_CREATE_SOURCE_QPN;
    attr.source_qpn = from.associated_qpn;
  }

  if (has(IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER) && from.max_tso_header != 0) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    attr.max_tso_header = from.max_tso_header;
  }
  // The table is a member of the hash structure there, of the attributes here,
  // and an object of ours: the caller enters the modern one.
  if (has(IBV_EXP_QP_INIT_ATTR_RX_HASH)) {
    const ibv_exp_rx_hash_conf &hash = *from.rx_hash_conf;
    attr.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
    attr.rx_hash_conf.rx_hash_function = hash.rx_hash_function;
    attr.rx_hash_conf.rx_hash_key_len = hash.rx_hash_key_len;
    attr.rx_hash_conf.rx_hash_key = hash.rx_hash_key;
    attr.rx_hash_conf.rx_hash_fields_mask = hash.rx_hash_fields_mask;
  }

  if (has(IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS)) {
    attr.create_flags |= to_modern_create_flags(from.exp_create_flags);
    if (attr.create_flags != 0) attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    to.dv.create_flags |= to_dv_create_flags(from.exp_create_flags);
    to.channel = from.exp_create_flags & channel_flags;
    if (to.dv.create_flags != 0) {
      to.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
      to.needs_dv = true;
    }
  }
  if (has(IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS)) to.max_umr_pieces = from.max_inl_send_klms;
  set_type(to, from.qp_type);
  return to;
}

// Up to bit 20 the masks of both ages coincide.
inline constexpr std::uint64_t common_qp_mask = (std::uint64_t{IBV_EXP_QP_DEST_QPN} << 1) - 1;

// (modern <- exp)
constexpr int to_modern_qp_mask(std::uint64_t exp_mask) {
  static_assert(int{IBV_EXP_QP_STATE} == IBV_QP_STATE &&
                int{IBV_EXP_QP_DEST_QPN} == IBV_QP_DEST_QPN);
  int mask = static_cast<int>(exp_mask & common_qp_mask);
  if ((exp_mask & IBV_EXP_QP_RATE_LIMIT) != 0) mask |= IBV_QP_RATE_LIMIT;
  return mask;
}

// (modern <- exp) Up to alt_timeout the structures of both ages coincide. mask: what the request is
// about.
inline ibv_qp_attr to_modern(const ibv_exp_qp_attr &from, std::uint64_t mask) {
  static_assert(offsetof(ibv_exp_qp_attr, qp_access_flags) ==
                    offsetof(ibv_qp_attr, qp_access_flags) &&
                offsetof(ibv_exp_qp_attr, alt_ah_attr) == offsetof(ibv_qp_attr, alt_ah_attr) &&
                offsetof(ibv_exp_qp_attr, port_num) == offsetof(ibv_qp_attr, port_num) &&
                offsetof(ibv_exp_qp_attr, alt_timeout) == offsetof(ibv_qp_attr, alt_timeout));
  ibv_qp_attr to{};
  std::memcpy(&to, &from, offsetof(ibv_qp_attr, alt_timeout) + sizeof(from.alt_timeout));
  // The structure of releases up to 3.3 ends before it.
  if ((mask & IBV_EXP_QP_RATE_LIMIT) != 0) to.rate_limit = from.rate_limit;
  return to;
}

// (modern <- exp) The UDP source port by which switches spread the packets of RoCE v2, among the
// ports that the standard sets aside for it.
inline std::uint16_t to_udp_source(std::uint32_t flow_entropy) {
  return ibv_flow_label_to_udp_sport((flow_entropy ^ flow_entropy >> 20) & 0xfffff);
}

// (modern <- exp) Rate and bursts in one request.
inline ibv_qp_rate_limit_attr to_modern_pace(const ibv_exp_qp_attr &from) {
  ibv_qp_rate_limit_attr to{};
  to.rate_limit = from.rate_limit;
  to.max_burst_sz = from.burst_info.max_burst_sz;
  to.typical_pkt_sz = from.burst_info.typical_pkt_sz;
  return to;
}

// (initiator <- any) The kernel insists on exact masks for a DC initiator. It takes
// no access flags, and wants the packet number that a legacy program never gave.
inline void to_initiator(ibv_qp_attr &attr, int &mask) {
  mask &= ~IBV_QP_ACCESS_FLAGS;
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTS && (mask & IBV_QP_TIMEOUT) != 0 &&
      (mask & IBV_QP_SQ_PSN) == 0) {
    mask |= IBV_QP_SQ_PSN;
    attr.sq_psn = 0;
  }
}

// Legacy kernels took the port of INIT, whatever the address said, and programs leave it zero:
// of DC initiators, whose requests name their own addresses, and of connections. The kernel of
// today wants the queue pair's port there.
constexpr bool lacks_port(const ibv_qp_attr &attr, int mask) {
  return (mask & IBV_QP_AV) != 0 && attr.ah_attr.port_num == 0;
}

}  // namespace ibvexp::translate
