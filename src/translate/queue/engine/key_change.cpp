#include "translate/queue/engine/key_change.h"

#include "translate/queue/engine/segments.h"
#include "translate/queue/lane/key_entry.h"
#include "translate/queue/lane/umr_layout.h"
#include "translate/queue/send_refusal.h"
#include "translate/state/context_state.h"

#include <algorithm>
#include <array>

namespace ibvexp::engine {

namespace {

using lane::Umr;

constexpr std::uint64_t known_rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                                       IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC |
                                       IBV_EXP_ACCESS_MW_BIND;
constexpr std::uint64_t usual_flags =
    IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;

// What a filled key gets: the masks of lane/umr.cpp.
constexpr std::uint64_t filled =
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | lane::mask_local_read |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;

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
  static_assert(offsetof(mlx5_wqe_mkey_context_seg, access_flags) == 2 &&
                offsetof(mlx5_wqe_mkey_context_seg, qpn_mkey) == 4 && known_rights == 0x1f);
  constexpr std::uint64_t any_owner = std::uint64_t{0xffffff} << 32;
  std::array<std::uint64_t, known_rights + 1> heads{};
  for (std::uint64_t access = 0; access < heads.size(); ++access)
    heads[access] = any_owner | std::uint64_t{lane::key_rights(access)} << 16;
  return heads;
}();

// A pattern has a header.
inline std::uint32_t units_of(const Umr &umr) { return umr.num_mrs + umr.umr_type; }

// The region of the piece before: the next one is often of the same.
constexpr ibv_mr no_region{};
struct Region {
  const ibv_mr *last = &no_region;
  std::uint32_t lkey = 0;

  // Whether a piece may be of it.
  [[gnu::always_inline]] bool is(const ibv_mr *mr, const ibv_context *context) {
    if (mr == last) [[likely]]
      return true;
    if (mr == nullptr || mr->context != context) return false;
    last = mr;
    lkey = mr->lkey;
    return true;
  }
};

// Writes the units of a list. The bytes of the key; 0 for one that has to be judged.
[[gnu::always_inline]] inline std::uint64_t put_list(const Umr &umr, const ibv_context *context,
                                                     std::uint8_t *at) {
  const ibv_exp_mem_region *piece = umr.mem_list.mem_reg_list;
  if (piece == nullptr) [[unlikely]]
    return 0;
  std::uint64_t length = 0;
  Region region;
  const ibv_exp_mem_region *const end = piece + umr.num_mrs;
  do {
    const std::uint64_t bytes = piece->length;
    // 2 GiB have a form of their own.
    if (bytes - 1 >= lane::largest_piece - 1 || !region.is(piece->mr, context)) [[unlikely]]
      return 0;
    length += bytes;
    store(at, be(bytes << 32 | region.lkey));
    store(at + 8, be(std::uint64_t{piece->base_addr}));
    at += segment_bytes;
  } while (++piece != end);
  return length;
}

// The same of a pattern, whose blocks stand behind a header.
[[gnu::always_inline]] inline std::uint64_t put_pattern(const Umr &umr, const ibv_context *context,
                                                        std::uint8_t *const header) {
  const auto &pattern = umr.mem_list.rb;
  const ibv_exp_mem_repeat_block *block = pattern.mem_repeat_block_list;
  if (pattern.stride_dim != 1 || pattern.repeat_count == nullptr || block == nullptr) [[unlikely]]
    return 0;
  const std::size_t repetitions = pattern.repeat_count[0];
  if (repetitions - 1 >= UINT32_MAX) [[unlikely]]
    return 0;
  static_assert(offsetof(mlx5_wqe_umr_repeat_ent_seg, stride) == 0 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, byte_count) == 2 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, memkey) == 4 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, va) == 8);
  std::uint64_t cycle = 0;
  std::size_t largest = 0;  // or a number above it
  std::uint8_t *at = header;
  Region region;
  const ibv_exp_mem_repeat_block *const end = block + umr.num_mrs;
  do {
    if (!region.is(block->mr, context) || block->byte_count == nullptr || block->stride == nullptr)
        [[unlikely]]
      return 0;
    const std::size_t bytes = block->byte_count[0], stride = block->stride[0];
    if (bytes == 0) [[unlikely]]
      return 0;
    largest |= bytes | stride;
    cycle += bytes;
    at += segment_bytes;
    store(at, be(stride << 48 | bytes << 32 | region.lkey));
    store(at + 8, be(std::uint64_t{block->base_addr}));
  } while (++block != end);
  static_assert((lane::largest_block & (lane::largest_block + 1)) == 0);
  if (largest > lane::largest_block) [[unlikely]]
    return 0;
  static_assert(offsetof(mlx5_wqe_umr_repeat_block_seg, op) == 4 &&
                offsetof(mlx5_wqe_umr_repeat_block_seg, repeat_count) == 8 &&
                offsetof(mlx5_wqe_umr_repeat_block_seg, num_ent) == 14);
  store(header, be(cycle << 32 | lane::repeat_mark));
  store(header + 8, be(repetitions << 32 | umr.num_mrs));
  return cycle * repetitions;
}

[[gnu::always_inline]] inline void put_change(std::uint8_t *at, std::uint32_t units) {
  static_assert(offsetof(mlx5_wqe_umr_ctrl_seg, klm_octowords) == 4 &&
                offsetof(mlx5_wqe_umr_ctrl_seg, mkey_mask) == 8);
  store(at,
        std::uint64_t{be(static_cast<std::uint16_t>(units))} << 32 | MLX5_WQE_UMR_CTRL_FLAG_INLINE);
  store(at + 8, be(filled));
  std::memset(at + 16, 0, sizeof(mlx5_wqe_umr_ctrl_seg) - 16);
}

[[gnu::always_inline]] inline void put_context(std::uint8_t *at, std::uint64_t access,
                                               std::uint32_t lkey, std::uint64_t start,
                                               std::uint64_t length) {
  static_assert(offsetof(mlx5_wqe_mkey_context_seg, start_addr) == 16 &&
                offsetof(mlx5_wqe_mkey_context_seg, len) == 24);
  store(at, context_heads[access] | std::uint64_t{lkey} << 56);
  store(at + 8, std::uint64_t{0});
  store(at + 16, be(start));
  store(at + 24, be(length));
  std::memset(at + 32, 0, sizeof(mlx5_wqe_mkey_context_seg) - 32);
}

// The indirect key that a request changes, or null: the request has to be judged
// otherwise. Its pieces have still to be looked at.
[[gnu::always_inline]] inline const ibv_mr *key_of(const SendQueue &queue,
                                                   const ibv_exp_send_wr &wr) {
  static_assert(int{IBV_EXP_UMR_MR_LIST} == 0 && int{IBV_EXP_UMR_REPEAT} == 1);
  const Umr &umr = wr.ext_op.umr;
  const ibv_mr *const changed = umr.modified_mr;
  if (umr.umr_type > IBV_EXP_UMR_REPEAT ||
      umr.num_mrs - 1 >= queue.keys.most_pieces[umr.umr_type] ||
      (wr.exp_send_flags & (~usual_flags | queue.refused_flags)) != IBV_EXP_SEND_INLINE ||
      umr.exp_access > known_rights || changed == nullptr) [[unlikely]]
    return nullptr;
  const void *const known = queue.keys.known->find(changed->lkey >> 8);
  if (known != changed || units_of(umr) > static_cast<const IndirectKey *>(known)->entries)
      [[unlikely]]
    return nullptr;
  return changed;
}

// Writes the entry of a request whose key is known. False: it has to be judged otherwise.
[[gnu::always_inline]] inline bool put_entry(const SendQueue &queue, const ibv_exp_send_wr &wr,
                                             std::uint32_t lkey, std::uint32_t posted,
                                             std::uint8_t *at) {
  const Umr &umr = wr.ext_op.umr;
  std::uint32_t units = units_of(umr);
  const bool pattern = umr.umr_type == IBV_EXP_UMR_REPEAT;
  const std::uint64_t length = pattern ? put_pattern(umr, queue.keys.context, at + units_at)
                                       : put_list(umr, queue.keys.context, at + units_at);
  // An empty key, or one over the end of the address space.
  if (length == 0 || umr.base_addr + (length - 1) < umr.base_addr) [[unlikely]]
    return false;
  for (; units % units_of_block != 0; ++units)
    std::memset(at + units_at + units * segment_bytes, 0, segment_bytes);
  put_change(at + change_at, units);
  put_context(at + context_at, umr.exp_access, lkey, umr.base_addr, length);
  std::uint32_t control = queue.control[wr.exp_send_flags & 7];
  if ((wr.exp_send_flags & IBV_EXP_SEND_FENCE) == 0) control |= queue.fence;
  const std::uint32_t segments = units_at / segment_bytes + units;
  write_control(at, control_head(posted, MLX5_OPCODE_UMR, queue.number, segments), control,
                be(lkey));
  return true;
}

// The same over the end of the ring.
[[gnu::noinline, gnu::cold]] bool put_over_end(const SendQueue &queue, const ibv_exp_send_wr &wr,
                                               std::uint32_t lkey, std::uint32_t posted,
                                               std::uint8_t *entry, std::size_t bytes) {
  std::uint8_t image[most_blocks * block_bytes];
  if (!put_entry(queue, wr, lkey, posted, image)) return false;
  const auto part = static_cast<std::size_t>(queue.end - entry);
  std::memcpy(entry, image, part);
  std::memcpy(queue.begin, image + part, bytes - part);
  return true;
}

}  // namespace

void allow_key_changes(SendQueue &queue, const ContextState &state, std::uint32_t pieces) {
  queue.max_umr_pieces = pieces;
  const std::uint32_t blocks = std::min(queue.max_blocks, most_blocks);
  // What refuses data in entries refuses such keys.
  if (pieces == 0 || !queue.extended || blocks <= blocks_before ||
      (queue.refused_flags & IBV_EXP_SEND_INLINE) != 0 ||
      !translate::opcode_served(IBV_EXP_WR_UMR_FILL))
    return;
  const std::uint32_t units = (blocks - blocks_before) * units_of_block;
  queue.keys = {&state.keys, state.context, {std::min(pieces, units), std::min(pieces, units - 1)}};
}

KeyChanges put_key_changes(SendQueue &queue, ibv_exp_send_wr *wr, std::uint32_t limit) {
  KeyChanges done;
  std::uint32_t posted = *queue.posted;
  do {
    const ibv_mr *const key = key_of(queue, *wr);
    if (key == nullptr) [[unlikely]]
      break;
    const std::uint32_t slot = posted & queue.mask;
    std::uint8_t *const entry = queue.begin + (std::size_t{slot} << log_block);
    const std::uint32_t blocks = blocks_before + blocks_of(units_of(wr->ext_op.umr));
    const std::size_t bytes = std::size_t{blocks} << log_block;
    const bool written = bytes > static_cast<std::size_t>(queue.end - entry)
                             ? put_over_end(queue, *wr, key->lkey, posted, entry, bytes)
                             : put_entry(queue, *wr, key->lkey, posted, entry);
    if (!written) [[unlikely]]
      break;
    // The next entry waits until the key is the new one.
    queue.fence = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
    queue.sent[slot] = {wr->wr_id, std::uint64_t{IBV_EXP_WC_UMR} << 32 | queue.count++};
    posted += blocks;
    done = {wr, load<std::uint64_t>(entry)};
    wr = wr->next;
  } while (wr != nullptr && wr->exp_opcode == IBV_EXP_WR_UMR_FILL && queue.count != limit);
  *queue.posted = posted;
  return done;
}

}  // namespace ibvexp::engine
