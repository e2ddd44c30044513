// What the device is given and says of requests that mean little, and what is left alone in
// completions: as the legacy provider had it, and libmlx5 of base verbs.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "pair.h"

namespace {

constexpr std::uint32_t kept = 0xeeeeeeee;
constexpr std::uint64_t kept_word = 0xeeeeeeeeeeeeeeee;

// Of an enumeration that has no such value.
template <class Member>
std::uint32_t word_of(const Member &member) {
  std::uint32_t word;
  static_assert(sizeof(word) == sizeof(member));
  std::memcpy(&word, &member, sizeof(word));
  return word;
}

// Of the request, among those of receives that were flushed with it.
ibv_exp_wc completion_of(Rig &rig, std::uint64_t id, std::size_t count = 1) {
  const auto all = rig.completions(count);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto &wc) { return wc.wr_id == id; });
  REQUIRE(found != all.end());
  return *found;
}

struct Kind {
  ibv_exp_wr_opcode opcode;
  ibv_exp_wc_opcode completes_as;
};

void check_foreign(Rig &rig, ibv_qp *qp, const Kind &kind, ibv_exp_send_wr wr) {
  CAPTURE(int{kind.opcode});
  wr.exp_opcode = kind.opcode;
  wr.wr.rdma = {0x1000, 0x77};  // in the place of an address handle, too
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(qp, &wr, &bad) == 0);
  CHECK(bad == nullptr);
  const auto wc = completion_of(rig, wr.wr_id);
  CHECK(wc.status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(wc.exp_opcode == kind.completes_as);
  CHECK(wc.exp_wc_flags == IBV_EXP_WC_QP);
  CHECK(wc.qp == qp);
}

}  // namespace

// [row:IBV_EXP_WR_RDMA_READ][row:IBV_EXP_WR_ATOMIC_CMP_AND_SWP]
TEST_CASE("a kind of request that its transport does not have fails when it is executed") {
  const Kind of_uc[] = {{IBV_EXP_WR_RDMA_READ, IBV_EXP_WC_RDMA_READ},
                        {IBV_EXP_WR_ATOMIC_CMP_AND_SWP, IBV_EXP_WC_COMP_SWAP},
                        {IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, IBV_EXP_WC_FETCH_ADD},
                        {IBV_EXP_WR_TSO, IBV_EXP_WC_TSO},
                        {IBV_EXP_WR_UMR_INVALIDATE, IBV_EXP_WC_UMR}};
  const Kind of_ud[] = {{IBV_EXP_WR_RDMA_WRITE, IBV_EXP_WC_RDMA_WRITE},
                        {IBV_EXP_WR_RDMA_WRITE_WITH_IMM, IBV_EXP_WC_RDMA_WRITE},
                        {IBV_EXP_WR_SEND_WITH_INV, IBV_EXP_WC_SEND},
                        {IBV_EXP_WR_LOCAL_INV, IBV_EXP_WC_LOCAL_INV},
                        {IBV_EXP_WR_BIND_MW, IBV_EXP_WC_BIND_MW}};
  const auto check = [](ibv_qp_type type, const Kind &kind) {
    Pair p(type);
    auto piece = p.out.piece(0, 8);
    check_foreign(p, p.a.get(), kind, request(1, kind.opcode, &piece));
  };
  for (const Kind &kind : of_uc) {
    check(IBV_QPT_UC, kind);
    check(IBV_QPT_UD, kind);
  }
  for (const Kind &kind : of_ud) check(IBV_QPT_UD, kind);
  check(IBV_QPT_RC, {IBV_EXP_WR_TSO, IBV_EXP_WC_TSO});
}

#ifndef IBVEXP_EXTERN_CALLS
TEST_CASE(
    "a base request of a kind that its transport does not have fails as without the library") {
  const auto type = GENERATE(IBV_QPT_UC, IBV_QPT_UD);
  Pair p(type);
  auto piece = p.out.piece(0, 8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 3;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  REQUIRE(ibv_post_send(p.a.get(), &wr, &bad) == 0);
  ibv_wc wc;
  std::memset(&wc, 0xee, sizeof(wc));
  int count = 0;
  for (int turns = 0; count == 0 && turns < 50'000'000; ++turns)
    count = ibv_poll_cq(p.cq.get(), 1, &wc);
  REQUIRE(count == 1);
  CHECK(wc.wr_id == 3);
  CHECK(wc.status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(wc.wc_flags == 0);
  // Not written by libmlx5 either.
  CHECK(word_of(wc.opcode) == kept);
  CHECK(wc.byte_len == kept);
}
#endif

TEST_CASE("a number of no kind is a no-operation [row:ibv_exp_post_send]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
  Pair p(type);
  auto piece = p.out.piece(0, 8);
  for (const int number : {10, 14, 15, 64, 0x5f}) {
    CAPTURE(number);
    auto wr = request(1, static_cast<ibv_exp_wr_opcode>(number), &piece);
    p.post(wr);
    const auto wc = p.complete(1);
    CHECK(word_of(wc.exp_opcode) == kept);
    CHECK(wc.byte_len == kept);
    CHECK(wc.exp_wc_flags == IBV_EXP_WC_QP);
  }
  auto wr = request(1, static_cast<ibv_exp_wr_opcode>(IBV_EXP_WR_UMR_INVALIDATE + 1), &piece);
  ibv_exp_send_wr *bad = nullptr;
  CHECK(p.post(wr, bad) == EINVAL);
  CHECK(bad == &wr);
}

TEST_CASE("less than no pieces are none [row:ibv_exp_post_send]") {
  Pair p(GENERATE(IBV_QPT_RC, IBV_QPT_UC));
  auto piece = p.out.piece(0, 64);
  auto wr = request(1, IBV_EXP_WR_SEND_WITH_IMM, &piece);
  wr.num_sge = GENERATE(-1, -1000);
  wr.ex.imm_data = 5;
  SECTION("with a list") {}
  SECTION("without") { wr.sg_list = nullptr; }
  SECTION("inline") { wr.exp_send_flags |= IBV_EXP_SEND_INLINE; }
  post_receive(p.b.get(), 7, p.in.piece(0, 64));
  p.post(wr);
  const auto [sent, got] = both(p);
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(got.status == IBV_WC_SUCCESS);
  CHECK(got.byte_len == 0);
  CHECK(got.imm_data == 5);
  if (p.a->qp_type == IBV_QPT_RC) {
    auto read = p.write(2, &piece);
    read.exp_opcode = IBV_EXP_WR_RDMA_READ;
    read.num_sge = -1;
    p.post(read);
    CHECK(p.complete(2).byte_len == 0);
  }
}

TEST_CASE("checksums mean nothing where there are no packets [row:IBV_EXP_SEND_IP_CSUM]") {
  Pair p(GENERATE(IBV_QPT_RC, IBV_QPT_UC));
  auto piece = p.out.piece(0, 64);
  post_receive(p.b.get(), 2, p.in.piece(0, 64));
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  wr.exp_send_flags |= IBV_EXP_SEND_IP_CSUM;
  p.post(wr);
  const auto [sent, got] = both(p);
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(got.status == IBV_WC_SUCCESS);
  CHECK(std::equal(p.out.bytes.begin(), p.out.bytes.begin() + 64, p.in.bytes.begin()));
}

// [row:IBV_EXP_INTF_EXPERIMENTAL][row:IBV_EXP_INTF_VENDOR][row:IBV_EXP_INTF_VENDOR_EXPERIMENTAL]
// [row:IBV_EXP_INTF_STAT_VENDOR_NOT_SUPPORTED]
TEST_CASE("the scope of a family is ignored [row:ibv_exp_query_intf]") {
  Pair p(IBV_QPT_RC);
  ibv_exp_query_intf_params params{};
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = p.cq.get();
  void *const global = ibv_exp_query_intf(p.context.get(), &params, nullptr);
  REQUIRE(global != nullptr);
  params.intf_scope = static_cast<ibv_exp_intf_scope>(GENERATE(1, 2, 3, 7));
  ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_INVAL_OBJ;
  CHECK(ibv_exp_query_intf(p.context.get(), &params, &status) == global);
  CHECK(status == IBV_EXP_INTF_STAT_OK);
}

// [row:IBV_EXP_WC_QP]
TEST_CASE("what means nothing for a completion is left alone [row:ibv_exp_poll_cq]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 64);
  auto send = request(1, IBV_EXP_WR_SEND, &piece);
  post_receive(p.b.get(), 7, p.in.piece(0, 64));
  p.post(send);
  const auto [sent, got] = both(p);
  CHECK(sent.byte_len == kept);
  CHECK(sent.vendor_err == kept);
  CHECK(sent.imm_data == kept);
  CHECK(sent.src_qp == kept);
  CHECK(sent.slid == std::uint16_t(kept));
  CHECK(sent.timestamp == kept_word);
  CHECK(reinterpret_cast<std::uintptr_t>(sent.srq) == kept_word);
  CHECK(reinterpret_cast<std::uintptr_t>(sent.dct) == kept_word);
  CHECK(got.vendor_err == kept);
  CHECK(got.imm_data == kept);
  CHECK(got.timestamp == kept_word);
  CHECK(reinterpret_cast<std::uintptr_t>(got.srq) == kept_word);

  // One that fails says which kind of request it was, and those that were behind it.
  auto wrong = p.write(2, &piece);
  wrong.wr.rdma.rkey ^= 0x5500;
  p.post(wrong);
  auto wc = p.completions(1)[0];
  CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_WRITE);
  CHECK(wc.exp_wc_flags == IBV_EXP_WC_QP);
  CHECK(wc.qp == p.a.get());
  CHECK(wc.byte_len == kept);
  CHECK(wc.timestamp == kept_word);
  wrong.exp_opcode = IBV_EXP_WR_RDMA_READ;
  p.post(wrong);
  wc = p.completions(1)[0];
  CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_READ);
}

TEST_CASE(
    "what there is no place for does not matter where there is nothing [row:ibv_exp_poll_cq]") {
  Pair p(IBV_QPT_RC);
  ibv_exp_wc wc;
  CHECK(ibv_exp_poll_cq(p.cq.get(), 1, &wc, 8) == 0);
  CHECK(ibv_exp_poll_cq(p.cq.get(), 1, nullptr, sizeof(wc)) == 0);
  auto piece = p.out.piece(0, 64);
  auto write = p.write(1, &piece);
  p.post(write);
  int answer = 0;
  for (int turns = 0; answer == 0 && turns < 50'000'000; ++turns)
    answer = ibv_exp_poll_cq(p.cq.get(), 1, &wc, 8);
  CHECK(answer == -EINVAL);
  CHECK(ibv_exp_poll_cq(p.cq.get(), 1, nullptr, sizeof(wc)) == -EINVAL);
  CHECK(ibv_exp_poll_cq(p.cq.get(), 0, nullptr, 8) == 0);
  p.complete(1);
}
