// Streams of a DC initiator: one fails, the others go on, in order and once.
#include <array>

#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u64 key = 0x1122334455667788;
constexpr u8 failed = 13;  // MLX5_CQE_REQ_ERR

// One initiator and two targets.
struct StreamRig {
  StreamRig() {
    for (auto &t : dct) t.connect(0, lid);
    dci.connect(0, lid);
    dci.qp->max_errored_streams = 2;
    from.fill(5);
  }
  static QpOptions target(Srq *srq) {
    QpOptions o;
    o.type = QpType::dct;
    o.srq = srq;
    o.sq_wqebbs = 0;
    o.dc_key = key;
    return o;
  }
  static QpOptions initiator() {
    QpOptions o;
    o.type = QpType::dci;
    return o;
  }
  Wqe write(u16 stream, u32 rkey, u64 to_offset, u64 from_offset, u32 bytes = 64, int which = 0) {
    return Wqe(WqeOpcode::rdma_write)
        .stream(stream)
        .av(key, dct[which].qp->qpn, lid)
        .remote(to.address(to_offset), rkey)
        .data(bytes, from.key(), from.address(from_offset));
  }
  Wqe add(u16 stream, u32 rkey, u64 offset) {
    return Wqe(WqeOpcode::atomic_fa)
        .stream(stream)
        .av(key, dct[0].qp->qpn, lid)
        .remote(to.address(offset), rkey)
        .be(1, 8)
        .be(0, 8)
        .data(8, from.key(), from.address(60000));
  }
  void good() { CHECK(cq.expect().opcode() == 0); }
  void bad(Syndrome s) {
    const Completion c = cq.expect();
    CHECK(c.opcode() == failed);
    CHECK(c.syndrome() == static_cast<u8>(s));
  }

  Rig rig;
  u16 lid = rig.device().port(1).lid;
  TestCq cq, target_cq;
  TestSrq srq;
  std::array<TestQp, 2> dct{TestQp{rig, target_cq, target_cq, target(&srq.srq)},
                            TestQp{rig, target_cq, target_cq, target(&srq.srq)}};
  TestQp dci{rig, cq, cq, initiator()};
  Region from{65536, full_access}, to{65536, full_access};
};

}  // namespace

TEST_CASE("A refused request stops its stream only", "[streams]") {
  StreamRig t;
  const u32 good = t.to.key(), wrong = good ^ 0x100;
  t.dci.post(t.add(1, good, 40000));
  t.dci.post(t.write(2, wrong, 0, 0));
  t.dci.post(t.add(1, good, 40000));
  t.dci.post(t.write(2, good, 100, 0));  // behind the failure: flushed
  t.dci.post(t.write(3, good, 200, 0, 40));
  t.dci.post(t.write(3, good, 300, 0, 40, 1));
  t.rig.step();
  t.good();
  t.bad(Syndrome::remote_access);
  t.good();
  t.bad(Syndrome::flush);
  t.good();
  t.good();
  t.cq.expect_none();
  CHECK(t.to.at<u64>(40000) == 2);  // each executed once
  CHECK(t.to.data()[100] == 0);
  CHECK(std::memcmp(t.to.data() + 200, t.from.data(), 40) == 0);
  CHECK(std::memcmp(t.to.data() + 300, t.from.data(), 40) == 0);
  CHECK(t.dci.qp->state == QpState::rts);

  t.dci.post(t.write(2, good, 100, 0));
  t.rig.step();
  t.bad(Syndrome::flush);  // until software resets it
  CHECK_FALSE(qp_reset_stream(*t.dci.qp, 3));
  CHECK(qp_reset_stream(*t.dci.qp, 2));
  CHECK_FALSE(qp_reset_stream(*t.dci.qp, 2));
  t.dci.post(t.write(2, good, 100, 0));
  t.rig.step();
  t.good();
  CHECK(std::memcmp(t.to.data() + 100, t.from.data(), 64) == 0);
}

TEST_CASE("A local failure stops its stream only", "[streams]") {
  StreamRig t;
  Region foreign(64, full_access, pdn + 1);
  t.dci.post(t.write(1, t.to.key(), 0, 0));
  t.dci.post(Wqe(WqeOpcode::rdma_write)
                 .stream(2)
                 .av(key, t.dct[0].qp->qpn, t.lid)
                 .remote(t.to.address(), t.to.key())
                 .data(64, foreign.key(), foreign.address()));
  t.dci.post(t.write(2, t.to.key(), 64, 0));
  t.dci.post(t.write(1, t.to.key(), 128, 0));
  t.rig.step();
  t.good();
  t.bad(Syndrome::local_protection);
  t.bad(Syndrome::flush);
  t.good();
  CHECK(t.to.data()[64] == 0);
  CHECK(std::memcmp(t.to.data() + 128, t.from.data(), 64) == 0);
}

TEST_CASE("READs begin anew behind a failure", "[streams]") {
  StreamRig t;
  t.to.fill(8);
  const auto read = [&](u16 stream, u32 rkey, u64 at) {
    return Wqe(WqeOpcode::rdma_read)
        .stream(stream)
        .av(key, t.dct[0].qp->qpn, t.lid)
        .remote(t.to.address(at), rkey)
        .data(20000, t.from.key(), t.from.address(at));
  };
  t.dci.post(read(1, t.to.key() ^ 0x100, 0));
  t.dci.post(read(2, t.to.key(), 0));
  t.dci.post(read(3, t.to.key(), 20000));
  t.rig.step();
  t.bad(Syndrome::remote_access);
  t.good();
  t.good();
  CHECK(std::memcmp(t.to.data(), t.from.data(), 40000) == 0);
}

TEST_CASE("Too many errored streams stop the initiator", "[streams]") {
  StreamRig t;
  const u32 good = t.to.key(), wrong = good ^ 0x100;
  t.dci.post(t.write(1, wrong, 0, 0));
  t.rig.step();
  t.bad(Syndrome::remote_access);
  CHECK(t.dci.qp->state == QpState::rts);
  t.dci.post(t.write(2, wrong, 0, 0));
  t.dci.post(t.write(3, good, 0, 0));
  t.rig.step();
  t.bad(Syndrome::remote_access);
  t.bad(Syndrome::flush);
  CHECK(t.dci.qp->state == QpState::err);
  CHECK(t.to.data()[0] == 0);

  // RESET forgets the streams.
  qp_set_state(*t.dci.qp, QpState::reset);
  CHECK_FALSE(qp_reset_stream(*t.dci.qp, 1));
}

TEST_CASE("Without streams one failure stops the initiator", "[streams]") {
  StreamRig t;
  t.dci.qp->max_errored_streams = 0;
  t.dci.post(t.write(1, t.to.key() ^ 0x100, 0, 0));
  t.dci.post(t.write(2, t.to.key(), 0, 0));
  t.rig.step();
  t.bad(Syndrome::remote_access);
  t.bad(Syndrome::flush);
  CHECK(t.dci.qp->state == QpState::err);
}
