// Tag matching SRQs: the list, eager and rendezvous messages, synchronization,
// and what happens when buffers, keys or connections do not fit.
#include "model/tag_matching.h"

#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u8 no_packet = 6, resp_send = 2;
constexpr u8 eager = 3, rendezvous = 1, fin = 2, untagged = 0;

TagOutcome outcome(const Completion &c) {
  CHECK(c.raw[40] == 1);  // the tag matching application
  return static_cast<TagOutcome>(c.raw[41]);
}
u16 entry_of(const Completion &c) { return load_be16(c.raw + 42); }
u64 tag_of(const Completion &c) { return load_be64(c.raw + 8); }
u16 phase_of(const Completion &c) { return load_be16(c.raw + 4); }
bool success_of(const Completion &c) { return (c.raw[0] & 0x80) != 0; }

// A server with a tag matching SRQ and its command QP, and a client.
struct TagRig {
  explicit TagRig(u32 server_sq = 0)
      : server(rig, srq_cq, srq_cq, tagged_options(server_sq)),
        command(rig, srq_cq, srq_cq, tagged_options(64)),
        client(rig, client_cq, client_cq) {
    const u16 lid = rig.device().port(1).lid;
    command.connect(command.qp->qpn, lid);
    server.connect(client.qp->qpn, lid);
    if (server_sq == 0) qp_set_state(*server.qp, QpState::rts);
    client.connect(server.qp->qpn, lid);
    from.fill(3);
  }
  QpOptions tagged_options(u32 sq) {
    if (!srq.srq.tags) srq.srq.tags = std::make_unique<TagList>(3);
    QpOptions o;
    o.srq = &srq.srq;
    o.sq_wqebbs = sq;
    return o;
  }

  Wqe operation(u8 op, u16 index, int count, bool signaled = true) {
    u8 s[16] = {};
    s[0] = static_cast<u8>(op << 4);
    s[1] = static_cast<u8>((signaled ? 0x80 : 0) | (count >= 0 ? 0x40 : 0));
    store_be16(s + 2, index);
    store_be16(s + 6, static_cast<u16>(std::max(count, 0)));
    return Wqe(WqeOpcode::tag_matching).unsignaled().raw(s, sizeof s);
  }
  // Adds a buffer; `next` is the entry behind it.
  void add(u64 tag, u16 next, u32 bytes, u32 lkey, u64 address, u64 mask = ~u64{0},
           int count = -1) {
    u8 tags[16];
    store_be64(tags, tag);
    store_be64(tags + 8, mask);
    command.post(operation(1, next, count).raw(tags, sizeof tags).data(bytes, lkey, address));
    rig.step();
    const Completion c = srq_cq.expect();
    CHECK(c.opcode() == no_packet);
    CHECK(outcome(c) == TagOutcome::append);
    CHECK(c.uidx() == srq.srq.uidx);
  }
  Completion change(u8 op, u16 index, int count = -1) {
    u8 rest[16] = {};
    command.post(operation(op, index, count).raw(rest, sizeof rest));
    rig.step();
    return srq_cq.expect();
  }
  void add_to(u64 tag, u16 next) {
    add(tag, next, 4096, to.key(), to.address(u64{4096} * (next - 1)));
  }

  void header(u8 op, u64 tag, u32 priv = 0) {
    std::memset(from.data(), 0, 16);
    from.data()[0] = op;
    store_be32(from.data() + 4, priv);
    store_be64(from.data() + 8, tag);
  }
  void send(u8 op, u64 tag, u32 bytes, u32 priv = 0) {
    header(op, tag, priv);
    client.post(Wqe(WqeOpcode::send).data(bytes, from.key(), from.address()));
    rig.step();
  }
  void send_rendezvous(u64 tag, u64 address, u32 rkey, u32 length, u32 bytes = 64) {
    header(rendezvous, tag);
    store_be64(from.data() + 16, address);
    store_be32(from.data() + 24, rkey);
    store_be32(from.data() + 28, length);
    client.post(Wqe(WqeOpcode::send).data(bytes, from.key(), from.address()));
    rig.step();
  }
  void sent() { CHECK(client_cq.expect().opcode() == 0); }

  Rig rig;
  TestCq srq_cq, client_cq;
  TestSrq srq{16, SrqType::tag_matching, &srq_cq.cq};
  TestQp server, command, client;
  Region from{65536, full_access}, to{65536, full_access}, plain{65536, full_access};
};

}  // namespace

TEST_CASE("Eager messages go where their tag says", "[tags]") {
  TagRig t;
  t.add_to(0x11, 1);
  t.add_to(0x22, 2);
  t.send(eager, 0x22, 116, 0xabcd);
  t.sent();
  const Completion c = t.srq_cq.expect();
  CHECK(c.opcode() == resp_send);
  CHECK(outcome(c) == TagOutcome::consumed_message);
  CHECK(entry_of(c) == 1);
  CHECK(tag_of(c) == 0x22);
  CHECK(load_be32(c.raw + 4) == 0xabcd);
  CHECK(c.byte_count() == 100);  // without the header
  CHECK(c.qpn() == t.server.qp->qpn);
  CHECK(std::memcmp(t.to.data() + 4096, t.from.data() + 16, 100) == 0);
  CHECK(t.to.data()[4096 + 100] == 0);

  // The other one is still there, once.
  t.send(eager, 0x11, 16);
  t.sent();
  CHECK(entry_of(t.srq_cq.expect()) == 0);
  t.srq_cq.expect_none();
}

TEST_CASE("Tags match under the mask, oldest first", "[tags]") {
  TagRig t;
  t.add(0x1200, 1, 4096, t.to.key(), t.to.address(), 0xff00);
  t.add(0x1234, 2, 4096, t.to.key(), t.to.address());
  t.send(eager, 0x1234, 32);
  CHECK(entry_of(t.srq_cq.expect()) == 0);
  t.send(eager, 0x1234, 32);
  CHECK(entry_of(t.srq_cq.expect()) == 1);
}

TEST_CASE("A large eager message reports match and data apart", "[tags]") {
  TagRig t;
  t.add(0x5, 1, 50000, t.to.key(), t.to.address());
  t.send(eager, 0x5, 40016);
  t.sent();
  const Completion match = t.srq_cq.expect(), data = t.srq_cq.expect();
  CHECK(match.opcode() == no_packet);
  CHECK(outcome(match) == TagOutcome::consumed);
  CHECK(tag_of(match) == 0x5);
  CHECK(data.opcode() == resp_send);
  CHECK(outcome(data) == TagOutcome::expected);
  CHECK(tag_of(data) == 0);
  CHECK(data.byte_count() == 40000);
  CHECK(std::memcmp(t.to.data(), t.from.data() + 16, 40000) == 0);
}

TEST_CASE("What does not match arrives whole, and counts", "[tags]") {
  TagRig t;
  t.srq.post(4096, t.plain.key(), t.plain.address());
  t.srq.post(4096, t.plain.key(), t.plain.address(4096));
  t.srq.post(4096, t.plain.key(), t.plain.address(8192));
  t.add_to(0x1, 1);
  t.send(eager, 0x2, 200);
  const Completion c = t.srq_cq.expect();
  CHECK(outcome(c) == TagOutcome::unexpected);
  CHECK(c.byte_count() == 200);
  CHECK(c.wqe_counter() == 0);
  CHECK(tag_of(c) == 0);
  CHECK(std::memcmp(t.plain.data(), t.from.data(), 200) == 0);

  // Neither messages without a tag nor ends of a rendezvous are matched or counted.
  t.send(untagged, 0x1, 200);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::untagged);
  t.send(fin, 0x1, 32);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::untagged);

  // Out of phase: what was there before still matches, what comes now does not.
  const Completion added = [&] {
    t.add_to(0x7, 2);
    return t.change(0, 0);
  }();
  CHECK(outcome(added) == TagOutcome::noop);
  CHECK(phase_of(added) == 1);
  t.send(eager, 0x1, 32);
  CHECK(entry_of(t.srq_cq.expect()) == 0);
  t.srq.post(4096, t.plain.key(), t.plain.address());
  t.send(eager, 0x7, 32);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::unexpected);
  CHECK(phase_of(t.change(0, 0, 1)) == 2);  // one is not enough
  CHECK(phase_of(t.change(0, 0, 2)) == 2);
  t.send(eager, 0x7, 32);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::consumed_message);
}

TEST_CASE("No buffer at all: the sender has to wait", "[tags]") {
  TagRig t;
  t.send(eager, 0x2, 200);
  t.srq_cq.expect_none();
  CHECK(t.srq.srq.tags->hardware_phase == 0);
  t.srq.post(4096, t.plain.key(), t.plain.address());
  t.rig.step(60'000'000'000);  // the receiver-not-ready timer, by the real clock
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::unexpected);
  CHECK(t.srq.srq.tags->hardware_phase == 1);
  t.sent();
}

TEST_CASE("Removed tags do not match", "[tags]") {
  TagRig t;
  t.add_to(0x1, 1);
  const Completion gone = t.change(2, 0);
  CHECK(outcome(gone) == TagOutcome::remove);
  CHECK(success_of(gone));
  CHECK_FALSE(success_of(t.change(2, 0)));  // not there any more
  t.srq.post(4096, t.plain.key(), t.plain.address());
  t.send(eager, 0x1, 32);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::unexpected);
}

TEST_CASE("The device reads the data of a rendezvous", "[tags]") {
  TagRig t(GENERATE(0u, 64u));
  Region data(50000, full_access), answer(64, full_access);
  data.fill(9);
  t.client.post_receive({{64, answer.key(), answer.address()}});
  t.add(0x77, 1, 50000, t.to.key(), t.to.address());
  t.send_rendezvous(0x77, data.address(), data.key(), 50000);
  t.sent();
  const Completion match = t.srq_cq.expect(), read = t.srq_cq.expect();
  CHECK(match.opcode() == no_packet);
  CHECK(outcome(match) == TagOutcome::consumed);
  CHECK(tag_of(match) == 0x77);
  CHECK(match.byte_count() == 50000);
  CHECK(outcome(read) == TagOutcome::expected);
  CHECK(read.byte_count() == 50000);
  CHECK(entry_of(read) == 0);
  CHECK(std::memcmp(t.to.data(), data.data(), 50000) == 0);

  const Completion end = t.client_cq.expect();
  CHECK(end.opcode() == resp_send);
  CHECK(end.byte_count() == 32);
  CHECK(answer.data()[0] == fin);
  CHECK(std::memcmp(answer.data() + 1, t.from.data() + 1, 31) == 0);
  t.srq_cq.expect_none();
}

TEST_CASE("A rendezvous that does not fit is software's", "[tags]") {
  TagRig t;
  t.add(0x77, 1, 100, t.to.key(), t.to.address());
  t.send_rendezvous(0x77, t.plain.address(), t.plain.key(), 101);
  const Completion c = t.srq_cq.expect();
  CHECK(c.opcode() == resp_send);
  CHECK(outcome(c) == TagOutcome::software_rendezvous);
  CHECK(tag_of(c) == 0x77);
  CHECK(c.byte_count() == 64);
  CHECK(std::memcmp(t.to.data(), t.from.data(), 64) == 0);
  t.srq_cq.expect_none();

  SECTION("longer than a rendezvous may be: not looked at") {
    t.srq.post(4096, t.plain.key(), t.plain.address());
    t.add_to(0x78, 2);
    t.send_rendezvous(0x78, t.plain.address(), t.plain.key(), 10, 65);
    CHECK(outcome(t.srq_cq.expect()) == TagOutcome::unexpected);
  }
}

TEST_CASE("A rendezvous with a wrong key is canceled", "[tags]") {
  TagRig t;
  t.add_to(0x77, 1);
  t.send_rendezvous(0x77, t.plain.address(), 0x123456, 100);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::consumed);
  const Completion c = t.srq_cq.expect();
  CHECK(outcome(c) == TagOutcome::canceled);
  CHECK(entry_of(c) == 0);
  CHECK(t.server.qp->state == QpState::err);
  CHECK(t.command.qp->state == QpState::rts);
}

TEST_CASE("Buffers too small or not ours cancel the match", "[tags]") {
  TagRig t;
  Region foreign(4096, full_access, pdn + 1);
  if (GENERATE(true, false)) t.add(0x1, 1, 10, t.to.key(), t.to.address());
  else t.add(0x1, 1, 4096, foreign.key(), foreign.address());
  t.send(eager, 0x1, 100);
  CHECK(outcome(t.srq_cq.expect()) == TagOutcome::canceled);
  t.srq_cq.expect_none();
  CHECK(t.server.qp->state == QpState::err);
  CHECK(t.client_cq.expect().opcode() == 13);
  CHECK(t.to.data()[0] == 0);
}

TEST_CASE("Malformed list operations stop the command QP only", "[tags]") {
  TagRig t;
  u8 rest[16] = {};
  switch (GENERATE(0, 1, 2, 3)) {
    case 0:
      t.command.post(t.operation(1, 8, -1).raw(rest, 16).data(1, t.to.key(), t.to.address()));
      break;
    case 1: t.command.post(t.operation(2, 8, -1).raw(rest, 16)); break;
    case 2: t.command.post(t.operation(5, 0, -1).raw(rest, 16)); break;
    default: t.command.post(t.operation(1, 1, -1).raw(rest, 16)); break;  // no buffer
  }
  t.rig.step();
  CHECK(t.srq_cq.expect().syndrome() == static_cast<u8>(Syndrome::local_qp_op));
  CHECK(t.command.qp->state == QpState::err);
  CHECK(t.server.qp->state == QpState::rts);
}

TEST_CASE("List operations belong to QPs of such an SRQ", "[tags]") {
  TagRig t;
  u8 rest[16] = {};
  t.client.post(t.operation(0, 0, -1).raw(rest, 16));
  t.rig.step();
  CHECK(t.client_cq.expect().syndrome() == static_cast<u8>(Syndrome::local_qp_op));
}
