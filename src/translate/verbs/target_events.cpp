#include "translate/verbs/target_events.h"

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>

#include <cstring>
#include <optional>

#include "base/keep_errno.h"
#include "base/log.h"
#include "translate/verbs/firmware.h"
#include "translate/verbs/hca_caps.h"

namespace ibvexp::translate {

// The DC target events of a context.
struct TargetEvents {
  Mutex mutex;    // of what follows
  Mutex reading;  // one thread at a time finds an event and takes it
  bool tried = false;
  mlx5dv_devx_event_channel *channel = nullptr;
};

namespace {

constexpr std::uint8_t key_violation = 0x1d;  // MLX5_EVENT_TYPE_DCT_KEY_VIOLATION

// Where its capabilities do not list the event, the kernel takes a subscription and nothing comes.
// Nothing with errno set: the device cannot be asked, or there is no memory for its answer.
std::optional<bool> tells(ibv_context *context) noexcept {
  if (!mlx5dv_is_supported(context->device)) return false;
  try {
    return reports_object_event(context, key_violation);
  } catch (const std::bad_alloc &) {
    errno = ENOMEM;
    return {};
  }
}

// Null with errno set.
TargetEvents *events_of(ContextState &state) noexcept {
  const MutexGuard guard(state.mutex);
  try {
    if (state.target_events == nullptr) state.target_events = std::make_shared<TargetEvents>();
  } catch (const std::bad_alloc &) {
    errno = ENOMEM;
  }
  return state.target_events.get();
}

// Made at the first call, which may be one that waits for events before there is a target. Null: the
// device has no commands, or does not tell of wrong keys. A lack of memory passes, and the next call
// tries again. The caller holds the mutex.
Result<mlx5dv_devx_event_channel *> channel_of(TargetEvents &events,
                                               ibv_context *context) noexcept {
  if (events.tried) return events.channel;
  const KeepErrno keep;
  const auto told = tells(context);
  if (told == true)
    events.channel = mlx5dv_devx_create_event_channel(
        context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
  if (told != false && events.channel == nullptr && errno == ENOMEM) return Error{ENOMEM};
  events.tried = true;
  if (told != true)
    log(LogLevel::info, "key_violations: the device has no event for wrong DC keys");
  else if (events.channel == nullptr)
    log(LogLevel::info, "key_violations: cannot create an event channel: %s", std::strerror(errno));
  else fcntl(events.channel->fd, F_SETFL, fcntl(events.channel->fd, F_GETFL) | O_NONBLOCK);
  return events.channel;
}

// One of the channel's, unless its target is gone.
bool take(ContextState &state, mlx5dv_devx_event_channel *channel,
          ibv_async_event &event) noexcept {
  mlx5dv_devx_async_event_hdr read{};
  const KeepErrno keep;
  if (mlx5dv_devx_get_event(channel, &read, sizeof(read)) != sizeof(read)) return false;
  const std::uint64_t serial = read.cookie;
  const MutexGuard guard(state.mutex);
  DcTarget *target = nullptr;
  state.targets.for_each([&](DcTarget &known) {
    if (known.serial == serial) target = &known;
  });
  if (target == nullptr) return false;
  ++target->events;
  event.event_type = static_cast<ibv_event_type>(IBV_EXP_EVENT_DCT_KEY_VIOLATION);
  event.element.qp = reinterpret_cast<ibv_qp *>(&target->handle);  // the legacy element.dct
  return true;
}

bool readable(int fd) noexcept {
  pollfd asked{fd, POLLIN, 0};
  return poll(&asked, 1, 0) == 1;
}

}  // namespace

Result<void> arm_target_events(ContextState &state, DcTarget &target) {
  TargetEvents *const events = events_of(state);
  if (events == nullptr) return Error{errno};
  const MutexGuard guard(events->mutex);
  const auto found = channel_of(*events, state.context);
  if (!found) return found.failure();
  mlx5dv_devx_event_channel *const channel = found.value();
  if (channel == nullptr) return Error{ENOTSUP};
  if (!target.subscribed) {
    std::uint16_t numbers[] = {key_violation};
    if (const auto subscribed = outcome(mlx5dv_devx_subscribe_devx_event(
            channel, target.object, sizeof(numbers), numbers, target.serial));
        !subscribed)
      return subscribed;
    target.subscribed = true;
  }
  return arm_target(target.object, target.handle.dct_num);
}

int next_event(ContextState &state, ibv_async_event &event, TakeEvent take_own) {
  ibv_context *const context = state.context;
  TargetEvents *const events = events_of(state);
  if (events == nullptr) return -1;
  mlx5dv_devx_event_channel *channel = nullptr;
  {
    const MutexGuard guard(events->mutex);
    if (const auto found = channel_of(*events, context); found) channel = found.value();
  }
  if (channel == nullptr) return take_own(context, &event);
  const bool waits = (fcntl(context->async_fd, F_GETFL) & O_NONBLOCK) == 0;
  for (;;) {
    pollfd both[] = {{context->async_fd, POLLIN, 0}, {channel->fd, POLLIN, 0}};
    const int ready = poll(both, 2, waits ? -1 : 0);
    if (ready == 0) errno = EAGAIN;
    if (ready <= 0) return -1;
    // One thread takes the event; others that wait go on waiting.
    const MutexGuard guard(events->reading);
    if (both[1].revents != 0 && take(state, channel, event)) return 0;
    if (readable(context->async_fd)) return take_own(context, &event);
  }
}

void acknowledge_target(const ibv_async_event &event) noexcept {
  auto &dct = *reinterpret_cast<ibv_exp_dct *>(event.element.qp);
  pthread_mutex_lock(&dct.mutex);
  ++dct.events_completed;
  pthread_cond_signal(&dct.cond);
  pthread_mutex_unlock(&dct.mutex);
}

void await_acknowledgements(DcTarget &gone) noexcept {
  ibv_exp_dct &dct = gone.handle;
  pthread_mutex_lock(&dct.mutex);
  while (dct.events_completed != gone.events) pthread_cond_wait(&dct.cond, &dct.mutex);
  pthread_mutex_unlock(&dct.mutex);
}

void stop_target_events(ContextState &state) noexcept {
  if (state.target_events != nullptr && state.target_events->channel != nullptr)
    mlx5dv_devx_destroy_event_channel(state.target_events->channel);
}

}  // namespace ibvexp::translate
