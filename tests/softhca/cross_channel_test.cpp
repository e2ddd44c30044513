// Queue pairs that wait for completions and release what others hold. Made by commands (DEVX), and
// by the driver's own creation with the flags that no library passes on.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <memory>

#include "devx_rig.h"

using namespace devx;

namespace {

constexpr uint8_t op_wait = 0x0f, op_receive_enable = 0x16, op_send_enable = 0x17;
constexpr uint32_t master = 1, slave_send = 2, slave_receive = 4;
constexpr uint8_t local_qp_op = 0x02;
constexpr uint32_t cross_channel = qpc + 1181;

// A queue pair that is connected to itself, or to another one.
struct Queue {
  Queue(const Context &c, uint32_t bits) : cq(c), qp(c, rc, cq.object.number, {}, false, bits) {}
  uint32_t number() const { return qp.object.number; }
  void connect(const Context &c, const Queue &to) { qp.connect(to.number(), c); }
  void post(uint8_t opcode, uint32_t of, uint32_t index, uint8_t segments = 2) {
    uint8_t *w = qp.begin(opcode, segments);
    store32(w + 24, index);
    store32(w + 28, of);
    qp.ring(w);
  }
  void nop() { qp.ring(qp.begin(MLX5_OPCODE_NOP, 1)); }
  Cq cq;
  Qp qp;
};

// A managed sender, its receiver, and their master.
struct Three {
  explicit Three(const Context &c)
      : sender(c, slave_send),
        receiver(c, slave_receive),
        lead(c, master),
        from(c, 64, 0x5a),
        to(c, 64) {
    sender.connect(c, receiver);
    receiver.connect(c, sender);
    lead.connect(c, lead);
  }
  // When the device has done all that the master was given so far.
  void settle() {
    lead.nop();
    lead.cq.wait();
  }
  Queue sender, receiver, lead;
  Memory from, to;
};

uint8_t syndrome_of(const mlx5_cqe64 *cqe) {
  return reinterpret_cast<const mlx5_err_cqe *>(cqe)->syndrome;
}

}  // namespace

TEST_CASE("Managed queues do what their master has released, and no more", "[devx_test]") {
  const Context c;
  Three t(c);
  t.receiver.qp.receive(t.to.mr, 64);
  t.receiver.qp.receive(t.to.mr, 64);
  t.sender.qp.send(t.from.mr, 64);
  t.sender.qp.send(t.from.mr, 64);
  t.settle();
  CHECK(t.sender.cq.poll() == nullptr);

  // The first one goes out, and meets no receive that was released.
  t.lead.post(op_send_enable, t.sender.number(), 1);
  t.lead.cq.wait();
  t.settle();
  CHECK(t.receiver.cq.poll() == nullptr);
  t.lead.post(op_receive_enable, t.receiver.number(), 1);
  CHECK(t.lead.cq.wait()->sop_drop_qpn ==
        htobe32(uint32_t{op_receive_enable} << 24 | t.lead.number()));
  CHECK(t.receiver.cq.wait_opcode() == MLX5_CQE_RESP_SEND);
  CHECK(t.sender.cq.wait_opcode() == MLX5_CQE_REQ);
  CHECK(t.to.bytes == t.from.bytes);
  t.settle();
  CHECK(t.sender.cq.poll() == nullptr);

  // What has been released stays so, whatever comes behind.
  t.lead.post(op_receive_enable, t.receiver.number(), 2);
  t.lead.post(op_receive_enable, t.receiver.number(), 1);
  t.lead.post(op_send_enable, t.sender.number(), 2);
  CHECK(t.receiver.cq.wait_opcode() == MLX5_CQE_RESP_SEND);
  CHECK(t.sender.cq.wait_opcode() == MLX5_CQE_REQ);
}

TEST_CASE("A master waits for as many completions as it says", "[devx_test]") {
  const Context c;
  Three t(c);
  Queue other(c, 0);
  other.connect(c, other);
  for (int i = 0; i < 3; ++i) {
    t.receiver.qp.receive(t.to.mr, 64);
    t.sender.qp.send(t.from.mr, 64);
  }
  t.lead.post(op_receive_enable, t.receiver.number(), 3);
  t.lead.cq.wait();
  // Each of the three goes behind one more completion of another queue.
  for (uint32_t i = 1; i <= 3; ++i) {
    t.lead.post(op_wait, other.cq.object.number, i);
    t.lead.post(op_send_enable, t.sender.number(), i);
  }
  for (int i = 0; i < 3; ++i) {
    Queue aside(c, 0);
    aside.connect(c, aside);
    aside.nop();
    aside.cq.wait();  // the device was at work meanwhile
    CHECK(t.lead.cq.poll() == nullptr);
    other.nop();
    other.cq.wait();
    CHECK(t.lead.cq.wait()->sop_drop_qpn == htobe32(uint32_t{op_wait} << 24 | t.lead.number()));
    CHECK(t.lead.cq.wait_opcode() == MLX5_CQE_REQ);
    CHECK(t.receiver.cq.wait_opcode() == MLX5_CQE_RESP_SEND);
  }
  // What is past does not keep it.
  t.lead.post(op_wait, other.cq.object.number, 2);
  CHECK(t.lead.cq.wait_opcode() == MLX5_CQE_REQ);
}

TEST_CASE("A chain of masters runs without its program", "[devx_test]") {
  const Context c;
  constexpr uint32_t links = 6;
  std::vector<std::unique_ptr<Queue>> chain;
  for (uint32_t i = 0; i < links; ++i) {
    chain.push_back(std::make_unique<Queue>(c, master));
    chain.back()->connect(c, *chain.back());
  }
  for (uint32_t i = links - 1; i > 0; --i)
    chain[i]->post(op_wait, chain[i - 1]->cq.object.number, 1);
  chain[0]->nop();
  CHECK(chain[links - 1]->cq.wait_opcode() == MLX5_CQE_REQ);
}

// Cards answer such a request and do nothing; here its queue would go on.
TEST_CASE("A queue pair does not release receives of its own", "[devx_test]") {
  const Context c;
  Queue own(c, master | slave_receive), sender(c, 0);
  Memory from(c, 64, 0x5a), to(c, 64);
  own.connect(c, sender);
  sender.connect(c, own);
  own.qp.receive(to.mr, 64);
  own.post(op_receive_enable, own.number(), 1);
  CHECK(own.cq.wait()->sop_drop_qpn == htobe32(uint32_t{op_receive_enable} << 24 | own.number()));
  sender.qp.send(from.mr, 64);
  Queue aside(c, master);
  aside.connect(c, aside);
  aside.nop();
  aside.cq.wait();  // the device was at work meanwhile
  CHECK(own.cq.poll() == nullptr);
  aside.post(op_receive_enable, own.number(), 1);
  CHECK(own.cq.wait_opcode() == MLX5_CQE_RESP_SEND);
  CHECK(sender.cq.wait_opcode() == MLX5_CQE_REQ);
}

// A chain that another queue pair starts, and that goes on by itself.
TEST_CASE("A queue pair releases sends of its own", "[devx_test]") {
  const Context c;
  Queue own(c, master | slave_send), lead(c, master);
  own.connect(c, own);
  lead.connect(c, lead);
  own.post(op_send_enable, own.number(), 3);
  own.nop();
  own.nop();
  own.nop();
  lead.nop();
  CHECK(lead.cq.wait_opcode() == MLX5_CQE_REQ);
  CHECK(own.cq.poll() == nullptr);  // held
  lead.post(op_send_enable, own.number(), 1);
  CHECK(own.cq.wait()->sop_drop_qpn == htobe32(uint32_t{op_send_enable} << 24 | own.number()));
  CHECK(own.cq.wait_opcode() == MLX5_CQE_REQ);
  CHECK(own.cq.wait_opcode() == MLX5_CQE_REQ);
  lead.nop();
  lead.cq.wait();
  lead.cq.wait();
  CHECK(own.cq.poll() == nullptr);  // the fourth
  lead.post(op_send_enable, own.number(), 4);
  CHECK(own.cq.wait_opcode() == MLX5_CQE_REQ);
}

TEST_CASE("Cross-channel requests for what is not there fail", "[devx_test]") {
  const Context c;
  const auto fails = [&](uint32_t bits, uint8_t opcode, uint32_t of, uint8_t segments = 2) {
    Queue q(c, bits);
    q.connect(c, q);
    q.post(opcode, of, 0, segments);
    const mlx5_cqe64 *cqe = q.cq.wait();
    return cqe->op_own >> 4 == MLX5_CQE_REQ_ERR && syndrome_of(cqe) == local_qp_op;
  };
  const Three t(c);
  const uint32_t cqn = t.sender.cq.object.number, nothing = 0xfffffe;
  CHECK_FALSE(fails(master, op_wait, cqn));
  CHECK(fails(0, op_wait, cqn));
  CHECK(fails(master, op_wait, nothing));
  CHECK(fails(master, op_wait, cqn, 1));
  CHECK(fails(master, op_wait, cqn, 3));
  CHECK_FALSE(fails(master, op_send_enable, t.sender.number()));
  CHECK(fails(0, op_send_enable, t.sender.number()));
  CHECK(fails(master, op_send_enable, t.receiver.number()));
  CHECK(fails(master, op_send_enable, t.lead.number()));
  CHECK(fails(master, op_send_enable, nothing));
  CHECK(fails(master, op_send_enable, t.sender.number(), 1));
  CHECK_FALSE(fails(master, op_receive_enable, t.receiver.number()));
  CHECK(fails(master, op_receive_enable, t.sender.number()));
  CHECK(fails(0, op_receive_enable, t.receiver.number()));
}

TEST_CASE("A master fails when the queue that it waits for ends", "[devx_test]") {
  const Context c;
  Queue q(c, master);
  q.connect(c, q);
  auto gone = std::make_unique<Cq>(c);
  q.post(op_wait, gone->object.number, 1);
  Queue aside(c, 0);
  aside.connect(c, aside);
  aside.nop();
  aside.cq.wait();
  CHECK(q.cq.poll() == nullptr);
  gone.reset();
  const mlx5_cqe64 *cqe = q.cq.wait();
  CHECK(cqe->op_own >> 4 == MLX5_CQE_REQ_ERR);
  CHECK(syndrome_of(cqe) == local_qp_op);
}

TEST_CASE("A managed queue that fails completes what was released", "[devx_test]") {
  const Context c;
  Three t(c);
  for (int i = 0; i < 3; ++i) t.sender.qp.send(t.from.mr, 64);
  t.lead.post(op_send_enable, t.sender.number(), 2);
  t.lead.cq.wait();
  REQUIRE(t.sender.qp.object.modify(t.sender.qp.object.command(0x507, 64)) == 0);  // 2ERR
  CHECK(t.sender.cq.wait_opcode() == MLX5_CQE_REQ_ERR);
  CHECK(t.sender.cq.wait_opcode() == MLX5_CQE_REQ_ERR);
  t.settle();
  CHECK(t.sender.cq.poll() == nullptr);
}

TEST_CASE("Which sides are managed is said at creation", "[devx_test]") {
  const Context c;
  Box caps(16, 0x100), page(4112);
  caps.put(48, 16, 1);  // of now
  REQUIRE(mlx5dv_devx_general_cmd(c.ctx, caps.data(), caps.size(), page.data(), page.size()) == 0);
  CHECK(page.get(128 + 0x22c, 1) == 1);

  const Cq cq(c);
  const Umem umem(c, 12288);
  const auto refused = [&](uint32_t bits, const Receive &receive, bool sends) {
    Box in = create_qp(c, rc, cq.object.number, umem.id(), umem.id(), receive);
    in.put(cross_channel, 3, bits);
    in.put(qpc + 80, 1, sends ? 0 : 1);
    Object o(c, in);
    return o.object == nullptr && o.status == bad_param;
  };
  CHECK_FALSE(refused(master | slave_send | slave_receive, {}, true));
  CHECK(refused(slave_receive, {3, 0}, true));
  CHECK(refused(slave_send, {}, false));
  CHECK_FALSE(refused(master | slave_send, {3, 0}, true));

  Queue q(c, master | slave_receive);
  CHECK(q.qp.query().get(cross_channel, 3) == (master | slave_receive));
}

namespace {

// A queue pair of the driver in place of libmlx5's, in the same memory: what a library does that
// wants flags which libmlx5 refuses.
class Kernel {
 public:
  explicit Kernel(const Context &c) : c_(c) {
    cq = ibv_create_cq(c.ctx, 16, nullptr, nullptr, 0);
    REQUIRE(cq != nullptr);
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.cap = {4, 4, 1, 1, 0};
    init.sq_sig_all = 1;
    qp = ibv_create_qp(c.pd, &init);
    REQUIRE(qp != nullptr);
  }
  ~Kernel() {
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
  }
  // 0 or an errno value. A register of the driver's choice, or the page of the context.
  int replace(uint32_t flags, bool own_page) {
    mlx5dv_qp facts{};
    mlx5dv_obj object{};
    object.qp = {qp, &facts};
    REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0);
    ib_uverbs_ex_create_qp in{};
    mlx5_ib_create_qp driver{};
    ib_uverbs_ex_create_qp_resp out{};
    mlx5_ib_create_qp_resp driver_out{};
    in.user_handle = reinterpret_cast<uintptr_t>(qp);
    in.pd_handle = c_.pd->handle;
    in.send_cq_handle = in.recv_cq_handle = cq->handle;
    in.max_send_wr = in.max_recv_wr = 4;
    in.max_send_sge = in.max_recv_sge = 1;
    in.qp_type = IBV_QPT_RC;
    in.create_flags = flags;
    driver.buf_addr = reinterpret_cast<uintptr_t>(facts.rq.buf);
    driver.db_addr = reinterpret_cast<uintptr_t>(facts.dbrec);
    driver.sq_wqe_count = facts.sq.wqe_cnt;
    driver.rq_wqe_count = facts.rq.wqe_cnt;
    driver.rq_wqe_shift = static_cast<uint32_t>(__builtin_ctz(facts.rq.stride));
    // libmlx5 keeps the number right in front of its objects.
    std::memcpy(&driver.uidx, reinterpret_cast<uint8_t *>(qp) - 4, 4);
    if (own_page) {
      driver.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
      driver.bfreg_index = c_.uar->page_id;
    }
    constexpr uint64_t extended_create_qp =
        uint32_t{IB_USER_VERBS_CMD_FLAG_EXTENDED} | IB_USER_VERBS_EX_CMD_CREATE_QP;
    if (const int error = invoke(extended_create_qp, in, out, &driver, &driver_out); error != 0)
      return error;
    ib_uverbs_destroy_qp end{};
    ib_uverbs_destroy_qp_resp ended{};
    end.qp_handle = qp->handle;
    REQUIRE(invoke<Nothing, Nothing>(IB_USER_VERBS_CMD_DESTROY_QP, end, ended, nullptr, nullptr) ==
            0);
    qp->handle = out.base.qp_handle;
    qp->qp_num = out.base.qpn;
    ring_ = facts.sq.buf;
    record_ = facts.dbrec;
    return 0;
  }
  void connect() {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    REQUIRE(ibv_modify_qp(
                qp, &a,
                int{IBV_QP_STATE} | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = qp->qp_num;
    a.ah_attr.port_num = 1;
    a.ah_attr.dlid = c_.port.lid;
    a.ah_attr.is_global = 1;
    a.ah_attr.grh.dgid = c_.gid;
    a.max_dest_rd_atomic = 1;
    REQUIRE(ibv_modify_qp(qp, &a,
                          int{IBV_QP_STATE} | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
            0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    REQUIRE(ibv_modify_qp(qp, &a,
                          int{IBV_QP_STATE} | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }
  // The first request of the queue.
  void post(uint8_t opcode, uint32_t of, uint32_t index) {
    auto *w = static_cast<uint8_t *>(ring_);
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg *>(w), 0, opcode, 0, qp->qp_num,
                        MLX5_WQE_CTRL_CQ_UPDATE, 2, 0, 0);
    store32(w + 24, index);
    store32(w + 28, of);
    __atomic_store_n(&record_[1], htobe32(1), __ATOMIC_RELEASE);
    uint64_t control;
    std::memcpy(&control, w, sizeof control);
    __atomic_store_n(reinterpret_cast<uint64_t *>(c_.uar->reg_addr), control, __ATOMIC_RELEASE);
  }
  ibv_wc wait() {
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    return wc;
  }
  ibv_cq *cq;
  ibv_qp *qp;

 private:
  struct Nothing {};

  // A command of the write() interface, carried by an ioctl. 0 or an errno value.
  template <class DriverIn, class DriverOut, class In, class Out>
  int invoke(uint64_t number, const In &in, Out &out, const DriverIn *driver, DriverOut *answer) {
    alignas(8) uint8_t message[sizeof(ib_uverbs_ioctl_hdr) + 5 * sizeof(ib_uverbs_attr)] = {};
    auto *header = reinterpret_cast<ib_uverbs_ioctl_hdr *>(message);
    const auto add = [&](uint16_t id, size_t bytes, uint64_t data) {
      ib_uverbs_attr &a = header->attrs[header->num_attrs++];
      a.attr_id = id;
      a.len = static_cast<uint16_t>(bytes);
      a.flags = UVERBS_ATTR_F_MANDATORY;
      a.data = data;
    };
    header->object_id = UVERBS_OBJECT_DEVICE;
    header->method_id = UVERBS_METHOD_INVOKE_WRITE;
    header->driver_id = RDMA_DRIVER_MLX5;
    add(UVERBS_ATTR_WRITE_CMD, sizeof number, number);
    add(UVERBS_ATTR_CORE_IN, sizeof in, reinterpret_cast<uintptr_t>(&in));
    add(UVERBS_ATTR_CORE_OUT, sizeof out, reinterpret_cast<uintptr_t>(&out));
    if (driver != nullptr) {
      add(UVERBS_ATTR_UHW_IN, sizeof *driver, reinterpret_cast<uintptr_t>(driver));
      add(UVERBS_ATTR_UHW_OUT, sizeof *answer, reinterpret_cast<uintptr_t>(answer));
    }
    header->length =
        static_cast<uint16_t>(sizeof *header + header->num_attrs * sizeof header->attrs[0]);
    return ioctl(c_.ctx->cmd_fd, RDMA_VERBS_IOCTL, header) == 0 ? 0 : errno;
  }

  const Context &c_;
  void *ring_ = nullptr;
  __be32 *record_ = nullptr;
};

constexpr uint32_t create_master = 1 << 2, create_slave_send = 1 << 3,
                   create_slave_receive = 1 << 4;

}  // namespace

TEST_CASE("The driver makes masters and managed queues that ring a page of their own",
          "[devx_test]") {
  const Context c;
  Kernel lead(c), slave(c);
  // Linux does not choose the register of a master.
  CHECK(lead.replace(create_master, false) == EINVAL);
  REQUIRE(lead.replace(create_master, true) == 0);
  REQUIRE(slave.replace(create_slave_send | create_slave_receive, true) == 0);
  lead.connect();
  slave.connect();
  Memory from(c, 64, 0x5a), to(c, 64);

  // libmlx5 rings for both queues, and nothing happens.
  ibv_sge sge{reinterpret_cast<uint64_t>(to.mr->addr), 64, to.mr->lkey};
  ibv_recv_wr receive{7, nullptr, &sge, 1}, *bad_receive = nullptr;
  REQUIRE(ibv_post_recv(slave.qp, &receive, &bad_receive) == 0);
  slave.post(MLX5_OPCODE_NOP, 0, 0);
  lead.post(op_send_enable, slave.qp->qp_num, 1);
  CHECK(lead.wait().status == IBV_WC_SUCCESS);
  CHECK(slave.wait().status == IBV_WC_SUCCESS);
  ibv_wc wc{};
  CHECK(ibv_poll_cq(slave.cq, 1, &wc) == 0);
}
