// Shared receive queues: receive memory pools (RMP), and queues that match tags (XRQ).
#include <algorithm>

#include "base/fields.h"
#include "model/tag_matching.h"
#include "uverbs/devx_queue.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

// Where the work queue's context (wq of mlx5_ifc.h) stands, in bytes.
constexpr u32 rmp_context_at = 32, rmp_wq_at = rmp_context_at + 48;
constexpr u32 xrq_context_at = 16, xrq_wq_at = xrq_context_at + 128;
constexpr u32 wq_bytes = 64, query_rmp_at = 32, query_xrq_at = 16;

// In it, bits; those of 64 bits in bytes.
constexpr u32 wq_type = 0, wq_signature = 4, limit = 48, pd = 72, hw_counter = 192,
              sw_counter = 224, log_stride = 268, log_size = 283, dbr_umem = 320, wq_umem = 352;
constexpr u32 dbr_at = 16, wq_umem_offset_at = 48;
enum Type : u32 { linked_list = 0, cyclic = 1 };

constexpr u32 next_segment = 16;  // in front of the data segments, also where nothing follows it

Status build_queue(const File &file, const u8 *wq, DevxSrq &o) {
  Srq &srq = o.srq;
  const u32 type = get_field(wq, wq_type, 4);
  if (type != linked_list && type != cyclic) return Status::bad_param;  // no striding ones
  if (get_field(wq, wq_signature, 1) != 0) return Status::bad_param;
  srq.cyclic = type == cyclic;
  srq.pdn = get_field(wq, pd, 24);
  const auto domain = file.pds.find(srq.pdn);
  if (!domain) return Status::bad_resource;
  o.pd.reset(domain.owner);

  srq.stride = 1u << get_field(wq, log_stride, 4);
  srq.entries = 1u << get_field(wq, log_size, 5);
  const u32 most = file.caps().max_srq_wr + 1;
  if (srq.stride < 2 * next_segment || srq.stride > 512 || srq.entries > most)
    return Status::bad_param;
  srq.max_sge = (srq.stride - next_segment) / 16;
  if (const Status s =
          claim_umem(file, get_field(wq, wq_umem, 32), load_be64(wq + wq_umem_offset_at),
                     u64{srq.entries} * srq.stride, UmemUse::read, o.rings, srq.buffer);
      s != Status::ok)
    return s;
  std::copy_n(wq, wq_bytes, o.work_queue.begin());
  return claim_umem_doorbell(file, get_field(wq, dbr_umem, 32), load_be64(wq + dbr_at), o.record,
                             srq.dbrec);
}

int enter(File &file, Attrs &attrs, Command &c, std::unique_ptr<DevxSrq> object) {
  if (const int error = start_device(); error != 0) return error;
  object->srq.async.listener = object.get();
  const u32 number = object->number = srq_register(&object->srq);
  file.srqs.add(number, object.get(), &object->srq);
  return created_with(file, attrs, c, number, std::move(object));
}

Status read_tag_matching(const File &file, const u8 *context, DevxSrq &o) {
  constexpr u32 topology = 20, offload = 28, user_index = 40, cqn = 72, log_list = 256;
  constexpr u32 tag_matching = 1, rendezvous = 1;
  if (!file.caps().tag_matching || get_field(context, topology, 4) != tag_matching ||
      get_field(context, offload, 4) > rendezvous)
    return Status::bad_param;
  const u32 log_tags = get_field(context, log_list, 4);
  if (log_tags == 0 || log_tags > file.caps().log_max_tags) return Status::bad_param;
  const auto cq = file.cqs.find(get_field(context, cqn, 24));
  if (!cq) return Status::bad_resource;
  o.cq.reset(cq.owner);
  o.srq.type = SrqType::tag_matching;
  o.srq.tags = std::make_unique<TagList>(log_tags);
  o.srq.cq = cq.thing;
  o.srq.uidx = get_field(context, user_index, 24);
  return Status::ok;
}

// What changes in a work queue's context.
void describe(const DevxSrq &o, u8 *wq) {
  std::copy(o.work_queue.begin(), o.work_queue.end(), wq);
  set_field(wq, limit, 16, o.srq.limit);
  set_field(wq, hw_counter, 32, o.srq.consumed);
  set_field(wq, sw_counter, 32, read_doorbell(&o.srq.dbrec[0]) & 0xffff);
}

void fill(Command &c, u32 at, const u8 *from, u32 bytes) {
  if (c.out.size() > at)
    std::copy_n(from, std::min<size_t>(bytes, c.out.size() - at), c.out.begin() + at);
}

Status set_limit(Srq &srq, u32 wanted) {
  if (wanted >= srq.entries) return Status::bad_param;
  srq.limit = wanted;
  srq_check_limit(srq);
  return Status::ok;
}

}  // namespace

int devx_rmp_create(File &file, Attrs &attrs, Command &c) {
  constexpr u32 state_ready = 1, basic_wqe_bit = 32;
  if (c.in.size() < rmp_wq_at + wq_bytes) return reply(attrs, c, Status::bad_input_length);
  const u8 *context = c.in.data() + rmp_context_at;
  if (get_field(context, 8, 4) != state_ready || get_field(context, basic_wqe_bit, 1) != 0)
    return reply(attrs, c, Status::bad_param);
  auto object = std::make_unique<DevxSrq>(file);
  if (const Status s = build_queue(file, c.in.data() + rmp_wq_at, *object); s != Status::ok)
    return reply(attrs, c, s);
  return enter(file, attrs, c, std::move(object));
}

// Only the limit can be changed.
int devx_rmp_modify(const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 mask_at = 16;
  constexpr u64 mask_limit = 1;
  DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || queue->srq.tags) return EINVAL;
  if (c.in.size() < rmp_wq_at + wq_bytes) return reply(attrs, c, Status::bad_input_length);
  if (load_be64(c.in.data() + mask_at) != mask_limit) return reply(attrs, c, Status::bad_param);
  return reply(attrs, c, set_limit(queue->srq, get_field(c.in.data() + rmp_wq_at, limit, 16)));
}

int devx_rmp_query(const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 state_ready = 1;
  const DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || queue->srq.tags) return EINVAL;
  std::array<u8, rmp_wq_at - rmp_context_at + wq_bytes> context{};
  set_field(context.data(), 8, 4, state_ready);
  describe(*queue, context.data() + rmp_wq_at - rmp_context_at);
  fill(c, query_rmp_at, context.data(), context.size());
  return reply(attrs, c, Status::ok);
}

int devx_xrq_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < xrq_wq_at + wq_bytes) return reply(attrs, c, Status::bad_input_length);
  auto object = std::make_unique<DevxSrq>(file);
  if (const Status s = read_tag_matching(file, c.in.data() + xrq_context_at, *object);
      s != Status::ok)
    return reply(attrs, c, s);
  if (const Status s = build_queue(file, c.in.data() + xrq_wq_at, *object); s != Status::ok)
    return reply(attrs, c, s);
  return enter(file, attrs, c, std::move(object));
}

int devx_xrq_query(const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 topology = 20, user_index = 40, cqn = 72;
  const DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || !queue->srq.tags) return EINVAL;
  std::array<u8, xrq_wq_at - xrq_context_at + wq_bytes> context{};
  set_field(context.data(), topology, 4, 1);
  set_field(context.data(), user_index, 24, queue->srq.uidx);
  set_field(context.data(), cqn, 24, queue->srq.cq->cqn);
  describe(*queue, context.data() + xrq_wq_at - xrq_context_at);
  fill(c, query_xrq_at, context.data(), context.size());
  return reply(attrs, c, Status::ok);
}

// ARM_XRQ: an event when fewer work requests than that are left.
int devx_srq_arm(const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 limit_at = 14, end = 16;
  DevxSrq *queue = srq_of(o, c);
  if (queue == nullptr || !queue->srq.tags || c.in.size() < end) return EINVAL;
  return reply(attrs, c, set_limit(queue->srq, load_be16(c.in.data() + limit_at)));
}

}  // namespace softhca::uverbs
