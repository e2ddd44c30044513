// How much inline data a queue pair is granted: programs ask for little and use all
// that they get, so it is never less than it was.
#include "dc_rig.h"

namespace {

constexpr auto dci = static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI);

// Bytes of an entry beside the data, as the legacy provider counted them; with the room of a
// key change for connected types.
struct Counted {
  ibv_qp_type type;
  std::uint32_t overhead, most_pieces;
};
const Counted counted[] = {
    {IBV_QPT_RC, 192, 30},       {IBV_QPT_UC, 192, 60}, {IBV_QPT_UD, 64, 60},
    {IBV_QPT_XRC_SEND, 192, 30}, {dci, 80, 27},         {IBV_QPT_RAW_PACKET, 48, 60},
};

// Bytes of an entry: blocks of 64 for overhead and gather list or data. 0: it refused.
std::uint32_t legacy(const Counted &c, std::uint32_t asked, std::uint32_t pieces) {
  const std::uint32_t data = asked != 0 ? (asked + 4 + 15) / 16 * 16 : 0;
  const std::uint32_t entry = (c.overhead + std::max(data, pieces * 16) + 63) / 64 * 64;
  return entry <= 1024 ? entry : 0;
}

// The device reads 63 units of 16 bytes, and blocks have room for 64: what the largest
// entries are granted is one more than they can carry.
std::uint32_t usable(std::uint32_t granted, std::uint32_t overhead) {
  return std::min(granted, 63 * 16 - overhead - 4);
}

}  // namespace

TEST_CASE("inline data is granted as it was [row:qp_max_inline_data]") {
  Dc dc;
  // The last type, raw packets, needs Ethernet.
  const Counted &c =
      GENERATE_REF(from_range(std::begin(counted), std::end(counted) - (dc.ethernet() ? 0 : 1)));
  const auto pieces = GENERATE(1u, 2u, 3u, 6u, 16u);
  for (const std::uint32_t asked : {0,   1,   12,  28,  29,  44,  60,  64,  78,  92,  93,  108, 109,
                                    128, 200, 220, 236, 256, 400, 512, 700, 780, 828, 900, 940}) {
    const std::uint32_t entry = legacy(c, asked, pieces);
    if (entry == 0) continue;
    INFO("type " << int{c.type} << ", " << asked << " bytes, " << pieces << " pieces");
    auto attr = dc.qp_attr(c.type);
    attr.cap = {8, 0, pieces, 0, asked};
    const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
    REQUIRE(qp);
    const std::uint32_t room = entry - c.overhead;
    CHECK(attr.cap.max_inline_data >= room - 4);
    CHECK(attr.cap.max_send_sge >= std::min(room / 16, c.most_pieces));
    CHECK(attr.cap.max_send_wr >= 8);
    if (!engine_drives()) continue;
    CHECK(attr.cap.max_inline_data == room - 4);
    CHECK(attr.cap.max_send_sge == std::min(room / 16, c.most_pieces));
  }
}

// Programs that know nothing of experimental verbs get what they got without the library:
// public_members.c compares it.
TEST_CASE("base verbs grant plain programs rdma-core's sizes [row:qp_max_inline_data]",
          "[engine]") {
  const Context context = open_first();
  const Pd pd(ibv_alloc_pd(context.get()));
  const Cq cq(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  ibv_srq_init_attr shared{};
  shared.attr = {10, 1, 0};
  const Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(pd.get(), &shared));
  REQUIRE(pd);
  REQUIRE(cq);
  REQUIRE(srq);
  const auto pieces = [&] {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.cap = {8, 8, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    const Qp qp(ibv_create_qp(pd.get(), &attr));
    REQUIRE(qp);
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(qp.get(), &now, IBV_QP_CAP, &init) == 0);
    CHECK(now.cap.max_send_sge == attr.cap.max_send_sge);
    CHECK(init.cap.max_send_sge == attr.cap.max_send_sge);
    return attr.cap.max_send_sge;
  };
  const auto receives = [&] {
    ibv_srq_attr attr{};
    REQUIRE(ibv_query_srq(srq.get(), &attr) == 0);
    return attr.max_wr;
  };
  CHECK(pieces() == 1);
  CHECK(receives() == 31);
  ibv_exp_device_attr device{};
  REQUIRE(ibv_exp_query_device(context.get(), &device) == 0);
  CHECK(pieces() == 4);
  CHECK(receives() == 15);
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

// Pieces of 8 bytes that lie 16 bytes apart, and requests that fill the queue.
TEST_CASE("as many pieces as were granted are sent [row:qp_max_inline_data]") {
  Dc dc;
  const auto pieces = GENERATE(1u, 5u, 26u);
  const bool initiator = GENERATE(false, true);
  auto attr = dc.qp_attr(initiator ? dci : IBV_QPT_RC);
  attr.cap = {8, initiator ? 0u : 8u, pieces, initiator ? 0u : 1u, 0};
  const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
  REQUIRE(qp);
  CHECK(attr.cap.max_send_sge > pieces);
  Dct dct;
  if (initiator) {
    dc.to_rts(qp.get());
    dct = dc.make_dct();
  } else {
    dc.connect(qp.get(), qp->qp_num);
  }
  std::vector<ibv_sge> list;
  for (std::uint32_t i = 0; i < attr.cap.max_send_sge; ++i) list.push_back(dc.out.piece(i * 16, 8));
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < attr.cap.max_send_wr; ++i) {
      const int count = static_cast<int>(list.size());
      auto wr = initiator ? dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, list.data())
                          : request(1, IBV_EXP_WR_RDMA_WRITE, list.data());
      wr.num_sge = count;
      dc.aim(wr);
      dc.post(qp.get(), wr);
    }
    for (std::uint32_t i = 0; i < attr.cap.max_send_wr; ++i)
      CHECK(dc.take().status == IBV_WC_SUCCESS);
  }
  for (std::size_t i = 0; i < list.size(); ++i)
    CHECK(std::equal(dc.in.bytes.begin() + i * 8, dc.in.bytes.begin() + i * 8 + 8,
                     dc.out.bytes.begin() + i * 16));
}

TEST_CASE("what is granted inline is sent inline [row:qp_max_inline_data]") {
  Dc dc;
  const auto asked = GENERATE(1u, 64u, 512u, 800u);
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
