// Masked atomics, with IBVEXP_BEYOND=masked_atomics.
#include <endian.h>

#include <algorithm>

#include "dc_rig.h"
#include "log_of.h"
#include "pair.h"
#include "xrc_rig.h"

namespace {

struct Atomics : Pair {
  ibv_sge answer = out.piece(0, 8);
  std::size_t target = 64 - in.address() % 32;  // offset of an aligned place

  Atomics() : Pair(IBV_QPT_RC) { std::ranges::fill(out.bytes, 0); }

  void store(std::uint64_t value) { std::memcpy(in.bytes.data() + target, &value, 8); }
  std::uint64_t stored() const {
    std::uint64_t value;
    std::memcpy(&value, in.bytes.data() + target, 8);
    return value;
  }
  std::uint64_t answered() const {
    std::uint64_t value;
    std::memcpy(&value, out.bytes.data(), 8);
    return value;
  }

  ibv_exp_send_wr masked(ibv_exp_wr_opcode opcode, std::uint32_t log_size) {
    auto wr = request(5, opcode, &answer);
    wr.exp_send_flags |= IBV_EXP_SEND_EXT_ATOMIC_INLINE;
    answer.length = 1u << log_size;
    auto &atomic = wr.ext_op.masked_atomics;
    atomic.log_arg_sz = log_size;
    atomic.remote_addr = in.address(target);
    atomic.rkey = in.mr->rkey;
    return wr;
  }
  ibv_exp_send_wr compare_swap(std::uint32_t log_size, ibv_exp_cmp_swap op) {
    auto wr = masked(IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP, log_size);
    wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap = op;
    return wr;
  }
  ibv_exp_send_wr fetch_add(std::uint32_t log_size, ibv_exp_fetch_add op) {
    auto wr = masked(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, log_size);
    wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = op;
    return wr;
  }
};

ibv_exp_cmp_swap swap_of(std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                         std::uint64_t swap_mask) {
  return {compare_mask, compare, swap, swap_mask};
}

}  // namespace

TEST_CASE(
    "masked compare and swap looks at masked bits only "
    "[row:IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP]") {
  Atomics a;
  a.store(0x1111222233334444);
  SECTION("8 bytes") {
    auto wr = a.compare_swap(3, swap_of(0x4444, 0xffff, 0xaaaabbbbccccdddd, 0xffffffff00000000));
    a.post(wr);
    const auto wc = a.complete(5);
    CHECK(wc.exp_opcode == IBV_EXP_WC_MASKED_COMP_SWAP);
    CHECK(wc.byte_len == 8);
    CHECK(a.answered() == 0x1111222233334444);
    CHECK(a.stored() == 0xaaaabbbb33334444);
  }
  SECTION("no match") {
    auto wr = a.compare_swap(3, swap_of(0x4445, 0xffff, ~0ull, ~0ull));
    a.post(wr);
    a.complete(5);
    CHECK(a.answered() == 0x1111222233334444);
    CHECK(a.stored() == 0x1111222233334444);
  }
  SECTION("4 bytes, answered in network byte order") {
    auto wr = a.compare_swap(2, swap_of(0x33334444, 0xffffffff, 0x55556666, 0xffffffff));
    a.post(wr);
    CHECK(a.complete(5).byte_len == 4);
    CHECK(be32toh(static_cast<std::uint32_t>(a.answered())) == 0x33334444);
    CHECK(a.stored() == 0x1111222255556666);
  }
}

TEST_CASE(
    "masked fetch and add carries inside its fields only "
    "[row:IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD]") {
  Atomics a;
  a.store(0x00000001ffffffff);
  SECTION("one field") {
    auto wr = a.fetch_add(3, {1, 0});
    a.post(wr);
    const auto wc = a.complete(5);
    CHECK(wc.exp_opcode == IBV_EXP_WC_MASKED_FETCH_ADD);
    CHECK(wc.byte_len == 8);
    CHECK(a.answered() == 0x00000001ffffffff);
    CHECK(a.stored() == 0x0000000200000000);
  }
  SECTION("two fields") {
    auto wr = a.fetch_add(3, {0x0000000500000001, 1ull << 31});
    a.post(wr);
    a.complete(5);
    CHECK(a.stored() == 0x0000000600000000);
  }
  SECTION("4 bytes") {
    auto wr = a.fetch_add(2, {2, 0});
    a.post(wr);
    CHECK(a.complete(5).byte_len == 4);
    CHECK(a.stored() == 0x0000000100000001);
  }
}

TEST_CASE(
    "masked atomics reach a target over DC [row:extatomic_post_send] "
    "[row:extatomic_poll_verb] [row:extatomic_wr_masked_atomics]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci(16, GENERATE(false, true), GENERATE(false, true));
  const std::size_t target = 64 - dc.in.address() % 32;
  std::uint64_t value = 0x1111222233334444, answered;
  std::memcpy(dc.in.bytes.data() + target, &value, 8);
  auto answer = dc.out.piece(0, 8);
  const auto masked = [&](ibv_exp_wr_opcode opcode) {
    auto wr = dc.to(dct.get(), opcode, 5, &answer);
    wr.exp_send_flags |= IBV_EXP_SEND_EXT_ATOMIC_INLINE;
    wr.ext_op.masked_atomics.log_arg_sz = 3;
    wr.ext_op.masked_atomics.remote_addr = dc.in.address(target);
    wr.ext_op.masked_atomics.rkey = dc.in.mr->rkey;
    return wr;
  };
  auto swap = masked(IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP);
  swap.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap =
      swap_of(0x4444, 0xffff, 0xaaaabbbbccccdddd, 0xffffffff00000000);
  dc.post(dci.get(), swap);
  auto wc = dc.take();
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_MASKED_COMP_SWAP);
  CHECK(wc.byte_len == 8);
  std::memcpy(&value, dc.in.bytes.data() + target, 8);
  std::memcpy(&answered, dc.out.bytes.data(), 8);
  CHECK(value == 0xaaaabbbb33334444);
  CHECK(answered == 0x1111222233334444);

  auto add = masked(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD);
  add.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = {0x00000001ffffffff, 1ull << 31};
  // With others around it, and a wrong key on its own.
  auto piece = dc.out.piece(64, 100);
  auto write = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 6, &piece);
  dc.aim(write, 1024);
  add.next = &write;
  dc.post(dci.get(), add);
  wc = dc.take();
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_MASKED_FETCH_ADD);
  CHECK(dc.take().wr_id == 6);
  std::memcpy(&value, dc.in.bytes.data() + target, 8);
  CHECK(value == 0xaaaabbbc33334443);
  CHECK(std::equal(dc.in.bytes.begin() + 1024, dc.in.bytes.begin() + 1124,
                   dc.out.bytes.begin() + 64));
  add.next = nullptr;
  add.dc.dct_access_key = key + 1;
  dc.post(dci.get(), add);
  CHECK(dc.take().status == IBV_WC_RETRY_EXC_ERR);
  std::memcpy(&answered, dc.in.bytes.data() + target, 8);
  CHECK(answered == value);
}

TEST_CASE("masked atomics reach a receiver over XRC [row:extatomic_post_send]") {
  Xrc x;
  const auto init = [&] {
    ibv_exp_qp_init_attr attr =
        x.qp_attr(static_cast<ibv_qp_type>(GENERATE(int{IBV_QPT_XRC}, int{IBV_QPT_XRC_SEND})));
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG;
    attr.max_atomic_arg = 8;
    return attr;
  };
  auto attr = init();
  // Where every request is signalled, the device may put answers into completions.
  attr.sq_sig_all = GENERATE(0, 1);
  const Qp sender(ibv_exp_create_qp(x.context.get(), &attr));
  REQUIRE(sender);
  x.join(x.target.get(), sender->qp_num, false);
  x.join(sender.get(), x.target->qp_num, true);
  std::uint32_t receiver = 0;
  REQUIRE(ibv_get_srq_num(x.srq.get(), &receiver) == 0);

  const std::size_t target = 64 - x.in.address() % 32;
  std::uint64_t value = 0x1111222233334444, answered;
  std::memcpy(x.in.bytes.data() + target, &value, 8);
  auto answer = x.out.piece(0, 8);
  const auto masked = [&](ibv_exp_wr_opcode opcode) {
    auto wr = request(5, opcode, &answer);
    wr.exp_send_flags |= IBV_EXP_SEND_EXT_ATOMIC_INLINE;
    wr.ext_op.masked_atomics.log_arg_sz = 3;
    wr.ext_op.masked_atomics.remote_addr = x.in.address(target);
    wr.ext_op.masked_atomics.rkey = x.in.mr->rkey;
    wr.xrc_remote_srq_num = receiver;
    return wr;
  };
  const auto run = [&](ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(sender.get(), &wr, &bad) == 0);
    const auto wc = x.completions(1)[0];
    std::memcpy(&value, x.in.bytes.data() + target, 8);
    std::memcpy(&answered, x.out.bytes.data(), 8);
    return wc;
  };
  auto swap = masked(IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP);
  swap.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap =
      swap_of(0x4444, 0xffff, 0xaaaabbbbccccdddd, 0xffffffff00000000);
  auto wc = run(swap);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_MASKED_COMP_SWAP);
  CHECK(wc.byte_len == 8);
  CHECK(answered == 0x1111222233334444);
  CHECK(value == 0xaaaabbbb33334444);

  auto add = masked(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD);
  add.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = {0x00000001ffffffff, 1ull << 31};
  wc = run(add);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_MASKED_FETCH_ADD);
  CHECK(answered == 0xaaaabbbb33334444);
  CHECK(value == 0xaaaabbbc33334443);
}

TEST_CASE(
    "wide operands are where the request points "
    "[row:IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP]") {
  Atomics a;
  const std::uint32_t log_size = GENERATE(4u, 5u);
  const std::size_t bytes = std::size_t{1} << log_size;
  const auto offset = static_cast<std::ptrdiff_t>(a.target);
  std::vector<std::uint8_t> old(bytes), next(bytes), all(bytes, 0xff), sum(bytes);
  std::iota(old.begin(), old.end(), std::uint8_t{1});
  std::iota(next.begin(), next.end(), std::uint8_t{101});
  std::ranges::copy(old, a.in.bytes.begin() + offset);
  const auto at = [](const std::vector<std::uint8_t> &v) {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(v.data()));
  };
  auto swap = a.compare_swap(log_size, {at(all), at(old), at(next), at(all)});
  a.post(swap);
  CHECK(a.complete(5).byte_len == bytes);
  CHECK(std::equal(next.begin(), next.end(), a.in.bytes.begin() + offset));
  // In network byte order.
  CHECK(std::equal(old.rbegin(), old.rend(), a.out.bytes.begin()));

  // Across all bytes: ...ff + 1.
  std::fill_n(a.in.bytes.begin() + offset, bytes - 1, std::uint8_t{0xff});
  a.in.bytes[a.target + bytes - 1] = 0;
  std::vector<std::uint8_t> one(bytes), none(bytes);
  one[0] = 1;
  auto add = a.fetch_add(log_size, {at(one), at(none)});
  a.post(add);
  a.complete(5);
  sum[bytes - 1] = 1;
  CHECK(std::equal(sum.begin(), sum.end(), a.in.bytes.begin() + offset));
}

TEST_CASE("masked atomics mix with others in a chain [row:ibv_exp_post_send]") {
  Atomics a;
  a.store(10);
  auto source = a.in.piece(a.target, 8);
  source.lkey = a.in.mr->lkey;
  constexpr int count = 60;
  ibv_exp_send_wr wr[count];
  for (int i = 0; i < count; ++i) {
    if (i % 3 == 0) {
      wr[i] = a.fetch_add(3, {1, 0});
    } else if (i % 3 == 1) {
      wr[i] = request(0, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &a.answer);
      wr[i].wr.atomic.remote_addr = a.in.address(a.target);
      wr[i].wr.atomic.rkey = a.in.mr->rkey;
      wr[i].wr.atomic.compare_add = 1;
    } else {
      wr[i] = a.write(0, &source, 512);
    }
    wr[i].wr_id = static_cast<std::uint64_t>(i);
    wr[i].next = i + 1 < count ? &wr[i + 1] : nullptr;
    if (i % 4 == 1) wr[i].exp_send_flags &= ~std::uint64_t{IBV_EXP_SEND_SIGNALED};
  }
  a.post(wr[0]);
  for (int i = 0; i < count; ++i) {
    if (i % 4 == 1) continue;
    const auto wc = a.take();
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == static_cast<std::uint64_t>(i));
    CHECK(wc.exp_opcode == (i % 3 == 0   ? IBV_EXP_WC_MASKED_FETCH_ADD
                            : i % 3 == 1 ? IBV_EXP_WC_FETCH_ADD
                                         : IBV_EXP_WC_RDMA_WRITE));
  }
  CHECK(a.stored() == 10 + count / 3 * 2);
}

TEST_CASE("a full queue says so and goes on later [row:ibv_exp_post_send]") {
  Atomics a;
  a.store(0);
  std::uint64_t posted = 0, completed = 0;
  while (completed < 500) {
    auto wr = posted % 2 == 0 ? a.fetch_add(3, {1, 0}) : a.write(5, &a.answer, 512);
    ibv_exp_send_wr *bad = nullptr;
    const int error = a.Pair::post(wr, bad);
    if (error == 0) {
      ++posted;
      continue;
    }
    REQUIRE(error == ENOMEM);
    CHECK(bad == &wr);
    CHECK(posted - completed >= 64);
    REQUIRE(a.take().status == IBV_WC_SUCCESS);
    ++completed;
  }
  for (; completed < posted; ++completed) REQUIRE(a.take().status == IBV_WC_SUCCESS);
  CHECK(a.stored() == (posted + 1) / 2);
}

TEST_CASE("base verbs see legacy opcodes too [row:ibv_exp_post_send]") {
  Atomics a;
  auto wr = a.fetch_add(3, {1, 0});
  a.post(wr);
  ibv_wc wc{};
  int count = 0;
  while (count == 0) count = ibv_poll_cq(a.cq.get(), 1, &wc);
  REQUIRE(count == 1);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == 5);
  CHECK(static_cast<int>(wc.opcode) == IBV_EXP_WC_MASKED_FETCH_ADD);
  CHECK(wc.byte_len == 8);
}

TEST_CASE("bad masked atomics post nothing [row:IBV_EXP_SEND_EXT_ATOMIC_INLINE]") {
  Atomics a;
  a.store(7);
  auto good = a.fetch_add(3, {1, 0});
  auto bad_wr = a.fetch_add(3, {1, 0});
  good.next = &bad_wr;
  const char *field = "";
  SECTION("operands not in the request") {
    field = "exp_send_flags 0x2:";
    bad_wr.exp_send_flags &= ~std::uint64_t{IBV_EXP_SEND_EXT_ATOMIC_INLINE};
  }
  SECTION("too small") {
    field = "log_arg_sz 0x1:";
    bad_wr.ext_op.masked_atomics.log_arg_sz = 1;
  }
  SECTION("too large") {
    field = "log_arg_sz 0x6:";
    bad_wr.ext_op.masked_atomics.log_arg_sz = 6;
  }
  SECTION("wide without operands") {
    field = "ext_op.masked_atomics.wr_data 0x0:";
    bad_wr.ext_op.masked_atomics.log_arg_sz = 4;
    bad_wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = {0, 0};
  }
  SECTION("negative pieces") {
    field = "num_sge 0xffffffff:";
    bad_wr.num_sge = -1;
  }
  SECTION("no list of pieces") { bad_wr.sg_list = nullptr; }
  ibv_exp_send_wr *bad = nullptr;
  const std::string said = log_of([&] { CHECK(a.Pair::post(good, bad) == EINVAL); });
  CAPTURE(said);
  CHECK(said.find(field) != std::string::npos);
  CHECK(bad == &bad_wr);
  a.complete(5);
  CHECK(a.stored() == 8);
}

TEST_CASE(
    "masked atomics are refused on datagrams and where they miss "
    "[row:IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP]") {
  Atomics a;
  SECTION("wrong type") {
    Pair uc(IBV_QPT_UC);
    auto wr = a.fetch_add(3, {1, 0});
    ibv_exp_send_wr *bad = nullptr;
    CHECK(uc.post(wr, bad) == EINVAL);
    CHECK(bad == &wr);
  }
  SECTION("misaligned") {
    auto wr = a.fetch_add(3, {1, 0});
    wr.ext_op.masked_atomics.remote_addr += 1;
    a.post(wr);
    const auto wc = a.completions(1)[0];
    CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR);
    CHECK(wc.wr_id == 5);
  }
}

TEST_CASE(
    "masked atomics are reported where they can be posted "
    "[row:IBV_EXP_DEVICE_EXT_MASKED_ATOMICS]") {
  Atomics a;
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(a.context.get(), &attr) == 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_EXT_MASKED_ATOMICS) != 0);
  auto wr = a.fetch_add(3, {1, 0});
  ibv_exp_send_wr *bad = nullptr;
  CHECK(a.post(wr, bad) == 0);
  a.completions(1);
}

TEST_CASE("room for wide arguments is granted [row:ibv_exp_qp_init_attr.max_atomic_arg]") {
  Rig rig;
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG;
  attr.max_atomic_arg = 32;
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  CHECK(attr.max_atomic_arg == 32);
  attr.max_atomic_arg = 64;
  const Qp wide(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(wide);
  CHECK(attr.max_atomic_arg == 64);
}

TEST_CASE(
    "what masked atomics can do is reported [row:IBV_EXP_DEVICE_EXT_MASKED_ATOMICS] "
    "[row:extatomic_query_ext_atom]") {
  Rig rig;
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS |
                   IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &attr) == 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_EXT_ATOMICS) != 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_EXT_MASKED_ATOMICS) != 0);
  CHECK((attr.comp_mask & IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS) != 0);
  CHECK((attr.comp_mask & IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS) != 0);
  CHECK(attr.ext_atom.log_atomic_arg_sizes == 0x8);
  CHECK(attr.masked_atomic.masked_log_atomic_arg_sizes == 0x3c);
  CHECK(attr.masked_atomic.masked_log_atomic_arg_sizes_network_endianness == 0x34);
}

// Direct transports take the sizes of both structures together, cut them by what the
// first says of inline data, and swap the bytes of answers that the second lists.
TEST_CASE("both sets of sizes together offer 32 and 64 bits [row:extatomic_query_ext_atom]") {
  Rig rig;
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &attr) == 0);
  const std::uint64_t inline_sizes = (2ull << attr.ext_atom.log_max_atomic_inline) - 1;
  const std::uint64_t sizes =
      (attr.ext_atom.log_atomic_arg_sizes | attr.masked_atomic.masked_log_atomic_arg_sizes) &
      inline_sizes;
  CHECK((sizes & 4) != 0);
  CHECK((sizes & 8) != 0);
  const std::uint64_t big_endian =
      attr.masked_atomic.masked_log_atomic_arg_sizes_network_endianness;
  CHECK((big_endian & 4) != 0);
  CHECK((big_endian & 8) == 0);
}
