// The chain is copied in pieces onto the stack, 16 requests at a time, and
// judged before the provider sees it. That is not only for the error code: when
// libmlx5 (v44 and later) finds a fault in a request that it has begun to
// write, it rings the doorbell with the faulty entry, and the good ones before it
// are not executed. So either a request is known to be good, or it is posted in
// a call of its own, where nothing precedes it.
#include "translate/queue/native/post.h"

#include <cerrno>

#include "trace/diagnose.h"
#include "translate/convert/wr_convert.h"
#include "translate/queue/native/builders.h"
#include "translate/queue/send_refusal.h"
#include "translate/state/context_state.h"

namespace ibvexp::native {

namespace {

using translate::Handling;
using translate::Opcode;

constexpr int piece = 16;

// Requests that are posted in one call.
class Batch {
 public:
  // room: for `piece` of them.
  Batch(ibv_qp *qp, NativePost post, ibv_send_wr *room)
      : qp_(qp), post_(post), room_(room), next_(room) {}

  bool full() const { return next_ == room_ + piece; }

  void add(ibv_exp_send_wr &wr, ibv_wr_opcode opcode) {
    translate::to_modern(wr, opcode, *next_);
    link(wr);
  }
  void add_plain(ibv_exp_send_wr &wr) {
    translate::to_modern(wr, *next_);
    link(wr);
  }

  // 0, or an errno value and the culprit.
  int flush(ibv_exp_send_wr *&bad) {
    if (next_ == room_) return 0;
    next_[-1].next = nullptr;
    next_ = room_;
    ibv_send_wr *modern_bad = room_;
    const int error = post_(qp_, room_, &modern_bad);
    if (error == 0) [[likely]]
      return 0;
    bad = first_;
    for (const ibv_send_wr *at = room_; at != modern_bad && at->next != nullptr; at = at->next)
      bad = bad->next;
    return error < 0 ? -error : error;
  }

 private:
  void link(ibv_exp_send_wr &wr) {
    if (next_ == room_) first_ = &wr;
    next_->next = next_ + 1;
    ++next_;
  }

  ibv_qp *qp_;
  NativePost post_;
  ibv_send_wr *room_, *next_;
  ibv_exp_send_wr *first_ = nullptr;
};

// The frame of a raw packet queue pair.
int judge_frame(const ibv_exp_send_wr &wr, const QpState *known, Opcode &opcode) {
  constexpr std::uint16_t shortest_header = 14;
  constexpr std::uint32_t inline_header = 18;  // what older devices want in the entry
  if (known == nullptr) {
    opcode.handling = Handling::alone;
    return 0;
  }
  if ((wr.exp_send_flags & IBV_EXP_SEND_IP_CSUM) != 0 && !known->checksums)
    opcode.handling = Handling::alone;
  if (opcode.modern == IBV_WR_TSO)
    return wr.tso.hdr_sz < shortest_header || wr.tso.hdr_sz > known->max_tso_header ? EINVAL : 0;
  if (wr.num_sge < 1) return EINVAL;
  if (wr.sg_list[0].length < inline_header) [[unlikely]]
    opcode.handling = Handling::alone;
  return 0;
}

// Whether the provider accepts the request once it has begun. known: null for a queue
// pair of which no state is kept.
int judge(const ibv_exp_send_wr &wr, const QpState *known, ibv_qp_type type, Opcode &opcode) {
  if (translate::has_data(opcode.modern)) {
    if (const int fault = translate::judge_pieces(wr); fault != 0) [[unlikely]]
      return fault;
    if (type == IBV_QPT_UD && wr.wr.ud.ah == nullptr) [[unlikely]]
      return EINVAL;
  }
  if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0 && translate::has_data(opcode.modern))
      [[unlikely]] {
    if (known == nullptr) opcode.handling = Handling::alone;
    else if (translate::inline_bytes(wr) > known->max_inline_data)
      return ENOMEM;  // as the legacy provider had it
  }
  if (opcode.modern == IBV_WR_BIND_MW) [[unlikely]] {
    const auto &bind = wr.bind_mw;
    if (known != nullptr && known->no_windows) return EINVAL;
    if (bind.mw == nullptr || (bind.bind_info.mr == nullptr && bind.bind_info.length != 0))
      return EINVAL;
  }
  if (translate::is_atomic(opcode.modern) && (known == nullptr || !known->atomics))
    opcode.handling = Handling::alone;
  if (type == IBV_QPT_RAW_PACKET) return judge_frame(wr, known, opcode);
  return 0;
}

// Most requests: libmlx5 reads them as they are, but for the place of the flags, and refuses none
// of them once it has begun. opcodes: the first so many, which that type of queue pair has.
bool is_plain(const ibv_exp_send_wr &wr, unsigned opcodes) {
  constexpr std::uint64_t flags =
      IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;
  return static_cast<unsigned>(wr.exp_opcode) < opcodes && (wr.exp_send_flags & ~flags) == 0 &&
         translate::judge_pieces(wr) == 0;
}
unsigned plain_opcodes(ibv_qp_type type) {
  static_assert(int{IBV_EXP_WR_RDMA_WRITE} == 0 && int{IBV_WR_RDMA_WRITE} == 0 &&
                int{IBV_EXP_WR_RDMA_WRITE_WITH_IMM} == 1 && int{IBV_WR_RDMA_WRITE_WITH_IMM} == 1 &&
                int{IBV_EXP_WR_SEND} == 2 && int{IBV_WR_SEND} == 2 &&
                int{IBV_EXP_WR_SEND_WITH_IMM} == 3 && int{IBV_WR_SEND_WITH_IMM} == 3 &&
                int{IBV_EXP_WR_RDMA_READ} == 4 && int{IBV_WR_RDMA_READ} == 4);
  if (type == IBV_QPT_RC) return IBV_EXP_WR_RDMA_READ + 1;
  return type == IBV_QPT_UC ? IBV_EXP_WR_SEND_WITH_IMM + 1 : 0;
}

// A single one of these, as most calls have, without a batch.
Result<void> post_plain(ibv_qp *qp, ibv_exp_send_wr &wr, ibv_exp_send_wr **bad_wr,
                        NativePost provider) {
  ibv_send_wr modern, *modern_bad = nullptr;
  translate::to_modern(wr, modern);
  modern.next = nullptr;
  const int error = provider(qp, &modern, &modern_bad);
  if (error == 0) [[likely]]
    return {};
  if (bad_wr != nullptr) *bad_wr = &wr;
  return Error{positive(error)};
}

// Judges each request by itself.
Result<void> post_chain(ibv_qp *qp, ibv_exp_send_wr *wr, ibv_exp_send_wr **bad_wr,
                        const QpState *known, std::uint64_t refused, NativePost provider) {
  ibv_send_wr modern[piece];
  Batch batch(qp, provider, modern);
  const ibv_qp_type type = qp->qp_type;
  ibv_exp_send_wr *bad = nullptr;
  int error = 0;

  const unsigned plain = plain_opcodes(type);
  for (; wr != nullptr; wr = wr->next) {
    if (is_plain(*wr, plain) && !batch.full()) [[likely]] {
      batch.add_plain(*wr);
      continue;
    }
    Opcode opcode = translate::to_modern_opcode(wr->exp_opcode, type);
    int fault = 0;
    if (opcode.handling == Handling::other) [[unlikely]]
      fault = refuse_other(wr->exp_opcode);
    else if (opcode.handling == Handling::illegal) [[unlikely]] fault = EINVAL;
    else if ((wr->exp_send_flags & refused) != 0) [[unlikely]]
      fault = translate::refuse_send_flags(wr->exp_send_flags, refused);
    else fault = judge(*wr, known, type, opcode);

    // What came before is posted in any case.
    if (fault != 0 || opcode.handling == Handling::alone || batch.full()) {
      error = batch.flush(bad);
      if (error != 0) break;
    }
    if (fault != 0) {
      error = fault;
      bad = wr;
      break;
    }
    batch.add(*wr, opcode.modern);
    if (opcode.handling == Handling::alone) {
      error = batch.flush(bad);
      if (error != 0) break;
    }
  }
  if (error == 0) error = batch.flush(bad);
  if (error == 0) [[likely]]
    return {};
  if (bad_wr != nullptr) *bad_wr = bad;
  return Error{error};
}

}  // namespace

int refuse_other(int opcode) {
  const bool key_change = opcode == IBV_EXP_WR_UMR_FILL || opcode == IBV_EXP_WR_UMR_INVALIDATE;
  if (key_change || !translate::opcode_served(opcode)) return translate::refuse_opcode(opcode);
  return unsupported(EntryId::ibv_exp_post_send, "exp_opcode", static_cast<unsigned>(opcode),
                     "rdma-core's data path, which the queue pair is on, does not post it")
      .code;
}

Result<void> post_send(ibv_qp *qp, ibv_exp_send_wr *wr, ibv_exp_send_wr **bad_wr) {
  // A queue pair of receive-side scaling: libmlx5 would use queues that it does not have.
  if (qp->send_cq == nullptr) [[unlikely]] {
    if (bad_wr != nullptr) *bad_wr = wr;
    return Error{EINVAL};
  }
  ContextState *state = attached(qp->context);
  QpState *known = find_qp(state, qp);
  if (known == nullptr || !known->builders.active()) {
    const NativePost provider = state->native.post_send;
    if (wr != nullptr && wr->next == nullptr && is_plain(*wr, plain_opcodes(qp->qp_type)))
      return post_plain(qp, *wr, bad_wr, provider);
    return post_chain(qp, wr, bad_wr, known, state->refused_send_flags, provider);
  }
  ibv_exp_send_wr *bad = nullptr;
  const int error = build_chain(known->builders, wr, state->refused_send_flags, bad);
  if (error == 0) return {};
  if (bad_wr != nullptr) *bad_wr = bad;
  return Error{error};
}

}  // namespace ibvexp::native
