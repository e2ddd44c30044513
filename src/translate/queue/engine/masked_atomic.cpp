// Masked compare-and-swap and fetch-and-add of 4 to 32 bytes.
//
// In the entry: remote address, operands, the place of the answer. Operands are
// big-endian integers of the argument's size, without gaps: swap, compare, swap
// mask, compare mask, or addend and field boundary, padded to 16 bytes.
#include <algorithm>
#include <cerrno>

#include "translate/queue/engine/special.h"

namespace ibvexp::engine {

namespace {

// The last size that fits in a request without operands of its own in memory.
constexpr std::uint32_t log_immediate = 3;
constexpr std::uint32_t log_least = 2, log_most = 5;
constexpr std::uint8_t extended = 8;

class Operands {
 public:
  Operands(RawWqe &wqe, std::uint32_t log_size, unsigned count)
      : size_(1u << log_size),
        next_(static_cast<std::uint8_t *>(
            wqe.append((size_ * count + RawWqe::unit - 1) & ~(RawWqe::unit - 1)))) {}

  // What a request holds: a value in its low bytes, or the address of an integer
  // in host order.
  void add(std::uint64_t held) {
    const std::uint8_t *bytes = size_ <= sizeof(held)
                                    ? reinterpret_cast<const std::uint8_t *>(&held)
                                    : reinterpret_cast<const std::uint8_t *>(held);
    next_ = std::reverse_copy(bytes, bytes + size_, next_);
  }

 private:
  std::size_t size_;
  std::uint8_t *next_;
};
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

// Operands behind addresses are there to be read.
bool present(std::uint32_t log_size, std::initializer_list<std::uint64_t> held) {
  return log_size <= log_immediate ||
         std::none_of(held.begin(), held.end(), [](std::uint64_t address) { return address == 0; });
}

}  // namespace

int write_masked_atomic(const PostingQp &qp, const ibv_exp_send_wr &wr, Special &special) {
  const auto &atomic = wr.ext_op.masked_atomics;
  const bool swaps = wr.exp_opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;
  if (qp.type != IBV_QPT_RC && !qp.initiator) return EINVAL;
  // Operands exist in the request only.
  if ((wr.exp_send_flags & IBV_EXP_SEND_EXT_ATOMIC_INLINE) == 0) return EINVAL;
  if (atomic.log_arg_sz < log_least || atomic.log_arg_sz > log_most) return EINVAL;
  if (wr.num_sge < 0) return EINVAL;
  if (static_cast<std::uint32_t>(wr.num_sge) > qp.max_send_sge) return ENOMEM;
  if (wr.num_sge != 0 && wr.sg_list == nullptr) return EINVAL;

  RawWqe &wqe = special.wqe;
  wqe.begin(swaps ? MLX5_OPCODE_ATOMIC_MASKED_CS : MLX5_OPCODE_ATOMIC_MASKED_FA,
            static_cast<std::uint8_t>(extended | (atomic.log_arg_sz - log_least)));
  if (const int error = append_address(qp, wr, wqe); error != 0) return error;
  auto &remote = wqe.append<mlx5_wqe_raddr_seg>();
  remote.raddr = htobe64(atomic.remote_addr);
  remote.rkey = htobe32(atomic.rkey);

  if (swaps) {
    const ibv_exp_cmp_swap &op = atomic.wr_data.inline_data.op.cmp_swap;
    if (!present(atomic.log_arg_sz, {op.swap_val, op.compare_val, op.swap_mask, op.compare_mask}))
      return EINVAL;
    Operands operands(wqe, atomic.log_arg_sz, 4);
    operands.add(op.swap_val);
    operands.add(op.compare_val);
    operands.add(op.swap_mask);
    operands.add(op.compare_mask);
  } else {
    const ibv_exp_fetch_add &op = atomic.wr_data.inline_data.op.fetch_add;
    if (!present(atomic.log_arg_sz, {op.add_val, op.field_boundary})) return EINVAL;
    Operands operands(wqe, atomic.log_arg_sz, 2);
    operands.add(op.add_val);
    operands.add(op.field_boundary);
  }

  std::uint32_t left = 1u << atomic.log_arg_sz;
  special.completion_opcode = swaps ? IBV_EXP_WC_MASKED_COMP_SWAP : IBV_EXP_WC_MASKED_FETCH_ADD;
  for (int i = 0; i < wr.num_sge && left != 0; ++i) {
    const std::uint32_t length = std::min(wr.sg_list[i].length, left);
    if (length == 0) continue;
    if (wqe.room() < sizeof(mlx5_wqe_data_seg)) return ENOMEM;
    auto &data = wqe.append<mlx5_wqe_data_seg>();
    data.byte_count = htobe32(length);
    data.lkey = htobe32(wr.sg_list[i].lkey);
    data.addr = htobe64(wr.sg_list[i].addr);
    left -= length;
  }
  return 0;
}

}  // namespace ibvexp::engine
