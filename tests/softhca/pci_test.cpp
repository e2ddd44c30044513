// The device as a PCI function, seen by a driver: what it answers, and what it does not believe.
#include "pci_rig.h"

#include <random>

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 bad_op = 0x2, bad_param = 0x3, bad_resource = 0x5, bad_state = 0x9, bad_length = 0x50;
constexpr u64 outside = u64{1} << 30;  // no memory of the guest

}  // namespace

TEST_CASE("A driver finds a ConnectX and its interface", "[pci_test]") {
  Guest g;
  std::vector<u8> answer;
  REQUIRE(g.access(Guest::region_read, 0, 7, 4, {}, &answer) == 0);
  CHECK((answer[16] == 0xb3 && answer[17] == 0x15 && answer[18] == 0x1b && answer[19] == 0x10));
  CHECK(g.read_register(4) >> 16 == 5);
  CHECK((g.read_register(0x14) & 0xff) == 0x56);  // 32 entries of 64 bytes
  const u32 beat = g.read_register(0x1010);
  while (g.read_register(0x1010) == beat) {
  }
  CHECK(g.command(Box(0x10a), 112)[111] == 3);
  CHECK(g.status(Box(0xb77)) == bad_op);
  CHECK(load_be32(g.command(Box(0xb77)).data() + 4) != 0);
  const std::vector<u8> page = g.command(Box(0x100), 4112);
  CHECK(get_field(page.data() + 16, 0x1b8, 8) == 1);  // one port
  CHECK(get_field(page.data() + 16, 0x1fc, 4) == 1);  // CQEs of version 1
}

TEST_CASE("Pages that a driver lends come back", "[pci_test]") {
  Guest g;
  const u32 wanted = load_be32(g.command(Box(0x107).op_mod(1)).data() + 12);
  REQUIRE(wanted != 0);
  Box give(0x108, 16 + wanted * 8);
  give.op_mod(1).put(96, 32, wanted);
  for (u32 i = 0; i < wanted; ++i) give.put64(16 + i * 8, 0x300000 + i * 4096);
  REQUIRE(g.status(give) == 0);
  const auto out = g.command(Box(0x108).op_mod(2).put(96, 32, 1000), 16 + 8 * 1000);
  CHECK(load_be32(out.data() + 8) == wanted);
  CHECK(load_be64(out.data() + 16) >= 0x300000);
  CHECK(g.status(Box(0x108).op_mod(1).put(96, 32, 1)) == bad_length);  // gives none
}

TEST_CASE("Queues in scattered pages carry a message, and events are asked for", "[pci_test]") {
  Guest g;
  Driver d(g);
  const int signal = g.interrupt(1);
  const u32 cq = g.create(d.cq_box(0x210000, 0x220000));
  // The driver initializes the record behind CREATE_CQ: that is no arm.
  store_be32(g.memory + 0x220004, 2u << 28);
  const u32 a = g.create(d.qp_box(cq, 0x230000, 0x220040)),
            b = g.create(d.qp_box(cq, 0x240000, 0x220080));
  d.connect(a, b);
  d.connect(b, a);

  // What is received lies in two pages of a key that do not follow one another.
  Box pages = d.mkey(1, 1);
  pages.put64(16 + 16, 0x7000).put64(16 + 24, 8192).put(128 + 475, 5, 12);
  pages.put64(272, 0x280000).put64(280, 0x260000);
  const u32 key = g.create(pages) << 8;
  u8 *receive = g.memory + 0x240000;
  store_be32(receive, 8192);
  store_be32(receive + 4, key);
  store_be64(receive + 8, 0x7000);
  store_be32(g.memory + 0x220080, 1);
  for (u32 i = 0; i < 8192; ++i) g.memory[0x290000 + i] = static_cast<u8>(i * 7 + i / 256);
  const auto send = [&](u16 index) {
    u8 *wqe = g.memory + 0x230000 + 4 * 16 + index % 4 * 64;
    store_be32(wqe, u32{index} << 8 | 0x0a);
    store_be32(wqe + 4, a << 8 | 2);
    store_be32(wqe + 8, 8);
    store_be32(wqe + 16, 8192);
    store_be32(wqe + 20, d.physical);
    store_be64(wqe + 24, 0x290000);
    store_be32(g.memory + 0x220044, index + 1u);
    g.write_register64(uar + 0x800, load_be64(wqe));
  };
  send(0);
  const auto completion = [&](u32 i) { return g.memory + 0x210000 + i * 64; };
  const auto done = [&](u32 i) {
    const u8 own = __atomic_load_n(completion(i) + 63, __ATOMIC_ACQUIRE);
    return (own & 1) == 0 && own >> 4 != 0xf && load_be32(completion(i) + 56) != 0;
  };
  while (!done(0) || !done(1)) {
  }
  CHECK((completion(0)[63] >> 4 == 2 || completion(1)[63] >> 4 == 2));
  CHECK(std::memcmp(g.memory + 0x280000, g.memory + 0x290000, 4096) == 0);
  CHECK(std::memcmp(g.memory + 0x260000, g.memory + 0x291000, 4096) == 0);
  u64 count = 0;
  CHECK(g.memory[Driver::eq_ring + 1 + 63 - 1] == 0);
  CHECK(load_be32(g.memory + Driver::eq_ring + 56) == 0);

  // The doorbell asks: for what is there already, at once.
  g.write_register(uar + 0x40, d.eq << 24);
  g.write_register64(uar + 0x20, u64{cq});
  CHECK(load_be32(g.memory + Driver::eq_ring + 56) == cq);
  CHECK((read(signal, &count, sizeof count) == sizeof count && count == 1));
  close(signal);

  // In the order of what needs what.
  CHECK(g.status(Box(0x401).put(72, 24, cq)) == bad_state);
  CHECK(g.status(Box(0x501).put(72, 24, a)) == 0);
  CHECK(g.status(Box(0x501).put(72, 24, b)) == 0);
  CHECK(g.status(Box(0x401).put(72, 24, cq)) == 0);
  CHECK(g.status(Box(0x401).put(72, 24, cq)) == bad_resource);
}

TEST_CASE("Nothing that a command names lies outside of the guest's memory", "[pci_test]") {
  Guest g;
  const Driver d(g);
  for (const u64 address : {outside, Guest::bytes - 64 + 4096, u64{1} << 52, ~u64{0} << 12}) {
    CHECK(g.status(d.eq_box(address)) == bad_param);
    CHECK(g.status(d.cq_box(address, 0x220000)) == bad_param);
    CHECK(g.status(d.cq_box(0x210000, address)) == bad_param);
  }
  Box pages = d.mkey(1, 1);
  pages.put64(16 + 24, 4096).put(128 + 475, 5, 12).put64(272, u64{1} << 50);
  CHECK(g.status(pages) == bad_param);
  // A ring longer than the list of its pages.
  CHECK(g.status(d.cq_box(0x210000, 0x220000).put(128 + 99, 5, 12)) == bad_length);
  CHECK(g.status(d.cq_box(0x210000, 0x220000).put(128 + 99, 5, 31)) == bad_param);
  CHECK(g.status(d.cq_box(0x210000, 0x220000).put(128 + 184, 8, d.eq + 1)) == bad_resource);
}

TEST_CASE("Damaged entries and mailboxes are not delivered", "[pci_test]") {
  Guest g;
  u8 *entry = g.memory + Guest::queue_at;
  const Box query(0x100);
  const auto damaged = [&](auto change) {
    g.place(query, 4112);
    change();
    return g.ring();
  };
  CHECK(damaged([] {}) == 0);
  CHECK(damaged([&] { store_be32(entry + 4, 0); }) == 0x7);
  CHECK(damaged([&] { store_be32(entry + 4, 0x80000000); }) == 0x7);
  CHECK(damaged([&] { store_be32(entry + 56, 0xffffffff); }) == 0x8);
  CHECK(damaged([&] { store_be64(entry + 48, outside); }) == 0x4);
  CHECK(damaged([&] { store_be64(entry + 48, Guest::bytes - 512); }) == 0x4);
  CHECK(damaged([&] { store_be64(entry + 48, Guest::boxes_at + 8); }) == 0x4);
  CHECK(damaged([&] { entry[60] ^= 1; }) == 0x2);
  CHECK(damaged([&] { g.memory[Guest::boxes_at + 1024 + 571] ^= 1; }) == 0x3);
  // The list ends half-way, or bites its own tail.
  CHECK(damaged([&] { store_be64(g.memory + Guest::boxes_at + 560, outside); }) == 0x4);
  CHECK(damaged([&] { store_be64(g.memory + Guest::boxes_at + 560, Guest::boxes_at); }) == 0x3);
  CHECK(g.status(query, 4112) == 0);
}

TEST_CASE("Wrong messages are errors, and the function goes on", "[pci_test]") {
  Guest g;
  CHECK(g.message(77, {}) != 0);
  for (const u16 m : {u16{2}, u16{3}, u16{5}, u16{7}, u16{8}, u16{9}, u16{10}})
    CHECK(g.message(m, {1, 2, 3}) != 0);
  CHECK(g.access(Guest::region_read, ~u64{0}, 0, 4, {}) != 0);
  CHECK(g.access(Guest::region_read, pci::Function::bar_bytes - 2, 0, 4, {}) != 0);
  CHECK(g.access(Guest::region_read, 0, 7, 1 << 19, {}) != 0);
  CHECK(g.access(Guest::region_read, 0, 3, 4, {}) != 0);
  CHECK(g.access(Guest::region_read, 0, 0, 0xffffffff, {}) != 0);
  CHECK(g.access(Guest::region_write, 0, 0, 8, {1}) != 0);
  CHECK(g.map(12345, 4096) != 0);
  CHECK(g.map(~u64{4095}, 8192) != 0);
  CHECK(g.map(u64{1} << 60, 4096) != 0);
  CHECK(g.map(0x2000000, 4096, Guest::bytes) != 0);  // behind the file's end
  CHECK(g.status(Box(0x80d)) == 0);
}

TEST_CASE("Memory that goes under a queue is the guest's own loss", "[pci_test]") {
  Guest g;
  Driver d(g);
  const u32 cq = g.create(d.cq_box(0x410000, 0x420000)),
            a = g.create(d.qp_box(cq, 0x430000, 0x420040)),
            b = g.create(d.qp_box(cq, 0x440000, 0x420080));
  d.connect(a, b);
  d.connect(b, a);
  REQUIRE(g.unmap(0x400000, 0x400000) == 0);
  u8 *wqe = g.memory + 0x430000 + 4 * 16;  // as the device still has it
  store_be32(wqe, 0x0a);
  store_be32(wqe + 4, a << 8 | 2);
  store_be32(wqe + 8, 8);
  store_be32(wqe + 16, 64);
  store_be32(wqe + 20, d.physical);
  store_be64(wqe + 24, 0x500000);
  store_be32(g.memory + 0x420044, 1);
  g.write_register64(uar + 0x800, load_be64(wqe));
  while (__atomic_load_n(g.memory + 0x410000 + 63, __ATOMIC_ACQUIRE) >> 4 != 13) {
  }
  CHECK(g.memory[0x410000 + 55] == 4);  // local protection error
  CHECK(g.status(d.cq_box(0x410000, 0x220000)) == bad_param);
  CHECK(g.status(Box(0x501).put(72, 24, a)) == 0);
}

TEST_CASE("Any commands and doorbells leave the function alive", "[pci_test]") {
  Guest g;
  Driver d(g);
  std::mt19937_64 random(1);
  const std::vector<u8> cq = d.cq_box(0x210000, 0x220000), qp = d.qp_box(1, 0x230000, 0x220040),
                        eq = d.eq_box(0x240000), key = d.mkey(1, 2);
  const std::vector<u8> *seeds[] = {&cq, &qp, &eq, &key};
  for (u32 i = 0; i < 6000; ++i) {
    std::vector<u8> in = *seeds[random() % 4];
    if (random() % 2 != 0) {
      // Another command, with words of these.
      static constexpr u16 first[] = {0x100, 0x200, 0x300, 0x400, 0x500, 0x600,
                                      0x700, 0x750, 0x800, 0x900, 0xa00};
      store_be16(in.data(), static_cast<u16>(first[random() % 11] + random() % 32));
    }
    for (u64 n = random() % 4; n != 0; --n)
      in[8 + random() % (in.size() - 8)] = static_cast<u8>(random());
    if (random() % 4 == 0) in.resize(8 + random() % in.size());
    g.place(in, 16 + random() % 600);
    g.write_register(0x18, 1);  // what comes back may be overwritten by a queue in the way
    g.write_register64(uar + random() % 512 * 8, random() % 3 == 0 ? random() : random() % 0x20000);
  }
  CHECK(g.message(Guest::reset, {}) == 0);
  g.write_register(0x14, Guest::queue_at);
  CHECK(g.status(Box(0x80d)) == 0);
}
