// Event queues.
#include <algorithm>

#include "base/fields.h"
#include "base/log.h"
#include "firmware/resources.h"

namespace softhca::firmware {

namespace {

constexpr u32 context_at = 16, mask_at = 88, pages_at = 272;
// eqc of mlx5_ifc.h, bits.
constexpr u32 log_size_bit = 99, uar_page_bit = 104, vector_bit = 180, log_page_bit = 195,
              consumer_bit = 328, producer_bit = 360;
constexpr u32 entry_bytes = 64, data_at = 32, owner_at = 63;
constexpr u8 command_event = 0x0a;

}  // namespace

struct Hca::Eq : Resource {
  Eq(u32 n, u16 u) : Resource(Kind::eq, n, u) {}
  bool takes(u8 type) const { return (mask[type / 64] >> type % 64 & 1) != 0; }
  std::shared_ptr<View> ring;
  u32 log_size = 0, vector = 0;
  u32 producer = 0, consumer = 0;
  bool armed = false;
  u64 mask[4] = {};
  std::deque<EventEntry> waiting;  // until the queue has room
  std::array<u8, 64> context{};
};

Status Hca::eq_create(Command &c) {
  constexpr u32 max_log_size = 22, max_vectors = 2048;
  const u8 *context = c.in.data() + context_at;
  const u32 log_size = get_field(context, log_size_bit, 5),
            log_page = 12 + get_field(context, log_page_bit, 5),
            vector = get_field(context, vector_bit, 12);
  if ((c.uid() != 0 && c.uid() != shared_uid) || log_size > max_log_size || vector >= max_vectors ||
      log_page > 30)
    return Status::bad_param;
  const u64 bytes = u64{entry_bytes} << log_size;
  const u64 count = (bytes + (u64{1} << log_page) - 1) >> log_page;
  if (c.in.size() < pages_at + count * 8) return Status::bad_input_length;
  std::vector<u64> pages;
  for (u64 i = 0; i < count; ++i)
    pages.push_back(load_be64(c.in.data() + pages_at + i * 8) & ~u64{page_size - 1});
  const u32 number = fresh(Kind::eq);
  if (number == 0) return Status::no_resources;
  auto eq = std::make_unique<Eq>(number, c.uid());
  Resource *uar = find<Resource>(Kind::uar, get_field(context, uar_page_bit, 24));
  if (uar == nullptr) return Status::bad_param;
  eq->need(uar);
  eq->ring = memory.view(pages, u64{1} << log_page);
  if (!eq->ring) return Status::bad_param;
  eq->log_size = log_size;
  eq->vector = vector;
  // Words of 64 bits, the types from 0 on first.
  for (u32 i = 0; i < 4; ++i) eq->mask[i] = load_be64(c.in.data() + mask_at + i * 8);
  std::copy_n(context, eq->context.size(), eq->context.begin());
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::eq, number}] = std::move(eq);
  return Status::ok;
}

Status Hca::eq_query(Command &c) {
  const Eq *eq = find<Eq>(Kind::eq, number_in(c) & 0xff);
  if (eq == nullptr) return Status::bad_resource;
  auto context = eq->context;
  set_field(context.data(), consumer_bit, 24, eq->consumer);
  set_field(context.data(), producer_bit, 24, eq->producer);
  fill(c, context_at, context);
  return Status::ok;
}

void Hca::post(Eq &eq, const EventEntry &e) {
  // A driver that takes no events loses those beyond this number.
  constexpr size_t most_waiting = 1 << 16;
  if (eq.waiting.size() == most_waiting) return;
  eq.waiting.push_back(e);
  flush(eq);
}

void Hca::flush(Eq &eq) {
  const u32 size = 1u << eq.log_size;
  bool any = false;
  // One entry stays free, as software expects of a queue that is not overrun.
  while (!eq.waiting.empty() && ((eq.producer - eq.consumer) & 0xffffff) < size - 1) {
    const EventEntry &e = eq.waiting.front();
    u8 entry[entry_bytes] = {};
    entry[1] = e.type;
    entry[3] = e.subtype;
    std::copy(e.data.begin(), e.data.end(), entry + data_at);
    u8 *at = eq.ring->at() + u64{eq.producer & (size - 1)} * entry_bytes;
    std::memcpy(at, entry, owner_at);
    __atomic_store_n(at + owner_at, static_cast<u8>(eq.producer >> eq.log_size & 1),
                     __ATOMIC_RELEASE);
    ++eq.producer;
    eq.waiting.pop_front();
    any = true;
  }
  if (!any || !eq.armed) return;
  eq.armed = false;
  interrupts_.interrupt(eq.vector);
}

void Hca::consume_events(u32 eqn, u32 consumer, bool arm) {
  Eq *eq = find<Eq>(Kind::eq, eqn);
  if (eq == nullptr) return;
  // Software's counter has 24 bits.
  const u32 unread = (eq->producer - consumer) & 0xffffff;
  if (unread > 1u << eq->log_size) return;
  eq->consumer = eq->producer - unread;
  eq->armed |= arm;
  if (arm && unread != 0) {
    eq->armed = false;
    interrupts_.interrupt(eq->vector);
  }
  flush(*eq);
}

void Hca::commands_done(u32 slots) {
  EventEntry e{command_event, 0, {}};
  store_be32(e.data.data(), slots);
  raise(e);
}

bool Hca::commands_have_events() const { return has_taker(command_event); }

bool Hca::has_taker(u8 type) const {
  return std::any_of(resources_.begin(), resources_.end(), [type](const auto &entry) {
    return entry.first.first == Kind::eq && static_cast<const Eq &>(*entry.second).takes(type);
  });
}

void Hca::raise(const EventEntry &e) {
  for (const auto &[key, resource] : resources_) {
    if (key.first != Kind::eq) continue;
    auto &eq = static_cast<Eq &>(*resource);
    if (eq.takes(e.type)) return post(eq, e);
  }
}

void Hca::raise_completion(u32 eqn, u32 cqn) {
  Eq *eq = find<Eq>(Kind::eq, eqn);
  if (eq == nullptr) return;
  EventEntry e{static_cast<u8>(QueueEvent::completion), 0, {}};
  store_be32(e.data.data() + 24, cqn);
  post(*eq, e);
}

void Queue::raise(QueueEvent event) {
  EventEntry e{static_cast<u8>(event), 0, {}};
  store_be32(e.data.data() + 24, number);
  // What kind of queue it is.
  constexpr u8 rq_type = 1, sq_type = 2, dct_type = 6;
  e.data[20] = kind == Kind::dct  ? dct_type
               : kind == Kind::rq ? rq_type
               : kind == Kind::sq ? sq_type
                                  : 0;
  hca.raise(e);
}

void CqResource::raise(QueueEvent event) {
  if (event == QueueEvent::completion) return hca.raise_completion(eqn, number);
  constexpr u8 overrun = 1;
  EventEntry e{static_cast<u8>(event), 0, {}};
  store_be32(e.data.data(), number);
  e.data[11] = overrun;
  hca.raise(e);
}

}  // namespace softhca::firmware
