// Ethernet ports of the device as a PCI function: queues of frames, and the flow tables in front
// of them.
#include "model/eth_frame.h"
#include "pci_rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 bad_param = 0x3, bad_resource = 0x5, bad_state = 0x9;
constexpr u32 to_table = 1, to_tir = 2;

// The network interface of a driver: a send queue, a receive queue and what is between them.
struct Interface : Driver {
  explicit Interface(Guest &g) : Driver(g) {
    send_domain = g.create(Box(0x816));
    receive_domain = g.create(Box(0x816));
    send_cq = g.create(cq_box(0x210000, 0x220000));
    receive_cq = g.create(cq_box(0x211000, 0x220010));
    tis = g.create(Box(0x912, 192).put(256 + 296, 24, send_domain));
    sq = g.create(
        queue(0x904, send_cq, 6, 0x230000, 0x220040).put(256 + 256, 16, 1).put(256 + 360, 24, tis));
    rq = g.create(queue(0x908, receive_cq, 4, 0x240000, 0x220080).put(256 + 3, 1, 1));
    REQUIRE(g.status(state(0x905, sq, 0, 1)) == 0);
    REQUIRE(g.status(state(0x909, rq, 0, 1)) == 0);
    for (u32 i = 0; i < 4; ++i) {
      u8 *wqe = g.memory + 0x240000 + i * 16;
      store_be32(wqe, 2048);
      store_be32(wqe + 4, physical);
      store_be64(wqe + 8, received_at + i * 2048);
    }
    store_be32(g.memory + 0x220080, 4);
  }
  // CREATE_SQ and CREATE_RQ of four WQEs.
  Box queue(u16 opcode, u32 cq, u32 log_stride, u64 ring, u64 record) const {
    Box b(opcode, 280);
    b.put(256 + 72, 24, cq).put(256 + 40, 24, 0x77).put(640, 4, 1).put(640 + 72, 24, pd);
    b.put(640 + 104, 24, page).put(640 + 268, 4, log_stride).put(640 + 283, 5, 2);
    return b.put64(80 + 16, record).put64(272, ring);
  }
  static Box state(u16 opcode, u32 number, u32 from, u32 to) {
    return Box(opcode, 272).put(72, 24, number).put(64, 4, from).put(256 + 8, 4, to);
  }
  Box tir(u32 domain) const {
    return Box(0x900, 272).put(256 + 232, 24, rq).put(256 + 296, 24, domain);
  }
  static Box table(u32 level, u32 next = 0) {
    Box b(0x930, 64);
    b.put(200, 8, level).put(216, 8, 4);
    return next != 0 ? b.put(196, 4, 1).put(232, 24, next) : b;
  }
  // A group of all entries, of frames by their destination, or of all frames.
  static Box group(u32 table, bool destination = true) {
    Box b(0x933, 1024);
    b.put(168, 24, table).put(288, 32, 15);
    if (destination) b.put(504, 8, 1).put64(64 + 8, ~u64{0} << 16);
    return b;
  }
  static Box entry(u32 table, u32 group, u32 index, u64 mac, u32 type, u32 destination) {
    Box b(0x936, 840);
    b.put(168, 24, table).put(256, 32, index).put(544, 32, group).put(584, 24, 0x1234);
    b.put(624, 16, 4).put(648, 24, 1).put64(128 + 8, mac << 16);
    return b.put(832 * 8, 8, type).put(832 * 8 + 8, 24, destination);
  }
  static Box root(u32 table) { return Box(0x92f, 64).put(168, 24, table); }

  // Sends a frame of 100 bytes there and waits until it is sent.
  void send(u64 mac, u8 content) {
    u8 frame[100] = {};
    store_be64(frame, mac << 16);
    frame[6] = 2;
    store_be16(frame + 12, 0x88b5);
    frame[14] = content;
    std::memcpy(guest.memory + 0x260000, frame, sizeof frame);
    u8 *wqe = guest.memory + 0x230000 + sent % 4 * 64;
    std::memset(wqe, 0, 64);
    store_be32(wqe, sent << 8 | 0x0a);
    store_be32(wqe + 4, sq << 8 | 3);
    store_be32(wqe + 8, 8);
    store_be32(wqe + 32, sizeof frame);
    store_be32(wqe + 36, physical);
    store_be64(wqe + 40, 0x260000);
    ++sent;
    store_be32(guest.memory + 0x220044, sent);
    guest.write_register64(uar + 0x800, load_be64(wqe));
    wait(0x210000, sent - 1);
  }
  // The next frame that is received.
  const u8 *receive() {
    wait(0x211000, got);
    const u8 *cqe = completion(0x211000, got);
    CHECK(load_be32(cqe + 44) == 100);
    CHECK((load_be32(cqe + 32) & 0xffffff) == 0x77);
    return guest.memory + received_at + got++ * 2048;
  }
  u8 *completion(u64 ring, u32 i) const { return guest.memory + ring + i * 64; }
  void wait(u64 ring, u32 i) const {
    while (__atomic_load_n(completion(ring, i) + 63, __ATOMIC_ACQUIRE) >> 4 == 0xf ||
           load_be64(completion(ring, i) + 48) == 0) {
    }
  }

  static constexpr u64 received_at = 0x280000;
  u32 send_domain = 0, receive_domain = 0, send_cq = 0, receive_cq = 0, tis = 0, sq = 0, rq = 0;
  u32 sent = 0, got = 0;
};

constexpr u64 here = 0x020000000001, elsewhere = 0x020000000002, third = 0x020000000003,
              to_group = 0x030000000003;

}  // namespace

TEST_CASE("Flow tables lead frames to a receive queue", "[pci_eth_test]") {
  Guest g;
  Interface i(g);
  const u32 tir = g.create(i.tir(i.receive_domain));
  const u32 second = g.create(Interface::table(2)), first = g.create(Interface::table(1, second));
  const u32 by_address = g.create(Interface::group(first)),
            by_address_2 = g.create(Interface::group(second));
  REQUIRE(g.status(Interface::root(first)) == 0);
  REQUIRE(g.status(Interface::entry(first, by_address, 0, here, to_tir, tir)) == 0);
  REQUIRE(g.status(Interface::entry(second, by_address_2, 0, third, to_tir, tir)) == 0);
  constexpr u32 ieee_802_3 = 0, rfc_2863 = 1, per_priority = 16;
  const auto counted = [&](u32 group, u32 index) {
    Box ask(0x805, 272);
    const auto out = g.command(ask.op_mod(1).put(80, 16, 0x5008).put(128 + 26, 6, group), 272);
    CHECK(out[0] == 0);
    return load_be64(out.data() + 16 + 8 + size_t{8} * index);
  };
  const u64 sent = counted(ieee_802_3, 0), received = counted(ieee_802_3, 1),
            unicast = counted(rfc_2863, 6), octets = counted(per_priority, 5);
  i.send(elsewhere, 1);
  i.send(here, 2);
  i.send(third, 3);
  CHECK(i.receive()[14] == 2);
  CHECK((load_be32(i.completion(0x211000, 0) + 56) & 0xffffff) == 0x1234);  // the entry's tag
  CHECK(i.receive()[14] == 3);
  CHECK(counted(ieee_802_3, 0) == sent + 3);
  CHECK(counted(ieee_802_3, 1) == received + 2);
  CHECK(counted(rfc_2863, 6) == unicast + 3);
  CHECK(counted(per_priority, 5) == octets + 3 * 104);

  // What is needed stays; entries go before their groups and tables.
  CHECK(g.status(Box(0x902).put(72, 24, tir)) == bad_state);
  CHECK(g.status(Box(0x931, 64).put(168, 24, second)) == bad_state);
  CHECK(g.status(Box(0x938, 64).put(168, 24, first).put(256, 32, 0)) == 0);
  CHECK(g.status(Box(0x938, 64).put(168, 24, first).put(256, 32, 0)) == bad_resource);
  CHECK(g.status(Box(0x938, 64).put(168, 24, second).put(256, 32, 0)) == 0);
  CHECK(g.status(Box(0x934, 64).put(168, 24, first).put(192, 32, by_address)) == 0);
  CHECK(g.status(Box(0x934, 64).put(168, 24, second).put(192, 32, by_address_2)) == 0);
  CHECK(g.status(Box(0x931, 64).put(168, 24, first)) == 0);
  CHECK(g.status(Box(0x931, 64).put(168, 24, second)) == 0);
  CHECK(g.status(Box(0x902).put(72, 24, tir)) == 0);
  CHECK(g.status(Box(0x90a).put(72, 24, i.rq)) == 0);
  CHECK(g.status(Box(0x906).put(72, 24, i.sq)) == 0);
  CHECK(g.status(Box(0x914).put(72, 24, i.tis)) == 0);
}

TEST_CASE("A receive queue counts in the set that it was given last", "[pci_eth_test]") {
  Guest g;
  Interface i(g);
  const u32 first = g.create(Box(0x771)) & 0xff, second = g.create(Box(0x771)) & 0xff;
  const auto lost = [&](u32 set) {
    return get_field(g.command(Box(0x773, 32).put(248, 8, set), 256).data(), 0x180, 32);
  };
  const auto count_in = [&](u32 set) {
    Box change = Interface::state(0x909, i.rq, 1, 1);
    return g.status(change.put64(16, 1 << 3).put(256 + 96, 8, set));
  };
  const u32 table = g.create(Interface::table(1)), tir = g.create(i.tir(i.receive_domain));
  const u32 group = g.create(Interface::group(table));
  REQUIRE(g.status(Interface::root(table)) == 0);
  REQUIRE(g.status(Interface::entry(table, group, 0, here, to_tir, tir)) == 0);
  REQUIRE(count_in(first) == 0);
  // There are four entries to receive into.
  for (u8 n = 0; n < 5; ++n) i.send(here, n);
  for (u8 n = 0; n < 4; ++n) CHECK(i.receive()[14] == n);
  while (lost(first) == 0) {
  }
  REQUIRE(count_in(second) == 0);
  i.send(here, 6);
  while (lost(second) == 0) {
  }
  CHECK(lost(first) == 1);
  CHECK(lost(second) == 1);
  const auto context = g.command(Box(0x90b).put(72, 24, i.rq), 32 + 240);
  CHECK(get_field(context.data(), 256 + 96, 8) == second);
}

TEST_CASE("Frames of the own transport domain come back where they are wanted", "[pci_eth_test]") {
  Guest g;
  Interface i(g);
  const u32 deaf = g.create(i.tir(i.send_domain)),
            hears = g.create(i.tir(i.send_domain).put(256 + 294, 2, 3));
  const u32 table = g.create(Interface::table(1)), group = g.create(Interface::group(table));
  REQUIRE(g.status(Interface::root(table)) == 0);
  REQUIRE(g.status(Interface::entry(table, group, 0, here, to_tir, deaf)) == 0);
  REQUIRE(g.status(Interface::entry(table, group, 1, third, to_tir, hears)) == 0);
  i.send(here, 1);
  i.send(third, 2);
  CHECK(i.receive()[14] == 2);
  // Not at all when the port says so. It decides when the frame comes back: what is sent behind it,
  // to a group, has to be there before the port says otherwise.
  REQUIRE(g.status(Interface::entry(table, group, 2, to_group, to_tir, hears)) == 0);
  Box off(0x755, 512);
  REQUIRE(g.status(off.put(116, 1, 1).put(2048 + 30, 1, 1)) == 0);
  i.send(third, 3);
  i.send(to_group, 4);
  CHECK(i.receive()[14] == 4);
  REQUIRE(g.status(off.put(2048 + 30, 1, 0)) == 0);
  i.send(third, 5);
  CHECK(i.receive()[14] == 5);
}

TEST_CASE("A reset ends what a driver chose for the port", "[pci_eth_test]") {
  constexpr u32 kbps = 1'000'000;
  Guest g;
  const auto paced = [&](u32 sq) {
    return g.status(Interface::state(0x905, sq, 1, 1).put64(16, 1).put(256 + 240, 16, 1));
  };
  {
    const Interface i(g);
    REQUIRE(g.status(Box(0x780, 64).put(80, 16, 1).put(128, 32, kbps)) == 0);
    CHECK(paced(i.sq) == 0);
    // Nothing comes back.
    REQUIRE(g.status(Box(0x755, 512).put(116, 1, 1).put(2048 + 30, 1, 1)) == 0);
  }
  REQUIRE(g.message(Guest::reset, {}) == 0);
  g.write_register(0x14, Guest::queue_at);
  std::memset(g.memory + 0x200000, 0, 0x100000);  // rings
  Interface i(g);
  CHECK(paced(i.sq) == bad_resource);
  const u32 hears = g.create(i.tir(i.send_domain).put(256 + 294, 2, 3));
  const u32 table = g.create(Interface::table(1)), group = g.create(Interface::group(table));
  REQUIRE(g.status(Interface::root(table)) == 0);
  REQUIRE(g.status(Interface::entry(table, group, 0, here, to_tir, hears)) == 0);
  REQUIRE(g.status(Interface::entry(table, group, 1, to_group, to_tir, hears)) == 0);
  i.send(here, 1);
  i.send(to_group, 2);
  i.send(here, 3);
  for (const u8 next : {1, 2, 3}) REQUIRE(i.receive()[14] == next);
}

TEST_CASE("Frames are spread over queues by a table", "[pci_eth_test]") {
  Guest g;
  Interface i(g);
  Box rqt(0x916, 280);
  rqt.put(256 + 208, 16, 2).put(272 * 8, 32, i.rq).put(272 * 8 + 32, 32, i.rq);
  const u32 table_of_queues = g.create(rqt);
  CHECK(g.status(Box(0x90a).put(72, 24, i.rq)) == bad_state);
  Box tir = i.tir(i.receive_domain);
  tir.put(256 + 32, 4, 1).put(256 + 264, 24, table_of_queues).put(256 + 288, 4, 2);
  tir.put(256 + 640, 32, 3);
  const u32 spread = g.create(tir);
  const u32 table = g.create(Interface::table(1)), all = g.create(Interface::group(table, false));
  REQUIRE(g.status(Interface::entry(table, all, 0, 0, to_tir, spread)) == 0);
  REQUIRE(g.status(Interface::root(table)) == 0);
  const u64 own = load_be64(g.command(Box(0x754), 272).data() + 16 + 244) & 0xffffffffffff;
  i.send(own, 5);
  CHECK(i.receive()[14] == 5);
  CHECK(g.status(rqt.put(256 + 208, 16, 3)) == bad_param);
}

TEST_CASE("Flow tables that would not end, or name what is not there", "[pci_eth_test]") {
  Guest g;
  Interface i(g);
  const u32 low = g.create(Interface::table(1)), high = g.create(Interface::table(2));
  const u32 group = g.create(Interface::group(high)), low_group = g.create(Interface::group(low));
  CHECK(g.status(Interface::table(2, low)) == bad_param);
  CHECK(g.status(Interface::table(2, high + 100)) == bad_resource);
  CHECK(g.status(Interface::entry(high, group, 0, here, to_table, low)) == bad_param);
  CHECK(g.status(Interface::entry(high, group, 0, here, to_table, high)) == bad_param);
  CHECK(g.status(Interface::entry(high, group, 0, here, to_tir, 1)) == bad_resource);
  CHECK(g.status(Interface::entry(high, low_group, 0, here, to_table, low)) == bad_resource);
  CHECK(g.status(Interface::entry(low, low_group, 16, here, to_table, high)) == bad_param);
  CHECK(g.status(Interface::group(low).put(288, 32, 16)) == bad_param);
  CHECK(g.status(Interface::group(low).put(1088, 32, 1)) == bad_param);
  CHECK(g.status(i.tir(99)) == bad_resource);
  // Queues of a hairpin, and time stamps of the real time.
  for (const u32 bit : {14u, 26u}) {
    CHECK(g.status(i.queue(0x904, i.send_cq, 6, 0x230000, 0x220040).put(256 + bit, 1, 1)) ==
          bad_param);
    CHECK(g.status(i.queue(0x908, i.receive_cq, 4, 0x240000, 0x220080).put(256 + bit, 1, 1)) ==
          bad_param);
  }
  CHECK(g.status(Interface::state(0x909, i.rq, 0, 1)) == bad_state);
  CHECK(g.status(Interface::state(0x909, i.rq, 1, 3)) == 0);
  CHECK(g.status(Interface::state(0x909, i.rq, 1, 1)) == bad_state);
  CHECK(g.status(Interface::state(0x909, i.rq, 1, 0)) == 0);  // as who has not seen the failure
  CHECK(g.status(Interface::entry(low, low_group, 1, here, to_table, high)) == 0);
}

TEST_CASE("The port is what a network interface needs", "[pci_eth_test]") {
  Guest g;
  const auto context = g.command(Box(0x754), 272);
  REQUIRE(context[0] == 0);
  CHECK((load_be64(context.data() + 16 + 244) >> 48) == 0);
  CHECK(load_be64(context.data() + 16 + 244) != 0);
  Box mtu(0x805, 272);
  mtu.put(80, 16, 0x5003).put(128 + 64, 16, 4222);
  REQUIRE(g.status(mtu, 272) == 0);
  CHECK(get_field(g.command(mtu.op_mod(1), 272).data() + 16, 96, 16) == 4222);
  CHECK(g.status(mtu.op_mod(0).put(128 + 64, 16, 20000), 272) == bad_param);
  // The table of GIDs is the driver's.
  CHECK(process().devices.at(0).gids.at(0).empty());
  Box gid(0x761, 48);
  gid.put(64, 16, 3).put64(16, 0xfe80000000000000).put64(24, 1).put(43 * 8, 8, 2);
  REQUIRE(g.status(gid) == 0);
  CHECK(process().devices.at(0).gids.at(0).at(3).type == GidType::roce_v2);
}
