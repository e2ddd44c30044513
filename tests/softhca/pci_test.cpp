// The device as a PCI function, seen by a driver: what it answers, and what it does not believe.
#include <random>

#include "model/paging.h"
#include "model/requester.h"
#include "model/responder.h"
#include "pci_rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 bad_op = 0x2, bad_param = 0x3, bad_resource = 0x5, bad_state = 0x9,
              no_resources = 0xf, bad_length = 0x50;
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

// PAOS, the port's administrative and operational state.
Box port_status(bool write, u32 wanted = 0) {
  Box b(0x805, 32);
  return b.op_mod(write ? 0 : 1)
      .put(80, 16, 0x5006)
      .put(128 + 20, 4, wanted)
      .put(128 + 32, 1, write);
}

TEST_CASE("A driver takes its port down and up again, and hears of it", "[pci_test]") {
  enum : u32 { up = 1, down = 2, port_change = 9 };
  Guest g;
  const Driver d(g);
  REQUIRE(g.status(d.eq_box(0x310000).put64(88, u64{1} << port_change)) == 0);
  const auto state = [&g] {
    const auto out = g.command(port_status(false), 32);
    return std::pair(get_field(out.data() + 16, 20, 4), get_field(out.data() + 16, 28, 4));
  };
  // PortInfo, of the port's agent.
  const auto agent_says = [&g] {
    Box ask(0x50d, 272);
    ask.put(128, 32, 0x01010101).put(128 + 16 * 8, 16, 0x15);
    const auto out = g.command(ask, 272);
    CHECK(out[16 + 3] == 0x81);
    CHECK(load_be16(out.data() + 16 + 4) == 0);
    return out[16 + 64 + 32] & 0xfu;
  };
  const u8 *entry = g.memory + 0x310000;
  CHECK(state() == std::pair<u32, u32>(up, up));
  CHECK(agent_says() == 4);
  CHECK(g.status(port_status(true, up), 32) == 0);  // as it is: nothing to hear
  CHECK(g.status(port_status(true, down), 32) == 0);
  CHECK((entry[1] == port_change && entry[3] == 1 && entry[40] == 1 << 4));
  CHECK(state() == std::pair<u32, u32>(down, down));
  CHECK(agent_says() == 1);
  CHECK(g.status(port_status(true, up), 32) == 0);
  CHECK((entry[65] == port_change && entry[67] == 4 && entry[104] == 1 << 4));
  CHECK(state() == std::pair<u32, u32>(up, up));
  CHECK(g.status(port_status(true, 7), 32) == bad_param);
  CHECK((entry[64 + 65] == 0 && entry[63 + 128] != 1));
}

TEST_CASE("A page of a queue may lie in several mappings, as below an IOMMU", "[pci_test]") {
  constexpr u64 at = u64{1} << 32;
  Guest g;
  const Driver d(g);
  // More than a process has descriptors; no two that follow each other lie side by side.
  for (u64 i = 0; i < 3000; ++i)
    REQUIRE(g.map(at + i * 4096, 4096, 0x300000 + (i % 2) * 4096) == 0);
  REQUIRE(g.map(at, 4096, 0x311000) == 0);
  REQUIRE(g.map(at + 4096, 4096, 0x310000) == 0);
  // Two pages of entries in one of 8 KiB.
  const Box eq = d.eq_box(at).put(128 + 99, 5, 7).put(128 + 195, 5, 1).put64(88, u64{1} << 9);
  REQUIRE(g.status(eq) == 0);
  for (int i = 0; i < 33; ++i)
    for (const u32 wanted : {2u, 1u}) REQUIRE(g.status(port_status(true, wanted), 32) == 0);
  CHECK(g.memory[0x311000 + 1] == 9);
  CHECK(g.memory[0x311000 + 63 * 64 + 3] == 4);
  CHECK(g.memory[0x310000 + 3] == 1);
  CHECK(g.memory[0x310000 + 64 + 3] == 4);
  // Half of a page is none.
  REQUIRE(g.unmap(at + 4096, 4096) == 0);
  CHECK(g.status(eq) == bad_param);
  REQUIRE(g.map(at, 3 * 4096, 0x310000) == 0);
  REQUIRE(g.unmap(at + 4096, 4096) == 0);  // in the middle
  CHECK(g.status(eq) == bad_param);
  CHECK(g.status(d.eq_box(at + 2 * 4096)) == 0);
}

TEST_CASE("A guest cannot make the function keep translations without end", "[pci_test]") {
  Guest g;
  const Driver d(g);
  constexpr u32 quarter = 1 << 22;
  std::vector<u32> keys;
  const Box large = d.mkey(1).put(128 + 416, 32, quarter);
  for (int i = 0; i < 4; ++i) keys.push_back(g.create(large));
  CHECK(g.status(d.mkey(1).put(128 + 416, 32, 1)) == 0xf);
  CHECK(g.status(d.mkey(1).put(128 + 416, 32, 0xffffffff)) == 0xf);
  REQUIRE(g.status(Box(0x202).put(72, 24, keys[0])) == 0);
  CHECK(g.status(large) == 0);
  CHECK(g.status(large) == 0xf);
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

TEST_CASE("A function that was reset executes nothing before its driver starts again",
          "[pci_test]") {
  constexpr u32 enabled = 0, disabled = 1, alloc_pd = 0x800;
  Guest g;
  const auto state = [&] { return g.read_register(0x14) >> 8 & 7; };
  CHECK(state() == enabled);
  REQUIRE(g.message(Guest::reset, {}) == 0);
  CHECK(g.read_register(0x14) == (disabled << 8 | 0x56));
  // The driver does not know yet. Its queue, and what lies at address 0, stay as they are.
  g.place(Box(alloc_pd), 16);
  std::memset(g.memory, 0x11, 64);
  g.write_register(0x18, 1);
  CHECK(g.memory[Guest::queue_at + 63] == 1);
  CHECK(std::all_of(g.memory, g.memory + 64, [](u8 b) { return b == 0x11; }));
  g.write_register(0x14, Guest::queue_at);
  CHECK(state() == enabled);
  CHECK(g.status(Box(alloc_pd)) == 0);
  // As drivers stop a card.
  g.write_register(0x14, Guest::queue_at | disabled << 8);
  CHECK(g.read_register(0x14) == (Guest::queue_at | disabled << 8 | 0x56));
  g.place(Box(alloc_pd), 16);
  g.write_register(0x18, 1);
  CHECK(g.memory[Guest::queue_at + 63] == 1);
}

// Injected by fatal_error.json.
TEST_CASE("An internal error disables the interface and destroys all objects", "[.fatal_error]") {
  Guest g;
  CHECK(g.status(Box(0x801).put(72, 24, 1)) == bad_resource);
  u32 pd = 0;
  while ((g.read_register(0x14) >> 8 & 7) == 0) {
    g.place(Box(0x800), 16);
    g.write_register(0x18, 1);
    if (g.memory[Guest::queue_at + 63] == 0) pd = load_be32(g.memory + Guest::queue_at + 40);
  }
  REQUIRE(pd != 0);
  g.write_register(0x14, Guest::queue_at);
  CHECK(g.status(Box(0x801).put(72, 24, pd)) == bad_resource);
  CHECK(g.status(Box(0x800)) == 0);
}

TEST_CASE("Completions in a layout that the device does not write are refused", "[pci_test]") {
  Guest g;
  const Driver d(g);
  CHECK(g.status(d.cq_box(0x210000, 0x220000).put(128 + 30, 2, 1)) == bad_param);
  CHECK(g.status(d.cq_box(0x210000, 0x220000).put(128 + 11, 1, 1)) == bad_param);
  CHECK(g.status(d.cq_box(0x210000, 0x220000)) == 0);
}

TEST_CASE("A transition within a state may change nothing", "[pci_test]") {
  Guest g;
  Driver d(g);
  const u32 cq = g.create(d.cq_box(0x210000, 0x220000)),
            qp = g.create(d.qp_box(cq, 0x230000, 0x220040));
  const auto move = [&](u16 opcode) { return Box(opcode, 272).put(72, 24, qp); };
  REQUIRE(g.status(move(0x502).put(192 + 192 + 296, 8, 1)) == 0);
  CHECK(g.status(move(0x50e)) == 0);
  CHECK(g.status(Box(0x50a).put(72, 24, qp)) == 0);
  d.connect(qp, qp);
  CHECK(g.status(move(0x505)) == 0);
}

TEST_CASE("Memory of the device is read and written through BAR 0, and by keys", "[pci_test]") {
  Guest g;
  Driver d(g);
  const std::vector<u8> page = g.command(Box(0x100).op_mod(0xf << 1), 4112);
  const u64 bar = load_be64(page.data() + 16 + 8), bytes = load_be32(page.data() + 16 + 16);
  REQUIRE(bytes != 0);
  REQUIRE(bar + bytes <= pci::Function::bar_bytes);
  const auto alloc = [&](u64 at, u32 range, u32 size) {
    Box b(0x205, 32);
    return b.put64(16, at).put(24 * 8, 32, range).put(28 * 8, 32, size);
  };
  const auto free = [](u64 at) { return Box(0x206, 32).put64(16, at).put(24 * 8, 32, 64); };
  const std::vector<u8> out = g.command(alloc(bar + 4096, 8192, 5000));
  REQUIRE(out[0] == 0);
  CHECK(load_be64(out.data() + 8) == bar + 4096);
  CHECK(g.status(alloc(bar + 8192, 4096, 64)) == 0xf);  // taken
  CHECK(g.status(alloc(bar + 4097, 4096, 64)) == bad_param);
  CHECK(g.status(alloc(bar + bytes, 4096, 64)) == bad_param);
  CHECK(g.status(alloc(bar + bytes - 4096, 8192, 8192)) == bad_param);
  CHECK(g.status(alloc(bar, 4096, 4097)) == bad_param);
  CHECK(g.status(alloc(0x20 * 4096, 4096, 64)) == bad_param);
  CHECK(g.status(free(bar)) == bad_resource);

  // What the processor writes is behind a key, counted from 0 on.
  g.write_register64(bar + 4096 + 16, 0x0102030405060708);
  CHECK(g.read_register(bar + 4096 + 20) == 0x05060708);
  const auto key = [&](u64 start, u64 length) {
    Box b = d.mkey(1);  // 5 in its two parts
    return b.put(128 + 3, 3, 1).put64(16 + 16, start).put64(16 + 24, length);
  };
  const u32 number = g.create(key(bar + 4096 + 16, 64));
  {
    const std::lock_guard lock(process().mutex);
    SpanList spans;
    u8 bytes_of[8];
    REQUIRE(resolve(process().mkeys, number << 8, 0, 8, access_local_write, {d.pd}, spans) ==
            Syndrome::ok);
    REQUIRE(read_spans(spans, 0, bytes_of, 8));
    CHECK(load_be64(bytes_of) == 0x0102030405060708);
    CHECK(resolve(process().mkeys, number << 8, 60, 8, 0, {d.pd}, spans) != Syndrome::ok);
  }
  CHECK(g.status(key(bar + bytes - 32, 64)) == bad_param);
  CHECK(g.status(key(0x1000, 64)) == bad_param);
  CHECK(g.status(Box(0x202).put(72, 24, number)) == 0);
  CHECK(g.status(free(bar + 4096)) == 0);
  CHECK(g.status(alloc(bar + 8192, 4096, 64)) == 0);
}

TEST_CASE("General objects are numbers, trees of scheduling elements, addresses", "[pci_test]") {
  Guest g;
  const auto object = [](u16 opcode, u16 type, size_t bytes = 80) {
    return Box(opcode, bytes).op_mod(type);
  };
  constexpr u16 reserved = 0x2c, schedule = 0x26, address = 0x3a;
  const std::vector<u8> page = g.command(Box(0x100), 4112);
  for (const u16 type : {reserved, schedule, address})
    CHECK(get_field(page.data() + 16, 0x400 + 63u - type, 1) == 1);

  const u32 first = g.create(object(0xa00, reserved).put(99, 5, 5));
  CHECK(first != 0);
  CHECK(g.status(object(0xa00, reserved).put(99, 5, 6)) == bad_param);
  CHECK(g.status(object(0xa03, reserved).put(64, 32, first)) == 0);
  CHECK(g.status(object(0xa03, reserved).put(64, 32, first)) == bad_resource);

  const auto element = [&](u32 parent, bool leaf) {
    return object(0xa00, schedule)
        .put(24 * 8, 8, 3)
        .put(48 * 8, 8, leaf ? 4 : 0)
        .put(56 * 8, 32, parent);
  };
  CHECK(g.status(element(0, true)) == bad_param);
  const u32 root = g.create(element(0, false)), leaf = g.create(element(root, true));
  CHECK(g.status(element(leaf, true)) == bad_resource);
  CHECK(g.status(element(99, true)) == bad_resource);
  std::vector<u32> tree{root};
  while (tree.size() < 16) tree.push_back(g.create(element(tree.back(), false)));
  CHECK(g.status(element(tree.back(), false)) == no_resources);
  for (; tree.size() > 1; tree.pop_back())
    CHECK(g.status(object(0xa03, schedule).put(64, 32, tree.back())) == 0);
  CHECK(g.status(object(0xa03, schedule).put(64, 32, root)) == bad_state);
  Box limit = element(root, true).put(64, 32, leaf).put64(16, 2).put(72 * 8, 32, 100);
  store_be16(limit.data(), 0xa01);
  CHECK(g.status(limit) == 0);
  CHECK(g.status(limit.put(48 * 8, 8, 0)) == bad_param);  // another kind of element
  CHECK(g.status(limit.put(64, 32, 99)) == bad_resource);
  CHECK(g.status(object(0xa03, schedule).put(64, 32, leaf)) == 0);
  CHECK(g.status(object(0xa03, schedule).put(64, 32, root)) == 0);

  CHECK(g.status(object(0xa00, address, 64)) == bad_param);
  const u32 map = g.create(object(0xa00, address, 64).put(28 * 8, 32, 77));
  CHECK(g.status(object(0xa03, address).put(64, 32, map)) == 0);
  CHECK(g.status(object(0xa00, 0x13)) == bad_op);
  for (const u16 opcode : {u16{0xa00}, u16{0xa01}}) {
    CHECK(g.status(object(opcode, schedule, 32)) == bad_length);
  }
}

namespace {

// Keys whose pages come and go, filled by the driver's own queue pair.
struct Paging {
  explicit Paging(Guest &g) : guest(g), d(g) {
    events = guest.create(d.eq_box(event_ring).put64(88, u64{1} << 0xc)) & 0xff;
    cq = guest.create(d.cq_box(0x210000, 0x220000));
    a = guest.create(d.qp_box(cq, 0x230000, 0x220040));
    b = guest.create(d.qp_box(cq, 0x240000, 0x220080));
    keys = guest.create(d.qp_box(cq, 0x250000, 0x2200c0).put(192 + 8, 8, 12).put(192 + 40, 24, 0));
    d.connect(a, b);
    d.connect(b, a);
    d.connect(keys, 0);
    Box empty = d.mkey(1);
    key = guest.create(empty.put(128 + 1, 1, 1).put(128 + 16, 1, 1).put(128 + 416, 32, 4)) << 8;
  }
  // A WQE of whole basic blocks at the next place of a queue pair, of four blocks.
  u8 *wqe(u64 ring, u16 index) const { return guest.memory + ring + 4 * 16 + index % 4 * 64; }
  void post(u32 qp, u64 ring, u64 record, u16 &index, u8 opcode, u32 blocks, u32 ds) {
    u8 *w = wqe(ring, index);
    store_be32(w, u32{index} << 8 | opcode);
    store_be32(w + 4, qp << 8 | ds);
    store_be32(w + 8, 8);
    index = static_cast<u16>(index + blocks);
    store_be32(guest.memory + record + 4, index);
    guest.write_register64(uar + 0x800, load_be64(w));
  }
  // A UMR of the driver: the first four octowords of a key are those of `list`. `enable`: the
  // key is free before, and gets that length (0: no end) from `start` on.
  void change(u32 which, bool enable, u64 start, u64 length, u8 log_page) {
    u8 *w = wqe(0x250000, key_index);
    std::memset(w, 0, 256);
    store_be32(w + 12, which);
    w[16] = enable ? 0x20 : 0x40;
    store_be16(w + 20, 4);
    // Length, page size, first address, protection domain, rights, and that it is in use.
    if (enable)
      store_be64(w + 24, 1 << 0 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 13 | 15 << 17 | 1 << 29);
    w[64 + 2] = 0x3c;
    store_be32(w + 64 + 4, 0xffffff00);
    store_be32(w + 64 + 12, d.pd | (length == 0 ? 1u << 31 : 0));
    store_be64(w + 64 + 16, start);
    store_be64(w + 64 + 24, length);
    w[64 + 59] = log_page;
    data_segment(w + 128, 64, d.physical, list);
    // Three basic blocks, and one that does nothing: the ring has four.
    post(keys, 0x250000, 0x2200c0, key_index, 0x25, 3, 9);
    CHECK(wait_completion() == 0);
    std::memset(wqe(0x250000, key_index), 0, 64);
    post(keys, 0x250000, 0x2200c0, key_index, 0x00, 1, 1);
    CHECK(wait_completion() == 0);
  }
  // The key's eight pages are these from now on.
  void fill(const std::array<u64, 8> &pages, bool enable) {
    for (size_t i = 0; i < 8; ++i) store_be64(guest.memory + list + i * 8, pages[i]);
    change(key, enable, 0x10000, 8 * 4096, 12);
  }
  void write(u32 bytes, u64 to) { write(bytes, to, key); }
  void write(u32 bytes, u64 to, u32 remote) {
    u8 *w = wqe(0x230000, send_index);
    store_be64(w + 16, to);
    store_be32(w + 24, remote);
    data_segment(w + 32, bytes, d.physical, 0x290000);
    post(a, 0x230000, 0x220040, send_index, 0x08, 1, 3);
  }
  void write_from(u64 at) {
    u8 *w = wqe(0x230000, send_index);
    store_be64(w + 16, 0x10000);
    store_be32(w + 24, key);
    data_segment(w + 32, 64, key, at);
    post(a, 0x230000, 0x220040, send_index, 0x08, 1, 3);
  }
  static void data_segment(u8 *at, u32 bytes, u32 lkey, u64 address) {
    store_be32(at, bytes);
    store_be32(at + 4, lkey);
    store_be64(at + 8, address);
  }
  // The syndrome of the next completion.
  u32 wait_completion() {
    const u8 *cqe = guest.memory + 0x210000 + completions++ * 64;
    while (__atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE) >> 4 == 0 && load_be32(cqe + 56) == 0) {
    }
    return cqe[63] >> 4 == 13 ? cqe[55] : 0;
  }
  const u8 *event(u32 i) const { return guest.memory + event_ring + i * 64; }
  const u8 *wait_event(u32 i) const {
    while (__atomic_load_n(event(i) + 56, __ATOMIC_ACQUIRE) == 0) {
    }
    return event(i);
  }
  u32 resume(u32 token, bool failed) const {
    return guest.status(Box(0x204).put(64, 1, failed).put(104, 24, token));
  }

  Guest &guest;
  Driver d;
  static constexpr u64 event_ring = 0x2a0000, list = 0x2b0000;
  u32 events, cq, a, b, keys, key;
  u16 key_index = 0, send_index = 0;
  u32 completions = 0;
};

}  // namespace

TEST_CASE("Pages come when a request reaches for them", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({}, true);
  for (u32 i = 0; i < 4096; ++i) g.memory[0x290000 + i] = static_cast<u8>(i * 5 + 1);

  // A peer reaches for the third page: a fault with its key, address and length.
  p.write(4096, 0x12010);
  const u8 *fault = p.wait_event(0);
  CHECK((fault[1] == 0x0c && fault[3] == 1));
  CHECK(load_be32(fault + 32 + 4) == p.key);
  CHECK(load_be32(fault + 32 + 12) == 4096);
  CHECK(load_be64(fault + 32 + 16) == 0x12010);
  const u32 token = load_be32(fault + 32 + 24);
  CHECK(token >> 24 == 4);
  p.fill({0, 0, 0x280000 | 3, 0x260000 | 3}, false);
  CHECK(p.resume(token & 0xffffff, false) == 0);
  CHECK(p.resume(token & 0xffffff, false) == bad_param);
  CHECK(p.wait_completion() == 0);
  CHECK(std::memcmp(g.memory + 0x280010, g.memory + 0x290000, 4080) == 0);
  CHECK(std::memcmp(g.memory + 0x260000, g.memory + 0x290000 + 4080, 16) == 0);

  // A page that may only be read is missing for who writes.
  p.fill({0x280000 | 1}, false);
  p.write(8, 0x10000);
  fault = p.wait_event(1);
  CHECK(load_be64(fault + 32 + 16) == 0x10000);
  p.fill({0x280000 | 3}, false);
  CHECK(p.resume(load_be32(fault + 32 + 24) & 0xffffff, false) == 0);
  CHECK(p.wait_completion() == 0);

  // One's own memory that does not come is a protection error.
  p.write_from(0x14000);
  fault = p.wait_event(2);
  CHECK(load_be64(fault + 32 + 16) == 0x14000);
  CHECK(load_be32(fault + 32 + 24) >> 24 == 5);
  CHECK(p.resume(load_be32(fault + 32 + 24) & 0xffffff, true) == 0);
  CHECK(p.wait_completion() == 4);
}

TEST_CASE("Page faults of a queue pair end with its reset", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({}, true);
  p.write_from(0x10000);
  const u32 token = load_be32(p.wait_event(0) + 32 + 24) & 0xffffff;
  REQUIRE(g.status(Box(0x50a).put(72, 24, p.a)) == 0);
  CHECK(p.resume(token, true) == bad_param);
}

TEST_CASE("A completion queue keeps the event queue that it was given last", "[pci_test]") {
  Guest g;
  Driver d(g);
  const u32 cq = g.create(d.cq_box(0x210000, 0x220000));
  const u32 other = g.create(d.eq_box(0x2a0000)) & 0xff;
  Box change(0x403, 280);
  change.put(72, 24, cq).put(96, 32, 8).put(128 + 184, 8, other);
  REQUIRE(g.status(change) == 0);
  CHECK(g.status(Box(0x302).put(88, 8, other)) == bad_state);
  CHECK(g.status(Box(0x302).put(88, 8, d.eq)) == 0);
  CHECK(g.status(Box(0x401).put(72, 24, cq)) == 0);
  CHECK(g.status(Box(0x302).put(88, 8, other)) == 0);
}

TEST_CASE("Without a queue for page faults, what is missing is an error", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({}, true);
  REQUIRE(g.status(Box(0x302).put(88, 8, p.events)) == 0);
  p.write_from(0x10000);
  CHECK(p.wait_completion() == 4);
}

TEST_CASE("Pages that go take nothing that is on its way", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({0x280000 | 3, 0x281000 | 3, 0x282000 | 3}, true);
  const std::lock_guard lock(process().mutex);
  Qp &qp = *process().qps.at(p.a);
  auto &work = qp.send->own.emplace_back(std::make_unique<SendWqe>());
  PageFault missing;
  REQUIRE(resolve(process().mkeys, p.key, 0x10000, 3 * 4096, 0, {p.d.pd, p.a}, work->spans,
                  &missing) == Syndrome::ok);
  REQUIRE(work->spans.size() == 1);
  const u32 index = p.key >> 8;
  u8 byte;
  forget_pages(index, {{work->spans[0].address + 3 * 4096, 4096}});
  CHECK(read_spans(work->spans, 0, &byte, 1));
  forget_pages(index, {{work->spans[0].address + 2 * 4096, 4096}});
  CHECK_FALSE(read_spans(work->spans, 0, &byte, 1));
  qp.send->own.clear();
}

// The driver keeps the keys of regions that are gone, with what was behind them, for later ones:
// the memory belongs to others by then.
TEST_CASE("A key that loses a page leaves it to the other keys", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({0x280000 | 3}, true);
  Box box = p.d.mkey(1);
  const u32 other = g.create(box.put(128 + 1, 1, 1).put(128 + 16, 1, 1).put(128 + 416, 32, 4)) << 8;
  p.change(other, true, 0x10000, 8 * 4096, 12);  // with the same page
  const auto target = [&]() -> SpanList & { return process().qps.at(p.b)->responder->target; };
  {
    const std::lock_guard lock(process().mutex);
    REQUIRE(resolve(process().mkeys, p.key, 0x10000, 64, 0, {p.d.pd, p.b}, target()) ==
            Syndrome::ok);
  }
  const auto reached = [&] {
    const std::lock_guard lock(process().mutex);
    u8 byte;
    return read_spans(target(), 0, &byte, 1);
  };
  std::memset(g.memory + Paging::list, 0, 64);
  p.change(other, false, 0, 0, 12);
  CHECK(reached());
  // Out of use, and in use anew.
  store_be64(g.memory + Paging::list, 0x280000 | 3);
  p.change(other, false, 0, 0, 12);
  {
    const std::lock_guard lock(process().mutex);
    process().mkeys.find(other)->free = true;
  }
  std::memset(g.memory + Paging::list, 0, 64);
  p.change(other, true, 0x10000, 8 * 4096, 12);
  CHECK(reached());
  p.change(p.key, false, 0, 0, 12);
  CHECK_FALSE(reached());
}

TEST_CASE("A connection moves to the path that its driver loads", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({0x280000 | 3}, true);
  constexpr u32 moved = 1, alternate = 1 << 0, migration = 1 << 10, rearm = 1, migrated = 3;
  constexpr u64 ring = 0x2c0000;
  g.create(p.d.eq_box(ring).put64(88, u64{1} << moved));
  CHECK((g.command(Box(0x100).op_mod(1), 4112)[16 + 0x22e / 8] >> (7 - 0x22e % 8) & 1) == 1);
  const u32 lid = process().devices.at(0).port(1).lid;
  constexpr u32 context = 192, primary = context + 192, secondary = context + 544;
  const auto live = [](u32 qp, u32 what, u32 state) {
    return Box(0x505, 272).put(72, 24, qp).put(128, 32, what).put(context + 19, 2, state);
  };
  const auto loaded = [&](u32 qp) {
    return live(qp, alternate | migration, rearm)
        .put(secondary + 48, 16, lid)
        .put(secondary + 64, 5, 9)
        .put(secondary + 296, 8, 1);
  };
  const auto field = [&](u32 qp, u32 at, u32 width) {
    const auto out = g.command(Box(0x50b).put(72, 24, qp), 24 + 232);
    REQUIRE(out[0] == 0);
    return get_field(out.data(), at, width);
  };
  CHECK(field(p.a, context + 19, 2) == migrated);

  // Refused: without a second path, by software, or on a port that does not exist.
  CHECK(g.status(live(p.a, migration, rearm)) == bad_param);
  CHECK(g.status(loaded(p.a).put(context + 19, 2, 0)) == bad_param);
  CHECK(g.status(loaded(p.a).put(secondary + 296, 8, 2)) == bad_param);
  CHECK(g.status(loaded(p.a).put(secondary + 16, 16, 0xffff)) == bad_param);
  CHECK(g.status(loaded(p.keys)) == bad_param);
  CHECK(field(p.a, secondary + 296, 8) == 0);

  REQUIRE(g.status(loaded(p.a)) == 0);
  REQUIRE(g.status(loaded(p.b)) == 0);
  CHECK(field(p.a, context + 19, 2) == rearm);
  CHECK(field(p.a, secondary + 48, 16) == lid);
  CHECK(field(p.a, secondary + 64, 5) == 9);
  p.write(64, 0x10000);
  CHECK(p.wait_completion() == 0);
  CHECK(field(p.a, context + 19, 2) == 0);  // armed
  CHECK(field(p.b, context + 19, 2) == 0);

  // One end moves, and takes the other one along.
  const auto event_of = [&](u32 i) {
    const u8 *e = g.memory + ring + i * 64;
    while (__atomic_load_n(e + 1, __ATOMIC_ACQUIRE) == 0) {
    }
    CHECK(e[1] == moved);
    return load_be32(e + 32 + 24);
  };
  REQUIRE(g.status(live(p.a, migration, migrated)) == 0);
  CHECK(event_of(0) == p.a);
  CHECK(field(p.a, context + 19, 2) == migrated);
  CHECK(field(p.a, primary + 64, 5) == 9);
  CHECK(field(p.a, secondary + 64, 5) == 0);
  p.write(64, 0x10000);
  CHECK(p.wait_completion() == 0);
  CHECK(event_of(1) == p.b);
  CHECK(field(p.b, context + 19, 2) == migrated);
}

TEST_CASE("A region of all addresses has its parts when they are reached for", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({0x280000 | 3}, true);
  const std::vector<u8> special = g.command(Box(0x203), 32);
  const u32 null = load_be32(special.data() + 16);
  REQUIRE(null == 0x700);
  // Parts of 1 GiB, the null key in the place of those that are not there.
  Box box = p.d.mkey(3);
  box.put(128 + 1, 1, 1).put(128 + 16, 1, 1).put(128 + 416, 32, 4).put(128 + 475, 5, 30);
  const u32 all = g.create(box) << 8;
  const auto part = [&](u32 i, u32 key, u64 address) {
    store_be32(g.memory + Paging::list + i * 16, 0);
    store_be32(g.memory + Paging::list + i * 16 + 4, key);
    store_be64(g.memory + Paging::list + i * 16 + 8, address);
  };
  for (u32 i = 0; i < 4; ++i) part(i, null, 0);
  p.change(all, true, 0, 0, 30);

  const u64 at = (u64{3} << 30) + 0x20;
  std::fill_n(g.memory + 0x290000, 64, u8{0x77});
  p.write(64, at, all);
  const u8 *fault = p.wait_event(0);
  CHECK(load_be32(fault + 32 + 4) == all);
  CHECK(load_be64(fault + 32 + 16) == at);
  part(3, p.key, 0x10000);
  p.change(all, false, 0, 0, 30);
  CHECK(p.resume(load_be32(fault + 32 + 24) & 0xffffff, false) == 0);
  CHECK(p.wait_completion() == 0);
  CHECK(g.memory[0x280020] == 0x77);
}

TEST_CASE("A work request is there when the driver rings, and not before", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({0x280000 | 3}, true);
  p.write(64, 0x10000);
  CHECK(p.wait_completion() == 0);

  u8 *first = p.wqe(0x230000, 0), *second = p.wqe(0x230000, 1);
  std::copy_n(first, 64, second);
  store_be32(second, 1 << 8 | 0x08);
  g.memory[0x290000] = 0x55;
  store_be32(g.memory + 0x220044, 2);
  // Of another queue pair, rung for.
  p.fill({0x280000 | 3}, false);
  CHECK(g.memory[0x280000] != 0x55);
  g.write_register64(uar + 0x800, load_be64(second));
  CHECK(p.wait_completion() == 0);
  CHECK(g.memory[0x280000] == 0x55);
}

// Prefetching for reading takes the right to write from a page that a request has brought.
TEST_CASE("A driver reads what its counter sets and its port have counted", "[pci_test]") {
  Guest g;
  Driver d(g);
  const u32 cq = g.create(d.cq_box(0x210000, 0x220000));
  const u32 a = g.create(d.qp_box(cq, 0x230000, 0x220040)),
            b = g.create(d.qp_box(cq, 0x240000, 0x220080));
  const u32 of_a = g.create(Box(0x771)) & 0xff, of_b = g.create(Box(0x771)) & 0xff;
  REQUIRE((of_a != 0 && of_b != 0 && of_a != of_b));
  d.connect(a, b, of_a);
  d.connect(b, a, of_b);
  CHECK(get_field(g.command(Box(0x50b).put(72, 24, b), 24 + 232).data(), 192 + 96, 8) == of_b);
  const auto query = [&](u32 set, u32 bit, bool clear = false) {
    const auto out = g.command(Box(0x773, 32).put(192, 1, clear ? 1 : 0).put(248, 8, set), 256);
    CHECK(out[0] == 0);
    return get_field(out.data(), bit, 32);
  };
  constexpr u32 writes = 0x80, requester_errors = 0x4a0, remote_access_requested = 0x540,
                remote_access_answered = 0x560;
  const auto port = [&](u32 at) { return load_be64(g.command(Box(0x770), 528).data() + at); };
  constexpr u32 received_packets = 48, sent_packets = 64, sent_octets = 72;
  const u64 received = port(received_packets), sent = port(sent_packets),
            octets = port(sent_octets);

  // A write whose key gives no right to it.
  u8 *wqe = g.memory + 0x230000 + 4 * 16;
  store_be32(wqe, 0x08);
  store_be32(wqe + 4, a << 8 | 3);
  store_be32(wqe + 8, 8);
  store_be64(wqe + 16, 0x290000);
  store_be32(wqe + 24, 0x123456);
  store_be32(wqe + 32, 64);
  store_be32(wqe + 36, d.physical);
  store_be64(wqe + 40, 0x290000);
  store_be32(g.memory + 0x220044, 1);
  g.write_register64(uar + 0x800, load_be64(wqe));
  const u8 *completion = g.memory + 0x210000;
  while (__atomic_load_n(completion + 63, __ATOMIC_ACQUIRE) >> 4 != 0xd) {
  }
  CHECK(query(of_b, writes) == 1);
  CHECK(query(of_a, writes) == 0);
  CHECK(query(of_a, requester_errors) == 1);
  CHECK(query(of_a, remote_access_requested) == 1);
  CHECK(query(of_b, remote_access_answered, true) == 1);
  CHECK(query(of_b, remote_access_answered) == 0);
  CHECK(query(of_b, writes) == 0);
  // The request, and the negative acknowledge.
  CHECK(port(received_packets) == received + 2);
  CHECK(port(sent_packets) == sent + 2);
  CHECK(port(sent_octets) == octets + (24 + 16 + 64) + (24 + 4));

  CHECK(g.status(Box(0x773, 32).put(248, 8, 200), 256) == bad_resource);
  CHECK(g.status(Box(0x773, 32).put(64, 1, 1).put(248, 8, of_a), 256) == bad_param);
  CHECK(g.status(Box(0x772).put(88, 8, of_a)) == 0);
  CHECK(g.status(Box(0x773, 32).put(248, 8, of_a), 256) == bad_resource);
}

TEST_CASE("A page with other rights, from now on, is still there", "[pci_test]") {
  Guest g;
  Paging p(g);
  p.fill({0x280000 | 1, 0x260000 | 3}, true);
  const std::lock_guard lock(process().mutex);
  Mkey &k = *process().mkeys.find(p.key);
  const auto gone_with = [&](u64 first, u64 second) {
    u8 octoword[16];
    store_be64(octoword, first);
    store_be64(octoword + 8, second);
    SpanList gone;
    REQUIRE(write_pages(process().mkeys, k, 0, octoword, 1, true, gone));
    return gone.size();
  };
  CHECK(gone_with(0x280000 | 3, 0x260000 | 3) == 0);
  CHECK(gone_with(0x280000 | 1, 0x260000 | 3) == 0);
  CHECK(gone_with(0x280000 | 3, 0x270000 | 3) == 1);
  CHECK(gone_with(0, 0) == 2);
}
