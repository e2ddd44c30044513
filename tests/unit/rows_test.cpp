// Compares each row of the tables with what the conversions do. Tests that
// need a device are in tests/e2e.
#include <catch.h>

#include <cstring>
#include <map>
#include <string>

#include "table/options.h"
#include "translate/convert/device_convert.h"
#include "translate/convert/port_convert.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/wc_convert.h"

using namespace ibvexp;
using namespace ibvexp::translate;

namespace {

// As in a process without IBVEXP_BEYOND.
bool reportable_by_default(FeatureId id) { return reportable(row(id).answer); }

// A device that has everything.
DeviceFacts everything() {
  DeviceFacts facts;
  std::memset(static_cast<void *>(&facts), 0xff, sizeof(facts));
  facts.attr.orig_attr.atomic_cap = IBV_ATOMIC_HCA;
  facts.is_mlx5 = facts.scatter_to_cqe = facts.paces_bursts = true;
  return facts;
}

ibv_exp_device_attr ask(const DeviceFacts &facts, std::uint32_t mask, std::uint64_t mask_2 = 0) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = mask;
  attr.comp_mask_2 = mask_2;
  to_legacy(facts, reportable_by_default, attr);
  return attr;
}

}  // namespace

TEST_CASE(
    "capabilities are reported as their rows say "
    "[rows:owner=ibv_exp_device_cap_flags][rows:owner=ibv_exp_device_attr_comp_mask]"
    "[rows:family=erasure_code,verdict=query_only]"
    "[rows:family=cross_channel,verdict=query_only]") {
  const auto all = ask(everything(), ~0u, ~std::uint64_t{0});
  const auto none = ask({}, ~0u, ~std::uint64_t{0});
  for (const FeatureBit &b : bits_of<"ibv_exp_device_cap_flags">()) {
    INFO(row(b.id).name);
    const bool may = reportable_by_default(b.id);
    CHECK(((all.exp_device_cap_flags & b.bit) != 0) == may);
    // A device without capabilities: only those that this library adds.
    if (b.bit != IBV_EXP_DEVICE_MR_ALLOCATE) CHECK((none.exp_device_cap_flags & b.bit) == 0);
  }
  for (const FeatureBit &b : bits_of<"ibv_exp_device_attr_comp_mask">()) {
    INFO(row(b.id).name);
    const auto one = ask(everything(), static_cast<std::uint32_t>(b.bit));
    const bool second = row(b.id).name == "IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS";
    if (second) continue;
    CHECK(((all.comp_mask & b.bit) != 0) == reportable_by_default(b.id));
    // Alone, a bit converts to itself or to nothing, except one that needs another.
    constexpr std::uint64_t calc = IBV_EXP_DEVICE_ATTR_CALC_CAP;
    const std::uint64_t more = b.bit == IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS ? calc : 0;
    CHECK(one.comp_mask == (((all.comp_mask & b.bit) | more) & ~(b.bit == calc ? calc : 0)));
  }
  // Words without a source stay zero.
  CHECK(all.calc_cap.data_types == 0);
  CHECK(all.ec_caps.max_ec_data_vector_count == 0);
  CHECK((all.tm_caps.capability_flags & (IBV_EXP_TM_CAP_RC | IBV_EXP_TM_CAP_DC)) == 0);
  CHECK((all.ooo_caps.rc_caps & IBV_EXP_OOO_SUPPORT_RW_DATA_PLACEMENT) == 0);
}

TEST_CASE(
    "transports that can page on demand [rows:owner=ibv_exp_odp_transport_cap_bits]"
    "[rows:owner=ibv_odp_general_cap_bits]") {
  const std::pair<std::uint64_t, std::uint32_t> same[] = {
      {IBV_EXP_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SEND},
      {IBV_EXP_ODP_SUPPORT_RECV, IBV_ODP_SUPPORT_RECV},
      {IBV_EXP_ODP_SUPPORT_WRITE, IBV_ODP_SUPPORT_WRITE},
      {IBV_EXP_ODP_SUPPORT_READ, IBV_ODP_SUPPORT_READ},
      {IBV_EXP_ODP_SUPPORT_ATOMIC, IBV_ODP_SUPPORT_ATOMIC},
      {IBV_EXP_ODP_SUPPORT_SRQ_RECV, IBV_ODP_SUPPORT_SRQ_RECV}};
  for (const auto &[exp, modern] : same) {
    DeviceFacts facts{};
    facts.attr.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    facts.attr.odp_caps.per_transport_caps.rc_odp_caps = modern;
    facts.attr.odp_caps.per_transport_caps.ud_odp_caps = modern;
    facts.attr.xrc_odp_caps = modern;
    const auto attr = ask(facts, IBV_EXP_DEVICE_ATTR_ODP);
    CHECK(attr.comp_mask == IBV_EXP_DEVICE_ATTR_ODP);
    CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps == exp);
    CHECK(attr.odp_caps.per_transport_caps.ud_odp_caps == exp);
    CHECK(attr.odp_caps.per_transport_caps.xrc_odp_caps == exp);
    CHECK(attr.odp_caps.per_transport_caps.uc_odp_caps == 0);
    CHECK(attr.odp_caps.general_odp_caps == (IBV_EXP_ODP_SUPPORT | IBV_EXP_ODP_SUPPORT_IMPLICIT));
  }
}

TEST_CASE(
    "levels of atomics are numbered alike [rows:owner=ibv_exp_atomic_cap]"
    "[row:atomic_query_exp_atomic_cap]") {
  const std::pair<ibv_atomic_cap, ibv_exp_atomic_cap> same[] = {
      {IBV_ATOMIC_NONE, IBV_EXP_ATOMIC_NONE},
      {IBV_ATOMIC_HCA, IBV_EXP_ATOMIC_HCA},
      {IBV_ATOMIC_GLOB, IBV_EXP_ATOMIC_GLOB}};
  for (const auto &[modern, exp] : same) {
    DeviceFacts facts{};
    facts.attr.orig_attr.atomic_cap = modern;
    CHECK(ask(facts, 0).exp_atomic_cap == exp);
  }
}

TEST_CASE(
    "PCI atomics have a word of their own [row:atomic_query_pci_atomic_caps]"
    "[rows:owner=ibv_exp_pci_atomic_cap_ops_supported_sizes]") {
  static_assert(int{IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_4_BYTES} ==
                int{IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP});
  static_assert(int{IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_8_BYTES} ==
                int{IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP});
  static_assert(int{IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_16_BYTES} ==
                int{IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP});
  DeviceFacts facts{};
  facts.attr.pci_atomic_caps = {1, 2, 4};
  const auto attr = ask(facts, static_cast<std::uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2),
                        IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS);
  CHECK(attr.comp_mask_2 == IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS);
  CHECK(attr.pci_atomic_caps.fetch_add == 1);
  CHECK(attr.pci_atomic_caps.swap == 2);
  CHECK(attr.pci_atomic_caps.compare_swap == 4);
}

TEST_CASE("keys of pieces of one size are offered on request [row:umr_query_fixed_size_caps]") {
  ibv_exp_device_attr attr{};
  const auto ask_with = [&](Reportable reportable, bool keys) {
    attr.comp_mask = static_cast<std::uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2) |
                     IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
    attr.comp_mask_2 = IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS;
    DeviceFacts facts = everything();
    facts.indirect_keys = keys;
    to_legacy(facts, reportable, attr);
    return (attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR_FIXED_SIZE) != 0;
  };
  constexpr auto all = [](FeatureId) { return true; };
  CHECK_FALSE(ask_with(reportable_by_default, true));
  CHECK(attr.comp_mask_2 == 0);
  CHECK(attr.umr_fixed_size_caps.max_entity_size == 0);
  CHECK_FALSE(ask_with(all, false));
  CHECK(attr.comp_mask_2 == 0);
  CHECK(ask_with(all, true));
  CHECK(attr.comp_mask_2 == IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS);
  CHECK(attr.umr_fixed_size_caps.max_entity_size == std::uint64_t{1} << 31);
}

TEST_CASE("small receives into the completion [row:inlrecv_query_size]") {
  DeviceFacts facts{};
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ).comp_mask == 0);
  facts.is_mlx5 = true;
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ).inline_recv_sz == 0);
  facts.scatter_to_cqe = true;
  CHECK(ask(facts, IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ).inline_recv_sz == 64);
}

TEST_CASE(
    "each port attribute is written if asked for, and alone "
    "[rows:owner=query_port_mask][rows:owner=ibv_exp_query_port_attr_comp_mask]") {
  ibv_port_attr from;
  std::memset(&from, 0x11, sizeof(from));
  for (const FeatureBit &b : bits_of<"query_port_mask">()) {
    INFO(row(b.id).name);
    ibv_exp_port_attr to;
    std::memset(&to, 0xee, sizeof(to));
    to_legacy(from, static_cast<std::uint32_t>(b.bit), to);
    const auto *bytes = reinterpret_cast<const unsigned char *>(&to);
    std::size_t first = sizeof(to), last = 0;
    for (std::size_t i = 0; i < sizeof(to); ++i) {
      if (bytes[i] == 0xee) continue;
      CHECK(bytes[i] == 0x11);
      first = std::min(first, i);
      last = i;
    }
    // One member: it exists and is no wider than the widest.
    CHECK(first <= last);
    CHECK(last - first < sizeof(std::uint32_t));
  }
}

TEST_CASE(
    "masks of modification keep their low bits "
    "[rows:owner=ibv_exp_qp_attr_mask,verdict=native]") {
  for (const FeatureBit &b : bits_of<"ibv_exp_qp_attr_mask">()) {
    INFO(row(b.id).name);
    const auto modern = static_cast<unsigned>(to_modern_qp_mask(b.bit));
    if (row(b.id).answer.verdict == Verdict::native) CHECK(modern == b.bit);
    if (row(b.id).answer.verdict == Verdict::noop) CHECK(modern == 0);
  }
}

// If an enumeration has several limits, the highest one counts.
TEST_CASE("limits lie above what they limit [rows:limit]") {
  std::map<std::string_view, std::uint64_t> limits, highest;
  for (const detail::Valued &v : detail::values) {
    const Feature &f = row(v.id);
    if (f.kind == Kind::limit && f.name.find("RESERVED") != std::string_view::npos)
      limits[f.owner] = std::max(limits[f.owner], v.value);
    else if (f.kind == Kind::mask) highest[f.owner] = std::max(highest[f.owner], v.value);
  }
  int checked = 0;
  for (const auto &[owner, limit] : limits) {
    const auto bit = highest.find(owner);
    if (bit == highest.end()) continue;
    INFO(owner);
    CHECK(limit > bit->second);
    ++checked;
  }
  CHECK(checked > 10);
}

TEST_CASE("GID types that never come [row:IBV_EXP_ROCE_V1_5_GID_TYPE]") {
  for (std::uint32_t type = 0; type < 5; ++type)
    CHECK(to_legacy_gid_type(type) != IBV_EXP_ROCE_V1_5_GID_TYPE);
}

TEST_CASE(
    "no other completion speaks of tags "
    "[rows:family=srq,kind=opcode][rows:family=srq,owner=ibv_exp_wc_flags]") {
  constexpr std::uint64_t tags = IBV_EXP_WC_TM_MATCH | IBV_EXP_WC_TM_DATA_VALID |
                                 IBV_EXP_WC_TM_SYNC_REQ | IBV_EXP_WC_TM_DEL_FAILED |
                                 IBV_EXP_WC_TM_RNDV_INCOMPLETE;
  for (const auto opcode : {IBV_WC_SEND, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM}) {
    ibv_wc from;
    std::memset(&from, 0xff, sizeof(from));
    from.status = IBV_WC_SUCCESS;
    from.opcode = opcode;
    const auto wc = to_legacy(from, {}, false);
    CHECK((wc.exp_wc_flags & tags) == 0);
    for (const auto never : {IBV_EXP_WC_TM_ADD, IBV_EXP_WC_TM_DEL, IBV_EXP_WC_TM_SYNC,
                             IBV_EXP_WC_TM_RECV, IBV_EXP_WC_TM_NO_TAG})
      CHECK(wc.exp_opcode != never);
  }
}
