// What commands change and queries tell of it, and the values that firmware refuses one by
// one. Through libibverbs and libmlx5 with the software HCA preloaded.
#include <algorithm>

#include "devx_rig.h"

using namespace devx;

namespace {

// opt_param_mask, and bits of a path.
constexpr uint32_t mask = 128;
constexpr uint32_t opt_write = 1 << 3, opt_pkey = 1 << 4, opt_qkey = 1 << 5, opt_rnr_timer = 1 << 6,
                   opt_path = 1 << 7, opt_send_depth = 1 << 8, opt_drain = 1 << 11,
                   opt_timeout = 1 << 14, opt_port = 1 << 16;
constexpr uint32_t pkey = primary_path + 16, grh = primary_path + 40, rlid = primary_path + 48,
                   timeout = primary_path + 64, source_index = primary_path + 72,
                   port = primary_path + 296;
constexpr uint32_t access_bits = qpc + 1168, rnr_timer = qpc + 1187, q_key = qpc + 1344,
                   send_depth = qpc + 904, receive_depth = qpc + 1160;
constexpr uint32_t ud = 2;
constexpr uint32_t init = 1, rtr = 2, rts = 3;

// The status of a change that is refused.
uint32_t refusal(Object &o, const Box &in) {
  CHECK(o.modify(in) == EREMOTEIO);
  return o.status;
}

Box changed(Box in, uint32_t bit, uint32_t width, uint32_t value) {
  in.put(bit, width, value);
  return in;
}

// One partition on Ethernet, 128 on InfiniBand.
uint32_t last_pkey(const Context &c) { return c.ethernet() ? 0 : 127; }

}  // namespace

TEST_CASE("A queue pair's first state has a port, a partition and rights", "[devx_test]") {
  const Context c;
  const Cq cq(c);
  Qp qp(c, rc, cq.object.number);
  CHECK(refusal(qp.object, changed(qp.to_init(), pkey, 16, last_pkey(c) + 1)) == bad_param);
  CHECK(qp.state() == 0);
  REQUIRE(qp.object.modify(changed(qp.to_init(), pkey, 16, last_pkey(c))) == 0);
  CHECK(qp.state() == init);
  CHECK(qp.query().get(pkey, 16) == last_pkey(c));
  CHECK(qp.query().get(port, 8) == 1);
  CHECK(qp.query().get(access_bits, 3) == 6);  // READ and WRITE

  // INIT2INIT changes them one by one.
  const Box again = qp.object.command(0x50e, 272);
  CHECK(refusal(qp.object, again) == bad_param);
  REQUIRE(qp.object.modify(changed(again, mask, 32, opt_write)) == 0);
  CHECK(qp.query().get(access_bits, 3) == 4);
  CHECK(qp.query().get(pkey, 16) == last_pkey(c));
  Box other = changed(again, mask, 32, opt_pkey);
  CHECK(refusal(qp.object, changed(other, pkey, 16, last_pkey(c) + 1)) == bad_param);
  REQUIRE(qp.object.modify(other) == 0);
  CHECK(qp.query().get(pkey, 16) == 0);
  other = changed(again, mask, 32, opt_port);
  CHECK(refusal(qp.object, changed(other, port, 8, 9)) == bad_param);
  CHECK(refusal(qp.object, changed(other, port, 8, 0)) == bad_param);
  REQUIRE(qp.object.modify(changed(changed(other, port, 8, 1), pkey, 16, last_pkey(c))) == 0);
  CHECK(qp.query().get(pkey, 16) == last_pkey(c));
  REQUIRE(qp.object.modify(changed(changed(again, mask, 32, opt_qkey), q_key, 32, 0x1234567)) == 0);
  CHECK(qp.query().get(q_key, 32) == 0x1234567);
  REQUIRE(qp.object.modify(changed(again, mask, 32, opt_drain)) == 0);
  CHECK(refusal(qp.object, changed(again, mask, 32, opt_drain | opt_write)) == bad_param);
  CHECK(refusal(qp.object, changed(again, mask, 32, opt_timeout)) == bad_param);
  CHECK(refusal(qp.object, changed(changed(again, mask, 32, opt_write), 2144, 32, 1)) == bad_param);
  REQUIRE(qp.object.modify(qp.to_rtr(qp.object.number, c)) == 0);
  CHECK(refusal(qp.object, changed(again, mask, 32, opt_write)) == bad_qp_state);
}

TEST_CASE("A queue pair is connected on its own port, with depths of the device", "[devx_test]") {
  const Context c;
  const Cq cq(c);
  Qp qp(c, rc, cq.object.number);
  REQUIRE(qp.object.modify(qp.to_init()) == 0);
  const Box in = qp.to_rtr(qp.object.number, c);
  CHECK(refusal(qp.object, changed(in, port, 8, 2)) == bad_param);
  Box nowhere = changed(in, source_index, 8, 255);
  nowhere.put(grh, 1, 1);
  CHECK(refusal(qp.object, nowhere) == bad_param);
  CHECK(refusal(qp.object, changed(in, receive_depth, 3, 5)) == bad_param);
  CHECK(refusal(qp.object, changed(in, qpc + 67, 5, 31)) == bad_param);
  CHECK(refusal(qp.object, changed(in, qpc + 64, 3, 0)) == bad_param);
  Box wrong = changed(in, mask, 32, opt_pkey);
  wrong.put(pkey, 16, last_pkey(c) + 1);
  CHECK(refusal(qp.object, wrong) == bad_param);
  CHECK(refusal(qp.object, changed(in, mask, 32, opt_rnr_timer)) == bad_param);
  CHECK(qp.state() == init);

  // 0 is the port that it has.
  Box right = changed(changed(in, port, 8, 0), receive_depth, 3, 4);
  right.put(mask, 32, opt_pkey);
  right.put(pkey, 16, last_pkey(c));
  REQUIRE(qp.object.modify(right) == 0);
  Box out = qp.query();
  CHECK(out.get(qpc, 4) == rtr);
  CHECK(out.get(port, 8) == 1);
  CHECK(out.get(pkey, 16) == last_pkey(c));
  CHECK(out.get(receive_depth, 3) == 4);
  CHECK(out.get(rnr_timer, 5) == 1);
  CHECK(out.get(qpc + 1192, 24) == 7);  // the PSN to come
  CHECK(out.get(access_bits, 3) == 6);

  CHECK(refusal(qp.object, changed(qp.to_rts(), send_depth, 3, 5)) == bad_param);
  Box more = qp.to_rts();
  more.put(mask, 32, opt_rnr_timer | opt_path);
  more.put(rnr_timer, 5, 9);
  std::memcpy(more.at(primary_path / 8), in.data() + primary_path / 8, 44);
  more.put(timeout, 5, 17);
  more.put(rlid, 16, 0x77);
  CHECK(refusal(qp.object, changed(more, port, 8, 2)) == bad_param);
  CHECK(qp.state() == rtr);
  REQUIRE(qp.object.modify(more) == 0);
  out = qp.query();
  CHECK(out.get(qpc, 4) == rts);
  CHECK(out.get(rnr_timer, 5) == 9);
  CHECK(out.get(rlid, 16) == 0x77);
  CHECK(out.get(timeout, 5) == 17);
  CHECK(out.get(send_depth, 3) == 2);
  CHECK(out.get(qpc + 909, 3) == 7);
  CHECK(out.get(qpc + 912, 3) == 7);
  CHECK(out.get(qpc + 968, 24) == 7);

  // RTS2RTS: only what may change while it works, and something.
  const Box live = qp.object.command(0x505, 272);
  CHECK(refusal(qp.object, live) == bad_param);
  CHECK(refusal(qp.object, changed(live, mask, 32, opt_send_depth)) == bad_param);
  CHECK(refusal(qp.object, changed(changed(live, mask, 32, opt_write), 2144, 32, 1)) == bad_param);
  Box all = live;  // of which one is selected
  std::memset(all.at(24), 0xff, 232);
  all.put(mask, 32, opt_rnr_timer);
  all.put(rnr_timer, 5, 12);
  REQUIRE(qp.object.modify(all) == 0);
  const Box after = qp.query();
  CHECK(after.get(rnr_timer, 5) == 12);
  out.put(rnr_timer, 5, 12);
  CHECK(std::equal(out.data() + 24, out.data() + 256, after.data() + 24));
  REQUIRE(qp.object.modify(qp.object.command(0x507)) == 0);
  CHECK(refusal(qp.object, changed(live, mask, 32, opt_write)) == bad_qp_state);
}

TEST_CASE("A datagram queue pair of commands has a key and the largest MTU", "[devx_test]") {
  const Context c;
  const Cq cq(c);
  Qp qp(c, ud, cq.object.number);
  REQUIRE(qp.object.modify(changed(qp.to_init(), q_key, 32, 0x11223344)) == 0);
  CHECK(qp.query().get(q_key, 32) == 0x11223344);
  Box in = qp.object.command(0x503, 272);
  in.put(qpc + 67, 5, 12);
  REQUIRE(qp.object.modify(in) == 0);
  CHECK(qp.query().get(qpc + 64, 3) == IBV_MTU_4096);
  REQUIRE(qp.object.modify(qp.object.command(0x504, 272)) == 0);
  REQUIRE(qp.object.modify(changed(changed(qp.object.command(0x505, 272), mask, 32, opt_qkey),
                                   q_key, 32, 0x55667788)) == 0);
  CHECK(qp.query().get(q_key, 32) == 0x55667788);
}

TEST_CASE("A completion queue has a format and moderation", "[devx_test]") {
  constexpr uint32_t cqc = 128, size = cqc + 8, period = cqc + 132, count = cqc + 144;
  const Context c;
  const Umem umem(c, 8192 + 4096);
  const Box in = create_cq(c, 6, umem.id(), umem.id(), 8192);
  CHECK(refused(c, changed(in, cqc + 11, 1, 1)) == bad_param);  // one entry for all
  CHECK(refused(c, changed(in, cqc + 24, 2, 1)) == bad_param);  // another layout
  CHECK(refused(c, changed(in, cqc + 99, 5, 23)) == bad_param);
  Box compressed = changed(in, cqc + 17, 1, 1);
  CHECK(refused(c, changed(compressed, cqc + 18, 2, 2)) == bad_param);
  for (const uint32_t format : {0u, 1u, 3u}) {
    const Object with(c, changed(compressed, cqc + 18, 2, format));
    CHECK(with.object != nullptr);
  }
  // Entries of 128 bytes take twice the room.
  for (const uint32_t wide : {1u, 2u}) {
    Object fits(c, changed(in, size, 3, wide));
    REQUIRE(fits.object != nullptr);
    Box out(272);
    REQUIRE(fits.query(fits.command(0x402), out) == 0);
    CHECK(out.get(size, 3) == 1);
    const Box longer = changed(changed(in, size, 3, wide), cqc + 99, 5, 7);
    CHECK(refused(c, longer) == bad_param);
  }

  Object cq(c, changed(changed(in, period, 12, 77), count, 16, 1234));
  REQUIRE(cq.object != nullptr);
  const auto moderation = [&] {
    Box out(272);
    REQUIRE(cq.query(cq.command(0x402), out) == 0);
    return std::pair(out.get(period, 12), out.get(count, 16));
  };
  CHECK(moderation() == std::pair(77u, 1234u));
  Box change = cq.command(0x403, 272);
  change.put(period, 12, 5);
  change.put(count, 16, 6);
  change.put(cqc + 184, 8, c.eqn);
  REQUIRE(cq.modify(changed(change, 96, 32, 1 << 0)) == 0);
  CHECK(moderation() == std::pair(5u, 1234u));
  REQUIRE(cq.modify(changed(change, 96, 32, 1 << 1)) == 0);
  CHECK(moderation() == std::pair(5u, 6u));
  change.put(96, 32, 1 << 3);
  CHECK(cq.modify(change) == 0);
  CHECK(refusal(cq, changed(change, cqc + 184, 8, 0xff)) == bad_resource);
  CHECK(refusal(cq, changed(change, cqc + 184, 8, 0)) == bad_resource);
  CHECK(refusal(cq, changed(change, 96, 32, 1 << 4)) == bad_param);
  CHECK(refusal(cq, changed(change, 48, 16, 2)) == bad_param);  // neither fields nor size
  CHECK(refusal(cq, cq.command(0x403, 64)) == bad_input_length);
  CHECK(cq.modify(changed(change, 72, 24, cq.number + 1)) == EINVAL);
  Box out(272);
  CHECK(cq.query(changed(cq.command(0x402), 72, 24, cq.number + 1), out) == EINVAL);

  Box resize = changed(cq.command(0x403, 272), 48, 16, 1);
  resize.put(96, 32, 1);
  resize.put(cqc + 99, 5, 6);
  resize.put(704, 32, umem.id());
  CHECK(refusal(cq, changed(resize, 96, 32, 1 << 3)) == bad_param);
  CHECK(refusal(cq, changed(resize, cqc + 99, 5, 23)) == bad_param);
  CHECK(refusal(cq, changed(resize, 704, 32, 0xfffffff)) == bad_resource);
  CHECK(refused(c, Box(64, 0x400)) == bad_input_length);
}
