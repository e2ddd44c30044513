#include "nldev/rdma_netlink.h"

#include <linux/netlink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "base/descriptor_table.h"
#include "engine/engine.h"
#include "model/device.h"
#include "model/memory.h"
#include "nldev/nldev.h"

namespace softhca {

namespace {

constexpr size_t max_request = 1 << 16;

constinit DescriptorTable g_descriptors;

bool mark(int fd, bool ours) {
  std::lock_guard<std::mutex> lock(process().mutex);
  return g_descriptors.set(fd, ours ? 1 : 0);
}

int option(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

int fail(int error) {
  errno = error;
  return -1;
}

// A socket that answers once.
class Kernel {
 public:
  Kernel() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK)) {
    bound_ = fd_ >= 0 && connect_to(fd_, 0) && name_of(fd_, own_);
  }
  ~Kernel() {
    if (fd_ >= 0) close(fd_);
  }
  Kernel(const Kernel &) = delete;
  Kernel &operator=(const Kernel &) = delete;

  // From now on the program's socket takes messages of this one only. Gives it a number
  // where it has none yet. False and errno on failure.
  bool attach(int program, u32 &port_id) const {
    sockaddr_nl name{};
    if (!bound_ || !connect_to(program, own_.nl_pid) || !name_of(program, name)) return false;
    port_id = name.nl_pid;
    return true;
  }
  bool send(u32 port_id, const std::string &datagram) const {
    const sockaddr_nl to = address(port_id);
    return sendto(fd_, datagram.data(), datagram.size(), MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr *>(&to), sizeof to) >= 0;
  }

 private:
  static sockaddr_nl address(u32 port_id) {
    sockaddr_nl a{};
    a.nl_family = AF_NETLINK;
    a.nl_pid = port_id;
    return a;
  }
  static bool connect_to(int fd, u32 port_id) {
    const sockaddr_nl to = address(port_id);
    return connect(fd, reinterpret_cast<const sockaddr *>(&to), sizeof to) == 0;
  }
  static bool name_of(int fd, sockaddr_nl &out) {
    socklen_t length = sizeof out;
    return getsockname(fd, reinterpret_cast<sockaddr *>(&out), &length) == 0;
  }
  int fd_;
  bool bound_ = false;
  sockaddr_nl own_{};
};

// To the kernel, or an errno value.
int wrong_destination(const msghdr &m) {
  if (m.msg_name == nullptr || m.msg_namelen == 0) return 0;
  sockaddr_nl to;
  if (m.msg_namelen < sizeof to) return EINVAL;
  if (!read_application(reinterpret_cast<u64>(m.msg_name), &to, sizeof to)) return EFAULT;
  if (to.nl_family != AF_NETLINK) return EINVAL;
  return to.nl_groups != 0 ? EPERM : to.nl_pid != 0 ? ECONNREFUSED : 0;
}

int gather(const msghdr &m, std::vector<u8> &out) {
  for (size_t i = 0; i < m.msg_iovlen; ++i) {
    iovec piece;
    if (!read_application(reinterpret_cast<u64>(m.msg_iov + i), &piece, sizeof piece))
      return EFAULT;
    const size_t before = out.size();
    if (piece.iov_len > max_request - before) return EMSGSIZE;
    out.resize(before + piece.iov_len);
    if (!read_application(reinterpret_cast<u64>(piece.iov_base), out.data() + before,
                          piece.iov_len))
      return EFAULT;
  }
  return 0;
}

}  // namespace

int rdma_netlink_open(int type) {
  const int fd = socket(AF_NETLINK, type, NETLINK_USERSOCK);
  if (fd < 0)
    return errno == ESOCKTNOSUPPORT || errno == EMFILE || errno == ENFILE ? -1
                                                                          : fail(EPROTONOSUPPORT);
  if (mark(fd, true)) return fd;
  close(fd);
  return fail(ENOMEM);
}

bool is_rdma_netlink(int fd) {
  if (g_descriptors.get(fd) == 0) [[likely]]
    return false;
  // The descriptor's number may have gone to another file since.
  const int before = errno;
  const bool still =
      option(fd, SO_DOMAIN) == AF_NETLINK && option(fd, SO_PROTOCOL) == NETLINK_USERSOCK;
  errno = before;
  return still;
}

ssize_t rdma_netlink_send(int fd, const msghdr &message) {
  std::vector<u8> request;
  if (const int error = wrong_destination(message)) return fail(error);
  if (const int error = gather(message, request)) return fail(error);
  const Kernel kernel;
  u32 port_id;
  if (!kernel.attach(fd, port_id)) return -1;
  for (const std::string &datagram : nldev_answer(request.data(), request.size(), port_id))
    if (!kernel.send(port_id, datagram)) return fail(ENOBUFS);
  return static_cast<ssize_t>(request.size());
}

void rdma_netlink_dup(int to) { mark(to, true); }

void rdma_netlink_close(int fd) { mark(fd, false); }

}  // namespace softhca
