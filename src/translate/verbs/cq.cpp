#include "translate/verbs/cq.h"

#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/owned.h"
#include "base/real.h"
#include "base/uncancelled.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/cq_convert.h"
#include "translate/queue/beside.h"
#include "translate/queue/cq_events.h"
#include "translate/queue/driven.h"
#include "translate/queue/engine/open.h"
#include "translate/queue/fronts.h"
#include "translate/state/clock_info.h"
#include "translate/verbs/dct.h"
#include "translate/verbs/device.h"
#include "translate/verbs/environment.h"
#include "translate/verbs/firmware.h"
#include "translate/verbs/res_domain.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_cq;
constexpr EntryId modifying = EntryId::ibv_exp_modify_cq;

using queue::CqExtras;

[[gnu::always_inline]] inline Result<void> check(const ibv_context *context,
                                                 const ibv_comp_channel *channel,
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

// The format of compressed completions that the device knows and that loses
// least; 0 if there is none, or libmlx5 is to poll the queue, which cannot read them.
std::uint8_t compression_of(const ContextState &state) {
  if (state.driver == nullptr) return 0;
  ibv_context *context = state.context;
  mlx5dv_context device{};
  device.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
  if (mlx5dv_query_device(context, &device) != 0 || device.cqe_comp_caps.max_num == 0) return 0;
  for (const std::uint8_t format : {MLX5DV_CQE_RES_FORMAT_HASH, MLX5DV_CQE_RES_FORMAT_CSUM})
    if ((device.cqe_comp_caps.supported_format & format) != 0) return format;
  return 0;
}

Result<StampKind> stamps_of(ContextState &state, std::uint32_t flags) {
  const bool cycles = (flags & IBV_EXP_CQ_TIMESTAMP) != 0;
  const bool system_time = (flags & IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME) != 0;
  if (!cycles && !system_time) return StampKind::none;
  if (cycles && system_time)
    return invalid(creating, "flags", flags,
                   "TIMESTAMP and TIMESTAMP_TO_SYS_TIME are mutually exclusive");
  const auto device = extended_device(state);
  if (!device) return device.failure();
  const KeepErrno keep;
  if (device.value()->completion_timestamp_mask == 0)
    return unsupported(creating, "flags", flags, "the device has no time stamps");
  if (system_time && !read_clock_info(state.context))
    return unsupported(creating, "flags", flags, "the kernel does not map the device's clock");
  return cycles ? StampKind::cycles : StampKind::system_time;
}

// Bytes of an entry by MLX5_CQE_SIZE; 0 for none.
std::uint32_t entry_size_of(const std::string &size) {
  if (size == "64") return 64;
  if (size == "128") return 128;
  if (!size.empty())
    log(LogLevel::warn, "ibv_exp_create_cq: MLX5_CQE_SIZE=%s ignored: must be 64 or 128",
        size.c_str());
  return 0;
}

// libmlx5 reads the environment of the process by itself.
std::uint32_t own_entry_size(ContextState &state) {
  if (!state.has_environment) [[likely]]
    return 0;
  if (!mlx5dv_is_supported(state.context->device)) return 0;
  return entry_size_of(own_variable(state, "MLX5_CQE_SIZE"));
}

constexpr const char *compression_wish = "MLX5_ENABLE_CQE_COMPRESSION";

// Whether a variable may be about completion queues without flags.
bool has_wishes(const ContextState &state) {
  return state.has_environment || std::getenv(compression_wish) != nullptr;
}

Result<CqExtras> extras_of(ContextState &state, std::uint32_t flags) {
  ibv_context *context = state.context;
  CqExtras extras;
  const auto stamps = stamps_of(state, flags);
  if (!stamps) return stamps.failure();
  extras.stamps = stamps.value();

  const bool mlx5 = mlx5dv_is_supported(context->device);
  if (extras.stamps != StampKind::none && !mlx5)
    return unsupported(creating, "flags", flags, "needs an mlx5 device");
  if ((flags & IBV_EXP_CQ_COMPRESSED_CQE) != 0) {
    extras.compression = compression_of(state);
    if (extras.compression == 0)
      return unsupported(creating, "flags", flags,
                         mlx5 && state.driver == nullptr
                             ? "libmlx5 polls this CQ and cannot read compressed completions"
                             : "the device does not compress completions");
  } else if (mlx5 && std::atoi(variable(state, compression_wish).c_str()) != 0) {
    extras.compression = compression_of(state);  // a wish
  }

  if (!extras.special()) extras.entry_size = own_entry_size(state);
  else if (mlx5) extras.entry_size = entry_size_of(variable(state, "MLX5_CQE_SIZE"));
  if (extras.special() && extras.entry_size == 0) extras.entry_size = 64;
  return extras;
}

[[gnu::always_inline]] inline Result<ibv_cq *> make_plain(ibv_context *context, int cqe,
                                                          void *cq_context,
                                                          ibv_comp_channel *channel,
                                                          int comp_vector) {
  const KeepErrno keep;
  return keep.made(real().ibv_create_cq(context, cqe, cq_context, channel, comp_vector));
}

Result<ibv_cq *> make_extended(ContextState &state, int cqe, void *cq_context,
                               ibv_comp_channel *channel, int comp_vector, const CqExtras &extras) {
  if (cqe <= 0) return invalid(creating, "cqe", static_cast<unsigned>(cqe), "must be 1 or more");
  const KeepErrno keep;
  return keep.made(queue::create_native(state, cqe, cq_context, channel, comp_vector, extras));
}

Result<ibv_cq *> make(ContextState &state, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int comp_vector, const ibv_exp_cq_init_attr &attr) {
  const std::uint32_t flags = (attr.comp_mask & IBV_EXP_CQ_INIT_ATTR_FLAGS) != 0 ? attr.flags : 0;
  if (flags == 0 && !has_wishes(state)) [[likely]]
    return make_plain(state.context, cqe, cq_context, channel, comp_vector);
  const auto extras = extras_of(state, flags);
  if (!extras) return extras.failure();
  if (!extras.value().any())
    return make_plain(state.context, cqe, cq_context, channel, comp_vector);
  return make_extended(state, cqe, cq_context, channel, comp_vector, extras.value());
}

int destroy_known(ibv_cq *cq) { return destroy_cq(attached(cq->context), cq); }

// What the program gets. plain: made by make_plain(), for the base verb.
Result<ibv_cq *> in_front(ContextState *state, const Result<ibv_cq *> &made, int comp_vector,
                          bool plain = false) {
  if (!made) return made;
  Owned<ibv_cq, destroy_known> cq(made.value());
  ibv_cq *const shown = queue::put_before(state, cq.get(), comp_vector, plain);
  static_cast<void>(cq.release());
  return shown;
}

// Gives a mutex back that the caller holds, and takes it again.
class Unlocked {
 public:
  explicit Unlocked(pthread_mutex_t &mutex) : mutex_(mutex) { pthread_mutex_unlock(&mutex_); }
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;
  ~Unlocked() { pthread_mutex_lock(&mutex_); }

 private:
  pthread_mutex_t &mutex_;
};

// The queue counts as a user of the domain that the request names. Nothing else
// changes: libmlx5 locks in ibv_poll_cq() whatever the queue was created with.
template <class Make>
Result<ibv_cq *> in_domain(ContextState &state, const ibv_exp_cq_init_attr &attr, Make make) {
  if ((attr.comp_mask & IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN) == 0) return make();
  DomainUse domain(state);
  if (const auto entered = domain.enter(creating, attr.res_domain, nullptr); !entered)
    return entered.failure();
  const Result<ibv_cq *> made = make();
  if (!made) return made;
  Owned<ibv_cq, destroy_known> cq(made.value());
  domain.keep(cq.get());
  return cq.release();
}

}  // namespace

Result<ibv_cq *> create_cq(ContextState &state, ibv_context *context, int cqe, void *cq_context,
                           ibv_comp_channel *channel, int comp_vector, ibv_exp_cq_init_attr *attr) {
  if (const auto checked = check(context, channel, attr); !checked) return checked.failure();
  const auto plain = [&] { return make(state, cqe, cq_context, channel, comp_vector, *attr); };
  return in_front(&state, in_domain(state, *attr, plain), comp_vector);
}

Result<ibv_cq *> create_cq(ContextState &state, ibv_context *context, int cqe,
                           ibv_comp_channel *channel, int comp_vector, ibv_exp_cq_init_attr *attr) {
  if (const auto checked = check(context, channel, attr); !checked) return checked.failure();
  // rdma-core takes the same mutex when there is a channel, and it is not
  // recursive. It also counts the reference that the caller is going to count.
  const auto made = [&] {
    const Unlocked unlocked(context->mutex);
    const auto plain = [&] { return make(state, cqe, nullptr, channel, comp_vector, *attr); };
    return in_front(&state, in_domain(state, *attr, plain), comp_vector);
  }();
  if (made && channel != nullptr) --channel->refcnt;
  return made;
}

namespace {

Error no_overrun(std::uint32_t flags) {
  if (switched_on(Beyond::cq_ignore_overrun))
    return unsupported(
        modifying, "cq_cap_flags", flags,
        "the queue is in use, and libmlx5 drives it or the device does not change it");
  return unsupported(modifying, FeatureId::IBV_EXP_CQ_IGNORE_OVERRUN, "cq_cap_flags", flags);
}

// rdma-core takes the flag at creation only: behind a front that has not been used yet,
// another queue takes the place. What the program is given stays.
Result<ibv_cq *> ignore_overrun(ContextState &state, ibv_cq *cq, std::uint32_t flags) {
  queue::CqFront *const front = queue::before(cq);
  const CqState *known = find_cq(&state, cq);
  if (front == nullptr || front->own.alone == nullptr || front->own.moderated ||
      (known != nullptr && (known->stamps != StampKind::none || known->compressed)))
    return no_overrun(flags);
  engine::CompletionQueue &polled = *front->own.engine;
  CqExtras extras{static_cast<std::uint32_t>(front->legacy.cqe_sz)};
  extras.ignore_overrun = true;
  const auto fresh =
      make_extended(state, cq->cqe, nullptr, cq->channel, front->own.comp_vector, extras);
  if (!fresh) return no_overrun(flags);
  // Whatever can fail comes before the old queue goes.
  Owned<ibv_cq, destroy_known> made(fresh.value());
  const mlx5dv_cq facts = facts_of(made.get());
  mlx5dv_cq as_it_is = facts_of(cq);
  queue::correct(*front, as_it_is);
  {
    // Other threads may poll it: they find nothing until it is open again.
    const engine::Guard guard(polled.lock);
    if (engine::relaxed(front->own.armed) != 0 || front->legacy.cons_index != 0)
      return no_overrun(flags);
    engine::close(polled);
  }
  DomainUse domain(state);
  domain.take(cq);
  cq->cq_context = nullptr;  // the front stays
  const bool replaced = destroy_cq(&state, cq) == 0;
  if (!replaced) cq->cq_context = front;
  {
    const engine::Guard guard(polled.lock);
    if (replaced) queue::replace_behind(*front, made.get(), facts);
    else engine::open(polled, as_it_is);
  }
  // Armed meanwhile, which a closed queue does not pass on.
  for (const auto kind : {queue::armed_for_solicited, queue::armed_for_all})
    if ((engine::relaxed(front->own.armed) & kind) != 0)
      queue::arm_first(*front, kind == queue::armed_for_solicited);
  if (!replaced) {
    if (domain) domain.keep(cq);
    return no_overrun(flags);  // queue pairs use it
  }
  front->own.ignores_overrun = true;
  if (domain) domain.keep(made.get());
  return made.release();
}

// Whether asking libmlx5 for the number of a queue changes nothing: it no longer cleans
// one that it was asked about.
bool number_is_free(const queue::CqFront *front) {
  if (front == nullptr || (front->own.beside != nullptr && front->own.beside->cq != nullptr))
    return false;
  return front->own.engine != nullptr || front->own.described;
}

// The device changes it at any time, and back. False: not this device, or not this queue.
bool command_overrun(ibv_cq *cq, bool ignored) {
  queue::CqFront *const front = queue::before(cq);
  if (!number_is_free(front)) return false;
  const std::uint32_t number = facts_of(cq).cqn;
  {
    // Polls free entries: they wait until the device has answered.
    std::optional<engine::Guard> polled;
    if (front->own.engine != nullptr) polled.emplace(front->own.engine->lock);
    if (!change_overrun(cq, number, ignored)) return false;
    front->own.ignores_overrun = ignored;
  }
  opened_by(Beyond::cq_ignore_overrun, name_of_feature<FeatureId::IBV_EXP_CQ_IGNORE_OVERRUN>);
  return true;
}

// The queue that is behind the program's from here on.
[[gnu::noinline]] Result<ibv_cq *> change_caps(ContextState &state, ibv_cq *cq,
                                               std::uint32_t flags) {
  const queue::CqFront *front = queue::before(cq);
  const bool wanted = (flags & IBV_EXP_CQ_IGNORE_OVERRUN) != 0;
  const bool is = front != nullptr && front->own.ignores_overrun;
  if (wanted == is) return cq;
  const Uncancelled whole;
  if (switched_on(Beyond::cq_ignore_overrun) && command_overrun(cq, wanted)) return cq;
  if (is) return no_overrun(flags);
  return ignore_overrun(state, cq, flags);
}

// Refusals before anything is changed. The argument decides what is changed: the legacy
// provider did not compare it with comp_mask.
Result<void> check(const ibv_exp_cq_attr &attr, std::uint32_t asked) {
  if (const auto bits = check_bits(modifying, "cq_attr_mask", asked,
                                   bits_of<"ibv_exp_cq_attr_mask">(), ~std::uint64_t{0});
      !bits)
    return bits;
  if (const auto bits = check_bits(modifying, "comp_mask", attr.comp_mask,
                                   bits_of<"ibv_exp_cq_attr_comp_mask">());
      !bits)
    return bits;
  if ((asked & IBV_EXP_CQ_CAP_FLAGS) == 0) return {};
  return check_bits(modifying, "cq_cap_flags", attr.cq_cap_flags,
                    bits_of<"ibv_exp_cq_cap_flags">());
}

}  // namespace

Result<void> modify_cq(ContextState &state, ibv_cq *cq, ibv_exp_cq_attr *attr, int mask) {
  if (attr == nullptr) return invalid(modifying, "attributes", 0, "must not be null");
  const auto asked = static_cast<std::uint32_t>(mask);
  if (const auto checked = check(*attr, asked); !checked) return checked;
  if ((asked & IBV_EXP_CQ_CAP_FLAGS) != 0) {
    const auto changed = change_caps(state, cq, attr->cq_cap_flags);
    if (!changed) return changed.failure();
    cq = changed.value();
  }
  if ((asked & IBV_EXP_CQ_MODERATION) == 0) return {};

  ibv_modify_cq_attr modern = to_modern(*attr);
  queue::CqFront *const front = queue::before(cq);
  return outcome(front != nullptr ? queue::moderate_all(state, *front, modern)
                                  : ibv_modify_cq(cq, &modern));
}

Result<ibv_cq *> create_base_cq(ContextState *state, ibv_context *context, int cqe,
                                void *cq_context, ibv_comp_channel *channel, int comp_vector) {
  // A variable that the program has set for this context alone.
  CqExtras extras{state != nullptr ? own_entry_size(*state) : 0};
  if (extras.entry_size != 0 && state->behind != nullptr) {
    // A program that sets it reads the queue itself, and asks for this when it has noted
    // where the queue is: too late to make it again.
    extras.ignore_overrun = true;
    const auto made = in_front(
        state, make_extended(*state, cqe, cq_context, channel, comp_vector, extras), comp_vector);
    if (made) queue::front_of(made.value())->own.ignores_overrun = true;
    // The device may not have it; nothing else will do with a wrong size.
    if (made || cqe <= 0) return made;
    extras.ignore_overrun = false;
  }
  if (extras.any())
    return in_front(state, make_extended(*state, cqe, cq_context, channel, comp_vector, extras),
                    comp_vector);
  return in_front(state, make_plain(context, cqe, cq_context, channel, comp_vector), comp_vector,
                  true);
}

int resize_cq(ibv_cq *cq, int cqe) {
  queue::CqFront *front = queue::before(cq);
  if (front != nullptr && front->own.engine != nullptr) {
    const int kept = errno;
    const int error = queue::resize_all(*front, cqe);
    errno = error != 0 ? error : kept;
    return error;
  }
  const int result = real().ibv_resize_cq(cq, cqe);
  if (front != nullptr && result == 0) front->shown.cqe = cq->cqe;
  return result;
}

namespace {

// Where resource domains are used.
[[gnu::noinline]] int destroy_in_domain(ContextState &state, ibv_cq *cq) {
  DomainUse domain(state);
  domain.take(cq);
  const int result = queue::destroy_with_state(&state, cq);
  if (result != 0 && domain) domain.keep(cq);
  return result;
}

}  // namespace

int destroy_any(ContextState *state, queue::CqFront *front, ibv_cq *cq) {
  if (state != nullptr && has_targets_by_command(*state, cq)) return EBUSY;
  if (front != nullptr && front->own.beside != nullptr)
    if (const int error = queue::destroy_beside(*front); error != 0) return error;
  // Without a channel there are no completion events that the program has still to acknowledge.
  const bool settles = front != nullptr && front->own.back == cq && cq->channel != nullptr;
  if (settles) queue::settle_events(*front);
  const bool shares = state != nullptr && state->has_domain_shares;
  const int result = shares ? destroy_in_domain(*state, cq) : queue::destroy_with_state(state, cq);
  if (settles && result != 0) queue::unsettle_events(*front);
  if (result == 0) queue::remove(front);
  return result;
}

}  // namespace ibvexp::translate
