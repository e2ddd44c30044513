#include "wire/udp_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <set>

#include "base/gid.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"

namespace softhca {

namespace {

constexpr u32 largest_packet = 4096 + 128;
constexpr u32 batch = 32;
constexpr int socket_bytes = 4 << 20;  // as far as the system allows
constexpr u64 ask_again_ns = 5'000;
constexpr u8 usual_hop_limit = 64;

struct Socket {
  std::array<u8, 4> address{};
  int fd = -1;
};

union Control {
  cmsghdr align;
  u8 bytes[2 * CMSG_SPACE(sizeof(int))];
};

sockaddr_in inet_address(const u8 *ipv4, u16 port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  std::memcpy(&a.sin_addr, ipv4, 4);
  return a;
}

void gid_of(const void *ipv4, u8 *gid) {
  std::memcpy(gid, ipv4_gid_prefix, sizeof ipv4_gid_prefix);
  std::memcpy(gid + 12, ipv4, 4);
}

std::string text_of(const u8 *ipv4) {
  char t[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, ipv4, t, sizeof t);
  return t;
}

void set(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof value);
}

// -1 and errno. Sockets of the kernel's, whatever stands in front of socket().
int bound_socket(const std::array<u8, 4> &address, u16 port) {
  const int fd = static_cast<int>(
      syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (fd < 0) return -1;
  set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
  for (const int option : {SO_RCVBUF, SO_RCVBUFFORCE, SO_SNDBUF, SO_SNDBUFFORCE})
    set(fd, SOL_SOCKET, option, socket_bytes);
  set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  set(fd, IPPROTO_IP, IP_RECVTOS, 1);
  set(fd, IPPROTO_IP, IP_RECVTTL, 1);
  const sockaddr_in own = inet_address(address.data(), port);
  if (bind(fd, reinterpret_cast<const sockaddr *>(&own), sizeof own) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

void add_option(msghdr &m, int type, int value) {
  cmsghdr *c = reinterpret_cast<cmsghdr *>(static_cast<u8 *>(m.msg_control) + m.msg_controllen);
  c->cmsg_level = IPPROTO_IP;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
  m.msg_controllen += CMSG_SPACE(sizeof value);
}

}  // namespace

struct UdpLink::State {
  u16 port = 0;
  std::vector<Socket> sockets;
  int epoll = -1;
  void (*arrived)() = nullptr;
  // Set before `arrived` is called, by the thread, and cleared before the sockets
  // are read: what comes between the two is not forgotten.
  std::atomic<bool> readable{true};
  u64 asked_ns = 0;
  std::set<int> complained;  // errno values

  // What was read together, handed out one by one.
  size_t socket = 0;
  u32 read = 0, next = 0;
  mmsghdr messages[batch];
  iovec vectors[batch];
  sockaddr_in senders[batch];
  Control controls[batch];
  u8 bytes[batch][largest_packet];

  ~State() {
    for (const Socket &s : sockets) close(s.fd);
    if (epoll >= 0) close(epoll);
  }
  bool fill(u64 now_ns);
  bool read_socket(int fd);
  void complain(const u8 *ipv4, int error);
  static void *wait(void *self);
};

// Edge-triggered: unread packets do not wake it again.
void *UdpLink::State::wait(void *self) {
  pthread_setname_np(pthread_self(), "softhca-udp");
  auto &s = *static_cast<State *>(self);
  for (;;) {
    epoll_event e;
    const int n = epoll_wait(s.epoll, &e, 1, -1);
    if (n < 0 && errno != EINTR) break;
    if (n < 1) continue;
    s.readable.store(true, std::memory_order_seq_cst);
    s.arrived();
  }
  SOFTHCA_LOG(error, "wire udp: the program has closed its sockets (%s)", strerror(errno));
  return nullptr;
}

UdpLink *UdpLink::open(const std::vector<std::array<u8, 4>> &addresses, u16 port, void (*arrived)(),
                       std::string &error) {
  auto s = std::make_unique<State>();
  s->port = port;
  s->arrived = arrived;
  const auto failed = [&error](const std::string &what, int number) {
    error = what + ": " + strerror(number) + limit_behind(number).text;
    errno = number;
    return nullptr;
  };
  s->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (s->epoll < 0) return failed("epoll_create1", errno);
  for (const auto &address : addresses) {
    const int fd = bound_socket(address, port);
    if (fd < 0) return failed(text_of(address.data()) + ":" + std::to_string(port), errno);
    s->sockets.push_back({address, fd});
    epoll_event e{};
    e.events = EPOLLIN | EPOLLET;
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) != 0) return failed("epoll_ctl", errno);
  }
  if (const int number = start_thread(State::wait, s.get()); number != 0)
    return failed("its thread cannot start", number);
  return new UdpLink(s.release());
}

void UdpLink::forget() {
  delete s_;
  delete this;
}

void UdpLink::State::complain(const u8 *ipv4, int error) {
  if (!complained.insert(error).second) return;
  SOFTHCA_LOG(warn, "wire udp: packets to %s are lost: %s%s", text_of(ipv4).c_str(),
              strerror(error), error == EMSGSIZE ? " (the path MTU of the queue pair)" : "");
}

UdpLink::Sent UdpLink::send(const u8 *sgid, const u8 *dgid, u8 traffic_class, u8 hop_limit,
                            const iovec *packets, u32 count) {
  State &s = *s_;
  const auto from = std::find_if(s.sockets.begin(), s.sockets.end(), [sgid](const Socket &socket) {
    return std::memcmp(socket.address.data(), sgid + 12, 4) == 0;
  });
  if (!is_ipv4_gid(sgid) || !is_ipv4_gid(dgid) || from == s.sockets.end()) {
    if (s.complained.insert(0).second)
      SOFTHCA_LOG(warn,
                  "wire udp: only GIDs of IPv4 addresses (index 2 and 3) lead to other hosts; "
                  "packets of others are lost");
    return Sent::lost;
  }
  sockaddr_in to = inet_address(dgid + 12, s.port);
  Control control;
  msghdr common{};
  common.msg_name = &to;
  common.msg_namelen = sizeof to;
  common.msg_control = control.bytes;
  add_option(common, IP_TTL, hop_limit != 0 ? hop_limit : usual_hop_limit);
  add_option(common, IP_TOS, traffic_class);
  u32 done = 0;
  while (done < count) {
    mmsghdr messages[batch];
    const u32 n = std::min(count - done, batch);
    for (u32 i = 0; i < n; ++i) {
      messages[i].msg_hdr = common;
      messages[i].msg_hdr.msg_iov = const_cast<iovec *>(packets + done + i);
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent = sendmmsg(from->fd, messages, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      done += static_cast<u32>(sent);
    } else if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) {
      return done == 0 ? Sent::full : Sent::yes;
    } else {
      s.complain(dgid + 12, errno);
      return Sent::lost;
    }
  }
  return Sent::yes;
}

bool UdpLink::State::read_socket(int fd) {
  for (u32 i = 0; i < batch; ++i) {
    vectors[i] = {bytes[i], largest_packet};
    msghdr &m = messages[i].msg_hdr;
    m = {};
    m.msg_name = &senders[i];
    m.msg_namelen = sizeof senders[i];
    m.msg_iov = &vectors[i];
    m.msg_iovlen = 1;
    m.msg_control = controls[i].bytes;
    m.msg_controllen = sizeof controls[i].bytes;
  }
  const int n = recvmmsg(fd, messages, batch, MSG_DONTWAIT, nullptr);
  read = n > 0 ? static_cast<u32>(n) : 0;
  next = 0;
  return read != 0;
}

// From the socket that had something last, so that none is left behind.
bool UdpLink::State::fill(u64 now_ns) {
  if (!readable.exchange(false, std::memory_order_seq_cst) && now_ns - asked_ns < ask_again_ns)
    return false;
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (read_socket(sockets[socket].fd)) {
      readable.store(true, std::memory_order_relaxed);  // there may be more
      return true;
    }
    socket = (socket + 1) % sockets.size();
  }
  asked_ns = now_ns;
  return false;
}

bool UdpLink::receive(u64 now_ns, RoceDatagram &out) {
  State &s = *s_;
  for (;;) {
    if (s.next == s.read && !s.fill(now_ns)) return false;
    const u32 i = s.next++;
    msghdr &m = s.messages[i].msg_hdr;
    if ((m.msg_flags & MSG_TRUNC) != 0 || m.msg_namelen != sizeof(sockaddr_in)) continue;
    out = {};
    for (cmsghdr *c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level != IPPROTO_IP) continue;
      if (c->cmsg_type == IP_TOS) out.traffic_class = *CMSG_DATA(c);
      if (c->cmsg_type == IP_TTL) out.hop_limit = *CMSG_DATA(c);  // an int, little-endian
    }
    gid_of(&s.senders[i].sin_addr, out.sgid);
    gid_of(s.sockets[s.socket].address.data(), out.dgid);
    out.source_port = ntohs(s.senders[i].sin_port);
    out.bytes = s.bytes[i];
    out.size = s.messages[i].msg_len;
    return true;
  }
}

}  // namespace softhca
