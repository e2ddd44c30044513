// The record of outstanding work requests: the fill of a send queue never counts
// as less than it is, and every completion finds its request.
#include "translate/state/work_log.h"

#include <catch.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

using ibvexp::native::WorkLog;

namespace {

constexpr bool signaled = true, silent = false, good = true, failed = false;

void complete(WorkLog &log, std::uint64_t wr_id, bool success = good) {
  REQUIRE(log.complete(wr_id, success));
}

}  // namespace

TEST_CASE("a queue takes as many requests as it has entries") {
  WorkLog log;
  const std::uint32_t depth = GENERATE(1u, 3u, 64u, 100u);
  log.open(depth);
  for (std::uint32_t i = 0; i < depth; ++i) {
    CHECK(!log.full());
    log.push(i, signaled);
  }
  CHECK(log.full());
  complete(log, 0);
  CHECK(!log.full());
}

TEST_CASE("a completion frees the silent requests before it") {
  WorkLog log;
  log.open(4);
  log.push(1, silent);
  log.push(2, silent);
  log.push(3, signaled);
  log.push(4, silent);
  CHECK(log.full());
  complete(log, 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(!log.full());
    log.push(9, silent);
  }
  CHECK(log.full());
}

TEST_CASE("equal numbers are kept apart by their order") {
  WorkLog log;
  log.open(4);
  log.push(7, signaled);
  log.push(7, silent);
  log.push(7, signaled);
  complete(log, 7);
  complete(log, 7);
  CHECK(!log.complete(7, good));
}

TEST_CASE("a silent request completes only when it fails") {
  WorkLog log;
  log.open(4);
  log.push(1, silent);
  log.push(1, signaled);
  complete(log, 1);
  CHECK(!log.complete(1, good));

  log.push(2, silent);
  log.push(2, signaled);
  log.push(3, silent);
  complete(log, 2, failed);
  complete(log, 2, failed);
  CHECK(!log.complete(2, failed));
  complete(log, 3, failed);
  for (int i = 0; i < 4; ++i) {
    CHECK(!log.full());
    log.push(9, silent);
  }
}

TEST_CASE("completions handled out of order free nothing too early") {
  WorkLog log;
  log.open(3);
  log.push(1, signaled);
  log.push(2, silent);
  log.push(3, signaled);
  complete(log, 3);
  CHECK(log.full());
  complete(log, 1);
  for (int i = 0; i < 3; ++i) {
    CHECK(!log.full());
    log.push(4, signaled);
  }
  CHECK(log.full());
}

TEST_CASE("what was not posted after all is taken back") {
  WorkLog log;
  log.open(4);
  log.push(1, signaled);
  const std::uint32_t from = log.position();
  log.push(2, signaled);
  log.push(3, silent);
  log.push(4, signaled);  // another thread's
  log.cancel_since(from, 2);
  CHECK(log.full());
  complete(log, 1);
  for (int i = 0; i < 3; ++i) {
    CHECK(!log.full());
    log.push(5, signaled);
  }
  CHECK(log.full());
}

TEST_CASE("a reset empties the queue, and a larger one may follow") {
  WorkLog log;
  log.open(2);
  log.push(1, signaled);
  log.push(2, signaled);
  log.abandon();
  CHECK(!log.complete(1, good));
  CHECK(!log.full());
  log.open(1000);
  for (int i = 0; i < 1000; ++i) log.push(1, signaled);
  CHECK(log.full());
  log.open(1);
  log.push(1, signaled);
  CHECK(log.full());
}

TEST_CASE("two threads poll what a third one posts") {
  // The device of this test: hands completions out in order, each to one poller,
  // and knows how full the queue is.
  constexpr std::uint32_t depth = 16, total = 50'000;
  WorkLog log;
  log.open(depth);
  std::mutex mutex;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> ready;  // id, requests that it frees
  std::uint32_t outstanding = 0;
  std::atomic<bool> overrun{false}, lost{false};
  std::atomic<std::uint32_t> handled{0}, expected{0};
  std::atomic<bool> posted_all{false};

  std::thread poster([&] {
    std::minstd_rand random(1);
    std::uint32_t silent_before = 0;
    for (std::uint32_t i = 0; i < total; ++i) {
      while (log.full()) std::this_thread::yield();
      const bool signal = silent_before == depth - 1 || i == total - 1 || random() % 3 == 0;
      log.push(i % 5, signal);
      const std::lock_guard guard(mutex);
      if (++outstanding > depth) overrun = true;
      if (!signal) {
        ++silent_before;
        continue;
      }
      ready.emplace_back(i % 5, silent_before + 1);
      silent_before = 0;
      ++expected;
    }
    posted_all = true;
  });
  const auto poll = [&] {
    for (;;) {
      const bool last_look = posted_all;
      std::unique_lock lock(mutex);
      if (ready.empty()) {
        lock.unlock();
        if (last_look) return;
        std::this_thread::yield();
        continue;
      }
      const std::uint64_t id = ready.front().first;
      outstanding -= ready.front().second;
      ready.pop_front();
      lock.unlock();
      if (!log.complete(id, good)) lost = true;
      ++handled;
    }
  };
  std::thread first(poll), second(poll);
  poster.join();
  first.join();
  second.join();
  CHECK(!overrun);
  CHECK(!lost);
  CHECK(handled == expected);
  CHECK(!log.full());
}
