// Migration of connections from path to path. The device has two ports (path_migration.json), and
// both ends of each connection are its own.
#include "model/path_migration.h"

#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

struct Heard final : EventListener {
  u32 migrated = 0, refused = 0;
  void raise(QueueEvent e) override {
    migrated += e == QueueEvent::path_migrated;
    refused += e == QueueEvent::path_failed;
  }
};

struct Path {
  u8 from;  // ports
  u8 to;
};

// A connection with its first and its other path, as end A has them.
struct TwoPaths : Pair {
  TwoPaths(Rig &rig, Path first, Path other)
      : Pair(rig), rig(rig), from(64, full_access), to(64, full_access) {
    REQUIRE(rig.device().port_count() == 2);
    a.qp->async.listener = &heard_a;
    b.qp->async.listener = &heard_b;
    use(*a.qp, first.from, first.to, other.from, other.to);
    use(*b.qp, first.to, first.from, other.to, other.from);
  }
  u16 lid(u8 port) const { return rig.device().port(port).lid; }
  void use(Qp &qp, u8 port, u8 peer, u8 other_port, u8 other_peer) const {
    qp.attr.port = port;
    qp.attr.av.dlid = lid(peer);
    qp.attr.alt_port = other_port;
    qp.attr.alt_av.dlid = lid(other_peer);
    qp.attr.alt_timeout = qp.attr.timeout;
  }
  void post(u32 value) {
    from.at<u32>(0) = value;
    a.post(Wqe(WqeOpcode::rdma_write)
               .remote(to.address(), to.key())
               .data(4, from.key(), from.address()));
    rig.step();
  }
  void write(u32 value) {
    post(value);
    CHECK(a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
    CHECK(to.at<u32>(0) == value);
  }
  void arm() {
    set_migration(*a.qp, PathState::rearm);
    set_migration(*b.qp, PathState::rearm);
    write(1);
    REQUIRE(a.qp->attr.path_state == PathState::armed);
    REQUIRE(b.qp->attr.path_state == PathState::armed);
  }
  Rig &rig;
  Region from, to;
  Heard heard_a, heard_b;
};

// A port that is down until the test ends.
struct PortDown {
  explicit PortDown(u32 port) : port(port) { set_port(port, false); }
  ~PortDown() { set_port(port, true); }
  u32 port;
};

constexpr u64 longer_than_a_timeout_ns = 100'000'000;

}  // namespace

TEST_CASE("An end that has asked alone is not armed") {
  Rig rig;
  TwoPaths p(rig, {1, 2}, {2, 2});
  set_migration(*p.a.qp, PathState::rearm);
  p.write(1);
  CHECK(p.a.qp->attr.path_state == PathState::rearm);
  CHECK(p.b.qp->attr.path_state == PathState::migrated);
  // Nor does it move.
  set_migration(*p.a.qp, PathState::migrated);
  CHECK(p.a.qp->attr.port == 1);
  CHECK(p.heard_a.migrated == 0);
  p.write(2);
}

TEST_CASE("An end that software moves takes the other one along") {
  Rig rig;
  TwoPaths p(rig, {1, 2}, {2, 1});
  p.arm();
  set_migration(*p.a.qp, PathState::migrated);
  CHECK(p.heard_a.migrated == 1);
  CHECK(p.heard_b.migrated == 0);
  p.write(2);
  CHECK(p.heard_b.migrated == 1);
  CHECK(p.a.qp->attr.port == 2);
  CHECK(p.a.qp->attr.av.dlid == p.lid(1));
  CHECK(p.b.qp->attr.port == 1);
  CHECK(p.b.qp->attr.av.dlid == p.lid(2));
  // The path that was left is the alternate one: back again.
  p.arm();
  set_migration(*p.b.qp, PathState::migrated);
  CHECK(p.heard_b.migrated == 2);
  CHECK(p.b.qp->attr.port == 2);
}

TEST_CASE("The loss of the port moves what is armed") {
  Rig rig;
  TwoPaths p(rig, {1, 2}, {2, 2});
  p.arm();
  const PortDown down(1);
  CHECK(p.heard_a.migrated == 1);
  p.write(2);
  CHECK(p.heard_b.migrated == 1);
  CHECK(p.heard_a.refused + p.heard_b.refused == 0);
}

TEST_CASE("An end whose packets are not answered moves when its retries are spent") {
  Rig rig;
  TwoPaths p(rig, {2, 1}, {2, 2});
  p.arm();
  const PortDown down(1);
  CHECK(p.heard_b.migrated == 1);
  p.post(2);
  rig.step(longer_than_a_timeout_ns);
  p.a_cq.expect_none();
  CHECK(p.heard_a.migrated == 0);
  rig.step(longer_than_a_timeout_ns);
  CHECK(p.heard_a.migrated == 1);
  CHECK(p.a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
  CHECK(p.to.at<u32>(0) == 2);
}

TEST_CASE("A connection without another path ends with its port") {
  Rig rig;
  TwoPaths p(rig, {1, 2}, {2, 2});
  const PortDown down(1);
  p.post(1);
  for (int i = 0; i < 3; ++i) rig.step(longer_than_a_timeout_ns);
  CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::retry_exceeded));
  CHECK(p.to.at<u32>(0) == 0);
  CHECK(p.heard_a.migrated == 0);
}

TEST_CASE("A move to a path that the other end does not have is refused") {
  Rig rig;
  TwoPaths p(rig, {1, 1}, {2, 1});
  p.b.qp->attr.alt_av.dlid = 0x777;
  p.arm();
  set_migration(*p.a.qp, PathState::migrated);
  p.post(2);
  for (int i = 0; i < 3; ++i) rig.step(longer_than_a_timeout_ns);
  CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::retry_exceeded));
  CHECK(p.to.at<u32>(0) == 1);
  CHECK(p.heard_b.refused == 1);
  CHECK(p.heard_b.migrated == 0);
  CHECK(p.b.qp->attr.path_state == PathState::armed);
}
