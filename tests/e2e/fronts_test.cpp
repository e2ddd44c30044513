// Objects of the library's own in front of rdma-core's: what programs get back is
// what they were given, by whatever way.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <skip.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <utility>

#include "families_rig.h"
#include "pair.h"

namespace {

using Srq = Owned<ibv_srq, ibv_destroy_srq>;

// Whether an object has the private part that libmlx5's own have not: another one
// stands behind it.
bool is_front(ibv_qp *qp) {
  ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
  return ex != nullptr && &ex->qp_base != qp;
}

bool readable(int fd, int milliseconds = 10'000) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, milliseconds) == 1;
}

}  // namespace

TEST_CASE("completions name what the program holds") {
  Pair pair(IBV_QPT_RC);
  auto piece = pair.out.piece(0, 64);
  post_receive(pair.b.get(), 7, pair.in.piece(0, 64));
  auto wr = request(8, IBV_EXP_WR_SEND, &piece);
  pair.post(wr);
  const auto [sent, received] = both(pair);
  CHECK(sent.qp == pair.a.get());
  CHECK(received.qp == pair.b.get());
  CHECK(std::equal(pair.out.bytes.begin(), pair.out.bytes.begin() + 64, pair.in.bytes.begin()));
}

TEST_CASE("queries name the objects of the program") {
  Pair pair(IBV_QPT_RC);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(pair.a.get(), &attr, IBV_QP_STATE | IBV_QP_CAP, &init) == 0);
  CHECK(attr.qp_state == IBV_QPS_RTS);
  CHECK(init.send_cq == pair.cq.get());
  CHECK(init.recv_cq == pair.cq.get());
  CHECK(init.qp_context == pair.a->qp_context);
  CHECK(init.srq == nullptr);
}

TEST_CASE("completion events bring queue and value of the program") {
  Rig rig;
  // Without the slot of old programs rdma-core reads the event and counts it itself.
  if (GENERATE(false, true)) rig.context->ops._compat_cq_event = nullptr;
  Channel channel(ibv_create_comp_channel(rig.context.get()));
  int value = 0;
  Cq cq(ibv_create_cq(rig.context.get(), 16, &value, channel.get(), 0));
  REQUIRE(cq);
  CHECK(cq->channel == channel.get());
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = cq.get();
  Qp a(ibv_exp_create_qp(rig.context.get(), &attr)), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer memory(rig.pd.get(), 64);
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
    auto piece = memory.piece(0, 8);
    auto wr = request(turn, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = memory.address(8);
    wr.wr.rdma.rkey = memory.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
    REQUIRE(readable(channel->fd));
    ibv_cq *from = nullptr;
    void *context = nullptr;
    REQUIRE(ibv_get_cq_event(channel.get(), &from, &context) == 0);
    CHECK(from == cq.get());
    CHECK(context == &value);
    ibv_ack_cq_events(from, 1);
    ibv_wc wc{};
    REQUIRE(ibv_poll_cq(cq.get(), 1, &wc) == 1);
    CHECK(wc.wr_id == turn);
    CHECK(wc.qp_num == a->qp_num);
  }
  // It waits for acknowledgements, of which none is missing.
  a.reset();
  cq.reset();
}

bool take_event(ibv_cq *cq) {
  ibv_cq *from = nullptr;
  void *context = nullptr;
  if (ibv_get_cq_event(cq->channel, &from, &context) != 0 || from != cq) return false;
  ibv_ack_cq_events(from, 1);
  return true;
}

// Arms, and waits for an event only when nothing is there. False: none comes.
bool wait_for_completion(ibv_cq *cq, ibv_wc &wc) {
  for (;;) {
    if (ibv_req_notify_cq(cq, 0) != 0) return false;
    if (const int count = ibv_poll_cq(cq, 1, &wc); count != 0) return count == 1;
    if (!readable(cq->channel->fd) || !take_event(cq)) return false;
  }
}

TEST_CASE("no event is lost while other threads arm the same queue") {
  Rig rig;
  Channel channel(ibv_create_comp_channel(rig.context.get()));
  Cq cq(ibv_create_cq(rig.context.get(), 16, nullptr, channel.get(), 0));
  REQUIRE(cq);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = cq.get();
  Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  rig.connect(qp.get(), qp->qp_num);
  Buffer memory(rig.pd.get(), 64);
  std::atomic<bool> done = false;
  std::thread others[2];
  for (std::thread &other : others)
    other = std::thread([&] {
      while (!done) {
        if (ibv_req_notify_cq(cq.get(), 0) != 0) std::abort();
        std::this_thread::yield();
      }
    });
  bool lost = false;
  for (std::uint64_t turn = 0; turn < 1000 && !lost; ++turn) {
    auto piece = memory.piece(0, 8);
    auto wr = request(turn, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = memory.address(8);
    wr.wr.rdma.rkey = memory.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    ibv_wc wc{};
    lost = ibv_exp_post_send(qp.get(), &wr, &bad) != 0 || !wait_for_completion(cq.get(), wc) ||
           wc.wr_id != turn || wc.status != IBV_WC_SUCCESS;
  }
  done = true;
  for (std::thread &other : others) other.join();
  CHECK_FALSE(lost);
}

// With builders: libmlx5 drives it, and its completions.
Qp build_qp(Rig &rig, ibv_cq *cq) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = rig.pd.get();
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  return Qp(ibv_create_qp_ex(rig.context.get(), &attr));
}

// Writes 8 bytes over such a queue pair.
void write_built(ibv_qp *qp, const Buffer &memory, std::uint64_t id) {
  ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(ex);
  ex->wr_id = id;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ex, memory.mr->rkey, memory.address(8));
  ibv_wr_set_sge(ex, memory.mr->lkey, memory.address(), 8);
  REQUIRE(ibv_wr_complete(ex) == 0);
}

TEST_CASE("threads that poll by a family count each completion once") {
  constexpr int requests = 60'000, depth = 32;
  FamilyRig rig;
  const Cq cq = rig.create_cq(depth);
  const Qp qp = rig.create_on(IBV_QPT_RC, cq.get(), cq.get());
  rig.connect(qp.get(), qp->qp_num);
  auto *const family = rig.cq_family(cq.get());
  REQUIRE(family != nullptr);
  const Buffer memory(rig.pd.get(), 64);
  ibv_sge piece = memory.piece(0, 8);
  auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = memory.address(8);
  wr.wr.rdma.rkey = memory.mr->rkey;
  std::atomic<int> taken = 0, failed = 0;
  const auto poll = [&] {
    const int count = family->poll_cnt(cq.get(), 1);
    if (count < 0) ++failed;
    else taken += count;
  };
  std::jthread other([&] {
    while (taken < requests && failed == 0) poll();
  });
  for (int posted = 0; posted < requests && failed == 0; ++posted) {
    while (posted - taken >= depth && failed == 0) poll();
    ibv_exp_send_wr *bad = nullptr;
    if (ibv_exp_post_send(qp.get(), &wr, &bad) != 0) ++failed;
  }
  while (taken < requests && failed == 0) poll();
  other.join();
  CHECK(failed == 0);
  CHECK(taken == requests);
}

TEST_CASE("no event is lost while another queue pair joins an armed queue") {
  Rig rig;
  Buffer memory(rig.pd.get(), 64);
  for (int turn = 0; turn < 200; ++turn) {
    CAPTURE(turn);
    Channel channel(ibv_create_comp_channel(rig.context.get()));
    Cq cq(ibv_create_cq(rig.context.get(), 16, nullptr, channel.get(), 0));
    REQUIRE(cq);
    // Every other time the engine drives a queue pair there, and the other one's queue stands
    // beside the engine's, not in its place.
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    Qp driven(turn % 2 != 0 ? ibv_create_qp(rig.pd.get(), &init) : nullptr);
    std::latch start(2);
    int armed = -1;
    std::thread other([&] {
      start.arrive_and_wait();
      armed = ibv_req_notify_cq(cq.get(), 0);
    });
    start.arrive_and_wait();
    Qp built = build_qp(rig, cq.get());
    other.join();
    REQUIRE(armed == 0);
    REQUIRE(built);

    rig.connect(built.get(), built->qp_num);
    const auto arm = [&] {
      REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
      while (readable(channel->fd, 0)) REQUIRE(take_event(cq.get()));
    };
    write_built(built.get(), memory, 5);
    // Of the thread's arming.
    REQUIRE(readable(channel->fd));
    ibv_wc wc{};
    REQUIRE(wait_for_completion(cq.get(), wc));
    CHECK(wc.wr_id == 5);
    CHECK(wc.status == IBV_WC_SUCCESS);
    arm();
    write_built(built.get(), memory, 6);
    REQUIRE(readable(channel->fd));
    REQUIRE(wait_for_completion(cq.get(), wc));
    CHECK(wc.wr_id == 6);
    if (driven == nullptr) continue;
    rig.connect(driven.get(), driven->qp_num);
    auto piece = memory.piece(0, 8);
    auto wr = request(7, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = memory.address(8);
    wr.wr.rdma.rkey = memory.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    arm();
    REQUIRE(ibv_exp_post_send(driven.get(), &wr, &bad) == 0);
    REQUIRE(readable(channel->fd));
    REQUIRE(wait_for_completion(cq.get(), wc));
    CHECK(wc.wr_id == 7);
  }
}

TEST_CASE("a queue goes when another thread acknowledges the event of the one beside") {
  Rig rig;
  if (GENERATE(false, true)) rig.context->ops._compat_cq_event = nullptr;
  Channel channel(ibv_create_comp_channel(rig.context.get()));
  ibv_cq *cq = ibv_create_cq(rig.context.get(), 16, nullptr, channel.get(), 0);
  REQUIRE(cq);
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = cq;
  Qp driven(ibv_exp_create_qp(rig.context.get(), &attr)), built = build_qp(rig, cq);
  REQUIRE(driven);
  REQUIRE(built);
  rig.connect(built.get(), built->qp_num);
  Buffer memory(rig.pd.get(), 64);
  REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
  write_built(built.get(), memory, 5);
  ibv_cq *from = nullptr;
  void *context = nullptr;
  REQUIRE(ibv_get_cq_event(channel.get(), &from, &context) == 0);
  CHECK(from == cq);
  built.reset();
  driven.reset();
  std::atomic<long> destroyer = 0;
  std::atomic<bool> destroyed = false;
  std::thread other([&] {
    destroyer = syscall(SYS_gettid);
    CHECK(ibv_destroy_cq(cq) == 0);
    destroyed = true;
  });
  const auto sleeps = [&] {
    std::ifstream stat("/proc/self/task/" + std::to_string(destroyer) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    return state == "S";
  };
  while (!destroyed && !sleeps()) std::this_thread::yield();
  CHECK_FALSE(destroyed);
  ibv_ack_cq_events(from, 1);
  other.join();
}

TEST_CASE("asynchronous events bring objects of the program") {
  Rig rig;
  ibv_srq_init_attr attr{};
  attr.srq_context = &rig;
  attr.attr = {16, 1, 0};
  Srq srq(ibv_create_srq(rig.pd.get(), &attr));
  REQUIRE(srq);
  CHECK(srq->srq_context == &rig);
  auto with = rig.qp_attr(IBV_QPT_RC);
  with.srq = srq.get();
  Qp b(ibv_exp_create_qp(rig.context.get(), &with)), a = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer memory(rig.pd.get(), 64);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ibv_sge piece = memory.piece(0, 8);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }
  ibv_srq_attr limit{};
  limit.srq_limit = 3;
  REQUIRE(ibv_modify_srq(srq.get(), &limit, IBV_SRQ_LIMIT) == 0);
  ibv_srq_attr now{};
  REQUIRE(ibv_query_srq(srq.get(), &now) == 0);
  CHECK(now.srq_limit == 3);
  for (int i = 0; i < 2; ++i) {
    auto piece = memory.piece(8, 8);
    auto wr = request(100, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
  }
  const auto all = rig.completions(4);
  for (const auto &wc : all)
    if (wc.exp_opcode >= IBV_EXP_WC_RECV) CHECK(wc.srq == srq.get());

  // The communication of b is established, too.
  bool limit_reached = false;
  std::uint32_t established = 0;
  while (!limit_reached) {
    REQUIRE(readable(rig.context->async_fd));
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(rig.context.get(), &event) == 0);
    if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
      limit_reached = true;
      CHECK(event.element.srq == srq.get());
    } else if (event.event_type == IBV_EVENT_COMM_EST) {
      ++established;
      CHECK(event.element.qp == b.get());
    }
    ibv_ack_async_event(&event);
  }
  CHECK(srq->events_completed == 1);
  CHECK(b->events_completed == established);
}

TEST_CASE("asynchronous events of a port have its number") {
  SKIP_IF(std::getenv("SOFTHCA_CONFIG") == nullptr, "the device has none");
  Rig rig;
  for (const ibv_event_type type : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}) {
    REQUIRE(readable(rig.context->async_fd));
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(rig.context.get(), &event) == 0);
    CHECK(event.event_type == type);
    CHECK(event.element.port_num == 1);
    ibv_ack_async_event(&event);
  }
}

TEST_CASE("the last receive of a queue pair completes with its own pointer") {
  Rig rig;
  ibv_srq_init_attr attr{};
  attr.attr = {16, 1, 0};
  Srq srq(ibv_create_srq(rig.pd.get(), &attr));
  auto with = rig.qp_attr(IBV_QPT_RC);
  with.srq = srq.get();
  Qp b(ibv_exp_create_qp(rig.context.get(), &with)), a = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(b.get(), &to, IBV_QP_STATE) == 0);
  CHECK(b->state == IBV_QPS_ERR);
  REQUIRE(readable(rig.context->async_fd));
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(rig.context.get(), &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(event.element.qp == b.get());
  ibv_ack_async_event(&event);
}

TEST_CASE("queue pairs of today's interfaces are taken beside") {
  Rig rig;
  // With builders: no legacy program asks for them.
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = rig.cq.get();
  attr.cap = {16, 16, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = rig.pd.get();
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  Qp built(ibv_create_qp_ex(rig.context.get(), &attr));
  REQUIRE(built);
  CHECK(attr.send_cq == rig.cq.get());
  CHECK_FALSE(is_front(built.get()));
  mlx5dv_qp_init_attr dv{};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  Qp direct(mlx5dv_create_qp(rig.context.get(), &attr, &dv));
  REQUIRE(direct);
  CHECK_FALSE(is_front(direct.get()));

  rig.connect(built.get(), direct->qp_num);
  rig.connect(direct.get(), built->qp_num);
  Buffer memory(rig.pd.get(), 128);
  std::iota(memory.bytes.begin(), memory.bytes.begin() + 64, std::uint8_t{1});
  ibv_qp_ex *ex = ibv_qp_to_qp_ex(built.get());
  REQUIRE(ex != nullptr);
  ibv_wr_start(ex);
  ex->wr_id = 5;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ex, memory.mr->rkey, memory.address(64));
  ibv_wr_set_sge(ex, memory.mr->lkey, memory.address(), 64);
  REQUIRE(ibv_wr_complete(ex) == 0);
  CHECK(rig.completions(1)[0].wr_id == 5);
  CHECK(std::equal(memory.bytes.begin(), memory.bytes.begin() + 64, memory.bytes.begin() + 64));
}

TEST_CASE("a completion queue for ibv_start_poll is as rdma-core makes it") {
  Rig rig;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  Owned<ibv_cq, ibv_destroy_cq> cq(ibv_cq_ex_to_cq(ibv_create_cq_ex(rig.context.get(), &attr)));
  REQUIRE(cq);
  ibv_poll_cq_attr poll{};
  CHECK(ibv_start_poll(reinterpret_cast<ibv_cq_ex *>(cq.get()), &poll) == ENOENT);
  auto with = rig.qp_attr(IBV_QPT_RC);
  with.send_cq = cq.get();
  Qp qp(ibv_exp_create_qp(rig.context.get(), &with));
  REQUIRE(qp);
  CHECK(qp->send_cq == cq.get());
  CHECK(qp->recv_cq == rig.cq.get());
}

TEST_CASE("a shared receive queue of ibv_create_srq_ex() matches tags") {
  Rig rig;
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(rig.context.get(), nullptr, &device) == 0);
  SKIP_IF(device.tm_caps.max_num_tags == 0, "the device matches no tags");
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 16;
  wanted.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_TM_INFO;
  ibv_cq_ex *const modern = ibv_create_cq_ex(rig.context.get(), &wanted);
  REQUIRE(modern != nullptr);
  const Cq cq(ibv_cq_ex_to_cq(modern));
  ibv_srq_init_attr_ex init{};
  init.attr = {16, 1, 0};
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  init.srq_type = IBV_SRQT_TM;
  init.pd = rig.pd.get();
  init.cq = cq.get();
  init.tm_cap = {31, 16};
  const Srq srq(ibv_create_srq_ex(rig.context.get(), &init));
  REQUIRE(srq);
  const Buffer memory(rig.pd.get(), 64);
  ibv_sge piece = memory.piece(0, 64);
  ibv_ops_wr op{}, *bad = nullptr;
  op.wr_id = 21;
  op.opcode = IBV_WR_TAG_ADD;
  op.flags = IBV_OPS_SIGNALED;
  op.tm.add = {22, &piece, 1, 0x1234, ~std::uint64_t{0}};
  REQUIRE(ibv_post_srq_ops(srq.get(), &op, &bad) == 0);
  ibv_poll_cq_attr polled{};
  int error = ENOENT;
  while (error == ENOENT) error = ibv_start_poll(modern, &polled);
  REQUIRE(error == 0);
  CHECK(modern->wr_id == 21);
  CHECK(modern->status == IBV_WC_SUCCESS);
  CHECK(ibv_wc_read_opcode(modern) == IBV_WC_TM_ADD);
  ibv_end_poll(modern);
}

TEST_CASE("windows are bound by the base verb") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_RC);
  rig.connect(qp.get(), qp->qp_num);
  std::vector<std::uint8_t> memory(4096);
  const Mr mr(ibv_reg_mr(rig.pd.get(), memory.data(), memory.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  REQUIRE(mr);
  const Owned<ibv_mw, ibv_dealloc_mw> window(ibv_alloc_mw(rig.pd.get(), IBV_MW_TYPE_1));
  REQUIRE(window);
  ibv_mw_bind bind{};
  bind.wr_id = 5;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info.mr = mr.get();
  bind.bind_info.addr = reinterpret_cast<std::uintptr_t>(memory.data());
  bind.bind_info.length = 1024;
  bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
  const std::uint32_t before = window->rkey;
  REQUIRE(ibv_bind_mw(qp.get(), window.get(), &bind) == 0);
  const ibv_exp_wc wc = rig.completions(1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == 5);
  CHECK(window->rkey != before);
  CHECK(window->rkey >> 8 == before >> 8);
  // As libmlx5 does.
  bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED;
  CHECK(ibv_bind_mw(qp.get(), window.get(), &bind) == EINVAL);
}

TEST_CASE("rate limits, moderation and groups take them") {
  Rig rig;
  Qp qp = rig.create_qp(IBV_QPT_UD);
  ibv_modify_cq_attr moderate{};
  moderate.attr_mask = IBV_CQ_ATTR_MODERATE;
  moderate.moderate = {10, 10};
  CHECK(ibv_modify_cq(rig.cq.get(), &moderate) == 0);
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  group.raw[15] = 0x77;
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qkey = 1;
  REQUIRE(ibv_modify_qp(qp.get(), &to,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  CHECK(ibv_attach_mcast(qp.get(), &group, 0xc001) == 0);
  CHECK(ibv_detach_mcast(qp.get(), &group, 0xc001) == 0);
}

TEST_CASE("mlx5dv_init_obj() only reads which objects it is to describe") {
  Pair pair(IBV_QPT_RC);
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  Srq srq(ibv_create_srq(pair.pd.get(), &init));
  REQUIRE(srq);
  mlx5dv_qp qp{};
  mlx5dv_cq cq{};
  mlx5dv_srq shared{};
  mlx5dv_pd domain{};
  void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto *object = static_cast<mlx5dv_obj *>(page);
  object->qp = {pair.a.get(), &qp};
  object->cq = {pair.cq.get(), &cq};
  object->srq = {srq.get(), &shared};
  object->pd = {pair.pd.get(), &domain};
  REQUIRE(mprotect(page, 4096, PROT_READ) == 0);
  CHECK(mlx5dv_init_obj(object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ | MLX5DV_OBJ_PD) ==
        0);
  CHECK(qp.sq.buf != nullptr);
  CHECK(cq.buf != nullptr);
  CHECK(shared.buf != nullptr);
  CHECK(domain.pdn != 0);

  // The version of libmlx5's first release.
  const auto first = reinterpret_cast<decltype(&mlx5dv_init_obj)>(
      dlvsym(RTLD_DEFAULT, "mlx5dv_init_obj", "MLX5_1.0"));
  REQUIRE(first != nullptr);
  const mlx5dv_qp same_qp = std::exchange(qp, {});
  const mlx5dv_cq same_cq = std::exchange(cq, {});
  const mlx5dv_srq same_srq = std::exchange(shared, {});
  CHECK(first(object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ) == 0);
  CHECK(qp.sq.buf == same_qp.sq.buf);
  CHECK(cq.buf == same_cq.buf);
  CHECK(shared.buf == same_srq.buf);
  munmap(page, 4096);
}

TEST_CASE("what is gone is refused") {
  Rig rig;
  ibv_qp *qp = rig.create_qp(IBV_QPT_RC).release();
  ibv_cq *cq = rig.create_cq().release();
  REQUIRE(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_qp(qp) == EINVAL);
  ibv_qp_attr to{};
  CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE) == EINVAL);
  ibv_exp_qp_attr exp{};
  CHECK(ibv_exp_modify_qp(qp, &exp, IBV_EXP_QP_STATE) == EINVAL);
  ibv_gid group{};
  CHECK(ibv_attach_mcast(qp, &group, 0) == EINVAL);
  CHECK(ibv_detach_mcast(qp, &group, 0) == EINVAL);
  REQUIRE(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_destroy_cq(cq) == EINVAL);
  CHECK(ibv_resize_cq(cq, 8) == EINVAL);
  ibv_srq_init_attr init{nullptr, {4, 1, 0}};
  ibv_srq *srq = ibv_create_srq(rig.pd.get(), &init);
  REQUIRE(srq != nullptr);
  REQUIRE(ibv_destroy_srq(srq) == 0);
  CHECK(ibv_destroy_srq(srq) == EINVAL);
  ibv_srq_attr limit{};
  CHECK(ibv_query_srq(srq, &limit) == EINVAL);
  CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == EINVAL);
}

TEST_CASE("completions of a queue pair go with it, those of others stay") {
  for (const bool reset : {true, false}) {
    CAPTURE(reset);
    Rig rig;
    Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
    rig.connect(a.get(), b->qp_num);
    rig.connect(b.get(), a->qp_num);
    Qp c = rig.create_qp(IBV_QPT_RC), d = rig.create_qp(IBV_QPT_RC);
    rig.connect(c.get(), d->qp_num);
    rig.connect(d.get(), c->qp_num);
    Buffer memory(rig.pd.get(), 64);
    const auto write = [&](ibv_qp *qp, std::uint64_t id) {
      auto piece = memory.piece(0, 8);
      auto wr = request(id, IBV_EXP_WR_RDMA_WRITE, &piece);
      wr.wr.rdma.remote_addr = memory.address(8);
      wr.wr.rdma.rkey = memory.mr->rkey;
      ibv_exp_send_wr *bad = nullptr;
      REQUIRE(ibv_exp_post_send(qp, &wr, &bad) == 0);
    };
    for (std::uint64_t id = 0; id < 4; ++id) {
      write(a.get(), 100 + id);
      write(c.get(), 200 + id);
    }
    // A fenced request begins when the read before it is done, and all that came before both has
    // completed by then.
    memory.bytes[48] = 1;
    const auto settle = [&](ibv_qp *qp, std::size_t mark) {
      auto piece = memory.piece(16, 8);
      auto read = request(0, IBV_EXP_WR_RDMA_READ, &piece);
      read.exp_send_flags = 0;
      read.wr.rdma.remote_addr = memory.address(8);
      read.wr.rdma.rkey = memory.mr->rkey;
      auto one = memory.piece(48, 1);
      auto last = request(0, IBV_EXP_WR_RDMA_WRITE, &one);
      last.exp_send_flags = IBV_EXP_SEND_FENCE;
      last.wr.rdma.remote_addr = memory.address(mark);
      last.wr.rdma.rkey = memory.mr->rkey;
      read.next = &last;
      ibv_exp_send_wr *bad = nullptr;
      REQUIRE(ibv_exp_post_send(qp, &read, &bad) == 0);
      const volatile std::uint8_t *const seen = &memory.bytes[mark];
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (*seen == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      REQUIRE(*seen == 1);
    };
    settle(a.get(), 56);
    settle(c.get(), 57);
    if (reset) {
      ibv_qp_attr to{};
      to.qp_state = IBV_QPS_RESET;
      REQUIRE(ibv_modify_qp(a.get(), &to, IBV_QP_STATE) == 0);
    } else {
      a.reset();
    }
    const auto all = rig.completions(4);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i].wr_id == 200 + i);
      CHECK(all[i].qp == c.get());
    }
    ibv_wc none{};
    CHECK(ibv_poll_cq(rig.cq.get(), 1, &none) == 0);
  }
}

// libibverbs locks context->mutex to make a CQ with a channel, and the inline of a DC target
// holds it.
TEST_CASE("a DC target completes where a modern QP does, on a CQ with a channel") {
  Rig rig;
  Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel(
      ibv_create_comp_channel(rig.context.get()));
  REQUIRE(channel);
  const Cq cq(ibv_create_cq(rig.context.get(), 16, nullptr, channel.get(), 0));
  REQUIRE(cq);
  const Qp beside = build_qp(rig, cq.get());
  REQUIRE(beside);
  ibv_srq_init_attr shared{};
  shared.attr = {4, 1, 0};
  Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(rig.pd.get(), &shared));
  REQUIRE(srq);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  ibv_exp_dct_init_attr target{};
  target.pd = rig.pd.get();
  target.cq = cq.get();
  target.srq = srq.get();
  target.port = 1;
  target.mtu = IBV_MTU_1024;
  target.gid_index = ethernet ? 1 : 0;
  target.hop_limit = ethernet ? 1 : 0;
  Owned<ibv_exp_dct, ibv_exp_destroy_dct> dct(ibv_exp_create_dct(rig.context.get(), &target));
  CHECK(dct);
  // Its mutex is held no more.
  REQUIRE(pthread_mutex_trylock(&rig.context->mutex) == 0);
  pthread_mutex_unlock(&rig.context->mutex);
}

// Plain rdma-core only reads them, and threads share such structures.
TEST_CASE("what a program hands to ibv_create_qp() keeps its own queues meanwhile") {
  Rig rig;
  auto attr = rig.qp_attr(IBV_QPT_RC);
  ibv_cq *const mine = attr.send_cq;
  ibv_cq *const volatile *const shown = &attr.send_cq;
  std::atomic<bool> over = false, changed = false;
  std::thread reader([&] {
    while (!over.load())
      if (*shown != mine) changed = true;
  });
  bool made = true;
  for (int i = 0; i < 300 && made; ++i) {
    const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
    made = static_cast<bool>(qp);
  }
  over = true;
  reader.join();
  CHECK(made);
  CHECK_FALSE(changed.load());
}

// A device's commands are no cancellation points, and a C++ runtime of our own cannot be unwound.
TEST_CASE("threads are cancelled between verbs and not inside") {
  Rig rig;
  struct Loop {
    ibv_context *context;
    ibv_pd *pd;
    int kind;
    std::atomic<int> rounds{0};
  };
  const auto body = [](void *argument) -> void * {
    auto &loop = *static_cast<Loop *>(argument);
    for (;;) {
      if (loop.kind == 0) {
        ibv_free_device_list(ibv_get_device_list(nullptr));
      } else if (loop.kind == 1) {
        ibv_destroy_cq(ibv_create_cq(loop.context, 4, nullptr, nullptr, 0));
      } else if (loop.kind == 2) {
        ibv_srq_init_attr attr{};
        attr.attr = {4, 1, 0};
        ibv_destroy_srq(ibv_create_srq(loop.pd, &attr));
      } else if (loop.kind == 3) {
        ibv_exp_device_attr attr{};
        attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
        ibv_exp_query_device(loop.context, &attr);
      } else {
        ibv_device **list = ibv_get_device_list(nullptr);
        ibv_close_device(ibv_open_device(list[0]));
        ibv_free_device_list(list);
      }
      ++loop.rounds;
      pthread_testcancel();
    }
  };
  for (int kind = 0; kind < 5; ++kind) {
    for (int i = 0; i < 8; ++i) {
      Loop loop{rig.context.get(), rig.pd.get(), kind};
      pthread_t thread;
      REQUIRE(pthread_create(&thread, nullptr, body, &loop) == 0);
      while (loop.rounds == 0) std::this_thread::yield();
      REQUIRE(pthread_cancel(thread) == 0);
      void *result = nullptr;
      REQUIRE(pthread_join(thread, &result) == 0);
      CHECK(result == PTHREAD_CANCELED);
    }
  }
}

// Cancelled before: any cancellation point on the way would end the thread there. On old kernels a
// GID is read from a file.
TEST_CASE("a cancelled thread gets through verbs without protection, and through the log",
          "[old-kernel]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  rig.connect(qp.get(), qp->qp_num);
  struct Work {
    ibv_context *context;
    ibv_pd *pd;
    ibv_qp *qp;
    ibv_cq *cq;
    int done = 0;
  } work{rig.context.get(), rig.pd.get(), qp.get(), rig.cq.get()};
  const auto body = [](void *argument) -> void * {
    auto &at = *static_cast<Work *>(argument);
    pthread_cancel(pthread_self());
    ibv_exp_alloc_dm_attr memory{};
    memory.length = 64;
    ibv_exp_dm *const dm = ibv_exp_alloc_dm(at.context, &memory);
    at.done += dm != nullptr;
    std::uint64_t word = 1;
    ibv_exp_memcpy_dm_attr copy{};
    copy.memcpy_dir = IBV_EXP_DM_CPY_TO_DEVICE;
    copy.host_addr = &word;
    copy.length = sizeof(word);
    at.done += ibv_exp_memcpy_dm(dm, &copy) == 0;
    at.done += ibv_exp_free_dm(dm) == 0;
    ibv_mr *const mr = ibv_reg_mr(at.pd, &word, sizeof(word), IBV_ACCESS_LOCAL_WRITE);
    ibv_exp_prefetch_attr prefetch{};
    prefetch.addr = &word;
    prefetch.length = sizeof(word);
    at.done += ibv_exp_prefetch_mr(mr, &prefetch) == 0;
    ibv_dereg_mr(mr);
    ibv_exp_gid_attr gid{};
    gid.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE | IBV_EXP_QUERY_GID_ATTR_GID;
    at.done += ibv_exp_query_gid_attr(at.context, 1, 0, &gid) == 0;
    ibv_exp_port_attr port{};
    port.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
    port.mask1 = IBV_EXP_QUERY_PORT_STATE;
    at.done += ibv_exp_query_port(at.context, 1, &port) == 0;
    ibv_exp_cq_attr moderation{};
    moderation.comp_mask = IBV_EXP_CQ_ATTR_MODERATION;
    moderation.moderation = {4, 4};
    at.done += ibv_exp_modify_cq(at.cq, &moderation, IBV_EXP_CQ_MODERATION) == 0;
    ibv_exp_qp_attr timer{};
    timer.min_rnr_timer = 3;
    at.done += ibv_exp_modify_qp(at.qp, &timer, IBV_EXP_QP_MIN_RNR_TIMER) == 0;
    // Refused, with lines of the log.
    at.done += ibv_exp_free_dm(dm) != 0;
    ibv_exp_send_wr wr{}, *bad = nullptr;
    wr.exp_opcode = IBV_EXP_WR_CQE_WAIT;
    at.done += ibv_exp_post_send(at.qp, &wr, &bad) != 0;
    pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  REQUIRE(pthread_create(&thread, nullptr, body, &work) == 0);
  void *result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(work.done == 10);
}

TEST_CASE("the device is asked on the smallest stack that a thread has") {
  Rig rig;
  pthread_attr_t small;
  REQUIRE(pthread_attr_init(&small) == 0);
  REQUIRE(pthread_attr_setstacksize(&small, 16384) == 0);
  pthread_t thread;
  const auto ask = [](void *context) -> void * {
    static ibv_exp_device_attr attr;
    attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
    return ibv_exp_query_device(static_cast<ibv_context *>(context), &attr) == 0 ? context
                                                                                 : nullptr;
  };
  REQUIRE(pthread_create(&thread, &small, ask, rig.context.get()) == 0);
  pthread_attr_destroy(&small);
  void *result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  CHECK(result == rig.context.get());
}

// Threads may create with the same attributes at once: only what is granted is written.
TEST_CASE("attributes keep the program's objects while something is created with them") {
  Rig rig;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto *const pages = static_cast<char *>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  auto &init =
      *reinterpret_cast<ibv_qp_init_attr_ex *>(pages + page - offsetof(ibv_qp_init_attr_ex, cap));
  init.send_cq = init.recv_cq = rig.cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = rig.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  REQUIRE(mprotect(pages, page, PROT_READ) == 0);
  const Qp by_verb(ibv_create_qp_ex(rig.context.get(), &init));
  CHECK(by_verb);
  CHECK(init.cap.max_recv_wr >= 1);
  mlx5dv_qp_init_attr more{};
  const Qp by_provider(mlx5dv_create_qp(rig.context.get(), &init, &more));
  CHECK(by_provider);
  munmap(pages, 2 * page);
}
