#include "umad/umad.h"

#include <fcntl.h>
#include <rdma/ib_user_mad.h>
#include <rdma/rdma_user_ioctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <mutex>

#include "base/descriptor_table.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"
#include "firmware/subnet_administrator.h"
#include "model/device.h"
#include "model/memory.h"

namespace softhca {

namespace {

constexpr u32 umad_major = 231;    // IB_UMAD_MAJOR of the kernel
constexpr u32 max_agents = 32;     // IB_UMAD_MAX_AGENTS
constexpr u32 common_header = 24;  // smallest datagram
constexpr u32 class_at = 1, transaction_at = 8;

struct Node {
  u32 index = 0;
  int device_end = -1;
  bool used = false;
  bool long_header = false;  // ENABLE_PKEY
  u32 agents = 0;            // bit per registered agent
  u8 management_class[max_agents] = {};

  ~Node() { close(device_end); }
  size_t header_bytes() const {
    return long_header ? sizeof(ib_user_mad_hdr) : sizeof(ib_user_mad_hdr_old);
  }
};

constinit DescriptorTable g_descriptors;  // 1 + index

std::map<int, std::shared_ptr<Node>> &nodes() {
  static auto &map = *new std::map<int, std::shared_ptr<Node>>;
  return map;
}
SubnetAdministrator &administrator() {
  static auto &sa = *new SubnetAdministrator;
  return sa;
}

// Holds the device lock, and finds the node of a descriptor.
class Held {
 public:
  explicit Held(int fd) : lock_(process().mutex) {
    const auto it = nodes().find(fd);
    if (it != nodes().end()) node = it->second;
  }
  std::shared_ptr<Node> node;

 private:
  InsideDevice inside_;
  std::lock_guard<std::mutex> lock_;
};

int fail(int error) {
  errno = error;
  return -1;
}

int register_agent(Node &n, u32 qpn, u32 management_class, u32 &id) {
  if (qpn > 1) return EINVAL;
  for (u32 i = 0; i < max_agents; ++i) {
    if ((n.agents >> i & 1) != 0) continue;
    n.agents |= 1u << i;
    n.management_class[i] = static_cast<u8>(management_class);
    n.used = true;
    id = i;
    return 0;
  }
  return ENOMEM;
}

int unregister_agent(Node &n, u32 id) {
  if (id >= max_agents || (n.agents >> id & 1) == 0) return EINVAL;
  n.agents &= ~(1u << id);
  return 0;
}

// Registration by a structure that holds the agent's number afterwards.
template <class Request, class Register>
int with_request(void *argument, Register with) {
  Request r;
  const u64 address = reinterpret_cast<u64>(argument);
  if (!read_application(address, &r, sizeof r)) return EFAULT;
  if (const int error = with(r); error != 0) return error;
  return write_application(address, &r, sizeof r) ? 0 : EFAULT;
}

int run_ioctl(Node &n, unsigned long request, void *argument) {
  switch (request) {
    case IB_USER_MAD_ENABLE_PKEY:
      if (n.used) return EINVAL;
      n.long_header = true;
      return 0;
    case IB_USER_MAD_REGISTER_AGENT:
      return with_request<ib_user_mad_reg_req>(
          argument, [&](auto &r) { return register_agent(n, r.qpn, r.mgmt_class, r.id); });
    case IB_USER_MAD_REGISTER_AGENT2:
      return with_request<ib_user_mad_reg_req2>(argument, [&](auto &r) {
        if ((r.flags & ~u32{IB_USER_MAD_REG_FLAGS_CAP}) != 0) {
          r.flags = IB_USER_MAD_REG_FLAGS_CAP;
          return EINVAL;
        }
        return register_agent(n, r.qpn, r.mgmt_class, r.id);
      });
    case IB_USER_MAD_UNREGISTER_AGENT: {
      u32 id;
      if (!read_application(reinterpret_cast<u64>(argument), &id, sizeof id)) return EFAULT;
      return unregister_agent(n, id);
    }
    default: return ENOTTY;
  }
}

bool reaches_administrator(const Node &n) {
  const UmadPort at = umad_port(n.index);
  const PortConfig &port = config().devices[at.device].ports[at.port - 1];
  return port.link == LinkLayer::infiniband && port.active;
}

}  // namespace

u32 umad_count() {
  u32 n = 0;
  for (const DeviceConfig &d : config().devices) n += static_cast<u32>(d.ports.size());
  return n;
}

UmadPort umad_port(u32 index) {
  const auto &devices = config().devices;
  u32 d = 0;
  for (; index >= devices[d].ports.size(); ++d) index -= static_cast<u32>(devices[d].ports.size());
  return {d, index + 1};
}

dev_t umad_device_number(u32 index) { return makedev(umad_major, index); }

u32 umad_node_of(int fd) { return static_cast<u32>(g_descriptors.get(fd)); }

int umad_open(u32 index, int flags) {
  int ends[2];
  const int nonblock = (flags & O_NONBLOCK) != 0 ? SOCK_NONBLOCK : 0;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | nonblock, 0, ends) != 0) return -1;
  auto node = std::make_shared<Node>();
  node->index = index;
  node->device_end = ends[1];
  if ((flags & O_CLOEXEC) == 0) fcntl(ends[0], F_SETFD, 0);
  Held held(ends[0]);  // drops a stale entry of a descriptor that was closed unnoticed
  if (!g_descriptors.set(ends[0], index + 1)) {
    close(ends[0]);
    return fail(ENOMEM);
  }
  nodes()[ends[0]] = std::move(node);
  return ends[0];
}

void umad_dup(int from, int to) {
  Held held(from);
  if (!held.node || from == to) return;
  if (g_descriptors.set(to, held.node->index + 1)) nodes()[to] = held.node;
}

void umad_close(int fd) {
  Held held(fd);
  if (!held.node) return;
  g_descriptors.set(fd, 0);
  nodes().erase(fd);
}

int umad_ioctl(int fd, unsigned long request, void *argument) {
  Held held(fd);
  if (!held.node) return fail(EBADF);
  const int error = run_ioctl(*held.node, request, argument);
  return error == 0 ? 0 : fail(error);
}

ssize_t umad_write(int fd, const void *buffer, size_t length) {
  Held held(fd);
  if (!held.node) return fail(EBADF);
  Node &n = *held.node;
  const size_t header = n.header_bytes();
  if (length < header + common_header) return fail(EINVAL);
  u8 message[sizeof(ib_user_mad_hdr) + mad_bytes] = {};
  const size_t taken = std::min(length, header + mad_bytes);
  if (!read_application(reinterpret_cast<u64>(buffer), message, taken)) return fail(EFAULT);

  ib_user_mad_hdr_old h;  // the beginning of both headers
  std::memcpy(&h, message, sizeof h);
  if (h.id >= max_agents || (n.agents >> h.id & 1) == 0) return fail(EINVAL);
  u8 *mad = message + header;
  if (n.management_class[h.id] != mad[class_at]) return fail(EINVAL);
  n.used = true;
  // The kernel takes the upper half of the transaction's number for itself.
  store_be32(mad + transaction_at, h.id + 1);

  u8 answer[mad_bytes];
  if (reaches_administrator(n) && administrator().answer(mad, answer)) {
    h.status = 0;
    std::memcpy(mad, answer, mad_bytes);
  } else if (h.timeout_ms != 0) {
    h.status = ETIMEDOUT;  // the request itself comes back
    SOFTHCA_LOG(debug, "umad%u: no agent for MAD class %#x attribute %#x", n.index, mad[class_at],
                load_be16(mad + 16));
  } else {
    return static_cast<ssize_t>(length);
  }
  h.length = static_cast<u32>(header + mad_bytes);
  std::memcpy(message, &h, sizeof h);
  if (send(n.device_end, message, header + mad_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    return fail(ENOMEM);  // the program does not read its answers
  return static_cast<ssize_t>(length);
}

}  // namespace softhca
