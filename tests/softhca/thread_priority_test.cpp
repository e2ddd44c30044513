// The weight of the device's thread (engine/thread_priority.h), in a thread of its own.
#include "engine/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "catch.h"
#include "skip.h"

using softhca::ThreadPriority;

namespace {

constexpr softhca::u64 us = 1000, ms = 1'000'000;

int own_nice() { return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid))); }

template <class F>
void in_a_thread(F f) {
  std::thread(f).join();
}

// Whether this process may do what the test is about.
bool may_weigh_more() {
  bool may = false;
  in_a_thread([&] {
    softhca::raise_priority();
    may = own_nice() == -20;
  });
  if (!may) WARN("not allowed to raise priorities");
  return may;
}

}  // namespace

TEST_CASE("A thread that naps weighs more", "[thread_priority]") {
  const bool may = may_weigh_more();
  in_a_thread([&] {
    const int usual = own_nice();
    ThreadPriority u(true);
    CHECK(own_nice() == usual);
    CHECK(u.nap_ns(10 * us, 1 * ms) == 10 * us);
    CHECK(own_nice() == (may ? -20 : usual));
  });
}

TEST_CASE("A thread that works without pause weighs what others do", "[thread_priority]") {
  SKIP_IF(!may_weigh_more(), "not allowed to raise priorities");
  in_a_thread([] {
    const int usual = own_nice();
    ThreadPriority u(true);
    u.nap_ns(10 * us, 1 * ms);
    u.woke(10 * us, 1 * ms + 15 * us);
    u.worked(2 * ms);
    u.worked(12 * ms);
    CHECK(own_nice() == -20);
    u.worked(12 * ms + 1);
    CHECK(own_nice() == usual);
    // What counts begins anew with a nap.
    u.nap_ns(10 * us, 13 * ms);
    u.woke(10 * us, 13 * ms + 15 * us);
    u.worked(14 * ms);
    u.worked(24 * ms);
    CHECK(own_nice() == -20);
  });
}

TEST_CASE("A nap that lasts too long ends the weight for a while", "[thread_priority]") {
  SKIP_IF(!may_weigh_more(), "not allowed to raise priorities");
  in_a_thread([] {
    const int usual = own_nice();
    ThreadPriority u(true);
    u.nap_ns(10 * us, 1 * ms);
    u.woke(10 * us, 1 * ms + 210 * us - 1);
    CHECK(own_nice() == -20);
    u.nap_ns(10 * us, 2 * ms);
    u.woke(10 * us, 2 * ms + 210 * us);
    CHECK(own_nice() == usual);
    const softhca::u64 late = 2 * ms + 210 * us;
    u.nap_ns(10 * us, late + 20 * ms - 1);
    CHECK(own_nice() == usual);
    // Later naps of the usual weight may be as long as they like.
    u.woke(10 * us, late + 20 * ms);
    u.nap_ns(10 * us, late + 20 * ms);
    CHECK(own_nice() == -20);
  });
}

TEST_CASE("A thread sleeps twice as long as it ran", "[thread_priority]") {
  in_a_thread([] {
    ThreadPriority u(false);
    const int usual = own_nice();
    CHECK(u.nap_ns(10 * us, 1 * ms) == 10 * us);
    u.woke(10 * us, 2 * ms);
    CHECK(u.nap_ns(10 * us, 2 * ms + 5 * us) == 10 * us);
    CHECK(u.nap_ns(10 * us, 2 * ms + 8 * us) == 16 * us);
    CHECK(u.nap_ns(10 * us, 2 * ms + 25 * us) == 50 * us);
    CHECK(u.nap_ns(10 * us, 3 * ms) == 50 * us);
    CHECK(u.nap_ns(200 * us, 3 * ms) == 200 * us);
    u.rested(3 * ms);
    CHECK(u.nap_ns(10 * us, 3 * ms + 1 * us) == 10 * us);
    CHECK(own_nice() == usual);
  });
}
