// Shared receive queues of strides: the packets of messages of several queue pairs, and what
// completions say of them.
#include "model/tag_matching.h"
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u8 resp_write_imm = 1, resp_send = 2, resp_send_imm = 3, resp_err = 14, req_err = 13;
constexpr u32 mtu = 1024;

struct Packet {
  explicit Packet(const Completion &c)
      : opcode(c.opcode()),
        wqe(c.wqe_counter()),
        stride(load_be16(c.raw + 20)),
        bytes(c.byte_count() & 0xffff),
        first((c.byte_count() >> 29 & 1) != 0),
        last((c.byte_count() >> 30 & 1) != 0),
        filler(c.byte_count() >> 31 != 0),
        outcome(static_cast<TagOutcome>(c.raw[41])) {
    CHECK(c.raw[40] == 1);  // the tag matching application
    CHECK(c.uidx() == 0x900);
  }
  u8 opcode;
  u32 wqe, stride, bytes;
  bool first, last, filler;
  TagOutcome outcome;
};

// A server with two queue pairs on one queue of strides, and a client of each.
struct StrideRig {
  StrideRig(u32 log_bytes, u32 log_count) : wqe_bytes(1u << (log_bytes + log_count)) {
    srq.srq.strides = {log_bytes, log_count};
    const u16 lid = rig.device().port(1).lid;
    for (u32 i = 0; i < 2; ++i) {
      servers[i]->connect(clients[i]->qp->qpn, lid);
      clients[i]->connect(servers[i]->qp->qpn, lid);
    }
    from.fill(3);
    std::memset(from.data(), 0, 16);  // of no tag
  }
  QpOptions on_srq() {
    if (!srq.srq.tags) srq.srq.tags = std::make_unique<TagList>(3);
    QpOptions o;
    o.srq = &srq.srq;
    return o;
  }
  void post(u32 count = 1) {
    for (; count != 0; --count, ++posted)
      srq.post(wqe_bytes, to.key(), to.address(u64{posted} * wqe_bytes));
  }
  void send(u32 bytes, u32 client = 0, Wqe wqe = Wqe(WqeOpcode::send)) {
    if (bytes != 0) wqe.data(bytes, from.key(), from.address());
    clients[client]->post(wqe);
    rig.step();
  }
  Packet expect() { return Packet(srq_cq.expect()); }
  void sent(u32 client = 0) { CHECK(client_cq[client].expect().opcode() == 0); }
  bool holds(const Packet &p, u32 offset = 0) {
    const u8 *at = to.data() + p.wqe * wqe_bytes + (p.stride << srq.srq.strides.log_bytes);
    return std::memcmp(at, from.data() + offset, p.bytes) == 0;
  }

  u32 wqe_bytes, posted = 0;
  Rig rig;
  TestCq srq_cq, client_cq[2];
  TestSrq srq{16, SrqType::tag_matching, &srq_cq.cq};
  TestQp server_a{rig, srq_cq, srq_cq, on_srq()}, server_b{rig, srq_cq, srq_cq, on_srq()};
  TestQp client_a{rig, client_cq[0], client_cq[0]}, client_b{rig, client_cq[1], client_cq[1]};
  TestQp *servers[2] = {&server_a, &server_b}, *clients[2] = {&client_a, &client_b};
  Region from{65536, full_access}, to{262144, full_access};
};

}  // namespace

TEST_CASE("Messages of all queue pairs take strides one behind the other", "[shared_strides]") {
  StrideRig t(6, 3);
  t.post(2);
  t.send(100);
  const Packet a = t.expect();
  CHECK(a.opcode == resp_send);
  CHECK(a.outcome == TagOutcome::untagged);
  CHECK((a.wqe == 0 && a.stride == 0 && a.bytes == 100));
  CHECK((a.first && a.last && !a.filler));
  CHECK(t.holds(a));
  t.send(64, 1);
  const Packet b = t.expect();
  CHECK((b.wqe == 0 && b.stride == 2 && b.bytes == 64));
  CHECK(t.holds(b));
  // Also one without bytes.
  t.send(0);
  const Packet c = t.expect();
  CHECK((c.stride == 3 && c.bytes == 0));
  t.send(4 * 64);
  CHECK(t.expect().stride == 4);
  // Used to its last stride: the next one follows without a filler.
  CHECK(t.srq.srq.consumed == 1);
  t.send(1);
  const Packet d = t.expect();
  CHECK((d.wqe == 1 && d.stride == 0));
  t.srq_cq.expect_none();
  for (u32 i = 0; i < 4; ++i) t.sent();
  t.sent(1);
}

TEST_CASE("A long message completes packet by packet", "[shared_strides]") {
  StrideRig t(9, 3);
  t.post(2);
  t.send(2 * mtu + 100, 0, Wqe(WqeOpcode::send_imm).imm(0x11223344));
  const Packet a = t.expect(), b = t.expect();
  const Completion last = t.srq_cq.expect();
  const Packet c(last);
  CHECK((a.opcode == resp_send && a.first && !a.last && a.bytes == mtu && a.stride == 0));
  CHECK((b.opcode == resp_send && !b.first && !b.last && b.bytes == mtu && b.stride == 2));
  CHECK((c.opcode == resp_send_imm && !c.first && c.last && c.bytes == 100 && c.stride == 4));
  CHECK(last.imm_raw() == 0x11223344);
  CHECK((t.holds(a) && t.holds(b, mtu) && t.holds(c, 2 * mtu)));
  t.sent();
  // Larger than the bursts of the wire.
  t.post(6);
  t.send(40 * mtu / 2);
  for (u32 i = 0; i < 20; ++i) {
    Packet p = t.expect();
    while (p.filler) p = t.expect();
    CHECK((p.first == (i == 0) && p.last == (i == 19)));
    CHECK(t.holds(p, i * mtu));
  }
  t.srq_cq.expect_none();
  t.sent();
}

TEST_CASE("A packet that does not fit leaves the rest of the buffer", "[shared_strides]") {
  StrideRig t(6, 3);
  t.post();
  t.send(6 * 64);
  CHECK(t.expect().stride == 0);
  // The rest is given up for the next buffer, when there is one.
  t.send(3 * 64, 1);
  t.srq_cq.expect_none();
  t.post();
  t.rig.step(60'000'000'000);
  const Packet rest = t.expect(), p = t.expect();
  CHECK((rest.filler && rest.wqe == 0 && rest.stride == 6 && rest.bytes == 0));
  CHECK((!rest.first && !rest.last));
  CHECK((!p.filler && p.wqe == 1 && p.stride == 0));
  CHECK(t.holds(p));
  t.sent();
  t.sent(1);
}

TEST_CASE("A message goes on when there is room again", "[shared_strides]") {
  StrideRig t(10, 3);
  t.post();
  t.send(11 * mtu);
  for (u32 i = 0; i < 8; ++i) CHECK(t.expect().stride == i);
  t.srq_cq.expect_none();
  t.client_cq[0].expect_none();
  // Others come in between.
  t.post();
  t.send(10, 1);
  const Packet other = t.expect();
  CHECK((other.first && other.last && other.wqe == 1 && other.stride == 0));
  t.rig.step(60'000'000'000);
  for (u32 i = 8; i < 11; ++i) {
    const Packet p = t.expect();
    CHECK((!p.first && p.last == (i == 10) && p.wqe == 1 && p.stride == i - 7));
    CHECK(t.holds(p, i * mtu));
  }
  t.srq_cq.expect_none();
  t.sent();
  t.sent(1);
}

TEST_CASE("Data written with an immediate takes one stride", "[shared_strides]") {
  StrideRig t(6, 3);
  Region target(8192, full_access);
  t.post();
  t.clients[0]->post(Wqe(WqeOpcode::rdma_write_imm)
                         .imm(7)
                         .remote(target.address(), target.key())
                         .data(5000, t.from.key(), t.from.address()));
  t.rig.step();
  const Completion c = t.srq_cq.expect();
  CHECK(c.opcode() == resp_write_imm);
  CHECK(c.byte_count() == 5000);
  CHECK(c.wqe_counter() == 0);
  t.send(1);
  CHECK(t.expect().stride == 1);
  t.sent();
}

TEST_CASE("Tagged messages count once, and matches take no strides", "[shared_strides]") {
  StrideRig t(10, 3);
  t.post(2);
  t.from.data()[0] = 3;  // eager
  store_be64(t.from.data() + 8, 0x55);
  t.send(2 * mtu);
  CHECK(t.expect().outcome == TagOutcome::unexpected);
  CHECK(t.expect().outcome == TagOutcome::unexpected);
  CHECK(t.srq.srq.tags->hardware_phase == 1);
  t.sent();

  Region buffer(4096, full_access);
  TagList::Entry entry{0x55, ~u64{0}};
  store_be32(entry.buffer.data(), 4096);
  store_be32(entry.buffer.data() + 4, buffer.key());
  store_be64(entry.buffer.data() + 8, buffer.address());
  t.srq.srq.tags->synchronize(1);
  REQUIRE(t.srq.srq.tags->append(entry, 1));
  t.send(500);
  CHECK(static_cast<TagOutcome>(t.srq_cq.expect().raw[41]) == TagOutcome::consumed_message);
  CHECK(std::memcmp(buffer.data(), t.from.data() + 16, 484) == 0);
  t.send(500);
  CHECK(t.expect().stride == 2);
}

TEST_CASE("Errors end the queue pair, and use up the buffer", "[shared_strides]") {
  StrideRig t(6, 3);
  u32 bytes = 600;  // more than a buffer
  switch (GENERATE(0, 1, 2)) {
    case 0: t.post(); break;
    case 1:  // less room than the queue promises
      t.srq.post(64, t.to.key(), t.to.address());
      bytes = 65;
      break;
    default:
      t.srq.post(t.wqe_bytes, t.to.key() + 1, t.to.address());
      bytes = 65;
      break;
  }
  t.post();
  t.send(bytes);
  const Completion c = t.srq_cq.expect();
  CHECK(c.opcode() == resp_err);
  CHECK(c.wqe_counter() == 0);
  CHECK(t.servers[0]->qp->state == QpState::err);
  CHECK(t.client_cq[0].expect().opcode() == req_err);
  CHECK(t.srq.srq.consumed == 1);
  t.send(10, 1);
  const Completion next = t.srq_cq.expect();
  CHECK(next.opcode() == resp_send);
  CHECK(next.wqe_counter() == 1);
}
