#include "model/cq.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/log.h"
#include "model/cross_channel.h"
#include "model/device.h"
#include "model/driver.h"

namespace softhca {

namespace {

// libmlx5 never reads the arm record, so the device keeps its own mark there:
// "not armed". The first arm of a fresh CQ writes 0, which plain memory could
// not distinguish from "never written".
constexpr u32 not_armed = 0xffffffff;

constexpr u32 counter_mask = 0xffffff;
constexpr u8 format_compressed = 3 << 2;
constexpr u8 inline_32 = 1 << 2;
constexpr u8 inline_64 = 2 << 2;

u32 consumer(const Cq &cq) { return read_doorbell(&cq.dbrec[0]) & counter_mask; }
u32 outstanding(const Cq &cq) { return (cq.producer - consumer(cq)) & counter_mask; }

// The 64-byte part of the CQE in slot `index`: the second half of a 128-byte one.
u8 *slot_of(Cq &cq, u32 index) {
  u8 *cqe = cq.buffer + static_cast<u64>(index & (cq.entries - 1)) * cq.cqe_size;
  return cq.cqe_size == 128 ? cqe + 64 : cqe;
}

u8 owner_of(const Cq &cq, u32 index) { return (index / cq.entries) & 1; }

// Software trusts a CQE once the owner bit matches, so byte 63 goes last. Programs that read
// strides without looking at owners (eRPC) trust wqe_counter, in the second half, if wqe_id, in
// the first, is the same in front of it and behind: a card writes both at once.
void publish(u8 *slot, const u8 *raw, u8 op_own) {
  std::memcpy(slot + 32, raw + 32, 31);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(slot, raw, 32);
  __atomic_store_n(slot + 63, op_own, __ATOMIC_RELEASE);
}

bool room_for(Cq &cq, u32 more) {
  if (cq.error) return false;
  if (cq.ignore_overrun || outstanding(cq) + more <= cq.entries) return true;
  cq.error = true;
  SOFTHCA_LOG(warn, "CQ %#x overrun: %u entries", cq.cqn, cq.entries);
  cq.async.report(cq.user_handle, EventType::cq_err);
  return false;
}

void after_write(Cq &cq, bool wakes) {
  if (!cq.waiting.empty()) wake_waiting(cq);
  if (wakes) {
    cq.solicited_seen = true;
    cq.solicited_producer = cq.producer;
  }
  if (!cq.completion.heard()) return;
  if (cq_check_arm(cq, device_clock_ns())) cq_watch(cq);
}

// Whether `next` differs from the run's first CQE in nothing but what a mini
// CQE carries: byte count, hash, checksum, and a wqe_counter that follows.
bool continues(const std::vector<Cqe> &run, const Cqe &next) {
  if (run.empty()) return true;
  const u8 *a = run.front().raw, *b = next.raw;
  const u16 expected = static_cast<u16>(load_be16(a + 60) + run.size());
  return load_be16(b + 60) == expected && std::memcmp(a, b, 12) == 0 &&
         std::memcmp(a + 16, b + 16, 4) == 0 && std::memcmp(a + 22, b + 22, 22) == 0 &&
         std::memcmp(a + 56, b + 56, 4) == 0;
}

constexpr size_t max_compressed = 64;  // as cqe_comp_caps.max_num reports

// Writes `n` held-back completions: one as it is, more as a title and arrays of
// eight mini CQEs. Completions 0-7 are in the slot behind the title, then one
// array in every eighth slot. The slots between stay as they are; software
// repairs their owner bits.
void write_block(Cq &cq, const Cqe *held, u32 n) {
  const u32 first = cq.producer;
  Cqe title = held[0];
  u8 op_own = static_cast<u8>(static_cast<u8>(CqeOpcode::resp_send) << 4 | owner_of(cq, first));
  for (u32 i = 0; n > 1 && i < n; i += 8) {
    u8 array[64] = {};
    for (u32 j = 0; j < 8 && i + j < n; ++j) {
      const u8 *raw = held[i + j].raw;
      u8 *mini = array + j * 8;
      if (cq.compression == CqeCompression::hash) {
        std::memcpy(mini, raw + 12, 4);
      } else {
        std::memcpy(mini + 2, raw + 20, 2);
        if (cq.compression == CqeCompression::checksum_stridx) std::memcpy(mini, raw + 60, 2);
      }
      std::memcpy(mini + 4, raw + 44, 4);
    }
    std::memcpy(slot_of(cq, first + (i == 0 ? 1 : i)), array, sizeof array);
  }
  if (n > 1) {
    title.byte_count(n);
    op_own |= format_compressed;
  }
  publish(slot_of(cq, first), title.raw, op_own);
  cq.producer += n;
}

}  // namespace

void cq_start(Cq &cq) {
  if (cq.arm == nullptr) cq.arm = &cq.dbrec[1];
  __atomic_store_n(cq.arm, not_armed, __ATOMIC_RELEASE);
  process().cqs[cq.cqn] = &cq;
}

int cq_resize(Cq &cq, u8 *buffer, u32 entries, u32 cqe_size) {
  cq_flush_compressed(cq);
  // The mark takes an entry of the old buffer.
  if (outstanding(cq) >= entries || !room_for(cq, 1)) return EINVAL;
  // The library reads the old buffer up to this mark, then copies what it has
  // not consumed; counters go on.
  Cqe mark;
  publish(slot_of(cq, cq.producer), mark.raw,
          static_cast<u8>(static_cast<u8>(CqeOpcode::resize_cq) << 4 | owner_of(cq, cq.producer)));
  ++cq.producer;
  cq.buffer = buffer;
  cq.entries = entries;
  cq.cqe_size = cqe_size;
  return 0;
}

bool cq_write(Cq &cq, Cqe &cqe, CqeOpcode opcode, bool solicited, const u8 *inline_data,
              u32 inline_bytes) {
  const bool error = opcode == CqeOpcode::req_err || opcode == CqeOpcode::resp_err;
  // The timestamp shares its bytes with the syndromes of an error CQE.
  if (!error) {
    // A program that reads the clock after the completion must not find an earlier time.
    const u64 now_ns = device_clock_ns();
    clock_show(now_ns);
    cqe.timestamp(now_ns);
  }

  if (cq.compression != CqeCompression::off) {
    if (opcode == CqeOpcode::resp_send && !solicited && inline_bytes == 0) {
      if (!continues(cq.pending, cqe) || cq.pending.size() == max_compressed)
        cq_flush_compressed(cq);
      if (cq.pending.empty()) process().compressing.push_back(&cq);
      cq.pending.push_back(cqe);
      return !cq.error;
    }
    cq_flush_compressed(cq);
  }

  if (!room_for(cq, 1)) return false;
  u8 *slot = slot_of(cq, cq.producer);
  u8 op_own = static_cast<u8>(static_cast<u8>(opcode) << 4 | (solicited ? 2 : 0) |
                              owner_of(cq, cq.producer));
  if (inline_bytes > 0 && cq.cqe_size == 128) {
    // However small: the completion itself stays whole. A DC target's names the sender.
    std::memcpy(slot - 64, inline_data, inline_bytes);
    op_own |= inline_64;
  } else if (inline_bytes > 0) {
    std::memcpy(cqe.raw, inline_data, inline_bytes);
    op_own |= inline_32;
  }
  publish(slot, cqe.raw, op_own);
  ++cq.producer;
  after_write(cq, solicited || error);
  return true;
}

void cq_flush_compressed(Cq &cq) {
  if (cq.pending.empty()) return;
  const u32 n = static_cast<u32>(cq.pending.size());
  auto &list = process().compressing;
  std::erase(list, &cq);
  if (!room_for(cq, n)) {
    cq.pending.clear();
    return;
  }
  // No block crosses the end of the queue: software walks one without wrapping.
  for (u32 done = 0; done < n;) {
    const u32 to_end = cq.entries - (cq.producer & (cq.entries - 1));
    const u32 block = std::min(n - done, to_end);
    write_block(cq, cq.pending.data() + done, block);
    done += block;
  }
  cq.pending.clear();
  after_write(cq, false);
}

bool cq_check_arm(Cq &cq, u64 now_ns) {
  const u32 unread = outstanding(cq);
  if (unread == 0) {
    cq.moderation_start = 0;
    return false;
  }
  u32 raw = __atomic_load_n(cq.arm, __ATOMIC_ACQUIRE);
  if (raw == not_armed || !cq.completion.heard()) return true;

  const u32 armed = swap32(raw);
  // What an event has reported is not reported again, even if the application
  // arms before it polls: only completions behind both the consumer index of
  // the arm and the last event count. (The hardware keeps that index in the CQ
  // context; programs that wait for one of several CQs rely on it.)
  u32 seen = armed & counter_mask;
  const u32 notified = (cq.last_notified - seen) & counter_mask;
  if (notified <= cq.entries) seen = cq.last_notified & counter_mask;
  const u32 newer = (cq.producer - seen) & counter_mask;
  // A consumer index in the record that lies ahead of the producer belongs to
  // an earlier life of the buffer.
  if (newer == 0 || newer > 2 * cq.entries) return true;
  if ((armed >> 24 & 1) != 0) {
    const u32 behind = (cq.solicited_producer - 1 - seen) & counter_mask;
    if (!cq.solicited_seen || behind >= newer) return true;
  }
  if (cq.moderation_count > 1 && newer < cq.moderation_count) {
    if (cq.moderation_start == 0) cq.moderation_start = now_ns;
    if (now_ns - cq.moderation_start < u64{cq.moderation_period} * 1000) return true;
  }
  if (!__atomic_compare_exchange_n(cq.arm, &raw, not_armed, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_RELAXED))
    return true;  // the application is arming right now: look again
  cq.moderation_start = 0;
  cq.last_notified = cq.producer;
  cq.completion.report_completion(cq.user_handle);
  process().last_event_ns = now_ns;
  return true;
}

}  // namespace softhca
