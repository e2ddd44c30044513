// What many idle objects take, and how many of them a step looks at. What that
// costs in time: ./run bench softhca
#include <malloc.h>

#include <list>
#include <memory>
#include <vector>

#include "engine/doorbells.h"
#include "rig.h"
#include "uverbs/objects.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr int many = 10000;

// RC QPs as applications leave them: connected, nothing posted.
class IdleQps {
 public:
  IdleQps(Rig &rig, Cq &cq, int n) {
    for (int i = 0; i < n; ++i) {
      auto q = std::make_unique<Qp>();
      q->device = &rig.device();
      q->pdn = pdn;
      q->send_cq = q->recv_cq = &cq;
      q->dbrec = dbrec_;
      q->sq = queue_;
      q->sq_wqebbs = 1;
      Qp *qp = qp_register(std::move(q));
      if (qp == nullptr) FAIL("no more QPs");
      qp->attr.port = 1;
      qp_set_state(*qp, QpState::init);
      qp->attr.dest_qpn = 1;
      qp->attr.path_mtu = 3;
      qp_set_state(*qp, QpState::rtr);
      qp_set_state(*qp, QpState::rts);
      qps_.push_back(qp);
    }
  }
  ~IdleQps() {
    for (Qp *qp : qps_) qp_unregister(qp);
  }

 private:
  alignas(64) u32 dbrec_[2] = {};
  u8 queue_[wqe_bb] = {};
  std::vector<Qp *> qps_;
};

// A rig with idle QPs that the engine has come to leave alone.
class Crowd {
 public:
  Crowd() : idle_(rig, idle_cq_.cq, many) {
    while (!process().hot.empty()) rig.step(1'000'000);
    now_ = device_clock_ns() + 1'000'000'000;
    step();  // the pause counts for nothing
  }
  // One step of the engine, a microsecond behind the one before.
  void step() { engine_step(now_ += 1000); }
  // A QP that is as idle as the others.
  TestQp &add() {
    QpOptions o;
    o.sq_wqebbs = 4;
    TestQp &q = qps_.emplace_back(rig, cq, cq, o);
    q.connect(q.qp->qpn, rig.device().port(1).lid);
    while (!process().hot.empty()) engine_step(now_ += 1'000'000);
    return q;
  }
  std::list<TestQp> &qps() { return qps_; }

  Rig rig;
  TestCq cq;

 private:
  TestCq idle_cq_;
  IdleQps idle_;
  std::list<TestQp> qps_;
  u64 now_;
};

}  // namespace

TEST_CASE("An idle QP takes less than 4 KiB of the device", "[scale]") {
  Rig rig;
  TestCq cq;
  const auto heap = [] {
    const auto m = mallinfo2();
    return m.uordblks + m.hblkhd;
  };
  const size_t before = heap();
  IdleQps idle(rig, cq.cq, many);
  // The command layer has an object for each, and an entry in a table of them.
  const size_t taken = (heap() - before) / many + sizeof(uverbs::QpObject) + 64;
  INFO(taken << " bytes");
  CHECK(taken < 4096);
}

TEST_CASE("A step looks at next to none of many idle QPs", "[scale]") {
  Crowd crowd;
  constexpr u64 steps = 1000;
  const u64 before = process().qp_visits;
  for (u64 i = 0; i < steps; ++i) crowd.step();
  const u64 visits = process().qp_visits - before;
  CHECK(visits > 0);
  CHECK(visits < steps);
}

TEST_CASE("A doorbell register announces a post to one of many idle QPs", "[scale]") {
  alignas(64) static u8 page[4096];
  Crowd crowd;
  TestQp &q = crowd.add();
  doorbells_add(page);
  // Both registers, both buffers of each.
  for (const u32 at : {0x800, 0x900, 0xa00, 0xb00}) {
    q.post(Wqe(WqeOpcode::nop));
    store_be32(page + at + 4, q.qp->qpn << 8 | 1);
    crowd.step();
    crowd.cq.expect();
    while (!process().hot.empty()) crowd.rig.step(10'000'000);
  }
  // Numbers of QPs that do not exist, or no longer, mean nothing.
  for (const u32 qpn : {0u, 0xffffffu, q.qp->qpn + 1}) {
    store_be32(page + 0x804, qpn << 8 | 1);
    crowd.step();
  }
  doorbells_remove(page);
  CHECK(process().hot.empty());
}

TEST_CASE("No post to one of many idle QPs is missed", "[scale]") {
  Crowd crowd;
  constexpr int posts = 20;
  for (int i = 0; i < posts; ++i) crowd.add();
  int seen = 0, steps = 0;
  Completion c;
  // The registers say nothing: these posts were overwritten there.
  for (TestQp &q : crowd.qps()) q.post(Wqe(WqeOpcode::nop));
  for (; seen < posts && steps < 3 * many; ++steps) {
    crowd.step();
    while (crowd.cq.poll(c)) ++seen;
  }
  CHECK(seen == posts);
  // In time for the first; all others behind it are looked for at once.
  CHECK(steps < 2.5 * many + many / 16);
}

TEST_CASE("A process has a hundred thousand QPs, and all of them can be reached", "[scale]") {
  constexpr int more = 100'000;
  Rig rig;
  CHECK(rig.device().caps.max_qp == 262'144);
  TestCq cq;
  IdleQps idle(rig, cq.cq, more);
  // Their numbers are those of several slots.
  Pair p(rig);
  CHECK(slot_of_qpn(p.a.qp->qpn) != process().fabric->slot());
  Region from(64, full_access), to(64, full_access);
  from.fill(3);
  p.b.post_receive({{64, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
  rig.step();
  CHECK(p.b_cq.expect().source_qpn() == p.a.qp->qpn);
  CHECK(p.a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
  CHECK(std::memcmp(from.data(), to.data(), 64) == 0);
}
