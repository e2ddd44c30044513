// Send requests as the device reads them, byte by byte, from both layouts.
#include <cerrno>

#include "engine_rig.h"
#include "translate/convert/wr_convert.h"
#include "translate/queue/engine/frames.h"
#include "translate/queue/engine/special.h"
#include "translate/queue/faces.h"
#include "translate/queue/front.h"

using namespace engine_rig;

namespace {

// Posts in the base layout, then the same in the legacy one: the images and the
// doorbells are to be equal.
Bytes image(Transport transport, Request &wr, std::size_t bytes, std::uint32_t from = 0,
            QpFacts facts = {}) {
  SendRig base(transport, facts), exp(transport, facts);
  base.advance(from);
  exp.advance(from);
  REQUIRE(base.post(&wr) == 0);
  ibv_exp_send_wr legacy = to_exp(wr);
  REQUIRE(exp.post(&legacy) == 0);
  CHECK(base.at(from, bytes) == exp.at(from, bytes));
  CHECK(base.record() == exp.record());
  CHECK(base.rung() == exp.rung());
  // The doorbell repeats the head of the entry.
  CHECK(exp.rung() == exp.at(from, 8));
  CHECK(exp.queue.sent[from & 7].wr_id == wr.wr_id);
  return exp.at(from, bytes);
}

constexpr std::uint8_t signaled = 8, solicited = 2, fenced = 0x80;

struct alignas(8) AddressHandle {
  ibv_ah ah{};
  std::uint8_t vector[48];
  AddressHandle() { std::iota(vector, vector + 48, std::uint8_t{0x40}); }
};

Bytes vector_with(const AddressHandle &handle, const Bytes &key, std::uint32_t to) {
  return key + big(to | 0x80000000u, 4) + Bytes(handle.vector + 12, handle.vector + 48);
}

}  // namespace

TEST_CASE("engine: requests of connected queue pairs") {
  const std::vector<ibv_sge> one{{0x1000, 64, 0xabc}};
  const Bytes data = pointer(0x1000, 64, 0xabc);

  SECTION("send") {
    Request wr(IBV_WR_SEND, IBV_SEND_SIGNALED, one);
    CHECK(image(Transport::rc, wr, 32) == control(0, 0x0a, 2, signaled) + data);
  }
  SECTION("send with immediate data, which is in network order already") {
    Request wr(IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED, one);
    wr.imm_data = be(0x01020304u);
    CHECK(image(Transport::rc, wr, 32) == control(0, 0x0b, 2, solicited, 0x01020304) + data);
    CHECK(image(Transport::uc, wr, 32) == control(0, 0x0b, 2, solicited, 0x01020304) + data);
  }
  SECTION("send that invalidates a key, which is not") {
    Request wr(IBV_WR_SEND_WITH_INV, 0, one);
    wr.invalidate_rkey = 0x01020304;
    CHECK(image(Transport::rc, wr, 32) == control(0, 0x01, 2, 0, 0x01020304) + data);
  }
  SECTION("write") {
    Request wr(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_FENCE, one);
    wr.rdma(0xfedcba9876543210, 0x55);
    const Bytes expected =
        control(0, 0x08, 3, signaled | fenced) + remote(0xfedcba9876543210, 0x55) + data;
    CHECK(image(Transport::rc, wr, 48) == expected);
    CHECK(image(Transport::uc, wr, 48) == expected);
  }
  SECTION("write with immediate data") {
    Request wr(IBV_WR_RDMA_WRITE_WITH_IMM, 0, one);
    wr.imm_data = be(9u);
    wr.rdma(1, 2);
    CHECK(image(Transport::rc, wr, 48) == control(0, 0x09, 3, 0, 9) + remote(1, 2) + data);
  }
  SECTION("read: inline data mean nothing") {
    Request wr(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED | IBV_SEND_INLINE, one);
    wr.rdma(1, 2);
    CHECK(image(Transport::rc, wr, 48) == control(0, 0x10, 3, signaled) + remote(1, 2) + data);
  }
  SECTION("atomics bring eight bytes, whatever the piece says") {
    Request wr(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, one);
    wr.wr.atomic = {0x20, 0x11, 0x22, 0x33};
    CHECK(image(Transport::rc, wr, 64) == control(0, 0x11, 4, signaled) + remote(0x20, 0x33) +
                                              big(0x22, 8) + big(0x11, 8) +
                                              pointer(0x1000, 8, 0xabc));
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    CHECK(image(Transport::rc, wr, 64) == control(0, 0x12, 4, signaled) + remote(0x20, 0x33) +
                                              big(0x11, 8) + zeros(8) + pointer(0x1000, 8, 0xabc));
  }
  SECTION("each piece of an atomic that has some bytes, over the end of the ring") {
    Request wr(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, {{0x1000, 8, 1}, {0x2000, 0, 2}, {0x3000, 8, 3}});
    wr.wr.atomic = {0x20, 0x11, 0, 0x33};
    CHECK(image(Transport::rc, wr, 80, 7) == control(7, 0x12, 5, 0) + remote(0x20, 0x33) +
                                                 big(0x11, 8) + zeros(8) + pointer(0x1000, 8, 1) +
                                                 pointer(0x3000, 8, 3));
  }
  SECTION("nothing to send") {
    Request wr(IBV_WR_SEND, 0);
    CHECK(image(Transport::rc, wr, 16) == control(0, 0x0a, 1, 0));
    Request empty(IBV_WR_SEND, 0, {{0x1000, 0, 1}});
    CHECK(image(Transport::rc, empty, 16) == control(0, 0x0a, 1, 0));
    Request empty_inline(IBV_WR_SEND, IBV_SEND_INLINE, {{0x1000, 0, 1}});
    CHECK(image(Transport::rc, empty_inline, 16) == control(0, 0x0a, 1, 0));
  }
  SECTION("a queue pair that signals everything") {
    QpFacts facts;
    facts.all_signaled = true;
    Request wr(IBV_WR_SEND, 0, one);
    CHECK(image(Transport::rc, wr, 32, 0, facts) == control(0, 0x0a, 2, signaled) + data);
  }
}

TEST_CASE("engine: several pieces, over the end of the ring") {
  Request wr(IBV_WR_RDMA_WRITE, 0, {{0x10, 1, 1}, {0x20, 0, 2}, {0x30, 3, 3}, {0x40, 4, 4}});
  wr.rdma(5, 6);
  // The last block of the ring: the fifth segment is the first of the ring.
  CHECK(image(Transport::rc, wr, 80, 7) == control(7, 0x08, 5, 0) + remote(5, 6) +
                                               pointer(0x10, 1, 1) + pointer(0x30, 3, 3) +
                                               pointer(0x40, 4, 4));
}

TEST_CASE("engine: inline data") {
  const Bytes a = counted(20), b = counted(50, 100);
  Request wr(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, {piece_of(a), piece_of(b)});
  wr.rdma(5, 6);
  const Bytes expected =
      control(7, 0x08, 2 + 5, 0) + remote(5, 6) + big(0x80000000u | 70, 4) + a + b;
  SECTION("over the end of the ring") { CHECK(image(Transport::rc, wr, 106, 7) == expected); }
  SECTION("its first eight bytes ring the doorbell") {
    SendRig rig(Transport::rc);
    rig.advance(7);
    REQUIRE(rig.post(&wr) == 0);
    CHECK(rig.rung() == Bytes(expected.begin(), expected.begin() + 8));
    CHECK(rig.record() == 9);
  }
  SECTION("too much of it") {
    const Bytes much(101);
    Request long_one(IBV_WR_SEND, IBV_SEND_INLINE, {piece_of(much)});
    SendRig rig(Transport::rc);
    ibv_send_wr *bad = nullptr;
    CHECK(rig.post(&long_one, &bad) == ENOMEM);
    CHECK(bad == &long_one);
    CHECK(rig.record() == 0);
  }
}

TEST_CASE("engine: datagrams, XRC and DC") {
  AddressHandle handle;
  const std::vector<ibv_sge> one{{0x1000, 64, 0xabc}};
  const Bytes data = pointer(0x1000, 64, 0xabc);

  SECTION("UD, from the last block on") {
    Request wr(IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, one);
    wr.imm_data = be(3u);
    wr.wr.ud = {&handle.ah, 0x654321, 0x80010000};
    CHECK(image(Transport::ud, wr, 80, 7) ==
          control(7, 0x0b, 5, signaled, 3) +
              vector_with(handle, big(0x80010000, 4) + zeros(4), 0x654321) + data);
  }
  SECTION("XRC: an atomic fills a block") {
    Request wr(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, one);
    wr.qp_type.xrc.remote_srqn = 0x777;
    wr.wr.atomic = {0x20, 0x11, 0x22, 0x33};
    CHECK(image(Transport::xrc, wr, 80, 7) == control(7, 0x12, 5, 0) + big(0x777, 4) + zeros(12) +
                                                  remote(0x20, 0x33) + big(0x11, 8) + zeros(8) +
                                                  pointer(0x1000, 8, 0xabc));
  }
  SECTION("DC: only the legacy layout has a place for the destination") {
    Request wr(IBV_WR_RDMA_WRITE, 0, one);
    wr.rdma(5, 6);
    SendRig rig(Transport::dc);
    CHECK(rig.post(&wr) == EINVAL);
    ibv_exp_send_wr exp = to_exp(wr);
    exp.dc = {&handle.ah, 0x0102030405060708, 0x987654};
    rig.advance(7);
    REQUIRE(rig.post(&exp) == 0);
    CHECK(rig.at(7, 96) == control(7, 0x08, 6, 0) +
                               vector_with(handle, big(0x0102030405060708, 8), 0x987654) +
                               remote(5, 6) + data);
    exp.dc.ah = nullptr;
    CHECK(rig.post(&exp) == EINVAL);
  }
}

TEST_CASE("engine: frames") {
  const Bytes frame = counted(64);
  const auto address = reinterpret_cast<std::uintptr_t>(frame.data());
  const auto ethernet = [&](std::uint8_t checksums, std::size_t bytes) {
    return zeros(4) + Bytes{checksums} + zeros(7) + big(bytes, 2) +
           Bytes(frame.begin(), frame.begin() + 18);
  };
  QpFacts facts;
  facts.checksums = true;

  SECTION("the header lies in the entry") {
    Request wr(IBV_WR_SEND, IBV_SEND_SIGNALED, {piece_of(frame)});
    CHECK(image(Transport::raw_packet, wr, 64) ==
          control(0, 0x0a, 4, signaled) + ethernet(0, 18) + pointer(address + 18, 46, 7));
  }
  SECTION("with checksums") {
    Request wr(IBV_WR_SEND, IBV_SEND_IP_CSUM, {piece_of(frame)});
    CHECK(image(Transport::raw_packet, wr, 64, 0, facts) ==
          control(0, 0x0a, 4, 0) + ethernet(0xc0, 18) + pointer(address + 18, 46, 7));
    SendRig rig(Transport::raw_packet);
    CHECK(rig.post(&wr) == EINVAL);
  }
  SECTION("in pieces shorter than the header") {
    Request wr(IBV_WR_SEND, 0, {{address, 10, 7}, {address + 10, 20, 8}, {address + 30, 5, 9}});
    CHECK(image(Transport::raw_packet, wr, 80) == control(0, 0x0a, 5, 0) + ethernet(0, 18) +
                                                      pointer(address + 18, 12, 8) +
                                                      pointer(address + 30, 5, 9));
  }
  SECTION("inline") {
    Request wr(IBV_WR_SEND, IBV_SEND_INLINE, {piece_of(frame)});
    CHECK(image(Transport::raw_packet, wr, 48 + 4 + 46) ==
          control(0, 0x0a, 3 + 4, 0) + ethernet(0, 18) + big(0x80000000u | 46, 4) +
              Bytes(frame.begin() + 18, frame.end()));
  }
  SECTION("shorter than what otherwise lies in the entry") {
    Request wr(IBV_WR_SEND, 0, {{address, 16, 7}});
    CHECK(image(Transport::raw_packet, wr, 48) == control(0, 0x0a, 3, 0) + zeros(12) + big(16, 2) +
                                                      Bytes(frame.begin(), frame.begin() + 16) +
                                                      zeros(2));
  }
  SECTION("nothing that short is a frame") {
    Request wr(IBV_WR_SEND, 0, {{address, 13, 7}});
    SendRig rig(Transport::raw_packet);
    CHECK(rig.post(&wr) == EINVAL);
  }
}

TEST_CASE("engine: messages that the device cuts") {
  const Bytes header = counted(54), data = counted(200, 60);
  Request wr(IBV_WR_TSO, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM, {piece_of(data)});
  wr.tso = {const_cast<std::uint8_t *>(header.data()), 54, 1400};
  ibv_exp_send_wr exp = to_exp(wr);
  exp.exp_opcode = IBV_EXP_WR_TSO;
  exp.tso.hdr = const_cast<std::uint8_t *>(header.data());
  exp.tso.hdr_sz = 54;
  exp.tso.mss = 1400;
  QpFacts facts;
  facts.checksums = true;
  SendRig rig(Transport::raw_packet, facts);
  rig.queue.max_tso_header = 54;

  SECTION("header and size of the pieces lie in the entry") {
    const Bytes expected = control(0, 0x0e, 7, signaled) + zeros(4) + Bytes{0xc0} + zeros(1) +
                           big(1400, 2) + zeros(4) + big(54, 2) + header + zeros(12) +
                           pointer(piece_of(data).addr, 200, 7);
    REQUIRE(rig.post(&wr) == 0);
    CHECK(rig.at(0, 112) == expected);
    rig.finish();
    *rig.queue.posted = 0;
    REQUIRE(rig.post(&exp) == 0);
    CHECK(rig.at(0, 112) == expected);
    wr.send_flags = exp.exp_send_flags = 0;
    *rig.queue.posted = 0;
    REQUIRE(rig.post(&wr) == 0);
    CHECK(rig.at(0, 32) == control(0, 0x0e, 7, 0) + zeros(6) + big(1400, 2) + zeros(4) +
                               big(54, 2) + Bytes(header.begin(), header.begin() + 2));
  }
  SECTION("not with a longer header, or one that is none") {
    exp.tso.hdr_sz = 55;
    CHECK(rig.post(&exp) == EINVAL);
    exp.tso.hdr_sz = 13;
    CHECK(rig.post(&exp) == EINVAL);
  }
  SECTION("not with checksums that the device does not fill in") {
    rig.queue.checksums = false;
    CHECK(rig.post(&wr) == EINVAL);
    CHECK(rig.post(&exp) == EINVAL);
  }
  SECTION("not where there are no frames") {
    SendRig connected(Transport::rc);
    connected.queue.max_tso_header = 54;
    wr.send_flags = 0;
    exp.exp_send_flags = 0;
    CHECK(connected.post(&wr) == EINVAL);
    // Experimental ones are for the device to refuse.
    REQUIRE(connected.post(&exp) == 0);
    CHECK(connected.at(0, 16) == control(0, 0x0e, 1, 0));
  }
}

TEST_CASE("engine: kinds that a transport does not have are for the device to refuse") {
  struct Row {
    Transport transport;
    std::uint32_t opcode;
    std::uint8_t device;
    std::uint32_t completion_opcode;
    bool base;
  };
  const Row rows[] = {
      {Transport::uc, IBV_EXP_WR_RDMA_READ, 0x10, 0, true},
      {Transport::uc, IBV_EXP_WR_ATOMIC_CMP_AND_SWP, 0x11, 0, true},
      {Transport::ud, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, 0x12, 0, true},
      {Transport::ud, IBV_EXP_WR_RDMA_WRITE, 0x08, 0, true},
      {Transport::ud, IBV_EXP_WR_RDMA_WRITE_WITH_IMM, 0x09, 0, true},
      {Transport::ud, IBV_EXP_WR_SEND_WITH_INV, 0x01, 0, true},
      {Transport::ud, IBV_EXP_WR_LOCAL_INV, 0x25, IBV_EXP_WC_LOCAL_INV, true},
      {Transport::ud, IBV_EXP_WR_BIND_MW, 0x25, IBV_EXP_WC_BIND_MW, true},
      {Transport::uc, IBV_EXP_WR_TSO, 0x0e, 0, false},
      {Transport::uc, IBV_EXP_WR_UMR_FILL, 0x25, IBV_EXP_WC_UMR, false},
      {Transport::ud, IBV_EXP_WR_UMR_INVALIDATE, 0x25, IBV_EXP_WC_UMR, false},
      // Numbers without a kind.
      {Transport::rc, 10, 0x00, 0, false},
      {Transport::ud, 0x5f, 0x00, 0, false},
  };
  for (const Row &row : rows) {
    CAPTURE(row.opcode);
    Request plain(static_cast<ibv_wr_opcode>(row.opcode), IBV_SEND_SIGNALED, {{0x1000, 64, 0xabc}});
    // In the place of an address handle.
    plain.wr.rdma = {0x77, 0x88};
    const Bytes expected = control(0, row.device, 1, signaled);
    SendRig base(row.transport), exp(row.transport);
    CHECK(base.post(&plain) == (row.base ? 0 : EINVAL));
    if (row.base) CHECK(base.at(0, 16) == expected);
    ibv_exp_send_wr wr = to_exp(plain);
    REQUIRE(exp.post(&wr) == 0);
    CHECK(exp.at(0, 16) == expected);
    CHECK(exp.record() == 1);
    CHECK(exp.queue.sent[0].completion_opcode() == row.completion_opcode);
  }
}

TEST_CASE("engine: less than no pieces are none, and checksums are for packets") {
  Request wr(IBV_WR_SEND, IBV_SEND_SIGNALED, {{0x1000, 64, 0xabc}});
  wr.num_sge = -1;
  ibv_exp_send_wr exp = to_exp(wr);
  const auto check = [&](const Bytes &expected) {
    SendRig first(Transport::rc), second(Transport::rc);
    REQUIRE(first.post(&wr) == 0);
    CHECK(first.at(0, expected.size()) == expected);
    REQUIRE(second.post(&exp) == 0);
    CHECK(second.at(0, expected.size()) == expected);
  };
  SECTION("a message") { check(control(0, 0x0a, 1, signaled)); }
  SECTION("inline, without a list") {
    wr.send_flags |= IBV_SEND_INLINE;
    wr.sg_list = nullptr;
    exp = to_exp(wr);
    exp.sg_list = nullptr;
    check(control(0, 0x0a, 1, signaled));
  }
  SECTION("a read") {
    wr.opcode = IBV_WR_RDMA_READ;
    exp.exp_opcode = IBV_EXP_WR_RDMA_READ;
    check(control(0, 0x10, 2, signaled));
  }
  SECTION("checksums") {
    wr.num_sge = exp.num_sge = 1;
    wr.send_flags |= IBV_SEND_IP_CSUM;
    exp.exp_send_flags |= IBV_EXP_SEND_IP_CSUM;
    check(control(0, 0x0a, 2, signaled) + pointer(0x1000, 64, 0xabc));
  }
}

TEST_CASE("engine: opcodes as 3.x numbered them") {
  using namespace ibvexp::translate;
  const std::pair<int, ibv_exp_wr_opcode> rows[] = {{send_with_inv_3x, IBV_EXP_WR_SEND_WITH_INV},
                                                    {local_inv_3x, IBV_EXP_WR_LOCAL_INV}};
  for (const auto &[then, now] : rows) {
    CAPTURE(then);
    Request plain(IBV_WR_SEND, IBV_SEND_SIGNALED, {{0x1000, 64, 0xabc}});
    ibv_exp_send_wr wr = to_exp(plain);
    wr.ex.invalidate_rkey = 0x00abcd12;
    SendRig first(Transport::rc), second(Transport::rc);
    wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(then);
    REQUIRE(first.post(&wr) == 0);
    wr.exp_opcode = now;
    REQUIRE(second.post(&wr) == 0);
    CHECK(first.at(0, 128) == second.at(0, 128));
    CHECK(first.queue.sent[0].completion_opcode() == second.queue.sent[0].completion_opcode());
  }
}

TEST_CASE("engine: what is refused, and what is posted before it") {
  const std::vector<ibv_sge> one{{0x1000, 64, 0xabc}};
  Request first(IBV_WR_SEND, 0, one), second(IBV_WR_SEND, 0, one), third(IBV_WR_SEND, 0, one);
  first.next = &second;
  second.next = &third;

  const auto check_prefix = [&](Transport transport, int error, std::uint32_t blocks = 1) {
    SendRig rig(transport);
    ibv_send_wr *bad = nullptr;
    CHECK(rig.post(&first, &bad) == error);
    CHECK(bad == &second);
    CHECK(rig.record() == blocks);
    CHECK(rig.rung() == rig.at(0, 8));
    // And in the other layout.
    SendRig exp(transport);
    ibv_exp_send_wr chain[3] = {to_exp(first), to_exp(second), to_exp(third)};
    chain[0].next = &chain[1];
    chain[1].next = &chain[2];
    ibv_exp_send_wr *exp_bad = nullptr;
    CHECK(exp.post(chain, &exp_bad) == error);
    CHECK(exp_bad == &chain[1]);
    CHECK(exp.record() == blocks);
  };

  SECTION("too many pieces") {
    const std::vector<ibv_sge> five(5, one[0]);
    second.sg_list = const_cast<ibv_sge *>(five.data());
    second.num_sge = 5;
    check_prefix(Transport::rc, ENOMEM);
  }
  SECTION("a list that is not there") {
    second.sg_list = nullptr;
    check_prefix(Transport::rc, EINVAL);
  }
  SECTION("a datagram to nowhere") {
    AddressHandle known;
    first.wr.ud.ah = third.wr.ud.ah = &known.ah;
    check_prefix(Transport::ud, EINVAL, 2);
  }
  SECTION("a piece longer than a message") {
    const ibv_sge long_one{0x1000, 0x80000001u, 1};
    second.sg_list = const_cast<ibv_sge *>(&long_one);
    check_prefix(Transport::rc, EINVAL);
  }
  SECTION("an unknown opcode") {
    second.opcode = static_cast<ibv_wr_opcode>(0x7fffffff);
    check_prefix(Transport::rc, EINVAL);
  }
  SECTION("an opcode of the legacy layout in a base request") {
    SendRig rig(Transport::rc);
    Request wr(static_cast<ibv_wr_opcode>(IBV_EXP_WR_NOP), 0, one);
    CHECK(rig.post(&wr) == EINVAL);
  }
  SECTION("an atomic of a device that has none") {
    QpFacts facts;
    facts.atomics = false;
    SendRig rig(Transport::rc, facts);
    second.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    ibv_send_wr *bad = nullptr;
    CHECK(rig.post(&first, &bad) == EOPNOTSUPP);
    CHECK(bad == &second);
    CHECK(rig.record() == 1);
  }
  SECTION("a full queue") {
    SendRig rig(Transport::rc);
    CHECK(rig.post(&first) == 0);
    ibv_send_wr *bad = nullptr;
    CHECK(rig.post(&first, &bad) == ENOMEM);
    CHECK(bad == &second);
    CHECK(rig.record() == 4);
    CHECK(rig.post(&first, &bad) == ENOMEM);
    CHECK(bad == &first);
    // The last entry that is in flight is as it was.
    CHECK(rig.at(3, 32) == control(3, 0x0a, 2, 0) + pointer(0x1000, 64, 0xabc));
    rig.queue.done = 1;
    CHECK(rig.post(&first, &bad) == ENOMEM);
    CHECK(bad == &second);
  }
  SECTION("a queue pair that cannot send yet") {
    SendRig rig(Transport::rc);
    rig.queue.select(false);
    ibv_send_wr *bad = nullptr;
    CHECK(rig.post(&first, &bad) == EINVAL);
    CHECK(bad == &first);
    CHECK(rig.record() == 0);
  }
  SECTION("flags of the legacy layout: refused where known, ignored otherwise") {
    SendRig rig(Transport::rc);
    rig.queue.refused_flags = IBV_EXP_SEND_WITH_CALC;
    ibv_exp_send_wr wr = to_exp(third);
    wr.exp_send_flags = std::uint64_t{1} << 60 | IBV_EXP_SEND_SIGNALED;
    CHECK(rig.post(&wr) == 0);
    CHECK(rig.at(0, 32) == control(0, 0x0a, 2, signaled) + pointer(0x1000, 64, 0xabc));
    wr.exp_send_flags = IBV_EXP_SEND_WITH_CALC;
    CHECK(rig.post(&wr) == ENOTSUP);
  }
}

TEST_CASE("engine: requests without a list may have anything in its place") {
  SendRig rig(Transport::rc);
  Request plain(IBV_WR_SEND, 0, {{0x1000, 64, 0xabc}});
  ibv_exp_send_wr wr = to_exp(plain);
  wr.exp_opcode = IBV_EXP_WR_LOCAL_INV;
  wr.sg_list = nullptr;
  wr.num_sge = 77;
  CHECK(rig.post(&wr) == 0);
  // Served with a switch, which is off here.
  wr.exp_opcode = IBV_EXP_WR_NOP;
  CHECK(rig.post(&wr) == ENOTSUP);
}

TEST_CASE("engine: messages of the families") {
  const Bytes data = counted(64);
  const ibv_sge piece = piece_of(data);
  const auto address = piece.addr;
  const auto message = [&](unsigned flags, const std::uint16_t *tag = nullptr) {
    Message m{.data = ibvexp::engine::Gather(&piece, 1)};
    m.flags = flags;
    m.tag = tag;
    return m;
  };
  SECTION("of a connected queue pair") {
    SendRig rig(Transport::rc);
    CHECK(put_message(rig.queue, message(IBV_SEND_SIGNALED)) == 0);
    CHECK(rig.at(0, 32) == control(0, 0x0a, 2, signaled) + pointer(address, 64, 7));
    CHECK(rig.queue.count == 1);
    CHECK(rig.record() == 0);  // rung by the caller
    rig.queue.max_inline = 63;
    CHECK(put_message(rig.queue, message(IBV_SEND_INLINE)) == ENOMEM);
    CHECK(rig.queue.count == 1);
  }
  SECTION("a tag behind the addresses of a frame") {
    SendRig rig(Transport::raw_packet);
    const std::uint16_t tag = 0x2345;
    CHECK(put_message(rig.queue, message(0, &tag)) == 0);
    const Bytes header = Bytes(data.begin(), data.begin() + 12) + big(0x81002345, 4) +
                         Bytes(data.begin() + 12, data.begin() + 14);
    CHECK(rig.at(0, 64) ==
          control(0, 0x0a, 4, 0) + zeros(12) + big(18, 2) + header + pointer(address + 14, 50, 7));
    Message sums = message(0);
    sums.checksums = true;
    CHECK(put_message(rig.queue, sums) == EINVAL);
    QpFacts facts;
    facts.checksums = true;
    SendRig filling(Transport::raw_packet, facts);
    REQUIRE(put_message(filling.queue, sums) == 0);
    CHECK(filling.at(0, 32)[16 + 4] == 0xc0);
  }
}

TEST_CASE("engine: counters wrap") {
  SendRig rig(Transport::rc);
  rig.queue.count = rig.queue.done = 0xfffffffe;
  rig.advance(0xfffffffe);
  Request wr(IBV_WR_SEND, 0, {{0x1000, 64, 0xabc}});
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(rig.post(&wr) == 0);
    CHECK(rig.at(6 + i, 16) == control(0xfffe + i, 0x0a, 2, 0));
    CHECK(rig.record() == ((0xffff + i) & 0xffff));
  }
  CHECK(rig.record() == 2);
  CHECK(rig.post(&wr) == ENOMEM);
  rig.queue.done = 1;
  CHECK(rig.post(&wr) == 0);
}

TEST_CASE("engine: the entry behind a key change waits") {
  SendRig rig(Transport::rc);
  Request wr(IBV_WR_SEND, 0);
  rig.queue.fence = 0x20;
  REQUIRE(rig.post(&wr) == 0);
  REQUIRE(rig.post(&wr) == 0);
  CHECK(rig.at(0, 16) == control(0, 0x0a, 1, 0x20));
  CHECK(rig.at(1, 16) == control(1, 0x0a, 1, 0));
  rig.queue.fence = 0x20;
  wr.send_flags = IBV_SEND_FENCE;
  REQUIRE(rig.post(&wr) == 0);
  CHECK(rig.at(2, 16) == control(2, 0x0a, 1, fenced));
}

TEST_CASE("engine: windows") {
  ibv_context context{};
  ibv_mr mr{};
  mr.lkey = 0x77;
  ibv_mw mw{};
  mw.context = &context;
  mw.rkey = 0x00abcd12;
  SendRig base(Transport::rc), exp(Transport::rc);
  base.queue.max_blocks = exp.queue.max_blocks = 4;

  Request wr(IBV_WR_BIND_MW, IBV_SEND_SIGNALED);
  wr.bind_mw.mw = &mw;
  wr.bind_mw.rkey = 0x00abcd13;
  wr.bind_mw.bind_info = {&mr, 0x5000, 0x100, IBV_ACCESS_REMOTE_WRITE};
  ibv_exp_send_wr legacy = to_exp(wr);
  legacy.bind_mw.mw = &mw;
  legacy.bind_mw.rkey = 0x00abcd13;
  legacy.bind_mw.bind_info = {};
  legacy.bind_mw.bind_info.mr = &mr;
  legacy.bind_mw.bind_info.addr = 0x5000;
  legacy.bind_mw.bind_info.length = 0x100;
  legacy.bind_mw.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE;

  const auto post_both = [&] {
    CHECK(base.post(&wr) == 0);
    CHECK(exp.post(&legacy) == 0);
    CHECK(base.at(0, 192) == exp.at(0, 192));
    CHECK(base.rung() == exp.at(0, 8));
    return exp.at(0, 192);
  };
  SECTION("of type 1 are bound to the tag that the request names, for any queue pair") {
    mw.type = IBV_MW_TYPE_1;
    const Bytes image = post_both();
    CHECK(Bytes(image.begin(), image.begin() + 16) == control(0, 0x25, 12, signaled, 0x00abcd12));
    // Inline, with a translation; four units of 16 bytes; which fields change.
    CHECK(Bytes(image.begin() + 16, image.begin() + 24) ==
          big(0x90, 1) + zeros(3) + big(4, 2) + zeros(2));
    CHECK(Bytes(image.begin() + 68, image.begin() + 72) == big(0xffffff13, 4));
    CHECK(Bytes(image.begin() + 80, image.begin() + 96) == big(0x5000, 8) + big(0x100, 8));
    CHECK(Bytes(image.begin() + 128, image.begin() + 144) == pointer(0x5000, 0x100, 0x77));
    CHECK(exp.queue.sent[0].completion_opcode() == IBV_WC_BIND_MW);
    CHECK(exp.queue.fence == 0x20);
  }
  SECTION("of type 2 to the queue pair") {
    mw.type = IBV_MW_TYPE_2;
    const Bytes image = post_both();
    CHECK(Bytes(image.begin() + 68, image.begin() + 72) == big(number << 8 | 0x13, 4));
    CHECK(image[16] == 0xb0);
  }
  SECTION("from zero on") {
    mw.type = IBV_MW_TYPE_2;
    legacy.bind_mw.bind_info.exp_mw_access_flags |= IBV_EXP_ACCESS_MW_ZERO_BASED;
    REQUIRE(exp.post(&legacy) == 0);
    const Bytes image = exp.at(0, 96);
    CHECK(Bytes(image.begin() + 80, image.end()) == zeros(8) + big(0x100, 8));
  }
  SECTION("are invalidated without data") {
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = 0x00abcd12;
    legacy.exp_opcode = IBV_EXP_WR_LOCAL_INV;
    legacy.ex.invalidate_rkey = 0x00abcd12;
    CHECK(base.post(&wr) == 0);
    CHECK(exp.post(&legacy) == 0);
    CHECK(base.at(0, 128) == exp.at(0, 128));
    CHECK(exp.at(0, 16) == control(0, 0x25, 8, signaled, 0x00abcd12));
    CHECK(exp.queue.sent[0].completion_opcode() == IBV_WC_LOCAL_INV);
    CHECK(exp.queue.fence == 0x20);
    CHECK(*exp.queue.posted == 2);
  }
  SECTION("not where the entry is larger than the queue allows") {
    mw.type = IBV_MW_TYPE_1;
    exp.queue.max_blocks = 2;
    CHECK(exp.post(&legacy) == ENOMEM);
    CHECK(exp.record() == 0);
  }
}

TEST_CASE("engine: masked atomics bring as many bytes as they have") {
  using namespace ibvexp;
  SendRig rig(Transport::rc);
  rig.queue.max_pieces = 2;
  ibv_sge pieces[3] = {{0x1000, 3, 7}, {0x2000, 64, 8}, {0x3000, 64, 9}};
  ibv_exp_send_wr wr{};
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD;
  wr.exp_send_flags = IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  wr.ext_op.masked_atomics.log_arg_sz = 3;
  wr.sg_list = pieces;
  wr.num_sge = 2;
  wr.ext_op.masked_atomics.remote_addr = 5;
  wr.ext_op.masked_atomics.rkey = 6;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = {0x11, 0x22};
  // From the last block on: the third segment behind the remote address is the first of the ring.
  rig.advance(7);
  REQUIRE(put_masked_atomic(rig.queue, wr) == 0);
  CHECK(rig.at(7, 80) == control(7, 0x15, 5, 0, 0, 9) + remote(5, 6) + big(0x11, 8) + big(0x22, 8) +
                             pointer(0x1000, 3, 7) + pointer(0x2000, 5, 8));
  CHECK(*rig.queue.posted == 9);
  wr.num_sge = 3;
  CHECK(put_masked_atomic(rig.queue, wr) == ENOMEM);
}

TEST_CASE("engine: a masked atomic that is longer than an entry is refused") {
  using namespace ibvexp;
  // Four operands of 16 bytes behind two segments, over XRC three: two of the eight are left for the
  // answer, or one.
  const auto [transport, room] =
      GENERATE(std::pair{Transport::rc, 2}, std::pair{Transport::xrc, 1});
  SendRig rig(transport);
  ibv_sge pieces[3] = {{0x1000, 5, 7}, {0x2000, 5, 8}, {0x3000, 6, 9}};
  std::uint8_t operand[16] = {};
  const auto at = reinterpret_cast<std::uintptr_t>(operand);
  ibv_exp_send_wr wr{};
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;
  wr.exp_send_flags = IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  wr.ext_op.masked_atomics.log_arg_sz = 4;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap = {at, at, at, at};
  wr.sg_list = pieces;
  wr.num_sge = room + 1;
  CHECK(put_masked_atomic(rig.queue, wr) == ENOMEM);
  CHECK(*rig.queue.posted == 0);
  wr.num_sge = room;
  CHECK(put_masked_atomic(rig.queue, wr) == 0);
  CHECK(*rig.queue.posted == 2);
}

// [row:IBV_EXP_QP_BURST_SIGNALED][row:IBV_EXP_QP_BURST_FENCE][row:IBV_EXP_QP_BURST_SOLICITED]
TEST_CASE("flags of the burst family are those of the control segment") {
  SendRig rig(Transport::rc);
  rig.queue.refused_burst = 0;
  ibvexp::queue::QpFront front{};
  front.own.send = &rig.queue;
  const auto *family = ibvexp::queue::burst_face({});
  const auto [flag, control_bits] =
      GENERATE(std::pair{int{IBV_EXP_QP_BURST_SIGNALED}, std::uint8_t{0x08}},
               std::pair{int{IBV_EXP_QP_BURST_SOLICITED}, std::uint8_t{0x02}},
               std::pair{int{IBV_EXP_QP_BURST_FENCE}, std::uint8_t{0x80}});
  REQUIRE(family->send_pending(&front.shown, 0x1122334455667788, 5, 7,
                               static_cast<std::uint32_t>(flag)) == 0);
  CHECK(rig.at(0, 32) == control(0, 0x0a, 2, control_bits) + pointer(0x1122334455667788, 5, 7));
  CHECK(rig.record() == 0);
  CHECK(family->send_flush(&front.shown) == 0);
  CHECK(rig.record() == 1);
}
