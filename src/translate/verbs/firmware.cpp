#include "translate/verbs/firmware.h"

#include <functional>

#include "base/keep_errno.h"
#include "base/real.h"
#include "translate/verbs/command_box.h"

namespace ibvexp::translate {

namespace {

// Opcodes.
constexpr std::uint32_t modify_cq = 0x403, create_dct = 0x710, query_dct = 0x713, arm_dct = 0x714;

// Where the context of the object begins: that of a target is dctc of mlx5_ifc.h.
constexpr std::size_t cqc = 128, dctc = 128;
using TargetBox = CommandBox<16 + 112>;

template <class Query>
Result<TargetFacts> query(std::uint32_t number, Query run) {
  const CommandBox<16> in(query_dct, number);
  TargetBox out;
  if (const auto asked = outcome(run(in.data(), in.size(), out.data(), out.size())); !asked)
    return asked.failure();
  return TargetFacts{static_cast<std::uint8_t>(out.get(dctc + 4, 4)), out.get_64(dctc + 256),
                     out.get(dctc + 384, 32)};
}

}  // namespace

Result<void> change_overrun(ibv_cq *cq, std::uint32_t number, bool ignored) {
  constexpr std::uint32_t select_overrun = 1u << 2;
  CommandBox<16 + 256> in(modify_cq, number);
  in.put(96, 32, select_overrun);
  in.put(cqc + 14, 1, ignored);
  CommandBox<16> out;
  return outcome(real().mlx5dv_devx_cq_modify(cq, in.data(), in.size(), out.data(), out.size()));
}

Result<TargetFacts> query_target(ibv_qp *target) {
  return query(target->qp_num, std::bind_front(real().mlx5dv_devx_qp_query, target));
}

Result<TargetFacts> query_target(mlx5dv_devx_obj *target, std::uint32_t number) {
  return query(number, std::bind_front(mlx5dv_devx_obj_query, target));
}

Result<CommandTarget> make_target(ibv_context *context, const TargetRequest &request,
                                  const ibv_qp_attr &attr) {
  constexpr std::uint32_t scatter_64_bytes = 2;
  const auto allows = [&](unsigned access) { return (attr.qp_access_flags & access) != 0; };
  const std::uint32_t atomics = allows(IBV_ACCESS_REMOTE_ATOMIC) ? request.atomic_mode : 0;
  const ibv_global_route &route = attr.ah_attr.grh;
  TargetBox in(create_dct);
  in.put(dctc + 40, 24, request.user_index);
  in.put(dctc + 72, 24, request.cqn);
  in.put(dctc + 104, 4, atomics);
  in.put(dctc + 108, 1, allows(IBV_ACCESS_REMOTE_READ));
  in.put(dctc + 109, 1, allows(IBV_ACCESS_REMOTE_WRITE));
  in.put(dctc + 110, 1, atomics != 0);
  in.put(dctc + 136, 8, request.scatters ? scatter_64_bytes : 0);
  in.put(dctc + 144, 8, attr.min_rnr_timer);
  in.put(dctc + 168, 24, request.srqn);
  in.put(dctc + 200, 24, request.pdn);
  in.put(dctc + 224, 8, route.traffic_class);
  in.put(dctc + 236, 20, route.flow_label);
  in.put_64(dctc + 256, request.access_key);
  in.put(dctc + 320, 8, attr.path_mtu);
  in.put(dctc + 328, 8, attr.port_num);
  in.put(dctc + 336, 16, attr.pkey_index);
  in.put(dctc + 360, 8, route.sgid_index);
  in.put(dctc + 376, 8, route.hop_limit);
  CommandTarget made;
  if (const auto created = create_object(context, in, made.object, made.number); !created)
    return created.failure();
  return made;
}

Result<void> arm_target(mlx5dv_devx_obj *target, std::uint32_t number) {
  return modify_object(target, CommandBox<16>(arm_dct, number));
}

}  // namespace ibvexp::translate
