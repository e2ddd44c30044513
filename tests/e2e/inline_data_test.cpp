// How much inline data a queue pair is granted: programs ask for little and use all
// that they get, so it is never less than it was.
#include "dc_rig.h"

namespace {

constexpr auto dci = static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI);

// Bytes of an entry beside the data, as the legacy provider counted them. Connected
// types have atomics where the device has.
struct Counted {
  ibv_qp_type type;
  std::vector<std::uint32_t> overheads;
};
const Counted counted[] = {
    {IBV_QPT_RC, {16 + 16, 16 + 16 + 16}},
    {IBV_QPT_UC, {16 + 16}},
    {IBV_QPT_UD, {16 + 48}},
    {IBV_QPT_XRC_SEND, {16 + 16 + 16, 16 + 16 + 16 + 16}},
    {dci, {16 + 48 + 16}},
    {IBV_QPT_RAW_PACKET, {16 + 32}},
};

// What it granted: what blocks of 64 bytes leave behind overhead and gather list or
// data. 0: it refused.
std::uint32_t legacy(const Counted &c, std::uint32_t asked, std::uint32_t pieces) {
  std::uint32_t most = 0;
  for (const std::uint32_t overhead : c.overheads) {
    const std::uint32_t data = asked != 0 ? (asked + 4 + 15) / 16 * 16 : 0;
    const std::uint32_t entry = (overhead + std::max(data, pieces * 16) + 63) / 64 * 64;
    if (entry <= 1024) most = std::max(most, entry - overhead - 4);
  }
  return most;
}

// The device reads 63 units of 16 bytes, and blocks have room for 64: what the largest
// entries are granted is one more than they can carry.
std::uint32_t usable(std::uint32_t granted, std::uint32_t overhead) {
  return std::min(granted, 63 * 16 - overhead - 4);
}

}  // namespace

TEST_CASE("inline data is granted as it was [row:qp_max_inline_data]") {
  Dc dc;
  const Counted &c = GENERATE(from_range(std::begin(counted), std::end(counted)));
  if (c.type == IBV_QPT_RAW_PACKET && !dc.ethernet()) return;
  const auto pieces = GENERATE(1u, 2u, 3u, 6u, 16u);
  for (const std::uint32_t asked : {0,   1,   12,  28,  29,  44,  60,  64,  78,  92,  93,  108, 109,
                                    128, 200, 220, 236, 256, 400, 512, 700, 780, 828, 900, 940}) {
    const std::uint32_t granted = legacy(c, asked, pieces);
    if (granted == 0) continue;
    INFO("type " << int{c.type} << ", " << asked << " bytes, " << pieces << " pieces");
    auto attr = dc.qp_attr(c.type);
    attr.cap = {8, 0, pieces, 0, asked};
    const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
    REQUIRE(qp);
    CHECK(attr.cap.max_inline_data >= granted);
    CHECK(attr.cap.max_inline_data >= asked);
    CHECK(attr.cap.max_send_wr >= 8);
    CHECK(attr.cap.max_send_sge >= pieces);
  }
}

// UCX takes 108 for granted and stops if it gets less.
TEST_CASE("an initiator that asks for 64 bytes gets 108 [row:qp_max_inline_data]") {
  Dc dc;
  auto attr = dc.qp_attr(dci);
  attr.cap = {16, 0, 2, 0, 64};
  const bool base = GENERATE(false, true);
  if (base) attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
  REQUIRE(qp);
  CHECK(attr.cap.max_inline_data >= 108);
}

TEST_CASE("what is granted inline is sent inline [row:qp_max_inline_data]") {
  Dc dc;
  const auto asked = GENERATE(1u, 64u, 512u, 900u);
  SECTION("connected") {
    auto attr = dc.qp_attr(IBV_QPT_RC);
    attr.cap = {8, 8, 1, 1, asked};
    const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
    REQUIRE(qp);
    dc.connect(qp.get(), qp->qp_num);
    const std::uint32_t granted = usable(attr.cap.max_inline_data, 32);
    // More entries than the queue holds.
    for (int i = 0; i < 30; ++i) {
      auto piece = dc.out.piece(0, granted);
      piece.lkey = 0;
      auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
      wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
      dc.aim(wr);
      dc.post(qp.get(), wr);
      CHECK(dc.take().status == IBV_WC_SUCCESS);
      auto word = dc.in.piece(2048, 8);
      auto atomic = request(2, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &word);
      atomic.wr.atomic.remote_addr = dc.in.address(2048 + 64);
      atomic.wr.atomic.rkey = dc.in.mr->rkey;
      atomic.wr.atomic.compare_add = 1;
      dc.post(qp.get(), atomic);
      CHECK(dc.take().status == IBV_WC_SUCCESS);
    }
    CHECK(std::equal(dc.in.bytes.begin(), dc.in.bytes.begin() + granted, dc.out.bytes.begin()));
    CHECK(dc.in.bytes[2048 + 64] == 30);
  }
  SECTION("an initiator") {
    auto attr = dc.qp_attr(dci);
    attr.cap = {8, 0, 1, 0, asked};
    const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
    REQUIRE(qp);
    dc.to_rts(qp.get());
    const Dct dct = dc.make_dct();
    const std::uint32_t granted = usable(attr.cap.max_inline_data, 80);
    for (int i = 0; i < 30; ++i) {
      auto piece = dc.out.piece(0, granted);
      piece.lkey = 0;
      auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
      wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
      dc.aim(wr);
      dc.post(qp.get(), wr);
      CHECK(dc.take().status == IBV_WC_SUCCESS);
    }
    CHECK(std::equal(dc.in.bytes.begin(), dc.in.bytes.begin() + granted, dc.out.bytes.begin()));
    // What does not fit is refused, and not cut off.
    auto piece = dc.out.piece(0, granted + 16);
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
    wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
    dc.aim(wr);
    ibv_exp_send_wr *bad = nullptr;
    CHECK(ibv_exp_post_send(qp.get(), &wr, &bad) == ENOMEM);
    CHECK(bad == &wr);
  }
}
