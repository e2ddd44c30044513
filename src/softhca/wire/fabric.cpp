#include "wire/fabric.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/memory_calls.h"
#include "wire/directory.h"
#include "wire/layout.h"
#include "wire/slot_file.h"

namespace softhca {

namespace {

constexpr size_t bitmap_words = max_slots / 64;
constexpr u64 retry_missing_ns = 1'000'000;        // before a missing peer is looked for again
constexpr u64 retry_failed_ns = 100'000'000;       // after running out of memory or descriptors
constexpr u64 check_alive_ns = 50'000'000;         // while sending
constexpr u64 answer_max_wait_ns = 1'000'000'000;  // for a way back to a sender that lives
constexpr u32 small_record = 4 * cache_line;       // what is worth fetching ahead
constexpr u32 quiet_polls = 2048;  // empty polls, over all rings, before a bit is cleared

u64 clock_ns(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}
u64 now_ns() { return clock_ns(CLOCK_MONOTONIC); }
u64 coarse_now_ns() { return clock_ns(CLOCK_MONOTONIC_COARSE); }

void futex_wait(std::atomic<u32> &word, u32 seen, const timespec *timeout) {
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, timeout, nullptr, 0);
}

// Sequential consistency with wait(): either we see the sleeper, or the
// sleeper sees what we published before.
void ring_bell(Control &c) {
  if (c.sleeping.load(std::memory_order_seq_cst) == 0) return;
  if (c.rung.exchange(1, std::memory_order_seq_cst) != 0) return;  // another sender is waking it
  c.bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &c.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The same without reading words that another process may have overwritten.
void ring_bell_loudly(Control &c) {
  c.bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &c.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void mark_active(Control &c, u16 sender) {
  const u64 bit = u64{1} << sender % 64;
  auto &word = c.active[sender / 64];
  if ((word.load(std::memory_order_seq_cst) & bit) == 0)
    word.fetch_or(bit, std::memory_order_seq_cst);
}

// Our sending side towards one slot.
struct Outgoing {
  u16 primary = 0;  // the slot that has the memory, if this one is a second number
  Control *control = nullptr;
  u8 *data = nullptr;  // our segment; null until the first record
  FileIdentity identity;
  i32 memory = 0;
  u32 ring_bytes = 0;
  u32 generation = 0;
  bool ready = false;  // the receiver listens to our generation
  bool complained = false;
  u64 head = 0, tail = 0;  // tail: as last seen
  u64 retry_at = 0;        // nothing mapped: when to look again
  u64 check_at = 0;        // mapped: when to look whether it still lives
};

// Our receiving side from one slot.
struct Incoming {
  u8 *data = nullptr;  // kept for the next process in that slot
  u64 tail = 0;
  u32 generation = 0;
  u32 quiet = 0;  // empty polls since the last record
  bool complained = false;
  bool first_due = false;   // let in, and nothing received since
  bool answerable = false;  // there is a way back, or it was waited for
  u64 answer_by = 0;        // until when it is; 0: not yet
};

}  // namespace

struct Fabric::State {
  std::string directory;
  OwnSlot own;
  std::list<OwnSlot> further;
  u16 slot = 0;
  u32 ring_bytes = 0;
  Control *control = nullptr;
  std::atomic<bool> woken{false};
  // What the shared words of these names are, whatever they hold.
  std::atomic<u32> multicast_groups{0}, flow_rules{0};
  std::mutex sleepers_mutex;
  u32 sleepers = 0;
  std::array<Outgoing, max_slots> out{};
  std::array<Incoming, max_slots> in{};

  // The record handed out by receive(); the header is a copy, so that nothing
  // its sender still writes changes what was checked.
  PacketHeader header;
  u16 current = 0;  // its sender, 0: none
  u64 current_end = 0;
  u16 last_served = 0;
  u32 firsts_due = 0;         // of all senders
  u32 quiet_senders = 1;      // active ones, when last all of them had nothing
  bool unanswerable = false;  // the last receive() left a record for that

  u64 listed_at = 0;  // existing slots, for multicast
  u64 listed[bitmap_words] = {};

  bool connect(u16 dst);
  bool open_segment(u16 dst);
  void announce(u16 dst);
  void remind(u16 dst);
  bool read_tail(u16 dst);
  void drop(u16 dst);
  bool verify(u16 dst);
  bool usable(u16 dst);
  Reserve ready(u16 dst);
  bool can_answer(u16 src);
  bool poll(u16 src, const u8 *&payload);
  void adopt(u16 src);
  bool next_record(u16 src, u64 head, const u8 *&payload);
  void first_is_due(u16 src, bool due);
  void discard(u16 src, u64 head, const char *why);
  void note_quiet(u16 src, u32 limit);
  bool something_pending() const;
  void count_sleepers(int change);
  void publish_interest();
  u32 interested(u16 *list, u32 capacity, std::atomic<u32> Control::*count);
};

// --- sending ---------------------------------------------------------------

bool Fabric::State::connect(u16 dst) {
  Outgoing &o = out[dst];
  const u64 now = now_ns();
  if (now < o.retry_at) return false;
  PeerSlot peer;
  if (!map_control(directory, dst, peer)) {
    const int error = errno;
    o.retry_at = now + (error == ESRCH ? retry_missing_ns : retry_failed_ns);
    if (error != ESRCH && !o.complained) {
      o.complained = true;
      if (error == EXDEV)
        SOFTHCA_LOG(warn,
                    "fabric: slot %u is a process of another IPC namespace (a container?): it "
                    "cannot be reached",
                    dst);
      else
        SOFTHCA_LOG(warn, "fabric: cannot map slot %u: %s%s", dst, strerror(error),
                    limit_behind(error).text);
    }
    return false;
  }
  o.primary = peer.primary;
  o.control = peer.control;
  o.identity = peer.identity;
  o.memory = peer.memory;
  o.ring_bytes = peer.ring_bytes;
  o.check_at = coarse_now_ns() + check_alive_ns;
  return true;
}

bool Fabric::State::open_segment(u16 dst) {
  Outgoing &o = out[dst];
  const u64 now = now_ns();
  if (now < o.retry_at) return false;
  o.data = map_segment(o.memory, slot, o.ring_bytes, true);
  if (o.data == nullptr) {
    const int error = errno;
    if (error == ESRCH) {
      drop(dst);
      return false;
    }
    o.retry_at = now + retry_failed_ns;
    if (!o.complained) {
      o.complained = true;
      SOFTHCA_LOG(warn, "fabric: cannot create shared memory for a ring to slot %u: %s%s", dst,
                  strerror(error), limit_behind(error).text);
    }
    return false;
  }
  o.complained = false;
  announce(dst);
  return true;
}

// Informs the owner of a new sender, who continues where the former one stopped
// and whose leftovers are forgotten.
void Fabric::State::announce(u16 dst) {
  Outgoing &o = out[dst];
  RingMeta &ring = o.control->rings[slot];
  ring.head.store(align_up(ring.head.load(std::memory_order_relaxed), cache_line),
                  std::memory_order_relaxed);
  u32 generation = static_cast<u32>(now_ns()) ^ static_cast<u32>(getpid()) << 16;
  while (generation == 0 || generation == ring.generation.load(std::memory_order_relaxed) ||
         generation == ring.confirmed.load(std::memory_order_relaxed))
    ++generation;
  o.generation = generation;
  o.ready = false;
  ring.generation.store(generation, std::memory_order_seq_cst);
  mark_active(*o.control, slot);
  ring_bell(*o.control);
}

// Every now and then while sending: repairs what we own of the words that say
// there is something to take, and wakes the owner, who repairs the others. All
// of this is for nothing unless a broken process wrote where it should not.
void Fabric::State::remind(u16 dst) {
  Outgoing &o = out[dst];
  if (o.data == nullptr) return;
  RingMeta &ring = o.control->rings[slot];
  if (ring.generation.load(std::memory_order_relaxed) != o.generation)
    ring.generation.store(o.generation, std::memory_order_seq_cst);
  if (o.ready && ring.head.load(std::memory_order_relaxed) != o.head)
    ring.head.store(o.head, std::memory_order_seq_cst);
  if (ring.tail.load(std::memory_order_relaxed) == o.head &&
      ring.confirmed.load(std::memory_order_relaxed) == o.generation)
    return;
  mark_active(*o.control, slot);
  ring_bell_loudly(*o.control);
}

// How far the owner has come. False when that is impossible: then we begin anew.
bool Fabric::State::read_tail(u16 dst) {
  Outgoing &o = out[dst];
  const u64 tail = o.control->rings[slot].tail.load(std::memory_order_acquire);
  if (o.head - tail <= o.ring_bytes) {
    o.tail = tail;
    return true;
  }
  if (!o.complained)
    SOFTHCA_LOG(error, "fabric: the ring to slot %u has a bad tail; it is made anew", dst);
  o.complained = true;
  announce(dst);
  return false;
}

void Fabric::State::drop(u16 dst) {
  Outgoing &o = out[dst];
  if (o.data != nullptr) calls::munmap(o.data, o.ring_bytes);
  if (o.control != nullptr) calls::munmap(o.control, control_bytes);
  const bool complained = o.complained;
  o = Outgoing{};
  o.complained = complained;
}

// Whether what we have mapped still belongs to a live process; forgets it if not.
bool Fabric::State::verify(u16 dst) {
  Outgoing &o = out[dst];
  FileIdentity found;
  if (live_identity(directory, dst, found) && found == o.identity) {
    o.check_at = coarse_now_ns() + check_alive_ns;
    remind(dst);
    return true;
  }
  drop(dst);
  return false;
}

// Maps `dst` if needed; false when no process has the slot.
bool Fabric::State::usable(u16 dst) {
  Outgoing &o = out[dst];
  if (o.control != nullptr || o.primary != 0) {
    const bool suspicious =
        (o.control != nullptr && o.control->closed.load(std::memory_order_acquire) != 0) ||
        coarse_now_ns() >= o.check_at;
    if (!suspicious || verify(dst)) return true;
  }
  return connect(dst);
}

// Whether records can be sent to a usable slot; full: it has to let us in first.
Fabric::Reserve Fabric::State::ready(u16 dst) {
  Outgoing &o = out[dst];
  if (o.data == nullptr && !open_segment(dst)) return Reserve::no_peer;
  if (!o.ready) {
    RingMeta &ring = o.control->rings[slot];
    if (ring.confirmed.load(std::memory_order_acquire) != o.generation) return Reserve::full;
    o.head = align_up(ring.head.load(std::memory_order_relaxed), cache_line);
    if (!read_tail(dst)) return Reserve::full;
    o.ready = true;
  }
  return Reserve::ok;
}

Fabric::Reserve Fabric::reserve(u16 dst, u32 payload, Slot &room) {
  State &s = *s_;
  if (dst == 0 || dst >= max_slots || payload > burst_bytes || !s.usable(dst))
    return Reserve::no_peer;
  Outgoing &o = s.out[dst];
  if (o.primary != 0) {
    // A primary slot has memory, or no process has it.
    if (!s.usable(o.primary) || s.out[o.primary].primary != 0) return Reserve::no_peer;
    return reserve(o.primary, payload, room);
  }
  if (const Reserve r = s.ready(dst); r != Reserve::ok) return r;

  const u32 need = record_bytes(payload);
  const u32 at = static_cast<u32>(o.head & (o.ring_bytes - 1));
  const u32 skip = o.ring_bytes - at < need ? o.ring_bytes - at : 0;
  const u64 end = o.head + skip + need;
  if (end - o.tail > o.ring_bytes) {
    if (!s.read_tail(dst) || end - o.tail > o.ring_bytes) return Reserve::full;
  }
  u8 *record = o.data + at;
  if (skip != 0) {
    const RecordFrame filler{skip, RecordFrame::skip};
    std::memcpy(record, &filler, sizeof filler);
    record = o.data;
  }
  const RecordFrame frame{need, RecordFrame::data};
  std::memcpy(record, &frame, sizeof frame);
  room.header = reinterpret_cast<PacketHeader *>(record + cache_line);
  room.payload = record + record_overhead;
  room.ring = o.control;
  room.next_head = end;
  return Reserve::ok;
}

u64 Fabric::commit(u16 dst, Slot &room) {
  if (s_->out[dst].primary != 0) dst = s_->out[dst].primary;
  Outgoing &o = s_->out[dst];
  // The peer may have been found dead since reserve(): as lost on the wire.
  if (o.control == nullptr || room.ring != o.control) return 0;
  room.header->src_slot = s_->slot;
  o.head = room.next_head;
  Control &c = *o.control;
  c.rings[s_->slot].head.store(o.head, std::memory_order_seq_cst);
  // The next record's place comes back from its last reader meanwhile.
  const u8 *next = o.data + (o.head & (o.ring_bytes - 1));
  for (u32 at = 0; at < small_record; at += cache_line) __builtin_prefetch(next + at, 1);
  mark_active(c, s_->slot);
  ring_bell(c);
  return o.head;
}

bool Fabric::consumed(u16 dst, u64 position) {
  State &s = *s_;
  if (dst == 0 || dst >= max_slots) return true;
  if (s.out[dst].primary != 0) dst = s.out[dst].primary;
  Outgoing &o = s.out[dst];
  // A position ahead of us was given out for a former mapping.
  if (!o.ready || position > o.head) return true;
  if (o.tail < position && !s.read_tail(dst)) return true;  // lost with all the rest
  if (o.tail >= position) return true;
  return coarse_now_ns() >= o.check_at && !s.verify(dst);
}

bool Fabric::alive(u16 dst) {
  if (dst == 0 || dst >= max_slots) return false;
  Outgoing &o = s_->out[dst];
  if (o.control != nullptr && s_->verify(dst)) return true;
  FileIdentity identity;
  return live_identity(s_->directory, dst, identity);  // perhaps a successor
}

// --- receiving -------------------------------------------------------------

// A new process sends from `src`: what the former one left is dropped.
void Fabric::State::adopt(u16 src) {
  RingMeta &ring = control->rings[src];
  Incoming &i = in[src];
  i.generation = ring.generation.load(std::memory_order_acquire);
  i.complained = false;
  i.quiet = 0;
  i.answerable = false;
  i.answer_by = 0;
  i.tail = ring.head.load(std::memory_order_acquire);
  ring.tail.store(i.tail, std::memory_order_release);
  ring.confirmed.store(i.generation, std::memory_order_seq_cst);
  first_is_due(src, true);
  // Our ring to it may still be the former process's, or no process's.
  for (Outgoing &o : out)
    if (&o == &out[src] || o.primary == src) o.check_at = o.retry_at = 0;
}

void Fabric::State::first_is_due(u16 src, bool due) {
  if (in[src].first_due == due) return;
  in[src].first_due = due;
  if (due) ++firsts_due;
  else --firsts_due;
}

void Fabric::State::discard(u16 src, u64 head, const char *why) {
  Incoming &i = in[src];
  first_is_due(src, false);
  if (!i.complained)
    SOFTHCA_LOG(error, "fabric: ring of slot %u is unusable (%s); its contents are dropped", src,
                why);
  i.complained = true;
  i.tail = head;
  control->rings[src].tail.store(head, std::memory_order_release);
}

// Checks everything read from the ring before it is used: its writer may be
// broken, and a broken peer must look like a lossy wire.
bool Fabric::State::next_record(u16 src, u64 head, const u8 *&payload) {
  Incoming &i = in[src];
  for (;;) {
    const u64 used = head - i.tail;
    if (used == 0) return false;
    if (used > ring_bytes || used % cache_line != 0 || i.tail % cache_line != 0) {
      discard(src, head, "position");
      return false;
    }
    const u32 at = static_cast<u32>(i.tail & (ring_bytes - 1));
    RecordFrame frame;
    for (u32 ahead = cache_line; ahead < small_record; ahead += cache_line)
      __builtin_prefetch(i.data + at + ahead);
    std::memcpy(&frame, i.data + at, sizeof frame);
    const bool fits = frame.length <= used && frame.length <= ring_bytes - at;
    if (frame.kind == RecordFrame::skip) {
      if (!fits || frame.length != ring_bytes - at) {
        discard(src, head, "skip");
        return false;
      }
      i.tail += frame.length;
      control->rings[src].tail.store(i.tail, std::memory_order_release);
      continue;
    }
    if (frame.kind != RecordFrame::data || !fits || frame.length < record_overhead) {
      discard(src, head, "frame");
      return false;
    }
    std::memcpy(&header, i.data + at + cache_line, sizeof header);
    if (header.payload > burst_bytes || record_bytes(header.payload) > frame.length) {
      discard(src, head, "payload length");
      return false;
    }
    header.src_slot = src;
    if (!i.answerable && wants_answer(header) && !can_answer(src)) return false;
    payload = i.data + at + record_overhead;
    current = src;
    current_end = i.tail + frame.length;
    return true;
  }
}

// A program may end as soon as it has its message, and is sure that the message is
// acknowledged: before the first one is taken there has to be a way back.
bool Fabric::State::can_answer(u16 src) {
  Incoming &i = in[src];
  const u64 now = now_ns();
  if (i.answer_by == 0) i.answer_by = now + answer_max_wait_ns;
  i.answerable =
      !usable(src) || out[src].primary != 0 || ready(src) != Reserve::full || now >= i.answer_by;
  unanswerable |= !i.answerable;
  return i.answerable;
}

bool Fabric::State::poll(u16 src, const u8 *&payload) {
  RingMeta &ring = control->rings[src];
  Incoming &i = in[src];
  if (ring.generation.load(std::memory_order_acquire) != i.generation) adopt(src);
  const u64 head = ring.head.load(std::memory_order_acquire);
  if (head == i.tail || i.generation == 0) return false;
  if (i.data == nullptr) {
    // Kept from then on. Without descriptors or address space the ring is a
    // lossy wire rather than a stalled one.
    i.data = map_segment(own.memory, src, ring_bytes, false);
    if (i.data == nullptr) {
      const int error = errno;
      discard(src, head, (std::string(strerror(error)) + limit_behind(error).text).c_str());
      return false;
    }
  }
  return next_record(src, head, payload);
}

// Stops looking at a ring that has been quiet. Clear first, then look again:
// the sender publishes first and then looks at the bit.
void Fabric::State::note_quiet(u16 src, u32 limit) {
  Incoming &i = in[src];
  if (++i.quiet < limit) return;
  i.quiet = 0;
  const u64 bit = u64{1} << src % 64;
  control->active[src / 64].fetch_and(~bit, std::memory_order_seq_cst);
  RingMeta &ring = control->rings[src];
  // What a broken process may have spoilt of ours: its sender waits for it.
  if (ring.tail.load(std::memory_order_relaxed) != i.tail)
    ring.tail.store(i.tail, std::memory_order_release);
  if (ring.confirmed.load(std::memory_order_relaxed) != i.generation)
    ring.confirmed.store(i.generation, std::memory_order_release);
  const u32 generation = ring.generation.load(std::memory_order_seq_cst);
  if (generation != i.generation ||
      (generation != 0 && ring.head.load(std::memory_order_seq_cst) != i.tail))
    control->active[src / 64].fetch_or(bit, std::memory_order_seq_cst);
}

bool Fabric::receive(const PacketHeader *&header, const u8 *&payload) {
  State &s = *s_;
  if (s.current != 0) release();
  s.unanswerable = false;
  // Nearly always none or one has sent: this case must be cheap.
  u64 active[bitmap_words];
  u32 words = 0;  // that are not 0
  for (u32 w = 0; w < bitmap_words; ++w) {
    active[w] = s.control->active[w].load(std::memory_order_acquire);
    words |= u32{active[w] != 0} << w;
  }
  if (words == 0) return false;

  // Round robin: every active sender once, beginning behind the last served.
  u32 senders = 0;
  const u32 limit = std::max(quiet_polls / s.quiet_senders, 4u);
  const auto poll = [&](u32 word, u64 among) {
    for (u64 bits = active[word] & among; bits != 0; bits &= bits - 1) {
      const u16 src = static_cast<u16>(word * 64 + static_cast<u32>(std::countr_zero(bits)));
      if (s.poll(src, payload)) {
        s.in[src].quiet = 0;
        s.first_is_due(src, false);
        s.last_served = src;
        return true;
      }
      s.note_quiet(src, limit);
      ++senders;
    }
    return false;
  };
  const u32 last = s.last_served / 64;
  const u64 behind = ~u64{1} << s.last_served % 64;
  const u32 later = words & (~u32{1} << last), earlier = words & ((u32{1} << last) - 1);
  bool found = poll(last, behind);
  for (const u32 part : {later, earlier})
    for (u32 left = part; left != 0 && !found; left &= left - 1)
      found = poll(static_cast<u32>(std::countr_zero(left)), ~u64{0});
  if (found || poll(last, ~behind)) {
    header = &s.header;
    return true;
  }
  s.quiet_senders = std::max(senders, 1u);
  return false;
}

void Fabric::release() {
  State &s = *s_;
  if (s.current == 0) return;
  s.in[s.current].tail = s.current_end;
  s.control->rings[s.current].tail.store(s.current_end, std::memory_order_release);
  s.current = 0;
}

bool Fabric::is_last() const {
  const State &s = *s_;
  return s.current != 0 &&
         s.control->rings[s.current].head.load(std::memory_order_acquire) == s.current_end;
}

void Fabric::hold() { s_->current = 0; }

bool Fabric::waits_for_way_back() const { return s_->unanswerable; }

bool Fabric::expects_first() const { return s_->firsts_due != 0; }

void Fabric::expect_no_first() {
  for (u16 src = 0; src < max_slots; ++src) s_->first_is_due(src, false);
}

// --- sleeping --------------------------------------------------------------

// Called without the device lock: touches shared words only.
bool Fabric::State::something_pending() const {
  for (size_t w = 0; w < bitmap_words; ++w) {
    u64 bits = control->active[w].load(std::memory_order_seq_cst);
    for (; bits != 0; bits &= bits - 1) {
      const RingMeta &ring = control->rings[w * 64 + static_cast<size_t>(std::countr_zero(bits))];
      const u32 generation = ring.generation.load(std::memory_order_seq_cst);
      if (generation != ring.confirmed.load(std::memory_order_acquire)) return true;
      if (generation != 0 &&
          ring.head.load(std::memory_order_seq_cst) != ring.tail.load(std::memory_order_acquire))
        return true;
    }
  }
  return false;
}

bool Fabric::pending() const { return s_->something_pending(); }

void Fabric::State::count_sleepers(int change) {
  const std::lock_guard lock(sleepers_mutex);
  sleepers += static_cast<u32>(change);
  control->sleeping.store(sleepers, std::memory_order_seq_cst);
}

void Fabric::State::publish_interest() {
  const u32 groups = multicast_groups.load(std::memory_order_relaxed);
  const u32 rules = flow_rules.load(std::memory_order_relaxed);
  if (control->multicast_groups.load(std::memory_order_relaxed) != groups)
    control->multicast_groups.store(groups, std::memory_order_release);
  if (control->flow_rules.load(std::memory_order_relaxed) != rules)
    control->flow_rules.store(rules, std::memory_order_release);
}

void Fabric::wait(u64 ns) {
  State &s = *s_;
  Control &c = *s.control;
  s.publish_interest();
  c.rung.store(0, std::memory_order_seq_cst);
  const u32 seen = c.bell.load(std::memory_order_seq_cst);
  s.count_sleepers(1);
  if (!s.woken.load(std::memory_order_seq_cst) && !s.something_pending()) {
    const timespec timeout{static_cast<time_t>(ns / 1'000'000'000),
                           static_cast<long>(ns % 1'000'000'000)};
    futex_wait(c.bell, seen, ns == ~u64{0} ? nullptr : &timeout);
  }
  s.count_sleepers(-1);
  s.woken.store(false, std::memory_order_seq_cst);
}

// Sticky: a wake() between the caller's last look and its wait() counts.
void Fabric::wake() {
  s_->woken.store(true, std::memory_order_seq_cst);
  ring_bell(*s_->control);
}

// --- membership ------------------------------------------------------------

Fabric *Fabric::join(const std::string &name, u32 ring_bytes) {
  ring_bytes = round_up_pow2(std::clamp(ring_bytes, min_ring_bytes, max_ring_bytes));
  std::string directory = fabric_directory(name);
  if (directory.empty()) return nullptr;
  auto s = std::make_unique<State>();
  if (!claim_slot(directory, ring_bytes, s->own)) return nullptr;
  s->directory = std::move(directory);
  s->slot = s->own.number;
  s->ring_bytes = ring_bytes;
  s->control = s->own.control;
  remember_slot(s->directory, s->own);
  return new Fabric(s.release());
}

void Fabric::leave(bool forked) {
  // A forked child inherits none of the mappings: see slot_file.h.
  forget_slot(s_->own);
  for (OwnSlot &own : s_->further) forget_slot(own);
  if (!forked) {
    s_->control->closed.store(1, std::memory_order_release);
    for (u16 dst = 0; dst < max_slots; ++dst) s_->drop(dst);
    for (Incoming &i : s_->in)
      if (i.data != nullptr) calls::munmap(i.data, s_->ring_bytes);
    for (OwnSlot &own : s_->further) leave_slot(s_->directory, own);
    leave_slot(s_->directory, s_->own);
  }
  delete s_;
  delete this;
}

u16 Fabric::slot() const { return s_->slot; }

u16 Fabric::further_slot() {
  OwnSlot &own = s_->further.emplace_back();
  if (!claim_further_slot(s_->directory, s_->ring_bytes, s_->own, own)) {
    s_->further.pop_back();
    return 0;
  }
  remember_slot(s_->directory, own);
  return own.number;
}

void Fabric::set_multicast_groups(u32 n) {
  s_->multicast_groups.store(n, std::memory_order_relaxed);
  s_->publish_interest();
}

void Fabric::set_flow_rules(u32 n) {
  s_->flow_rules.store(n, std::memory_order_relaxed);
  s_->publish_interest();
}

u32 Fabric::multicast_slots(u16 *list, u32 capacity) {
  return s_->interested(list, capacity, &Control::multicast_groups);
}

u32 Fabric::ethernet_slots(u16 *list, u32 capacity) {
  return s_->interested(list, capacity, &Control::flow_rules);
}

// Slots of live processes whose `count` is not zero, in ascending order.
u32 Fabric::State::interested(u16 *list, u32 capacity, std::atomic<u32> Control::*count) {
  const u64 now = now_ns();
  if (now >= listed_at + retry_missing_ns) {
    existing_slots(directory, listed);
    listed_at = now;
  }
  u32 n = 0;
  for (size_t w = 0; w < bitmap_words; ++w)
    for (u64 bits = listed[w]; bits != 0 && n < capacity; bits &= bits - 1) {
      const u16 dst = static_cast<u16>(w * 64 + static_cast<size_t>(std::countr_zero(bits)));
      if (usable(dst) && out[dst].primary == 0 &&
          (out[dst].control->*count).load(std::memory_order_acquire) != 0)
        list[n++] = dst;
    }
  return n;
}

}  // namespace softhca
