// Initiators, targets and memory of one process, for tests of the DC transport.
#pragma once

#include <algorithm>
#include <numeric>

#include "rig.h"

inline constexpr std::uint64_t key = 0x1122334455667788;

using Srq = Owned<ibv_srq, ibv_destroy_srq>;
using Ah = Owned<ibv_ah, ibv_destroy_ah>;
using Dct = Owned<ibv_exp_dct, ibv_exp_destroy_dct>;

struct Dc : Rig {
  static constexpr std::size_t size = 4096;
  ibv_port_attr port{};
  Srq srq = make_srq();
  Buffer out{pd.get(), size}, in{pd.get(), size};
  Ah ah = make_ah();

  Dc() {
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{1});
    std::ranges::fill(in.bytes, 0);
  }

  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }

  Srq make_srq() {
    REQUIRE(ibv_query_port(context.get(), 1, &port) == 0);
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = 64;
    attr.attr.max_sge = 1;
    Srq made(ibv_create_srq(pd.get(), &attr));
    REQUIRE(made);
    return made;
  }
  Ah make_ah() {
    ibv_ah_attr attr = path_to_self(context.get());
    Ah made(ibv_create_ah(pd.get(), &attr));
    REQUIRE(made);
    return made;
  }

  ibv_exp_dct_init_attr dct_attr() {
    ibv_exp_dct_init_attr attr{};
    attr.pd = pd.get();
    attr.cq = cq.get();
    attr.srq = srq.get();
    attr.dc_key = key;
    attr.port = 1;
    attr.access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    attr.min_rnr_timer = 2;
    attr.mtu = IBV_MTU_1024;
    // As real programs leave it where there is no GID to name.
    attr.gid_index = ethernet() ? 1 : 255;
    attr.hop_limit = ethernet() ? 1 : 0;
    attr.inline_size = 60;
    return attr;
  }
  Dct make_dct() {
    auto attr = dct_attr();
    Dct made(ibv_exp_create_dct(context.get(), &attr));
    REQUIRE(made);
    return made;
  }

  Qp make_dci(std::uint32_t depth = 16, bool base = false, bool signal_all = false) {
    auto attr = qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
    // What an initiator has no use for is filled in by real programs.
    attr.cap = {depth, 512, 2, 1, 64};
    attr.srq = srq.get();
    if (base) attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    attr.sq_sig_all = signal_all ? 1 : 0;
    Qp made(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(made);
    CHECK(attr.cap.max_send_wr >= depth);
    CHECK(attr.cap.max_recv_wr == 0);
    granted = attr.cap.max_send_wr;
    to_rts(made.get());
    return made;
  }
  std::uint32_t granted = 0;

  void to_rts(ibv_qp *dci) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.dct_key = key;
    REQUIRE(ibv_exp_modify_qp(dci, &attr,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                                  IBV_EXP_QP_DC_KEY) == 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = port.lid;
    attr.ah_attr.is_global = ethernet();
    attr.ah_attr.grh.sgid_index = ethernet() ? 1 : 0;
    REQUIRE(ibv_exp_modify_qp(dci, &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV) ==
            0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    REQUIRE(ibv_exp_modify_qp(dci, &attr,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                  IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  ibv_exp_send_wr to(const ibv_exp_dct *dct, ibv_exp_wr_opcode opcode, std::uint64_t id,
                     ibv_sge *pieces) {
    auto wr = request(id, opcode, pieces);
    wr.dc.ah = ah.get();
    wr.dc.dct_number = dct->dct_num;
    wr.dc.dct_access_key = key;
    return wr;
  }
  void aim(ibv_exp_send_wr &wr, std::size_t offset = 0) {
    wr.wr.rdma.remote_addr = in.address(offset);
    wr.wr.rdma.rkey = in.mr->rkey;
  }
  void post(ibv_qp *dci, ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(dci, &wr, &bad) == 0);
  }
  void receive(std::uint64_t id, std::size_t offset = 0, std::uint32_t length = size) {
    ibv_sge piece = in.piece(offset, length);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }
  ibv_exp_wc take() { return next_completion(cq.get()); }
};
