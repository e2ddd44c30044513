// Bandwidth limits and shares above queue pairs.
#include "model/schedule.h"

#include "catch.h"
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

std::shared_ptr<ScheduleElement> below(const std::shared_ptr<ScheduleElement> &parent,
                                       u32 max_mbps = 0, u32 share = 0) {
  auto e = std::make_shared<ScheduleElement>(parent);
  e->max_mbps = max_mbps;
  e->share = share;
  return e;
}

}  // namespace

TEST_CASE("a limit holds for the element and all below it", "[schedule]") {
  const auto root = below(nullptr), node = below(root, 8), leaf = below(node),
             narrow = below(node, 4), other = below(root);
  CHECK(leaf->due(1000) == 1000);
  leaf->account(1000, 1000);  // a millisecond at 8 Mbit/s
  CHECK(leaf->due(1000) == 1'001'000);
  CHECK(narrow->due(1000) == 1'001'000);
  CHECK(other->due(1000) == 1000);
  // The narrowest counts, and time that went by is not saved up.
  narrow->account(1000, 5'000'000);
  CHECK(narrow->due(5'000'000) == 7'000'000);
  CHECK(leaf->due(5'000'000) == 6'000'000);
  node->max_mbps = 0;
  CHECK(other->due(9'000'000) == 9'000'000);
}

TEST_CASE("what a limit leaves is divided by shares", "[schedule]") {
  const auto root = below(nullptr), node = below(root, 100);
  const auto one = below(node, 0, 1), three = below(node, 0, 3), idle = below(node, 0, 50);
  u64 sent[2] = {};
  constexpr u64 end = 2'000'000'000;
  for (u64 now = 1; now < end; now += 10'000)
    for (const auto &[e, count] : {std::pair{one, &sent[0]}, std::pair{three, &sent[1]}}) {
      if (e->due(now) > now) continue;
      e->account(1000, now);
      *count += 1000;
    }
  CHECK(sent[0] + sent[1] > 0.85 * 25e6);  // 100 Mbit/s for two seconds
  CHECK(sent[0] + sent[1] <= 25e6 + 2000);
  CHECK(static_cast<double>(sent[1]) / static_cast<double>(sent[0]) > 2.8);
  CHECK(static_cast<double>(sent[1]) / static_cast<double>(sent[0]) < 3.2);
  // Alone, one gets all there is.
  u64 alone = 0;
  for (u64 now = end + 10'000'000; now < 2 * end; now += 10'000)
    if (one->due(now) <= now) {
      one->account(1000, now);
      alone += 1000;
    }
  CHECK(alone > 0.85 * 25e6);
}

TEST_CASE("without a limit above, no queue waits for the share of others", "[schedule]") {
  const auto root = below(nullptr), one = below(root, 0, 1), ten = below(root, 0, 10);
  for (u64 now = 1; now < 1000; ++now) {
    CHECK(ten->due(now) == now);
    CHECK(one->due(now) == now);
    one->account(1 << 20, now);
  }
}

TEST_CASE("messages of a queue pair wait for their turn, and are not late", "[schedule]") {
  Rig rig;
  QpOptions impatient;
  impatient.retry = 0;
  Pair p(rig, impatient, impatient);
  Region near(4096, full_access), far(4096, full_access);
  const bool answers = GENERATE(false, true);
  const auto root = below(nullptr), leaf = below(root, 1);  // 33 ms for a page
  if (answers) p.b.qp->response_schedule = leaf;
  else p.a.qp->request_schedule = leaf;
  for (int i = 0; i < 2; ++i)
    p.a.post(Wqe(answers ? WqeOpcode::rdma_read : WqeOpcode::rdma_write)
                 .remote(far.address(), far.key())
                 .data(4096, near.key(), near.address()));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 0);
  if (answers) return;  // answers wait for the clock itself
  p.a_cq.expect_none();
  rig.step(20'000'000);
  p.a_cq.expect_none();
  rig.step(20'000'000);
  CHECK(p.a_cq.expect().opcode() == 0);
}
