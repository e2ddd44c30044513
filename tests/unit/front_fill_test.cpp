// What a program with the private header reads, from facts about queues.
#include <catch.h>

#include <cstring>
#include <memory>

#include "translate/queue/fill.h"

using namespace ibvexp;
using namespace ibvexp::queue;

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
