// Completion queues: writing CQEs, arming, moderation, resize, overrun.
#pragma once

#include <vector>

#include "base/prm.h"
#include "base/types.h"
#include "model/event.h"

namespace softhca {

struct Qp;

enum class CqeCompression : u8 { off, hash, checksum, checksum_stridx };

struct Cq {
  u32 cqn = 0;
  u64 user_handle = 0;
  u8 *buffer = nullptr;
  u32 *dbrec = nullptr;  // [0] consumer index, [1] what it is armed for
  u32 *arm = nullptr;    // where the device looks for that: a PCI function keeps what its
                         // doorbell said, for software initializes the record as if armed
  u32 entries = 0;       // power of two
  u32 cqe_size = 64;     // 64 or 128
  bool ignore_overrun = false;
  CqeCompression compression = CqeCompression::off;
  u16 moderation_count = 0;   // events at most every `count` completions
  u16 moderation_period = 0;  // or every `period` microseconds
  EventSink completion;       // channel may be null
  EventSink async;

  // Device state.
  u32 producer = 0;            // CQEs written since creation
  u32 solicited_producer = 0;  // producer behind the newest solicited or error CQE
  bool solicited_seen = false;
  u32 last_notified = 0;     // producer at the newest event (cqc last_notified_index)
  bool error = false;        // overrun: no more CQEs
  std::vector<u32> waiting;  // QPs that stand at a WAIT for it
  bool watched = false;      // on the engine's list of CQs to check for arming
  u32 moderated = 0;         // completions since the last event
  u64 moderation_start = 0;
  std::vector<Cqe> pending;  // completions held back for compression
};

// Prepares the arm record of a fresh CQ.
void cq_start(Cq &);
// Completes the resize: closes the old buffer with a RESIZE_CQ completion and
// continues in the new one. Returns EINVAL if the outstanding CQEs do not fit.
int cq_resize(Cq &, u8 *buffer, u32 entries, u32 cqe_size);

// Writes one completion. `inline_data` (at most 32, or 64 with 128-byte CQEs)
// is scattered into the CQE. False when the CQ is in error.
bool cq_write(Cq &, Cqe &, CqeOpcode, bool solicited, const u8 *inline_data = nullptr,
              u32 inline_bytes = 0);
// Writes out what compression held back.
void cq_flush_compressed(Cq &);
// Fires the completion event if the CQ is armed for what it holds. Returns
// whether the CQ still holds completions the application has not consumed.
bool cq_check_arm(Cq &, u64 now_ns);

}  // namespace softhca
