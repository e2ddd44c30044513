// Completions as the device writes them, and its clock, without a device.
#include "translate/convert/clock_convert.h"
#include "translate/convert/cqe_convert.h"

#include <catch.h>

#include <cstring>
#include <vector>

using namespace ibvexp;
using namespace ibvexp::translate;

namespace {

mlx5_cqe64 entry(std::uint8_t opcode) {
  mlx5_cqe64 cqe{};
  cqe.op_own = static_cast<std::uint8_t>(opcode << 4);
  cqe.sop_drop_qpn = htobe32(0x77001234);
  cqe.byte_cnt = htobe32(999);
  return cqe;
}

ibv_wc modern(const mlx5_cqe64 &cqe) {
  ibv_wc wc{};
  to_modern(cqe, wc);
  return wc;
}

mlx5dv_clock_info page(std::uint64_t cycles, std::uint64_t frac = 0) {
  mlx5dv_clock_info info{};
  info.nsec = 1'700'000'000'000'000'000;
  info.last_cycles = cycles;
  info.frac = frac;
  info.mult = 0x6400000 / 10 * 10 + 7;  // 6.4 ns a cycle, and not evenly
  info.shift = 24;
  info.mask = (std::uint64_t{1} << 48) - 1;
  return info;
}

}  // namespace

TEST_CASE("entries of received messages [row:IBV_EXP_WC_RECV]") {
  mlx5_cqe64 cqe = entry(MLX5_CQE_RESP_SEND);
  cqe.flags_rqpn = htobe32(1u << 28 | 5u << 24 | 0xabcdef);
  cqe.slid = htobe16(0x1357);
  cqe.ml_path = 0xff;
  cqe.imm_inval_pkey = htobe32(0x8001);
  auto wc = modern(cqe);
  CHECK(wc.opcode == IBV_WC_RECV);
  CHECK(wc.qp_num == 0x1234);
  CHECK(wc.byte_len == 999);
  CHECK(wc.src_qp == 0xabcdef);
  CHECK(wc.sl == 5);
  CHECK(wc.slid == 0x1357);
  CHECK(wc.dlid_path_bits == 0x7f);
  CHECK(wc.pkey_index == 0x8001);
  CHECK(wc.wc_flags == IBV_WC_GRH);
  cqe.flags_rqpn = 0;
  CHECK(modern(cqe).wc_flags == 0);

  cqe.op_own = MLX5_CQE_RESP_SEND_IMM << 4;
  wc = modern(cqe);
  CHECK(wc.opcode == IBV_WC_RECV);
  CHECK(wc.wc_flags == IBV_WC_WITH_IMM);
  CHECK(wc.imm_data == htobe32(0x8001));
  cqe.op_own = MLX5_CQE_RESP_WR_IMM << 4;
  CHECK(modern(cqe).opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  cqe.op_own = MLX5_CQE_RESP_SEND_INV << 4;
  wc = modern(cqe);
  CHECK(wc.wc_flags == IBV_WC_WITH_INV);
  CHECK(wc.invalidated_rkey == 0x8001);
}

TEST_CASE("entries of requests and of errors") {
  mlx5_cqe64 cqe = entry(MLX5_CQE_REQ);
  CHECK(modern(cqe).byte_len == 999);
  CHECK(modern(cqe).qp_num == 0x1234);
  for (const std::uint8_t opcode : {MLX5_CQE_REQ_ERR, MLX5_CQE_RESP_ERR}) {
    cqe = entry(opcode);
    auto *bytes = reinterpret_cast<std::uint8_t *>(&cqe);
    bytes[54] = 0x88;
    bytes[55] = 0x13;
    const auto wc = modern(cqe);
    CHECK(wc.vendor_err == 0x88);
    CHECK(wc.byte_len == 0);
    CHECK(cqe::syndrome(cqe) == 0x13);
    cqe.sop_drop_qpn = htobe32(0xff654321);  // numbers have 24 bits
    CHECK(modern(cqe).qp_num == 0x654321);
  }
}

TEST_CASE("checksums count for IPv4 only, and together [row:IBV_EXP_WC_RX_IP_CSUM_OK]") {
  mlx5_cqe64 cqe{};
  for (const int checks :
       {0, int{MLX5_CQE_L3_OK}, int{MLX5_CQE_L4_OK}, MLX5_CQE_L3_OK | MLX5_CQE_L4_OK})
    for (const std::uint8_t type :
         {MLX5_CQE_L3_HDR_TYPE_NONE, MLX5_CQE_L3_HDR_TYPE_IPV6, MLX5_CQE_L3_HDR_TYPE_IPV4}) {
      cqe.hds_ip_ext = static_cast<std::uint8_t>(checks);
      cqe.l4_hdr_type_etc = static_cast<std::uint8_t>(type << 2);
      CHECK(cqe::checksum_ok(cqe) ==
            (checks == (MLX5_CQE_L3_OK | MLX5_CQE_L4_OK) && type == MLX5_CQE_L3_HDR_TYPE_IPV4));
    }
}

TEST_CASE("cycles become what rdma-core computes [row:ibv_exp_cqe_ts_to_ns]") {
  for (const std::uint64_t cycles :
       {std::uint64_t{0}, std::uint64_t{5000}, (std::uint64_t{1} << 48) - 100})
    for (const std::uint64_t frac :
         {std::uint64_t{0}, std::uint64_t{1} << 23, (std::uint64_t{1} << 24) - 1}) {
      auto info = page(cycles, frac);
      const auto legacy = to_legacy(info);
      for (std::int64_t step = -300; step <= 300; ++step) {
        const std::uint64_t at = (cycles + static_cast<std::uint64_t>(step)) & info.mask;
        REQUIRE(cycles_to_ns(legacy, at) == mlx5dv_ts_to_ns(&info, at));
      }
    }
}

TEST_CASE("time goes forward through a wrap of the counter and a change of the page") {
  constexpr std::uint64_t mask = (std::uint64_t{1} << 48) - 1;
  // Long before the wrap and long after, in strides; the page is renewed on the way
  // as the kernel does it.
  auto info = page(mask - 5'000'000);
  std::uint64_t last = 0, at = info.last_cycles;
  for (int i = 0; i < 20'000; ++i, at = (at + 613) & mask) {
    if (i % 700 == 699) {
      const std::uint64_t ahead = (at - info.last_cycles) & mask;
      const std::uint64_t scaled = ahead * info.mult + info.frac;
      info.nsec += scaled >> info.shift;
      info.frac = scaled & ((std::uint64_t{1} << info.shift) - 1);
      info.last_cycles = at;
    }
    const auto legacy = to_legacy(info);
    const std::uint64_t now = cycles_to_ns(legacy, at);
    REQUIRE(now >= last + (i == 0 ? 0 : 613 * 6));
    // A completion from before the page was renewed.
    REQUIRE(cycles_to_ns(legacy, (at - 1) & mask) <= now);
    last = now;
  }
}

TEST_CASE("a page that grew old still gives the time") {
  // A day at 156.25 MHz: the product does not fit into 64 bits.
  const auto info = page(1000);
  const auto legacy = to_legacy(info);
  constexpr std::uint64_t day = 86'400ull * 156'250'000;
  const double ns = static_cast<double>(cycles_to_ns(legacy, 1000 + day) - info.nsec);
  const double expected = static_cast<double>(day) * info.mult / (1 << 24);
  CHECK(ns / expected > 0.999999);
  CHECK(ns / expected < 1.000001);
}
