// Requests that do nothing: refused by default, on request a place in the queue
// like any other.
#include "pair.h"

TEST_CASE("nothing is done on request only [row:IBV_EXP_WR_NOP]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  Pair p(type);
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(p.context.get(), &device) == 0);
  const bool reported = (device.exp_device_cap_flags & IBV_EXP_DEVICE_NOP) != 0;
  CHECK(reported == switched_on("nop"));

  auto piece = p.out.piece(0, 100);
  auto first = p.write(1, &piece), last = p.write(3, &piece, 200);
  // With wild pieces, as programs leave them.
  auto nop = request(2, IBV_EXP_WR_NOP, reinterpret_cast<ibv_sge *>(8), 77);
  first.next = &nop;
  nop.next = &last;
  ibv_exp_send_wr *bad = nullptr;
  if (!reported) {
    CHECK(p.post(first, bad) == ENOTSUP);
    CHECK(bad == &nop);
    p.complete(1);
    return;
  }
  for (int round = 0; round < 100; ++round) {
    p.post(first);
    const auto all = p.completions(3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(all[i].wr_id == i + 1);
      CHECK(all[i].status == IBV_WC_SUCCESS);
    }
  }
  CHECK(std::equal(p.in.bytes.begin(), p.in.bytes.begin() + 100, p.out.bytes.begin()));
  CHECK(std::equal(p.in.bytes.begin() + 200, p.in.bytes.begin() + 300, p.out.bytes.begin()));
}
