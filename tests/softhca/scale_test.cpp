// What many idle objects take. What they cost those that work: ./run bench softhca
#include <malloc.h>

#include <memory>
#include <vector>

#include "rig.h"
#include "uverbs/objects.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr int many = 10000;

// RC QPs as applications leave them: connected, nothing posted.
class IdleQps {
 public:
  IdleQps(Rig &rig, Cq &cq, int n) {
    for (int i = 0; i < n; ++i) {
      auto q = std::make_unique<Qp>();
      q->device = &rig.device();
      q->pdn = pdn;
      q->send_cq = q->recv_cq = &cq;
      q->dbrec = dbrec_;
      q->sq = queue_;
      q->sq_wqebbs = 1;
      Qp *qp = qp_register(std::move(q));
      if (qp == nullptr) FAIL("no more QPs");
      qp->attr.port = 1;
      qp_set_state(*qp, QpState::init);
      qp->attr.dest_qpn = 1;
      qp->attr.path_mtu = 3;
      qp_set_state(*qp, QpState::rtr);
      qp_set_state(*qp, QpState::rts);
      qps_.push_back(qp);
    }
  }
  ~IdleQps() {
    for (Qp *qp : qps_) qp_unregister(qp);
  }

 private:
  alignas(64) u32 dbrec_[2] = {};
  u8 queue_[wqe_bb] = {};
  std::vector<Qp *> qps_;
};

}  // namespace

TEST_CASE("An idle QP takes less than 4 KiB of the device", "[scale]") {
  Rig rig;
  TestCq cq;
  const auto heap = [] {
    const auto m = mallinfo2();
    return m.uordblks + m.hblkhd;
  };
  const size_t before = heap();
  IdleQps idle(rig, cq.cq, many);
  // The command layer has an object for each, and an entry in a table of them.
  const size_t taken = (heap() - before) / many + sizeof(uverbs::QpObject) + 64;
  INFO(taken << " bytes");
  CHECK(taken < 4096);
}
