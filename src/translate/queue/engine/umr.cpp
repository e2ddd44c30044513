// Filling and invalidating indirect memory keys. An entry has no address vector, on
// DC initiators neither: nothing of it goes to the wire.
#include "translate/queue/lane/special.h"

#include "translate/queue/lane/key_entry.h"
#include "translate/queue/lane/umr_layout.h"

#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/state/context_state.h"

#include <cerrno>

namespace ibvexp::lane {

namespace {

constexpr EntryId posting = EntryId::ibv_exp_post_send;

int check_access(std::uint64_t access) {
  constexpr std::uint64_t rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                                   IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC |
                                   IBV_EXP_ACCESS_MW_BIND;
  const std::uint64_t others = access & ~rights;
  if (others == 0) return 0;
  if (const auto known = check_bits(posting, "ext_op.umr.exp_access", others,
                                    bits_of<"ibv_exp_access_flags">(), ~std::uint64_t{0});
      !known)
    return known.error();
  ignored(posting, "ext_op.umr.exp_access", others, "not a right of a key");
  return 0;
}

int check_type(std::uint32_t type) {
  switch (type) {
    case IBV_EXP_UMR_MR_LIST:
    case IBV_EXP_UMR_REPEAT: return 0;
    case IBV_EXP_UMR_MR_LIST_FIXED_SIZE:
      return unsupported(posting, FeatureId::IBV_EXP_UMR_MR_LIST_FIXED_SIZE, "ext_op.umr.umr_type",
                         type)
          .code;
    default: return invalid(posting, "ext_op.umr.umr_type", type, "no such type").code;
  }
}

// The room that a request names for what it does not carry itself.
int find_room(ContextState &state, const Umr &umr, const UmrLayout &layout, KeyListMemory &room) {
  const MutexGuard guard(state.mutex);
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
int place_units(const Poster &poster, ContextState &state, const ibv_exp_send_wr &wr,
                const UmrLayout &layout, RawWqe &wqe) {
  const Umr &umr = wr.ext_op.umr;
  if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0) {
    if (umr.num_mrs > poster.max_umr_pieces || layout.bytes() > wqe.room() ||
        wqe.size() + layout.bytes() > poster.max_bytes)
      return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than max_inl_send_klms")
          .code;
    write_units(umr, layout, wqe.append(layout.bytes()));
    return 0;
  }
  constexpr auto id = FeatureId::umr_ext_op_memory_objects;
  if (effective_now(row(id).answer).verdict == Verdict::unsupported)
    return unsupported(posting, id, "exp_send_flags", wr.exp_send_flags).code;
  KeyListMemory room;
  if (const int fault = find_room(state, umr, layout, room); fault != 0) return fault;
  write_units(umr, layout, room.entries);
  auto &where = wqe.append<mlx5_wqe_data_seg>();
  where.lkey = htobe32(room.mr->lkey);
  where.addr = htobe64(reinterpret_cast<std::uintptr_t>(room.entries));
  return 0;
}

}  // namespace

int write_umr(const Poster &poster, const ibv_exp_send_wr &wr, Special &special) {
  ContextState *state = find_state(poster.context);
  if (state == nullptr) return EINVAL;
  // Queue pairs that were not created for it, datagrams among them.
  if (poster.max_umr_pieces == 0)
    return invalid(posting, "exp_opcode", static_cast<std::uint32_t>(wr.exp_opcode),
                   "the queue pair was not created with IBV_EXP_QP_CREATE_UMR")
        .code;
  const Umr &umr = wr.ext_op.umr;
  const IndirectKey *key = umr.modified_mr != nullptr ? find_key(state, umr.modified_mr) : nullptr;
  if (key == nullptr)
    return invalid(posting, "ext_op.umr.modified_mr", 0, "not made by ibv_exp_create_mr").code;

  RawWqe &wqe = special.wqe;
  auto [change, context] = begin_key_entry(wqe, key->mr.lkey);
  special.meaning = {IBV_EXP_WC_UMR, 0};
  special.fence = true;
  change.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
  if (wr.exp_opcode == IBV_EXP_WR_UMR_INVALIDATE) {
    change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    return 0;
  }

  if (const int fault = check_type(umr.umr_type); fault != 0) return fault;
  if (const int fault = check_access(umr.exp_access); fault != 0) return fault;
  // The legacy provider's number for it, sign and all.
  if (umr.umr_type == IBV_EXP_UMR_REPEAT && umr.mem_list.rb.stride_dim != 1) {
    static_cast<void>(invalid(posting, "ext_op.umr.mem_list.rb.stride_dim",
                              umr.mem_list.rb.stride_dim, "must be 1"));
    return -ENOMEM;
  }
  UmrLayout layout;
  if (measure(umr, key->mr.context, layout) != 0)
    return invalid(posting, "ext_op.umr", umr.num_mrs, "a piece or pattern that no key can have")
        .code;
  if (layout.units > key->entries)
    return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than the key holds").code;

  change.mkey_mask |= htobe64(
      MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | mask_local_read |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
  if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0) change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
  change.klm_octowords = htobe16(static_cast<std::uint16_t>(layout.padded_units()));
  context.access_flags = key_rights(umr.exp_access);
  context.start_addr = htobe64(umr.base_addr);
  context.len = htobe64(layout.length);
  return place_units(poster, *state, wr, layout, wqe);
}

}  // namespace ibvexp::lane
