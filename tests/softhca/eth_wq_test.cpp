// Work queues: cyclic and striding, RSS over an indirection table, states.
#include "eth_rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 filler = 1u << 31;

// An RSS QP over some work queues, with a rule that brings it everything.
struct Spread {
  Spread(Rig &rig, const std::vector<TestWq *> &queues, u32 fields = hash_ipv4 | hash_udp) {
    for (TestWq *q : queues) table.wqs.push_back(&q->wq);
    auto qp = std::make_unique<Qp>();
    qp->device = &rig.device();
    qp->type = QpType::raw_packet;
    qp->pdn = pdn;
    qp->eth = std::make_unique<EthQp>();
    qp->eth->rss = std::make_unique<Rss>();
    qp->eth->rss->table = &table;
    qp->eth->rss->fields = fields;
    u32 seed = 7;
    for (u8 &b : qp->eth->rss->key) b = static_cast<u8>((seed = seed * 1103515245 + 12345) >> 16);
    this->qp = qp_register(std::move(qp));
    rule = std::make_unique<TestRule>(this->qp);
    REQUIRE(rule->add() == 0);
  }
  ~Spread() {
    rule.reset();
    qp_unregister(qp);
  }
  IndirectionTable table;
  Qp *qp;
  std::unique_ptr<TestRule> rule;
};

u32 strides_of(const Completion &c) { return c.byte_count() >> 16 & 0x7fff; }
u32 bytes_of(const Completion &c) { return c.byte_count() & 0xffff; }
u16 wqe_of(const Completion &c) { return load_be16(c.raw + 2); }

// The hash bit by bit, from the definition.
u32 reference_toeplitz(const Rss &rss, const std::vector<u8> &input) {
  u32 hash = 0;
  for (size_t bit = 0; bit < input.size() * 8; ++bit) {
    if ((input[bit / 8] >> (7 - bit % 8) & 1) == 0) continue;
    u32 window = 0;
    for (size_t k = 0; k < 32; ++k)
      window = window << 1 | (rss.key[(bit + k) / 8] >> (7 - (bit + k) % 8) & 1);
    hash ^= window;
  }
  return hash;
}

}  // namespace

TEST_CASE("RSS spreads as the Toeplitz hash says", "[rss]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q[4];
  for (TestWq &w : q) w.post(8);
  Spread spread(rig, {&q[0], &q[1], &q[2], &q[3], &q[3], &q[2], &q[1], &q[0]});
  std::vector<u32> used(8);
  u32 expected_wq[4] = {};
  for (u16 i = 0; i < 20; ++i) {
    const u32 src = 0x0a000000 + i * 0x01030507u, dst = 0xc0a80001;
    std::vector<u8> input(12);
    store_be32(input.data(), src);
    store_be32(input.data() + 4, dst);
    store_be16(input.data() + 8, static_cast<u16>(1000 + i));
    store_be16(input.data() + 10, 53);
    const u32 hash = reference_toeplitz(*spread.qp->eth->rss, input);
    TestWq &target = *std::find_if(std::begin(q), std::end(q),
                                   [&](TestWq &w) { return &w.wq == spread.table.wqs[hash & 7]; });
    sender.send(
        FrameBuilder().ipv4(src, dst, 17).udp(static_cast<u16>(1000 + i), 53).payload(30).build());
    rig.step();
    sender.cq.expect();
    Completion c;
    const bool reached = target.cq.poll(c);
    CHECK(reached);
    if (!reached) continue;
    CHECK(load_be32(c.raw + 12) == hash);
    CHECK(c.raw[16] == 0xa5);  // source and destination: UDP ports, IPv4
    CHECK(c.uidx() == 0x777);
    CHECK(c.wqe_counter() == expected_wq[&target - q]++);
    if (expected_wq[&target - q] % 4 == 0) target.post(4);
  }
  for (const u32 n : expected_wq) CHECK(n > 0);
}

TEST_CASE("Frames of one striding WQE lie behind one another", "[striding]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q(4, 6, 5);  // 32 strides of 64 bytes: 2048 per WQE
  q.post(2, 2048);
  Spread spread(rig, {&q}, 0);
  const u32 sizes[] = {60, 64, 65, 500, 1000};
  u32 at = 0;
  for (const u32 n : sizes) {
    const auto frame = udp_frame(n - 42);
    REQUIRE(frame.size() == n);
    sender.send(frame);
    rig.step();
    sender.cq.expect();
    const Completion c = q.cq.expect();
    CHECK(bytes_of(c) == n);
    CHECK(strides_of(c) == (n + 63) / 64);
    CHECK(c.wqe_counter() == at);
    CHECK(wqe_of(c) == 0);
    CHECK(std::memcmp(q.memory.data() + at * 64, frame.data(), n) == 0);
    at += (n + 63) / 64;
  }
}

TEST_CASE("What does not fit leaves a filler and starts the next WQE", "[striding]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q(4, 6, 4);  // 16 strides: 1024 bytes
  q.post(1, 1024);
  Spread spread(rig, {&q}, 0);
  const auto frame = udp_frame(600 - 42);  // 10 strides
  sender.send(frame);
  sender.send(frame);  // no WQE for this one: lost, and no filler
  rig.step(600'000'000);
  CHECK(strides_of(q.cq.expect()) == 10);
  q.cq.expect_none();
  q.post(3, 1024);
  sender.send(frame);
  rig.step();
  const Completion f = q.cq.expect(), c = q.cq.expect();
  CHECK((f.byte_count() & filler) != 0);
  CHECK(strides_of(f) == 6);
  CHECK(bytes_of(f) == 0);
  CHECK(f.wqe_counter() == 10);
  CHECK(wqe_of(f) == 0);
  CHECK((c.byte_count() & filler) == 0);
  CHECK(c.wqe_counter() == 0);
  CHECK(wqe_of(c) == 1);
  CHECK(std::memcmp(q.memory.data() + TestWq::slot_bytes, frame.data(), frame.size()) == 0);
  // A WQE used to its last stride needs no filler.
  sender.send(udp_frame(384 - 42));
  sender.send(frame);
  rig.step();
  CHECK(wqe_of(q.cq.expect()) == 1);
  CHECK(wqe_of(q.cq.expect()) == 2);
  // Longer than a whole WQE.
  sender.send(udp_frame(1500));
  rig.step();
  q.cq.expect_none();
}

TEST_CASE("Strides account for every byte of a long stream", "[striding]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q(8, 7, 5);  // 32 strides of 128 bytes
  Spread spread(rig, {&q}, 0);
  q.post(8, 4096);
  u32 seed = 1, strides = 0, frames = 0;
  u64 bytes = 0, expected = 0;
  for (u32 i = 0; i < 2000; ++i) {
    seed = seed * 1103515245 + 12345;
    const auto frame = udp_frame(20 + (seed >> 16) % 1400);
    expected += frame.size();
    sender.send(frame);
    rig.step();
    sender.cq.expect();
    Completion c;
    while (q.cq.poll(c)) {
      CHECK(wqe_of(c) == strides / 32);
      CHECK(c.wqe_counter() == strides % 32);
      if ((c.byte_count() & filler) == 0) {
        const u8 *at =
            q.memory.data() + u64{wqe_of(c)} % 8 * TestWq::slot_bytes + c.wqe_counter() * 128;
        REQUIRE(bytes_of(c) == frame.size());
        REQUIRE(std::memcmp(at, frame.data(), frame.size()) == 0);
        bytes += bytes_of(c);
        ++frames;
      }
      if ((strides + strides_of(c)) / 32 != strides / 32) q.post(1, 4096);
      strides += strides_of(c);
    }
  }
  CHECK(frames == 2000);
  CHECK(bytes == expected);
}

TEST_CASE("The shift of two bytes counts as part of the packet", "[striding]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q(4, 6, 4);
  q.wq.two_byte_shift = true;
  q.post(1, 1024);
  Spread spread(rig, {&q}, 0);
  const auto frame = udp_frame(128 - 42);
  sender.send(frame);
  rig.step();
  const Completion c = q.cq.expect();
  CHECK(bytes_of(c) == 130);
  CHECK(strides_of(c) == 3);
  CHECK(std::memcmp(q.memory.data() + 2, frame.data(), frame.size()) == 0);
}

TEST_CASE("A work queue in error flushes, in reset it waits", "[wq]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q;
  Spread spread(rig, {&q}, 0);
  q.post(2);
  wq_set_state(q.wq, WqState::error);
  for (int i = 0; i < 2; ++i) CHECK(q.cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  q.post(1);  // later ones too
  rig.step();
  const Completion c = q.cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(c.wqe_counter() == 2);
  wq_set_state(q.wq, WqState::reset);
  q.posted = 0;
  q.dbrec[0] = 0;
  q.post(1);
  sender.send(udp_frame());
  rig.step();
  q.cq.expect_none();
  wq_set_state(q.wq, WqState::ready);
  sender.send(udp_frame());
  rig.step();
  CHECK(q.cq.expect().wqe_counter() == 0);
}

TEST_CASE("Memory that may not be written stops the work queue", "[wq][error]") {
  EthRig rig;
  RawQp sender(rig);
  TestWq q;
  Spread spread(rig, {&q}, 0);
  q.post(2);
  q.memory.mkey().access = 0;
  sender.send(udp_frame());
  rig.step();
  CHECK(q.cq.expect().syndrome() == static_cast<u8>(Syndrome::local_protection));
  CHECK(q.cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(q.wq.state == WqState::error);
}
