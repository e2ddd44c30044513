// Programs that post and poll without libmlx5, and so give the device no time
// of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "direct_rig.h"

using namespace direct;

TEST_CASE("A write posted before its target is deregistered arrives", "[direct_test]") {
  Context c;
  Rc a(c), b(c);
  a.connect(b.qp->qp_num, c.port.lid);
  b.connect(a.qp->qp_num, c.port.lid);
  Memory from(c, 4096);
  for (int round = 0; round < 50; ++round) {
    Memory to(c, 4096);
    from.bytes[7] = static_cast<uint8_t>(round + 1);
    a.write(from, 4096, to.address(), to.mr->rkey);
    to.deregister();
    REQUIRE(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
    REQUIRE(to.bytes[7] == round + 1);
  }
}

namespace {

struct Address {
  uint32_t qpn, rkey;
  uint16_t lid;
  uint64_t at;
};

void put(int fd, const void *p, size_t n) {
  if (write(fd, p, n) != static_cast<ssize_t>(n)) std::abort();
}
void hear(int fd, void *p, size_t n) {
  if (read(fd, p, n) != static_cast<ssize_t>(n)) std::abort();
}

}  // namespace

// The first record between two processes has to wait for the receiver to let
// its sender in. What the sender says by other ways is faster.
TEST_CASE("A first write of another process comes before a deregistration", "[direct_test]") {
  int there[2], back[2];
  REQUIRE((pipe(there) == 0 && pipe(back) == 0));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int status = 1;
    {
      Context c;
      Rc qp(c);
      Memory from(c, 4096);
      from.bytes[99] = 42;
      Address mine{qp.qp->qp_num, 0, c.port.lid, 0}, peer;
      put(back[1], &mine, sizeof mine);
      hear(there[0], &peer, sizeof peer);
      qp.connect(peer.qpn, peer.lid);
      ibv_sge sge{from.address(), 4096, from.mr->lkey};
      ibv_send_wr wr{}, *bad;
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.wr.rdma.remote_addr = peer.at;
      wr.wr.rdma.rkey = peer.rkey;
      if (ibv_post_send(qp.qp, &wr, &bad) != 0) std::abort();
      put(back[1], &mine, 1);
      ibv_wc wc;
      while (ibv_poll_cq(qp.cq, 1, &wc) == 0) {
      }
      status = wc.status;
    }
    _exit(status);
  }
  int status = -1;
  {
    Context c;
    Rc qp(c);
    Memory to(c, 4096);
    Address mine{qp.qp->qp_num, to.mr->rkey, c.port.lid, to.address()}, peer;
    hear(back[0], &peer, sizeof peer);
    qp.connect(peer.qpn, peer.lid);
    put(there[1], &mine, sizeof mine);
    char posted;
    hear(back[0], &posted, 1);
    to.deregister();
    CHECK(to.bytes[99] == 42);
    REQUIRE(waitpid(child, &status, 0) == child);
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == IBV_WC_SUCCESS);
}
