// UMR WQEs, written as libmlx5 and its predecessors write them.
#include <sys/mman.h>

#include <random>

#include "catch.h"
#include "model/mkey.h"

using namespace softhca;

namespace {

constexpr u32 pd = 7;
constexpr Requester us{pd, 0x8005};
constexpr Syndrome ok = Syndrome::ok, op_error = Syndrome::local_qp_op,
                   bind_error = Syndrome::mw_bind, protection = Syndrome::local_protection;

enum : u8 {
  inline_list = 0x80,
  fail_if_free = 0x40,
  fail_if_not_free = 0x20,
  with_offset = 0x10,
  check_qpn = 0x08
};
enum : u64 {
  m_len = 1,
  m_entity = 1 << 1,
  m_start = 1 << 6,
  m_pd = 1 << 7,
  m_rinval = 1 << 8,
  m_sigerr = 1 << 9,
  m_bsf = 1 << 12,
  m_tag = 1 << 13,
  m_qpn = 1 << 14,
  m_lr = 1 << 17,
  m_lw = 1 << 18,
  m_rr = 1 << 19,
  m_rw = 1 << 20,
  m_a = 1 << 21,
  m_fence = 1 << 23,
  m_free = 1 << 29,
  m_relaxed_write = 1ull << 25,
  m_relaxed_read = 1ull << 47,
  m_entity_bit5 = 1ull << 42,
  m_access = m_lw | m_rr | m_rw | m_a,
};
enum : u8 { lr = 4, lw = 8, rr = 0x10, rw = 0x20, a = 0x40 };

struct Klm {
  u32 bytes;
  u32 key;
  u64 address;
};

// A WQE with the defaults of an inline one.
struct Wqe {
  std::vector<u8> raw = std::vector<u8>(128);
  explicit Wqe(const Mkey *k) {
    store_be32(&raw[12], k->key());
    flags(inline_list);
  }
  Wqe &flags(u8 f) {
    raw[16] = f;
    return *this;
  }
  Wqe &octowords(u16 n) {
    store_be16(&raw[20], n);
    return *this;
  }
  Wqe &offset(u64 o) {
    store_be16(&raw[22], static_cast<u16>(o));
    store_be32(&raw[32], static_cast<u32>(o >> 16));
    return *this;
  }
  Wqe &mask(u64 m) {
    store_be64(&raw[24], m);
    return *this;
  }
  Wqe &free(bool f) {
    raw[64] = f ? 0x40 : 0;
    return *this;
  }
  Wqe &access(u8 f) {
    raw[66] = f;
    return *this;
  }
  Wqe &qpn_tag(u32 qpn, u8 tag) {
    store_be32(&raw[68], qpn << 8 | tag);
    return *this;
  }
  Wqe &start(u64 v) {
    store_be64(&raw[80], v);
    return *this;
  }
  Wqe &length(u64 v) {
    store_be64(&raw[88], v);
    return *this;
  }
  Wqe &klm(Klm e) {
    const size_t at = raw.size();
    raw.resize(at + 16);
    store_be32(&raw[at], e.bytes);
    store_be32(&raw[at + 4], e.key);
    store_be64(&raw[at + 8], e.address);
    return *this;
  }
  // Entries, padded to 64 bytes, and their count.
  Wqe &list(const std::vector<Klm> &entries) {
    for (const Klm &e : entries) klm(e);
    while (raw.size() % 64 != 0) klm({0, 0, 0});
    return octowords(static_cast<u16>((raw.size() - 128) / 16));
  }
  u32 ds() const { return static_cast<u32>(raw.size() / 16); }
};

struct World {
  MkeyTable table;
  u8 *memory = static_cast<u8 *>(
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  Mkey *region = nullptr;
  Mkey *key = nullptr;  // as mlx5dv_create_mkey makes it

  explicit World(u32 entries = 8, u32 log_entity = 0) {
    region = table.create(pd);
    region->start = region->host_base = base();
    region->length = 1 << 20;
    region->access =
        access_local_write | access_remote_read | access_remote_write | access_remote_atomic;
    u8 mkc[64] = {};
    store_be32(mkc, 1u << 30 | 1u << 15 | 1u << 10 | (log_entity != 0 ? 3 : 2) << 8);
    store_be32(mkc + 4, 0xffffff00);
    store_be32(mkc + 12, pd);
    store_be32(mkc + 52, entries);
    mkc[59] = static_cast<u8>(log_entity);
    key = create_devx_mkey(table, mkc, 0);
  }
  ~World() { munmap(memory, 1 << 20); }
  u64 base() const { return reinterpret_cast<u64>(memory); }
  Syndrome run(const Wqe &w, Requester who = us) {
    return execute_umr(table, w.raw.data(), w.ds(), who);
  }
  bool reaches(u64 address, u64 length, u32 need, std::vector<std::pair<u64, u64>> pieces) {
    SpanList out;
    if (resolve(table, key->key(), address, length, need, us, out) != ok) return false;
    if (out.size() != pieces.size()) return false;
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].address != base() + pieces[i].first || out[i].length != pieces[i].second)
        return false;
    return true;
  }
  bool refuses(u64 address, u64 length, u32 need = 0) {
    SpanList out;
    return resolve(table, key->key(), address, length, need, us, out) == protection;
  }
  // mlx5dv_wr_mr_list / mkey_configure + set_layout_list.
  Wqe configure(const std::vector<Klm> &entries, u8 rights = lw | rr | rw) {
    u64 length = 0;
    for (auto &e : entries) length += e.bytes;
    return Wqe(key)
        .mask(m_free | m_tag | m_access | m_len)
        .qpn_tag(0xffffff, 0)
        .access(rights)
        .length(length)
        .list(entries);
  }
  Klm at(u64 offset, u32 bytes) { return {bytes, region->key(), base() + offset}; }
};

}  // namespace

TEST_CASE("a list of pieces", "[umr]") {
  World w;
  CHECK(w.refuses(0, 1));  // still free
  REQUIRE(w.run(w.configure({w.at(100, 10), w.at(0, 20), w.at(500, 5)})) == ok);
  CHECK(w.reaches(0, 35, access_remote_write, {{100, 10}, {0, 20}, {500, 5}}));
  CHECK(w.reaches(9, 2, 0, {{109, 1}, {0, 1}}));
  CHECK(w.refuses(0, 36));
  CHECK(w.refuses(0, 1, access_remote_atomic));
  // Another layout replaces all of it.
  REQUIRE(w.run(w.configure({w.at(900, 8)}, lw)) == ok);
  CHECK(w.reaches(0, 8, access_local_write, {{900, 8}}));
  CHECK(w.refuses(0, 1, access_remote_write));
  CHECK(w.refuses(8, 1));
}

TEST_CASE("interleaved pieces", "[umr]") {
  World w;
  Wqe q = w.configure({});
  q.klm({24, 0x400, u64{3} << 32 | 2});  // bytes, opcode, repeat count, 2 entries
  q.klm({64 << 16 | 16, w.region->key(), w.base() + 1000});
  q.klm({8 << 16 | 8, w.region->key(), w.base()}).klm({0, 0, 0});
  q.octowords(4).length(72);
  REQUIRE(w.run(q) == ok);
  CHECK(w.key->kind == Mkey::Kind::repeat);
  CHECK(w.reaches(0, 72, access_local_write,
                  {{1000, 16}, {0, 8}, {1064, 16}, {8, 8}, {1128, 16}, {16, 8}}));
  CHECK(w.reaches(25, 16, 0, {{1065, 15}, {8, 1}}));
  CHECK(w.refuses(71, 2));
  SECTION("then a plain list") {
    REQUIRE(w.run(w.configure({w.at(7, 7)})) == ok);
    CHECK(w.reaches(0, 7, 0, {{7, 7}}));
  }
  SECTION("malformed") {
    const Mkey before = *w.key;
    SECTION("more entries than the list has") { store_be16(&q.raw[128 + 14], 4); }
    SECTION("no entry") { store_be16(&q.raw[128 + 14], 0); }
    SECTION("bytes of a cycle that are not the sum") { store_be32(&q.raw[128], 25); }
    CHECK(w.run(q) == op_error);
    CHECK(w.key->entries.size() == before.entries.size());
    CHECK(w.reaches(0, 16, 0, {{1000, 16}}));
  }
}

TEST_CASE("a UMR of fixed-size entries", "[umr]") {
  World w(8, 12);
  Wqe q = w.configure(
      {{0, w.region->key(), w.base() + 0x3000}, {0, w.region->key(), w.base() + 0x1000}});
  q.mask(m_free | m_len | m_start | m_access).start(0x70000000).length(0x2000);
  REQUIRE(w.run(q) == ok);
  CHECK(w.reaches(0x70000000, 0x2000, 0, {{0x3000, 0x1000}, {0x1000, 0x1000}}));
  CHECK(w.refuses(0, 1));
  SECTION("of another size") {
    Wqe e(w.key);
    e.mask(m_entity | m_len).length(0x200);
    e.raw[64 + 59] = 8;
    REQUIRE(w.run(e) == ok);
    CHECK(w.reaches(0x70000000, 0x200, 0, {{0x3000, 0x100}, {0x1000, 0x100}}));
    e.raw[64 + 59] = 0;
    CHECK(w.run(e) == op_error);
  }
  SECTION("a repeat block is an entry like others here") {
    Wqe e = w.configure({{24, 0x400, 0}});
    e.length(0x1000);
    REQUIRE(w.run(e) == ok);
    CHECK(w.refuses(0x70000000, 1));
  }
}

TEST_CASE("a byte count of 0 is 2 GiB", "[umr]") {
  World w;
  w.region->length = u64{4} << 30;  // no byte of it is touched
  Wqe q = w.configure({{0, w.region->key(), w.base()}, w.at(5, 5)});
  q.length((u64{2} << 30) + 5);
  REQUIRE(w.run(q) == ok);
  CHECK(w.reaches((u64{2} << 30) - 1, 6, 0, {{(u64{2} << 30) - 1, 1}, {5, 5}}));
  // Padding is never reached, whatever the length says.
  q.length(u64{3} << 30);
  REQUIRE(w.run(q) == ok);
  CHECK(w.refuses((u64{2} << 30) + 5, 1));
}

TEST_CASE("keys of keys", "[umr]") {
  World w;
  REQUIRE(w.run(w.configure({w.at(10, 10), w.at(50, 10)})) == ok);
  Mkey *inner = w.key;
  World other;  // only for another table: keys of it are unknown here
  w.key = w.table.create(pd);
  w.key->kind = Mkey::Kind::indirect;
  w.key->free = true;
  w.key->max_entries = 4;
  REQUIRE(w.run(w.configure({{12, inner->key(), 4}, w.at(99, 1)})) == ok);
  CHECK(w.reaches(0, 13, 0, {{14, 6}, {50, 6}, {99, 1}}));
  REQUIRE(w.run(w.configure({{12, w.key->key(), 0}})) == ok);  // itself
  CHECK(w.refuses(0, 1));
}

TEST_CASE("lists outside the WQE", "[umr]") {
  World w(600);
  std::vector<Klm> entries;
  for (u32 i = 0; i < 512; ++i) entries.push_back(w.at(4096 + 64 * i, 16));
  u8 *list = w.memory + (512 << 10);
  for (size_t i = 0; i < entries.size(); ++i) {
    store_be32(list + 16 * i, entries[i].bytes);
    store_be32(list + 16 * i + 4, entries[i].key);
    store_be64(list + 16 * i + 8, entries[i].address);
  }
  Wqe q = w.configure({});
  const u32 byte_count = GENERATE(0u, 8192u, 7u);  // not looked at
  q.klm({byte_count, w.region->key(), reinterpret_cast<u64>(list)})
      .flags(0)
      .octowords(512)
      .length(512 * 16);
  REQUIRE(q.ds() == 9);
  SECTION("pieces") {
    REQUIRE(w.run(q) == ok);
    CHECK(w.key->entries.size() == 512);
    CHECK(w.reaches(511 * 16 + 3, 13, 0, {{4096 + 64 * 511 + 3, 13}}));
  }
  SECTION("a repeat block") {
    store_be32(list, 16);
    store_be32(list + 4, 0x400);
    store_be32(list + 8, 100);
    store_be32(list + 12, 1);
    store_be32(list + 16, 32 << 16 | 16);
    q.octowords(4).length(1600);
    REQUIRE(w.run(q) == ok);
    CHECK(w.reaches(1584, 16, 0, {{4096 + 64 + 99 * 32, 16}}));
  }
  SECTION("with the key of a window that reads") {
    w.region->access = 0;
    CHECK(w.run(q) == ok);
  }
  SECTION("refused") {
    SECTION("unknown key") { store_be32(&q.raw[132], 0xabcdef00); }
    SECTION("key of another PD") { w.region->pdn = pd + 1; }
    SECTION("no right to read") { w.region->local_read = false; }
    SECTION("out of bounds") { store_be64(&q.raw[136], w.base() + (1 << 20) - 100); }
    SECTION("not mapped") { munmap(list, 4096); }
    CHECK(w.run(q) == protection);
    CHECK(w.key->entries.empty());
    CHECK(w.key->free);
  }
  SECTION("no segment") {
    q.raw.resize(128);
    CHECK(w.run(q) == op_error);
  }
}

TEST_CASE("offsets into the list", "[umr]") {
  World w(8);
  REQUIRE(w.run(w.configure({w.at(0, 10), w.at(100, 10), w.at(200, 10), w.at(300, 10)})) == ok);
  const auto patch = [&](u64 offset, const std::vector<Klm> &entries) {
    Wqe q(w.key);
    q.flags(inline_list | with_offset).offset(offset);
    for (auto &e : entries) q.klm(e);
    return q.octowords(static_cast<u16>(entries.size()));
  };
  SECTION("in the middle") {
    REQUIRE(w.run(patch(1, {w.at(500, 5), w.at(600, 15)})) == ok);
    CHECK(w.reaches(0, 40, 0, {{0, 10}, {500, 5}, {600, 15}, {300, 10}}));
  }
  SECTION("at the beginning, fewer than there are") {
    REQUIRE(w.run(patch(0, {w.at(500, 10)})) == ok);
    CHECK(w.reaches(0, 40, 0, {{500, 10}, {100, 10}, {200, 10}, {300, 10}}));
  }
  SECTION("behind the end") {
    REQUIRE(w.run(patch(4, {w.at(700, 10)}).mask(m_len).length(50)) == ok);
    CHECK(w.reaches(35, 15, 0, {{305, 5}, {700, 10}}));
  }
  SECTION("leaving a gap that cannot be accessed") {
    REQUIRE(w.run(patch(6, {w.at(700, 10)}).mask(m_len).length(50)) == ok);
    CHECK(w.reaches(0, 40, 0, {{0, 10}, {100, 10}, {200, 10}, {300, 10}}));
    CHECK(w.refuses(40, 1));
  }
  SECTION("last place") { CHECK(w.run(patch(7, {w.at(700, 10)})) == ok); }
  SECTION("one too far") {
    CHECK(w.run(patch(8, {w.at(700, 10)})) == op_error);
    CHECK(w.run(patch(7, {w.at(700, 10), w.at(0, 1)})) == op_error);
    CHECK(w.run(patch(u64{1} << 40, {w.at(700, 10)})) == op_error);
    CHECK(w.run(patch(0xffffffffffff, {w.at(700, 10)})) == op_error);
    CHECK(w.reaches(0, 40, 0, {{0, 10}, {100, 10}, {200, 10}, {300, 10}}));
  }
  SECTION("inside a repeat block") {
    Wqe q = w.configure({});
    q.klm({10, 0x400, u64{2} << 32 | 1}).klm({20 << 16 | 10, w.region->key(), w.base()});
    REQUIRE(w.run(q.octowords(2).length(20)) == ok);
    REQUIRE(w.run(patch(1, {{40 << 16 | 10, w.region->key(), w.base() + 5}})) == ok);
    CHECK(w.reaches(0, 20, 0, {{5, 10}, {45, 10}}));
    CHECK(w.run(patch(1, {{40 << 16 | 11, w.region->key(), w.base() + 5}})) == op_error);
    REQUIRE(w.run(patch(0, {w.at(1, 20)})) == ok);
    CHECK(w.reaches(0, 20, 0, {{1, 20}}));
  }
}

TEST_CASE("more entries than the key has room for", "[umr]") {
  World w(4);
  CHECK(w.run(w.configure({w.at(0, 1), w.at(0, 1), w.at(0, 1), w.at(0, 1)})) == ok);
  CHECK(w.run(w.configure({w.at(0, 1), w.at(0, 1), w.at(0, 1), w.at(0, 1), w.at(0, 1)})) ==
        op_error);
}

TEST_CASE("fields change only under their mask bit", "[umr]") {
  World w;
  const auto with_all = [&](u64 mask) {
    Wqe q(w.key);
    q.mask(mask)
        .free(false)
        .access(lr | lw | rr | rw | a)
        .qpn_tag(0x1234, 0x56)
        .start(0x1000)
        .length(0x2000);
    q.raw[64 + 12] |= 1;  // en_rinval
    return q;
  };
  const Mkey before = *w.key;
  REQUIRE(w.run(with_all(0)) == ok);
  CHECK((w.key->free && w.key->access == 0 && w.key->tag == 0 && w.key->qpn == 0xffffff &&
         w.key->start == 0 && w.key->length == 0 && !w.key->remote_invalidate));
  SECTION("length") {
    REQUIRE(w.run(with_all(m_len)) == ok);
    CHECK(w.key->length == 0x2000);
    CHECK(w.key->start == 0);
  }
  SECTION("start") {
    REQUIRE(w.run(with_all(m_start)) == ok);
    CHECK(w.key->start == 0x1000);
    CHECK(w.key->length == 0);
  }
  SECTION("tag") {
    REQUIRE(w.run(with_all(m_tag)) == ok);
    CHECK(w.key->key() == (before.index << 8 | 0x56));
    CHECK(w.key->qpn == 0xffffff);
  }
  SECTION("qpn") {
    REQUIRE(w.run(with_all(m_qpn)) == ok);
    CHECK(w.key->qpn == 0x1234);
    CHECK(w.key->tag == 0);
  }
  SECTION("free") {
    REQUIRE(w.run(with_all(m_free)) == ok);
    CHECK_FALSE(w.key->free);
  }
  SECTION("en_rinval") {
    REQUIRE(w.run(with_all(m_rinval)) == ok);
    CHECK(w.key->remote_invalidate);
  }
  SECTION("small fence") { REQUIRE(w.run(with_all(m_fence)) == ok); }
  SECTION("access") {
    REQUIRE(w.run(with_all(m_lw)) == ok);
    CHECK(w.key->access == access_local_write);
    REQUIRE(w.run(with_all(m_rr)) == ok);
    CHECK(w.key->access == (access_local_write | access_remote_read));
    REQUIRE(w.run(with_all(m_rw)) == ok);
    REQUIRE(w.run(with_all(m_a)) == ok);
    CHECK(w.key->access ==
          (access_local_write | access_remote_read | access_remote_write | access_remote_atomic));
    REQUIRE(w.run(Wqe(w.key).mask(m_rr | m_a | m_lr)) == ok);
    CHECK(w.key->access == (access_local_write | access_remote_write));
    CHECK_FALSE(w.key->local_read);
    REQUIRE(w.run(with_all(m_lr)) == ok);
    CHECK(w.key->local_read);
  }
  SECTION("not modifiable") {
    for (u64 bit : {u64{m_pd}, u64{m_entity}, u64{m_sigerr}, u64{m_bsf}, u64{m_relaxed_write},
                    u64{m_relaxed_read}, u64{m_entity_bit5}, u64{1} << 63, u64{1} << 2}) {
      CHECK(w.run(with_all(bit | m_len)) == op_error);
      CHECK(w.key->length == 0);
    }
  }
}

TEST_CASE("checks of the key's state", "[umr]") {
  World w;
  const auto state = [&](bool free, u32 qpn) {
    w.key->free = free;
    w.key->qpn = qpn;
  };
  const auto run = [&](u8 flags) { return w.run(Wqe(w.key).flags(flags)); };
  const u32 any = 0xffffff;
  state(true, any);
  CHECK(run(fail_if_not_free) == ok);
  CHECK(run(fail_if_free) == bind_error);
  state(false, any);
  CHECK(run(fail_if_not_free) == bind_error);
  CHECK(run(fail_if_free) == ok);
  CHECK(run(check_qpn) == ok);  // owned by no QP
  state(false, us.qpn);
  CHECK(run(check_qpn) == ok);
  state(false, us.qpn + 1);
  CHECK(run(check_qpn) == bind_error);
  CHECK(run(0) == ok);
  CHECK(run(0x04) == op_error);
  CHECK(run(0x01) == op_error);
}

TEST_CASE("malformed WQEs and wrong keys", "[umr]") {
  World w;
  Wqe q = w.configure({w.at(0, 8)});
  CHECK(w.run(q, {pd + 1, us.qpn}) == op_error);
  SECTION("unknown key") { store_be32(&q.raw[12], 0x100); }
  SECTION("no UMR") { w.key->umr_en = false; }
  SECTION("too short") { q.raw.resize(112); }
  SECTION("empty") { q.raw.clear(); }
  SECTION("list longer than the WQE") { q.octowords(5); }
  SECTION("a signature part") { q.offset(4); }
  CHECK(w.run(q) == op_error);
  CHECK(w.key->free);
}

TEST_CASE("the tag in the WQE is not compared", "[umr]") {
  // mlx5dv: the application bumps the key's low byte, then configures.
  World w;
  Wqe q = w.configure({w.at(0, 8)});
  store_be32(&q.raw[12], w.key->key() | 0x77);
  q.qpn_tag(0xffffff, 0x77);
  REQUIRE(w.run(q) == ok);
  CHECK(w.key->tag == 0x77);
  CHECK(w.reaches(0, 8, 0, {{0, 8}}));
}

TEST_CASE("memory windows", "[umr]") {
  World w;
  Mkey *mw = w.key = w.table.create(pd);  // as alloc_mw: four entries, free
  mw->kind = Mkey::Kind::indirect;
  mw->free = true;
  mw->max_entries = 4;
  const auto bind = [&](bool type2, u8 tag, u8 rights, u64 offset, u32 bytes) {
    Wqe q(mw);
    return q.flags(inline_list | with_offset | (type2 ? fail_if_not_free : 0))
        .mask(m_free | m_tag | m_len | m_start | m_access | (type2 ? u64{m_qpn} : 0))
        .qpn_tag(type2 ? us.qpn : 0xffffff, tag)
        .access(rights)
        .start(w.base() + offset)
        .length(bytes)
        .list({w.at(offset, bytes)});
  };
  const auto unbind = [&](bool type2) {
    Wqe q(mw);
    return q.flags(inline_list | with_offset | (type2 ? check_qpn : 0))
        .mask(m_free | m_tag | (type2 ? u64{m_qpn} : 0))
        .free(true)
        .qpn_tag(0xffffff, 0);
  };
  SECTION("type 1 is bound and bound again") {
    REQUIRE(w.run(bind(false, 1, rr, 1000, 100)) == ok);
    CHECK(w.reaches(w.base() + 1000, 100, access_remote_read, {{1000, 100}}));
    CHECK(w.refuses(w.base() + 1000, 1, access_remote_write));
    CHECK(w.refuses(w.base() + 999, 1, access_remote_read));
    REQUIRE(w.run(bind(false, 2, rw, 2000, 50)) == ok);
    CHECK(w.reaches(w.base() + 2000, 50, access_remote_write, {{2000, 50}}));
    REQUIRE(w.run(unbind(false)) == ok);
    CHECK(w.refuses(w.base() + 2000, 1, access_remote_write));
  }
  SECTION("type 2 belongs to its QP until invalidated") {
    REQUIRE(w.run(bind(true, 9, rw, 0, 64)) == ok);
    CHECK(w.reaches(w.base(), 64, access_remote_write, {{0, 64}}));
    SpanList out;
    CHECK(resolve(w.table, mw->key(), w.base(), 1, access_remote_write, {pd, us.qpn + 1}, out) ==
          protection);
    CHECK(w.run(bind(true, 10, rw, 0, 64)) == bind_error);
    CHECK(w.run(unbind(true), {pd, us.qpn + 1}) == bind_error);
    REQUIRE(w.run(unbind(true)) == ok);
    CHECK(w.refuses(w.base(), 1, access_remote_write));
    CHECK(mw->qpn == 0xffffff);
    CHECK(w.run(bind(true, 11, rw, 0, 64)) == ok);
  }
}

TEST_CASE("registered memory", "[umr]") {
  World w;
  w.key = w.region;
  REQUIRE(w.run(Wqe(w.key).mask(m_access | m_len).access(rr).length(100)) == ok);
  CHECK(w.reaches(w.base(), 100, access_remote_read, {{0, 100}}));
  CHECK(w.refuses(w.base(), 1, access_remote_write));
  CHECK(w.refuses(w.base() + 100, 1));
  CHECK(w.run(Wqe(w.key).mask(m_len).length(101)) == op_error);  // no way beyond its memory
  REQUIRE(w.run(Wqe(w.key).mask(m_start).start(0)) == ok);
  CHECK(w.reaches(5, 95, 0, {{5, 95}}));
  CHECK(w.run(w.configure({w.at(0, 8)}).mask(m_free)) == op_error);
  w.key->kind = Mkey::Kind::implicit;
  CHECK(w.run(Wqe(w.key).mask(m_len).length(5)) == op_error);
  CHECK(w.run(Wqe(w.key).mask(m_start)) == op_error);
  CHECK(w.run(Wqe(w.key).mask(m_access).access(lw)) == ok);
}

TEST_CASE("random UMR WQEs never do harm", "[umr]") {
  World w(64);
  std::mt19937 random(5);
  u32 succeeded = 0, pieces = 0;
  for (int i = 0; i < 200000; ++i) {
    Wqe q(w.key);
    q.raw.resize(16 * (random() % 40));
    for (size_t b = 16; b < q.raw.size(); ++b)
      if (random() % 3 == 0) q.raw[b] = static_cast<u8>(random());
    if (q.raw.size() >= 128) {
      q.flags(static_cast<u8>(random() & 0x98 & (random() % 2 ? 0xff : 0x80)));
      q.octowords(random() % 24)
          .mask(random() & 0x207e6041)
          .offset(random() % 4 ? 0 : random() % 70);
      for (size_t b = 128; b + 16 <= q.raw.size(); b += 16) {
        if (random() % 2)
          store_be32(&q.raw[b + 4], random() % 4   ? w.region->key()
                                    : random() % 2 ? 0x400
                                                   : w.key->key());
        if (random() % 8) store_be32(&q.raw[b], random() % 4096);
        if (random() % 8) store_be64(&q.raw[b + 8], w.base() + random() % (1 << 20));
      }
    }
    succeeded += w.run(q) == ok;
    SpanList out;
    (void)resolve(w.table, w.key->key(), w.key->start + random() % 4096, random() % 65536, 0, us,
                  out);
    for (const Span &s : out) {
      ++pieces;
      REQUIRE(s.address >= w.base());
      REQUIRE(s.address + s.length <= w.base() + (1 << 20));
    }
    if (random() % 8 == 0) {
      w.key->free = false;
      w.key->qpn = 0xffffff;
      w.key->length = ~u64{0} - w.key->start;
    }
  }
  CHECK(succeeded > 1000);
  CHECK(pieces > 200);
}
