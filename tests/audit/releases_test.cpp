// Which release's header a binary was compiled with: by the slots that it takes from the table.
#include "tool/audit/binary/releases.h"

#include "catch.h"

using namespace ibvexp::audit;

namespace {

Dispatch with_slot(int from_end) {
  Dispatch out;
  SlotSite site{};
  site.from_end = from_end;
  site.called = true;
  out.sites.push_back(site);
  return out;
}

}  // namespace

// The headers of 3.x have two slots for ibv_exp_rereg_mr(), those of 4.x padding there.
TEST_CASE("slots that only some releases name show the release") {
  for (const int from_end : {368, 376}) {
    CAPTURE(from_end);
    CHECK(header_release(with_slot(from_end)) == "MLNX_OFED 3.1-0.0.6 to 3.4");
    CHECK(layout_release(with_slot(from_end)) == "3.x");
  }
  for (const int from_end : {360, 384}) {
    CAPTURE(from_end);
    CHECK(header_release(with_slot(from_end)) == "MLNX_OFED 3.1-0.0.6 to 4.9");
    CHECK(layout_release(with_slot(from_end)).empty());
  }
  CHECK(header_release(with_slot(616)) == "MLNX_OFED 4.0 to 4.9");
  CHECK(layout_release(with_slot(616)) == "4.x");
  CHECK(header_release(with_slot(1000)) == "none of the MLNX_OFED releases");
}
