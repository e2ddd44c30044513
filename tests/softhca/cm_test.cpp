// The commands of the connection manager: framing, ids, addresses, options,
// queries, and what each of them refuses.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/syscall.h>

#include <mutex>
#include <thread>

#include "cm_rig.h"

namespace cm_rig {

// struct rdma_ucm_query_path_resp with room for records, as librdmacm has it.
struct PathAnswer {
  u32 num_paths, reserved;
  ib_path_rec_data path[6];
};

TEST_CASE("framing") {
  Channel c;
  const rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_DISCONNECT, 4, 0};
  CHECK(c.raw(&header, 7) == EINVAL);
  CHECK(c.raw(&header, sizeof header) == EINVAL);  // the body is not there
  CHECK(c.raw(nullptr, sizeof header) == EFAULT);
  CHECK(c.command(23, rdma_ucm_disconnect{0}) == ENOSYS);  // RESOLVE_IB_SERVICE
  CHECK(c.command(25, rdma_ucm_disconnect{0}) == EINVAL);
  CHECK(c.command(13, rdma_ucm_disconnect{0}) == ENOSYS);  // GET_OPTION
  CHECK(c.command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{99}) == ENOENT);
}

TEST_CASE("responses need room and memory") {
  Channel c;
  rdma_ucm_create_id create{};
  create.ps = RDMA_PS_TCP;
  CHECK(c.command(RDMA_USER_CM_CMD_CREATE_ID, create, 3) == ENOSPC);
  CHECK(c.command(RDMA_USER_CM_CMD_CREATE_ID, create, 4) == EFAULT);
  CHECK(c.command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, 323) == ENOSPC);
  Id id(c);
  CHECK(id.number == 0);  // what could not be reported is gone
  rdma_ucm_query query{};
  query.id = id.number;
  rdma_ucm_query_route_resp route{};
  query.response = address_of(route);
  CHECK(c.command(RDMA_USER_CM_CMD_QUERY_ROUTE, query, 199) == ENOSPC);
  CHECK(c.command(RDMA_USER_CM_CMD_QUERY_ROUTE, query, 200) == 0);
  query.option = 3;
  CHECK(c.command(RDMA_USER_CM_CMD_QUERY, query, 280) == ENOSYS);
}

// What rdma_resolve_addrinfo() of newer librdmacm waits for.
TEST_CASE("applications write events to their own ids") {
  constexpr u32 write_cm_event = 24;
  struct {
    u32 id, reserved, event, status;
    union {
      rdma_ucm_conn_param conn;
      rdma_ucm_ud_param ud;
      u64 argument;
    };
  } cmd{};
  Channel c, other;
  Id id(c);
  cmd.id = id.number;
  cmd.status = 7;
  cmd.argument = 0x1122334455667788;
  for (const EventType type : {EventType::user, EventType::internal}) {
    cmd.event = static_cast<u32>(type);
    REQUIRE(c.command(write_cm_event, cmd) == 0);
    const rdma_ucm_event_resp got = c.event(type);
    CHECK(got.uid == id.uid);
    CHECK(got.id == id.number);
    CHECK(got.status == 7);
    u64 argument = 0;
    std::memcpy(&argument, &got.param, sizeof argument);
    CHECK(argument == cmd.argument);
    CHECK(other.command(write_cm_event, cmd) == EINVAL);
  }
  // A program cannot write the device's own events.
  cmd.event = static_cast<u32>(EventType::established);
  CHECK(c.command(write_cm_event, cmd) == EINVAL);
  cmd.event = static_cast<u32>(EventType::internal) + 1;
  CHECK(c.command(write_cm_event, cmd) == EINVAL);
  CHECK(c.quiet());
}

TEST_CASE("ids belong to their channel") {
  Channel a, b;
  Id id(a);
  CHECK(b.command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id.number, 0}) == EINVAL);
  Id second(a);
  CHECK(second.number == id.number + 1);
  CHECK(id.destroy() == 0);
  CHECK(Id(a).number == id.number);  // the lowest free one
  rdma_ucm_create_id create{};
  create.ps = 0x0107;
  CHECK(a.command(RDMA_USER_CM_CMD_CREATE_ID, create, 4) == EINVAL);
}

TEST_CASE("the wildcard has a port number but no device") {
  Channel c;
  Id id(c);
  REQUIRE(id.bind(ip("0.0.0.0")) == 0);
  const auto r = id.route();
  CHECK(r.node_guid == 0);
  CHECK(port_of(r.src_addr) >= 32768);
  CHECK(r.dst_addr.sin6_family == AF_INET);
  CHECK(id.bind(ip("0.0.0.0")) == EINVAL);  // once
}

TEST_CASE("an address of ours brings its device") {
  Channel c;
  Id id(c), other(c), six(c);
  REQUIRE(id.bind(ip(eth_address, 7000)) == 0);
  const auto r = id.route();
  CHECK(r.node_guid == swap64(node_guid(config(), 1)));
  CHECK(r.port_num == 1);
  CHECK(port_of(r.src_addr) == 7000);
  REQUIRE(other.bind(ip(ib_address, 7000)) == 0);  // another address
  CHECK(other.route().node_guid == swap64(node_guid(config(), 0)));
  CHECK(six.bind(ip("fe80::53:48ff:fe01:101")) == EINVAL);  // without a scope
  sockaddr_in6 scoped = ip("fe80::53:48ff:fe01:101");
  scoped.sin6_scope_id = 1;
  CHECK(six.bind(scoped) == 0);
  CHECK(six.route().node_guid == swap64(node_guid(config(), 1)));
}

// cma_get_port() in drivers/infiniband/core/cma.c.
TEST_CASE("ports below 1024 need CAP_NET_BIND_SERVICE") {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before[_LINUX_CAPABILITY_U32S_3] = {};
  REQUIRE(syscall(SYS_capget, &header, before) == 0);
  __user_cap_data_struct now[_LINUX_CAPABILITY_U32S_3] = {before[0], before[1]};
  now[0].effective &= ~(1u << CAP_NET_BIND_SERVICE);
  Channel c;
  Id low(c), high(c);
  REQUIRE(syscall(SYS_capset, &header, now) == 0);
  const int refused = low.bind(ip("0.0.0.0", 1023)), bound = high.bind(ip("0.0.0.0", 1024));
  REQUIRE(syscall(SYS_capset, &header, before) == 0);
  CHECK(refused == EACCES);
  CHECK(bound == 0);
  if (before[0].effective & 1u << CAP_NET_BIND_SERVICE) CHECK(low.bind(ip("0.0.0.0", 1023)) == 0);
}

TEST_CASE("addresses that cannot be bound") {
  Channel c;
  Id id(c);
  CHECK(id.bind(ip("10.0.1.2")) == EADDRNOTAVAIL);  // another host's
  CHECK(id.bind(ip("192.0.2.77")) == EADDRNOTAVAIL);
  CHECK(id.bind(ip("224.1.1.1")) == EADDRNOTAVAIL);
  CHECK(id.bind(sockaddr_in6{}) == EINVAL);
  rdma_ucm_bind cmd{};
  cmd.id = id.number;
  const sockaddr_in6 any = ip("0.0.0.0");
  std::memcpy(&cmd.addr, &any, sizeof any);
  cmd.addr_size = sizeof(sockaddr_in6);
  CHECK(c.command(RDMA_USER_CM_CMD_BIND, cmd) == EINVAL);  // not the family's size
  cmd.addr_size = sizeof(sockaddr_in);
  cmd.reserved = 1;
  CHECK(c.command(RDMA_USER_CM_CMD_BIND, cmd) == EINVAL);
  cmd.reserved = 0;
  CHECK(c.command(RDMA_USER_CM_CMD_BIND, cmd) == 0);
}

TEST_CASE("ports are held once") {
  Channel c;
  Id first(c), second(c), wildcard(c), udp(c, RDMA_PS_UDP);
  REQUIRE(first.bind(ip(ib_address, 7001)) == 0);
  CHECK(second.bind(ip(ib_address, 7001)) == EADDRINUSE);
  CHECK(wildcard.bind(ip("0.0.0.0", 7001)) == EADDRNOTAVAIL);
  CHECK(udp.bind(ip(ib_address, 7001)) == 0);  // another port space
  first.destroy();
  CHECK(second.bind(ip(ib_address, 7001)) == 0);
}

TEST_CASE("reused ports are shared until one listens") {
  Channel c;
  Id first(c), second(c), third(c);
  for (Id *id : {&first, &second, &third}) {
    REQUIRE(id->set(RDMA_OPTION_ID_REUSEADDR, 1) == 0);
    if (id != &third) REQUIRE(id->bind(ip(ib_address, 7002)) == 0);
  }
  CHECK(first.listen() == EADDRINUSE);
  second.destroy();
  CHECK(first.listen() == 0);
  CHECK(third.bind(ip(ib_address, 7002)) == EADDRINUSE);
}

TEST_CASE("AFONLY separates the families") {
  Channel c;
  Id four(c), six(c), both(c);
  REQUIRE(four.bind(ip("0.0.0.0", 7003)) == 0);
  CHECK(both.bind(ip("::", 7003)) == EADDRNOTAVAIL);
  REQUIRE(six.set(RDMA_OPTION_ID_AFONLY, 1) == 0);
  CHECK(six.bind(ip("::", 7003)) == 0);
}

TEST_CASE("native addresses can be bound") {
  // What librdmacm asks for to choose its family of commands.
  Channel c;
  Id id(c, RDMA_PS_IB, cm::qp_rc);
  cm::SockaddrIb sib;
  sib.service = swap64(0x01060000);
  sib.service_mask = swap64(0xffffffffffff0000);
  rdma_ucm_bind cmd{};
  cmd.id = id.number;
  cmd.addr_size = sizeof sib;
  std::memcpy(&cmd.addr, &sib, sizeof sib);
  REQUIRE(c.command(RDMA_USER_CM_CMD_BIND, cmd) == 0);
  const auto r = id.query(RDMA_USER_CM_QUERY_ADDR);
  CHECK(r.src_size == sizeof sib);
  sib = cm::Address(&r.src_addr, sizeof r.src_addr).ib();
  CHECK(swap64(sib.service) >> 16 == RDMA_PS_TCP);
  CHECK((swap64(sib.service) & 0xffff) >= 32768);
  CHECK(sib.service_mask == ~u64{0});
}

TEST_CASE("resolving an InfiniBand address") {
  Channel c;
  Id id(c);
  REQUIRE(id.resolve_addr(ip("10.0.1.7", 99)) == 0);
  const auto e = c.event(EventType::addr_resolved);
  CHECK(e.uid == id.uid);
  CHECK(e.id == id.number);
  auto r = id.route();
  CHECK(r.num_paths == 0);
  CHECK(load_be64(r.ib_route[0].dgid + 8) == default_node_guid(7, 0));
  CHECK(r.src_addr.sin6_flowinfo == ip(ib_address).sin6_flowinfo);  // IPv4: sin_addr
  REQUIRE(id.resolve_route() == 0);
  c.event(EventType::route_resolved);
  r = id.route();
  CHECK(r.num_paths == 1);
  CHECK(swap16(r.ib_route[0].dlid) == default_lid(7, 0, 1));
  CHECK(swap16(r.ib_route[0].slid) == 1);
  CHECK(r.ib_route[0].pkey == 0xffff);
  CHECK(id.resolve_route() == EINVAL);
  CHECK(id.destroy() == 2);
}

TEST_CASE("resolving an Ethernet address") {
  Channel c;
  Id id(c);
  REQUIRE(id.set(RDMA_OPTION_ID_TOS, u8{0x20}) == 0);
  id.resolve(ip("10.1.1.7", 99));
  const auto gid = id.query(RDMA_USER_CM_QUERY_GID);
  CHECK(gid.node_guid == swap64(node_guid(config(), 1)));
  const cm::SockaddrIb from = cm::Address(&gid.src_addr, sizeof gid.src_addr).ib();
  const cm::SockaddrIb to = cm::Address(&gid.dst_addr, sizeof gid.dst_addr).ib();
  const u8 source[4] = {10, 1, 1, 1}, destination[4] = {10, 1, 1, 7};
  CHECK(from.gid == cm::mapped_ipv4(source));
  CHECK(to.gid == cm::mapped_ipv4(destination));
  CHECK(swap64(to.service) == (u64{RDMA_PS_TCP} << 16 | 99));

  PathAnswer resp{};
  rdma_ucm_query query{};
  query.id = id.number;
  query.option = RDMA_USER_CM_QUERY_PATH;
  REQUIRE(c.command(RDMA_USER_CM_CMD_QUERY, query, resp) == 0);
  REQUIRE(resp.num_paths == 1);
  CHECK(resp.path[0].flags == 0x2b);
  const u8 *record = reinterpret_cast<const u8 *>(resp.path[0].path_rec);
  CHECK(std::memcmp(record + 8, to.gid.data(), 16) == 0);
  CHECK(record[47] == 64);    // hop limit
  CHECK(record[48] == 0x20);  // traffic class
  CHECK(load_be16(record + 50) == 0xffff);
}

TEST_CASE("loopback is the first active port") {
  Channel c;
  for (const char *address : {"127.0.0.1", "0.0.0.0"}) {
    Id id(c);
    id.resolve(ip(address, 1));
    const auto r = id.route();
    CHECK(r.node_guid == swap64(node_guid(config(), 0)));
    CHECK(std::memcmp(r.ib_route[0].sgid, r.ib_route[0].dgid, 16) == 0);
    CHECK(r.ib_route[0].dlid == r.ib_route[0].slid);
  }
}

TEST_CASE("addresses that no host has are not resolved") {
  Channel c;
  Id id(c);
  REQUIRE(id.resolve_addr(ip("192.0.2.77")) == 0);
  CHECK(static_cast<i32>(c.event(EventType::addr_error).status) == -ENODEV);
  // The id stays bound and may try another one.
  CHECK(id.resolve_addr(ip("10.1.1.7")) == 0);
  c.event(EventType::addr_resolved);
  // From an InfiniBand port there is no way to Ethernet.
  Id bound(c);
  REQUIRE(bound.bind(ip(ib_address)) == 0);
  REQUIRE(bound.resolve_addr(ip(eth_address)) == 0);
  CHECK(static_cast<i32>(c.event(EventType::addr_error).status) == -ENETUNREACH);
  Id six(c);
  REQUIRE(six.bind(ip("::")) == 0);
  CHECK(six.resolve_addr(ip(ib_address)) == EINVAL);  // another family
}

TEST_CASE("commands that need a device or a state") {
  Channel c;
  Id id(c);
  CHECK(id.resolve_route() == EINVAL);
  CHECK(id.connect(parameters(5)) == EINVAL);
  CHECK(id.disconnect() == EINVAL);
  CHECK(id.notify(4) == EINVAL);
  ib_uverbs_qp_attr attr{};
  CHECK(id.init_qp_attr(1, attr) == EINVAL);
  REQUIRE(id.bind(ip(ib_address)) == 0);
  REQUIRE(id.init_qp_attr(1, attr) == 0);
  CHECK(attr.qp_attr_mask == (1u | 8 | 0x10 | 0x20));
  CHECK(attr.qp_access_flags == 0);
  CHECK(id.init_qp_attr(7, attr) == EINVAL);
  CHECK(id.disconnect() == EINVAL);  // no connection yet
  CHECK(id.listen() == 0);
  CHECK(id.listen() == EINVAL);
}

TEST_CASE("options") {
  Channel c;
  Id id(c), ud(c, RDMA_PS_UDP);
  CHECK(id.set(RDMA_OPTION_ID_TOS, u32{1}) == EINVAL);
  CHECK(id.set(RDMA_OPTION_ID_REUSEADDR, u8{1}) == EINVAL);
  CHECK(id.set(RDMA_OPTION_ID_AFONLY, u8{1}) == EINVAL);
  CHECK(id.set(RDMA_OPTION_ID_ACK_TIMEOUT, u8{21}) == 0);
  CHECK(ud.set(RDMA_OPTION_ID_ACK_TIMEOUT, u8{21}) == EINVAL);
  CHECK(id.set(4, u8{1}) == ENOSYS);
  CHECK(id.set(0, u8{1}, 2) == ENOSYS);
  REQUIRE(id.bind(ip(ib_address)) == 0);
  CHECK(id.set(RDMA_OPTION_ID_REUSEADDR, 1) == 0);
  CHECK(id.set(RDMA_OPTION_ID_REUSEADDR, 0) == EINVAL);
}

TEST_CASE("a path that user space knows") {
  Channel c;
  Id id(c), copy(c);
  id.resolve(ip("10.0.1.7"));
  PathAnswer known{};
  rdma_ucm_query query{};
  query.id = id.number;
  query.option = RDMA_USER_CM_QUERY_PATH;
  REQUIRE(c.command(RDMA_USER_CM_CMD_QUERY, query, known) == 0);
  CHECK(copy.set(RDMA_OPTION_IB_PATH, known.path[0], RDMA_OPTION_IB) == EINVAL);
  REQUIRE(copy.resolve_addr(ip("10.0.1.7")) == 0);
  c.event(EventType::addr_resolved);
  REQUIRE(copy.set(RDMA_OPTION_IB_PATH, known.path[0], RDMA_OPTION_IB) == 0);
  c.event(EventType::route_resolved);
  const auto queried = id.route(), given = copy.route();
  CHECK(std::memcmp(queried.ib_route, given.ib_route, sizeof queried.ib_route) == 0);
}

TEST_CASE("waiting for events") {
  Channel c;
  REQUIRE(c.quiet());
  REQUIRE(fcntl(c.fd(), F_SETFL, O_NONBLOCK) == 0);
  rdma_ucm_event_resp resp{};
  CHECK(c.command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, resp) == EAGAIN);
  REQUIRE(fcntl(c.fd(), F_SETFL, 0) == 0);
  Id id(c);
  int resolved = -1;
  std::thread waiter([&] { resolved = id.resolve_addr(ip(ib_address)); });
  REQUIRE(c.command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, resp) == 0);
  waiter.join();
  CHECK(resolved == 0);
  CHECK(resp.id == id.number);
  CHECK(c.quiet());
  // A destroyed id takes its events along.
  REQUIRE(id.resolve_route() == 0);
  CHECK_FALSE(c.quiet());
  CHECK(id.destroy() == 1);
  CHECK(c.quiet());
}

TEST_CASE("duplicates of a descriptor are the same channel") {
  Channel c;
  Id id(c);
  const int second = fcntl(c.fd(), F_DUPFD_CLOEXEC, 0);
  cm_dup(c.fd(), second);
  const rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_LISTEN, 8, 0};
  struct {
    rdma_ucm_cmd_hdr h;
    rdma_ucm_listen body;
  } message{header, {id.number, 0}};
  c.shut();
  CHECK(cm_write(second, &message, sizeof message) == sizeof message);
  cm_close(second);
  close(second);
  const std::lock_guard lock(process().mutex);  // the device's thread may be in a step
  CHECK(cm::manager().ids.empty());
}

TEST_CASE("migrating an id moves its events") {
  Channel a, b;
  Id id(a);
  REQUIRE(id.resolve_addr(ip(ib_address)) == 0);
  a.event(EventType::addr_resolved);
  REQUIRE(id.resolve_route() == 0);
  rdma_ucm_migrate_id cmd{};
  cmd.id = id.number;
  cmd.fd = static_cast<u32>(a.fd());
  rdma_ucm_migrate_resp resp{};
  REQUIRE(b.command(RDMA_USER_CM_CMD_MIGRATE_ID, cmd, resp) == 0);
  CHECK(resp.events_reported == 1);
  CHECK(a.quiet());
  CHECK(b.event(EventType::route_resolved).id == id.number);
  CHECK(a.command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id.number, 0}) == EINVAL);
  CHECK(b.command(RDMA_USER_CM_CMD_MIGRATE_ID, cmd, resp) == EINVAL);  // no longer there
  cmd.fd = 0;
  CHECK(b.command(RDMA_USER_CM_CMD_MIGRATE_ID, cmd, resp) == EINVAL);
}

TEST_CASE("multicast groups") {
  const auto [address, link] =
      GENERATE(std::make_pair(ib_address, 0), std::make_pair(eth_address, 1));
  Channel c;
  Id id(c, RDMA_PS_UDP);
  rdma_ucm_join_ip_mcast cmd{};
  cmd.id = id.number;
  cmd.uid = 77;
  cmd.addr = ip("224.1.2.3");
  rdma_ucm_create_id_resp resp{};
  CHECK(c.command(RDMA_USER_CM_CMD_JOIN_IP_MCAST, cmd, resp) == EINVAL);  // no device
  REQUIRE(id.bind(ip(address)) == 0);
  REQUIRE(c.command(RDMA_USER_CM_CMD_JOIN_IP_MCAST, cmd, resp) == 0);
  const auto e = c.event(EventType::multicast_join);
  CHECK(e.uid == 77);
  CHECK(e.id == resp.id);
  CHECK(e.param.ud.qp_num == 0xffffff);
  CHECK(e.param.ud.qkey == 0x01234567);
  const ib_uverbs_ah_attr &ah = e.param.ud.ah_attr;
  CHECK(ah.is_global == 1);
  const u8 ib_group[16] = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3};
  const u8 eth_group[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 1, 2, 3};
  CHECK(std::memcmp(ah.grh.dgid, link ? eth_group : ib_group, 16) == 0);
  CHECK((ah.dlid >= 0xc000) == (link == 0));
  CHECK(ah.grh.sgid_index == (link ? 3 : 0));

  rdma_ucm_destroy_id leave{};
  leave.id = resp.id + 1;
  rdma_ucm_destroy_id_resp left{};
  CHECK(c.command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, left) == ENOENT);
  leave.id = resp.id;
  REQUIRE(c.command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, left) == 0);
  CHECK(left.events_reported == 1);
  CHECK(id.destroy() == 1);
  Id rc(c);
  REQUIRE(rc.bind(ip(address)) == 0);
  cmd.id = rc.number;
  CHECK(c.command(RDMA_USER_CM_CMD_JOIN_IP_MCAST, cmd, resp) == EINVAL);
}

}  // namespace cm_rig
