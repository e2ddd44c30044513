#include "translate/verbs/tag_matching.h"

#include "base/keep_errno.h"
#include "base/lock.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/srq_convert.h"
#include "translate/queue/driven.h"
#include "translate/queue/fronts.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_srq;
constexpr EntryId posting = EntryId::ibv_exp_post_srq_ops;

// tags: how many the queue has room for. Their handles end there, and libmlx5 checks none.
Result<void> check(const ibv_exp_ops_wr &op, std::uint32_t tags) {
  const auto opcode = static_cast<std::uint32_t>(op.opcode);
  if (opcode > IBV_EXP_WR_TAG_SYNC) return invalid(posting, "opcode", opcode, "no such operation");
  if (opcode == IBV_EXP_WR_TAG_DEL && op.tm.handle > tags)
    return invalid(posting, "tm.handle", op.tm.handle, "beyond all tags of the queue");
  // libmlx5 reads the first piece, whatever their number.
  if (opcode == IBV_EXP_WR_TAG_ADD && (op.tm.add.num_sge < 0 || op.tm.add.num_sge > 1))
    return invalid(posting, "tm.add.num_sge", static_cast<std::uint32_t>(op.tm.add.num_sge),
                   "a tag has one piece at most");
  return check_bits(posting, "flags", static_cast<std::uint32_t>(op.flags),
                    bits_of<"ibv_exp_ops_flags">());
}

}  // namespace

Result<void> check_tags(const ContextState &state, const ibv_exp_create_srq_attr &attr) {
  constexpr auto id = FeatureId::IBV_EXP_SRQT_TAG_MATCHING;
  const auto type = static_cast<std::uint32_t>(attr.srq_type);
  if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
    return unsupported(creating, id, "srq_type", type);
  if ((attr.comp_mask & IBV_EXP_CREATE_SRQ_CQ) == 0 || attr.cq == nullptr)
    return invalid(creating, "cq", attr.comp_mask, "tag matching needs one");
  if ((attr.comp_mask & IBV_EXP_CREATE_SRQ_TM) == 0 || attr.tm_cap.max_num_tags == 0)
    return invalid(creating, "tm_cap.max_num_tags", attr.tm_cap.max_num_tags,
                   "tag matching needs room for tags");
  if (const auto bits = check_bits(creating, "comp_mask", attr.comp_mask,
                                   bits_of<"ibv_exp_create_srq_comp_mask">());
      !bits)
    return bits;
  const ibv_cq *const cq = queue::behind(attr.cq);
  if (cq == nullptr || cq->context != state.context)
    return invalid(creating, "cq", 0, "destroyed, or of another context");
  if (state.driver == nullptr || queue::front_of(attr.cq) == nullptr)
    return unsupported(
        creating, "srq_type", type,
        "needs IBVEXP_ENGINE=own and a CQ of ibv_create_cq() or ibv_exp_create_cq()");
  opened_by(Beyond::tag_matching, name_of_feature<id>);
  return {};
}

bool has_tags(ContextState &state, const ibv_cq *cq) noexcept {
  const CqState *known = find_cq(&state, cq);
  return known != nullptr && known->tags;
}

void complete_tags_on(const ibv_cq *cq) noexcept {
  engine::set_relaxed(queue::front_of(cq)->own.tags, true);
}

bool matches_tags(const ibv_srq *srq) noexcept {
  const queue::SrqFront *front = queue::front_of(srq);
  return front != nullptr && front->own.tags != 0;
}

bool is_of_strides(const ibv_srq *srq) noexcept {
  const queue::SrqFront *front = queue::front_of(srq);
  return front != nullptr && front->own.strides != nullptr;
}

Result<void> post_srq_ops(ibv_srq *srq, ibv_exp_ops_wr *op, ibv_exp_ops_wr **bad_op) {
  const auto fails = [&](Error error) {
    if (bad_op != nullptr) *bad_op = op;
    return error;
  };
  const queue::SrqFront *front = queue::before(srq);
  if (front != nullptr && front->own.strides != nullptr)
    return fails(unsupported(posting, "srq", srq->handle, "a queue of strides has no tags"));
  if (front == nullptr || front->own.tags == 0)
    return fails(invalid(posting, "srq", srq->handle, "does not match tags"));
  const KeepErrno keep;
  for (; op != nullptr; op = op->next) {
    if (const auto checked = check(*op, front->own.tags); !checked) return fails(checked.failure());
    ibv_ops_wr modern = to_modern(*op), *bad = nullptr;
    if (const auto posted = outcome(ibv_post_srq_ops(srq, &modern, &bad)); !posted)
      return fails(posted.failure());
    if (op->opcode == IBV_EXP_WR_TAG_ADD) op->tm.handle = modern.tm.handle;
  }
  return {};
}

}  // namespace ibvexp::translate
