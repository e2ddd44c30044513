// The doorbell registers ("blue flame registers") of a context whose library
// cannot allocate pages one by one: libmlx5 before release 29. The driver gives
// the context some pages when it is opened and chooses a register for each queue
// pair; further ones, for thread domains, are a range of their own.
#pragma once

#include <vector>

#include "base/types.h"

namespace softhca::uverbs {

class Bfregs {
 public:
  static constexpr u32 per_page = 2;
  static constexpr u32 max_static = 512;
  static constexpr u32 dynamic = 64;

  // What the library asked for, an even number; 0 or an errno value. As in the
  // driver, the last `low_latency` are for one queue pair each, and the first is
  // shared by what is left over.
  int open(u32 total, u32 low_latency);
  void close() { users_.clear(); }

  bool in_use() const { return !users_.empty(); }
  u32 total() const { return static_cast<u32>(users_.size()); }
  u32 pages() const { return total() / per_page; }

  // A register for a queue pair, and back.
  u32 take();
  void give(u32 bfreg) { --users_[bfreg]; }

  // The number by which libmlx5 knows it: its pages have room for two more
  // registers, which are not used.
  static u32 as_library_counts(u32 bfreg) { return bfreg / per_page * 4 + bfreg % per_page; }

 private:
  std::vector<u32> users_;
  u32 first_low_latency_ = 0;
};

}  // namespace softhca::uverbs
