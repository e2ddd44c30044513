#include "preload/counter_file.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "config/config.h"
#include "config/identity.h"
#include "engine/engine.h"
#include "model/counters.h"

namespace softhca {

namespace {

struct Name {
  std::string_view device, counter;
  u32 port = 0;
  bool of_queues = false;
};

// .../<device>/ports/<port>/counters/<counter>
std::optional<Name> parse(std::string_view path) {
  std::string_view parts[5];
  for (auto part = std::rbegin(parts); part != std::rend(parts); ++part) {
    const size_t slash = path.rfind('/');
    if (slash == path.npos) return {};
    *part = path.substr(slash + 1);
    path.remove_suffix(path.size() - slash);
  }
  const auto &[device, ports, port, folder, counter] = parts;
  Name name{device, counter, 0, folder == "hw_counters"};
  if (ports != "ports" || (folder != "counters" && !name.of_queues) || port.size() != 1) return {};
  name.port = static_cast<u32>(port[0] - '0');
  return name;
}

std::optional<u64> value_of(const Name &name, PortCounters<u64> counted) {
  using enum TrafficKind;
  if (name.of_queues) {
    for (size_t i = 0; i < std::size(queue_counter_names); ++i)
      if (queue_counter_names[i] != nullptr && name.counter == queue_counter_names[i])
        return counted.queues.all[i];
    return {};
  }
  const std::string_view c = name.counter;
  const bool sent = c.find("xmit") != c.npos;
  const TrafficKind one = sent ? sent_rdma : received_rdma;
  const TrafficKind many = sent ? sent_rdma_multicast : received_rdma_multicast;
  if (c == "port_xmit_data" || c == "port_rcv_data")
    return (counted.octets(one) + counted.octets(many)) / 4;
  if (c == "port_xmit_packets" || c == "port_rcv_packets")
    return counted.packets(one) + counted.packets(many);
  if (c == "unicast_xmit_packets" || c == "unicast_rcv_packets") return counted.packets(one);
  if (c == "multicast_xmit_packets" || c == "multicast_rcv_packets") return counted.packets(many);
  return {};
}

int open_text(const std::string &text, bool close_on_exec) {
  const unsigned flags = close_on_exec ? MFD_CLOEXEC : 0u;
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "softhca-counter", flags));
  if (fd >= 0 && write_all(fd, text.data(), text.size(), 0) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

int open_counter(const char *path, bool close_on_exec) {
  const std::optional<Name> name = parse(path);
  if (!name) return -1;
  const int saved = errno;
  InsideDevice inside;
  const auto &devices = config().devices;
  int fd = -1;
  for (u32 d = 0; d < devices.size(); ++d) {
    if (devices[d].name != name->device || name->port < 1 || name->port > devices[d].ports.size())
      continue;
    if (const auto value = value_of(*name, port_counters(d, name->port)))
      fd = open_text(std::to_string(*value) + "\n", close_on_exec);
  }
  errno = saved;
  return fd;
}

}  // namespace softhca
