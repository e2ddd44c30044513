// Locks and fork().
#include "base/lock.h"

#include <catch.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

using namespace ibvexp;

namespace {

// What act() says in a child of fork(); one that hangs is killed.
template <class Act>
bool in_child(Act act) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(act() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// A thread that runs for as long as the test needs it.
class Busy {
 public:
  template <class Act>
  explicit Busy(Act act)
      : thread_([this, act] {
          while (!stop_) act();
        }) {}
  ~Busy() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a child of fork finds mutexes free and what they protect whole") {
  Mutex outer, inner;
  std::uint64_t first = 0, second = 0;
  const auto change = [&] {
    const MutexGuard guard(outer), also(inner);
    ++first;
    std::this_thread::yield();
    ++second;
  };
  const Busy one(change), two(change);
  for (int round = 0; round < 100; ++round) {
    REQUIRE(in_child([&] {
      const MutexGuard guard(outer), also(inner);
      return first == second;
    }));
    change();
  }
}

TEST_CASE("a child of fork takes a spin lock over from a thread it does not have") {
  SpinLock lock;
  std::atomic<bool> taken{false}, done{false};
  std::thread holder([&] {
    lock.lock();
    taken = true;
    while (!done) std::this_thread::yield();
    lock.unlock();
  });
  while (!taken) std::this_thread::yield();
  CHECK_FALSE(lock.try_lock());
  const auto twice = [&] {
    lock.lock();
    const bool exclusive = !lock.try_lock();
    lock.unlock();
    return exclusive && lock.try_lock();
  };
  CHECK(in_child(twice));
  // And so does a grandchild, of the child's threads and of ours.
  CHECK(in_child([&] { return in_child(twice); }));
  CHECK(in_child([&] { return lock.try_lock() && in_child(twice); }));
  CHECK_FALSE(lock.try_lock());
  done = true;
  holder.join();
  CHECK(lock.try_lock());
}

TEST_CASE("a thread that forks with a mutex of ours in its hands goes on") {
  Mutex mutex, other;
  const MutexGuard guard(mutex);
  CHECK(in_child([&] {
    mutex.unlock();
    mutex.lock();
    const MutexGuard also(other);
    return in_child([&] {
      mutex.unlock();
      return true;
    });
  }));
}

TEST_CASE("a spin lock lets one at a time in") {
  SpinLock lock;
  std::uint64_t count = 0;
  const auto add = [&] {
    for (int i = 0; i < 20000; ++i) {
      const std::lock_guard guard(lock);
      ++count;
    }
  };
  std::thread one(add), two(add);
  one.join();
  two.join();
  CHECK(count == 40000);
}
