// Transmit scheduling: trees of elements that limit the bandwidth of the queue pairs below
// them, and divide what there is by weights.
#pragma once

#include <memory>
#include <vector>

#include "base/types.h"

namespace softhca {

class ScheduleElement {
 public:
  explicit ScheduleElement(std::shared_ptr<ScheduleElement> parent);
  ~ScheduleElement();
  ScheduleElement(const ScheduleElement &) = delete;
  ScheduleElement &operator=(const ScheduleElement &) = delete;

  static constexpr u32 max_depth = 16;
  u32 depth() const { return depth_; }  // 1: without a parent

  // When something may leave through this element and all above it: now, or later.
  u64 due(u64 now_ns);
  // `bytes` have left.
  void account(u64 bytes, u64 now_ns);

  u32 max_mbps = 0;  // 0: no limit
  u32 share = 0;     // among the children of the parent; 0: the default

 private:
  bool yields(u64 now_ns) const;
  bool limited() const;

  std::shared_ptr<ScheduleElement> parent_;
  const u32 depth_;
  std::vector<ScheduleElement *> children_;
  u64 next_ns_ = 0;         // nothing leaves before
  u64 served_ = 0;          // in proportion to the share
  u64 wants_until_ns_ = 0;  // it has something to send, as far as is known
};

}  // namespace softhca
