#include "cm/cm_address.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/gid.h"

namespace softhca::cm {

namespace {

constexpr Ip no_host{};
constexpr Ip loopback6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

}  // namespace

bool is_mapped_ipv4(const Ip &ip) { return is_ipv4_gid(ip.data()); }

Ip mapped_ipv4(const u8 (&bytes)[4]) {
  Ip ip{};
  ip[10] = ip[11] = 0xff;
  std::copy(std::begin(bytes), std::end(bytes), ip.begin() + 12);
  return ip;
}

Address::Address(const void *from, size_t room) {
  std::memcpy(raw_, from, std::min<size_t>(room, sizeof raw_));
}

Address Address::ip(u16 family, const Ip &host, u16 port) {
  Address a = any(family);
  a.set_host(host);
  a.set_port(port);
  return a;
}

Address Address::any(u16 family) {
  Address a;
  a.store(family);
  return a;
}

u16 Address::family() const { return as<u16>(); }

u32 Address::size() const {
  switch (family()) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    case family_ib: return sizeof(SockaddrIb);
    default: return 0;
  }
}

Ip Address::host() const {
  switch (family()) {
    case AF_INET: {
      u8 bytes[4];
      const auto sin = as<sockaddr_in>();
      std::memcpy(bytes, &sin.sin_addr, sizeof bytes);
      return mapped_ipv4(bytes);
    }
    case AF_INET6: {
      Ip ip;
      const auto sin6 = as<sockaddr_in6>();
      std::memcpy(ip.data(), &sin6.sin6_addr, ip.size());
      return ip;
    }
    case family_ib: return ib().gid;
    default: return no_host;
  }
}

void Address::set_host(const Ip &ip) {
  switch (family()) {
    case AF_INET: {
      auto sin = as<sockaddr_in>();
      std::memcpy(&sin.sin_addr, ip.data() + 12, 4);
      return store(sin);
    }
    case AF_INET6: {
      auto sin6 = as<sockaddr_in6>();
      std::memcpy(&sin6.sin6_addr, ip.data(), ip.size());
      return store(sin6);
    }
    case family_ib: {
      SockaddrIb sib = ib();
      sib.gid = ip;
      return store(sib);
    }
    default: return;
  }
}

void Address::set_loopback() {
  constexpr u8 localhost[4] = {127, 0, 0, 1};
  set_host(family() == AF_INET ? mapped_ipv4(localhost) : loopback6);
}

// IPv4 and IPv6 have the port in the same place.
u16 Address::port() const {
  if (family() == family_ib) {
    const SockaddrIb sib = ib();
    return static_cast<u16>(swap64(sib.service) & swap64(sib.service_mask));
  }
  return swap16(as<sockaddr_in>().sin_port);
}

void Address::set_port(u16 port) {
  if (family() == family_ib) {
    SockaddrIb sib = ib();
    sib.service = swap64((swap64(sib.service) & swap64(sib.service_mask)) | port);
    sib.service_mask = ~u64{0};
    return store(sib);
  }
  auto sin = as<sockaddr_in>();
  sin.sin_port = swap16(port);
  store(sin);
}

u64 Address::service(u16 port_space) const {
  if (family() == family_ib) return swap64(ib().service);
  return u64{port_space} << 16 | port();
}

bool Address::zero() const {
  if (family() == AF_INET) return host()[12] == 0;  // 0.0.0.0/8
  return host() == no_host;
}

bool Address::loopback() const {
  if (family() == AF_INET) return host()[12] == 127;
  return host() == loopback6;
}

bool Address::multicast() const {
  const Ip ip = host();
  return family() == AF_INET ? ip[12] >= 224 && ip[12] < 240 : ip[0] == 0xff;
}

bool Address::link_local() const {
  const Ip ip = host();
  return family() == AF_INET6 && ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

u32 Address::scope() const { return family() == AF_INET6 ? as<sockaddr_in6>().sin6_scope_id : 0; }

SockaddrIb Address::ib() const { return as<SockaddrIb>(); }

void Address::set_ib(const SockaddrIb &sib) { store(sib); }

}  // namespace softhca::cm
