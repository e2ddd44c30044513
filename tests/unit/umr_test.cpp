// The entries that give an indirect memory key its memory, byte by byte.
#include <catch.h>

#include <cstring>
#include <vector>

#include "translate/convert/room.h"
#include "translate/queue/engine/key_segments.h"
#include "translate/queue/umr_layout.h"

using namespace ibvexp::engine;
using namespace ibvexp::queue;

namespace {

ibv_context context;

ibv_mr region(std::uint32_t lkey) {
  ibv_mr mr{};
  mr.context = &context;
  mr.lkey = lkey;
  return mr;
}

std::vector<std::uint8_t> units_of(const Umr &umr) {
  UmrLayout layout;
  REQUIRE(measure(umr, &context, layout) == 0);
  std::vector<std::uint8_t> bytes(layout.bytes() + 16, 0xcc);
  write_units(umr, layout, bytes.data());
  // Nothing behind what was announced.
  for (std::size_t i = layout.bytes(); i < bytes.size(); ++i) CHECK(bytes[i] == 0xcc);
  bytes.resize(layout.bytes());
  return bytes;
}

template <class T>
T at(const std::vector<std::uint8_t> &bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}
std::uint16_t be16(const std::vector<std::uint8_t> &b, std::size_t o) {
  return be16toh(at<std::uint16_t>(b, o));
}
std::uint32_t be32(const std::vector<std::uint8_t> &b, std::size_t o) {
  return be32toh(at<std::uint32_t>(b, o));
}
std::uint64_t be64(const std::vector<std::uint8_t> &b, std::size_t o) {
  return be64toh(at<std::uint64_t>(b, o));
}

struct List {
  ibv_mr mr = region(0x1234);
  std::vector<ibv_exp_mem_region> pieces;
  Umr umr{};

  explicit List(std::initializer_list<std::size_t> lengths) {
    std::uint64_t address = 0x1000;
    for (const std::size_t length : lengths) {
      pieces.push_back({address, &mr, length});
      address += 0x1000000;
    }
    umr.umr_type = IBV_EXP_UMR_MR_LIST;
    umr.num_mrs = static_cast<std::uint32_t>(pieces.size());
    umr.mem_list.mem_reg_list = pieces.data();
  }
};

struct Pattern {
  ibv_mr mr = region(0x77);
  std::size_t bytes[2] = {3, 100}, strides[2] = {16, 4096};
  std::size_t repetitions = 7;
  ibv_exp_mem_repeat_block blocks[2] = {{0x10, &mr, &bytes[0], &strides[0]},
                                        {0x20, &mr, &bytes[1], &strides[1]}};
  Umr umr{};

  Pattern() {
    umr.umr_type = IBV_EXP_UMR_REPEAT;
    umr.num_mrs = 2;
    umr.mem_list.rb.mem_repeat_block_list = blocks;
    umr.mem_list.rb.repeat_count = &repetitions;
    umr.mem_list.rb.stride_dim = 1;
  }
  int fault() const {
    UmrLayout layout;
    return measure(umr, &context, layout);
  }
};

}  // namespace

TEST_CASE("a list has a unit per piece, in fours [row:IBV_EXP_UMR_MR_LIST]") {
  List list({100, 200, 300, 400, 500});
  UmrLayout layout;
  REQUIRE(measure(list.umr, &context, layout) == 0);
  CHECK(layout.units == 5);
  CHECK(layout.padded_units() == 8);
  CHECK(layout.length == 1500);
  const auto units = units_of(list.umr);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(be32(units, i * 16) == 100 * (i + 1));
    CHECK(be32(units, i * 16 + 4) == 0x1234);
    CHECK(be64(units, i * 16 + 8) == 0x1000 + i * 0x1000000);
  }
  for (std::size_t i = 5 * 16; i < units.size(); ++i) CHECK(units[i] == 0);
}

TEST_CASE("lengths add up in 64 bits [row:umr_ext_op_mem_reg_list]") {
  List list({std::size_t{1} << 31, std::size_t{1} << 31, std::size_t{1} << 31});
  UmrLayout layout;
  REQUIRE(measure(list.umr, &context, layout) == 0);
  CHECK(layout.length == std::uint64_t{3} << 31);
  // 2 GiB do not fit into 31 bits.
  CHECK(be32(units_of(list.umr), 0) == 0);
  list.pieces[1].length += 1;
  CHECK(measure(list.umr, &context, layout) == EINVAL);
}

TEST_CASE("empty pieces are no units [row:umr_ext_op_mem_reg_list]") {
  List list({0, 64, 0, 32});
  list.pieces[0].mr = nullptr;
  UmrLayout layout;
  REQUIRE(measure(list.umr, &context, layout) == 0);
  CHECK(layout.units == 2);
  const auto units = units_of(list.umr);
  CHECK(be32(units, 0) == 64);
  CHECK(be32(units, 16) == 32);
  REQUIRE(measure(List({0, 0}).umr, &context, layout) == 0);
  CHECK(layout.length == 0);
  CHECK(layout.bytes() == 0);
}

TEST_CASE("a pattern has a header and a unit per block [row:IBV_EXP_UMR_REPEAT]") {
  Pattern pattern;
  const auto units = units_of(pattern.umr);
  REQUIRE(units.size() == 64);
  CHECK(be32(units, 0) == 103);  // bytes of one repetition
  CHECK(be32(units, 4) == 0x400);
  CHECK(be32(units, 8) == 7);
  CHECK(be16(units, 12) == 0);
  CHECK(be16(units, 14) == 2);
  CHECK(be16(units, 16) == 16);  // stride, then bytes
  CHECK(be16(units, 18) == 3);
  CHECK(be32(units, 20) == 0x77);
  CHECK(be64(units, 24) == 0x10);
  CHECK(be16(units, 32) == 4096);
  CHECK(be16(units, 34) == 100);
  UmrLayout layout;
  REQUIRE(measure(pattern.umr, &context, layout) == 0);
  CHECK(layout.length == 103 * 7);
}

TEST_CASE("patterns that no key can have [row:umr_ext_op_stride_dim]") {
  Pattern p;
  SECTION("two dimensions") { p.umr.mem_list.rb.stride_dim = 2; }
  SECTION("no dimension") { p.umr.mem_list.rb.stride_dim = 0; }
  SECTION("no count") { p.umr.mem_list.rb.repeat_count = nullptr; }
  SECTION("a count of 0") { p.repetitions = 0; }
  SECTION("a count of 33 bits") { p.repetitions = std::size_t{1} << 32; }
  SECTION("no blocks") { p.umr.mem_list.rb.mem_repeat_block_list = nullptr; }
  SECTION("a block of nothing") { p.bytes[1] = 0; }
  SECTION("a block of 17 bits") { p.bytes[1] = 65536; }
  SECTION("a stride of 17 bits") { p.strides[0] = 65536; }
  SECTION("a block without region") { p.blocks[0].mr = nullptr; }
  SECTION("a block without bytes") { p.blocks[0].byte_count = nullptr; }
  SECTION("a block without stride") { p.blocks[0].stride = nullptr; }
  SECTION("none") { p.umr.num_mrs = 0; }
  SECTION("over the end of the address space") { p.umr.base_addr = ~std::uint64_t{0} - 100; }
  CHECK(p.fault() == EINVAL);
}

TEST_CASE("lists that no key can have [row:umr_ext_op_num_mrs]") {
  List list({64, 64});
  ibv_context other{};
  UmrLayout layout;
  SECTION("too many") { list.umr.num_mrs = 65536; }
  SECTION("no list") { list.umr.mem_list.mem_reg_list = nullptr; }
  SECTION("no region") { list.pieces[1].mr = nullptr; }
  SECTION("a region of another context") { list.mr.context = &other; }
  CHECK(measure(list.umr, &context, layout) == EINVAL);
}

TEST_CASE("rights of a key [row:umr_ext_op_exp_access]") {
  CHECK(key_rights(0) == 0x04);
  CHECK(key_rights(IBV_EXP_ACCESS_LOCAL_WRITE) == 0x0c);
  CHECK(key_rights(IBV_EXP_ACCESS_REMOTE_READ) == 0x14);
  CHECK(key_rights(IBV_EXP_ACCESS_REMOTE_WRITE) == 0x24);
  CHECK(key_rights(IBV_EXP_ACCESS_REMOTE_ATOMIC) == 0x44);
  CHECK(key_rights(IBV_EXP_ACCESS_MW_BIND) == 0x04);
}

TEST_CASE("the head of a key's entry [row:IBV_EXP_WR_UMR_FILL]") {
  std::vector<std::uint8_t> image(112, 0xee);
  put_change(image.data(), 0x80, 12, std::uint64_t{1} << 63 | 2);
  put_context(image.data() + 48, context_head(0x40, 0x0c, 0x45600, 0x00abcd12), 0x1000, 0x2000);
  CHECK(be32(image, 0) == 0x80000000);
  CHECK(be32(image, 4) == 12 << 16);
  CHECK(be32(image, 8) == 0x80000000);
  CHECK(be32(image, 12) == 2);
  CHECK(be32(image, 48) == 0x40000c00);
  CHECK(be32(image, 52) == 0x45612);
  CHECK(be32(image, 68) == 0x1000);
  CHECK(be32(image, 76) == 0x2000);
  for (const std::size_t unset : {16, 44, 56, 60, 64, 72, 80, 108}) CHECK(be32(image, unset) == 0);
}

// [row:IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS]
TEST_CASE("a key change is asked for as inline data behind what libmlx5 counts for a type") {
  using ibvexp::translate::inline_data_for;
  CHECK(inline_data_for(IBV_QPT_RC, 1000) == 1000 - 192 - 4);
  CHECK(inline_data_for(IBV_QPT_XRC_SEND, 1000) == 1000 - 192 - 16 - 4);
  CHECK(inline_data_for(IBV_QPT_DRIVER, 1000) == 1000 - 192 - 48 - 4);
  CHECK(inline_data_for(IBV_QPT_RC, 197) == 1);
  CHECK(inline_data_for(IBV_QPT_RC, 196) == 0);
}
