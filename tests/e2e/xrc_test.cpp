// Extended reliable connections as programs of the legacy age made their queue
// pairs: by the legacy type number, through both doors.
#include "rig.h"

#include <algorithm>
#include <fcntl.h>
#include <numeric>

namespace {

using Xrcd = Owned<ibv_xrcd, ibv_close_xrcd>;
using Srq = Owned<ibv_srq, ibv_destroy_srq>;

struct Xrc : Rig {
  Xrcd domain = open_domain();
  Srq srq = make_srq();
  Qp target = make_target();
  Buffer out{pd.get(), 4096}, in{pd.get(), 4096};

  Xrcd open_domain() {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    Xrcd made(ibv_open_xrcd(context.get(), &attr));
    REQUIRE(made);
    return made;
  }
  Srq make_srq() {
    ibv_srq_init_attr_ex attr{};
    attr.attr.max_wr = 16;
    attr.attr.max_sge = 1;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                     IBV_SRQ_INIT_ATTR_PD;
    attr.srq_type = IBV_SRQT_XRC;
    attr.xrcd = domain.get();
    attr.cq = cq.get();
    attr.pd = pd.get();
    Srq made(ibv_create_srq_ex(context.get(), &attr));
    REQUIRE(made);
    return made;
  }
  Qp make_target() {
    ibv_exp_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_XRCD;
    attr.xrcd = domain.get();
    Qp made(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(made);
    return made;
  }

  void join(ibv_qp *qp, std::uint32_t peer, bool sender) {
    ibv_port_attr port{};
    REQUIRE(ibv_query_port(context.get(), 1, &port) == 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
            0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = port.lid;
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      attr.ah_attr.is_global = 1;
      attr.ah_attr.grh.sgid_index = 1;
      attr.ah_attr.grh.hop_limit = 1;
      REQUIRE(ibv_query_gid(context.get(), 1, 1, &attr.ah_attr.grh.dgid) == 0);
    }
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
            0);
    if (!sender) return;
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }
};

}  // namespace

TEST_CASE("a queue pair of the legacy XRC type sends [row:IBV_QPT_XRC]") {
  Xrc x;
  auto attr = x.qp_attr(static_cast<ibv_qp_type>(IBV_QPT_XRC));
  // Receive capabilities mean nothing to it.
  attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
  if (GENERATE(false, true)) attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  const Qp sender(ibv_exp_create_qp(x.context.get(), &attr));
  REQUIRE(sender);
  x.join(x.target.get(), sender->qp_num, false);
  x.join(sender.get(), x.target->qp_num, true);

  std::iota(x.out.bytes.begin(), x.out.bytes.end(), std::uint8_t{1});
  ibv_sge into = x.in.piece(0, 4096), piece = x.out.piece(0, 777);
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.wr_id = 7;
  receive.sg_list = &into;
  receive.num_sge = 1;
  REQUIRE(ibv_post_srq_recv(x.srq.get(), &receive, &bad_receive) == 0);

  std::uint32_t srq_number = 0;
  REQUIRE(ibv_get_srq_num(x.srq.get(), &srq_number) == 0);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  wr.xrc_remote_srq_num = srq_number;
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(sender.get(), &wr, &bad) == 0);
  auto all = x.completions(2);
  if (all[0].exp_opcode >= IBV_EXP_WC_RECV) std::swap(all[0], all[1]);
  CHECK(all[0].status == IBV_WC_SUCCESS);
  CHECK(all[0].qp == sender.get());
  CHECK(all[1].status == IBV_WC_SUCCESS);
  CHECK(all[1].wr_id == 7);
  CHECK(all[1].byte_len == 777);
  CHECK(std::equal(x.out.bytes.begin(), x.out.bytes.begin() + 777, x.in.bytes.begin()));
}
