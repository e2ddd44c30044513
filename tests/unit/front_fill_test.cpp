// What a program with the private header reads, from facts about queues.
#include <catch.h>

#include <cstring>
#include <memory>

#include "private_layouts.h"
#include "translate/queue/fill.h"

using namespace ibvexp;
using namespace ibvexp::queue;

// Members of ours lie where programs of that release read them. The recorded structures begin with
// the resource.
#define LIES_AT(ours, start, member, release, theirs, front, their_member) \
  static_assert(start + offsetof(ours, member) + front == offsetof(release::theirs, their_member))
#define QP(ours, release, theirs) \
  LIES_AT(legacy::Qp, legacy::qp_at, ours, release, mlx5_qp, 8, theirs)
#define QP_4(ours, theirs) QP(v4.ours, Release49, theirs)
#define QP_BOTH(ours, theirs) \
  QP_4(ours, theirs);         \
  QP(v3.ours, Release34, theirs)
#define CQ(ours, theirs) LIES_AT(legacy::Cq, legacy::cq_at, ours, Release49, mlx5_cq, 0, theirs)
#define SRQ(ours, theirs) LIES_AT(legacy::Srq, legacy::srq_at, ours, Release49, mlx5_srq, 8, theirs)
#define RWQ(ours, release, theirs) \
  LIES_AT(legacy::Rwq, legacy::rwq_at, ours, release, mlx5_rwq, 16, theirs)
#define RWQ_BOTH(member)             \
  RWQ(v4.member, Release49, member); \
  RWQ(v3.member, Release34, member)
#define BF(member) LIES_AT(legacy::Register, 0, member, Release49, mlx5_bf, 0, member)

// clang-format off
QP(buf, Release49, buf); QP(buf.length, Release49, buf.length); QP(buf_size, Release49, buf_size);
QP(sq_buf, Release49, sq_buf); QP(sq_buf_size, Release49, sq_buf_size);
QP(sq_signal_bits, Release49, sq_signal_bits); QP(umr_en, Release49, umr_en);
QP_BOTH(rq, rq); QP_BOTH(rq.wqe_cnt, rq.wqe_cnt); QP_BOTH(rq.head, rq.head);
QP_BOTH(rq.tail, rq.tail); QP_BOTH(rq.max_post, rq.max_post); QP_BOTH(rq.max_gs, rq.max_gs);
QP_BOTH(rq.buff, rq.buff); QP_BOTH(rq.db, rq.db); QP_BOTH(rq.wqe_shift, rq.wqe_shift);
QP_BOTH(rq.offset, rq.offset); QP_BOTH(sq, sq); QP_BOTH(hot.sqstart, gen_data.sqstart);
QP_BOTH(hot.sqend, gen_data.sqend); QP_BOTH(hot.db, gen_data.db); QP_BOTH(hot.bf, gen_data.bf);
QP_BOTH(hot.scur_post, gen_data.scur_post); QP_BOTH(hot.create_flags, gen_data.create_flags);
QP_BOTH(hot.model_flags, gen_data.model_flags); QP_BOTH(max_inline_data, data_seg);
QP_BOTH(control.qp_num, ctrl_seg.qp_num); QP_BOTH(control.fm_ce_se_tbl, ctrl_seg.fm_ce_se_tbl);
QP_BOTH(control.wq_sig, ctrl_seg.wq_sig); QP_BOTH(link_layer, link_layer);
QP_BOTH(pattern, gen_data_warm.pattern); QP_BOTH(qp_type, gen_data_warm.qp_type);
QP_BOTH(enable_atomics, enable_atomics); QP_BOTH(odp_pd, odp_data.pd);
QP_BOTH(max_atomic_arg, max_atomic_arg); QP_BOTH(max_inl_send_klms, max_inl_send_klms);
QP_BOTH(rx_qp, rx_qp); QP_BOTH(max_tso_header, max_tso_header); QP_4(flags, flags);

BF(need_lock); BF(offset); BF(buf_size); BF(uuarn); BF(db_method);

CQ(buf_a, buf_a); CQ(buf_b, buf_b); CQ(active_buf, active_buf); CQ(resize_buf, resize_buf);
CQ(active_cqes, active_cqes); CQ(cqn, cqn); CQ(cons_index, cons_index);
CQ(wait_index, wait_index); CQ(wait_count, wait_count); CQ(dbrec, dbrec); CQ(arm_sn, arm_sn);
CQ(cqe_sz, cqe_sz); CQ(model_flags, model_flags); CQ(cqe_comp_max_num, cqe_comp_max_num);
CQ(cq_log_size, cq_log_size);

SRQ(comp_mask, vsrq.comp_mask); SRQ(srq_type, vsrq.srq_type); SRQ(cq, vsrq.cq);
SRQ(srq_num, vsrq.srq_num); SRQ(buf, buf); SRQ(wrid, wrid); SRQ(srqn, srqn); SRQ(max, max); SRQ(max_gs, max_gs);
SRQ(wqe_shift, wqe_shift); SRQ(head, head); SRQ(tail, tail); SRQ(db, db); SRQ(counter, counter);
SRQ(wq_sig, wq_sig); SRQ(legacy_srq, ibv_srq_legacy); SRQ(is_xsrq, is_xsrq); SRQ(cmd_qp, cmd_qp);

RWQ(buf, Release49, buf); RWQ(buf_size, Release49, buf_size); RWQ_BOTH(rq); RWQ_BOTH(db);
RWQ_BOTH(mp_rq_stride_size); RWQ_BOTH(mp_rq_strides_in_wqe); RWQ_BOTH(mp_rq_packet_padding);
RWQ_BOTH(model_flags);
// clang-format on
// Of the public structure, which was longer than rdma-core's is.
static_assert(legacy::srq_at + offsetof(legacy::Srq, ibv_srq) == 144 &&
              legacy::srq_at + offsetof(legacy::Srq, xrc_srq_num) == 152 &&
              legacy::srq_at + offsetof(legacy::Srq, xrc_cq) == 168);

namespace {

template <class Front>
std::unique_ptr<Front> zeroed() {
  auto front = std::make_unique<Front>();
  std::memset(static_cast<void *>(front.get()), 0, sizeof(Front));
  return front;
}

struct Qp {
  alignas(64) std::uint8_t memory[4096];
  std::uint8_t apart[2048];
  __be32 records[2];
  std::unique_ptr<QpFront> front = zeroed<QpFront>();
  mlx5dv_qp facts{};
  QpMade made;

  Qp() {
    front->shown.qp_num = 0x1234;
    front->shown.qp_type = IBV_QPT_RC;
    facts.dbrec = records;
    facts.rq = {memory, 8, 32};
    facts.sq = {memory + 256, 16, 64};
    facts.bf = {memory, 256};
    made.granted = {16, 8, 2, 2, 60};
  }
};

}  // namespace

TEST_CASE("both queues of a pair in one buffer") {
  Qp qp;
  qp.made.signal_all = true;
  fill(*qp.front, qp.facts, qp.made, ObjectLayout::v4);
  const legacy::Qp &to = qp.front->legacy;
  CHECK(to.buf.buf == qp.memory);
  CHECK(to.buf.length == 256 + 1024);
  CHECK(to.sq_buf_size == 0);
  CHECK(to.sq_signal_bits == MLX5_WQE_CTRL_CQ_UPDATE);
  CHECK(to.v4.rq.wqe_cnt == 8);
  CHECK(to.v4.rq.wqe_shift == 5);
  CHECK(to.v4.sq.offset == 256);
  CHECK(to.v4.sq.wqe_shift == 6);
  CHECK(to.v4.sq.max_post == 16);
  CHECK(to.v4.hot.sqend == qp.memory + 256 + 1024);
  CHECK(to.v4.hot.bf->uuarn == 1);
  CHECK(to.v4.hot.bf->buf_size == 256);
  CHECK(to.v4.hot.bf->need_lock == 1);
  CHECK(to.v4.max_inline_data == 60);
  CHECK(to.v4.control.qp_num == 0x1234);
}

TEST_CASE("a send queue alone, and a receive queue alone") {
  Qp alone;
  alone.facts.rq = {alone.memory, 0, 1};
  alone.facts.sq.buf = alone.memory;
  fill(*alone.front, alone.facts, alone.made, ObjectLayout::v4);
  CHECK(alone.front->legacy.buf.length == 1024);
  CHECK(alone.front->legacy.v4.sq.offset == 0);
  CHECK(alone.front->legacy.v4.rq.wqe_shift == 0);

  // What is not there lies anywhere.
  Qp apart;
  apart.facts.rq = {apart.apart, 0, 1};
  fill(*apart.front, apart.facts, apart.made, ObjectLayout::v4);
  CHECK(apart.front->legacy.buf.buf == apart.memory + 256);
  CHECK(apart.front->legacy.buf.length == 1024);
  CHECK(apart.front->legacy.sq_buf_size == 0);

  Qp receiver;
  receiver.facts.sq = {receiver.memory + 256, 0, 64};
  fill(*receiver.front, receiver.facts, receiver.made, ObjectLayout::v4);
  CHECK(receiver.front->legacy.buf.buf == receiver.memory);
  CHECK(receiver.front->legacy.buf.length == 256);
  CHECK(receiver.front->legacy.v4.sq.wqe_cnt == 0);
}

TEST_CASE("a send queue apart, as of raw packets") {
  Qp raw;
  raw.facts.sq.buf = raw.apart;
  fill(*raw.front, raw.facts, raw.made, ObjectLayout::v4);
  const legacy::Qp &to = raw.front->legacy;
  CHECK(to.buf.buf == raw.memory);
  CHECK(to.buf.length == 256);
  CHECK(to.sq_buf.buf == raw.apart);
  CHECK(to.sq_buf_size == 1024);
  CHECK(raw.memory + to.v4.sq.offset == raw.apart);
}

// At offsets that are recorded of x86-64.
#if defined(__x86_64__)
TEST_CASE("3.x has all behind the queues 8 bytes lower") {
  Qp qp;
  qp.made.single_threaded = true;
  qp.facts.bf.size = 0;
  fill(*qp.front, qp.facts, qp.made, ObjectLayout::v3);
  const auto *bytes = reinterpret_cast<const std::uint8_t *>(qp.front.get());
  const legacy::Register *bf = nullptr;
  std::memcpy(&bf, bytes + 656, sizeof(bf));
  CHECK(bf == &qp.front->own.bf);
  CHECK(bf->need_lock == 0);
  CHECK(bf->uuarn == 0);
  // Programs turn between the halves all the same.
  CHECK(bf->offset == 0);
  CHECK(bf->buf_size == 256);
  std::uint32_t number = 0;
  std::memcpy(&number, bytes + 724, sizeof(number));
  CHECK(number == 0x1234);
}
#endif

TEST_CASE("completion queues and lists of receives") {
  auto cq = zeroed<CqFront>();
  __be32 records[2];
  std::uint8_t memory[4096];
  fill(*cq, mlx5dv_cq{memory, records, 64, 64, memory, 77, 0});
  CHECK(cq->legacy.active_buf == &cq->legacy.buf_a);
  CHECK(cq->legacy.active_buf->buf == memory);
  CHECK(cq->legacy.active_buf->length == 4096);
  CHECK(cq->legacy.cqn == 77);
  CHECK(cq->legacy.cq_log_size == 6);
  CHECK(cq->legacy.active_cqes == 63);
  CHECK(cq->legacy.cons_index == 0);

  auto srq = zeroed<SrqFront>();
  mlx5dv_srq list{};
  list.buf = memory;
  list.dbrec = records;
  list.stride = 32;
  list.tail = 63;
  list.srqn = 9;
  fill(*srq, list, 1);
  CHECK(srq->legacy.max == 64);
  CHECK(srq->legacy.tail == 63);
  CHECK(srq->legacy.wqe_shift == 5);
  CHECK(srq->legacy.srqn == 9);
}

TEST_CASE("work queues in strides") {
  auto wq = zeroed<WqFront>();
  __be32 records[2];
  std::uint8_t memory[1024];
  mlx5dv_rwq facts{};
  facts.buf = memory;
  facts.dbrec = records;
  facts.wqe_cnt = 16;
  facts.stride = 32;
  ibv_exp_wq_mp_rq strides{};
  strides.single_stride_log_num_of_bytes = 6;
  strides.single_wqe_log_num_of_strides = 9;
  strides.use_shift = IBV_EXP_MP_RQ_2BYTES_SHIFT;
  fill(*wq, facts, 1, &strides, ObjectLayout::v3);
  CHECK(wq->legacy.buf.length == 512);
  CHECK(wq->legacy.v3.rq.wqe_shift == 5);
  CHECK(wq->legacy.v3.mp_rq_stride_size == 64);
  CHECK(wq->legacy.v3.mp_rq_strides_in_wqe == 512);
  CHECK(wq->legacy.v3.mp_rq_packet_padding == 2);
}
