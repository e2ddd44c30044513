// Receives that are posted before the queue pair is in INIT, as legacy programs do.
#include "rig.h"

namespace {

constexpr std::size_t slot = 64;

ibv_recv_wr receive(std::uint64_t id, ibv_sge *pieces, int count = 1) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  wr.sg_list = pieces;
  wr.num_sge = count;
  return wr;
}

// Connected to itself, to which it sends one message for each receive.
void exchange(Rig &rig, ibv_qp *qp, Buffer &out, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    out.bytes[0] = static_cast<std::uint8_t>(i + 1);
    auto piece = out.piece(0, 1);
    auto wr = request(1000 + i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(qp, &wr, &bad) == 0);
    for (const auto &wc : rig.completions(2)) {
      CHECK(wc.status == IBV_WC_SUCCESS);
      CHECK(wc.wr_id == (wc.exp_opcode == IBV_EXP_WC_RECV ? i : 1000 + i));
    }
  }
}

void init_by_base_verb(ibv_qp *qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  REQUIRE(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

void reset(ibv_qp *qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

}  // namespace

TEST_CASE("receives posted in RESET take effect in order [row:qp_receive_in_reset]") {
  Rig rig;
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  const bool base = GENERATE(false, true);
  Qp qp;
  if (base) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = rig.cq.get();
    attr.cap = {16, 16, 1, 2, 0};
    attr.qp_type = type;
    qp.reset(ibv_create_qp(rig.pd.get(), &attr));
    REQUIRE(qp);
  } else {
    qp = rig.create_qp(type);
  }
  Buffer in(rig.pd.get(), slot * 8), out(rig.pd.get(), slot);

  // One by one, in a chain, and in pieces that are gone when they are needed.
  const auto post = GENERATE(false, true);
  const auto post_recv = [&](ibv_recv_wr *wr, ibv_recv_wr **bad) {
    if (!post) return ibv_post_recv(qp.get(), wr, bad);
    const auto function = reinterpret_cast<decltype(rig.context->ops.post_recv)>(
        ibv_exp_get_provider_func(rig.context.get(), IBV_POST_RECV_FUNC));
    return function(qp.get(), wr, bad);
  };
  {
    ibv_sge pieces[4] = {in.piece(0, slot), in.piece(slot, slot), in.piece(2 * slot, slot),
                         in.piece(3 * slot, slot)};
    ibv_recv_wr wrs[3] = {receive(0, pieces), receive(1, pieces + 1, 2), receive(2, pieces + 3)};
    ibv_recv_wr *bad = nullptr;
    REQUIRE(post_recv(&wrs[0], &bad) == 0);
    wrs[1].next = &wrs[2];
    REQUIRE(post_recv(&wrs[1], &bad) == 0);
    std::memset(pieces, 0xee, sizeof(pieces));
    std::memset(wrs, 0xee, sizeof(wrs));
  }
  if (base) init_by_base_verb(qp.get());
  rig.connect(qp.get(), qp->qp_num);
  // More in the ordinary way come behind them.
  post_receive(qp.get(), 3, in.piece(4 * slot, slot));
  exchange(rig, qp.get(), out, 4);
  CHECK(in.bytes[0] == 1);
  CHECK(in.bytes[slot] == 2);
  CHECK(in.bytes[3 * slot] == 3);
  CHECK(in.bytes[4 * slot] == 4);
}

TEST_CASE("receives in RESET have the queue's limits [row:qp_receive_in_reset]") {
  Rig rig;
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.cap.max_recv_wr = 4;
  attr.cap.max_recv_sge = 2;
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  Buffer in(rig.pd.get(), slot), out(rig.pd.get(), slot);
  std::vector<ibv_sge> pieces(attr.cap.max_recv_sge + 1, in.piece(0, 1));
  ibv_recv_wr first = receive(0, pieces.data()), *bad = nullptr;
  ibv_recv_wr wide = receive(99, pieces.data(), static_cast<int>(pieces.size()));
  first.next = &wide;
  CHECK(ibv_post_recv(qp.get(), &first, &bad) == EINVAL);
  CHECK(bad == &wide);
  // What came before is posted.
  ibv_recv_wr more = receive(0, pieces.data());
  for (std::uint32_t i = 1; i < attr.cap.max_recv_wr; ++i) {
    more.wr_id = i;
    REQUIRE(ibv_post_recv(qp.get(), &more, &bad) == 0);
  }
  bad = nullptr;
  CHECK(ibv_post_recv(qp.get(), &more, &bad) == ENOMEM);
  CHECK(bad == &more);
  rig.connect(qp.get(), qp->qp_num);
  exchange(rig, qp.get(), out, attr.cap.max_recv_wr);
}

TEST_CASE("a reset takes away the receives posted before it [row:qp_receive_in_reset]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  Buffer in(rig.pd.get(), slot * 4), out(rig.pd.get(), slot);
  post_receive(qp.get(), 77, in.piece(0, slot));
  SECTION("of a queue pair in RESET") { reset(qp.get()); }
  SECTION("of one in use") {
    init_by_base_verb(qp.get());
    reset(qp.get());
  }
  post_receive(qp.get(), 0, in.piece(0, slot));
  post_receive(qp.get(), 1, in.piece(slot, slot));
  rig.connect(qp.get(), qp->qp_num);
  exchange(rig, qp.get(), out, 2);
}

TEST_CASE("a queue pair goes with the receives it was given in RESET [row:qp_receive_in_reset]") {
  Rig rig;
  Buffer in(rig.pd.get(), slot);
  for (int i = 0; i < 100; ++i) {
    const Qp qp = rig.create_qp(IBV_QPT_RC);
    for (int n = 0; n < 64; ++n) post_receive(qp.get(), 1, in.piece(0, slot));
  }
}

TEST_CASE("queue pairs in use post as if there were none in RESET [row:qp_receive_in_reset]") {
  Rig rig;
  const auto native = rig.context->ops.post_recv;
  Buffer in(rig.pd.get(), slot), out(rig.pd.get(), slot);
  const Qp used = rig.create_qp(IBV_QPT_RC);
  rig.connect(used.get(), used->qp_num);
  CHECK(rig.context->ops.post_recv == native);
  {
    const Qp fresh = rig.create_qp(IBV_QPT_RC);
    post_receive(used.get(), 0, in.piece(0, slot));
    exchange(rig, used.get(), out, 1);
  }
  CHECK(rig.context->ops.post_recv == native);
  reset(used.get());
  post_receive(used.get(), 0, in.piece(0, slot));
  rig.connect(used.get(), used->qp_num);
  exchange(rig, used.get(), out, 1);
  CHECK(rig.context->ops.post_recv == native);
}
