#include "rig.h"

#include <stdexcept>

namespace truth {

Rig::Rig(const char *link) {
  ibv_device **list = ibv_get_device_list(nullptr);
  if (list == nullptr || list[0] == nullptr) throw std::runtime_error("no device");
  device = list[0];
  context = ibv_open_device(device);
  ibv_free_device_list(list);
  if (context == nullptr) throw std::runtime_error("cannot open the device");
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 100, nullptr, nullptr, 0);
  void *allocated = nullptr;
  if (posix_memalign(&allocated, 4096, MEMORY_SIZE) != 0) throw std::bad_alloc();
  memory = static_cast<char *>(allocated);
  std::memset(memory, 0, MEMORY_SIZE);
  mr = ibv_reg_mr(pd, memory, MEMORY_SIZE, 15);
  if (pd == nullptr || cq == nullptr || mr == nullptr) throw std::runtime_error("no PD, CQ or MR");
  ibv_query_port(context, 1, &port);
  const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (ethernet != (std::string(link) == "eth")) throw std::runtime_error("another link layer");
  if (ethernet) gid_index = 1;
  ibv_query_gid(context, 1, ethernet ? 1 : 0, &gid);
}

Rig::~Rig() {
  for (const auto &[name, qp] : qps)
    if (qp != nullptr) ibv_destroy_qp(qp);
  ibv_close_device(context);
  std::free(memory);
}

void Rig::fill_path(ibv_ah_attr &path) const {
  path.dlid = port.lid;
  path.port_num = 1;
  if (gid_index < 0) return;
  path.is_global = 1;
  path.grh.dgid = gid;
  path.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  path.grh.hop_limit = 1;
}

int step_to(Rig &rig, ibv_qp *qp, int state, int without, std::uint64_t more,
            const ibv_exp_qp_attr &extra) {
  ibv_exp_qp_attr attr = extra;
  // Either number stands for a DCI here; the table says which one is shown.
  const int shown = static_cast<int>(qp->qp_type);
  const bool dci = shown == DC_INITIATOR || shown == IBV_QPT_DRIVER;
  const bool ud = shown == IBV_QPT_UD, rc = shown == IBV_QPT_RC;
  std::uint64_t mask = IBV_EXP_QP_STATE;
  attr.qp_state = static_cast<ibv_qp_state>(state);
  if (state == IBV_QPS_INIT) {
    mask |= IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT;
    mask |= ud ? IBV_EXP_QP_QKEY : dci ? IBV_EXP_QP_DC_KEY : IBV_EXP_QP_ACCESS_FLAGS;
    attr.port_num = 1;
    attr.qkey = 0x111;
    attr.qp_access_flags = 15;
    if (attr.dct_key == 0) attr.dct_key = 1;
  }
  if (state == IBV_QPS_RTR && !ud) {
    mask |= IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV;
    if (!dci) mask |= IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN;
    if (rc) mask |= IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    rig.fill_path(attr.ah_attr);
  }
  if (state == IBV_QPS_RTS) {
    if (!dci) mask |= IBV_EXP_QP_SQ_PSN;
    if (rc || dci)
      mask |= IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
              IBV_EXP_QP_MAX_QP_RD_ATOMIC;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
  }
  if (without >= 0) mask &= ~(1ULL << without);
  return ibv_exp_modify_qp(qp, &attr, mask | more);
}

bool bring_up(Rig &rig, ibv_qp *qp) {
  for (const int state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    if (step_to(rig, qp, state, -1, 0, {}) != 0) return false;
  return true;
}

}  // namespace truth
