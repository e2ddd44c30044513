// Posting and polling: data, completions, chains and their faults.
#include <endian.h>

#include <algorithm>
#include <numeric>

#include "pair.h"

TEST_CASE("sends arrive whole and are completed on both sides [row:ibv_exp_post_send]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  Pair p(type);
  auto piece = p.out.piece(0, 1000);
  post_receive(p.b.get(), 7, p.in.piece(0, size));

  SECTION("plain") {
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    p.post(wr);
    const auto [sent, got] = both(p);
    CHECK(sent.exp_opcode == IBV_EXP_WC_SEND);
    CHECK((sent.exp_wc_flags & IBV_EXP_WC_QP) != 0);
    CHECK(sent.qp == p.a.get());
    CHECK(got.exp_opcode == IBV_EXP_WC_RECV);
    CHECK(got.byte_len == 1000);
    CHECK(got.qp == p.b.get());
    CHECK(got.qp_num == p.b->qp_num);
    CHECK(got.exp_wc_flags == IBV_EXP_WC_QP);
  }
  SECTION("with immediate data") {
    auto wr = request(1, IBV_EXP_WR_SEND_WITH_IMM, &piece);
    wr.ex.imm_data = htobe32(0x01020304);
    p.post(wr);
    const auto [sent, got] = both(p);
    for (const auto &wc : {sent, got})
      CHECK(wc.exp_wc_flags == (IBV_EXP_WC_QP | IBV_EXP_WC_WITH_IMM));
    CHECK(got.imm_data == htobe32(0x01020304));
  }
  SECTION("inline") {
    piece.length = 40;
    piece.lkey = 0;
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    wr.exp_send_flags |= IBV_EXP_SEND_INLINE | IBV_EXP_SEND_SOLICITED;
    p.post(wr);
    CHECK(both(p).second.byte_len == 40);
  }
  CHECK(std::equal(p.in.bytes.begin(), p.in.bytes.begin() + piece.length, p.out.bytes.begin()));
}

TEST_CASE("a receive without room does not have that of the one before [row:ibv_exp_post_send]") {
  Rig rig;
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.cap.max_recv_wr = 1;
  const Qp receiver(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(receiver);
  const Qp sender = rig.create_qp(IBV_QPT_RC);
  rig.connect(sender.get(), receiver->qp_num);
  rig.connect(receiver.get(), sender->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  auto piece = out.piece(0, 64);
  const auto send = [&](const ibv_sge *place) {
    ibv_recv_wr receive{7, nullptr, const_cast<ibv_sge *>(place), place != nullptr ? 1 : 0};
    ibv_recv_wr *bad_receive = nullptr;
    REQUIRE(ibv_post_recv(receiver.get(), &receive, &bad_receive) == 0);
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(sender.get(), &wr, &bad) == 0);
    const auto all = rig.completions(2);
    return all[all[0].wr_id == 7 ? 0 : 1].status;
  };
  auto place = in.piece(0, 64);
  // As often as the ring may have entries.
  for (int i = 0; i < 4; ++i) CHECK(send(&place) == IBV_WC_SUCCESS);
  CHECK(send(nullptr) == IBV_WC_LOC_LEN_ERR);
}

TEST_CASE("remote memory is written, read and counted on [row:ibv_exp_post_send]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, size);

  SECTION("write") {
    auto wr = p.write(1, &piece);
    p.post(wr);
    CHECK(p.complete(1).exp_opcode == IBV_EXP_WC_RDMA_WRITE);
    CHECK(p.in.bytes == p.out.bytes);
  }
  SECTION("write with immediate data") {
    post_receive(p.b.get(), 7, p.in.piece(0, 0));
    auto wr = p.write(1, &piece);
    wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE_WITH_IMM;
    wr.ex.imm_data = 5;
    p.post(wr);
    const auto got = both(p).second;
    CHECK(got.exp_opcode == IBV_EXP_WC_RECV_RDMA_WITH_IMM);
    CHECK(got.byte_len == size);
    CHECK(p.in.bytes == p.out.bytes);
  }
  SECTION("read") {
    auto into = p.in.piece(0, size);
    auto wr = request(1, IBV_EXP_WR_RDMA_READ, &into);
    wr.wr.rdma.remote_addr = p.out.address();
    wr.wr.rdma.rkey = p.out.mr->rkey;
    p.post(wr);
    const auto wc = p.complete(1);
    CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_READ);
    CHECK(p.in.bytes == p.out.bytes);
  }
  SECTION("atomics") {
    auto result = p.out.piece(0, 8);
    auto &counter = *reinterpret_cast<std::uint64_t *>(p.in.bytes.data());
    const auto &before = *reinterpret_cast<const std::uint64_t *>(p.out.bytes.data());
    counter = 40;
    auto wr = request(1, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &result);
    wr.wr.atomic.remote_addr = p.in.address();
    wr.wr.atomic.rkey = p.in.mr->rkey;
    wr.wr.atomic.compare_add = 2;
    p.post(wr);
    CHECK(p.complete(1).exp_opcode == IBV_EXP_WC_FETCH_ADD);
    CHECK(counter == 42);
    CHECK(before == 40);
    wr.exp_opcode = IBV_EXP_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 99;
    p.post(wr);
    CHECK(p.complete(1).exp_opcode == IBV_EXP_WC_COMP_SWAP);
    CHECK(counter == 99);
    CHECK(before == 42);
    // The answer has 8 bytes, also where there is room for more.
    const std::uint8_t behind = p.out.bytes[8];
    result.length = 16;
    p.post(wr);
    CHECK(p.complete(1).exp_opcode == IBV_EXP_WC_COMP_SWAP);
    CHECK(before == 99);
    wr.exp_opcode = IBV_EXP_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.compare_add = 2;
    p.post(wr);
    p.complete(1);
    p.post(wr);
    CHECK(p.complete(1).exp_opcode == IBV_EXP_WC_FETCH_ADD);
    CHECK(counter == 103);
    CHECK(before == 101);
    CHECK(p.out.bytes[8] == behind);
  }
}

// The kernel keeps a queue pair that is in a group: uverbs_free_qp() answers EBUSY.
TEST_CASE("a queue pair that could not be destroyed goes on [row:ibv_exp_post_send]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_UD);
  rig.connect(qp.get(), 0);
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  group.raw[15] = 0x78;
  REQUIRE(ibv_attach_mcast(qp.get(), &group, 0xc001) == 0);
  CHECK(ibv_destroy_qp(qp.get()) == EBUSY);
  REQUIRE(ibv_detach_mcast(qp.get(), &group, 0xc001) == 0);
  const Qp next = rig.create_qp(IBV_QPT_RC);  // not in its place

  ibv_ah_attr where = path_to_self(rig.context.get());
  const Owned<ibv_ah, ibv_destroy_ah> ah(ibv_create_ah(rig.pd.get(), &where));
  REQUIRE(ah);
  Buffer out(rig.pd.get(), 256), in(rig.pd.get(), 512);
  post_receive(qp.get(), 7, in.piece(0, 512));
  auto piece = out.piece(0, 256);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece), *bad = &wr;
  wr.wr.ud.ah = ah.get();
  wr.wr.ud.remote_qpn = qp->qp_num;
  wr.wr.ud.remote_qkey = 0x11111111;
  bad = nullptr;
  REQUIRE(ibv_exp_post_send(qp.get(), &wr, &bad) == 0);
  const auto [sent, got] = both(rig);
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(sent.exp_opcode == IBV_EXP_WC_SEND);
  CHECK(sent.qp == qp.get());
  CHECK(got.status == IBV_WC_SUCCESS);
  CHECK(got.byte_len == 256 + 40);
  CHECK(got.qp == qp.get());
}

TEST_CASE("datagrams carry their address [row:ibv_exp_post_send]") {
  Rig rig;
  Qp a = rig.create_qp(IBV_QPT_UD), b = rig.create_qp(IBV_QPT_UD);
  Buffer out(rig.pd.get(), 256), in(rig.pd.get(), 512);
  rig.connect(a.get(), 0);
  rig.connect(b.get(), 0);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  ibv_ah_attr where{};
  where.port_num = 1;
  where.dlid = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    where.is_global = 1;
    where.grh.sgid_index = 1;
    where.grh.hop_limit = 1;
    REQUIRE(ibv_query_gid(rig.context.get(), 1, 1, &where.grh.dgid) == 0);
  }
  Owned<ibv_ah, ibv_destroy_ah> ah(ibv_create_ah(rig.pd.get(), &where));
  REQUIRE(ah);
  std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{3});
  post_receive(b.get(), 7, in.piece(0, 512));

  auto piece = out.piece(0, 256);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece), *bad = &wr;
  wr.wr.ud.ah = ah.get();
  wr.wr.ud.remote_qpn = b->qp_num;
  wr.wr.ud.remote_qkey = 0x11111111;
  bad = nullptr;
  REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
  const auto got = both(rig).second;
  CHECK(got.status == IBV_WC_SUCCESS);
  CHECK(got.byte_len == 256 + 40);
  CHECK(got.src_qp == a->qp_num);
  CHECK(std::equal(out.bytes.begin(), out.bytes.end(), in.bytes.begin() + 40));
}

TEST_CASE("numbers of 3.x are understood [row:IBV_EXP_WR_SEND_WITH_INV]") {
  Pair p(IBV_QPT_RC);
  Owned<ibv_mw, ibv_dealloc_mw> window(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_2));
  REQUIRE(window);
  const int opcode = GENERATE(0x48, int{IBV_EXP_WR_SEND_WITH_INV});
  post_receive(p.b.get(), 7, p.in.piece(0, size));
  // An unbound window cannot be invalidated from afar; that the request is
  // taken and executed as this opcode shows in how it fails.
  auto piece = p.out.piece(0, 8);
  auto wr = request(1, static_cast<ibv_exp_wr_opcode>(opcode), &piece);
  wr.ex.invalidate_rkey = window->rkey;
  p.post(wr);
  const auto all = p.completions(2);
  CHECK(std::any_of(all.begin(), all.end(), [](const ibv_exp_wc &wc) { return wc.wr_id == 1; }));
}

TEST_CASE("a long chain is posted in order [row:ibv_exp_post_send]") {
  Pair p(IBV_QPT_RC);
  constexpr int count = 50;
  std::vector<ibv_sge> pieces(count);
  std::vector<ibv_exp_send_wr> wrs(count);
  for (int i = 0; i < count; ++i) {
    pieces[i] = p.out.piece(static_cast<std::size_t>(i) * 64, 64);
    wrs[i] = p.write(100 + i, &pieces[i], static_cast<std::size_t>(i) * 64);
    // Chained, inline, and a change of both.
    if (i % 7 == 3) wrs[i].exp_send_flags |= IBV_EXP_SEND_INLINE;
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
  }
  p.post(wrs[0]);
  const auto all = p.completions(count);
  for (int i = 0; i < count; ++i) CHECK(all[i].wr_id == static_cast<std::uint64_t>(100 + i));
  CHECK(std::equal(p.in.bytes.begin(), p.in.bytes.begin() + count * 64, p.out.bytes.begin()));
}

// libmlx5 by itself would ring a wrong doorbell, and the good requests would
// not be executed.
TEST_CASE("the good prefix of a chain is executed [row:ibv_exp_post_send]") {
  Pair p(IBV_QPT_RC);
  constexpr int good = 20;
  std::vector<ibv_sge> pieces(good + 2);
  std::vector<ibv_exp_send_wr> wrs(good + 2);
  for (int i = 0; i < good + 2; ++i) {
    pieces[i] = p.out.piece(static_cast<std::size_t>(i) * 64, 64);
    wrs[i] = p.write(i, &pieces[i], static_cast<std::size_t>(i) * 64);
    wrs[i].next = i < good + 1 ? &wrs[i + 1] : nullptr;
  }
  int expected = 0;
  SECTION("too much inline data") {
    pieces[good].length = 2048;
    wrs[good].exp_send_flags |= IBV_EXP_SEND_INLINE;
    expected = ENOMEM;
  }
  SECTION("too many pieces") {
    wrs[good].num_sge = 1000;
    expected = ENOMEM;
  }
  SECTION("unknown opcode") {
    wrs[good].exp_opcode = static_cast<ibv_exp_wr_opcode>(0x7f);
    expected = EINVAL;
  }
  const bool refuses = !switched_on("nop") && !switched_on("cross_channel");
  if (refuses) {
    SECTION("refused opcodes") {
      wrs[good].exp_opcode = GENERATE(IBV_EXP_WR_NOP, IBV_EXP_WR_CQE_WAIT, IBV_EXP_WR_SEND_ENABLE,
                                      IBV_EXP_WR_RECV_ENABLE);
      expected = ENOTSUP;
    }
  }
  if (refuses) {
    SECTION("refused flags") {
      wrs[good].exp_send_flags |= GENERATE(IBV_EXP_SEND_WITH_CALC, IBV_EXP_SEND_WAIT_EN_LAST);
      expected = ENOTSUP;
    }
  }
  ibv_exp_send_wr *bad = nullptr;
  CHECK(p.post(wrs[0], bad) == expected);
  CHECK(bad == &wrs[good]);
  const auto all = p.completions(good);
  for (int i = 0; i < good; ++i) CHECK(all[i].wr_id == static_cast<std::uint64_t>(i));
  CHECK(std::equal(p.in.bytes.begin(), p.in.bytes.begin() + good * 64, p.out.bytes.begin()));
  CHECK(p.in.bytes[(good + 1) * 64] == 0);
}

TEST_CASE("a full queue says so at the first that does not fit [row:ibv_exp_post_send]") {
  Pair p(IBV_QPT_RC);
  std::vector<ibv_sge> pieces(2000, p.out.piece(0, 8));
  std::vector<ibv_exp_send_wr> wrs(2000);
  for (std::size_t i = 0; i < wrs.size(); ++i) {
    wrs[i] = p.write(i, &pieces[i]);
    wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
  }
  ibv_exp_send_wr *bad = nullptr;
  CHECK(p.post(wrs[0], bad) == ENOMEM);
  REQUIRE(bad != nullptr);
  const auto posted = static_cast<std::size_t>(bad - wrs.data());
  CHECK(posted >= 64);
  CHECK(p.completions(posted).back().wr_id == posted - 1);
}

TEST_CASE("completions fit the caller's structure [row:ibv_exp_poll_cq]") {
  Pair p(IBV_QPT_RC);
  // 3.x and 4.0, 4.1 and later, a release to come, and sizes in between.
  const std::uint32_t wc_size = GENERATE(88u, 104u, 128u, 48u, 64u, 80u);
  ibv_sge piece = p.out.piece(0, 8);
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto wr = p.write(i, &piece);
    p.post(wr);
  }
  std::vector<std::uint8_t> area(5 * wc_size + 64, 0xee);
  auto *at = area.data();
  int got = 0;
  while (got < 5) {
    const int n = ibv_exp_poll_cq(p.cq.get(), 5 - got, reinterpret_cast<ibv_exp_wc *>(at), wc_size);
    REQUIRE(n >= 0);
    got += n;
    at += static_cast<std::uint32_t>(n) * wc_size;
  }
  for (std::uint32_t i = 0; i < 5; ++i) {
    ibv_exp_wc wc{};
    std::memcpy(&wc, area.data() + i * wc_size, std::min<std::size_t>(wc_size, sizeof(wc)));
    CHECK(wc.wr_id == i);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_WRITE);
    if (wc_size >= 64) CHECK(wc.qp == p.a.get());
  }
  CHECK(std::all_of(area.end() - 64, area.end(), [](std::uint8_t b) { return b == 0xee; }));

  ibv_exp_wc none{};
  CHECK(ibv_exp_poll_cq(p.cq.get(), 1, &none, sizeof(none)) == 0);
}

TEST_CASE("a failed request says who and why [row:ibv_exp_poll_cq]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 8);
  auto wr = p.write(9, &piece);
  wr.wr.rdma.rkey ^= 0x5500;
  p.post(wr);
  const auto wc = p.completions(1)[0];
  CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(wc.wr_id == 9);
  CHECK(wc.qp_num == p.a->qp_num);
}

TEST_CASE("base and experimental verbs mix on one queue pair [row:ibv_exp_post_send]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 64);
  auto wr = p.write(1, &piece);
  p.post(wr);
  ibv_send_wr base{}, *bad = nullptr;
  base.wr_id = 2;
  base.sg_list = &piece;
  base.num_sge = 1;
  base.opcode = IBV_WR_RDMA_WRITE;
  base.send_flags = IBV_SEND_SIGNALED;
  base.wr.rdma.remote_addr = p.in.address(64);
  base.wr.rdma.rkey = p.in.mr->rkey;
  REQUIRE(ibv_post_send(p.a.get(), &base, &bad) == 0);
  ibv_wc first{};
  while (ibv_poll_cq(p.cq.get(), 1, &first) == 0) {
  }
  CHECK(first.wr_id == 1);
  CHECK(p.complete(2).exp_opcode == IBV_EXP_WC_RDMA_WRITE);
}

// [row:IBV_EXP_POLL_CQ_FUNC][row:IBV_EXP_POST_SEND_FUNC][row:IBV_POLL_CQ_FUNC]
// [row:IBV_POST_RECV_FUNC][row:IBV_POST_SEND_FUNC]
TEST_CASE("raw data path functions serve every queue pair [row:ibv_exp_get_provider_func]") {
  Pair p(IBV_QPT_RC);
  const auto get = [&](ibv_exp_func_name name) {
    return ibv_exp_get_provider_func(p.context.get(), name);
  };
  const auto post = reinterpret_cast<drv_exp_post_send_func>(get(IBV_EXP_POST_SEND_FUNC));
  const auto poll = reinterpret_cast<drv_exp_poll_cq_func>(get(IBV_EXP_POLL_CQ_FUNC));
  REQUIRE(post != nullptr);
  REQUIRE(poll != nullptr);
  auto piece = p.out.piece(0, 64);
  auto wr = p.write(1, &piece);
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(post(p.a.get(), &wr, &bad) == 0);
  ibv_exp_wc wc{};
  while (poll(p.cq.get(), 1, &wc, sizeof(wc)) == 0) {
  }
  CHECK(wc.wr_id == 1);
  CHECK(wc.qp == p.a.get());

  // Those of the base verbs.
  const auto base_post =
      reinterpret_cast<decltype(p.context->ops.post_send)>(get(IBV_POST_SEND_FUNC));
  const auto base_recv =
      reinterpret_cast<decltype(p.context->ops.post_recv)>(get(IBV_POST_RECV_FUNC));
  const auto base_poll = reinterpret_cast<decltype(p.context->ops.poll_cq)>(get(IBV_POLL_CQ_FUNC));
  auto room = p.in.piece(0, 64);
  ibv_recv_wr recv{}, *bad_recv = nullptr;
  recv.wr_id = 8;
  recv.sg_list = &room;
  recv.num_sge = 1;
  REQUIRE(base_recv(p.b.get(), &recv, &bad_recv) == 0);
  ibv_send_wr base{}, *bad_base = nullptr;
  base.wr_id = 9;
  base.sg_list = &piece;
  base.num_sge = 1;
  base.opcode = IBV_WR_SEND;
  base.send_flags = IBV_SEND_SIGNALED;
  REQUIRE(base_post(p.a.get(), &base, &bad_base) == 0);
  std::uint64_t ids = 0;
  for (int got = 0; got < 2;) {
    ibv_wc modern{};
    const int n = base_poll(p.cq.get(), 1, &modern);
    REQUIRE(n >= 0);
    if (n == 1) ids += modern.wr_id;
    got += n;
  }
  CHECK(ids == 17);
  errno = 0;
  CHECK(get(static_cast<ibv_exp_func_name>(99)) == nullptr);
  CHECK(errno == ENOSYS);
}

TEST_CASE("a CQ that is polled by ibv_start_poll() frees the send queue") {
  // With all that completions say, and without the queue pair's number.
  const std::uint64_t reported = GENERATE(std::uint64_t{IBV_WC_STANDARD_FLAGS}, std::uint64_t{0});
  Rig rig;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 256;
  attr.wc_flags = reported;
  ibv_cq_ex *cq = ibv_create_cq_ex(rig.context.get(), &attr);
  REQUIRE(cq != nullptr);
  rig.cq.reset(ibv_cq_ex_to_cq(cq));
  const Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer memory(rig.pd.get(), size);
  std::iota(memory.bytes.begin(), memory.bytes.begin() + 64, std::uint8_t{1});
  ibv_sge piece = memory.piece(0, 64);
  std::uint64_t posted = 0, taken = 0;
  // Many times the depth of the queue.
  while (taken < 1000) {
    for (; posted < taken + 40; ++posted) {
      auto wr = request(posted, IBV_EXP_WR_RDMA_WRITE, &piece);
      wr.wr.rdma.remote_addr = memory.address(1024);
      wr.wr.rdma.rkey = memory.mr->rkey;
      ibv_exp_send_wr *bad = nullptr;
      REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
    }
    ibv_poll_cq_attr poll_attr{};
    int error = ibv_start_poll(cq, &poll_attr);
    if (error == ENOENT) continue;
    REQUIRE(error == 0);
    do {
      REQUIRE(cq->status == IBV_WC_SUCCESS);
      REQUIRE(cq->wr_id == taken++);
      REQUIRE(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
      if (reported != 0) REQUIRE(ibv_wc_read_qp_num(cq) == a->qp_num);
    } while ((error = ibv_next_poll(cq)) == 0);
    CHECK(error == ENOENT);
    ibv_end_poll(cq);
  }
  CHECK(std::memcmp(memory.bytes.data(), memory.bytes.data() + 1024, 64) == 0);
  // The rest, by another verb.
  while (taken < posted) {
    ibv_exp_wc wc{};
    const int n = ibv_exp_poll_cq(rig.cq.get(), 1, &wc, sizeof(wc));
    REQUIRE(n >= 0);
    if (n == 1) CHECK(wc.wr_id == taken++);
  }
}

TEST_CASE("answers of silent reads arrive, whatever was granted inline [row:inlrecv_dv_allow]") {
  // With requests for scatter-to-CQE, which answers of reads without a completion
  // must not follow.
  Pair p(IBV_QPT_RC);
  const auto inline_qp = [&] {
    auto attr = p.qp_attr(IBV_QPT_RC);
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_INL_RECV;
    attr.max_inl_recv = 64;
    Qp made(ibv_exp_create_qp(p.context.get(), &attr));
    REQUIRE(made);
    return made;
  };
  const Qp reader = inline_qp(), answerer = inline_qp();
  p.connect(reader.get(), answerer->qp_num);
  p.connect(answerer.get(), reader->qp_num);
  ibv_sge pieces[8];
  ibv_exp_send_wr reads[8], *bad = nullptr;
  for (std::size_t i = 0; i < 8; ++i) {
    pieces[i] = p.in.piece(i * 32, 32);
    reads[i] = request(i, IBV_EXP_WR_RDMA_READ, &pieces[i]);
    reads[i].wr.rdma.remote_addr = p.out.address(i * 32);
    reads[i].wr.rdma.rkey = p.out.mr->rkey;
    if (i < 7) reads[i].exp_send_flags = 0;
    reads[i].next = i < 7 ? &reads[i + 1] : nullptr;
  }
  REQUIRE(ibv_exp_post_send(reader.get(), reads, &bad) == 0);
  const auto wc = p.completions(1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == 7);
  CHECK(std::equal(p.in.bytes.begin(), p.in.bytes.begin() + 256, p.out.bytes.begin()));
}
