// A device of another provider (foreign_device.c): what verbs can express works,
// capabilities say so and no more, and what needs an mlx5 is refused. Other files
// of this folder run on such a device besides.
#include <infiniband/mlx5dv.h>
#include <poll.h>

#include <numeric>

#include "ethernet_rig.h"
#include "rig.h"
#include "skip.h"

namespace {

constexpr std::uint64_t all_rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                                     IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC;

struct ForeignRig : Rig {
  ibv_port_attr port{};
  ForeignRig() {
    REQUIRE_FALSE(mlx5dv_is_supported(context->device));
    REQUIRE(verbs_get_exp_ctx(context.get()) != nullptr);
    REQUIRE(ibv_query_port(context.get(), 1, &port) == 0);
  }
  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }

  ibv_exp_device_attr everything() {
    ibv_exp_device_attr attr{};
    attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
    attr.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
    REQUIRE(ibv_exp_query_device(context.get(), &attr) == 0);
    return attr;
  }
};

template <class Call>
void refused(Call call) {
  errno = 0;
  CHECK(call() == nullptr);
  CHECK(errno == ENOTSUP);
}

}  // namespace

TEST_CASE("capabilities of another provider are those that work [row:ibv_exp_query_device]") {
  ForeignRig rig;
  const auto attr = rig.everything();
  ibv_device_attr_ex base{};
  REQUIRE(ibv_query_device_ex(rig.context.get(), nullptr, &base) == 0);

  CHECK(attr.max_qp == base.orig_attr.max_qp);
  CHECK(attr.node_guid == base.orig_attr.node_guid);
  constexpr std::uint32_t mlx5_only =
      IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK | IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ |
      IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS | IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS |
      IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN |
      IBV_EXP_DEVICE_ATTR_MAX_DCT | IBV_EXP_DEVICE_DC_RD_REQ | IBV_EXP_DEVICE_DC_RD_RES |
      IBV_EXP_DEVICE_ATTR_MP_RQ | IBV_EXP_DEVICE_ATTR_SW_PARSING_CAPS |
      IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS;
  CHECK((attr.comp_mask & mlx5_only) == 0);
  CHECK((attr.comp_mask & IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS) != 0);
  // Soft-RoCE has no paging on demand (./run test kernel).
  const bool paging = (base.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  CHECK(((attr.comp_mask & IBV_EXP_DEVICE_ATTR_ODP) != 0) == paging);

  constexpr std::uint64_t mlx5_flags =
      IBV_EXP_DEVICE_DC_TRANSPORT | IBV_EXP_DEVICE_EXT_ATOMICS | IBV_EXP_DEVICE_EXT_MASKED_ATOMICS |
      IBV_EXP_DEVICE_UMR | IBV_EXP_DEVICE_NOP | IBV_EXP_DEVICE_PACKET_BASED_CREDIT_MODE |
      IBV_EXP_DEVICE_CROSS_CHANNEL;
  CHECK((attr.exp_device_cap_flags & mlx5_flags) == 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_MR_ALLOCATE) != 0);
  CHECK(((attr.exp_device_cap_flags & IBV_EXP_DEVICE_XRC) != 0) ==
        ((base.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0));
}

TEST_CASE("data of another provider moves [row:ibv_exp_post_send] [row:ibv_exp_poll_cq]") {
  ForeignRig rig;
  const Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 4096), in(rig.pd.get(), 4096);
  std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{3});

  post_receive(b.get(), 7, in.piece(0, 4096));
  auto piece = out.piece(0, 4096);
  ibv_exp_send_wr *bad = nullptr;
  auto send = request(1, IBV_EXP_WR_SEND, &piece);
  REQUIRE(ibv_exp_post_send(a.get(), &send, &bad) == 0);
  for (const auto &wc : rig.completions(2)) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(in.bytes == out.bytes);

  // Read back into another place, and add to a word of it.
  std::ranges::fill(out.bytes, 0);
  auto read = request(2, IBV_EXP_WR_RDMA_READ, &piece);
  read.wr.rdma.remote_addr = in.address();
  read.wr.rdma.rkey = in.mr->rkey;
  REQUIRE(ibv_exp_post_send(a.get(), &read, &bad) == 0);
  CHECK(rig.completions(1)[0].exp_opcode == IBV_EXP_WC_RDMA_READ);
  CHECK(in.bytes == out.bytes);

  std::uint64_t before, after;
  std::memcpy(&before, in.bytes.data(), sizeof(before));
  auto word = out.piece(8, 8);
  auto add = request(3, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &word);
  add.wr.atomic.remote_addr = in.address();
  add.wr.atomic.rkey = in.mr->rkey;
  add.wr.atomic.compare_add = 5;
  REQUIRE(ibv_exp_post_send(a.get(), &add, &bad) == 0);
  CHECK(rig.completions(1)[0].status == IBV_WC_SUCCESS);
  std::memcpy(&after, in.bytes.data(), sizeof(after));
  CHECK(after == before + 5);
  CHECK(std::memcmp(&out.bytes[8], &before, sizeof(before)) == 0);

  // What only an mlx5 does is refused where it is posted; the queue goes on.
  for (const auto opcode : {IBV_EXP_WR_NOP, IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP,
                            IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD}) {
    CAPTURE(opcode);
    auto special = request(4, opcode, nullptr, 0);
    bad = nullptr;
    CHECK(ibv_exp_post_send(a.get(), &special, &bad) == ENOTSUP);
    CHECK(bad == &special);
  }
  REQUIRE(ibv_exp_post_send(a.get(), &read, &bad) == 0);
  CHECK(rig.completions(1)[0].status == IBV_WC_SUCCESS);
}

TEST_CASE("objects of another provider [row:ibv_exp_create_cq] [row:ibv_exp_reg_mr]") {
  ForeignRig rig;
  ibv_exp_cq_attr moderation{};
  moderation.comp_mask = IBV_EXP_CQ_ATTR_MODERATION;
  moderation.moderation = {16, 10};
  ibv_device_attr_ex base{};
  REQUIRE(ibv_query_device_ex(rig.context.get(), nullptr, &base) == 0);
  CHECK(ibv_exp_modify_cq(rig.cq.get(), &moderation, IBV_EXP_CQ_MODERATION) ==
        (base.cq_mod_caps.max_cq_count != 0 ? 0 : ENOTSUP));

  // The library allocates the memory itself.
  ibv_exp_reg_mr_in in{};
  in.pd = rig.pd.get();
  in.length = 1 << 16;
  in.exp_access = all_rights | IBV_EXP_ACCESS_ALLOCATE_MR;
  const Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);
  std::memset(mr->addr, 1, in.length);

  ibv_exp_port_attr port{};
  port.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
  port.mask1 = IBV_EXP_QUERY_PORT_STATE;
  CHECK(ibv_exp_query_port(rig.context.get(), 1, &port) == 0);
  CHECK(port.port_attr.state == IBV_PORT_ACTIVE);
  ibv_exp_gid_attr gid{};
  gid.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE;
  CHECK(ibv_exp_query_gid_attr(rig.context.get(), 1, 0, &gid) == 0);
  CHECK(ibv_exp_setenv(rig.context.get(), "A", "1", 1) == 0);

  for (const auto type : {IBV_QPT_UC, IBV_QPT_UD}) {
    CAPTURE(type);
    const Qp qp = rig.create_qp(type);
    rig.connect(qp.get(), 1);
  }
}

TEST_CASE("frames of another provider [row:ibv_exp_create_flow]") {
  ForeignRig rig;
  SKIP_IF(!rig.ethernet(), "raw packets need Ethernet");
  RawQueue sender{rig}, receiver{rig};
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  receiver.post();
  sender.send(udp_frame(1, 50));
  receiver.expect(udp_frame(1, 50));
}

TEST_CASE("what needs an mlx5 is refused on another device") {
  ForeignRig rig;
  ibv_context *const context = rig.context.get();

  SECTION("DC [row:ibv_exp_create_dct]") {
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {16, 1, 0};
    ibv_srq *srq = ibv_create_srq(rig.pd.get(), &srq_attr);
    REQUIRE(srq != nullptr);
    ibv_exp_dct_init_attr dct{};
    dct.pd = rig.pd.get();
    dct.cq = rig.cq.get();
    dct.srq = srq;
    dct.port = 1;
    dct.mtu = IBV_MTU_1024;
    refused([&] { return ibv_exp_create_dct(context, &dct); });
    auto dci = rig.qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
    refused([&] { return ibv_exp_create_qp(context, &dci); });
    // Through the base verb, as the inline does for exactly this mask.
    dci.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    refused([&] { return ibv_exp_create_qp(context, &dci); });
    CHECK(ibv_destroy_srq(srq) == 0);
  }
  SECTION("keys of keys [row:ibv_exp_create_mr]") {
    ibv_exp_create_mr_in key{};
    key.pd = rig.pd.get();
    key.attr.max_klm_list_size = 4;
    key.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
    key.attr.exp_access_flags = all_rights;
    refused([&] { return ibv_exp_create_mr(&key); });
    auto qp = rig.qp_attr(IBV_QPT_RC);
    qp.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    qp.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
    qp.max_inl_send_klms = 4;
    refused([&] { return ibv_exp_create_qp(context, &qp); });
  }
  SECTION("time [row:ibv_exp_query_values]") {
    ibv_exp_values values{};
    CHECK(ibv_exp_query_values(context, IBV_EXP_VALUES_CLOCK_INFO, &values) == -ENOTSUP);
    values = {};
    CHECK(ibv_exp_query_values(context, IBV_EXP_VALUES_HW_CLOCK_NS, &values) == -ENOTSUP);
  }
  SECTION("completions [row:ibv_exp_create_cq]") {
    for (const auto flag :
         {IBV_EXP_CQ_TIMESTAMP, IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME, IBV_EXP_CQ_COMPRESSED_CQE}) {
      CAPTURE(flag);
      ibv_exp_cq_init_attr attr{};
      attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
      attr.flags = static_cast<std::uint32_t>(flag);
      refused([&] { return ibv_exp_create_cq(context, 16, nullptr, nullptr, 0, &attr); });
    }
  }
  SECTION("interface families [row:ibv_exp_query_intf]") {
    const Qp qp = rig.create_qp(IBV_QPT_RC);
    rig.connect(qp.get(), qp->qp_num);
    const std::pair<ibv_exp_intf_family, void *> families[] = {{IBV_EXP_INTF_QP_BURST, qp.get()},
                                                               {IBV_EXP_INTF_CQ, rig.cq.get()}};
    for (const auto &[family, object] : families) {
      ibv_exp_query_intf_params params{};
      params.intf_scope = IBV_EXP_INTF_GLOBAL;
      params.intf = family;
      params.obj = object;
      auto status = IBV_EXP_INTF_STAT_OK;
      CHECK(ibv_exp_query_intf(context, &params, &status) == nullptr);
      CHECK(status == IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
    }
  }
  SECTION("multi-packet receive queues [row:ibv_exp_create_wq]") {
    ibv_exp_wq_init_attr attr{};
    attr.wq_type = IBV_EXP_WQT_RQ;
    attr.max_recv_wr = attr.max_recv_sge = 1;
    attr.pd = rig.pd.get();
    attr.cq = rig.cq.get();
    attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
    attr.mp_rq = {IBV_EXP_MP_RQ_NO_SHIFT, 9, 6};
    refused([&] { return ibv_exp_create_wq(context, &attr); });
  }
}
