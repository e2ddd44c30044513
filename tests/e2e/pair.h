// Two queue pairs of one process that are connected to each other.
#pragma once

#include <numeric>
#include <utility>

#include "rig.h"

inline constexpr std::size_t size = 4096;

// Two connected queue pairs over one CQ, and memory for both ends.
struct Pair : Rig {
  Qp a, b;
  Buffer out{pd.get(), size}, in{pd.get(), size};

  explicit Pair(ibv_qp_type type) : a(create_qp(type)), b(create_qp(type)) {
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{1});
    connect(a.get(), b->qp_num);
    connect(b.get(), a->qp_num);
  }

  int post(ibv_exp_send_wr &wr, ibv_exp_send_wr *&bad) {
    return ibv_exp_post_send(a.get(), &wr, &bad);
  }
  void post(ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(post(wr, bad) == 0);
    CHECK(bad == nullptr);
  }
  ibv_exp_wc complete(std::uint64_t id) {
    const auto wc = completions(1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == id);
    return wc;
  }
  // The next completion, of perhaps many.
  ibv_exp_wc take() { return next_completion(cq.get()); }
  ibv_exp_send_wr write(std::uint64_t id, ibv_sge *piece, std::size_t offset = 0) {
    auto wr = request(id, IBV_EXP_WR_RDMA_WRITE, piece);
    wr.wr.rdma.remote_addr = in.address(offset);
    wr.wr.rdma.rkey = in.mr->rkey;
    return wr;
  }
};

// The completion of the sender and that of the receiver, in this order.
inline std::pair<ibv_exp_wc, ibv_exp_wc> both(Rig &rig) {
  auto all = rig.completions(2);
  if (all[0].exp_opcode >= IBV_EXP_WC_RECV) std::swap(all[0], all[1]);
  return {all[0], all[1]};
}
