// What a device, a port and a GID say of themselves.
#include <array>

#include "rig.h"

namespace truth {
namespace {

void query_device(Rig &rig, const Call &call, Answer &answer) {
  auto &attr = rig.device_attr;
  std::memset(&attr, call.integer("fill"), sizeof(attr));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.comp_mask_2 = call.number("mask2");
  number(answer, [&] { return ibv_exp_query_device(rig.context, &attr); });
  set(answer, "mask", attr.comp_mask);
  set(answer, "mask2", static_cast<std::uint64_t>(attr.comp_mask_2));
  set(answer, "flags", static_cast<std::uint64_t>(attr.exp_device_cap_flags));
}

// A member of the last query_device.
void device(Rig &rig, const Call &call, Answer &answer) {
  const auto wanted = call.text("member");
  const auto &attr = rig.device_attr;
#define MEMBER(name)   \
  if (wanted == #name) \
    answer.members["value"] = std::to_string(static_cast<std::uint64_t>(attr.name));
#include "device_members.def"
#undef MEMBER
  answer.outcome = answer.members.empty() ? "unknown" : "ok";
}

void query_device_base(Rig &rig, const Call &, Answer &answer) {
  ibv_device_attr attr{};
  number(answer, [&] { return ibv_query_device(rig.context, &attr); });
  set(answer, "qp", attr.max_qp);
  set(answer, "wr", attr.max_qp_wr);
  set(answer, "flags", attr.device_cap_flags);
  set(answer, "sge", attr.max_sge);
  set(answer, "atomic", static_cast<int>(attr.atomic_cap));
  set(answer, "mw", attr.max_mw);
  set(answer, "fmr", attr.max_fmr);
  set(answer, "map", attr.max_map_per_fmr);
}

void query_port(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_port_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.mask1 = static_cast<std::uint32_t>(call.number("mask1"));
  const auto port = static_cast<std::uint8_t>(call.number("port"));
  number(answer, [&] { return ibv_exp_query_port(rig.context, port, &attr); });
  set(answer, "mask", attr.comp_mask);
  set(answer, "mask1", attr.mask1);
  set(answer, "state", static_cast<int>(attr.state));
  set_two(answer, "mtu", attr.max_mtu, attr.active_mtu);
  set(answer, "width", attr.active_width);
  set(answer, "speed", attr.active_speed);
  set(answer, "link", attr.link_layer);
  set(answer, "caps", attr.port_cap_flags);
  say(answer, "gids", attr.gid_tbl_len > 0 ? "some" : "0");
  set(answer, "pkeys", attr.pkey_tbl_len);
  whether_set(answer, "lid", attr.lid);
}

void query_gid_attr(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_gid_attr attr;
  std::memset(&attr, 0xee, sizeof(attr));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] {
    return ibv_exp_query_gid_attr(rig.context, static_cast<std::uint8_t>(call.number("port")),
                                  static_cast<unsigned>(call.number("index")), &attr);
  });
  set_or_kept(answer, "type", static_cast<std::uint32_t>(attr.type));
  const std::array<std::uint8_t, 16> none{};
  say(answer, "gid",
      is_kept(attr.gid)                                 ? "kept"
      : std::memcmp(attr.gid.raw, none.data(), 16) == 0 ? "zero"
                                                        : "set");
}

void query_values(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_values values{};
  values.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_query_values(rig.context, call.integer("asked"), &values); });
  set(answer, "mask", values.comp_mask);
  whether_set(answer, "ns", values.hwclock_ns);
  whether_set(answer, "clock", values.hwclock);
  whether_set(answer, "mult", values.clock_info.mult);
  set(answer, "shift", values.clock_info.shift);
  set(answer, "clock_mask", static_cast<std::uint64_t>(values.clock_info.mask));
  set(answer, "info_mask", values.clock_info.comp_mask);
}

}  // namespace

void add_device_verbs(Verbs &verbs) {
  verbs["query_device"] = query_device;
  verbs["device"] = device;
  verbs["base_query_device"] = query_device_base;
  verbs["query_port"] = query_port;
  verbs["query_gid_attr"] = query_gid_attr;
  verbs["query_values"] = query_values;
}

}  // namespace truth
