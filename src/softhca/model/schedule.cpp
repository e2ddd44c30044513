#include "model/schedule.h"

#include <algorithm>

namespace softhca {

namespace {

constexpr u32 default_share = 1;
// A queue that has asked to send keeps its place for so long.
constexpr u64 max_wait_ns = 2'000'000;
// How far a queue may be ahead of others of the same parent, and when it looks again.
constexpr u64 ahead_bytes = 65536, look_again_ns = 20'000;

// Bytes by share, in parts fine enough for large shares and small packets.
u64 portion(u64 bytes, const ScheduleElement &e) {
  return (bytes << 10) / (e.share != 0 ? e.share : default_share);
}

}  // namespace

ScheduleElement::ScheduleElement(std::shared_ptr<ScheduleElement> parent)
    : parent_(std::move(parent)), depth_(parent_ != nullptr ? parent_->depth_ + 1 : 1) {
  if (parent_ != nullptr) parent_->children_.push_back(this);
}

ScheduleElement::~ScheduleElement() {
  if (parent_ != nullptr) std::erase(parent_->children_, this);
}

bool ScheduleElement::limited() const {
  return max_mbps != 0 || (parent_ != nullptr && parent_->limited());
}

// Whether another child of the parent that wants to send has had less by its share.
bool ScheduleElement::yields(u64 now_ns) const {
  const u64 ahead = portion(ahead_bytes, *this);
  for (const ScheduleElement *other : parent_->children_)
    if (other != this && other->wants_until_ns_ > now_ns && other->served_ + ahead < served_)
      return true;
  return false;
}

u64 ScheduleElement::due(u64 now_ns) {
  u64 due = std::max(now_ns, next_ns_);
  if (parent_ != nullptr) {
    // Only a limit above makes anything scarce: the wire itself has none.
    if (parent_->limited()) {
      if (wants_until_ns_ <= now_ns) {
        // Nothing is saved up while there is nothing to send.
        u64 least = ~u64{0};
        for (const ScheduleElement *other : parent_->children_)
          if (other != this && other->wants_until_ns_ > now_ns)
            least = std::min(least, other->served_);
        if (least != ~u64{0}) served_ = std::max(served_, least);
      }
      if (yields(now_ns)) due = std::max(due, now_ns + look_again_ns);
    }
    due = std::max(due, parent_->due(now_ns));
  }
  wants_until_ns_ = due + max_wait_ns;
  return due;
}

void ScheduleElement::account(u64 bytes, u64 now_ns) {
  if (max_mbps != 0) next_ns_ = std::max(next_ns_, now_ns) + bytes * 8 * 1000 / max_mbps;
  served_ += portion(bytes, *this);
  if (parent_ != nullptr) parent_->account(bytes, now_ns);
}

}  // namespace softhca
