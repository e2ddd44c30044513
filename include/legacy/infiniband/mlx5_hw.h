/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Direct access to the queues of mlx5 objects, as programs for MLNX_OFED had it: the
 * inlines below show where the queues lie, and the program writes work queue entries
 * and reads completions itself. On the objects that libibverbs_exp hands out on mlx5
 * devices (IBVEXP_ENGINE=own, the default).
 *
 * What stands in the entries is rdma-core's: <infiniband/mlx5dv.h> has the names of
 * segments and opcodes that this header had.
 *
 * Facts are given before a queue is used for the first time; then the inlines return
 * -1. Structures are those of release 4.9 (IBVEXP_LAYOUT=4.x), x86-64 and aarch64;
 * members that no program reads are reserved.
 */
#ifndef IBVEXP_LEGACY_MLX5_HW_H
#define IBVEXP_LEGACY_MLX5_HW_H

/*
 * Programs for either header (UCX 1.3 to 1.8) define mlx5dv_init_obj and its structures
 * themselves where they find this one, and completions had more names. Who wants
 * rdma-core's includes mlx5dv.h first.
 */
#ifdef _MLX5DV_H_
#define IBVEXP_MLX5DV_CQE
#endif
#define mlx5dv_obj ibvexp_hidden_mlx5dv_obj
#define mlx5dv_obj_type ibvexp_hidden_mlx5dv_obj_type
#define mlx5dv_init_obj ibvexp_hidden_mlx5dv_init_obj
#define mlx5dv_qp ibvexp_hidden_mlx5dv_qp
#define mlx5dv_cq ibvexp_hidden_mlx5dv_cq
#define mlx5dv_srq ibvexp_hidden_mlx5dv_srq
#define mlx5dv_rwq ibvexp_hidden_mlx5dv_rwq
#define mlx5dv_dm ibvexp_hidden_mlx5dv_dm
#define mlx5dv_ah ibvexp_hidden_mlx5dv_ah
#define MLX5DV_OBJ_QP ibvexp_hidden_MLX5DV_OBJ_QP
#define MLX5DV_OBJ_CQ ibvexp_hidden_MLX5DV_OBJ_CQ
#define MLX5DV_OBJ_SRQ ibvexp_hidden_MLX5DV_OBJ_SRQ
#define MLX5DV_OBJ_RWQ ibvexp_hidden_MLX5DV_OBJ_RWQ
#define MLX5DV_OBJ_DM ibvexp_hidden_MLX5DV_OBJ_DM
#define MLX5DV_OBJ_AH ibvexp_hidden_MLX5DV_OBJ_AH
#define mlx5_cqe64 ibvexp_hidden_mlx5_cqe64
#define mlx5_err_cqe ibvexp_hidden_mlx5_err_cqe
#define MLX5_CQE_L3_HDR_TYPE_NONE ibvexp_hidden_MLX5_CQE_L3_HDR_TYPE_NONE
#define MLX5_CQE_L3_HDR_TYPE_IPV6 ibvexp_hidden_MLX5_CQE_L3_HDR_TYPE_IPV6
#define MLX5_CQE_L3_HDR_TYPE_IPV4 ibvexp_hidden_MLX5_CQE_L3_HDR_TYPE_IPV4
/* What strict modes such as -std=c99 hide, and that header's inlines call. */
#include <endian.h>
#ifndef htobe32
#define IBVEXP_HIDDEN_BYTE_ORDER
#define htobe16(x) __builtin_bswap16(x)
#define htobe32(x) __builtin_bswap32(x)
#define htobe64(x) __builtin_bswap64(x)
#define be16toh(x) __builtin_bswap16(x)
#define be32toh(x) __builtin_bswap32(x)
#define be64toh(x) __builtin_bswap64(x)
#endif
#include <infiniband/mlx5dv.h>
#ifdef IBVEXP_HIDDEN_BYTE_ORDER
#undef IBVEXP_HIDDEN_BYTE_ORDER
#undef htobe16
#undef htobe32
#undef htobe64
#undef be16toh
#undef be32toh
#undef be64toh
#endif
#undef mlx5dv_obj
#undef mlx5dv_obj_type
#undef mlx5dv_init_obj
#undef mlx5dv_qp
#undef mlx5dv_cq
#undef mlx5dv_srq
#undef mlx5dv_rwq
#undef mlx5dv_dm
#undef mlx5dv_ah
#undef MLX5DV_OBJ_QP
#undef MLX5DV_OBJ_CQ
#undef MLX5DV_OBJ_SRQ
#undef MLX5DV_OBJ_RWQ
#undef MLX5DV_OBJ_DM
#undef MLX5DV_OBJ_AH
#undef mlx5_cqe64
#undef mlx5_err_cqe
#undef MLX5_CQE_L3_HDR_TYPE_NONE
#undef MLX5_CQE_L3_HDR_TYPE_IPV6
#undef MLX5_CQE_L3_HDR_TYPE_IPV4

#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a frame that are in the entry itself. */
enum {
	MLX5_ETH_INLINE_HEADER_SIZE = 18,
	MLX5_ETH_VLAN_INLINE_HEADER_SIZE = 18, /* with a tag put in */
	MLX5_ETH_L2_MIN_HEADER_SIZE = 14
};

struct ibvexp_mini_send {
	uint16_t wqe_counter;
	uint8_t s_wqe_opcode;
	uint8_t reserved;
};

/* Of op_own: the format of a completion, shifted, and where it lies. */
enum {
	MLX5_NO_INLINE_DATA = 0,
	MLX5_INLINE_DATA32_SEG = 1,
	MLX5_INLINE_DATA64_SEG = 2,
	MLX5_COMPRESSED = 3,
	MLX5E_CQE_FORMAT_MASK = 0xc
};

/* One of those that a compressed completion stands for. */
struct mlx5_mini_cqe8 {
	__extension__ union {
		uint32_t rx_hash_result;
		uint32_t checksum;
		struct ibvexp_mini_send s_wqe_info;
	};
	uint32_t byte_cnt;
};

enum {
	MLX5_OPCODE_LSO_MPW = MLX5_OPCODE_TSO,
	MLX5_OPC_MOD_MPW = 1 /* several packets in an entry */
};

#ifndef IBVEXP_MLX5DV_CQE
/* Of l4_hdr_type_etc, where they lie; rdma-core's are shifted. */
enum {
	MLX5_CQE_L3_HDR_TYPE_MASK = 0xc,
	MLX5_CQE_L3_HDR_TYPE_NONE = 0x0,
	MLX5_CQE_L3_HDR_TYPE_IPV6 = 0x4,
	MLX5_CQE_L3_HDR_TYPE_IPV4 = 0x8,
	MLX5_CQE_L4_HDR_TYPE_MASK = 0x70,
	MLX5_CQE_L4_HDR_TYPE_TCP = 0x10,
	MLX5_CQE_L4_HDR_TYPE_UDP = 0x20,
	MLX5_CQE_L4_HDR_TYPE_TCP_EMP_ACK = 0x30,
	MLX5_CQE_L4_HDR_TYPE_TCP_ACK = 0x40
};

struct ibvexp_sop_qpn {
	uint8_t sop;
	uint8_t qpn[3];
};

struct mlx5_cqe64 {
	uint8_t rsvd0[2];
	uint16_t wqe_id; /* members of more than a byte are in network order */
	uint8_t rsvd4[13];
	uint8_t ml_path;
	uint8_t rsvd20[4];
	uint16_t slid;
	uint32_t flags_rqpn;
	uint8_t hds_ip_ext;
	uint8_t l4_hdr_type_etc;
	uint16_t vlan_info;
	uint32_t srqn_uidx;
	uint32_t imm_inval_pkey;
	uint8_t app;
	uint8_t app_op;
	uint16_t app_info;
	uint32_t byte_cnt;
	uint64_t timestamp;
	__extension__ union {
		uint32_t sop_drop_qpn;
		struct ibvexp_sop_qpn sop_qpn;
	};
	uint16_t wqe_counter;
	uint8_t signature;
	uint8_t op_own;
};

struct mlx5_err_cqe {
	uint8_t rsvd0[32];
	uint32_t srqn;
	uint8_t rsvd1[16];
	uint8_t hw_err_synd;
	uint8_t hw_synd_type;
	uint8_t vendor_err_synd;
	uint8_t syndrome;
	uint32_t s_wqe_opcode_qpn;
	uint16_t wqe_counter;
	uint8_t signature;
	uint8_t op_own;
};
#endif

enum mlx5_rsc_type { MLX5_RSC_TYPE_QP = 0, MLX5_RSC_TYPE_XSRQ = 1, MLX5_RSC_TYPE_SRQ = 2, MLX5_RSC_TYPE_RWQ = 3 };

struct mlx5_resource {
	enum mlx5_rsc_type type;
	uint32_t rsn; /* by which completions name it */
};

struct mlx5_buf {
	void *buf;
	size_t length;
	uint64_t ibvexp_reserved[8];
};

struct mlx5_bf {
	void *reg;
	int need_lock; /* other queues have it, too */
	uint32_t ibvexp_reserved[15];
	uint32_t offset;   /* of the half to write next: 0 or buf_size */
	uint32_t buf_size; /* of a half */
	uint32_t uuarn;    /* 0: no more than a doorbell at once */
	uint32_t db_method;
};

struct mlx5_wq {
	uint64_t *wrid;
	unsigned int wqe_cnt;
	unsigned int head;
	unsigned int tail;
	unsigned int max_post;
	int max_gs;
	uint32_t ibvexp_reserved[15];
	void *buff;
	uint32_t *db;
	int wqe_shift;
	int offset;
	uint32_t *wr_data;
};

struct general_data_hot {
	unsigned int *wqe_head;
	void *post_send_one;
	void *sqstart;
	void *sqend;
	volatile uint32_t *db;
	struct mlx5_bf *bf;
	uint32_t scur_post;
	uint32_t last_post;
	uint16_t create_flags;
	uint8_t fm_cache;
	uint8_t model_flags;
};

struct data_seg_data {
	uint32_t max_inline_data;
};

struct ctrl_seg_data {
	uint32_t qp_num;
	uint8_t fm_ce_se_tbl[8];
	uint8_t fm_ce_se_acc[32];
	uint8_t wq_sig;
};

/* The public object, as all releases since 3.4 had it around. */
struct ibvexp_verbs_qp {
	struct ibv_qp qp;
	uint32_t comp_mask;
	struct ibv_xrcd *xrcd;
};

struct mlx5_qp {
	struct mlx5_resource rsc;
	struct ibvexp_verbs_qp verbs_qp;
	struct mlx5_buf buf;
	int buf_size;
	struct mlx5_buf sq_buf; /* of a raw packet queue pair */
	int sq_buf_size;
	uint8_t sq_signal_bits;
	int umr_en;
	uint8_t ibvexp_reserved[20];
	struct mlx5_wq rq;
	uint64_t ibvexp_rq_end;
	struct mlx5_wq sq;
	struct general_data_hot gen_data;
	uint64_t ibvexp_mpw[5];
	struct data_seg_data data_seg;
	struct ctrl_seg_data ctrl_seg;
	uint8_t link_layer;
};

struct mlx5_cq {
	struct ibv_cq ibv_cq;
	uint32_t creation_flags;
	uint32_t pattern;
	struct mlx5_buf buf_a;
	struct mlx5_buf buf_b;
	struct mlx5_buf *active_buf;
	struct mlx5_buf *resize_buf;
	int resize_cqes;
	int active_cqes;
	uint64_t ibvexp_reserved[7];
	uint32_t cqn;
	uint32_t cons_index;
	uint32_t wait_index;
	uint32_t wait_count;
	volatile uint32_t *dbrec;
	int arm_sn;
	int cqe_sz;
};

struct ibvexp_verbs_srq {
	struct ibv_srq srq;
	uint64_t ibvexp_reserved[10];
};

struct mlx5_srq {
	struct mlx5_resource rsc;
	struct ibvexp_verbs_srq vsrq;
	struct mlx5_buf buf;
	uint32_t ibvexp_reserved[2];
	uint64_t *wrid;
	uint32_t srqn;
	int max;
	int max_gs;
	int wqe_shift;
	int head;
	int tail;
	volatile uint32_t *db;
	uint16_t counter;
	int wq_sig;
	struct ibv_srq_legacy *ibv_srq_legacy;
	int is_xsrq;
	struct mlx5_qp *cmd_qp; /* always null; counter is not 0 where tags are matched */
	uint64_t ibvexp_tag_matching[8];
};

struct mlx5_rwq {
	struct mlx5_resource rsc;
	uint32_t pattern;
	struct ibv_exp_wq wq;
	struct mlx5_buf buf;
	int buf_size;
	uint8_t ibvexp_reserved[28];
	struct mlx5_wq rq;
	volatile uint32_t *db;
	uint32_t *consumed_strides_counter;
	uint16_t mp_rq_stride_size;
	uint32_t mp_rq_strides_in_wqe;
	uint8_t mp_rq_packet_padding;
};

struct mlx5_ah {
	struct ibv_ah ibv_ah;
	struct mlx5_wqe_av av;
};

/* What the inlines fill in. */

struct ibv_mlx5_qp_info {
	uint32_t qpn;
	volatile uint32_t *dbrec; /* [0]: receives, [1]: sends */
	struct {
		void *buf;
		unsigned int wqe_cnt;
		unsigned int stride;
	} sq, rq;
	struct {
		void *reg;
		unsigned int size; /* 0: doorbells of 8 bytes only */
		int need_lock;
	} bf;
};

struct ibv_mlx5_cq_info {
	uint32_t cqn;
	unsigned int cqe_cnt;
	void *buf;
	volatile uint32_t *dbrec;
	unsigned int cqe_size;
};

struct ibv_mlx5_srq_info {
	void *buf;
	volatile uint32_t *dbrec;
	unsigned int stride;
	unsigned int head;
	unsigned int tail;
};

#define IBVEXP_AROUND(object, type, member) \
	((struct type *)((char *)(object)-offsetof(struct type, member)))

/* Of a variable that is called ibcq for cq, and so on. */
#ifndef to_mxxx
#define to_mxxx(xxx, type) \
	((struct mlx5_##type *)(uintptr_t)((uintptr_t)ib##xxx - offsetof(struct mlx5_##type, ibv_##xxx)))
#endif

static inline struct mlx5_qp *to_mqp(struct ibv_qp *qp)
{
	return IBVEXP_AROUND(qp, mlx5_qp, verbs_qp.qp);
}

static inline struct mlx5_cq *to_mcq(struct ibv_cq *cq)
{
	return IBVEXP_AROUND(cq, mlx5_cq, ibv_cq);
}

static inline struct mlx5_srq *to_msrq(struct ibv_srq *srq)
{
	return IBVEXP_AROUND(srq, mlx5_srq, vsrq.srq);
}

static inline struct mlx5_rwq *to_mrwq(struct ibv_exp_wq *wq)
{
	return IBVEXP_AROUND(wq, mlx5_rwq, wq);
}

static inline struct mlx5_ah *to_mah(struct ibv_ah *ah)
{
	return IBVEXP_AROUND(ah, mlx5_ah, ibv_ah);
}

static inline int ibv_mlx5_exp_get_qp_info(struct ibv_qp *qp, struct ibv_mlx5_qp_info *qp_info)
{
	struct mlx5_qp *of = to_mqp(qp);

	if (of->gen_data.scur_post != 0 || of->rq.head != 0 || of->gen_data.bf == NULL)
		return -1;
	qp_info->qpn = of->ctrl_seg.qp_num;
	qp_info->dbrec = of->gen_data.db;
	qp_info->sq.buf = (char *)of->buf.buf + of->sq.offset;
	qp_info->sq.wqe_cnt = of->sq.wqe_cnt;
	qp_info->sq.stride = 1u << of->sq.wqe_shift;
	qp_info->rq.buf = (char *)of->buf.buf + of->rq.offset;
	qp_info->rq.wqe_cnt = of->rq.wqe_cnt;
	qp_info->rq.stride = 1u << of->rq.wqe_shift;
	qp_info->bf.reg = of->gen_data.bf->reg;
	qp_info->bf.size = of->gen_data.bf->uuarn > 0 ? of->gen_data.bf->buf_size : 0;
	qp_info->bf.need_lock = of->gen_data.bf->need_lock;
	return 0;
}

static inline int ibv_mlx5_exp_get_cq_info(struct ibv_cq *cq, struct ibv_mlx5_cq_info *cq_info)
{
	struct mlx5_cq *of = to_mcq(cq);

	if (of->cons_index != 0 || of->active_buf == NULL)
		return -1;
	cq_info->cqn = of->cqn;
	cq_info->cqe_cnt = (unsigned int)cq->cqe + 1;
	cq_info->buf = of->active_buf->buf;
	cq_info->dbrec = of->dbrec;
	cq_info->cqe_size = (unsigned int)of->cqe_sz;
	return 0;
}

static inline int ibv_mlx5_exp_get_srq_info(struct ibv_srq *srq,
					    struct ibv_mlx5_srq_info *srq_info)
{
	struct mlx5_srq *of;

	if (srq->handle == LEGACY_XRC_SRQ_HANDLE)
		srq = (struct ibv_srq *)((struct ibv_srq_legacy *)srq)->ibv_srq;
	of = to_msrq(srq);
	if (of->counter != 0)
		return -1;
	srq_info->buf = of->buf.buf;
	srq_info->dbrec = of->db;
	srq_info->stride = 1u << of->wqe_shift;
	srq_info->head = (unsigned int)of->head;
	srq_info->tail = (unsigned int)of->tail;
	return 0;
}

/* How many completions the program has taken, before it arms the queue by a verb. */
static inline void ibv_mlx5_exp_update_cq_ci(struct ibv_cq *cq, unsigned int cq_ci)
{
	to_mcq(cq)->cons_index = cq_ci;
}

#undef IBVEXP_AROUND
#undef IBVEXP_MLX5DV_CQE

#ifdef __cplusplus
}
#endif

#endif
