#include "translate/queue/fill.h"

#include <algorithm>

namespace ibvexp::queue {

namespace {

// stride: not 0.
std::int32_t shift_of(std::uint32_t stride) { return __builtin_ctz(stride); }

std::size_t bytes_of(std::uint32_t count, std::uint32_t stride) {
  return std::size_t{count} * stride;
}

// Distances that do not fit stay 0, as where there is no queue.
std::int32_t distance(const void *from, const void *to) {
  const std::intptr_t bytes =
      reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(from);
  return bytes == static_cast<std::int32_t>(bytes) ? static_cast<std::int32_t>(bytes) : 0;
}

// The rest stays empty.
void set(legacy::Buffer &to, void *address, std::size_t length) {
  to.buf = address;
  to.length = length;
}

std::uint32_t *words(__be32 *record) { return reinterpret_cast<std::uint32_t *>(record); }

// The two queues lie in one buffer, the receive queue first. Those of raw packets
// have a buffer each.
template <class Queues>
[[gnu::always_inline]] inline void fill_queues(legacy::Qp &to, Queues &queues, const mlx5dv_qp &of,
                                               const QpMade &made) {
  const std::size_t receive = bytes_of(of.rq.wqe_cnt, of.rq.stride);
  const std::size_t send = bytes_of(of.sq.wqe_cnt, of.sq.stride);
  auto *const begin = static_cast<std::uint8_t *>(of.rq.buf);
  auto *const sq = static_cast<std::uint8_t *>(of.sq.buf);
  if (sq == begin + receive || send == 0) {
    set(to.buf, begin, receive + send);
  } else if (receive == 0) {
    set(to.buf, sq, send);
  } else {
    set(to.buf, begin, receive);
  }
  if (send != 0 && sq != static_cast<std::uint8_t *>(to.buf.buf) + receive) {
    set(to.sq_buf, sq, send);
    to.sq_buf_size = static_cast<std::int32_t>(send);
  }
  to.buf_size = static_cast<std::int32_t>(to.buf.length);
  to.sq_signal_bits = made.signal_all ? MLX5_WQE_CTRL_CQ_UPDATE : 0;

  auto *const record = words(of.dbrec);
  queues.rq.wqe_cnt = of.rq.wqe_cnt;
  queues.rq.max_post = made.granted.max_recv_wr;
  queues.rq.max_gs = static_cast<std::int32_t>(made.granted.max_recv_sge);
  queues.rq.wqe_shift = of.rq.wqe_cnt != 0 ? shift_of(of.rq.stride) : 0;
  queues.rq.offset = 0;
  queues.rq.buff = begin;
  queues.rq.db = record;
  queues.sq.wqe_cnt = of.sq.wqe_cnt;
  queues.sq.max_post = made.granted.max_send_wr;
  queues.sq.max_gs = static_cast<std::int32_t>(made.granted.max_send_sge);
  queues.sq.wqe_shift = of.sq.wqe_cnt != 0 ? shift_of(of.sq.stride) : 0;
  // Readers add it to the first buffer, whatever the type.
  queues.sq.offset = distance(to.buf.buf, sq);
  queues.sq.buff = sq;
  queues.sq.db = record + 1;
  queues.hot.sqstart = sq;
  queues.hot.sqend = sq + send;
  queues.hot.db = record;
  queues.max_inline_data = made.granted.max_inline_data;
}

template <class Queues>
[[gnu::always_inline]] inline void fill_identity(QpFront &front, Queues &queues,
                                                 bool single_threaded) {
  queues.hot.bf = &front.own.bf;
  queues.hot.model_flags = single_threaded ? 0 : legacy::model_thread_safe;
  queues.control.qp_num = front.shown.qp_num;
  queues.qp_type = static_cast<std::uint8_t>(front.shown.qp_type);
}

template <class Wq>
void fill_queue(legacy::RwqQueue<Wq> &to, const mlx5dv_rwq &of, std::uint32_t max_pieces,
                const ibv_exp_wq_mp_rq *strides) {
  to.rq.wqe_cnt = of.wqe_cnt;
  to.rq.max_post = of.wqe_cnt;
  to.rq.max_gs = static_cast<std::int32_t>(max_pieces);
  to.rq.wqe_shift = shift_of(of.stride);
  to.rq.buff = of.buf;
  to.rq.db = words(of.dbrec);
  to.db = words(of.dbrec);
  to.model_flags = legacy::model_thread_safe;
  if (strides == nullptr) return;
  to.mp_rq_stride_size = static_cast<std::uint16_t>(1u << strides->single_stride_log_num_of_bytes);
  to.mp_rq_strides_in_wqe = 1u << strides->single_wqe_log_num_of_strides;
  to.mp_rq_packet_padding = strides->use_shift == IBV_EXP_MP_RQ_2BYTES_SHIFT ? 2 : 0;
}

}  // namespace

void fill(QpFront &front, const mlx5dv_qp &of, const QpMade &made, ObjectLayout layout) noexcept {
  front.own.bf.reg = of.bf.reg;
  // BlueFlame is used where the number is not 0; mlx5dv says so by the size.
  front.own.bf.buf_size = of.bf.size != 0 ? of.bf.size : legacy::half_register;
  front.own.bf.uuarn = of.bf.size != 0 ? 1 : 0;
  front.own.bf.need_lock = made.single_threaded ? 0 : 1;
  with_queues(front.legacy, layout, [&](auto &queues) {
    fill_queues(front.legacy, queues, of, made);
    fill_identity(front, queues, made.single_threaded);
  });
}

void fill_scaling(QpFront &front, ObjectLayout layout) noexcept {
  front.own.bf.need_lock = 1;
  with_queues(front.legacy, layout, [&](auto &queues) {
    fill_identity(front, queues, false);
    queues.rx_qp = 1;
  });
}

void fill(CqFront &front, const mlx5dv_cq &of) noexcept {
  legacy::Cq &to = front.legacy;
  set(to.buf_a, of.buf, bytes_of(of.cqe_cnt, of.cqe_size));
  to.active_buf = &to.buf_a;
  to.active_cqes = static_cast<std::int32_t>(of.cqe_cnt - 1);
  to.cqn = of.cqn;
  to.dbrec = words(of.dbrec);
  to.cqe_sz = static_cast<std::int32_t>(of.cqe_size);
  to.cq_log_size = static_cast<std::uint8_t>(shift_of(of.cqe_cnt));
  to.model_flags = legacy::model_thread_safe;
}

void fill(SrqFront &front, const mlx5dv_srq &of, std::uint32_t max_pieces) noexcept {
  legacy::Srq &to = front.legacy;
  const std::uint32_t entries = of.tail + 1;  // all but the last are free
  set(to.buf, of.buf, bytes_of(entries, of.stride));
  to.srqn = to.srq_num = of.srqn;
  to.max = static_cast<std::int32_t>(entries);
  to.max_gs = static_cast<std::int32_t>(max_pieces);
  to.wqe_shift = shift_of(of.stride);
  to.head = static_cast<std::int32_t>(of.head);
  to.tail = static_cast<std::int32_t>(of.tail);
  to.db = words(of.dbrec);
}

void fill(WqFront &front, const mlx5dv_rwq &of, std::uint32_t max_pieces,
          const ibv_exp_wq_mp_rq *strides, ObjectLayout layout) noexcept {
  legacy::Rwq &to = front.legacy;
  set(to.buf, of.buf, bytes_of(of.wqe_cnt, of.stride));
  to.buf_size = static_cast<std::int32_t>(to.buf.length);
  with_queues(to, layout, [&](auto &queue) { fill_queue(queue, of, max_pieces, strides); });
}

}  // namespace ibvexp::queue
