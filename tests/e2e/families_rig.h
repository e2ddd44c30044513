// Raw packet queue pairs and frames for the tests of the interface families.
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <ctime>

#include "rig.h"

using FlowRule = Owned<ibv_flow, ibv_destroy_flow>;
using Frame = std::vector<std::uint8_t>;

inline bool on_ethernet(ibv_context *context) {
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  return port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

// An Ethernet frame that is no IP, to a locally administered address.
inline Frame make_frame(std::size_t bytes, std::uint32_t seed, std::uint8_t last_of_mac = 1) {
  Frame frame(bytes);
  const std::uint8_t head[14] = {2, 0, 0, 0, 0, last_of_mac, 2, 0, 0, 0, 0, 99, 0x88, 0xb5};
  for (std::size_t i = 0; i < bytes; ++i)
    frame[i] = i < sizeof(head) ? head[i] : static_cast<std::uint8_t>(seed * 31 + i * 7);
  return frame;
}

// IPv4 and UDP, with good checksums.
inline Frame make_udp(std::size_t payload, std::uint32_t seed, std::uint8_t last_of_mac = 1) {
  Frame frame = make_frame(42 + payload, seed, last_of_mac);
  frame[12] = 8;
  frame[13] = 0;
  const auto put16 = [&](std::size_t at, std::size_t v) {
    frame[at] = static_cast<std::uint8_t>(v >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(v);
  };
  const std::uint8_t ip[20] = {0x45, 0, 0,  0, 0, 1, 0x40, 0, 64, 17,
                               0,    0, 10, 0, 0, 1, 10,   0, 0,  2};
  std::memcpy(&frame[14], ip, sizeof(ip));
  put16(16, 28 + payload);
  const auto sum = [&](std::size_t from, std::size_t to, std::uint32_t start) {
    for (std::size_t i = from; i < to; i += 2)
      start += frame[i] << 8 | (i + 1 < to ? frame[i + 1] : 0);
    while (start >> 16 != 0) start = (start & 0xffff) + (start >> 16);
    return ~start & 0xffff;
  };
  put16(24, sum(14, 34, 0));
  put16(34, 1000);
  put16(36, 2000);
  put16(38, 8 + payload);
  put16(40, 0);
  std::uint32_t pseudo = 17 + 8 + static_cast<std::uint32_t>(payload);
  for (std::size_t i = 26; i < 34; i += 2) pseudo += frame[i] << 8 | frame[i + 1];
  put16(40, sum(34, frame.size(), pseudo));
  return frame;
}

struct FamilyRig : Rig {
  ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;

  template <class Family>
  Family *query(ibv_exp_intf_family intf, void *object, std::uint32_t version = 0,
                std::uint32_t flags = 0, std::uint32_t family_flags = 0) {
    ibv_exp_query_intf_params params{};
    params.flags = flags;
    params.intf_scope = IBV_EXP_INTF_GLOBAL;
    params.intf = intf;
    params.intf_version = version;
    params.obj = object;
    params.family_flags = family_flags;
    status = static_cast<ibv_exp_query_intf_status>(-1);
    auto *family = static_cast<Family *>(ibv_exp_query_intf(context.get(), &params, &status));
    CHECK((family != nullptr) == (status == IBV_EXP_INTF_STAT_OK));
    return family;
  }
  ibv_exp_qp_burst_family_v1 *burst(ibv_qp *qp, std::uint32_t flags = 0) {
    return query<ibv_exp_qp_burst_family_v1>(IBV_EXP_INTF_QP_BURST, qp, 1, flags);
  }
  ibv_exp_cq_family_v1 *cq_family(ibv_cq *cq, std::uint32_t flags = 0) {
    return query<ibv_exp_cq_family_v1>(IBV_EXP_INTF_CQ, cq, 1, flags);
  }

  Qp create_on(ibv_qp_type type, ibv_cq *send_cq, ibv_cq *recv_cq,
               ibv_qp_cap cap = {64, 64, 4, 4, 128}) {
    auto attr = qp_attr(type);
    attr.send_cq = send_cq;
    attr.recv_cq = recv_cq;
    attr.cap = cap;
    Qp made(ibv_exp_create_qp(context.get(), &attr));
    return made;
  }

  void to_state(ibv_qp *qp, ibv_qp_state state) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    std::uint64_t mask = IBV_EXP_QP_STATE;
    if (state == IBV_QPS_INIT) mask |= IBV_EXP_QP_PORT;
    REQUIRE(ibv_exp_modify_qp(qp, &attr, mask) == 0);
  }
  void ready(ibv_qp *qp) {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
      if (qp->state < state) to_state(qp, state);
  }

  FlowRule steer(ibv_qp *qp, std::uint8_t last_of_mac = 1) {
    struct {
      ibv_flow_attr attr;
      ibv_flow_spec_eth eth;
    } rule{};
    rule.attr.type = IBV_FLOW_ATTR_NORMAL;
    rule.attr.size = sizeof(rule);
    rule.attr.num_of_specs = 1;
    rule.attr.port = 1;
    rule.eth.type = IBV_FLOW_SPEC_ETH;
    rule.eth.size = sizeof(rule.eth);
    const std::uint8_t mac[6] = {2, 0, 0, 0, 0, last_of_mac};
    std::memcpy(rule.eth.val.dst_mac, mac, 6);
    std::memset(rule.eth.mask.dst_mac, 0xff, 6);
    FlowRule made(ibv_create_flow(qp, &rule.attr));
    REQUIRE(made);
    return made;
  }
};

// A queue pair that is or will be connected.
inline void to_init(ibv_qp *qp) {
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  std::uint64_t mask =
      IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS;
  if (qp->qp_type == IBV_QPT_RC)
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  REQUIRE(ibv_exp_modify_qp(qp, &attr, mask) == 0);
}

// Calls until the result is not the one of an empty queue, for a generous time.
template <class F>
auto eventually(F call) {
  const std::time_t end = std::time(nullptr) + 60;
  auto result = call();
  while (result == 0 && std::time(nullptr) < end) {
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
    result = call();
  }
  return result;
}

inline int poll_count(ibv_exp_cq_family_v1 *family, ibv_cq *cq, int wanted) {
  int got = 0;
  while (got < wanted) {
    const int n =
        eventually([&] { return family->poll_cnt(cq, static_cast<std::uint32_t>(wanted - got)); });
    if (n <= 0) return got != 0 ? got : n;
    got += n;
  }
  return got;
}

// Completions where they lie, as programs read them that know the device.
class ByHand {
 public:
  explicit ByHand(ibv_cq *cq) {
    mlx5dv_obj object{};
    object.cq.in = cq;
    object.cq.out = &of_;
    REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  }

  // Waits for one, and gives its place back.
  mlx5_cqe64 next() {
    const auto *at = static_cast<const std::uint8_t *>(of_.buf) +
                     std::size_t{index_ & (of_.cqe_cnt - 1)} * of_.cqe_size + of_.cqe_size -
                     sizeof(mlx5_cqe64);
    const std::uint8_t owner = (index_ & of_.cqe_cnt) != 0;
    REQUIRE(eventually([&] {
              const std::uint8_t op_own = __atomic_load_n(at + 63, __ATOMIC_ACQUIRE);
              return (op_own & 1) == owner && op_own >> 4 != MLX5_CQE_INVALID;
            }) == true);
    mlx5_cqe64 cqe;
    std::memcpy(&cqe, at, sizeof(cqe));
    REQUIRE(cqe.op_own >> 4 == MLX5_CQE_RESP_SEND);
    ++index_;
    __atomic_store_n(of_.dbrec, htobe32(index_ & 0xffffff), __ATOMIC_RELEASE);
    return cqe;
  }

 private:
  mlx5dv_cq of_{};
  std::uint32_t index_ = 0;
};
