// Descriptors: commands, duplicates, mappings and their end.
#include <fcntl.h>
#include <rdma/rdma_user_ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>

#include "cm/cm_file.h"
#include "nldev/rdma_netlink.h"
#include "preload/calls.h"
#include "preload/real.h"
#include "umad/umad.h"
#include "uverbs/file.h"
#include "uverbs/state.h"

using namespace softhca;

REAL(int, ioctl, int, unsigned long, ...);
REAL(ssize_t, write, int, const void *, size_t);
REAL(int, close, int);
REAL(int, close_range, unsigned, unsigned, int);
REAL(void, closefrom, int);
REAL(int, dup, int);
REAL(int, dup2, int, int);
REAL(int, dup3, int, int, int);
REAL(int, fcntl, int, int, ...);
REAL(int, fcntl64, int, int, ...);
REAL(int, socket, int, int, int);
REAL(ssize_t, send, int, const void *, size_t, int);
REAL(ssize_t, sendto, int, const void *, size_t, int, const sockaddr *, socklen_t);
REAL(ssize_t, sendmsg, int, const msghdr *, int);
REAL(void *, mmap, void *, size_t, int, int, int, off_t);
REAL(void *, mmap64, void *, size_t, int, int, int, off64_t);

namespace {

// Until a device is opened, closing anything costs nothing.
std::atomic<bool> g_opened{false};

// The device behind a descriptor as the program sees it.
File *device_file(int fd) {
  File *f = uverbs_file(fd);
  return f && !inside_device() ? f : nullptr;
}

// What `fd` was is over: a device's file, or one that events are read from.
void forget(int fd) {
  if (!g_opened.load(std::memory_order_relaxed) || inside_device() || !own_process()) return;
  in_device_void([&] {
    if (uverbs_file(fd)) [[unlikely]]
      uverbs_close(fd);
    else if (cm::channel_of(fd)) [[unlikely]] cm_close(fd);
    else if (umad_node_of(fd)) [[unlikely]] umad_close(fd);
    else if (is_rdma_netlink(fd)) [[unlikely]] rdma_netlink_close(fd);
    else uverbs_event_fd_closing(fd);
  });
}

int duplicated(int from, int to) {
  if (to < 0 || inside_device()) return to;
  const bool is_device = uverbs_file(from), is_cm = cm::channel_of(from);
  const bool is_netlink = is_rdma_netlink(from);
  if ((is_device || is_cm || is_netlink || umad_node_of(from)) && own_process()) [[unlikely]]
    in_device_void([&] {
      is_device    ? uverbs_dup(from, to)
      : is_cm      ? cm_dup(from, to)
      : is_netlink ? rdma_netlink_dup(to)
                   : umad_dup(from, to);
    });
  return to;
}

void forget_range(unsigned first, unsigned last) {
  if (!g_opened.load(std::memory_order_relaxed)) return;
  const i64 end = std::min<i64>(i64{last} + 1, std::min(getdtablesize(), 1 << 20));
  for (i64 fd = first; fd < end; ++fd) forget(static_cast<int>(fd));
}

bool asks_kernel(int fd) { return is_rdma_netlink(fd) && !inside_device(); }

ssize_t ask_kernel(int fd, const void *buffer, size_t length, const sockaddr *to,
                   socklen_t to_length) {
  iovec piece{const_cast<void *>(buffer), length};
  msghdr message{};
  message.msg_name = const_cast<sockaddr *>(to);
  message.msg_namelen = to_length;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return in_device([&] { return rdma_netlink_send(fd, message); });
}

}  // namespace

namespace softhca {

void device_opened() { g_opened.store(true, std::memory_order_relaxed); }

}  // namespace softhca

INTERPOSE(int, ioctl, int fd, unsigned long request, ...) {
  va_list args;
  va_start(args, request);
  void *argument = va_arg(args, void *);
  va_end(args);
  File *f = device_file(fd);
  if (umad_node_of(fd) && !inside_device()) [[unlikely]] {
    const int before = errno;
    const int result = umad_ioctl(fd, request, argument);
    if (result == 0) errno = before;
    // FIOCLEX and its like.
    return result == 0 || errno != ENOTTY ? result : real_ioctl(fd, request, argument);
  }
  // The rest (FIOCLEX and its like) is answered by the kernel for any file.
  if (!f || request != RDMA_VERBS_IOCTL) [[likely]]
    return real_ioctl(fd, request, argument);
  return in_device([&] { return uverbs_ioctl(f, static_cast<ib_uverbs_ioctl_hdr *>(argument)); });
}

// Commands of the connection manager, management datagrams and requests by netlink.
INTERPOSE(ssize_t, write, int fd, const void *buffer, size_t length) {
  if (asks_kernel(fd)) [[unlikely]]
    return ask_kernel(fd, buffer, length, nullptr, 0);
  if (cm::channel_of(fd) && !inside_device()) [[unlikely]]
    return cm_write(fd, buffer, length);
  if (umad_node_of(fd) && !inside_device()) [[unlikely]]
    return in_device([&] { return umad_write(fd, buffer, length); });
  return real_write(fd, buffer, length);
}

INTERPOSE(int, close, int fd) {
  forget(fd);
  return real_close(fd);
}

INTERPOSE(int, close_range, unsigned first, unsigned last, int flags) {
  // With a flag set nothing is closed now, or not in this table.
  if (flags == 0) forget_range(first, last);
  return real_close_range(first, last, flags);
}

INTERPOSE(void, closefrom, int first) {
  forget_range(static_cast<unsigned>(std::max(first, 0)), ~0u);
  real_closefrom(first);
}

INTERPOSE(int, dup, int fd) { return duplicated(fd, real_dup(fd)); }

// The descriptor that dup2 and dup3 replace is closed by them, if they succeed.
INTERPOSE(int, dup2, int from, int to) {
  if (from != to && real_fcntl(from, F_GETFD) >= 0) forget(to);
  const int fd = real_dup2(from, to);
  return from == to ? fd : duplicated(from, fd);
}

INTERPOSE(int, dup3, int from, int to, int flags) {
  if (from != to && (flags & ~O_CLOEXEC) == 0 && real_fcntl(from, F_GETFD) >= 0) forget(to);
  return duplicated(from, real_dup3(from, to, flags));
}

#define FCNTL(name)                                                  \
  INTERPOSE(int, name, int fd, int command, ...) {                   \
    va_list args;                                                    \
    va_start(args, command);                                         \
    void *argument = va_arg(args, void *);                           \
    va_end(args);                                                    \
    const int result = real_##name(fd, command, argument);           \
    if (command != F_DUPFD && command != F_DUPFD_CLOEXEC) [[likely]] \
      return result;                                                 \
    return duplicated(fd, result);                                   \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

// libibverbs looks for devices by netlink first, where a host with RDMA
// hardware would answer with its own.
INTERPOSE(int, socket, int domain, int type, int protocol) {
  constexpr int netlink_rdma = 20;
  if (domain == AF_NETLINK && protocol == netlink_rdma && !inside_device()) [[unlikely]] {
    prepare_for_fork();
    device_opened();
    return in_device([&] { return rdma_netlink_open(type); });
  }
  return real_socket(domain, type, protocol);
}

INTERPOSE(ssize_t, send, int fd, const void *buffer, size_t length, int flags) {
  if (asks_kernel(fd)) [[unlikely]]
    return ask_kernel(fd, buffer, length, nullptr, 0);
  return real_send(fd, buffer, length, flags);
}

INTERPOSE(ssize_t, sendto, int fd, const void *buffer, size_t length, int flags, const sockaddr *to,
          socklen_t to_length) {
  if (asks_kernel(fd)) [[unlikely]]
    return ask_kernel(fd, buffer, length, to, to_length);
  return real_sendto(fd, buffer, length, flags, to, to_length);
}

INTERPOSE(ssize_t, sendmsg, int fd, const msghdr *message, int flags) {
  if (asks_kernel(fd) && message != nullptr) [[unlikely]]
    return in_device([&] { return rdma_netlink_send(fd, *message); });
  return real_sendmsg(fd, message, flags);
}

// Mapping works without our help (uverbs/file.h), but for the refusals of the kernel's
// driver; and the engine learns where its pages are.
#define MMAP(name, offset_type)                                                                \
  INTERPOSE(void *, name, void *address, size_t length, int protection, int flags, int fd,     \
            offset_type offset) {                                                              \
    File *const f = fd >= 0 ? device_file(fd) : nullptr;                                       \
    if (f && own_process()) [[unlikely]] {                                                     \
      const int error =                                                                        \
          uverbs_map_refused(static_cast<u64>(offset) / page_size, length, protection, flags); \
      if (error != 0) {                                                                        \
        errno = error;                                                                         \
        return MAP_FAILED;                                                                     \
      }                                                                                        \
    }                                                                                          \
    void *const p = real_##name(address, length, protection, flags, fd, offset);               \
    if (f && p != MAP_FAILED && own_process()) [[unlikely]]                                    \
      in_device_void([&] { uverbs_mapped(); });                                                \
    return p;                                                                                  \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
