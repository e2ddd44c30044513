// Send requests that the loop in post_send.cpp does not write: rare opcodes and flags,
// and refusals.
#include <cerrno>

#include "table/feature_rows.h"
#include "trace/diagnose.h"
#include "translate/convert/wr_convert.h"
#include "translate/queue/engine/bind_window.h"
#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/frames.h"
#include "translate/queue/engine/managed.h"
#include "translate/queue/engine/post_send.h"
#include "translate/queue/engine/request.h"
#include "translate/queue/engine/special.h"
#include "translate/queue/send_refusal.h"

namespace ibvexp::engine {

namespace {

constexpr std::uint64_t no_flags = 0;

inline std::uint64_t refused_flags(const SendQueue &, const ibv_send_wr &) { return no_flags; }
inline std::uint64_t refused_flags(const SendQueue &queue, const ibv_exp_send_wr &wr) {
  return wr.exp_send_flags & queue.refused_flags;
}

// The legacy number of an opcode. MLNX_OFED 3.x had three of its own.
std::uint32_t legacy_opcode(const ibv_send_wr &wr) {
  return wr.opcode == IBV_WR_TSO ? std::uint32_t{IBV_EXP_WR_TSO} : opcode_of(wr);
}
std::uint32_t legacy_opcode(const ibv_exp_send_wr &wr) {
  switch (int{wr.exp_opcode}) {
    case translate::send_with_inv_3x: return IBV_EXP_WR_SEND_WITH_INV;
    case translate::local_inv_3x: return IBV_EXP_WR_LOCAL_INV;
    case translate::bind_mw_3x: return IBV_EXP_WR_BIND_MW;
    default: return opcode_of(wr);
  }
}

std::uint32_t invalidated(const ibv_send_wr &wr) { return wr.invalidate_rkey; }
std::uint32_t invalidated(const ibv_exp_send_wr &wr) { return wr.ex.invalidate_rkey; }

// Requests that the base verb does not have.
int put_special(SendQueue &queue, std::uint32_t opcode, const ibv_exp_send_wr &wr) {
  const int number = static_cast<int>(opcode);
  if (!translate::opcode_served(number)) return translate::refuse_opcode(number);
  switch (opcode) {
    case IBV_EXP_WR_CQE_WAIT:
    case IBV_EXP_WR_SEND_ENABLE:
    case IBV_EXP_WR_RECV_ENABLE: return put_managing(queue, opcode, wr);
    case IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP:
    case IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD:
      opened_by(Beyond::masked_atomics, "masked atomics");
      return put_masked_atomic(queue, wr);
    case IBV_EXP_WR_UMR_FILL:
    case IBV_EXP_WR_UMR_INVALIDATE: return put_umr(queue, wr);
    case IBV_EXP_WR_NOP:
      opened_by(Beyond::nop, name_of_feature<FeatureId::IBV_EXP_WR_NOP>);
      EntryWriter(queue).commit(MLX5_OPCODE_NOP, 0, wr.exp_send_flags, 0, wr.wr_id);
      return 0;
    default: return translate::refuse_opcode(number);
  }
}

// A request with an opcode that its transport does not have. Both providers post it, and the
// device completes it with IBV_WC_LOC_QP_OP_ERR, whatever else is in the entry.
struct Foreign {
  bool is_one = false;
  std::uint8_t opcode = 0;              // for the device
  std::uint32_t completion_opcode = 0;  // if it does not follow from `opcode`
};

Foreign foreign_of(Transport transport, std::uint32_t opcode) {
  if (transport == Transport::raw_packet) return {};
  // Opcodes with data get here only on transports without them.
  switch (opcode) {
    case IBV_EXP_WR_RDMA_WRITE: return {true, MLX5_OPCODE_RDMA_WRITE};
    case IBV_EXP_WR_RDMA_WRITE_WITH_IMM: return {true, MLX5_OPCODE_RDMA_WRITE_IMM};
    case IBV_EXP_WR_SEND_WITH_INV: return {true, MLX5_OPCODE_SEND_INVAL};
    case IBV_EXP_WR_RDMA_READ: return {true, MLX5_OPCODE_RDMA_READ};
    case IBV_EXP_WR_ATOMIC_CMP_AND_SWP: return {true, MLX5_OPCODE_ATOMIC_CS};
    case IBV_EXP_WR_ATOMIC_FETCH_AND_ADD: return {true, MLX5_OPCODE_ATOMIC_FA};
    case IBV_EXP_WR_TSO: return {true, MLX5_OPCODE_TSO};
    default: break;
  }
  const bool datagrams = transport == Transport::ud;
  if (opcode == IBV_EXP_WR_LOCAL_INV && datagrams)
    return {true, MLX5_OPCODE_UMR, IBV_EXP_WC_LOCAL_INV};
  if (opcode == IBV_EXP_WR_BIND_MW && datagrams) return {true, MLX5_OPCODE_UMR, IBV_EXP_WC_BIND_MW};
  if ((opcode == IBV_EXP_WR_UMR_FILL || opcode == IBV_EXP_WR_UMR_INVALIDATE) &&
      (datagrams || transport == Transport::uc))
    return {true, MLX5_OPCODE_UMR, IBV_EXP_WC_UMR};
  // Unassigned numbers: the legacy provider posted them as no-operations.
  if (opcode > IBV_EXP_WR_SEND_WITH_INV && opcode < IBV_EXP_WR_SEND_ENABLE)
    return {true, MLX5_OPCODE_NOP};
  return {};
}

// Opcodes that requests of the base verb cannot have.
bool is_legacy_only(std::uint32_t opcode) { return opcode > IBV_EXP_WR_SEND_WITH_INV; }

template <class Wr>
OtherResult put(SendQueue &queue, const Wr &wr) {
  const std::uint64_t flags = flags_of(wr);
  if (const std::uint64_t refused = refused_flags(queue, wr); refused != 0)
    return {translate::refuse_send_flags(flags, queue.refused_flags)};
  const std::uint32_t opcode = legacy_opcode(wr);
  if (queue.transport != Transport::ud) {
    if (opcode == IBV_EXP_WR_BIND_MW) return {put_binding(queue, wr)};
    if (opcode == IBV_EXP_WR_LOCAL_INV)
      return {put_invalidation(queue, invalidated(wr), flags, wr.wr_id)};
  }
  if (is_ordinary(queue.transport, opcode)) {
    if (queue.transport == Transport::raw_packet) return {put_frame(queue, wr)};
    return {0, true, opcode};
  }
  if (opcode == IBV_EXP_WR_TSO && queue.transport == Transport::raw_packet)
    return {put_segmented(queue, wr)};
  if (std::is_same_v<Wr, ibv_send_wr> && is_legacy_only(opcode)) return {EINVAL};
  if (const Foreign kind = foreign_of(queue.transport, opcode); kind.is_one) {
    EntryWriter(queue).commit(kind.opcode, 0, flags, 0, wr.wr_id, kind.completion_opcode);
    return {};
  }
  // Opcodes of the base verb were handled above.
  if constexpr (std::is_same_v<Wr, ibv_send_wr>)
    return {translate::refuse_opcode(static_cast<int>(opcode))};
  else return {put_special(queue, opcode, wr)};
}

}  // namespace

OtherResult put_other(SendQueue &queue, const ibv_send_wr &wr) { return put(queue, wr); }
OtherResult put_other(SendQueue &queue, const ibv_exp_send_wr &wr) { return put(queue, wr); }

}  // namespace ibvexp::engine
