// Erasure coding: refused by default, on request calculated by the processor.
#include <field_product.h>
#include <skip.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "rig.h"

namespace {

bool served() { return switched_on("erasure_coding"); }

void free_calc(ibv_exp_ec_calc *calc) { ibv_exp_dealloc_ec_calc(calc); }
struct FreesCalc {
  void operator()(ibv_exp_ec_calc *calc) const { free_calc(calc); }
};
using Calc = std::unique_ptr<ibv_exp_ec_calc, FreesCalc>;

using support::field_product;

unsigned inverse(unsigned a, int w) {
  for (unsigned b = 1; b < 1u << w; ++b)
    if (field_product(a, b, w) == 1) return b;
  return 0;
}

std::uint8_t byte_product(unsigned factor, std::uint8_t byte, int w) {
  if (w == 8) return static_cast<std::uint8_t>(field_product(factor, byte, 8));
  return static_cast<std::uint8_t>(field_product(factor, byte & 15u, 4) |
                                   field_product(factor, byte >> 4, 4) << 4);
}

// k data blocks and m code blocks, of a matrix each of whose squares can be inverted (Cauchy).
struct Code : Rig {
  int k, m, w;
  std::size_t size;
  std::vector<std::uint8_t> matrix;
  Buffer memory, spare;
  std::vector<ibv_sge> data, code;
  ibv_exp_ec_calc_init_attr attr{};
  ibv_exp_ec_mem mem{};
  std::mt19937 chance{17};

  Code(int k_, int m_, int w_, std::size_t block)
      : k(k_),
        m(m_),
        w(w_),
        size(block),
        memory(pd.get(), static_cast<std::size_t>(k_ + m_) * block),
        spare(pd.get(), 16 * block) {
    matrix.resize(static_cast<std::size_t>(k * m));
    for (int j = 0; j < k; ++j)
      for (int i = 0; i < m; ++i)
        matrix[static_cast<std::size_t>(j * m + i)] =
            static_cast<std::uint8_t>(inverse(static_cast<unsigned>(j ^ (k + i)), w));
    for (auto &byte : memory.bytes) byte = static_cast<std::uint8_t>(chance());
    for (int b = 0; b < k + m; ++b)
      (b < k ? data : code)
          .push_back(
              memory.piece(static_cast<std::size_t>(b) * size, static_cast<std::uint32_t>(size)));
    mem = {data.data(), k, code.data(), m, static_cast<int>(size)};
    attr.comp_mask = 0x1ff;
    attr.max_inflight_calcs = 4;
    attr.k = k;
    attr.m = m;
    attr.w = w;
    attr.max_data_sge = k + 2;
    attr.max_code_sge = m;
    attr.encode_matrix = matrix.data();
  }

  Calc alloc() {
    Calc calc(ibv_exp_alloc_ec_calc(pd.get(), &attr));
    REQUIRE(calc);
    CHECK(calc->pd == pd.get());
    return calc;
  }

  std::uint8_t *block(int b) { return memory.bytes.data() + static_cast<std::size_t>(b) * size; }

  std::vector<std::uint8_t> encoded() {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(m) * size);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < k; ++j)
        for (std::size_t at = 0; at < size; ++at)
          out[static_cast<std::size_t>(i) * size + at] ^=
              byte_product(matrix[static_cast<std::size_t>(j * m + i)], block(j)[at], w);
    return out;
  }
  bool holds_code(const std::vector<std::uint8_t> &expected) {
    return std::equal(expected.begin(), expected.end(), block(k));
  }
  void wipe(int b) { std::fill_n(block(b), size, std::uint8_t{0xee}); }

  // What the lost blocks are made of: rows of the first k that are left, columns of the lost.
  std::vector<std::uint8_t> decoding(const std::vector<std::uint8_t> &lost) {
    const auto n = static_cast<std::size_t>(k);
    std::vector<std::vector<unsigned>> left, all;
    for (int b = 0; b < k + m; ++b) {
      std::vector<unsigned> row(n);
      for (int j = 0; j < k; ++j)
        row[static_cast<std::size_t>(j)] =
            b < k ? unsigned{b == j} : matrix[static_cast<std::size_t>(j * m + b - k)];
      all.push_back(row);
      if (lost[static_cast<std::size_t>(b)] == 0 && left.size() < n) left.push_back(row);
    }
    std::vector<std::vector<unsigned>> inverted(n, std::vector<unsigned>(n));
    for (std::size_t i = 0; i < n; ++i) inverted[i][i] = 1;
    for (std::size_t column = 0; column < n; ++column) {
      std::size_t pivot = column;
      while (left[pivot][column] == 0) ++pivot;
      std::swap(left[pivot], left[column]);
      std::swap(inverted[pivot], inverted[column]);
      const unsigned by = inverse(left[column][column], w);
      for (std::size_t j = 0; j < n; ++j) {
        left[column][j] = field_product(left[column][j], by, w);
        inverted[column][j] = field_product(inverted[column][j], by, w);
      }
      for (std::size_t row = 0; row < n; ++row) {
        const unsigned times = left[row][column];
        if (row == column || times == 0) continue;
        for (std::size_t j = 0; j < n; ++j) {
          left[row][j] ^= field_product(times, left[column][j], w);
          inverted[row][j] ^= field_product(times, inverted[column][j], w);
        }
      }
    }
    const auto columns = static_cast<std::size_t>(std::count(lost.begin(), lost.end(), 1));
    std::vector<std::uint8_t> out(n * columns);
    std::size_t column = 0;
    for (std::size_t b = 0; b < all.size(); ++b) {
      if (lost[b] == 0) continue;
      for (std::size_t from = 0; from < n; ++from) {
        unsigned sum = 0;
        for (std::size_t j = 0; j < n; ++j) sum ^= field_product(all[b][j], inverted[j][from], w);
        out[from * columns + column] = static_cast<std::uint8_t>(sum);
      }
      ++column;
    }
    return out;
  }
};

// Counts its calls, and starts as many more calculations from within them as `again` says.
struct Report : ibv_exp_ec_comp {
  std::atomic<int> count{0};
  int again = 0;
  ibv_exp_ec_calc *calc = nullptr;
  ibv_exp_ec_mem *mem = nullptr;
  std::thread::id thread;
  Report() {
    status = IBV_EXP_EC_CALC_FAIL;
    done = [](ibv_exp_ec_comp *comp) {
      auto &self = *static_cast<Report *>(comp);
      self.thread = std::this_thread::get_id();
      if (self.again-- > 0 && ibv_exp_ec_encode_async(self.calc, self.mem, comp) != 0)
        self.count = -1000;
      ++self.count;
      self.count.notify_one();
    };
  }
  void wait_for(int n) {
    for (int now = count; now < n; now = count) count.wait(now);
  }
};

}  // namespace

TEST_CASE(
    "erasure coding is reported on request only [row:IBV_EXP_DEVICE_EC_OFFLOAD]"
    "[row:IBV_EXP_DEVICE_ATTR_EC_CAPS][row:IBV_EXP_DEVICE_ATTR_EC_GF_BASE]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.ec_w_mask = ~0u;
  const std::uint32_t asked = IBV_EXP_DEVICE_ATTR_EC_CAPS | IBV_EXP_DEVICE_ATTR_EC_GF_BASE;
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | asked;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  CHECK(((device.exp_device_cap_flags & IBV_EXP_DEVICE_EC_OFFLOAD) != 0) == served());
  CHECK((device.comp_mask & asked) == (served() ? asked : 0));
  if (served()) {
    CHECK(device.ec_w_mask == (1u << 3 | 1u << 7));
    CHECK(device.ec_caps.max_ec_data_vector_count == 255);
    CHECK(device.ec_caps.max_ec_calc_inflight_calcs == 1024);
  }
}

TEST_CASE("code blocks are sums of data blocks [row:ibv_exp_ec_encode_sync]") {
  if (!served()) {
    Rig rig;
    ibv_exp_ec_calc_init_attr attr{};
    attr.comp_mask = 0x1ff;
    errno = 0;
    CHECK(ibv_exp_alloc_ec_calc(rig.pd.get(), &attr) == nullptr);
    CHECK(errno == ENOTSUP);
    return;
  }
  const int w = GENERATE(4, 8);
  const auto [k, m] = GENERATE(std::pair(1, 1), std::pair(4, 2), std::pair(10, 4));
  const auto size = GENERATE(std::size_t{64}, std::size_t{4096});
  Code code(k, m, w, size);
  const Calc calc = code.alloc();
  const auto expected = code.encoded();
  REQUIRE(ibv_exp_ec_encode_sync(calc.get(), &code.mem) == 0);
  CHECK(code.holds_code(expected));

  // The same blocks in other pieces.
  for (int b = 0; b < m; ++b) code.wipe(k + b);
  const auto total = static_cast<std::uint32_t>(static_cast<std::size_t>(k) * size);
  ibv_sge cut[] = {code.memory.piece(0, 17), code.memory.piece(17, total - 17)};
  ibv_sge whole = code.memory.piece(total, static_cast<std::uint32_t>(m * static_cast<int>(size)));
  ibv_exp_ec_mem other{cut, 2, &whole, 1, static_cast<int>(size)};
  REQUIRE(ibv_exp_ec_encode_sync(calc.get(), &other) == 0);
  CHECK(code.holds_code(expected));
}

TEST_CASE("lost blocks come back [row:ibv_exp_ec_decode_sync]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  const int w = GENERATE(4, 8);
  Code code(5, 3, w, 128);
  const Calc calc = code.alloc();
  REQUIRE(ibv_exp_ec_encode_sync(calc.get(), &code.mem) == 0);
  const std::vector<std::uint8_t> whole = code.memory.bytes;
  for (unsigned map = 1; map < 256; ++map) {
    if (__builtin_popcount(map) > 3) continue;
    std::vector<std::uint8_t> lost(8);
    for (int b = 0; b < 8; ++b) {
      lost[static_cast<std::size_t>(b)] = map >> b & 1;
      if ((map >> b & 1) != 0) code.wipe(b);
    }
    auto decoding = code.decoding(lost);
    // As headers since 3.3 have it, and as a word, as they had it before.
    auto *const argument =
        map % 2 == 0 ? lost.data() : reinterpret_cast<std::uint8_t *>(std::uintptr_t{map});
    REQUIRE(ibv_exp_ec_decode_sync(calc.get(), &code.mem, argument, decoding.data()) == 0);
    REQUIRE(code.memory.bytes == whole);
  }
}

TEST_CASE(
    "changes are brought into code blocks "
    "[row:ibv_exp_ec_update_sync][row:ibv_exp_ec_update_async]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  const int w = GENERATE(4, 8);
  Code code(7, 3, w, 192);
  const Calc calc = code.alloc();
  REQUIRE(ibv_exp_ec_encode_sync(calc.get(), &code.mem) == 0);
  const std::vector<std::uint8_t> before = code.memory.bytes;
  // Blocks 2 and 5 change; code blocks 0 and 2 follow.
  std::uint8_t changed[7] = {0, 0, 1, 0, 0, 1, 0}, wanted[3] = {1, 0, 1};
  std::vector<ibv_sge> in;
  std::size_t at = 0;
  const auto put = [&](const std::uint8_t *from) {
    std::copy_n(from, code.size, code.spare.bytes.data() + at);
    in.push_back(code.spare.piece(at, static_cast<std::uint32_t>(code.size)));
    at += code.size;
  };
  put(code.block(7));
  put(code.block(9));
  for (const int b : {2, 5}) {
    put(code.block(b));
    for (std::size_t i = 0; i < code.size; ++i)
      code.block(b)[i] = static_cast<std::uint8_t>(code.chance());
    put(code.block(b));
  }
  const auto out_at = at;
  // What was there does not count.
  std::fill_n(code.spare.bytes.data() + out_at, 2 * code.size, std::uint8_t{0xee});
  ibv_sge out = code.spare.piece(out_at, static_cast<std::uint32_t>(2 * code.size));
  ibv_exp_ec_mem mem{in.data(), static_cast<int>(in.size()), &out, 1, static_cast<int>(code.size)};
  if (w == 4) {
    REQUIRE(ibv_exp_ec_update_sync(calc.get(), &mem, changed, wanted) == 0);
  } else {
    Report report;
    REQUIRE(ibv_exp_ec_update_async(calc.get(), &mem, changed, wanted, &report) == 0);
    report.wait_for(1);
  }
  const auto expected = code.encoded();
  const auto made = code.spare.bytes.begin() + static_cast<std::ptrdiff_t>(out_at);
  const auto block = static_cast<std::ptrdiff_t>(code.size);
  CHECK(std::equal(made, made + block, expected.begin()));
  CHECK(std::equal(made + block, made + 2 * block, expected.begin() + 2 * block));
  // Neither kind of them is empty, and the lists hold what the maps say.
  std::uint8_t none[7] = {};
  CHECK(ibv_exp_ec_update_sync(calc.get(), &mem, none, wanted) == -EINVAL);
  CHECK(ibv_exp_ec_update_sync(calc.get(), &mem, changed, none) == -EINVAL);
  CHECK(ibv_exp_ec_update_sync(calc.get(), &mem, nullptr, wanted) == -EINVAL);
  wanted[1] = 1;
  CHECK(ibv_exp_ec_update_sync(calc.get(), &mem, changed, wanted) == -EINVAL);
}

TEST_CASE(
    "a thread reports what was asked for [row:IBV_EXP_EC_CALC_SUCCESS]"
    "[row:ibv_exp_ec_encode_async][row:ibv_exp_ec_decode_async][row:ibv_exp_dealloc_ec_calc]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  Code code(4, 2, 8, 4096);
  const auto expected = code.encoded();
  Report report, last;
  {
    const Calc calc = code.alloc();
    report.calc = calc.get();
    report.mem = &code.mem;
    report.again = 99;
    REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &report) == 0);
    report.wait_for(100);
    CHECK(report.status == IBV_EXP_EC_CALC_SUCCESS);
    CHECK(report.thread != std::this_thread::get_id());
    CHECK(code.holds_code(expected));

    std::vector<std::uint8_t> lost = {0, 1, 0, 0, 0, 1};
    auto decoding = code.decoding(lost);
    const auto whole = code.memory.bytes;
    code.wipe(1);
    code.wipe(5);
    Report decoded;
    REQUIRE(ibv_exp_ec_decode_async(calc.get(), &code.mem, lost.data(), decoding.data(),
                                    &decoded) == 0);
    decoded.wait_for(1);
    CHECK(code.memory.bytes == whole);
    CHECK(ibv_exp_ec_encode_async(calc.get(), &code.mem, nullptr) == EINVAL);
    CHECK(ibv_exp_ec_poll(calc.get(), 1) == -EINVAL);
    REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &last) == 0);
  }
  // Freed only once it has reported.
  CHECK(last.count == 1);

  // Not by its own report, which the thread would wait for.
  struct Frees : ibv_exp_ec_comp {
    ibv_exp_ec_calc *calc;
    int close_error = 0;
    std::atomic<int> answer{0};
  } frees;
  const Calc calc = code.alloc();
  frees.calc = calc.get();
  frees.done = [](ibv_exp_ec_comp *comp) {
    auto &self = *static_cast<Frees *>(comp);
#ifndef IBVEXP_EXTERN_CALLS  // the base verb is rdma-core's alone
    if (ibv_close_device(self.calc->pd->context) != 0) self.close_error = errno;
#endif
    errno = 0;
    free_calc(self.calc);
    self.answer = errno;
    self.answer.notify_one();
  };
  REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &frees) == 0);
  frees.answer.wait(0);
#ifndef IBVEXP_EXTERN_CALLS
  CHECK(frees.close_error == EBUSY);
#endif
  CHECK(frees.answer == EINVAL);
  CHECK(ibv_exp_ec_encode_sync(calc.get(), &code.mem) == 0);
}

TEST_CASE("a child calculates what it asks for itself [row:ibv_exp_ec_encode_async]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  Code code(4, 2, 8, 64);
  code.attr.polling = GENERATE(0, 1);
  const Calc calc = code.alloc();
  // Waits in its report, so that a second calculation waits behind it.
  struct Waits : Report {
    std::atomic<bool> started{false}, may_end{false};
  } waits;
  waits.done = [](ibv_exp_ec_comp *comp) {
    auto &self = *static_cast<Waits *>(comp);
    self.started = true;
    self.started.notify_one();
    self.may_end.wait(false);
  };
  Report behind, own;
  REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &waits) == 0);
  REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &behind) == 0);
  if (code.attr.polling == 0) waits.started.wait(false);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (ibv_exp_ec_encode_async(calc.get(), &code.mem, &own) != 0) _exit(1);
    if (code.attr.polling != 0 && ibv_exp_ec_poll(calc.get(), 4) != 1) _exit(2);
    own.wait_for(1);
    _exit(behind.count == 0 && !waits.may_end ? 0 : 3);
  }
  int ended = -1;
  REQUIRE(waitpid(child, &ended, 0) == child);
  CHECK(ended == 0);
  waits.may_end = true;
  waits.may_end.notify_one();
  if (code.attr.polling != 0) CHECK(ibv_exp_ec_poll(calc.get(), 4) == 2);
  behind.wait_for(1);
  CHECK(own.count == 0);
}

TEST_CASE("a polled calculation reports when asked [row:ibv_exp_ec_poll]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  Code code(4, 2, 4, 64);
  code.attr.polling = 1;
  code.attr.max_inflight_calcs = 3;
  Report forgotten;
  {
    const Calc calc = code.alloc();
    REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &forgotten) == 0);
  }
  CHECK(forgotten.count == 0);

  const Calc calc = code.alloc();
  const auto expected = code.encoded();
  std::array<Report, 4> reports;
  CHECK(ibv_exp_ec_poll(calc.get(), 5) == 0);
  for (int i = 0; i < 3; ++i)
    REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &reports[static_cast<unsigned>(i)]) ==
            0);
  CHECK(ibv_exp_ec_encode_async(calc.get(), &code.mem, &reports[3]) == ENOMEM);
  CHECK(reports[0].count == 0);
  CHECK(ibv_exp_ec_poll(calc.get(), 1) == 1);
  CHECK(reports[0].count == 1);
  CHECK(reports[1].count == 0);
  CHECK(code.holds_code(expected));
  REQUIRE(ibv_exp_ec_encode_async(calc.get(), &code.mem, &reports[3]) == 0);
  CHECK(ibv_exp_ec_poll(calc.get(), 0) == 0);
  CHECK(ibv_exp_ec_poll(calc.get(), -1) == -EINVAL);
  CHECK(ibv_exp_ec_poll(calc.get(), 16) == 3);
  for (const Report &report : reports) {
    CHECK(report.count == 1);
    CHECK(report.thread == std::this_thread::get_id());
  }
}

TEST_CASE(
    "blocks and their code are sent "
    "[row:ibv_exp_ec_encode_send][row:IBV_EXP_QP_CREATE_EC_PARITY_EN]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  Code code(3, 2, 8, 512);
  const Calc calc = code.alloc();
  std::vector<Qp> from, to;
  std::vector<ibv_exp_ec_stripe> stripes(5);
  std::vector<ibv_send_wr> requests(5);
  Buffer there(code.pd.get(), 5 * code.size);
  for (std::size_t b = 0; b < 5; ++b) {
    auto attr = code.qp_attr(IBV_QPT_RC);
    attr.exp_create_flags = IBV_EXP_QP_CREATE_EC_PARITY_EN;
    from.emplace_back(ibv_exp_create_qp(code.context.get(), &attr));
    REQUIRE(from.back());
    to.push_back(code.create_qp(IBV_QPT_RC));
    code.connect(from.back().get(), to.back()->qp_num);
    code.connect(to.back().get(), from.back()->qp_num);
    post_receive(to.back().get(), 100 + b,
                 there.piece(b * code.size, static_cast<std::uint32_t>(code.size)));
    requests[b] = {};
    requests[b].wr_id = b;
    requests[b].sg_list = b < 3 ? &code.data[b] : &code.code[b - 3];
    requests[b].num_sge = 1;
    requests[b].opcode = IBV_WR_SEND;
    requests[b].send_flags = IBV_SEND_SIGNALED;
    stripes[b] = {from.back().get(), &requests[b]};
  }
  const auto expected = code.encoded();
  // Nothing goes out of what is wrong.
  stripes[4].wr = nullptr;
  CHECK(ibv_exp_ec_encode_send(calc.get(), &code.mem, &stripes[0], &stripes[3]) == -EINVAL);
  CHECK(ibv_exp_ec_encode_send(calc.get(), &code.mem, &stripes[0], nullptr) == -EINVAL);
  stripes[4].wr = &requests[4];
  REQUIRE(ibv_exp_ec_encode_send(calc.get(), &code.mem, &stripes[0], &stripes[3]) == 0);
  for (const ibv_exp_wc &wc : code.completions(10)) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(code.holds_code(expected));
  CHECK(there.bytes == code.memory.bytes);
}

TEST_CASE(
    "calculations that cannot be [row:ibv_exp_alloc_ec_calc]"
    "[rows:owner=ibv_exp_ec_calc_attr_comp_mask]") {
  SKIP_IF(!served(), "erasure coding is not switched on");
  Code code(4, 2, 4, 64);
  const auto refused = [&](auto change) {
    auto attr = code.attr;
    change(attr);
    errno = 0;
    CHECK(ibv_exp_alloc_ec_calc(code.pd.get(), &attr) == nullptr);
    CHECK(errno == EINVAL);
  };
  using Attr = ibv_exp_ec_calc_init_attr;
  for (const std::uint32_t bit : {IBV_EXP_EC_CALC_ATTR_K, IBV_EXP_EC_CALC_ATTR_M,
                                  IBV_EXP_EC_CALC_ATTR_W, IBV_EXP_EC_CALC_ATTR_ENCODE_MAT})
    refused([&](Attr &attr) { attr.comp_mask &= ~bit; });
  refused([](Attr &attr) { attr.comp_mask |= IBV_EXP_EC_CALC_INIT_ATTR_RESERVED; });
  for (const int w : {0, 1, 3, 5, 16, -4}) refused([&](Attr &attr) { attr.w = w; });
  refused([](Attr &attr) { attr.k = 0; });
  refused([](Attr &attr) { attr.m = -1; });
  refused([](Attr &attr) { attr.k = 15; });
  refused([](Attr &attr) { attr.m = 13; });
  refused([](Attr &attr) { attr.k = 1 << 30; });
  refused([](Attr &attr) { attr.max_inflight_calcs = 0; });
  refused([](Attr &attr) { attr.max_inflight_calcs = 1025; });
  refused([](Attr &attr) { attr.max_data_sge = 0; });
  refused([](Attr &attr) { attr.max_code_sge = 0; });
  refused([](Attr &attr) { attr.encode_matrix = nullptr; });
#ifdef EXP_LIBRARY  // the legacy inline reads them itself
  errno = 0;
  CHECK(ibv_exp_alloc_ec_calc(code.pd.get(), nullptr) == nullptr);
  CHECK(errno == EINVAL);
#endif

  // As many blocks as the field takes.
  {
    Code largest(14, 2, 4, 64);
    const Calc calc = largest.alloc();
    const auto expected = largest.encoded();
    REQUIRE(ibv_exp_ec_encode_sync(calc.get(), &largest.mem) == 0);
    CHECK(largest.holds_code(expected));
  }

  // What is not named has what the blocks need.
  code.attr.comp_mask = IBV_EXP_EC_CALC_ATTR_K | IBV_EXP_EC_CALC_ATTR_M | IBV_EXP_EC_CALC_ATTR_W |
                        IBV_EXP_EC_CALC_ATTR_ENCODE_MAT;
  const Calc calc = code.alloc();
  REQUIRE(ibv_exp_ec_encode_sync(calc.get(), &code.mem) == 0);
  const auto wrong = [&](auto change) {
    auto mem = code.mem;
    change(mem);
    const auto before = code.memory.bytes;
    CHECK(ibv_exp_ec_encode_sync(calc.get(), &mem) == EINVAL);
    CHECK(code.memory.bytes == before);
  };
  using Mem = ibv_exp_ec_mem;
  wrong([](Mem &mem) { mem.block_size = 0; });
  wrong([](Mem &mem) { mem.block_size = -64; });
  wrong([](Mem &mem) { mem.block_size = 63; });
  wrong([](Mem &mem) { mem.block_size = 128; });
  wrong([](Mem &mem) { mem.num_data_sge = 3; });
  wrong([](Mem &mem) { mem.num_data_sge = 5; });
  wrong([](Mem &mem) { mem.num_code_sge = 0; });
  // The right length in one piece more, a byte more in the last, and blocks of an odd size.
  const auto bytes = static_cast<std::uint32_t>(code.size);
  std::vector<ibv_sge> cut = code.data;
  cut.push_back(cut.back());
  cut[3].length = bytes / 2;
  cut[4].addr += bytes / 2;
  cut[4].length = bytes / 2;
  wrong([&](Mem &mem) { mem.data_blocks = cut.data(), mem.num_data_sge = 5; });
  std::vector<ibv_sge> longer = code.data;
  ++longer[3].length;
  wrong([&](Mem &mem) { mem.data_blocks = longer.data(); });
  std::vector<ibv_sge> half_data = code.data, half_code = code.code;
  for (auto *list : {&half_data, &half_code})
    for (ibv_sge &piece : *list) piece.length = bytes / 2;
  wrong([&](Mem &mem) {
    mem.data_blocks = half_data.data();
    mem.code_blocks = half_code.data();
    mem.block_size = static_cast<int>(bytes / 2);
  });
  wrong([](Mem &mem) { mem.data_blocks = nullptr; });
  wrong([](Mem &mem) { mem.code_blocks = nullptr; });
  CHECK(ibv_exp_ec_encode_sync(calc.get(), nullptr) == EINVAL);

  std::uint8_t lost[6] = {}, matrix[24] = {};
  CHECK(ibv_exp_ec_decode_sync(calc.get(), &code.mem, lost, matrix) == EINVAL);
  CHECK(ibv_exp_ec_decode_sync(calc.get(), &code.mem, nullptr, matrix) == EINVAL);
  lost[0] = lost[1] = lost[2] = 1;
  CHECK(ibv_exp_ec_decode_sync(calc.get(), &code.mem, lost, matrix) == EINVAL);
  lost[1] = lost[2] = 0;
  CHECK(ibv_exp_ec_decode_sync(calc.get(), &code.mem, lost, nullptr) == EINVAL);
  CHECK(ibv_exp_ec_decode_sync(calc.get(), &code.mem, reinterpret_cast<std::uint8_t *>(64),
                               matrix) == EINVAL);

  ibv_exp_ec_calc *const gone = code.alloc().release();
  free_calc(gone);
  CHECK(ibv_exp_ec_encode_sync(gone, &code.mem) == EINVAL);
  errno = 0;
  free_calc(gone);
  CHECK(errno == EINVAL);
}
