// CREATE_CQ, MODIFY_CQ and QUERY_CQ.
#include <algorithm>

#include "base/fields.h"
#include "uverbs/context.h"
#include "uverbs/devx_queue.h"
#include "uverbs/queue.h"
#include "uverbs/uverbs_limits.h"

namespace softhca::uverbs {

namespace {

// The boxes, and cqc of mlx5_ifc.h: bytes, and bits of the context.
constexpr u32 select_at = 12, context_at = 16, context_bytes = 64;
constexpr u32 umem_offset_at = 80, umem_id_at = 88, create_bytes = 96;
constexpr u32 dbr_umem_at = 4, dbr_at = 56;

struct Bits {
  u32 offset, width;
};
constexpr Bits size_bits{8, 3}, collapsed{11, 1}, overrun_ignored{14, 1}, compressed{17, 1},
    mini_format{18, 2}, delivery{20, 4}, layout{24, 2}, page_offset{84, 6}, log_size{99, 5},
    uar_page{104, 24}, period{132, 12}, max_count{144, 16}, eqn{184, 8}, last_notified{264, 24},
    last_solicit{296, 24}, consumer{328, 24}, producer{360, 24};

u32 get(const u8 *context, Bits b) { return get_field(context, b.offset, b.width); }
void set(u8 *context, Bits b, u32 value) { set_field(context, b.offset, b.width, value); }

Status choose_format(const Capabilities &caps, const u8 *context, Cq &cq) {
  switch (get(context, size_bits)) {
    case 0: cq.cqe_size = 64; break;
    case 1:
    case 2: cq.cqe_size = 128; break;  // 2: 64 bytes, padded
    default: return Status::bad_param;
  }
  if (get(context, collapsed) != 0 || get(context, layout) != 0) return Status::bad_param;
  if (get(context, compressed) == 0) return Status::ok;
  if (!(cq.cqe_size == 128 ? caps.cqe_128_compression : caps.cqe_compression))
    return Status::bad_param;
  switch (get(context, mini_format)) {
    case 0: cq.compression = CqeCompression::hash; return Status::ok;
    case 1: cq.compression = CqeCompression::checksum; return Status::ok;
    case 3: cq.compression = CqeCompression::checksum_stridx; return Status::ok;
    default: return Status::bad_param;
  }
}

// The ring of `entries` completions in the umem that the command names.
Status claim_ring(const File &file, const Command &c, u64 entries, u32 cqe_size, Hold &user,
                  u8 *&ring) {
  const u64 offset = load_be64(c.in.data() + umem_offset_at) +
                     u64{get(c.in.data() + context_at, page_offset)} * 64;
  return claim_umem(file, load_be32(c.in.data() + umem_id_at), offset, entries * cqe_size,
                    UmemUse::write, user, ring);
}

Status build(const File &file, const Command &c, DevxCq &o) {
  const u8 *context = c.in.data() + context_at;
  const Capabilities &caps = file.caps();
  Cq &cq = o.cq;
  if (const Status s = choose_format(caps, context, cq); s != Status::ok) return s;
  if (!uar_exists(file, get(context, uar_page))) return Status::bad_param;
  cq.entries = 1u << get(context, log_size);
  if (get(context, log_size) > 22 || cq.entries - 1 > caps.max_cqe) return Status::bad_param;
  if (const Status s = claim_ring(file, c, cq.entries, cq.cqe_size, o.rings, cq.buffer);
      s != Status::ok)
    return s;
  if (const Status s = claim_umem_doorbell(file, load_be32(context + dbr_umem_at),
                                           load_be64(context + dbr_at), o.record, cq.dbrec);
      s != Status::ok)
    return s;
  cq.ignore_overrun = get(context, overrun_ignored) != 0;
  cq.moderation_count = static_cast<u16>(get(context, max_count));
  cq.moderation_period = static_cast<u16>(get(context, period));
  return Status::ok;
}

// The fields that MODIFY_CQ selects.
constexpr u32 select_period = 1 << 0, select_count = 1 << 1, select_overrun = 1 << 2,
              select_eqn = 1 << 3;
// And with op_mod 1, of which the first changes the number of completions.
constexpr u32 select_size = 1 << 0, select_offset = 1 << 1, select_page_size = 1 << 2;
constexpr u32 op_resize = 1;

Status modify_fields(const Capabilities &caps, const Command &c, Cq &cq) {
  const u8 *context = c.in.data() + context_at;
  const u32 select = load_be32(c.in.data() + select_at);
  constexpr u32 known = select_period | select_count | select_overrun | select_eqn;
  if ((select & ~known) != 0) return Status::bad_param;
  if ((select & (select_period | select_count)) != 0 && !caps.cq_moderation)
    return Status::bad_param;
  const u32 queue = get(context, eqn);
  if ((select & select_eqn) != 0 &&
      (queue < first_completion_eqn || queue >= first_completion_eqn + completion_vectors()))
    return Status::bad_resource;
  if ((select & select_period) != 0) cq.moderation_period = static_cast<u16>(get(context, period));
  if ((select & select_count) != 0) cq.moderation_count = static_cast<u16>(get(context, max_count));
  if ((select & select_overrun) != 0) cq.ignore_overrun = get(context, overrun_ignored) != 0;
  return Status::ok;
}

// Another ring, as libmlx5's resize_cq has it.
Status resize(const File &file, const Command &c, DevxCq &o) {
  constexpr u32 known = select_size | select_offset | select_page_size;
  const u8 *context = c.in.data() + context_at;
  if ((load_be32(c.in.data() + select_at) & ~known) != 0) return Status::bad_param;
  const u32 log = get(context, log_size);
  if (log > 22 || (1u << log) - 1 > file.caps().max_cqe) return Status::bad_param;
  Hold ring_user;
  u8 *ring = nullptr;
  if (const Status s = claim_ring(file, c, 1u << log, o.cq.cqe_size, ring_user, ring);
      s != Status::ok)
    return s;
  if (cq_resize(o.cq, ring, 1u << log, o.cq.cqe_size) != 0) return Status::bad_param;
  return claim_ring(file, c, 1u << log, o.cq.cqe_size, o.rings, ring);
}

}  // namespace

int devx_cq_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < create_bytes) return reply(attrs, c, Status::bad_input_length);
  // The kernel's own: the event queue must be one of a completion vector.
  const u32 queue = get(c.in.data() + context_at, eqn);
  if (queue < first_completion_eqn || queue >= first_completion_eqn + completion_vectors())
    return ENOENT;
  auto object = std::make_unique<DevxCq>(file);
  if (const Status s = build(file, c, *object); s != Status::ok) return reply(attrs, c, s);
  if (const int error = start_device(); error != 0) return error;
  Cq &cq = object->cq;
  cq.cqn = object->number = process().next_cqn++ & 0xffffff;
  cq.async.listener = object.get();
  std::copy_n(c.in.begin() + context_at, context_bytes, object->context.begin());
  cq_start(cq);
  file.cqs.add(cq.cqn, object.get(), &cq);
  const u32 number = object->number;
  return created_with(file, attrs, c, number, std::move(object));
}

int devx_cq_modify(File &file, const Attrs &attrs, Command &c, Object *o) {
  Cq *cq = cq_of(o, c);
  if (cq == nullptr) return EINVAL;
  if (c.in.size() < create_bytes) return reply(attrs, c, Status::bad_input_length);
  if (c.op_mod() == 0) return reply(attrs, c, modify_fields(file.caps(), c, *cq));
  auto *own = dynamic_cast<DevxCq *>(o);
  if (c.op_mod() != op_resize || own == nullptr) return reply(attrs, c, Status::bad_param);
  return reply(attrs, c, resize(file, c, *own));
}

int devx_cq_query(const Attrs &attrs, Command &c, Object *o) {
  constexpr u32 fired = 0xa, failed = 0xa;
  const Cq *cq = cq_of(o, c);
  if (cq == nullptr) return EINVAL;
  std::array<u8, context_bytes> context{};
  if (const auto *own = dynamic_cast<const DevxCq *>(o)) context = own->context;
  set_field(context.data(), 0, 4, cq->error ? failed : 0);
  set(context.data(), size_bits, cq->cqe_size == 128 ? 1 : 0);
  set(context.data(), overrun_ignored, cq->ignore_overrun ? 1 : 0);
  set(context.data(), delivery, fired);
  set(context.data(), log_size, 31 - static_cast<u32>(__builtin_clz(cq->entries)));
  set(context.data(), period, cq->moderation_period);
  set(context.data(), max_count, cq->moderation_count);
  set(context.data(), last_notified, cq->last_notified);
  set(context.data(), last_solicit, cq->solicited_producer);
  set(context.data(), consumer, read_doorbell(&cq->dbrec[0]));
  set(context.data(), producer, cq->producer);
  if (c.out.size() > context_at)
    std::copy_n(context.begin(), std::min<size_t>(context_bytes, c.out.size() - context_at),
                c.out.begin() + context_at);
  return reply(attrs, c, Status::ok);
}

}  // namespace softhca::uverbs
