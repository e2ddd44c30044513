#include "translate/queue/direct/exp_poll.h"

#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/queue/direct/completion.h"
#include "translate/queue/front.h"
#include "translate/queue/origin.h"
#include "translate/queue/stamps.h"

namespace ibvexp::direct {

namespace {

constexpr EntryId polling = EntryId::ibv_exp_poll_cq;

bool multi_packet_allowed() {
  static const bool allowed =
      effective_now(row(FeatureId::mprq_poll_mp_wr).answer).verdict != Verdict::unsupported;
  return allowed;
}

// (exp <- completion) What ibv_wc has no room for.
void add(const MultiPacket &packet, ibv_exp_wc &wc) {
  if (!packet.is_one) return;
  if (packet.strides.filler) {
    // Strides went, no packet came: nothing else in the entry means anything.
    ibv_exp_wc nothing{};
    nothing.wr_id = wc.wr_id;
    nothing.qp_num = wc.qp_num;
    nothing.exp_opcode = IBV_EXP_WC_RECV_NOP;
    wc = nothing;
  }
  wc.byte_len = 0;
  wc.mp_wr.strides_offset = packet.strides.first;
  wc.mp_wr.byte_len = packet.strides.bytes;
  if (packet.ends_entry) wc.exp_wc_flags |= IBV_EXP_WC_MP_WR_CONSUMED;
}

}  // namespace

Result<int> exp_poll(ContextState &context, CqState &state, ibv_cq *ibv, int num_entries,
                     ibv_exp_wc *wc, std::uint32_t wc_size) {
  CompletionQueue *cq = state.direct.load(std::memory_order_acquire);
  if (relaxed(cq->striding) != 0 && !multi_packet_allowed()) [[unlikely]]
    return unsupported(polling, FeatureId::mprq_poll_mp_wr, "cq: handle", ibv->handle);

  const bool to_3x_or_4_0 = wc_size == translate::wc_size_4_0;
  translate::Stamps stamps(context.context, state.ring.stamps);
  char *at = reinterpret_cast<char *>(wc);
  const Guard guard(cq->lock);
  const std::uint32_t before = cq->consumer;
  int done = 0;
  int got = 0;
  for (; done < num_entries; ++done, at += wc_size) {
    ibv_wc modern;
    Taken taken;
    got = take(*cq, modern, &taken);
    if (got <= 0) break;
    translate::Origin origin{queue::shown(taken.endpoint->qp), nullptr};
    ibv_exp_wc legacy = translate::to_legacy(modern, origin, to_3x_or_4_0);
    stamps.put(taken.timestamp, legacy);
    add(taken.packet, legacy);
    translate::store(legacy, at, wc_size);
  }
  if (cq->consumer != before) cq->release();
  if (got < 0 && done == 0) return Error{EIO};
  return done;
}

}  // namespace ibvexp::direct
