// errno after a failure: programs print it, whatever the verb returned. In each error
// shape, for calls that are served; refusals as a whole are in refusal_test.cpp.
#include <cerrno>

#include "dc_rig.h"
#include "pair.h"

namespace {

constexpr int stale = ENOSPC;

// The call fails with a reason, which is in errno as well.
template <class Call>
void fails(int reason, Call call) {
  errno = stale;
  CHECK(call() == reason);
  CHECK(errno == reason);
}

}  // namespace

TEST_CASE("errno is the reason of a failure [row:ibv_exp_modify_qp]") {
  Dc dc;
  SECTION("positive") {
    const Qp qp = dc.create_qp(IBV_QPT_RC);
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    // By the kernel, and by the library itself.
    fails(EINVAL, [&] { return ibv_exp_modify_qp(qp.get(), &attr, IBV_EXP_QP_STATE); });
    attr.comp_mask = 1u << 30;
    fails(EINVAL, [&] { return ibv_exp_modify_qp(qp.get(), &attr, IBV_EXP_QP_STATE); });
  }
  SECTION("positive, of a query") {
    ibv_exp_gid_attr attr{};
    attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_GID;
    errno = stale;
    const int error = ibv_exp_query_gid_attr(dc.context.get(), 77, 0, &attr);
    CHECK(error != 0);
    CHECK(errno == error);
  }
  SECTION("positive, with a culprit") {
    const Qp qp = dc.create_qp(IBV_QPT_RC);
    auto piece = dc.out.piece(0, 8);
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    wr.num_sge = 1000;  // more than it has room for
    ibv_exp_send_wr *bad = nullptr;
    errno = stale;
    const int error = ibv_exp_post_send(qp.get(), &wr, &bad);
    CHECK(error != 0);
    CHECK(errno == error);
    CHECK(bad == &wr);
  }
  SECTION("negative") {
    ibv_exp_flow none{};
    none.context = dc.context.get();
    errno = stale;
    CHECK(ibv_exp_destroy_flow(&none) == -EINVAL);
    CHECK(errno == EINVAL);
  }
  SECTION("null") {
    errno = stale;
    ibv_exp_qp_init_attr attr{};
    attr.comp_mask = 1u << 30;
    CHECK(ibv_exp_create_qp(dc.context.get(), &attr) == nullptr);
    CHECK(errno == EINVAL);
  }
  SECTION("null with a status") {
    errno = stale;
    ibv_exp_query_intf_params params{};
    params.intf = static_cast<ibv_exp_intf_family>(99);
    auto status = IBV_EXP_INTF_STAT_OK;
    CHECK(ibv_exp_query_intf(dc.context.get(), &params, &status) == nullptr);
    CHECK(status != IBV_EXP_INTF_STAT_OK);
    CHECK(errno != stale);
  }
}

TEST_CASE("a success leaves errno alone [row:ibv_exp_modify_qp]") {
  Dc dc;
  errno = stale;
  const Qp qp = dc.create_qp(IBV_QPT_RC);
  CHECK(errno == stale);
  dc.connect(qp.get(), qp->qp_num);
  CHECK(errno == stale);
  auto piece = dc.out.piece(0, 8);
  auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
  dc.aim(wr);
  dc.post(qp.get(), wr);
  dc.completions(1);
  CHECK(errno == stale);
}

TEST_CASE("a poll that has nowhere to put completions sets errno [row:ibv_exp_poll_cq]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 8);
  auto wr = p.write(1, &piece);
  p.post(wr);
  ibv_exp_wc wc{};
  int answer = 0;
  for (int turns = 0; answer == 0 && turns < 50'000'000; ++turns) {
    errno = 0;
    answer = ibv_exp_poll_cq(p.cq.get(), 1, nullptr, sizeof(wc));
  }
  CHECK(answer == -EINVAL);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(ibv_exp_poll_cq(p.cq.get(), 1, &wc, sizeof(ibv_wc) - 1) == -EINVAL);
  CHECK(errno == EINVAL);
  p.complete(1);
}
