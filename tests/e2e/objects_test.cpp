// Contexts, queries and the life of objects, and what is refused.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "log_of.h"
#include "page_end.h"
#include "rig.h"

namespace {

// Everything about a call that fails with NULL.
template <class Call>
void fails(Call call, int reason) {
  errno = 0;
  CHECK(call() == nullptr);
  CHECK(errno == reason);
}

ibv_exp_device_attr query(ibv_context *context, std::uint32_t mask, std::uint64_t mask_2 = 0) {
  ibv_exp_device_attr attr;
  std::memset(&attr, 0xee, sizeof(attr));
  attr.comp_mask = mask;
  attr.comp_mask_2 = mask_2;
  CHECK(ibv_exp_query_device(context, &attr) == 0);
  return attr;
}

}  // namespace

TEST_CASE(
    "a device is asked for nothing, everything and single bits "
    "[row:ibv_exp_query_device][row:exp_node_mic][row:exp_transport_scif]") {
  const Context context = open_first();
  CHECK(context->device->node_type == IBV_NODE_CA);
  CHECK(context->device->transport_type == IBV_TRANSPORT_IB);
  ibv_device_attr base{};
  REQUIRE(ibv_query_device(context.get(), &base) == 0);

  const auto none = query(context.get(), 0);
  CHECK(none.comp_mask == 0);
  CHECK(none.max_qp == base.max_qp);
  CHECK(none.node_guid == base.node_guid);
  CHECK(int{none.exp_atomic_cap} == int{base.atomic_cap});
  // Not asked for, not written.
  CHECK(none.exp_device_cap_flags == 0xeeeeeeeeeeeeeeee);
  CHECK(none.comp_mask_2 == 0);

  const auto all =
      query(context.get(), IBV_EXP_DEVICE_ATTR_RESERVED - 1, IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1);
  const std::uint64_t low = 0xffffffff & ~(1u << 17) & ~(1u << 21) & ~(1u << 23) & ~(1u << 24);
  constexpr std::uint64_t memory = IBV_EXP_DEVICE_MR_ALLOCATE | IBV_EXP_DEVICE_ODP;
  CHECK((all.exp_device_cap_flags & low & ~base.device_cap_flags) == 0);
  CHECK((all.exp_device_cap_flags & IBV_EXP_DEVICE_MR_ALLOCATE) != 0);
  // Bits of what this library refuses are never reported.
  const auto unless = [](std::string_view name, std::uint64_t bits) {
    return switched_on(name) ? 0 : bits;
  };
  CHECK((all.exp_device_cap_flags & ~low & ~memory &
         (unless("cross_channel", IBV_EXP_DEVICE_CROSS_CHANNEL) |
          unless("erasure_coding", IBV_EXP_DEVICE_EC_OFFLOAD) |
          unless("shared_mr", IBV_EXP_DEVICE_SHARED_MR) | IBV_EXP_DEVICE_QPG |
          unless("nop", IBV_EXP_DEVICE_NOP) |
          unless("masked_atomics", IBV_EXP_DEVICE_EXT_ATOMICS | IBV_EXP_DEVICE_EXT_MASKED_ATOMICS) |
          IBV_EXP_DEVICE_PHYSICAL_RANGE_MR | IBV_EXP_DEVICE_CAPI | IBV_EXP_DEVICE_DC_INFO)) == 0);
  CHECK((all.comp_mask & IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS) != 0);
  CHECK((all.comp_mask & (unless("erasure_coding", IBV_EXP_DEVICE_ATTR_EC_CAPS) |
                          IBV_EXP_DEVICE_ATTR_MAX_DEVICE_CTX)) == 0);
  constexpr std::uint64_t pci = IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS;
  CHECK((all.comp_mask_2 == pci ||
         (switched_on("umr_fixed_size") &&
          all.comp_mask_2 == (pci | IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS))));
  CHECK((all.comp_mask & 0x80000000) != 0);

  // Each single bit returns itself or nothing, and what all together did. CALC_CAP comes and
  // goes with EXP_CAP_FLAGS, and one capability is there whether it was asked for or not.
  constexpr std::uint32_t flags = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  constexpr std::uint32_t calc = IBV_EXP_DEVICE_ATTR_CALC_CAP;
  for (int bit = 1; bit < 31; ++bit) {
    const std::uint32_t asked = 1u << bit, more = asked == flags ? calc : 0;
    CHECK(query(context.get(), asked).comp_mask == ((all.comp_mask & asked) | more));
  }
  CHECK(query(context.get(), calc).comp_mask == 0);
  CHECK((none.exp_device_cap_flags & IBV_EXP_DEVICE_MR_ALLOCATE) != 0);
}

// perftest does without resource domains if any bit of this mask is missing.
TEST_CASE("there are no reductions [row:IBV_EXP_DEVICE_ATTR_CALC_CAP]") {
  const Context context = open_first();
  constexpr std::uint32_t asked = IBV_EXP_DEVICE_ATTR_CALC_CAP | IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS |
                                  IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN;
  REQUIRE(asked == 0x1009);
  const auto attr = query(context.get(), asked);
  CHECK(attr.comp_mask == asked);
  constexpr ibv_exp_device_calc_cap nothing{};
  CHECK(std::memcmp(&attr.calc_cap, &nothing, sizeof(nothing)) == 0);
  if (!switched_on("cross_channel"))
    CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_CROSS_CHANNEL) == 0);
}

TEST_CASE(
    "wide atomics are asked for, and plain ones served [row:IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG]") {
  Rig rig;
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
  auto attr = rig.qp_attr(type);
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG;
  const auto asked = GENERATE(16u, 64u, ~0u);
  attr.max_atomic_arg = asked;
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  CHECK(attr.max_atomic_arg == asked);
  if (type != IBV_QPT_RC || switched_on("masked_atomics")) return;
  // What cannot be served is refused where it is asked.
  rig.connect(qp.get(), qp->qp_num);
  Buffer memory(rig.pd.get(), 64);
  auto piece = memory.piece(0, 16);
  auto wr = request(1, IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, &piece);
  wr.exp_send_flags |= IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(qp.get(), &wr, &bad) == ENOTSUP);
  CHECK(bad == &wr);
}

// [row:IBV_EXP_QUERY_PORT_ATTR_MASK1][row:IBV_EXP_QUERY_PORT_ATTR_MASKS]
// [row:IBV_EXP_QUERY_PORT_MASK][row:IBV_EXP_QUERY_PORT_STD_MASK]
TEST_CASE(
    "port attributes come as the legacy library gave them "
    "[row:ibv_exp_query_port][row:exp_link_layer_scif]") {
  const Context context = open_first();
  ibv_port_attr base{};
  REQUIRE(ibv_query_port(context.get(), 1, &base) == 0);
  ibv_exp_port_attr attr;
  std::memset(&attr, 0xee, sizeof(attr));
  attr.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;

  SECTION("all") {
    attr.mask1 = IBV_EXP_QUERY_PORT_MASK;
    CHECK(ibv_exp_query_port(context.get(), 1, &attr) == 0);
    CHECK(attr.state == base.state);
    CHECK(attr.lid == base.lid);
    CHECK(attr.gid_tbl_len == base.gid_tbl_len);
    CHECK(attr.active_mtu == base.active_mtu);
    CHECK(attr.link_layer == base.link_layer);
  }
  SECTION("all, if any") {
    attr.mask1 = IBV_EXP_QUERY_PORT_LID;
    CHECK(ibv_exp_query_port(context.get(), 1, &attr) == 0);
    CHECK(attr.lid == base.lid);
    CHECK(attr.gid_tbl_len == base.gid_tbl_len);
  }
  SECTION("the link layer alone") {
    attr.mask1 = IBV_EXP_QUERY_PORT_LINK_LAYER;
    CHECK(ibv_exp_query_port(context.get(), 1, &attr) == 0);
    CHECK(attr.link_layer == base.link_layer);
    CHECK(attr.gid_tbl_len == static_cast<int>(0xeeeeeeee));
  }
  SECTION("of a port that is not there") {
    attr.mask1 = IBV_EXP_QUERY_PORT_LID;
    CHECK(ibv_exp_query_port(context.get(), 77, &attr) == EINVAL);
  }
  SECTION("unknown ones") {
    attr.mask1 = 1u << 20;
    CHECK(std::abs(ibv_exp_query_port(context.get(), 1, &attr)) == EINVAL);
  }
}

// [row:IBV_EXP_QUERY_GID_ATTR_GID][row:IBV_EXP_QUERY_GID_ATTR_TYPE]
TEST_CASE("every entry of the GID table has a type [row:ibv_exp_query_gid_attr]") {
  const Context context = open_first();
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(context.get(), 1, &port) == 0);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_exp_gid_attr attr{};
    attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE | IBV_EXP_QUERY_GID_ATTR_GID;
    REQUIRE(ibv_exp_query_gid_attr(context.get(), 1, static_cast<unsigned>(i), &attr) == 0);
    ibv_gid gid{};
    if (ibv_query_gid(context.get(), 1, i, &gid) == 0)
      CHECK(std::memcmp(&gid, &attr.gid, sizeof(gid)) == 0);
    if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
      CHECK(attr.type == IBV_EXP_IB_ROCE_V1_GID_TYPE);
    else if (i < 4)
      CHECK(attr.type == (i % 2 == 1 ? IBV_EXP_ROCE_V2_GID_TYPE : IBV_EXP_IB_ROCE_V1_GID_TYPE));
  }
  ibv_exp_gid_attr attr{};
  attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE;
  CHECK(ibv_exp_query_gid_attr(context.get(), 1, 100000, &attr) == EINVAL);
  attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_GID;
  CHECK(ibv_exp_query_gid_attr(context.get(), 1, 100000, &attr) == ENOENT);
  attr.type = static_cast<ibv_exp_roce_gid_type>(77);
  REQUIRE(ibv_exp_query_gid_attr(context.get(), 1, 0, &attr) == 0);
  CHECK(int{attr.type} == 77);
  attr.comp_mask = 1u << 5;
  CHECK(ibv_exp_query_gid_attr(context.get(), 1, 0, &attr) == EINVAL);
}

TEST_CASE("settings stay in the context [row:ibv_exp_setenv]") {
  const Context context = open_first();
  CHECK(ibv_exp_use_priv_env(context.get()) == 0);
  CHECK(ibv_exp_setenv(context.get(), "MLX5_CQE_SIZE", "128", 1) == 0);
  CHECK(std::getenv("MLX5_CQE_SIZE") == nullptr);
  errno = 0;
  CHECK(ibv_exp_setenv(context.get(), "MLX5_CQE_SIZE", "64", 0) == -1);
  CHECK(errno == EEXIST);
  // Names that setenv() refuses.
  for (const char *name : {"A=B", ""}) CHECK(ibv_exp_setenv(context.get(), name, "1", 1) == 0);
}

TEST_CASE("devices are listed anew each time [row:ibv_exp_get_device_list]") {
  int count = -1;
  ibv_device **list = ibv_exp_get_device_list(&count);
  REQUIRE(list != nullptr);
  CHECK(count >= 1);
  CHECK(list[count] == nullptr);
  ibv_free_device_list(list);
}

// [row:IBV_EXP_QP_INIT_ATTR_INL_RECV]
TEST_CASE(
    "queue pairs of all types are created and granted "
    "[row:ibv_exp_create_qp][row:inlrecv_create_qp_max_inl_recv]") {
  Rig rig;
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
  auto attr = rig.qp_attr(type);
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG | IBV_EXP_QP_INIT_ATTR_INL_RECV |
                    IBV_EXP_QP_INIT_ATTR_QPG | IBV_EXP_QP_INIT_ATTR_PORT;
  attr.exp_create_flags = IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY;
  attr.max_atomic_arg = 8;
  attr.max_inl_recv = 64;
  attr.qpg.qpg_type = IBV_EXP_QPG_NONE;
  attr.port_num = 77;  // not looked at
  errno = 4711;
  Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  CHECK(errno == 4711);
  CHECK(qp->qp_type == type);
  CHECK(qp->state == IBV_QPS_RESET);
  CHECK(qp->pd == rig.pd.get());
  CHECK(attr.cap.max_send_wr >= 64);
  CHECK(attr.cap.max_inline_data >= 64);
  CHECK(attr.max_atomic_arg == 8);
  // Nor where the engine serves masked atomics, whose answers would come in the same way.
  const bool masked = type == IBV_QPT_RC && switched_on("masked_atomics") && engine_drives();
  CHECK(attr.max_inl_recv == (type == IBV_QPT_UD || masked ? 0u : 32u));
}

TEST_CASE("the environment keeps small receives out of completions [row:inlrecv_env]") {
  Rig rig;
  const auto reported = [&] {
    ibv_exp_device_attr attr{};
    attr.comp_mask = IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ;
    REQUIRE(ibv_exp_query_device(rig.context.get(), &attr) == 0);
    return attr.inline_recv_sz;
  };
  const auto granted = [&] {
    auto attr = rig.qp_attr(IBV_QPT_UC);
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_INL_RECV;
    attr.max_inl_recv = 64;
    const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(qp);
    return attr.max_inl_recv;
  };
  CHECK(reported() == 64);
  CHECK(granted() == 32);
  setenv("MLX5_SCATTER_TO_CQE", "0", 1);
  const int then_reported = reported();
  const std::uint32_t then_granted = granted();
  unsetenv("MLX5_SCATTER_TO_CQE");
  CHECK(then_reported == 0);
  CHECK(then_granted == 0);
}

TEST_CASE("the base verb is a second door [row:ibv_exp_create_qp]") {
  Rig rig;
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  {
    Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(qp);
    CHECK(attr.cap.max_send_wr >= 64);
  }
  attr.qp_type = IBV_EXP_QPT_DC_INI;
  const Qp initiator(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(initiator);
  CHECK(attr.cap.max_send_wr >= 64);
}

// [row:IBV_EXP_QP_INIT_ATTR_QPG]
TEST_CASE("queue pairs that cannot be had are refused [row:ibv_exp_create_qp]") {
  Rig rig;
  const Context other = open_first();
  const Pd foreign(ibv_alloc_pd(other.get()));
  auto attr = rig.qp_attr(IBV_QPT_RC);
  int reason = ENOTSUP;
  SECTION("unknown creation flag") {
    attr.exp_create_flags = 1u << 30;
    reason = EINVAL;
  }
  if (!switched_on("cross_channel")) {
    SECTION("cross-channel") { attr.exp_create_flags = IBV_EXP_QP_CREATE_CROSS_CHANNEL; }
    SECTION("managed queues") { attr.exp_create_flags = IBV_EXP_QP_CREATE_MANAGED_SEND; }
    SECTION("overflow unchecked") { attr.exp_create_flags = IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW; }
  }
  if (!switched_on("erasure_coding")) SECTION("erasure coding") {
      attr.exp_create_flags = IBV_EXP_QP_CREATE_EC_PARITY_EN;
    }
  SECTION("groups") {
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_QPG;
    attr.qpg.qpg_type = IBV_EXP_QPG_PARENT;
  }
  SECTION("peer-direct") { attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_PEER_DIRECT; }
  SECTION("no such type") {
    attr.qp_type = static_cast<ibv_qp_type>(77);
    reason = EINVAL;
  }
  SECTION("no protection domain") {
    attr.pd = nullptr;
    reason = EINVAL;
  }
  SECTION("protection domain of another context") {
    attr.pd = foreign.get();
    reason = EINVAL;
  }
  SECTION("a source number without datagrams") {
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN;
    attr.associated_qpn = 5;
    reason = EINVAL;
  }
  fails([&] { return ibv_exp_create_qp(rig.context.get(), &attr); }, reason);
}

TEST_CASE(
    "modification takes what rdma-core has "
    "[row:ibv_exp_modify_qp][row:entropy_modify_qp]") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  constexpr std::uint64_t init =
      IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS;
  SECTION("placement is a matter of the fabric") {
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, init | IBV_EXP_QP_OOO_RW_DATA_PLACEMENT) == 0);
    CHECK(qp->state == IBV_QPS_INIT);
  }
  if (!switched_on("flow_entropy")) {
    SECTION("not flow entropy") {
      CHECK(ibv_exp_modify_qp(qp.get(), &attr, init | IBV_EXP_QP_FLOW_ENTROPY) == ENOTSUP);
      CHECK(qp->state == IBV_QPS_RESET);
    }
  }
  SECTION("nor its value without the mask bit: it is never read") {
    attr.comp_mask = IBV_EXP_QP_ATTR_FLOW_ENTROPY;
    attr.flow_entropy = 77;
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, init) == 0);
    if (!switched_on("flow_entropy"))
      CHECK(ibv_exp_modify_qp(qp.get(), &attr, IBV_EXP_QP_FLOW_ENTROPY) == ENOTSUP);
  }
  // [row:IBV_EXP_QP_RATE_LIMIT]
  SECTION("not the rate of other queue pairs than those of raw packets") {
    attr.rate_limit = 1000;
    int error = 0;
    const std::string said =
        log_of([&] { error = ibv_exp_modify_qp(qp.get(), &attr, init | IBV_EXP_QP_RATE_LIMIT); });
    CHECK(error == EINVAL);
    // ibvexp verify wants errors only.
    if (std::getenv("IBVEXP_LOG_LEVEL") == nullptr)
      CHECK(said.find("ibv_exp_modify_qp: rate_limit 0x3e8: only raw packet queue pairs send at a "
                      "rate\n") != std::string::npos);
    CHECK(qp->state == IBV_QPS_RESET);
  }
  SECTION("not groups") {
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, init | IBV_EXP_QP_GROUP_RSS) == ENOTSUP);
  }
  SECTION("not unknown bits") {
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, init | 1ull << 30) == EINVAL);
    attr.comp_mask = 8;
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, init) == EINVAL);
  }
  SECTION("and does not look at bits that the legacy provider ignored") {
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, init | 1ull << 58) == 0);
  }
  SECTION("not what the device refuses") {
    CHECK(ibv_exp_modify_qp(qp.get(), &attr, IBV_EXP_QP_STATE) > 0);
  }
}

// [row:ibv_exp_modify_cq][row:IBV_EXP_CQ_ATTR_MODERATION][row:IBV_EXP_CQ_MODERATION]
TEST_CASE(
    "completion queues with and without a channel "
    "[row:ibv_exp_create_cq][row:cqmod_modify_cq_cq_count][row:cqmod_modify_cq_cq_period]") {
  Rig rig;
  ibv_exp_cq_init_attr attr{};
  const Channel channel(ibv_create_comp_channel(rig.context.get()));
  REQUIRE(channel);
  {
    errno = 4711;
    Cq cq(ibv_exp_create_cq(rig.context.get(), 10, &rig, channel.get(), 0, &attr));
    REQUIRE(cq);
    CHECK(errno == 4711);
    CHECK(cq->cq_context == &rig);
    CHECK(cq->channel == channel.get());
    CHECK(channel->refcnt == 1);
    CHECK(cq->cqe >= 10);
    ibv_exp_cq_attr moderation{};
    moderation.comp_mask = IBV_EXP_CQ_ATTR_MODERATION;
    moderation.moderation = {16, 10};
    CHECK(ibv_exp_modify_cq(cq.get(), &moderation, IBV_EXP_CQ_MODERATION) == 0);
    // What the argument names counts, and not the structure.
    moderation.comp_mask = 0;
    CHECK(ibv_exp_modify_cq(cq.get(), &moderation, IBV_EXP_CQ_MODERATION) == 0);
    CHECK(ibv_exp_modify_cq(cq.get(), &moderation, 1 << 9) == 0);
    // Only for queues that nothing has been done to.
    moderation.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
    moderation.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
    CHECK(ibv_exp_modify_cq(cq.get(), &moderation, IBV_EXP_CQ_CAP_FLAGS) ==
          (switched_on("cq_ignore_overrun") && engine_drives() ? 0 : ENOTSUP));
    moderation.cq_cap_flags = 2;
    CHECK(ibv_exp_modify_cq(cq.get(), &moderation, IBV_EXP_CQ_CAP_FLAGS) == EINVAL);
  }
  CHECK(channel->refcnt == 0);
}

// [row:IBV_EXP_CQ_INIT_ATTR_FLAGS]
TEST_CASE("completion queues that cannot be had are refused [row:ibv_exp_create_cq]") {
  const Context context = open_first();
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  int reason = ENOTSUP;
  if (!switched_on("cross_channel")) {
    SECTION("cross-channel") { attr.flags = IBV_EXP_CQ_CREATE_CROSS_CHANNEL; }
  }
  SECTION("AS notify") { attr.flags = IBV_EXP_CQ_AS_NOTIFY; }
  SECTION("peer-direct") { attr.comp_mask |= IBV_EXP_CQ_INIT_ATTR_PEER_DIRECT; }
  SECTION("unknown flag") {
    attr.flags = 1u << 20;
    reason = EINVAL;
  }
  SECTION("two clocks") {
    attr.flags = IBV_EXP_CQ_TIMESTAMP | IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME;
    reason = EINVAL;
  }
  const Context other = open_first();
  const Channel elsewhere(ibv_create_comp_channel(other.get()));
  ibv_comp_channel *channel = nullptr;
  SECTION("channel of another context") {
    channel = elsewhere.get();
    reason = EINVAL;
  }
  int vector = 0;
  SECTION("no such vector") {
    vector = context->num_comp_vectors;
    reason = EINVAL;
  }
  fails([&] { return ibv_exp_create_cq(context.get(), 8, nullptr, channel, vector, &attr); },
        reason);
  // Flags without the bit that names them are not looked at.
  ibv_exp_cq_init_attr unread{};
  unread.flags = IBV_EXP_CQ_TIMESTAMP | IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME;
  CHECK(Cq(ibv_exp_create_cq(context.get(), 8, nullptr, nullptr, 0, &unread)));
  // The mutex is free again.
  Cq cq(ibv_create_cq(context.get(), 8, nullptr, nullptr, 0));
  CHECK(cq);
}

// [row:IBV_EXP_REG_MR_CREATE_FLAGS][row:IBV_EXP_REG_MR_CREATE_CONTIG][row:IBV_EXP_ACCESS_RELAXED]
TEST_CASE("memory comes from the caller or from us [row:ibv_exp_reg_mr]") {
  Rig rig;
  ibv_exp_reg_mr_in in{};
  in.pd = rig.pd.get();
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  std::vector<char> bytes(8192);

  SECTION("from the caller") {
    in.addr = bytes.data();
    in.length = bytes.size();
    in.exp_access |= IBV_EXP_ACCESS_RELAXED_ORDERING | IBV_EXP_ACCESS_MW_BIND;
    Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    CHECK(mr->addr == bytes.data());
    CHECK(mr->length == bytes.size());
    ibv_exp_rereg_mr_attr none{};
    CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ, &none) == 0);
    CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_KEEP_VALID, nullptr, nullptr, 0, 0,
                           nullptr) == ENOTSUP);
    CHECK(ibv_exp_rereg_mr(mr.get(), 1 << 10, nullptr, nullptr, 0, 0, nullptr) == EINVAL);
  }
  SECTION("allocated") {
    in.length = GENERATE(std::size_t{4096}, std::size_t{10000}, std::size_t{3} << 20);
    in.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR;
    Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    REQUIRE(mr->addr != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(mr->addr) % 4096 == 0);
    std::memset(mr->addr, 0x5a, in.length);
    CHECK(in.addr == mr->addr);
    fails([&] { return ibv_exp_reg_mr(&in); }, EINVAL);
  }
  SECTION("contiguous, where the caller has memory") {
    std::iota(bytes.begin(), bytes.end(), char{1});
    const std::vector<char> before = bytes;
    in.addr = bytes.data();
    in.length = bytes.size();
    in.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS;
    in.create_flags = IBV_EXP_REG_MR_CREATE_CONTIG;
    {
      Mr mr(ibv_exp_reg_mr(&in));
      REQUIRE(mr);
      CHECK(mr->addr == bytes.data());
      CHECK(mr->length == bytes.size());
    }
    // Neither replaced nor released.
    CHECK(bytes == before);
  }
  SECTION("contiguous, from us") {
    in.length = 10000;
    in.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS;
    in.create_flags = IBV_EXP_REG_MR_CREATE_CONTIG;
    Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    CHECK(in.addr == mr->addr);
    std::memset(in.addr, 0x5a, in.length);
  }
  SECTION("with bits that mean nothing") {
    in.addr = bytes.data();
    in.length = bytes.size();
    const int bit = GENERATE(5, 7, 31, 32, 36, 47);  // 47: relaxed paging, without paging
    in.exp_access |= std::uint64_t{1} << bit;
    in.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS;
    in.create_flags = 2;
    Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    CHECK(mr->addr == bytes.data());
    CHECK(mr->length == bytes.size());
  }
  SECTION("at a given place") {
    void *hole = mmap(nullptr, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(hole != MAP_FAILED);
    munmap(hole, 65536);
    in.addr = hole;
    in.length = 65536;
    in.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS;
    in.create_flags = IBV_EXP_REG_MR_CREATE_CONTIG;
    Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    CHECK(mr->addr == hole);
    std::memset(hole, 1, 65536);
  }
  SECTION("on demand") {
    in.addr = bytes.data();
    in.length = bytes.size();
    in.exp_access |= IBV_EXP_ACCESS_ON_DEMAND | IBV_EXP_ACCESS_RELAXED;
    Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    ibv_exp_prefetch_attr hint{};
    hint.addr = bytes.data();
    hint.length = bytes.size();
    hint.flags = IBV_EXP_PREFETCH_WRITE_ACCESS;
    CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == 0);
    // What lies outside of the region is left out.
    hint.length = SIZE_MAX;
    CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == 0);
    hint.addr = bytes.data() + bytes.size();
    CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == 0);
    hint.comp_mask = 1;
    CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == EINVAL);
  }
  SECTION("everything there is") {
    in.length = IBV_EXP_IMPLICIT_MR_SIZE;
    in.exp_access |= IBV_EXP_ACCESS_ON_DEMAND;
    Mr mr(ibv_exp_reg_mr(&in));
    CHECK(mr);
  }
}

TEST_CASE("memory that cannot be had is refused [row:ibv_exp_reg_mr]") {
  Rig rig;
  std::vector<char> bytes(4096);
  ibv_exp_reg_mr_in in{};
  in.pd = rig.pd.get();
  in.addr = bytes.data();
  in.length = bytes.size();
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  int reason = ENOTSUP;
  if (!switched_on("shared_mr")) {
    SECTION("shared") { in.exp_access |= IBV_EXP_ACCESS_SHARED_MR_OTHER_READ; }
    SECTION("without RDMA") { in.exp_access |= IBV_EXP_ACCESS_NO_RDMA; }
  }
  SECTION("physical") { in.exp_access |= IBV_EXP_ACCESS_PHYSICAL_ADDR; }
  SECTION("unknown bit") {
    in.exp_access |= 1ull << 60;
    reason = EINVAL;
  }
  SECTION("remote write without local write") {
    in.exp_access = IBV_EXP_ACCESS_REMOTE_WRITE;
    reason = EINVAL;
  }
  SECTION("allocated where there is some") {
    in.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR;
    reason = EINVAL;
  }
  fails([&] { return ibv_exp_reg_mr(&in); }, reason);
}

TEST_CASE("what this library does not serve says so in its own way") {
  const Context context = open_first();
  ibv_exp_task task{}, *bad = nullptr;
  CHECK(ibv_exp_post_task(context.get(), &task, &bad) ==
        (switched_on("cross_channel") ? EINVAL : ENOTSUP));
  CHECK(bad == &task);

  ibv_exp_dc_info_ent ent{};
  errno = 0;
  CHECK(ibv_exp_poll_dc_info(context.get(), &ent, 1, 1) == -1);
  CHECK(errno == ENOTSUP);

  ibv_exp_open_device_attr open{};
  open.comp_mask = IBV_EXP_SET_ATTR_PEER_INFO;
  fails([&] { return ibv_exp_open_device(context->device, &open); }, ENOTSUP);
}

TEST_CASE("contexts come and go in any number") {
  Context first = open_first();
  for (int i = 0; i < 20; ++i) {
    const Context second = open_first();
    ibv_exp_device_attr attr{};
    CHECK(ibv_exp_query_device(second.get(), &attr) == 0);
    CHECK(ibv_exp_query_device(first.get(), &attr) == 0);
  }
}

TEST_CASE(
    "a queue pair is modified by the structure of 3.3, which is shorter [row:ibv_exp_modify_qp]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  const PageEnd end;
  auto &attr = end.make<ibv_exp_qp_attr>(offsetof(ibv_exp_qp_attr, rate_limit));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  CHECK(ibv_exp_modify_qp(qp.get(), &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                              IBV_EXP_QP_ACCESS_FLAGS) == 0);
  CHECK(qp->state == IBV_QPS_INIT);
}

#ifndef IBVEXP_EXTERN_CALLS  // the base verb is rdma-core's alone
TEST_CASE("legacy programs ask a queue pair for everything") {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  CHECK(ibv_query_qp(qp.get(), &attr, -1, &init) == 0);
  CHECK(attr.qp_state == IBV_QPS_RESET);
  CHECK(init.qp_type == IBV_QPT_RC);

  // Without an experimental verb the answer is rdma-core's.
  const Context context = open_first();
  const Pd pd(ibv_alloc_pd(context.get()));
  const Cq cq(ibv_create_cq(context.get(), 4, nullptr, nullptr, 0));
  init = {};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  const Qp plain(ibv_create_qp(pd.get(), &init));
  REQUIRE(plain);
  CHECK(ibv_query_qp(plain.get(), &attr, -1, &init) == EOPNOTSUPP);
}
#endif
