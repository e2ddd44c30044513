// What tests of experimental verbs need around them: a device, and queue pairs
// that are connected to each other through it. Base objects are made with base
// verbs; the tests make the experimental ones.
#pragma once

#include <catch.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "door.h"

// Releases a verbs object at the end of its scope.
template <auto release>
struct Release {
  template <class T>
  void operator()(T *object) const {
    CHECK(release(object) == 0);
  }
};
template <class T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

using Context = Owned<ibv_context, ibv_close_device>;
using Pd = Owned<ibv_pd, ibv_dealloc_pd>;
using Cq = Owned<ibv_cq, ibv_destroy_cq>;
using Qp = Owned<ibv_qp, ibv_destroy_qp>;
using Mr = Owned<ibv_mr, ibv_dereg_mr>;
using Channel = Owned<ibv_comp_channel, ibv_destroy_comp_channel>;

// Whether this library drives the queues, by the environment and the door.
inline bool engine_drives() {
#ifdef EXP_LIBRARY
  return false;
#else
  const char *engine = std::getenv("IBVEXP_ENGINE");
  return engine == nullptr || *engine == '\0' || std::string_view(engine) == "own";
#endif
}

// Whether IBVEXP_BEYOND names the switch, or auto in place of all.
inline bool switched_on(std::string_view name) {
  const char *const value = std::getenv("IBVEXP_BEYOND");
  std::string_view rest = value != nullptr ? value : "";
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    if (word == name || word == "auto") return true;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return false;
}

inline Context open_first() {
  ibv_device **list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  REQUIRE(list[0] != nullptr);
  Context context(ibv_open_device(list[0]));
  ibv_free_device_list(list);
  REQUIRE(context);
  return context;
}

// The path from port 1 to itself, on either link layer.
inline ibv_ah_attr path_to_self(ibv_context *context) {
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  ibv_ah_attr path{};
  path.port_num = 1;
  path.dlid = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    path.is_global = 1;
    path.grh.sgid_index = 1;
    path.grh.hop_limit = 1;
    REQUIRE(ibv_query_gid(context, 1, 1, &path.grh.dgid) == 0);
  }
  return path;
}

struct Rig {
  Context context = open_first();
  Pd pd = alloc_pd();
  Cq cq = create_cq();

  Pd alloc_pd() {
    Pd made(ibv_alloc_pd(context.get()));
    REQUIRE(made);
    return made;
  }

  Cq create_cq(int cqe = 256) {
    ibv_exp_cq_init_attr attr{};
    Cq made(ibv_exp_create_cq(context.get(), cqe, this, nullptr, 0, &attr));
    REQUIRE(made);
    return made;
  }

  ibv_exp_qp_init_attr qp_attr(ibv_qp_type type) {
    ibv_exp_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.cap = {64, 64, 4, 4, 64};
    attr.qp_type = type;
    // Not PD alone, which would go to the base verb.
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    attr.pd = pd.get();
    return attr;
  }

  Qp create_qp(ibv_qp_type type) {
    auto attr = qp_attr(type);
    Qp made(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(made);
    return made;
  }

  // Drives a queue pair to RTS with the experimental verb.
  void connect(ibv_qp *qp, std::uint32_t peer) {
    const bool datagram = qp->qp_type == IBV_QPT_UD;
    const bool reliable = !datagram && qp->qp_type != IBV_QPT_UC;

    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = 0x11111111;
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    if (!reliable) attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    std::uint64_t mask = IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT;
    mask |= datagram ? IBV_EXP_QP_QKEY : IBV_EXP_QP_ACCESS_FLAGS;
    REQUIRE(ibv_exp_modify_qp(qp, &attr, mask) == 0);

    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr = path_to_self(context.get());
    mask = IBV_EXP_QP_STATE;
    if (!datagram)
      mask |= IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN;
    if (reliable) mask |= IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER;
    REQUIRE(ibv_exp_modify_qp(qp, &attr, mask) == 0);

    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    mask = IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN;
    if (reliable)
      mask |= IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
              IBV_EXP_QP_MAX_QP_RD_ATOMIC;
    REQUIRE(ibv_exp_modify_qp(qp, &attr, mask) == 0);
    CHECK(qp->state == IBV_QPS_RTS);
  }

  // Waits for that many completions.
  std::vector<ibv_exp_wc> completions(std::size_t wanted) {
    std::vector<ibv_exp_wc> all;
    for (int turns = 0; all.size() < wanted && turns < 50'000'000; ++turns) {
      ibv_exp_wc wc[4];
      std::memset(wc, 0xee, sizeof(wc));
      const int n = ibv_exp_poll_cq(cq.get(), 4, wc, sizeof(wc[0]));
      REQUIRE(n >= 0);
      all.insert(all.end(), wc, wc + n);
    }
    REQUIRE(all.size() == wanted);
    return all;
  }
};

// Registered memory with the rights to do anything.
struct Buffer {
  std::vector<std::uint8_t> bytes;
  Mr mr;

  Buffer(ibv_pd *pd, std::size_t size) : bytes(size) {
    ibv_exp_reg_mr_in in{};
    in.pd = pd;
    in.addr = bytes.data();
    in.length = size;
    in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                    IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC;
    mr.reset(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
  }

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(bytes.data()) + offset;
  }
  ibv_sge piece(std::size_t offset, std::uint32_t length) const {
    return {address(offset), length, mr->lkey};
  }
};

// The next completion, of perhaps many.
inline ibv_exp_wc next_completion(ibv_cq *cq) {
  ibv_exp_wc wc{};
  int count = 0;
  for (int turns = 0; count == 0 && turns < 50'000'000; ++turns)
    count = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
  REQUIRE(count == 1);
  return wc;
}

inline void post_receive(ibv_qp *qp, std::uint64_t id, ibv_sge piece) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  REQUIRE(ibv_post_recv(qp, &wr, &bad) == 0);
}

// A request as real programs leave it: what does not matter is wild.
inline ibv_exp_send_wr request(std::uint64_t id, ibv_exp_wr_opcode opcode, ibv_sge *pieces,
                               int count = 1) {
  ibv_exp_send_wr wr;
  std::memset(&wr, 0xa5, sizeof(wr));
  wr.wr_id = id;
  wr.next = nullptr;
  wr.sg_list = pieces;
  wr.num_sge = count;
  wr.exp_opcode = opcode;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  return wr;
}
