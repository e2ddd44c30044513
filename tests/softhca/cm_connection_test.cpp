// Connections: the sequences of the InfiniBand CM as user space sees them,
// between ids of one process and between processes that stop or die.
#include <poll.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>

#include "cm_rig.h"
#include "uverbs/qp_masks.h"

namespace cm_rig {
using namespace softhca::uverbs;

namespace {

struct Pair {
  Channel server, client;
  Id listener{server};
  Id active{client};
  u16 port;

  explicit Pair(const char *address = ib_address) {
    REQUIRE(listener.bind(ip("0.0.0.0")) == 0);
    port = listener.port();
    REQUIRE(listener.listen() == 0);
    active.resolve(ip(address, port));
  }
  Id request(const rdma_ucm_conn_param &p, const rdma_ucm_ece &ece = {}) {
    REQUIRE(active.connect(p, ece) == 0);
    return Id::existing(server, server.event(EventType::connect_request).id);
  }
  Id establish() {
    Id passive = request(parameters(0x111));
    REQUIRE(passive.accept(parameters(0x222)) == 0);
    client.event(EventType::connect_response);
    REQUIRE(active.establish() == 0);
    server.event(EventType::established);
    return passive;
  }
};

// Lets the manager's timers expire, `n` times.
void let_expire(u32 n) {
  std::lock_guard lock(process().mutex);
  InsideDevice inside;
  u64 later = device_clock_ns() + 1'000'000'000'000;
  for (u32 i = 0; i < n; ++i) cm::tick(later += 1'000'000'000);
  cm::manager().next_scan_ns = cm::manager().next_check_ns = 0;
}

// Waits until `id` has learned that its connection is gone. There is no event for one that
// was not accepted yet.
bool left_alone(const Id &id) {
  for (int ms = 0; ms < 5000; ++ms) {
    {
      std::lock_guard lock(process().mutex);
      if (cm::manager().ids.at(id.number)->link.state == cm::LinkState::idle) return true;
    }
    usleep(1000);
  }
  return false;
}

}  // namespace

TEST_CASE("a connection, from request to time wait") {
  const char *address = GENERATE(ib_address, eth_address);
  Pair p(address);
  const bool ethernet = address == eth_address;
  REQUIRE(p.active.connect(parameters(0x111, "hello"), {0x2c9, 7}) == 0);
  const auto request = p.server.event(EventType::connect_request);
  CHECK(request.uid == p.listener.uid);
  CHECK(request.id != p.listener.number);
  const rdma_ucm_conn_param &asked = request.param.conn;
  CHECK(asked.private_data_len == 56);
  CHECK(text(asked.private_data) == "hello");
  CHECK(asked.qp_num == 0x111);
  CHECK(asked.responder_resources == 2);  // seen from the receiver
  CHECK(asked.initiator_depth == 4);
  CHECK(asked.retry_count == 7);
  CHECK(asked.rnr_retry_count == 5);
  CHECK(request.ece.vendor_id == 0x2c9);
  CHECK(request.ece.attr_mod == 7);

  Id passive = Id::existing(p.server, request.id);
  const auto route = passive.route();
  CHECK(route.num_paths == 1);
  CHECK(port_of(route.src_addr) == p.port);
  CHECK(port_of(route.dst_addr) == p.active.port());
  CHECK(route.node_guid == p.active.route().node_guid);

  // The passive side may go up to RTS before it accepts.
  ib_uverbs_qp_attr attr{}, server_rtr{}, server_rts{};
  REQUIRE(passive.init_qp_attr(1, attr) == 0);
  CHECK(attr.qp_attr_mask == (mask_state | mask_access | mask_pkey | mask_port));
  CHECK(attr.qp_access_flags == 14);
  CHECK(attr.port_num == 1);
  REQUIRE(passive.init_qp_attr(2, server_rtr) == 0);
  CHECK(server_rtr.qp_attr_mask == (mask_state | mask_av | mask_mtu | mask_dest_qpn | mask_rq_psn |
                                    mask_dest_rd_atomic | mask_rnr_timer));
  CHECK(server_rtr.dest_qp_num == 0x111);
  CHECK(server_rtr.max_dest_rd_atomic == 2);
  CHECK(server_rtr.ah_attr.is_global == (ethernet ? 1 : 0));
  if (ethernet) CHECK(server_rtr.ah_attr.grh.sgid_index == 3);
  else CHECK(server_rtr.ah_attr.dlid == 1);
  REQUIRE(passive.init_qp_attr(3, server_rts) == 0);
  CHECK(server_rts.qp_attr_mask ==
        (mask_state | mask_sq_psn | mask_timeout | mask_retry | mask_rnr_retry | mask_rd_atomic));
  CHECK(server_rts.timeout == (ethernet ? 18 : 19));
  CHECK(server_rts.retry_cnt == 7);
  CHECK(server_rts.max_rd_atomic == 4);
  // The active side cannot, before it has the answer.
  CHECK(p.active.init_qp_attr(1, attr) == 0);
  CHECK(p.active.init_qp_attr(2, attr) == EINVAL);

  rdma_ucm_conn_param answer = parameters(0x222, "world");
  answer.initiator_depth = 1;
  REQUIRE(passive.accept(answer, {0x2c9, 3}) == 0);
  const auto response = p.client.event(EventType::connect_response);
  CHECK(response.uid == p.active.uid);
  CHECK(response.param.conn.private_data_len == 196);
  CHECK(text(response.param.conn.private_data) == "world");
  CHECK(response.param.conn.qp_num == 0x222);
  CHECK(response.param.conn.responder_resources == 1);
  CHECK(response.param.conn.initiator_depth == 4);
  CHECK(response.ece.attr_mod == 3);
  ib_uverbs_qp_attr client_rtr{}, client_rts{};
  REQUIRE(p.active.init_qp_attr(2, client_rtr) == 0);
  REQUIRE(p.active.init_qp_attr(3, client_rts) == 0);
  CHECK(client_rtr.dest_qp_num == 0x222);
  CHECK(client_rtr.rq_psn == server_rts.sq_psn);
  CHECK(client_rts.sq_psn == server_rtr.rq_psn);
  CHECK(client_rtr.path_mtu == server_rtr.path_mtu);

  REQUIRE(p.active.establish() == 0);
  const auto established = p.server.event(EventType::established);
  CHECK(established.uid == passive.uid);
  CHECK(established.param.conn.private_data_len == 0);
  CHECK(p.client.quiet());
  CHECK(passive.notify(4) == EISCONN);

  REQUIRE(p.active.disconnect() == 0);
  CHECK(p.server.event(EventType::disconnected).status == 0);
  CHECK(p.client.quiet(30));  // until the other side agrees
  REQUIRE(passive.disconnect() == 0);
  CHECK(p.client.event(EventType::disconnected).status == 0);
  p.client.event(EventType::timewait_exit);
  p.server.event(EventType::timewait_exit);
  CHECK(passive.destroy() == 3);
  CHECK(p.listener.destroy() == 1);
  CHECK(p.active.destroy() == 5);
}

TEST_CASE("refusals carry a reason and data") {
  Pair p;
  Id passive = p.request(parameters(1));
  CHECK(passive.reject(std::string(149, 'x')) == EINVAL);
  CHECK(passive.reject("", 7) == EINVAL);
  const u8 reason = GENERATE(u8{0}, u8{35});
  REQUIRE(passive.reject("go away", reason) == 0);
  const auto e = p.client.event(EventType::rejected);
  CHECK(e.status == (reason ? 35 : 28));
  CHECK(e.param.conn.private_data_len == 148);
  CHECK(text(e.param.conn.private_data) == "go away");
  CHECK(passive.reject("") == EINVAL);
  CHECK(passive.accept(parameters(2)) == EINVAL);
}

TEST_CASE("a manager with nothing to send and no timer asks for no attention") {
  Pair p;
  p.establish();
  // Requests and replies have been answered: only whether the peer lives is looked at.
  std::lock_guard lock(process().mutex);
  InsideDevice inside;
  cm::manager().next_scan_ns = 0;
  const u64 now = device_clock_ns();
  cm::tick(now);
  CHECK(cm::due(now) > now);
}

// cma_save_ib_info() in drivers/infiniband/core/cma.c.
TEST_CASE("an id of an accepted native connection has the whole service ID") {
  Channel server, client;
  Id listener(server, RDMA_PS_IB, cm::qp_rc), active(client, RDMA_PS_IB, cm::qp_rc);
  Id scout(client);
  scout.resolve(ip(ib_address));
  cm::SockaddrIb any;
  any.service = swap64(0x01060000);
  any.service_mask = swap64(0xffffffffffff0000);
  rdma_ucm_bind bind{};
  bind.id = listener.number;
  bind.addr_size = sizeof any;
  std::memcpy(&bind.addr, &any, sizeof any);
  REQUIRE(server.command(RDMA_USER_CM_CMD_BIND, bind) == 0);
  REQUIRE(listener.listen() == 0);
  const auto native = [](Id &id) {
    const auto answer = id.query(RDMA_USER_CM_QUERY_ADDR);
    return cm::Address(&answer.src_addr, sizeof answer.src_addr).ib();
  };

  rdma_ucm_resolve_addr resolve{};
  resolve.id = active.number;
  resolve.timeout_ms = 1000;
  resolve.dst_size = sizeof any;
  cm::SockaddrIb to;
  const auto known = scout.query(RDMA_USER_CM_QUERY_GID);
  to.gid = cm::Address(&known.dst_addr, sizeof known.dst_addr).ib().gid;
  to.pkey = swap16(0xffff);
  to.service = native(listener).service;
  to.service_mask = ~u64{0};
  std::memcpy(&resolve.dst_addr, &to, sizeof to);
  REQUIRE(client.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve) == 0);
  client.event(EventType::addr_resolved);
  REQUIRE(active.resolve_route() == 0);
  client.event(EventType::route_resolved);
  REQUIRE(active.connect(parameters(0x111)) == 0);
  Id passive = Id::existing(server, server.event(EventType::connect_request).id);
  REQUIRE(passive.accept(parameters(0x222)) == 0);

  const cm::SockaddrIb own = native(passive);
  CHECK(own.family == cm::family_ib);
  CHECK(own.gid == to.gid);
  CHECK(own.pkey == swap16(0xffff));
  CHECK(own.service == to.service);
  CHECK(own.service_mask == ~u64{0});
  client.event(EventType::connect_response);
}

TEST_CASE("a connection to a port without a listener is rejected") {
  Channel c;
  Id id(c);
  id.resolve(ip(ib_address, 9));
  REQUIRE(id.connect(parameters(1)) == 0);
  CHECK(id.connect(parameters(1)) == EINVAL);
  const auto e = c.event(EventType::rejected);
  CHECK(e.status == 8);
  CHECK(e.param.conn.private_data_len == 148);
  Id ud(c, RDMA_PS_UDP);
  ud.resolve(ip(ib_address, 9));
  REQUIRE(ud.connect(parameters(1)) == 0);
  CHECK(c.event(EventType::unreachable).status == 1);
}

TEST_CASE("a listener that comes late is found") {
  Channel c;
  Id id(c), listener(c);
  REQUIRE(listener.bind(ip("0.0.0.0")) == 0);
  id.resolve(ip(ib_address, listener.port()));
  REQUIRE(id.connect(parameters(1)) == 0);
  REQUIRE(listener.listen() == 0);
  c.event(EventType::connect_request);
}

TEST_CASE("which listeners an address reaches") {
  Channel c;
  Id bound(c), other(c), six(c), id(c);
  REQUIRE(bound.bind(ip(ib_address, 7100)) == 0);
  REQUIRE(other.bind(ip(eth_address, 7100)) == 0);
  REQUIRE(six.bind(ip("::", 7101)) == 0);
  for (Id *l : {&bound, &other, &six}) REQUIRE(l->listen() == 0);
  id.resolve(ip(eth_address, 7100));
  REQUIRE(id.connect(parameters(1)) == 0);
  CHECK(c.event(EventType::connect_request).uid == other.uid);
  Id four(c);
  four.resolve(ip(ib_address, 7101));  // an IPv6 wildcard takes IPv4
  REQUIRE(four.connect(parameters(1)) == 0);
  CHECK(c.event(EventType::connect_request).uid == six.uid);
}

TEST_CASE("private data has limits") {
  Pair p;
  CHECK(p.active.connect(parameters(1, std::string(57, 'x'))) == EINVAL);
  Id passive = p.request(parameters(1, std::string(56, 'x')));
  CHECK(passive.accept(parameters(2, std::string(197, 'x'))) == EINVAL);
  // A failed accept refuses.
  CHECK(p.client.event(EventType::rejected).status == 28);
}

TEST_CASE("the backlog is what may wait to be fetched") {
  Channel s, after, c;
  Id listener(s), last(after);
  for (Id *l : {&listener, &last}) REQUIRE(l->bind(ip("0.0.0.0")) == 0);
  REQUIRE(listener.listen(1) == 0);
  REQUIRE(last.listen(1) == 0);
  Id first(c), second(c), third(c);
  for (Id *id : {&first, &second, &third}) {
    id->resolve(ip(ib_address, id == &third ? last.port() : listener.port()));
    REQUIRE(id->connect(parameters(1)) == 0);
  }
  after.event(EventType::connect_request);  // the others have arrived before
  s.event(EventType::connect_request);
  CHECK(s.quiet(50));  // not answered; it will be asked again
  let_expire(1);
  s.event(EventType::connect_request);
}

TEST_CASE("a request that is sent again is one request") {
  Pair p;
  Id passive = p.request(parameters(1));
  let_expire(2);
  CHECK(p.server.quiet(50));
  REQUIRE(passive.accept(parameters(2)) == 0);
  p.client.event(EventType::connect_response);
  let_expire(2);  // the REP as well
  CHECK(p.client.quiet(50));
  REQUIRE(p.active.establish() == 0);
  p.server.event(EventType::established);
}

TEST_CASE("communication established before RTU arrives") {
  Pair p;
  Id passive = p.request(parameters(1));
  CHECK(passive.notify(4) == EINVAL);
  REQUIRE(passive.accept(parameters(2)) == 0);
  p.client.event(EventType::connect_response);
  CHECK(passive.notify(6) == EINVAL);
  REQUIRE(passive.notify(4) == 0);
  p.server.event(EventType::established);
  REQUIRE(p.active.establish() == 0);
  CHECK(p.server.quiet(50));
}

TEST_CASE("ids that go while they are connected") {
  Pair p;
  SECTION("established") {
    Id passive = p.establish();
    p.active.destroy();
    p.server.event(EventType::disconnected);
    CHECK(passive.disconnect() == 0);
  }
  SECTION("the channel with them") {
    p.establish();
    p.server.shut();
    p.client.event(EventType::disconnected);
  }
  SECTION("asked and not fetched") {
    REQUIRE(p.active.connect(parameters(1)) == 0);
    pollfd f{p.server.fd(), POLLIN, 0};
    REQUIRE(poll(&f, 1, 5000) == 1);
    p.listener.destroy();
    CHECK(p.client.event(EventType::rejected).status == 28);
  }
  SECTION("asking") {
    Id passive = p.request(parameters(1));
    p.active.destroy();
    REQUIRE(left_alone(passive));
    CHECK(p.server.quiet());  // no context yet: no receiver of an event
    CHECK(passive.accept(parameters(2)) == EINVAL);
  }
  SECTION("answered and not finished") {
    Id passive = p.request(parameters(1));
    REQUIRE(passive.accept(parameters(2)) == 0);
    p.client.event(EventType::connect_response);
    p.active.destroy();
    CHECK(p.server.event(EventType::rejected).status == 28);
  }
}

TEST_CASE("both ends disconnect at once") {
  Pair p;
  p.establish();
  {
    // Nothing is delivered in between.
    std::lock_guard lock(process().mutex);
    InsideDevice inside;
    for (const auto &[number, id] : cm::manager().ids)
      if (id->link.state == cm::LinkState::established) REQUIRE(cm::disconnect(*id) == 0);
  }
  p.server.event(EventType::disconnected);
  p.client.event(EventType::disconnected);
}

TEST_CASE("datagrams have a service instead of a connection") {
  const char *address = GENERATE(ib_address, eth_address);
  Channel s, c;
  Id listener(s, RDMA_PS_UDP), active(c, RDMA_PS_UDP);
  REQUIRE(listener.bind(ip("0.0.0.0")) == 0);
  REQUIRE(listener.listen() == 0);
  active.resolve(ip(address, listener.port()));
  REQUIRE(active.connect(parameters(0, "who")) == 0);
  const auto request = s.event(EventType::connect_request);
  CHECK(request.param.ud.private_data_len == 180);
  CHECK(text(request.param.ud.private_data) == "who");
  Id passive = Id::existing(s, request.id);
  ib_uverbs_qp_attr attr{};
  REQUIRE(passive.init_qp_attr(1, attr) == 0);
  CHECK(attr.qp_attr_mask == (mask_state | mask_pkey | mask_port | mask_qkey));
  CHECK(attr.qkey == 0x01234567);
  SECTION("accepted") {
    REQUIRE(passive.accept(parameters(0x333, "me")) == 0);
    const auto e = c.event(EventType::established);
    CHECK(e.param.ud.private_data_len == 136);
    CHECK(text(e.param.ud.private_data) == "me");
    CHECK(e.param.ud.qp_num == 0x333);
    CHECK(e.param.ud.qkey == 0x01234567);
    CHECK(e.param.ud.ah_attr.port_num == 1);
    CHECK(e.param.ud.ah_attr.is_global == (address == eth_address ? 1 : 0));
  }
  SECTION("refused") {
    REQUIRE(passive.reject("no") == 0);
    const auto e = c.event(EventType::unreachable);
    CHECK(e.status == 2);
    CHECK(text(e.param.ud.private_data) == "no");
  }
}

TEST_CASE("a peer that dies") {
  // Waits for a request and stops there, or accepts it.
  const bool connected = GENERATE(false, true);
  Process peer([&](Process &self) {
    Channel c;
    Id listener(c);
    REQUIRE(listener.bind(ip("0.0.0.0")) == 0);
    REQUIRE(listener.listen() == 0);
    self.say(listener.port());
    Id passive = Id::existing(c, c.event(EventType::connect_request).id);
    if (connected) {
      REQUIRE(passive.accept(parameters(2)) == 0);
      c.event(EventType::established);
    }
    self.say(1);
    self.await();
    return 0;
  });
  Channel c;
  Id id(c);
  const u16 port = static_cast<u16>(peer.hear());
  id.resolve(ip(ib_address, port));
  REQUIRE(id.connect(parameters(1)) == 0);
  if (connected) {
    c.event(EventType::connect_response);
    REQUIRE(id.establish() == 0);
  }
  REQUIRE(peer.hear() == 1);
  peer.end(SIGKILL);
  if (connected) {
    c.event(EventType::disconnected);
  } else {
    CHECK(static_cast<i32>(c.event(EventType::unreachable).status) == -ETIMEDOUT);
  }
  // Its port is free again, and has no listener.
  Id again(c);
  CHECK(again.bind(ip("0.0.0.0", port)) == 0);
}

TEST_CASE("a peer that does not answer") {
  Process peer([](Process &self) {
    Channel c;
    Id listener(c);
    REQUIRE(listener.bind(ip("0.0.0.0")) == 0);
    REQUIRE(listener.listen() == 0);
    self.say(listener.port());
    self.await();
    return 0;
  });
  Channel c;
  Id id(c);
  id.resolve(ip(ib_address, static_cast<u16>(peer.hear())));
  kill(peer.pid(), SIGSTOP);
  REQUIRE(id.connect(parameters(1)) == 0);
  let_expire(15);
  CHECK(c.quiet());  // asked again and again
  let_expire(1);
  CHECK(static_cast<i32>(c.event(EventType::unreachable).status) == -ETIMEDOUT);
}

TEST_CASE("processes of a host share its ports") {
  Process peer([](Process &self) {
    Channel c;
    Id id(c);
    self.say(static_cast<u32>(id.bind(ip(ib_address, 7200))));
    return static_cast<int>(self.await());
  });
  REQUIRE(peer.hear() == 0);
  Channel c;
  Id id(c);
  CHECK(id.bind(ip(ib_address, 7200)) == EADDRINUSE);
  CHECK(id.bind(ip("0.0.0.0", 7200)) == EADDRNOTAVAIL);
}

TEST_CASE("what killed processes have bound takes no room for long") {
  const std::filesystem::path table = fabric_directory(surroundings.fabric) + "/cm";
  std::uintmax_t bytes[4];
  for (std::uintmax_t &now : bytes) {
    Process peer([](Process &self) {
      Channel c;
      Id ids[] = {Id(c), Id(c), Id(c), Id(c)};
      for (Id &id : ids) REQUIRE(id.bind(ip("0.0.0.0")) == 0);
      self.say(0);
      return static_cast<int>(self.await());
    });
    REQUIRE(peer.hear() == 0);
    peer.end(SIGKILL);
    now = std::filesystem::file_size(table);
  }
  CHECK(bytes[3] == bytes[1]);
}

TEST_CASE("a forked child has empty channels") {
  Channel c;
  Id id(c);
  REQUIRE(id.resolve_addr(ip(ib_address)) == 0);
  Process child([&](Process &) {
    if (!c.quiet()) return 1;
    if (id.listen() != ENOENT) return 2;
    Id own(c);
    own.resolve(ip(ib_address));
    return c.quiet() ? 0 : 3;
  });
  int status = -1;
  waitpid(child.pid(), &status, 0);
  CHECK(status == 0);
  CHECK(c.event(EventType::addr_resolved).id == id.number);
  CHECK(c.quiet());
}

}  // namespace cm_rig
