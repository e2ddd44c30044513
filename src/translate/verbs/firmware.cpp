#include "translate/verbs/firmware.h"

#include <array>

#include "base/keep_errno.h"
#include "base/real.h"

namespace ibvexp::translate {

namespace {

// Boxes in the device's byte order; the opcode has the upper half of the first word.
constexpr std::uint32_t modify_cq = 0x403u << 16, create_dct = 0x710u << 16,
                        query_dct = 0x713u << 16, arm_dct = 0x714u << 16;
constexpr std::uint32_t number_bits = 0xffffff;
using Header = std::array<__be32, 4>;

// Commands about a target: its context (dctc of mlx5_ifc.h) by words.
struct TargetBox {
  Header head;
  std::array<__be32, 28> context;
};

Header about_target(std::uint32_t command, std::uint32_t number) {
  return {htobe32(command), 0, htobe32(number & number_bits)};
}

TargetFacts facts_in(const TargetBox &out) {
  const auto word = [&](std::size_t at) { return be32toh(out.context[at]); };
  return {static_cast<std::uint8_t>(word(0) >> 24 & 0xf), std::uint64_t{word(8)} << 32 | word(9),
          word(12)};
}

}  // namespace

Result<void> change_overrun(ibv_cq *cq, std::uint32_t number, bool ignored) {
  constexpr std::uint32_t select_overrun = 1u << 2, overrun_ignored = 1u << 17;
  struct {
    Header head;
    std::array<__be32, 64> context;  // of which the first word has the flag
  } in{{htobe32(modify_cq), 0, htobe32(number & number_bits), htobe32(select_overrun)},
       {htobe32(ignored ? overrun_ignored : 0)}};
  Header out{};
  return outcome(real().mlx5dv_devx_cq_modify(cq, &in, sizeof(in), out.data(), sizeof(out)));
}

Result<TargetFacts> query_target(ibv_qp *target) {
  const Header in = about_target(query_dct, target->qp_num);
  TargetBox out{};
  if (const auto asked =
          outcome(real().mlx5dv_devx_qp_query(target, in.data(), sizeof(in), &out, sizeof(out)));
      !asked)
    return asked.failure();
  return facts_in(out);
}

Result<CommandTarget> make_target(ibv_context *context, const TargetRequest &request,
                                  const ibv_qp_attr &attr) {
  constexpr std::uint32_t scatter_64_bytes = 2;
  const auto flag = [&](unsigned access, unsigned at) {
    return (attr.qp_access_flags & access) != 0 ? 1u << at : 0u;
  };
  const std::uint32_t atomics =
      (attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0 ? request.atomic_mode : 0;
  const ibv_global_route &route = attr.ah_attr.grh;
  TargetBox in{};
  in.head[0] = htobe32(create_dct);
  const auto set = [&](std::size_t at, std::uint32_t value) { in.context[at] = htobe32(value); };
  set(1, request.user_index);
  set(2, request.cqn);
  set(3, atomics << 20 | flag(IBV_ACCESS_REMOTE_READ, 19) | flag(IBV_ACCESS_REMOTE_WRITE, 18) |
             (atomics != 0 ? 1u << 17 : 0));
  set(4, (request.scatters ? scatter_64_bytes << 16 : 0) |
             static_cast<std::uint32_t>(attr.min_rnr_timer) << 8);
  set(5, request.srqn);
  set(6, request.pdn);
  set(7, static_cast<std::uint32_t>(route.traffic_class) << 24 | (route.flow_label & 0xfffff));
  set(8, static_cast<std::uint32_t>(request.access_key >> 32));
  set(9, static_cast<std::uint32_t>(request.access_key));
  set(10, static_cast<std::uint32_t>(attr.path_mtu) << 24 |
              static_cast<std::uint32_t>(attr.port_num) << 16 | attr.pkey_index);
  set(11, static_cast<std::uint32_t>(route.sgid_index) << 16 | route.hop_limit);
  const KeepErrno keep;
  Header out{};
  mlx5dv_devx_obj *const object =
      mlx5dv_devx_obj_create(context, &in, sizeof(in), out.data(), sizeof(out));
  if (object == nullptr) return keep.reason();
  return CommandTarget{object, be32toh(out[2]) & number_bits};
}

Result<TargetFacts> query_target(mlx5dv_devx_obj *target, std::uint32_t number) {
  const Header in = about_target(query_dct, number);
  TargetBox out{};
  if (const auto asked =
          outcome(mlx5dv_devx_obj_query(target, in.data(), sizeof(in), &out, sizeof(out)));
      !asked)
    return asked.failure();
  return facts_in(out);
}

Result<void> arm_target(mlx5dv_devx_obj *target, std::uint32_t number) {
  const Header in = about_target(arm_dct, number);
  Header out{};
  return outcome(mlx5dv_devx_obj_modify(target, in.data(), sizeof(in), out.data(), sizeof(out)));
}

}  // namespace ibvexp::translate
