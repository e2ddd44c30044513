// Send requests out of the ordinary: less usual opcodes and flags, and what is
// refused.
#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/frames.h"
#include "translate/queue/engine/post_send.h"
#include "translate/queue/engine/request.h"

#include "translate/queue/send_refusal.h"
#include "translate/convert/wr_convert.h"

#include <cerrno>

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

bool has_checksums(Transport t) { return t == Transport::raw_packet || t == Transport::ud; }

template <class Wr>
Other put(SendQueue &queue, const Wr &wr) {
  const std::uint64_t flags = flags_of(wr);
  if (const std::uint64_t refused = refused_flags(queue, wr); refused != 0)
    return {translate::refuse_send_flags(flags, queue.refused_flags)};
  if ((flags & checksum_flag(&wr)) != 0 && !has_checksums(queue.transport)) return {EINVAL};

  const std::uint32_t opcode = legacy_opcode(wr);
  if (is_ordinary(queue.transport, opcode)) {
    if (queue.transport == Transport::raw_packet) return {put_frame(queue, wr)};
    return {0, true, opcode};
  }
  switch (opcode) {
    case IBV_EXP_WR_TSO:
      return {queue.transport == Transport::raw_packet ? put_segmented(queue, wr) : EINVAL};
    default:
      return {std::is_same_v<Wr, ibv_send_wr> ? EINVAL
                                              : translate::refuse_opcode(static_cast<int>(opcode))};
  }
}

}  // namespace

Other put_other(SendQueue &queue, const ibv_send_wr &wr) { return put(queue, wr); }
Other put_other(SendQueue &queue, const ibv_exp_send_wr &wr) { return put(queue, wr); }

}  // namespace ibvexp::engine
