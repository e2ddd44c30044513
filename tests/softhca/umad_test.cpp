// Management datagrams: agents, the subnet administrator's answers, timeouts.
#include "umad/umad.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_mad.h>
#include <rdma/rdma_user_ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "config/identity.h"
#include "firmware/subnet_administrator.h"
#include "rig.h"

using namespace softhca;

namespace {

constexpr u8 get = 0x01, set = 0x02, remove_member = 0x15;
constexpr u16 member_record = 0x38;
constexpr u64 joining = 1 << 0 | 1 << 1 | 1 << 16;  // MGID, PortGID, JoinState

struct Datagram {
  ib_user_mad_hdr header{};
  u8 mad[256] = {};

  Datagram() = default;
  Datagram(u32 agent, u8 method, u16 attribute, u64 components, const Mgid &gid) {
    header.id = agent;
    header.timeout_ms = 100;
    mad[0] = 1;
    mad[1] = mad_class_sa;
    mad[2] = 2;
    mad[3] = method;
    store_be32(mad + 12, 0xabcd);
    store_be16(mad + 16, attribute);
    store_be64(mad + 48, components);
    std::copy(gid.begin(), gid.end(), mad + 56);
  }
  u16 status() const { return load_be16(mad + 4); }
  const u8 *record() const { return mad + 56; }
};

// A node with one agent of the subnet administration.
class Port {
 public:
  explicit Port(u32 index = 0) : fd(umad_open(index, O_RDWR | O_NONBLOCK)) {
    REQUIRE(fd >= 0);
    REQUIRE(umad_ioctl(fd, IB_USER_MAD_ENABLE_PKEY, nullptr) == 0);
    ib_user_mad_reg_req r{};
    r.qpn = 1;
    r.mgmt_class = mad_class_sa;
    r.mgmt_class_version = 2;
    REQUIRE(umad_ioctl(fd, IB_USER_MAD_REGISTER_AGENT, &r) == 0);
    agent = r.id;
  }
  ~Port() {
    umad_close(fd);
    close(fd);
  }
  Datagram ask(const Datagram &d) {
    REQUIRE(umad_write(fd, &d, sizeof d) == sizeof d);
    Datagram answer;
    REQUIRE(read(fd, &answer, sizeof answer) == sizeof answer);
    return answer;
  }
  int fd;
  u32 agent = 0;
};

constexpr Mgid group = {0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};

}  // namespace

TEST_CASE("A port joins a multicast group", "[umad]") {
  Port p;
  Datagram join(p.agent, set, member_record, joining | 1 << 2, group);
  store_be32(join.mad + 56 + 32, 0x1234);
  const Datagram answer = p.ask(join);
  CHECK(answer.header.status == 0);
  CHECK(answer.header.id == p.agent);
  CHECK(answer.mad[3] == 0x81);
  CHECK(answer.status() == 0);
  CHECK(load_be32(answer.mad + 12) == 0xabcd);
  const u16 lid = load_be16(answer.record() + 36);
  CHECK(lid >= 0xc000);
  CHECK(lid < 0xffff);
  CHECK(lid == multicast_lid(group));
  CHECK(load_be32(answer.record() + 32) == 0x1234);

  SECTION("and again: the group keeps its key") {
    CHECK(p.ask(Datagram(p.agent, set, member_record, joining, group)).status() == 0);
    CHECK(load_be32(p.ask(Datagram(p.agent, get, member_record, 1, group)).record() + 32) ==
          0x1234);
    store_be32(join.mad + 56 + 32, 0x4321);
    CHECK(p.ask(join).status() == 0x0200);
  }
  SECTION("and leaves it") {
    CHECK(p.ask(Datagram(p.agent, remove_member, member_record, joining, group)).status() == 0);
    CHECK(p.ask(Datagram(p.agent, remove_member, member_record, joining, group)).status() ==
          0x0200);
    CHECK(p.ask(Datagram(p.agent, get, member_record, 1, group)).status() == 0x0300);
  }
  p.ask(Datagram(p.agent, remove_member, member_record, joining, group));
}

TEST_CASE("The administrator names groups that come without a GID", "[umad]") {
  Port p;
  const Datagram a = p.ask(Datagram(p.agent, set, member_record, joining & ~u64{1}, {}));
  const Datagram b = p.ask(Datagram(p.agent, set, member_record, joining & ~u64{1}, {}));
  CHECK(a.status() == 0);
  CHECK(a.record()[0] == 0xff);
  CHECK(std::memcmp(a.record(), b.record(), 16) != 0);
}

TEST_CASE("The administrator finds the paths between ports", "[umad]") {
  Port p;
  const u64 own = port_guid(config(), 0, 1);
  const auto path = [&](u64 to, u64 from, u64 components = 1 << 2 | 1 << 3) {
    Datagram d(p.agent, get, 0x35, components, {});
    store_be64(d.mad + 56 + 8, u64{0xfe80} << 48);
    store_be64(d.mad + 56 + 16, to);
    store_be64(d.mad + 56 + 24, u64{0xfe80} << 48);
    store_be64(d.mad + 56 + 32, from);
    return p.ask(d);
  };
  const Datagram answer = path(default_node_guid(17, 0), own);
  CHECK(answer.status() == 0);
  CHECK(load_be16(answer.record() + 40) == default_lid(17, 0, 1));
  CHECK(load_be16(answer.record() + 42) == config().devices[0].ports[0].lid);
  const Datagram other = path(default_node_guid(17, 3) + 1, own);
  CHECK(load_be16(other.record() + 40) == default_lid(17, 3, 2));
  CHECK(path(own, own).status() == 0);
  for (const u64 none : {u64{0}, u64{0x1234}, default_node_guid(251, 0), default_node_guid(1, 16),
                         default_node_guid(1, 0) + 2})
    CHECK(path(none, own).status() == 0x0300);
  CHECK(path(own, own, 1 << 2).status() == 0x0600);
}

TEST_CASE("Requests that the administrator refuses", "[umad]") {
  Port p;
  CHECK(p.ask(Datagram(p.agent, set, member_record, 1 << 0, group)).status() == 0x0600);
  CHECK(p.ask(Datagram(p.agent, set, member_record, joining, Mgid{0xfe, 0x80, 1})).status() ==
        0x0500);
  CHECK(p.ask(Datagram(p.agent, get, 0x31, 0, {})).status() == 0x000c);
}

TEST_CASE("A MAD without an answer comes back as timed out", "[umad]") {
  Port p;
  ib_user_mad_reg_req2 r{};
  r.qpn = 1;
  r.mgmt_class = 4;  // performance management
  r.mgmt_class_version = 1;
  REQUIRE(umad_ioctl(p.fd, IB_USER_MAD_REGISTER_AGENT2, &r) == 0);
  CHECK(r.id != p.agent);
  Datagram d(r.id, get, 1, 0, {});
  d.mad[1] = 4;
  CHECK(p.ask(d).header.status == ETIMEDOUT);
  d.header.timeout_ms = 0;
  REQUIRE(umad_write(p.fd, &d, sizeof d) == sizeof d);
  CHECK(read(p.fd, &d, sizeof d) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("Refusals of the node", "[umad]") {
  Port p;
  Datagram d(p.agent, get, member_record, 1, group);
  const auto refused = [&](const void *from, size_t length) {
    errno = 0;
    return umad_write(p.fd, from, length) == -1 ? errno : 0;
  };
  CHECK(refused(&d, sizeof d.header + 23) == EINVAL);
  CHECK(refused(reinterpret_cast<void *>(16), sizeof d) == EFAULT);
  d.mad[1] = 7;  // not the agent's class
  CHECK(refused(&d, sizeof d) == EINVAL);
  d.header.id = 31;
  CHECK(refused(&d, sizeof d) == EINVAL);

  const auto ioctl_refused = [&](unsigned long request, void *argument) {
    errno = 0;
    return umad_ioctl(p.fd, request, argument) == -1 ? errno : 0;
  };
  CHECK(ioctl_refused(IB_USER_MAD_ENABLE_PKEY, nullptr) == EINVAL);  // too late
  u32 id = 30;
  CHECK(ioctl_refused(IB_USER_MAD_UNREGISTER_AGENT, &id) == EINVAL);
  CHECK(ioctl_refused(IB_USER_MAD_REGISTER_AGENT, nullptr) == EFAULT);
  ib_user_mad_reg_req2 r{};
  r.flags = 2;
  CHECK(ioctl_refused(IB_USER_MAD_REGISTER_AGENT2, &r) == EINVAL);
  r = {};
  r.qpn = 2;
  CHECK(ioctl_refused(IB_USER_MAD_REGISTER_AGENT2, &r) == EINVAL);
  CHECK(ioctl_refused(0x1234, nullptr) == ENOTTY);
  id = p.agent;
  CHECK(ioctl_refused(IB_USER_MAD_UNREGISTER_AGENT, &id) == 0);
  CHECK(refused(&d, sizeof d) == EINVAL);
}

TEST_CASE("A duplicate outlives the descriptor it came from", "[umad]") {
  int kept;
  {
    Port p;
    kept = dup(p.fd);
    umad_dup(p.fd, kept);
  }
  CHECK(umad_node_of(kept) == 1);
  Datagram d(0, get, member_record, 1, group);
  CHECK(umad_write(kept, &d, sizeof d) == sizeof d);
  CHECK(read(kept, &d, sizeof d) == sizeof d);
  umad_close(kept);
  CHECK(umad_node_of(kept) == 0);
  close(kept);
}
