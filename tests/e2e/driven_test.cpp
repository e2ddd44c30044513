// Queues that the library drives itself, next to what it does not drive.
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "families_rig.h"
#include "pair.h"

namespace {

using Srq = Owned<ibv_srq, ibv_destroy_srq>;

constexpr auto signaled = IBV_EXP_QP_BURST_SIGNALED;

// A queue pair of the modern interface, which posts past us.
ibv_qp *create_with_builders(Rig &rig, ibv_cq *cq, ibv_srq *srq = nullptr) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = srq;
  attr.cap = {16, srq != nullptr ? 0u : 16u, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = rig.pd.get();
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
  errno = 0;
  return ibv_create_qp_ex(rig.context.get(), &attr);
}

ibv_wc base_completion(ibv_cq *cq) {
  ibv_wc wc{};
  int count = 0;
  for (int turns = 0; count == 0 && turns < 50'000'000; ++turns) count = ibv_poll_cq(cq, 1, &wc);
  REQUIRE(count == 1);
  CHECK(wc.status == IBV_WC_SUCCESS);
  return wc;
}

void write_by_builders(ibv_qp *qp, std::uint64_t id, const Buffer &from, const Buffer &to) {
  ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
  REQUIRE(ex != nullptr);
  ibv_wr_start(ex);
  ex->wr_id = id;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ex, to.mr->rkey, to.address());
  ibv_wr_set_sge(ex, from.mr->lkey, from.address(), 64);
  REQUIRE(ibv_wr_complete(ex) == 0);
}

void write_by_verb(ibv_qp *qp, std::uint64_t id, const Buffer &from, const Buffer &to) {
  auto piece = from.piece(0, 64);
  auto wr = request(id, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = to.address();
  wr.wr.rdma.rkey = to.mr->rkey;
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(qp, &wr, &bad) == 0);
}

bool same(const Buffer &a, const Buffer &b, std::size_t bytes) {
  return std::equal(a.bytes.begin(), a.bytes.begin() + static_cast<std::ptrdiff_t>(bytes),
                    b.bytes.begin());
}

}  // namespace

TEST_CASE("a completion queue is shared by queues of legacy and of modern interfaces") {
  Rig rig;
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{0x5a});

  // A modern one: the queue is libmlx5's, and so is what joins.
  Cq modern = rig.create_cq();
  ibv_wc none;
  CHECK(ibv_poll_cq(modern.get(), 1, &none) == 0);
  Qp builder(create_with_builders(rig, modern.get()));
  REQUIRE(builder);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = modern.get();
  Qp joined(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(joined);
  rig.connect(builder.get(), joined->qp_num);
  rig.connect(joined.get(), builder->qp_num);
  write_by_builders(builder.get(), 1, out, in);
  CHECK(base_completion(modern.get()).wr_id == 1);
  CHECK(same(out, in, 64));
  write_by_verb(joined.get(), 2, out, in);
  CHECK(base_completion(modern.get()).wr_id == 2);

  // A legacy one, on which something has completed before, or not.
  for (const bool used : {true, false}) {
    CAPTURE(used);
    Pair pair(IBV_QPT_RC);
    auto piece = pair.out.piece(0, 64);
    auto again = pair.write(3, &piece);
    if (used) {
      pair.post(again);
      pair.complete(3);
    }
    Qp later(create_with_builders(pair, pair.cq.get()));
    REQUIRE(later);
    pair.connect(later.get(), later->qp_num);
    for (std::uint64_t id = 4; id < 40; id += 2) {
      again = pair.write(id, &piece);
      pair.post(again);
      write_by_builders(later.get(), id + 1, pair.out, pair.in);
      std::uint64_t seen[] = {base_completion(pair.cq.get()).wr_id, pair.take().wr_id};
      std::sort(std::begin(seen), std::end(seen));
      CHECK(seen[0] == id);
      CHECK(seen[1] == id + 1);
    }
  }
}

TEST_CASE("a shared receive queue is shared by queue pairs of both kinds of interfaces") {
  // Which of them came first, and whether receives were posted before.
  for (const unsigned way : {0u, 1u, 2u, 3u}) {
    CAPTURE(way);
    Rig rig;
    ibv_srq_init_attr init{nullptr, {32, 1, 0}};
    Srq srq(ibv_create_srq(rig.pd.get(), &init));
    Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 32 * 64);
    std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{0x5a});
    std::uint64_t posted = 0;
    const auto post = [&] {
      auto piece = in.piece(posted % 32 * 64, 64);
      ibv_recv_wr wr{posted++, nullptr, &piece, 1}, *bad = nullptr;
      REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
    };
    if ((way & 1) != 0)
      while (posted < 16) post();
    Cq sent = rig.create_cq();
    Qp receivers[2], senders[2];
    auto attr = rig.qp_attr(IBV_QPT_RC);
    attr.srq = srq.get();
    for (const unsigned kind : {way >> 1, 1 - (way >> 1)}) {
      receivers[kind].reset(kind == 0 ? ibv_exp_create_qp(rig.context.get(), &attr)
                                      : create_with_builders(rig, rig.cq.get(), srq.get()));
      REQUIRE(receivers[kind]);
    }
    for (unsigned kind = 0; kind < 2; ++kind) {
      auto sender = rig.qp_attr(IBV_QPT_RC);
      sender.send_cq = sender.recv_cq = sent.get();
      senders[kind].reset(ibv_exp_create_qp(rig.context.get(), &sender));
      REQUIRE(senders[kind]);
      rig.connect(senders[kind].get(), receivers[kind]->qp_num);
      rig.connect(receivers[kind].get(), senders[kind]->qp_num);
    }
    while (posted < 16) post();
    std::vector<bool> seen(300);
    for (unsigned i = 0; i < 200; ++i) {
      auto piece = out.piece(0, 64);
      auto wr = request(i, IBV_EXP_WR_SEND, &piece);
      ibv_exp_send_wr *bad = nullptr;
      const unsigned kind = i / 3 % 2;
      REQUIRE(ibv_exp_post_send(senders[kind].get(), &wr, &bad) == 0);
      CHECK(base_completion(sent.get()).wr_id == i);
      const ibv_wc wc = base_completion(rig.cq.get());
      CHECK(wc.opcode == IBV_WC_RECV);
      CHECK(wc.byte_len == 64);
      CHECK(wc.qp_num == receivers[kind]->qp_num);
      REQUIRE(wc.wr_id < posted);
      CHECK_FALSE(seen[wc.wr_id]);
      seen[wc.wr_id] = true;
      CHECK(in.bytes[wc.wr_id % 32 * 64] == 0x5a);
      in.bytes[wc.wr_id % 32 * 64] = 0;
      post();
    }
    // Unread completions of one go with it, those of the other stay.
    auto piece = out.piece(0, 64);
    for (const auto &sender : senders) {
      auto wr = request(1000, IBV_EXP_WR_SEND, &piece);
      ibv_exp_send_wr *bad = nullptr;
      REQUIRE(ibv_exp_post_send(sender.get(), &wr, &bad) == 0);
      base_completion(sent.get());
    }
    receivers[1].reset();
    CHECK(base_completion(rig.cq.get()).qp_num == receivers[0]->qp_num);
    ibv_wc wc{};
    CHECK(ibv_poll_cq(rig.cq.get(), 1, &wc) == 0);
  }
}

TEST_CASE("receives that were posted before the first queue pair keep their identifiers") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {8, 1, 0}};
  Srq srq(ibv_create_srq(rig.pd.get(), &init));
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 8 * 64);
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{0x5c});
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto piece = in.piece(i * 64, 64);
    ibv_recv_wr wr{100 + i, nullptr, &piece, 1}, *bad = nullptr;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }
  // On a CQ that libmlx5 drives.
  Cq modern = rig.create_cq();
  Qp receiver(create_with_builders(rig, modern.get(), srq.get()));
  REQUIRE(receiver);
  Qp sender = rig.create_qp(IBV_QPT_RC);
  rig.connect(sender.get(), receiver->qp_num);
  rig.connect(receiver.get(), sender->qp_num);
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto piece = out.piece(0, 64);
    auto wr = request(i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(sender.get(), &wr, &bad) == 0);
    CHECK(base_completion(rig.cq.get()).wr_id == i);
    CHECK(base_completion(modern.get()).wr_id == 100 + i);
    CHECK(in.bytes[i * 64] == 0x5c);
  }
}

TEST_CASE("so do those that libmlx5 takes over, with the receiver's completions") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {8, 1, 0}};
  Srq srq(ibv_create_srq(rig.pd.get(), &init));
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  auto piece = in.piece(0, 64);
  ibv_recv_wr receive{100, nullptr, &piece, 1}, *bad = nullptr;
  REQUIRE(ibv_post_srq_recv(srq.get(), &receive, &bad) == 0);
  ibv_cq_init_attr_ex cq_attr{};
  cq_attr.cqe = 16;
  Cq modern(ibv_cq_ex_to_cq(ibv_create_cq_ex(rig.context.get(), &cq_attr)));
  REQUIRE(modern);
  Qp receiver(create_with_builders(rig, modern.get(), srq.get()));
  REQUIRE(receiver);
  Qp sender = rig.create_qp(IBV_QPT_RC);
  rig.connect(sender.get(), receiver->qp_num);
  rig.connect(receiver.get(), sender->qp_num);
  auto data = out.piece(0, 64);
  auto wr = request(1, IBV_EXP_WR_SEND, &data);
  ibv_exp_send_wr *bad_send = nullptr;
  REQUIRE(ibv_exp_post_send(sender.get(), &wr, &bad_send) == 0);
  CHECK(base_completion(modern.get()).wr_id == 100);
}

TEST_CASE("completions stay where they are awaited when the other kind comes to the queue") {
  Rig rig;
  Cq cq(ibv_create_cq(rig.context.get(), 16, nullptr, nullptr, 0));
  REQUIRE(cq);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = cq.get();
  const Qp first(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(first);
  const Qp builder(create_with_builders(rig, cq.get()));
  REQUIRE(builder);
  rig.connect(first.get(), first->qp_num);
  rig.connect(builder.get(), builder->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  write_by_verb(first.get(), 7, out, in);
  CHECK(base_completion(cq.get()).wr_id == 7);
  write_by_builders(builder.get(), 8, out, in);
  CHECK(base_completion(cq.get()).wr_id == 8);
}

TEST_CASE("a described completion queue keeps wr_id of legacy queue pairs") {
  Rig rig;
  Cq cq(ibv_create_cq(rig.context.get(), 16, nullptr, nullptr, 0));
  REQUIRE(cq);
  mlx5dv_cq facts{};
  mlx5dv_obj object{};
  object.cq = {cq.get(), &facts};
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = cq.get();
  const Qp legacy(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(legacy);
  const Qp builder(create_with_builders(rig, cq.get()));
  REQUIRE(builder);
  rig.connect(legacy.get(), legacy->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  write_by_verb(legacy.get(), 7, out, in);
  CHECK(base_completion(cq.get()).wr_id == 7);
}

TEST_CASE("who receives from a queue of another hand is in that hand on both sides") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {8, 1, 0}};
  Srq srq(ibv_create_srq(rig.pd.get(), &init));
  Cq modern = rig.create_cq();
  Qp builder(create_with_builders(rig, modern.get(), srq.get()));
  REQUIRE(builder);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.srq = srq.get();
  Qp joined(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(joined);
  rig.connect(builder.get(), joined->qp_num);
  rig.connect(joined.get(), builder->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{0x5b});
  auto piece = out.piece(0, 64);
  auto wr = request(7, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = in.address();
  wr.wr.rdma.rkey = in.mr->rkey;
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(joined.get(), &wr, &bad) == 0);
  CHECK(base_completion(rig.cq.get()).wr_id == 7);
  CHECK(same(out, in, 64));
}

TEST_CASE("what could not be created has decided nothing") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {8, 1, 0}};
  Srq srq(ibv_create_srq(rig.pd.get(), &init));
  Cq cq = rig.create_cq();
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = cq.get();
  attr.srq = srq.get();
  attr.cap.max_send_wr = 1 << 24;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  Qp builder(create_with_builders(rig, cq.get(), srq.get()));
  CHECK(builder);
}

TEST_CASE("families and verbs post on the same queue in turn") {
  FamilyRig rig;
  Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 256), in(rig.pd.get(), 256);
  for (std::size_t i = 0; i < 256; ++i) out.bytes[i] = static_cast<std::uint8_t>(i + 1);
  for (std::uint64_t i = 0; i < 4; ++i) post_receive(b.get(), 10 + i, in.piece(64 * i, 64));

  auto piece = out.piece(0, 64);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
  // Used already, and with a completion on its way.
  auto *family = rig.burst(a.get());
  REQUIRE(family != nullptr);
  REQUIRE(family->send_pending(a.get(), out.address(64), 64, out.mr->lkey, signaled) == 0);
  // The verb's doorbell covers what the family has left open.
  piece = out.piece(128, 64);
  wr = request(3, IBV_EXP_WR_SEND, &piece);
  REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
  REQUIRE(family->send_flush(a.get()) == 0);
  REQUIRE(family->send_pending(a.get(), out.address(192), 64, out.mr->lkey, signaled) == 0);
  REQUIRE(family->send_flush(a.get()) == 0);

  std::uint64_t sent = 0, received = 0;
  for (const ibv_exp_wc &wc : rig.completions(8)) {
    CHECK(wc.status == IBV_WC_SUCCESS);
    if (wc.exp_opcode == IBV_EXP_WC_SEND) {
      const std::uint64_t ids[] = {1, 0, 3, 0};
      CHECK(wc.wr_id == ids[sent++]);
    } else {
      CHECK(wc.wr_id == 10 + received++);
    }
  }
  CHECK(sent == 4);
  CHECK(same(out, in, 256));
}

TEST_CASE("a queue pair that signals everything does so for families and verbs") {
  FamilyRig rig;
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.sq_sig_all = 1;
  Qp a(ibv_exp_create_qp(rig.context.get(), &attr)), b = rig.create_qp(IBV_QPT_RC);
  REQUIRE(a);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  auto piece = out.piece(0, 64);
  SECTION("a family") {
    post_receive(b.get(), 5, in.piece(0, 64));
    auto *family = rig.burst(a.get());
    REQUIRE(family != nullptr);
    REQUIRE(family->send_pending(a.get(), out.address(), 64, out.mr->lkey, 0) == 0);
    REQUIRE(family->send_flush(a.get()) == 0);
    const auto [sent, received] = both(rig);
    CHECK(sent.status == IBV_WC_SUCCESS);
    CHECK(received.wr_id == 5);
  }
  SECTION("the experimental verb") {
    auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.exp_send_flags = 0;
    wr.wr.rdma.remote_addr = in.address();
    wr.wr.rdma.rkey = in.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
    CHECK(base_completion(rig.cq.get()).wr_id == 1);
  }
  SECTION("the base verb") {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = 2;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = in.address();
    wr.wr.rdma.rkey = in.mr->rkey;
    REQUIRE(ibv_post_send(a.get(), &wr, &bad) == 0);
    CHECK(base_completion(rig.cq.get()).wr_id == 2);
  }
}

TEST_CASE("a queue that was full is empty after a reset") {
  Pair pair(IBV_QPT_RC);
  auto piece = pair.out.piece(0, 64);
  const auto post_silently = [&](int most) {
    int posted = 0;
    for (; posted < most; ++posted) {
      auto wr = pair.write(1, &piece);
      wr.exp_send_flags = 0;
      ibv_exp_send_wr *bad = nullptr;
      const int error = ibv_exp_post_send(pair.a.get(), &wr, &bad);
      if (error == ENOMEM) break;
      REQUIRE(error == 0);
    }
    return posted;
  };
  const int all = post_silently(100'000);
  CHECK(all < 100'000);
  for (ibv_qp *qp : {pair.a.get(), pair.b.get()}) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
  }
  pair.connect(pair.a.get(), pair.b->qp_num);
  pair.connect(pair.b.get(), pair.a->qp_num);
  CHECK(post_silently(all) == all);
}

TEST_CASE("nothing is posted before the queue pair can send") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  Buffer out(rig.pd.get(), 64);
  auto piece = out.piece(0, 64);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(qp.get(), &wr, &bad) == EINVAL);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  REQUIRE(ibv_modify_qp(qp.get(), &to,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(ibv_exp_post_send(qp.get(), &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
  // Nor after a reset.
  Pair pair(IBV_QPT_RC);
  to.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(pair.a.get(), &to, IBV_QP_STATE) == 0);
  CHECK(pair.post(wr, bad) == EINVAL);
}

TEST_CASE("a family leaves failed completions to the verb") {
  FamilyRig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  rig.connect(qp.get(), qp->qp_num);
  auto *family = rig.cq_family(rig.cq.get());
  REQUIRE(family != nullptr);
  Buffer in(rig.pd.get(), 64);
  post_receive(qp.get(), 9, in.piece(0, 64));
  rig.to_state(qp.get(), IBV_QPS_ERR);
  CHECK(eventually([&] { return family->poll_cnt(rig.cq.get(), 4); }) == -1);
  CHECK(family->poll_cnt(rig.cq.get(), 4) == -1);
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(rig.cq.get(), 1, &wc) == 1);
  CHECK(wc.wr_id == 9);
  CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(family->poll_cnt(rig.cq.get(), 4) == 0);
}

TEST_CASE("a resize keeps what has not been read") {
  Pair pair(IBV_QPT_RC);
  auto piece = pair.out.piece(0, 64);
  std::uint64_t posted = 0, read = 0;
  // More often than the queue is long.
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 10; ++i) {
      auto wr = pair.write(posted++, &piece);
      pair.post(wr);
    }
    for (int i = 0; i < 4; ++i) CHECK(pair.take().wr_id == read++);
    const int cqe = round % 2 == 0 ? 1000 : 300;
    errno = 4711;
    REQUIRE(ibv_resize_cq(pair.cq.get(), cqe) == 0);
    CHECK(errno == 4711);
    CHECK(pair.cq->cqe >= cqe);
    for (int i = 0; i < 6; ++i) CHECK(pair.take().wr_id == read++);
  }
}

TEST_CASE("a reset of a modern queue pair takes its completions out of the shared ring") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {8, 1, 0}};
  Srq srq(ibv_create_srq(rig.pd.get(), &init));
  REQUIRE(srq);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  Qp receivers[2] = {Qp(create_with_builders(rig, rig.cq.get(), srq.get())),
                     Qp(create_with_builders(rig, rig.cq.get(), srq.get()))};
  // One that the engine does not find among those.
  Cq other = rig.create_cq();
  Qp stranger(create_with_builders(rig, other.get()));
  REQUIRE(stranger);
  Cq sent = rig.create_cq();
  Qp senders[2];
  for (unsigned i = 0; i < 2; ++i) {
    REQUIRE(receivers[i]);
    auto attr = rig.qp_attr(IBV_QPT_RC);
    attr.send_cq = attr.recv_cq = sent.get();
    senders[i].reset(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(senders[i]);
    rig.connect(senders[i].get(), receivers[i]->qp_num);
    rig.connect(receivers[i].get(), senders[i]->qp_num);
  }
  for (std::uint64_t i = 0; i < 6; ++i) {
    auto piece = in.piece(0, 64);
    ibv_recv_wr wr{10 + i, nullptr, &piece, 1}, *bad = nullptr;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }
  for (std::uint64_t i = 0; i < 6; ++i) {
    auto piece = out.piece(0, 64);
    auto wr = request(i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(senders[i % 2].get(), &wr, &bad) == 0);
    CHECK(base_completion(sent.get()).wr_id == i);
    // libmlx5 counts none of them.
    if (i < 2) CHECK(base_completion(rig.cq.get()).qp_num == receivers[i]->qp_num);
  }
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(stranger.get(), &reset, IBV_QP_STATE) == 0);
  REQUIRE(ibv_modify_qp(receivers[0].get(), &reset, IBV_QP_STATE) == 0);
  for (int i = 0; i < 2; ++i) CHECK(base_completion(rig.cq.get()).qp_num == receivers[1]->qp_num);
  ibv_wc wc{};
  CHECK(ibv_poll_cq(rig.cq.get(), 1, &wc) == 0);
}

TEST_CASE("a resize is not confused by a count that is equal to the number of the queue") {
  Pair pair(IBV_QPT_RC);
  mlx5dv_cq facts{};
  mlx5dv_obj object{};
  object.cq.in = pair.cq.get();
  object.cq.out = &facts;
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  // Each counts one entry, which says that the others were moved.
  for (std::uint32_t i = 0; i < facts.cqn; ++i)
    REQUIRE(ibv_resize_cq(pair.cq.get(), i % 2 == 0 ? 200 : 100) == 0);
  auto piece = pair.out.piece(0, 64);
  for (std::uint64_t id = 0; id < 6; ++id) {
    auto wr = pair.write(id, &piece);
    pair.post(wr);
  }
  for (std::uint64_t id = 0; id < 6; ++id) {
    CHECK(pair.take().wr_id == id);
    if (id < 3) REQUIRE(ibv_resize_cq(pair.cq.get(), 300) == 0);
  }
}

TEST_CASE("a queue is resized while another thread polls it") {
  Rig rig;
  std::atomic<bool> done{false};
  std::atomic<int> found{0};
  std::thread poller([&] {
    ibv_wc wc{};
    while (!done) found += ibv_poll_cq(rig.cq.get(), 1, &wc);
  });
  int failed = 0;
  // The memory of the queue is another one each time.
  for (int i = 0; i < 400; ++i) failed += ibv_resize_cq(rig.cq.get(), i % 2 == 0 ? 8000 : 100) != 0;
  done = true;
  poller.join();
  CHECK(failed == 0);
  CHECK(found == 0);
}

TEST_CASE("the sides of a queue pair may be in different hands") {
  Rig rig;
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex *ex = ibv_create_cq_ex(rig.context.get(), &init);
  REQUIRE(ex != nullptr);
  Cq modern(ibv_cq_ex_to_cq(ex));
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = modern.get();
  Qp a(ibv_exp_create_qp(rig.context.get(), &attr)), b = rig.create_qp(IBV_QPT_RC);
  REQUIRE(a);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{0x77});
  for (std::uint64_t i = 0; i < 50; ++i) {
    post_receive(a.get(), i, in.piece(0, 64));
    post_receive(b.get(), 100 + i, in.piece(0, 64));
    auto piece = out.piece(0, 64);
    auto wr = request(200 + i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
    CHECK(rig.completions(1)[0].wr_id == 100 + i);
    ibv_poll_cq_attr start{};
    int error = ENOENT;
    for (int turns = 0; error == ENOENT && turns < 50'000'000; ++turns)
      error = ibv_start_poll(ex, &start);
    REQUIRE(error == 0);
    CHECK(ex->wr_id == 200 + i);
    CHECK(ex->status == IBV_WC_SUCCESS);
    ibv_end_poll(ex);
    wr = request(300 + i, IBV_EXP_WR_SEND, &piece);
    REQUIRE(ibv_exp_post_send(b.get(), &wr, &bad) == 0);
    const auto [sent, received] = both(rig);
    CHECK(sent.wr_id == 300 + i);
    CHECK(received.wr_id == i);
    CHECK(received.qp == a.get());
  }
  CHECK(same(out, in, 64));
}

TEST_CASE("lists that are not there and datagrams without an address are refused") {
  Pair pair(IBV_QPT_RC);
  auto piece = pair.out.piece(0, 64);
  auto good = pair.write(1, &piece), without_list = pair.write(2, nullptr);
  good.next = &without_list;
  ibv_exp_send_wr *bad = nullptr;
  CHECK(pair.post(good, bad) == EINVAL);
  CHECK(bad == &without_list);
  pair.complete(1);
  ibv_recv_wr wr{}, *bad_receive = nullptr;
  wr.num_sge = 1;
  CHECK(ibv_post_recv(pair.a.get(), &wr, &bad_receive) == EINVAL);
  CHECK(bad_receive == &wr);

  Qp datagram = pair.create_qp(IBV_QPT_UD);
  pair.connect(datagram.get(), 0);
  auto nowhere = request(3, IBV_EXP_WR_SEND, &piece);
  nowhere.wr.ud.ah = nullptr;
  CHECK(ibv_exp_post_send(datagram.get(), &nowhere, &bad) == EINVAL);
  CHECK(bad == &nowhere);
}
