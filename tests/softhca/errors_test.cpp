// Every way a request can fail: syndromes, vendor syndromes, states, flushes.
#include <sys/mman.h>

#include <algorithm>

#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

void expect_error(TestCq &cq, Syndrome s, u8 vendor, u16 index) {
  const Completion c = cq.expect();
  CHECK(c.opcode() == static_cast<u8>(CqeOpcode::req_err));
  CHECK(c.syndrome() == static_cast<u8>(s));
  CHECK(c.vendor() == vendor);
  CHECK(c.wqe_counter() == index);
}

}  // namespace

TEST_CASE("A bad local key is a local protection error and flushes the queues", "[error]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  p.a.post_receive({{64, from.key(), from.address()}});
  const u16 good = p.a.post(Wqe(WqeOpcode::rdma_write)
                                .unsignaled()
                                .remote(to.address(), to.key())
                                .data(8, from.key(), from.address()));
  (void)good;
  u32 lkey = from.key();
  u64 address = from.address();
  u32 bytes = 8;
  SECTION("unknown key") { lkey = 0x00dead00; }
  SECTION("wrong tag") { lkey ^= 0x5a; }
  SECTION("outside the region") { bytes = 65; }
  SECTION("before the region") { address -= 1; }
  const u16 bad = p.a.post(
      Wqe(WqeOpcode::rdma_write).remote(to.address(), to.key()).data(bytes, lkey, address));
  const u16 next = p.a.post(Wqe(WqeOpcode::rdma_write)
                                .unsignaled()
                                .remote(to.address(), to.key())
                                .data(8, from.key(), from.address()));
  rig.step();
  expect_error(p.a_cq, Syndrome::local_protection, 0x52, bad);
  expect_error(p.a_cq, Syndrome::flush, 0xf5, next);
  const Completion r = p.a_cq.expect();
  CHECK(r.opcode() == static_cast<u8>(CqeOpcode::resp_err));
  CHECK(r.syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(r.vendor() == 0xf9);
  CHECK(p.a.qp->state == QpState::err);

  // Work posted in the error state flushes at once.
  const u16 late = p.a.post(Wqe(WqeOpcode::nop).unsignaled());
  qp_wake(*p.a.qp);
  rig.step();
  expect_error(p.a_cq, Syndrome::flush, 0xf5, late);
}

TEST_CASE("A read into memory without local write is refused", "[error]") {
  Rig rig;
  Pair p(rig);
  Region from(64, access_remote_read), to(64, full_access);
  p.a.post(
      Wqe(WqeOpcode::rdma_read).remote(to.address(), to.key()).data(8, from.key(), from.address()));
  rig.step();
  expect_error(p.a_cq, Syndrome::local_protection, 0x52, 0);
}

TEST_CASE("A key of another protection domain is refused on both sides", "[error]") {
  Rig rig;
  Pair p(rig);
  Region foreign(64, full_access, pdn + 1), ours(64, full_access);
  SECTION("local") {
    p.a.post(Wqe(WqeOpcode::rdma_write)
                 .remote(ours.address(), ours.key())
                 .data(8, foreign.key(), foreign.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::local_protection, 0x52, 0);
  }
  SECTION("remote") {
    p.a.post(Wqe(WqeOpcode::rdma_write)
                 .remote(foreign.address(), foreign.key())
                 .data(8, ours.key(), ours.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
  }
}

TEST_CASE("Remote access violations", "[error]") {
  Rig rig;
  Region from(64, full_access);
  SECTION("the key lacks the right") {
    Pair p(rig);
    Region to(64, access_local_write | access_remote_read);
    p.a.post(Wqe(WqeOpcode::rdma_write)
                 .remote(to.address(), to.key())
                 .data(8, from.key(), from.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
    CHECK(p.b.qp->state == QpState::err);
  }
  SECTION("the QP lacks the right") {
    QpOptions o;
    o.access = access_remote_write;
    Pair p(rig, {}, o);
    Region to(64, full_access);
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(to.address(), to.key())
                 .data(8, from.key(), from.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_invalid_request, 0x8a, 0);
  }
  SECTION("an atomic beyond the end") {
    Pair p(rig);
    Region to(64, full_access);
    p.a.post(Wqe(WqeOpcode::atomic_fa)
                 .remote(to.address(64), to.key())
                 .be(1, 8)
                 .be(0, 8)
                 .data(8, from.key(), from.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
  }
  SECTION("a misaligned atomic") {
    Pair p(rig);
    Region to(64, full_access);
    p.a.post(Wqe(WqeOpcode::atomic_fa)
                 .remote(to.address(4), to.key())
                 .be(1, 8)
                 .be(0, 8)
                 .data(8, from.key(), from.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_invalid_request, 0x8a, 0);
  }
}

TEST_CASE("A message longer than the receive buffer", "[error]") {
  Rig rig;
  Pair p(rig);
  Region from(4096, full_access), to(64, full_access);
  p.b.post_receive({{64, to.key(), to.address()}});
  p.b.post_receive({{64, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(65, from.key(), from.address()));
  rig.step();
  Completion r = p.b_cq.expect();
  CHECK(r.opcode() == static_cast<u8>(CqeOpcode::resp_err));
  CHECK(r.syndrome() == static_cast<u8>(Syndrome::local_length));
  CHECK(p.b_cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  expect_error(p.a_cq, Syndrome::remote_invalid_request, 0x8a, 0);
  CHECK(p.a.qp->state == QpState::err);
  CHECK(p.b.qp->state == QpState::err);
}

TEST_CASE("A bad key in the receive WQE", "[error]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  p.b.post_receive({{8, to.key(), to.address()}, {8, 0xbad00, to.address()}});
  SECTION("is an error when its memory is needed") {
    p.a.post(Wqe(WqeOpcode::send).data(9, from.key(), from.address()));
    rig.step();
    CHECK(p.b_cq.expect().syndrome() == static_cast<u8>(Syndrome::local_protection));
    expect_error(p.a_cq, Syndrome::remote_operation, 0x89, 0);
  }
  SECTION("does not matter when it is not") {
    p.a.post(Wqe(WqeOpcode::send).data(8, from.key(), from.address()));
    rig.step();
    CHECK(p.b_cq.expect().byte_count() == 8);
    CHECK(p.a_cq.expect().opcode() == 0);
  }
}

namespace {

// Another key for the memory of a region, which can go before the memory does.
struct SecondKey {
  explicit SecondKey(const Region &r) : key(process().mkeys.create(pdn)) {
    key->access = full_access;
    key->start = key->host_base = r.address();
    key->length = r.size();
  }
  ~SecondKey() {
    destroy();
    if (above != nullptr) process().mkeys.destroy(above);
  }
  void destroy() {
    if (key != nullptr) process().mkeys.destroy(key);
    key = nullptr;
  }
  // One that leads to it, as a window does.
  u32 lead_there() {
    above = process().mkeys.create(pdn);
    above->kind = Mkey::Kind::indirect;
    above->access = full_access;
    above->start = key->start;
    above->length = key->length;
    above->set_entries({{key->length, key->key(), key->start, 0}});
    return above->key();
  }
  Mkey *key, *above = nullptr;
};

// Runs the device until the first byte of `r` is set. All of a long message is not there yet.
void step_until_touched(const Region &r) {
  const volatile u8 *first = reinterpret_cast<const u8 *>(r.address());
  while (*first == 0) engine_step(device_clock_ns());
}

void expect_untouched(Region &r) {
  CHECK(std::all_of(r.data(), r.data() + r.size(), [](u8 b) { return b == 0; }));
}

}  // namespace

TEST_CASE("A message stops where its memory key goes", "[error]") {
  constexpr u32 bytes = 64 << 20;
  Rig rig;
  Pair p(rig);
  Region from(bytes, full_access), to(bytes, full_access);
  std::memset(from.data(), 1, bytes);
  SecondKey source(from), target(to);
  const auto clear = [&] { std::memset(to.data(), 0, bytes); };
  const auto begin_write = [&](u32 rkey) {
    p.a.post(Wqe(WqeOpcode::rdma_write)
                 .remote(to.address(), rkey)
                 .data(bytes, from.key(), from.address()));
    step_until_touched(to);
    clear();
  };
  SECTION("the target of a write") {
    begin_write(target.key->key());
    target.destroy();
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
    CHECK(p.b.qp->state == QpState::err);
  }
  SECTION("memory behind the key of a write") {
    begin_write(target.lead_there());
    target.destroy();
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
  }
  SECTION("a window that its own side invalidates") {
    const u32 rkey = target.lead_there();
    begin_write(rkey);
    p.b.post(Wqe(WqeOpcode::local_inv).imm(swap32(rkey)));
    qp_wake(*p.b.qp);
    while (p.b.qp->sq_consumed == 0) engine_step(device_clock_ns());
    clear();
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
  }
  SECTION("the source of a read") {
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(from.address(), source.key->key())
                 .data(bytes, to.key(), to.address()));
    step_until_touched(to);
    source.destroy();
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
    CHECK(p.b.qp->state == QpState::err);
    clear();
  }
  SECTION("the target of a read") {
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(from.address(), from.key())
                 .data(bytes, target.key->key(), to.address()));
    step_until_touched(to);
    clear();
    target.destroy();
    rig.step();
    expect_error(p.a_cq, Syndrome::local_protection, 0x52, 0);
  }
  SECTION("the buffer of a receive") {
    p.b.post_receive({{bytes, target.key->key(), to.address()}});
    p.a.post(Wqe(WqeOpcode::send).data(bytes, from.key(), from.address()));
    step_until_touched(to);
    clear();
    target.destroy();
    rig.step();
    CHECK(p.b_cq.expect().syndrome() == static_cast<u8>(Syndrome::local_protection));
    expect_error(p.a_cq, Syndrome::remote_operation, 0x89, 0);
  }
  expect_untouched(to);
}

TEST_CASE("What is sent again needs its memory key", "[error][rnr]") {
  constexpr u64 second = 1'000'000'000;
  Rig rig;
  QpOptions o;
  o.rnr_retry = 7;
  Pair p(rig, o);
  Region from(64, full_access), to(64, full_access);
  SecondKey source(from);
  p.a.post(Wqe(WqeOpcode::send).data(64, source.key->key(), from.address()));
  rig.step();
  source.destroy();
  p.b.post_receive({{64, to.key(), to.address()}});
  rig.step(second);
  expect_error(p.a_cq, Syndrome::local_protection, 0x52, 0);
  p.b_cq.expect_none();
}

TEST_CASE("A key is used by what was posted before it is invalidated", "[error]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  SecondKey source(from);
  from.fill(5);
  const u32 lkey = source.lead_there();
  p.a.post(
      Wqe(WqeOpcode::rdma_write).remote(to.address(), to.key()).data(64, lkey, from.address()));
  p.a.post(Wqe(WqeOpcode::local_inv).imm(swap32(lkey)));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(std::memcmp(from.data(), to.data(), 64) == 0);
}

namespace {

constexpr u32 first_psn = 0xfffff0;  // see TestQp::connect()

// Part of a message of two packets of the path MTU, or of others behind it.
void deliver(Rig &rig, TestQp &to, u32 src_qpn, WqeOpcode op, u32 packet, u16 flags,
             Service service = Service::uc, u32 connection = 0) {
  constexpr u32 mtu = 1024;
  static const u8 payload[mtu] = {7, 7, 7};
  PacketHeader h{};
  h.kind = PacketKind::request;
  h.service = service;
  h.opcode = static_cast<u8>(op);
  h.src_qpn = src_qpn;
  h.dst_qpn = to.qp->qpn;
  h.dst_lid = rig.device().port(1).lid;
  h.flags = flags;
  h.psn = psn_add(first_psn, packet);
  h.npsn = 1;
  h.payload = mtu;
  h.message_bytes = 2 * mtu;
  h.connection = connection;
  qp_receive_request(*to.qp, h, payload);
}

// A key for memory that is not there.
struct Unmapped {
  Unmapped() : key(process().mkeys.create(pdn)) {
    void *p = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p, 4096);
    key->access = full_access;
    key->start = key->host_base = reinterpret_cast<u64>(p);
    key->length = 4096;
  }
  ~Unmapped() { process().mkeys.destroy(key); }
  Mkey *key;
};

}  // namespace

TEST_CASE("An unreliable message that loses a packet leaves its receive to the next", "[error]") {
  Rig rig;
  QpOptions o;
  o.type = QpType::uc;
  Pair p(rig, o, o);
  Region to(3 * 4096, full_access);
  const u32 from = p.a.qp->qpn;
  for (u32 i = 0; i < 3; ++i) p.b.post_receive({{4096, to.key(), to.address(i * 4096)}});
  deliver(rig, p.b, from, WqeOpcode::send, 0, packet_first);
  SECTION("the middle") { deliver(rig, p.b, from, WqeOpcode::send, 2, 0); }
  SECTION("the end") {}
  deliver(rig, p.b, from, WqeOpcode::send, 3, packet_first);
  deliver(rig, p.b, from, WqeOpcode::send, 4, packet_last);
  const Completion c = p.b_cq.expect();
  CHECK(c.opcode() == static_cast<u8>(CqeOpcode::resp_send));
  CHECK(c.wqe_counter() == 0);
  CHECK(c.byte_count() == 2048);
  CHECK(to.data()[1024] == 7);

  // A message in progress when the QP stops is flushed with the others.
  deliver(rig, p.b, from, WqeOpcode::send, 5, packet_first);
  qp_set_state(*p.b.qp, QpState::err);
  for (const u16 counter : {1, 2}) {
    const Completion flushed = p.b_cq.expect();
    CHECK(flushed.syndrome() == static_cast<u8>(Syndrome::flush));
    CHECK(flushed.wqe_counter() == counter);
  }
  p.b_cq.expect_none();
}

TEST_CASE("A shared receive WQE of an unreliable message that is lost ends", "[error]") {
  Rig rig;
  TestSrq srq;
  QpOptions o;
  o.type = QpType::uc;
  QpOptions receiver = o;
  receiver.srq = &srq.srq;
  Pair p(rig, o, receiver);
  Region to(2 * 4096, full_access);
  for (u32 i = 0; i < 2; ++i) srq.post(4096, to.key(), to.address(i * 4096));
  deliver(rig, p.b, p.a.qp->qpn, WqeOpcode::send, 0, packet_first);
  deliver(rig, p.b, p.a.qp->qpn, WqeOpcode::send, 3, packet_first);
  Completion c = p.b_cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(c.wqe_counter() == 0);
  deliver(rig, p.b, p.a.qp->qpn, WqeOpcode::send, 4, packet_last);
  c = p.b_cq.expect();
  CHECK(c.opcode() == static_cast<u8>(CqeOpcode::resp_send));
  CHECK(c.wqe_counter() == 1);
}

TEST_CASE("A write with immediate that fails ends its receive", "[error]") {
  Rig rig;
  TestSrq srq;
  QpOptions o;
  SECTION("of the queue pair") {}
  SECTION("of a shared queue") { o.srq = &srq.srq; }
  Pair p(rig, {}, o);
  Region from(64, full_access), to(64, full_access);
  Unmapped nowhere;
  if (o.srq != nullptr) srq.post(64, to.key(), to.address());
  else p.b.post_receive({});
  p.a.post(Wqe(WqeOpcode::rdma_write_imm)
               .remote(nowhere.key->start, nowhere.key->key())
               .data(8, from.key(), from.address()));
  rig.step();
  expect_error(p.a_cq, Syndrome::remote_operation, 0x89, 0);
  const Completion c = p.b_cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(c.wqe_counter() == 0);
  p.b_cq.expect_none();
}

TEST_CASE("A receive that fails on an unreliable connection completes once", "[error]") {
  Rig rig;
  QpOptions o;
  o.type = QpType::uc;
  Pair p(rig, o, o);
  Region from(64, full_access), to(64, full_access);
  p.b.post_receive({{8, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
  rig.step();
  CHECK(p.b_cq.expect().syndrome() == static_cast<u8>(Syndrome::local_length));
  p.b_cq.expect_none();
}

TEST_CASE("A read of memory that is not there ends its responder", "[error]") {
  Rig rig;
  Pair p(rig);
  Region to(64, full_access);
  Unmapped nowhere;
  p.b.post_receive({});
  // The second is not answered.
  for (int i = 0; i < 2; ++i)
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(nowhere.key->start, nowhere.key->key())
                 .data(64, to.key(), to.address()));
  rig.step();
  expect_error(p.a_cq, Syndrome::remote_operation, 0x89, 0);
  expect_error(p.a_cq, Syndrome::flush, 0xf5, 1);
  CHECK(p.b.qp->state == QpState::err);
  CHECK(p.b_cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
}

TEST_CASE("A DC connection that ends inside a message gives its receive back", "[error]") {
  constexpr u32 initiator = 0x123456, key = 0;
  Rig rig;
  TestCq cq;
  TestSrq srq;
  QpOptions o;
  o.type = QpType::dct;
  o.srq = &srq.srq;
  o.dc_key = key;
  TestQp target(rig, cq, cq, o);
  target.connect(0, rig.device().port(1).lid);
  Region to(2 * 4096, full_access);
  for (u32 i = 0; i < 2; ++i) srq.post(4096, to.key(), to.address(i * 4096));
  const auto begin = [&](u32 connection) {
    deliver(rig, target, initiator, WqeOpcode::send, 0, packet_first | packet_connect, Service::dc,
            connection);
  };
  begin(1);
  cq.expect_none();
  SECTION("by another one") { begin(2); }
  SECTION("by its initiator") {
    PacketHeader h{};
    h.src_qpn = initiator;
    h.connection = 1;
    qp_dc_disconnect(*target.qp, h);
  }
  SECTION("by a refused request") {
    deliver(rig, target, initiator, WqeOpcode::nop, 1, packet_last, Service::dc, 1);
  }
  SECTION("with its target") { qp_set_state(*target.qp, QpState::err); }
  const Completion c = cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(c.wqe_counter() == 0);
  cq.expect_none();
}

TEST_CASE("A failure that the completion queue has no room for ends a UD QP", "[error]") {
  Rig rig;
  TestCq cq(4);
  QpOptions o;
  o.type = QpType::ud;
  TestQp qp(rig, cq, cq, o);
  qp.connect(0, 0);
  for (u32 i = 0; i < cq.cq.entries; ++i) qp.post(Wqe(WqeOpcode::nop));
  qp.post(Wqe(WqeOpcode::send).ud_av(0x1234, qp.qp->qpn, 1).data(8, 0xbad00, 0));
  rig.step();
  CHECK(qp.qp->state == QpState::err);
}

TEST_CASE("Packets reported missing again and again use up the retries", "[error]") {
  Rig rig;
  QpOptions o;
  o.retry = 2;
  Pair p(rig, o);
  qp_set_state(*p.b.qp, QpState::reset);  // we answer for it
  Region from(4096, full_access);
  p.a.post(Wqe(WqeOpcode::send).data(4096, from.key(), from.address()));
  rig.step();
  PacketHeader h{};
  h.kind = PacketKind::ack;
  h.nak = Nak::sequence;
  h.src_qpn = p.b.qp->qpn;
  const auto missing = [&](u32 packet) {
    h.psn = psn_add(first_psn, packet);
    qp_receive_response(*p.a.qp, h, nullptr);
    rig.step();
  };
  for (int i = 0; i < 2; ++i) missing(0);
  p.a_cq.expect_none();
  for (int i = 0; i < 3; ++i) missing(1);  // one has arrived
  p.a_cq.expect_none();
  missing(1);
  expect_error(p.a_cq, Syndrome::retry_exceeded, 0x81, 0);
}

TEST_CASE("RNR: the sender waits, retries and gives up", "[error][rnr]") {
  // RNR timers run on the real clock. A second of the device's is longer than
  // any delay of a busy machine.
  constexpr u64 second = 1'000'000'000;
  Rig rig;
  Region from(64, full_access), to(64, full_access);
  SECTION("a receive posted in time is found") {
    QpOptions o;
    o.rnr_retry = 7;
    Pair p(rig, o);
    p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
    for (int i = 0; i < 20; ++i) rig.step(1'000'000);
    p.a_cq.expect_none();
    p.b.post_receive({{64, to.key(), to.address()}});
    rig.step(second);
    CHECK(p.a_cq.expect().opcode() == 0);
    CHECK(p.b_cq.expect().byte_count() == 64);
  }
  SECTION("otherwise the retries run out") {
    QpOptions o;
    o.rnr_retry = 2;
    Pair p(rig, o);
    p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
    for (int i = 0; i < 4; ++i) rig.step(second);
    expect_error(p.a_cq, Syndrome::rnr_retry_exceeded, 0x82, 0);
    CHECK(p.b.qp->state == QpState::rts);
  }
  SECTION("write with immediate, too, and nothing arrives twice") {
    QpOptions o;
    o.rnr_retry = 7;
    Pair p(rig, o);
    Region big(40000, full_access), target(40000, full_access);
    big.fill(3);
    p.a.post(Wqe(WqeOpcode::rdma_write_imm)
                 .imm(5)
                 .remote(target.address(), target.key())
                 .data(40000, big.key(), big.address()));
    p.a.post(Wqe(WqeOpcode::rdma_write_imm)
                 .imm(6)
                 .remote(target.address(), target.key())
                 .data(8, big.key(), big.address()));
    rig.step(1'000'000);
    p.b_cq.expect_none();
    p.b.post_receive({});
    p.b.post_receive({});
    for (int i = 0; i < 4; ++i) rig.step(second);
    CHECK(p.b_cq.expect().imm_raw() == 5);
    CHECK(p.b_cq.expect().imm_raw() == 6);
    p.b_cq.expect_none();
    CHECK(std::memcmp(big.data(), target.data(), 40000) == 0);
  }
}

TEST_CASE("No peer: retries, then retry exceeded", "[error]") {
  Rig rig;
  TestCq cq;
  QpOptions o;
  o.retry = 3;
  TestQp a(rig, cq, cq, o);
  a.connect(a.qp->qpn + 500, rig.device().port(1).lid);  // no such QP
  Region from(64, full_access);
  const u16 index =
      a.post(Wqe(WqeOpcode::rdma_write).remote(0x1000, 5).data(8, from.key(), from.address()));
  for (int i = 0; i < 3; ++i) {
    rig.step(70'000'000);
    cq.expect_none();
  }
  rig.step(70'000'000);
  expect_error(cq, Syndrome::retry_exceeded, 0x81, index);
}

TEST_CASE("Malformed WQEs never get past the parser", "[error][wqe]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  SECTION("unknown opcode") { p.a.post(Wqe(static_cast<WqeOpcode>(0x3e))); }
  SECTION("RDMA without its segment") { p.a.post(Wqe(WqeOpcode::rdma_write)); }
  SECTION("atomic without operands") {
    p.a.post(Wqe(WqeOpcode::atomic_cs).remote(to.address(), to.key()));
  }
  SECTION("inline bytes beyond the WQE") {
    u8 s[16] = {};
    store_be32(s, 0x80000000 | 500);
    p.a.post(Wqe(WqeOpcode::send).raw(s, 16));
  }
  SECTION("inline data on a read") {
    p.a.post(Wqe(WqeOpcode::rdma_read).remote(to.address(), to.key()).inline_data("x", 1));
  }
  SECTION("a plain atomic with an extended size") {
    p.a.post(Wqe(WqeOpcode::atomic_fa, 9)
                 .remote(to.address(), to.key())
                 .be(1, 8)
                 .be(0, 8)
                 .data(8, from.key(), from.address()));
  }
  rig.step();
  expect_error(p.a_cq, Syndrome::local_qp_op, 0x68, 0);
  CHECK(p.a.qp->state == QpState::err);
}

TEST_CASE("Send with invalidate", "[error][mw]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  // Only keys that were bound by a UMR can be invalidated.
  Region window(64, full_access);
  window.mkey().kind = Mkey::Kind::indirect;
  window.mkey().max_entries = 4;
  window.mkey().entries = {{64, to.key(), to.address(), 0}};
  p.b.post_receive({{64, to.key(), to.address()}});
  SECTION("frees a key that allows it") {
    window.mkey().remote_invalidate = true;
    p.a.post(
        Wqe(WqeOpcode::send_inv).imm(swap32(window.key())).data(8, from.key(), from.address()));
    rig.step();
    const Completion r = p.b_cq.expect();
    CHECK(r.opcode() == static_cast<u8>(CqeOpcode::resp_send_inv));
    CHECK(load_be32(r.raw + 36) == window.key());
    CHECK(window.mkey().free);
    p.a.post(Wqe(WqeOpcode::rdma_write)
                 .remote(window.address(), window.key())
                 .data(8, from.key(), from.address()));
    rig.step();
    p.a_cq.expect();
    CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::remote_access));
  }
  SECTION("is refused for a key that does not") {
    window.mkey().remote_invalidate = false;
    p.a.post(
        Wqe(WqeOpcode::send_inv).imm(swap32(window.key())).data(8, from.key(), from.address()));
    rig.step();
    expect_error(p.a_cq, Syndrome::remote_access, 0x88, 0);
    CHECK_FALSE(window.mkey().free);
  }
}

TEST_CASE("RESET forgets everything", "[fsm]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access);
  p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));  // stuck in RNR
  rig.step();
  qp_set_state(*p.a.qp, QpState::reset);
  rig.step(1'000'000'000);
  p.a_cq.expect_none();
  CHECK(p.a.qp->sq_consumed == 0);
}

TEST_CASE("An idle QP goes to ERR without completions, posted work with them", "[fsm]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access);
  p.a.post_receive({{8, from.key(), from.address()}});
  qp_set_state(*p.a.qp, QpState::err);
  CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  p.a_cq.expect_none();
}
