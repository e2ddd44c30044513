#include "uverbs/bfregs.h"

#include <algorithm>
#include <cerrno>

namespace softhca::uverbs {

// Kernel: calc_total_bfregs.
int Bfregs::open(u32 total, u32 low_latency) {
  if (total == 0 || low_latency >= total) return EINVAL;
  if (total > max_static) return ENOMEM;
  users_.assign(total, 0);
  first_low_latency_ = total - low_latency;
  return 0;
}

// Kernel: alloc_bfreg.
u32 Bfregs::take() {
  const auto low = users_.begin() + first_low_latency_;
  auto found = std::find(low, users_.end(), 0u);
  if (found == users_.end())
    found = first_low_latency_ > 1 ? std::min_element(users_.begin() + 1, low) : users_.begin();
  ++*found;
  return static_cast<u32>(found - users_.begin());
}

}  // namespace softhca::uverbs
