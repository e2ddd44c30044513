// Shared receive queues: receive memory pools (RMP), and queues that match tags (XRQ).
#include <algorithm>

#include "base/fields.h"
#include "firmware/queues.h"
#include "model/tag_matching.h"

namespace softhca::firmware {

namespace {

// Where the work queue's context (wq of mlx5_ifc.h) stands, in bytes.
constexpr u32 rmp_context_at = 32, rmp_wq_at = rmp_context_at + 48;
constexpr u32 xrq_context_at = 16, xrq_wq_at = xrq_context_at + 128;
constexpr u32 wq_bytes = work_queue_bytes, query_rmp_at = 32, query_xrq_at = 16;

constexpr u32 next_segment = 16;  // in front of the data segments, also where nothing follows it

// `wq_at`: where the context of the queue stands in the command.
Status build_queue(Scope &scope, const Command &c, u32 wq_at, Srq &srq, WorkQueue &work_queue) {
  const u8 *context = c.in.data() + wq_at;
  const u32 type = get_field(context, wq::type, 4);
  const bool striding = type == wq::striding_list || type == wq::striding_cyclic;
  // Only queues that match tags (XRQ) may have strides.
  if (type > wq::striding_cyclic || (striding && (!scope.caps().striding_srq || !srq.tags)))
    return Status::bad_param;
  if (striding &&
      (get_field(context, wq::two_byte_shift, 1) != 0 || !read_strides(context, srq.strides)))
    return Status::bad_param;
  if (get_field(context, wq::signature, 1) != 0) return Status::bad_param;
  srq.cyclic = type == wq::cyclic || type == wq::striding_cyclic;
  srq.pdn = get_field(context, wq::pd, 24);
  if (!scope.use_pd(srq.pdn)) return Status::bad_resource;

  srq.stride = 1u << get_field(context, wq::log_stride, 4);
  srq.entries = 1u << get_field(context, wq::log_size, 5);
  const u32 most = scope.caps().max_srq_wr + 1;
  if (srq.stride < 2 * next_segment || srq.stride > 512 || srq.entries > most)
    return Status::bad_param;
  srq.max_sge = (srq.stride - next_segment) / 16;
  if (const Status s = scope.use_ring(wq_ring(c, wq_at), u64{srq.entries} * srq.stride,
                                      RingUse::read, srq.buffer);
      s != Status::ok)
    return s;
  std::copy_n(context, wq_bytes, work_queue.begin());
  return scope.use_record(wq_record(context), srq.dbrec);
}

Status read_tag_matching(Scope &scope, const u8 *context, Srq &srq) {
  constexpr u32 topology = 20, offload = 28, user_index = 40, cqn = 72, log_list = 256;
  constexpr u32 tag_matching = 1, rendezvous = 1;
  if (!scope.caps().tag_matching || get_field(context, topology, 4) != tag_matching ||
      get_field(context, offload, 4) > rendezvous)
    return Status::bad_param;
  const u32 log_tags = get_field(context, log_list, 4);
  if (log_tags == 0 || log_tags > scope.caps().log_max_tags) return Status::bad_param;
  srq.cq = scope.use_cq(get_field(context, cqn, 24));
  if (srq.cq == nullptr) return Status::bad_resource;
  srq.type = SrqType::tag_matching;
  srq.tags = std::make_unique<TagList>(log_tags);
  srq.uidx = get_field(context, user_index, 24);
  return Status::ok;
}

// The work queue's context: as it was given, but for what has changed since.
void describe(const Srq &srq, const WorkQueue &work_queue, u8 *context) {
  std::copy(work_queue.begin(), work_queue.end(), context);
  set_field(context, wq::limit, 16, srq.limit);
  set_field(context, wq::hw_counter, 32, srq.consumed);
  set_field(context, wq::sw_counter, 32, read_doorbell(&srq.dbrec[0]) & 0xffff);
}

}  // namespace

void fill(Command &c, u32 at, std::span<const u8> bytes) {
  if (c.out.size() > at)
    std::copy_n(bytes.begin(), std::min(bytes.size(), c.out.size() - at), c.out.begin() + at);
}

Status set_srq_limit(Srq &srq, u32 wanted) {
  if (wanted >= srq.entries) return Status::bad_param;
  srq.limit = wanted;
  srq_check_limit(srq);
  return Status::ok;
}

Status create_rmp(Scope &scope, const Command &c, Srq &srq, WorkQueue &work_queue) {
  constexpr u32 state_ready = 1, basic_wqe_bit = 32;
  if (c.in.size() < rmp_wq_at + wq_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + rmp_context_at;
  if (get_field(context, 8, 4) != state_ready || get_field(context, basic_wqe_bit, 1) != 0)
    return Status::bad_param;
  return build_queue(scope, c, rmp_wq_at, srq, work_queue);
}

// Only the limit can be changed.
Status modify_rmp(const Command &c, Srq &srq) {
  constexpr u32 mask_at = 16;
  constexpr u64 mask_limit = 1;
  if (c.in.size() < rmp_wq_at + wq_bytes) return Status::bad_input_length;
  if (load_be64(c.in.data() + mask_at) != mask_limit) return Status::bad_param;
  return set_srq_limit(srq, get_field(c.in.data() + rmp_wq_at, wq::limit, 16));
}

void query_rmp(const Srq &srq, const WorkQueue &work_queue, Command &c) {
  constexpr u32 state_ready = 1;
  std::array<u8, rmp_wq_at - rmp_context_at + wq_bytes> context{};
  set_field(context.data(), 8, 4, state_ready);
  describe(srq, work_queue, context.data() + rmp_wq_at - rmp_context_at);
  fill(c, query_rmp_at, context);
}

Status create_xrq(Scope &scope, const Command &c, Srq &srq, WorkQueue &work_queue) {
  if (c.in.size() < xrq_wq_at + wq_bytes) return Status::bad_input_length;
  if (const Status s = read_tag_matching(scope, c.in.data() + xrq_context_at, srq); s != Status::ok)
    return s;
  return build_queue(scope, c, xrq_wq_at, srq, work_queue);
}

void query_xrq(const Srq &srq, const WorkQueue &work_queue, Command &c) {
  constexpr u32 topology = 20, user_index = 40, cqn = 72;
  std::array<u8, xrq_wq_at - xrq_context_at + wq_bytes> context{};
  set_field(context.data(), topology, 4, 1);
  set_field(context.data(), user_index, 24, srq.uidx);
  set_field(context.data(), cqn, 24, srq.cq->cqn);
  describe(srq, work_queue, context.data() + xrq_wq_at - xrq_context_at);
  fill(c, query_xrq_at, context);
}

}  // namespace softhca::firmware
