// Every transport and opcode, driven by hand-written WQEs and judged by the
// bytes that arrive and the raw CQEs.
#include "model/responder.h"
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

bool same(Region &a, u64 ao, Region &b, u64 bo, size_t n) {
  return std::memcmp(a.data() + ao, b.data() + bo, n) == 0;
}

}  // namespace

TEST_CASE("RC send fills the receive buffers and both completions", "[rc]") {
  Rig rig;
  Pair p(rig);
  Region from(100000, full_access), to(100000, full_access);
  from.fill(1);
  p.b.post_receive({{1000, to.key(), to.address()}, {90000, to.key(), to.address(1000)}});
  const u16 index = p.a.post(
      Wqe(WqeOpcode::send_imm).imm(0xdeadbeef).solicited().data(50001, from.key(), from.address()));
  rig.step();

  const Completion r = p.b_cq.expect();
  CHECK(r.opcode() == static_cast<u8>(CqeOpcode::resp_send_imm));
  CHECK(r.byte_count() == 50001);
  CHECK(r.imm_raw() == 0xdeadbeef);
  CHECK(r.solicited());
  CHECK(r.uidx() == p.b.qp->uidx);
  CHECK(r.source_qpn() == p.a.qp->qpn);
  CHECK(r.wqe_counter() == 0);
  CHECK(r.timestamp() != 0);
  const Completion s = p.a_cq.expect();
  CHECK(s.opcode() == static_cast<u8>(CqeOpcode::req));
  CHECK(s.sent_opcode() == static_cast<u8>(WqeOpcode::send_imm));
  CHECK(s.qpn() == p.a.qp->qpn);
  CHECK(s.wqe_counter() == index);
  CHECK(s.uidx() == p.a.qp->uidx);
  CHECK(same(from, 0, to, 0, 50001));
  CHECK(to.data()[50001] == 0);
  p.a_cq.expect_none();
  p.b_cq.expect_none();
}

TEST_CASE("Unsignaled WQEs complete silently, in order, across the queue's end", "[rc]") {
  Rig rig;
  Pair p(rig);
  Region from(4096, full_access), to(4096, full_access);
  for (u32 round = 0; round < 200; ++round) {
    from.fill(round);
    p.a.post(Wqe(WqeOpcode::rdma_write)
                 .unsignaled()
                 .remote(to.address(), to.key())
                 .data(1000, from.key(), from.address()));
    // Two basic blocks, so that WQEs also wrap.
    const u8 text[] = "seventy bytes of inline data make a WQE of more than one basic block!";
    const u16 index = p.a.post(Wqe(WqeOpcode::rdma_write)
                                   .remote(to.address(2000), to.key())
                                   .inline_data(text, sizeof text));
    rig.step();
    CHECK(p.a_cq.expect().wqe_counter() == index);
    p.a_cq.expect_none();
    REQUIRE(same(from, 0, to, 0, 1000));
    REQUIRE(std::memcmp(to.data() + 2000, text, sizeof text) == 0);
  }
}

// libmlx5 writes one kind or the other; programs that write WQEs themselves put
// a header inline and the payload behind it by pointer.
TEST_CASE("Inline and pointer segments of one WQE are gathered in their order", "[rc][ud]") {
  Rig rig;
  const bool datagram = GENERATE(false, true);
  QpOptions options;
  if (datagram) options.type = QpType::ud;
  Pair p(rig, options, options);
  Region from(4096, full_access), to(4096, full_access);
  from.fill(5);
  const std::string head = "a header", middle = "of forty-one bytes, more than one segment",
                    tail = "x";
  const auto text = [](Wqe &w, const std::string &s) {
    w.inline_data(s.data(), static_cast<u32>(s.size()));
  };
  const std::string pointed(reinterpret_cast<const char *>(from.data()), 4096);
  const auto post = [&](auto... parts) {
    Wqe w(WqeOpcode::send);
    if (datagram) w.ud_av(0x1234, p.b.qp->qpn, rig.device().port(1).lid);
    (parts(w), ...);
    p.b.post_receive({{4096, to.key(), to.address()}});
    p.a.post(w);
    rig.step();
    REQUIRE(p.a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
    const u32 grh = datagram ? 40 : 0;
    const u32 bytes = p.b_cq.expect().byte_count() - grh;
    return std::string(reinterpret_cast<const char *>(to.data()) + grh, bytes);
  };
  const auto in = [&](const std::string &s) { return [&, s](Wqe &w) { text(w, s); }; };
  const auto at = [&](u32 offset, u32 bytes) {
    return [&, offset, bytes](Wqe &w) { w.data(bytes, from.key(), from.address(offset)); };
  };
  CHECK(post(in(head), at(100, 300)) == head + pointed.substr(100, 300));
  CHECK(post(at(7, 9), in(middle)) == pointed.substr(7, 9) + middle);
  CHECK(post(in(head), at(0, 50), in(middle), at(60, 70), in(tail)) ==
        head + pointed.substr(0, 50) + middle + pointed.substr(60, 70) + tail);
  CHECK(post(in(head), in(""), in(middle), at(1, 1)) == head + middle + pointed.substr(1, 1));
  CHECK(post(in(head), in(tail)) == head + tail);
}

TEST_CASE("RDMA write with immediate takes a receive WQE", "[rc]") {
  Rig rig;
  Pair p(rig);
  Region from(70000, full_access), to(70000, full_access);
  from.fill(3);
  p.b.post_receive({});
  p.a.post(Wqe(WqeOpcode::rdma_write_imm)
               .imm(0x01020304)
               .remote(to.address(), to.key())
               .data(70000, from.key(), from.address()));
  rig.step();
  const Completion r = p.b_cq.expect();
  CHECK(r.opcode() == static_cast<u8>(CqeOpcode::resp_rdma_write_imm));
  CHECK(r.byte_count() == 70000);
  CHECK(r.imm_raw() == 0x01020304);
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(same(from, 0, to, 0, 70000));
}

TEST_CASE("RDMA read scatters and reports its length", "[rc]") {
  Rig rig;
  Pair p(rig);
  Region local(300000, full_access), remote(300000, full_access);
  remote.fill(9);
  // More reads than max_rd_atomic allows at once.
  for (u32 i = 0; i < 10; ++i)
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(remote.address(i * 25000), remote.key())
                 .data(10000, local.key(), local.address(i * 25000))
                 .data(15000, local.key(), local.address(i * 25000 + 10000)));
  rig.step();
  for (u32 i = 0; i < 10; ++i) CHECK(p.a_cq.expect().byte_count() == 25000);
  CHECK(same(local, 0, remote, 0, 250000));
}

TEST_CASE("A fenced request waits for the READs before it", "[rc]") {
  Rig rig;
  Pair p(rig);
  constexpr u32 bytes = 2'000'000;  // more than the wire holds at once
  Region local(2 * bytes, full_access), remote(bytes, full_access);
  remote.fill(9);
  const std::vector<u8> before(remote.data(), remote.data() + bytes);
  // At the same doorbell: when the write is fetched, the read is not yet on its way.
  p.a.post(Wqe(WqeOpcode::rdma_read)
               .remote(remote.address(), remote.key())
               .data(bytes, local.key(), local.address()));
  p.a.post(Wqe(WqeOpcode::rdma_write)
               .fence()
               .remote(remote.address(bytes - 5000), remote.key())
               .data(5000, local.key(), local.address(bytes)));
  rig.step();
  for (int i = 0; i < 2; ++i) CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(std::memcmp(local.data(), before.data(), bytes) == 0);
  CHECK(same(local, bytes, remote, bytes - 5000, 5000));
}

TEST_CASE("A READ asked for again replaces the answers that still wait", "[rc]") {
  Rig rig;
  Pair p(rig);
  Region remote(8192, full_access);
  const u32 first = p.b.qp->responder->expected_psn;
  const auto read = [&](u32 psn, u32 npsn, u32 offset, u32 bytes) {
    PacketHeader h{};
    h.kind = PacketKind::request;
    h.service = Service::rc;
    h.opcode = static_cast<u8>(WqeOpcode::rdma_read);
    h.flags = packet_first | packet_last;
    h.src_qpn = p.a.qp->qpn;
    h.dst_qpn = p.b.qp->qpn;
    h.dst_lid = rig.device().port(1).lid;
    h.psn = (first + psn) & 0xffffff;
    h.npsn = npsn;
    h.message_bytes = bytes;
    h.remote_address = remote.address(offset);
    h.rkey = remote.key();
    h.offset = offset;
    qp_receive_request(*p.b.qp, h, nullptr);
  };
  const auto waiting = [&] {
    std::vector<u32> psns;
    for (const Response &r : p.b.qp->responder->responses)
      psns.push_back((r.psn - first) & 0xffffff);
    return psns;
  };
  read(0, 3, 0, 3000);
  read(3, 1, 0, 500);
  read(4, 1, 0, 500);
  CHECK(waiting() == std::vector<u32>{0, 3, 4});
  // One packet of the first has arrived.
  read(1, 2, 1024, 1976);
  CHECK(waiting() == std::vector<u32>{1});
  read(3, 1, 0, 500);
  read(4, 1, 0, 500);
  CHECK(waiting() == std::vector<u32>{1, 3, 4});
  read(3, 1, 0, 500);
  CHECK(waiting() == std::vector<u32>{1, 3});
  rig.step();
  CHECK(waiting().empty());
}

TEST_CASE("Zero-byte messages of every kind complete", "[rc]") {
  Rig rig;
  Pair p(rig);
  p.b.post_receive({});
  p.a.post(Wqe(WqeOpcode::send));
  p.a.post(Wqe(WqeOpcode::rdma_write).remote(0, 0));
  p.a.post(Wqe(WqeOpcode::rdma_read).remote(0, 0));
  p.a.post(Wqe(WqeOpcode::nop));
  rig.step();
  for (int i = 0; i < 4; ++i) CHECK(p.a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
  CHECK(p.b_cq.expect().byte_count() == 0);
}

TEST_CASE("64-bit atomics", "[atomics]") {
  Rig rig;
  Pair p(rig);
  Region local(64, full_access), remote(64, full_access);
  remote.at<u64>(8) = 40;
  p.a.post(Wqe(WqeOpcode::atomic_fa)
               .remote(remote.address(8), remote.key())
               .be(2, 8)
               .be(0, 8)
               .data(8, local.key(), local.address()));
  p.a.post(Wqe(WqeOpcode::atomic_cs)
               .remote(remote.address(8), remote.key())
               .be(7, 8)
               .be(42, 8)
               .data(8, local.key(), local.address(8)));
  p.a.post(Wqe(WqeOpcode::atomic_cs)
               .remote(remote.address(8), remote.key())
               .be(9, 8)
               .be(42, 8)
               .data(8, local.key(), local.address(16)));
  rig.step();
  for (int i = 0; i < 3; ++i) CHECK(p.a_cq.expect().byte_count() == 8);
  CHECK(local.at<u64>(0) == 40);
  CHECK(local.at<u64>(8) == 42);
  CHECK(local.at<u64>(16) == 7);  // compare failed: the value stays
  CHECK(remote.at<u64>(8) == 7);
}

TEST_CASE("Extended atomics of every size", "[atomics]") {
  Rig rig;
  Pair p(rig);
  Region local(256, full_access), remote(256, full_access);
  const u32 log = GENERATE(0u, 1u, 2u, 3u);
  const u32 size = 4u << log;
  const u8 opmod = static_cast<u8>(8 | log);
  remote.at<u32>(0) = 0x11223344;

  SECTION("masked compare and swap touches only the masked bits") {
    p.a.post(Wqe(WqeOpcode::masked_cs, opmod)
                 .remote(remote.address(), remote.key())
                 .be(0xaabbccdd, size)
                 .be(0xffff3344, size)
                 .be(0x00ff0000, size)
                 .be(0x0000ffff, size)
                 .pad()
                 .data(size, local.key(), local.address()));
    rig.step();
    CHECK(p.a_cq.expect().byte_count() == size);
    CHECK(remote.at<u32>(0) == 0x11bb3344);
  }
  SECTION("masked fetch and add carries only inside its fields") {
    p.a.post(Wqe(WqeOpcode::masked_fa, opmod)
                 .remote(remote.address(), remote.key())
                 .be(0x000000cc, size)
                 .be(0x00000080, size)
                 .pad()
                 .data(size, local.key(), local.address()));
    rig.step();
    CHECK(p.a_cq.expect().byte_count() == size);
    CHECK(remote.at<u32>(0) == 0x11223310);  // 0x44 + 0xcc without the carry
  }
  // The original value: host order for 8 bytes, big-endian for other sizes.
  if (size == 8) CHECK(local.at<u64>(0) == 0x11223344);
  else CHECK(load_be32(local.data() + size - 4) == 0x11223344);
}

TEST_CASE("An atomic size the device does not do is a QP operation error", "[atomics][error]") {
  Rig rig;
  Pair p(rig);
  Region local(256, full_access), remote(256, full_access);
  p.a.post(Wqe(WqeOpcode::masked_fa, 8 | 4)
               .remote(remote.address(), remote.key())
               .be(1, 64)
               .be(0, 64)
               .data(64, local.key(), local.address()));
  rig.step();
  const Completion c = p.a_cq.expect();
  CHECK(c.opcode() == static_cast<u8>(CqeOpcode::req_err));
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::local_qp_op));
  CHECK(c.vendor() == 0x68);
}

TEST_CASE("Requests in flight take less than half of all PSNs", "[rc]") {
  constexpr u32 bytes = 1 << 30;
  Rig rig;
  QpOptions o;
  o.max_rd = 16;
  o.timeout = 0;
  Pair p(rig, o);
  p.a.qp->attr.path_mtu = 1;
  // Nothing is answered.
  qp_set_state(*p.b.qp, QpState::reset);
  Region nothing(64, full_access);
  nothing.mkey().kind = Mkey::Kind::null;
  for (int i = 0; i < 8; ++i)
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(nothing.address(), nothing.key())
                 .data(bytes, nothing.key(), nothing.address()));
  rig.step();
  CHECK(psn_diff(qp_live_sq_psn(*p.a.qp), p.a.qp->attr.sq_psn) == bytes / 256);
}

TEST_CASE("UC delivers without acknowledge", "[uc]") {
  Rig rig;
  QpOptions o;
  o.type = QpType::uc;
  Pair p(rig, o, o);
  Region from(40000, full_access), to(40000, full_access);
  from.fill(4);
  // No receive WQE: the message is lost, the sender does not notice.
  p.a.post(Wqe(WqeOpcode::send).data(100, from.key(), from.address()));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 0);
  p.b_cq.expect_none();
  p.b.post_receive({{40000, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(40000, from.key(), from.address()));
  p.a.post(
      Wqe(WqeOpcode::rdma_write).remote(to.address(), 0x12345).data(8, from.key(), from.address()));
  rig.step();
  CHECK(p.b_cq.expect().byte_count() == 40000);
  CHECK(same(from, 0, to, 0, 40000));
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(p.a_cq.expect().opcode() == 0);  // a bad rkey is dropped silently too
  CHECK(p.b.qp->state == QpState::rts);
}

TEST_CASE("A completion points to a GRH only where there is one", "[rc]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  const Gid gid = rig.device().gids[0][0].gid;
  p.a.qp->attr.av.is_global = true;
  std::copy(gid.begin(), gid.end(), p.a.qp->attr.av.dgid);
  p.b.post_receive({{64, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
  rig.step();
  const Completion r = p.b_cq.expect();
  CHECK(r.byte_count() == 64);
  CHECK((r.flags_rqpn() >> 28) == 0);  // the packet had one, the buffer has not
  CHECK(r.source_qpn() == p.a.qp->qpn);
}

TEST_CASE("UD carries 40 bytes of GRH in front", "[ud]") {
  Rig rig;
  QpOptions o;
  o.type = QpType::ud;
  Pair p(rig, o, o);
  Region from(4096, full_access), to(8192, full_access);
  from.fill(5);
  const u16 lid = rig.device().port(1).lid;
  const Gid gid = rig.device().gids[0][0].gid;

  p.b.post_receive({{40, to.key(), to.address()}, {4096, to.key(), to.address(40)}});
  p.a.post(Wqe(WqeOpcode::send)
               .ud_av(0x1234, p.b.qp->qpn, lid, gid.data())
               .data(4096, from.key(), from.address()));
  rig.step();
  Completion r = p.b_cq.expect();
  CHECK(r.byte_count() == 4136);
  CHECK((r.flags_rqpn() >> 28 & 3) == 1);
  CHECK(r.source_qpn() == p.a.qp->qpn);
  CHECK(same(from, 0, to, 40, 4096));
  CHECK(to.data()[0] >> 4 == 6);
  CHECK(std::memcmp(to.data() + 8, gid.data(), 16) == 0);
  CHECK(std::memcmp(to.data() + 24, gid.data(), 16) == 0);

  SECTION("a wrong Q_Key is dropped") {
    p.b.post_receive({{8192, to.key(), to.address()}});
    p.a.post(
        Wqe(WqeOpcode::send).ud_av(0x1235, p.b.qp->qpn, lid).data(10, from.key(), from.address()));
    rig.step();
    p.b_cq.expect_none();
  }
  SECTION("a Q_Key with the top bit set means the QP's own") {
    p.b.post_receive({{8192, to.key(), to.address()}});
    p.a.post(Wqe(WqeOpcode::send)
                 .ud_av(0x80010000, p.b.qp->qpn, lid)
                 .data(10, from.key(), from.address()));
    rig.step();
    CHECK(p.b_cq.expect().byte_count() == 50);
  }
  SECTION("a wrong LID leads nowhere") {
    p.b.post_receive({{8192, to.key(), to.address()}});
    p.a.post(Wqe(WqeOpcode::send)
                 .ud_av(0x1234, p.b.qp->qpn, static_cast<u16>(lid + 1))
                 .data(10, from.key(), from.address()));
    rig.step();
    p.b_cq.expect_none();
  }
  SECTION("more than the MTU is a local length error and stops only the send queue") {
    Region big(5000, full_access);
    p.a.post(
        Wqe(WqeOpcode::send).ud_av(0x1234, p.b.qp->qpn, lid).data(4097, big.key(), big.address()));
    rig.step();
    p.a_cq.expect();  // the good one
    CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::local_length));
    CHECK(p.a.qp->state == QpState::sqe);
  }
}

TEST_CASE("UD multicast reaches every attached QP", "[ud]") {
  Rig rig;
  QpOptions o;
  o.type = QpType::ud;
  Pair p(rig, o, o);
  Region from(64, full_access), to(256, full_access);
  from.fill(6);
  u8 group[16] = {0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  for (TestQp *q : {&p.a, &p.b}) {
    q->qp->multicast.insert(std::string(reinterpret_cast<char *>(group), 16));
    q->post_receive({{128, to.key(), to.address(q == &p.a ? 0 : 128)}});
  }
  process().fabric->set_multicast_groups(2);
  p.a.post(Wqe(WqeOpcode::send)
               .ud_av(0x1234, 0xffffff, 0xc001, group)
               .data(64, from.key(), from.address()));
  rig.step();
  int receives = 0;
  Completion c;
  while (p.a_cq.poll(c)) receives += c.opcode() == static_cast<u8>(CqeOpcode::resp_send);
  while (p.b_cq.poll(c)) receives += c.opcode() == static_cast<u8>(CqeOpcode::resp_send);
  CHECK(receives == 2);
  CHECK(same(from, 0, to, 40, 64));
  CHECK(same(from, 0, to, 168, 64));
  process().fabric->set_multicast_groups(0);
}

TEST_CASE("XRC delivers to the SRQ named in the WQE", "[xrc]") {
  Rig rig;
  QpOptions ini, tgt;
  ini.type = QpType::xrc_ini;
  tgt.type = QpType::xrc_tgt;
  tgt.xrcd = 5;
  TestCq srq_cq;
  Pair p(rig, ini, tgt);
  TestSrq srq(16, SrqType::xrc, &srq_cq.cq, 5), foreign(16, SrqType::xrc, &srq_cq.cq, 6);
  Region from(3000, full_access), to(3000, full_access);
  from.fill(7);
  srq.post(3000, to.key(), to.address());
  p.a.post(Wqe(WqeOpcode::send).xrc(srq.srq.srqn).data(3000, from.key(), from.address()));
  rig.step();
  const Completion r = srq_cq.expect();
  CHECK(r.byte_count() == 3000);
  CHECK(r.uidx() == srq.srq.uidx);
  CHECK(same(from, 0, to, 0, 3000));
  CHECK(p.a_cq.expect().opcode() == 0);

  // An SRQ of another domain is out of reach.
  p.a.post(Wqe(WqeOpcode::send).xrc(foreign.srq.srqn).data(10, from.key(), from.address()));
  rig.step();
  CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::remote_invalid_request));
}

namespace {

struct DcRig {
  explicit DcRig(Rig &rig) : lid(rig.device().port(1).lid) {
    QpOptions o;
    o.type = QpType::dci;
    dci = std::make_unique<TestQp>(rig, dci_cq, dci_cq, o);
    dci->connect(0, 0);
    for (auto &t : dct) {
      QpOptions d;
      d.type = QpType::dct;
      d.dc_key = key;
      d.srq = &srq.srq;
      t = std::make_unique<TestQp>(rig, dct_cq, dct_cq, d);
      t->connect(0, 0);
    }
  }
  static constexpr u64 key = 0x1122334455667788;
  u16 lid;
  TestCq dci_cq, dct_cq;
  TestSrq srq;
  std::unique_ptr<TestQp> dci, dct[3];
};

}  // namespace

TEST_CASE("DC: a target counts who connects to it", "[dc]") {
  Rig rig;
  DcRig dc(rig);
  Region from(64, full_access), to(64, full_access);
  const auto connects = [] { return port_counters(0, 1).queues[QueueCounter::rx_dct_connect]; };
  const u64 before = connects();
  for (const int target : {0, 0, 1, 0}) {
    dc.dci->post(Wqe(WqeOpcode::rdma_write)
                     .av(DcRig::key, dc.dct[target]->qp->qpn, dc.lid)
                     .remote(to.address(), to.key())
                     .data(64, from.key(), from.address()));
    rig.step();
    CHECK(dc.dci_cq.expect().opcode() == 0);
  }
  CHECK(connects() == before + 3);
}

TEST_CASE("DC: one initiator, many targets, every opcode", "[dc]") {
  Rig rig;
  DcRig dc(rig);
  Region from(20000, full_access), to(20000, full_access);
  from.fill(8);
  for (int i = 0; i < 9; ++i) dc.srq.post(2000, to.key(), to.address(i * 2000));
  for (int i = 0; i < 9; ++i) {
    TestQp &t = *dc.dct[i % 3];
    dc.dci->post(Wqe(WqeOpcode::send)
                     .unsignaled()
                     .av(DcRig::key, t.qp->qpn, dc.lid)
                     .data(2000, from.key(), from.address(i * 2000)));
  }
  dc.dci->post(Wqe(WqeOpcode::nop));
  rig.step();
  CHECK(dc.dci_cq.expect().sent_opcode() == 0);
  for (int i = 0; i < 9; ++i) {
    const Completion r = dc.dct_cq.expect();
    CHECK(r.uidx() == dc.dct[i % 3]->qp->uidx);
    CHECK(r.qpn() == dc.dct[i % 3]->qp->qpn);
    CHECK(r.source_qpn() == dc.dci->qp->qpn);
    CHECK(r.byte_count() == 2000);
  }
  CHECK(same(from, 0, to, 0, 18000));

  const u32 t = dc.dct[1]->qp->qpn;
  dc.dci->post(Wqe(WqeOpcode::rdma_write)
                   .av(DcRig::key, t, dc.lid)
                   .remote(to.address(19000), to.key())
                   .data(500, from.key(), from.address(500)));
  dc.dci->post(Wqe(WqeOpcode::rdma_read)
                   .av(DcRig::key, t, dc.lid)
                   .remote(to.address(), to.key())
                   .data(100, from.key(), from.address(19500)));
  to.at<u64>(19992) = 5;
  dc.dci->post(Wqe(WqeOpcode::atomic_fa)
                   .av(DcRig::key, dc.dct[2]->qp->qpn, dc.lid)
                   .remote(to.address(19992), to.key())
                   .be(3, 8)
                   .be(0, 8)
                   .data(8, from.key(), from.address(19800)));
  rig.step();
  for (int i = 0; i < 3; ++i) CHECK(dc.dci_cq.expect().opcode() == 0);
  CHECK(same(from, 500, to, 19000, 500));
  CHECK(same(to, 0, from, 19500, 100));
  CHECK(to.at<u64>(19992) == 8);
}

TEST_CASE("DC: a wrong access key is never answered", "[dc][error]") {
  Rig rig;
  DcRig dc(rig);
  Region from(64, full_access), to(64, full_access);
  dc.srq.post(64, to.key(), to.address());
  dc.dci->post(Wqe(WqeOpcode::send)
                   .av(DcRig::key + 1, dc.dct[0]->qp->qpn, dc.lid)
                   .data(64, from.key(), from.address()));
  dc.dci->post(Wqe(WqeOpcode::nop));
  rig.step();
  dc.dci_cq.expect_none();
  for (int i = 0; i < 4; ++i) rig.step(200'000'000);
  const Completion c = dc.dci_cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::retry_exceeded));
  CHECK(c.vendor() == 0x81);
  CHECK(dc.dci_cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(dc.dct[0]->qp->dc_key_violations >= 1);
  CHECK(dc.dct[0]->qp->state == QpState::rtr);
  dc.dct_cq.expect_none();

  // The initiator recovers through RESET.
  qp_set_state(*dc.dci->qp, QpState::reset);
  TestQp fresh(rig, dc.dci_cq, dc.dci_cq, [] {
    QpOptions o;
    o.type = QpType::dci;
    return o;
  }());
  fresh.connect(0, 0);
  fresh.post(Wqe(WqeOpcode::send)
                 .av(DcRig::key, dc.dct[0]->qp->qpn, dc.lid)
                 .data(64, from.key(), from.address()));
  rig.step();
  CHECK(dc.dci_cq.expect().opcode() == 0);
  CHECK(dc.dct_cq.expect().byte_count() == 64);
}

TEST_CASE("DC: a refused request ends the connection, not the target", "[dc][error]") {
  Rig rig;
  DcRig dc(rig);
  Region from(64, full_access), to(64, full_access);
  dc.dci->post(Wqe(WqeOpcode::rdma_write)
                   .av(DcRig::key, dc.dct[0]->qp->qpn, dc.lid)
                   .remote(to.address(), to.key() ^ 0x100)
                   .data(64, from.key(), from.address()));
  rig.step();
  const Completion c = dc.dci_cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::remote_access));
  CHECK(c.vendor() == 0x88);
  CHECK(dc.dct[0]->qp->state == QpState::rtr);
  QpOptions o;
  o.type = QpType::dci;
  TestQp other(rig, dc.dci_cq, dc.dci_cq, o);
  other.connect(0, 0);
  other.post(Wqe(WqeOpcode::rdma_write)
                 .av(DcRig::key, dc.dct[0]->qp->qpn, dc.lid)
                 .remote(to.address(), to.key())
                 .data(64, from.key(), from.address()));
  rig.step();
  CHECK(dc.dci_cq.expect().opcode() == 0);
}
