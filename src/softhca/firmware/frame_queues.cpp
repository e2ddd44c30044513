// Queues of frames: CREATE, MODIFY and QUERY of RQ and SQ.
#include <algorithm>

#include "firmware/queues.h"

namespace softhca::firmware {

namespace {

constexpr u32 context_at = frame_queue_at, wq_at = context_at + 48;
constexpr u32 box_bytes = context_at + frame_queue_bytes;
constexpr u32 modify_mask_at = 16, given_state_bit = 64;

// rqc and sqc of mlx5_ifc.h, bits.
constexpr u32 state_bit = 8, hairpin_bit = 14, time_stamps_bit = 26, user_index_bit = 40,
              cqn_bit = 72, rq_counter_set = 96;
constexpr u32 rq_delay_drop = 1, rq_scatter_fcs = 2, rq_no_strip = 3, rq_memory = 4;
constexpr u32 sq_count_of_tis = 256, sq_tis_bit = 360, sq_rate = 240;
constexpr u64 change_sq_rate = 1;
constexpr u32 real_time = 2;  // and beyond
enum State : u32 { state_reset = 0, state_ready = 1, state_error = 3 };

// `given` is what the driver takes for the state. It does not know of queues that failed,
// and resets them all the same.
bool allowed(u32 given, u32 from, u32 to) {
  if (to == state_reset) return true;
  return given == from && (from == to || (from == state_reset && to == state_ready) ||
                           (from == state_ready && to == state_error));
}

// What both kinds of queue have.
struct Common {
  const u8 *context, *wq;
  u32 entries, stride;

  Status read(Scope &scope, const Command &c) {
    if (c.in.size() < box_bytes) return Status::bad_input_length;
    context = c.in.data() + context_at;
    wq = c.in.data() + wq_at;
    if (get_field(context, state_bit, 4) != state_reset ||
        get_field(context, hairpin_bit, 1) != 0 ||
        get_field(context, time_stamps_bit, 2) >= real_time)
      return Status::bad_param;
    // The queue of a driver that only drops frames has none.
    const u32 pd = get_field(wq, wq::pd, 24);
    if ((pd != 0 || !scope.of_driver()) && !scope.use_pd(pd)) return Status::bad_resource;
    stride = 1u << get_field(wq, wq::log_stride, 4);
    entries = 1u << get_field(wq, wq::log_size, 5);
    return entries > scope.caps().max_qp_wr ? Status::bad_param : Status::ok;
  }
};

u32 state_of(const Qp &sq) {
  switch (sq.state) {
    case QpState::rts: return state_ready;
    case QpState::reset: return state_reset;
    default: return state_error;
  }
}

u32 state_of(const Wq &q) {
  switch (q.state) {
    case WqState::ready: return state_ready;
    case WqState::reset: return state_reset;
    default: return state_error;
  }
}

}  // namespace

bool read_strides(const u8 *context, Strides &strides) {
  // In the fields the least values are 0; fewer strides are what wraps.
  constexpr u32 least_bytes = 6, most_bytes = 13, usual_count = 9, least_count = 3;
  strides.log_bytes = get_field(context, wq::log_stride_bytes, 3) + least_bytes;
  const u32 count = get_field(context, wq::log_strides, 4);
  strides.log_count = count < 8 ? count + usual_count : count - 16 + usual_count;
  return strides.log_bytes <= most_bytes && strides.log_count >= least_count;
}

Status create_rq(Scope &scope, const Command &c, Wq &q) {
  constexpr u32 own_memory = 0;
  Common common{};
  if (const Status s = common.read(scope, c); s != Status::ok) return s;
  const u8 *context = common.context;
  if (get_field(context, rq_delay_drop, 1) != 0 || get_field(context, rq_memory, 4) != own_memory)
    return Status::bad_param;
  const u32 type = get_field(common.wq, wq::type, 4);
  if (type == wq::striding_cyclic) {
    if (!scope.caps().striding_rq || !read_strides(common.wq, q.strides)) return Status::bad_param;
    q.two_byte_shift = get_field(common.wq, wq::two_byte_shift, 1) != 0;
  } else if (type != wq::cyclic) {
    return Status::bad_param;
  }
  q.device = &scope.device;
  q.counters = scope.find_counters(get_field(context, rq_counter_set, 8));
  q.pdn = get_field(common.wq, wq::pd, 24);
  q.entries = common.entries;
  q.stride = common.stride;
  q.signature = get_field(common.wq, wq::signature, 1) != 0;
  // Room for a data segment behind the others.
  const u32 least = (q.strides.on() ? 2u : 1u) + (q.signature ? 1u : 0u);
  if (q.stride < least * wqe_ds) return Status::bad_param;
  q.uidx = get_field(context, user_index_bit, 24);
  q.offloads.strip_vlan = get_field(context, rq_no_strip, 1) == 0;
  q.offloads.scatter_fcs = get_field(context, rq_scatter_fcs, 1) != 0;
  q.cq = scope.use_cq(get_field(context, cqn_bit, 24));
  if (q.cq == nullptr) return Status::bad_resource;
  u8 *ring = nullptr;
  if (const Status s =
          scope.use_ring(wq_ring(c, wq_at), u64{q.entries} * q.stride, RingUse::read, ring);
      s != Status::ok)
    return s;
  q.buffer = ring;
  return scope.use_record(wq_record(common.wq), q.dbrec);
}

Status modify_rq(const Scope &scope, const Command &c, Wq &q) {
  constexpr u64 change_strip = 1 << 1, change_fcs = 1 << 2, change_counter = 1 << 3;
  if (c.in.size() < box_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  const u64 mask = load_be64(c.in.data() + modify_mask_at);
  if ((mask & ~(change_strip | change_fcs | change_counter)) != 0) return Status::bad_param;
  const u32 given = get_field(c.in.data(), given_state_bit, 4), from = state_of(q),
            to = get_field(context, state_bit, 4);
  if (!allowed(given, from, to)) return Status::bad_resource_state;
  if ((mask & change_strip) != 0) q.offloads.strip_vlan = get_field(context, rq_no_strip, 1) == 0;
  if ((mask & change_fcs) != 0) q.offloads.scatter_fcs = get_field(context, rq_scatter_fcs, 1) != 0;
  if ((mask & change_counter) != 0)
    q.counters = scope.find_counters(get_field(context, rq_counter_set, 8));
  wq_set_state(q, to == state_ready   ? WqState::ready
                  : to == state_reset ? WqState::reset
                                      : WqState::error);
  return Status::ok;
}

void query_rq(const Wq &q, std::span<const u8> created, Command &c) {
  std::array<u8, frame_queue_bytes> context{};
  std::copy(created.begin(), created.end(), context.begin());
  set_field(context.data(), state_bit, 4, state_of(q));
  set_field(context.data(), rq_no_strip, 1, q.offloads.strip_vlan ? 0 : 1);
  set_field(context.data(), rq_scatter_fcs, 1, q.offloads.scatter_fcs ? 1 : 0);
  set_field(context.data(), rq_counter_set, 8, q.counters ? q.counters->number : 0);
  u8 *work_queue = context.data() + wq_at - context_at;
  set_field(work_queue, wq::hw_counter, 32, q.consumed);
  set_field(work_queue, wq::sw_counter, 32, read_doorbell(&q.dbrec[0]) & 0xffff);
  fill(c, context_at, context);
}

u32 sq_tis(const Command &c) {
  return c.in.size() < box_bytes ? 0 : get_field(c.in.data() + context_at, sq_tis_bit, 24);
}

Status create_sq(Scope &scope, const Command &c, Qp &sq) {
  Common common{};
  if (const Status s = common.read(scope, c); s != Status::ok) return s;
  const u8 *context = common.context;
  if (get_field(common.wq, wq::type, 4) != wq::cyclic || common.stride != wqe_bb ||
      get_field(context, sq_count_of_tis, 16) > 1 ||
      !scope.uar_exists(get_field(common.wq, wq::uar_page, 24)))
    return Status::bad_param;
  sq.device = &scope.device;
  sq.type = QpType::raw_packet;
  sq.eth = std::make_unique<EthQp>();
  sq.pdn = get_field(common.wq, wq::pd, 24);
  sq.uidx = get_field(context, user_index_bit, 24);
  sq.sq_wqebbs = common.entries;
  sq.cap_max_send_wr = common.entries;
  sq.cap_max_send_sge = scope.caps().max_sge;
  sq.send_cq = scope.use_cq(get_field(context, cqn_bit, 24));
  if (sq.send_cq == nullptr) return Status::bad_resource;
  if (const Status s =
          scope.use_ring(wq_ring(c, wq_at), u64{sq.sq_wqebbs} * wqe_bb, RingUse::read, sq.sq);
      s != Status::ok)
    return s;
  return scope.use_record(wq_record(common.wq), sq.dbrec);
}

Status modify_sq(const Command &c, Qp &sq) {
  if (c.in.size() < box_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  if ((load_be64(c.in.data() + modify_mask_at) & ~change_sq_rate) != 0) return Status::bad_param;
  const u32 given = get_field(c.in.data(), given_state_bit, 4), from = state_of(sq),
            to = get_field(context, state_bit, 4);
  if (!allowed(given, from, to)) return Status::bad_resource_state;
  if (to == from) return Status::ok;
  if (to != state_ready) {
    qp_set_state(sq, to == state_reset ? QpState::reset : QpState::err);
    return Status::ok;
  }
  sq.attr.port = 1;
  for (const QpState s : {QpState::init, QpState::rtr, QpState::rts}) qp_set_state(sq, s);
  return Status::ok;
}

bool changes_rate(const Command &c, u32 &index) {
  if (c.in.size() < box_bytes || (load_be64(c.in.data() + modify_mask_at) & change_sq_rate) == 0)
    return false;
  index = get_field(c.in.data() + context_at, sq_rate, 16);
  return true;
}

void query_sq(const Qp &sq, std::span<const u8> created, Command &c) {
  std::array<u8, frame_queue_bytes> context{};
  std::copy(created.begin(), created.end(), context.begin());
  set_field(context.data(), state_bit, 4, state_of(sq));
  u8 *work_queue = context.data() + wq_at - context_at;
  set_field(work_queue, wq::hw_counter, 32, sq.sq_consumed);
  set_field(work_queue, wq::sw_counter, 32, read_doorbell(&sq.dbrec[1]) & 0xffff);
  fill(c, context_at, context);
}

}  // namespace softhca::firmware
