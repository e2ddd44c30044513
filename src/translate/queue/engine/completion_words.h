// Completions that succeeded and have nothing special, as most are, straight from
// the device's entry into the caller's structure: in a few stores. Fields that mean
// nothing for a completion are not written, as in libmlx5 and in the legacy provider.
// Everything else goes through take_other() in poll.cpp.
#pragma once

#include <array>

#include "translate/convert/wc_convert.h"
#include "translate/queue/engine/complete.h"

namespace ibvexp::engine {

// What the opcode of a request says about its completion.
struct SentCompletion {
  std::uint8_t wc = IBV_WC_SEND;
  std::uint8_t exp = IBV_EXP_WC_SEND;
  std::uint8_t wc_flags = 0;
  // unnamed: its completion has no opcode.
  enum : std::uint8_t { nothing, counted, eight, in_sent, masked, unnamed } bytes = nothing;

  constexpr bool has_bytes() const { return bytes == counted || bytes == eight || bytes == masked; }
};

inline constexpr auto sent_completions = [] {
  std::array<SentCompletion, 256> all{};
  const auto both = [&](int opcode, ibv_wc_opcode wc, auto bytes, unsigned flags = 0) {
    const auto code = static_cast<std::uint8_t>(wc);
    all[static_cast<std::size_t>(opcode)] = {code, code, static_cast<std::uint8_t>(flags), bytes};
  };
  both(MLX5_OPCODE_SEND_IMM, IBV_WC_SEND, SentCompletion::nothing, IBV_WC_WITH_IMM);
  both(MLX5_OPCODE_RDMA_WRITE, IBV_WC_RDMA_WRITE, SentCompletion::nothing);
  both(MLX5_OPCODE_RDMA_WRITE_IMM, IBV_WC_RDMA_WRITE, SentCompletion::nothing, IBV_WC_WITH_IMM);
  both(MLX5_OPCODE_RDMA_READ, IBV_WC_RDMA_READ, SentCompletion::counted);
  both(MLX5_OPCODE_ATOMIC_CS, IBV_WC_COMP_SWAP, SentCompletion::eight);
  both(MLX5_OPCODE_ATOMIC_FA, IBV_WC_FETCH_ADD, SentCompletion::eight);
  all[MLX5_OPCODE_TSO] = {IBV_WC_TSO, IBV_EXP_WC_TSO, 0, SentCompletion::nothing};
  all[MLX5_OPCODE_ATOMIC_MASKED_CS] = {IBV_EXP_WC_MASKED_COMP_SWAP, IBV_EXP_WC_MASKED_COMP_SWAP, 0,
                                       SentCompletion::masked};
  all[MLX5_OPCODE_ATOMIC_MASKED_FA] = {IBV_EXP_WC_MASKED_FETCH_ADD, IBV_EXP_WC_MASKED_FETCH_ADD, 0,
                                       SentCompletion::masked};
  both(MLX5_OPCODE_UMR, IBV_WC_SEND, SentCompletion::in_sent);
  both(MLX5_OPCODE_NOP, IBV_WC_SEND, SentCompletion::unnamed);
  return all;
}();

// What kind of message was received, and with what: the words of a completion that
// depend on nothing else.
struct ReceivedCompletion {
  std::uint64_t opcode = 0;     // with the status in front
  std::uint64_t exp_flags = 0;  // IBV_EXP_WC_*, without what is known of frames alone
  std::uint64_t wc_flags = 0;   // IBV_WC_*, with room for a source in front
  bool immediate = false;       // there is some, or a key
};

constexpr std::uint32_t receive_index(std::uint32_t kind, bool checksum, bool grh) {
  return kind << 2 | std::uint32_t{checksum} << 1 | std::uint32_t{grh};
}

// Completions of messages that invalidate a key have its number in another byte order.
template <bool to_3x_or_4_0>
inline constexpr auto received_completions = [] {
  std::array<ReceivedCompletion, receive_index(MLX5_CQE_RESP_SEND_INV, true, true) + 1> all{};
  for (std::uint32_t index = 0; index < all.size(); ++index) {
    const std::uint32_t kind = index >> 2;
    ReceivedCompletion &m = all[index];
    m.opcode = std::uint64_t{kind == MLX5_CQE_RESP_WR_IMM ? std::uint32_t{IBV_WC_RECV_RDMA_WITH_IMM}
                                                          : std::uint32_t{IBV_WC_RECV}}
               << 32;
    std::uint32_t flags = 0;
    if (kind == MLX5_CQE_RESP_WR_IMM || kind == MLX5_CQE_RESP_SEND_IMM) flags |= IBV_WC_WITH_IMM;
    if (kind == MLX5_CQE_RESP_SEND_INV) flags |= IBV_WC_WITH_INV;
    m.immediate = flags != 0;
    if ((index & 2) != 0) flags |= IBV_WC_IP_CSUM_OK;
    if ((index & 1) != 0) flags |= IBV_WC_GRH;
    m.wc_flags = std::uint64_t{flags} << 32;
    m.exp_flags = translate::receive_flags(flags & ~IBV_WC_IP_CSUM_OK, to_3x_or_4_0);
  }
  return all;
}();

using Word [[gnu::may_alias]] = std::uint64_t;
static_assert(offsetof(ibv_wc, opcode) == 12 && offsetof(ibv_wc, byte_len) == 20 &&
              offsetof(ibv_wc, imm_data) == 24 && offsetof(ibv_wc, qp_num) == 28 &&
              offsetof(ibv_wc, src_qp) == 32 && offsetof(ibv_wc, wc_flags) == 36 &&
              offsetof(ibv_wc, pkey_index) == 40 && offsetof(ibv_wc, slid) == 42 &&
              offsetof(ibv_wc, sl) == 44 && offsetof(ibv_wc, dlid_path_bits) == 45 &&
              sizeof(ibv_wc) == 48 && IBV_WC_SUCCESS == 0);
// The head of the legacy structure is ibv_wc (wc_convert.h).
static_assert(offsetof(ibv_exp_wc, exp_opcode) == 12 && offsetof(ibv_exp_wc, qp) == 56 &&
              offsetof(ibv_exp_wc, srq) == 64 && offsetof(ibv_exp_wc, dct) == 72 &&
              offsetof(ibv_exp_wc, exp_wc_flags) == 80);

inline std::uint32_t masked_bytes(const SendQueue &queue, Cqe cqe) {
  // The size of a masked atomic is in its entry.
  const std::uint8_t modifier = queue.begin[std::size_t{cqe.counter() & queue.mask} << log_block];
  return 4u << (modifier & 3);
}

[[gnu::always_inline]] inline std::uint32_t bytes_of(const SentCompletion &row,
                                                     const SendQueue &queue, Cqe cqe) {
  switch (row.bytes) {
    case SentCompletion::counted: return cqe.byte_count();
    case SentCompletion::masked: return masked_bytes(queue, cqe);
    default: return 8;
  }
}

[[gnu::always_inline]] inline void write_half(void *at, std::size_t offset, std::uint32_t value) {
  store(static_cast<std::uint8_t *>(at) + offset, value);
}

// Writes the opcode of a request, whether it succeeded or failed.
template <bool exp>
[[gnu::always_inline]] inline void write_opcode(const SentCompletion &row, const Sent &sent,
                                                void *at) {
  if (row.bytes == SentCompletion::unnamed) return;
  std::uint32_t opcode = exp ? row.exp : row.wc;
  if (row.bytes == SentCompletion::in_sent) opcode = sent.completion_opcode();
  write_half(at, offsetof(ibv_wc, opcode), opcode);
}

// wc_size 0: ibv_wc.
template <std::uint32_t wc_size>
[[gnu::always_inline]] inline void write_send(Endpoint &of, Cqe cqe, void *at) {
  constexpr bool exp = wc_size != 0;
  static_assert(int{IBV_WC_WITH_IMM} == int{IBV_EXP_WC_WITH_IMM});
  const Sent &sent = complete_send(of.send, cqe);
  const SentCompletion &row = sent_completions[cqe.send_opcode()];
  auto *to = static_cast<Word *>(at);
  to[0] = sent.wr_id;
  if (row.bytes == SentCompletion::nothing) [[likely]] {
    to[1] = std::uint64_t{exp ? row.exp : row.wc} << 32;
  } else {
    write_half(at, offsetof(ibv_wc, status), IBV_WC_SUCCESS);
    write_opcode<exp>(row, sent, at);
    if (row.has_bytes()) write_half(at, offsetof(ibv_wc, byte_len), bytes_of(row, of.send, cqe));
  }
  write_half(at, offsetof(ibv_wc, qp_num), cqe.number());
  if constexpr (exp) {
    to[7] = reinterpret_cast<std::uintptr_t>(of.qp);
    to[10] = of.send_flags | row.wc_flags;
  } else {
    write_half(at, offsetof(ibv_wc, wc_flags), row.wc_flags);
  }
}

// What is known of a message: nothing; that its entry of a shared queue is not done yet; that it
// is one for a whole entry; that it invalidates no key, either; that it is a frame, and its queue
// not shared; that the queue is shared, and locked; and that the endpoint is not special.
enum class Known : std::uint8_t { nothing, kept, messages, keeping, frame, shared, plain };

template <std::uint32_t wc_size, Known known = Known::nothing>
[[gnu::always_inline]] inline void write_receive(Endpoint &of, Cqe cqe, std::uint32_t kind,
                                                 void *at) {
  constexpr bool exp = wc_size != 0;
  auto *to = static_cast<Word *>(at);
  // In an order in which few registers do.
  if (known == Known::plain || known == Known::frame || (known == Known::nothing && !of.special))
      [[likely]]
    to[0] = complete_own_receive(of.receive);
  else if (known == Known::kept) to[0] = of.shared->ids[cqe.counter()];
  else
    to[0] = known == Known::shared ? complete_shared(*of.shared, cqe) : complete_receive(of, cqe);
  write_half(at, offsetof(ibv_wc, byte_len), cqe.byte_count());
  const std::uint32_t source = cqe.flags_and_source();
  // Frames have neither a GRH nor immediate data.
  constexpr bool message = !exp || known != Known::frame;
  std::uint32_t index = receive_index(kind, false, message && (source >> 28 & 3) != 0);
  const bool frame = known == Known::frame || (known == Known::nothing && of.frames);
  if (!exp && frame && checksum_flag(cqe) != 0) index |= receive_index(0, true, false);
  const ReceivedCompletion &row = received_completions<wc_size == translate::wc_size_4_0>[index];
  to[1] = row.opcode;
  to[4] = row.wc_flags | (source & 0xffffff);
  if constexpr (exp) {
    const std::uint64_t flags = row.exp_flags | of.receive_flags;
    to[10] = frame ? flags | completion_flags(cqe) : flags;
  }
  const std::uint32_t raw = cqe.immediate();
  write_half(at, offsetof(ibv_wc, qp_num), known == Known::plain ? of.number : cqe.number());
  if (message && row.immediate) {
    const bool turned = known < Known::keeping && kind == MLX5_CQE_RESP_SEND_INV;
    write_half(at, offsetof(ibv_wc, imm_data), turned ? be(raw) : raw);
  }
  to[5] = be(static_cast<std::uint16_t>(raw >> 16)) | std::uint32_t{cqe.slid()} << 16 |
          std::uint64_t{source >> 24 & 0xf} << 32 | std::uint64_t{cqe.path_bits()} << 40;
  if constexpr (exp) {
    static_assert(offsetof(Endpoint, srq) == offsetof(Endpoint, qp) + 8 &&
                  offsetof(Endpoint, dct) == offsetof(Endpoint, qp) + 16);
    // Most receive from a queue of their own.
    if (known == Known::plain || known == Known::frame || (known != Known::shared && !of.special))
      to[7] = reinterpret_cast<std::uintptr_t>(of.qp);
    else std::memcpy(to + 7, &of.qp, 24);
  }
}

inline constexpr auto statuses = [] {
  std::array<std::uint8_t, 256> table{};
  for (unsigned syndrome = 0; syndrome < table.size(); ++syndrome)
    table[syndrome] = static_cast<std::uint8_t>(status_of(static_cast<std::uint8_t>(syndrome)));
  return table;
}();

// kind: MLX5_CQE_REQ_ERR or RESP_ERR.
template <std::uint32_t wc_size>
[[gnu::always_inline]] inline void write_error(Endpoint &of, Cqe cqe, std::uint32_t kind,
                                               void *at) {
  constexpr bool exp = wc_size != 0;
  auto *to = static_cast<Word *>(at);
  write_half(at, offsetof(ibv_wc, status), statuses[cqe.syndrome()]);
  if (kind == MLX5_CQE_RESP_ERR) {
    to[0] = complete_receive(of, cqe);
    if (of.receive.strides != 0 && of.shared != nullptr) of.shared->strides_used[cqe.counter()] = 0;
  } else {
    const Sent &sent = complete_send(of.send, cqe);
    to[0] = sent.wr_id;
    if constexpr (exp) write_opcode<exp>(sent_completions[cqe.send_opcode()], sent, at);
  }
  write_half(at, offsetof(ibv_wc, vendor_err), cqe.vendor_syndrome());
  write_half(at, offsetof(ibv_wc, qp_num), cqe.number());
  if constexpr (exp) {
    to[7] = reinterpret_cast<std::uintptr_t>(of.qp);
    to[10] = of.send_flags;
    if (of.dct != nullptr) {
      std::memcpy(to + 8, &of.srq, 16);
      to[10] |= IBV_EXP_WC_DCT | IBV_EXP_WC_SRQ;
    }
  } else {
    write_half(at, offsetof(ibv_wc, wc_flags), 0);
  }
}

}  // namespace ibvexp::engine
