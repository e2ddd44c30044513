// Creating queue pairs of the builder lane.
#pragma once

#include "translate/state/lane.h"

#include "translate/convert/qp_convert.h"
#include "translate/state/context_state.h"

namespace ibvexp::lane {

// Why a queue pair is in the lane.
enum class Need : std::uint8_t {
  none,
  wanted,    // requests that the process may post; done without if libmlx5 has no builders
  required,  // nothing works without
};

// raw_bytes: the largest raw entry that the request itself announces, or 0.
Need need(ibv_context *context, ibv_qp_type type, std::uint32_t raw_bytes);

// What libmlx5 reckons entries for. It writes every operation of the type in any case:
// the lean set leaves more room for inline data, and the others need an entry that has
// room for them by that data alone.
enum class Operations : std::uint8_t { all, lean };

// The lean set, of connected types.
constexpr std::uint64_t lean_operations(ibv_qp_type type) {
  constexpr std::uint64_t writes = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                                   IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  switch (type) {
    case IBV_QPT_UC: return writes;
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_DRIVER: return writes | IBV_QP_EX_WITH_RDMA_READ;
    default: return 0;
  }
}

// Whether create() made a queue pair of the lane.
inline bool is_for(const translate::ModernQpInit &modern) {
  return (modern.attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
}

// Creates the queue pair, with the builders for everything its type can do, and room
// for raw entries of that many bytes. modern.attr.cap is what was granted. Null and
// errno. The lane itself is opened by enter(), with the queue pair's state.
ibv_qp *create(ContextState &state, translate::ModernQpInit &modern, Need need,
               std::uint32_t raw_bytes, Operations reckoned);

// Opens the lane of a queue pair from create(); leaves it closed if there are no
// builders. Throws bad_alloc.
void enter(Lane &lane, ibv_qp *qp, const translate::ModernQpInit &modern);

}  // namespace ibvexp::lane
