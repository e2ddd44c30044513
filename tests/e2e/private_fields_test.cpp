// What a program with the private header reads behind the objects it was given, each
// field against mlx5dv_init_obj().
#include "dc_rig.h"
#include "private.h"
#include "skip.h"

namespace {

void check_queues(ibv_qp *qp, const ibv_qp_cap &granted) {
  const auto &of = private_of(qp);
  const mlx5dv_qp facts = facts_of(qp);
  const auto base = number(of.buf.buf);
  const auto sq_bytes = std::uintptr_t{facts.sq.wqe_cnt} * facts.sq.stride;
  const auto rq_bytes = std::uintptr_t{facts.rq.wqe_cnt} * facts.rq.stride;

  CHECK(of.rsc.type == 0);
  CHECK(of.gen_data.db == static_cast<void *>(facts.dbrec));
  CHECK(of.ctrl_seg.qp_num == qp->qp_num);
  CHECK(of.ctrl_seg.wq_sig == 0);
  CHECK(of.gen_data_warm.qp_type == qp->qp_type);

  CHECK(of.sq.wqe_cnt == facts.sq.wqe_cnt);
  if (facts.sq.wqe_cnt != 0) {
    CHECK(1u << of.sq.wqe_shift == facts.sq.stride);
    const auto distance = static_cast<std::int32_t>(of.sq.offset);
    // Of two buffers, as far as it fits.
    if (of.sq_buf_size == 0 || distance != 0) {
      CHECK(base + static_cast<std::intptr_t>(distance) == number(facts.sq.buf));
    }
    CHECK(number(of.gen_data.sqstart) == number(facts.sq.buf));
    CHECK(number(of.gen_data.sqend) == number(facts.sq.buf) + sq_bytes);
    CHECK(of.sq.max_post == granted.max_send_wr);
    CHECK(of.sq.max_gs == granted.max_send_sge);
    CHECK(number(of.sq.db) == number(facts.dbrec) + 4);
  }
  CHECK(of.sq.head == 0);
  CHECK(of.sq.tail == 0);
  CHECK(of.rq.wqe_cnt == facts.rq.wqe_cnt);
  if (facts.rq.wqe_cnt != 0) {
    CHECK(1u << of.rq.wqe_shift == facts.rq.stride);
    CHECK(base + of.rq.offset == number(facts.rq.buf));
    CHECK(number(of.rq.buff) == number(facts.rq.buf));
    CHECK(number(of.rq.db) == number(facts.dbrec));
    CHECK(of.rq.max_post == granted.max_recv_wr);
    CHECK(of.rq.max_gs == granted.max_recv_sge);
  }
  CHECK(of.rq.head == 0);
  CHECK(of.rq.tail == 0);
  CHECK(of.gen_data.scur_post == 0);

  // Those of raw packets are apart.
  const bool apart = of.sq_buf_size != 0;
  CHECK(apart == (qp->qp_type == IBV_QPT_RAW_PACKET && sq_bytes != 0 && rq_bytes != 0));
  CHECK(of.buf.length == (apart ? rq_bytes : sq_bytes + rq_bytes));
  CHECK(of.buf_size == of.buf.length);
  if (apart) {
    CHECK(number(of.sq_buf.buf) == number(facts.sq.buf));
    CHECK(of.sq_buf.length == sq_bytes);
  }

  REQUIRE(of.gen_data.bf != nullptr);
  const auto &bf = *of.gen_data.bf;
  CHECK(bf.reg == facts.bf.reg);
  CHECK(bf.need_lock == 1);
  CHECK((bf.uuarn > 0 ? bf.buf_size : 0) == facts.bf.size);
  CHECK(of.data_seg.max_inline_data == granted.max_inline_data);
  CHECK(of.rx_qp == 0);
}

}  // namespace

TEST_CASE("queue pairs of any door") {
  Rig rig;
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    CAPTURE(type);
    auto attr = rig.qp_attr(type);
    Qp exp(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(exp);
    check_queues(exp.get(), attr.cap);

    ibv_qp_init_attr base{};
    base.qp_context = &rig;
    base.send_cq = base.recv_cq = rig.cq.get();
    base.cap = {10, 20, 2, 1, 100};
    base.qp_type = type;
    base.sq_sig_all = 1;
    Qp plain(ibv_create_qp(rig.pd.get(), &base));
    REQUIRE(plain);
    check_queues(plain.get(), base.cap);
    CHECK(private_of(plain.get()).sq_signal_bits == 8);
    CHECK(plain->qp_context == &rig);
    CHECK(plain->send_cq == rig.cq.get());
    CHECK(plain->recv_cq == rig.cq.get());
    CHECK(plain->pd == rig.pd.get());

    ibv_qp_init_attr_ex ex{};
    ex.qp_context = &attr;
    ex.send_cq = ex.recv_cq = rig.cq.get();
    ex.cap = {10, 20, 2, 1, 100};
    ex.qp_type = type;
    ex.sq_sig_all = 1;
    ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    ex.pd = rig.pd.get();
    Qp extended(ibv_create_qp_ex(rig.context.get(), &ex));
    REQUIRE(extended);
    CHECK(ex.send_cq == rig.cq.get());
    check_queues(extended.get(), ex.cap);
    CHECK(extended->qp_context == &attr);
    CHECK(private_of(extended.get()).sq_signal_bits == 8);
  }
}

TEST_CASE("initiators and receivers from a shared queue") {
  Dc dc;
  Qp dci = dc.make_dci();
  const auto &of = private_of(dci.get());
  const mlx5dv_qp facts = facts_of(dci.get());
  CHECK(number(of.buf.buf) + of.sq.offset == number(facts.sq.buf));
  CHECK(of.sq.wqe_cnt == facts.sq.wqe_cnt);
  CHECK(of.rq.wqe_cnt == 0);
  CHECK(of.ctrl_seg.qp_num == dci->qp_num);

  auto attr = dc.qp_attr(IBV_QPT_RC);
  attr.srq = dc.srq.get();
  Qp with(ibv_exp_create_qp(dc.context.get(), &attr));
  REQUIRE(with);
  CHECK(with->srq == dc.srq.get());
  check_queues(with.get(), attr.cap);
}

TEST_CASE("raw packet queue pairs") {
  Rig rig;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  SKIP_IF(port.link_layer != IBV_LINK_LAYER_ETHERNET, "needs Ethernet");
  auto attr = rig.qp_attr(IBV_QPT_RAW_PACKET);
  Qp raw(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(raw);
  check_queues(raw.get(), attr.cap);
}

TEST_CASE("registers that are not shared need no lock") {
  const auto model = GENERATE(IBV_EXP_THREAD_SINGLE, IBV_EXP_THREAD_SAFE);
  const bool asked = GENERATE(true, false);
  const auto threads = asked ? model : IBV_EXP_THREAD_SAFE;
  Rig rig;
  ibv_exp_res_domain_init_attr wanted{};
  wanted.comp_mask = asked ? IBV_EXP_RES_DOMAIN_THREAD_MODEL : 0;
  wanted.thread_model = model;
  auto *domain = ibv_exp_create_res_domain(rig.context.get(), &wanted);
  REQUIRE(domain != nullptr);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_RES_DOMAIN;
  attr.res_domain = domain;
  Qp alone(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(alone);
  CHECK((private_of(alone.get()).gen_data.bf->need_lock != 0) == (threads == IBV_EXP_THREAD_SAFE));
  CHECK((private_of(alone.get()).gen_data.model_flags != 0) == (threads == IBV_EXP_THREAD_SAFE));
  CHECK(alone->pd == rig.pd.get());
  // The thread's own, for all of its queue pairs.
  Qp second(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(second);
  CHECK((private_of(alone.get()).gen_data.bf->reg == private_of(second.get()).gen_data.bf->reg) ==
        (threads == IBV_EXP_THREAD_SINGLE));
  second.reset();
  alone.reset();
  CHECK(ibv_exp_destroy_res_domain(rig.context.get(), domain, nullptr) == 0);
}

namespace {

// consumed: entries, that of a resize among them if the library counts.
void check_cq(ibv_cq *cq, std::uint32_t consumed = 0) {
  const auto &of = private_of(cq);
  const mlx5dv_cq facts = facts_of(cq);
  REQUIRE(of.active_buf != nullptr);
  CHECK(number(of.active_buf->buf) == number(facts.buf));
  CHECK(of.active_buf->length == std::size_t{facts.cqe_cnt} * facts.cqe_size);
  CHECK(of.cqn == facts.cqn);
  CHECK(of.cons_index == consumed);
  CHECK(number(of.dbrec) == number(facts.dbrec));
  CHECK(of.cqe_sz == facts.cqe_size);
  CHECK(static_cast<std::uint32_t>(cq->cqe) + 1 == facts.cqe_cnt);
  CHECK(1u << of.cq_log_size == facts.cqe_cnt);
  CHECK(of.model_flags != 0);  // safe for threads
}

}  // namespace

TEST_CASE("completion queues, also resized") {
  Rig rig;
  check_cq(rig.cq.get());
  CHECK(rig.cq->cq_context == &rig);

  Cq base(ibv_create_cq(rig.context.get(), 100, &base, nullptr, 0));
  REQUIRE(base);
  CHECK(base->cq_context == &base);
  check_cq(base.get());
  REQUIRE(ibv_resize_cq(base.get(), 1000) == 0);
  CHECK(base->cqe >= 1000);
  check_cq(base.get(), engine_drives() ? 1 : 0);
}

TEST_CASE("completion queues with time stamps") {
  Rig rig;
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_TIMESTAMP;
  Cq stamped(ibv_exp_create_cq(rig.context.get(), 64, nullptr, nullptr, 0, &attr));
  REQUIRE(stamped);
  check_cq(stamped.get());
}

TEST_CASE("shared receive queues") {
  Dc dc;
  const auto check = [](ibv_srq *srq) {
    const auto &of = private_of(srq);
    const mlx5dv_srq facts = facts_of(srq);
    CHECK(of.rsc.type == 2);
    CHECK(number(of.buf.buf) == number(facts.buf));
    CHECK(of.srqn == facts.srqn);
    CHECK(1u << of.wqe_shift == facts.stride);
    CHECK(of.head == facts.head);
    CHECK(of.tail == facts.tail);
    CHECK(of.max == facts.tail + 1);
    CHECK(number(of.db) == number(facts.dbrec));
    CHECK(of.counter == 0);
    ibv_srq_attr granted{};
    REQUIRE(ibv_query_srq(srq, &granted) == 0);
    CHECK(of.max_gs == granted.max_sge);
  };
  check(dc.srq.get());
  // What UCX relies on.
  CHECK(1u << private_of(dc.srq.get()).wqe_shift == 32);

  ibv_exp_create_srq_attr attr{};
  attr.pd = dc.pd.get();
  attr.base.srq_context = &dc;
  attr.base.attr = {100, 3, 0};
  Srq exp(ibv_exp_create_srq(dc.context.get(), &attr));
  REQUIRE(exp);
  check(exp.get());
  CHECK(exp->srq_context == &dc);
}

// Its commands go to a queue pair that has no front: programs are not to post there themselves.
TEST_CASE("a shared receive queue that matches tags is in use from the start", "[tags]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_TM_CAPS;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  SKIP_IF(device.comp_mask == 0, "tags are not matched");

  ibv_exp_create_srq_attr attr{};
  attr.pd = rig.pd.get();
  attr.cq = rig.cq.get();
  attr.base.attr = {16, 1, 0};
  attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_TM;
  attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
  attr.tm_cap.max_num_tags = 8;
  attr.tm_cap.max_ops = 8;
  const Srq srq(ibv_exp_create_srq(rig.context.get(), &attr));
  REQUIRE(srq);
  const auto &of = private_of(srq.get());
  CHECK(of.srqn == facts_of(srq.get()).srqn);
  CHECK(of.counter != 0);
}

TEST_CASE("receive work queues") {
  Rig rig;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  SKIP_IF(port.link_layer != IBV_LINK_LAYER_ETHERNET, "needs Ethernet");
  for (const bool striding : {false, true}) {
    CAPTURE(striding);
    Cq cq = rig.create_cq();
    ibv_exp_wq_init_attr attr{};
    attr.wq_context = &rig;
    attr.wq_type = IBV_EXP_WQT_RQ;
    attr.max_recv_wr = 16;
    attr.max_recv_sge = 1;
    attr.pd = rig.pd.get();
    attr.cq = cq.get();
    if (striding) {
      attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
      attr.mp_rq.single_stride_log_num_of_bytes = 8;
      attr.mp_rq.single_wqe_log_num_of_strides = 9;
    }
    ibv_exp_wq *wq = ibv_exp_create_wq(rig.context.get(), &attr);
    REQUIRE(wq != nullptr);
    CHECK(attr.cq == cq.get());
    CHECK(wq->cq == cq.get());
    CHECK(wq->wq_context == &rig);
    const auto &of = private_of(wq);
    CHECK(of.rsc.type == 3);
    CHECK(of.rq.wqe_cnt >= 16);
    CHECK(std::has_single_bit(of.rq.wqe_cnt));
    CHECK(of.buf.buf != nullptr);
    CHECK(of.buf.length == std::size_t{of.rq.wqe_cnt} << of.rq.wqe_shift);
    CHECK(number(of.rq.buff) == number(of.buf.buf) + of.rq.offset);
    CHECK(of.db != nullptr);
    CHECK(of.rq.db == of.db);
    CHECK(of.rq.max_gs == attr.max_recv_sge);
    CHECK(of.model_flags != 0);
    CHECK(of.mp_rq_stride_size == (striding ? 256 : 0));
    CHECK(of.mp_rq_strides_in_wqe == (striding ? 512 : 0));

    ibv_exp_wq_attr to{};
    to.attr_mask = IBV_EXP_WQ_ATTR_STATE;
    to.wq_state = IBV_EXP_WQS_RDY;
    CHECK(ibv_exp_modify_wq(wq, &to) == 0);
    CHECK(wq->state == IBV_EXP_WQS_RDY);
    CHECK(ibv_exp_destroy_wq(wq) == 0);
  }
}

TEST_CASE("queue pairs that hold a table") {
  Rig rig;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  SKIP_IF(port.link_layer != IBV_LINK_LAYER_ETHERNET, "needs Ethernet");
  ibv_exp_wq_init_attr wq_attr{};
  wq_attr.wq_type = IBV_EXP_WQT_RQ;
  wq_attr.max_recv_wr = 16;
  wq_attr.max_recv_sge = 1;
  wq_attr.pd = rig.pd.get();
  wq_attr.cq = rig.cq.get();
  ibv_exp_wq *wq = ibv_exp_create_wq(rig.context.get(), &wq_attr);
  REQUIRE(wq != nullptr);
  ibv_exp_rwq_ind_table_init_attr table_attr{};
  table_attr.pd = rig.pd.get();
  table_attr.ind_tbl = &wq;
  ibv_exp_rwq_ind_table *table = ibv_exp_create_rwq_ind_table(rig.context.get(), &table_attr);
  REQUIRE(table != nullptr);
  std::uint8_t key[40] = {};
  ibv_exp_rx_hash_conf hash{};
  hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
  hash.rx_hash_key_len = sizeof(key);
  hash.rx_hash_key = key;
  hash.rx_hash_fields_mask = IBV_EXP_RX_HASH_SRC_IPV4;
  hash.rwq_ind_tbl = table;
  ibv_exp_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH;
  attr.pd = rig.pd.get();
  attr.rx_hash_conf = &hash;
  Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  const auto &of = private_of(qp.get());
  CHECK(of.rx_qp == 1);
  CHECK(of.rsc.type == 0);
  CHECK(of.gen_data_warm.qp_type == qp->qp_type);
  CHECK(of.ctrl_seg.qp_num == qp->qp_num);
  CHECK(of.sq.wqe_cnt == 0);
  CHECK(of.rq.wqe_cnt == 0);
  qp.reset();
  CHECK(ibv_exp_destroy_rwq_ind_table(table) == 0);
  CHECK(ibv_exp_destroy_wq(wq) == 0);
}

TEST_CASE("address handles say that their vectors are extended ones") {
  Dc dc;
  const auto *vector = reinterpret_cast<const mlx5_wqe_av *>(dc.ah.get() + 1);
  CHECK((be32toh(vector->dqp_dct) & MLX5_EXTENDED_UD_AV) != 0);
  mlx5dv_ah facts{};
  mlx5dv_obj object{};
  object.ah = {dc.ah.get(), &facts};
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_AH) == 0);
  CHECK(static_cast<const void *>(facts.av) == vector);
}
