// Masked compare-and-swap and fetch-and-add of 4 to 32 bytes.
//
// In the entry: remote address, operands, the place of the answer. Operands are
// big-endian integers of the argument's size, without gaps: swap, compare, swap
// mask, compare mask, or addend and field boundary, padded to 16 bytes.
#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "trace/diagnose.h"
#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/post_send.h"
#include "translate/queue/engine/special.h"

namespace ibvexp::engine {

namespace {

// The last size that fits in a request without operands of its own in memory.
constexpr std::uint32_t log_immediate = 3;
constexpr std::uint32_t log_least = 2, log_most = 5;
constexpr std::uint8_t extended = 8;

// What a request holds: values in their low bytes, or the addresses of integers in host order.
struct Operands {
  std::array<std::uint64_t, 4> held;
  std::size_t count;
};

Operands operands_of(const ibv_exp_send_wr &wr, bool swaps) {
  const auto &op = wr.ext_op.masked_atomics.wr_data.inline_data.op;
  if (!swaps) return {{op.fetch_add.add_val, op.fetch_add.field_boundary}, 2};
  return {{op.cmp_swap.swap_val, op.cmp_swap.compare_val, op.cmp_swap.swap_mask,
           op.cmp_swap.compare_mask},
          4};
}

void put_operands(std::span<const std::uint64_t> held, std::size_t size, EntryWriter &entry) {
  std::uint8_t image[4u << log_most];
  std::uint8_t *next = image;
  for (const std::uint64_t &each : held) {
    const auto *bytes = size <= sizeof(each) ? reinterpret_cast<const std::uint8_t *>(&each)
                                             : reinterpret_cast<const std::uint8_t *>(each);
    next = std::reverse_copy(bytes, bytes + size, next);
  }
  entry.copy(image, static_cast<std::size_t>(next - image));
}

// The places of an answer of that many bytes. Pieces without bytes take none.
template <class Put>
void for_each_place(const ibv_exp_send_wr &wr, std::uint32_t bytes, Put put) {
  for (int i = 0; i < wr.num_sge && bytes != 0; ++i) {
    const std::uint32_t length = std::min(wr.sg_list[i].length, bytes);
    if (length != 0) put(wr.sg_list[i], length);
    bytes -= length;
  }
}

// The destination, of transports whose queue pairs have several: a DC target, or an XRC SRQ.
std::uint32_t destination_segments(Transport transport) {
  return transport == Transport::dc ? segments_of(sizeof(mlx5_wqe_av))
                                    : transport == Transport::xrc;
}
void put_destination(Transport transport, const ibv_exp_send_wr &wr, EntryWriter &entry) {
  if (transport == Transport::dc) {
    std::uint8_t address[sizeof(mlx5_wqe_av)];
    write_address(address, wr.dc.ah, be(wr.dc.dct_access_key), wr.dc.dct_number);
    entry.copy(address, sizeof(address));
  } else if (transport == Transport::xrc) {
    const std::uint32_t receiver = be(wr.qp_type.xrc.remote_srqn);
    entry.copy(&receiver, sizeof(receiver));
  }
}

int refused(const char *field, std::uint64_t value, const char *why) {
  return invalid(EntryId::ibv_exp_post_send, field, value, why).code;
}

// 0, or why such a request cannot be posted to the queue.
int check(const SendQueue &queue, const ibv_exp_send_wr &wr, std::span<const std::uint64_t> held) {
  if (!is_ordinary(queue.transport, IBV_WR_ATOMIC_FETCH_AND_ADD))
    return refused("exp_opcode", static_cast<std::uint32_t>(wr.exp_opcode),
                   "for RC, XRC and DC only");
  if ((wr.exp_send_flags & IBV_EXP_SEND_EXT_ATOMIC_INLINE) == 0)
    return refused("exp_send_flags", wr.exp_send_flags,
                   "operands are taken with IBV_EXP_SEND_EXT_ATOMIC_INLINE only");
  const std::uint32_t log_size = wr.ext_op.masked_atomics.log_arg_sz;
  if (log_size < log_least || log_size > log_most)
    return refused("ext_op.masked_atomics.log_arg_sz", log_size, "must be 2 to 5");
  if (wr.num_sge < 0)
    return refused("num_sge", static_cast<std::uint32_t>(wr.num_sge), "must not be negative");
  if (static_cast<std::uint32_t>(wr.num_sge) > queue.max_pieces) return ENOMEM;
  if (queue.transport == Transport::dc && wr.dc.ah == nullptr)
    return refused("dc.ah", 0, "must not be null");
  if (log_size > log_immediate && std::ranges::count(held, 0u) != 0)
    return refused("ext_op.masked_atomics.wr_data", 0,
                   "operands of more than 8 bytes are addresses, none of them null");
  return 0;
}

}  // namespace

int put_masked_atomic(SendQueue &queue, const ibv_exp_send_wr &wr) {
  const auto &atomic = wr.ext_op.masked_atomics;
  const bool swaps = wr.exp_opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;
  const Operands operands = operands_of(wr, swaps);
  const std::span held(operands.held.data(), operands.count);
  if (const int error = check(queue, wr, held); error != 0) return error;
  const Transport transport = queue.transport;
  const std::uint32_t size = 1u << atomic.log_arg_sz;
  std::uint32_t segments = 2 + destination_segments(transport) + segments_of(size * held.size());
  for_each_place(wr, size, [&](const ibv_sge &, std::uint32_t) { ++segments; });
  EntryWriter entry(queue);
  if (!entry.fits(segments)) return ENOMEM;
  put_destination(transport, wr, entry);
  write_remote(entry.segment(), atomic.remote_addr, atomic.rkey);
  put_operands(held, size, entry);
  for_each_place(wr, size, [&](const ibv_sge &piece, std::uint32_t length) {
    write_data(entry.segment(), piece.addr, length, piece.lkey);
  });
  entry.commit(swaps ? MLX5_OPCODE_ATOMIC_MASKED_CS : MLX5_OPCODE_ATOMIC_MASKED_FA,
               extended | (atomic.log_arg_sz - log_least), wr.exp_send_flags, 0, wr.wr_id);
  return 0;
}

}  // namespace ibvexp::engine
