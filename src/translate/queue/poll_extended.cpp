#include "translate/queue/poll_extended.h"

#include "translate/convert/cqe_convert.h"
#include "translate/queue/engine/barrier.h"
#include "translate/queue/lane/hooks.h"
#include "translate/queue/origin.h"
#include "translate/queue/stamps.h"

#include <cerrno>

namespace ibvexp::translate {

namespace {

constexpr std::uint32_t ci_mask = 0xffffff;

// Entry n of the queue, n counted from the beginning; size entries.
const mlx5_cqe64 *cqe_at(const CqRing &ring, std::uint32_t n, std::uint32_t size) {
  const std::uint8_t *slot = ring.entries + std::size_t{n & (size - 1)} * ring.entry_size;
  return reinterpret_cast<const mlx5_cqe64 *>(ring.entry_size == 128 ? slot + 64 : slot);
}

// Whether the device has written entry n.
bool is_written(const mlx5_cqe64 &cqe, std::uint32_t n, std::uint32_t size) {
  const std::uint8_t op_own = engine::read_owner(&cqe.op_own);
  return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == ((n & size) != 0 ? 1 : 0);
}

// Entries that libmlx5 handles by itself are not reported: errors of signatures, and
// receive entries of a shared queue given back by on-demand paging.
bool is_silent(const mlx5_cqe64 &cqe, ibv_wc_status status) {
  constexpr std::uint8_t aborted = 0x22, page_fault = 0x93;
  const auto opcode = mlx5dv_get_cqe_opcode(const_cast<mlx5_cqe64 *>(&cqe));
  if (opcode == MLX5_CQE_SIG_ERR || opcode == MLX5_CQE_RESIZE_CQ) return true;
  return opcode == MLX5_CQE_RESP_ERR && cqe::syndrome(cqe) == aborted &&
         cqe::vendor_syndrome(cqe) == page_fault && status != IBV_WC_REM_ABORT_ERR;
}

// The entry that libmlx5 has taken last, the first from n on that it reports. Behind
// a resize there is an empty one.
const mlx5_cqe64 &taken(const CqRing &ring, std::uint32_t &n, std::uint32_t size,
                        ibv_wc_status status) {
  for (;; ++n) {
    const mlx5_cqe64 &cqe = *cqe_at(ring, n, size);
    if (is_written(cqe, n, size) && !is_silent(cqe, status)) [[likely]] {
      ++n;
      return cqe;
    }
  }
}

// The completion that stands in that entry.
ibv_wc completion(ibv_cq_ex *ex, const mlx5_cqe64 &cqe) {
  ibv_wc wc{};
  wc.wr_id = ex->wr_id;
  wc.status = ex->status;
  to_modern(cqe, wc);
  if (wc.status == IBV_WC_SUCCESS &&
      mlx5dv_get_cqe_opcode(const_cast<mlx5_cqe64 *>(&cqe)) == MLX5_CQE_REQ) {
    wc.opcode = ibv_wc_read_opcode(ex);
    if (wc.opcode == IBV_WC_COMP_SWAP || wc.opcode == IBV_WC_FETCH_ADD) wc.byte_len = 8;
  }
  return wc;
}

std::uint32_t size_of(const ibv_cq *cq) { return static_cast<std::uint32_t>(cq->cqe) + 1; }

}  // namespace

Result<int> poll_extended(ContextState &context, CqState &state, ibv_cq *cq, int num_entries,
                          ibv_exp_wc *wc, std::uint32_t wc_size) {
  if (num_entries <= 0) return 0;
  ibv_cq_ex *ex = reinterpret_cast<ibv_cq_ex *>(cq);
  ibv_poll_cq_attr attr{};
  int error = ibv_start_poll(ex, &attr);
  if (error == ENOENT) return 0;
  if (error != 0) return Error{EIO};

  // The lock of the queue is held, and the record is written by ibv_end_poll().
  const CqRing &ring = state.ring;
  std::uint32_t n = be32toh(*ring.doorbell) & ci_mask;
  Stamps stamps(context.context, ring.stamps);
  Origins origins(&context, &state);
  const bool to_3x_or_4_0 = wc_size == wc_size_4_0;
  char *at = reinterpret_cast<char *>(wc);
  int count = 0;
  do {
    const mlx5_cqe64 &cqe = taken(ring, n, size_of(cq), ex->status);
    ibv_wc modern = completion(ex, cqe);
    lane::settle(context, modern);
    const Origin origin = origins.find(modern);
    if (origin.raw && cqe::checksum_ok(cqe)) modern.wc_flags |= IBV_WC_IP_CSUM_OK;
    ibv_exp_wc legacy = to_legacy(modern, origin, to_3x_or_4_0);
    stamps.put(cqe::timestamp(cqe), legacy);
    store(legacy, at, wc_size);
    at += wc_size;
  } while (++count < num_entries && (error = ibv_next_poll(ex)) == 0);
  ibv_end_poll(ex);
  return count;
}

}  // namespace ibvexp::translate
