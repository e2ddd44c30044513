// Shared receive queues: a linked list of WQEs in application memory.
#pragma once

#include <memory>

#include "base/types.h"
#include "model/cq.h"
#include "model/event.h"
#include "model/strides.h"

namespace softhca {

enum class SrqType : u8 { basic = 0, xrc = 1, tag_matching = 2 };

struct TagList;

struct Srq {
  Srq();
  ~Srq();

  u32 srqn = 0;
  u64 user_handle = 0;
  SrqType type = SrqType::basic;
  u32 pdn = 0;
  u32 uidx = unused_uidx;  // XRC, tag matching: reported in CQEs instead of the QP's
  u32 xrcd = 0;            // number of the XRC domain, XRC only
  u8 *buffer = nullptr;
  u32 *dbrec = nullptr;  // [0] number of WQEs posted, 16 bit
  u32 entries = 0;       // power of two: round_up(max_wr + 1)
  bool cyclic = false;   // the next WQE is the one behind, whatever it says of itself
  u32 stride = 0;        // bytes per WQE: next segment + data segments
  u32 max_sge = 0;
  Strides strides;                // tag matching only: each packet of a message takes its own
  Cq *cq = nullptr;               // XRC and tag matching
  std::unique_ptr<TagList> tags;  // tag matching only
  EventSink async;

  u16 consumed = 0;
  u16 head = 0;   // index of the next WQE
  u32 limit = 0;  // 0: not armed
};

u16 srq_available(const Srq &);
// Raises SRQ_LIMIT_REACHED if armed and below the limit (one shot).
void srq_check_limit(Srq &);

}  // namespace softhca
