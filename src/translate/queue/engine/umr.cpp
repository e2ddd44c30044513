// Filling and invalidating indirect memory keys. An entry has no address vector, on
// DC initiators neither: nothing of it goes to the wire.
#include <cerrno>

#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/key_segments.h"
#include "translate/queue/engine/special.h"
#include "translate/queue/umr_request.h"

namespace ibvexp::engine {

namespace {

using queue::Umr;
using queue::UmrLayout;

constexpr EntryId posting = EntryId::ibv_exp_post_send;

// In front of the units: the control segment and what changes, and the new context.
constexpr std::uint32_t head_segments = 8;

// The room that a request names for what it does not carry itself.
int find_room(ibv_context *context, const ibv_exp_send_wr &wr, const KeyListMemory *&room) {
  constexpr auto id = FeatureId::umr_ext_op_memory_objects;
  if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
    return unsupported(posting, id, "exp_send_flags", wr.exp_send_flags).code;
  opened_by(Beyond::umr_noninline, name_of_feature<id>);
  const Umr &umr = wr.ext_op.umr;
  room = find_state(context)->key_lists.find(umr.memory_objects);
  if (room == nullptr)
    return invalid(posting, "ext_op.umr.memory_objects", 0, "null, of another context, or freed")
        .code;
  // One unit per piece, and the room has one to spare.
  if (umr.num_mrs > room->handle.max_klm_list_size)
    return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than memory_objects holds")
        .code;
  return 0;
}

void put_units(const Umr &umr, const UmrLayout &layout, EntryWriter &entry) {
  if (layout.units == 0) return;
  std::uint8_t units[std::size_t{max_segments} * segment_bytes];
  queue::write_units(umr, layout, units);
  entry.copy(units, layout.bytes());
}

int put_filling(SendQueue &queue, const ibv_exp_send_wr &wr, const UmrLayout &layout,
                std::uint32_t lkey, EntryWriter &entry) {
  const Umr &umr = wr.ext_op.umr;
  const bool in_entry = (wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0;
  const KeyListMemory *room = nullptr;
  if (!in_entry) {
    if (const int fault = find_room(queue.qp->context, wr, room); fault != 0) return fault;
    if (!entry.fits(head_segments + 1)) return ENOMEM;
  } else if (umr.num_mrs > queue.max_umr_pieces ||
             !entry.fits(head_segments + layout.padded_units())) {
    return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than max_inl_send_klms").code;
  }
  put_change(entry.rest_of_block(), in_entry ? MLX5_WQE_UMR_CTRL_FLAG_INLINE : 0,
             layout.padded_units(), mask_filled);
  put_context(entry.block(), context_head(0, queue::key_rights(umr.exp_access), any_owner, lkey),
              umr.base_addr, layout.length);
  if (in_entry) {
    put_units(umr, layout, entry);
  } else {
    queue::write_units(umr, layout, room->entries);
    write_data(entry.segment(), reinterpret_cast<std::uintptr_t>(room->entries), 0, room->mr->lkey);
  }
  return 0;
}

}  // namespace

int put_umr(SendQueue &queue, const ibv_exp_send_wr &wr) {
  const IndirectKey *key = nullptr;
  UmrLayout layout;
  if (const int fault = queue::judge_umr(queue.qp->context, wr, queue.max_umr_pieces, key, layout);
      fault != 0)
    return fault;
  const std::uint32_t lkey = key->mr.lkey;
  EntryWriter entry(queue);
  if (wr.exp_opcode != IBV_EXP_WR_UMR_INVALIDATE) {
    if (const int fault = put_filling(queue, wr, layout, lkey, entry); fault != 0) return fault;
  } else {
    if (!entry.fits(head_segments)) return ENOMEM;
    put_change(entry.rest_of_block(), MLX5_WQE_UMR_CTRL_FLAG_INLINE, 0,
               MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
    put_context(entry.block(), context_head(MLX5_WQE_MKEY_CONTEXT_FREE, 0, any_owner, lkey), 0, 0);
  }
  entry.commit(MLX5_OPCODE_UMR, 0, wr.exp_send_flags, be(lkey), wr.wr_id, IBV_EXP_WC_UMR);
  entry.fence_next();
  return 0;
}

}  // namespace ibvexp::engine
