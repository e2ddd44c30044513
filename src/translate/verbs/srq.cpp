#include "translate/verbs/srq.h"

#include "base/keep_errno.h"
#include "base/real.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/srq_convert.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/stride_queue.h"
#include "translate/verbs/tag_matching.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_srq;

// What is for other types the legacy provider did not look at.
Result<void> check_basic(const ibv_exp_create_srq_attr &attr) {
  constexpr std::uint32_t known = IBV_EXP_CREATE_SRQ_RESERVED - 1;
  constexpr std::uint32_t of_others =
      IBV_EXP_CREATE_SRQ_TM | IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS | IBV_EXP_CREATE_SRQ_MP_WR;
  if ((attr.comp_mask & ~known) != 0)
    return invalid(creating, "comp_mask", attr.comp_mask, "unknown bits");
  if ((attr.comp_mask & of_others) != 0)
    ignored(creating, "comp_mask", attr.comp_mask, "has bits for other types of SRQ");
  return {};
}

// Of types whose queues complete by themselves.
Result<void> check_completion(const ibv_context *context, const ibv_exp_create_srq_attr &attr,
                              const char *why_needed) {
  if ((attr.comp_mask & IBV_EXP_CREATE_SRQ_CQ) == 0 || attr.cq == nullptr)
    return invalid(creating, "cq", attr.comp_mask, why_needed);
  if (const auto bits = check_bits(creating, "comp_mask", attr.comp_mask,
                                   bits_of<"ibv_exp_create_srq_comp_mask">());
      !bits)
    return bits;
  const ibv_cq *const cq = queue::behind(attr.cq);
  if (cq == nullptr || cq->context != context)
    return invalid(creating, "cq", 0, "destroyed, or of another context");
  return {};
}

Result<void> check_xrc(const ibv_context *context, const ibv_exp_create_srq_attr &attr) {
  if (const auto cq =
          check_completion(context, attr, "an XRC SRQ needs a CQ and IBV_EXP_CREATE_SRQ_CQ");
      !cq)
    return cq;
  if ((attr.comp_mask & IBV_EXP_CREATE_SRQ_XRCD) == 0 || attr.xrcd == nullptr)
    return invalid(creating, "xrcd", attr.comp_mask,
                   "an XRC SRQ needs a domain and IBV_EXP_CREATE_SRQ_XRCD");
  if (attr.xrcd->context != context) return invalid(creating, "xrcd", 0, "of another context");
  return {};
}

Result<void> check_tags(const ContextState &state, const ibv_exp_create_srq_attr &attr) {
  constexpr auto id = FeatureId::IBV_EXP_SRQT_TAG_MATCHING;
  const auto type = static_cast<std::uint32_t>(attr.srq_type);
  if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
    return unsupported(creating, id, "srq_type", type);
  if (const auto cq = check_completion(state.context, attr,
                                       "tag matching needs a CQ and IBV_EXP_CREATE_SRQ_CQ");
      !cq)
    return cq;
  if ((attr.comp_mask & IBV_EXP_CREATE_SRQ_TM) == 0 || attr.tm_cap.max_num_tags == 0)
    return invalid(creating, "tm_cap.max_num_tags", attr.tm_cap.max_num_tags,
                   "must be 1 or more, with IBV_EXP_CREATE_SRQ_TM");
  if (state.driver == nullptr || queue::front_of(attr.cq) == nullptr)
    return unsupported(
        creating, "srq_type", type,
        "needs IBVEXP_ENGINE=own and a CQ of ibv_create_cq() or ibv_exp_create_cq()");
  opened_by(Beyond::tag_matching, name_of_feature<id>);
  return {};
}

Result<void> check(ibv_context *context, const ibv_exp_create_srq_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (attr->pd == nullptr)
    return invalid(creating, "pd", 0, "a shared receive queue needs a protection domain");
  if (attr->pd->context != context) return invalid(creating, "pd", 0, "of another context");

  switch (attr->srq_type) {
    case IBV_EXP_SRQT_BASIC: return check_basic(*attr);
    case IBV_EXP_SRQT_TAG_MATCHING: return check_tags(*attached(context), *attr);
    case IBV_EXP_SRQT_XRC: return check_xrc(context, *attr);
  }
  return invalid(creating, "srq_type", static_cast<std::uint32_t>(attr->srq_type),
                 "not a value of enum ibv_exp_srq_type");
}

// By ibv_create_srq().
Result<ibv_srq *> create_basic(ibv_context *context, ibv_exp_create_srq_attr &attr) {
  ibv_srq_init_attr asked = attr.base;
  const KeepErrno keep;
  ibv_srq *srq = real().ibv_create_srq(attr.pd, &asked);
  if (srq == nullptr) return keep.reason();
  srq = queue::before_or_destroyed(attached(context), srq, asked.attr.max_sge);
  if (srq == nullptr) return keep.reason();
  attr.base.attr = asked.attr;
  return srq;
}

}  // namespace

Result<ibv_srq *> create_srq(ibv_context *context, ibv_exp_create_srq_attr *attr) {
  if (const auto checked = check(context, attr); !checked) return checked.failure();
  if (attr->srq_type == IBV_EXP_SRQT_BASIC) return create_basic(context, *attr);
  if (attr->srq_type == IBV_EXP_SRQT_TAG_MATCHING &&
      (attr->comp_mask & IBV_EXP_CREATE_SRQ_MP_WR) != 0)
    return create_stride_queue(*attached(context), *attr);
  ibv_srq_init_attr_ex modern = to_modern(*attr);
  modern.cq = queue::behind(modern.cq);
  const bool completes = (modern.comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0;
  const bool tags = modern.srq_type == IBV_SRQT_TM;
  ContextState *state = attached(context);
  const queue::Joining joining(*state, completes ? &modern.cq : nullptr, nullptr,
                               tags ? queue::By::libmlx5 : queue::By::engine);
  if (!joining) return joining.failure();
  const CqState *known = tags ? find_cq(state, modern.cq) : nullptr;
  if (tags && (known == nullptr || !known->tags))
    return unsupported(creating, "cq", modern.cq->handle,
                       "mlx5dv_init_obj() opened this CQ, so it reports no tags: use another CQ");
  const ibv_cq *cq = completes && !tags ? modern.cq : nullptr;
  const KeepErrno keep;
  ibv_srq *srq = queue::create_native(context, modern);
  if (srq == nullptr) return keep.reason();
  srq = queue::before_or_destroyed(state, srq, modern.attr.max_sge, joining.receives(), cq);
  if (srq == nullptr) return keep.reason();
  if (tags) {
    queue::SrqFront &front = *queue::front_of(srq);
    front.own.tags = modern.tm_cap.max_num_tags;
    // The queue pair that takes commands is libmlx5's. A program that would write to it itself
    // reads here that the queue is in use, and declines.
    front.legacy.counter = 1;
    engine::set_relaxed(queue::front_of(attr->cq)->own.tags, true);
  }
  // rdma-core leaves them empty in queues of XRC.
  srq->srq_context = attr->base.srq_context;
  srq->pd = attr->pd;
  attr->base.attr = modern.attr;
  return srq;
}

}  // namespace ibvexp::translate
