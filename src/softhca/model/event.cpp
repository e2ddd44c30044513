#include "model/event.h"

#include <linux/sockios.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "model/device.h"

namespace softhca {

namespace {

// Large enough that the overflow queue stays empty unless the program stops reading.
constexpr int send_buffer_bytes = 1 << 20;
constexpr size_t largest_event = sizeof(ib_uverbs_async_event_desc);

u64 socket_cookie(int fd) {
  u64 cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

u64 element_of(const u8 *event) {
  u64 element;  // first member of both event descriptors
  std::memcpy(&element, event, sizeof element);
  return element;
}

}  // namespace

EventChannel *EventChannel::create() {
  // Sequenced packets: one read returns one event, as the kernel's files do.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
  return new EventChannel(ends[0], ends[1], socket_cookie(ends[0]));
}

EventChannel::~EventChannel() {
  std::erase(process().overflowing, this);
  close(dev_fd_);
}

void EventChannel::drop() {
  if (--holders_ == 0) delete this;
}

void EventChannel::post_completion(u64 cq_handle) {
  const ib_uverbs_comp_event_desc event{cq_handle};
  post(&event, sizeof event);
}

void EventChannel::post_async(u64 element, EventType type) {
  const ib_uverbs_async_event_desc event{element, static_cast<u32>(type), 0};
  post(&event, sizeof event);
}

void EventChannel::post(const void *event, size_t size) {
  if (app_fd_ < 0) return;
  // While older events are queued, queue this one too: their order counts.
  if (overflow_.empty()) {
    if (send(dev_fd_, event, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
    if (errno != EAGAIN && errno != ENOBUFS) return;  // closed by a call that is not interposed
    process().overflowing.push_back(this);
  }
  const auto *bytes = static_cast<const u8 *>(event);
  overflow_.emplace_back(bytes, bytes + size);
}

void EventChannel::post_once(u64 name, const void *message, size_t size) {
  const size_t before = unread();
  const size_t there = message_memory_ == 0 ? 0 : before / message_memory_ + overflow_.size();
  while (names_.size() > there) names_.pop_front();
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return;
  post(message, size);
  if (before == 0) message_memory_ = std::max(message_memory_, unread());
  names_.push_back(name);
}

size_t EventChannel::unread() const {
  int bytes = 0;
  return ioctl(dev_fd_, SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

void EventChannel::flush() {
  while (!overflow_.empty()) {
    const std::vector<u8> &event = overflow_.front();
    if (app_fd_ >= 0 &&
        send(dev_fd_, event.data(), event.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
        (errno == EAGAIN || errno == ENOBUFS))
      return;
    overflow_.pop_front();
  }
}

bool EventChannel::application_end_is_ours() const {
  // The descriptor may have been closed unseen (close_range, a system
  // call) and its number given to another socket, whose data is not ours.
  return app_fd_ >= 0 && app_cookie_ != 0 && socket_cookie(app_fd_) == app_cookie_;
}

u32 EventChannel::purge(u64 element) {
  u32 removed = 0;
  std::deque<std::vector<u8>> keep;
  if (application_end_is_ours()) {
    u8 event[largest_event];
    ssize_t size;
    while ((size = recv(app_fd_, event, sizeof event, MSG_DONTWAIT)) > 0) {
      if (element_of(event) == element) ++removed;
      else keep.emplace_back(event, event + size);
    }
  }
  const bool listed = !overflow_.empty();
  for (std::vector<u8> &event : overflow_) {
    if (element_of(event.data()) == element) ++removed;
    else keep.push_back(std::move(event));
  }
  // Everything left goes back in its order; the engine's list of overflowing
  // channels keeps its entry, flush() of an empty queue is harmless.
  overflow_ = std::move(keep);
  flush();
  if (!overflow_.empty() && !listed) process().overflowing.push_back(this);
  return removed;
}

namespace {

// The event of a queue for an event type of the verbs interface.
QueueEvent queue_event(EventType type) {
  switch (type) {
    case EventType::cq_err: return QueueEvent::cq_error;
    case EventType::qp_req_err: return QueueEvent::invalid_request;
    case EventType::qp_access_err: return QueueEvent::access_error;
    case EventType::comm_est: return QueueEvent::established;
    case EventType::sq_drained: return QueueEvent::sq_drained;
    case EventType::path_mig: return QueueEvent::path_migrated;
    case EventType::path_mig_err: return QueueEvent::path_failed;
    case EventType::srq_err: return QueueEvent::srq_catastrophic;
    case EventType::srq_limit: return QueueEvent::limit;
    case EventType::qp_last_wqe: return QueueEvent::last_wqe;
    default: return QueueEvent::catastrophic;
  }
}

}  // namespace

void EventSink::report_completion(u64 cq_handle) {
  if (listener != nullptr) listener->raise(QueueEvent::completion);
  if (channel == nullptr) return;
  channel->post_completion(cq_handle);
  ++posted;
}

void EventSink::report(u64 element, EventType type) {
  if (listener != nullptr) listener->raise(queue_event(type));
  if (channel == nullptr) return;
  channel->post_async(element, type);
  ++posted;
}

}  // namespace softhca
