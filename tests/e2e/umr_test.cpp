// Memory keys made by work requests: lists, patterns, keys of keys; used from both
// ends of the wire, changed, taken back, and refused.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "rig.h"
#include "skip.h"

namespace {

constexpr std::size_t size = 65536;
constexpr std::uint32_t pieces_inline = 16;
constexpr std::uint64_t all_rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                                     IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC;

Mr create_key(ibv_pd *pd, std::uint32_t entries) {
  ibv_exp_create_mr_in in{};
  in.pd = pd;
  in.attr.max_klm_list_size = entries;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  in.attr.exp_access_flags = all_rights;
  return Mr(ibv_exp_create_mr(&in));
}

ibv_exp_qp_init_attr with_umr(Rig &rig, ibv_qp_type type, std::uint32_t pieces) {
  auto attr = rig.qp_attr(type);
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
  attr.exp_create_flags |= IBV_EXP_QP_CREATE_UMR;
  attr.max_inl_send_klms = pieces;
  return attr;
}

struct FreeList {
  void operator()(ibv_exp_mkey_list_container *list) const {
    CHECK(ibv_exp_dealloc_mkey_list_memory(list) == 0);
  }
};
using KeyList = std::unique_ptr<ibv_exp_mkey_list_container, FreeList>;

KeyList list_memory(ibv_pd *pd, std::uint32_t entries) {
  ibv_exp_mkey_list_container_attr attr{};
  attr.pd = pd;
  attr.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR;
  attr.max_klm_list_size = entries;
  return KeyList(ibv_exp_alloc_mkey_list_memory(&attr));
}

// One way to build a key, with what the request points at.
struct Fill {
  std::vector<ibv_exp_mem_region> pieces;
  std::vector<ibv_exp_mem_repeat_block> blocks;
  std::vector<std::size_t> bytes, strides;
  std::size_t repetitions = 0;
  std::uint64_t base = 0;
  std::uint64_t rights = all_rights;
  ibv_exp_mkey_list_container *room = nullptr;  // null: inline
  bool signaled = true;

  Fill &piece(std::uint64_t address, ibv_mr *mr, std::size_t length) {
    pieces.push_back({address, mr, length});
    return *this;
  }
  Fill &block(std::uint64_t address, ibv_mr *mr, std::size_t count, std::size_t stride) {
    blocks.push_back({address, mr, nullptr, nullptr});
    bytes.push_back(count);
    strides.push_back(stride);
    return *this;
  }

  ibv_exp_send_wr request_for(ibv_mr *key) {
    ibv_exp_send_wr wr;
    std::memset(&wr, 0xa5, sizeof(wr));
    wr.wr_id = 900;
    wr.next = nullptr;
    wr.exp_opcode = IBV_EXP_WR_UMR_FILL;
    wr.exp_send_flags = signaled ? std::uint64_t{IBV_EXP_SEND_SIGNALED} : 0;
    if (room == nullptr) wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
    auto &umr = wr.ext_op.umr;
    umr.memory_objects = room;
    umr.exp_access = rights;
    umr.modified_mr = key;
    umr.base_addr = base;
    if (blocks.empty()) {
      umr.umr_type = IBV_EXP_UMR_MR_LIST;
      umr.num_mrs = static_cast<std::uint32_t>(pieces.size());
      umr.mem_list.mem_reg_list = pieces.data();
    } else {
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        blocks[i].byte_count = &bytes[i];
        blocks[i].stride = &strides[i];
      }
      umr.umr_type = IBV_EXP_UMR_REPEAT;
      umr.num_mrs = static_cast<std::uint32_t>(blocks.size());
      umr.mem_list.rb.mem_repeat_block_list = blocks.data();
      umr.mem_list.rb.repeat_count = &repetitions;
      umr.mem_list.rb.stride_dim = 1;
    }
    return wr;
  }
};

ibv_exp_send_wr invalidation(ibv_mr *key) {
  ibv_exp_send_wr wr;
  // The left-over members of the request before.
  std::memset(&wr, 0xa5, sizeof(wr));
  wr.wr_id = 901;
  wr.next = nullptr;
  wr.exp_opcode = IBV_EXP_WR_UMR_INVALIDATE;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  wr.ext_op.umr.modified_mr = key;
  return wr;
}

// Two connected queue pairs; the first one makes keys. near and far are memory of
// the same protection domain.
struct Umr : Rig {
  Qp a, b;
  Buffer near{pd.get(), size}, far{pd.get(), size};

  Umr() {
    auto attr = with_umr(*this, IBV_QPT_RC, pieces_inline);
    a.reset(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(a);
    CHECK(attr.cap.max_send_wr >= 64);
    attr = with_umr(*this, IBV_QPT_RC, pieces_inline);
    b.reset(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(b);
    connect(a.get(), b->qp_num);
    connect(b.get(), a->qp_num);
    for (std::size_t i = 0; i < size; ++i)
      near.bytes[i] = static_cast<std::uint8_t>(i * 7 + (i >> 8));
  }

  Mr key(std::uint32_t entries = pieces_inline) {
    Mr made = create_key(pd.get(), entries);
    REQUIRE(made);
    return made;
  }
  void post(ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
  }
  int refused(ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    const int error = ibv_exp_post_send(a.get(), &wr, &bad);
    CHECK(bad == &wr);
    return error;
  }
  void complete(std::uint64_t id) {
    const auto wc = completions(1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == id);
  }
  void fill(ibv_mr *key, Fill &how) {
    auto wr = how.request_for(key);
    post(wr);
    const auto wc = completions(1)[0];
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == 900);
    CHECK(wc.exp_opcode == IBV_EXP_WC_UMR);
  }
  ibv_wc_status transfer(ibv_exp_wr_opcode opcode, ibv_sge local, std::uint64_t remote,
                         std::uint32_t rkey) {
    auto wr = request(7, opcode, &local);
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    post(wr);
    return completions(1)[0].status;
  }
  void write(ibv_sge local, std::uint64_t remote, std::uint32_t rkey) {
    CHECK(transfer(IBV_EXP_WR_RDMA_WRITE, local, remote, rkey) == IBV_WC_SUCCESS);
  }
};

}  // namespace

TEST_CASE("a list gathers and scatters [row:IBV_EXP_UMR_MR_LIST] [row:umr_core_mr_list]",
          "[engine]") {
  Umr u;
  const Mr key = u.key();
  // Out of order, of odd sizes, one empty, one twice.
  Fill how;
  how.piece(u.near.address(5000), u.near.mr.get(), 333)
      .piece(u.near.address(100), u.near.mr.get(), 1)
      .piece(u.near.address(40000), u.near.mr.get(), 4097)
      .piece(u.near.address(7), u.near.mr.get(), 0)
      .piece(u.near.address(5000), u.near.mr.get(), 100);
  std::vector<std::uint8_t> expected;
  for (const auto &piece : how.pieces) {
    const auto *from = reinterpret_cast<const std::uint8_t *>(piece.base_addr);
    expected.insert(expected.end(), from, from + piece.length);
  }
  const auto total = static_cast<std::uint32_t>(expected.size());
  how.base = GENERATE(std::uint64_t{0}, std::uint64_t{0x7fff12345679});
  u.fill(key.get(), how);

  SECTION("as the source of a write") {
    u.write({how.base, total, key->lkey}, u.far.address(11), u.far.mr->rkey);
    CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin() + 11));
    CHECK(u.far.bytes[11 + total] == 0);
  }
  SECTION("from its middle") {
    u.write({how.base + 300, total - 300, key->lkey}, u.far.address(), u.far.mr->rkey);
    CHECK(std::equal(expected.begin() + 300, expected.end(), u.far.bytes.begin()));
  }
  SECTION("as the source of a send") {
    post_receive(u.b.get(), 3, u.far.piece(0, size));
    ibv_sge local{how.base, total, key->lkey};
    auto wr = request(1, IBV_EXP_WR_SEND, &local);
    u.post(wr);
    u.completions(2);
    CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin()));
  }
  SECTION("read from afar") {
    CHECK(u.transfer(IBV_EXP_WR_RDMA_READ, u.far.piece(0, total), how.base, key->rkey) ==
          IBV_WC_SUCCESS);
    CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin()));
  }
  SECTION("not beyond its ends") {
    CHECK(u.transfer(IBV_EXP_WR_RDMA_READ, u.far.piece(0, total), how.base + 1, key->rkey) ==
          IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_CASE(
    "pieces of one size make a key, on request [row:IBV_EXP_UMR_MR_LIST_FIXED_SIZE] "
    "[row:IBV_EXP_MR_FIXED_BUFFER_SIZE]",
    "[engine]") {
  Umr u;
  ibv_exp_create_mr_in in{};
  in.pd = u.pd.get();
  in.attr.max_klm_list_size = 3;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS | IBV_EXP_MR_FIXED_BUFFER_SIZE;
  in.attr.exp_access_flags = all_rights;
  errno = 0;
  const Mr key(ibv_exp_create_mr(&in));
  if (!switched_on("umr_fixed_size")) {
    CHECK_FALSE(key);
    CHECK(errno == ENOTSUP);
    return;
  }
  REQUIRE(key);
  constexpr std::uint32_t each = 1000;
  Fill how;
  for (const std::size_t at : {5000, 100, 40000})
    how.piece(u.near.address(at), u.near.mr.get(), each);
  auto wr = how.request_for(key.get());
  wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST_FIXED_SIZE;
  u.post(wr);
  u.complete(900);
  u.write({how.base, 3 * each, key->lkey}, u.far.address(), u.far.mr->rkey);
  for (std::size_t i = 0; i < how.pieces.size(); ++i)
    CHECK(std::memcmp(reinterpret_cast<const void *>(how.pieces[i].base_addr),
                      u.far.bytes.data() + i * each, each) == 0);
  CHECK(u.far.bytes[3 * each] == 0);
}

TEST_CASE("a list takes what arrives [row:IBV_EXP_WR_UMR_FILL]", "[engine]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.far.address(1000), u.far.mr.get(), 100).piece(u.far.address(30), u.far.mr.get(), 50);
  how.base = u.far.address(1000);
  u.fill(key.get(), how);
  SECTION("by a write") { u.write(u.near.piece(0, 150), how.base, key->rkey); }
  SECTION("by a receive") {
    post_receive(u.b.get(), 3, {how.base, 150, key->lkey});
    auto piece = u.near.piece(0, 150);
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    u.post(wr);
    u.completions(2);
  }
  SECTION("by a read") {
    CHECK(u.transfer(IBV_EXP_WR_RDMA_READ, {how.base, 150, key->lkey}, u.near.address(),
                     u.near.mr->rkey) == IBV_WC_SUCCESS);
  }
  CHECK(std::equal(u.near.bytes.begin(), u.near.bytes.begin() + 100, u.far.bytes.begin() + 1000));
  CHECK(
      std::equal(u.near.bytes.begin() + 100, u.near.bytes.begin() + 150, u.far.bytes.begin() + 30));
  CHECK(u.far.bytes[1100] == 0);
}

TEST_CASE("keys are made where completions carry the time [row:IBV_EXP_WR_UMR_FILL]") {
  Umr u;
  ibv_exp_cq_init_attr timed{};
  timed.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  timed.flags = IBV_EXP_CQ_TIMESTAMP;
  const Cq cq(ibv_exp_create_cq(u.context.get(), 16, nullptr, nullptr, 0, &timed));
  REQUIRE(cq);
  auto attr = with_umr(u, IBV_QPT_RC, pieces_inline);
  attr.send_cq = attr.recv_cq = cq.get();
  const Qp qp(ibv_exp_create_qp(u.context.get(), &attr));
  REQUIRE(qp);
  u.connect(qp.get(), qp->qp_num);
  const Mr key = u.key();
  Fill how;
  how.piece(u.near.address(50), u.near.mr.get(), 100);
  auto wr = how.request_for(key.get());
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(qp.get(), &wr, &bad) == 0);
  const auto wc = next_completion(cq.get());
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_UMR);
  CHECK((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
}

TEST_CASE("atomics reach through a key at its own addresses [row:umr_ext_op_base_addr]",
          "[engine]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.far.address(4096), u.far.mr.get(), 4096);
  how.base = u.far.address(4096) + 0x1000000;  // as a program that shifts its addresses
  u.fill(key.get(), how);
  std::uint64_t before = 40;
  std::memcpy(u.far.bytes.data() + 4096 + 64, &before, 8);
  auto result = u.near.piece(0, 8);
  auto wr = request(1, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &result);
  wr.wr.atomic.remote_addr = how.base + 64;
  wr.wr.atomic.rkey = key->rkey;
  wr.wr.atomic.compare_add = 2;
  u.post(wr);
  u.complete(1);
  std::uint64_t sum = 0, old = 0;
  std::memcpy(&sum, u.far.bytes.data() + 4096 + 64, 8);
  std::memcpy(&old, u.near.bytes.data(), 8);
  CHECK(sum == 42);
  CHECK(old == 40);
  wr = request(2, IBV_EXP_WR_ATOMIC_CMP_AND_SWP, &result);
  wr.wr.atomic.remote_addr = how.base + 64;
  wr.wr.atomic.rkey = key->rkey;
  wr.wr.atomic.compare_add = 42;
  wr.wr.atomic.swap = 7;
  u.post(wr);
  u.complete(2);
  std::memcpy(&sum, u.far.bytes.data() + 4096 + 64, 8);
  CHECK(sum == 7);
}

TEST_CASE(
    "a pattern visits its blocks in turn [row:IBV_EXP_UMR_REPEAT] "
    "[row:umr_ext_op_repeat_count] [row:umr_core_mr_interleaved]",
    "[engine]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.block(u.near.address(16), u.near.mr.get(), 12, 64)
      .block(u.near.address(20000), u.near.mr.get(), 3, 3)
      .block(u.near.address(50000), u.near.mr.get(), 8, 0);  // the same each time
  how.repetitions = 100;
  how.base = 0x100000;
  std::vector<std::uint8_t> expected;
  for (std::size_t r = 0; r < how.repetitions; ++r)
    for (std::size_t i = 0; i < how.blocks.size(); ++i) {
      const auto *from =
          reinterpret_cast<const std::uint8_t *>(how.blocks[i].base_addr) + r * how.strides[i];
      expected.insert(expected.end(), from, from + how.bytes[i]);
    }
  u.fill(key.get(), how);
  u.write({how.base, static_cast<std::uint32_t>(expected.size()), key->lkey}, u.far.address(),
          u.far.mr->rkey);
  CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin()));
  CHECK(u.far.bytes[expected.size()] == 0);
}

TEST_CASE(
    "a matrix is transposed by keys of keys "
    "[row:umr_ext_op_mem_repeat_block_list]",
    "[engine]") {
  constexpr std::size_t rows = 24, columns = 10;
  Umr u;
  std::vector<Mr> column;
  Fill all;
  for (std::size_t c = 0; c < columns; ++c) {
    column.push_back(u.key(1));
    Fill how;
    how.block(u.near.address(c * 4), u.near.mr.get(), 4, columns * 4);
    how.repetitions = rows;
    how.base = 0x1000 * c;
    u.fill(column.back().get(), how);
    all.piece(how.base, column.back().get(), rows * 4);
  }
  const Mr matrix = u.key();
  u.fill(matrix.get(), all);
  u.write({0, rows * columns * 4, matrix->lkey}, u.far.address(), u.far.mr->rkey);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      CHECK(std::memcmp(u.near.bytes.data() + (r * columns + c) * 4,
                        u.far.bytes.data() + (c * rows + r) * 4, 4) == 0);
}

TEST_CASE("keys are nested as deep as reported [row:umr_query_umr_caps]", "[engine]") {
  Umr u;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(u.context.get(), &device) == 0);
  REQUIRE((device.comp_mask & IBV_EXP_DEVICE_ATTR_UMR) != 0);
  CHECK((device.exp_device_cap_flags & IBV_EXP_DEVICE_UMR) != 0);
  CHECK(((device.exp_device_cap_flags & IBV_EXP_DEVICE_UMR_FIXED_SIZE) != 0) ==
        switched_on("umr_fixed_size"));
  CHECK(device.umr_caps.max_umr_stride_dimension == 1);
  std::vector<Mr> level;
  ibv_mr *below = u.near.mr.get();
  std::uint64_t address = u.near.address(500);
  for (std::uint32_t i = 0; i < device.umr_caps.max_umr_recursion_depth; ++i) {
    level.push_back(u.key());
    Fill how;
    how.piece(address, below, 64);
    how.base = address = 0x5000 + i * 16;
    u.fill(level.back().get(), how);
    below = level.back().get();
  }
  u.write({address, 64, below->lkey}, u.far.address(), u.far.mr->rkey);
  CHECK(std::equal(u.near.bytes.begin() + 500, u.near.bytes.begin() + 564, u.far.bytes.begin()));
  while (!level.empty()) level.pop_back();
}

TEST_CASE("what is reported is granted [row:IBV_EXP_DEVICE_ATTR_UMR]", "[engine]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_UMR;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  const auto type =
      GENERATE(IBV_QPT_RC, IBV_QPT_XRC_SEND, static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  auto attr = with_umr(rig, type, device.umr_caps.max_send_wqe_inline_klms);
  if (type == IBV_QPT_XRC_SEND) attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  CHECK(attr.cap.max_inline_data >= 64);
  const Mr key = create_key(rig.pd.get(), device.umr_caps.max_klm_list_size);
  REQUIRE(key);
  ibv_exp_mkey_attr granted{};
  CHECK(ibv_exp_query_mkey(key.get(), &granted) == 0);
  CHECK(granted.max_klm_list_size >= device.umr_caps.max_klm_list_size);
}

TEST_CASE(
    "the most pieces that fit inline, as list and as pattern "
    "[row:umr_create_qp_max_inl_send_klms]",
    "[engine]") {
  Umr u;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_UMR;
  REQUIRE(ibv_exp_query_device(u.context.get(), &device) == 0);
  const std::uint32_t most = device.umr_caps.max_send_wqe_inline_klms;
  const bool pattern = GENERATE(false, true);
  const auto type = GENERATE(IBV_QPT_RC, static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  auto attr = with_umr(u, type, most);
  attr.cap.max_send_wr = 4;
  const Qp maker(ibv_exp_create_qp(u.context.get(), &attr));
  REQUIRE(maker);
  if (type == IBV_QPT_RC) {
    u.connect(maker.get(), maker->qp_num);
  } else {
    // An initiator is ready without a peer.
    ibv_exp_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    REQUIRE(ibv_exp_modify_qp(maker.get(), &to,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                                  IBV_EXP_QP_DC_KEY) == 0);
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    REQUIRE(ibv_exp_modify_qp(maker.get(), &to, IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU) == 0);
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = to.rnr_retry = 7;
    to.max_rd_atomic = 1;
    REQUIRE(ibv_exp_modify_qp(maker.get(), &to,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                  IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  const Mr key = u.key(most);
  // More rounds than the queue is deep, so that entries wrap around its end.
  for (std::uint32_t round = 0; round < 10; ++round) {
    Fill how;
    how.base = round;
    how.repetitions = 2;
    std::vector<std::uint8_t> expected;
    for (std::uint32_t i = 0; i < most; ++i) {
      const std::size_t offset = (i * 577 + round * 31) % (size - 64);
      if (pattern) how.block(u.near.address(offset), u.near.mr.get(), 5, 9);
      else how.piece(u.near.address(offset), u.near.mr.get(), 5 + i);
    }
    for (std::size_t r = 0; r < (pattern ? 2u : 1u); ++r)
      for (std::uint32_t i = 0; i < most; ++i) {
        const std::size_t offset = (i * 577 + round * 31) % (size - 64) + r * 9;
        const std::size_t length = pattern ? 5 : 5 + i;
        expected.insert(expected.end(), u.near.bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                        u.near.bytes.begin() + static_cast<std::ptrdiff_t>(offset + length));
      }
    auto wr = how.request_for(key.get());
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(maker.get(), &wr, &bad) == 0);
    CHECK(u.completions(1)[0].exp_opcode == IBV_EXP_WC_UMR);
    u.write({how.base, static_cast<std::uint32_t>(expected.size()), key->lkey}, u.far.address(),
            u.far.mr->rkey);
    CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin()));
  }
}

TEST_CASE("a pattern of blocks without gaps [row:IBV_EXP_UMR_REPEAT]") {
  Umr u;
  const Mr key = u.key();
  Fill dense;
  dense.block(u.near.address(128), u.near.mr.get(), 32, 32);
  dense.repetitions = 3;
  u.fill(key.get(), dense);
  u.write({0, 96, key->lkey}, u.far.address(), u.far.mr->rkey);
  CHECK(std::equal(u.far.bytes.begin(), u.far.bytes.begin() + 96, u.near.bytes.begin() + 128));
}

// As the cyclic buffers of libvma drop headers and padding: by a key that cards have.
TEST_CASE("a pattern drops what falls between its blocks [row:IBV_EXP_UMR_REPEAT]", "[engine]") {
  constexpr std::uint32_t dump_key = 0x700, header = 42, payload = 100, padding = 58, packets = 4;
  Umr u;
  Buffer unused{u.pd.get(), 128};
  unused.mr->lkey = dump_key;
  const Mr key = u.key();
  Fill how;
  how.block(unused.address(), unused.mr.get(), header, 0)
      .block(u.far.address(), u.far.mr.get(), payload, payload)
      .block(unused.address(), unused.mr.get(), padding, 0);
  how.repetitions = packets;
  how.base = u.far.address();
  u.fill(key.get(), how);
  constexpr std::uint32_t packet = header + payload + padding;
  post_receive(u.b.get(), 3, {how.base, packets * packet, key->lkey});
  auto piece = u.near.piece(0, packets * packet);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  u.post(wr);
  for (const auto &wc : u.completions(2)) CHECK(wc.status == IBV_WC_SUCCESS);
  for (std::uint32_t i = 0; i < packets; ++i)
    CHECK(std::equal(u.far.bytes.begin() + i * payload, u.far.bytes.begin() + (i + 1) * payload,
                     u.near.bytes.begin() + i * packet + header));
  CHECK(u.far.bytes[packets * payload] == 0);
  CHECK(std::all_of(unused.bytes.begin(), unused.bytes.end(), [](auto b) { return b == 0; }));
}

TEST_CASE("a queue pair that fills keys takes requests of the base verb [row:ibv_exp_post_send]") {
  Umr t;
  ibv_sge piece = t.near.piece(512, 64);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 11;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = t.far.address(1024);
  wr.wr.rdma.rkey = t.far.mr->rkey;
  REQUIRE(ibv_post_send(t.a.get(), &wr, &bad) == 0);
  t.complete(11);
  CHECK(std::equal(t.near.bytes.begin() + 512, t.near.bytes.begin() + 576,
                   t.far.bytes.begin() + 1024));
}

TEST_CASE("a key is filled again [row:umr_ext_op_modified_mr]", "[engine]") {
  Umr u;
  const Mr key = u.key();
  for (std::uint32_t i = 0; i < 8; ++i) {
    Fill how;
    how.base = 0x1000 * i;
    for (std::uint32_t n = 0; n <= i; ++n)
      how.piece(u.near.address(n * 1000 + i), u.near.mr.get(), 100);
    u.fill(key.get(), how);
    u.write({how.base, 100 * (i + 1), key->lkey}, u.far.address(), u.far.mr->rkey);
    for (std::uint32_t n = 0; n <= i; ++n)
      CHECK(std::equal(u.near.bytes.begin() + n * 1000 + i,
                       u.near.bytes.begin() + n * 1000 + i + 100, u.far.bytes.begin() + n * 100));
  }
}

TEST_CASE("a key that was taken back is useless [row:IBV_EXP_WR_UMR_INVALIDATE]", "[engine]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.far.address(), u.far.mr.get(), 100);
  u.fill(key.get(), how);
  u.write(u.near.piece(0, 100), 0, key->rkey);
  auto wr = invalidation(key.get());
  SECTION("by what follows it in its chain") {
    ibv_sge piece{0, 100, key->lkey};
    auto late = request(2, IBV_EXP_WR_RDMA_WRITE, &piece);
    late.wr.rdma.remote_addr = u.near.address();
    late.wr.rdma.rkey = u.near.mr->rkey;
    wr.next = &late;
    u.post(wr);
    const auto both = u.completions(2);
    CHECK(both[0].status == IBV_WC_SUCCESS);
    CHECK(both[1].status == IBV_WC_LOC_PROT_ERR);
    return;
  }
  u.post(wr);
  const auto wc = u.completions(1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_UMR);
  SECTION("from afar") {
    CHECK(u.transfer(IBV_EXP_WR_RDMA_WRITE, u.near.piece(0, 100), 0, key->rkey) ==
          IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("from near") {
    CHECK(u.transfer(IBV_EXP_WR_RDMA_WRITE, {0, 100, key->lkey}, u.far.address(), u.far.mr->rkey) ==
          IBV_WC_LOC_PROT_ERR);
  }
  SECTION("until it is filled again") {
    u.fill(key.get(), how);
    u.write(u.near.piece(0, 100), 0, key->rkey);
  }
}

TEST_CASE("a key grants what was asked and no more [row:umr_ext_op_exp_access]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.far.address(), u.far.mr.get(), 4096);
  SECTION("nothing but local reading") {
    how.rights = 0;
    u.fill(key.get(), how);
    u.write({0, 100, key->lkey}, u.near.address(), u.near.mr->rkey);
    CHECK(u.transfer(IBV_EXP_WR_RDMA_READ, u.near.piece(0, 8), 0, key->rkey) ==
          IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("reading from afar") {
    how.rights = IBV_EXP_ACCESS_REMOTE_READ;
    u.fill(key.get(), how);
    CHECK(u.transfer(IBV_EXP_WR_RDMA_READ, u.near.piece(0, 8), 0, key->rkey) == IBV_WC_SUCCESS);
    CHECK(u.transfer(IBV_EXP_WR_RDMA_WRITE, u.near.piece(0, 8), 0, key->rkey) ==
          IBV_WC_REM_ACCESS_ERR);
  }
}

// A completion of libmlx5's does not say that it is one of a fill.
TEST_CASE(
    "a key may be empty, and asked for with bits that are no rights [row:umr_ext_op_num_mrs]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.near.address(), u.near.mr.get(), 100);
  auto wr = how.request_for(key.get());
  SECTION("no pieces") {
    wr.ext_op.umr.num_mrs = 0;
    if (GENERATE(false, true)) wr.ext_op.umr.mem_list.mem_reg_list = nullptr;
  }
  SECTION("a piece without bytes") { how.pieces[0].length = 0; }
  SECTION("an unknown right") { wr.ext_op.umr.exp_access |= 1ull << 60; }
  SECTION("a right of regions") {
    wr.ext_op.umr.exp_access |= IBV_EXP_ACCESS_ON_DEMAND | IBV_EXP_ACCESS_RELAXED_ORDERING;
  }
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(u.a.get(), &wr, &bad) == 0);
  CHECK(u.completions(1)[0].status == IBV_WC_SUCCESS);
  // And it is filled again.
  Fill again;
  again.piece(u.near.address(), u.near.mr.get(), 100);
  u.fill(key.get(), again);
  u.write({0, 100, key->lkey}, u.far.address(), u.far.mr->rkey);
  CHECK(std::equal(u.near.bytes.begin(), u.near.bytes.begin() + 100, u.far.bytes.begin()));
}

TEST_CASE("a reset takes fills away [row:IBV_EXP_QP_STATE]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.near.address(), u.near.mr.get(), 500);
  auto fill = how.request_for(key.get());
  u.post(fill);
  for (ibv_qp *qp : {u.a.get(), u.b.get()}) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE) == 0);
  }
  u.connect(u.a.get(), u.b->qp_num);
  u.connect(u.b.get(), u.a->qp_num);
  auto piece = u.near.piece(0, 100);
  auto write = request(fill.wr_id, IBV_EXP_WR_RDMA_WRITE, &piece);
  write.wr.rdma.remote_addr = u.far.address();
  write.wr.rdma.rkey = u.far.mr->rkey;
  u.post(write);
  const auto wc = u.completions(1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == fill.wr_id);
  CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_WRITE);
}

TEST_CASE("a fill and its use go in one chain [row:IBV_EXP_WC_UMR]", "[engine]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.near.address(77), u.near.mr.get(), 500);
  how.signaled = false;
  auto fill = how.request_for(key.get());
  ibv_sge piece{0, 500, key->lkey};
  auto write = request(2, IBV_EXP_WR_RDMA_WRITE, &piece);
  write.wr.rdma.remote_addr = u.far.address();
  write.wr.rdma.rkey = u.far.mr->rkey;
  auto undo = invalidation(key.get());
  fill.next = &write;
  write.next = &undo;
  u.post(fill);
  const auto all = u.completions(2);
  CHECK(all[0].exp_opcode == IBV_EXP_WC_RDMA_WRITE);
  CHECK(all[1].exp_opcode == IBV_EXP_WC_UMR);
  CHECK(std::equal(u.near.bytes.begin() + 77, u.near.bytes.begin() + 577, u.far.bytes.begin()));
}

TEST_CASE("the base poller sees fills complete [row:IBV_EXP_WC_UMR]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.near.address(), u.near.mr.get(), 500);
  auto fill = how.request_for(key.get());
  u.post(fill);
  ibv_wc wc{};
  while (ibv_poll_cq(u.cq.get(), 1, &wc) == 0) {
  }
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == 900);
}

TEST_CASE("a full queue refuses fills and goes on [row:IBV_EXP_WR_UMR_FILL]") {
  Umr u;
  const Mr key = u.key();
  Fill how;
  how.piece(u.near.address(10), u.near.mr.get(), 100);
  auto fill = how.request_for(key.get());
  ibv_exp_send_wr *bad = nullptr;
  std::size_t posted = 0;
  int error = 0;
  while ((error = ibv_exp_post_send(u.a.get(), &fill, &bad)) == 0) ++posted;
  CHECK(error == ENOMEM);
  CHECK(bad == &fill);
  CHECK(posted >= 64);
  for (const auto &wc : u.completions(posted)) CHECK(wc.status == IBV_WC_SUCCESS);
  u.fill(key.get(), how);
  u.write({0, 100, key->lkey}, u.far.address(), u.far.mr->rkey);
  CHECK(std::equal(u.near.bytes.begin() + 10, u.near.bytes.begin() + 110, u.far.bytes.begin()));
}

TEST_CASE(
    "fills that cannot be are refused before anything is posted "
    "[row:umr_ext_op_num_mrs] "
    "[row:umr_ext_op_umr_type]") {
  Umr u;
  const Mr key = u.key(), small = u.key(1);
  Fill how;
  how.piece(u.near.address(), u.near.mr.get(), 100);
  Fill many;
  for (std::uint32_t i = 0; i <= pieces_inline; ++i)
    many.piece(u.near.address(), u.near.mr.get(), 8);
  Fill pattern;
  pattern.block(u.near.address(), u.near.mr.get(), 8, 16);
  pattern.repetitions = 2;
  int reason = EINVAL;
  auto wr = how.request_for(key.get());
  auto striped = pattern.request_for(key.get());
  SECTION("no key") { wr.ext_op.umr.modified_mr = nullptr; }
  SECTION("a key that has memory") { wr.ext_op.umr.modified_mr = u.near.mr.get(); }
  SECTION("more pieces than announced") { wr = many.request_for(key.get()); }
  SECTION("more pieces than the key holds") {
    many.pieces.resize(9);
    wr = many.request_for(small.get());
  }
  SECTION("a piece without region") { how.pieces[0].mr = nullptr; }
  SECTION("a piece of more than 2 GiB") { how.pieces[0].length = (std::size_t{1} << 31) + 1; }
  SECTION("two dimensions") {
    wr = striped;
    wr.ext_op.umr.mem_list.rb.stride_dim = 2;
    reason = -ENOMEM;  // as the legacy provider had it
  }
  SECTION("a block of 64 KiB") {
    wr = striped;
    pattern.bytes[0] = 65536;
  }
  SECTION("no such type") { wr.ext_op.umr.umr_type = 77; }
  SECTION("fixed size") {
    how.pieces.resize(2, how.pieces[0]);
    ++how.pieces[1].length;
    wr = how.request_for(key.get());
    wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST_FIXED_SIZE;
    reason = switched_on("umr_fixed_size") ? EINVAL : ENOTSUP;
  }
  SECTION("a right that is refused everywhere") {
    wr.ext_op.umr.exp_access |= IBV_EXP_ACCESS_PHYSICAL_ADDR;
    reason = ENOTSUP;
  }
  SECTION("not inline") {
    wr.exp_send_flags &= ~std::uint64_t{IBV_EXP_SEND_INLINE};
    wr.ext_op.umr.memory_objects = nullptr;
    reason = switched_on("umr_noninline") && engine_drives() ? EINVAL : ENOTSUP;
  }
  // The good request before it is posted, the bad one is named.
  auto piece = u.near.piece(0, 8);
  auto good = request(5, IBV_EXP_WR_RDMA_WRITE, &piece);
  good.wr.rdma.remote_addr = u.far.address();
  good.wr.rdma.rkey = u.far.mr->rkey;
  good.next = &wr;
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(u.a.get(), &good, &bad) == reason);
  CHECK(bad == &wr);
  u.complete(5);
  Fill fine;
  fine.piece(u.near.address(), u.near.mr.get(), 8);
  u.fill(key.get(), fine);
}

TEST_CASE("queue pairs announce that they make keys [row:IBV_EXP_QP_CREATE_UMR]") {
  Umr u;
  auto attr = with_umr(u, IBV_QPT_RC, 8);
  SECTION("the flag without the member") { attr.comp_mask &= ~IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS; }
  SECTION("the member alone") { attr.exp_create_flags = 0; }
  SECTION("more than any entry holds") { attr.max_inl_send_klms = 53; }
  SECTION("datagrams") { attr.qp_type = IBV_QPT_UD; }
  SECTION("unreliable connections") { attr.qp_type = IBV_QPT_UC; }
  errno = 0;
  CHECK(ibv_exp_create_qp(u.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("others make no keys [row:IBV_EXP_QP_CREATE_UMR]") {
  Umr u;
  const Mr key = u.key();
  const Qp plain = u.create_qp(IBV_QPT_RC);
  u.connect(plain.get(), plain->qp_num);
  Fill how;
  how.piece(u.near.address(), u.near.mr.get(), 100);
  auto wr = how.request_for(key.get());
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(plain.get(), &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
}

TEST_CASE("a queue pair holds as many pieces as an entry takes") {
  Rig rig;
  auto attr = with_umr(rig, IBV_QPT_RC, 52);
  CHECK(Qp(ibv_exp_create_qp(rig.context.get(), &attr)));
  attr = with_umr(rig, IBV_QPT_RC, 53);
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("keys are reported where requests can fill them [row:IBV_EXP_DEVICE_UMR]", "[engine]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  CHECK((device.exp_device_cap_flags & IBV_EXP_DEVICE_UMR) != 0);
  CHECK((device.comp_mask & IBV_EXP_DEVICE_ATTR_UMR) != 0);
  const auto type = GENERATE(IBV_QPT_RC, static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  auto attr = with_umr(rig, type, 8);
  errno = 0;
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  CHECK(qp);
  CHECK(errno == 0);
}

// [row:IBV_EXP_MR_INDIRECT_KLMS]
TEST_CASE("keys that cannot be had are refused [row:ibv_exp_create_mr]") {
  Rig rig;
  ibv_exp_create_mr_in in{};
  in.pd = rig.pd.get();
  in.attr.max_klm_list_size = 8;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  int reason = EINVAL;
  SECTION("too large") { in.attr.max_klm_list_size = 65536; }
  SECTION("unknown right") { in.attr.exp_access_flags = 1ull << 60; }
  SECTION("comp_mask") { in.comp_mask = IBV_EXP_CREATE_MR_IN_RESERVED; }
  SECTION("signatures") {
    in.attr.create_flags = GENERATE(0, 8) | IBV_EXP_MR_SIGNATURE_EN;
    reason = ENOTSUP;
  }
  errno = 0;
  CHECK(ibv_exp_create_mr(&in) == nullptr);
  CHECK(errno == reason);
}

TEST_CASE("keys are made with flags that mean nothing, and none [row:ibv_exp_create_mr]") {
  Umr u;
  ibv_exp_create_mr_in in{};
  in.pd = u.pd.get();
  in.attr.max_klm_list_size = 4;
  in.attr.create_flags = GENERATE(0, 8, 8 | IBV_EXP_MR_INDIRECT_KLMS);
  const Mr key(ibv_exp_create_mr(&in));
  REQUIRE(key);
  Fill how;
  how.piece(u.near.address(), u.near.mr.get(), 100);
  u.fill(key.get(), how);
}

// Only where ibv_dereg_mr() comes through the library.
TEST_CASE("a key is released once [row:ibv_exp_create_mr]", "[engine]") {
  Rig rig;
  ibv_mr *const key = create_key(rig.pd.get(), 4).release();
  REQUIRE(key != nullptr);
  REQUIRE(ibv_dereg_mr(key) == 0);
  CHECK(ibv_dereg_mr(key) == EINVAL);
  // Enough for its memory to be given out again.
  for (int i = 0; i < 40; ++i) CHECK(create_key(rig.pd.get(), 4));
}

TEST_CASE("a key has a size [row:ibv_exp_query_mkey]") {
  Rig rig;
  const Mr key = create_key(rig.pd.get(), 100);
  REQUIRE(key);
  CHECK(key->pd == rig.pd.get());
  CHECK(key->context == rig.context.get());
  CHECK(key->lkey == key->rkey);
  ibv_exp_mkey_attr attr{};
  CHECK(ibv_exp_query_mkey(key.get(), &attr) == 0);
  CHECK(attr.max_klm_list_size == 100);
  for (const std::uint32_t entries : {0u, 1u, 3u, 4u, 5u, 1000u}) {
    const Mr other = create_key(rig.pd.get(), entries);
    REQUIRE(other);
    CHECK(ibv_exp_query_mkey(other.get(), &attr) == 0);
    CHECK(attr.max_klm_list_size == (entries + 3) / 4 * 4);
  }
  Buffer buffer(rig.pd.get(), 4096);
  CHECK(ibv_exp_query_mkey(buffer.mr.get(), &attr) == 0);
  CHECK(attr.max_klm_list_size == 0);
  attr.comp_mask = IBV_EXP_MKEY_ATTR_RESERVED;
  CHECK(ibv_exp_query_mkey(key.get(), &attr) == EINVAL);
  CHECK(ibv_exp_rereg_mr(key.get(), IBV_EXP_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0,
                         nullptr) == EINVAL);
}

TEST_CASE("a key takes a pattern of the size that it has [row:ibv_exp_query_mkey]", "[engine]") {
  Umr u;
  const Mr key = u.key(3);
  ibv_exp_mkey_attr attr{};
  REQUIRE(ibv_exp_query_mkey(key.get(), &attr) == 0);
  Fill how;
  how.base = 0x12345;
  how.repetitions = 2;
  std::vector<std::uint8_t> expected;
  for (std::uint32_t i = 0; i < attr.max_klm_list_size; ++i)
    how.block(u.near.address(i * 8), u.near.mr.get(), 4, 4000);
  for (std::size_t r = 0; r < 2; ++r)
    for (std::uint32_t i = 0; i < attr.max_klm_list_size; ++i) {
      const auto from = u.near.bytes.begin() + static_cast<std::ptrdiff_t>(i * 8 + r * 4000);
      expected.insert(expected.end(), from, from + 4);
    }
  u.fill(key.get(), how);
  u.write({how.base, static_cast<std::uint32_t>(expected.size()), key->lkey}, u.far.address(),
          u.far.mr->rkey);
  CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin()));
}

TEST_CASE(
    "long lists lie in memory of their own, on request "
    "[row:umr_ext_op_memory_objects]") {
  Umr u;
  if (!switched_on("umr_noninline")) {
    errno = 0;
    CHECK(list_memory(u.pd.get(), 100) == nullptr);
    CHECK(errno == ENOTSUP);
    ibv_exp_mkey_list_container none{1, u.context.get()};
    CHECK(ibv_exp_dealloc_mkey_list_memory(&none) == ENOTSUP);
    return;
  }
  constexpr std::uint32_t count = 1000;
  SKIP_IF(!engine_drives(), "rdma-core's data path takes no lists outside of the request");
  const KeyList room = list_memory(u.pd.get(), count), largest = list_memory(u.pd.get(), 65531);
  REQUIRE(room);
  REQUIRE(largest);
  CHECK(room->max_klm_list_size == count);
  for (const std::uint32_t none : {0u, 65533u}) {
    errno = 0;
    CHECK(list_memory(u.pd.get(), none) == nullptr);
    CHECK(errno == EINVAL);
  }
  ibv_exp_mkey_list_container_attr other{};
  other.pd = u.pd.get();
  other.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR + 1;
  other.max_klm_list_size = 4;
  errno = 0;
  CHECK(ibv_exp_alloc_mkey_list_memory(&other) == nullptr);
  CHECK(errno == ENOMEM);
  const Mr key = u.key(count + 1);
  Fill how;
  how.room = room.get();
  how.base = 0x12345;
  std::vector<std::uint8_t> expected;
  std::uint32_t total = 0;
  SECTION("a list") {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t offset = (i * 7919) % (size - 64);
      how.piece(u.near.address(offset), u.near.mr.get(), 1 + i % 40);
      const auto from = u.near.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
      expected.insert(expected.end(), from, from + static_cast<std::ptrdiff_t>(1 + i % 40));
    }
  }
  SECTION("a pattern") {
    how.repetitions = 2;
    for (std::uint32_t i = 0; i < count; ++i)
      how.block(u.near.address(i * 8), u.near.mr.get(), 4, 16000);
    for (std::size_t r = 0; r < 2; ++r)
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto from = u.near.bytes.begin() + static_cast<std::ptrdiff_t>(i * 8 + r * 16000);
        expected.insert(expected.end(), from, from + 4);
      }
  }
  total = static_cast<std::uint32_t>(expected.size());
  if (total != 0) {
    u.fill(key.get(), how);
    u.write({how.base, total, key->lkey}, u.far.address(), u.far.mr->rkey);
    CHECK(std::equal(expected.begin(), expected.end(), u.far.bytes.begin()));
  }
  SECTION("no more than it holds") {
    for (std::uint32_t i = 0; i <= count; ++i) how.piece(u.near.address(), u.near.mr.get(), 4);
    auto wr = how.request_for(key.get());
    CHECK(u.refused(wr) == EINVAL);
  }
  ibv_exp_mkey_list_container stray = *room;
  CHECK(ibv_exp_dealloc_mkey_list_memory(&stray) == EINVAL);
}
