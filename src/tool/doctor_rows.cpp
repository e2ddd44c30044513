#include "table/feature_bits.h"
#include "tool/doctor.h"

#include <fmt/core.h>

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

RowHere judge(std::string_view name, Family family, const Answer &a, const System &system) {
  const auto row = [&](Here here, std::string advice) {
    return RowHere{name, family, here, std::move(advice)};
  };
  const std::string note(a.note);
  if (a.verdict == Verdict::unsupported) return row(Here::refused, note);
  if (a.verdict == Verdict::query_only && a.target.empty()) return row(Here::refused, note);
  if (a.state == State::planned) return row(Here::later, "");
  const std::optional<int> core = system.rdma_core();
  if (core && *core < a.min_core)
    return row(Here::upgrade, fmt::format("rdma-core {} or newer", a.min_core));
  if (!system.usable()) return row(Here::device, "no usable device");
  if (a.verdict == Verdict::beyond)
    return row(Here::on_demand, fmt::format("IBVEXP_BEYOND={}", info(a.beyond).name));
  return row(Here::works, a.verdict == Verdict::partial ? note : "");
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
      if (here.here == Here::works && system.usable() && answered(system, id) == false) {
        here.here = Here::device;
        here.advice = "no device here reports it";
      }
      out.push_back(std::move(here));
    }
  }
  return out;
}

}  // namespace ibvexp::tool::doctor
