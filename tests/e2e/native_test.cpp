// What rdma-core's own data path cannot do is refused (IBVEXP_ENGINE=native).
#include "families_rig.h"
#include "pair.h"

namespace {

ibv_exp_query_intf_status ask(Rig &rig, ibv_exp_intf_family intf, void *object) {
  ibv_exp_query_intf_params params{};
  params.intf = intf;
  params.obj = object;
  auto status = IBV_EXP_INTF_STAT_OK;
  errno = 0;
  CHECK(ibv_exp_query_intf(rig.context.get(), &params, &status) == nullptr);
  CHECK(errno == ENOTSUP);
  return status;
}

}  // namespace

// [row:IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED]
TEST_CASE("rdma-core's data path has no interface families") {
  FamilyRig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  to_init(qp.get());
  CHECK(ask(rig, IBV_EXP_INTF_QP_BURST, qp.get()) == IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
  CHECK(ask(rig, IBV_EXP_INTF_CQ, rig.cq.get()) == IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
  ibv_exp_wq_init_attr attr{};
  attr.wq_type = IBV_EXP_WQT_RQ;
  attr.max_recv_wr = attr.max_recv_sge = 1;
  attr.pd = rig.pd.get();
  attr.cq = rig.cq.get();
  ibv_exp_wq *wq = ibv_exp_create_wq(rig.context.get(), &attr);
  REQUIRE(wq != nullptr);
  CHECK(ask(rig, IBV_EXP_INTF_WQ, wq) == IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
  CHECK(ibv_exp_destroy_wq(wq) == 0);
  attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
  attr.mp_rq = {IBV_EXP_MP_RQ_NO_SHIFT, 9, 6};
  errno = 0;
  CHECK(ibv_exp_create_wq(rig.context.get(), &attr) == nullptr);
  CHECK(errno == ENOTSUP);
}

// [row:IBV_EXP_WR_NOP]
TEST_CASE("rdma-core's data path posts no masked atomics and no NOP") {
  Pair t(IBV_QPT_RC);
  ibv_sge piece = t.in.piece(0, 8);
  for (const auto opcode : {IBV_EXP_WR_NOP, IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP}) {
    auto good = t.write(1, &piece), refused = request(2, opcode, &piece);
    good.next = &refused;
    ibv_exp_send_wr *bad = nullptr;
    CHECK(t.post(good, bad) == ENOTSUP);
    CHECK(bad == &refused);
    t.complete(1);
  }
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(t.context.get(), &attr) == 0);
  CHECK((attr.exp_device_cap_flags & (IBV_EXP_DEVICE_NOP | IBV_EXP_DEVICE_EXT_ATOMICS)) == 0);
}

// [row:IBV_EXP_CQ_COMPRESSED_CQE]
TEST_CASE("rdma-core's data path reads no compressed completions") {
  Rig rig;
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_COMPRESSED_CQE;
  errno = 0;
  CHECK(ibv_exp_create_cq(rig.context.get(), 64, nullptr, nullptr, 0, &attr) == nullptr);
  CHECK(errno == ENOTSUP);
}

// RC queue pairs fill them all the same.
TEST_CASE("keys are not reported where not every queue pair fills them") {
  Rig rig;
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_UMR;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &attr) == 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR) == 0);
  CHECK((attr.comp_mask & IBV_EXP_DEVICE_ATTR_UMR) == 0);
  auto init = rig.qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  init.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
  init.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
  init.max_inl_send_klms = 4;
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &init) == nullptr);
  CHECK(errno == ENOTSUP);
}
