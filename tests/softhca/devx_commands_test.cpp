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
  CHECK(refused(c, changed(in, cqc + 30, 2, 1)) == bad_param);  // another layout
  CHECK(refused(c, changed(in, cqc + 99, 5, 23)) == bad_param);
  Box compressed = changed(in, cqc + 17, 1, 1);
  CHECK(refused(c, changed(compressed, cqc + 18, 2, 2)) == bad_param);
  for (const uint32_t format : {0u, 1u, 3u}) {
    const Object with(c, changed(compressed, cqc + 18, 2, format));
    CHECK(with.object != nullptr);
  }
  // The offset in the umem counts in parts of the page size that the context names: here 4096
  // and 4224 bytes, of which the second leaves no room.
  const Box large = changed(changed(in, cqc + 99, 5, 7), cqc + 195, 5, 1);
  CHECK(Object(c, changed(large, cqc + 84, 6, 32)).object != nullptr);
  CHECK(refused(c, changed(large, cqc + 84, 6, 33)) == bad_param);
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

TEST_CASE("A target of dynamic connections tells what it was made with", "[devx_test]") {
  constexpr uint32_t dctc = 128;
  const Context c;
  const Cq cq(c);
  const Rmp pool(c, Rmp::cyclic);
  Box in(80, 0x710);
  in.put(dctc + 40, 24, 0x4321);
  in.put(dctc + 72, 24, cq.object.number);
  in.put(dctc + 104, 4, 3);
  in.put(dctc + 108, 3, 5);  // READ and atomics
  in.put(dctc + 147, 5, 13);
  in.put(dctc + 168, 24, pool.object.number);
  in.put(dctc + 200, 24, c.pdn);
  in.put(dctc + 224, 8, 0x21);
  in.put(dctc + 236, 20, 0x54321);
  in.put(dctc + 256, 32, 0x1ee7a000);
  in.put(dctc + 288, 32, 0x1ee7a);
  in.put(dctc + 325, 3, IBV_MTU_2048);
  in.put(dctc + 328, 8, 1);
  in.put(dctc + 336, 16, last_pkey(c));
  in.put(dctc + 376, 8, 63);
  Object target(c, in);
  REQUIRE(target.object != nullptr);
  Box out(80);
  REQUIRE(target.query(target.command(0x713), out) == 0);
  CHECK(std::equal(in.data() + 22, in.data() + 28, out.data() + 22));  // all but the atomic mode
  CHECK(out.get(dctc + 72, 24) == cq.object.number);
  CHECK(out.get(dctc + 108, 3) == 5);
  CHECK(std::equal(in.data() + 32, in.data() + 80, out.data() + 32));

  // Atomics need a mode, and of the traffic class Ethernet has its own field.
  {
    Object quiet(c, changed(changed(in, dctc + 104, 4, 0), dctc + 442, 6, 9));
    REQUIRE(quiet.object != nullptr);
    REQUIRE(quiet.query(quiet.command(0x713), out) == 0);
    CHECK(out.get(dctc + 108, 3) == 4);
    CHECK(out.get(dctc + 224, 8) == (c.ethernet() ? 36 : 0x21));
  }

  const auto with = [&](uint32_t bit, uint32_t width, uint32_t value) {
    return refused(c, changed(in, dctc + bit, width, value));
  };
  CHECK(with(24, 4, 1) == bad_param);            // an offload
  CHECK(with(72, 24, 0xfffff) == bad_resource);  // no such CQ
  CHECK(with(168, 24, 0xfffff) == bad_resource);
  CHECK(with(200, 24, 0xfffff) == bad_resource);
  CHECK(with(325, 3, 0) == bad_param);
  CHECK(with(325, 3, 6) == bad_param);
  CHECK(with(328, 8, 0) == bad_param);
  CHECK(with(328, 8, 9) == bad_param);
  CHECK(with(336, 16, last_pkey(c) + 1) == bad_param);
  CHECK(with(360, 8, 255) == bad_param);
  CHECK(refused(c, Box(64, 0x710)) == bad_input_length);
  CHECK(target.query(changed(target.command(0x713), 72, 24, target.number + 1), out) == EINVAL);
  CHECK(target.modify(changed(target.command(0x714), 72, 24, target.number + 1)) == EINVAL);
  // It is no queue pair to the commands of those.
  Box qp_out(272);
  CHECK(target.query(target.command(0x50b), qp_out) == EINVAL);
  CHECK(target.modify(target.command(0x50a)) == EINVAL);
}

TEST_CASE("Receive memory pools are refused one value at a time", "[devx_test]") {
  const Context c;
  Rmp pool(c, Rmp::linked);
  const Box in = pool.command(c, Rmp::linked);
  CHECK(refused(c, changed(in, 256 + 8, 4, 0)) == bad_param);      // not ready
  CHECK(refused(c, changed(in, 256 + 32, 1, 1)) == bad_param);     // basic WQEs
  CHECK(refused(c, changed(in, Rmp::wq + 4, 1, 1)) == bad_param);  // signatures
  CHECK(refused(c, changed(in, Rmp::wq + 268, 4, 10)) == bad_param);
  CHECK(refused(c, changed(in, Rmp::wq + 283, 5, 16)) == bad_param);
  CHECK(refused(c, changed(in, Rmp::wq + 283, 5, 9)) == bad_param);  // than the umem has
  CHECK(refused(c, changed(in, Rmp::wq + 72, 24, 0xfffff)) == bad_resource);
  CHECK(refused(c, changed(in, Rmp::wq + 320, 32, 0xfffffff)) == bad_resource);
  CHECK(refused(c, changed(in, Rmp::wq + 352, 32, 0xfffffff)) == bad_resource);
  CHECK(refused(c, Box(80, 0x90c)) == bad_input_length);

  // Only the limit can change, to less than the pool has.
  *pool.umem.record(4096) = htobe32(16);  // full, or the limit is over at once
  Box change = pool.object.command(0x90d, 80 + 192);
  change.put(160, 32, 1);
  change.put(Rmp::wq + 48, 16, 15);
  REQUIRE(pool.object.modify(change) == 0);
  Box out(32 + 240);
  REQUIRE(pool.object.query(pool.object.command(0x90f), out) == 0);
  CHECK(out.get(256 + 8, 4) == 1);
  CHECK(out.get(Rmp::wq + 48, 16) == 15);
  CHECK(out.get(Rmp::wq + 72, 24) == c.pdn);
  CHECK(out.get(Rmp::wq + 224, 32) == 16);  // posted
  CHECK(out.get(Rmp::wq + 283, 5) == 4);
  CHECK(refusal(pool.object, changed(change, Rmp::wq + 48, 16, 16)) == bad_param);
  CHECK(refusal(pool.object, changed(change, 160, 32, 2)) == bad_param);
  CHECK(refusal(pool.object, pool.object.command(0x90d, 80)) == bad_input_length);
  CHECK(pool.object.modify(changed(change, 72, 24, pool.object.number + 1)) == EINVAL);
  CHECK(pool.object.query(changed(pool.object.command(0x90f), 72, 24, pool.object.number + 1),
                          out) == EINVAL);
  // As many as the device has.
  const Umem large(c, size_t{32} << 15);
  Box most = changed(in, Rmp::wq + 283, 5, 15);
  most.put(Rmp::wq + 352, 32, large.id());
  CHECK(Object(c, most).object != nullptr);
  // A pool matches no tags.
  CHECK(pool.object.query(pool.object.command(0x719), out) == EINVAL);
  CHECK(pool.object.modify(pool.object.command(0x71a)) == EINVAL);
}

TEST_CASE("A queue that matches tags tells what it was made with", "[devx_test]") {
  constexpr uint32_t xrqc = Xrq::xrqc, wq = Xrq::wq;
  const Context c;
  const Cq cq(c);
  const Xrq tags(c, cq.object.number);
  const Box in = tags.command(c, Xrq::cyclic);
  if (c.ethernet()) {  // where the device has none
    CHECK(refused(c, in) == bad_param);
    return;
  }
  CHECK(refused(c, changed(in, xrqc + 20, 4, 2)) == bad_param);
  CHECK(refused(c, changed(in, xrqc + 28, 4, 2)) == bad_param);  // no such offload
  CHECK(refused(c, changed(in, xrqc + 256, 4, 0)) == bad_param);
  CHECK(refused(c, changed(in, xrqc + 256, 4, 8)) == bad_param);
  CHECK(refused(c, changed(in, xrqc + 72, 24, 0xfffff)) == bad_resource);
  CHECK(refused(c, changed(in, wq + 72, 24, 0xfffff)) == bad_resource);
  CHECK(refused(c, Box(16 + 128, 0x717)) == bad_input_length);
  // Strides: no shift, as few and as small as they may be, and no more types of queues.
  const Box strides = tags.command(c, Xrq::striding_linked);
  CHECK(refused(c, changed(strides, wq + 312, 1, 1)) == bad_param);
  CHECK(refused(c, changed(strides, wq + 308, 4, (2u - 9) & 0xf)) == bad_param);
  CHECK(refused(c, changed(strides, wq, 4, 4)) == bad_param);
  CHECK(Object(c, changed(strides, wq + 317, 3, 0)).object != nullptr);

  Object queue(c, in);
  REQUIRE(queue.object != nullptr);
  *tags.umem.record(4096) = htobe32(16);
  Box arm = queue.command(0x71a);
  arm.put(112, 16, 3);
  REQUIRE(queue.modify(arm) == 0);
  CHECK(refusal(queue, changed(arm, 112, 16, 16)) == bad_param);
  CHECK(queue.modify(changed(arm, 72, 24, queue.number + 1)) == EINVAL);
  Box out(16 + 128 + 192);
  REQUIRE(queue.query(queue.command(0x719), out) == 0);
  CHECK(out.get(xrqc + 20, 4) == 1);
  CHECK(out.get(xrqc + 40, 24) == 0x123);
  CHECK(out.get(xrqc + 72, 24) == cq.object.number);
  CHECK(out.get(wq, 4) == 1);
  CHECK(out.get(wq + 48, 16) == 3);
  CHECK(out.get(wq + 283, 5) == 4);
  CHECK(queue.query(changed(queue.command(0x719), 72, 24, queue.number + 1), out) == EINVAL);
  CHECK(queue.query(queue.command(0x90f), out) == EINVAL);  // it is no pool

  // Reliable connections receive there, and no target of dynamic ones.
  const Umem rings(c, 12288);
  const Object connected(
      c, create_qp(c, rc, cq.object.number, rings.id(), rings.id(), {1, queue.number}));
  CHECK(connected.object != nullptr);
  CHECK(refused(c, create_qp(c, ud, cq.object.number, rings.id(), rings.id(), {1, queue.number})) ==
        bad_param);
}

TEST_CASE("Firmware tells what the port is", "[devx_test]") {
  constexpr uint32_t context = 128;
  const Context c;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(c.ctx, &device) == 0);
  const auto query = [&](uint32_t other_vport, uint32_t number, Box &out) {
    Box in(16, 0x762);
    in.put(64, 1, other_vport);
    in.put(76, 4, number);
    const int error = mlx5dv_devx_general_cmd(c.ctx, in.data(), in.size(), out.data(), out.size());
    CHECK(error == (out.status() == 0 ? 0 : EREMOTEIO));
    return out.status();
  };
  Box out(16 + 108);
  CHECK(query(1, 1, out) == bad_param);
  CHECK(query(0, 9, out) == bad_param);
  if (c.ethernet()) {
    CHECK(query(0, 1, out) == bad_op);
    return;
  }
  REQUIRE(query(0, 0, out) == 0);
  CHECK(out.get(context + 272, 4) == c.port.phys_state);
  CHECK(out.get(context + 280, 4) == IBV_PORT_ACTIVE);
  CHECK(out.get(context + 284, 4) == IBV_PORT_ACTIVE);
  CHECK(std::memcmp(out.at(16 + 40), &device.sys_image_guid, 8) == 0);
  CHECK(std::memcmp(out.at(16 + 48), c.gid.raw + 8, 8) == 0);
  CHECK(std::memcmp(out.at(16 + 56), &device.node_guid, 8) == 0);
  CHECK(out.get(context + 768, 16) == c.port.lid);
  CHECK(out.get(context + 800, 16) == c.port.sm_lid);
  Box shorter(16 + 40);
  CHECK(query(0, 1, shorter) == 0);
  CHECK(shorter.get(context + 280, 4) == IBV_PORT_ACTIVE);
}

TEST_CASE("Firmware refuses keys that are not right", "[devx_test]") {
  constexpr uint32_t mkc = 128;
  const Context c;
  Box in(272 + 32, 0x200);
  in.put(mkc + 20, 2, 3);
  in.put(mkc + 22, 2, 3);
  in.put(mkc + 32, 24, 0xffffff);
  in.put(mkc + 104, 24, c.pdn);
  in.put(mkc + 224, 32, 8192);
  in.put(mkc + 416, 32, 2);
  in.put(mkc + 475, 5, 12);
  const Object key(c, in);
  CHECK(key.object != nullptr);
  CHECK(refused(c, changed(in, mkc + 22, 2, 1)) == bad_param);    // memory of its own
  CHECK(refused(c, changed(in, mkc + 483, 2, 1)) == bad_param);   // crypto
  CHECK(refused(c, changed(in, mkc + 101, 1, 1)) == bad_param);   // a signature error to come
  CHECK(refused(c, changed(in, mkc + 97, 1, 1)) == bad_param);    // signatures without room
  CHECK(refused(c, changed(in, mkc + 256, 32, 4)) == bad_param);  // and room without them
  CHECK(refused(c, changed(in, mkc + 475, 5, 0)) == bad_param);
  CHECK(refused(c, changed(in, mkc + 416, 32, (1 << 22) + 1)) == bad_param);
  CHECK(refused(c, changed(in, 768, 32, 3)) == bad_param);  // more than it has room for
  errno = 0;
  const Object none(c, Box(79, 0x200));
  CHECK(none.object == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("One subscription names sixteen events at most", "[devx_test]") {
  const Context c;
  const Cq cq(c);
  mlx5dv_devx_event_channel *channel =
      mlx5dv_devx_create_event_channel(c.ctx, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
  REQUIRE(channel != nullptr);
  uint16_t events[17] = {};
  const auto subscribe = [&](uint16_t bytes) {
    return mlx5dv_devx_subscribe_devx_event(channel, cq.object.object, bytes, events, 1);
  };
  CHECK(subscribe(sizeof events) == EINVAL);
  CHECK(subscribe(3) == EINVAL);
  CHECK(subscribe(16 * sizeof events[0]) == 0);
  mlx5dv_devx_destroy_event_channel(channel);
}

TEST_CASE("Unread answers are bounded", "[devx_test]") {
  constexpr uint32_t most = 0xffff, limit = 1 << 20;
  const Context c;
  const Cq cq(c);
  mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(c.ctx);
  REQUIRE(answers != nullptr);
  const auto ask = [&](uint32_t opcode, uint32_t bytes, uint64_t name = 0) {
    const Box in = cq.object.command(opcode);
    return mlx5dv_devx_obj_query_async(cq.object.object, in.data(), in.size(), bytes, name,
                                       answers);
  };
  CHECK(ask(0x403, 272) == EINVAL);  // no query
  CHECK(ask(0x402, 15) == EINVAL);
  CHECK(ask(0x402, most + 1) == EINVAL);
  uint32_t asked = 0;
  int error = 0;
  while (asked <= limit / most && (error = ask(0x402, most, asked)) == 0) ++asked;
  CHECK(error == EAGAIN);
  // With its name, an answer is eight bytes longer.
  CHECK(asked == limit / (most + 8));
  std::vector<uint64_t> message((sizeof(uint64_t) + most) / sizeof(uint64_t) + 1);
  auto *answer = reinterpret_cast<mlx5dv_devx_async_cmd_hdr *>(message.data());
  REQUIRE(mlx5dv_devx_get_async_cmd_comp(answers, answer, sizeof(uint64_t) + most) == 0);
  CHECK(answer->wr_id == 0);
  CHECK(ask(0x402, most) == 0);
  mlx5dv_devx_destroy_cmd_comp(answers);
}

TEST_CASE("A target of dynamic connections keeps its domain", "[devx_test]") {
  constexpr uint32_t dctc = 128;
  const Context c;
  const Cq cq(c);
  const Rmp pool(c, Rmp::cyclic);
  Object domain(c, Box(16, 0x800));
  REQUIRE(domain.object != nullptr);
  Box in(80, 0x710);
  in.put(dctc + 72, 24, cq.object.number);
  in.put(dctc + 168, 24, pool.object.number);
  in.put(dctc + 200, 24, domain.number);
  in.put(dctc + 325, 3, IBV_MTU_1024);
  in.put(dctc + 328, 8, 1);
  Object target(c, in);
  REQUIRE(target.object != nullptr);
  CHECK(domain.destroy() == EINVAL);
  CHECK(target.destroy() == 0);
  CHECK(domain.destroy() == 0);
}

TEST_CASE("Commands do not find what was destroyed", "[devx_test]") {
  const Context c;
  const Cq cq(c);
  const Umem rings(c, 12288);
  Receive pool_gone{1, 0};
  uint32_t cq_gone, domain_gone, umem_gone;
  {
    const Rmp pool(c, Rmp::cyclic);
    const Cq other(c);
    const Object domain(c, Box(16, 0x800));
    const Umem umem(c, 12288);
    pool_gone.srqn = pool.object.number;
    cq_gone = other.object.number;
    domain_gone = domain.number;
    umem_gone = umem.id();
  }
  const Box in = create_qp(c, rc, cq.object.number, rings.id(), rings.id());
  CHECK(refused(c, create_qp(c, rc, cq.object.number, rings.id(), rings.id(), pool_gone)) ==
        bad_resource);
  CHECK(refused(c, changed(in, qpc + 1000, 24, cq_gone)) == bad_resource);
  CHECK(refused(c, changed(in, qpc + 40, 24, domain_gone)) == bad_resource);
  CHECK(refused(c, changed(in, 2112, 32, umem_gone)) == bad_resource);
  // Only a queue pair that does not send needs no completion queue for that.
  Box one = changed(in, qpc + 1000, 24, cq_gone);
  one.put(qpc + 81, 4, 0);
  CHECK(refused(c, one) == bad_resource);
  one.put(qpc + 80, 1, 1);
  CHECK(Object(c, one).object != nullptr);
}
