#include "config/interface.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

namespace softhca {

namespace {

// Linux accepts every address of 127.0.0.0/8, configured or not.
bool loopback_address(const in_addr &a) { return ntohl(a.s_addr) >> 24 == 127; }

struct Address {
  std::string name;
  in_addr ip{};
  bool loopback = false;
  std::string text() const {
    char t[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &ip, t, sizeof t);
    return t;
  }
};

// IPv4 addresses of the interfaces that are up.
std::vector<Address> addresses() {
  std::vector<Address> all;
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (const ifaddrs *i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0)
      continue;
    sockaddr_in in;
    std::memcpy(&in, i->ifa_addr, sizeof in);
    all.push_back({i->ifa_name, in.sin_addr, (i->ifa_flags & IFF_LOOPBACK) != 0});
  }
  freeifaddrs(list);
  return all;
}

// The interface of the default route with the lowest metric; empty: there is none.
std::string default_interface() {
  std::string table;
  const int fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/net/route", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return "";
  char piece[4096];
  for (ssize_t n; (n = ::read(fd, piece, sizeof piece)) > 0;)
    table.append(piece, static_cast<size_t>(n));
  close(fd);
  std::string best;
  unsigned long lowest = ~0ul;
  size_t at = table.find('\n');  // the first line names the columns
  while (at != std::string::npos && at + 1 < table.size()) {
    const size_t end = std::min(table.find('\n', at + 1), table.size());
    const std::string line = table.substr(at + 1, end - at - 1);
    at = end;
    char name[IF_NAMESIZE + 1];
    unsigned long destination, gateway, flags, references, use, metric, mask;
    if (std::sscanf(line.c_str(), "%16s %lx %lx %lx %lu %lu %lu %lx", name, &destination, &gateway,
                    &flags, &references, &use, &metric, &mask) != 8 ||
        destination != 0 || mask != 0 || metric >= lowest)
      continue;
    lowest = metric;
    best = name;
  }
  return best;
}

void ask(Interface &i) {
  const int fd = static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return;
  ifreq r{};
  i.name.copy(r.ifr_name, sizeof r.ifr_name - 1);
  if (syscall(SYS_ioctl, fd, SIOCGIFMTU, &r) == 0) i.mtu = static_cast<u32>(r.ifr_mtu);
  if (syscall(SYS_ioctl, fd, SIOCGIFHWADDR, &r) == 0)
    std::memcpy(i.mac.data(), r.ifr_hwaddr.sa_data, 6);
  close(fd);
}

}  // namespace

u32 Interface::roce_mtu() const {
  // IPv6, UDP, BTH, the longest extended headers (AtomicETH with XRCETH), ICRC.
  constexpr u32 headers = 40 + 8 + 12 + 32 + 4;
  u32 size = 4096;
  while (size > 256 && size + headers > mtu) size /= 2;
  return size;
}

bool find_interface(const std::string &name, const std::string &ipv4, Interface &out,
                    std::string &error) {
  const std::vector<Address> all = addresses();
  in_addr wanted{};
  const bool by_address = !ipv4.empty() && inet_pton(AF_INET, ipv4.c_str(), &wanted) == 1;
  const std::string route = name.empty() && !by_address ? default_interface() : "";
  const auto fits = [&](const Address &a) {
    if (!name.empty() && a.name != name) return false;
    if (by_address) return a.ip.s_addr == wanted.s_addr || (a.loopback && loopback_address(wanted));
    if (!name.empty()) return true;
    return route.empty() ? !a.loopback : a.name == route;
  };
  const auto found = std::find_if(all.begin(), all.end(), fits);
  if (found == all.end()) {
    std::string there;
    for (const Address &a : all) there += (there.empty() ? "" : ", ") + a.name + " " + a.text();
    error = (by_address      ? "\"" + ipv4 + "\" is not an address here"
             : !name.empty() ? "\"" + name + "\" has no IPv4 address here"
                             : "no interface has a default route or is up with an IPv4 address") +
            "; allowed with wire udp: " + (there.empty() ? "nothing that there is" : there);
    return false;
  }
  out.name = found->name;
  out.ipv4 = by_address ? ipv4 : found->text();
  ask(out);
  return true;
}

}  // namespace softhca
