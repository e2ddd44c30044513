// The wire between processes: rings, slots, liveness, sleeping.
#include "catch.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <set>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>

#include "fabric_rig.h"
#include "wire/layout.h"
#include "wire/slot_file.h"

using namespace softhca;
using namespace rig;
using Reserve = Fabric::Reserve;

namespace {

constexpr u32 ring = min_ring_bytes;

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

bool take(Fabric &f, u32 number, u16 from) {
  const PacketHeader *h;
  const u8 *p;
  if (!f.receive(h, p)) return false;
  const bool ok = intact(*h, p, number) && h->src_slot == from;
  f.release();
  return ok;
}

bool nothing(Fabric &f) {
  const PacketHeader *h;
  const u8 *p;
  return !f.receive(h, p);
}

// Standard error while it lives, as a string.
class Captured {
 public:
  Captured() {
    std::snprintf(path_, sizeof path_, "/tmp/softhca-test-XXXXXX");
    const int fd = mkstemp(path_);
    saved_ = dup(2);
    dup2(fd, 2);
    close(fd);
  }
  ~Captured() {
    restore();
    unlink(path_);
  }
  int lines_with(const char *text) {
    restore();
    FILE *f = std::fopen(path_, "r");
    char line[1024];
    int n = 0;
    while (std::fgets(line, sizeof line, f) != nullptr) n += std::strstr(line, text) != nullptr;
    std::fclose(f);
    return n;
  }

 private:
  void restore() {
    if (saved_ >= 0) {
      dup2(saved_, 2);
      close(saved_);
    }
    saved_ = -1;
  }
  char path_[64];
  int saved_;
};

// Joins, tells its slot, then stays until killed.
int idle_member(const std::string &name) {
  Fabric *f = Fabric::join(name, ring);
  Child::report(f != nullptr ? f->slot() : 0);
  for (;;) pause();
}

}  // namespace

TEST_CASE("a fabric has a private directory", "[fabric]") {
  FabricName n;
  struct stat st;
  REQUIRE(stat(n.directory().c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0700);
  CHECK(st.st_uid == geteuid());
  CHECK(fabric_directory("../etc").empty());
  CHECK(errno == EINVAL);
  CHECK(fabric_directory("").empty());
}

TEST_CASE("slots are claimed lowest first and given back", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  REQUIRE(a != nullptr);
  REQUIRE(b != nullptr);
  CHECK(a->slot() == 1);
  CHECK(b->slot() == 2);
  CHECK(exists(slot_path(n.directory(), 1)));
  a->leave(false);
  CHECK_FALSE(exists(slot_path(n.directory(), 1)));
  CHECK_FALSE(b->alive(1));
  Fabric *c = Fabric::join(n.name, ring);
  CHECK(c->slot() == 1);
  CHECK(b->alive(1));
  CHECK(b->alive(2));
  CHECK_FALSE(b->alive(3));
  CHECK_FALSE(b->alive(0));
  CHECK_FALSE(b->alive(max_slots));
  b->leave(false);
  c->leave(false);
}

TEST_CASE("a process sends to itself", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  CHECK(nothing(*f));
  introduce(*f, *f);
  u64 position = 0;
  REQUIRE(send(*f, 1, 7, 100, &position) == Reserve::ok);
  CHECK_FALSE(f->consumed(1, position));
  CHECK(take(*f, 7, 1));
  CHECK(f->consumed(1, position));
  CHECK(nothing(*f));
  f->leave(false);
}

TEST_CASE("records of all sizes survive the wrap in order", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  introduce(*a, *b);
  u32 sent = 0, taken = 0;
  while (taken < 5000) {
    if (sent < 5000 && send(*a, 2, sent, size_of_message(sent)) == Reserve::ok) ++sent;
    else REQUIRE(take(*b, taken++, 1));
  }
  CHECK(nothing(*b));
  a->leave(false);
  b->leave(false);
}

TEST_CASE("a full ring says so until something was taken", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  introduce(*a, *b);
  u32 sent = 0;
  Reserve r;
  while ((r = send(*a, 2, sent, 1000)) == Reserve::ok) ++sent;
  CHECK(r == Reserve::full);
  CHECK(sent == ring / record_bytes(1000));
  CHECK(send(*a, 2, 0, 0) ==
        (ring % record_bytes(1000) >= record_bytes(0) ? Reserve::ok : Reserve::full));
  CHECK(take(*b, 0, 1));
  CHECK(send(*a, 2, sent, 1000) == Reserve::ok);
  Fabric::Slot room;
  CHECK(a->reserve(2, burst_bytes + 1, room) == Reserve::no_peer);
  a->leave(false);
  b->leave(false);
}

TEST_CASE("the largest burst fits an empty ring at any position", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  introduce(*f, *f);
  for (u32 i = 0; i < 3 * ring / 64; ++i) {
    REQUIRE(send(*f, 1, i, i % 2 ? burst_bytes : 0) == Reserve::ok);
    REQUIRE(take(*f, i, 1));
  }
  f->leave(false);
}

TEST_CASE("an abandoned reservation is not sent", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  introduce(*f, *f);
  Fabric::Slot room;
  REQUIRE(f->reserve(1, 500, room) == Reserve::ok);
  CHECK(nothing(*f));
  REQUIRE(send(*f, 1, 3, 20) == Reserve::ok);
  CHECK(take(*f, 3, 1));
  CHECK(nothing(*f));
  f->leave(false);
}

TEST_CASE("the receiver's ring size rules", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, 4 * ring);
  introduce(*a, *b);
  introduce(*b, *a);
  u32 to_b = 0, to_a = 0;
  while (send(*a, 2, 0, 1000) == Reserve::ok) ++to_b;
  while (send(*b, 1, 0, 1000) == Reserve::ok) ++to_a;
  CHECK(to_a == ring / record_bytes(1000));
  CHECK(to_b == 4 * ring / record_bytes(1000));
  a->leave(false);
  b->leave(false);
}

TEST_CASE("a sender that was let in owes its first record", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  const PacketHeader *h;
  const u8 *p;
  CHECK_FALSE(b->expects_first());
  CHECK(send(*a, b->slot(), 1, 64) == Fabric::Reserve::full);
  CHECK_FALSE(b->expects_first());  // it knocks, nobody has looked
  CHECK_FALSE(b->receive(h, p));
  CHECK(b->expects_first());
  REQUIRE(send(*a, b->slot(), 1, 64) == Fabric::Reserve::ok);
  CHECK(b->expects_first());
  REQUIRE(b->receive(h, p));
  b->release();
  CHECK_FALSE(b->expects_first());

  Fabric *other = Fabric::join(n.name, ring);
  introduce(*other, *b);
  CHECK(b->expects_first());
  b->expect_no_first();
  CHECK_FALSE(b->expects_first());
  REQUIRE(send(*other, b->slot(), 2, 64) == Fabric::Reserve::ok);
  REQUIRE(b->receive(h, p));
  CHECK(h->psn == 2);
  b->release();
  for (Fabric *f : {a, b, other}) f->leave(false);
}

TEST_CASE("receiving is fair among senders", "[fabric]") {
  FabricName n;
  Fabric *r = Fabric::join(n.name, ring);
  std::vector<Fabric *> senders;
  for (int i = 0; i < 5; ++i) senders.push_back(Fabric::join(n.name, ring));
  for (Fabric *s : senders) introduce(*s, *r);
  for (u32 m = 0; m < 20; ++m)
    for (Fabric *s : senders) REQUIRE(send(*s, 1, m, 10) == Reserve::ok);
  for (u32 round = 0; round < 20; ++round) {
    std::set<u16> seen;
    for (size_t i = 0; i < senders.size(); ++i) {
      const PacketHeader *h;
      const u8 *p;
      REQUIRE(r->receive(h, p));
      CHECK(h->psn == round);
      seen.insert(h->src_slot);
      r->release();
    }
    CHECK(seen.size() == senders.size());
  }
  for (Fabric *s : senders) s->leave(false);
  r->leave(false);
}

TEST_CASE("sending to nobody is cheap", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000; ++i) REQUIRE(send(*f, 9, 0, 64) == Reserve::no_peer);
  CHECK(seconds_since(start) < 2.0);
  CHECK(send(*f, 0, 0, 64) == Reserve::no_peer);
  CHECK(send(*f, max_slots, 0, 64) == Reserve::no_peer);
  CHECK(f->consumed(9, 1));
  Fabric *late = Fabric::join(n.name, ring);
  CHECK(late->slot() == 2);
  usleep(2000);
  introduce(*f, *late);
  CHECK(send(*f, 2, 1, 64) == Reserve::ok);
  late->leave(false);
  f->leave(false);
}

TEST_CASE("two processes exchange 10000 checked messages each way", "[fabric]") {
  FabricName n;
  constexpr u32 messages = 10000;
  Fabric *f = Fabric::join(n.name, ring);
  const auto exchange = [](Fabric &me, u16 peer) {
    u32 sent = 0, taken = 0, idle = 0;
    while (sent < messages || taken < messages) {
      bool any = false;
      const PacketHeader *h;
      const u8 *p;
      if (me.receive(h, p)) {
        if (!intact(*h, p, taken) || h->payload != size_of_message(taken)) return 2;
        me.release();
        ++taken;
        any = true;
      }
      if (sent < messages && send(me, peer, sent, size_of_message(sent)) == Reserve::ok) {
        ++sent;
        any = true;
      }
      if (any) idle = 0;
      else if (++idle > 200) me.wait(1'000'000);
    }
    return 0;
  };
  Child child([&]() -> int {
    Fabric *mine = Fabric::join(n.name, 2 * ring);
    Child::report(mine->slot());
    return exchange(*mine, 1);
  });
  REQUIRE(child.hear() == 2);
  CHECK(exchange(*f, 2) == 0);
  CHECK(child.status() == 0);
  f->leave(false);
}

TEST_CASE("a killed receiver is noticed and its successor reached", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  const auto receiver = [&] {
    Fabric *mine = Fabric::join(n.name, ring);
    Child::report(mine->slot());
    const PacketHeader *h;
    const u8 *p;
    for (u32 taken = 0;;) {
      if (mine->receive(h, p)) {
        if (h->psn != taken++) return 1;
        mine->release();
        Child::report(taken);
      } else {
        mine->wait(~u64{0});
      }
    }
  };
  auto first = std::make_unique<Child>(receiver);
  REQUIRE(first->hear() == 2);
  REQUIRE(send_patiently(*f, 2, 0, 5000));
  REQUIRE(first->hear() == 1);
  kill(first->pid(), SIGSTOP);
  u64 position = 0;
  REQUIRE(send(*f, 2, 1, 5000, &position) == Reserve::ok);
  CHECK_FALSE(f->consumed(2, position));
  CHECK(f->alive(2));
  first->kill9();
  CHECK_FALSE(f->alive(2));
  CHECK(f->consumed(2, position));
  CHECK(send(*f, 2, 1, 10) == Reserve::no_peer);

  Child second(receiver);
  REQUIRE(second.hear() == 2);
  usleep(2000);
  CHECK(f->alive(2));
  REQUIRE(send_patiently(*f, 2, 0, 5000));
  CHECK(second.hear() == 1);

  // Without anybody asking alive(): a datagram sender notices by itself.
  second.kill9();
  const auto start = std::chrono::steady_clock::now();
  while (send(*f, 2, 1, 10) != Reserve::no_peer && seconds_since(start) < 5) usleep(1000);
  CHECK(seconds_since(start) < 1);
  f->leave(false);
}

TEST_CASE("what a killed sender left does not reach its successor's reader", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  const auto sender = [&](u32 base) {
    return [&n, base] {
      Fabric *mine = Fabric::join(n.name, ring);
      Child::report(mine->slot());
      for (u32 i = 0; i < 20; ++i)
        if (!send_patiently(*mine, 1, base + i, 1000)) return 1;
      Child::report(1);
      for (;;) pause();
    };
  };
  Child first(sender(0));
  REQUIRE(first.hear() == 2);
  const PacketHeader *h;
  const u8 *p;
  u32 taken = 0;
  while (taken < 3)
    if (f->receive(h, p)) {
      REQUIRE(intact(*h, p, taken++));
      f->release();
    }
  REQUIRE(first.hear() == 1);
  REQUIRE(f->receive(h, p));  // held while the sender dies
  first.kill9();
  Child second(sender(1000));
  REQUIRE(second.hear() == 2);
  CHECK(intact(*h, p, 3));  // the successor must not have touched it
  f->release();
  for (u32 i = 0; i < 20;)
    if (f->receive(h, p)) {
      if (h->psn < 1000) {  // taken before the newcomer was seen: legitimate
        REQUIRE(intact(*h, p, ++taken));
      } else {
        REQUIRE(intact(*h, p, 1000 + i++));
      }
      f->release();
    }
  CHECK(nothing(*f));
  CHECK(second.hear() == 1);
  f->leave(false);
}

TEST_CASE("a damaged ring is dropped with one line and heals", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  introduce(*a, *b);
  REQUIRE(send(*a, 2, 0, 100) == Reserve::ok);
  REQUIRE(take(*b, 0, 1));
  FileIdentity identity;
  REQUIRE(live_identity(n.directory(), 2, identity));
  Control *control = map_control(n.directory(), 2, identity);
  u8 *segment = map_segment(n.directory(), 2, identity, 1, ring, false);
  REQUIRE(control != nullptr);
  REQUIRE(segment != nullptr);
  const u64 good = control->rings[1].head.load();
  const u8 *frame = segment + good;
  const auto damage = [&](u32 length, u32 kind, u32 payload) {
    const RecordFrame f{length, kind};
    std::memcpy(const_cast<u8 *>(frame), &f, sizeof f);
    PacketHeader h{};
    h.payload = payload;
    std::memcpy(const_cast<u8 *>(frame) + cache_line, &h, sizeof h);
  };
  {
    Captured log;
    SECTION("unknown kind") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      damage(256, 0x1234, 50);
    }
    SECTION("length too long") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      damage(0x7fffffc0, RecordFrame::data, 50);
    }
    SECTION("length too short") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      damage(64, RecordFrame::data, 50);
    }
    SECTION("length zero") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      damage(0, RecordFrame::skip, 50);
    }
    SECTION("payload beyond the record") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      damage(256, RecordFrame::data, 5000);
    }
    SECTION("payload beyond any burst") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      damage(256, RecordFrame::data, ~0u);
    }
    SECTION("head far ahead") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      control->rings[1].head.store(good + 64 * ring);
    }
    SECTION("head behind") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      control->rings[1].head.store(good - 64);
    }
    SECTION("head astray") {
      REQUIRE(send(*a, 2, 1, 50) == Reserve::ok);
      control->rings[1].head.store(good + 13);
    }
    for (int i = 0; i < 10; ++i) CHECK(nothing(*b));
    CHECK(log.lines_with("unusable") == 1);
  }
  bool healed = false;
  for (u32 i = 2; i < 1000 && !healed; ++i) {
    send(*a, 2, i, 50);
    healed = take(*b, i, 1);
  }
  CHECK(healed);
  munmap(control, control_bytes);
  munmap(segment, ring);
  a->leave(false);
  b->leave(false);
}

TEST_CASE("random garbage in a ring never crashes the receiver", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  introduce(*a, *b);
  REQUIRE(send(*a, 2, 0, 0) == Reserve::ok);
  REQUIRE(take(*b, 0, 1));
  FileIdentity identity;
  Control *control = map_control(n.directory(), 2, identity);
  u8 *segment = map_segment(n.directory(), 2, identity, 1, ring, false);
  Captured quiet;
  u32 random = 12345;
  const auto next = [&] { return random = random * 1664525 + 1013904223, random >> 8; };
  for (int round = 0; round < 3000; ++round) {
    for (u32 i = 0; i < ring; i += 64) {
      const u32 words[2] = {next() % 8 == 0 ? next() : next() % 64 * 64,
                            next() % 2 ? u32{RecordFrame::data} : u32{RecordFrame::skip}};
      std::memcpy(segment + i, words, 8);
    }
    control->rings[1].head.store(control->rings[1].tail.load() + next() % (2 * ring) / 64 * 64);
    const PacketHeader *h;
    const u8 *p;
    for (int i = 0; i < 100 && b->receive(h, p); ++i) {
      u32 sum = 0;
      for (u32 k = 0; k < h->payload; ++k) sum += p[k];
      if (sum == 1) send(*b, 2, 0, 0);  // the payload is readable
      b->release();
    }
  }
  munmap(control, control_bytes);
  munmap(segment, ring);
  a->leave(false);
  b->leave(false);
}

TEST_CASE("wait returns for records and for wake, and loses neither", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  SECTION("time") {
    const auto start = std::chrono::steady_clock::now();
    f->wait(30'000'000);
    CHECK(seconds_since(start) >= 0.025);
  }
  SECTION("a wake before the wait counts, once") {
    f->wake();
    const auto start = std::chrono::steady_clock::now();
    f->wait(10'000'000'000);
    CHECK(seconds_since(start) < 1);
    f->wait(20'000'000);
    CHECK(seconds_since(start) >= 0.015);
  }
  SECTION("a record that is already there") {
    introduce(*f, *f);
    REQUIRE(send(*f, 1, 0, 0) == Reserve::ok);
    const auto start = std::chrono::steady_clock::now();
    f->wait(10'000'000'000);
    CHECK(seconds_since(start) < 1);
    CHECK(take(*f, 0, 1));
  }
  SECTION("a wake while waiting, while the owner receives") {
    std::atomic<u32> rounds{0};
    std::atomic<bool> stop{false};
    std::thread waiter([&] {
      while (!stop.load()) {
        f->wait(10'000'000'000);
        ++rounds;
      }
    });
    introduce(*f, *f);
    const auto start = std::chrono::steady_clock::now();
    for (u32 i = 0; i < 300; ++i) {
      const u32 before = rounds.load();
      f->wake();
      while (rounds.load() == before) sched_yield();
      send(*f, 1, i, 10);
      CHECK(take(*f, i, 1));
    }
    CHECK(seconds_since(start) < 8);
    stop = true;
    f->wake();
    waiter.join();
  }
  f->leave(false);
}

TEST_CASE("sleeping processes play ping-pong without losing a wake-up", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  constexpr u32 rounds = 3000;
  const auto receive_one = [](Fabric &me, u32 number) {
    const PacketHeader *h;
    const u8 *p;
    while (!me.receive(h, p)) me.wait(20'000'000'000);  // a lost wake-up shows as time
    const bool ok = intact(*h, p, number);
    me.release();
    return ok;
  };
  Child child([&]() -> int {
    Fabric *mine = Fabric::join(n.name, ring);
    Child::report(mine->slot());
    for (u32 i = 0; i < rounds; ++i)
      if (!receive_one(*mine, i) || !send_patiently(*mine, 1, i, 64)) return 1;
    return 0;
  });
  REQUIRE(child.hear() == 2);
  const auto start = std::chrono::steady_clock::now();
  for (u32 i = 0; i < rounds; ++i) {
    REQUIRE(send_patiently(*f, 2, i, 64));
    // The child's first answer needs us to confirm its ring: receive() does.
    REQUIRE(receive_one(*f, i));
  }
  CHECK(seconds_since(start) < 15);
  CHECK(child.status() == 0);
  f->leave(false);
}

TEST_CASE("racing processes get different slots", "[fabric]") {
  FabricName n;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 24; ++i)
    children.push_back(std::make_unique<Child>([&] { return idle_member(n.name); }));
  std::set<u32> slots;
  for (auto &c : children) slots.insert(c->hear());
  CHECK(slots.size() == children.size());
  CHECK(*slots.begin() == 1);
  CHECK(*slots.rbegin() == children.size());
  children.clear();  // killed

  // The next start reclaims what all of them left, not just the slot it takes.
  Fabric *f = Fabric::join(n.name, ring);
  REQUIRE(f != nullptr);
  CHECK(f->slot() == 1);
  u64 bits[max_slots / 64];
  existing_slots(n.directory(), bits);
  CHECK(bits[0] == 2);
  f->leave(false);
}

TEST_CASE("a full fabric refuses with ENOSPC", "[fabric]") {
  FabricName n;
  std::vector<Fabric *> all;
  for (u32 i = 1; i < max_slots; ++i) {
    all.push_back(Fabric::join(n.name, ring));
    REQUIRE(all.back() != nullptr);
  }
  CHECK(Fabric::join(n.name, ring) == nullptr);
  CHECK(errno == ENOSPC);
  introduce(*all.front(), *all.back());
  CHECK(send(*all.front(), max_slots - 1, 0, 9) == Reserve::ok);
  CHECK(take(*all.back(), 0, 1));
  for (Fabric *f : all) f->leave(false);
}

TEST_CASE("multicast interest is seen by all", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  Child child([&]() -> int {
    Fabric *mine = Fabric::join(n.name, ring);
    mine->set_multicast_groups(2);
    Child::report(mine->slot());
    for (;;) pause();
  });
  REQUIRE(child.hear() == 3);
  u16 slots[8];
  usleep(2000);
  REQUIRE(a->multicast_slots(slots, 8) == 1);
  CHECK(slots[0] == 3);
  a->set_multicast_groups(1);
  b->set_multicast_groups(1);
  REQUIRE(a->multicast_slots(slots, 8) == 3);
  CHECK((slots[0] == 1 && slots[1] == 2 && slots[2] == 3));
  CHECK(a->multicast_slots(slots, 2) == 2);
  b->set_multicast_groups(0);
  CHECK(a->multicast_slots(slots, 8) == 2);
  child.kill9();
  usleep(60000);
  CHECK(a->multicast_slots(slots, 8) == 1);
  a->leave(false);
  b->leave(false);
}

TEST_CASE("a forked child neither keeps nor removes its parent's slot", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  SECTION("leave(forked)") {
    introduce(*f, *f);
    REQUIRE(send(*f, 1, 0, 10) == Reserve::ok);
    Child child([&]() -> int {
      f->leave(true);
      Fabric *mine = Fabric::join(n.name, ring);
      return mine->slot() == 2 && send_patiently(*mine, 1, 1, 10) ? 0 : 1;
    });
    u32 taken = 0;
    while (taken < 2)
      if (take(*f, taken, taken == 0 ? 1 : 2)) ++taken;
    CHECK(child.status() == 0);
    CHECK(f->alive(1));
    CHECK(exists(slot_path(n.directory(), 1)));
  }
  SECTION("a child that knows nothing does not hold the lock") {
    Child parent([&]() -> int {
      Fabric *mine = Fabric::join(n.name, ring);
      const pid_t grandchild = fork();
      if (grandchild == 0)
        for (;;) pause();
      Child::report(mine->slot());
      Child::report(static_cast<u32>(grandchild));
      for (;;) pause();
    });
    REQUIRE(parent.hear() == 2);
    const auto grandchild = static_cast<pid_t>(parent.hear());
    CHECK(f->alive(2));
    parent.kill9();
    CHECK(kill(grandchild, 0) == 0);
    CHECK_FALSE(f->alive(2));
    kill(grandchild, SIGKILL);
  }
  f->leave(false);
}

TEST_CASE("programs that close all descriptors stay connected", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  Child child([&]() -> int {
    Fabric *mine = Fabric::join(n.name, ring);
    if (!send_patiently(*mine, 1, 0, 10)) return 1;
    Child::report(mine->slot());
    Child::await();
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    for (u32 i = 1; i < 200; ++i)
      if (!send_patiently(*mine, 1, i, 1000)) return 2;
    const PacketHeader *h;
    const u8 *p;
    while (!mine->receive(h, p)) mine->wait(1'000'000'000);
    return intact(*h, p, 77) ? 0 : 3;
  });
  u32 taken = 0;
  bool told = false;
  while (taken < 200) {
    if (take(*f, taken, 2)) ++taken;
    if (taken == 1 && !told) {
      REQUIRE(child.hear() == 2);
      child.tell(1);
      told = true;
    }
  }
  CHECK(f->alive(2));
  REQUIRE(send_patiently(*f, 2, 77, 300));
  CHECK(child.status() == 0);
  f->leave(false);
}

TEST_CASE("limits on file size refuse instead of killing", "[fabric]") {
  FabricName n;
  Child child([&]() -> int {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    Captured log;
    return Fabric::join(n.name, ring) == nullptr && errno == EFBIG ? 0 : 1;
  });
  CHECK(child.status() == 0);
}

TEST_CASE("without shared memory left there is no peer, and no SIGBUS", "[fabric]") {
  FabricName n;
  constexpr int not_possible_here = 77;
  const auto on_tmpfs = [&](const char *options, const std::function<int()> &body) {
    Child child([&]() -> int {
      if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0)
        return not_possible_here;
      return body();
    });
    const int status = child.status();
    if (status == not_possible_here) WARN("cannot mount a small tmpfs here");
    else CHECK(status == 0);
  };
  SECTION("not even for the control file") {
    on_tmpfs("size=20k",
             [&] { return Fabric::join(n.name, ring) == nullptr && errno == ENOSPC ? 0 : 1; });
  }
  SECTION("not for a ring") {
    // Two control files and one ring fit, a second ring does not.
    on_tmpfs("size=240k", [&] {
      Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
      if (a == nullptr || b == nullptr) return 2;
      introduce(*a, *b);
      if (send(*a, 2, 0, burst_bytes) != Reserve::ok || !take(*b, 0, 1)) return 3;
      Captured log;
      for (int i = 0; i < 100; ++i)
        if (send(*b, 1, 0, 10) != Reserve::no_peer) return 4;
      for (u32 i = 0; i < 100; ++i)
        if (send(*a, 2, i, burst_bytes) != Reserve::ok || !take(*b, i, 1)) return 5;
      return log.lines_with("no shared memory") == 1 ? 0 : 6;
    });
  }
}
