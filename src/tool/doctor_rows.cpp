#include <fmt/core.h>
#include <infiniband/verbs_exp.h>

#include <algorithm>

#include "table/feature_bits.h"
#include "tool/doctor.h"

namespace ibvexp::tool::doctor {

namespace {

// Bits that ibv_exp_query_device answers with: whether a usable device does.
std::optional<bool> answered(const System &system, FeatureId id) {
  const auto by = [&](FeatureBits bits, auto word) -> std::optional<bool> {
    for (const FeatureBit &b : bits) {
      if (b.id != id) continue;
      for (const Device &d : system.devices)
        if (d.error.empty() && (word(d) & b.bit) != 0) return true;
      return false;
    }
    return {};
  };
  if (const auto found =
          by(bits_of<"ibv_exp_device_cap_flags">(), [](const Device &d) { return d.capabilities; }))
    return found;
  if (const auto found = by(bits_of<"ibv_exp_device_attr_comp_mask">(),
                            [](const Device &d) { return std::uint64_t{d.answered}; }))
    return found;
  return by(bits_of<"ibv_exp_device_attr_comp_mask_2">(),
            [](const Device &d) { return d.answered_2; });
}

// Families that stand and fall with a feature of the device, and what
// ibv_exp_query_device answers where it is there. Nothing: with libmlx5.
struct Need {
  Family family;
  std::uint64_t capability;
  std::uint32_t answer;
};
constexpr Need needs[] = {
    {Family::raw_ethernet, IBV_EXP_DEVICE_MANAGED_FLOW_STEERING, 0},
    {Family::packet_pacing, 0, IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS},
    {Family::inline_receive, 0, IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ},
    {Family::dc, IBV_EXP_DEVICE_DC_TRANSPORT, 0},
    {Family::xrc, IBV_EXP_DEVICE_XRC, 0},
    {Family::ext_atomic, 0, 0},
    {Family::cqe_compression, 0, 0},
    {Family::timestamp, 0, IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK},
    {Family::odp, IBV_EXP_DEVICE_ODP, 0},
    {Family::device_memory, 0, IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE},
    {Family::memory_window, IBV_EXP_DEVICE_MEM_WINDOW, 0},
    {Family::umr, IBV_EXP_DEVICE_UMR, 0},
    {Family::checksum, IBV_EXP_DEVICE_RX_CSUM_IP_PKT, 0},
    {Family::flow, IBV_EXP_DEVICE_MANAGED_FLOW_STEERING, 0},
    {Family::tso, 0, IBV_EXP_DEVICE_ATTR_TSO_CAPS},
    {Family::tunnel, 0, IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS},
    {Family::vlan, 0, IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS},
    {Family::work_queue, 0, IBV_EXP_DEVICE_ATTR_RX_HASH},
    {Family::mp_rq, 0, IBV_EXP_DEVICE_ATTR_MP_RQ},
    {Family::accelerated, 0, 0},
    {Family::res_domain, 0, IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN},
    {Family::cross_channel, 0, 0},
    {Family::nop, 0, 0},
};

bool offers(const Device &d, const Need &need) {
  if (!d.error.empty()) return false;
  if (need.capability == 0 && need.answer == 0) return d.mlx5;
  return (d.capabilities & need.capability) == need.capability &&
         (d.answered & need.answer) == need.answer;
}

bool device_has(const System &system, Family family) {
  for (const Need &need : needs)
    if (need.family == family)
      return std::ranges::any_of(system.devices, [&](const Device &d) { return offers(d, need); });
  return true;
}

RowHere judge(std::string_view name, Family family, const Answer &a, const System &system) {
  const auto row = [&](Word here, std::string advice) {
    return RowHere{name, family, here, std::move(advice)};
  };
  const std::string note(a.note);
  if (a.verdict == Verdict::query_only && a.target.empty()) return row(Word::off, note);
  if (a.verdict == Verdict::unsupported)
    return row(a.refusal == 0 ? Word::off : Word::refused, note);
  const std::optional<int> core = system.rdma_core();
  if (core && *core < a.min_core)
    return row(Word::upgrade, fmt::format("rdma-core {} or newer", a.min_core));
  if (!system.usable()) return row(Word::device, "no usable device");
  if (!device_has(system, family)) return row(Word::device, "no device here has this feature");
  if (a.verdict == Verdict::beyond)
    return row(Word::beyond, fmt::format("--beyond {}", info(a.beyond).name));
  return row(Word::works, a.verdict == Verdict::partial ? note : "");
}

}  // namespace

std::vector<RowHere> judge_rows(const System &system) {
  std::vector<RowHere> out;
  for (std::size_t f = 0; f < families.size(); ++f) {
    const auto family = static_cast<Family>(f);
    for (const Entry &e : entries_of(family))
      if (e.door != Door::absent) out.push_back(judge(e.name, family, e.answer, system));
    for (const Feature &x : features_of(family)) {
      if (x.answer.verdict == Verdict::sentinel || x.kind == Kind::modern) continue;
      RowHere here = judge(x.name, family, x.answer, system);
      const auto id = static_cast<FeatureId>(&x - features.data());
      // What a device says counts more than what could be.
      if (here.here == Word::works && system.usable() && answered(system, id) == false) {
        here.here = Word::device;
        here.advice = "no device here reports it";
      }
      out.push_back(std::move(here));
    }
  }
  return out;
}

}  // namespace ibvexp::tool::doctor
