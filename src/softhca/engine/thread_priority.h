// How the device's threads stand against the application's.
//
// A program that posts and polls without locks often leaves the device only a processor on which it
// spins itself. There a thread of the same weight that naps and looks gets its turn promptly most of the
// time, and once in some 20 ms only when a time slice of the program ends: as long as a hundred round
// trips. So where the process may (CAP_SYS_NICE, RLIMIT_NICE), the thread weighs more. It gives that
// up while it works without pause, which would leave programs nothing, and for a while when a nap
// lasted too long: then others like it want the same processor.
#pragma once

#include "base/types.h"

namespace softhca {

// Raises the calling thread's priority for good. For a thread that only serves its callers.
void raise_priority();

// For use by the thread that creates it.
class ThreadPriority {
 public:
  // With `wanted` false, or where it is not allowed, nothing changes.
  explicit ThreadPriority(bool wanted);
  // A step found something to do.
  void worked(u64 now_ns);
  // The step found nothing. Returns how long the thread is to sleep: `shortest_ns`, or more when it ran for long
  // since it was woken.
  u64 nap_ns(u64 shortest_ns, u64 now_ns);
  // The thread slept as nap_ns() said.
  void woke(u64 asked_ns, u64 now_ns);
  // It slept otherwise, for as long as there was nothing to do.
  void rested(u64 now_ns) { woke_at_ = now_ns; }

 private:
  void weigh(bool more);

  bool allowed_, more_ = false;
  int usual_;              // nice value
  u64 working_since_ = 0;  // 0: the last step found nothing
  u64 slept_at_ = 0, woke_at_ = 0;
  u64 again_at_ = 0;  // not before
};

}  // namespace softhca
