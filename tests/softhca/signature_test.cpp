// Keys with signatures, configured as libmlx5 does and judged by known sums.
#include "model/signature.h"

#include <sys/mman.h>

#include <cstring>

#include "catch.h"
#include "model/mkey.h"
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 pd = 7, block = 512;
constexpr Requester us{pd, 0x8005};
using Kind = SignatureDomain::Kind;

// mlx5_bsf, as rdma-core fills it.
struct Bsf {
  u8 raw[bsf_bytes] = {2 << 6};
  Bsf() { store_be32(raw + 4, ~0u); }
  Bsf &check(u8 mask) {
    raw[1] = mask;
    return *this;
  }
  Bsf &copy(u8 mask) {  // the same structure in both domains
    raw[0] |= 1 << 4;
    raw[2] = mask;
    return *this;
  }
  Bsf &crc(bool wire, u8 base, u32 psv, u8 selector = 1) {
    store_be32(raw + (wire ? 8 : 12), u32{base} << 24 | 2u << 24 | psv);
    raw[wire ? 2 : 3] = selector;
    return *this;
  }
  Bsf &dif(bool wire, u8 type, u32 psv, u8 flags = 0x40) {
    u8 *inl = raw + (wire ? 32 : 48);
    store_be32(raw + (wire ? 8 : 12), psv);
    store_be16(inl, 1 << 15 | 1 << 14);
    inl[8] = type;
    inl[9] = 1 << 7;
    inl[13] = flags;
    raw[wire ? 2 : 3] = 1;
    return *this;
  }
};

// A key with room for signatures over its own memory.
struct World {
  MkeyTable own;
  MkeyTable &table;
  const u32 domain;
  u8 *memory = static_cast<u8 *>(
      mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  Mkey *region = nullptr, *key = nullptr;
  u32 psv[2];  // memory, wire

  World() : World(own, pd) {}
  World(MkeyTable &of, u32 in) : table(of), domain(in), psv{psvs().create(in), psvs().create(in)} {
    region = table.create(domain);
    region->start = region->host_base = reinterpret_cast<u64>(memory);
    region->length = 1 << 16;
    region->access = access_local_write;
    u8 mkc[64] = {};
    store_be32(mkc, 1u << 30 | 1u << 15 | 1u << 10 | 2 << 8);
    store_be32(mkc + 4, 0xffffff00);
    store_be32(mkc + 12, 1u << 30 | domain);
    store_be32(mkc + 32, bsf_bytes / 16);
    store_be32(mkc + 52, 4);
    key = create_devx_mkey(table, mkc, 0, true);
    REQUIRE(key != nullptr);
  }
  ~World() {
    table.destroy(key);
    table.destroy(region);
    munmap(memory, 1 << 16);
    for (const u32 p : psv) psvs().destroy(p);
  }
  // The UMR of mlx5dv_wr_mkey_configure over the first `bytes` of memory.
  Syndrome configure(u32 bytes, const Bsf *bsf, u32 bsf_octowords = bsf_bytes / 16) {
    std::vector<u8> wqe(bsf != nullptr ? 256 : 192);
    wqe[16] = 0x80;
    store_be32(&wqe[12], key->key());
    store_be16(&wqe[20], 4);
    store_be16(&wqe[22], static_cast<u16>(bsf != nullptr ? bsf_octowords : 0));
    store_be64(&wqe[24], 1 << 29 | 1 << 18 | 1 | 1 << 12 | 1 << 9);
    wqe[66] = 8;
    store_be32(&wqe[76], bsf != nullptr ? 1u << 30 : 0);
    store_be64(&wqe[88], bytes);
    store_be32(&wqe[128], bytes);
    store_be32(&wqe[132], region->key());
    store_be64(&wqe[136], region->start);
    if (bsf != nullptr) std::memcpy(&wqe[192], bsf->raw, bsf_bytes);
    return execute_umr(table, wqe.data(), static_cast<u32>(wqe.size() / 16), {domain, us.qpn});
  }
  void fill(u32 bytes) {
    for (u32 i = 0; i < bytes; ++i) memory[i] = static_cast<u8>(i % block * 7 + 3);
  }
  std::unique_ptr<SignedPart> open(u64 address, u64 bytes, u32 need = 0) {
    return open_signed(table, key->key(), address, bytes, need, us);
  }
};

std::vector<u8> counted_block() {
  std::vector<u8> data(block);
  for (u32 i = 0; i < block; ++i) data[i] = static_cast<u8>(i * 7 + 3);
  return data;
}

u64 signature(Kind kind, u64 start, u64 number = 0, bool counts = false) {
  SignatureDomain d;
  d.kind = kind;
  d.block_bytes = block;
  d.counts = counts;
  u8 out[8] = {};
  make_signature(d, start, number, counted_block().data(), out);
  return d.bytes() == 4 ? load_be32(out) : load_be64(out);
}

}  // namespace

TEST_CASE("signatures are the sums that others compute", "[signature]") {
  CHECK(signature(Kind::crc32, 0xffffffffull << 32) == 0x0f498b0e);
  CHECK(signature(Kind::crc32, 0) == 0x421c0189);
  CHECK(signature(Kind::crc32c, 0xffffffffull << 32) == 0xe44a1db5);
  CHECK(signature(Kind::dif_crc, 0xabcd'01234567) == 0xf958'abcd'01234567);
  CHECK(signature(Kind::dif_crc, 0xffff'abcd'01234567, 3, true) == 0x8be3'abcd'0123456a);
  CHECK(signature(Kind::dif_checksum, 0x1111'00000000, 5) == 0x807f'1111'00000000);
}

TEST_CASE("signatures come in and go on the way", "[signature]") {
  World w;
  w.fill(2 * block);
  SECTION("a CRC on the wire") {
    REQUIRE(psvs().set(w.psv[1], pd, 0xffffffffull << 32));
    const Bsf bsf = Bsf().crc(true, 0x20, w.psv[1]).check(0xf0);
    REQUIRE(w.configure(2 * block, &bsf) == Syndrome::ok);
    auto out = w.open(0, 2 * block);
    REQUIRE(out);
    REQUIRE(gather_signed(*out));
    REQUIRE(out->wire.size() == 2 * (block + 4));
    CHECK(std::memcmp(out->wire.data(), w.memory, block) == 0);
    CHECK(load_be32(&out->wire[block]) == 0x0f498b0e);
    CHECK(load_be32(&out->wire[2 * block + 4]) == 0x0f498b0e);

    auto in = w.open(0, 2 * block, access_local_write);
    REQUIRE(in);
    in->wire = out->wire;
    std::memset(w.memory, 0, 2 * block);
    REQUIRE(scatter_signed(*in, in->wire.size()));
    CHECK_FALSE(in->error);
    CHECK(std::memcmp(w.memory, counted_block().data(), block) == 0);
    CHECK(std::memcmp(w.memory + block, counted_block().data(), block) == 0);
  }
  SECTION("a DIF on the wire counts blocks, also from the middle of a key") {
    REQUIRE(psvs().set(w.psv[1], pd, 0xffff'abcd'01234567));
    const Bsf bsf = Bsf().dif(true, 1, w.psv[1]).check(0xff);
    REQUIRE(w.configure(2 * block, &bsf) == Syndrome::ok);
    auto out = w.open(block, block);
    REQUIRE(out);
    REQUIRE(gather_signed(*out));
    CHECK(load_be64(&out->wire[block]) == 0x8be3'abcd'01234568);
  }
  SECTION("a CRC in memory is made when data arrive, and checked when they leave") {
    REQUIRE(psvs().set(w.psv[0], pd, 0xffffffffull << 32));
    const Bsf bsf = Bsf().crc(false, 0x20, w.psv[0]).check(0xf0);
    REQUIRE(w.configure(block + 4, &bsf) == Syndrome::ok);
    auto in = w.open(0, block, access_local_write);
    REQUIRE(in);
    REQUIRE(in->wire.size() == block);
    in->wire = counted_block();
    REQUIRE(scatter_signed(*in, block));
    CHECK(load_be32(w.memory + block) == 0x0f498b0e);
    auto good = w.open(0, block);
    REQUIRE(gather_signed(*good));
    CHECK_FALSE(good->error);
    CHECK(good->wire == counted_block());
    w.memory[block + 3] ^= 1;
    auto bad = w.open(0, block);
    REQUIRE(gather_signed(*bad));
    REQUIRE(bad->error);
    CHECK(bad->error->in_memory);
    CHECK(bad->error->syndrome == 1 << 13);
    CHECK(bad->error->expected >> 32 == 0x0f498b0e);
    CHECK(bad->error->actual >> 32 == 0x0f498b0f);
  }
  SECTION(
      "in both domains: a request counts them, and they are replaced or "
      "copied") {
    REQUIRE(psvs().set(w.psv[0], pd, 0xffff'1111'00000001));
    REQUIRE(psvs().set(w.psv[1], pd, 0xffff'2222'00000009));
    store_be64(w.memory + block, 0x8be3'1111'00000001);
    const u8 copied = GENERATE(u8{0}, u8{0x30});  // none, or the application tag
    const Bsf bsf = Bsf().dif(false, 1, w.psv[0]).dif(true, 1, w.psv[1]).check(0xff).copy(copied);
    REQUIRE(w.configure(block + 8, &bsf) == Syndrome::ok);
    CHECK(w.open(0, block) == nullptr);
    auto out = w.open(0, block + 8);
    REQUIRE(out);
    REQUIRE(gather_signed(*out));
    CHECK_FALSE(out->error);
    CHECK(load_be64(&out->wire[block]) ==
          (copied == 0 ? 0x8be3'2222'00000009 : 0x8be3'1111'00000009));
  }
}

TEST_CASE("what is checked of a signature", "[signature]") {
  World w;
  w.fill(block);
  REQUIRE(psvs().set(w.psv[0], pd, 0xffff'1111'00000001));
  const auto error_of = [&](u64 stored, u8 mask, u8 flags) -> u16 {
    store_be64(w.memory + block, stored);
    const Bsf bsf = Bsf().dif(false, 1, w.psv[0], flags).check(mask);
    REQUIRE(w.configure(block + 8, &bsf) == Syndrome::ok);
    auto part = w.open(0, block);
    REQUIRE(part);
    REQUIRE(gather_signed(*part));
    return part->error ? part->error->syndrome : u16{0};
  };
  CHECK(error_of(0x8be3'1111'00000001, 0xff, 0) == 0);
  CHECK(error_of(0x8be3'1111'00000002, 0xff, 0) == 1 << 11);
  CHECK(error_of(0x8be3'1112'00000001, 0xff, 0) == 1 << 12);
  CHECK(error_of(0x8be2'1111'00000001, 0xff, 0) == 1 << 13);
  CHECK(error_of(0x0000'0000'00000000, 0xff, 0) == (1 << 11 | 1 << 12 | 1 << 13));
  CHECK(error_of(0x8be2'1111'00000002, 0x30, 0) == 0);  // the application tag alone
  CHECK(error_of(0x0000'ffff'00000000, 0xff, 1) == 0);  // escaped by the application tag
  CHECK(error_of(0x0000'ffff'00000000, 0xff, 2) != 0);  // not without the reference tag
  CHECK(error_of(0x0000'ffff'ffffffff, 0xff, 2) == 0);
}

TEST_CASE("an error of a signature is reported once, until software asks again", "[signature]") {
  World w;
  TestCq cq(16);
  const auto fail = [&] {
    auto part = w.open(0, block);
    REQUIRE(part);
    REQUIRE(gather_signed(*part));
    REQUIRE(part->error);
    report_signature_error(w.table, *part, &cq.cq);
  };
  REQUIRE(psvs().set(w.psv[0], pd, 0xffffffffull << 32));
  const Bsf bsf = Bsf().crc(false, 0x40, w.psv[0]).check(0xf0);
  REQUIRE(w.configure(block + 4, &bsf) == Syndrome::ok);
  fail();
  CHECK(cq.cq.producer == 1);
  const Completion c = cq.expect();
  CHECK(c.raw[63] >> 4 == 12);
  CHECK(load_be32(c.raw + 36) == w.key->key());
  CHECK(c.raw[35] == 1);  // in memory
  fail();
  CHECK(cq.cq.producer == 1);
  REQUIRE(w.configure(block + 4, &bsf) == Syndrome::ok);
  fail();
  CHECK(cq.cq.producer == 2);
}

TEST_CASE("what keys with signatures refuse", "[signature]") {
  World w;
  const Bsf good = Bsf().crc(true, 0x20, w.psv[1]);
  SECTION("rules") {
    SECTION("another size") { CHECK(w.configure(block, &good, 2) == Syndrome::local_qp_op); }
    SECTION("an unknown CRC") {
      const Bsf bsf = Bsf().crc(true, 0x50, w.psv[1]);
      CHECK(w.configure(block, &bsf) == Syndrome::local_qp_op);
    }
    SECTION("no signatures at all") {
      const Bsf bsf;
      CHECK(w.configure(block, &bsf) == Syndrome::local_qp_op);
    }
    SECTION("an unknown size of blocks") {
      const Bsf bsf = Bsf().crc(true, 0x20, w.psv[1], 9);
      CHECK(w.configure(block, &bsf) == Syndrome::local_qp_op);
    }
    SECTION("blocks of two sizes") {
      const Bsf bsf = Bsf().crc(true, 0x20, w.psv[1], 1).crc(false, 0x20, w.psv[0], 3);
      CHECK(w.configure(block, &bsf) == Syndrome::local_qp_op);
    }
    SECTION("a key that was made without room for them") {
      w.key->has_bsf = false;
      CHECK(w.configure(block, &good) == Syndrome::local_qp_op);
    }
    CHECK_FALSE(w.key->signature);
  }
  SECTION("requests") {
    REQUIRE(w.configure(2 * block, &good) == Syndrome::ok);
    CHECK(w.open(0, block) != nullptr);
    CHECK(w.open(0, block - 1) == nullptr);
    CHECK(w.open(1, block) == nullptr);
    CHECK(w.open(0, 3 * block) == nullptr);
    // Others than send, receive, READ and WRITE from and to own memory.
    SpanList out;
    CHECK(resolve(w.table, w.key->key(), 0, block, 0, us, out) == Syndrome::local_protection);
    auto part = w.open(0, 2 * block, access_local_write);
    REQUIRE(part);
    CHECK_FALSE(scatter_signed(*part, block + 5));  // ends inside a block
    // Without rules again, the key is like any other.
    REQUIRE(w.configure(2 * block, nullptr) == Syndrome::ok);
    CHECK(w.open(0, block) == nullptr);
    CHECK(resolve(w.table, w.key->key(), 0, block, 0, us, out) == Syndrome::ok);
  }
  SECTION("PSVs of others") {
    CHECK_FALSE(psvs().set(w.psv[0], pd + 1, 1));
    CHECK_FALSE(psvs().set(0xfffffe, pd, 1));
  }
}

TEST_CASE("messages under keys with signatures", "[signature]") {
  Rig rig;
  Pair p(rig);
  World w(process().mkeys, pdn);
  Region far(4096, full_access);
  w.fill(2 * block);
  // SET_PSV, as libmlx5 posts it behind the UMR.
  u8 segment[16] = {};
  store_be32(segment, w.psv[1]);
  store_be64(segment + 8, 0xffffffffull << 32);
  p.a.post(Wqe(WqeOpcode::set_psv).raw(segment, 16));
  rig.step();
  REQUIRE(p.a_cq.expect().opcode() == 0);
  const Bsf bsf = Bsf().crc(true, 0x20, w.psv[1]).check(0xf0);
  REQUIRE(w.configure(2 * block, &bsf) == Syndrome::ok);
  constexpr u32 on_wire = 2 * (block + 4);

  SECTION("are sent with them") {
    p.b.post_receive({{on_wire, far.key(), far.address()}});
    p.a.post(Wqe(WqeOpcode::send).data(2 * block, w.key->key(), 0));
    rig.step();
    CHECK(p.a_cq.expect().opcode() == 0);
    CHECK(p.b_cq.expect().opcode() == 2);
    CHECK(std::memcmp(far.data(), w.memory, block) == 0);
    CHECK(load_be32(far.data() + on_wire - 4) == 0x0f498b0e);
  }
  SECTION("lose them where they arrive") {
    const bool reads = GENERATE(false, true);
    for (u32 i = 0; i < 2; ++i) {
      std::memcpy(far.data() + i * (block + 4), counted_block().data(), block);
      store_be32(far.data() + i * (block + 4) + block, 0x0f498b0e);
    }
    std::memset(w.memory, 0, 2 * block);
    if (reads) {
      p.a.post(Wqe(WqeOpcode::rdma_read)
                   .remote(far.address(), far.key())
                   .data(2 * block, w.key->key(), 0));
    } else {
      p.a.post_receive({{2 * block, w.key->key(), 0}});
      p.b.post(Wqe(WqeOpcode::send).data(on_wire, far.key(), far.address()));
    }
    rig.step();
    CHECK(p.a_cq.expect().opcode() == (reads ? 0 : 2));
    CHECK(std::memcmp(w.memory + block, counted_block().data(), block) == 0);
    // A wrong one is reported in front of the completion, which is good.
    far.data()[on_wire - 1] ^= 1;
    if (reads) {
      p.a.post(Wqe(WqeOpcode::rdma_read)
                   .remote(far.address(), far.key())
                   .data(2 * block, w.key->key(), 0));
    } else {
      (void)p.b_cq.expect();
      p.a.post_receive({{2 * block, w.key->key(), 0}});
      p.b.post(Wqe(WqeOpcode::send).data(on_wire, far.key(), far.address()));
    }
    rig.step();
    CHECK(p.a_cq.expect().opcode() == 12);
    CHECK(p.a_cq.expect().opcode() == (reads ? 0 : 2));
  }
  SECTION("cannot be reached from afar") {
    p.b.post(
        Wqe(WqeOpcode::rdma_write).remote(0, w.key->key()).data(block, far.key(), far.address()));
    rig.step();
    CHECK(p.b_cq.expect().opcode() == 13);
  }
  SECTION("of others' PSVs do not begin") {
    store_be32(segment, 0xfffffe);
    p.a.post(Wqe(WqeOpcode::set_psv).raw(segment, 16));
    rig.step();
    CHECK(p.a_cq.expect().opcode() == 13);
  }
}

TEST_CASE("a wrong signature drains the queue that asked for it", "[signature]") {
  Rig rig;
  Pair p(rig);
  World w(process().mkeys, pdn);
  Region far(4096, full_access);
  const bool drains = GENERATE(false, true);
  p.a.qp->drain_sigerr = drains;
  w.fill(block);
  const Bsf bsf = Bsf().crc(false, 0x20, w.psv[0]).check(0xf0);
  REQUIRE(w.configure(block + 4, &bsf) == Syndrome::ok);
  p.a.post(Wqe(WqeOpcode::rdma_write)
               .unsignaled()
               .remote(far.address(), far.key())
               .data(block, w.key->key(), 0));
  p.a.post(Wqe(WqeOpcode::nop));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 12);
  if (drains) {
    p.a_cq.expect_none();
    CHECK(p.a.qp->state == QpState::sqd);
    CHECK(p.a.qp->sq_consumed == 1);
    qp_set_state(*p.a.qp, QpState::rts);
    rig.step();
  }
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(std::memcmp(far.data(), w.memory, block) == 0);
}
