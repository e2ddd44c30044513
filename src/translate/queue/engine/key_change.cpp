#include "translate/queue/engine/key_change.h"

#include "translate/queue/engine/segments.h"
#include "translate/queue/lane/key_entry.h"
#include "translate/queue/lane/umr_layout.h"
#include "translate/queue/send_refusal.h"
#include "translate/state/context_state.h"

namespace ibvexp::engine {

namespace {

using lane::Umr;

constexpr std::uint64_t known_rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                                       IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC |
                                       IBV_EXP_ACCESS_MW_BIND;
constexpr std::uint64_t usual_flags =
    IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED | IBV_EXP_SEND_INLINE;

// What a filled key gets: the masks of lane/umr.cpp.
constexpr std::uint64_t filled =
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | lane::mask_local_read |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;

constexpr std::uint32_t most_blocks = max_segments / 4;  // of an entry, when full

inline std::uint8_t *next_block(const SendQueue &queue, std::uint8_t *block) {
  block += block_bytes;
  return block == queue.end ? queue.begin : block;
}

// Units of 16 bytes, four to a block.
class Units {
 public:
  Units(const SendQueue &queue, std::uint8_t *block) : queue_(queue), at_(block) {}
  // In host order.
  [[gnu::always_inline]] void put(std::uint64_t high, std::uint64_t low) {
    store(at_, be(high));
    store(at_ + 8, be(low));
    at_ += segment_bytes;
    if ((++count_ & 3) == 0 && at_ == queue_.end) at_ = queue_.begin;
  }
  std::uint32_t fill_up() {
    for (; (count_ & 3) != 0; ++count_, at_ += segment_bytes) std::memset(at_, 0, segment_bytes);
    return count_;
  }

 private:
  const SendQueue &queue_;
  std::uint8_t *at_;
  std::uint32_t count_ = 0;
};

// The bytes of the key; 0 for one that has to be judged.
[[gnu::always_inline]] inline std::uint64_t put_list(const Umr &umr, const ibv_context *context,
                                                     Units &units) {
  std::uint64_t length = 0;
  const ibv_exp_mem_region *piece = umr.mem_list.mem_reg_list;
  if (piece == nullptr) return 0;
  for (const ibv_exp_mem_region *const end = piece + umr.num_mrs; piece != end; ++piece) {
    // 2 GiB have a form of their own.
    if (piece->length - 1 >= lane::largest_piece - 1 || piece->mr == nullptr ||
        piece->mr->context != context) [[unlikely]]
      return 0;
    length += piece->length;
    units.put(piece->length << 32 | piece->mr->lkey, piece->base_addr);
  }
  return length;
}

[[gnu::always_inline]] inline std::uint64_t put_pattern(const Umr &umr, const ibv_context *context,
                                                        Units &units) {
  const auto &pattern = umr.mem_list.rb;
  if (pattern.stride_dim != 1 || pattern.repeat_count == nullptr ||
      pattern.mem_repeat_block_list == nullptr)
    return 0;
  const std::size_t repetitions = pattern.repeat_count[0];
  const ibv_exp_mem_repeat_block *const first = pattern.mem_repeat_block_list;
  const ibv_exp_mem_repeat_block *const end = first + umr.num_mrs;
  if (repetitions - 1 >= UINT32_MAX) return 0;
  std::uint64_t cycle = 0;
  for (const auto *block = first; block != end; ++block) {
    if (block->mr == nullptr || block->mr->context != context || block->byte_count == nullptr ||
        block->stride == nullptr || block->byte_count[0] - 1 >= lane::largest_block ||
        block->stride[0] > lane::largest_block) [[unlikely]]
      return 0;
    cycle += block->byte_count[0];
  }
  static_assert(offsetof(mlx5_wqe_umr_repeat_block_seg, op) == 4 &&
                offsetof(mlx5_wqe_umr_repeat_block_seg, repeat_count) == 8 &&
                offsetof(mlx5_wqe_umr_repeat_block_seg, num_ent) == 14);
  units.put(cycle << 32 | lane::repeat_mark, repetitions << 32 | umr.num_mrs);
  static_assert(offsetof(mlx5_wqe_umr_repeat_ent_seg, stride) == 0 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, byte_count) == 2 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, memkey) == 4 &&
                offsetof(mlx5_wqe_umr_repeat_ent_seg, va) == 8);
  for (const auto *block = first; block != end; ++block)
    units.put(block->stride[0] << 48 | block->byte_count[0] << 32 | block->mr->lkey,
              block->base_addr);
  return cycle * repetitions;
}

}  // namespace

bool put_key_change(SendQueue &queue, const ibv_exp_send_wr &wr) {
  static const bool served = translate::opcode_served(IBV_EXP_WR_UMR_FILL);
  const Umr &umr = wr.ext_op.umr;
  const std::uint64_t flags = wr.exp_send_flags;
  const bool pattern = umr.umr_type == IBV_EXP_UMR_REPEAT;
  const std::uint32_t blocks = 2 + blocks_of(umr.num_mrs + std::uint32_t{pattern});
  // Of a queue that takes none the most is 0.
  if (!served || !queue.extended || umr.num_mrs - 1 >= queue.max_umr_pieces ||
      blocks > queue.max_blocks || blocks > most_blocks || queue.qp == nullptr ||
      (flags & (~usual_flags | queue.refused_flags)) != 0 || (flags & IBV_EXP_SEND_INLINE) == 0 ||
      (umr.exp_access & ~known_rights) != 0 || (!pattern && umr.umr_type != IBV_EXP_UMR_MR_LIST) ||
      umr.modified_mr == nullptr) [[unlikely]]
    return false;
  ibv_context *const context = queue.qp->context;
  const ContextState *state = find_state(context);
  const IndirectKey *key = find_key(state, umr.modified_mr);
  if (key == nullptr || umr.num_mrs + std::uint32_t{pattern} > key->entries) [[unlikely]]
    return false;

  const std::uint32_t posted = *queue.posted;
  const std::uint32_t slot = posted & queue.mask;
  std::uint8_t *const entry = queue.begin + (std::size_t{slot} << log_block);
  std::uint8_t *const about = next_block(queue, entry);
  Units units(queue, next_block(queue, about));
  const std::uint64_t length =
      pattern ? put_pattern(umr, context, units) : put_list(umr, context, units);
  // An empty key, or one over the end of the address space.
  if (length == 0 || umr.base_addr + (length - 1) < umr.base_addr) [[unlikely]]
    return false;
  const std::uint32_t count = units.fill_up();

  mlx5_wqe_umr_ctrl_seg change{};
  change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
  change.klm_octowords = be(static_cast<std::uint16_t>(count));
  change.mkey_mask = be(filled);
  std::memcpy(entry + segment_bytes, &change, sizeof(change));
  mlx5_wqe_mkey_context_seg new_key{};
  new_key.access_flags = lane::key_rights(umr.exp_access);
  new_key.qpn_mkey = be(0xffffff00 | (key->mr.lkey & 0xff));
  new_key.start_addr = be(umr.base_addr);
  new_key.len = be(length);
  static_assert(sizeof(new_key) == block_bytes);
  std::memcpy(about, &new_key, sizeof(new_key));

  std::uint32_t control = queue.control[flags & 7];
  if ((flags & IBV_EXP_SEND_FENCE) == 0) control |= queue.fence;
  const std::uint32_t segments = 8 + count;
  write_control(entry, control_head(posted, MLX5_OPCODE_UMR, queue.number, segments), control,
                be(key->mr.lkey));
  // The next entry waits until the key is the new one.
  queue.fence = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
  queue.sent[slot] = {wr.wr_id, std::uint64_t{IBV_EXP_WC_UMR} << 32 | queue.count};
  *queue.posted = posted + blocks_of(segments);
  ++queue.count;
  return true;
}

}  // namespace ibvexp::engine
