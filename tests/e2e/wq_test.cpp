// Work queues, indirection tables and receive-side scaling: creation, changes
// of state, destruction in any order, and what is refused.
#include <vector>

#include "rig.h"

namespace {

using Wq = Owned<ibv_exp_wq, ibv_exp_destroy_wq>;
using Table = Owned<ibv_exp_rwq_ind_table, ibv_exp_destroy_rwq_ind_table>;

struct WqRig : Rig {
  ibv_exp_wq_init_attr attr() {
    ibv_exp_wq_init_attr a{};
    a.wq_context = this;
    a.wq_type = IBV_EXP_WQT_RQ;
    a.max_recv_wr = 30;
    a.max_recv_sge = 1;
    a.pd = pd.get();
    a.cq = cq.get();
    return a;
  }
  Wq create() {
    auto a = attr();
    Wq made(ibv_exp_create_wq(context.get(), &a));
    REQUIRE(made);
    return made;
  }
  Table table(std::vector<ibv_exp_wq *> queues, std::uint32_t log_size) {
    ibv_exp_rwq_ind_table_init_attr a{};
    a.pd = pd.get();
    a.log_ind_tbl_size = log_size;
    a.ind_tbl = queues.data();
    Table made(ibv_exp_create_rwq_ind_table(context.get(), &a));
    REQUIRE(made);
    return made;
  }

  std::uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda};
  ibv_exp_rx_hash_conf hash{};
  ibv_exp_qp_init_attr rss_attr(ibv_exp_rwq_ind_table *over) {
    hash = {IBV_EXP_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key,
            IBV_EXP_RX_HASH_SRC_IPV4 | IBV_EXP_RX_HASH_DST_IPV4, over};
    ibv_exp_qp_init_attr a{};
    a.qp_type = IBV_QPT_RAW_PACKET;
    a.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH |
                  IBV_EXP_QP_INIT_ATTR_PORT | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    a.pd = pd.get();
    a.rx_hash_conf = &hash;
    a.port_num = 1;
    return a;
  }

  void refused(const ibv_exp_wq_init_attr &bad, int reason) {
    auto a = bad;
    errno = 0;
    CHECK(ibv_exp_create_wq(context.get(), &a) == nullptr);
    CHECK(errno == reason);
  }
  void refused(const ibv_exp_qp_init_attr &bad, int reason) {
    auto a = bad;
    errno = 0;
    CHECK(ibv_exp_create_qp(context.get(), &a) == nullptr);
    CHECK(errno == reason);
  }
};

int change(ibv_exp_wq *wq, ibv_exp_wq_state to) {
  ibv_exp_wq_attr a{};
  a.attr_mask = IBV_EXP_WQ_ATTR_STATE;
  a.wq_state = to;
  return ibv_exp_modify_wq(wq, &a);
}

}  // namespace

TEST_CASE("a work queue is what was asked for [row:ibv_exp_create_wq]") {
  WqRig rig;
  auto a = rig.attr();
  errno = EDOM;
  const Wq wq(ibv_exp_create_wq(rig.context.get(), &a));
  REQUIRE(wq);
  CHECK(errno == EDOM);
  CHECK(a.max_recv_wr >= 30);
  CHECK(a.max_recv_sge >= 1);
  CHECK(wq->context == rig.context.get());
  CHECK(wq->wq_context == &rig);
  CHECK(wq->pd == rig.pd.get());
  CHECK(wq->cq == rig.cq.get());
  CHECK(wq->srq == nullptr);
  CHECK(wq->wq_num != 0);
  CHECK(wq->state == IBV_EXP_WQS_RESET);
  CHECK(wq->wq_type == IBV_EXP_WQT_RQ);
  const Wq other = rig.create();
  CHECK(other->wq_num != wq->wq_num);
  CHECK(ibv_destroy_cq(rig.cq.get()) == EBUSY);
}

TEST_CASE("a work queue changes its state [row:ibv_exp_modify_wq]") {
  WqRig rig;
  const Wq wq = rig.create();
  ibv_exp_wq_attr a{};
  a.attr_mask = IBV_EXP_WQ_ATTR_STATE | IBV_EXP_WQ_ATTR_CURR_STATE;
  a.wq_state = IBV_EXP_WQS_RDY;
  a.curr_wq_state = IBV_EXP_WQS_ERR;
  CHECK(ibv_exp_modify_wq(wq.get(), &a) == EINVAL);
  CHECK(wq->state == IBV_EXP_WQS_RESET);
  a.curr_wq_state = IBV_EXP_WQS_RESET;
  CHECK(ibv_exp_modify_wq(wq.get(), &a) == 0);
  CHECK(wq->state == IBV_EXP_WQS_RDY);
  CHECK(change(wq.get(), IBV_EXP_WQS_ERR) == 0);
  CHECK(wq->state == IBV_EXP_WQS_ERR);
  CHECK(change(wq.get(), IBV_EXP_WQS_RESET) == 0);
  CHECK(change(wq.get(), IBV_EXP_WQS_RDY) == 0);
  CHECK(change(wq.get(), IBV_EXP_WQS_UNKNOWN) == EINVAL);
  // Nothing to change.
  a.attr_mask = 0;
  CHECK(ibv_exp_modify_wq(wq.get(), &a) == 0);
  a.attr_mask = IBV_EXP_WQ_ATTR_CURR_STATE;
  a.curr_wq_state = static_cast<ibv_exp_wq_state>(5);
  CHECK(ibv_exp_modify_wq(wq.get(), &a) == 0);
  CHECK(wq->state == IBV_EXP_WQS_RDY);
  a.attr_mask = IBV_EXP_WQ_ATTR_RESERVED;
  CHECK(ibv_exp_modify_wq(wq.get(), &a) == EINVAL);
}

TEST_CASE("VLAN stripping is switched, insertion refused [row:vlan_modify_wq]") {
  WqRig rig;
  auto a = rig.attr();
  a.comp_mask = IBV_EXP_CREATE_WQ_VLAN_OFFLOADS | IBV_EXP_CREATE_WQ_FLAGS;
  a.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP;
  a.flags = IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS;
  const Wq wq(ibv_exp_create_wq(rig.context.get(), &a));
  REQUIRE(wq);
  ibv_exp_wq_attr change{};
  change.attr_mask = IBV_EXP_WQ_ATTR_STATE;
  change.wq_state = IBV_EXP_WQS_RDY;
  REQUIRE(ibv_exp_modify_wq(wq.get(), &change) == 0);
  change.attr_mask = IBV_EXP_WQ_ATTR_VLAN_OFFLOADS;
  CHECK(ibv_exp_modify_wq(wq.get(), &change) == 0);
  change.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP;
  CHECK(ibv_exp_modify_wq(wq.get(), &change) == 0);
  change.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_INSERTION;
  CHECK(ibv_exp_modify_wq(wq.get(), &change) == ENOTSUP);
  change.vlan_offloads = IBV_EXP_RECEIVE_WQ_VLAN_OFFLOADS_RESERVED;
  CHECK(ibv_exp_modify_wq(wq.get(), &change) == EINVAL);
  CHECK(wq->state == IBV_EXP_WQS_RDY);

  a.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP | IBV_EXP_RECEIVE_WQ_CVLAN_INSERTION;
  rig.refused(a, ENOTSUP);
}

TEST_CASE(
    "flags of work queues are served where the device says so "
    "[row:IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP][row:IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING]") {
  WqRig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  const std::pair<std::uint32_t, bool> flags[] = {
      {IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS,
       (device.exp_device_cap_flags & IBV_EXP_DEVICE_SCATTER_FCS) != 0},
      {IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP,
       (device.exp_device_cap_flags & IBV_EXP_DEVICE_WQ_DELAY_DROP) != 0},
      {IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING, device.rx_pad_end_addr_align != 0}};
  for (const auto &[flag, served] : flags) {
    auto a = rig.attr();
    a.comp_mask = IBV_EXP_CREATE_WQ_FLAGS;
    a.flags = flag;
    errno = 0;
    const Wq wq(ibv_exp_create_wq(rig.context.get(), &a));
    INFO(flag);
    CHECK((wq != nullptr) == served);
    if (!served) CHECK(errno == EOPNOTSUPP);
  }
}

TEST_CASE("bad work queues are refused [row:IBV_EXP_WQT_SRQ]") {
  WqRig rig;
  auto a = rig.attr();
  a.wq_type = IBV_EXP_WQT_SRQ;
  rig.refused(a, ENOTSUP);
  a.wq_type = static_cast<ibv_exp_wq_type>(7);
  rig.refused(a, EINVAL);
  a = rig.attr();
  a.max_recv_wr = 0;
  rig.refused(a, EINVAL);
  a.max_recv_wr = 0xffffffff;
  rig.refused(a, EINVAL);
  a = rig.attr();
  a.max_recv_sge = 10000;
  rig.refused(a, EINVAL);
  a = rig.attr();
  a.pd = nullptr;
  rig.refused(a, EINVAL);
  a = rig.attr();
  a.cq = nullptr;
  rig.refused(a, EINVAL);
  // Unknown flags are ignored, as the legacy provider did.
  a = rig.attr();
  a.comp_mask = IBV_EXP_CREATE_WQ_FLAGS;
  a.flags = IBV_EXP_CREATE_WQ_FLAG_RESERVED;
  CHECK(Wq(ibv_exp_create_wq(rig.context.get(), &a)));
  Rig elsewhere;
  a = rig.attr();
  a.pd = elsewhere.pd.get();
  rig.refused(a, EINVAL);
  a = rig.attr();
  a.cq = elsewhere.cq.get();
  rig.refused(a, EINVAL);
}

TEST_CASE("tables hold queues, queue pairs hold tables [row:ibv_exp_create_rwq_ind_table]") {
  WqRig rig;
  Wq one = rig.create(), two = rig.create();
  Table table = rig.table({one.get(), two.get(), two.get(), one.get()}, 2);
  CHECK(table->context == rig.context.get());
  CHECK(table->pd == rig.pd.get());
  auto a = rig.rss_attr(table.get());
  Qp qp(ibv_exp_create_qp(rig.context.get(), &a));
  REQUIRE(qp);
  CHECK(qp->qp_type == IBV_QPT_RAW_PACKET);

  // [row:ibv_exp_destroy_wq] [row:ibv_exp_destroy_rwq_ind_table]
  CHECK(ibv_exp_destroy_wq(one.get()) == EBUSY);
  CHECK(ibv_exp_destroy_rwq_ind_table(table.get()) == EBUSY);
  qp.reset();
  CHECK(ibv_exp_destroy_wq(one.get()) == EBUSY);
  table.reset();
}

TEST_CASE("a queue pair that holds a table has no queues to post to [row:ibv_exp_post_send]") {
  WqRig rig;
  const Wq wq = rig.create();
  const Table table = rig.table({wq.get()}, 0);
  auto a = rig.rss_attr(table.get());
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &a));
  REQUIRE(qp);
  Buffer buffer(rig.pd.get(), 64);
  ibv_sge piece = buffer.piece(0, 64);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(qp.get(), &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
#ifndef IBVEXP_EXTERN_CALLS
  // Base verbs go past a library that is loaded at run time, and are rdma-core's own without fronts.
  const char *engine = std::getenv("IBVEXP_ENGINE");
  if (engine != nullptr && std::string_view(engine) == "native") return;
  ibv_send_wr send{}, *bad_send = nullptr;
  send.sg_list = &piece;
  send.num_sge = 1;
  CHECK(ibv_post_send(qp.get(), &send, &bad_send) == EINVAL);
  CHECK(bad_send == &send);
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.sg_list = &piece;
  receive.num_sge = 1;
  CHECK(ibv_post_recv(qp.get(), &receive, &bad_receive) == EINVAL);
  CHECK(bad_receive == &receive);
#endif
}

TEST_CASE("tables have numbers of their own [row:ibv_exp_create_rwq_ind_table]") {
  WqRig rig;
  const Wq wq = rig.create();
  const Table one = rig.table({wq.get()}, 0), other = rig.table({wq.get()}, 0);
  CHECK(one->ind_tbl_num != other->ind_tbl_num);
  CHECK(one->ind_tbl_handle != other->ind_tbl_handle);
}

TEST_CASE("bad tables are refused") {
  WqRig rig;
  const Wq wq = rig.create();
  WqRig elsewhere;
  const Wq foreign = elsewhere.create();
  std::vector<ibv_exp_wq *> queues(4, wq.get());
  ibv_exp_rwq_ind_table_init_attr a{};
  a.pd = rig.pd.get();
  a.ind_tbl = queues.data();
  a.log_ind_tbl_size = 2;
  const auto refused = [&] {
    errno = 0;
    CHECK(ibv_exp_create_rwq_ind_table(rig.context.get(), &a) == nullptr);
    CHECK(errno == EINVAL);
  };
  for (const std::uint32_t log : {20u, 31u, 32u, 0xffffffffu}) {
    a.log_ind_tbl_size = log;
    refused();
  }
  a.log_ind_tbl_size = 2;
  a.comp_mask = IBV_EXP_CREATE_IND_TABLE_RESERVED;
  refused();
  a.comp_mask = 0;
  queues[3] = nullptr;
  refused();
  queues[3] = foreign.get();
  refused();
  queues[3] = wq.get();
  a.ind_tbl = nullptr;
  refused();
}

TEST_CASE("bad hashes are refused [row:IBV_EXP_RX_HASH_FUNC_XOR]") {
  WqRig rig;
  const Wq wq = rig.create();
  const Table table = rig.table({wq.get(), wq.get()}, 1);
  auto a = rig.rss_attr(table.get());
  rig.hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_XOR;
  rig.refused(a, ENOTSUP);
  rig.hash.rx_hash_function = 4;
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  rig.hash.rx_hash_key_len = 39;
  rig.refused(a, EINVAL);
  rig.hash.rx_hash_key_len = 200;
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  rig.hash.rx_hash_key = nullptr;
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  rig.hash.rx_hash_fields_mask |= IBV_EXP_RX_HASH_SRC_IPV6;
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  rig.hash.rx_hash_fields_mask |= 1u << 20;
  rig.refused(a, EINVAL);
  a = rig.rss_attr(nullptr);
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  a.rx_hash_conf = nullptr;
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  a.recv_cq = rig.cq.get();
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  a.send_cq = rig.cq.get();
  rig.refused(a, EINVAL);
  a = rig.rss_attr(table.get());
  a.qp_type = IBV_QPT_RC;
  rig.refused(a, EINVAL);

  // Inner headers need the tunnel offload. [row:macro_rx_hash_inner]
  a = rig.rss_attr(table.get());
  rig.hash.rx_hash_fields_mask |= IBV_EXP_RX_HASH_INNER;
  rig.refused(a, ENOTSUP);
  a.exp_create_flags = IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS;
  const Qp inner(ibv_exp_create_qp(rig.context.get(), &a));
  CHECK(inner);
}

TEST_CASE("the limits of work queues are reported [row:IBV_EXP_DEVICE_ATTR_RX_HASH]") {
  const Context context = open_first();
  ibv_device_attr_ex modern{};
  REQUIRE(ibv_query_device_ex(context.get(), nullptr, &modern) == 0);
  ibv_exp_device_attr a{};
  a.comp_mask = IBV_EXP_DEVICE_ATTR_RX_HASH | IBV_EXP_DEVICE_ATTR_MAX_WQ_TYPE_RQ |
                IBV_EXP_DEVICE_ATTR_RSS_TBL_SZ | IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS |
                IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS;
  const std::uint32_t asked = a.comp_mask;
  REQUIRE(ibv_exp_query_device(context.get(), &a) == 0);
  CHECK(a.comp_mask == asked);
  CHECK(a.max_wq_type_rq == modern.max_wq_type_rq);
  CHECK(a.max_rss_tbl_sz == modern.rss_caps.max_rwq_indirection_table_size);
  CHECK(a.rx_hash_caps.max_rwq_indirection_table_size == a.max_rss_tbl_sz);
  CHECK(a.rx_hash_caps.supported_hash_functions == IBV_EXP_RX_HASH_FUNC_TOEPLITZ);
  CHECK((a.rx_hash_caps.supported_packet_fields & 0xff) == 0xff);
  CHECK(a.rx_hash_caps.supported_qps == IBV_EXP_QPT_RAW_PACKET);
  CHECK(a.wq_vlan_offloads_cap == IBV_EXP_RECEIVE_WQ_CVLAN_STRIP);
  CHECK((a.tunnel_offloads_caps & IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN) != 0);
}
