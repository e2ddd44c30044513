// Memory keys: translation, protection, numbering, invalidation, creation.
#include "model/mkey.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "catch.h"

using namespace softhca;

namespace softhca {
bool operator==(const Span &a, const Span &b) {
  return a.address == b.address && a.length == b.length && a.kind == b.kind;
}
std::ostream &operator<<(std::ostream &o, const Span &s) {
  return o << std::hex << s.address << "+" << s.length << "/" << static_cast<int>(s.kind);
}
}  // namespace softhca

namespace {

constexpr u32 pd = 7;
constexpr Requester us{pd, 100};
constexpr u32 all_access =
    access_local_write | access_remote_write | access_remote_read | access_remote_atomic;
constexpr Syndrome refused = Syndrome::local_protection;

struct Keys {
  MkeyTable table;

  Mkey *direct(u64 start, u64 length, u64 host, u32 access = all_access) {
    Mkey *k = table.create(pd);
    k->kind = Mkey::Kind::direct;
    k->start = start;
    k->length = length;
    k->host_base = host;
    k->access = access;
    return k;
  }
  Mkey *list(std::vector<Mkey::Entry> entries, u64 start = 0, u64 length = ~u64{0}) {
    Mkey *k = direct(start, length, 0);
    k->kind = Mkey::Kind::indirect;
    if (length == ~u64{0}) {
      k->length = 0;
      for (auto &e : entries) k->length += e.bytes;
    }
    k->set_entries(std::move(entries));
    return k;
  }
  Mkey *repeat(std::vector<Mkey::Entry> entries, u64 count) {
    Mkey *k = list(std::move(entries));
    k->kind = Mkey::Kind::repeat;
    k->repeat_count = count;
    k->length = k->ends.back() * count;
    return k;
  }
  Syndrome operator()(const Mkey *k, u64 address, u64 length, u32 need = 0) {
    out.clear();
    return resolve(table, k->key(), address, length, need, who, out);
  }
  Requester who = us;
  SpanList out;
};

}  // namespace

TEST_CASE("a region translates addresses inside it", "[mkey]") {
  Keys keys;
  Mkey *k = keys.direct(0x10000, 0x2000, 0x7000000);
  CHECK(keys(k, 0x10000, 0x2000) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x7000000, 0x2000}});
  CHECK(keys(k, 0x10123, 5) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x7000123, 5}});
  CHECK(keys(k, 0x11fff, 1) == Syndrome::ok);
  for (auto [address, length] : {std::pair<u64, u64>{0xffff, 2},
                                 {0x10000, 0x2001},
                                 {0x12000, 1},
                                 {0x11fff, 2},
                                 {0x11fff, ~u64{0}},
                                 {0, 1},
                                 {~u64{0}, 2}}) {
    CHECK(keys(k, address, length) == refused);
    CHECK(keys.out.empty());
  }
}

TEST_CASE("a pattern of tiny pieces ends", "[mkey]") {
  Keys keys;
  const Mkey *memory = keys.direct(0, 1 << 24, 0x7000000);
  Mkey *pattern = keys.repeat({{1, memory->key(), 0, 0}}, 1 << 24);
  CHECK(keys(pattern, 0, 1 << 20) == Syndrome::ok);
  CHECK(keys(pattern, 0, 1 << 24) == refused);
  CHECK(keys.out.empty());

  // Entries of no bytes would take no end of them.
  u8 list[48] = {};
  const auto write = [&](u16 first_bytes) {
    store_be32(list, first_bytes + 1u);
    store_be32(list + 4, 0x400);
    store_be32(list + 8, 1);
    store_be16(list + 14, 2);
    store_be16(list + 18, first_bytes);
    store_be16(list + 34, 1);
    return write_translations(*pattern, 0, list, 3);
  };
  pattern->max_entries = 4;
  CHECK(write(1));
  CHECK_FALSE(write(0));
}

TEST_CASE("no bytes need no key", "[mkey]") {
  Keys keys;
  SpanList out;
  CHECK(resolve(keys.table, 0xdeadbeef, 5, 0, access_remote_write, us, out) == Syndrome::ok);
  CHECK(out.empty());
}

TEST_CASE("the whole key counts", "[mkey]") {
  Keys keys;
  Mkey *k = keys.direct(0, 10, 0x1000);
  k->tag = 0x42;
  SpanList out;
  CHECK(resolve(keys.table, k->index << 8 | 0x42, 0, 1, 0, us, out) == Syndrome::ok);
  CHECK(resolve(keys.table, k->index << 8 | 0x43, 0, 1, 0, us, out) == refused);
  CHECK(resolve(keys.table, (k->index + 1) << 8 | 0x42, 0, 1, 0, us, out) == refused);
  const u32 old = k->key();
  keys.table.destroy(k);
  CHECK(resolve(keys.table, old, 0, 1, 0, us, out) == refused);
}

TEST_CASE("rights", "[mkey]") {
  Keys keys;
  Mkey *k = keys.direct(0, 10, 0x1000, access_local_write | access_remote_read);
  CHECK(keys(k, 0, 1) == Syndrome::ok);
  CHECK(keys(k, 0, 1, access_local_write) == Syndrome::ok);
  CHECK(keys(k, 0, 1, access_remote_read) == Syndrome::ok);
  CHECK(keys(k, 0, 1, access_remote_write) == refused);
  CHECK(keys(k, 0, 1, access_remote_atomic) == refused);
  CHECK(keys(k, 0, 1, access_remote_read | access_remote_write) == refused);
  SECTION("another protection domain") {
    keys.who.pdn = pd + 1;
    CHECK(keys(k, 0, 1) == refused);
  }
  SECTION("a free key") {
    k->free = true;
    CHECK(keys(k, 0, 1) == refused);
  }
  SECTION("a window of another QP") {
    k->qpn = us.qpn + 1;
    CHECK(keys(k, 0, 1) == refused);
  }
  SECTION("a window of this QP") {
    k->qpn = us.qpn;
    CHECK(keys(k, 0, 1) == Syndrome::ok);
  }
  SECTION("no local read") {
    k->local_read = false;
    CHECK(keys(k, 0, 1) == refused);
    CHECK(keys(k, 0, 1, access_local_write) == Syndrome::ok);
  }
}

TEST_CASE("kinds of memory", "[mkey]") {
  Keys keys;
  SECTION("device memory") {
    Mkey *k = keys.direct(0, 100, 0x5000);
    k->kind = Mkey::Kind::device;
    CHECK(keys(k, 3, 4) == Syndrome::ok);
    CHECK(keys.out == SpanList{{0x5003, 4, Span::Kind::direct}});
    CHECK(keys(k, 3, 98) == refused);
  }
  SECTION("the whole address space") {
    Mkey *k = keys.direct(0, ~u64{0}, 0, access_local_write);
    k->kind = Mkey::Kind::implicit;
    CHECK(keys(k, 0x1234567, 99) == Syndrome::ok);
    CHECK(keys.out == SpanList{{0x1234567, 99}});
    CHECK(keys(k, ~u64{0} - 4, 5) == Syndrome::ok);
    CHECK(keys(k, ~u64{0} - 4, 6) == refused);
    CHECK(keys(k, 0, 5, access_remote_read) == refused);
  }
  SECTION("nothing") {
    const Mkey *k = &keys.table.null();
    CHECK(k->key() == 0x700);
    CHECK(&keys.table.null() == k);
    CHECK(keys(k, 0x999, 10) == Syndrome::ok);
    CHECK(keys.out == SpanList{{0, 10, Span::Kind::null}});
    CHECK(keys(k, 0x999, 10, access_local_write) == Syndrome::ok);
    CHECK(keys(k, 0x999, 10, access_remote_write) == refused);
  }
}

TEST_CASE("lists", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0x10000, 0x1000, 0x100000), *b = keys.direct(0x20000, 0x1000, 0x200000);
  Mkey *k = keys.list({{100, a->key(), 0x10010}, {50, b->key(), 0x20000}, {10, a->key(), 0x10074}},
                      0x5000, 160);
  CHECK(keys(k, 0x5000, 160) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x100010, 100}, {0x200000, 50}, {0x100074, 10}});
  CHECK(keys(k, 0x5000 + 99, 2) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x100073, 1}, {0x200000, 1}});
  CHECK(keys(k, 0x5000 + 150, 10) == Syndrome::ok);
  CHECK(keys(k, 0x5000 + 150, 11) == refused);
  CHECK(keys(k, 0x4fff, 2) == refused);
  SECTION("length beyond the entries") {
    k->length = 1000;
    CHECK(keys(k, 0x5000 + 150, 10) == Syndrome::ok);
    CHECK(keys(k, 0x5000 + 150, 11) == refused);
    CHECK(keys(k, 0x5000 + 200, 1) == refused);
  }
  SECTION("an entry beyond its region") {
    k->set_entries({{100, a->key(), 0x10fff}});
    CHECK(keys(k, 0x5000, 1) == Syndrome::ok);
    CHECK(keys(k, 0x5000, 2) == refused);
  }
  SECTION("a region deregistered under it") {
    keys.table.destroy(b);
    CHECK(keys(k, 0x5000, 100) == Syndrome::ok);
    CHECK(keys(k, 0x5000, 101) == refused);
  }
  SECTION("a region of another PD") {
    b->pdn = pd + 1;
    CHECK(keys(k, 0x5000, 101) == refused);
  }
  SECTION("the list itself in another PD") {
    k->pdn = pd + 1;
    CHECK(keys(k, 0x5000, 1) == refused);
  }
  SECTION("rights below are local ones") {
    a->access = access_local_write;
    k->access = access_remote_write | access_remote_read;
    CHECK(keys(k, 0x5000, 10, access_remote_write) == Syndrome::ok);
    CHECK(keys(k, 0x5000, 10, access_remote_read) == Syndrome::ok);
    CHECK(keys(k, 0x5000, 10, access_remote_atomic) == refused);
    a->access = 0;
    CHECK(keys(k, 0x5000, 10, access_remote_write) == refused);
    CHECK(keys(k, 0x5000, 10, access_remote_read) == Syndrome::ok);
    a->local_read = false;
    CHECK(keys(k, 0x5000, 10, access_remote_read) == refused);
  }
  SECTION("pieces that touch are one") {
    k->set_entries({{10, a->key(), 0x10010}, {10, a->key(), 0x1001a}, {10, b->key(), 0x20000}});
    CHECK(keys(k, 0x5000, 30) == Syndrome::ok);
    CHECK(keys.out == SpanList{{0x100010, 20}, {0x200000, 10}});
  }
  SECTION("an empty list") {
    k->set_entries({});
    CHECK(keys(k, 0x5000, 1) == refused);
  }
}

TEST_CASE("a refusal leaves the list of spans as it was", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0, 100, 0x1000);
  Mkey *k = keys.list({{10, a->key(), 50}, {10, 0xbad00, 0}});
  // Which the first entry would extend.
  SpanList out = {{0x1000 + 40, 10, Span::Kind::application, k->index, a->index}};
  const SpanList before = out;
  CHECK(resolve(keys.table, k->key(), 0, 20, 0, us, out) == refused);
  CHECK(out == before);
  CHECK(resolve(keys.table, k->key(), 0, 10, 0, us, out) == Syndrome::ok);
  CHECK(out == SpanList{{0x1000 + 40, 20}});
}

TEST_CASE("fixed-size entries", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0, 1 << 20, 0x100000);
  Mkey *k = keys.list({{0, a->key(), 0x3000}, {0, a->key(), 0x1000}, {0, a->key(), 0x2000}}, 0x8000,
                      0x2800);
  k->ksm_bytes = 0x1000;
  CHECK(keys(k, 0x8000, 0x2800) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x103000, 0x1000}, {0x101000, 0x1800}});
  CHECK(keys(k, 0x8ffe, 4) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x103ffe, 2}, {0x101000, 2}});
  k->length = 0x4000;
  CHECK(keys(k, 0x8000, 0x3000) == Syndrome::ok);
  CHECK(keys(k, 0x8000, 0x3001) == refused);
}

TEST_CASE("repeat blocks", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0, 1 << 20, 0x100000), *b = keys.direct(0, 1 << 20, 0x800000);
  Mkey *k = keys.repeat({{8, a->key(), 0x100, 64}, {4, b->key(), 0, 4}}, 3);
  CHECK(keys(k, 0, 36) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x100100, 8},
                             {0x800000, 4},
                             {0x100140, 8},
                             {0x800004, 4},
                             {0x100180, 8},
                             {0x800008, 4}});
  CHECK(keys(k, 13, 12) == Syndrome::ok);
  CHECK(keys.out == SpanList{{0x100141, 7}, {0x800004, 4}, {0x100180, 1}});
  CHECK(keys(k, 0, 37) == refused);
  k->length = 100;
  CHECK(keys(k, 36, 1) == refused);
  CHECK(keys(k, 35, 1) == Syndrome::ok);
  k->repeat_count = 0;
  CHECK(keys(k, 0, 1) == refused);
}

TEST_CASE("nesting ends after four levels", "[mkey]") {
  Keys keys;
  Mkey *k = keys.direct(0, 1000, 0x1000);
  for (int level = 1; level <= 5; ++level) {
    k = keys.list({{1000, k->key(), 0}});
    CHECK(keys(k, 10, 10) == (level <= 4 ? Syndrome::ok : refused));
  }
}

TEST_CASE("cycles of keys are refused quickly", "[mkey]") {
  Keys keys;
  Mkey *k = keys.list({}), *l = keys.list({});
  std::vector<Mkey::Entry> many(5000, {1, l->key(), 0});
  k->set_entries(many);
  l->set_entries(std::vector<Mkey::Entry>(5000, {1, k->key(), 0}));
  k->length = l->length = 5000;
  CHECK(keys(k, 0, 5000) == refused);
  k->set_entries({{10, k->key(), 0}});
  CHECK(keys(k, 0, 10) == refused);
}

TEST_CASE("random access into long lists and patterns is fast", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0, 1ull << 40, 0x100000);
  std::vector<Mkey::Entry> entries(60000, {10, a->key(), 0});
  for (size_t i = 0; i < entries.size(); ++i) entries[i].address = i * 100;
  Mkey *k = keys.list(entries),
       *r = keys.repeat({{64, a->key(), 0, 128}, {64, a->key(), 1 << 30, 128}}, 1u << 30);
  std::mt19937_64 random(1);
  const std::clock_t start = std::clock();  // of the processor: the machine may be busy
  for (int i = 0; i < 20000; ++i) {
    REQUIRE(keys(k, random() % (k->length - 100), 100) == Syndrome::ok);
    REQUIRE(keys(r, random() % (r->length - 1000), 1000) == Syndrome::ok);
  }
  REQUIRE(keys(r, 0, 64 << 20) == Syndrome::ok);
  CHECK(keys.out.size() == 1 << 20);
  CHECK(std::clock() - start < 5 * CLOCKS_PER_SEC);
}

TEST_CASE("the memory of a translation is limited", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0, 1ull << 40, 0x100000);
  Mkey *r = keys.repeat({{1, a->key(), 0, 2}}, 1u << 31);
  CHECK(keys(r, 0, 1u << 30) == refused);
  CHECK(keys.out.empty());
}

TEST_CASE("numbers", "[mkey]") {
  MkeyTable table;
  Mkey *first = table.create(pd);
  const u32 index = first->index;
  CHECK(index >= 0x100);
  CHECK(index < 1 << 24);
  table.destroy(first);
  std::set<u32> seen = {index};
  for (int i = 0; i < 10000; ++i) {
    Mkey *k = table.create(pd);
    CHECK(seen.insert(k->index).second);  // rests, and is unique
    if (i % 2) table.destroy(k);
  }
  CHECK(table.size() == 5000);
}

TEST_CASE("processes number differently", "[mkey]") {
  // By pid; others may start processes in between.
  struct Process {
    pid_t pid;
    u32 first;
  };
  std::vector<Process> processes;
  for (int i = 0; i < 16; ++i) {
    int p[2];
    REQUIRE(pipe(p) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      MkeyTable table;
      const u32 own = table.create(pd)->index;
      _exit(write(p[1], &own, 4) == 4 ? 0 : 1);
    }
    u32 first = 0;
    REQUIRE(read(p[0], &first, 4) == 4);
    waitpid(pid, nullptr, 0);
    close(p[0]);
    close(p[1]);
    processes.push_back({pid, first});
  }
  for (const Process &a : processes)
    for (const Process &b : processes)
      if (a.pid < b.pid) {
        CAPTURE(a.pid, b.pid);
        CHECK(a.first != b.first);
        // Those that start together are far apart: up to 33 numbers, as the golden
        // ratio spreads them.
        if (b.pid - a.pid < 34)
          CHECK(std::max(a.first, b.first) - std::min(a.first, b.first) > 20000);
      }
}

TEST_CASE("invalidation", "[mkey]") {
  Keys keys;
  Mkey *a = keys.direct(0, 100, 0x1000);
  Mkey *k = keys.list({{100, a->key(), 0}});
  k->qpn = us.qpn;
  k->remote_invalidate = true;
  const u32 key = k->key();
  SECTION("locally") {
    CHECK(invalidate(keys.table, key, us, false));
    CHECK(k->free);
  }
  SECTION("remotely") {
    CHECK(invalidate(keys.table, key, us, true));
    CHECK(k->free);
  }
  SECTION("twice") {
    CHECK(invalidate(keys.table, key, us, true));
    CHECK_FALSE(invalidate(keys.table, key, us, true));
  }
  SECTION("remotely without permission") {
    k->remote_invalidate = false;
    CHECK_FALSE(invalidate(keys.table, key, us, true));
    CHECK_FALSE(k->free);
    CHECK(invalidate(keys.table, key, us, false));
  }
  SECTION("refusals") {
    CHECK_FALSE(invalidate(keys.table, key ^ 1, us, true));
    CHECK_FALSE(invalidate(keys.table, 0x100, us, true));
    CHECK_FALSE(invalidate(keys.table, key, {pd + 1, us.qpn}, true));
    CHECK_FALSE(invalidate(keys.table, key, {pd, us.qpn + 1}, true));
    CHECK_FALSE(invalidate(keys.table, a->key(), us, false));
    k->umr_en = false;
    CHECK_FALSE(invalidate(keys.table, key, us, true));
    CHECK_FALSE(k->free);
  }
}

TEST_CASE("CREATE_MKEY", "[mkey]") {
  MkeyTable table;
  u8 mkc[64] = {};
  // As mlx5dv_create_mkey: KLM, free, UMR, local read.
  store_be32(mkc, 1u << 30 | 1u << 15 | 1u << 10 | 2 << 8);
  store_be32(mkc + 4, 0xffffff00);
  store_be32(mkc + 12, 1u << 24 | pd);
  store_be32(mkc + 52, 8);
  SECTION("indirect") {
    Mkey *k = create_devx_mkey(table, mkc, 0);
    REQUIRE(k != nullptr);
    CHECK(k->kind == Mkey::Kind::indirect);
    CHECK(k->free);
    CHECK(k->umr_en);
    CHECK(k->local_read);
    CHECK(k->remote_invalidate);
    CHECK(k->access == 0);
    CHECK(k->pdn == pd);
    CHECK(k->qpn == 0xffffff);
    CHECK(k->tag == 0);
    CHECK(k->max_entries == 8);
    CHECK(k->ksm_bytes == 0);
    CHECK(table.find(k->key()) == k);
  }
  SECTION("fixed size, ready for use, with translations") {
    store_be32(mkc, 1u << 14 | 1u << 13 | 1u << 12 | 1u << 11 | 3 << 8);
    store_be32(mkc + 4, 0x1234567f);
    store_be64(mkc + 16, 0xabc000);
    store_be64(mkc + 24, 0x2000);
    store_be32(mkc + 12, pd);
    mkc[59] = 12;
    Mkey *k = create_devx_mkey(table, mkc, 2);
    REQUIRE(k != nullptr);
    CHECK_FALSE(k->free);
    CHECK_FALSE(k->umr_en);
    CHECK_FALSE(k->local_read);
    CHECK_FALSE(k->remote_invalidate);
    CHECK(k->access == all_access);
    CHECK(k->qpn == 0x123456);
    CHECK(k->tag == 0x7f);
    CHECK(k->start == 0xabc000);
    CHECK(k->length == 0x2000);
    CHECK(k->ksm_bytes == 4096);
    u8 list[32] = {};
    store_be32(list + 4, 0xaa00);
    store_be64(list + 8, 0x1000);
    CHECK(write_translations(*k, 0, list, 2));
    CHECK(k->entries.size() == 2);
    CHECK(k->entries[0].key == 0xaa00);
  }
  SECTION("64-bit length") {
    store_be32(mkc + 12, 1u << 31 | pd);
    CHECK(create_devx_mkey(table, mkc, 0)->length == ~u64{0});
  }
  SECTION("refusals") {
    SECTION("physical addresses") { mkc[2] &= 0xfc; }
    SECTION("page lists") { mkc[2] = static_cast<u8>((mkc[2] & 0xfc) | 1); }
    SECTION("other modes") { mkc[0] |= 0x04; }
    SECTION("signature") { mkc[12] |= 0x40; }
    SECTION("signature errors") { mkc[12] |= 0x04; }
    SECTION("signature size") { mkc[35] = 4; }
    SECTION("crypto") { mkc[60] = 0x08; }
    SECTION("entity size missing") { mkc[2] |= 1; }
    SECTION("too many translations") { store_be32(mkc + 52, 0xffffffff); }
    CHECK(create_devx_mkey(table, mkc, 0) == nullptr);
    CHECK(table.size() == 0);
  }
  SECTION("more translations than room") { CHECK(create_devx_mkey(table, mkc, 9) == nullptr); }
}

// --- against a model that walks byte by byte --------------------------------

namespace {

struct Byte {
  Span::Kind kind;
  u64 address;
};

std::optional<Byte> naive(const MkeyTable &table, u32 key, u64 address, u32 need,
                          const Requester &who, int depth = 0) {
  const Mkey *k = table.find(key);
  if (k == nullptr || k->key() != key || k->free) return {};
  const bool leaf = k->kind != Mkey::Kind::indirect && k->kind != Mkey::Kind::repeat;
  if (k->kind == Mkey::Kind::null) {
    if ((need & ~access_local_write & ~k->access) != 0) return {};
    return Byte{Span::Kind::null, 0};
  }
  if (k->pdn != who.pdn || (k->qpn != 0xffffff && k->qpn != who.qpn)) return {};
  if (depth == 0 || leaf) {
    if ((need & k->access) != need) return {};
    if (need == 0 && !k->local_read) return {};
  }
  if (k->kind == Mkey::Kind::implicit) return Byte{Span::Kind::application, address};
  if (address < k->start || address - k->start >= k->length) return {};
  u64 offset = address - k->start;
  if (k->kind == Mkey::Kind::direct) return Byte{Span::Kind::application, k->host_base + offset};
  if (k->kind == Mkey::Kind::device) return Byte{Span::Kind::direct, k->host_base + offset};
  if (depth == 4) return {};
  const u32 below = need & ~u32{access_remote_read} ? u32{access_local_write} : 0;
  const u64 cycles = k->kind == Mkey::Kind::repeat ? k->repeat_count : 1;
  for (u64 c = 0; c < cycles; ++c)
    for (const Mkey::Entry &e : k->entries) {
      const u64 bytes = k->ksm_bytes != 0 ? k->ksm_bytes : e.bytes;
      if (offset < bytes)
        return naive(table, e.key, e.address + c * e.stride + offset, below, who, depth + 1);
      offset -= bytes;
    }
  return {};
}

}  // namespace

TEST_CASE("resolve agrees with a naive model", "[mkey]") {
  u64 ok = 0, no = 0;
  for (u32 seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto upto = [&](u32 n) { return static_cast<u32>(random() % (n + 1)); };
    const auto rarely = [&] { return random() % 25 == 0; };
    Keys keys;
    std::vector<Mkey *> made;
    for (int i = 0; i < 4; ++i) {
      Mkey *k = keys.direct(upto(3) * 16, 64 + upto(200), 0x100000u * (i + 1),
                            upto(3) ? all_access : upto(15));
      if (rarely()) k->kind = Mkey::Kind::null;
      if (rarely()) k->kind = Mkey::Kind::implicit;
      if (rarely()) k->kind = Mkey::Kind::device;
      made.push_back(k);
    }
    for (int i = 0; i < 10; ++i) {
      std::vector<Mkey::Entry> entries;
      const bool repeats = upto(2) == 0;
      for (u32 n = upto(rarely() ? 40 : 5) + 1; n != 0; --n) {
        const Mkey *target = made[random() % made.size()];
        entries.push_back(
            {upto(20), target->key(), target->start + upto(40), repeats ? upto(9) : 0});
      }
      Mkey *k = keys.list(entries, upto(1) * 1000);
      k->access = upto(3) ? all_access : upto(15);
      if (repeats) {
        k->kind = Mkey::Kind::repeat;
        k->repeat_count = upto(6);
      } else if (upto(3) == 0) {
        k->ksm_bytes = 1u << upto(5);
      }
      k->length = upto(300);
      made.push_back(k);
    }
    for (Mkey *k : made) {
      if (rarely()) k->free = true;
      if (rarely()) k->pdn = pd + 1;
      if (rarely()) k->qpn = upto(1) ? us.qpn : us.qpn + 1;
      if (rarely()) k->local_read = false;
    }
    for (int i = 0; i < 300; ++i) {
      const Mkey *k = made[random() % made.size()];
      const u64 address = k->start + upto(120) - (rarely() ? 3 : 0), length = 1 + upto(60);
      const u32 needs[] = {0, access_local_write, access_remote_write, access_remote_read,
                           access_remote_atomic};
      const u32 need = needs[random() % 5];
      std::vector<Byte> expected;
      for (u64 b = 0; b < length; ++b)
        if (const auto at = naive(keys.table, k->key(), address + b, need, us))
          expected.push_back(*at);
        else break;
      INFO("seed " << seed << " query " << i);
      const Syndrome got = keys(k, address, length, need);
      REQUIRE(got == (expected.size() == length ? Syndrome::ok : refused));
      if (got != Syndrome::ok) {
        REQUIRE(keys.out.empty());
        ++no;
        continue;
      }
      ++ok;
      size_t b = 0;
      for (size_t s = 0; s < keys.out.size(); ++s) {
        const Span &span = keys.out[s];
        REQUIRE(span.length != 0);
        for (u64 j = 0; j < span.length; ++j, ++b) {
          REQUIRE(b < expected.size());
          REQUIRE(expected[b].kind == span.kind);
          if (span.kind != Span::Kind::null) REQUIRE(expected[b].address == span.address + j);
        }
        if (s != 0 && keys.out[s - 1].kind == span.kind &&
            keys.out[s - 1].memory_key == span.memory_key)  // nothing left to merge
          REQUIRE((span.kind != Span::Kind::null &&
                   keys.out[s - 1].address + keys.out[s - 1].length != span.address));
      }
      REQUIRE(b == length);
    }
  }
  CHECK(ok > 10000);
  CHECK(no > 10000);
}
