// Kinds of memory: on the device, behind windows, contiguous, paged on demand.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "log_of.h"
#include "pair.h"

namespace {

using Window = Owned<ibv_mw, ibv_dealloc_mw>;

struct FreeDm {
  void operator()(ibv_exp_dm *dm) const { CHECK(ibv_exp_free_dm(dm) == 0); }
};
using Dm = std::unique_ptr<ibv_exp_dm, FreeDm>;

Dm alloc_dm(ibv_context *context, std::size_t length) {
  ibv_exp_alloc_dm_attr attr{};
  attr.length = length;
  return Dm(ibv_exp_alloc_dm(context, &attr));
}

int copy(ibv_exp_dm *dm, ibv_exp_dm_memcpy_dir direction, void *host, std::uint64_t offset,
         std::size_t length) {
  ibv_exp_memcpy_dm_attr attr{};
  attr.memcpy_dir = direction;
  attr.host_addr = host;
  attr.dm_offset = offset;
  attr.length = length;
  return ibv_exp_memcpy_dm(dm, &attr);
}

ibv_exp_reg_mr_in on_device(ibv_pd *pd, ibv_exp_dm *dm, std::uint64_t offset, std::size_t length) {
  ibv_exp_reg_mr_in in{};
  in.pd = pd;
  in.addr = reinterpret_cast<void *>(offset);
  in.length = length;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                  IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC;
  in.comp_mask = IBV_EXP_REG_MR_DM;
  in.dm = dm;
  return in;
}

// A region that windows may be bound to.
Mr windowed(ibv_pd *pd, std::vector<std::uint8_t> &bytes) {
  ibv_exp_reg_mr_in in{};
  in.pd = pd;
  in.addr = bytes.data();
  in.length = bytes.size();
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_MW_BIND;
  Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);
  return mr;
}

// A request to bind the middle half of a region.
ibv_exp_mw_bind bind_middle(ibv_qp *qp, ibv_mw *mw, ibv_mr *mr) {
  ibv_exp_mw_bind bind{};
  bind.qp = qp;
  bind.mw = mw;
  bind.wr_id = 50;
  bind.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  bind.bind_info.mr = mr;
  bind.bind_info.addr = reinterpret_cast<std::uintptr_t>(mr->addr) + mr->length / 4;
  bind.bind_info.length = mr->length / 2;
  bind.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
  return bind;
}

std::uint64_t capabilities(ibv_context *context) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(context, &attr) == 0);
  return attr.exp_device_cap_flags;
}

}  // namespace

// [row:IBV_EXP_DM_CPY_TO_DEVICE][row:IBV_EXP_DM_CPY_TO_HOST]
TEST_CASE("device memory is copied to and from [row:ibv_exp_memcpy_dm]") {
  const Context context = open_first();
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE;
  REQUIRE(ibv_exp_query_device(context.get(), &device) == 0);
  REQUIRE(device.comp_mask == IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE);
  REQUIRE(device.max_dm_size >= 8192);

  const Dm dm = alloc_dm(context.get(), 8192), second = alloc_dm(context.get(), 4096);
  REQUIRE(dm);
  REQUIRE(second);
  CHECK(dm->handle != second->handle);
  CHECK(dm->context == context.get());
  CHECK(dm->comp_mask == 0);
  std::vector<std::uint8_t> there(8192), back(8192);
  std::iota(there.begin(), there.end(), std::uint8_t{3});
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_DEVICE, there.data(), 0, there.size()) == 0);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, back.data(), 0, back.size()) == 0);
  CHECK(there == back);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, back.data(), 4096, 16) == 0);
  CHECK(std::equal(back.begin(), back.begin() + 16, there.begin() + 4096));
}

TEST_CASE("all device memory can be had in one piece [row:ibv_exp_alloc_dm]") {
  const Context context = open_first();
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE;
  REQUIRE(ibv_exp_query_device(context.get(), &device) == 0);
  const Dm all = alloc_dm(context.get(), device.max_dm_size);
  REQUIRE(all);
  CHECK(!alloc_dm(context.get(), 1));
}

// What UCX expects of a handle.
struct WithMapping {
  ibv_exp_dm dm;
  std::size_t length;
  std::uint32_t *start_va;
};

TEST_CASE("a program finds where device memory is mapped [row:ibv_exp_alloc_dm]") {
  const Context context = open_first();
  const Dm dm = alloc_dm(context.get(), 4096);
  REQUIRE(dm);
  const auto *seen = reinterpret_cast<const WithMapping *>(dm.get());
  CHECK(seen->length == 4096);
  REQUIRE(seen->start_va != nullptr);
  seen->start_va[1023] = 0x12345678;
  std::uint32_t back = 0;
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, &back, 4092, 4) == 0);
  CHECK(back == 0x12345678);
}

TEST_CASE("device memory is registered and used [row:IBV_EXP_REG_MR_DM]") {
  Pair p(IBV_QPT_RC);
  Dm dm = alloc_dm(p.context.get(), 4096);
  REQUIRE(dm);
  auto in = on_device(p.pd.get(), dm.get(), 1024, 2048);
  Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);

  // Addresses in the region begin at 0.
  auto piece = p.out.piece(0, 1000);
  auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = 8;
  wr.wr.rdma.rkey = mr->rkey;
  p.post(wr);
  p.complete(1);
  std::vector<std::uint8_t> seen(1000);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, seen.data(), 1024 + 8, 1000) == 0);
  CHECK(std::equal(seen.begin(), seen.end(), p.out.bytes.begin()));

  // As the source of a send.
  ibv_sge local{8, 1000, mr->lkey};
  post_receive(p.b.get(), 7, p.in.piece(0, size));
  wr = request(2, IBV_EXP_WR_SEND, &local);
  p.post(wr);
  both(p);
  CHECK(std::equal(seen.begin(), seen.end(), p.in.bytes.begin()));

  // An atomic operation.
  const std::uint64_t five = 5;
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_DEVICE, const_cast<std::uint64_t *>(&five), 1024, 8) == 0);
  auto result = p.in.piece(64, 8);
  wr = request(3, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &result);
  wr.wr.atomic.remote_addr = 0;
  wr.wr.atomic.rkey = mr->rkey;
  wr.wr.atomic.compare_add = 37;
  p.post(wr);
  p.complete(3);
  std::uint64_t sum = 0;
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, &sum, 1024, 8) == 0);
  CHECK(sum == 42);

  // It cannot go while the region is there, and is whole afterwards.
  CHECK(ibv_exp_free_dm(dm.get()) == EBUSY);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, &sum, 1024, 8) == 0);
  CHECK(sum == 42);
}

// [row:ibv_exp_free_dm]
TEST_CASE("device memory that cannot be had is refused [row:ibv_exp_alloc_dm]") {
  Rig rig;
  const Context other = open_first();
  ibv_exp_alloc_dm_attr attr{};
  errno = 0;
  CHECK(ibv_exp_alloc_dm(rig.context.get(), &attr) == nullptr);
  CHECK(errno == ENOMEM);
  attr.length = std::size_t{1} << 40;
  errno = 0;
  CHECK(ibv_exp_alloc_dm(rig.context.get(), &attr) == nullptr);
  CHECK(errno != 0);
  attr.length = 4096;
  attr.comp_mask = IBV_EXP_ALLOC_DM_ATTR_RESERVED;
  errno = 0;
  CHECK(ibv_exp_alloc_dm(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);

  const Dm dm = alloc_dm(rig.context.get(), 4096), foreign = alloc_dm(other.get(), 4096);
  REQUIRE(dm);
  REQUIRE(foreign);
  auto in = on_device(rig.pd.get(), dm.get(), 0, 4096);
  int reason = EINVAL;
  SECTION("nothing named") { in.dm = nullptr; }
  SECTION("memory of another context") { in.dm = foreign.get(); }
  SECTION("beyond its end") {
    in.length = 8192;
    reason = EFAULT;
  }
  SECTION("from behind its end") {
    in.addr = reinterpret_cast<void *>(~std::uintptr_t{0} - 63);
    in.length = 64;
    reason = EFAULT;
  }
  SECTION("allocated as well") {
    in.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR;
    in.addr = nullptr;
  }
  SECTION("paged") { in.exp_access |= IBV_EXP_ACCESS_ON_DEMAND; }
  if (!switched_on("shared_mr")) {
    SECTION("shared") {
      in.exp_access |= IBV_EXP_ACCESS_SHARED_MR_USER_READ;
      reason = ENOTSUP;
    }
  }
  errno = 0;
  CHECK(ibv_exp_reg_mr(&in) == nullptr);
  CHECK(errno == reason);
  std::uint32_t word = 0;
  CHECK(copy(dm.get(), static_cast<ibv_exp_dm_memcpy_dir>(7), &word, 0, 4) == EINVAL);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, nullptr, 0, 4) == EINVAL);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, &word, 4096, 4) == EINVAL);
  // Behind the last address there are no first ones.
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_HOST, &word, ~std::uint64_t{0} - 3, 4) == EINVAL);
  CHECK(copy(dm.get(), IBV_EXP_DM_CPY_TO_DEVICE, &word, 4, ~std::size_t{0} - 3) == EINVAL);
  ibv_exp_dm stray = *dm;
  CHECK(ibv_exp_free_dm(&stray) == EINVAL);
  CHECK(copy(&stray, IBV_EXP_DM_CPY_TO_HOST, &word, 0, 4) == EINVAL);
}

TEST_CASE("a window of type 1 grants and revokes [row:ibv_exp_bind_mw]") {
  Pair p(IBV_QPT_RC);
  CHECK((capabilities(p.context.get()) & IBV_EXP_DEVICE_MEM_WINDOW) != 0);
  std::vector<std::uint8_t> bytes(4096);
  const Mr mr = windowed(p.pd.get(), bytes);
  const Window mw(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_1));
  REQUIRE(mw);

  auto bind = bind_middle(p.b.get(), mw.get(), mr.get());
  const std::uint32_t before = mw->rkey;
  REQUIRE(ibv_exp_bind_mw(&bind) == 0);
  CHECK(mw->rkey != before);
  const auto bound = p.complete(50);
  CHECK(bound.exp_opcode == IBV_EXP_WC_BIND_MW);

  auto piece = p.out.piece(0, 512);
  auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = bind.bind_info.addr;
  wr.wr.rdma.rkey = mw->rkey;
  p.post(wr);
  p.complete(1);
  CHECK(std::equal(bytes.begin() + 1024, bytes.begin() + 1024 + 512, p.out.bytes.begin()));

  // A binding of no length takes it back.
  const std::uint32_t granted = mw->rkey;
  bind.bind_info.length = 0;
  bind.bind_info.addr = 0;
  bind.bind_info.mr = nullptr;
  REQUIRE(ibv_exp_bind_mw(&bind) == 0);
  p.complete(50);
  wr = request(2, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(bytes.data()) + 1024;
  wr.wr.rdma.rkey = granted;
  p.post(wr);
  CHECK(p.completions(1)[0].status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a window is no wider than asked [row:ibv_exp_bind_mw]") {
  Pair p(IBV_QPT_RC);
  std::vector<std::uint8_t> bytes(4096);
  const Mr mr = windowed(p.pd.get(), bytes);
  const Window mw(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_1));
  REQUIRE(mw);
  auto bind = bind_middle(p.b.get(), mw.get(), mr.get());
  bind.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_READ;
  REQUIRE(ibv_exp_bind_mw(&bind) == 0);
  p.complete(50);
  auto piece = p.in.piece(0, 512);
  auto wr = request(1, IBV_EXP_WR_RDMA_READ, &piece);
  wr.wr.rdma.remote_addr = bind.bind_info.addr;
  wr.wr.rdma.rkey = mw->rkey;
  SECTION("reading outside") { wr.wr.rdma.remote_addr -= 8; }
  SECTION("writing") { wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE; }
  p.post(wr);
  CHECK(p.completions(1)[0].status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE(
    "a window of type 2 is bound by a work request [row:IBV_EXP_WR_BIND_MW] "
    "[row:mw_post_send_bind_mw] [row:umr_core_bind_mw] [row:umr_core_local_inv]") {
  Pair p(IBV_QPT_RC);
  const auto capable = capabilities(p.context.get());
  CHECK((capable & IBV_EXP_DEVICE_MW_TYPE_2B) != 0);
  CHECK((capable & IBV_EXP_DEVICE_MEM_MGT_EXTENSIONS) != 0);
  std::vector<std::uint8_t> bytes(4096);
  const Mr mr = windowed(p.pd.get(), bytes);
  const Window mw(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_2));
  REQUIRE(mw);
  const int opcode = GENERATE(int{IBV_EXP_WR_BIND_MW}, 0x4e);  // and that of 3.x
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
  auto wr = request(1, static_cast<ibv_exp_wr_opcode>(opcode), nullptr, 0);
  wr.bind_mw.mw = mw.get();
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = bind_middle(p.b.get(), mw.get(), mr.get()).bind_info;
  ibv_exp_send_wr *bad = nullptr;
  auto wrong = wr;
  wrong.bind_mw.mw = nullptr;
  CHECK(ibv_exp_post_send(p.b.get(), &wrong, &bad) == EINVAL);
  CHECK(bad == &wrong);
  wrong = wr;
  wrong.bind_mw.bind_info.mr = nullptr;  // but there is a length
  CHECK(ibv_exp_post_send(p.b.get(), &wrong, &bad) == EINVAL);
  REQUIRE(ibv_exp_post_send(p.b.get(), &wr, &bad) == 0);
  CHECK(p.complete(1).exp_opcode == IBV_EXP_WC_BIND_MW);

  auto piece = p.out.piece(0, 512);
  auto write = request(2, IBV_EXP_WR_RDMA_WRITE, &piece);
  write.wr.rdma.remote_addr = wr.bind_mw.bind_info.addr;
  write.wr.rdma.rkey = rkey;
  p.post(write);
  p.complete(2);
  CHECK(std::equal(bytes.begin() + 1024, bytes.begin() + 1024 + 512, p.out.bytes.begin()));

  SECTION("and revoked by its owner") {
    wr = request(3, IBV_EXP_WR_LOCAL_INV, nullptr, 0);
    wr.ex.invalidate_rkey = rkey;
    // There is no data: neither is read.
    wr.num_sge = 1;
    wr.exp_send_flags |= GENERATE(0, IBV_EXP_SEND_INLINE);
    REQUIRE(ibv_exp_post_send(p.b.get(), &wr, &bad) == 0);
    CHECK(p.complete(3).exp_opcode == IBV_EXP_WC_LOCAL_INV);

    wr = request(5, static_cast<ibv_exp_wr_opcode>(opcode), nullptr, 0);
    wr.bind_mw.mw = mw.get();
    wr.bind_mw.rkey = ibv_inc_rkey(rkey);
    wr.bind_mw.bind_info = bind_middle(p.b.get(), mw.get(), mr.get()).bind_info;
    REQUIRE(ibv_exp_post_send(p.b.get(), &wr, &bad) == 0);
    p.complete(5);
    auto later = write;
    later.wr_id = 6;
    later.wr.rdma.rkey = wr.bind_mw.rkey;
    p.post(later);
    p.complete(6);
  }
  SECTION("and given back by its user") {
    post_receive(p.b.get(), 7, p.in.piece(0, size));
    wr = request(4, IBV_EXP_WR_SEND_WITH_INV, &piece);
    wr.ex.invalidate_rkey = rkey;
    p.post(wr);
    const auto [sent, got] = both(p);
    CHECK(sent.status == IBV_WC_SUCCESS);
    REQUIRE(got.status == IBV_WC_SUCCESS);
    CHECK((got.exp_wc_flags & IBV_EXP_WC_WITH_INV) != 0);
    CHECK(got.imm_data == rkey);
  }
  p.post(write);
  CHECK(p.completions(1)[0].status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("bindings that cannot be are refused [row:ibv_exp_bind_mw] [row:bind_mw_zero_based]") {
  Pair p(IBV_QPT_RC);
  const Context other = open_first();
  const Pd other_pd(ibv_alloc_pd(other.get()));
  const Qp datagram = p.create_qp(IBV_QPT_UD);
  std::vector<std::uint8_t> bytes(4096);
  const Mr mr = windowed(p.pd.get(), bytes);
  const Window mw(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_1));
  const Window second(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_2));
  const Window foreign(ibv_alloc_mw(other_pd.get(), IBV_MW_TYPE_1));
  auto bind = bind_middle(p.b.get(), mw.get(), mr.get());
  int reason = EINVAL;
  std::string said;
  SECTION("type 2") {
    bind.mw = second.get();
    said = "a window of type 2 is bound by a work request";
  }
  SECTION("no queue pair") { bind.qp = nullptr; }
  SECTION("a queue pair of another context") { bind.mw = foreign.get(); }
  SECTION("datagrams") {
    bind.qp = datagram.get();
    said = "only RC and UC queue pairs bind windows";
  }
  SECTION("comp_mask") { bind.comp_mask = IBV_EXP_BIND_MW_RESERVED; }
  SECTION("a right that windows do not have") {
    bind.bind_info.exp_mw_access_flags |= IBV_EXP_ACCESS_ON_DEMAND;
  }
  SECTION("an unknown right") { bind.bind_info.exp_mw_access_flags |= 1ull << 60; }
  SECTION("zero-based") {
    bind.bind_info.exp_mw_access_flags |= IBV_EXP_ACCESS_MW_ZERO_BASED;
    reason = ENOTSUP;
  }
  SECTION("calculation") {
    bind.exp_send_flags |= IBV_EXP_SEND_WITH_CALC;
    reason = ENOTSUP;
  }
  const std::uint32_t rkey = mw->rkey;
  const std::string log = log_of([&] { CHECK(ibv_exp_bind_mw(&bind) == reason); });
  CHECK(log.find(said) != std::string::npos);
  CHECK(mw->rkey == rkey);
}

TEST_CASE("windows are bound by a list of work requests, each once [row:IBV_EXP_WR_BIND_MW]") {
  Pair p(IBV_QPT_RC);
  if (GENERATE(false, true)) {  // in the ways of a queue pair that changes keys
    auto attr = p.qp_attr(IBV_QPT_RC);
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    attr.exp_create_flags |= IBV_EXP_QP_CREATE_UMR;
    attr.max_inl_send_klms = 4;
    p.b.reset(ibv_exp_create_qp(p.context.get(), &attr));
    REQUIRE(p.b);
    p.a = p.create_qp(IBV_QPT_RC);
    p.connect(p.a.get(), p.b->qp_num);
    p.connect(p.b.get(), p.a->qp_num);
  }
  std::vector<std::uint8_t> bytes(4096);
  const Mr mr = windowed(p.pd.get(), bytes);
  std::vector<Window> windows;
  for (int i = 0; i < 3; ++i) windows.emplace_back(ibv_alloc_mw(p.pd.get(), IBV_MW_TYPE_2));
  const bool experimental = GENERATE(true, false);
  std::vector<ibv_exp_send_wr> list(3);
  std::vector<ibv_send_wr> base(3);
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto &wr = list[i] = request(i + 1, IBV_EXP_WR_BIND_MW, nullptr, 0);
    wr.bind_mw.mw = windows[i].get();
    wr.bind_mw.rkey = ibv_inc_rkey(windows[i]->rkey);
    wr.bind_mw.bind_info = bind_middle(p.b.get(), windows[i].get(), mr.get()).bind_info;
    base[i] = {};
    base[i].wr_id = wr.wr_id;
    base[i].opcode = IBV_WR_BIND_MW;
    base[i].send_flags = IBV_SEND_SIGNALED;
    base[i].bind_mw.mw = wr.bind_mw.mw;
    base[i].bind_mw.rkey = wr.bind_mw.rkey;
    base[i].bind_mw.bind_info = {mr.get(), wr.bind_mw.bind_info.addr, wr.bind_mw.bind_info.length,
                                 IBV_ACCESS_REMOTE_WRITE};
    if (i == 0) continue;
    list[i - 1].next = &list[i];
    base[i - 1].next = &base[i];
  }
  ibv_exp_send_wr *bad = nullptr;
  ibv_send_wr *bad_base = nullptr;
  if (experimental) REQUIRE(ibv_exp_post_send(p.b.get(), list.data(), &bad) == 0);
  else REQUIRE(ibv_post_send(p.b.get(), base.data(), &bad_base) == 0);
  std::uint64_t id = 1;
  for (const auto &wc : p.completions(3)) {
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == id++);
    CHECK(wc.exp_opcode == IBV_EXP_WC_BIND_MW);
  }
  // Each window leads to its memory. The next completion is the write's: there is no fourth.
  auto piece = p.out.piece(0, 512);
  for (const auto &bound : list) {
    auto write = request(9, IBV_EXP_WR_RDMA_WRITE, &piece);
    write.wr.rdma.remote_addr = bound.bind_mw.bind_info.addr;
    write.wr.rdma.rkey = bound.bind_mw.rkey;
    p.post(write);
    p.complete(9);
  }
  CHECK(std::equal(bytes.begin() + 1024, bytes.begin() + 1024 + 512, p.out.bytes.begin()));
}

TEST_CASE("windows are silenced by the environment [row:mw_env_shut_up_mw]") {
  Rig rig;
  REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_SHUT_UP_MW", "1", 1) == 0);
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  rig.connect(qp.get(), qp->qp_num);
  std::vector<std::uint8_t> bytes(4096);
  const Mr mr = windowed(rig.pd.get(), bytes);
  const Window first(ibv_alloc_mw(rig.pd.get(), IBV_MW_TYPE_1));
  const Window second(ibv_alloc_mw(rig.pd.get(), IBV_MW_TYPE_2));
  auto bind = bind_middle(qp.get(), first.get(), mr.get());
  CHECK(ibv_exp_bind_mw(&bind) == EINVAL);
  auto wr = request(1, IBV_EXP_WR_BIND_MW, nullptr, 0);
  wr.bind_mw.mw = second.get();
  wr.bind_mw.rkey = ibv_inc_rkey(second->rkey);
  wr.bind_mw.bind_info = bind.bind_info;
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(qp.get(), &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
}

// [row:macro_implicit_mr_size]
TEST_CASE("pages come on demand, and before [row:ibv_exp_prefetch_mr]") {
  const auto hint_flags = GENERATE(0u, std::uint32_t{IBV_EXP_PREFETCH_WRITE_ACCESS});
  Pair p(IBV_QPT_RC);
  constexpr std::size_t length = 1 << 20;
  void *pages = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  {
    ibv_exp_reg_mr_in in{};
    in.pd = p.pd.get();
    in.addr = pages;
    in.length = length;
    in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                    IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_ON_DEMAND;
    SECTION("of one region") {}
    SECTION("relaxed") { in.exp_access |= IBV_EXP_ACCESS_RELAXED; }
    SECTION("of everything") {
      in.addr = nullptr;
      in.length = IBV_EXP_IMPLICIT_MR_SIZE;
    }
    const Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    ibv_exp_prefetch_attr hint{};
    hint.addr = pages;
    hint.length = length;
    hint.flags = hint_flags;
    CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == 0);
    auto piece = p.out.piece(0, size);
    auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(pages) + 12345;
    wr.wr.rdma.rkey = mr->rkey;
    p.post(wr);
    p.complete(1);
    CHECK(std::memcmp(static_cast<char *>(pages) + 12345, p.out.bytes.data(), size) == 0);
    hint.flags = 1u << 9;
    CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == EINVAL);
  }
  munmap(pages, length);
}

TEST_CASE("a hint about writing does not need the right to [row:IBV_EXP_PREFETCH_WRITE_ACCESS]",
          "[hint]") {
  Pair p(IBV_QPT_RC);
  std::vector<std::uint8_t> pages(1 << 16);
  ibv_exp_reg_mr_in in{};
  in.pd = p.pd.get();
  in.addr = pages.data();
  in.length = pages.size();
  in.exp_access = IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_ON_DEMAND;
  const Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);
  ibv_exp_prefetch_attr hint{};
  hint.addr = pages.data();
  hint.length = pages.size();
  hint.flags = IBV_EXP_PREFETCH_WRITE_ACCESS;
  CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == 0);
}

// Element by element this would take for ever.
TEST_CASE("a hint about all memory returns [row:ibv_exp_prefetch_mr]", "[hint]") {
  Pair p(IBV_QPT_RC);
  ibv_exp_reg_mr_in in{};
  in.pd = p.pd.get();
  in.length = IBV_EXP_IMPLICIT_MR_SIZE;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ON_DEMAND;
  const Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);
  ibv_exp_prefetch_attr hint{};
  hint.length = SIZE_MAX / 2;
  hint.flags = GENERATE(0u, std::uint32_t{IBV_EXP_PREFETCH_WRITE_ACCESS});
  CHECK(ibv_exp_prefetch_mr(mr.get(), &hint) == 0);
}

TEST_CASE("a hint about pinned memory has nothing to do [row:ibv_exp_prefetch_mr]", "[hint]") {
  Pair p(IBV_QPT_RC);
  ibv_exp_prefetch_attr hint{};
  hint.addr = p.in.bytes.data();
  hint.length = 4096;
  hint.flags = GENERATE(0u, std::uint32_t{IBV_EXP_PREFETCH_WRITE_ACCESS});
  errno = EDOM;
  CHECK(ibv_exp_prefetch_mr(p.in.mr.get(), &hint) == 0);
  CHECK(errno == EDOM);
  hint.flags = 2;
  CHECK(ibv_exp_prefetch_mr(p.in.mr.get(), &hint) == EINVAL);
}

TEST_CASE("contiguous memory is used and goes with its region [row:IBV_EXP_ACCESS_ALLOCATE_MR]") {
  Pair p(IBV_QPT_RC);
  ibv_exp_reg_mr_in in{};
  in.pd = p.pd.get();
  in.length = GENERATE(std::size_t{4096}, std::size_t{3} << 20);
  in.exp_access =
      IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  void *where = nullptr;
  {
    const Mr mr(ibv_exp_reg_mr(&in));
    REQUIRE(mr);
    where = mr->addr;
    auto piece = p.out.piece(0, size);
    auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(where);
    wr.wr.rdma.rkey = mr->rkey;
    p.post(wr);
    p.complete(1);
    CHECK(std::memcmp(where, p.out.bytes.data(), size) == 0);
  }
#ifndef IBVEXP_EXTERN_CALLS
  // Released with the region: nothing is mapped there any more. (A library that
  // is loaded at run time does not see ibv_dereg_mr.)
  unsigned char state = 0;
  CHECK(mincore(where, 4096, &state) == -1);
#endif
}

// [row:mr_rereg_mr_change_access][row:mr_rereg_mr_change_translation]
TEST_CASE(
    "a region changes [row:ibv_exp_rereg_mr] [row:mr_rereg_mr_change_pd] "
    "[row:contig_rereg_mr_allocate]") {
  Pair p(IBV_QPT_RC);
  std::vector<std::uint8_t> first(4096), second(8192);
  ibv_exp_reg_mr_in in{};
  in.pd = p.pd.get();
  in.addr = first.data();
  in.length = first.size();
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  const Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);
  constexpr std::uint64_t rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE;
  CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         rights | IBV_EXP_ACCESS_ALLOCATE_MR,
                         nullptr) == (switched_on("rereg_allocate") ? EINVAL : ENOTSUP));
  CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_ACCESS | IBV_EXP_REREG_MR_KEEP_VALID,
                         nullptr, nullptr, 0, rights, nullptr) == ENOTSUP);
  CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0, nullptr) ==
        EINVAL);
  const Rig elsewhere;
  CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_PD, elsewhere.pd.get(), nullptr, 0, 0,
                         nullptr) == EINVAL);
  REQUIRE(ibv_exp_rereg_mr(mr.get(),
                           IBV_EXP_REREG_MR_CHANGE_ACCESS | IBV_EXP_REREG_MR_CHANGE_TRANSLATION,
                           nullptr, second.data(), second.size(), rights, nullptr) == 0);
  auto piece = p.out.piece(0, size);
  auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(second.data()) + 4000;
  wr.wr.rdma.rkey = mr->rkey;
  p.post(wr);
  p.complete(1);
  CHECK(std::memcmp(second.data() + 4000, p.out.bytes.data(), size) == 0);

  // Into another protection domain: out of reach for this one's queue pairs.
  const Pd other(ibv_alloc_pd(p.context.get()));
  REQUIRE(other);
  REQUIRE(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_PD, other.get(), nullptr, 0, 0,
                           nullptr) == 0);
  CHECK(mr->pd == other.get());
  wr.wr.rdma.rkey = mr->rkey;
  p.post(wr);
  CHECK(p.take().status == IBV_WC_REM_ACCESS_ERR);
  REQUIRE(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_PD, p.pd.get(), nullptr, 0, 0,
                           nullptr) == 0);
}
