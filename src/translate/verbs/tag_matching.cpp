#include "translate/verbs/tag_matching.h"

#include "base/keep_errno.h"
#include "trace/diagnose.h"
#include "translate/convert/srq_convert.h"
#include "translate/queue/fronts.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId posting = EntryId::ibv_exp_post_srq_ops;

// tags: how many the queue has room for. Their handles end there, and libmlx5 checks none.
Result<void> check(const ibv_exp_ops_wr &op, std::uint32_t tags) {
  const auto opcode = static_cast<std::uint32_t>(op.opcode);
  if (opcode > IBV_EXP_WR_TAG_SYNC)
    return invalid(posting, "opcode", opcode,
                   "must be IBV_EXP_WR_TAG_ADD, IBV_EXP_WR_TAG_DEL or IBV_EXP_WR_TAG_SYNC");
  if (opcode == IBV_EXP_WR_TAG_DEL && op.tm.handle > tags)
    return invalid(posting, "tm.handle", op.tm.handle, "not a handle of this SRQ");
  // libmlx5 reads the first piece, whatever their number.
  if (opcode == IBV_EXP_WR_TAG_ADD && (op.tm.add.num_sge < 0 || op.tm.add.num_sge > 1))
    return invalid(posting, "tm.add.num_sge", static_cast<std::uint32_t>(op.tm.add.num_sge),
                   "must be 0 or 1");
  return check_bits(posting, "flags", static_cast<std::uint32_t>(op.flags),
                    bits_of<"ibv_exp_ops_flags">());
}

}  // namespace

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
