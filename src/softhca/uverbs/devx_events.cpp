// Descriptors from which programs read events of firmware objects, and answers of asynchronous
// queries (mlx5/devx.c).
#include <fcntl.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "firmware/hca_caps.h"
#include "uverbs/devx_queue.h"
#include "uverbs/devx_vport.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

int open_channel(File &file, Attrs &attrs, u16 id, ChannelKind kind, bool cookies_only) {
  EventChannel *channel = file.create_channel(kind);
  if (channel == nullptr) return errno;
  channel->cookies_only = cookies_only;
  const int error = attrs.publish(id, channel->application_fd());
  if (error != 0) file.abandon_channel(channel);
  return error;
}

int events_open(File &file, Attrs &attrs) {
  u32 flags = 0;
  if (const int error = attrs.flags(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS,
                                    MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA, flags);
      error != 0)
    return error;
  return open_channel(file, attrs, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE,
                      ChannelKind::devx_events, flags != 0);
}

int answers_open(File &file, Attrs &attrs) {
  return open_channel(file, attrs, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE,
                      ChannelKind::devx_answers, false);
}

template <size_t n>
bool contains(const std::array<u8, n> &events, u16 event) {
  return std::find(events.begin(), events.end(), event) != events.end();
}

// Duplicates the program's eventfd `number`; the program keeps its own descriptor.
int take_counter(int number, int &counter) {
  const std::string link = "/proc/self/fd/" + std::to_string(number);
  char target[32];
  const ssize_t n = readlink(link.c_str(), target, sizeof target);
  if (n < 0) return EBADF;
  if (std::string_view(target, static_cast<size_t>(n)) != "anon_inode:[eventfd]") return EINVAL;
  counter = fcntl(number, F_DUPFD_CLOEXEC, 0);
  return counter < 0 ? errno : 0;
}

int events_subscribe(File &file, Attrs &attrs) {
  constexpr size_t max_events = 16;
  if (!file.devx) return EINVAL;
  auto *object = attrs.object<DevxObject>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE);
  u32 number = 0;
  u64 cookie = 0;
  const bool counted = attrs.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, number) == 0;
  if (attrs.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, cookie) == 0 && counted) return EINVAL;
  std::vector<u8> list;
  if (const int error = attrs.bytes(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, list);
      error != 0)
    return error;
  if (list.size() % sizeof(u16) != 0) return EINVAL;
  std::vector<u16> events(list.size() / sizeof(u16));
  std::memcpy(events.data(), list.data(), list.size());
  if (events.size() > max_events) return EINVAL;
  for (const u16 event : events)
    if (!(object != nullptr ? contains(object_events, event) : contains(port_events, event)))
      return EINVAL;

  EventChannel *channel = attrs.channel(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE);
  std::vector<int> counters(events.size(), -1);
  if (counted)
    for (int &counter : counters)
      if (const int error = take_counter(static_cast<int>(number), counter); error != 0) {
        for (const int taken : counters)
          if (taken >= 0) close(taken);
        return error;
      }
  for (size_t i = 0; i < events.size(); ++i) {
    const auto event = static_cast<u8>(events[i]);
    Subscriptions &to = object != nullptr ? object->subscriptions : port_subscriptions();
    to.add(event, channel, cookie, counters[i]);
    if (object != nullptr) object->subscribed(event);
    else process().port_listener = deliver_port_event;
  }
  return 0;
}

int query_later(File &file, Attrs &attrs) {
  constexpr size_t max_unread = 1 << 20;
  constexpr u16 nowhere = 0;
  Command c;
  if (const int error =
          read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, nowhere, c);
      error != 0)
    return error;
  if (!is_query(c)) return EINVAL;
  u64 length = 0;
  attrs.constant(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, length);
  if (length < header_bytes || length > 0xffff) return EINVAL;
  const u64 name = attrs.value<u64>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID);
  EventChannel *channel = attrs.channel(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD);
  if (channel->unread() + length > max_unread) return EAGAIN;
  c.out.assign(length, 0);
  const int error =
      execute_query(attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE));
  if (error != 0 && error != EREMOTEIO) return error;
  std::vector<u8> answer(sizeof name + c.out.size());
  std::memcpy(answer.data(), &name, sizeof name);
  std::copy(c.out.begin(), c.out.end(), answer.begin() + sizeof name);
  channel->post(answer.data(), answer.size());
  return 0;
}

constexpr AttrSpec events_specs[] = {
    created_fd(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE),
    {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, AttrSpec::Kind::in, 4, 8},
};
constexpr AttrSpec answers_specs[] = {created_fd(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE)};
constexpr AttrSpec subscribe_specs[] = {
    channel_of(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, ChannelKind::devx_events),
    object(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, ObjectClass::devx_object).optional(),
    in_bytes(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, sizeof(u16)),
    in<u64>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE).optional(),
    in<u32>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM).optional(),
};
constexpr AttrSpec later_specs[] = {
    object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, ObjectClass::any),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, header_bytes),
    constant(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN),
    channel_of(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, ChannelKind::devx_answers),
    in<u64>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID),
};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
     "DEVX_ASYNC_EVENT_FD/ALLOC", events_open, events_specs},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "DEVX/SUBSCRIBE_EVENT",
     events_subscribe, subscribe_specs},
    {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC,
     "DEVX_ASYNC_CMD_FD/ALLOC", answers_open, answers_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, "DEVX_OBJ/ASYNC_QUERY",
     query_later, later_specs},
};

}  // namespace

constinit const Family devx_events_family = {methods, {}};

}  // namespace softhca::uverbs
