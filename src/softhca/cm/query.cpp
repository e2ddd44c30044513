// What ids say about themselves: addresses, GIDs, routes and path records.
#include <sys/socket.h>

#include <algorithm>

#include "cm/cm_state.h"
#include "config/config.h"
#include "config/identity.h"

namespace softhca::cm {

namespace {

constexpr u16 default_pkey = 0xffff;
constexpr u32 selector_exactly = 2;   // IB_SA_EQ
constexpr u32 no_device_index = ~0u;  // for librdmacm, which then goes by GUIDs
constexpr u32 path_flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;

// struct ib_path_rec_data: the record as the subnet manager sends it.
struct WirePath {
  u64 service;
  u8 dgid[16], sgid[16];
  u16 dlid, slid;
  u32 flow_and_hops;
  u8 traffic_class;
  u8 reversible_and_count;
  u16 pkey;
  u16 qos_and_sl;
  u8 mtu, rate, lifetime, preference;  // selectors in the two high bits
  u8 reserved[6];
};
static_assert(sizeof(WirePath) == sizeof(ib_path_rec_data::path_rec));

u8 exactly(u8 value) { return static_cast<u8>(selector_exactly << 6 | (value & 0x3f)); }

// Without a path yet, its GIDs are known as soon as the ports are.
Path path_or_gids(const Id &id) {
  if (id.has_path || id.port == nullptr) return id.path;
  Path p = id.path;
  if (p.sgid == Ip{}) p.sgid = id.port->route_gid(id.source.family());
  if (p.dgid == Ip{} && id.remote.host != 0) p.dgid = id.remote.route_gid(id.source.family());
  return p;
}

void copy_gid(const Ip &from, u8 *to) { std::copy(from.begin(), from.end(), to); }

u64 guid_of(const Station &s) { return swap64(node_guid(config(), s.device)); }

void describe_device(const Id &id, rdma_ucm_query_addr_resp &r) {
  r.ibdev_index = no_device_index;
  if (id.port == nullptr) return;
  r.node_guid = guid_of(*id.port);
  r.port_num = id.port->port;
  r.pkey = swap16(default_pkey);
}

template <class Storage>
u16 store(const Address &from, Storage &to) {
  const u32 size = from.size();
  std::memcpy(&to, from.data(), std::min<size_t>(size, sizeof to));
  return static_cast<u16>(size);
}

Address native_address(const Id &id, const Address &a, const Ip &gid) {
  if (a.family() == family_ib) return a;
  SockaddrIb sib;
  sib.pkey = id.port != nullptr ? swap16(default_pkey) : u16{0};
  sib.gid = gid;
  sib.service = swap64(a.service(id.port_space));
  Address out;
  out.set_ib(sib);
  return out;
}

ib_user_path_rec describe_path(const Path &p) {
  ib_user_path_rec r{};
  copy_gid(p.dgid, r.dgid);
  copy_gid(p.sgid, r.sgid);
  r.dlid = swap16(p.dlid);
  r.slid = swap16(p.slid);
  r.flow_label = swap32(p.flow_label);
  r.reversible = 1;
  r.mtu = p.mtu;
  r.pkey = swap16(p.pkey);
  r.hop_limit = p.hop_limit;
  r.traffic_class = p.traffic_class;
  r.numb_path = 1;
  r.sl = p.sl;
  r.mtu_selector = r.rate_selector = r.packet_life_time_selector = selector_exactly;
  r.rate = p.rate;
  r.packet_life_time = p.lifetime;
  return r;
}

}  // namespace

rdma_ucm_query_route_resp query_route(const Id &id) {
  rdma_ucm_query_route_resp r{};
  r.ibdev_index = no_device_index;
  store(id.source, r.src_addr);
  store(id.destination, r.dst_addr);
  if (id.port == nullptr) return r;
  r.node_guid = guid_of(*id.port);
  r.port_num = id.port->port;
  if (id.has_path) {
    r.num_paths = 1;
    r.ib_route[0] = describe_path(id.path);
    return r;
  }
  const Path p = path_or_gids(id);
  copy_gid(p.dgid, r.ib_route[0].dgid);
  copy_gid(p.sgid, r.ib_route[0].sgid);
  r.ib_route[0].pkey = swap16(default_pkey);
  return r;
}

rdma_ucm_query_addr_resp query_addr(const Id &id) {
  rdma_ucm_query_addr_resp r{};
  r.src_size = store(id.source, r.src_addr);
  r.dst_size = store(id.destination, r.dst_addr);
  describe_device(id, r);
  return r;
}

rdma_ucm_query_addr_resp query_gid(const Id &id) {
  rdma_ucm_query_addr_resp r{};
  describe_device(id, r);
  const Path p = path_or_gids(id);
  r.src_size = store(native_address(id, id.source, p.sgid), r.src_addr);
  r.dst_size = store(native_address(id, id.destination, p.dgid), r.dst_addr);
  return r;
}

// As many records as fit into `room` bytes; the count is the true one.
std::vector<u8> query_path(const Id &id, u32 room) {
  rdma_ucm_query_path_resp head{};
  head.num_paths = id.has_path ? 1 : 0;
  std::vector<u8> out(sizeof head);
  std::memcpy(out.data(), &head, sizeof head);
  if (!id.has_path || room - sizeof head < sizeof(ib_path_rec_data)) return out;

  const Path &p = id.path;
  WirePath w{};
  w.service = swap64(id.destination.service(id.port_space));
  copy_gid(p.dgid, w.dgid);
  copy_gid(p.sgid, w.sgid);
  w.dlid = swap16(p.dlid);
  w.slid = swap16(p.slid);
  w.flow_and_hops = swap32((p.flow_label & 0xfffff) << 8 | p.hop_limit);
  w.traffic_class = p.traffic_class;
  w.reversible_and_count = 0x81;
  w.pkey = swap16(p.pkey);
  w.qos_and_sl = swap16(p.sl & 0xf);
  w.mtu = exactly(p.mtu);
  w.rate = exactly(p.rate);
  w.lifetime = exactly(p.lifetime);
  ib_path_rec_data data{};
  data.flags = path_flags;
  std::memcpy(data.path_rec, &w, sizeof w);
  out.resize(sizeof head + sizeof data);
  std::memcpy(out.data() + sizeof head, &data, sizeof data);
  return out;
}

bool unpack_path(const ib_path_rec_data &data, Path &out) {
  if (data.flags != path_flags) return false;
  WirePath w;
  std::memcpy(&w, data.path_rec, sizeof w);
  out = {};
  std::copy(std::begin(w.dgid), std::end(w.dgid), out.dgid.begin());
  std::copy(std::begin(w.sgid), std::end(w.sgid), out.sgid.begin());
  out.dlid = swap16(w.dlid);
  out.slid = swap16(w.slid);
  out.flow_label = swap32(w.flow_and_hops) >> 8 & 0xfffff;
  out.hop_limit = static_cast<u8>(swap32(w.flow_and_hops));
  out.traffic_class = w.traffic_class;
  out.pkey = swap16(w.pkey);
  out.sl = swap16(w.qos_and_sl) & 0xf;
  out.mtu = w.mtu & 0x3f;
  out.rate = w.rate & 0x3f;
  out.lifetime = w.lifetime & 0x3f;
  return true;
}

}  // namespace softhca::cm
