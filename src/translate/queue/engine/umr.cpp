// Filling and invalidating indirect memory keys. An entry has no address vector, on
// DC initiators neither: nothing of it goes to the wire.
#include <cerrno>

#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/queue/engine/key_entry.h"
#include "translate/queue/engine/special.h"
#include "translate/queue/umr_request.h"

namespace ibvexp::engine {

namespace {

using queue::Umr;
using queue::UmrLayout;

constexpr EntryId posting = EntryId::ibv_exp_post_send;

// The room that a request names for what it does not carry itself.
int find_room(ContextState &state, const Umr &umr, const UmrLayout &layout, KeyListMemory &room) {
  const KeyListMemory *known = state.key_lists.find(umr.memory_objects);
  if (known == nullptr)
    return invalid(posting, "ext_op.umr.memory_objects", 0, "null, of another context, or freed")
        .code;
  if (umr.num_mrs > known->handle.max_klm_list_size)
    return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than memory_objects holds")
        .code;
  static_cast<void>(layout);  // one unit per piece, and the room has one to spare
  room = *known;
  return 0;
}

// Behind the context: the units themselves, or where they are.
int place_units(const PostingQp &qp, ContextState &state, const ibv_exp_send_wr &wr,
                const UmrLayout &layout, RawWqe &wqe) {
  const Umr &umr = wr.ext_op.umr;
  if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0) {
    if (umr.num_mrs > qp.max_umr_pieces || layout.bytes() > wqe.room() ||
        wqe.size() + layout.bytes() > qp.max_bytes)
      return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than max_inl_send_klms")
          .code;
    queue::write_units(umr, layout, wqe.append(layout.bytes()));
    return 0;
  }
  constexpr auto id = FeatureId::umr_ext_op_memory_objects;
  if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
    return unsupported(posting, id, "exp_send_flags", wr.exp_send_flags).code;
  opened_by(Beyond::umr_noninline, name_of_feature<id>);
  KeyListMemory room;
  if (const int fault = find_room(state, umr, layout, room); fault != 0) return fault;
  queue::write_units(umr, layout, room.entries);
  auto &where = wqe.append<mlx5_wqe_data_seg>();
  where.lkey = htobe32(room.mr->lkey);
  where.addr = htobe64(reinterpret_cast<std::uintptr_t>(room.entries));
  return 0;
}

}  // namespace

int write_umr(const PostingQp &qp, const ibv_exp_send_wr &wr, Special &special) {
  const IndirectKey *key = nullptr;
  UmrLayout layout;
  if (const int fault = queue::judge_umr(qp.context, wr, qp.max_umr_pieces, key, layout);
      fault != 0)
    return fault;
  const Umr &umr = wr.ext_op.umr;
  RawWqe &wqe = special.wqe;
  auto [change, context] = begin_key_entry(wqe, key->mr.lkey);
  special.completion_opcode = IBV_EXP_WC_UMR;
  special.fence = true;
  change.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
  if (wr.exp_opcode == IBV_EXP_WR_UMR_INVALIDATE) {
    change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    return 0;
  }

  change.mkey_mask |= htobe64(
      MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | mask_local_read |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
  if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0) change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
  change.klm_octowords = htobe16(static_cast<std::uint16_t>(layout.padded_units()));
  context.access_flags = queue::key_rights(umr.exp_access);
  context.start_addr = htobe64(umr.base_addr);
  context.len = htobe64(layout.length);
  return place_units(qp, *find_state(qp.context), wr, layout, wqe);
}

}  // namespace ibvexp::engine
