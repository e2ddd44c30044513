#include "cm/cm_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/descriptor_table.h"
#include "base/log.h"
#include "cm/cm_state.h"
#include "engine/engine.h"
#include "model/device.h"

namespace softhca {

namespace cm {

namespace {

constexpr u32 misc_major = 10;
constexpr u32 minor_number = 58;

constinit DescriptorTable g_descriptors;

// A command is not left half-way: threads that wait for events are commonly
// cancelled, and the calls made here are cancellation points.
struct DeviceLock {
  DeviceLock() {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    process().mutex.lock();
  }
  ~DeviceLock() {
    engine_nudge();
    process().mutex.unlock();
    pthread_setcancelstate(cancel_state, nullptr);
  }
  InsideDevice inside;  // before the lock, after the unlock
  int cancel_state = 0;
};

// Channels are used again but never freed: a thread that races with the close
// may still hold a pointer, and finds a closed channel.
Channel *take_channel() {
  for (Channel *c : manager().channels)
    if (!c->open) return c;
  manager().channels.push_back(new Channel);
  return manager().channels.back();
}

struct Ends {
  int application = -1, own = -1, device = -1;
};

void close_all(const Ends &ends) {
  const int saved = errno;
  for (const int fd : {ends.application, ends.own, ends.device})
    if (fd >= 0) close(fd);
  errno = saved;
}

// False and errno when no descriptors are left.
bool make_ends(Ends &e, bool nonblocking) {
  int pair[2];
  const int flag = nonblocking ? SOCK_NONBLOCK : 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flag, 0, pair) != 0) return false;
  e.application = pair[0];
  e.device = pair[1];
  e.own = fcntl(e.application, F_DUPFD_CLOEXEC, 0);
  if (e.own >= 0) return true;
  close_all(e);
  return false;
}

void close_channel(Channel &c) {
  // From the start again: connections that wait for a listener go with it.
  auto &ids = manager().ids;
  for (auto it = ids.begin(); it != ids.end();) {
    if (it->second->channel != &c) {
      ++it;
      continue;
    }
    destroy_id(it->second.get());
    it = ids.begin();
  }
  c.events.clear();
  close(c.own_end);
  close(c.device_end);  // whoever waits for an event sees the end of file
  c.own_end = c.device_end = -1;
  c.open = false;
}

void forget(int fd) {
  auto *c = reinterpret_cast<Channel *>(g_descriptors.get(fd));
  if (c == nullptr) return;
  g_descriptors.set(fd, 0);
  c->descriptors.erase(fd);
  if (c->descriptors.empty()) close_channel(*c);
}

int start() {
  if (const int error = process().start(); error != 0) return error;
  engine_set_cm(receive, tick, due);
  if (self().incarnation == 0) return EIO;
  static Party announced;
  if (announced == self()) return 0;
  if (const int error = announce(); error != 0) return error;
  announced = self();
  return 0;
}

}  // namespace

Channel *channel_of(int fd) { return reinterpret_cast<Channel *>(g_descriptors.get(fd)); }

}  // namespace cm

using namespace cm;

dev_t cm_device_number() { return makedev(misc_major, minor_number); }

int cm_open(int flags) {
  DeviceLock lock;
  if (const int error = start(); error != 0) {
    errno = error;
    return -1;
  }
  Ends ends;
  if (!make_ends(ends, (flags & O_NONBLOCK) != 0)) return -1;
  if ((flags & O_CLOEXEC) == 0) fcntl(ends.application, F_SETFD, 0);
  forget(ends.application);  // closed unnoticed
  Channel *c = take_channel();
  if (!g_descriptors.set(ends.application, reinterpret_cast<uintptr_t>(c))) {
    close_all(ends);
    errno = ENOMEM;
    return -1;
  }
  c->open = true;
  ++c->incarnation;
  c->descriptors = {ends.application};
  c->own_end = ends.own;
  c->device_end = ends.device;
  SOFTHCA_LOG(debug, "connection manager: open, descriptor %d", ends.application);
  return ends.application;
}

namespace {

// A kernel's messages leave even if the process ends right behind the call. Ours
// may have to wait until the receiver has looked at a new ring: it gets a
// moment, while the engine works. Only those of this call, younger than `since`:
// older ones are for receivers that do not look.
void let_messages_leave(u64 since) {
  constexpr u64 max_wait_ns = 100'000'000;
  const u64 begin = device_clock_ns();
  for (;;) {
    {
      DeviceLock lock;
      flush_messages();
      if (!waiting_since(since) || device_clock_ns() > begin + max_wait_ns) return;
    }
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

constexpr int closed = -2;  // and a command that waits: see cm_write()
static_assert(closed != no_event);

// 0, errno, no_event or closed.
int run(Channel *c, u32 incarnation, u64 buffer, size_t length, u64 &since) {
  DeviceLock lock;
  since = newest_waiting();
  if (!c->open || c->incarnation.load() != incarnation)
    return fetches_event(buffer, length) ? closed : EBADF;
  // A forked child is not part of the fabric yet.
  if (const int error = start(); error != 0) return error;
  return command(*c, buffer, length);
}

// A socket that is never written to.
int never_readable() {
  static int pair[2] = {-1, -1};
  DeviceLock lock;
  if (pair[0] < 0) (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
  return pair[0];
}

}  // namespace

// No objects with destructors live while this waits: a thread may be cancelled
// there, as in a real write().
ssize_t cm_write(int fd, const void *buffer, size_t length) {
  const int before = errno;
  Channel *c = channel_of(fd);
  if (c == nullptr) {
    errno = EBADF;
    return -1;
  }
  const u32 incarnation = c->incarnation.load();
  u64 since = 0;
  for (;;) {
    const int error = run(c, incarnation, reinterpret_cast<u64>(buffer), length, since);
    char byte;
    if (error == no_event) {
      // O_NONBLOCK, interruption by signals and SA_RESTART are the kernel's.
      const ssize_t n = recv(fd, &byte, 1, MSG_PEEK);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
      continue;
    }
    if (error == closed) {
      // By another thread. The kernel's file lives on for as long as a thread
      // waits in it, but no event will ever come: rping relies on it.
      recv(never_readable(), &byte, 1, MSG_PEEK);
      return -1;
    }
    let_messages_leave(since);
    errno = error != 0 ? error : before;
    return error != 0 ? -1 : static_cast<ssize_t>(length);
  }
}

void cm_dup(int from, int to) {
  if (channel_of(from) == nullptr) return;
  DeviceLock lock;
  Channel *c = channel_of(from);
  if (c == nullptr || from == to || channel_of(to) == c) return;
  forget(to);
  if (g_descriptors.set(to, reinterpret_cast<uintptr_t>(c))) c->descriptors.insert(to);
}

void cm_close(int fd) {
  if (channel_of(fd) == nullptr) return;
  u64 since;
  {
    DeviceLock lock;
    since = newest_waiting();
    forget(fd);
  }
  let_messages_leave(since);
}

void cm_forked() {
  // The ids stay the parent's; the child may open connections of its own, on
  // its own channels also through descriptors that it inherited.
  registry_forked();
  forget_messages();
  forget_all_ids();
  for (Channel *c : manager().channels) {
    if (!c->open) continue;
    c->events.clear();
    close(c->own_end);
    close(c->device_end);
    c->own_end = c->device_end = -1;
    Ends ends;
    const int any = *c->descriptors.begin();
    const int flags = fcntl(any, F_GETFL);
    if (flags < 0 || !make_ends(ends, (flags & O_NONBLOCK) != 0)) {
      for (const int fd : c->descriptors) g_descriptors.set(fd, 0);
      c->descriptors.clear();
      c->open = false;
      continue;
    }
    for (const int fd : c->descriptors) {
      const int close_on_exec = fcntl(fd, F_GETFD) & FD_CLOEXEC;
      dup3(ends.application, fd, close_on_exec ? O_CLOEXEC : 0);
    }
    close(ends.application);
    c->own_end = ends.own;
    c->device_end = ends.device;
  }
}

}  // namespace softhca
