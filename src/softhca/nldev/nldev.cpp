#include "nldev/nldev.h"

#include <linux/netlink.h>
#include <net/if.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_mad.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "cm/cm_file.h"
#include "config/config.h"
#include "config/identity.h"
#include "umad/umad.h"
#include "uverbs/file.h"

namespace softhca {

namespace {

constexpr u8 channel_adapter = 1;  // RDMA_NODE_IB_CA
constexpr u8 shared_namespaces = 1;
constexpr u64 mlx5_abi = 1;  // MLX5_IB_UVERBS_ABI_VERSION

// The attributes of a request that answers depend on.
struct Request {
  nlmsghdr header;
  std::optional<u32> device, port;
  std::optional<std::string> node;  // RDMA_NLDEV_ATTR_CHARDEV_TYPE
};

class Message {
 public:
  Message(const Request &to, u32 port_id, u16 command, u16 flags) {
    nlmsghdr h{};
    h.nlmsg_type = static_cast<u16>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
    h.nlmsg_flags = flags;
    h.nlmsg_seq = to.header.nlmsg_seq;
    h.nlmsg_pid = port_id;
    append(&h, sizeof h);
  }

  void text(u16 type, const std::string &value) {
    attribute(type, value.c_str(), value.size() + 1);
  }
  template <class T>
  void number(u16 type, T value) {
    attribute(type, &value, sizeof value);
  }
  std::string take() {
    const u32 length = static_cast<u32>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);  // nlmsg_len comes first
    return std::move(bytes_);
  }

 private:
  void append(const void *from, size_t length) {
    bytes_.append(static_cast<const char *>(from), length);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  void attribute(u16 type, const void *value, size_t length) {
    const nlattr a{static_cast<u16>(NLA_HDRLEN + length), type};
    append(&a, sizeof a);
    append(value, length);
  }
  std::string bytes_;
};

template <class T>
std::optional<T> number_in(std::string_view value) {
  T n;
  if (value.size() < sizeof n) return std::nullopt;
  std::memcpy(&n, value.data(), sizeof n);
  return n;
}

// False for what the kernel's policy refuses. Attributes that no command uses are skipped.
bool parse_attributes(std::string_view left, Request &r) {
  while (left.size() >= NLA_HDRLEN) {
    nlattr a;
    std::memcpy(&a, left.data(), sizeof a);
    if (a.nla_len < NLA_HDRLEN || a.nla_len > left.size()) return true;  // trailing bytes
    const std::string_view value = left.substr(NLA_HDRLEN, a.nla_len - NLA_HDRLEN);
    switch (a.nla_type & NLA_TYPE_MASK) {
      case RDMA_NLDEV_ATTR_DEV_INDEX:
        if (!(r.device = number_in<u32>(value))) return false;
        break;
      case RDMA_NLDEV_ATTR_PORT_INDEX:
        if (!(r.port = number_in<u32>(value))) return false;
        break;
      case RDMA_NLDEV_ATTR_CHARDEV_TYPE: {
        const size_t end = value.find('\0');
        if (end == std::string_view::npos) return false;
        r.node = std::string(value.substr(0, end));
        break;
      }
      default: break;
    }
    left.remove_prefix(std::min<size_t>(NLA_ALIGN(a.nla_len), left.size()));
  }
  return true;
}

const DeviceConfig *device_of(const Request &r) {
  const auto &devices = config().devices;
  return r.device && *r.device < devices.size() ? &devices[*r.device] : nullptr;
}

bool has_port(const DeviceConfig &d, u32 port) { return port >= 1 && port <= d.ports.size(); }

void name_device(Message &m, u32 device) {
  m.number<u32>(RDMA_NLDEV_ATTR_DEV_INDEX, device);
  m.text(RDMA_NLDEV_ATTR_DEV_NAME, config().devices[device].name);
}

void describe_device(Message &m, u32 device) {
  const DeviceConfig &d = config().devices[device];
  const u64 guid = node_guid(config(), device);
  name_device(m, device);
  m.number<u32>(RDMA_NLDEV_ATTR_PORT_INDEX, static_cast<u32>(d.ports.size()));
  m.text(RDMA_NLDEV_ATTR_FW_VERSION, model_identity(d.model).fw_version());
  m.number<u64>(RDMA_NLDEV_ATTR_NODE_GUID, guid);
  m.number<u64>(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, guid);
  m.number<u8>(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, channel_adapter);
  const bool ethernet = d.ports[0].link == LinkLayer::ethernet;
  m.text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, ethernet ? "roce" : "ib");
}

void describe_port(Message &m, u32 device, u32 number) {
  const PortConfig &p = config().devices[device].ports[number - 1];
  name_device(m, device);
  m.number<u32>(RDMA_NLDEV_ATTR_PORT_INDEX, number);
  m.number<u64>(RDMA_NLDEV_ATTR_CAP_FLAGS, port_cap_mask(p.link));
  if (p.link == LinkLayer::infiniband) {
    m.number<u64>(RDMA_NLDEV_ATTR_SUBNET_PREFIX, p.gid_prefix);
    m.number<u32>(RDMA_NLDEV_ATTR_LID, p.lid);
    m.number<u32>(RDMA_NLDEV_ATTR_SM_LID, 1);
    m.number<u8>(RDMA_NLDEV_ATTR_LMC, 0);
  }
  // As in sysfs: active and its link up, or down and disabled.
  m.number<u8>(RDMA_NLDEV_ATTR_PORT_STATE, p.active ? 4 : 1);
  m.number<u8>(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, p.active ? 5 : 3);
  const u32 interface = p.netdev.empty() ? 0 : if_nametoindex(p.netdev.c_str());
  if (interface == 0) return;
  m.number<u32>(RDMA_NLDEV_ATTR_NDEV_INDEX, interface);
  m.text(RDMA_NLDEV_ATTR_NDEV_NAME, p.netdev);
}

struct CharacterDevice {
  dev_t number;
  u64 abi;
  std::string name;
};

// 0, or an errno value. The nodes are known by device, by device and port, or alone.
int find_node(const Request &r, CharacterDevice &out) {
  if (r.device) {
    const DeviceConfig *d = device_of(r);
    if (d == nullptr || (r.port && !has_port(*d, *r.port))) return EINVAL;
    if (*r.node == "uverbs") {
      out = {uverbs_device_number(*r.device), mlx5_abi, "uverbs" + std::to_string(*r.device)};
      return 0;
    }
    if (*r.node == "umad") {
      if (!r.port) return EINVAL;
      u32 n = *r.port - 1;
      for (u32 i = 0; i < *r.device; ++i) n += static_cast<u32>(config().devices[i].ports.size());
      out = {umad_device_number(n), IB_USER_MAD_ABI_VERSION, "umad" + std::to_string(n)};
      return 0;
    }
    return EOPNOTSUPP;
  }
  if (r.port) return EINVAL;
  if (*r.node != "rdma_cm") return EOPNOTSUPP;
  out = {cm_device_number(), RDMA_USER_CM_ABI_VERSION, "rdma_cm"};
  return 0;
}

// huge_encode_dev() of the kernel.
u64 encoded(dev_t d) {
  const u64 low = minor(d);
  return (low & 0xff) | u64{major(d)} << 8 | (low & ~u64{0xff}) << 12;
}

// What answers one request: messages, and 0 or an errno value.
class Answer {
 public:
  Answer(const Request &r, u32 port_id) : request_(r), port_id_(port_id) {}

  int run() {
    const bool dump = (request_.header.nlmsg_flags & NLM_F_DUMP) != 0;
    switch (request_.header.nlmsg_type & 0x3ff) {
      case RDMA_NLDEV_CMD_GET: return dump ? all_devices() : one_device();
      case RDMA_NLDEV_CMD_PORT_GET: return dump ? all_ports() : one_port();
      case RDMA_NLDEV_CMD_GET_CHARDEV: return dump ? EINVAL : node();
      case RDMA_NLDEV_CMD_SYS_GET: return dump ? EINVAL : system();
      default: return EINVAL;
    }
  }
  std::vector<std::string> messages;
  bool is_dump = false;

 private:
  Message begin(u16 command) const {
    return {request_, port_id_, command, static_cast<u16>(is_dump ? NLM_F_MULTI : 0)};
  }
  void end(Message &m) { messages.push_back(m.take()); }

  int all_devices() {
    is_dump = true;
    for (u32 d = 0; d < config().devices.size(); ++d) add_device(d);
    return 0;
  }
  int one_device() {
    if (device_of(request_) == nullptr) return EINVAL;
    add_device(*request_.device);
    return 0;
  }
  void add_device(u32 d) {
    Message m = begin(RDMA_NLDEV_CMD_GET);
    describe_device(m, d);
    end(m);
  }

  int all_ports() {
    const DeviceConfig *d = device_of(request_);
    if (d == nullptr) return EINVAL;
    is_dump = true;
    for (u32 p = 1; p <= d->ports.size(); ++p) add_port(p);
    return 0;
  }
  int one_port() {
    const DeviceConfig *d = device_of(request_);
    if (d == nullptr || !request_.port || !has_port(*d, *request_.port)) return EINVAL;
    add_port(*request_.port);
    return 0;
  }
  void add_port(u32 p) {
    Message m = begin(RDMA_NLDEV_CMD_PORT_GET);
    describe_port(m, *request_.device, p);
    end(m);
  }

  int node() {
    if (!request_.node) return EINVAL;
    CharacterDevice found;
    if (const int error = find_node(request_, found)) return error;
    Message m = begin(RDMA_NLDEV_CMD_GET_CHARDEV);
    if (*request_.node == "uverbs")
      m.number<u32>(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, RDMA_DRIVER_MLX5);
    m.number<u64>(RDMA_NLDEV_ATTR_CHARDEV, encoded(found.number));
    m.number<u64>(RDMA_NLDEV_ATTR_CHARDEV_ABI, found.abi);
    m.text(RDMA_NLDEV_ATTR_CHARDEV_NAME, found.name);
    end(m);
    return 0;
  }

  // Without COPY_ON_FORK, as by kernels before 5.12: ibv_fork_init() then does what it
  // did for the programs of MLNX_OFED's time.
  int system() {
    Message m = begin(RDMA_NLDEV_CMD_SYS_GET);
    m.number<u8>(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, shared_namespaces);
    end(m);
    return 0;
  }

  const Request &request_;
  const u32 port_id_;
};

std::string with_header(const Request &to, u32 port_id, u16 type, u16 flags,
                        std::string_view payload) {
  nlmsghdr h{};
  h.nlmsg_len = static_cast<u32>(NLMSG_HDRLEN + payload.size());
  h.nlmsg_type = type;
  h.nlmsg_flags = flags;
  h.nlmsg_seq = to.header.nlmsg_seq;
  h.nlmsg_pid = port_id;
  std::string bytes(reinterpret_cast<const char *>(&h), sizeof h);
  bytes += payload;
  bytes.resize(NLMSG_ALIGN(bytes.size()));
  return bytes;
}

// netlink_ack(): an error brings the whole request back.
std::string acknowledge(const Request &to, u32 port_id, int error, std::string_view request) {
  nlmsgerr e{};
  e.error = -error;
  e.msg = to.header;
  std::string payload(reinterpret_cast<const char *>(&e), sizeof e);
  if (error != 0) payload += request.substr(sizeof to.header);
  return with_header(to, port_id, NLMSG_ERROR, error == 0 ? NLM_F_CAPPED : 0, payload);
}

void answer_one(std::string_view message, u32 port_id, std::vector<std::string> &datagrams) {
  Request r{};
  std::memcpy(&r.header, message.data(), sizeof r.header);
  if ((r.header.nlmsg_flags & NLM_F_REQUEST) == 0) return;
  int error = 0;
  if (r.header.nlmsg_type >= NLMSG_MIN_TYPE) {
    Answer answer(r, port_id);
    const bool ours = RDMA_NL_GET_CLIENT(r.header.nlmsg_type) == RDMA_NL_NLDEV;
    error = ours && parse_attributes(message.substr(sizeof r.header), r) ? answer.run() : EINVAL;
    if (!answer.is_dump) {
      for (std::string &m : answer.messages) datagrams.push_back(std::move(m));
    } else {
      // All of them fit into a datagram of the kernel's size: 3712 bytes.
      std::string full;
      for (const std::string &m : answer.messages) full += m;
      datagrams.push_back(std::move(full));
      const int none = 0;
      datagrams.push_back(with_header(r, port_id, NLMSG_DONE, NLM_F_MULTI,
                                      {reinterpret_cast<const char *>(&none), sizeof none}));
      return;
    }
  }
  if (error != 0 || (r.header.nlmsg_flags & NLM_F_ACK) != 0)
    datagrams.push_back(acknowledge(r, port_id, error, message));
}

}  // namespace

std::vector<std::string> nldev_answer(const u8 *request, size_t length, u32 port_id) {
  std::vector<std::string> datagrams;
  std::string_view left(reinterpret_cast<const char *>(request), length);
  while (left.size() >= NLMSG_HDRLEN) {
    u32 size;
    std::memcpy(&size, left.data(), sizeof size);
    if (size < NLMSG_HDRLEN || size > left.size()) break;
    answer_one(left.substr(0, size), port_id, datagrams);
    left.remove_prefix(std::min<size_t>(NLMSG_ALIGN(size), left.size()));
  }
  return datagrams;
}

}  // namespace softhca
