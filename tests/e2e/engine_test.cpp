// The engine over queues of plain objects of rdma-core, on the software HCA: what
// it writes is executed, and what the device writes is understood.
#include <catch.h>

#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "translate/queue/engine/open.h"
#include "translate/queue/engine/post_shared.h"

using namespace ibvexp::engine;

namespace {

template <class T>
T *must(T *object) {
  REQUIRE(object != nullptr);
  return object;
}

std::uint32_t index_before(const void *object) {
  return load<std::uint32_t>(static_cast<const std::uint8_t *>(object) - 4);
}

// A queue pair of libmlx5's, whose queues are the engine's.
struct Side {
  ibv_qp *qp = nullptr;
  Endpoint endpoint;
};

struct World {
  ibv_context *context = nullptr;
  ibv_pd *pd = nullptr;
  ibv_cq *cq = nullptr;
  ibv_comp_channel *channel = nullptr;
  CompletionQueue completions;
  ibvexp::NumberTable<Endpoint> endpoints;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(1 << 16);
  ibv_mr *mr = nullptr;

  explicit World(std::uint16_t cqe_size) {
    ibv_device **list = must(ibv_get_device_list(nullptr));
    context = must(ibv_open_device(must(list[0])));
    ibv_free_device_list(list);
    pd = must(ibv_alloc_pd(context));
    channel = must(ibv_create_comp_channel(context));
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 60;
    attr.channel = channel;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    mlx5dv_cq_init_attr dv{};
    dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    dv.cqe_size = cqe_size;
    cq = ibv_cq_ex_to_cq(must(mlx5dv_create_cq(context, &attr, &dv)));
    mlx5dv_cq facts{};
    mlx5dv_obj object{};
    object.cq.in = cq;
    object.cq.out = &facts;
    REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
    open(completions, facts);
    completions.cq = cq;
    completions.endpoints = &endpoints;
    mr = must(ibv_reg_mr(pd, memory.data(), memory.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC));
  }
  ~World() {
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_destroy_comp_channel(channel);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }

  void make(Side &side, ibv_qp_type type, SharedQueue *shared = nullptr, ibv_srq *srq = nullptr) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.qp_type = type;
    attr.cap = {20, 20, 3, 2, 64};
    side.qp = must(ibv_create_qp(pd, &attr));
    mlx5dv_qp facts{};
    mlx5dv_obj object{};
    object.qp.in = side.qp;
    object.qp.out = &facts;
    REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0);
    QpFacts more;
    more.transport = type == IBV_QPT_UD   ? Transport::ud
                     : type == IBV_QPT_UC ? Transport::uc
                                          : Transport::rc;
    more.granted = attr.cap;
    more.number = side.qp->qp_num;
    open(side.endpoint.send, facts, more);
    open(side.endpoint.receive, facts, more);
    side.endpoint.shared = shared;
    side.endpoint.srq = srq;
    side.endpoint.qp = side.qp;
    side.endpoint.set_user_index(index_before(side.qp));
    side.endpoint.set_flags();
    endpoints.set(side.endpoint.user_index(), &side.endpoint);
  }

  ibv_ah_attr path() const {
    ibv_port_attr port{};
    REQUIRE(ibv_query_port(context, 1, &port) == 0);
    ibv_ah_attr to{};
    to.dlid = port.lid;
    to.port_num = 1;
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      to.is_global = 1;
      to.grh.hop_limit = 1;
      REQUIRE(ibv_query_gid(context, 1, 0, &to.grh.dgid) == 0);
    }
    return to;
  }

  void connect(Side &side, std::uint32_t to) const {
    const ibv_qp_type type = side.qp->qp_type;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = 0x1234;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (type == IBV_QPT_RC)
      attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    const int common = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    REQUIRE(ibv_modify_qp(side.qp, &attr,
                          common | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
    attr.ah_attr = path();
    int mask = IBV_QP_STATE;
    if (type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    REQUIRE(ibv_modify_qp(side.qp, &attr, mask) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type == IBV_QPT_RC)
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    REQUIRE(ibv_modify_qp(side.qp, &attr, mask) == 0);
    side.endpoint.send.select(true);
  }

  void drop(Side &side) {
    REQUIRE(ibv_destroy_qp(side.qp) == 0);
    clean(completions, side.endpoint);
    endpoints.set(side.endpoint.user_index(), nullptr);
  }

  std::vector<ibv_exp_wc> take(std::size_t count) {
    std::vector<ibv_exp_wc> all(count);
    for (std::size_t done = 0; done < count;) {
      const int n = poll(completions, static_cast<int>(count - done), &all[done], sizeof(all[0]));
      if (n < 0) FAIL("poll: " << n);
      done += static_cast<std::size_t>(n);
    }
    return all;
  }

  ibv_sge piece(std::size_t offset, std::uint32_t bytes) const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, bytes, mr->lkey};
  }
  void fill(std::size_t offset, std::size_t bytes, std::uint8_t first) {
    std::iota(memory.begin() + static_cast<std::ptrdiff_t>(offset),
              memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes), first);
  }
  bool same(std::size_t a, std::size_t b, std::size_t bytes) const {
    return std::equal(memory.begin() + static_cast<std::ptrdiff_t>(a),
                      memory.begin() + static_cast<std::ptrdiff_t>(a + bytes),
                      memory.begin() + static_cast<std::ptrdiff_t>(b));
  }
};

ibv_exp_send_wr request(ibv_exp_wr_opcode opcode, std::uint64_t flags, ibv_sge *list, int count) {
  ibv_exp_send_wr wr;
  // Real programs set what they need and leave the rest.
  std::memset(static_cast<void *>(&wr), 0x5c, sizeof(wr));
  wr.wr_id = 7;
  wr.next = nullptr;
  wr.sg_list = list;
  wr.num_sge = count;
  wr.exp_opcode = opcode;
  wr.exp_send_flags = flags;
  return wr;
}

int post(Side &side, ibv_exp_send_wr &wr) {
  ibv_exp_send_wr *bad = nullptr;
  return side.endpoint.send.post_exp(side.endpoint.send, &wr, &bad);
}

int receive(Side &side, std::uint64_t id, ibv_sge *list, int count) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = list;
  wr.num_sge = count;
  return post_receive(side.endpoint.receive, &wr, &bad);
}

constexpr std::uint64_t signaled = IBV_EXP_SEND_SIGNALED;

}  // namespace

TEST_CASE("the device executes what the engine writes") {
  for (const std::uint16_t cqe_size : {std::uint16_t{64}, std::uint16_t{128}}) {
    CAPTURE(cqe_size);
    World world(cqe_size);
    Side a, b;
    world.make(a, IBV_QPT_RC);
    world.make(b, IBV_QPT_RC);
    world.connect(a, b.qp->qp_num);
    world.connect(b, a.qp->qp_num);
    // Round and round: the queues are short.
    for (std::uint32_t round = 0; round < 200; ++round) {
      CAPTURE(round);
      const std::uint32_t bytes = 1 + round * 7 % 300;
      world.fill(0, 1000, static_cast<std::uint8_t>(round));
      std::fill(world.memory.begin() + 4096, world.memory.end(), std::uint8_t{0});

      ibv_sge from[3] = {world.piece(0, bytes), world.piece(0, 0), world.piece(bytes, 5)};
      ibv_sge to[2] = {world.piece(4096, 3), world.piece(4099, 1000)};
      REQUIRE(receive(b, round, to, 2) == 0);
      ibv_exp_send_wr send = request(IBV_EXP_WR_SEND_WITH_IMM, signaled, from, 3);
      send.ex.imm_data = round;
      ibv_sge word = world.piece(8192, 8);
      ibv_exp_send_wr add = request(IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, 0, &word, 1);
      add.wr.atomic = {world.piece(8200, 0).addr, 3, 0, world.mr->rkey};
      add.next = nullptr;
      ibv_exp_send_wr write = request(IBV_EXP_WR_RDMA_WRITE, 0, from, 1);
      write.wr.rdma = {world.piece(12288, 0).addr, world.mr->rkey};
      ibv_exp_send_wr in = request(IBV_EXP_WR_RDMA_WRITE, IBV_EXP_SEND_INLINE, from, 1);
      from[0].length = bytes;
      ibv_sge small = world.piece(100, 60);
      in.sg_list = &small;
      in.wr.rdma = {world.piece(16384, 0).addr, world.mr->rkey};
      ibv_exp_send_wr read = request(IBV_EXP_WR_RDMA_READ, signaled, nullptr, 2);
      ibv_sge fetched[2] = {world.piece(20000, 10), world.piece(20010, bytes)};
      read.sg_list = fetched;
      read.wr.rdma = {world.piece(0, 0).addr, world.mr->rkey};
      send.next = &add;
      add.next = &write;
      write.next = &in;
      in.next = &read;
      REQUIRE(post(a, send) == 0);

      int sends = 0, messages = 0;
      for (const ibv_exp_wc &wc : world.take(3)) {
        REQUIRE(wc.status == IBV_WC_SUCCESS);
        if (wc.exp_opcode == IBV_EXP_WC_RECV) {
          ++messages;
          CHECK(wc.wr_id == round);
          CHECK(wc.byte_len == bytes + 5);
          CHECK(wc.imm_data == round);
          CHECK(wc.qp == b.qp);
          // Data inside the completion lie where this does.
          if (bytes + 5 > 32) CHECK(wc.src_qp == a.qp->qp_num);
        } else {
          ++sends;
          CHECK(wc.qp == a.qp);
          CHECK(wc.wr_id == 7);
          CHECK(wc.exp_opcode == (sends == 1 ? IBV_EXP_WC_SEND : IBV_EXP_WC_RDMA_READ));
          if (sends == 2) CHECK(wc.byte_len == bytes + 10);
        }
      }
      CHECK(sends == 2);
      CHECK(messages == 1);
      CHECK(world.same(0, 4096, bytes));
      CHECK(world.same(bytes, 4096 + bytes, 5));
      CHECK(load<std::uint64_t>(&world.memory[8200]) == 3);
      CHECK(world.same(0, 12288, bytes));
      CHECK(world.same(100, 16384, 60));
      CHECK(world.same(0, 20000, bytes + 10));
    }
    world.drop(a);
    world.drop(b);
  }
}

TEST_CASE("a full queue and a failing request") {
  World world(64);
  Side a, b;
  world.make(a, IBV_QPT_RC);
  world.make(b, IBV_QPT_RC);
  world.connect(a, b.qp->qp_num);
  world.connect(b, a.qp->qp_num);
  ibv_sge piece = world.piece(0, 8);
  const std::uint32_t depth = a.endpoint.send.max_posted;
  ibv_exp_send_wr wr = request(IBV_EXP_WR_RDMA_WRITE, 0, &piece, 1);
  wr.wr.rdma = {world.piece(4096, 0).addr, world.mr->rkey};
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < depth; ++i) {
      wr.exp_send_flags = i + 1 == depth ? signaled : 0;
      REQUIRE(post(a, wr) == 0);
    }
    CHECK(post(a, wr) == ENOMEM);
    CHECK(world.take(1)[0].status == IBV_WC_SUCCESS);
  }
  // A key that does not exist; what follows is flushed, and so are the receives.
  REQUIRE(receive(a, 11, &piece, 1) == 0);
  wr.wr.rdma.rkey = 0;
  wr.exp_send_flags = 0;
  REQUIRE(post(a, wr) == 0);
  REQUIRE(post(a, wr) == 0);
  const auto all = world.take(3);
  int flushed = 0;
  for (const ibv_exp_wc &wc : all) {
    CHECK(wc.qp == a.qp);
    flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
  }
  CHECK(all[0].status == IBV_WC_REM_ACCESS_ERR);
  CHECK(flushed == 2);
  CHECK(a.endpoint.send.limit() - a.endpoint.send.count == depth);
  world.drop(a);
  world.drop(b);
}

TEST_CASE("a shared receive queue, unread completions and another queue pair") {
  World world(64);
  ibv_srq_init_attr init{};
  init.attr = {10, 2, 0};
  ibv_srq *srq = must(ibv_create_srq(world.pd, &init));
  mlx5dv_srq facts{};
  mlx5dv_obj object{};
  object.srq.in = srq;
  object.srq.out = &facts;
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ) == 0);
  SharedQueue shared;
  open(shared, facts, init.attr.max_wr, init.attr.max_sge);
  Side a, b, c;
  for (Side *side : {&a, &b, &c}) world.make(*side, IBV_QPT_RC, &shared, srq);
  world.connect(a, b.qp->qp_num);
  world.connect(b, a.qp->qp_num);
  ibv_sge piece = world.piece(4096, 100);
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  std::uint32_t posted = 0;
  while (post_receive(shared, &wr, &bad) == 0) ++posted;
  CHECK(posted >= 10);
  ibv_sge from = world.piece(0, 33);
  ibv_exp_send_wr send = request(IBV_EXP_WR_SEND, signaled, &from, 1);
  for (int round = 0; round < 50; ++round) {
    wr.wr_id = static_cast<std::uint64_t>(round);
    world.fill(0, 33, static_cast<std::uint8_t>(round));
    REQUIRE(post(a, send) == 0);
    for (const ibv_exp_wc &wc : world.take(2)) {
      REQUIRE(wc.status == IBV_WC_SUCCESS);
      if (wc.exp_opcode == IBV_EXP_WC_RECV) CHECK(wc.srq == srq);
    }
    CHECK(world.same(0, 4096, 33));
    CHECK(post_receive(shared, &wr, &bad) == 0);
  }
  // These are not polled: they go with their queue pairs, and the places come back.
  for (int i = 0; i < 4; ++i) REQUIRE(post(a, send) == 0);
  for (std::uint8_t own; !world.completions.has(*world.completions.consumed + 7, own);) {
  }
  world.drop(a);
  world.drop(b);
  ibv_exp_wc none;
  CHECK(poll(world.completions, 1, &none, sizeof(none)) == 0);
  std::uint32_t again = 0;
  while (post_receive(shared, &wr, &bad) == 0) ++again;
  CHECK(again == 4);
  world.drop(c);
  ibv_destroy_srq(srq);
}

TEST_CASE("datagrams, and events") {
  World world(64);
  Side a;
  world.make(a, IBV_QPT_UD);
  world.connect(a, 0);
  ibv_ah_attr path = world.path();
  ibv_ah *ah = must(ibv_create_ah(world.pd, &path));
  std::uint32_t events = 0;
  for (int round = 0; round < 30; ++round) {
    ibv_sge to = world.piece(4096, 200), from = world.piece(0, 50);
    world.fill(0, 50, static_cast<std::uint8_t>(round));
    REQUIRE(receive(a, 5, &to, 1) == 0);
    arm(world.completions, events, *world.completions.consumed, false);
    ibv_exp_send_wr wr = request(IBV_EXP_WR_SEND, 0, &from, 1);
    wr.wr.ud = {ah, a.qp->qp_num, 0x1234};
    REQUIRE(post(a, wr) == 0);
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    REQUIRE(ibv_get_cq_event(world.channel, &cq, &context) == 0);
    events += arm_step;
    ibv_ack_cq_events(cq, 1);
    const ibv_exp_wc wc = world.take(1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.byte_len == 90);
    CHECK(world.same(0, 4096 + 40, 50));
    // Unsignaled requests never leave the queue: now and then one is.
    if (round % 10 == 9) {
      wr.exp_send_flags = signaled;
      wr.wr.ud.remote_qpn = 0xfffffe;
      REQUIRE(post(a, wr) == 0);
      CHECK(world.take(1)[0].exp_opcode == IBV_EXP_WC_SEND);
    }
  }
  world.drop(a);
  ibv_destroy_ah(ah);
}
