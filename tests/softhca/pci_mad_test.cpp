// QP 1 of the device as a PCI function: management datagrams, and the subnet administrator.
#include "pci_rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 services_qkey = 0x80010000;

// QP 1 of a driver, with four receives.
struct Services : Driver {
  explicit Services(Guest &g) : Driver(g) {
    const u32 cq = g.create(cq_box(completions, 0x220000));
    qp = g.create(qp_box(cq, ring, record).put(192 + 8, 8, 8));
    const auto move = [&](u16 opcode) { return Box(opcode, 272).put(72, 24, qp); };
    REQUIRE(g.status(move(0x502).put(192 + 192 + 296, 8, 1).put(192 + 1344, 32, services_qkey)) ==
            0);
    REQUIRE(g.status(move(0x503).put(192 + 64, 3, 1).put(192 + 67, 5, 8)) == 0);
    REQUIRE(g.status(move(0x504)) == 0);
    for (u32 i = 0; i < 4; ++i) {
      u8 *wqe = g.memory + ring + i * 16;
      store_be32(wqe, 512);
      store_be32(wqe + 4, physical);
      store_be64(wqe + 8, received_at + i * 512);
    }
    store_be32(g.memory + record, 4);
  }
  // A datagram to QP 1 at that LID.
  void send(u16 lid, const std::array<u8, 256> &mad) {
    std::copy(mad.begin(), mad.end(), guest.memory + 0x290000);
    u8 *wqe = guest.memory + ring + 4 * 16 + index % 4 * 64;
    std::memset(wqe, 0, 80);
    store_be32(wqe, u32{index} << 8 | 0x0a);
    store_be32(wqe + 4, qp << 8 | 5);
    store_be32(wqe + 8, 8);
    store_be32(wqe + 16, services_qkey);
    store_be32(wqe + 24, 0x80000001);
    store_be16(wqe + 30, lid);
    store_be32(wqe + 64, 256);
    store_be32(wqe + 68, physical);
    store_be64(wqe + 72, 0x290000);
    index = static_cast<u16>(index + 2);
    store_be32(guest.memory + record + 4, index);
    guest.write_register64(uar + 0x800, load_be64(wqe));
  }
  // The next `n` completions; the last one that is a receive.
  const u8 *wait(u32 n) {
    const u8 *receive = nullptr;
    for (; n != 0; --n) {
      const u8 *cqe = guest.memory + completions + completed++ * 64;
      while (load_be32(cqe + 56) == 0) {
      }
      CHECK(__atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE) >> 4 != 13);
      if (cqe[63] >> 4 == 2) receive = cqe;
    }
    REQUIRE(receive != nullptr);
    return receive;
  }
  const u8 *received(u32 i) const { return guest.memory + received_at + i * 512 + 40; }

  static constexpr u64 completions = 0x210000, ring = 0x230000, record = 0x220040,
                       received_at = 0x2a0000;
  u32 qp = 0, completed = 0;
  u16 index = 0;
};

std::array<u8, 256> administrator_request(u16 attribute, u64 components) {
  std::array<u8, 256> mad{1, 3, 2, 1};
  store_be32(mad.data() + 12, 0xabcd);
  store_be16(mad.data() + 16, attribute);
  store_be64(mad.data() + 48, components);
  return mad;
}

void put_gid(u8 *at, u64 guid) {
  store_be64(at, u64{0xfe80} << 48);
  store_be64(at + 8, guid);
}

}  // namespace

TEST_CASE("Datagrams to QP 1 go to the port that they are addressed to", "[pci_mad_test]") {
  Guest g;
  Services s(g);
  const u16 lid = process().devices.at(0).port(1).lid;
  std::array<u8, 256> mad{1, 7, 2, 3};
  mad[255] = 1;
  s.send(static_cast<u16>(lid + 7), mad);  // lost
  mad[255] = 2;
  s.send(lid, mad);
  const u8 *cqe = s.wait(3);
  CHECK(s.received(0)[1] == 7);
  CHECK(s.received(0)[255] == 2);
  CHECK(load_be32(cqe + 44) == 256 + 40);
  CHECK((load_be32(cqe + 24) & 0xffffff) == 1);  // sent by a QP 1
  CHECK(load_be16(cqe + 22) == lid);
  CHECK((load_be32(cqe + 56) & 0xffffff) == s.qp);
  CHECK(load_be16(cqe + 38) == 0xffff);  // the P_Key, where other QPs have its index
  CHECK(g.memory[Services::received_at + 512 + 40] == 0);
}

TEST_CASE("The subnet administrator finds paths", "[pci_mad_test]") {
  Guest g;
  Services s(g);
  const Device &device = process().devices.at(0);
  const u64 own = load_be64(device.gids[0][0].gid.data() + 8);
  const u64 host_9 = 0x0253480300090000;
  std::array<u8, 256> mad = administrator_request(0x35, 1 << 2 | 1 << 3);
  put_gid(mad.data() + 56 + 8, host_9);
  put_gid(mad.data() + 56 + 24, own);
  s.send(1, mad);
  const u8 *cqe = s.wait(2);
  const u8 *answer = s.received(0);
  CHECK(answer[3] == 0x81);
  CHECK(load_be16(answer + 4) == 0);
  CHECK(load_be32(answer + 12) == 0xabcd);
  CHECK(load_be16(answer + 56 + 40) == 9);
  CHECK(load_be16(answer + 56 + 42) == device.port(1).lid);
  CHECK(answer[56 + 49] == 0x81);
  CHECK(answer[56 + 54] == (0x80 | 5));
  CHECK(load_be16(cqe + 22) == 1);
  CHECK((load_be32(cqe + 24) & 0xffffff) == 1);

  put_gid(mad.data() + 56 + 8, 0x1234);  // no port's
  s.send(1, mad);
  s.wait(2);
  CHECK(load_be16(s.received(1) + 4) == 0x0300);
  // What it is, and what it does not have.
  s.send(1, administrator_request(0x01, 0));
  s.wait(2);
  CHECK(load_be16(s.received(2) + 4) == 0);
  CHECK(s.received(2)[56 + 1] == 2);
  s.send(1, administrator_request(0x31, 0));
  s.wait(2);
  CHECK(load_be16(s.received(3) + 4) == 0x000c);
}

TEST_CASE("A driver says whether the port has a connection manager", "[pci_mad_test]") {
  Guest g;
  constexpr u32 manager = 1 << 16;
  const auto context = [&] {
    const std::vector<u8> out = g.command(Box(0x762).put(76, 4, 1), 512);
    REQUIRE(out[0] == 0);
    return out;
  };
  const auto change = [&](u32 value, u32 bits) {
    return g.status(
        Box(0x763, 512).put(76, 4, 1).put((16 + 64) * 8, 32, value).put((16 + 68) * 8, 32, bits));
  };
  const u32 before = load_be32(context().data() + 16 + 64);
  CHECK((load_be32(context().data() + 16 + 68) & manager) != 0);
  CHECK(change(0, manager) == 0);
  CHECK(load_be32(context().data() + 16 + 64) == (before & ~manager));
  CHECK(change(~u32{0}, manager) == 0);
  CHECK(load_be32(context().data() + 16 + 64) == (before | manager));
  CHECK(change(0, manager | 2) == 3);
  CHECK(load_be32(context().data() + 16 + 64) == (before | manager));
}

TEST_CASE("A send queue of frames tries write combining, and sends nothing", "[pci_mad_test]") {
  Guest g;
  Driver d(g);
  const u32 cq = g.create(d.cq_box(0x210000, 0x220000));
  Box box(0x904, 280);
  box.put(256 + 72, 24, cq).put(640, 4, 1).put(640 + 104, 24, d.page).put(640 + 268, 4, 6);
  box.put(640 + 283, 5, 2).put64(80 + 16, 0x220040).put64(272, 0x230000);
  const u32 sq = g.create(box);
  REQUIRE(g.status(Box(0x905, 272).put(72, 24, sq).put(256 + 8, 4, 1)) == 0);
  const auto post = [&](u16 index, u8 opcode, u32 segments) {
    u8 *wqe = g.memory + 0x230000 + index * 64;
    store_be32(wqe, u32{index} << 8 | opcode);
    store_be32(wqe + 4, sq << 8 | segments);
    store_be32(wqe + 8, 8);
    store_be32(g.memory + 0x220044, index + 1u);
    g.write_register64(uar + 0x800, load_be64(wqe));
    const u8 *cqe = g.memory + 0x210000 + index * 64;
    while (load_be32(cqe + 56) == 0) {
    }
    return __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE) >> 4;
  };
  CHECK(post(0, 0x00, 1) == 0);
  CHECK(post(1, 0x0a, 4) == 13);
}
