// Queue pairs whose work queues and completion queues are used without
// libmlx5: WQEs are written and CQEs read through mlx5dv_init_obj, as UCX and
// DPDK do. No lock is taken and no function called between the post and the
// completion.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "catch.h"

namespace direct {

struct Context {
  Context() {
    ibv_device **list = ibv_get_device_list(nullptr);
    REQUIRE((list != nullptr && list[0] != nullptr));
    ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    REQUIRE(ctx != nullptr);
    pd = ibv_alloc_pd(ctx);
    REQUIRE(pd != nullptr);
    REQUIRE(ibv_query_port(ctx, 1, &port) == 0);
  }
  ~Context() {
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(ctx) == 0);
  }
  ibv_context *ctx = nullptr;
  ibv_pd *pd = nullptr;
  ibv_port_attr port{};
};

struct Memory {
  Memory(const Context &c, size_t n) : bytes(n) {
    mr = ibv_reg_mr(c.pd, bytes.data(), n,
                    int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    REQUIRE(mr != nullptr);
  }
  ~Memory() {
    if (mr != nullptr) deregister();
  }
  void deregister() {
    CHECK(ibv_dereg_mr(mr) == 0);
    mr = nullptr;
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()); }
  std::vector<uint8_t> bytes;
  ibv_mr *mr;
};

// An RC queue pair with a CQ of its own.
class Rc {
 public:
  static constexpr int depth = 64;

  explicit Rc(const Context &c, ibv_comp_channel *channel = nullptr) {
    cq = ibv_create_cq(c.ctx, depth, nullptr, channel, 0);
    REQUIRE(cq != nullptr);
    ibv_qp_init_attr a{};
    a.qp_type = IBV_QPT_RC;
    a.send_cq = a.recv_cq = cq;
    a.cap = {depth, depth, 1, 1, 0};
    qp = ibv_create_qp(c.pd, &a);
    REQUIRE(qp != nullptr);
    mlx5dv_obj o{};
    o.qp = {qp, &dv};
    o.cq = {cq, &dv_cq};
    REQUIRE(mlx5dv_init_obj(&o, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
  }
  ~Rc() {
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
  }
  Rc(const Rc &) = delete;
  Rc &operator=(const Rc &) = delete;

  void connect(uint32_t qpn, uint16_t lid) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    REQUIRE(ibv_modify_qp(
                qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = qpn;
    a.ah_attr.dlid = lid;
    a.ah_attr.port_num = 1;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 1;
    REQUIRE(ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
            0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 18;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    REQUIRE(ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  // An RDMA WRITE: WQE, doorbell record, doorbell.
  void write(const Memory &from, uint32_t bytes, uint64_t to, uint32_t rkey, uint32_t offset = 0) {
    auto *w = static_cast<uint8_t *>(dv.sq.buf) + (posted_ % dv.sq.wqe_cnt) * dv.sq.stride;
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg *>(w), posted_, MLX5_OPCODE_RDMA_WRITE,
                        0, qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
    auto *raddr = reinterpret_cast<mlx5_wqe_raddr_seg *>(w + 16);
    raddr->raddr = htobe64(to);
    raddr->rkey = htobe32(rkey);
    mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg *>(w + 32), bytes, from.mr->lkey,
                        from.address() + offset);
    ring(w);
  }
  // A NOP, which completes where it is.
  void nop() {
    auto *w = static_cast<uint8_t *>(dv.sq.buf) + (posted_ % dv.sq.wqe_cnt) * dv.sq.stride;
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg *>(w), posted_, MLX5_OPCODE_NOP, 0,
                        qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, 1, 0, 0);
    ring(w);
  }

  // The next CQE, or nullptr. Consumed by looking at it.
  const mlx5_cqe64 *poll() {
    auto *cqe = reinterpret_cast<mlx5_cqe64 *>(static_cast<uint8_t *>(dv_cq.buf) +
                                               (consumed_ % dv_cq.cqe_cnt) * dv_cq.cqe_size);
    const uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
    if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != ((consumed_ / dv_cq.cqe_cnt) & 1))
      return nullptr;
    ++consumed_;
    __atomic_store_n(&dv_cq.dbrec[0], htobe32(consumed_ & 0xffffff), __ATOMIC_RELEASE);
    return cqe;
  }
  const mlx5_cqe64 *wait() {
    const mlx5_cqe64 *cqe;
    while ((cqe = poll()) == nullptr) {
    }
    return cqe;
  }

  ibv_cq *cq;
  ibv_qp *qp;
  mlx5dv_qp dv{};
  mlx5dv_cq dv_cq{};

 private:
  void ring(const uint8_t *wqe) {
    ++posted_;
    __atomic_store_n(&dv.dbrec[1], htobe32(posted_), __ATOMIC_RELEASE);
    uint64_t control;
    std::memcpy(&control, wqe, sizeof control);
    __atomic_store_n(reinterpret_cast<uint64_t *>(dv.bf.reg), control, __ATOMIC_RELEASE);
  }
  uint16_t posted_ = 0;
  uint32_t consumed_ = 0;
};

}  // namespace direct
