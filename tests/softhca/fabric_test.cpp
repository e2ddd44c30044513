// The wire between processes: rings, slots, liveness, sleeping.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "catch.h"
#include "fabric_rig.h"
#include "wire/layout.h"
#include "wire/listing.h"
#include "wire/slot_file.h"

using namespace softhca;
using namespace rig;
using Reserve = Fabric::Reserve;

namespace {

constexpr u32 ring = min_ring_bytes;

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

// A sender looks for new and gone processes from time to time: until `holds` does, 5 seconds at most.
template <class F>
bool eventually(F holds) {
  const auto start = std::chrono::steady_clock::now();
  while (seconds_since(start) < 5) {
    if (holds()) return true;
    usleep(100);
  }
  return false;
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

// What goes to standard error while it lives. A pipe: it needs neither a file
// nor a descriptor more when it is looked at.
class Captured {
 public:
  Captured() {
    if (pipe2(ends_, O_NONBLOCK | O_CLOEXEC) != 0) std::abort();
    saved_ = dup(2);
    dup2(ends_[1], 2);
  }
  ~Captured() {
    restore();
    close(ends_[0]);
    close(ends_[1]);
  }
  int lines_with(const char *text) {
    restore();
    std::string all(65536, 0);
    const ssize_t bytes = read(ends_[0], all.data(), all.size());
    all.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    std::istringstream lines(all);
    int n = 0;
    for (std::string line; std::getline(lines, line);) n += line.find(text) != std::string::npos;
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
  int ends_[2];
  int saved_;
};

// The pauses of this thread that were left out; negative: none are.
thread_local i64 left_out_ns = -1;

// Joins, reports its slot, then stays until killed.
int idle_member(const std::string &name) {
  Fabric *f = Fabric::join(name, ring);
  Child::report(f != nullptr ? f->slot() : 0);
  for (;;) pause();
}

}  // namespace

extern "C" int nanosleep(const timespec *pause, timespec *rest) {
  if (left_out_ns < 0) {
    const int error = clock_nanosleep(CLOCK_MONOTONIC, 0, pause, rest);
    if (error != 0) errno = error;
    return error == 0 ? 0 : -1;
  }
  left_out_ns += pause->tv_sec * 1'000'000'000 + pause->tv_nsec;
  return 0;
}

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

TEST_CASE("a name that another has taken is not used", "[fabric]") {
  FabricName n;
  const std::string path = n.directory() + "-taken";
  REQUIRE(symlink("/tmp", path.c_str()) == 0);
  Captured said;
  const std::string found = fabric_directory(n.name + "-taken");
  const int error = errno;
  CHECK(found.empty());
  CHECK(error == EACCES);
  CHECK(said.lines_with("the name is taken by user") == 1);
  unlink(path.c_str());
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
  CHECK_FALSE(b->expects_first());  // it knocks, and b has not looked
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

TEST_CASE("a request is taken when it can be answered", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  introduce(*a, *b);
  REQUIRE(send(*a, 2, 1, 64, nullptr, PacketKind::request) == Reserve::ok);
  CHECK(nothing(*b));
  CHECK(b->waits_for_way_back());
  CHECK(b->expects_first());
  CHECK(b->pending());
  CHECK(nothing(*a));  // lets b in
  CHECK(take(*b, 1, 1));
  CHECK_FALSE(b->waits_for_way_back());
  CHECK(send(*b, 1, 2, 64) == Reserve::ok);
  CHECK(take(*a, 2, 2));

  // Who wants no answer is not waited for, nor for ever who does.
  Fabric *other = Fabric::join(n.name, ring);
  introduce(*other, *b);
  REQUIRE(send(*other, 2, 1, 64) == Reserve::ok);
  REQUIRE(send(*other, 2, 2, 64, nullptr, PacketKind::cm) == Reserve::ok);
  REQUIRE(send(*other, 2, 3, 64, nullptr, PacketKind::cm) == Reserve::ok);
  CHECK(take(*b, 1, 3));
  CHECK_FALSE(b->waits_for_way_back());
  const auto start = std::chrono::steady_clock::now();
  CHECK(nothing(*b));
  while (!take(*b, 2, 3) && seconds_since(start) < 5) usleep(100);
  CHECK(seconds_since(start) >= 0.5);
  CHECK(seconds_since(start) < 5);
  CHECK(take(*b, 3, 3));

  // Another process in that slot is waited for anew, and the dead one not at all.
  other->leave(false);
  other = Fabric::join(n.name, ring);
  introduce(*other, *b);
  REQUIRE(send(*other, 2, 4, 64, nullptr, PacketKind::request) == Reserve::ok);
  CHECK(nothing(*b));
  CHECK(b->waits_for_way_back());
  other->leave(false);
  CHECK(take(*b, 4, 3));
  a->leave(false);
  b->leave(false);
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

TEST_CASE("sending to a slot without a process is cheap", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  const std::clock_t start = std::clock();  // of the processor: the machine may be busy
  for (int i = 0; i < 100000; ++i) REQUIRE(send(*f, 9, 0, 64) == Reserve::no_peer);
  CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
  CHECK(send(*f, 0, 0, 64) == Reserve::no_peer);
  CHECK(send(*f, max_slots, 0, 64) == Reserve::no_peer);
  CHECK(f->consumed(9, 1));
  Fabric *late = Fabric::join(n.name, ring);
  CHECK(late->slot() == 2);
  CHECK(eventually([&] {
    introduce(*f, *late);
    return send(*f, 2, 1, 64) == Reserve::ok;
  }));
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
  REQUIRE(eventually([&] { return send_patiently(*f, 2, 0, 5000); }));
  CHECK(f->alive(2));
  CHECK(second.hear() == 1);

  // Without a call of alive(): a datagram sender notices by itself.
  second.kill9();
  CHECK(eventually([&] { return send(*f, 2, 1, 10) == Reserve::no_peer; }));
  f->leave(false);
}

TEST_CASE("an answer to the successor of a killed sender is not lost", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  const auto asker = [&] {
    Fabric *mine = Fabric::join(n.name, ring);
    if (!send_patiently(*mine, 1, 0, 100)) return 1;
    const PacketHeader *h;
    const u8 *p;
    const auto start = std::chrono::steady_clock::now();
    while (!mine->receive(h, p)) {
      if (seconds_since(start) > 5) return 1;
      usleep(100);
    }
    Child::report(mine->slot());
    Child::report(h->psn);
    for (;;) pause();
  };
  for (u32 number = 1; number <= 5; ++number) {
    Child child(asker);  // killed at its end, and the former one's mapping is young
    while (!take(*f, 0, 2)) usleep(100);
    REQUIRE(send_patiently(*f, 2, number, 100));
    REQUIRE(child.hear() == 2);
    REQUIRE(child.hear() == number);
  }
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
  PeerSlot peer;
  REQUIRE(map_control(n.directory(), 2, peer));
  Control *control = peer.control;
  u8 *segment = map_segment(peer.memory, 1, ring, false);
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
  PeerSlot peer;
  REQUIRE(map_control(n.directory(), 2, peer));
  Control *control = peer.control;
  u8 *segment = map_segment(peer.memory, 1, ring, false);
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
    CHECK(seconds_since(start) < 4);
    f->wait(20'000'000);
    CHECK(seconds_since(start) >= 0.015);
  }
  SECTION("a record that is already there") {
    introduce(*f, *f);
    REQUIRE(send(*f, 1, 0, 0) == Reserve::ok);
    const auto start = std::chrono::steady_clock::now();
    f->wait(10'000'000'000);
    CHECK(seconds_since(start) < 4);
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

TEST_CASE("a join ends although another process joins and is stopped", "[fabric]") {
  FabricName n;
  const int claim = open((n.directory() + "/claim").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(flock(claim, LOCK_EX) == 0);
  {
    Captured said;
    left_out_ns = 0;
    Fabric *const refused = Fabric::join(n.name, ring);
    const int error = errno;
    const i64 waited_ns = std::exchange(left_out_ns, -1);
    CHECK(refused == nullptr);
    CHECK(error == EBUSY);
    CHECK(waited_ns >= 1'000'000'000);
    CHECK(said.lines_with("/claim: Device or resource busy") == 1);
  }
  REQUIRE(flock(claim, LOCK_UN) == 0);
  Fabric *const joined = Fabric::join(n.name, ring);
  REQUIRE(joined != nullptr);
  joined->leave(false);
  close(claim);
}

TEST_CASE("a further slot is another number of the same process", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  const u16 more = b->further_slot();
  REQUIRE(more == 3);
  introduce(*a, *b);
  CHECK(send(*a, more, 0, 64) == Reserve::ok);
  CHECK(take(*b, 0, 1));
  // To itself, too, and from both numbers it is one member.
  introduce(*b, *b);
  CHECK(send(*b, more, 1, 64) == Reserve::ok);
  CHECK(take(*b, 1, 2));
  b->set_multicast_groups(1);
  u16 slots[8];
  REQUIRE(eventually([&] { return a->multicast_slots(slots, 8) == 1; }));
  CHECK(slots[0] == 2);
  CHECK(a->alive(more));
  // No other process gets the number, and both go with their owner.
  Fabric *c = Fabric::join(n.name, ring);
  CHECK(c->slot() == 4);
  c->leave(false);
  b->leave(false);
  CHECK_FALSE(a->alive(more));
  CHECK_FALSE(exists(slot_path(n.directory(), more)));
  CHECK(eventually([&] { return send(*a, more, 0, 64) == Reserve::no_peer; }));
  a->leave(false);
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
  REQUIRE(eventually([&] { return a->multicast_slots(slots, 8) == 1; }));
  CHECK(slots[0] == 3);
  a->set_multicast_groups(1);
  b->set_multicast_groups(1);
  REQUIRE(a->multicast_slots(slots, 8) == 3);
  CHECK((slots[0] == 1 && slots[1] == 2 && slots[2] == 3));
  CHECK(a->multicast_slots(slots, 2) == 2);
  b->set_multicast_groups(0);
  CHECK(a->multicast_slots(slots, 8) == 2);
  child.kill9();
  CHECK(eventually([&] { return a->multicast_slots(slots, 8) == 1; }));
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
  bool notified = false;
  while (taken < 200) {
    if (take(*f, taken, 2)) ++taken;
    if (taken == 1 && !notified) {
      REQUIRE(child.hear() == 2);
      child.notify(1);
      notified = true;
    }
  }
  CHECK(f->alive(2));
  REQUIRE(send_patiently(*f, 2, 77, 300));
  CHECK(child.status() == 0);
  f->leave(false);
}

namespace {

// Two members that talk to each other, and a third process that has both their
// memories mapped and does there what it likes.
struct Victims {
  FabricName name;
  Fabric *a = Fabric::join(name.name, ring), *b = Fabric::join(name.name, ring);

  Victims() {
    introduce(*a, *b);
    introduce(*b, *a);
    REQUIRE(send(*a, 2, 0, 100) == Reserve::ok);
    REQUIRE(take(*b, 0, 1));
  }
  ~Victims() {
    a->leave(false);
    b->leave(false);
  }

  // Both go on as ever; what arrives may be anything, but it is there.
  u32 exchange(u32 rounds) {
    u32 sum = 0;
    for (u32 i = 0; i < rounds; ++i)
      for (auto [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
        u64 position = 0;
        if (send(*from, to->slot(), i, size_of_message(i), &position) == Reserve::ok)
          sum += from->consumed(to->slot(), position);
        const PacketHeader *h;
        const u8 *p;
        while (to->receive(h, p)) {
          for (u32 k = 0; k < h->payload; ++k) sum += p[k];
          to->release();
        }
        if (i % 64 == 0) to->wait(1000);
        u16 list[8];
        sum += to->multicast_slots(list, 8) + to->ethernet_slots(list, 8);
      }
    return sum;
  }

  // Whether both directions carry what they are given, after a while.
  bool healed() {
    int good = 0;
    const auto start = std::chrono::steady_clock::now();
    for (u32 i = 1; good < 20 && seconds_since(start) < 10; ++i) {
      send(*a, 2, i, 700);
      send(*b, 1, i, 700);
      b->wait(100'000);
      a->wait(100'000);
      bool both = true;
      for (auto [to, from] : {std::pair{b, u16{1}}, std::pair{a, u16{2}}}) {
        const PacketHeader *h;
        const u8 *p;
        bool found = false;
        while (to->receive(h, p)) {
          found |= h->src_slot == from && h->payload == 700 && intact(*h, p, i);
          to->release();
        }
        both &= found;
      }
      good = both ? good + 1 : 0;
    }
    return good == 20;
  }
};

u32 *words_of(Control *c) { return reinterpret_cast<u32 *>(c); }
constexpr u32 control_words = sizeof(Control) / 4;
// The words that mean something to the two: all but those of other slots.
bool of_the_two(u32 word) {
  constexpr u32 before = offsetof(Control, rings) / 4, each = sizeof(RingMeta) / 4;
  return word < before + 4 * each || word % each == 0;
}

}  // namespace

TEST_CASE("one scribbled word, whichever it is, stops no process", "[fabric]") {
  Victims v;
  PeerSlot a, b;
  REQUIRE(map_control(v.name.directory(), 1, a));
  REQUIRE(map_control(v.name.directory(), 2, b));
  Captured quiet;
  const u32 values[] = {0, 1, 13, 64, 0x7fffffff, ~0u, ring, 0xfffffff3};
  for (u32 word = 0; word < control_words; ++word) {
    if (!of_the_two(word)) continue;
    const u32 value = values[word * 7 % std::size(values)];
    __atomic_store_n(words_of(a.control) + word, value, __ATOMIC_SEQ_CST);
    __atomic_store_n(words_of(b.control) + word, value ^ word % 3, __ATOMIC_SEQ_CST);
    v.exchange(3);
  }
  CHECK(v.healed());
  // Each of the words of one ring with each of the values, by itself.
  const u32 first = (offsetof(Control, rings) + sizeof(RingMeta)) / 4;
  for (u32 word = 0; word < first + sizeof(RingMeta) / 4; ++word) {
    if (word >= offsetof(Control, rings) / 4 && word < first) continue;
    for (const u32 value : values) {
      __atomic_store_n(words_of(b.control) + word, value, __ATOMIC_SEQ_CST);
      v.exchange(2);
    }
  }
  CHECK(v.healed());
  munmap(a.control, control_bytes);
  munmap(b.control, control_bytes);
}

TEST_CASE("a position spoilt before the first record leads nowhere else", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  Fabric::Slot room;
  REQUIRE(a->reserve(2, 64, room) == Reserve::full);  // announced
  PeerSlot peer;
  REQUIRE(map_control(n.directory(), 2, peer));
  Captured quiet;
  const PacketHeader *h;
  const u8 *p;
  SECTION("when the owner has seen it") { b->receive(h, p); }
  SECTION("before") {}
  peer.control->rings[1].head.store(ring - 3);
  b->receive(h, p);
  Reserve r = Reserve::full;
  for (int i = 0; i < 100 && (r = a->reserve(2, 64, room)) == Reserve::full; ++i) b->receive(h, p);
  REQUIRE(r == Reserve::ok);
  CHECK(reinterpret_cast<uintptr_t>(room.header) % cache_line == 0);
  munmap(peer.control, control_bytes);
  a->leave(false);
  b->leave(false);
}

// A sender that waits for room commits nothing, which would put the word right.
TEST_CASE("a position spoilt while the ring is full is put right", "[fabric]") {
  FabricName n;
  Fabric *a = Fabric::join(n.name, ring), *b = Fabric::join(n.name, ring);
  introduce(*a, *b);
  u32 sent = 0;
  while (send(*a, 2, sent, 1000) == Reserve::ok) ++sent;
  PeerSlot peer;
  REQUIRE(map_control(n.directory(), 2, peer));
  RingMeta &meta = peer.control->rings[1];
  meta.head.store(meta.tail.load());  // as if there were nothing to take
  REQUIRE(nothing(*b));
  Fabric::Slot room;
  CHECK(eventually([&] {
    CHECK(a->reserve(2, 1000, room) == Reserve::full);
    return take(*b, 0, 1);
  }));
  for (u32 i = 1; i < sent; ++i) CHECK(take(*b, i, 1));
  munmap(peer.control, control_bytes);
  a->leave(false);
  b->leave(false);
}

TEST_CASE("a hostile peer scribbles over everything all the time", "[fabric]") {
  Victims v;
  Child hostile([&]() -> int {
    PeerSlot peers[2];
    u8 *segments[2];
    for (u16 k = 0; k < 2; ++k) {
      if (!map_control(v.name.directory(), static_cast<u16>(k + 1), peers[k])) return 1;
      segments[k] = map_segment(peers[k].memory, static_cast<u16>(2 - k), ring, false);
      if (segments[k] == nullptr) return 2;
    }
    Child::report(1);
    u32 random = 99;
    const auto next = [&] { return random = random * 1664525 + 1013904223, random >> 7; };
    for (;;) {
      const u32 k = next() % 2;
      u32 word = next() % control_words;
      while (!of_the_two(word)) word = next() % control_words;
      const u32 value = next() % 2 ? next() << 7 : next() % 5 * 64;
      __atomic_store_n(words_of(peers[k].control) + word, value, __ATOMIC_RELAXED);
      const u32 at = next() % (ring / 4);
      __atomic_store_n(reinterpret_cast<u32 *>(segments[k]) + at,
                       next() % 2 ? next() : u32{RecordFrame::data}, __ATOMIC_RELAXED);
      if (next() % 16 == 0) usleep(10);
    }
  });
  Captured quiet;
  REQUIRE(hostile.hear() == 1);
  for (int i = 0; i < 20; ++i) v.exchange(500);
  hostile.kill9();
  CHECK(v.healed());
}

TEST_CASE("shrinking the files of a fabric stops no process", "[fabric]") {
  Victims v;
  for (u16 slot : {u16{1}, u16{2}}) {
    const std::string path = slot_path(v.name.directory(), slot);
    REQUIRE(truncate(path.c_str(), 0) == 0);
  }
  v.exchange(100);
  CHECK(v.healed());
  PeerSlot peer;
  CHECK_FALSE(map_control(v.name.directory(), 2, peer));
  CHECK(errno == EPROTO);

  // What they say is believed only if it is true of the memory.
  Fabric *c = Fabric::join(v.name.name, ring);
  SlotRecord record;
  REQUIRE(read_slot(v.name.directory(), 3, record));
  const int fd = open(slot_path(v.name.directory(), 3).c_str(), O_RDWR);
  for (const u32 ring_bytes : {2 * ring, max_ring_bytes, ring + 64, 0u, 1u, ~0u}) {
    SlotRecord lie = record;
    lie.ring_bytes = ring_bytes;
    REQUIRE(pwrite(fd, &lie, sizeof lie, 0) == sizeof lie);
    CHECK_FALSE(map_control(v.name.directory(), 3, peer));
    CHECK(errno == EPROTO);
  }
  close(fd);
  c->leave(false);
}

TEST_CASE("memory goes with its last user, however that one ends", "[fabric]") {
  FabricName n;
  Fabric *f = Fabric::join(n.name, ring);
  Child child([&] { return idle_member(n.name); });
  REQUIRE(child.hear() == 2);
  PeerSlot peer;
  REQUIRE(map_control(n.directory(), 2, peer));
  munmap(peer.control, control_bytes);
  child.kill9();
  CHECK(map_segment(peer.memory, 1, ring, false) == nullptr);
  CHECK(errno == ESRCH);
  f->leave(false);
}

TEST_CASE("a removal that stops anywhere leaves all of a fabric or nothing", "[fabric]") {
  constexpr int files = 200;
  const std::string name = "test-stop-" + std::to_string(getpid());
  for (int delay_us = 0; delay_us < 3000; delay_us += 50) {
    Child child([&]() -> int {
      const std::string d = fabric_directory(name);
      for (int i = 0; i < files; ++i)
        close(open((d + "/file" + std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600));
      Child::report(1);
      leave_fabrics();
      return 0;
    });
    REQUIRE(child.hear() == 1);
    usleep(static_cast<useconds_t>(delay_us));
    child.kill9();
    // What the next user finds.
    Child next([&]() -> int {
      const std::string d = fabric_directory(name);
      int found = 0;
      for (int i = 0; i < files; ++i) found += exists(d + "/file" + std::to_string(i));
      Child::report(static_cast<u32>(found));
      leave_fabrics();
      return 0;
    });
    const u32 found = next.hear();
    INFO(delay_us);
    CHECK((found == 0 || found == files));
    REQUIRE(next.status() == 0);
  }
  // What the killed ones left is gone as well.
  for (const FabricEntry &e : list_fabrics()) CHECK(e.name.substr(0, name.size()) != name);
}

TEST_CASE("limits are named", "[fabric]") {
  FabricName n;
  const std::string directory = n.directory();
  // Joins under a limit; whether it worked, and what was said about it.
  const auto join = [&](__rlimit_resource resource, rlim_t limit, const char *name, int error) {
    Child child([&]() -> int {
      const rlimit both{limit, limit};
      Captured log;
      setrlimit(resource, &both);
      Fabric *f = Fabric::join(n.name, ring);
      const int got = errno;
      if (error == 0) return f != nullptr ? 0 : 1;
      if (f != nullptr || got != error) return 2;
      return log.lines_with(name) == 1 ? 0 : 3;
    });
    return child.status();
  };
  CHECK(join(RLIMIT_FSIZE, 1 << 20, "", 0) == 0);  // memory is no file
  CHECK(join(RLIMIT_FSIZE, 8, "RLIMIT_FSIZE is 8 bytes", EFBIG) == 0);
  CHECK(join(RLIMIT_NOFILE, 3, "RLIMIT_NOFILE is 3 descriptors", EMFILE) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(join(RLIMIT_AS, 64 << 20, "RLIMIT_AS is 67108864 bytes", ENOMEM) == 0);
#endif
  CHECK(join(RLIMIT_CPU, RLIM_INFINITY, "", 0) == 0);
}

TEST_CASE("a file system without room says so", "[fabric]") {
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
  SECTION("not even for a directory") {
    on_tmpfs("nr_inodes=1", [&] {
      Captured log;
      if (Fabric::join(n.name, ring) != nullptr || errno != ENOSPC) return 1;
      return log.lines_with("/dev/shm") == 1 ? 0 : 2;
    });
  }
  SECTION("not for a slot") {
    on_tmpfs("size=4k", [&] {
      const std::string directory = n.directory();
      const int fd = open((directory + "/filler").c_str(), O_WRONLY | O_CREAT, 0600);
      if (write(fd, "x", 1) != 1) return 3;
      Captured log;
      if (Fabric::join(n.name, ring) != nullptr || errno != ENOSPC) return 1;
      return log.lines_with("No space left") == 1 ? 0 : 2;
    });
  }
  SECTION("little is enough for many: rings lie elsewhere") {
    on_tmpfs("size=64k", [&] {
      Fabric *members[4];
      for (Fabric *&m : members)
        if ((m = Fabric::join(n.name, ring)) == nullptr) return 2;
      for (u16 from = 1; from <= 4; ++from)
        for (u16 to = 1; to <= 4; ++to) {
          introduce(*members[from - 1], *members[to - 1]);
          if (send(*members[from - 1], to, 7, burst_bytes) != Reserve::ok) return 3;
          if (!take(*members[to - 1], 7, from)) return 4;
        }
      return 0;
    });
  }
}
