// Queue pairs that wait for completions and release what others hold: refused by default, on
// request as the manual has them.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <skip.h>

#include <string>

#include "log_of.h"
#include "pair.h"

namespace {

int pages_made = 0;

}  // namespace

// The library calls this one: it counts doorbell pages.
extern "C" mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(ibv_context *context, std::uint32_t flags) {
  static const auto real =
      reinterpret_cast<decltype(&mlx5dv_devx_alloc_uar)>(dlsym(RTLD_NEXT, "mlx5dv_devx_alloc_uar"));
  mlx5dv_devx_uar *const made = real(context, flags);
  if (made != nullptr) ++pages_made;
  return made;
}

namespace {

constexpr std::uint32_t master = IBV_EXP_QP_CREATE_CROSS_CHANNEL,
                        managed_send = IBV_EXP_QP_CREATE_MANAGED_SEND,
                        managed_receive = IBV_EXP_QP_CREATE_MANAGED_RECV;

// A queue pair with a completion queue of its own.
struct Side {
  Side(Rig &rig, std::uint32_t flags, ibv_qp_type type = IBV_QPT_RC, std::uint32_t depth = 64)
      : cq(rig.create_cq()) {
    auto attr = rig.qp_attr(type);
    attr.send_cq = attr.recv_cq = cq.get();
    attr.cap.max_send_wr = attr.cap.max_recv_wr = depth;
    attr.exp_create_flags = flags;
    qp.reset(ibv_exp_create_qp(rig.context.get(), &attr));
  }
  ibv_exp_wc take() {
    const ibv_exp_wc wc = next_completion(cq.get());
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.qp == qp.get());
    return wc;
  }
  bool is_quiet() {
    ibv_exp_wc wc{};
    return ibv_exp_poll_cq(cq.get(), 1, &wc, sizeof(wc)) == 0;
  }
  Cq cq;
  Qp qp;
};

ibv_exp_send_wr wait_for(ibv_cq *cq, std::int32_t count, std::uint64_t more = 0) {
  auto wr = request(70, IBV_EXP_WR_CQE_WAIT, reinterpret_cast<ibv_sge *>(8), 77);
  wr.task.cqe_wait.cq = cq;
  wr.task.cqe_wait.cq_count = count;
  wr.exp_send_flags |= more;
  return wr;
}

ibv_exp_send_wr enable(ibv_exp_wr_opcode opcode, ibv_qp *qp, std::int32_t count,
                       std::uint64_t more = 0) {
  auto wr = request(80, opcode, nullptr, -1);
  wr.task.wqe_enable.qp = qp;
  wr.task.wqe_enable.wqe_count = count;
  wr.exp_send_flags |= more;
  return wr;
}
ibv_exp_send_wr enable_sends(ibv_qp *qp, std::int32_t count, std::uint64_t more = 0) {
  return enable(IBV_EXP_WR_SEND_ENABLE, qp, count, more);
}
ibv_exp_send_wr enable_receives(ibv_qp *qp, std::int32_t count, std::uint64_t more = 0) {
  return enable(IBV_EXP_WR_RECV_ENABLE, qp, count, more);
}

int post_to(ibv_qp *qp, ibv_exp_send_wr wr) {
  ibv_exp_send_wr *bad = nullptr;
  const int error = ibv_exp_post_send(qp, &wr, &bad);
  CHECK((bad == &wr) == (error != 0));
  return error;
}

// A managed sender, its managed receiver, and their master, which is connected to itself.
struct Three : Rig {
  explicit Three(ibv_qp_type type = IBV_QPT_RC)
      : sender(*this, managed_send, type),
        receiver(*this, managed_receive, type),
        lead(*this, master) {
    if (!sender.qp) return;
    REQUIRE((receiver.qp && lead.qp));
    connect(sender.qp.get(), receiver.qp->qp_num);
    connect(receiver.qp.get(), sender.qp->qp_num);
    connect(lead.qp.get(), lead.qp->qp_num);
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{1});
  }
  // Requests of one block and of two in turn, which the device counts and programs do not.
  void send(std::uint64_t id) {
    ibv_sge pieces[4];
    for (std::uint32_t i = 0; i < 4; ++i) pieces[i] = out.piece(i * 16, 16);
    CHECK(post_to(sender.qp.get(), request(id, IBV_EXP_WR_SEND, pieces, id % 2 == 0 ? 4 : 1)) == 0);
  }
  void receive(std::uint64_t id) { post_receive(receiver.qp.get(), id, in.piece(0, 64)); }
  void command(ibv_exp_send_wr wr) {
    REQUIRE(post_to(lead.qp.get(), wr) == 0);
    CHECK(lead.take().wr_id == wr.wr_id);
  }
  // When the device has looked at all that was posted so far.
  void settle() {
    auto piece = out.piece(0, 1);
    auto wr = request(90, IBV_EXP_WR_RDMA_READ, &piece);
    wr.wr.rdma.remote_addr = in.address(100);
    wr.wr.rdma.rkey = in.mr->rkey;
    command(wr);
  }

  Buffer out{pd.get(), size}, in{pd.get(), size};
  Side sender, receiver, lead;
};

bool served() { return switched_on("cross_channel"); }

}  // namespace

TEST_CASE(
    "a master releases what managed queues hold [row:IBV_EXP_WR_SEND_ENABLE]"
    "[row:IBV_EXP_WR_RECV_ENABLE][row:IBV_EXP_QP_CREATE_CROSS_CHANNEL]"
    "[row:IBV_EXP_QP_CREATE_MANAGED_SEND][row:IBV_EXP_QP_CREATE_MANAGED_RECV]"
    "[row:IBV_EXP_SEND_WAIT_EN_LAST][row:xchan_wr_task][row:xchan_post_send_verb]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  Three t(type);
  if (!served()) {
    CHECK(!t.sender.qp);
    CHECK(!t.receiver.qp);
    CHECK(!t.lead.qp);
    return;
  }
  for (std::uint64_t id = 1; id <= 6; ++id) {
    t.receive(id);
    t.send(id);
  }
  t.settle();
  CHECK(t.sender.is_quiet());

  t.command(enable_receives(t.receiver.qp.get(), 0, IBV_EXP_SEND_WAIT_EN_LAST));
  t.settle();
  CHECK(t.receiver.is_quiet());
  const auto arrives = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t id = first; id <= last; ++id) {
      CHECK(t.receiver.take().wr_id == id);
      CHECK(t.sender.take().wr_id == id);
    }
    t.settle();
    CHECK(t.receiver.is_quiet());
    CHECK(t.sender.is_quiet());
  };
  // Two, counted twice from the same place, and one more.
  t.command(enable_sends(t.sender.qp.get(), 2));
  arrives(1, 2);
  t.command(enable_sends(t.sender.qp.get(), 2));
  t.command(enable_sends(t.sender.qp.get(), 3, IBV_EXP_SEND_WAIT_EN_LAST));
  arrives(3, 3);
  // From there on: one more, and the rest.
  t.command(enable_sends(t.sender.qp.get(), 1, IBV_EXP_SEND_WAIT_EN_LAST));
  arrives(4, 4);
  t.command(enable_sends(t.sender.qp.get(), 0, IBV_EXP_SEND_WAIT_EN_LAST));
  arrives(5, 6);
  CHECK(std::equal(t.in.bytes.begin(), t.in.bytes.begin() + 64, t.out.bytes.begin()));

  // More than a ring of it.
  for (std::uint64_t id = 7; id <= 300; ++id) {
    t.receive(id);
    t.send(id);
    t.command(enable_receives(t.receiver.qp.get(), 1, IBV_EXP_SEND_WAIT_EN_LAST));
    t.command(enable_sends(t.sender.qp.get(), 1, IBV_EXP_SEND_WAIT_EN_LAST));
    CHECK(t.receiver.take().wr_id == id);
    CHECK(t.sender.take().wr_id == id);
  }
}

TEST_CASE(
    "a master waits for completions, counted from the last group [row:IBV_EXP_WR_CQE_WAIT]"
    "[row:IBV_EXP_CQ_CREATE_CROSS_CHANNEL]") {
  Three t;
  if (!served()) {
    CHECK(!t.lead.qp);
    return;
  }
  ibv_exp_cq_init_attr flags{};
  flags.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  flags.flags = IBV_EXP_CQ_CREATE_CROSS_CHANNEL;
  const Cq watched(ibv_exp_create_cq(t.context.get(), 64, nullptr, nullptr, 0, &flags));
  REQUIRE(watched);
  auto attr = t.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = watched.get();
  const Qp other(ibv_exp_create_qp(t.context.get(), &attr));
  REQUIRE(other);
  t.connect(other.get(), other->qp_num);
  const auto complete = [&] {
    auto piece = t.out.piece(0, 8);
    auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = t.in.address(200);
    wr.wr.rdma.rkey = t.in.mr->rkey;
    REQUIRE(post_to(other.get(), wr) == 0);
  };
  // Two completions; then one more, twice.
  constexpr std::uint64_t last = IBV_EXP_SEND_WAIT_EN_LAST;
  for (const auto &[count, flag] :
       {std::pair{1, std::uint64_t{0}}, {2, last}, {1, last}, {1, last}})
    REQUIRE(post_to(t.lead.qp.get(), wait_for(watched.get(), count, flag)) == 0);
  Side aside(t, 0);
  REQUIRE(aside.qp);
  t.connect(aside.qp.get(), aside.qp->qp_num);
  const auto settle = [&] {
    auto piece = t.out.piece(0, 1);
    auto wr = request(2, IBV_EXP_WR_RDMA_READ, &piece);
    wr.wr.rdma.remote_addr = t.in.address(100);
    wr.wr.rdma.rkey = t.in.mr->rkey;
    REQUIRE(post_to(aside.qp.get(), wr) == 0);
    aside.take();
  };
  settle();
  CHECK(t.lead.is_quiet());
  for (int i = 0; i < 4; ++i) {
    complete();
    CHECK(t.lead.take().wr_id == 70);
    settle();
    CHECK(t.lead.is_quiet());
  }
}

TEST_CASE(
    "a task goes to several queue pairs [row:ibv_exp_post_task][row:IBV_EXP_TASK_SEND]"
    "[row:IBV_EXP_TASK_RECV]") {
  Three t;
  ibv_exp_task tasks[3]{}, *bad = nullptr;
  if (!served()) {
    const Qp plain = t.create_qp(IBV_QPT_RC);
    tasks[0].item.qp = plain.get();
    CHECK(ibv_exp_post_task(t.context.get(), tasks, &bad) == ENOTSUP);
    CHECK(bad == tasks);
    return;
  }
  auto data = t.out.piece(0, 64), place = t.in.piece(0, 64);
  ibv_recv_wr receive{7, nullptr, &place, 1};
  auto send = request(8, IBV_EXP_WR_SEND, &data);
  auto first = enable_receives(t.receiver.qp.get(), 1), second = enable_sends(t.sender.qp.get(), 1);
  first.next = &second;
  tasks[0] = {IBV_EXP_TASK_RECV, {t.receiver.qp.get(), {}}, &tasks[1], 0};
  tasks[0].item.recv_wr = &receive;
  tasks[1] = {IBV_EXP_TASK_SEND, {t.sender.qp.get(), {&send}}, &tasks[2], 0};
  tasks[2] = {IBV_EXP_TASK_SEND, {t.lead.qp.get(), {&first}}, nullptr, 0};
  REQUIRE(ibv_exp_post_task(t.context.get(), tasks, &bad) == 0);
  CHECK(t.receiver.take().wr_id == 7);
  CHECK(t.sender.take().wr_id == 8);
  CHECK(t.lead.take().wr_id == 80);
  CHECK(std::equal(t.in.bytes.begin(), t.in.bytes.begin() + 64, t.out.bytes.begin()));

  // The first that fails ends it; what is before stays posted.
  second.task.wqe_enable.wqe_count = 9;
  tasks[1].next = &tasks[2];
  tasks[2].item.send_wr = &second;
  CHECK(ibv_exp_post_task(t.context.get(), tasks, &bad) == EINVAL);
  CHECK(bad == &tasks[2]);
  t.command(enable_receives(t.receiver.qp.get(), 0));
  t.command(enable_sends(t.sender.qp.get(), 0));
  CHECK(t.receiver.take().wr_id == 7);
  const auto ends_it = [&](ibv_exp_task &task) {
    bad = nullptr;
    CHECK(ibv_exp_post_task(t.context.get(), tasks, &bad) == EINVAL);
    CHECK(bad == &task);
    CHECK(ibv_exp_post_task(t.context.get(), tasks, nullptr) == EINVAL);
  };
  const ibv_exp_task good = tasks[0];
  tasks[0].task_type = static_cast<ibv_exp_task_type>(7);
  ends_it(tasks[0]);
  tasks[0] = good;
  tasks[0].comp_mask = 1;  // the inline of programs refuses that itself
  CHECK(ibv_exp_post_task(t.context.get(), tasks, &bad) == EINVAL);
  tasks[0] = good;
  tasks[0].item.qp = nullptr;
  ends_it(tasks[0]);
  Rig elsewhere;
  const Qp foreign = elsewhere.create_qp(IBV_QPT_RC);
  tasks[0].item.qp = foreign.get();
  ends_it(tasks[0]);
}

TEST_CASE("the longest of several counts is kept by the last [row:IBV_EXP_SEND_WAIT_EN_LAST]") {
  Three t;
  if (!served()) {
    CHECK(!t.lead.qp);
    return;
  }
  for (std::uint64_t id = 1; id <= 4; ++id) {
    t.receive(id);
    t.send(id);
  }
  t.command(enable_receives(t.receiver.qp.get(), 0));
  t.command(enable_sends(t.sender.qp.get(), 3));
  for (std::uint64_t id = 1; id <= 3; ++id) CHECK(t.receiver.take().wr_id == id);
  t.command(enable_sends(t.sender.qp.get(), 1, IBV_EXP_SEND_WAIT_EN_LAST));
  t.settle();
  CHECK(t.receiver.is_quiet());
  t.command(enable_sends(t.sender.qp.get(), 1));
  CHECK(t.receiver.take().wr_id == 4);
}

TEST_CASE("masters receive from shared queues [row:IBV_EXP_QP_CREATE_CROSS_CHANNEL]") {
  Three t;
  if (!served()) {
    CHECK(!t.lead.qp);
    return;
  }
  ibv_srq_init_attr wanted{};
  wanted.attr = {8, 1, 0};
  const Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(t.pd.get(), &wanted));
  REQUIRE(srq);
  auto attr = t.qp_attr(IBV_QPT_RC);
  attr.srq = srq.get();
  attr.exp_create_flags = master;
  const Qp qp(ibv_exp_create_qp(t.context.get(), &attr));
  REQUIRE(qp);
  t.connect(qp.get(), qp->qp_num);
  auto place = t.in.piece(0, 64), data = t.out.piece(0, 64);
  ibv_recv_wr receive{7, nullptr, &place, 1}, *bad = nullptr;
  REQUIRE(ibv_post_srq_recv(srq.get(), &receive, &bad) == 0);
  CHECK(post_to(qp.get(), request(8, IBV_EXP_WR_SEND, &data)) == 0);
  const auto [sent, received] = both(t);
  CHECK(sent.wr_id == 8);
  CHECK(received.wr_id == 7);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(std::equal(t.in.bytes.begin(), t.in.bytes.begin() + 64, t.out.bytes.begin()));
}

TEST_CASE(
    "what no master may ask for is refused [row:IBV_EXP_WR_CQE_WAIT]"
    "[row:IBV_EXP_WR_SEND_ENABLE][row:IBV_EXP_WR_RECV_ENABLE]") {
  Three t;
  Pair p(IBV_QPT_RC);
  if (!served()) {
    CHECK(post_to(p.a.get(), wait_for(p.cq.get(), 1)) == ENOTSUP);
    CHECK(post_to(p.a.get(), enable_sends(p.b.get(), 1)) == ENOTSUP);
    CHECK(post_to(p.a.get(), enable_receives(p.b.get(), 1)) == ENOTSUP);
    return;
  }
  ibv_qp *const lead = t.lead.qp.get();
  const Side plain(t, 0);
  t.connect(plain.qp.get(), plain.qp->qp_num);
  CHECK(post_to(plain.qp.get(), wait_for(t.cq.get(), 1)) == EINVAL);
  CHECK(post_to(plain.qp.get(), enable_sends(t.sender.qp.get(), 0)) == EINVAL);
  CHECK(post_to(plain.qp.get(), enable_receives(t.receiver.qp.get(), 0)) == EINVAL);
  CHECK(post_to(lead, enable_sends(t.receiver.qp.get(), 0)) == EINVAL);
  CHECK(post_to(lead, enable_receives(t.sender.qp.get(), 0)) == EINVAL);
  CHECK(post_to(lead, enable_sends(plain.qp.get(), 0)) == EINVAL);
  CHECK(post_to(lead, enable_sends(nullptr, 0)) == EINVAL);
  CHECK(post_to(lead, wait_for(nullptr, 1)) == EINVAL);
  CHECK(post_to(lead, wait_for(t.cq.get(), -1)) == EINVAL);
  CHECK(post_to(lead, wait_for(p.cq.get(), 1)) == EINVAL);  // of another context
  CHECK(post_to(lead, enable_sends(p.a.get(), 1)) == EINVAL);
  const Side other(p, managed_send | managed_receive);
  CHECK(post_to(lead, enable_sends(other.qp.get(), 0)) == EINVAL);
  CHECK(post_to(lead, enable_receives(other.qp.get(), 0)) == EINVAL);
  // More than is posted, or less than nothing.
  CHECK(post_to(lead, enable_sends(t.sender.qp.get(), 1)) == EINVAL);
  CHECK(post_to(lead, enable_receives(t.receiver.qp.get(), 1)) == EINVAL);
  t.send(1);
  t.receive(1);
  CHECK(post_to(lead, enable_sends(t.sender.qp.get(), 2)) == EINVAL);
  CHECK(post_to(lead, enable_receives(t.receiver.qp.get(), 2)) == EINVAL);
  CHECK(post_to(lead, enable_sends(t.sender.qp.get(), -1)) == EINVAL);
  t.command(enable_sends(t.sender.qp.get(), 1));
  t.command(enable_receives(t.receiver.qp.get(), 1));
  CHECK(t.receiver.take().wr_id == 1);
}

TEST_CASE("queues of cross-channel are for RC, UC and UD [row:IBV_EXP_QP_CREATE_CROSS_CHANNEL]") {
  Rig rig;
  pages_made = 0;
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
    for (const std::uint32_t flags : {master, managed_send, master | managed_receive})
      CHECK((Side(rig, flags, type).qp != nullptr) == served());
  CHECK(pages_made == (served() ? 1 : 0));  // all queue pairs of a context ring on one
  auto attr = rig.qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  attr.exp_create_flags = master;
  const std::string log = log_of([&] {
    errno = 0;
    CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
    CHECK(errno == ENOTSUP);
  });
  if (served()) CHECK(log.find("for RC, UC and UD queue pairs only") != std::string::npos);
}

TEST_CASE(
    "a queue pair over a table of work queues has nothing to manage "
    "[row:IBV_EXP_QP_CREATE_CROSS_CHANNEL][row:IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW]") {
  Rig rig;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  SKIP_IF(port.link_layer != IBV_LINK_LAYER_ETHERNET, "tables of work queues are for Ethernet");
  ibv_exp_wq_init_attr receives{};
  receives.wq_type = IBV_EXP_WQT_RQ;
  receives.max_recv_wr = 8;
  receives.max_recv_sge = 1;
  receives.pd = rig.pd.get();
  receives.cq = rig.cq.get();
  const Owned<ibv_exp_wq, ibv_exp_destroy_wq> wq(ibv_exp_create_wq(rig.context.get(), &receives));
  REQUIRE(wq);
  ibv_exp_wq *one = wq.get();
  ibv_exp_rwq_ind_table_init_attr entries{};
  entries.pd = rig.pd.get();
  entries.ind_tbl = &one;
  const Owned<ibv_exp_rwq_ind_table, ibv_exp_destroy_rwq_ind_table> table(
      ibv_exp_create_rwq_ind_table(rig.context.get(), &entries));
  REQUIRE(table);
  std::uint8_t key[40] = {0x6d};
  ibv_exp_rx_hash_conf hash{IBV_EXP_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key,
                            IBV_EXP_RX_HASH_SRC_IPV4 | IBV_EXP_RX_HASH_DST_IPV4, table.get()};
  ibv_exp_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH |
                   IBV_EXP_QP_INIT_ATTR_PORT | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = rig.pd.get();
  attr.rx_hash_conf = &hash;
  attr.port_num = 1;
  for (const std::uint32_t flags :
       {master, managed_receive, std::uint32_t{IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW}}) {
    attr.exp_create_flags = flags;
    errno = 0;
    CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
    CHECK(errno == ENOTSUP);
  }
  attr.exp_create_flags = 0;
  CHECK(Qp(ibv_exp_create_qp(rig.context.get(), &attr)));
}

TEST_CASE(
    "overflow is ignored where a program asks [row:IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW]"
    "[row:IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW]") {
  Rig rig;
  constexpr std::uint32_t depth = 8;
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  const auto make = [&](std::uint32_t flags) { return Side(rig, flags, IBV_QPT_RC, depth); };
  if (!served()) {
    CHECK(!make(IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW).qp);
    CHECK(!make(IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW).qp);
    return;
  }
  // No completion is polled until the end.
  const auto posted = [&](const Side &s, bool sends) {
    REQUIRE(s.qp);
    rig.connect(s.qp.get(), s.qp->qp_num);
    auto piece = out.piece(0, 8);
    for (std::uint32_t i = 0; i < 2000; ++i) {
      auto wr = request(i, IBV_EXP_WR_RDMA_WRITE, &piece);
      wr.exp_send_flags = 0;
      wr.wr.rdma.remote_addr = in.address(8);
      wr.wr.rdma.rkey = in.mr->rkey;
      ibv_sge place = in.piece(0, 8);
      ibv_recv_wr receive{i, nullptr, &place, 1}, *bad = nullptr;
      ibv_exp_send_wr *bad_send = nullptr;
      const int error = sends ? ibv_exp_post_send(s.qp.get(), &wr, &bad_send)
                              : ibv_post_recv(s.qp.get(), &receive, &bad);
      if (error != 0) return i;
    }
    return 2000u;
  };
  CHECK(posted(make(0), true) < 2000);
  CHECK(posted(make(0), false) < 2000);
  CHECK(posted(make(IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW), false) < 2000);
  CHECK(posted(make(IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW), true) == 2000);
  CHECK(posted(make(IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW), true) < 2000);
  CHECK(posted(make(IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW), false) == 2000);
}

TEST_CASE("managed queues begin anew after a reset [row:IBV_EXP_QP_CREATE_MANAGED_SEND]") {
  Three t;
  if (!served()) {
    CHECK(!t.sender.qp);
    return;
  }
  t.send(1);
  t.receive(1);
  t.command(enable_receives(t.receiver.qp.get(), 0, IBV_EXP_SEND_WAIT_EN_LAST));
  t.command(enable_sends(t.sender.qp.get(), 0, IBV_EXP_SEND_WAIT_EN_LAST));
  CHECK(t.receiver.take().wr_id == 1);
  CHECK(t.sender.take().wr_id == 1);
  t.send(2);
  for (ibv_qp *qp : {t.sender.qp.get(), t.receiver.qp.get()}) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE) == 0);
  }
  t.connect(t.sender.qp.get(), t.receiver.qp->qp_num);
  t.connect(t.receiver.qp.get(), t.sender.qp->qp_num);
  t.receive(3);
  t.send(3);
  t.settle();
  CHECK(t.sender.is_quiet());
  t.command(enable_receives(t.receiver.qp.get(), 1));
  t.command(enable_sends(t.sender.qp.get(), 1));
  CHECK(t.receiver.take().wr_id == 3);
  CHECK(t.sender.take().wr_id == 3);
}

TEST_CASE(
    "masters are reported where they can be made [row:IBV_EXP_DEVICE_CROSS_CHANNEL]"
    "[row:xchan_query_calc_cap]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_CALC_CAP;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  const bool reported = (device.exp_device_cap_flags & IBV_EXP_DEVICE_CROSS_CHANNEL) != 0;
  CHECK(reported == served());
  CHECK(reported == (Side(rig, master).qp != nullptr));
  CHECK(device.calc_cap.int_ops == 0);
}

// As Linux before 5.7 does.
TEST_CASE("a master that the kernel refuses is ENOTSUP [row:IBV_EXP_QP_CREATE_CROSS_CHANNEL]",
          "[refused-masters]") {
  SKIP_IF(std::getenv("SOFTHCA_CONFIG") == nullptr, "the kernel makes masters");
  Rig rig;
  for (int i = 0; i < 2; ++i) {
    errno = 0;
    const Side refused(rig, master);
    CHECK(errno == ENOTSUP);
    CHECK(!refused.qp);
  }
  CHECK(Side(rig, 0).qp);
}

// Where the configuration takes them away.
TEST_CASE("a device without masters refuses them, and says so [row:IBV_EXP_DEVICE_CROSS_CHANNEL]",
          "[no-masters]") {
  SKIP_IF(std::getenv("SOFTHCA_CONFIG") == nullptr, "the device makes masters");
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  CHECK((device.exp_device_cap_flags & IBV_EXP_DEVICE_CROSS_CHANNEL) == 0);
  for (const std::uint32_t flags : {master, managed_send, managed_receive}) {
    errno = 0;
    const Side refused(rig, flags);
    CHECK(errno == ENOTSUP);
    CHECK(!refused.qp);
  }
  // Nothing is left of the attempts.
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 100);
  auto wr = p.write(1, &piece);
  p.post(wr);
  p.complete(1);
}
