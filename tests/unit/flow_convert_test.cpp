// Flow rules and work queue attributes, legacy to modern, without a device.
#include "translate/convert/flow_convert.h"

#include <catch.h>

#include <cstring>
#include <vector>

#include "translate/convert/device_convert.h"
#include "translate/convert/wq_convert.h"

using namespace ibvexp;
using namespace ibvexp::translate;

namespace {

// A legacy rule, its specifications one behind the other.
struct LegacyRule {
  std::vector<char> bytes = std::vector<char>(sizeof(ibv_exp_flow_attr));

  ibv_exp_flow_attr &attr() { return *reinterpret_cast<ibv_exp_flow_attr *>(bytes.data()); }

  // Filled with a pattern, in a place of that many bytes.
  template <class Spec>
  LegacyRule &add(std::uint32_t type, std::size_t size = sizeof(Spec)) {
    std::vector<char> room(size);
    for (std::size_t i = 0; i < size; ++i) room[i] = static_cast<char>(i * 3 + type);
    auto &spec = *reinterpret_cast<Spec *>(room.data());
    spec.type = static_cast<ibv_exp_flow_spec_type>(type);
    spec.size = static_cast<std::uint16_t>(size);
    bytes.insert(bytes.end(), room.begin(), room.end());
    ++attr().num_of_specs;
    attr().size = static_cast<std::uint16_t>(bytes.size());
    return *this;
  }
};

const ibv_flow_attr &attr_of(const ModernFlow &modern) {
  return *reinterpret_cast<const ibv_flow_attr *>(modern.data());
}

template <class Legacy, class Modern>
void same_layout(std::uint32_t type, std::uint32_t modern_type) {
  for (const std::uint32_t inner : {0u, std::uint32_t{IBV_EXP_FLOW_SPEC_INNER}}) {
    INFO(type << " " << inner);
    LegacyRule rule;
    rule.add<Legacy>(type | inner);
    const ModernFlow modern(rule.attr());
    REQUIRE(modern.size() == sizeof(ibv_flow_attr) + sizeof(Modern));
    const auto &spec = *reinterpret_cast<const Modern *>(modern.data() + sizeof(ibv_flow_attr));
    CHECK(spec.type == (modern_type | inner));
    CHECK(spec.size == sizeof(Modern));
    constexpr std::size_t head = 6;  // type and size
    CHECK(std::memcmp(modern.data() + sizeof(ibv_flow_attr) + head,
                      rule.bytes.data() + sizeof(ibv_exp_flow_attr) + head,
                      sizeof(Modern) - head) == 0);
  }
}

}  // namespace

TEST_CASE("specifications keep their fields [row:flow_specs]") {
  same_layout<ibv_exp_flow_spec_eth, ibv_flow_spec_eth>(IBV_EXP_FLOW_SPEC_ETH, IBV_FLOW_SPEC_ETH);
  same_layout<ibv_exp_flow_spec_ipv4, ibv_flow_spec_ipv4>(IBV_EXP_FLOW_SPEC_IPV4,
                                                          IBV_FLOW_SPEC_IPV4);
  same_layout<ibv_exp_flow_spec_ipv4_ext, ibv_flow_spec_ipv4_ext>(IBV_EXP_FLOW_SPEC_IPV4_EXT,
                                                                  IBV_FLOW_SPEC_IPV4_EXT);
  same_layout<ibv_exp_flow_spec_ipv6_ext, ibv_flow_spec_ipv6>(IBV_EXP_FLOW_SPEC_IPV6_EXT,
                                                              IBV_FLOW_SPEC_IPV6);
  same_layout<ibv_exp_flow_spec_tcp_udp, ibv_flow_spec_tcp_udp>(IBV_EXP_FLOW_SPEC_TCP,
                                                                IBV_FLOW_SPEC_TCP);
  same_layout<ibv_exp_flow_spec_tcp_udp, ibv_flow_spec_tcp_udp>(IBV_EXP_FLOW_SPEC_UDP,
                                                                IBV_FLOW_SPEC_UDP);
  same_layout<ibv_exp_flow_spec_tunnel, ibv_flow_spec_tunnel>(IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL,
                                                              IBV_FLOW_SPEC_VXLAN_TUNNEL);
}

TEST_CASE(
    "the short IPv6 specification grows, and what it grows by is not compared "
    "[row:IBV_EXP_FLOW_SPEC_IPV6]") {
  LegacyRule rule;
  rule.add<ibv_exp_flow_spec_ipv6>(IBV_EXP_FLOW_SPEC_IPV6);
  const auto &from = *reinterpret_cast<const ibv_exp_flow_spec_ipv6 *>(rule.bytes.data() +
                                                                       sizeof(ibv_exp_flow_attr));
  const ModernFlow modern(rule.attr());
  REQUIRE(modern.size() == sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_ipv6));
  const auto &to =
      *reinterpret_cast<const ibv_flow_spec_ipv6 *>(modern.data() + sizeof(ibv_flow_attr));
  CHECK(to.type == IBV_FLOW_SPEC_IPV6);
  CHECK(to.size == sizeof(to));
  CHECK(std::memcmp(to.val.src_ip, from.val.src_ip, 16) == 0);
  CHECK(std::memcmp(to.val.dst_ip, from.val.dst_ip, 16) == 0);
  CHECK(std::memcmp(to.mask.src_ip, from.mask.src_ip, 16) == 0);
  CHECK(std::memcmp(to.mask.dst_ip, from.mask.dst_ip, 16) == 0);
  CHECK(to.mask.flow_label == 0);
  CHECK(to.mask.next_hdr == 0);
  CHECK(to.mask.traffic_class == 0);
  CHECK(to.mask.hop_limit == 0);
}

TEST_CASE("a rule has as many specifications as it says [row:flow_specs]") {
  for (const int count : {0, 1, 4, 5, 40}) {
    LegacyRule rule;
    for (int i = 0; i < count; ++i)
      rule.add<ibv_exp_flow_spec_ipv6_ext>(IBV_EXP_FLOW_SPEC_IPV6_EXT);
    const ModernFlow modern(rule.attr());
    CHECK(attr_of(modern).num_of_specs == count);
    REQUIRE(modern.size() == sizeof(ibv_flow_attr) + count * sizeof(ibv_flow_spec_ipv6));
    for (int i = 0; i < count; ++i) {
      const std::size_t at = sizeof(ibv_flow_attr) + i * sizeof(ibv_flow_spec_ipv6);
      CHECK(reinterpret_cast<const ibv_flow_spec_ipv6 *>(modern.data() + at)->type ==
            IBV_FLOW_SPEC_IPV6);
    }
  }
}

TEST_CASE("a rule keeps what it is about, and its specifications their order [row:flow_specs]") {
  LegacyRule rule;
  // A specification may say that it is larger than its type has.
  rule.add<ibv_exp_flow_spec_eth>(IBV_EXP_FLOW_SPEC_ETH, sizeof(ibv_exp_flow_spec_eth) + 16);
  rule.add<ibv_exp_flow_spec_ipv4>(IBV_EXP_FLOW_SPEC_IPV4);
  rule.add<ibv_exp_flow_spec_action_tag>(IBV_EXP_FLOW_SPEC_ACTION_TAG);
  rule.attr().type = IBV_EXP_FLOW_ATTR_MC_DEFAULT;
  rule.attr().priority = 0x1234;
  rule.attr().port = 2;
  const ModernFlow modern(rule.attr());
  const ibv_flow_attr &attr = attr_of(modern);
  CHECK(attr.comp_mask == 0);
  CHECK(attr.type == IBV_FLOW_ATTR_MC_DEFAULT);
  CHECK(attr.size == modern.size());
  CHECK(attr.priority == 0x1234);
  CHECK(attr.num_of_specs == 3);
  CHECK(attr.port == 2);
  CHECK(attr.flags == 0);
  const std::uint32_t expected[] = {IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_IPV4,
                                    IBV_FLOW_SPEC_ACTION_TAG};
  const std::size_t sizes[] = {sizeof(ibv_flow_spec_eth), sizeof(ibv_flow_spec_ipv4),
                               sizeof(ibv_flow_spec_action_tag)};
  std::size_t at = sizeof(attr);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(at < modern.size());
    const auto &spec = *reinterpret_cast<const ibv_flow_spec *>(modern.data() + at);
    CHECK(spec.hdr.type == expected[i]);
    CHECK(spec.hdr.size == sizes[i]);
    at += spec.hdr.size;
  }
  CHECK(at == modern.size());
}

TEST_CASE("types without a counterpart have no shape") {
  for (const std::uint32_t type : {std::uint32_t{IBV_EXP_FLOW_SPEC_IB}, 0x7u, 0x99u, 0xffffu})
    CHECK(shape_of_flow_spec(type).legacy_size == 0);
}

// [row:IBV_EXP_RECEIVE_WQ_CVLAN_STRIP][row:IBV_EXP_CREATE_WQ_VLAN_OFFLOADS]
// [row:IBV_EXP_CREATE_WQ_FLAGS][row:IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS]
// [row:IBV_EXP_MP_RQ_2BYTES_SHIFT][row:IBV_EXP_CREATE_WQ_MP_RQ]
TEST_CASE(
    "flags of work queues and offloads of VLAN tags are one word today "
    "[row:IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP][row:IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING]") {
  CHECK(to_modern_wq_flags(0, 0) == 0);
  CHECK(to_modern_wq_flags(IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING, 0) ==
        IBV_WQ_FLAGS_PCI_WRITE_END_PADDING);
  CHECK(to_modern_wq_flags(IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS, 0) == IBV_WQ_FLAGS_SCATTER_FCS);
  CHECK(to_modern_wq_flags(IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP, 0) == IBV_WQ_FLAGS_DELAY_DROP);
  CHECK(to_modern_wq_flags(0, IBV_EXP_RECEIVE_WQ_CVLAN_STRIP) == IBV_WQ_FLAGS_CVLAN_STRIPPING);

  // Members count where comp_mask says so.
  ibv_exp_wq_init_attr from{};
  from.max_recv_wr = 7;
  from.max_recv_sge = 3;
  from.flags = IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS;
  from.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP;
  from.mp_rq = {IBV_EXP_MP_RQ_2BYTES_SHIFT, 9, 6};
  auto to = to_modern(from);
  CHECK(to.comp_mask == 0);
  CHECK(to.create_flags == 0);
  CHECK(to.max_wr == 7);
  CHECK(to.max_sge == 3);
  CHECK(to.wq_type == IBV_WQT_RQ);
  CHECK(to_modern_strides(from).comp_mask == 0);
  from.comp_mask = IBV_EXP_CREATE_WQ_FLAGS;
  CHECK(to_modern(from).create_flags == IBV_WQ_FLAGS_SCATTER_FCS);
  from.comp_mask = IBV_EXP_CREATE_WQ_VLAN_OFFLOADS;
  to = to_modern(from);
  CHECK(to.create_flags == IBV_WQ_FLAGS_CVLAN_STRIPPING);
  CHECK(to.comp_mask == IBV_WQ_INIT_ATTR_FLAGS);

  from.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
  const auto strides = to_modern_strides(from);
  CHECK(strides.comp_mask == MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ);
  CHECK(strides.striding_rq_attrs.single_wqe_log_num_of_strides == 9);
  CHECK(strides.striding_rq_attrs.single_stride_log_num_of_bytes == 6);
  CHECK(strides.striding_rq_attrs.two_byte_shift_en == 1);
}

TEST_CASE("changes of work queues [row:vlan_modify_wq]") {
  ibv_exp_wq_attr from{};
  from.wq_state = IBV_EXP_WQS_RDY;
  from.curr_wq_state = IBV_EXP_WQS_RESET;
  from.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP;
  CHECK(to_modern(from).attr_mask == 0);
  from.attr_mask = IBV_EXP_WQ_ATTR_STATE | IBV_EXP_WQ_ATTR_CURR_STATE;
  auto to = to_modern(from);
  CHECK(to.attr_mask == (IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE));
  CHECK(to.wq_state == IBV_WQS_RDY);
  CHECK(to.curr_wq_state == IBV_WQS_RESET);
  from.attr_mask = IBV_EXP_WQ_ATTR_VLAN_OFFLOADS;
  for (const bool strip : {true, false}) {
    from.vlan_offloads = strip ? IBV_EXP_RECEIVE_WQ_CVLAN_STRIP : 0;
    to = to_modern(from);
    CHECK(to.attr_mask == IBV_WQ_ATTR_FLAGS);
    CHECK(to.flags_mask == IBV_WQ_FLAGS_CVLAN_STRIPPING);
    CHECK(to.flags == (strip ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0));
  }
}

namespace {

ibv_exp_device_attr ask(const DeviceFacts &facts, std::uint32_t mask) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = mask;
  to_legacy(
      facts, [](FeatureId) { return true; }, attr);
  return attr;
}

}  // namespace

TEST_CASE(
    "queue pairs that scale are numbered densely [row:IBV_EXP_QPT_RC][row:IBV_EXP_QPT_UC]"
    "[row:IBV_EXP_QPT_UD][row:IBV_EXP_QPT_XRC_INIT][row:IBV_EXP_QPT_XRC_TGT]") {
  const std::pair<ibv_qp_type, std::uint32_t> types[] = {
      {IBV_QPT_RC, IBV_EXP_QPT_RC},
      {IBV_QPT_UC, IBV_EXP_QPT_UC},
      {IBV_QPT_UD, IBV_EXP_QPT_UD},
      {IBV_QPT_XRC_SEND, IBV_EXP_QPT_XRC_INIT},
      {IBV_QPT_XRC_RECV, IBV_EXP_QPT_XRC_TGT},
      {IBV_QPT_RAW_PACKET, IBV_EXP_QPT_RAW_PACKET}};
  for (const auto &[modern, legacy] : types) {
    DeviceFacts facts{};
    facts.attr.rss_caps.max_rwq_indirection_tables = 1;
    facts.attr.rss_caps.supported_qpts = 1u << modern;
    facts.attr.rss_caps.rx_hash_function = 0xff;
    const auto attr = ask(facts, IBV_EXP_DEVICE_ATTR_RX_HASH);
    CHECK(attr.rx_hash_caps.supported_qps == legacy);
    CHECK(attr.rx_hash_caps.supported_hash_functions == IBV_EXP_RX_HASH_FUNC_TOEPLITZ);
  }
}

TEST_CASE("work queues and shared queues of strides [row:IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM]") {
  DeviceFacts facts{};
  facts.dv.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  facts.dv.striding_rq_caps.supported_qpts = ~0u;
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_MP_RQ).mp_rq_caps.supported_qps ==
        IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ);
  facts.dv.striding_rq_caps.max_single_wqe_log_num_of_strides = 12;
  facts.stride_queues = true;
  const auto both = ask(facts, IBV_EXP_DEVICE_ATTR_MP_RQ).mp_rq_caps;
  CHECK(both.supported_qps == (IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ | IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM));
  CHECK(both.allowed_shifts == IBV_EXP_MP_RQ_2BYTES_SHIFT);
  CHECK(both.max_single_wqe_log_num_of_strides == 12);

  facts.dv.striding_rq_caps.supported_qpts = 1u << IBV_QPT_RC;
  const auto shared = ask(facts, IBV_EXP_DEVICE_ATTR_MP_RQ);
  CHECK(shared.comp_mask == IBV_EXP_DEVICE_ATTR_MP_RQ);
  CHECK(shared.mp_rq_caps.supported_qps == IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM);
  CHECK(shared.mp_rq_caps.allowed_shifts == 0);
  CHECK(shared.mp_rq_caps.min_single_wqe_log_num_of_strides == 3);
  CHECK(shared.mp_rq_caps.max_single_wqe_log_num_of_strides == 16);
  CHECK(shared.mp_rq_caps.min_single_stride_log_num_of_bytes == 6);
  CHECK(shared.mp_rq_caps.max_single_stride_log_num_of_bytes == 13);
  for (const FeatureId clear :
       {FeatureId::IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM, FeatureId::IBV_EXP_TM_CAP_RC}) {
    static FeatureId hidden;
    hidden = clear;
    ibv_exp_device_attr attr{};
    attr.comp_mask = IBV_EXP_DEVICE_ATTR_MP_RQ;
    to_legacy(
        facts, [](FeatureId id) { return id != hidden; }, attr);
    CHECK(attr.comp_mask == 0);
  }
  facts.stride_queues = false;
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_MP_RQ).comp_mask == 0);
}

TEST_CASE(
    "offloads of tunnels and VLAN tags are reported one by one "
    "[row:IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE]"
    "[row:IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE][row:vlan_query_cap]") {
  const std::pair<std::uint32_t, std::uint32_t> tunnels[] = {
      {MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN, IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN},
      {MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE, IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE},
      {MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE,
       IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE}};
  for (const auto &[modern, legacy] : tunnels) {
    DeviceFacts facts{};
    facts.dv.comp_mask = MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS;
    facts.dv.tunnel_offloads_caps = modern | 1u << 20;  // and one of tomorrow
    CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS).tunnel_offloads_caps == legacy);
  }
  DeviceFacts facts{};
  facts.attr.raw_packet_caps = ~0u;
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS).wq_vlan_offloads_cap ==
        IBV_EXP_RECEIVE_WQ_CVLAN_STRIP);
  facts.attr.raw_packet_caps = ~std::uint32_t{IBV_RAW_PACKET_CAP_CVLAN_STRIPPING};
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS).comp_mask == 0);
}
