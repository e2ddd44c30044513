// Numbers of queue pairs that are given out again before the library knows that they are
// free: by another thread, or here by a call in between.
#include "pair.h"

extern "C" [[gnu::weak]] void late_destroy_then(void (*call)());

namespace {

struct Next {
  Rig *rig = nullptr;
  Cq *cq = nullptr;  // where it completes
  Qp qp;
  Buffer *out = nullptr, *in = nullptr;
  int seen = -1;  // completions in the rig's queue right after the creation
} next;

void create_next() {
  auto attr = next.rig->qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = next.cq->get();
  next.qp.reset(ibv_exp_create_qp(next.rig->context.get(), &attr));
  REQUIRE(next.qp);
}

// The completions of the destroyed one have not been polled.
void look_then() {
  create_next();
  ibv_exp_wc wc[4];
  next.seen = ibv_exp_poll_cq(next.rig->cq.get(), 4, wc, sizeof(wc[0]));
}

void write_then() {
  create_next();
  next.rig->connect(next.qp.get(), next.qp->qp_num);
  ibv_sge piece = next.out->piece(0, 64);
  auto wr = request(77, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = next.in->address();
  wr.wr.rdma.rkey = next.in->mr->rkey;
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(next.qp.get(), &wr, &bad) == 0);
  for (int turns = 0; turns < 50'000'000; ++turns)
    if (__atomic_load_n(next.in->bytes.data(), __ATOMIC_RELAXED) != 0) break;
}

// Destroys a queue pair with unread completions in the rig's queue.
void destroy_unread(Pair &pair, void (*then)()) {
  auto piece = pair.out.piece(0, 64);
  for (std::uint64_t id = 0; id < 3; ++id) {
    auto wr = pair.write(id, &piece);
    pair.post(wr);
  }
  CHECK(pair.take().wr_id == 0);
  REQUIRE(late_destroy_then != nullptr);
  late_destroy_then(then);
  pair.a.reset();
}

}  // namespace

TEST_CASE("completions of a queue pair that is gone are not those of the next one") {
  Pair pair(IBV_QPT_RC);
  Cq other = pair.create_cq();
  next = {};
  next.rig = &pair;
  next.cq = &other;
  destroy_unread(pair, look_then);
  CHECK(next.seen == 0);
  next.qp.reset();
  other.reset();
  ibv_exp_wc wc;
  CHECK(ibv_exp_poll_cq(pair.cq.get(), 1, &wc, sizeof(wc)) == 0);
}

TEST_CASE("completions of the next queue pair do not go with the one before") {
  Pair pair(IBV_QPT_RC);
  Buffer out(pair.pd.get(), 64), in(pair.pd.get(), 64);
  out.bytes[0] = 1;
  next = {};
  next.rig = &pair;
  next.cq = &pair.cq;
  next.out = &out;
  next.in = &in;
  destroy_unread(pair, write_then);
  const ibv_exp_wc done = pair.take();
  CHECK(done.wr_id == 77);
  CHECK(done.status == IBV_WC_SUCCESS);
  CHECK(done.qp == next.qp.get());
  next.qp.reset();
}
