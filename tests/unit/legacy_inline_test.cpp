// What the legacy provider granted inline, in numbers that programs were given.
#include "translate/convert/legacy_inline.h"

#include <catch.h>

using namespace ibvexp::translate;

namespace {

std::uint32_t granted(ibv_qp_type type, std::uint32_t asked, std::uint32_t pieces = 1,
                      std::uint32_t requests = 16) {
  ibv_qp_cap cap{};
  cap.max_send_wr = requests;
  cap.max_send_sge = pieces;
  cap.max_inline_data = asked;
  return legacy_inline_data(type, cap);
}

}  // namespace

TEST_CASE("inline data of the legacy provider") {
  CHECK(granted(IBV_QPT_DRIVER, 64) == 108);
  CHECK(granted(IBV_QPT_UC, 64) == 92);
  CHECK(granted(IBV_QPT_UD, 64) == 124);
  CHECK(granted(IBV_QPT_RAW_PACKET, 64) == 76);
  // With and without an atomic's operands, the larger of the two.
  CHECK(granted(IBV_QPT_RC, 64) == 92);
  CHECK(granted(IBV_QPT_RC, 78) == 140);
  CHECK(granted(IBV_QPT_XRC_SEND, 64) == 124);
  // A gather list makes room too.
  CHECK(granted(IBV_QPT_UC, 0, 6) == 92);
  CHECK(granted(IBV_QPT_UC, 1, 7) == 156);
  // An entry has 1024 bytes at most.
  CHECK(granted(IBV_QPT_UC, 988) == 988);
  CHECK(granted(IBV_QPT_UC, 989) == 0);
  CHECK(granted(IBV_QPT_UC, ~0u) == 0);
  CHECK(granted(IBV_QPT_UC, 4, ~0u) == 0);
  // Without a send queue there is nothing to grant, nor where nothing is known.
  CHECK(granted(IBV_QPT_RC, 64, 1, 0) == 0);
  CHECK(granted(IBV_QPT_XRC_RECV, 64) == 0);
}
