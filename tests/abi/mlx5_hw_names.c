/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The names of mlx5_hw.h that rdma-core's header has otherwise or not at all, against
 * that header where it speaks of the same places.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef RDMA_CORES
#include <infiniband/mlx5dv.h>
/* In this order a program has rdma-core's. */
#include <infiniband/mlx5_hw.h>
#else
#include <infiniband/mlx5_hw.h>
typedef char whole[sizeof(struct mlx5_cqe64) == 64 && sizeof(struct mlx5_err_cqe) == 64 ? 1 : -1];
#endif

#define AT(type, member, place) \
  typedef char at_##member##_##place[offsetof(struct type, member) == place ? 1 : -1]

AT(mlx5_cqe64, ml_path, 17);
AT(mlx5_cqe64, slid, 22);
AT(mlx5_cqe64, flags_rqpn, 24);
AT(mlx5_cqe64, hds_ip_ext, 28);
AT(mlx5_cqe64, l4_hdr_type_etc, 29);
AT(mlx5_cqe64, vlan_info, 30);
AT(mlx5_cqe64, srqn_uidx, 32);
AT(mlx5_cqe64, imm_inval_pkey, 36);
AT(mlx5_cqe64, app_info, 42);
AT(mlx5_cqe64, byte_cnt, 44);
AT(mlx5_cqe64, timestamp, 48);
AT(mlx5_cqe64, sop_drop_qpn, 56);
AT(mlx5_cqe64, wqe_counter, 60);
AT(mlx5_cqe64, op_own, 63);
AT(mlx5_err_cqe, vendor_err_synd, 54);
AT(mlx5_err_cqe, syndrome, 55);
AT(mlx5_err_cqe, s_wqe_opcode_qpn, 56);
AT(mlx5_bf, offset, 72);
AT(mlx5_bf, buf_size, 76);
AT(mlx5_srq, buf, 216);
AT(mlx5_srq, wrid, 304);
AT(mlx5_srq, db, 336);
AT(mlx5_srq, wq_sig, 348);
AT(mlx5_srq, ibv_srq_legacy, 352);
AT(mlx5_srq, is_xsrq, 360);
AT(mlx5_srq, cmd_qp, 368);
typedef char size_of_srq[sizeof(struct mlx5_srq) == 440 ? 1 : -1];

#ifndef RDMA_CORES
typedef char at_sop[offsetof(struct mlx5_cqe64, sop_qpn.sop) == 56 ? 1 : -1];
AT(mlx5_err_cqe, hw_err_synd, 52);
AT(mlx5_err_cqe, hw_synd_type, 53);

/* As programs take a frame's headers apart. */
static int is_udp_in_ipv4(const struct mlx5_cqe64 *cqe) {
  return (cqe->l4_hdr_type_etc & MLX5_CQE_L3_HDR_TYPE_MASK) == MLX5_CQE_L3_HDR_TYPE_IPV4 &&
         (cqe->l4_hdr_type_etc & MLX5_CQE_L4_HDR_TYPE_MASK) == MLX5_CQE_L4_HDR_TYPE_UDP;
}
#endif

int main(void) {
  struct mlx5_qp qp;
  struct ibv_mlx5_qp_info info;

#ifndef RDMA_CORES
  struct mlx5_cqe64 cqe;

  cqe.l4_hdr_type_etc = 2 << 4 | 2 << 2 | 1;
  if (!is_udp_in_ipv4(&cqe)) return 1;
  cqe.l4_hdr_type_etc = 1 << 4 | 1 << 2;
  if (is_udp_in_ipv4(&cqe)) return 1;
#endif
  /* In use: there is nothing to be had any more. */
  qp.gen_data.scur_post = 1;
  if (ibv_mlx5_exp_get_qp_info(&qp.verbs_qp.qp, &info) == 0) return 1;
  return to_mqp(&qp.verbs_qp.qp) != &qp || MLX5_ETH_INLINE_HEADER_SIZE != 18;
}
