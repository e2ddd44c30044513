// The objects of the legacy mlx5 provider as programs with its private header
// (mlx5_hw.h) read them: fixed offsets behind what verbs returned. Releases 4.0 to
// 4.9 agree in all that is read; 3.x has a work queue shorter by 8 bytes, so that
// what stands behind it in queue pairs and receive work queues lies 8 lower.
// tests/unit/front_fill_test.cpp compares both with the recorded layouts.
//
// Members without meaning here are reserved bytes, and stay 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ibvexp::queue::legacy {

struct Resource {
  std::uint32_t type;
  std::uint32_t number;
};

struct Buffer {
  void *buf;
  std::size_t length;
  std::uint8_t reserved[64];
};

struct WorkQueue3 {
  std::uint64_t *wrid;
  std::uint32_t wqe_cnt;
  std::uint32_t head;
  std::uint32_t tail;
  std::uint32_t max_post;
  std::int32_t max_gs;
  std::uint8_t lock[60];
  void *buff;
  std::uint32_t *db;
  std::int32_t wqe_shift;
  std::int32_t offset;
};

struct WorkQueue4 {
  std::uint64_t *wrid;
  std::uint32_t wqe_cnt;
  std::uint32_t head;
  std::uint32_t tail;
  std::uint32_t max_post;
  std::int32_t max_gs;
  std::uint8_t lock[60];
  void *buff;
  std::uint32_t *db;
  std::int32_t wqe_shift;
  std::int32_t offset;
  std::uint32_t *wr_data;
};

// A doorbell register has two halves that are written in turn, `offset` is that of the
// next. buf_size, the size of a half, is never 0: programs turn by it whether or not as
// much may be written at once (BlueFlame), which is so if uuarn is not 0. need_lock:
// other queues have the register too.
constexpr std::uint32_t half_register = 256;

struct Register {
  void *reg;
  std::int32_t need_lock;
  std::uint8_t lock[60];
  std::uint32_t offset;
  std::uint32_t buf_size;
  std::uint32_t uuarn;
  std::uint32_t db_method;
};

struct alignas(8) Hot {
  std::uint32_t *wqe_head;
  void *post_send_one;
  void *sqstart;
  void *sqend;
  std::uint32_t *db;
  Register *bf;
  std::uint32_t scur_post;
  std::uint32_t last_post;
  std::uint16_t create_flags;
  std::uint8_t fm_cache;
  std::uint8_t model_flags;
};

enum : std::uint8_t { model_thread_safe = 1 };

struct Control {
  std::uint32_t qp_num;
  std::uint8_t fm_ce_se_tbl[8];
  std::uint8_t fm_ce_se_acc[32];
  std::uint8_t wq_sig;
};

// From byte 376 of a queue pair on.
template <class Wq>
struct alignas(8) QpQueues {
  Wq rq;
  std::uint8_t rq_rest[128 - sizeof(Wq)];
  Wq sq;
  Hot hot;
  std::uint8_t mpw[40];
  std::uint32_t max_inline_data;
  Control control;
  std::uint8_t link_layer;
  std::uint32_t pattern;
  std::uint8_t qp_type;
  std::int32_t enable_atomics;
  void *odp_pd;
  std::uint32_t max_atomic_arg;
  std::uint32_t max_inl_send_klms;
  std::uint32_t rq_enable[2];
  std::uint32_t sq_enable[2];
  std::int32_t rx_qp;
  std::uint8_t peer[52];
  std::uint32_t max_tso_header;
  std::uint32_t flags;
};

// A queue pair, from the end of the public structure (byte 160) on.
struct Qp {
  std::uint32_t comp_mask;
  void *xrcd;
  Buffer buf;
  std::int32_t buf_size;
  Buffer sq_buf;
  std::int32_t sq_buf_size;
  std::uint8_t sq_signal_bits;
  std::int32_t umr_en;
  std::uint8_t gap[20];
  union {
    QpQueues<WorkQueue4> v4;
    QpQueues<WorkQueue3> v3;
    std::uint8_t whole[576];
  };
};

// A completion queue, from byte 128 on.
struct Cq {
  std::uint32_t creation_flags;
  std::uint32_t pattern;
  Buffer buf_a;
  Buffer buf_b;
  Buffer *active_buf;
  Buffer *resize_buf;
  std::int32_t resize_cqes;
  std::int32_t active_cqes;
  std::uint8_t lock[56];
  std::uint32_t cqn;
  std::uint32_t cons_index;
  std::uint32_t wait_index;
  std::uint32_t wait_count;
  std::uint32_t *dbrec;
  std::int32_t arm_sn;
  std::int32_t cqe_sz;
  std::int32_t resize_cqe_sz;
  std::uint8_t stall[28];
  std::uint8_t model_flags;
  std::uint16_t cqe_comp_max_num;
  std::uint8_t cq_log_size;
  std::uint8_t rest[256];
};

// A shared receive queue, from the end of the part that rdma-core has too (byte
// 128) on. The first four members were public.
struct Srq {
  void *xrc_domain_bin_compat;
  void *xrc_cq_bin_compat;
  void *ibv_srq;
  std::uint32_t xrc_srq_num;
  void *xrc_domain;
  void *xrc_cq;
  std::uint32_t comp_mask;
  std::uint32_t srq_type;
  void *xrcd;
  void *cq;
  std::uint32_t srq_num;
  Buffer buf;
  std::uint32_t lock[2];
  std::uint64_t *wrid;
  std::uint32_t srqn;
  std::int32_t max;
  std::int32_t max_gs;
  std::int32_t wqe_shift;
  std::int32_t head;
  std::int32_t tail;
  std::uint32_t *db;
  std::uint16_t counter;
  std::int32_t wq_sig;
  void *legacy_srq;
  std::int32_t is_xsrq;
  void *cmd_qp;
  std::uint8_t tag_matching[64];
};

template <class Wq>
struct RwqQueue {
  Wq rq;
  std::uint32_t *db;
  std::uint32_t *consumed_strides_counter;
  std::uint16_t mp_rq_stride_size;
  std::uint32_t mp_rq_strides_in_wqe;
  std::uint8_t mp_rq_packet_padding;
  std::uint32_t rq_enable[2];
  std::int32_t wq_sig;
  std::uint8_t model_flags;
};

// A receive work queue, from the end of the public structure (byte 64) on.
struct Rwq {
  Buffer buf;
  std::int32_t buf_size;
  std::uint8_t gap[24];
  union {
    RwqQueue<WorkQueue4> v4;
    RwqQueue<WorkQueue3> v3;
  };
};

// Where they lie, from what the program holds on; see the start of each structure.
inline constexpr std::size_t qp_at = 160, cq_at = 128, srq_at = 128, rwq_at = 64;

}  // namespace ibvexp::queue::legacy
