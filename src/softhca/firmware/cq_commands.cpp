// CREATE_CQ, MODIFY_CQ and QUERY_CQ.
#include <algorithm>

#include "base/fields.h"
#include "firmware/queues.h"

namespace softhca::firmware {

namespace {

// The boxes, and cqc of mlx5_ifc.h: bytes, and bits of the context.
constexpr u32 select_at = 12, context_at = cq_context_at, context_bytes = cq_context_bytes;
constexpr RingFields ring_fields{
    .umem_offset_at = 80, .umem_id_at = 88, .umem_valid_bit = 736, .pages_at = 272};
constexpr u32 create_bytes = 96;
constexpr u32 dbr_umem_at = 4, dbr_at = 56;

struct Bits {
  u32 offset, width;
};
constexpr Bits dbr_umem_valid{6, 1}, size_bits{8, 3}, collapsed{11, 1}, overrun_ignored{14, 1},
    compressed{17, 1}, mini_format{18, 2}, delivery{20, 4}, layout{30, 2}, page_offset{84, 6},
    log_size{99, 5}, uar_page{104, 24}, period{132, 12}, max_count{144, 16}, eqn{184, 8},
    log_page_size{195, 5}, last_notified{264, 24}, last_solicit{296, 24}, consumer{328, 24},
    producer{360, 24};

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

// The ring of `entries` completions.
Status use_ring(Scope &scope, const Command &c, u64 entries, u32 cqe_size, u8 *&ring) {
  const u8 *context = c.in.data() + context_at;
  const RingPlace place =
      ring_place(c, ring_fields, get(context, log_page_size), get(context, page_offset));
  return scope.use_ring(place, entries * cqe_size, RingUse::write, ring);
}

// The fields that MODIFY_CQ selects.
constexpr u32 select_period = 1 << 0, select_count = 1 << 1, select_overrun = 1 << 2,
              select_eqn = 1 << 3;
// And with op_mod 1, of which the first changes the number of completions.
constexpr u32 select_size = 1 << 0, select_offset = 1 << 1, select_page_size = 1 << 2;

}  // namespace

u32 cq_event_queue(const Command &c) { return get(c.in.data() + context_at, eqn); }
u32 cq_uar_page(const Command &c) { return get(c.in.data() + context_at, uar_page); }

Status create_cq(Scope &scope, const Command &c, Cq &cq) {
  if (c.in.size() < create_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  const Capabilities &caps = scope.caps();
  if (const Status s = choose_format(caps, context, cq); s != Status::ok) return s;
  if (!scope.uar_exists(get(context, uar_page))) return Status::bad_param;
  cq.entries = 1u << get(context, log_size);
  if (get(context, log_size) > 22 || cq.entries - 1 > caps.max_cqe) return Status::bad_param;
  if (const Status s = use_ring(scope, c, cq.entries, cq.cqe_size, cq.buffer); s != Status::ok)
    return s;
  const RecordPlace record{get(context, dbr_umem_valid) != 0, load_be32(context + dbr_umem_at),
                           load_be64(context + dbr_at)};
  if (const Status s = scope.use_record(record, cq.dbrec); s != Status::ok) return s;
  cq.ignore_overrun = get(context, overrun_ignored) != 0;
  cq.moderation_count = static_cast<u16>(get(context, max_count));
  cq.moderation_period = static_cast<u16>(get(context, period));
  return Status::ok;
}

Status modify_cq_fields(Scope &scope, const Command &c, Cq &cq) {
  if (c.in.size() < create_bytes) return Status::bad_input_length;
  const Capabilities &caps = scope.caps();
  const u8 *context = c.in.data() + context_at;
  const u32 select = load_be32(c.in.data() + select_at);
  constexpr u32 known = select_period | select_count | select_overrun | select_eqn;
  if ((select & ~known) != 0) return Status::bad_param;
  if ((select & (select_period | select_count)) != 0 && !caps.cq_moderation)
    return Status::bad_param;
  if ((select & select_eqn) != 0 && !scope.eq_exists(get(context, eqn)))
    return Status::bad_resource;
  if ((select & select_period) != 0) cq.moderation_period = static_cast<u16>(get(context, period));
  if ((select & select_count) != 0) cq.moderation_count = static_cast<u16>(get(context, max_count));
  if ((select & select_overrun) != 0) cq.ignore_overrun = get(context, overrun_ignored) != 0;
  return Status::ok;
}

// Another ring, as libmlx5's resize_cq has it.
Status resize_cq(Scope &scope, const Command &c, Cq &cq) {
  constexpr u32 known = select_size | select_offset | select_page_size;
  if (c.in.size() < create_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  if ((load_be32(c.in.data() + select_at) & ~known) != 0) return Status::bad_param;
  const u32 log = get(context, log_size);
  if (log > 22 || (1u << log) - 1 > scope.caps().max_cqe) return Status::bad_param;
  u8 *ring = nullptr;
  if (const Status s = use_ring(scope, c, 1u << log, cq.cqe_size, ring); s != Status::ok) return s;
  return cq_resize(cq, ring, 1u << log, cq.cqe_size) != 0 ? Status::bad_param : Status::ok;
}

void query_cq(const Cq &cq, std::span<const u8> created, Command &c) {
  constexpr u32 fired = 0xa, failed = 0xa;
  std::array<u8, context_bytes> context{};
  std::copy(created.begin(), created.end(), context.begin());
  set_field(context.data(), 0, 4, cq.error ? failed : 0);
  set(context.data(), size_bits, cq.cqe_size == 128 ? 1 : 0);
  set(context.data(), overrun_ignored, cq.ignore_overrun ? 1 : 0);
  set(context.data(), delivery, fired);
  set(context.data(), log_size, 31 - static_cast<u32>(__builtin_clz(cq.entries)));
  set(context.data(), period, cq.moderation_period);
  set(context.data(), max_count, cq.moderation_count);
  set(context.data(), last_notified, cq.last_notified);
  set(context.data(), last_solicit, cq.solicited_producer);
  set(context.data(), consumer, read_doorbell(&cq.dbrec[0]));
  set(context.data(), producer, cq.producer);
  fill(c, context_at, context);
}

}  // namespace softhca::firmware
