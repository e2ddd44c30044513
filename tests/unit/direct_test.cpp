// Queue entries and completion entries as images: what is written and read
// without a device.
#include "translate/queue/direct/cqe.h"
#include "translate/queue/direct/receive.h"
#include "translate/queue/direct/send.h"

#include <catch.h>

#include <numeric>
#include <vector>

using namespace ibvexp::direct;

namespace {

using Bytes = std::vector<std::uint8_t>;

struct alignas(64) Memory {
  std::uint8_t bytes[4 * block_bytes];
  Memory() { std::memset(bytes, 0xee, sizeof(bytes)); }
  Ring ring() { return {bytes, bytes + sizeof(bytes)}; }
  Bytes at(std::size_t offset, std::size_t count) const {
    Bytes out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(bytes[(offset + i) % sizeof(bytes)]);
    return out;
  }
};

// A send queue of four blocks over plain memory.
struct Queue {
  Memory memory;
  std::uint32_t record[2] = {};
  std::uint64_t page = 0;
  ibv_qp qp{};
  Endpoint endpoint;

  explicit Queue(bool raw_packet) {
    qp.qp_type = raw_packet ? IBV_QPT_RAW_PACKET : IBV_QPT_RC;
    qp.state = IBV_QPS_RTS;
    endpoint.qp = &qp;
    endpoint.raw_packet = raw_packet;
    SendQueue &q = endpoint.send;
    q.ring = memory.ring();
    q.blocks = 4;
    q.number = 0x123456 << 8;
    q.max_inline = 100;
    q.refused = ~(burst_flags & ~std::uint32_t{IBV_EXP_QP_BURST_TUNNEL});
    q.record = record;
    q.page = &page;
    q.ids = std::make_unique<std::uint64_t[]>(4);
  }
};

Bytes counted(std::size_t n, std::uint8_t first = 1) {
  Bytes out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

ibv_sge piece_of(const Bytes &data, std::uint32_t lkey) {
  return {reinterpret_cast<std::uintptr_t>(data.data()), static_cast<std::uint32_t>(data.size()),
          lkey};
}

Bytes big(std::uint64_t value, int bytes) {
  Bytes out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  return out;
}

Bytes operator+(Bytes a, const Bytes &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// As the device reads it.
Bytes control(std::uint16_t index, std::uint8_t opcode, unsigned segments, std::uint8_t flags,
              std::uint32_t imm = 0) {
  return Bytes{0} + big(index, 2) + Bytes{opcode} + big(0x123456, 3) +
         Bytes{static_cast<std::uint8_t>(segments)} + Bytes{0, 0, 0, flags} + big(imm, 4);
}
Bytes pointer(std::uint32_t length, std::uint32_t lkey, std::uint64_t address) {
  return big(length, 4) + big(lkey, 4) + big(address, 8);
}

}  // namespace

// [row:IBV_EXP_QP_BURST_SIGNALED]
TEST_CASE("a frame by pointer is one block: control, header, pointer", "[direct][wqe]") {
  Queue q(true);
  const Bytes frame = counted(200);
  const auto at = reinterpret_cast<std::uintptr_t>(frame.data());
  REQUIRE(put_piece<true>(q.endpoint, at, 200, 0xabcd,
                          IBV_EXP_QP_BURST_SIGNALED | IBV_EXP_QP_BURST_IP_CSUM) == 0);
  const Bytes header(frame.begin(), frame.begin() + 18);
  CHECK(q.memory.at(0, 64) == control(0, 0x0a, 4, 0x08) + Bytes{0, 0, 0, 0, 0xc0, 0, 0, 0} +
                                  big(0, 4) + big(18, 2) + header + pointer(182, 0xabcd, at + 18));
  CHECK(q.endpoint.send.posted == 1);

  // The general function writes the same.
  Queue other(true);
  const ibv_sge piece = piece_of(frame, 0xabcd);
  REQUIRE(put_send(other.endpoint, &piece, 1, IBV_EXP_QP_BURST_SIGNALED | IBV_EXP_QP_BURST_IP_CSUM,
                   nullptr, false) == 0);
  CHECK(other.memory.at(0, 64) == q.memory.at(0, 64));
}

// [row:IBV_EXP_QP_BURST_FENCE][row:IBV_EXP_QP_BURST_SOLICITED]
TEST_CASE("a message by pointer is a control segment and a pointer", "[direct][wqe]") {
  Queue q(false);
  REQUIRE(put_piece<false>(q.endpoint, 0x1122334455667788, 5, 7,
                           IBV_EXP_QP_BURST_SOLICITED | IBV_EXP_QP_BURST_FENCE) == 0);
  CHECK(q.memory.at(0, 32) == control(0, 0x0a, 2, 0x82) + pointer(5, 7, 0x1122334455667788));
}

TEST_CASE("inline data goes around the end of the ring", "[direct][wqe]") {
  Queue q(false);
  for (int i = 0; i < 3; ++i) REQUIRE(put_piece<false>(q.endpoint, 64, 1, 1, 0) == 0);
  q.endpoint.send.done = 3;
  Bytes data = counted(70);
  const ibv_sge piece = piece_of(data, 0);
  REQUIRE(put_send(q.endpoint, &piece, 1, 0, nullptr, true) == 0);
  const Bytes expected = control(3, 0x0a, 6, 0) + big(0x80000000 | 70, 4) + data;
  CHECK(q.memory.at(3 * 64, expected.size()) == expected);
  CHECK(q.endpoint.send.posted == 5);
  CHECK(q.endpoint.send.room() == 2);
}

TEST_CASE("a VLAN tag goes behind the addresses, whatever the pieces", "[direct][wqe]") {
  const Bytes frame = counted(60);
  const std::uint16_t tci = 0x6abc;
  const auto at = reinterpret_cast<std::uintptr_t>(frame.data());
  for (const std::uint32_t cut : {1u, 11u, 12u, 13u, 14u, 15u, 59u}) {
    INFO(cut);
    Queue q(true);
    const ibv_sge list[2] = {{at, cut, 1}, {at + cut, 60 - cut, 2}};
    REQUIRE(put_send(q.endpoint, list, 2, 0, &tci, false) == 0);
    Bytes header(frame.begin(), frame.begin() + 12);
    header = header + Bytes{0x81, 0x00, 0x6a, 0xbc} + Bytes{frame[12], frame[13]};
    const Bytes rest = cut > 14 ? pointer(cut - 14, 1, at + 14) + pointer(60 - cut, 2, at + cut)
                                : pointer(46, 2, at + 14);
    const unsigned segments = cut > 14 ? 5 : 4;
    CHECK(q.memory.at(0, segments * 16) ==
          control(0, 0x0a, segments, 0) + Bytes(12, 0) + big(18, 2) + header + rest);
  }
}

TEST_CASE("a short frame is all header", "[direct][wqe]") {
  Queue q(true);
  const Bytes frame = counted(16);
  REQUIRE(put_piece<true>(q.endpoint, reinterpret_cast<std::uintptr_t>(frame.data()), 16, 1, 0) ==
          0);
  CHECK(q.memory.at(0, 48) ==
        control(0, 0x0a, 3, 0) + Bytes(12, 0) + big(16, 2) + frame + Bytes{0, 0});
}

TEST_CASE("requests of the verbs have their remote parts", "[direct][wqe]") {
  Queue q(false);
  const Bytes data(8);
  ibv_sge piece = piece_of(data, 9);
  ibv_send_wr wr{};
  wr.wr_id = 77;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  SECTION("write with immediate") {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = be(std::uint32_t{0x11223344});
    wr.wr.rdma = {0x8877665544332211, 0xcafe};
    REQUIRE(put_request(q.endpoint, wr) == 0);
    CHECK(q.memory.at(0, 48) == control(0, 0x09, 3, 8, 0x11223344) + big(0x8877665544332211, 8) +
                                    big(0xcafe, 4) + big(0, 4) + pointer(8, 9, piece.addr));
  }
  SECTION("compare and swap") {
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic = {0x10, 0x20, 0x30, 0x40};
    REQUIRE(put_request(q.endpoint, wr) == 0);
    CHECK(q.memory.at(0, 64) == control(0, 0x11, 4, 8) + big(0x10, 8) + big(0x40, 4) + big(0, 4) +
                                    big(0x30, 8) + big(0x20, 8) + pointer(8, 9, piece.addr));
  }
  SECTION("fetch and add, of 8 bytes only") {
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic = {0x10, 0x20, 0x30, 0x40};
    REQUIRE(put_request(q.endpoint, wr) == 0);
    CHECK(q.memory.at(32, 16) == big(0x20, 8) + big(0, 8));
    piece.length = 7;
    CHECK(put_request(q.endpoint, wr) == EINVAL);
  }
  SECTION("what the writer does not know") {
    for (const ibv_wr_opcode opcode :
         {IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_DRIVER1}) {
      wr.opcode = opcode;
      CHECK(put_request(q.endpoint, wr) == EOPNOTSUPP);
    }
    q.qp.qp_type = IBV_QPT_UC;
    wr.opcode = IBV_WR_RDMA_READ;
    CHECK(put_request(q.endpoint, wr) == EOPNOTSUPP);
    CHECK(q.endpoint.send.posted == 0);
  }
  if (q.endpoint.send.posted != 0) CHECK(q.endpoint.send.ids[0] == 77);
}

TEST_CASE("nothing is written without room, and a refusal leaves no trace", "[direct][wqe]") {
  Queue q(false);
  Bytes data = counted(101);
  const ibv_sge piece = piece_of(data, 0);
  CHECK(put_send(q.endpoint, &piece, 1, 0, nullptr, true) == ENOMEM);  // longer than promised
  for (int i = 0; i < 4; ++i) REQUIRE(put_piece<false>(q.endpoint, 64, 1, 1, 0) == 0);
  CHECK(put_piece<false>(q.endpoint, 64, 1, 1, 0) == ENOMEM);
  q.endpoint.send.done = 1;
  const ibv_sge three[3] = {piece, piece, piece};
  // Four segments fit one block, seven do not.
  CHECK(put_send(q.endpoint, three, 3, 0, nullptr, false) == 0);
  CHECK(put_send(q.endpoint, three, 3, 0, nullptr, false) == ENOMEM);
  CHECK(put_piece<false>(q.endpoint, 64, 1, 1, IBV_EXP_QP_BURST_TUNNEL) == ENOTSUP);
  CHECK(put_piece<false>(q.endpoint, 64, 1, 1, 1u << 20) == EINVAL);
}

TEST_CASE("the doorbell repeats the last entry", "[direct][wqe]") {
  Queue q(false);
  q.endpoint.send.posted = q.endpoint.send.rung = q.endpoint.send.done = 0xffff;
  for (int i = 0; i < 3; ++i) REQUIRE(put_piece<false>(q.endpoint, 64, 1, 1, 0) == 0);
  CHECK(q.record[1] == 0);
  q.endpoint.send.record = &q.record[1];
  q.endpoint.send.ring_doorbell();
  CHECK(q.record[1] == be(std::uint32_t{2}));  // wrapped
  CHECK(q.page == load<std::uint64_t>(q.memory.bytes + 64));
}

TEST_CASE("receive entries end their lists", "[direct][wqe]") {
  std::uint8_t memory[4 * 64] = {};
  std::uint32_t record = 0;
  ReceiveQueue queue;
  queue.buffer = memory;
  queue.entries = 4;
  queue.entry_bytes = 64;
  queue.record = &record;
  queue.ids = std::make_unique<std::uint64_t[]>(4);
  const ibv_sge list[5] = {
      {0x1000, 10, 1}, {0x2000, 0, 2}, {0x3000, 30, 3}, {0x4000, 40, 4}, {0x5000, 50, 5}};
  REQUIRE(put_receive(queue, list, 3, 42) == 0);
  const Bytes got(memory, memory + 48);
  CHECK(got == pointer(10, 1, 0x1000) + pointer(30, 3, 0x3000) + pointer(0, 0x100, 0));
  CHECK(queue.ids[0] == 42);
  CHECK(put_receive(queue, list, 5, 0) == EINVAL);
  for (int i = 0; i < 3; ++i) CHECK(put_receive(queue, list, 4, 0) == 0);
  CHECK(put_receive(queue, list, 1, 0) == ENOMEM);
  queue.ring_doorbell();
  CHECK(record == be(std::uint32_t{4}));
}

// [row:IBV_EXP_CQ_RX_IPV6_PACKET][row:IBV_EXP_CQ_RX_OUTER_IPV4_PACKET]
// [row:IBV_EXP_CQ_RX_OUTER_IPV6_PACKET][row:IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK]
// [row:IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK][row:IBV_EXP_CQ_RX_TCP_PACKET]
// [row:IBV_EXP_CQ_RX_TUNNEL_PACKET]
TEST_CASE("flags of a frame", "[direct][cqe]") {
  constexpr std::uint8_t ok = 7, l3 = 2, l4 = 4;
  constexpr std::uint8_t ipv4 = 2 << 2, ipv6 = 1 << 2, tcp = 1 << 4, udp = 2 << 4, tcp_ack = 4 << 4;
  constexpr auto good = IBV_EXP_CQ_RX_IP_CSUM_OK | IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK;
  CHECK(receive_flags(ok, ipv4 | udp, 0) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET | good));
  CHECK(receive_flags(ok, ipv6 | tcp, 0) ==
        (IBV_EXP_CQ_RX_IPV6_PACKET | IBV_EXP_CQ_RX_TCP_PACKET | good));
  CHECK(receive_flags(l3, ipv4 | tcp_ack, 0) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_TCP_PACKET | IBV_EXP_CQ_RX_IP_CSUM_OK));
  CHECK(receive_flags(l4, ipv4 | udp, 0) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET | IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK));
  CHECK(receive_flags(ok, 0, 0) == 0);
  CHECK(receive_flags(ok, 1, 0) == IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1);
  CHECK(receive_flags(ok, ipv4 | udp, 3) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET | good | IBV_EXP_CQ_RX_TUNNEL_PACKET |
         IBV_EXP_CQ_RX_OUTER_IPV6_PACKET | IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK |
         IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK));
  CHECK((receive_flags(0, ipv4, 1) & ~IBV_EXP_CQ_RX_IPV4_PACKET) ==
        (IBV_EXP_CQ_RX_TUNNEL_PACKET | IBV_EXP_CQ_RX_OUTER_IPV4_PACKET));
}

TEST_CASE("the table of flags says what the rules say", "[direct][cqe]") {
  std::uint8_t raw[64] = {};
  for (unsigned headers = 0; headers < 256; ++headers)
    for (unsigned checks = 0; checks < 8; ++checks)
      for (const std::uint8_t tunnel : {0, 1, 3}) {
        raw[0] = tunnel;
        raw[28] = static_cast<std::uint8_t>(checks);
        raw[29] = static_cast<std::uint8_t>(headers);
        REQUIRE(receive_flags(Cqe(raw)) == receive_flags(raw[28], raw[29], tunnel));
      }
}

TEST_CASE("strides of a completion", "[direct][cqe]") {
  std::uint8_t raw[64] = {};
  store(raw + 60, be(std::uint16_t{300}));
  store(raw + 44, be(std::uint32_t{24u << 16 | 1500}));
  Strides s = strides_of(Cqe(raw));
  CHECK(s.first == 300);
  CHECK(s.consumed == 24);
  CHECK(s.bytes == 1500);
  CHECK_FALSE(s.filler);
  CHECK(strides_of(Cqe(raw), 2).bytes == 1498);
  ReceiveQueue queue;
  queue.strides = 324;
  CHECK(ends_entry(queue, s));
  queue.strides = 325;
  CHECK_FALSE(ends_entry(queue, s));
  store(raw + 44, be(std::uint32_t{1u << 31 | 25u << 16}));
  s = strides_of(Cqe(raw), 2);
  CHECK(s.filler);
  CHECK(s.bytes == 0);
  CHECK(ends_entry(queue, s));
}

TEST_CASE("a completed request frees its blocks and those before it", "[direct][cqe]") {
  Queue q(false);
  Bytes data = counted(90);
  const ibv_sge piece = piece_of(data, 0);
  REQUIRE(put_piece<false>(q.endpoint, 64, 1, 1, 0) == 0);
  REQUIRE(put_send(q.endpoint, &piece, 1, 0, nullptr, true) == 0);  // two blocks
  CHECK(q.endpoint.send.room() == 1);
  std::uint8_t raw[64] = {};
  store(raw + 60, be(std::uint16_t{1}));
  complete_send(q.endpoint.send, Cqe(raw));
  CHECK(q.endpoint.send.done == 3);
  CHECK(q.endpoint.send.room() == 4);
}

TEST_CASE("compressed completions are unpacked in their places", "[direct][cqe]") {
  for (const std::size_t size : {std::size_t{64}, std::size_t{128}}) {
    for (const std::uint32_t count : {2u, 7u, 8u, 9u, 16u, 20u}) {
      for (const std::uint32_t start : {0u, 20u, 31u}) {
        INFO(size << " " << count << " " << start);
        Bytes ring(32 * size, 0xee);
        const auto slot = [&](std::uint32_t k) {
          return ring.data() + (start + k) % 32 * size + (size - 64);
        };
        const auto owner = [&](std::uint32_t k) {
          return static_cast<std::uint8_t>((start + k) / 32 & 1);
        };
        std::uint8_t *title = slot(0);
        for (int i = 0; i < 63; ++i) title[i] = static_cast<std::uint8_t>(i);
        store(title + 44, be(count));
        store(title + 60, be(std::uint16_t{0xfffe}));
        title[63] = static_cast<std::uint8_t>(2 << 4 | 0xc | owner(0));
        for (std::uint32_t i = 0; i < count; ++i) {
          std::uint8_t *mini = slot(i < 8 ? 1 : i / 8 * 8) + i % 8 * 8;
          store(mini, std::uint32_t{0xdddddddd});
          store(mini + 4, be(std::uint32_t{100 + i}));
        }
        decompress(slot, owner, 32, false);
        for (std::uint32_t i = 0; i < count; ++i) {
          const Cqe cqe(slot(i));
          CHECK(cqe.byte_count() == 100 + i);
          CHECK(cqe.counter() == static_cast<std::uint16_t>(0xfffe + i));
          CHECK(cqe.op_own() == (2 << 4 | owner(i)));
          CHECK(cqe.timestamp() == 0);
          CHECK(cqe.headers() == 29);
          CHECK(cqe.user_index() == 0x212223);
        }
      }
    }
  }
}

TEST_CASE("a broken title stands for one completion at least, and for a queue full at most",
          "[direct][cqe]") {
  for (const std::uint32_t written : {0u, 33u, 0xffffffffu}) {
    Bytes ring(32 * 64, 0xee);
    std::uint32_t slots = 0, owners = 0;
    const auto slot = [&](std::uint32_t k) {
      ++slots;
      return ring.data() + k % 32 * 64;
    };
    const auto owner = [&](std::uint32_t) { return static_cast<std::uint8_t>(++owners & 0); };
    std::memset(ring.data(), 0, 64);
    store(ring.data() + 44, be(written));
    ring[63] = 2 << 4 | 0xc;
    decompress(slot, owner, 32, false);
    CHECK(owners == (written == 0 ? 1 : 32));
    CHECK(slots < 64);
    CHECK_FALSE(is_compressed(ring[63]));
  }
}

TEST_CASE("compressed completions of many packets go on by strides", "[direct][cqe]") {
  constexpr std::uint32_t count = 12;
  Bytes ring(32 * 64, 0xee);
  const auto slot = [&](std::uint32_t k) { return ring.data() + k % 32 * 64; };
  const auto owner = [](std::uint32_t) { return std::uint8_t{0}; };
  std::uint8_t *title = slot(0);
  std::memset(title, 0, 64);
  store(title + 44, be(count));
  store(title + 60, be(std::uint16_t{500}));
  title[63] = static_cast<std::uint8_t>(2 << 4 | 0xc);
  const auto strides = [](std::uint32_t i) { return 1 + i % 5; };
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint8_t *mini = slot(i < 8 ? 1 : i / 8 * 8) + i % 8 * 8;
    store(mini, std::uint32_t{0});
    store(mini + 4, be(strides(i) << 16 | (60 + i)));
  }
  decompress(slot, owner, 32, true);
  std::uint32_t at = 500;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Strides s = strides_of(Cqe(slot(i)));
    CHECK(s.first == at);
    CHECK(s.consumed == strides(i));
    CHECK(s.bytes == 60 + i);
    at += strides(i);
  }
}

TEST_CASE("data of a completion is scattered over the request", "[direct][cqe]") {
  Bytes a(10), b(100);
  std::uint8_t list[64];
  write_data(list, reinterpret_cast<std::uintptr_t>(a.data()), 10, 1);
  write_data(list + 16, reinterpret_cast<std::uintptr_t>(b.data()), 15, 1);
  write_end(list + 32);
  const Bytes data = counted(32);
  CHECK(scatter_inline(list, 4, data.data(), 25));
  CHECK(a == Bytes(data.begin(), data.begin() + 10));
  CHECK(Bytes(b.begin(), b.begin() + 15) == Bytes(data.begin() + 10, data.begin() + 25));
  CHECK(b[15] == 0);
  CHECK_FALSE(scatter_inline(list, 4, data.data(), 26));
}
