// Completion queues: sizes, ownership, overrun, arming, moderation, resize,
// data in the CQE, compression; SRQ limit; events.
#include <sys/mman.h>
#include <sys/socket.h>

#include <csignal>

#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// An event channel whose application end the test reads.
struct Channel {
  Channel() : channel(EventChannel::create()) { REQUIRE(channel != nullptr); }
  ~Channel() {
    ::close(channel->application_fd());
    channel->close_application_end();
    channel->drop();
  }
  bool completion(u64 &handle) {
    return recv(channel->application_fd(), &handle, 8, MSG_DONTWAIT) == 8;
  }
  bool async(u64 &element, u32 &type) {
    u8 b[16];
    if (recv(channel->application_fd(), b, 16, MSG_DONTWAIT) != 16) return false;
    std::memcpy(&element, b, 8);
    std::memcpy(&type, b + 8, 4);
    return true;
  }
  EventChannel *channel;
};

void write_plain(Cq &cq, u16 counter, u32 bytes = 10, bool solicited = false) {
  Cqe c;
  c.uidx(1);
  c.wqe_counter(counter);
  c.byte_count(bytes);
  cq_write(cq, c, CqeOpcode::resp_send, solicited);
}

// Two pages with a completion across their boundary: its first half cannot be written until it was
// tried, and what the second half holds by then was written before.
struct Halves {
  static constexpr size_t page = 4096;
  Halves() {
    memory = static_cast<u8 *>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    struct sigaction look {};
    look.sa_handler = [](int) {
      std::memcpy(&counter, memory + page + 28, 2);
      mprotect(memory, page, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &look, &before);
  }
  ~Halves() {
    sigaction(SIGSEGV, &before, nullptr);
    munmap(memory, 2 * page);
  }
  static void protect() { REQUIRE(mprotect(memory, page, PROT_READ) == 0); }
  static u8 *slot() { return memory + page - 32; }
  static inline u8 *memory = nullptr;
  static inline u16 counter = 0;  // as it was when the first half was written
  struct sigaction before {};
};

}  // namespace

TEST_CASE("A stride is written in front of the entry that it belongs to", "[cq]") {
  Rig rig;
  TestCq cq(1);
  Halves halves;
  cq.cq.buffer = Halves::slot();
  cq.cq.ignore_overrun = true;
  Halves::protect();
  write_plain(cq.cq, 0x1234);
  CHECK(swap16(Halves::counter) == 0x1234);
}

TEST_CASE("128-byte CQEs carry the completion in their second half", "[cq]") {
  Rig rig;
  Pair p(rig, {}, {}, 128);
  Region from(64, full_access), to(64, full_access);
  for (int i = 0; i < 200; ++i) {
    p.b.post_receive({{64, to.key(), to.address()}});
    p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
    rig.step();
    CHECK(p.b_cq.expect().byte_count() == 64);
    CHECK(p.a_cq.expect().opcode() == 0);
  }
}

TEST_CASE("Overrun puts the CQ in error and the QP with it", "[cq][error]") {
  Rig rig;
  Channel async;
  TestCq small(4);
  small.cq.async.channel = async.channel;
  TestCq other;
  TestQp a(rig, small, small), b(rig, other, other);
  a.qp->async.channel = async.channel;
  a.connect(b.qp->qpn, rig.device().port(1).lid);
  b.connect(a.qp->qpn, rig.device().port(1).lid);
  for (int i = 0; i < 6; ++i) a.post(Wqe(WqeOpcode::nop));
  rig.step();
  CHECK(small.cq.error);
  CHECK(a.qp->state == QpState::err);
  u64 element;
  u32 type;
  REQUIRE(async.async(element, type));
  CHECK(type == static_cast<u32>(EventType::cq_err));
  CHECK(element == small.cq.user_handle);
  REQUIRE(async.async(element, type));
  CHECK(type == static_cast<u32>(EventType::qp_fatal));
  for (int i = 0; i < 4; ++i) small.expect();  // what had room is still there
}

TEST_CASE("With ignore-overrun old completions are overwritten", "[cq]") {
  Rig rig;
  TestCq cq(4);
  cq.cq.ignore_overrun = true;
  for (u16 i = 0; i < 10; ++i) write_plain(cq.cq, i);
  CHECK_FALSE(cq.cq.error);
  CHECK(cq.cq.producer == 10);
}

TEST_CASE("Arming", "[cq][event]") {
  Rig rig;
  Channel ch;
  TestCq cq;
  cq.cq.completion.channel = ch.channel;
  u64 handle;

  SECTION("unarmed: no event") {
    write_plain(cq.cq, 0);
    CHECK_FALSE(ch.completion(handle));
  }
  SECTION("one event per arm") {
    cq.arm(false);
    write_plain(cq.cq, 0);
    write_plain(cq.cq, 1);
    REQUIRE(ch.completion(handle));
    CHECK(handle == cq.cq.user_handle);
    CHECK_FALSE(ch.completion(handle));
    CHECK(cq.cq.completion.posted == 1);
  }
  SECTION("arming a CQ that holds completions fires at once") {
    write_plain(cq.cq, 0);
    cq.arm(false);
    rig.step();
    CHECK(ch.completion(handle));
  }
  SECTION("arming again before polling does not repeat the event") {
    cq.arm(false);
    write_plain(cq.cq, 0);
    REQUIRE(ch.completion(handle));
    cq.arm(false, 1);
    rig.step();
    CHECK_FALSE(ch.completion(handle));
    write_plain(cq.cq, 1);
    CHECK(ch.completion(handle));
  }
  SECTION("a completion that came after the last event fires the next arm") {
    cq.arm(false);
    write_plain(cq.cq, 0);
    write_plain(cq.cq, 1);
    REQUIRE(ch.completion(handle));
    cq.arm(false, 1);
    rig.step();
    CHECK(ch.completion(handle));
  }
  SECTION("solicited only") {
    cq.arm(true);
    write_plain(cq.cq, 0);
    rig.step();
    CHECK_FALSE(ch.completion(handle));
    write_plain(cq.cq, 1, 10, true);
    CHECK(ch.completion(handle));
  }
  SECTION("errors count as solicited") {
    cq.arm(true);
    Cqe c;
    c.error(Syndrome::flush, 0xf9);
    cq_write(cq.cq, c, CqeOpcode::resp_err, true);
    CHECK(ch.completion(handle));
  }
  SECTION("moderation by count and by time") {
    cq.cq.moderation_count = 4;
    cq.cq.moderation_period = 100;
    cq.arm(false);
    write_plain(cq.cq, 0);
    write_plain(cq.cq, 1);
    CHECK_FALSE(ch.completion(handle));
    write_plain(cq.cq, 2);
    write_plain(cq.cq, 3);
    CHECK(ch.completion(handle));
    while (true) {
      Completion c;
      if (!cq.poll(c)) break;
    }
    cq.arm(false, 1);
    write_plain(cq.cq, 4);
    CHECK_FALSE(ch.completion(handle));
    rig.step(1'000'000);
    CHECK(ch.completion(handle));
  }
}

TEST_CASE("More events than a socket holds are kept in order", "[event]") {
  Rig rig;
  Channel ch;
  for (u64 i = 0; i < 5000; ++i) ch.channel->post_completion(i);
  u64 handle;
  for (u64 i = 0; i < 5000; ++i) {
    if (!ch.completion(handle)) {
      rig.step();
      REQUIRE(ch.completion(handle));
    }
    REQUIRE(handle == i);
  }
}

TEST_CASE("Purging removes one object's events only", "[event]") {
  Rig rig;
  Channel ch;
  for (u64 i = 0; i < 10; ++i) ch.channel->post_async(i % 2, EventType::srq_limit);
  CHECK(ch.channel->purge(1) == 5);
  u64 element;
  u32 type;
  for (int i = 0; i < 5; ++i) {
    REQUIRE(ch.async(element, type));
    CHECK(element == 0);
  }
  CHECK_FALSE(ch.async(element, type));
}

TEST_CASE("Resize closes the old buffer with a mark and goes on in the new one", "[cq]") {
  Rig rig;
  TestCq cq(8);
  for (u16 i = 0; i < 3; ++i) write_plain(cq.cq, i);
  alignas(64) static u8 bigger[32 * 64];
  std::memset(bigger, 0xf0, sizeof bigger);
  u8 *old = cq.cq.buffer;
  REQUIRE(cq_resize(cq.cq, bigger, 32, 64) == 0);
  CHECK(old[3 * 64 + 63] >> 4 == static_cast<u8>(CqeOpcode::resize_cq));
  write_plain(cq.cq, 9);
  CHECK(load_be16(bigger + 4 * 64 + 60) == 9);

  alignas(64) static u8 tiny[2 * 64];
  CHECK(cq_resize(cq.cq, tiny, 2, 64) == EINVAL);
}

TEST_CASE("A full queue has no room for the mark of a resize", "[cq]") {
  Rig rig;
  TestCq cq(4);
  for (u16 i = 0; i < 4; ++i) write_plain(cq.cq, i);
  alignas(64) static u8 bigger[32 * 64];
  CHECK(cq_resize(cq.cq, bigger, 32, 64) == EINVAL);
  CHECK(cq.cq.error);
  CHECK(cq.expect().wqe_counter() == 0);
}

TEST_CASE("Small messages are scattered into the CQE when asked for", "[cq]") {
  Rig rig;
  const u32 cqe_size = GENERATE(64u, 128u);
  const u32 room = cqe_size == 128 ? 64 : 32;
  Pair p(rig, {}, {}, cqe_size);
  p.b.qp->scatter_to_cqe_responder = true;
  p.a.qp->scatter_to_cqe_requester = true;
  Region from(256, full_access), to(256, full_access);
  from.fill(1);
  for (u32 bytes : {1u, room, room + 1}) {
    std::memset(to.data(), 0, 256);
    p.b.post_receive({{256, to.key(), to.address()}});
    p.a.post(Wqe(WqeOpcode::send).data(bytes, from.key(), from.address()));
    rig.step();
    p.a_cq.expect();
    const Completion c = p.b_cq.expect();
    CHECK(c.byte_count() == bytes);
    if (bytes > room) {
      CHECK((c.format() & 3) == 0);
      CHECK(std::memcmp(to.data(), from.data(), bytes) == 0);
    } else {
      CHECK(c.format() == (cqe_size == 128 ? 2 : 1));
      CHECK(std::memcmp(cqe_size == 128 ? c.inline_half : c.raw, from.data(), bytes) == 0);
      CHECK(to.data()[0] == 0);  // the memory itself is software's to fill
      // A small entry's fields lie under the data, a large one's do not.
      if (cqe_size == 128) CHECK(load_be16(c.raw + 22) == rig.device().port(1).lid);
    }
  }
  p.a.post(Wqe(WqeOpcode::rdma_read)
               .remote(from.address(), from.key())
               .data(20, to.key(), to.address()));
  rig.step();
  const Completion c = p.a_cq.expect();
  CHECK(c.format() == (cqe_size == 128 ? 2 : 1));
  CHECK(std::memcmp(cqe_size == 128 ? c.inline_half : c.raw, from.data(), 20) == 0);
}

TEST_CASE("Compression: one title, arrays of eight", "[cq][compression]") {
  Rig rig;
  TestCq cq(64);
  cq.cq.compression = CqeCompression::checksum;
  u8 *buffer = cq.cq.buffer;

  SECTION("a run becomes one title with its count") {
    for (u16 i = 0; i < 19; ++i) write_plain(cq.cq, static_cast<u16>(100 + i), 1000u + i);
    cq.expect_none();
    rig.step();
    const Completion title = cq.expect();
    CHECK(title.opcode() == static_cast<u8>(CqeOpcode::resp_send));
    CHECK(title.format() == 3);
    CHECK(title.byte_count() == 19);
    CHECK(title.wqe_counter() == 100);
    for (u32 i = 0; i < 19; ++i) {
      const u32 slot = i < 8 ? 1 : i / 8 * 8;
      CHECK(load_be32(buffer + slot * 64 + i % 8 * 8 + 4) == 1000 + i);
    }
    CHECK(cq.cq.producer == 19);
  }
  SECTION("a single completion stays plain") {
    write_plain(cq.cq, 1, 77);
    rig.step();
    const Completion c = cq.expect();
    CHECK(c.format() == 0);
    CHECK(c.byte_count() == 77);
  }
  SECTION("what a mini CQE cannot say ends the run") {
    write_plain(cq.cq, 1);
    write_plain(cq.cq, 2);
    write_plain(cq.cq, 9);  // counter jumps
    rig.step();
    CHECK(cq.expect().byte_count() == 2);
    CHECK(cq.cq.producer == 3);
  }
}

// Software walks the arrays of a block without wrapping around.
TEST_CASE("A block of compressed completions ends with the queue", "[cq][compression]") {
  Rig rig;
  constexpr u32 entries = 16;
  const u32 before = GENERATE(1u, 5u, 8u, 13u, 14u, 15u, 16u, 31u);
  TestCq cq(entries);
  for (u32 i = 0; i < before; ++i) {
    write_plain(cq.cq, static_cast<u16>(i));
    (void)cq.expect();
  }
  cq.cq.compression = CqeCompression::checksum;
  constexpr u16 n = 12;
  for (u16 i = 0; i < n; ++i) write_plain(cq.cq, static_cast<u16>(500 + i), 1000u + i);
  rig.step();

  u32 at = before;
  for (u16 seen = 0; seen < n;) {
    const u32 slot = at % entries;
    const u8 *title = cq.cq.buffer + slot * 64;
    CAPTURE(seen, slot);
    REQUIRE((title[63] & 1) == (at / entries & 1));
    REQUIRE(load_be16(title + 60) == 500 + seen);
    const bool compressed = (title[63] >> 2 & 3) == 3;
    const u32 count = compressed ? load_be32(title + 44) : 1;
    REQUIRE(slot + count <= entries);
    for (u32 i = 0; i < count; ++i) {
      const u8 *bytes = compressed
                            ? cq.cq.buffer + (slot + (i < 8 ? 1 : i / 8 * 8)) * 64 + i % 8 * 8
                            : title + 40;
      CHECK(load_be32(bytes + 4) == 1000u + seen + i);
    }
    at += count;
    seen = static_cast<u16>(seen + count);
  }
  CHECK(cq.cq.producer == before + n);
}

TEST_CASE("SRQ limit fires once per arm", "[srq][event]") {
  Rig rig;
  Channel ch;
  TestSrq srq;
  srq.srq.async.channel = ch.channel;
  srq.srq.user_handle = 0xabc;
  QpOptions o;
  o.srq = &srq.srq;
  Pair p(rig, {}, o);
  Region from(64, full_access), to(64, full_access);
  for (int i = 0; i < 4; ++i) srq.post(64, to.key(), to.address());
  srq.srq.limit = 3;
  u64 element;
  u32 type;
  p.a.post(Wqe(WqeOpcode::send).data(8, from.key(), from.address()));
  rig.step();
  CHECK_FALSE(ch.async(element, type));  // three left: not below three
  p.a.post(Wqe(WqeOpcode::send).data(8, from.key(), from.address()));
  p.a.post(Wqe(WqeOpcode::send).data(8, from.key(), from.address()));
  rig.step();
  REQUIRE(ch.async(element, type));
  CHECK(element == 0xabc);
  CHECK(type == static_cast<u32>(EventType::srq_limit));
  CHECK_FALSE(ch.async(element, type));
  CHECK(srq.srq.limit == 0);
}

TEST_CASE("A QP with an SRQ reports its last WQE when it fails", "[srq][event]") {
  Rig rig;
  Channel ch;
  TestSrq srq;
  QpOptions o;
  o.srq = &srq.srq;
  Pair p(rig, {}, o);
  p.b.qp->async.channel = ch.channel;
  qp_set_state(*p.b.qp, QpState::err);
  u64 element;
  u32 type;
  REQUIRE(ch.async(element, type));
  CHECK(type == static_cast<u32>(EventType::qp_last_wqe));
  CHECK_FALSE(ch.async(element, type));
}

TEST_CASE("Timestamps follow the free-running clock", "[cq][clock]") {
  Rig rig;
  TestCq cq;
  const u64 before = device_clock_ns();
  write_plain(cq.cq, 0);
  write_plain(cq.cq, 1);
  const u64 first = cq.expect().timestamp(), second = cq.expect().timestamp();
  CHECK(before <= first);
  CHECK(first <= second);
  CHECK(second <= device_clock_ns());
}
