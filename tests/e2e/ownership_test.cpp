// Objects under an interface family and the ordinary verbs: they work together
// or are refused.
#include "families_rig.h"

#include <fcntl.h>
#include <poll.h>

namespace {

constexpr auto signaled = IBV_EXP_QP_BURST_SIGNALED;

#ifdef IBVEXP_EXTERN_CALLS
constexpr bool inlines = false;
#else
constexpr bool inlines = true;
#endif

// A library that is loaded at run time does not stand in front of base verbs.
#ifdef EXP_LIBRARY
constexpr bool sees_base_verbs = false;
#else
constexpr bool sees_base_verbs = true;
#endif

// Two connected queue pairs, everything on one completion queue of the rig.
struct Connected : FamilyRig {
  Qp a, b;
  ibv_exp_qp_burst_family_v1 *family_a = nullptr, *family_b = nullptr;
  Buffer memory{pd.get(), 1 << 16};

  explicit Connected(ibv_qp_type type) {
    a = create_qp(type);
    b = create_qp(type);
    to_init(a.get());
    to_init(b.get());
    family_a = burst(a.get());
    family_b = burst(b.get());
    REQUIRE(family_a != nullptr);
    REQUIRE(family_b != nullptr);
    // connect() goes from RESET, which also shows that counters survive it.
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_exp_modify_qp(a.get(), &attr, IBV_EXP_QP_STATE) == 0);
    REQUIRE(ibv_exp_modify_qp(b.get(), &attr, IBV_EXP_QP_STATE) == 0);
    connect(a.get(), b->qp_num);
    connect(b.get(), a->qp_num);
  }

  std::vector<ibv_wc> base_completions(std::size_t wanted) {
    std::vector<ibv_wc> all;
    while (all.size() < wanted) {
      ibv_wc wc[4];
      const int n = eventually([&] { return ibv_poll_cq(cq.get(), 4, wc); });
      REQUIRE(n > 0);
      all.insert(all.end(), wc, wc + n);
    }
    REQUIRE(all.size() == wanted);
    return all;
  }
};

const ibv_wc *find(const std::vector<ibv_wc> &all, std::uint64_t id, ibv_wc_opcode opcode) {
  for (const ibv_wc &wc : all)
    if (wc.wr_id == id && wc.opcode == opcode) return &wc;
  return nullptr;
}

int post(ibv_qp *qp, ibv_send_wr wr, ibv_send_wr **bad = nullptr) {
  ibv_send_wr *ignored = nullptr;
  return ibv_post_send(qp, &wr, bad != nullptr ? bad : &ignored);
}

ibv_send_wr base_request(std::uint64_t id, ibv_wr_opcode opcode, ibv_sge *piece) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = piece;
  wr.num_sge = 1;
  return wr;
}

}  // namespace

TEST_CASE("every opcode of ibv_post_send works on a queue pair under the family") {
  Connected t(IBV_QPT_RC);
  auto &bytes = t.memory.bytes;
  for (std::size_t i = 0; i < 4096; ++i) bytes[i] = static_cast<std::uint8_t>(i * 5);
  const auto rkey = t.memory.mr->rkey;

  // Small ones come inside the completion, large ones do not.
  for (const std::uint32_t size : {1u, 20u, 33u, 64u, 1000u, 3000u}) {
    std::fill(bytes.begin() + 8192, bytes.begin() + 12288, 0);
    post_receive(t.b.get(), 100 + size, t.memory.piece(8192, 4096));
    ibv_sge piece = t.memory.piece(0, size);
    REQUIRE(post(t.a.get(), base_request(size, IBV_WR_SEND, &piece)) == 0);
    const auto done = t.base_completions(2);
    REQUIRE(find(done, size, IBV_WC_SEND) != nullptr);
    const ibv_wc *received = find(done, 100 + size, IBV_WC_RECV);
    REQUIRE(received != nullptr);
    CHECK(received->byte_len == size);
    CHECK(received->qp_num == t.b->qp_num);
    CHECK(received->status == IBV_WC_SUCCESS);
    CHECK(std::memcmp(&bytes[8192], bytes.data(), size) == 0);
  }

  SECTION("send with immediate, and with invalidate") {
    post_receive(t.b.get(), 1, t.memory.piece(8192, 64));
    ibv_sge piece = t.memory.piece(0, 10);
    auto wr = base_request(2, IBV_WR_SEND_WITH_IMM, &piece);
    wr.imm_data = 0x12345678;
    REQUIRE(post(t.a.get(), wr) == 0);
    const auto done = t.base_completions(2);
    const ibv_wc *received = find(done, 1, IBV_WC_RECV);
    REQUIRE(received != nullptr);
    CHECK((received->wc_flags & IBV_WC_WITH_IMM) != 0);
    CHECK(received->imm_data == 0x12345678);
  }
  SECTION("RDMA write and read, inline and not") {
    ibv_sge piece = t.memory.piece(0, 2000);
    auto wr = base_request(1, IBV_WR_RDMA_WRITE, &piece);
    wr.wr.rdma = {t.memory.address(16384), rkey};
    REQUIRE(post(t.a.get(), wr) == 0);
    CHECK(t.base_completions(1)[0].opcode == IBV_WC_RDMA_WRITE);
    CHECK(std::memcmp(&bytes[16384], bytes.data(), 2000) == 0);

    for (const std::uint32_t size : {8u, 40u, 2000u}) {
      std::fill(bytes.begin() + 20480, bytes.begin() + 24576, 0);
      piece = t.memory.piece(20480, size);
      wr = base_request(2, IBV_WR_RDMA_READ, &piece);
      wr.wr.rdma = {t.memory.address(16384), rkey};
      REQUIRE(post(t.a.get(), wr) == 0);
      const auto done = t.base_completions(1);
      CHECK(done[0].opcode == IBV_WC_RDMA_READ);
      CHECK(done[0].byte_len == size);
      CHECK(std::memcmp(&bytes[20480], bytes.data(), size) == 0);
    }

    piece = t.memory.piece(5, 60);
    wr = base_request(3, IBV_WR_RDMA_WRITE, &piece);
    wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma = {t.memory.address(24576), rkey};
    REQUIRE(post(t.a.get(), wr) == 0);
    CHECK(t.base_completions(1)[0].wr_id == 3);
    CHECK(std::memcmp(&bytes[24576], &bytes[5], 60) == 0);
  }
  SECTION("write with immediate") {
    post_receive(t.b.get(), 5, t.memory.piece(8192, 64));
    ibv_sge piece = t.memory.piece(0, 100);
    auto wr = base_request(4, IBV_WR_RDMA_WRITE_WITH_IMM, &piece);
    wr.wr.rdma = {t.memory.address(16384), rkey};
    wr.imm_data = 77;
    REQUIRE(post(t.a.get(), wr) == 0);
    const auto done = t.base_completions(2);
    const ibv_wc *received = find(done, 5, IBV_WC_RECV_RDMA_WITH_IMM);
    REQUIRE(received != nullptr);
    CHECK(received->byte_len == 100);
    CHECK(received->imm_data == 77);
  }
  SECTION("atomics") {
    auto *target = reinterpret_cast<std::uint64_t *>(&bytes[16384]);
    auto *result = reinterpret_cast<std::uint64_t *>(&bytes[20480]);
    *target = 40;
    ibv_sge piece = t.memory.piece(20480, 8);
    auto wr = base_request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &piece);
    wr.wr.atomic = {t.memory.address(16384), 2, 0, rkey};
    REQUIRE(post(t.a.get(), wr) == 0);
    auto done = t.base_completions(1);
    CHECK(done[0].opcode == IBV_WC_FETCH_ADD);
    CHECK(done[0].byte_len == 8);
    CHECK(*target == 42);
    CHECK(*result == 40);
    wr = base_request(2, IBV_WR_ATOMIC_CMP_AND_SWP, &piece);
    wr.wr.atomic = {t.memory.address(16384), 42, 1000, rkey};
    REQUIRE(post(t.a.get(), wr) == 0);
    CHECK(t.base_completions(1)[0].opcode == IBV_WC_COMP_SWAP);
    CHECK(*target == 1000);
    CHECK(*result == 42);
  }
  SECTION("what cannot be written is refused, and the good prefix is posted") {
    ibv_sge piece = t.memory.piece(0, 16);
    ibv_send_wr chain[3] = {base_request(1, IBV_WR_RDMA_WRITE, &piece),
                            base_request(2, IBV_WR_LOCAL_INV, &piece),
                            base_request(3, IBV_WR_RDMA_WRITE, &piece)};
    for (auto &wr : chain) wr.wr.rdma = {t.memory.address(16384), rkey};
    chain[0].next = &chain[1];
    chain[1].next = &chain[2];
    ibv_send_wr *bad = nullptr;
    CHECK(ibv_post_send(t.a.get(), chain, &bad) == EOPNOTSUPP);
    CHECK(bad == &chain[1]);
    CHECK(t.base_completions(1)[0].wr_id == 1);
    CHECK(ibv_poll_cq(t.cq.get(), 1, std::vector<ibv_wc>(1).data()) == 0);
  }
}

TEST_CASE("the families and the experimental verbs take turns on connected queue pairs") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    Connected t(type);
    auto *poll = t.cq_family(t.cq.get());
    REQUIRE(poll != nullptr);
    for (std::size_t i = 0; i < 4096; ++i) t.memory.bytes[i] = static_cast<std::uint8_t>(i * 11);
    for (unsigned round = 0; round < 50; ++round) {
      const std::uint32_t size = 1 + round * 53 % 2000;
      std::fill(t.memory.bytes.begin() + 8192, t.memory.bytes.begin() + 12288, 0);
      ibv_sge room = t.memory.piece(8192, 4096);
      if (round % 2 == 0) REQUIRE(t.family_b->recv_burst(t.b.get(), &room, 1) == 0);
      else post_receive(t.b.get(), round, room);

      ibv_sge piece = t.memory.piece(round, size);
      if (round % 3 == 0) {
        REQUIRE(t.family_a->send_burst(t.a.get(), &piece, 1, signaled) == 0);
      } else if (round % 3 == 1) {
        auto wr = request(1000 + round, IBV_EXP_WR_SEND, &piece);
        ibv_exp_send_wr *bad = nullptr;
        REQUIRE(ibv_exp_post_send(t.a.get(), &wr, &bad) == 0);
      } else {
        REQUIRE(t.family_a->send_pending(t.a.get(), piece.addr, piece.length, piece.lkey,
                                         signaled) == 0);
        REQUIRE(t.family_a->send_flush(t.a.get()) == 0);
      }

      if (round % 4 < 2) {
        CHECK(poll_count(poll, t.cq.get(), 2) == 2);
      } else {
        for (const ibv_exp_wc &wc : t.completions(2)) {
          CHECK(wc.status == IBV_WC_SUCCESS);
          const bool received = wc.exp_opcode == IBV_EXP_WC_RECV;
          CHECK(wc.qp == (received ? t.b.get() : t.a.get()));
          if (received) {
            CHECK(wc.byte_len == size);
            CHECK(wc.wr_id == (round % 2 == 0 ? 0 : round));
          } else {
            CHECK(wc.wr_id == (round % 3 == 1 ? 1000 + round : 0));
          }
        }
      }
      CHECK(std::memcmp(&t.memory.bytes[8192], &t.memory.bytes[round], size) == 0);
    }
  }
}

TEST_CASE("poll_length hands over data that came inside the completion") {
  Connected t(IBV_QPT_RC);
  auto *poll = t.cq_family(t.cq.get());
  REQUIRE(poll != nullptr);
  for (const std::uint32_t size : {8u, 32u, 500u}) {
    for (std::size_t i = 0; i < 600; ++i) t.memory.bytes[i] = static_cast<std::uint8_t>(i + size);
    std::fill(t.memory.bytes.begin() + 8192, t.memory.bytes.begin() + 9216, 0);
    ibv_sge room = t.memory.piece(8192, 1024), piece = t.memory.piece(0, size);
    REQUIRE(t.family_b->recv_burst(t.b.get(), &room, 1) == 0);
    REQUIRE(t.family_a->send_burst(t.a.get(), &piece, 1, 0) == 0);
    std::uint8_t copy[64] = {};
    std::uint32_t copied = 9;
    REQUIRE(eventually([&] { return poll->poll_length(t.cq.get(), copy, &copied); }) ==
            static_cast<int>(size));
    const std::uint8_t *at = copied != 0 ? copy : &t.memory.bytes[8192];
    CHECK(copied == (size <= 32 ? 1 : 0));
    CHECK(std::memcmp(at, t.memory.bytes.data(), size) == 0);
  }
}

TEST_CASE("a failed completion stays for ibv_poll_cq") {
  Connected t(IBV_QPT_RC);
  auto *poll = t.cq_family(t.cq.get());
  REQUIRE(poll != nullptr);
  ibv_sge room = t.memory.piece(8192, 100), piece = t.memory.piece(0, 16);
  REQUIRE(t.family_b->recv_burst(t.b.get(), &room, 1) == 0);
  auto wr = base_request(7, IBV_WR_RDMA_WRITE, &piece);
  wr.wr.rdma = {t.memory.address(0), 0xdead00};  // no such key
  REQUIRE(post(t.a.get(), wr) == 0);
  CHECK(eventually([&] { return poll->poll_cnt(t.cq.get(), 8); }) == -1);
  CHECK(poll->poll_cnt(t.cq.get(), 8) == -1);
  ibv_wc wc{};
  REQUIRE(eventually([&] { return ibv_poll_cq(t.cq.get(), 1, &wc); }) == 1);
  // Either side may come first.
  const bool local = wc.wr_id == 7;
  CHECK(wc.status != IBV_WC_SUCCESS);
  CHECK(wc.qp_num == (local ? t.a->qp_num : t.b->qp_num));
  if (local) CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a completion event is asked for and delivered on a queue under the family") {
  FamilyRig t;
  Channel channel(ibv_create_comp_channel(t.context.get()));
  REQUIRE(channel);
  REQUIRE(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
  ibv_exp_cq_init_attr attr{};
  Cq cq(ibv_exp_create_cq(t.context.get(), 64, &t, channel.get(), 0, &attr));
  REQUIRE(cq);
  auto *poll = t.cq_family(cq.get());
  REQUIRE(poll != nullptr);
  // Created on a queue that is driven already: it follows.
  Qp a = t.create_on(IBV_QPT_RC, cq.get(), cq.get());
  Qp b = t.create_on(IBV_QPT_RC, t.cq.get(), t.cq.get());
  REQUIRE(a);
  REQUIRE(b);
  t.connect(a.get(), b->qp_num);
  t.connect(b.get(), a->qp_num);
  Buffer memory(t.pd.get(), 4096);
  for (int round = 0; round < 4; ++round) {
    REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
    ibv_sge piece = memory.piece(0, 64);
    auto wr = base_request(3, IBV_WR_RDMA_WRITE, &piece);
    wr.wr.rdma = {memory.address(1024), memory.mr->rkey};
    REQUIRE(post(a.get(), wr) == 0);
    pollfd waiting{channel->fd, POLLIN, 0};
    REQUIRE(::poll(&waiting, 1, 60'000) == 1);
    ibv_cq *reported = nullptr;
    void *event_context = nullptr;
    REQUIRE(ibv_get_cq_event(channel.get(), &reported, &event_context) == 0);
    CHECK(reported == cq.get());
    CHECK(event_context == &t);
    ibv_ack_cq_events(reported, 1);
    CHECK(poll->poll_cnt(cq.get(), 4) == 1);
  }
  a.reset();
  cq.reset();
}

// [row:IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED][row:IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED]
// [row:IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED][row:IBV_EXP_INTF_STAT_INVAL_OBJ_STATE]
// [row:IBV_EXP_INTF_STAT_INVAL_PARARM]
// [row:IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED]
TEST_CASE("what cannot change hands is refused with its status") {
  FamilyRig t;
  ibv_exp_query_intf_params params{};
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = t.cq.get();
  const auto outcome = [&](const ibv_exp_query_intf_params &asked) {
    auto copy = asked;
    ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
    errno = 0;
    void *family = ibv_exp_query_intf(t.context.get(), &copy, &status);
    CHECK(family == nullptr);
    CHECK(errno != 0);
    return status;
  };
  auto bad = params;
  bad.intf = IBV_EXP_INTF_RESERVED;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
  bad = params;
  bad.intf_version = 2;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED);
  bad = params;
  bad.flags = 1 << 4;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED);
  bad = params;
  bad.family_flags = 1;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED);
  bad = params;
  bad.obj = nullptr;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  Context other = open_first();
  ibv_cq *stranger = ibv_create_cq(other.get(), 8, nullptr, nullptr, 0);
  REQUIRE(stranger != nullptr);
  bad.obj = stranger;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  REQUIRE(ibv_destroy_cq(stranger) == 0);

  // A queue pair in RESET, one of another type, and family flags of its own.
  Qp qp = t.create_qp(IBV_QPT_RC);
  bad = params;
  bad.intf = IBV_EXP_INTF_QP_BURST;
  bad.obj = qp.get();
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ_STATE);
  bad.family_flags = IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED);
  bad.family_flags = 0;
  Qp datagram = t.create_qp(IBV_QPT_UD);
  bad.obj = datagram.get();
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  // The CQ of a datagram queue pair stays with libmlx5, and whoever shares it.
  CHECK(outcome(params) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  to_init(qp.get());
  bad.obj = qp.get();
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  datagram.reset();
  bad.family_flags = IBV_EXP_QP_BURST_CREATE_ENABLE_MULTI_PACKET_SEND_WR;
  ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_INVAL_OBJ;
  if (sees_base_verbs) {
    CHECK(ibv_exp_query_intf(t.context.get(), &bad, &status) != nullptr);
    CHECK(status == IBV_EXP_INTF_STAT_OK);
  }

  CHECK(ibv_exp_release_intf(t.context.get(), nullptr, nullptr) == 0);
  ibv_exp_release_intf_params release{};
  CHECK(ibv_exp_release_intf(t.context.get(), nullptr, &release) == 0);
}

TEST_CASE("a queue that was used before stays with libmlx5") {
  FamilyRig t;
  Qp a = t.create_qp(IBV_QPT_RC), b = t.create_qp(IBV_QPT_RC);
  t.connect(a.get(), b->qp_num);
  t.connect(b.get(), a->qp_num);
  Buffer memory(t.pd.get(), 4096);
  post_receive(b.get(), 1, memory.piece(0, 64));
  CHECK(t.burst(b.get()) == nullptr);
  CHECK(t.status == IBV_EXP_INTF_STAT_INVAL_OBJ_STATE);
  // It still works the ordinary way.
  ibv_sge piece = memory.piece(1024, 64);
  REQUIRE(post(a.get(), base_request(2, IBV_WR_SEND, &piece)) == 0);
  CHECK(t.completions(2).size() == 2);
  CHECK(t.burst(a.get()) == nullptr);
  CHECK(t.status == IBV_EXP_INTF_STAT_INVAL_OBJ_STATE);
}

TEST_CASE("the receive side stays with libmlx5 where it has to") {
  FamilyRig t;
  Cq send_cq = t.create_cq();
  Qp a = t.create_on(IBV_QPT_RC, send_cq.get(), t.cq.get());
  Qp b = t.create_qp(IBV_QPT_RC);
  t.connect(a.get(), b->qp_num);
  t.connect(b.get(), a->qp_num);
  Buffer memory(t.pd.get(), 4096);
  post_receive(a.get(), 11, memory.piece(0, 64));
  auto *family = t.burst(a.get());
  REQUIRE(family != nullptr);
  ibv_sge room = memory.piece(64, 64);
  REQUIRE(family->recv_burst(a.get(), &room, 1) == 0);
  post_receive(b.get(), 12, memory.piece(128, 64));
  ibv_sge piece = memory.piece(1024, 32);
  REQUIRE(family->send_burst(a.get(), &piece, 1, signaled) == 0);
  for (int i = 0; i < 2; ++i) REQUIRE(post(b.get(), base_request(20, IBV_WR_SEND, &piece)) == 0);
  ibv_wc wc{};
  REQUIRE(eventually([&] { return ibv_poll_cq(send_cq.get(), 1, &wc); }) == 1);
  CHECK(wc.status == IBV_WC_SUCCESS);
  std::vector<std::uint64_t> ids;
  for (const ibv_exp_wc &done : t.completions(5)) {
    CHECK(done.status == IBV_WC_SUCCESS);
    ids.push_back(done.wr_id);
  }
  std::sort(ids.begin(), ids.end());
  CHECK(ids == std::vector<std::uint64_t>{0, 11, 12, 20, 20});
}

TEST_CASE("queue pairs that cannot follow are not created on a driven queue") {
  FamilyRig t;
  REQUIRE(t.cq_family(t.cq.get()) != nullptr);
  errno = 0;
  CHECK_FALSE(t.create_on(IBV_QPT_UD, t.cq.get(), t.cq.get()));
  CHECK(errno == EINVAL);
  CHECK(t.create_on(IBV_QPT_UC, t.cq.get(), t.cq.get()));
  if (sees_base_verbs) CHECK(ibv_resize_cq(t.cq.get(), 1024) == ENOTSUP);
}

TEST_CASE("queue pairs come and go with completions unread") {
  if (!sees_base_verbs) return;
  FamilyRig t;
  Buffer memory(t.pd.get(), 8192);
  auto *poll = t.cq_family(t.cq.get());
  REQUIRE(poll != nullptr);
  for (int round = 0; round < 30; ++round) {
    Qp a = t.create_on(IBV_QPT_RC, t.cq.get(), t.cq.get());
    Qp b = t.create_on(IBV_QPT_RC, t.cq.get(), t.cq.get());
    REQUIRE(a);
    REQUIRE(b);
    t.connect(a.get(), b->qp_num);
    t.connect(b.get(), a->qp_num);
    auto *family = t.burst(a.get());
    auto *other = t.burst(b.get());
    REQUIRE(family != nullptr);
    std::vector<ibv_sge> rooms(16, memory.piece(0, 256)), pieces(16, memory.piece(4096, 200));
    REQUIRE(other->recv_burst(b.get(), rooms.data(), 16) == 0);
    REQUIRE(family->send_burst(a.get(), pieces.data(), 16, signaled) == 0);
    // Some are read, some are unread, some are still on their way.
    if (round % 3 != 0) CHECK(poll_count(poll, t.cq.get(), round % 7) == round % 7);
    if (round % 2 == 0) {
      ibv_exp_qp_attr attr{};
      attr.qp_state = IBV_QPS_RESET;
      REQUIRE(ibv_exp_modify_qp(b.get(), &attr, IBV_EXP_QP_STATE) == 0);
    }
  }
  // What is left belongs to nobody.
  const timespec pause{0, 10'000'000};
  nanosleep(&pause, nullptr);
  CHECK(poll->poll_cnt(t.cq.get(), 100) == 0);
}

// [row:IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS]
TEST_CASE("checked functions look at states and pointers") {
  FamilyRig t;
  Qp a = t.create_qp(IBV_QPT_RC), b = t.create_qp(IBV_QPT_RC);
  to_init(a.get());
  auto *family = t.burst(a.get(), IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS);
  auto *poll = t.cq_family(t.cq.get(), IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS);
  REQUIRE(family != nullptr);
  REQUIRE(poll != nullptr);
  Buffer memory(t.pd.get(), 4096);
  ibv_sge piece = memory.piece(0, 64);
  CHECK(family->send_pending(a.get(), piece.addr, 64, piece.lkey, 0) == EINVAL);
  CHECK(family->send_burst(a.get(), &piece, 1, 0) == EINVAL);
  CHECK(family->recv_burst(a.get(), nullptr, 1) == EINVAL);
  std::uint32_t copied = 0;
  CHECK(poll->poll_length_flags(t.cq.get(), nullptr, &copied, nullptr) == -1);
  CHECK(family->recv_burst(a.get(), &piece, 1) == 0);
}

TEST_CASE("base functions that are handed out serve a queue that a family drives") {
  FamilyRig t;
  decltype(t.context->ops.post_send) post_send = nullptr;
  decltype(t.context->ops.post_recv) post_recv = nullptr;
  decltype(t.context->ops.poll_cq) poll_cq = nullptr;
  const auto get = [&] {
    const auto of = [&](ibv_exp_func_name name) {
      return ibv_exp_get_provider_func(t.context.get(), name);
    };
    post_send = reinterpret_cast<decltype(post_send)>(of(IBV_POST_SEND_FUNC));
    post_recv = reinterpret_cast<decltype(post_recv)>(of(IBV_POST_RECV_FUNC));
    poll_cq = reinterpret_cast<decltype(poll_cq)>(of(IBV_POLL_CQ_FUNC));
  };
  // Those of the symbol follow the queue; the inline hands out what the context
  // has at that moment.
  if (!inlines) get();
  Qp a = t.create_on(IBV_QPT_RC, t.cq.get(), t.cq.get());
  Qp b = t.create_on(IBV_QPT_RC, t.cq.get(), t.cq.get());
  t.connect(a.get(), b->qp_num);
  t.connect(b.get(), a->qp_num);
  auto *family = t.burst(a.get());
  REQUIRE(family != nullptr);
  if (inlines) get();
  Buffer memory(t.pd.get(), 8192);
  for (std::size_t i = 0; i < 200; ++i) memory.bytes[i] = static_cast<std::uint8_t>(i * 5);
  for (std::uint64_t i = 0; i < 100; ++i) {
    ibv_sge room = memory.piece(4096, 256), piece = memory.piece(0, 200);
    ibv_recv_wr recv{}, *bad_recv = nullptr;
    recv.wr_id = i;
    recv.sg_list = &room;
    recv.num_sge = 1;
    REQUIRE(post_recv(b.get(), &recv, &bad_recv) == 0);
    if (i % 2 == 0) {
      auto wr = base_request(1000 + i, IBV_WR_SEND, &piece);
      ibv_send_wr *bad = nullptr;
      REQUIRE(post_send(a.get(), &wr, &bad) == 0);
    } else {
      REQUIRE(family->send_burst(a.get(), &piece, 1, signaled) == 0);
    }
    for (int got = 0; got < 2;) {
      ibv_wc wc{};
      const int n = poll_cq(t.cq.get(), 1, &wc);
      REQUIRE(n >= 0);
      got += n;
      if (n == 0) continue;
      CHECK(wc.status == IBV_WC_SUCCESS);
      if (wc.opcode == IBV_WC_RECV) CHECK(wc.wr_id == i);
    }
    REQUIRE(std::memcmp(&memory.bytes[4096], memory.bytes.data(), 200) == 0);
    std::fill(memory.bytes.begin() + 4096, memory.bytes.begin() + 4352, 0);
  }
}

TEST_CASE("a queue that a program polls by ibv_start_poll() stays with libmlx5") {
  FamilyRig t;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  ibv_cq_ex *ex = ibv_create_cq_ex(t.context.get(), &attr);
  REQUIRE(ex != nullptr);
  const Cq cq(ibv_cq_ex_to_cq(ex));
  CHECK(t.cq_family(cq.get()) == nullptr);
  CHECK(t.status == IBV_EXP_INTF_STAT_INVAL_OBJ);
}
