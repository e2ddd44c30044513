#include "translate/queue/engine/key_change.h"

#include <algorithm>
#include <array>

#include "translate/convert/access_convert.h"
#include "translate/queue/engine/key_segments.h"
#include "translate/queue/send_refusal.h"
#include "translate/queue/umr_layout.h"
#include "translate/state/context_state.h"

namespace ibvexp::engine {

namespace {

using queue::Umr;
using translate::access_rights;

constexpr std::uint64_t usual_flags =
    IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;

// An entry: control segment, what changes, the new context of the key, and units of 16
// bytes, in groups of four.
constexpr std::uint32_t change_at = segment_bytes;
constexpr std::uint32_t context_at = change_at + sizeof(mlx5_wqe_umr_ctrl_seg);
constexpr std::uint32_t units_at = context_at + sizeof(mlx5_wqe_mkey_context_seg);
constexpr std::uint32_t blocks_before = units_at / block_bytes;
static_assert(units_at % block_bytes == 0);
constexpr std::uint32_t units_of_block = block_bytes / segment_bytes;
constexpr std::uint32_t most_blocks = max_segments / units_of_block;

// The first word of a key's context by exp_access, less the key.
constexpr auto context_heads = [] {
  static_assert(access_rights == 0x1f);
  std::array<std::uint64_t, access_rights + 1> heads{};
  for (std::uint64_t access = 0; access < heads.size(); ++access)
    heads[access] = context_head(0, queue::key_rights(access), any_owner, 0);
  return heads;
}();

// A pattern has a header. Its type and pieces are read once: what is written into the ring may, for
// all the compiler knows, be the request.
constexpr std::uint32_t units_of(std::uint32_t type, std::uint32_t pieces) { return pieces + type; }

[[gnu::always_inline]] inline bool is_of(const ibv_context *context, const ibv_mr *region) {
  return region != nullptr && region->context == context;
}

// Whether a piece may be of the region; last: that of the piece before, which it often is of.
[[gnu::always_inline]] inline bool may_be_of(const ibv_mr *region, const ibv_mr *&last,
                                             const ibv_context *context) {
  if (region == last) [[likely]]
    return true;
  if (!is_of(context, region)) return false;
  last = region;
  return true;
}

// Writes the units of a list. The bytes of the key; 0 for one that has to be judged.
[[gnu::always_inline]] inline std::uint64_t put_list(const Umr &umr, std::uint32_t pieces,
                                                     const ibv_context *context, std::uint8_t *at) {
  const ibv_exp_mem_region *piece = umr.mem_list.mem_reg_list;
  if (piece == nullptr) [[unlikely]]
    return 0;
  const ibv_mr *region = piece->mr;
  if (!is_of(context, region)) [[unlikely]]
    return 0;
  std::uint64_t length = 0;
  const ibv_exp_mem_region *const end = piece + pieces;
  do {
    const std::uint64_t bytes = piece->length;
    // 2 GiB have a form of their own.
    if (bytes - 1 >= queue::largest_piece - 1 || !may_be_of(piece->mr, region, context))
        [[unlikely]]
      return 0;
    length += bytes;
    store(at, be(bytes << 32 | region->lkey));
    store(at + 8, be(std::uint64_t{piece->base_addr}));
    at += segment_bytes;
  } while (++piece != end);
  return length;
}

// The same of a pattern, whose blocks stand behind a header.
[[gnu::always_inline]] inline std::uint64_t put_pattern(const Umr &umr, std::uint32_t pieces,
                                                        const ibv_context *context,
                                                        std::uint8_t *const header) {
  const auto &pattern = umr.mem_list.rb;
  const ibv_exp_mem_repeat_block *block = pattern.mem_repeat_block_list;
  if (pattern.stride_dim != 1 || pattern.repeat_count == nullptr || block == nullptr) [[unlikely]]
    return 0;
  const std::size_t repetitions = pattern.repeat_count[0];
  static_assert(offsetof(mlx5_wqe_umr_repeat_ent_seg, stride) == 0 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, byte_count) == 2 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, memkey) == 4 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, va) == 8);
  std::uint64_t cycle = 0;
  // Or a number above it, which no bytes are, and too many repetitions.
  std::size_t largest = repetitions >> 32 << 32;
  std::uint8_t *at = header;
  const ibv_mr *region = block->mr;
  if (!is_of(context, region)) [[unlikely]]
    return 0;
  const ibv_exp_mem_repeat_block *const end = block + pieces;
  do {
    if (!may_be_of(block->mr, region, context) || block->byte_count == nullptr ||
        block->stride == nullptr) [[unlikely]]
      return 0;
    const std::size_t bytes = block->byte_count[0], stride = block->stride[0];
    largest |= (bytes - 1) | stride;
    cycle += bytes;
    at += segment_bytes;
    store(at, be(stride << 48 | bytes << 32 | region->lkey));
    store(at + 8, be(std::uint64_t{block->base_addr}));
  } while (++block != end);
  // What is larger is rare.
  static_assert((queue::largest_block & (queue::largest_block + 1)) == 0);
  if (largest > queue::largest_block / 2) [[unlikely]]
    return 0;
  static_assert(offsetof(mlx5_wqe_umr_repeat_block_seg, op) == 4 &&
                offsetof(mlx5_wqe_umr_repeat_block_seg, repeat_count) == 8 &&
                offsetof(mlx5_wqe_umr_repeat_block_seg, num_ent) == 14);
  store(header, be(cycle << 32 | queue::repeat_mark));
  store(header + 8, be(repetitions << 32 | pieces));
  return cycle * repetitions;
}

// The indirect key that a request changes, or null: the request has to be judged
// otherwise. Its pieces have still to be looked at.
[[gnu::always_inline]] inline const ibv_mr *key_of(const SendQueue &queue,
                                                   const ibv_exp_send_wr &wr, std::uint32_t type,
                                                   std::uint32_t pieces) {
  static_assert(int{IBV_EXP_UMR_MR_LIST} == 0 && int{IBV_EXP_UMR_REPEAT} == 1);
  const Umr &umr = wr.ext_op.umr;
  const ibv_mr *const changed = umr.modified_mr;
  if (type > IBV_EXP_UMR_REPEAT || pieces - 1 >= queue.keys.most_pieces[type] ||
      (wr.exp_send_flags & (~usual_flags | queue.refused_flags)) != IBV_EXP_SEND_INLINE ||
      umr.exp_access > access_rights || changed == nullptr) [[unlikely]]
    return nullptr;
  const void *const known = queue.keys.known->find(changed->lkey >> 8);
  if (known != changed || units_of(type, pieces) > static_cast<const IndirectKey *>(known)->entries)
      [[unlikely]]
    return nullptr;
  return changed;
}

// Writes the entry of a request whose key is known. Its first word; 0: it has to be judged
// otherwise.
[[gnu::always_inline]] inline std::uint64_t put_entry(const SendQueue &queue,
                                                      const ibv_exp_send_wr &wr, std::uint32_t type,
                                                      std::uint32_t pieces, std::uint32_t blocks,
                                                      std::uint32_t lkey, std::uint32_t posted,
                                                      std::uint8_t *at) {
  const Umr &umr = wr.ext_op.umr;
  // Nothing may stand behind the last unit.
  if (units_of(type, pieces) % units_of_block != 0)
    std::memset(at + (std::size_t{blocks} - 1) * block_bytes, 0, block_bytes);
  const std::uint64_t length = type == IBV_EXP_UMR_REPEAT
                                   ? put_pattern(umr, pieces, queue.keys.context, at + units_at)
                                   : put_list(umr, pieces, queue.keys.context, at + units_at);
  // An empty key, or one over the end of the address space.
  const std::uint64_t start = umr.base_addr, flags = wr.exp_send_flags;
  if (length == 0 || start + (length - 1) < start) [[unlikely]]
    return 0;
  put_change(at + change_at, MLX5_WQE_UMR_CTRL_FLAG_INLINE,
             (blocks - blocks_before) * units_of_block, mask_filled);
  put_context(at + context_at, context_heads[umr.exp_access] | std::uint64_t{lkey} << 56, start,
              length);
  std::uint32_t control = queue.control[flags & 7];
  if ((flags & IBV_EXP_SEND_FENCE) == 0) control |= queue.fence;
  const std::uint64_t head =
      control_head(posted, MLX5_OPCODE_UMR, queue.number, blocks * units_of_block);
  write_control(at, head, control, be(lkey));
  return head;
}

// The same over the end of the ring.
[[gnu::noinline, gnu::cold]] std::uint64_t put_over_end(const SendQueue &queue,
                                                        const ibv_exp_send_wr &wr,
                                                        std::uint32_t type, std::uint32_t pieces,
                                                        std::uint32_t blocks, std::uint32_t lkey,
                                                        std::uint32_t posted, std::uint8_t *entry) {
  std::uint8_t image[most_blocks * block_bytes];
  const std::uint64_t head = put_entry(queue, wr, type, pieces, blocks, lkey, posted, image);
  if (head == 0) return 0;
  const auto part = static_cast<std::size_t>(queue.end - entry);
  std::memcpy(entry, image, part);
  std::memcpy(queue.begin, image + part, blocks * block_bytes - part);
  return head;
}

}  // namespace

void allow_some_key_changes(SendQueue &queue, const ContextState &state, std::uint32_t pieces) {
  queue.max_umr_pieces = pieces;
  const std::uint32_t blocks = std::min(queue.max_blocks, most_blocks);
  // What refuses data in entries refuses such keys.
  if (blocks <= blocks_before || (queue.refused_flags & IBV_EXP_SEND_INLINE) != 0 ||
      !translate::opcode_served(IBV_EXP_WR_UMR_FILL))
    return;
  const std::uint32_t units = (blocks - blocks_before) * units_of_block;
  queue.keys = {&state.keys, state.context, {std::min(pieces, units), std::min(pieces, units - 1)}};
}

Written<ibv_exp_send_wr> put_key_changes(SendQueue &queue, ibv_exp_send_wr *wr,
                                         std::uint32_t limit) {
  Written<ibv_exp_send_wr> done;
  std::uint32_t posted = *queue.posted;
  do {
    const std::uint32_t type = wr->ext_op.umr.umr_type, pieces = wr->ext_op.umr.num_mrs;
    const ibv_mr *const key = key_of(queue, *wr, type, pieces);
    if (key == nullptr) [[unlikely]]
      break;
    const std::uint32_t slot = posted & queue.mask;
    std::uint8_t *const entry = queue.begin + (std::size_t{slot} << log_block);
    const std::uint32_t blocks = blocks_before + blocks_of(units_of(type, pieces));
    const std::uint64_t head =
        std::size_t{blocks} << log_block > static_cast<std::size_t>(queue.end - entry)
            ? put_over_end(queue, *wr, type, pieces, blocks, key->lkey, posted, entry)
            : put_entry(queue, *wr, type, pieces, blocks, key->lkey, posted, entry);
    if (head == 0) [[unlikely]]
      break;
    // The next entry waits until the key is the new one.
    queue.fence = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
    queue.sent[slot] = {wr->wr_id, std::uint64_t{IBV_EXP_WC_UMR} << 32 | queue.count++};
    posted += blocks;
    done = {wr, head};
    wr = wr->next;
  } while (wr != nullptr && wr->exp_opcode == IBV_EXP_WR_UMR_FILL && queue.count != limit);
  *queue.posted = posted;
  return done;
}

}  // namespace ibvexp::engine
