// How long those who send without a connection wait for a receiver whose ring is full.
#pragma once

#include <array>

#include "base/types.h"
#include "wire/fabric.h"

namespace softhca {

// The wire loses nothing while a receiver lives. But datagrams and frames have no connection that
// would fail, and a receiver that has stopped must not stop their senders for all others. So a full
// ring is waited for once, long enough for a process that merely gets no processor; what comes for it
// after that is lost at once, until there is room again.
class FullRingWait {
 public:
  static constexpr u64 longest_ns = 5'000'000'000;

  // The ring to `slot` is full. False when what it has no room for is lost.
  bool goes_on(u16 slot, u64 now_ns) {
    Full &f = full_[slot];
    // A caller that looks again after so long has not waited all the time.
    if (f.since_ns == 0 || now_ns > f.seen_ns + longest_ns) f.since_ns = now_ns;
    f.seen_ns = now_ns;
    return now_ns < f.since_ns + longest_ns;
  }
  void has_room(u16 slot) { full_[slot].since_ns = 0; }

 private:
  struct Full {
    u64 since_ns = 0, seen_ns = 0;
  };
  std::array<Full, max_slots> full_;
};

}  // namespace softhca
