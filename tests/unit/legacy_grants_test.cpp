// What MLNX_OFED 4.9 granted for send queues, in the numbers that programs were given.
#include "translate/convert/legacy_grants.h"

#include <catch.h>

#include <array>

using namespace ibvexp::translate;

namespace {

using Grants = std::array<std::uint32_t, 3>;  // requests, pieces, inline data

Grants granted(ibv_qp_type type, std::uint32_t inline_data, std::uint32_t pieces = 1,
               std::uint32_t requests = 10, const LegacyExtra &extra = {}) {
  ibv_qp_cap cap{};
  cap.max_send_wr = requests;
  cap.max_send_sge = pieces;
  cap.max_inline_data = inline_data;
  const auto legacy = legacy_grants(type, cap, extra);
  return legacy ? Grants{legacy->requests, legacy->pieces, legacy->inline_data} : Grants{};
}

constexpr Grants nothing{};

}  // namespace

TEST_CASE("the legacy provider granted all that an entry has room for") {
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND})
    CHECK(granted(type, 0) == Grants{16, 4, 60});
  CHECK(granted(IBV_QPT_RC, 60) == Grants{16, 4, 60});
  CHECK(granted(IBV_QPT_RC, 64) == Grants{12, 8, 124});
  CHECK(granted(IBV_QPT_RC, 200) == Grants{18, 16, 252});
  CHECK(granted(IBV_QPT_RC, 800) == Grants{16, 30, 828});
  CHECK(granted(IBV_QPT_UC, 800) == Grants{16, 52, 828});
  CHECK(granted(IBV_QPT_UD, 956) == Grants{16, 60, 956});
  CHECK(granted(IBV_QPT_DRIVER, 29) == Grants{16, 3, 44});
  CHECK(granted(IBV_QPT_DRIVER, 64) == Grants{10, 7, 108});
  CHECK(granted(IBV_QPT_DRIVER, 900) == Grants{16, 27, 940});
  CHECK(granted(IBV_QPT_RAW_PACKET, 0) == Grants{16, 1, 12});
  CHECK(granted(IBV_QPT_RC, 0, 16) == Grants{18, 16, 252});
  CHECK(granted(IBV_QPT_RC, 0, 1, 8192) == Grants{8192, 4, 60});
}

TEST_CASE("arguments of atomics, key changes and TSO headers make entries larger") {
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.atomic_bytes = 9}) == Grants{16, 4, 60});
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.atomic_bytes = 65}) == Grants{16, 20, 316});
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.atomic_bytes = 128}) == Grants{10, 30, 572});
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.key_pieces = 4}) == Grants{16, 4, 60});
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.key_pieces = 16}) == Grants{18, 16, 252});
  CHECK(granted(IBV_QPT_RAW_PACKET, 0, 1, 10, {.tso_header = 64}) == Grants{16, 5, 76});
}

TEST_CASE("what did not fit was not granted") {
  CHECK(granted(IBV_QPT_RC, 900) == nothing);
  CHECK(granted(IBV_QPT_RC, ~0u) == nothing);
  CHECK(granted(IBV_QPT_RC, 0, 31) == nothing);
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.atomic_bytes = 256}) == nothing);
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.atomic_bytes = ~0u}) == nothing);
  CHECK(granted(IBV_QPT_RC, 0, 1, 10, {.key_pieces = ~0u}) == nothing);
  CHECK(granted(IBV_QPT_UC, 4, ~0u) == nothing);
  // Without a send queue there is nothing to grant, nor where nothing is known.
  CHECK(granted(IBV_QPT_RC, 64, 1, 0) == nothing);
  CHECK(granted(IBV_QPT_XRC_RECV, 64) == nothing);
}
