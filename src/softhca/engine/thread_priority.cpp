#include "engine/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace softhca {

namespace {

constexpr int urgent_nice = -20;
constexpr u64 longest_work_ns = 10'000'000;
constexpr u64 late_ns = 200'000;        // a sleep that ends so much too late counts as late
constexpr u64 crowded_ns = 20'000'000;  // how long the priority stays normal after that
constexpr u64 sleep_per_run = 2;        // a third of a processor at most
constexpr u64 longest_nap_ns = 50'000;

id_t own_thread() { return static_cast<id_t>(syscall(SYS_gettid)); }

bool set_own_nice(int nice) { return setpriority(PRIO_PROCESS, own_thread(), nice) == 0; }

}  // namespace

void raise_priority() { (void)set_own_nice(urgent_nice); }

ThreadPriority::ThreadPriority(bool wanted) : allowed_(wanted) {
  errno = 0;
  usual_ = getpriority(PRIO_PROCESS, own_thread());
  if (errno != 0) allowed_ = false;
}

void ThreadPriority::weigh(bool more) {
  if (more == more_ || !allowed_) return;
  if (!set_own_nice(more ? urgent_nice : usual_)) allowed_ = false;
  else more_ = more;
}

void ThreadPriority::worked(u64 now_ns) {
  if (working_since_ == 0) working_since_ = now_ns;
  if (now_ns > working_since_ + longest_work_ns) weigh(false);
}

u64 ThreadPriority::nap_ns(u64 shortest_ns, u64 now_ns) {
  working_since_ = 0;
  if (now_ns >= again_at_) weigh(true);
  slept_at_ = now_ns;
  const u64 ran = woke_at_ != 0 && now_ns > woke_at_ ? now_ns - woke_at_ : 0;
  return std::max(shortest_ns, std::min(sleep_per_run * ran, longest_nap_ns));
}

void ThreadPriority::woke(u64 asked_ns, u64 now_ns) {
  woke_at_ = now_ns;
  if (!more_ || now_ns < slept_at_ + asked_ns + late_ns) return;
  weigh(false);
  again_at_ = now_ns + crowded_ns;
}

}  // namespace softhca
