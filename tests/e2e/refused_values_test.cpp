// Every flag, opcode and value that is refused, asked for one at a time.
#include <fcntl.h>

#include <cerrno>
#include <string>

#include "../support/refused.h"
#include "rig.h"

namespace {

// Calls ask(value) for each value of an enum that is refused; ask returns the errno
// that it was answered.
template <class Ask>
void each_refused(std::string_view owner, Ask ask) {
  int asked = 0;
  for (const refused::Value &v : refused::values) {
    if (v.owner != owner) continue;
    INFO(v.name);
    CHECK(ask(v.value) == ENOTSUP);
    ++asked;
  }
  CHECK(asked > 0);
}

int null_or_errno(const void *object) {
  CHECK(object == nullptr);
  return errno;
}

}  // namespace

TEST_CASE(
    "creation of queue pairs, bit by bit "
    "[rows:owner=ibv_exp_qp_create_flags,refused]"
    "[rows:owner=ibv_exp_qp_init_attr_comp_mask,refused]"
    "[rows:owner=ibv_exp_qpg_type,refused]") {
  Rig rig;
  each_refused("ibv_exp_qp_create_flags", [&](std::uint64_t bit) {
    auto attr = rig.qp_attr(IBV_QPT_RC);
    attr.exp_create_flags = static_cast<std::uint32_t>(bit);
    return null_or_errno(ibv_exp_create_qp(rig.context.get(), &attr));
  });
  each_refused("ibv_exp_qp_init_attr_comp_mask", [&](std::uint64_t bit) {
    auto attr = rig.qp_attr(IBV_QPT_RC);
    attr.comp_mask |= static_cast<std::uint32_t>(bit);
    return null_or_errno(ibv_exp_create_qp(rig.context.get(), &attr));
  });
  each_refused("ibv_exp_qpg_type", [&](std::uint64_t type) {
    auto attr = rig.qp_attr(IBV_QPT_RC);
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_QPG;
    attr.qpg.qpg_type = static_cast<ibv_exp_qpg_type>(type);
    return null_or_errno(ibv_exp_create_qp(rig.context.get(), &attr));
  });
}

TEST_CASE(
    "modification of queue pairs, bit by bit "
    "[rows:owner=ibv_exp_qp_attr_mask,refused]") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  each_refused("ibv_exp_qp_attr_mask", [&](std::uint64_t bit) {
    ibv_exp_qp_attr attr{};
    return ibv_exp_modify_qp(qp.get(), &attr, bit);
  });
  CHECK(qp->state == IBV_QPS_RESET);
}

TEST_CASE(
    "completion queues, bit by bit "
    "[rows:owner=ibv_exp_cq_create_flags,refused]"
    "[rows:owner=ibv_exp_cq_init_attr_mask,refused]") {
  Rig rig;
  each_refused("ibv_exp_cq_create_flags", [&](std::uint64_t bit) {
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = static_cast<std::uint32_t>(bit);
    return null_or_errno(ibv_exp_create_cq(rig.context.get(), 8, nullptr, nullptr, 0, &attr));
  });
  each_refused("ibv_exp_cq_init_attr_mask", [&](std::uint64_t bit) {
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = static_cast<std::uint32_t>(bit);
    return null_or_errno(ibv_exp_create_cq(rig.context.get(), 8, nullptr, nullptr, 0, &attr));
  });
}

TEST_CASE("memory, bit by bit [rows:owner=ibv_exp_access_flags,refused]") {
  Rig rig;
  std::vector<char> bytes(4096);
  each_refused("ibv_exp_access_flags", [&](std::uint64_t bit) {
    ibv_exp_reg_mr_in in{};
    in.pd = rig.pd.get();
    in.addr = bytes.data();
    in.length = bytes.size();
    in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | bit;
    return null_or_errno(ibv_exp_reg_mr(&in));
  });
}

TEST_CASE("memory keys, kind by kind [rows:owner=ibv_exp_mr_create_flags,refused]") {
  Rig rig;
  each_refused("ibv_exp_mr_create_flags", [&](std::uint64_t kind) {
    ibv_exp_create_mr_in in{};
    in.pd = rig.pd.get();
    in.attr.max_klm_list_size = 4;
    in.attr.create_flags = static_cast<std::uint32_t>(kind);
    in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE;
    return null_or_errno(ibv_exp_create_mr(&in));
  });
}

TEST_CASE(
    "shared receive queues, bit by bit "
    "[rows:owner=ibv_exp_create_srq_comp_mask,refused]"
    "[rows:owner=ibv_exp_srq_type,refused]") {
  Rig rig;
  ibv_xrcd_init_attr private_domain{};
  private_domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  private_domain.fd = -1;
  private_domain.oflags = O_CREAT;
  const Owned<ibv_xrcd, ibv_close_xrcd> domain(ibv_open_xrcd(rig.context.get(), &private_domain));
  REQUIRE(domain);
  each_refused("ibv_exp_create_srq_comp_mask", [&](std::uint64_t bit) {
    ibv_exp_create_srq_attr attr{};
    attr.pd = rig.pd.get();
    attr.base.attr = {16, 1, 0};
    // A basic queue has none of it, and ignores it.
    attr.srq_type = IBV_EXP_SRQT_XRC;
    attr.cq = rig.cq.get();
    attr.xrcd = domain.get();
    attr.comp_mask =
        static_cast<std::uint32_t>(bit) | IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD;
    return null_or_errno(ibv_exp_create_srq(rig.context.get(), &attr));
  });
  each_refused("ibv_exp_srq_type", [&](std::uint64_t type) {
    ibv_exp_create_srq_attr attr{};
    attr.pd = rig.pd.get();
    attr.base.attr = {16, 1, 0};
    attr.srq_type = static_cast<ibv_exp_srq_type>(type);
    return null_or_errno(ibv_exp_create_srq(rig.context.get(), &attr));
  });
}

TEST_CASE(
    "flow rules, flag by flag and type by type "
    "[rows:owner=ibv_exp_flow_flags,refused][rows:owner=ibv_exp_flow_spec_type,refused]") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  struct {
    ibv_exp_flow_attr attr;
    ibv_exp_flow_spec spec;
  } rule{};
  const auto create = [&] { return null_or_errno(ibv_exp_create_flow(qp.get(), &rule.attr)); };
  rule.attr = {};
  rule.attr.port = 1;
  each_refused("ibv_exp_flow_flags", [&](std::uint64_t flag) {
    rule.attr.flags = flag;
    return create();
  });
  rule.attr.flags = 0;
  rule.attr.num_of_specs = 1;
  rule.attr.size = sizeof(rule);
  each_refused("ibv_exp_flow_spec_type", [&](std::uint64_t type) {
    rule.spec.hdr.type = static_cast<std::uint32_t>(type);
    rule.spec.hdr.size = sizeof(rule.spec);
    return create();
  });
}

TEST_CASE(
    "work queues, type by type and bit by bit "
    "[rows:owner=ibv_exp_wq_type,refused][rows:owner=ibv_exp_vlan_offloads,refused]") {
  Rig rig;
  const auto create = [&](auto change) {
    ibv_exp_wq_init_attr attr{};
    attr.wq_type = IBV_EXP_WQT_RQ;
    attr.max_recv_wr = 4;
    attr.max_recv_sge = 1;
    attr.pd = rig.pd.get();
    attr.cq = rig.cq.get();
    change(attr);
    return null_or_errno(ibv_exp_create_wq(rig.context.get(), &attr));
  };
  each_refused("ibv_exp_wq_type", [&](std::uint64_t type) {
    return create([&](auto &attr) { attr.wq_type = static_cast<ibv_exp_wq_type>(type); });
  });
  each_refused("ibv_exp_vlan_offloads", [&](std::uint64_t bit) {
    return create([&](auto &attr) {
      attr.comp_mask = IBV_EXP_CREATE_WQ_VLAN_OFFLOADS;
      attr.vlan_offloads = static_cast<std::uint32_t>(bit);
    });
  });
}

TEST_CASE(
    "interface families, flag by flag "
    "[rows:owner=ibv_exp_qp_burst_family_create_flags,refused]") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  const auto query = [&](auto change) {
    ibv_exp_query_intf_params params{};
    params.intf = IBV_EXP_INTF_QP_BURST;
    params.obj = qp.get();
    change(params);
    ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
    const int answer = null_or_errno(ibv_exp_query_intf(rig.context.get(), &params, &status));
    CHECK(status != IBV_EXP_INTF_STAT_OK);
    return answer;
  };
  each_refused("ibv_exp_qp_burst_family_create_flags", [&](std::uint64_t flag) {
    return query([&](auto &params) { params.family_flags = static_cast<std::uint32_t>(flag); });
  });
}

TEST_CASE(
    "requests, opcode by opcode and flag by flag "
    "[rows:owner=ibv_exp_wr_opcode,refused][rows:owner=ibv_exp_send_flags,refused]"
    "[rows:owner=ibv_exp_calc_op][rows:owner=ibv_exp_calc_data_type]"
    "[rows:owner=ibv_exp_calc_data_size][row:xchan_post_send_verb][row:xchan_wr_task]") {
  Rig rig;
  Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  Buffer out(rig.pd.get(), 64);
  auto piece = out.piece(0, 64);
  const auto post = [&](ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    const int answer = ibv_exp_post_send(a.get(), &wr, &bad);
    CHECK(bad == &wr);
    return answer;
  };
  each_refused("ibv_exp_wr_opcode", [&](std::uint64_t opcode) {
    auto wr = request(1, static_cast<ibv_exp_wr_opcode>(opcode), &piece);
    return post(wr);
  });
  each_refused("ibv_exp_send_flags", [&](std::uint64_t bit) {
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    wr.exp_send_flags |= bit;
    return post(wr);
  });
  const auto calculate = [&](ibv_exp_calc_op op, ibv_exp_calc_data_type type,
                             ibv_exp_calc_data_size size) {
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    wr.exp_send_flags |= IBV_EXP_SEND_WITH_CALC;
    wr.op.calc = {op, type, size};
    return post(wr);
  };
  each_refused("ibv_exp_calc_op", [&](std::uint64_t op) {
    return calculate(static_cast<ibv_exp_calc_op>(op), IBV_EXP_CALC_DATA_TYPE_INT,
                     IBV_EXP_CALC_DATA_SIZE_64_BIT);
  });
  each_refused("ibv_exp_calc_data_type", [&](std::uint64_t type) {
    return calculate(IBV_EXP_CALC_OP_ADD, static_cast<ibv_exp_calc_data_type>(type),
                     IBV_EXP_CALC_DATA_SIZE_64_BIT);
  });
  each_refused("ibv_exp_calc_data_size", [&](std::uint64_t size) {
    return calculate(IBV_EXP_CALC_OP_ADD, IBV_EXP_CALC_DATA_TYPE_INT,
                     static_cast<ibv_exp_calc_data_size>(size));
  });
}

TEST_CASE(
    "tasks and erasure coding, value by value "
    "[rows:owner=ibv_exp_task_type][rows:owner=ibv_exp_ec_calc_attr_comp_mask]") {
  Rig rig;
  each_refused("ibv_exp_task_type", [&](std::uint64_t type) {
    ibv_exp_task task{}, *bad = nullptr;
    task.task_type = static_cast<ibv_exp_task_type>(type);
    const int answer = ibv_exp_post_task(rig.context.get(), &task, &bad);
    CHECK(bad == &task);
    return answer;
  });
  each_refused("ibv_exp_ec_calc_attr_comp_mask", [&](std::uint64_t bit) {
    ibv_exp_ec_calc_init_attr attr{};
    attr.comp_mask = static_cast<std::uint32_t>(bit);
    return null_or_errno(ibv_exp_alloc_ec_calc(rig.pd.get(), &attr));
  });
}

TEST_CASE("tag operations, one by one [rows:owner=ibv_exp_ops_wr_opcode]") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(rig.pd.get(), &init));
  REQUIRE(srq);
  each_refused("ibv_exp_ops_wr_opcode", [&](std::uint64_t opcode) {
    ibv_exp_ops_wr op{}, *bad = nullptr;
    op.opcode = static_cast<ibv_exp_ops_wr_opcode>(opcode);
    op.flags = IBV_EXP_OPS_SIGNALED | IBV_EXP_OPS_TM_SYNC;
    const int answer = ibv_exp_post_srq_ops(srq.get(), &op, &bad);
    CHECK(bad == &op);
    return answer;
  });
}

// No verb lets a peer in, so none of its vocabulary is ever read.
TEST_CASE("peers, verb by verb [rows:family=peer_direct,refused]") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  ibv_exp_peer_commit commit{};
  CHECK(ibv_exp_peer_commit_qp(qp.get(), &commit) == -ENOTSUP);
  ibv_exp_rollback_ctx back{};
  each_refused("ibv_exp_rollback_flags", [&](std::uint64_t flag) {
    back.flags = static_cast<std::uint32_t>(flag);
    return -ibv_exp_rollback_qp(qp.get(), &back);
  });
  ibv_exp_peer_peek peek{};
  each_refused("peer_peek_whence", [&](std::uint64_t whence) {
    peek.whence = static_cast<std::uint32_t>(whence);
    return -ibv_exp_peer_peek_cq(rig.cq.get(), &peek);
  });
  ibv_exp_peer_abort_peek abort{};
  CHECK(ibv_exp_peer_abort_peek_cq(rig.cq.get(), &abort) == -ENOTSUP);
}
