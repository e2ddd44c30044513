// Completion entries as images: what is read without a device.
#include "translate/queue/engine/cqe.h"

#include <catch.h>

#include <vector>

using namespace ibvexp::engine;

namespace {

using Bytes = std::vector<std::uint8_t>;

}  // namespace

// [row:IBV_EXP_CQ_RX_IPV6_PACKET][row:IBV_EXP_CQ_RX_OUTER_IPV4_PACKET]
// [row:IBV_EXP_CQ_RX_OUTER_IPV6_PACKET][row:IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK]
// [row:IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK][row:IBV_EXP_CQ_RX_TCP_PACKET]
// [row:IBV_EXP_CQ_RX_TUNNEL_PACKET]
TEST_CASE("flags of a frame", "[cqe]") {
  constexpr std::uint8_t ok = 7, l3 = 2, l4 = 4;
  constexpr std::uint8_t ipv4 = 2 << 2, ipv6 = 1 << 2, tcp = 1 << 4, udp = 2 << 4, tcp_ack = 4 << 4;
  constexpr auto good = IBV_EXP_CQ_RX_IP_CSUM_OK | IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK;
  CHECK(receive_flags(ok, ipv4 | udp, 0) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET | good));
  CHECK(receive_flags(ok, ipv6 | tcp, 0) ==
        (IBV_EXP_CQ_RX_IPV6_PACKET | IBV_EXP_CQ_RX_TCP_PACKET | good));
  CHECK(receive_flags(l3, ipv4 | tcp_ack, 0) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_TCP_PACKET | IBV_EXP_CQ_RX_IP_CSUM_OK));
  CHECK(receive_flags(l4, ipv4 | udp, 0) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET | IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK));
  CHECK(receive_flags(ok, 0, 0) == 0);
  CHECK(receive_flags(ok, 1, 0) == IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1);
  CHECK(receive_flags(ok, ipv4 | udp, 3) ==
        (IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET | good | IBV_EXP_CQ_RX_TUNNEL_PACKET |
         IBV_EXP_CQ_RX_OUTER_IPV6_PACKET | IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK |
         IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK));
  CHECK((receive_flags(0, ipv4, 1) & ~IBV_EXP_CQ_RX_IPV4_PACKET) ==
        (IBV_EXP_CQ_RX_TUNNEL_PACKET | IBV_EXP_CQ_RX_OUTER_IPV4_PACKET));
}

// [row:IBV_EXP_WC_RX_TUNNEL_PACKET][row:IBV_EXP_WC_RX_OUTER_IPV4_PACKET]
// [row:IBV_EXP_WC_RX_OUTER_IPV6_PACKET][row:IBV_EXP_WC_RX_OUTER_IP_CSUM_OK]
// [row:IBV_EXP_WC_RX_OUTER_TCP_UDP_CSUM_OK]
TEST_CASE("completions have the flags that tell of checksums, headers and tunnels", "[cqe]") {
  constexpr std::uint8_t ok = 7, l3 = 2, ipv4_udp = 2 << 2 | 2 << 4, ipv6 = 1 << 2;
  const auto flags = [](std::uint8_t checks, std::uint8_t headers, std::uint8_t tunnel) {
    return ibvexp::engine::to_completion_flags(receive_flags(checks, headers, tunnel));
  };
  constexpr std::uint64_t good = IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK;
  CHECK(flags(ok, ipv4_udp, 0) == (IBV_EXP_WC_RX_IPV4_PACKET | good));
  CHECK(flags(ok, ipv4_udp | 1, 0) == (IBV_EXP_WC_RX_IPV4_PACKET | good));
  CHECK(flags(l3, ipv6, 0) == (IBV_EXP_WC_RX_IPV6_PACKET | IBV_EXP_WC_RX_IP_CSUM_OK));
  CHECK(flags(ok, ipv4_udp, 1) ==
        (IBV_EXP_WC_RX_IPV4_PACKET | good | IBV_EXP_WC_RX_TUNNEL_PACKET |
         IBV_EXP_WC_RX_OUTER_IPV4_PACKET | IBV_EXP_WC_RX_OUTER_IP_CSUM_OK |
         IBV_EXP_WC_RX_OUTER_TCP_UDP_CSUM_OK));
  CHECK(flags(0, ipv4_udp, 3) == (IBV_EXP_WC_RX_IPV4_PACKET | IBV_EXP_WC_RX_TUNNEL_PACKET |
                                  IBV_EXP_WC_RX_OUTER_IPV6_PACKET));
}

TEST_CASE("the table of flags says what the rules say", "[cqe]") {
  std::uint8_t raw[64] = {};
  for (unsigned headers = 0; headers < 256; ++headers)
    for (unsigned checks = 0; checks < 8; ++checks)
      for (const std::uint8_t tunnel : {0, 1, 3}) {
        raw[0] = tunnel;
        raw[28] = static_cast<std::uint8_t>(checks);
        raw[29] = static_cast<std::uint8_t>(headers);
        REQUIRE(receive_flags(Cqe(raw)) == receive_flags(raw[28], raw[29], tunnel));
      }
}

TEST_CASE("strides of a completion", "[cqe]") {
  std::uint8_t raw[64] = {};
  store(raw + 60, be(std::uint16_t{300}));
  store(raw + 44, be(std::uint32_t{24u << 16 | 1500}));
  Strides s = strides_of(Cqe(raw));
  CHECK(s.first == 300);
  CHECK(s.consumed == 24);
  CHECK(s.bytes == 1500);
  CHECK_FALSE(s.filler);
  CHECK(strides_of(Cqe(raw), 2).bytes == 1498);
  store(raw + 44, be(std::uint32_t{1u << 31 | 25u << 16}));
  s = strides_of(Cqe(raw), 2);
  CHECK(s.filler);
  CHECK(s.bytes == 0);
}

TEST_CASE("compressed completions are unpacked in their places", "[cqe]") {
  for (const std::size_t size : {std::size_t{64}, std::size_t{128}}) {
    for (const std::uint32_t count : {2u, 7u, 8u, 9u, 16u, 20u}) {
      for (const std::uint32_t start : {0u, 20u, 31u}) {
        INFO(size << " " << count << " " << start);
        Bytes ring(32 * size, 0xee);
        const auto slot = [&](std::uint32_t k) {
          return ring.data() + (start + k) % 32 * size + (size - 64);
        };
        const auto owner = [&](std::uint32_t k) {
          return static_cast<std::uint8_t>((start + k) / 32 & 1);
        };
        std::uint8_t *title = slot(0);
        for (int i = 0; i < 63; ++i) title[i] = static_cast<std::uint8_t>(i);
        store(title + 44, be(count));
        store(title + 60, be(std::uint16_t{0xfffe}));
        title[63] = static_cast<std::uint8_t>(2 << 4 | 0xc | owner(0));
        for (std::uint32_t i = 0; i < count; ++i) {
          std::uint8_t *mini = slot(i < 8 ? 1 : i / 8 * 8) + i % 8 * 8;
          store(mini, std::uint32_t{0xdddddddd});
          store(mini + 4, be(std::uint32_t{100 + i}));
        }
        decompress(slot, owner, 32, false);
        for (std::uint32_t i = 0; i < count; ++i) {
          const Cqe cqe(slot(i));
          CHECK(cqe.byte_count() == 100 + i);
          CHECK(cqe.counter() == static_cast<std::uint16_t>(0xfffe + i));
          CHECK(cqe.op_own() == (2 << 4 | owner(i)));
          CHECK(cqe.timestamp() == 0);
          CHECK(cqe.headers() == 29);
          CHECK(cqe.user_index() == 0x212223);
        }
      }
    }
  }
}

TEST_CASE("a broken title stands for one completion at least, and for a queue full at most",
          "[cqe]") {
  for (const std::uint32_t written : {0u, 33u, 0xffffffffu}) {
    Bytes ring(32 * 64, 0xee);
    std::uint32_t slots = 0, owners = 0;
    const auto slot = [&](std::uint32_t k) {
      ++slots;
      return ring.data() + k % 32 * 64;
    };
    const auto owner = [&](std::uint32_t) { return static_cast<std::uint8_t>(++owners & 0); };
    std::memset(ring.data(), 0, 64);
    store(ring.data() + 44, be(written));
    ring[63] = 2 << 4 | 0xc;
    decompress(slot, owner, 32, false);
    CHECK(owners == (written == 0 ? 1 : 32));
    CHECK(slots < 64);
    CHECK_FALSE(is_compressed(ring[63]));
  }
}

TEST_CASE("compressed completions of many packets go on by strides", "[cqe]") {
  constexpr std::uint32_t count = 12;
  Bytes ring(32 * 64, 0xee);
  const auto slot = [&](std::uint32_t k) { return ring.data() + k % 32 * 64; };
  const auto owner = [](std::uint32_t) { return std::uint8_t{0}; };
  std::uint8_t *title = slot(0);
  std::memset(title, 0, 64);
  store(title + 44, be(count));
  store(title + 60, be(std::uint16_t{500}));
  title[63] = static_cast<std::uint8_t>(2 << 4 | 0xc);
  const auto strides = [](std::uint32_t i) { return 1 + i % 5; };
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint8_t *mini = slot(i < 8 ? 1 : i / 8 * 8) + i % 8 * 8;
    store(mini, std::uint32_t{0});
    store(mini + 4, be(strides(i) << 16 | (60 + i)));
  }
  decompress(slot, owner, 32, true);
  std::uint32_t at = 500;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Strides s = strides_of(Cqe(slot(i)));
    CHECK(s.first == at);
    CHECK(s.consumed == strides(i));
    CHECK(s.bytes == 60 + i);
    at += strides(i);
  }
}
