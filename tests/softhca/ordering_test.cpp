// With strict_ordering, what a WQE does to a memory key is seen by the next one only
// behind a fence, as hardware has it.
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// A pair on a device of its own settings.
struct Strict {
  explicit Strict(bool strict) : before(rig.device().config), settings(*before) {
    settings.strict_ordering = strict;
    rig.device().config = &settings;
  }
  ~Strict() { rig.device().config = before; }

  // An indirect key over a region.
  Mkey &key_of(Region &region) {
    Mkey *k = process().mkeys.create(pdn);
    k->kind = Mkey::Kind::indirect;
    k->length = region.size();
    k->umr_en = true;
    k->local_read = true;
    k->set_entries({{region.size(), region.key(), region.address(), 0}});
    return *k;
  }

  Rig rig;
  const DeviceConfig *before;
  DeviceConfig settings;
};

}  // namespace

TEST_CASE("An invalidation is seen behind a small fence", "[ordering]") {
  const bool strict = GENERATE(true, false);
  Strict world(strict);
  Pair p(world.rig);
  Region from(64, full_access), to(64, full_access);
  from.fill(3);
  Mkey &key = world.key_of(from);
  u8 fence = 0;
  bool seen = !strict;
  SECTION("no fence") {}
  SECTION("of reads only") { fence = 2; }
  SECTION("small") { fence = 1, seen = true; }
  SECTION("strong ordering") { fence = 3, seen = true; }
  SECTION("both") { fence = 4, seen = true; }
  const u16 first = p.a.post(Wqe(WqeOpcode::local_inv).imm(swap32(key.key())));
  const u16 second = p.a.post(
      Wqe(WqeOpcode::rdma_write).fence(fence).remote(to.address(), to.key()).data(8, key.key(), 0));
  world.rig.step();
  const Completion inv = p.a_cq.expect();
  CHECK(inv.opcode() == static_cast<u8>(CqeOpcode::req));
  CHECK(inv.wqe_counter() == first);
  const Completion write = p.a_cq.expect();
  CHECK(write.wqe_counter() == second);
  CHECK((write.opcode() == static_cast<u8>(CqeOpcode::req_err)) == seen);
  if (seen) CHECK(write.syndrome() == static_cast<u8>(Syndrome::local_protection));
  // By the time that it is completed it has happened.
  CHECK(key.free);
  process().mkeys.destroy(&key);
}

TEST_CASE("An invalidation that fails behind the next WQE stops the queue", "[ordering]") {
  Strict world(true);
  Pair p(world.rig);
  Region from(64, full_access), to(64, full_access);
  const u16 first = p.a.post(Wqe(WqeOpcode::local_inv).imm(swap32(0x00dead00)));
  const u16 second = p.a.post(Wqe(WqeOpcode::rdma_write)
                                  .remote(to.address(), to.key())
                                  .data(8, from.key(), from.address()));
  world.rig.step();
  const Completion inv = p.a_cq.expect();
  CHECK(inv.opcode() == static_cast<u8>(CqeOpcode::req_err));
  CHECK(inv.syndrome() == static_cast<u8>(Syndrome::mw_bind));
  CHECK(inv.wqe_counter() == first);
  const Completion write = p.a_cq.expect();
  CHECK(write.syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(write.wqe_counter() == second);
  CHECK(p.a.qp->state == QpState::err);
}

TEST_CASE("Alone in its queue an effect does not wait", "[ordering]") {
  Strict world(true);
  Pair p(world.rig);
  Region from(64, full_access);
  Mkey &key = world.key_of(from);
  p.a.post(Wqe(WqeOpcode::local_inv).imm(swap32(key.key())));
  world.rig.step();
  CHECK(p.a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
  CHECK(key.free);
  process().mkeys.destroy(&key);
}
