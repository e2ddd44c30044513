#include "translate/convert/device_convert.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "translate/convert/galois.h"
#include "translate/convert/srq_convert.h"
#include "translate/convert/umr_limits.h"

namespace ibvexp::translate {

namespace {

// (exp <- modern) The head, always filled: it is ibv_device_attr, two of whose members have other
// names. The atomic capabilities have the same numbers; HCA_REPLY_BE has no source.
void fill_head(const ibv_device_attr &from, ibv_exp_device_attr &to) {
  static_assert(
      offsetof(ibv_exp_device_attr, max_qp) == offsetof(ibv_device_attr, max_qp) &&
      offsetof(ibv_exp_device_attr, reserved) == offsetof(ibv_device_attr, device_cap_flags) &&
      offsetof(ibv_exp_device_attr, exp_atomic_cap) == offsetof(ibv_device_attr, atomic_cap) &&
      offsetof(ibv_exp_device_attr, phys_port_cnt) == offsetof(ibv_device_attr, phys_port_cnt));
  std::memcpy(&to, &from, offsetof(ibv_device_attr, phys_port_cnt) + sizeof(from.phys_port_cnt));
}

// (exp <- modern) Transport words: the bits coincide from SEND to ATOMIC, and
// SRQ_RECV follows.
void fill_odp(const DeviceFacts &from, ibv_exp_device_attr &to) {
  static_assert(int{IBV_EXP_ODP_SUPPORT_SRQ_RECV} == IBV_ODP_SUPPORT_SRQ_RECV);
  static_assert(int{IBV_EXP_ODP_SUPPORT_IMPLICIT} == IBV_ODP_SUPPORT_IMPLICIT);
  const ibv_odp_caps &odp = from.attr.odp_caps;
  to.odp_caps.general_odp_caps = odp.general_caps;
  auto &per = to.odp_caps.per_transport_caps;
  per.rc_odp_caps = odp.per_transport_caps.rc_odp_caps;
  per.uc_odp_caps = odp.per_transport_caps.uc_odp_caps;
  per.ud_odp_caps = odp.per_transport_caps.ud_odp_caps;
  per.dc_odp_caps =
      (from.dv.comp_mask & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) != 0 ? from.dv.dc_odp_caps : 0;
  per.xrc_odp_caps = from.attr.xrc_odp_caps;
  per.raw_eth_odp_caps = 0;  // no source in rdma-core
}

bool has_cap(const DeviceFacts &from, unsigned flag) {
  return (from.attr.orig_attr.device_cap_flags & flag) != 0;
}
bool has_raw_cap(const DeviceFacts &from, unsigned flag) {
  return (from.attr.raw_packet_caps & flag) != 0;
}

bool supports_odp(const DeviceFacts &from) {
  return (from.attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
}

// (exp <- modern) Bits by queue pair type there, numbered densely here.
std::uint32_t to_legacy_qp_types(std::uint32_t modern) {
  constexpr struct {
    ibv_qp_type modern;
    std::uint32_t legacy;
  } types[] = {{IBV_QPT_RC, IBV_EXP_QPT_RC},
               {IBV_QPT_UC, IBV_EXP_QPT_UC},
               {IBV_QPT_UD, IBV_EXP_QPT_UD},
               {IBV_QPT_XRC_SEND, IBV_EXP_QPT_XRC_INIT},
               {IBV_QPT_XRC_RECV, IBV_EXP_QPT_XRC_TGT},
               {IBV_QPT_RAW_PACKET, IBV_EXP_QPT_RAW_PACKET}};
  std::uint32_t to = 0;
  for (const auto &type : types)
    if ((modern & 1u << type.modern) != 0) to |= type.legacy;
  return to;
}

// (exp <- modern) Only what can be asked for here: one function, and the fields
// that have names.
bool fill_rx_hash(const ibv_rss_caps &from, ibv_exp_rx_hash_caps &to) {
  constexpr std::uint64_t fields = 0xff | IBV_EXP_RX_HASH_INNER;
  static_assert(IBV_EXP_RX_HASH_INNER == IBV_RX_HASH_INNER);
  to.max_rwq_indirection_tables = from.max_rwq_indirection_tables;
  to.max_rwq_indirection_table_size = from.max_rwq_indirection_table_size;
  to.supported_hash_functions = from.rx_hash_function & IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
  to.supported_packet_fields = from.rx_hash_fields_mask & fields;
  to.supported_qps = to_legacy_qp_types(from.supported_qpts);
  return from.max_rwq_indirection_tables != 0;
}

// (exp <- modern) Over DC tags are not matched: its bit stays clear.
ibv_exp_tm_caps tag_caps(const ibv_tm_caps &from) {
  ibv_exp_tm_caps to{};
  if ((from.flags & IBV_TM_CAP_RC) == 0) return to;
  to.capability_flags = IBV_EXP_TM_CAP_RC;
  to.max_rndv_hdr_size = from.max_rndv_hdr_size;
  to.max_num_tags = from.max_num_tags;
  to.max_ops = from.max_ops;
  to.max_sge = from.max_sge;
  return to;
}

// rdma-core does not name the shift, which every device with such queues has, and
// counts by queue pair type where this counts kinds of receive queues.
void fill_mp_rq(const mlx5dv_context &from, ibv_exp_mp_rq_caps &to) {
  const mlx5dv_striding_rq_caps &caps = from.striding_rq_caps;
  if ((from.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) == 0 ||
      (caps.supported_qpts & 1u << IBV_QPT_RAW_PACKET) == 0)
    return;
  to.supported_qps = IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ;
  to.allowed_shifts = IBV_EXP_MP_RQ_2BYTES_SHIFT;
  to.min_single_wqe_log_num_of_strides =
      static_cast<std::uint8_t>(caps.min_single_wqe_log_num_of_strides);
  to.max_single_wqe_log_num_of_strides =
      static_cast<std::uint8_t>(caps.max_single_wqe_log_num_of_strides);
  to.min_single_stride_log_num_of_bytes =
      static_cast<std::uint8_t>(caps.min_single_stride_log_num_of_bytes);
  to.max_single_stride_log_num_of_bytes =
      static_cast<std::uint8_t>(caps.max_single_stride_log_num_of_bytes);
}

// There is one range for both kinds of queues: that of work queues where the device has them.
void fill_mp_srq(ibv_exp_mp_rq_caps &to) {
  if (to.supported_qps == 0) {
    to.min_single_wqe_log_num_of_strides = StrideLimits::least_count;
    to.max_single_wqe_log_num_of_strides = StrideLimits::most_count;
    to.min_single_stride_log_num_of_bytes = StrideLimits::least_bytes;
    to.max_single_stride_log_num_of_bytes = StrideLimits::most_bytes;
  }
  to.supported_qps |= IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM;
}

// Reads and atomics under way over DC. Before v47 rdma-core has no such limit, and the
// kernel checks initiators against the limit of connected queue pairs.
int dc_limit(std::uint64_t of_dc, int of_queue_pairs) {
  return of_dc != 0 ? static_cast<int>(of_dc) : of_queue_pairs;
}

// One answer: a bit of a mask, its row, and what fills it. fill returns whether the bit
// comes back: for some the legacy provider let it, with zeros, though the device had none.
struct Part {
  std::uint64_t bit;
  FeatureId id;
  bool (*fill)(const DeviceFacts &from, Reportable reportable, ibv_exp_device_attr &to);
};

// clang-format off
#define IBVEXP_PART(name) {detail::plain(::name), FeatureId::name, [](const DeviceFacts &from, \
  Reportable reportable, ibv_exp_device_attr &to) -> bool {                                    \
    (void)from; (void)reportable; (void)to;
#define IBVEXP_END }},

constexpr Part parts[] = {
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS)
      to.exp_device_cap_flags = exp_capabilities(from, reportable);
      return true;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK)
      // A queue with timestamps is made by mlx5dv.
      to.timestamp_mask = from.attr.completion_timestamp_mask;
      return from.is_mlx5 && to.timestamp_mask != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK)
      to.hca_core_clock = from.attr.hca_core_clock;  // kHz on both sides
      return to.hca_core_clock != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ)
      // Half of the largest completion. rdma-core has no such field.
      to.inline_recv_sz = from.scatter_to_cqe ? 64 : 0;
      return from.is_mlx5;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_ODP)
      fill_odp(from, to);
      return supports_odp(from);
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_ODP_MAX_SIZE)
      to.odp_mr_max_size = from.attr.orig_attr.max_mr_size;
      return supports_odp(from);
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE)
      to.max_dm_size = from.attr.max_dm_size;
      return to.max_dm_size != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_TM_CAPS)
      to.tm_caps = {};
      if (from.engine && reportable(FeatureId::IBV_EXP_TM_CAP_RC))
        to.tm_caps = tag_caps(from.attr.tm_caps);
      return to.tm_caps.capability_flags != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS)
      // Without masks the operations are the plain ones.
      to.ext_atom.log_atomic_arg_sizes = from.masked_atomic_sizes & 1u << 3;
      to.ext_atom.max_fa_bit_boundary = 64;
      to.ext_atom.log_max_atomic_inline = 5;
      return from.masked_atomic_sizes != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS)
      to.masked_atomic.max_fa_bit_boundary = 64;
      to.masked_atomic.log_max_atomic_inline = 5;
      to.masked_atomic.masked_log_atomic_arg_sizes = from.masked_atomic_sizes;
      // Only answers of 8 bytes come in host order.
      to.masked_atomic.masked_log_atomic_arg_sizes_network_endianness =
          from.masked_atomic_sizes & ~(1u << 3);
      return from.masked_atomic_sizes != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_UMR)
      to.umr_caps.max_klm_list_size = max_key_entries;
      to.umr_caps.max_send_wqe_inline_klms = max_inline_entries;
      to.umr_caps.max_umr_recursion_depth = max_key_depth;
      to.umr_caps.max_umr_stride_dimension = max_stride_dimensions;
      return from.indirect_keys;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN)
      // Kernels that hand out doorbell pages one by one give no number. A domain takes
      // one if it can, and does without if not.
      to.max_ctx_res_domain = (from.dv.comp_mask & MLX5DV_CONTEXT_MASK_DYN_BFREGS) != 0 &&
                                      from.dv.max_dynamic_bfregs != 0
                                  ? static_cast<int>(from.dv.max_dynamic_bfregs)
                                  : 512;
      return from.is_mlx5;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_MAX_DCT)
      to.max_dct = from.attr.orig_attr.max_qp;  // a DCT is a queue pair
      return from.dc;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_DC_RD_REQ)
      to.max_dc_req_rd_atom = dc_limit(from.max_dc_initiator_reads,
                                       from.attr.orig_attr.max_qp_init_rd_atom);
      return from.dc;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_DC_RD_RES)
      to.max_dc_res_rd_atom = dc_limit(from.max_dc_target_reads, from.attr.orig_attr.max_qp_rd_atom);
      return from.dc;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_MAX_WQ_TYPE_RQ)
      to.max_wq_type_rq = from.attr.max_wq_type_rq;
      return from.is_mlx5 || to.max_wq_type_rq != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_RSS_TBL_SZ)
      to.max_rss_tbl_sz = from.attr.rss_caps.max_rwq_indirection_table_size;
      return to.max_rss_tbl_sz != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_RX_HASH)
      return fill_rx_hash(from.attr.rss_caps, to.rx_hash_caps) || from.is_mlx5;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_MP_RQ)
      to.mp_rq_caps = {};
      fill_mp_rq(from.dv, to.mp_rq_caps);
      if (from.stride_queues && reportable(FeatureId::IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM) &&
          reportable(FeatureId::IBV_EXP_TM_CAP_RC))
        fill_mp_srq(to.mp_rq_caps);
      return to.mp_rq_caps.supported_qps != 0 || from.is_mlx5;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS)
      to.wq_vlan_offloads_cap =
          has_raw_cap(from, IBV_RAW_PACKET_CAP_CVLAN_STRIPPING) ? IBV_EXP_RECEIVE_WQ_CVLAN_STRIP : 0;
      return to.wq_vlan_offloads_cap != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_TSO_CAPS)
      to.tso_caps.max_tso = from.attr.tso_caps.max_tso;
      to.tso_caps.supported_qpts = from.attr.tso_caps.supported_qpts;  // counted alike
      return to.tso_caps.max_tso != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS)
      to.packet_pacing_caps = {};
      to.packet_pacing_caps.qp_rate_limit_min = from.attr.packet_pacing_caps.qp_rate_limit_min;
      to.packet_pacing_caps.qp_rate_limit_max = from.attr.packet_pacing_caps.qp_rate_limit_max;
      to.packet_pacing_caps.supported_qpts = from.attr.packet_pacing_caps.supported_qpts;
      if (from.paces_bursts && reportable(FeatureId::IBV_EXP_QP_SUPPORT_BURST))
        to.packet_pacing_caps.cap_flags = IBV_EXP_QP_SUPPORT_BURST;
      return to.packet_pacing_caps.qp_rate_limit_max != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_SW_PARSING_CAPS)
      to.sw_parsing_caps.sw_parsing_offloads = from.dv.sw_parsing_caps.sw_parsing_offloads;
      to.sw_parsing_caps.supported_qpts = from.dv.sw_parsing_caps.supported_qpts;
      return (from.dv.comp_mask & MLX5DV_CONTEXT_MASK_SWP) != 0 &&
             to.sw_parsing_caps.sw_parsing_offloads != 0;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS)
      to.tunnel_offloads_caps = (from.dv.comp_mask & MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS) == 0 ? 0 :
          from.dv.tunnel_offloads_caps & (IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN |
                                          IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE |
                                          IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE);
      return from.is_mlx5;
    IBVEXP_END
    // The processor calculates.
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_EC_CAPS)
      to.ec_caps = {max_coded_blocks, max_calculations};
      return true;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_EC_GF_BASE)
      to.ec_w_mask = 0;
      for (int w = 1; w <= 8; ++w) to.ec_w_mask |= is_symbol_width(w) ? 1u << (w - 1) : 0;
      return true;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN)
      to.rx_pad_end_addr_align =
          (from.attr.device_cap_flags_ex & IBV_DEVICE_PCI_WRITE_END_PADDING) != 0 ? 64 : 0;
      return to.rx_pad_end_addr_align != 0;
    IBVEXP_END
};

constexpr Part parts_2[] = {
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS)
      to.pci_atomic_caps.fetch_add = from.attr.pci_atomic_caps.fetch_add;
      to.pci_atomic_caps.swap = from.attr.pci_atomic_caps.swap;
      to.pci_atomic_caps.compare_swap = from.attr.pci_atomic_caps.compare_swap;
      return true;
    IBVEXP_END
    IBVEXP_PART(IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS)
      to.umr_fixed_size_caps.max_entity_size = largest_key_piece;
      return from.indirect_keys;
    IBVEXP_END
};
// clang-format on

#undef IBVEXP_PART
#undef IBVEXP_END

std::uint64_t fill_parts(std::span<const Part> all, std::uint64_t asked, const DeviceFacts &from,
                         Reportable reportable, ibv_exp_device_attr &to) {
  std::uint64_t filled = 0;
  for (const Part &part : all)
    if ((asked & part.bit) != 0 && reportable(part.id) && part.fill(from, reportable, to))
      filled |= part.bit;
  return filled;
}

// Capabilities that are not simply the bit of the same number.
struct Capability {
  std::uint64_t bit;
  FeatureId id;
  bool (*holds)(const DeviceFacts &from);
};

#define IBVEXP_CAPABILITY(name, expression) \
  {::name, FeatureId::name, [](const DeviceFacts &from) -> bool { return expression; }},

// clang-format off
constexpr Capability capabilities[] = {
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_DC_TRANSPORT, from.dc)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_CROSS_CHANNEL, from.masters)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_EXT_ATOMICS, from.masked_atomic_sizes != 0)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_EXT_MASKED_ATOMICS, from.masked_atomic_sizes != 0)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_MEM_WINDOW, has_cap(from, IBV_DEVICE_MEM_WINDOW))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_MW_TYPE_2A, has_cap(from, IBV_DEVICE_MEM_WINDOW_TYPE_2A))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_MW_TYPE_2B, has_cap(from, IBV_DEVICE_MEM_WINDOW_TYPE_2B))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_MEM_MGT_EXTENSIONS,
                      has_cap(from, IBV_DEVICE_MEM_MGT_EXTENSIONS))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_MANAGED_FLOW_STEERING,
                      has_cap(from, IBV_DEVICE_MANAGED_FLOW_STEERING))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_ODP, supports_odp(from))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_UMR, from.indirect_keys)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_UMR_FIXED_SIZE, from.indirect_keys)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_NOP, from.engine)
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_MR_ALLOCATE, (static_cast<void>(from), true))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_SHARED_MR, (static_cast<void>(from), true))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_EC_OFFLOAD, (static_cast<void>(from), true))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_SCATTER_FCS,
                      has_raw_cap(from, IBV_RAW_PACKET_CAP_SCATTER_FCS))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_WQ_DELAY_DROP,
                      has_raw_cap(from, IBV_RAW_PACKET_CAP_DELAY_DROP))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_RX_CSUM_IP_PKT, has_raw_cap(from, IBV_RAW_PACKET_CAP_IP_CSUM))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_RX_CSUM_TCP_UDP_PKT,
                      has_raw_cap(from, IBV_RAW_PACKET_CAP_IP_CSUM))
    IBVEXP_CAPABILITY(IBV_EXP_DEVICE_PACKET_BASED_CREDIT_MODE,
                      (from.dv.flags & MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE) != 0)
};
// clang-format on

#undef IBVEXP_CAPABILITY

// Bits below 32 repeat ibv_device_cap_flags where their row says so.
constexpr bool repeats(const FeatureBit &b) {
  return row(b.id).answer.verdict == Verdict::native && b.bit < IBV_EXP_START_FLAG;
}
constexpr auto repeated = [] {
  constexpr FeatureBits all = bits_of<"ibv_exp_device_cap_flags">();
  std::array<FeatureBit, std::ranges::count_if(all, repeats)> out{};
  std::ranges::copy_if(all, out.begin(), repeats);
  return out;
}();

}  // namespace

std::uint64_t exp_capabilities(const DeviceFacts &from, Reportable reportable) {
  std::uint64_t reported = 0;
  for (const FeatureBit &b : repeated)
    if (has_cap(from, static_cast<unsigned>(b.bit)) && reportable(b.id)) reported |= b.bit;
  for (const Capability &c : capabilities)
    if (c.holds(from) && reportable(c.id)) reported |= c.bit;
  return reported;
}

void to_legacy(const DeviceFacts &from, Reportable reportable, ibv_exp_device_attr &to) {
  const std::uint32_t asked = to.comp_mask;
  constexpr auto gate = detail::plain(IBV_EXP_DEVICE_ATTR_COMP_MASK_2);
  fill_head(from.attr.orig_attr, to);
  std::uint64_t filled = fill_parts(parts, asked, from, reportable, to);
  // The legacy provider set one more bit of either mask than it was asked for. Programs that
  // compare the first with what they asked read nothing of it.
  constexpr auto flags = detail::plain(IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS);
  if ((filled & flags) != 0) {
    to.calc_cap = {};
    filled |= detail::plain(IBV_EXP_DEVICE_ATTR_CALC_CAP);
  }
  if (reportable(FeatureId::IBV_EXP_DEVICE_MR_ALLOCATE))
    to.exp_device_cap_flags |= IBV_EXP_DEVICE_MR_ALLOCATE;
  if ((asked & gate) != 0) {
    // Bits that we do not know are cleared, like those of what the device lacks.
    to.comp_mask_2 = fill_parts(parts_2, to.comp_mask_2, from, reportable, to);
    if (reportable(FeatureId::IBV_EXP_DEVICE_ATTR_COMP_MASK_2)) filled |= gate;
  }
  to.comp_mask = static_cast<std::uint32_t>(filled);
}

}  // namespace ibvexp::translate
