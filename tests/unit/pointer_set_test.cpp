// Addresses of objects that were handed out.
#include "base/pointer_set.h"

#include <catch.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

using namespace ibvexp;

namespace {

std::set<const void *> all_of(const PointerSet &set, bool with_claimed) {
  std::set<const void *> all;
  set.for_each(with_claimed, [&](void *object) { all.insert(object); });
  return all;
}

}  // namespace

TEST_CASE("a pointer set knows what was put into it, and nothing else") {
  std::vector<std::array<char, 48>> objects(5000);
  PointerSet set;
  REQUIRE_FALSE(set.contains(&objects[0]));
  REQUIRE_FALSE(set.contains(nullptr));
  for (const auto &object : objects) set.insert(&object);
  for (const auto &object : objects) REQUIRE(set.contains(&object));
  REQUIRE_FALSE(set.contains(&objects[0][16]));
  REQUIRE_FALSE(set.contains(nullptr));
  REQUIRE(all_of(set, false).size() == objects.size());
}

TEST_CASE("of a pointer set an object is claimed once, and put back or removed") {
  long objects[2] = {};
  PointerSet set;
  set.insert(&objects[0]);
  set.insert(&objects[1]);
  PointerSet::Slot *const first = set.claim(&objects[0]);
  REQUIRE(first != nullptr);
  REQUIRE(&set.claimed_place(&objects[0]) == first);
  REQUIRE_FALSE(set.claim(&objects[0]));
  REQUIRE_FALSE(set.contains(&objects[0]));
  // The address beside it is not the object.
  REQUIRE_FALSE(set.claim(reinterpret_cast<char *>(&objects[0]) + 1));
  REQUIRE(all_of(set, false) == std::set<const void *>{&objects[1]});
  REQUIRE(all_of(set, true).size() == 2);
  PointerSet::put_back(*first);
  REQUIRE(set.contains(&objects[0]));
  REQUIRE(set.claim(&objects[0]) == first);
  PointerSet::remove(*first);
  REQUIRE_FALSE(set.claim(&objects[0]));
  REQUIRE(all_of(set, true) == std::set<const void *>{&objects[1]});
  set.insert(&objects[0]);
  REQUIRE(set.contains(&objects[0]));
}

TEST_CASE("of a pointer set that some went out of the rest is found, and there is room again") {
  std::vector<std::array<char, 48>> objects(5000);
  PointerSet set;
  for (int round = 0; round < 3; ++round) {
    for (const auto &object : objects) set.insert(&object);
    for (std::size_t i = 0; i < objects.size(); i += 2) {
      PointerSet::Slot *const place = set.claim(&objects[i]);
      REQUIRE(place != nullptr);
      PointerSet::remove(*place);
    }
    for (std::size_t i = 0; i < objects.size(); ++i)
      REQUIRE(set.contains(&objects[i]) == (i % 2 == 1));
    for (std::size_t i = 1; i < objects.size(); i += 2) {
      PointerSet::Slot *const place = set.claim(&objects[i]);
      REQUIRE(place != nullptr);
      PointerSet::remove(*place);
    }
    REQUIRE(all_of(set, true).empty());
  }
}

TEST_CASE("of threads that claim the same objects of a pointer set each is one's") {
  constexpr std::size_t threads = 4, count = 2000;
  std::vector<long> shared(count), own(threads * count);
  PointerSet set;
  for (const long &object : shared) set.insert(&object);
  std::atomic<std::size_t> claimed{0}, lost{0};
  std::vector<std::thread> running;
  for (std::size_t thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      for (std::size_t i = 0; i < count; ++i) {
        const long *const mine = &own[thread * count + i];
        set.insert(mine);
        if (PointerSet::Slot *const place = set.claim(&shared[i])) {
          ++claimed;
          PointerSet::remove(*place);
        }
        if (!set.contains(mine)) ++lost;
      }
    });
  for (std::thread &thread : running) thread.join();
  REQUIRE(claimed == count);
  REQUIRE(lost == 0);
  REQUIRE(all_of(set, true).size() == threads * count);
}
