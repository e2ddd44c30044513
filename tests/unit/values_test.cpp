// Masks, flags, opcodes and values, one by one: each legacy constant with what it
// becomes, or comes from, written here and not read from the tables.
#include <catch.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "translate/convert/access_convert.h"
#include "translate/convert/device_convert.h"
#include "translate/convert/flow_convert.h"
#include "translate/convert/port_convert.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/srq_convert.h"
#include "translate/convert/wc_convert.h"
#include "translate/convert/wq_convert.h"
#include "translate/convert/wr_convert.h"

using namespace ibvexp;
using namespace ibvexp::translate;

namespace {

template <class To = std::uint64_t>
using Pairs = std::pair<std::uint64_t, To>[];

bool every(FeatureId) { return true; }

}  // namespace

// [row:IBV_EXP_QP_STATE][row:IBV_EXP_QP_CUR_STATE][row:IBV_EXP_QP_EN_SQD_ASYNC_NOTIFY]
// [row:IBV_EXP_QP_ACCESS_FLAGS][row:IBV_EXP_QP_PKEY_INDEX][row:IBV_EXP_QP_PORT]
// [row:IBV_EXP_QP_QKEY][row:IBV_EXP_QP_AV][row:IBV_EXP_QP_PATH_MTU][row:IBV_EXP_QP_TIMEOUT]
// [row:IBV_EXP_QP_RETRY_CNT][row:IBV_EXP_QP_RNR_RETRY][row:IBV_EXP_QP_RQ_PSN]
// [row:IBV_EXP_QP_MAX_QP_RD_ATOMIC][row:IBV_EXP_QP_ALT_PATH][row:IBV_EXP_QP_MIN_RNR_TIMER]
// [row:IBV_EXP_QP_SQ_PSN][row:IBV_EXP_QP_MAX_DEST_RD_ATOMIC][row:IBV_EXP_QP_PATH_MIG_STATE]
// [row:IBV_EXP_QP_CAP][row:IBV_EXP_QP_DEST_QPN][row:IBV_EXP_QP_RATE_LIMIT]
TEST_CASE("bits of a modification mean the same member") {
  constexpr Pairs<int> bits = {
      {IBV_EXP_QP_STATE, IBV_QP_STATE},
      {IBV_EXP_QP_CUR_STATE, IBV_QP_CUR_STATE},
      {IBV_EXP_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_EXP_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS},
      {IBV_EXP_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX},
      {IBV_EXP_QP_PORT, IBV_QP_PORT},
      {IBV_EXP_QP_QKEY, IBV_QP_QKEY},
      {IBV_EXP_QP_AV, IBV_QP_AV},
      {IBV_EXP_QP_PATH_MTU, IBV_QP_PATH_MTU},
      {IBV_EXP_QP_TIMEOUT, IBV_QP_TIMEOUT},
      {IBV_EXP_QP_RETRY_CNT, IBV_QP_RETRY_CNT},
      {IBV_EXP_QP_RNR_RETRY, IBV_QP_RNR_RETRY},
      {IBV_EXP_QP_RQ_PSN, IBV_QP_RQ_PSN},
      {IBV_EXP_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC},
      {IBV_EXP_QP_ALT_PATH, IBV_QP_ALT_PATH},
      {IBV_EXP_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER},
      {IBV_EXP_QP_SQ_PSN, IBV_QP_SQ_PSN},
      {IBV_EXP_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC},
      {IBV_EXP_QP_PATH_MIG_STATE, IBV_QP_PATH_MIG_STATE},
      {IBV_EXP_QP_CAP, IBV_QP_CAP},
      {IBV_EXP_QP_DEST_QPN, IBV_QP_DEST_QPN},
      {IBV_EXP_QP_RATE_LIMIT, IBV_QP_RATE_LIMIT},
  };
  for (const auto &[exp, modern] : bits) {
    INFO(exp);
    CHECK(to_modern_qp_mask(exp) == modern);
  }
}

// [row:IBV_EXP_ACCESS_LOCAL_WRITE][row:IBV_EXP_ACCESS_REMOTE_WRITE]
// [row:IBV_EXP_ACCESS_REMOTE_READ][row:IBV_EXP_ACCESS_REMOTE_ATOMIC]
// [row:IBV_EXP_ACCESS_MW_BIND][row:IBV_EXP_ACCESS_MW_ZERO_BASED][row:IBV_EXP_ACCESS_ON_DEMAND]
// [row:IBV_EXP_ACCESS_RELAXED_ORDERING]
TEST_CASE("rights of memory") {
  std::uint64_t known = 0;
  constexpr Pairs<unsigned> flags = {
      {IBV_EXP_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},
      {IBV_EXP_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
      {IBV_EXP_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
      {IBV_EXP_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
      {IBV_EXP_ACCESS_MW_BIND, IBV_ACCESS_MW_BIND},
      {IBV_EXP_ACCESS_MW_ZERO_BASED, IBV_ACCESS_ZERO_BASED},
      {IBV_EXP_ACCESS_ON_DEMAND, IBV_ACCESS_ON_DEMAND},
      {IBV_EXP_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING},
  };
  for (const auto &[exp, modern] : flags) {
    INFO(exp);
    CHECK(to_modern_access(exp) == modern);
    known |= exp;
  }
  // Nothing else reaches rdma-core.
  CHECK(to_modern_access(~known) == 0);
}

// [row:IBV_EXP_SEND_FENCE][row:IBV_EXP_SEND_SIGNALED][row:IBV_EXP_SEND_SOLICITED]
// [row:IBV_EXP_SEND_INLINE][row:IBV_EXP_SEND_IP_CSUM]
TEST_CASE("flags of requests") {
  constexpr Pairs<unsigned> flags = {
      {IBV_EXP_SEND_FENCE, IBV_SEND_FENCE},         {IBV_EXP_SEND_SIGNALED, IBV_SEND_SIGNALED},
      {IBV_EXP_SEND_SOLICITED, IBV_SEND_SOLICITED}, {IBV_EXP_SEND_INLINE, IBV_SEND_INLINE},
      {IBV_EXP_SEND_IP_CSUM, IBV_SEND_IP_CSUM},
  };
  for (const auto &[exp, modern] : flags) {
    INFO(exp);
    CHECK(to_modern_send_flags(exp) == modern);
  }
}

// [row:IBV_EXP_WR_RDMA_WRITE][row:IBV_EXP_WR_RDMA_WRITE_WITH_IMM][row:IBV_EXP_WR_SEND]
// [row:IBV_EXP_WR_SEND_WITH_IMM][row:IBV_EXP_WR_RDMA_READ][row:IBV_EXP_WR_ATOMIC_CMP_AND_SWP]
// [row:IBV_EXP_WR_ATOMIC_FETCH_AND_ADD][row:IBV_EXP_WR_SEND_WITH_INV]
// [row:IBV_EXP_WR_LOCAL_INV][row:IBV_EXP_WR_BIND_MW]
TEST_CASE("opcodes of requests") {
  constexpr std::pair<int, ibv_wr_opcode> opcodes[] = {
      {IBV_EXP_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE},
      {IBV_EXP_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
      {IBV_EXP_WR_SEND, IBV_WR_SEND},
      {IBV_EXP_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM},
      {IBV_EXP_WR_RDMA_READ, IBV_WR_RDMA_READ},
      {IBV_EXP_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP},
      {IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
      {IBV_EXP_WR_SEND_WITH_INV, IBV_WR_SEND_WITH_INV},
      {IBV_EXP_WR_LOCAL_INV, IBV_WR_LOCAL_INV},
      {IBV_EXP_WR_BIND_MW, IBV_WR_BIND_MW},
  };
  for (const auto &[exp, modern] : opcodes) {
    INFO(exp);
    CHECK(to_modern_opcode(exp, IBV_QPT_RC).modern == modern);
  }
}

// [row:IBV_EXP_WC_SEND][row:IBV_EXP_WC_RDMA_WRITE][row:IBV_EXP_WC_RDMA_READ]
// [row:IBV_EXP_WC_COMP_SWAP][row:IBV_EXP_WC_FETCH_ADD][row:IBV_EXP_WC_BIND_MW]
// [row:IBV_EXP_WC_TSO][row:IBV_EXP_WC_RECV][row:IBV_EXP_WC_RECV_RDMA_WITH_IMM]
TEST_CASE("opcodes of completions") {
  constexpr std::pair<ibv_wc_opcode, std::uint64_t> opcodes[] = {
      {IBV_WC_SEND, IBV_EXP_WC_SEND},
      {IBV_WC_RDMA_WRITE, IBV_EXP_WC_RDMA_WRITE},
      {IBV_WC_RDMA_READ, IBV_EXP_WC_RDMA_READ},
      {IBV_WC_COMP_SWAP, IBV_EXP_WC_COMP_SWAP},
      {IBV_WC_FETCH_ADD, IBV_EXP_WC_FETCH_ADD},
      {IBV_WC_BIND_MW, IBV_EXP_WC_BIND_MW},
      {IBV_WC_LOCAL_INV, IBV_EXP_WC_LOCAL_INV},
      {IBV_WC_TSO, IBV_EXP_WC_TSO},
      {IBV_WC_RECV, IBV_EXP_WC_RECV},
      {IBV_WC_RECV_RDMA_WITH_IMM, IBV_EXP_WC_RECV_RDMA_WITH_IMM},
  };
  for (const auto &[modern, exp] : opcodes) {
    INFO(modern);
    CHECK(std::uint64_t{to_legacy(modern)} == exp);
  }
}

// [row:IBV_EXP_DEVICE_RESIZE_MAX_WR][row:IBV_EXP_DEVICE_BAD_PKEY_CNTR]
// [row:IBV_EXP_DEVICE_BAD_QKEY_CNTR][row:IBV_EXP_DEVICE_RAW_MULTI]
// [row:IBV_EXP_DEVICE_AUTO_PATH_MIG][row:IBV_EXP_DEVICE_CHANGE_PHY_PORT]
// [row:IBV_EXP_DEVICE_UD_AV_PORT_ENFORCE][row:IBV_EXP_DEVICE_CURR_QP_STATE_MOD]
// [row:IBV_EXP_DEVICE_SHUTDOWN_PORT][row:IBV_EXP_DEVICE_INIT_TYPE]
// [row:IBV_EXP_DEVICE_PORT_ACTIVE_EVENT][row:IBV_EXP_DEVICE_SYS_IMAGE_GUID]
// [row:IBV_EXP_DEVICE_RC_RNR_NAK_GEN][row:IBV_EXP_DEVICE_SRQ_RESIZE]
// [row:IBV_EXP_DEVICE_N_NOTIFY_CQ][row:IBV_EXP_DEVICE_XRC]
TEST_CASE("capabilities that rdma-core reports in a bit of its own") {
  const auto nothing = exp_capabilities({}, every);
  constexpr Pairs<unsigned> capabilities = {
      {IBV_EXP_DEVICE_RESIZE_MAX_WR, IBV_DEVICE_RESIZE_MAX_WR},
      {IBV_EXP_DEVICE_BAD_PKEY_CNTR, IBV_DEVICE_BAD_PKEY_CNTR},
      {IBV_EXP_DEVICE_BAD_QKEY_CNTR, IBV_DEVICE_BAD_QKEY_CNTR},
      {IBV_EXP_DEVICE_RAW_MULTI, IBV_DEVICE_RAW_MULTI},
      {IBV_EXP_DEVICE_AUTO_PATH_MIG, IBV_DEVICE_AUTO_PATH_MIG},
      {IBV_EXP_DEVICE_CHANGE_PHY_PORT, IBV_DEVICE_CHANGE_PHY_PORT},
      {IBV_EXP_DEVICE_UD_AV_PORT_ENFORCE, IBV_DEVICE_UD_AV_PORT_ENFORCE},
      {IBV_EXP_DEVICE_CURR_QP_STATE_MOD, IBV_DEVICE_CURR_QP_STATE_MOD},
      {IBV_EXP_DEVICE_SHUTDOWN_PORT, IBV_DEVICE_SHUTDOWN_PORT},
      {IBV_EXP_DEVICE_INIT_TYPE, IBV_DEVICE_INIT_TYPE},
      {IBV_EXP_DEVICE_PORT_ACTIVE_EVENT, IBV_DEVICE_PORT_ACTIVE_EVENT},
      {IBV_EXP_DEVICE_SYS_IMAGE_GUID, IBV_DEVICE_SYS_IMAGE_GUID},
      {IBV_EXP_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_RC_RNR_NAK_GEN},
      {IBV_EXP_DEVICE_SRQ_RESIZE, IBV_DEVICE_SRQ_RESIZE},
      {IBV_EXP_DEVICE_N_NOTIFY_CQ, IBV_DEVICE_N_NOTIFY_CQ},
      {IBV_EXP_DEVICE_XRC, IBV_DEVICE_XRC},
  };
  for (const auto &[exp, modern] : capabilities) {
    INFO(exp);
    DeviceFacts facts{};
    facts.attr.orig_attr.device_cap_flags = modern;
    CHECK((exp_capabilities(facts, every) & ~nothing) == exp);
  }
}

// [row:IBV_EXP_ATOMIC_NONE][row:IBV_EXP_ATOMIC_HCA][row:IBV_EXP_ATOMIC_GLOB]
TEST_CASE("levels of atomics") {
  constexpr std::pair<ibv_atomic_cap, ibv_exp_atomic_cap> levels[] = {
      {IBV_ATOMIC_NONE, IBV_EXP_ATOMIC_NONE},
      {IBV_ATOMIC_HCA, IBV_EXP_ATOMIC_HCA},
      {IBV_ATOMIC_GLOB, IBV_EXP_ATOMIC_GLOB},
  };
  for (const auto &[modern, exp] : levels) {
    DeviceFacts facts{};
    facts.attr.orig_attr.atomic_cap = modern;
    ibv_exp_device_attr attr{};
    to_legacy(facts, every, attr);
    CHECK(attr.exp_atomic_cap == exp);
  }
}

// [row:IBV_EXP_RX_HASH_SRC_IPV4][row:IBV_EXP_RX_HASH_DST_IPV4][row:IBV_EXP_RX_HASH_SRC_IPV6]
// [row:IBV_EXP_RX_HASH_DST_IPV6][row:IBV_EXP_RX_HASH_SRC_PORT_TCP]
// [row:IBV_EXP_RX_HASH_DST_PORT_TCP][row:IBV_EXP_RX_HASH_SRC_PORT_UDP]
// [row:IBV_EXP_RX_HASH_DST_PORT_UDP][row:IBV_EXP_RX_HASH_FUNC_TOEPLITZ]
TEST_CASE("what a scaling queue pair hashes, and how") {
  constexpr Pairs<> fields = {
      {IBV_EXP_RX_HASH_SRC_IPV4, IBV_RX_HASH_SRC_IPV4},
      {IBV_EXP_RX_HASH_DST_IPV4, IBV_RX_HASH_DST_IPV4},
      {IBV_EXP_RX_HASH_SRC_IPV6, IBV_RX_HASH_SRC_IPV6},
      {IBV_EXP_RX_HASH_DST_IPV6, IBV_RX_HASH_DST_IPV6},
      {IBV_EXP_RX_HASH_SRC_PORT_TCP, IBV_RX_HASH_SRC_PORT_TCP},
      {IBV_EXP_RX_HASH_DST_PORT_TCP, IBV_RX_HASH_DST_PORT_TCP},
      {IBV_EXP_RX_HASH_SRC_PORT_UDP, IBV_RX_HASH_SRC_PORT_UDP},
      {IBV_EXP_RX_HASH_DST_PORT_UDP, IBV_RX_HASH_DST_PORT_UDP},
  };
  for (const auto &[exp, modern] : fields) {
    INFO(exp);
    ibv_exp_rx_hash_conf hash{};
    hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
    hash.rx_hash_fields_mask = exp;
    ibv_exp_qp_init_attr from{};
    from.comp_mask = IBV_EXP_QP_INIT_ATTR_RX_HASH;
    from.rx_hash_conf = &hash;
    const auto to = to_modern(from);
    CHECK(to.attr.rx_hash_conf.rx_hash_fields_mask == modern);
    CHECK(to.attr.rx_hash_conf.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ);
  }
}

// [row:IBV_EXP_WQS_RESET][row:IBV_EXP_WQS_RDY][row:IBV_EXP_WQS_ERR][row:IBV_EXP_WQS_UNKNOWN]
// [row:IBV_EXP_WQ_ATTR_STATE][row:IBV_EXP_WQ_ATTR_CURR_STATE]
// [row:IBV_EXP_WQ_ATTR_VLAN_OFFLOADS]
TEST_CASE("states of work queues, and what is changed") {
  constexpr std::pair<ibv_exp_wq_state, ibv_wq_state> states[] = {
      {IBV_EXP_WQS_RESET, IBV_WQS_RESET},
      {IBV_EXP_WQS_RDY, IBV_WQS_RDY},
      {IBV_EXP_WQS_ERR, IBV_WQS_ERR},
      {IBV_EXP_WQS_UNKNOWN, IBV_WQS_UNKNOWN},
  };
  for (const auto &[exp, modern] : states) {
    ibv_exp_wq_attr from{};
    from.wq_state = from.curr_wq_state = exp;
    from.attr_mask = IBV_EXP_WQ_ATTR_STATE;
    CHECK(to_modern(from).wq_state == modern);
    CHECK(to_modern(from).attr_mask == IBV_WQ_ATTR_STATE);
    from.attr_mask = IBV_EXP_WQ_ATTR_CURR_STATE;
    CHECK(to_modern(from).curr_wq_state == modern);
    CHECK(to_modern(from).attr_mask == IBV_WQ_ATTR_CURR_STATE);
  }
  ibv_exp_wq_attr from{};
  from.attr_mask = IBV_EXP_WQ_ATTR_VLAN_OFFLOADS;
  CHECK(to_modern(from).attr_mask == IBV_WQ_ATTR_FLAGS);
}

// [row:IBV_EXP_SRQT_BASIC][row:IBV_EXP_SRQT_XRC][row:IBV_EXP_CREATE_SRQ_CQ]
// [row:IBV_EXP_CREATE_SRQ_XRCD]
TEST_CASE("kinds of shared receive queues") {
  ibv_cq cq{};
  ibv_xrcd xrcd{};
  ibv_exp_create_srq_attr from{};
  from.cq = &cq;
  from.xrcd = &xrcd;
  from.srq_type = IBV_EXP_SRQT_BASIC;
  CHECK(to_modern(from).srq_type == IBV_SRQT_BASIC);
  CHECK((to_modern(from).comp_mask & (IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD)) == 0);
  from.srq_type = IBV_EXP_SRQT_XRC;
  from.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD;
  const auto to = to_modern(from);
  CHECK(to.srq_type == IBV_SRQT_XRC);
  CHECK((to.comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0);
  CHECK((to.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) != 0);
  CHECK(to.cq == &cq);
  CHECK(to.xrcd == &xrcd);
}

// [row:IBV_EXP_IB_ROCE_V1_GID_TYPE][row:IBV_EXP_ROCE_V2_GID_TYPE]
TEST_CASE("types of GIDs") {
  CHECK(to_legacy_gid_type(IBV_GID_TYPE_IB) == IBV_EXP_IB_ROCE_V1_GID_TYPE);
  CHECK(to_legacy_gid_type(IBV_GID_TYPE_ROCE_V1) == IBV_EXP_IB_ROCE_V1_GID_TYPE);
  CHECK(to_legacy_gid_type(IBV_GID_TYPE_ROCE_V2) == IBV_EXP_ROCE_V2_GID_TYPE);
}

// [row:IBV_EXP_FLOW_ATTR_NORMAL]
TEST_CASE("types of steering rules") {
  constexpr std::pair<ibv_exp_flow_attr_type, ibv_flow_attr_type> types[] = {
      {IBV_EXP_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_NORMAL},
      {IBV_EXP_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_ALL_DEFAULT},
      {IBV_EXP_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT},
      {IBV_EXP_FLOW_ATTR_SNIFFER, IBV_FLOW_ATTR_SNIFFER},
  };
  for (const auto &[exp, modern] : types) {
    ibv_exp_flow_attr from{};
    from.type = exp;
    const ModernFlow to(from);
    ibv_flow_attr attr;
    std::memcpy(&attr, to.data(), sizeof(attr));
    CHECK(attr.type == modern);
  }
}
