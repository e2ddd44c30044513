// Socket addresses as the connection manager's commands carry them: IPv4, IPv6
// and native InfiniBand.
#pragma once

#include <netinet/in.h>

#include <array>

#include "base/types.h"

namespace softhca::cm {

using Ip = std::array<u8, 16>;  // IPv6, or IPv4 as ::ffff:a.b.c.d, or a GID

constexpr u16 family_ib = 27;  // AF_IB

// struct sockaddr_ib: no uapi header has it.
struct SockaddrIb {
  u16 family = family_ib;
  u16 pkey = 0;  // this and what follows in network order
  u32 flow_info = 0;
  Ip gid{};
  u64 service = 0;
  u64 service_mask = 0;
  u64 scope = 0;
};
static_assert(sizeof(SockaddrIb) == 48);

class Address {
 public:
  static constexpr u32 storage_bytes = 128;  // struct __kernel_sockaddr_storage

  Address() = default;
  // Takes up to `room` bytes; the rest is zero.
  Address(const void *from, size_t room);
  static Address ip(u16 family, const Ip &host, u16 port);
  static Address any(u16 family);

  u16 family() const;
  u32 size() const;  // of the family's structure; 0: unknown family
  const u8 *data() const { return raw_; }

  Ip host() const;
  void set_host(const Ip &);
  void set_loopback();
  u16 port() const;
  void set_port(u16);
  u64 service(u16 port_space) const;  // service ID behind the port

  bool zero() const;  // no host given
  bool loopback() const;
  bool any() const { return zero() || loopback(); }  // of whatever port
  bool multicast() const;
  bool link_local() const;
  u32 scope() const;  // IPv6: interface of a link-local address

  SockaddrIb ib() const;
  void set_ib(const SockaddrIb &);

 private:
  template <class T>
  T as() const {
    T t;
    std::memcpy(&t, raw_, sizeof t);
    return t;
  }
  template <class T>
  void store(const T &t) {
    std::memcpy(raw_, &t, sizeof t);
  }

  alignas(8) u8 raw_[storage_bytes] = {};
};

// ::ffff:a.b.c.d
bool is_mapped_ipv4(const Ip &);
Ip mapped_ipv4(const u8 (&bytes)[4]);

}  // namespace softhca::cm
