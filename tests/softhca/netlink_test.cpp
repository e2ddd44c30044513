// Devices by RDMA netlink: through sockets, and what libibverbs makes of them. With the
// software HCA preloaded and the three devices of netlink.json.
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "skip.h"

namespace {

// Sandboxes and emulators know no sockets that the device's could be made of.
bool supported() {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

constexpr uint16_t type_of(int command) {
  return static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

struct Attribute {
  uint16_t type;
  std::string value;
};
Attribute number(uint16_t type, uint32_t value) {
  return {type, {reinterpret_cast<const char *>(&value), sizeof value}};
}
Attribute text(uint16_t type, const std::string &value) {
  return {type, {value.c_str(), value.size() + 1}};
}

struct Message {
  nlmsghdr header{};
  std::string payload;
  std::map<uint16_t, std::string> attributes;

  uint64_t number(uint16_t type) const {
    const std::string &v = attributes.at(type);
    uint64_t n = 0;
    std::memcpy(&n, v.data(), v.size());
    return n;
  }
  std::string text(uint16_t type) const { return attributes.at(type).c_str(); }
  bool has(uint16_t type) const { return attributes.count(type) != 0; }
  int error() const {
    int e;
    std::memcpy(&e, payload.data(), sizeof e);
    return e;
  }
};

std::string request(uint16_t type, uint16_t flags, const std::vector<Attribute> &attributes) {
  nlmsghdr h{};
  h.nlmsg_type = type;
  h.nlmsg_flags = flags;
  h.nlmsg_seq = 4711;
  std::string bytes(reinterpret_cast<const char *>(&h), sizeof h);
  for (const Attribute &a : attributes) {
    const nlattr n{static_cast<uint16_t>(NLA_HDRLEN + a.value.size()), a.type};
    bytes.append(reinterpret_cast<const char *>(&n), sizeof n);
    bytes += a.value;
    bytes.resize(NLMSG_ALIGN(bytes.size()));
  }
  const uint32_t length = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

std::vector<Message> parse(const std::string &datagram) {
  std::vector<Message> messages;
  for (size_t at = 0; at < datagram.size();) {
    Message m;
    std::memcpy(&m.header, datagram.data() + at, sizeof m.header);
    REQUIRE(m.header.nlmsg_len >= sizeof m.header);
    REQUIRE(at + m.header.nlmsg_len <= datagram.size());
    m.payload = datagram.substr(at + NLMSG_HDRLEN, m.header.nlmsg_len - NLMSG_HDRLEN);
    for (size_t a = 0; m.header.nlmsg_type >= NLMSG_MIN_TYPE && a < m.payload.size();) {
      nlattr n;
      std::memcpy(&n, m.payload.data() + a, sizeof n);
      REQUIRE(n.nla_len >= NLA_HDRLEN);
      m.attributes[n.nla_type] = m.payload.substr(a + NLA_HDRLEN, n.nla_len - NLA_HDRLEN);
      a += NLA_ALIGN(n.nla_len);
    }
    at += NLMSG_ALIGN(m.header.nlmsg_len);
    messages.push_back(std::move(m));
  }
  return messages;
}

class Socket {
 public:
  explicit Socket(int flags = 0)
      : fd(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | flags, NETLINK_RDMA)) {
    REQUIRE(fd >= 0);
  }
  ~Socket() { close(fd); }

  uint32_t own_number() const {
    sockaddr_nl a{};
    socklen_t length = sizeof a;
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr *>(&a), &length) == 0);
    REQUIRE(a.nl_family == AF_NETLINK);
    return a.nl_pid;
  }
  std::vector<Message> receive() const {
    std::string buffer(16384, '\0');
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
    if (n < 0) return {};
    buffer.resize(static_cast<size_t>(n));
    return parse(buffer);
  }
  // The message that answers, alone in its datagram and the only one.
  Message ask(int command, const std::vector<Attribute> &attributes, uint16_t flags = 0) const {
    const std::string r =
        request(type_of(command), static_cast<uint16_t>(NLM_F_REQUEST | flags), attributes);
    REQUIRE(send(fd, r.data(), r.size(), 0) == static_cast<ssize_t>(r.size()));
    const auto messages = receive();
    REQUIRE(messages.size() == 1);
    CHECK(receive().empty());
    CHECK(messages[0].header.nlmsg_seq == 4711);
    CHECK(messages[0].header.nlmsg_pid == own_number());
    return messages[0];
  }
  int refused(int command, const std::vector<Attribute> &attributes, uint16_t flags = 0) const {
    const Message m = ask(command, attributes, flags);
    REQUIRE(m.header.nlmsg_type == NLMSG_ERROR);
    return m.error();
  }
  const int fd;
};

std::vector<Message> dump(const Socket &s, int command, const std::vector<Attribute> &attributes) {
  const std::string r =
      request(type_of(command), NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP, attributes);
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  REQUIRE(sendto(s.fd, r.data(), r.size(), 0, reinterpret_cast<sockaddr *>(&kernel),
                 sizeof kernel) == static_cast<ssize_t>(r.size()));
  const auto messages = s.receive();
  const auto end = s.receive();
  REQUIRE(end.size() == 1);
  CHECK(end[0].header.nlmsg_type == NLMSG_DONE);
  CHECK(end[0].error() == 0);
  CHECK(s.receive().empty());
  for (const Message &m : messages) {
    CHECK(m.header.nlmsg_type == type_of(command));
    CHECK((m.header.nlmsg_flags & NLM_F_MULTI) != 0);
  }
  return messages;
}

// huge_encode_dev() of the kernel, undone.
dev_t decoded(uint64_t d) {
  return makedev(static_cast<unsigned>(d >> 8 & 0xfff),
                 static_cast<unsigned>((d & 0xff) | (d >> 12 & 0xfff00)));
}
dev_t node_number(const std::string &name) {
  struct stat st;
  REQUIRE(stat(("/dev/infiniband/" + name).c_str(), &st) == 0);
  return st.st_rdev;
}

const auto get_index =
    reinterpret_cast<int (*)(ibv_device *)>(dlsym(RTLD_DEFAULT, "ibv_get_device_index"));

}  // namespace

TEST_CASE("libibverbs knows the index of each device") {
  int count = 0;
  ibv_device **list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  REQUIRE(count == 3);
  for (int i = 0; i < count; ++i) {
    CHECK(ibv_get_device_name(list[i]) == "mlx5_" + std::to_string(i));
    if (get_index != nullptr) CHECK(get_index(list[i]) == (supported() ? i : -1));
    ibv_context *ctx = ibv_open_device(list[i]);
    REQUIRE(ctx != nullptr);
    ibv_device_attr attr;
    CHECK(ibv_query_device(ctx, &attr) == 0);
    CHECK(attr.node_guid == ibv_get_device_guid(list[i]));
    CHECK(ibv_close_device(ctx) == 0);
  }
  ibv_free_device_list(list);
}

TEST_CASE("A dump lists the devices and what they are") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  const auto devices = dump(s, RDMA_NLDEV_CMD_GET, {});
  REQUIRE(devices.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    const Message &d = devices[i];
    CHECK(d.number(RDMA_NLDEV_ATTR_DEV_INDEX) == i);
    CHECK(d.text(RDMA_NLDEV_ATTR_DEV_NAME) == "mlx5_" + std::to_string(i));
    CHECK(d.number(RDMA_NLDEV_ATTR_PORT_INDEX) == (i == 1 ? 2 : 1));
    CHECK(d.number(RDMA_NLDEV_ATTR_DEV_NODE_TYPE) == 1);
    CHECK(d.number(RDMA_NLDEV_ATTR_NODE_GUID) == 0x0253480300010000u + 0x100 * i);
    CHECK(d.number(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID) == d.number(RDMA_NLDEV_ATTR_NODE_GUID));
    CHECK(d.text(RDMA_NLDEV_ATTR_DEV_PROTOCOL) == (i == 1 ? "roce" : "ib"));
    const Message alone = s.ask(RDMA_NLDEV_CMD_GET, {number(RDMA_NLDEV_ATTR_DEV_INDEX, i)});
    CHECK(alone.attributes == d.attributes);
    CHECK(alone.header.nlmsg_flags == 0);
  }
}

TEST_CASE("Ports tell their state, and on InfiniBand their addresses") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  const auto ethernet = dump(s, RDMA_NLDEV_CMD_PORT_GET, {number(RDMA_NLDEV_ATTR_DEV_INDEX, 1)});
  REQUIRE(ethernet.size() == 2);
  CHECK(ethernet[0].number(RDMA_NLDEV_ATTR_PORT_STATE) == IBV_PORT_ACTIVE);
  CHECK(ethernet[0].number(RDMA_NLDEV_ATTR_PORT_PHYS_STATE) == 5);
  CHECK(ethernet[0].text(RDMA_NLDEV_ATTR_NDEV_NAME) == "lo");
  CHECK(ethernet[0].number(RDMA_NLDEV_ATTR_NDEV_INDEX) == if_nametoindex("lo"));
  CHECK_FALSE(ethernet[0].has(RDMA_NLDEV_ATTR_LID));
  CHECK(ethernet[1].number(RDMA_NLDEV_ATTR_PORT_INDEX) == 2);
  CHECK(ethernet[1].number(RDMA_NLDEV_ATTR_PORT_STATE) == IBV_PORT_DOWN);
  CHECK_FALSE(ethernet[1].has(RDMA_NLDEV_ATTR_NDEV_NAME));

  const Message ib = s.ask(RDMA_NLDEV_CMD_PORT_GET, {number(RDMA_NLDEV_ATTR_DEV_INDEX, 2),
                                                     number(RDMA_NLDEV_ATTR_PORT_INDEX, 1)});
  CHECK(ib.number(RDMA_NLDEV_ATTR_LID) == 77);
  CHECK(ib.number(RDMA_NLDEV_ATTR_SM_LID) == 1);
  CHECK(ib.number(RDMA_NLDEV_ATTR_SUBNET_PREFIX) == 0xfe80000000000000);
}

TEST_CASE("Nodes are found by what they serve") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  const auto device = number(RDMA_NLDEV_ATTR_DEV_INDEX, 2);
  const auto port = number(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  const auto serves = [](const char *what) { return text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, what); };

  const Message verbs = s.ask(RDMA_NLDEV_CMD_GET_CHARDEV, {device, serves("uverbs")});
  CHECK(verbs.text(RDMA_NLDEV_ATTR_CHARDEV_NAME) == "uverbs2");
  CHECK(decoded(verbs.number(RDMA_NLDEV_ATTR_CHARDEV)) == node_number("uverbs2"));
  CHECK(verbs.number(RDMA_NLDEV_ATTR_CHARDEV_ABI) == 1);
  CHECK(verbs.number(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID) == 1);  // RDMA_DRIVER_MLX5

  // Behind those of one port and of two.
  const Message mad = s.ask(RDMA_NLDEV_CMD_GET_CHARDEV, {device, port, serves("umad")});
  CHECK(mad.text(RDMA_NLDEV_ATTR_CHARDEV_NAME) == "umad3");
  CHECK(decoded(mad.number(RDMA_NLDEV_ATTR_CHARDEV)) == node_number("umad3"));

  const Message cm = s.ask(RDMA_NLDEV_CMD_GET_CHARDEV, {serves("rdma_cm")});
  CHECK(cm.text(RDMA_NLDEV_ATTR_CHARDEV_NAME) == "rdma_cm");
  CHECK(decoded(cm.number(RDMA_NLDEV_ATTR_CHARDEV)) == node_number("rdma_cm"));

  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {device, serves("issm")}) == -EOPNOTSUPP);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {serves("uverbs")}) == -EOPNOTSUPP);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {device, serves("umad")}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {device}) == -EINVAL);

  // Of a device or port that is not there, or a port of nothing.
  const auto fourth = number(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
  const auto second_port = number(RDMA_NLDEV_ATTR_PORT_INDEX, 2);
  const auto no_port = number(RDMA_NLDEV_ATTR_PORT_INDEX, 0);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {fourth, serves("uverbs")}) == -EINVAL);
  for (const auto &wrong : {second_port, no_port})
    for (const char *what : {"uverbs", "umad"})
      CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {device, wrong, serves(what)}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {port, serves("rdma_cm")}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET_CHARDEV, {device, serves("uverbs")}, NLM_F_DUMP) == -EINVAL);
}

TEST_CASE("What is not known is refused, and errors bring the request back") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  const auto fourth = number(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET, {fourth}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_PORT_GET, {fourth}, NLM_F_DUMP) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_RES_GET, {}, NLM_F_DUMP) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_SET, {}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_SYS_GET, {}, NLM_F_DUMP) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET, {{RDMA_NLDEV_ATTR_DEV_INDEX, "ab"}}) == -EINVAL);
  const auto first = number(RDMA_NLDEV_ATTR_DEV_INDEX, 0);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET, {first, {RDMA_NLDEV_ATTR_PORT_INDEX, "ab"}}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_GET, {first, {RDMA_NLDEV_ATTR_CHARDEV_TYPE, "ab"}}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_PORT_GET, {first}) == -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_PORT_GET, {first, number(RDMA_NLDEV_ATTR_PORT_INDEX, 2)}) ==
        -EINVAL);
  CHECK(s.refused(RDMA_NLDEV_CMD_PORT_GET, {}, NLM_F_DUMP) == -EINVAL);

  const Message m = s.ask(RDMA_NLDEV_CMD_GET, {fourth});
  const std::string sent = request(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST, {fourth});
  CHECK(m.payload.substr(sizeof(int)) == sent);
}

TEST_CASE("Acknowledges come when they are asked for, several requests one by one") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  std::string first = request(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST | NLM_F_ACK,
                              {number(RDMA_NLDEV_ATTR_DEV_INDEX, 0)});
  std::string second = request(type_of(RDMA_NLDEV_CMD_SYS_GET), NLM_F_REQUEST, {});
  iovec pieces[] = {
      {first.data(), 10}, {first.data() + 10, first.size() - 10}, {second.data(), second.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 3;
  REQUIRE(sendmsg(s.fd, &message, 0) == static_cast<ssize_t>(first.size() + second.size()));
  pollfd ready{s.fd, POLLIN, 0};
  REQUIRE(poll(&ready, 1, 0) == 1);
  CHECK(s.receive().at(0).text(RDMA_NLDEV_ATTR_DEV_NAME) == "mlx5_0");
  const Message acknowledge = s.receive().at(0);
  CHECK(acknowledge.header.nlmsg_type == NLMSG_ERROR);
  CHECK(acknowledge.error() == 0);
  CHECK(s.receive().at(0).has(RDMA_NLDEV_SYS_ATTR_NETNS_MODE));
  CHECK(poll(&ready, 1, 0) == 0);
}

TEST_CASE("Broken requests are errors or silence") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  std::string r = request(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST | NLM_F_DUMP, {});
  const auto answers = [&](const std::string &bytes) {
    REQUIRE(send(s.fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return s.receive().size();
  };
  CHECK(answers(r.substr(0, 8)) == 0);
  r[0] = 120;  // longer than the datagram
  CHECK(answers(r) == 0);
  r[0] = 3;  // shorter than its header
  CHECK(answers(r) == 0);

  const std::string good = request(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST, {});
  sockaddr_nl to{};
  const auto sent = [&](socklen_t length) {
    errno = 0;
    const ssize_t n =
        sendto(s.fd, good.data(), good.size(), 0, reinterpret_cast<const sockaddr *>(&to), length);
    return n < 0 ? errno : 0;
  };
  CHECK(sent(sizeof to) == EINVAL);  // no family
  to.nl_family = AF_NETLINK;
  CHECK(sent(4) == EINVAL);
  to.nl_pid = 1;
  CHECK(sent(sizeof to) == ECONNREFUSED);
  to.nl_groups = 1;
  CHECK(sent(sizeof to) == EPERM);
  errno = 0;
  CHECK(send(s.fd, nullptr, 16, 0) == -1);
  CHECK(errno == EFAULT);

  // Memory that is not there, and a request longer than one is taken.
  const auto refused = [&](void *name, iovec *pieces) {
    msghdr m{};
    m.msg_name = name;
    m.msg_namelen = name != nullptr ? sizeof to : 0;
    m.msg_iov = pieces;
    m.msg_iovlen = 1;
    errno = 0;
    CHECK(sendmsg(s.fd, &m, 0) == -1);
    return errno;
  };
  std::string longest(1 << 16, '\0');
  longest.replace(0, good.size(), good);
  iovec piece{longest.data(), longest.size()};
  void *const nowhere = reinterpret_cast<void *>(64);
  CHECK(refused(nowhere, &piece) == EFAULT);
  CHECK(refused(nullptr, static_cast<iovec *>(nowhere)) == EFAULT);
  CHECK(send(s.fd, longest.data(), longest.size(), 0) == static_cast<ssize_t>(longest.size()));
  longest += '\0';
  piece = {longest.data(), longest.size()};
  CHECK(refused(nullptr, &piece) == EMSGSIZE);
}

TEST_CASE("Unread answers are bounded") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const Socket s;
  const std::string r = request(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST | NLM_F_DUMP, {});
  int sent = 0;
  errno = 0;
  while (sent < 1 << 20 && send(s.fd, r.data(), r.size(), 0) >= 0) ++sent;
  CHECK(sent > 1);
  CHECK(errno == ENOBUFS);
}

TEST_CASE("A socket that cannot be says why") {
  SKIP_IF(!supported(), "no netlink sockets here");
  errno = 0;
  CHECK(socket(AF_NETLINK, SOCK_STREAM, NETLINK_RDMA) == -1);
  CHECK(errno == ESOCKTNOSUPPORT);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = dup(0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  errno = 0;
  const int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
  const int error = errno;
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(fd == -1);
  CHECK(error == EMFILE);
}

TEST_CASE("Copies ask the same kernel, children do, and other files of that number do not") {
  SKIP_IF(!supported(), "no netlink sockets here");
  const auto get = number(RDMA_NLDEV_ATTR_DEV_INDEX, 1);
  const std::string r = request(type_of(RDMA_NLDEV_CMD_GET), NLM_F_REQUEST, {get});
  auto s = std::make_unique<Socket>();
  const int copy = dup(s->fd);
  REQUIRE(write(copy, r.data(), r.size()) == static_cast<ssize_t>(r.size()));
  CHECK(s->receive().size() == 1);

  const pid_t child = fork();
  if (child == 0) {
    const bool good = write(copy, r.data(), r.size()) == static_cast<ssize_t>(r.size());
    _exit(good ? 0 : 1);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(s->receive().size() == 1);

  const int number = s->fd;
  s.reset();
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  CHECK((ends[0] == number || ends[1] == number));
  const int from = ends[0] == number ? ends[0] : ends[1];
  const int to = from == ends[0] ? ends[1] : ends[0];
  REQUIRE(send(from, "abc", 3, 0) == 3);
  char got[8];
  CHECK(recv(to, got, sizeof got, MSG_DONTWAIT) == 3);
  close(ends[0]);
  close(ends[1]);
  close(copy);
}

TEST_CASE("Other netlink is the kernel's") {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  REQUIRE(fd >= 0);
  sockaddr_nl a{};
  socklen_t length = sizeof a;
  CHECK(getsockname(fd, reinterpret_cast<sockaddr *>(&a), &length) == 0);
  CHECK(a.nl_family == AF_NETLINK);
  close(fd);
}
