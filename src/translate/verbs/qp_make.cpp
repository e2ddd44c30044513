#include "translate/verbs/qp_make.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/real.h"
#include "table/options.h"
#include "translate/convert/room.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/hca_caps.h"

namespace ibvexp::translate {

namespace {

using queue::By;

// For what libmlx5 counts room in an entry. It writes every operation of the type in any case.
enum class Operations : std::uint8_t {
  usual,  // all of the type
  lean,   // the smaller ones: leaves more room for inline data, in which the others have to fit
};

std::uint64_t flags_of(Operations which, ibv_qp_type type, bool atomics) {
  constexpr std::uint64_t writes = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                                   IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  constexpr std::uint64_t windows = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
  const bool lean = which == Operations::lean;
  switch (type) {
    case IBV_QPT_UC: return writes;  // never without need: it has neither builders nor key changes
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_DRIVER: {
      constexpr std::uint64_t reads = writes | IBV_QP_EX_WITH_RDMA_READ;
      if (lean) return reads;
      return reads | windows |
             (atomics ? std::uint64_t{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD}
                      : 0);
    }
    default: return 0;
  }
}

bool is_lean_possible(ibv_qp_type type) { return flags_of(Operations::lean, type, false) != 0; }

// One attempt. Changes what is asked for to what was asked and granted; after a failure it is of
// no use.
ibv_qp *attempt(ContextState &state, ModernQpInit &asked, const EntryRoom &room,
                Operations counted) {
  const ibv_qp_type type = asked.attr.qp_type;
  const bool key_changes = room.key_change_bytes != 0;
  // The engine writes entries itself, but libmlx5 makes no initiator without builders.
  asked.builders = room.by == By::libmlx5 && (type == IBV_QPT_DRIVER || key_changes);
  if (asked.builders || type == IBV_QPT_DRIVER || counted == Operations::lean) {
    asked.attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    asked.attr.send_ops_flags =
        flags_of(counted, type, state.device().atomic_cap != IBV_ATOMIC_NONE);
    asked.needs_dv = true;
  }
  if (asked.builders && key_changes) {
    asked.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    asked.dv.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED;
  }
  if (key_changes)
    asked.attr.cap.max_inline_data =
        std::max(asked.attr.cap.max_inline_data, inline_data_for(type, room.key_change_bytes));
  if (room.by == By::engine && must_not_scatter_answers(type)) {
    asked.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    asked.dv.create_flags |= MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
    asked.needs_dv = true;
  }

  if (asked.needs_dv) return real().mlx5dv_create_qp(state.context, &asked.attr, &asked.dv);
  if (asked.attr.comp_mask == IBV_QP_INIT_ATTR_PD)
    return real().ibv_create_qp(asked.attr.pd, reinterpret_cast<ibv_qp_init_attr *>(&asked.attr));
  return queue::create_native(state.context, asked.attr);
}

// A send queue of so many blocks. max_qp_wr is that number; newer kernels count in the largest
// requests, and the device itself says it.
bool exceeds(ContextState &state, std::uint32_t blocks) {
  const auto reported = static_cast<std::uint32_t>(state.device().max_qp_wr);
  if (blocks <= reported) [[likely]]
    return false;
  return blocks > largest_send_queue(state.context).value_or(reported);
}

std::optional<LegacyGrants> grants_of(ContextState &state, const ModernQpInit &modern,
                                      const EntryRoom &room) {
  if (!room.extra || modern.scales() || !mlx5dv_is_supported(state.context->device)) return {};
  return legacy_grants(modern.attr.qp_type, modern.attr.cap, *room.extra);
}

// The engine takes as many requests as were granted, which libmlx5's entries, no smaller, have room
// for.
void show_grants(ibv_qp_cap &cap, const LegacyGrants &legacy) {
  cap.max_send_wr = legacy.requests;
  cap.max_send_sge = legacy.pieces;
  cap.max_inline_data = legacy.inline_data;
}

}  // namespace

ibv_qp *make_qp(ContextState &state, ModernQpInit &modern, const EntryRoom &room) {
  const auto legacy = grants_of(state, modern, room);
  if (!legacy) return attempt(state, modern, room, Operations::usual);
  if (exceeds(state, legacy->blocks)) {
    errno = ENOMEM;
    return nullptr;
  }

  // First entries as large as the legacy provider's, as libmlx5 usually counts them; then counted
  // in the lean way, if they have room for everything nevertheless.
  const ModernQpInit asked = modern;
  const auto attempt_with_room = [&](Operations counted) {
    modern.attr.cap.max_inline_data = legacy->inline_data;
    modern.attr.cap.max_send_sge = legacy->pieces;
    return attempt(state, modern, room, counted);
  };
  constexpr std::uint32_t room_for_all = 512;
  ibv_qp *made = attempt_with_room(Operations::usual);
  if (made == nullptr && errno == EINVAL && legacy->inline_data >= room_for_all &&
      room.key_change_bytes == 0 && is_lean_possible(asked.attr.qp_type)) {
    modern = asked;
    made = attempt_with_room(Operations::lean);
  }
  if (made != nullptr) {
    if (room.by == By::engine) show_grants(modern.attr.cap, *legacy);
    return made;
  }
  // Too many for entries of that size: with the room that the program asked for.
  if (errno != EINVAL) return nullptr;
  modern = asked;
  return attempt(state, modern, room, Operations::usual);
}

ibv_qp *make_plain_as_legacy(ContextState &state, ibv_pd *pd, ibv_qp_init_attr &asked) {
  const auto legacy = legacy_grants(asked.qp_type, asked.cap);
  if (!legacy) return real().ibv_create_qp(pd, &asked);
  if (exceeds(state, legacy->blocks)) {
    errno = ENOMEM;
    return nullptr;
  }
  asked.cap.max_inline_data = legacy->inline_data;
  asked.cap.max_send_sge = legacy->pieces;
  ibv_qp *const made = real().ibv_create_qp(pd, &asked);
  if (made != nullptr) show_grants(asked.cap, *legacy);
  return made;
}

}  // namespace ibvexp::translate
