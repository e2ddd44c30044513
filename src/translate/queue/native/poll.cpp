#include "translate/queue/native/poll.h"

#include <cerrno>
#include <new>

#include "translate/queue/native/hooks.h"
#include "translate/queue/native/origin.h"
#include "translate/queue/stamps.h"

namespace ibvexp::native {

namespace {

using translate::wc_size_4_0;

ibv_exp_wc to_legacy(const ibv_wc &modern, Origins &origins, bool to_3x_or_4_0) {
  const Origin of = origins.find(modern.qp_num, modern.status, modern.opcode);
  return translate::to_legacy(modern, of, to_3x_or_4_0);
}

// The provider has written into the front of the caller's array, whose elements are larger: the
// completions move to their places from the last to the first, without a buffer.

[[gnu::always_inline]] inline void complete(ibv_exp_wc &wc, Origins &origins) {
  const auto opcode = static_cast<ibv_wc_opcode>(wc.exp_opcode);
  translate::complete_legacy(wc, origins.find(wc.qp_num, wc.status, opcode), false);
}

// Into structures of the newest size: the first is in its place, the others do not overlap theirs.
[[gnu::noinline]] void spread(const ContextState &state, const CqState *own, int count,
                              ibv_exp_wc *wc) {
  static_assert(sizeof(ibv_exp_wc) >= 2 * sizeof(ibv_wc));
  Origins origins(state, own);
  const char *from =
      reinterpret_cast<const char *>(wc) + static_cast<std::size_t>(count) * sizeof(ibv_wc);
  for (ibv_exp_wc *at = wc + count; at != wc;) {
    from -= sizeof(ibv_wc);
    if (--at != wc) std::memcpy(static_cast<void *>(at), from, sizeof(ibv_wc));
    complete(*at, origins);
  }
}

// One, as most calls take that take any.
[[gnu::noinline]] int complete_one(const ContextState &state, const CqState *own, ibv_exp_wc &wc) {
  Origins origins(state, own);
  complete(wc, origins);
  return 1;
}

[[gnu::noinline]] void spread_any(ContextState &state, const CqState *own, int count,
                                  ibv_exp_wc *wc, std::uint32_t wc_size) {
  const bool to_3x_or_4_0 = wc_size == wc_size_4_0;
  Origins origins(state, own);
  const ibv_wc *from = reinterpret_cast<const ibv_wc *>(wc) + count;
  char *at = reinterpret_cast<char *>(wc) + static_cast<std::size_t>(count) * wc_size;
  for (; count > 0; --count) {
    ibv_wc modern;
    std::memcpy(&modern, --from, sizeof(modern));
    at -= wc_size;
    translate::store(to_legacy(modern, origins, to_3x_or_4_0), at, wc_size);
  }
}

// The completion that the queue stands at. There is no reader of the P_Key index, nor of the
// immediate data of requests.
ibv_wc read(ibv_cq_ex *cq) {
  ibv_wc wc{};
  wc.wr_id = cq->wr_id;
  wc.status = cq->status;
  wc.qp_num = ibv_wc_read_qp_num(cq);
  if (wc.status != IBV_WC_SUCCESS && !translate::is_flag(wc.status)) {
    wc.vendor_err = ibv_wc_read_vendor_err(cq);
    return wc;
  }
  // libmlx5 has no opcode of its own for a match that was given up.
  wc.opcode = wc.status == IBV_WC_TM_RNDV_INCOMPLETE ? IBV_WC_TM_RECV : ibv_wc_read_opcode(cq);
  wc.wc_flags = ibv_wc_read_wc_flags(cq);
  wc.byte_len = ibv_wc_read_byte_len(cq);
  if (wc.opcode == IBV_WC_COMP_SWAP || wc.opcode == IBV_WC_FETCH_ADD) wc.byte_len = 8;
  if (!translate::is_receive(wc.opcode)) return wc;
  wc.imm_data = ibv_wc_read_imm_data(cq);
  wc.src_qp = ibv_wc_read_src_qp(cq);
  wc.slid = static_cast<std::uint16_t>(ibv_wc_read_slid(cq));
  wc.sl = ibv_wc_read_sl(cq);
  wc.dlid_path_bits = ibv_wc_read_dlid_path_bits(cq);
  return wc;
}

// What the header of a tagged message says. A match that comes before its data has no length
// yet.
void add_tag(ibv_cq_ex *cq, ibv_exp_wc &wc) {
  if (wc.exp_opcode != IBV_EXP_WC_TM_RECV) return;
  ibv_wc_tm_info info{};
  ibv_wc_read_tm_info(cq, &info);
  wc.tm_info.tag = info.tag;
  wc.tm_info.priv = info.priv;
  if ((wc.exp_wc_flags & (IBV_EXP_WC_TM_MATCH | IBV_EXP_WC_TM_DATA_VALID)) == IBV_EXP_WC_TM_MATCH)
    wc.byte_len = 0;
}

Result<int> poll_extended(ContextState &state, CqState &own, ibv_cq_ex *cq, int num_entries,
                          ibv_exp_wc *wc, std::uint32_t wc_size) {
  if (num_entries <= 0) return 0;
  ibv_poll_cq_attr attr{};
  if (const int error = ibv_start_poll(cq, &attr); error != 0) {
    if (error == ENOENT) return 0;
    return Error{EIO};
  }
  translate::Stamps stamps(state.context, own.stamps);
  Origins origins(state, &own);
  const bool to_3x_or_4_0 = wc_size == wc_size_4_0;
  char *at = reinterpret_cast<char *>(wc);
  int count = 0;
  do {
    ibv_wc modern = read(cq);
    settle(state, modern);
    ibv_exp_wc legacy = to_legacy(modern, origins, to_3x_or_4_0);
    if (own.tags) add_tag(cq, legacy);
    if (own.stamps != StampKind::none) stamps.put(ibv_wc_read_completion_ts(cq), legacy);
    translate::store(legacy, at, wc_size);
    at += wc_size;
  } while (++count < num_entries && ibv_next_poll(cq) == 0);
  ibv_end_poll(cq);
  return count;
}

// Not of a queue of the same address that was made past this library.
bool is_extended(const CqState *own, const ibv_cq_ex *cq) {
  return own != nullptr && (own->stamps != StampKind::none || own->tags) &&
         cq->start_poll != nullptr;
}

}  // namespace

Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc, std::uint32_t wc_size) {
  ContextState *state = attached(cq->context);
  CqState *own = find_cq(state, cq);
  if (auto *ex = reinterpret_cast<ibv_cq_ex *>(cq); is_extended(own, ex))
    return poll_extended(*state, *own, ex, num_entries, wc, wc_size);
  const int count = state->operations().poll_cq(cq, num_entries, reinterpret_cast<ibv_wc *>(wc));
  if (count < 0) return Error{EIO};
  if (wc_size != sizeof(*wc)) [[unlikely]]
    spread_any(*state, own, count, wc, wc_size);
  else if (count == 1) return complete_one(*state, own, *wc);
  else spread(*state, own, count, wc);
  return count;
}

}  // namespace ibvexp::native
