// Keys filled by the engine itself, as the device reads them, and what it leaves to be judged.
#include "engine_rig.h"
#include "translate/queue/engine/key_change.h"
#include "translate/state/objects.h"

using namespace engine_rig;

namespace {

using ibvexp::IndirectKey;

constexpr std::uint32_t key = 0x00abcd17;
constexpr std::uint64_t start = 0x7000000000001000;
constexpr std::uint64_t rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ;

struct Rig : SendRig {
  ibv_context context{}, other{};
  ibv_mr region{}, second{}, foreign{};
  IndirectKey indirect{};
  ibvexp::NumberTable<IndirectKey> known;

  Rig() : SendRig(Transport::rc) {
    region.context = second.context = &context;
    foreign.context = &other;
    region.lkey = 0x1111;
    second.lkey = 0x2222;
    indirect.mr.lkey = key;
    indirect.entries = 16;
    known.set(key >> 8, &indirect);
    queue.keys = {&known, &context, {8, 7}};
  }
};

// A request with so many pieces, the odd ones of another region.
struct Fill : ibv_exp_send_wr {
  std::vector<ibv_exp_mem_region> pieces;
  std::vector<ibv_exp_mem_repeat_block> blocks;
  std::vector<std::size_t> bytes, strides;
  std::size_t repetitions = 3;

  Fill(Rig &rig, ibv_exp_umr_wr_type type, std::uint32_t count)
      : ibv_exp_send_wr{}, bytes(count), strides(count) {
    wr_id = 0x99;
    exp_opcode = IBV_EXP_WR_UMR_FILL;
    exp_send_flags = IBV_EXP_SEND_INLINE | IBV_EXP_SEND_SIGNALED;
    for (std::uint32_t i = 0; i < count; ++i) {
      ibv_mr *const of = i % 2 == 0 ? &rig.region : &rig.second;
      bytes[i] = 0x100 + i;
      strides[i] = 0x200 + i;
      pieces.push_back({0x40000 + i, of, bytes[i]});
      blocks.push_back({0x50000 + i, of, &bytes[i], &strides[i]});
    }
    ext_op.umr.umr_type = type;
    ext_op.umr.exp_access = rights;
    ext_op.umr.modified_mr = &rig.indirect.mr;
    ext_op.umr.base_addr = start;
    ext_op.umr.num_mrs = count;
    if (type == IBV_EXP_UMR_REPEAT) {
      ext_op.umr.mem_list.rb.mem_repeat_block_list = blocks.data();
      ext_op.umr.mem_list.rb.repeat_count = &repetitions;
      ext_op.umr.mem_list.rb.stride_dim = 1;
    } else {
      ext_op.umr.mem_list.mem_reg_list = pieces.data();
    }
  }
  std::uint64_t all_bytes() const {
    return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  }
};

std::uint32_t lkey_of(std::size_t i) { return i % 2 == 0 ? 0x1111 : 0x2222; }

// What the device is to read for the request (PRM: UMR WQE, mkey context, KLM, repeat entry).
Bytes expected(const Fill &wr, std::uint32_t index, std::uint8_t flags) {
  const bool pattern = wr.ext_op.umr.umr_type == IBV_EXP_UMR_REPEAT;
  Bytes units;
  std::uint64_t length = wr.all_bytes();
  if (pattern) {
    units = big(length, 4) + big(0x400, 4) + big(wr.repetitions, 4) + zeros(2) +
            big(wr.blocks.size(), 2);
    for (std::size_t i = 0; i < wr.blocks.size(); ++i)
      units = units + big(wr.strides[i], 2) + big(wr.bytes[i], 2) + big(lkey_of(i), 4) +
              big(wr.blocks[i].base_addr, 8);
    length *= wr.repetitions;
  } else {
    for (std::size_t i = 0; i < wr.pieces.size(); ++i)
      units = units + big(wr.bytes[i], 4) + big(lkey_of(i), 4) + big(wr.pieces[i].base_addr, 8);
  }
  units.resize((units.size() + 63) / 64 * 64);
  const auto octowords = static_cast<std::uint32_t>(units.size() / 16);
  const Bytes change = Bytes{0x80, 0, 0, 0} + big(octowords, 2) + zeros(2) +
                       big(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
                               MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | 1ull << 17 |
                               MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
                               MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
                               MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
                               MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC,
                           8) +
                       zeros(32);
  constexpr std::uint8_t local_read_write_remote_read = 0x1c;
  const Bytes context = zeros(2) + Bytes{local_read_write_remote_read, 0} +
                        big(0xffffff00 | (key & 0xff), 4) + zeros(8) + big(start, 8) +
                        big(length, 8) + zeros(32);
  return control(index, MLX5_OPCODE_UMR, 8 + octowords, flags, key) + change + context + units;
}

bool is_put(Rig &rig, Fill &wr) {
  const std::uint32_t before = *rig.queue.posted;
  const auto done = put_key_changes(rig.queue, &wr, ~0u);
  // Nothing is posted of what has to be judged.
  if (done.last == nullptr) CHECK(*rig.queue.posted == before);
  return done.last == &wr;
}

}  // namespace

TEST_CASE("engine: keys are filled as the device reads them") {
  for (const auto type : {IBV_EXP_UMR_MR_LIST, IBV_EXP_UMR_REPEAT})
    for (std::uint32_t count = 1; count <= 7; ++count)
      // From the sixth block on the entry goes over the end of the ring.
      for (const std::uint32_t from : {0u, 6u}) {
        CAPTURE(int{type}, count, from);
        Rig rig;
        rig.advance(from);
        Fill wr(rig, type, count);
        const auto done = put_key_changes(rig.queue, &wr, ~0u);
        REQUIRE(done.last == &wr);
        const Bytes image = expected(wr, from, 8);
        CHECK(rig.at(from, image.size()) == image);
        CHECK(std::memcmp(&done.head, image.data(), sizeof(done.head)) == 0);
        CHECK(*rig.queue.posted == from + image.size() / 64);
        CHECK(rig.queue.sent[from].wr_id == 0x99);
        CHECK(rig.queue.sent[from].completion_opcode() == IBV_EXP_WC_UMR);
        // What stands behind is not touched.
        CHECK(rig.at(from + static_cast<std::uint32_t>(image.size() / 64), 64) == Bytes(64, 0xee));
      }
}

TEST_CASE("engine: a key waits for the one before") {
  Rig rig;
  Fill first(rig, IBV_EXP_UMR_MR_LIST, 1), second(rig, IBV_EXP_UMR_MR_LIST, 1);
  first.next = &second;
  CHECK(put_key_changes(rig.queue, &first, ~0u).last == &second);
  CHECK(rig.at(0, 192) == expected(first, 0, 8));
  CHECK(rig.at(3, 192) == expected(second, 3, 8 | MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE));
  CHECK(rig.queue.count == 2);
  // A limit ends the chain, and other requests do.
  CHECK(put_key_changes(rig.queue, &first, 3).last == &first);
  second.exp_opcode = IBV_EXP_WR_NOP;
  rig.advance(0);
  CHECK(put_key_changes(rig.queue, &first, ~0u).last == &first);
}

TEST_CASE("engine: what is not a plain key change is left to be judged") {
  Rig rig;
  for (const auto type : {IBV_EXP_UMR_MR_LIST, IBV_EXP_UMR_REPEAT}) {
    CAPTURE(int{type});
    const auto left = [&](auto change) {
      Fill wr(rig, type, 3);
      change(wr);
      return !is_put(rig, wr);
    };
    CHECK(left([](Fill &wr) { wr.ext_op.umr.num_mrs = 0; }));
    CHECK(left([&](Fill &wr) { wr.ext_op.umr.num_mrs = type == IBV_EXP_UMR_REPEAT ? 8 : 9; }));
    CHECK(left([](Fill &wr) { wr.ext_op.umr.modified_mr = nullptr; }));
    CHECK(left([&](Fill &wr) { wr.ext_op.umr.modified_mr = &rig.region; }));
    CHECK(left([](Fill &wr) { wr.ext_op.umr.exp_access = 1 << 5; }));
    CHECK(left([](Fill &wr) { wr.ext_op.umr.base_addr = ~0ull - 100; }));
    CHECK(left([](Fill &wr) { wr.exp_send_flags &= ~IBV_EXP_SEND_INLINE; }));
    CHECK(left([](Fill &wr) { wr.exp_send_flags |= IBV_EXP_SEND_IP_CSUM; }));
    CHECK(left([](Fill &wr) { wr.ext_op.umr.mem_list = {}; }));
    for (const std::size_t i : {0, 1, 2}) {
      CAPTURE(i);
      for (ibv_mr *const mr : {static_cast<ibv_mr *>(nullptr), &rig.foreign}) {
        CHECK(left([&](Fill &wr) { wr.blocks[i].mr = wr.pieces[i].mr = mr; }));
      }
      CHECK(left([&](Fill &wr) { wr.pieces[i].length = wr.bytes[i] = 0; }));
      CHECK(left([&](Fill &wr) { wr.pieces[i].length = wr.bytes[i] = std::size_t{1} << 31; }));
    }
    rig.indirect.entries = 2;
    CHECK(left([](Fill &) {}));
    rig.indirect.entries = 16;
    CHECK(left([&](Fill &wr) { wr.ext_op.umr.umr_type = static_cast<ibv_exp_umr_wr_type>(2); }));
  }
}

TEST_CASE("engine: what a pattern may consist of") {
  Rig rig;
  const auto left = [&](auto change) {
    Fill wr(rig, IBV_EXP_UMR_REPEAT, 2);
    change(wr);
    return !is_put(rig, wr);
  };
  CHECK_FALSE(left([](Fill &wr) { wr.bytes[1] = 0x8000; }));
  CHECK(left([](Fill &wr) { wr.bytes[1] = 0x8001; }));
  CHECK(left([](Fill &wr) { wr.bytes[0] = 0x10000; }));
  rig.advance(0);
  CHECK_FALSE(left([](Fill &wr) { wr.strides[1] = 0x7fff; }));
  CHECK(left([](Fill &wr) { wr.strides[0] = 0x8000; }));
  CHECK(left([](Fill &wr) { wr.strides[0] = std::size_t{1} << 32; }));
  CHECK(left([](Fill &wr) { wr.repetitions = 0; }));
  CHECK(left([](Fill &wr) { wr.repetitions = std::size_t{1} << 32; }));
  CHECK(left([](Fill &wr) { wr.blocks[1].byte_count = nullptr; }));
  CHECK(left([](Fill &wr) { wr.blocks[1].stride = nullptr; }));
  CHECK(left([](Fill &wr) { wr.ext_op.umr.mem_list.rb.repeat_count = nullptr; }));
  CHECK(left([](Fill &wr) { wr.ext_op.umr.mem_list.rb.stride_dim = 2; }));
  rig.advance(0);
  CHECK_FALSE(left([](Fill &wr) { wr.repetitions = 0xffffffff; }));
}
