#include "cq.h"

#include "diagnose.h"
#include "direct/ownership.h"
#include "real.h"

#include <cerrno>
#include <pthread.h>

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_cq;
constexpr EntryId modifying = EntryId::ibv_exp_modify_cq;

Result<void> check(const ibv_context *context, const ibv_comp_channel *channel,
                   const ibv_exp_cq_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (const auto bits = check_bits(creating, "comp_mask", attr->comp_mask,
                                   bits_of<"ibv_exp_cq_init_attr_mask">());
      !bits)
    return bits;
  if ((attr->comp_mask & IBV_EXP_CQ_INIT_ATTR_FLAGS) != 0) {
    if (const auto flags =
            check_bits(creating, "flags", attr->flags, bits_of<"ibv_exp_cq_create_flags">());
        !flags)
      return flags;
  }
  if (channel != nullptr && channel->context != context)
    return invalid(creating, "channel", 0, "of another context");
  return {};
}

Result<ibv_cq *> make(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int comp_vector) {
  const int kept = errno;
  errno = 0;
  ibv_cq *cq = ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
  const int reason = errno != 0 ? errno : EINVAL;
  errno = kept;
  if (cq == nullptr) return Error{reason};
  // One of this address may have been destroyed behind our back.
  if (ContextState *state = find_state(context)) direct::forget_cq(*state, cq, cq->handle);
  return cq;
}

}  // namespace

Result<ibv_cq *> create_cq(ibv_context *context, int cqe, void *cq_context,
                           ibv_comp_channel *channel, int comp_vector,
                           ibv_exp_cq_init_attr *attr) {
  if (const auto checked = check(context, channel, attr); !checked) return checked.failure();
  return make(context, cqe, cq_context, channel, comp_vector);
}

Result<ibv_cq *> create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel,
                           int comp_vector, ibv_exp_cq_init_attr *attr) {
  if (const auto checked = check(context, channel, attr); !checked) return checked.failure();
  // rdma-core takes the same mutex when there is a channel, and it is not
  // recursive. It also counts the reference that the caller is going to count.
  pthread_mutex_unlock(&context->mutex);
  const auto made = make(context, cqe, nullptr, channel, comp_vector);
  pthread_mutex_lock(&context->mutex);
  if (made && channel != nullptr) --channel->refcnt;
  return made;
}

Result<void> modify_cq(ibv_cq *cq, ibv_exp_cq_attr *attr, int mask) {
  if (attr == nullptr) return invalid(modifying, "attributes", 0, "must not be null");
  const auto asked = static_cast<std::uint32_t>(mask);
  // All or nothing: what is refused is refused before anything is changed.
  if (const auto bits =
          check_bits(modifying, "cq_attr_mask", asked, bits_of<"ibv_exp_cq_attr_mask">());
      !bits)
    return bits;
  if (const auto bits = check_bits(modifying, "comp_mask", attr->comp_mask,
                                   bits_of<"ibv_exp_cq_attr_comp_mask">());
      !bits)
    return bits;
  if ((asked & IBV_EXP_CQ_MODERATION) == 0) return {};
  if ((attr->comp_mask & IBV_EXP_CQ_ATTR_MODERATION) == 0)
    return invalid(modifying, "comp_mask", attr->comp_mask, "moderation asked for but not given");

  ibv_modify_cq_attr modern{};
  modern.attr_mask = IBV_CQ_ATTR_MODERATE;
  modern.moderate.cq_count = attr->moderation.cq_count;
  modern.moderate.cq_period = attr->moderation.cq_period;  // microseconds on both sides
  const int error = ibv_modify_cq(cq, &modern);
  if (error != 0) return Error{error < 0 ? -error : error};
  return {};
}

int destroy_cq(ContextState *state, ibv_cq *cq) {
  // Out of the table first: the handle may be given out again at once.
  CqState *entry = find_cq(state, cq);
  const std::uint32_t handle = cq->handle;
  if (entry != nullptr) {
    const std::lock_guard guard(state->mutex);
    state->cqs.set(handle, nullptr);
  }
  const int result = real().ibv_destroy_cq(cq);
  if (result == 0 && state != nullptr) direct::forget_cq(*state, cq, handle);
  if (entry != nullptr) {
    const std::lock_guard guard(state->mutex);
    if (result == 0)
      state->cq_pool.give_back(*entry);
    else
      state->cqs.set(handle, entry);
  }
  return result;
}

}  // namespace ibvexp::translate
