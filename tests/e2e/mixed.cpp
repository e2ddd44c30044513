// A program that mixes the interfaces of rdma-core on shared completion queues and shared
// receive queues, at random: ibv_create_qp(), ibv_create_qp_ex(), builders (ibv_wr_*),
// mlx5dv_create_qp(), ibv_create_wq(), and with WITH_EXP, where the others use
// ibv_create_qp() and ibv_post_send(), experimental verbs. mixed.py compares what it prints
// with and without the library.
//
//   mixed SEED ROUNDS [threads]   threads: each completion queue is polled by one
//
// What it prints has neither numbers of objects nor anything that verbs leave undefined.
// Each message is waited for before the next one, so that what is printed depends on the
// seed alone; batches go over queue pairs without a shared receive queue.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#ifdef WITH_EXP
#include <infiniband/verbs_exp.h>
#endif

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void die(const char *what) {
  std::printf("broken: %s, errno %d\n", what, errno);
  std::fflush(stdout);
  std::_Exit(1);
}
void need(bool good, const char *what) {
  if (!good) die(what);
}

constexpr unsigned depth = 24, slot = 256, slots = 64;

std::mt19937 dice;
unsigned below(unsigned limit) { return static_cast<unsigned>(dice() % limit); }

ibv_context *context;
ibv_pd *pd;
ibv_comp_channel *channel;
ibv_mr *mr;
std::vector<std::uint8_t> memory(slot *slots * 2);
ibv_sge out_of(unsigned bytes) {
  return {reinterpret_cast<std::uintptr_t>(memory.data()) + below(slots) * slot, bytes, mr->lkey};
}
ibv_sge into() {
  return {reinterpret_cast<std::uintptr_t>(memory.data()) + (slots + below(slots)) * slot, slot,
          mr->lkey};
}

enum class Kind { base, extended, builders, device, count };
const char *const kind_names[] = {"ibv_create_qp", "ibv_create_qp_ex", "ibv_wr", "mlx5dv"};

struct Seen {
  std::uint64_t id;
  std::string what;
};

// What completes, by the number of its queue pair, and of each in its order.
struct Side {
  unsigned name;
  Kind kind;
  ibv_qp *qp;
  unsigned send_cq, receive_cq;
  int srq;  // or -1
  unsigned posted_receives;
  std::vector<Seen> sent, received;
};

struct Queue {
  ibv_cq *cq;
  std::unique_ptr<std::thread> poller;
  std::atomic<bool> stop{false};
};

std::vector<std::unique_ptr<Queue>> queues;
ibv_srq *shared[2];
std::vector<std::unique_ptr<Side>> sides;
std::mutex seen_mutex;  // of what sides have seen
std::uint64_t next_id = 1;
unsigned next_name;

// What is defined of it.
std::string text(const ibv_wc &wc) {
  char line[96];
  const bool good = wc.status == IBV_WC_SUCCESS;
  const bool received = good && wc.opcode >= IBV_WC_RECV;
  const bool immediate = received && (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  std::snprintf(line, sizeof(line), "status %d opcode %d bytes %u imm %u", wc.status,
                good ? static_cast<int>(wc.opcode) : -1, received ? wc.byte_len : 0,
                immediate ? be32toh(wc.imm_data) : 0);
  return line;
}

// Receives have odd numbers.
void note(const ibv_wc &wc) {
  const std::lock_guard guard(seen_mutex);
  for (const auto &side : sides) {
    if (side->qp->qp_num != wc.qp_num) continue;
    auto &list = (wc.wr_id & 1) != 0 ? side->received : side->sent;
    list.push_back({wc.wr_id, text(wc)});
    return;
  }
  need(false, "a completion of no queue pair");
}

int poll_once(ibv_cq *cq, unsigned by) {
  ibv_wc wc[4];
#ifdef WITH_EXP
  if (by % 2 == 0) {
    ibv_exp_wc exp[4];
    const int count = ibv_exp_poll_cq(cq, 4, exp, sizeof(exp[0]));
    need(count >= 0, "ibv_exp_poll_cq");
    for (int i = 0; i < count; ++i) {
      ibv_wc plain{};
      plain.wr_id = exp[i].wr_id;
      plain.status = exp[i].status;
      plain.qp_num = exp[i].qp_num;
      plain.byte_len = exp[i].byte_len;
      plain.imm_data = exp[i].imm_data;
      plain.opcode = static_cast<ibv_wc_opcode>(exp[i].exp_opcode);
      if ((exp[i].exp_wc_flags & IBV_EXP_WC_WITH_IMM) != 0) plain.wc_flags |= IBV_WC_WITH_IMM;
      note(plain);
    }
    return count;
  }
#endif
  const int count = ibv_poll_cq(cq, 1 + static_cast<int>(by % 4), wc);
  need(count >= 0, "ibv_poll_cq");
  for (int i = 0; i < count; ++i) note(wc[i]);
  return count;
}

template <class Done>
void wait(Done done, const char *what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (unsigned turn = 0;; ++turn) {
    {
      const std::lock_guard guard(seen_mutex);
      if (done()) return;
    }
    for (const auto &queue : queues)
      if (queue->poller == nullptr) poll_once(queue->cq, turn);
    if (turn % 64 == 63) std::this_thread::yield();
    need(std::chrono::steady_clock::now() < end, what);
  }
}

void add_queue(bool threads) {
  queues.push_back(std::make_unique<Queue>());
  Queue &queue = *queues.back();
  queue.cq = ibv_create_cq(context, 200, &queue, channel, 0);
  need(queue.cq != nullptr, "ibv_create_cq");
  if (!threads) return;
  queue.poller = std::make_unique<std::thread>([&queue] {
    for (unsigned turn = 0; !queue.stop; ++turn)
      if (poll_once(queue.cq, turn) == 0) std::this_thread::yield();
  });
}

std::unique_ptr<Side> make_side() {
  auto side = std::make_unique<Side>();
  side->name = next_name++;
  side->kind = static_cast<Kind>(below(static_cast<unsigned>(Kind::count)));
  side->send_cq = below(static_cast<unsigned>(queues.size()));
  side->receive_cq = below(3) == 0 ? below(static_cast<unsigned>(queues.size())) : side->send_cq;
  side->srq = static_cast<int>(below(4)) - 2;
  if (side->srq < 0) side->srq = -1;
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = queues[side->send_cq]->cq;
  attr.recv_cq = queues[side->receive_cq]->cq;
  if (side->srq >= 0) attr.srq = shared[side->srq];
  attr.cap = {depth, side->srq >= 0 ? 0 : depth, 2, side->srq >= 0 ? 0u : 1u, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd;
  errno = 0;
  switch (side->kind) {
    case Kind::base: {
#ifdef WITH_EXP
      ibv_exp_qp_init_attr exp{};
      exp.send_cq = attr.send_cq;
      exp.recv_cq = attr.recv_cq;
      exp.srq = attr.srq;
      exp.cap = attr.cap;
      exp.qp_type = attr.qp_type;
      exp.pd = pd;
      exp.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
      side->qp = ibv_exp_create_qp(context, &exp);
#else
      ibv_qp_init_attr base{};
      base.send_cq = attr.send_cq;
      base.recv_cq = attr.recv_cq;
      base.srq = attr.srq;
      base.cap = attr.cap;
      base.qp_type = attr.qp_type;
      side->qp = ibv_create_qp(pd, &base);
#endif
      break;
    }
    case Kind::extended: side->qp = ibv_create_qp_ex(context, &attr); break;
    default: {
      attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                            IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
      mlx5dv_qp_init_attr more{};
      side->qp = side->kind == Kind::builders ? ibv_create_qp_ex(context, &attr)
                                              : mlx5dv_create_qp(context, &attr, &more);
      break;
    }
  }
  need(side->qp != nullptr, kind_names[static_cast<unsigned>(side->kind)]);
  std::printf("qp %u: %s, cqs %u %u, srq %d\n", side->name,
              kind_names[static_cast<unsigned>(side->kind)], side->send_cq, side->receive_cq,
              side->srq);
  return side;
}

void connect(ibv_qp *qp, std::uint32_t peer) {
  ibv_port_attr port{};
  need(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  need(ibv_modify_qp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
       "INIT");
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.dlid = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 1;
    need(ibv_query_gid(context, 1, 1, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
  }
  need(ibv_modify_qp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
       "RTR");
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  need(ibv_modify_qp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
       "RTS");
}

void post_receive(Side &side) {
  ibv_sge piece = into();
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = next_id++ * 2 + 1;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  const int error = side.srq >= 0 ? ibv_post_srq_recv(shared[side.srq], &wr, &bad)
                                  : ibv_post_recv(side.qp, &wr, &bad);
  need(error == 0, "posting a receive");
}

enum class Request { send, send_imm, write, read, count };

void post(Side &side, Request what, unsigned bytes) {
  ibv_sge piece = what == Request::read ? into() : out_of(bytes);
  piece.length = bytes;
  const std::uint64_t remote = (what == Request::read ? out_of(bytes) : into()).addr;
  const std::uint64_t id = next_id++ * 2;
  if (side.kind == Kind::builders || side.kind == Kind::device) {
    ibv_qp_ex *ex = ibv_qp_to_qp_ex(side.qp);
    need(ex != nullptr, "ibv_qp_to_qp_ex");
    ibv_wr_start(ex);
    ex->wr_id = id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    switch (what) {
      case Request::send: ibv_wr_send(ex); break;
      case Request::send_imm: ibv_wr_send_imm(ex, htobe32(bytes)); break;
      case Request::write: ibv_wr_rdma_write(ex, mr->rkey, remote); break;
      default: ibv_wr_rdma_read(ex, mr->rkey, remote); break;
    }
    ibv_wr_set_sge(ex, piece.lkey, piece.addr, piece.length);
    need(ibv_wr_complete(ex) == 0, "ibv_wr_complete");
    return;
  }
  constexpr ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                       IBV_WR_RDMA_READ};
#ifdef WITH_EXP
  if (side.kind == Kind::base) {
    ibv_exp_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(opcodes[static_cast<unsigned>(what)]);
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
    wr.ex.imm_data = htobe32(bytes);
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = mr->rkey;
    need(ibv_exp_post_send(side.qp, &wr, &bad) == 0, "ibv_exp_post_send");
    return;
  }
#endif
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = opcodes[static_cast<unsigned>(what)];
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = htobe32(bytes);
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = mr->rkey;
  need(ibv_post_send(side.qp, &wr, &bad) == 0, "ibv_post_send");
}

bool is_received(Request what) { return what == Request::send || what == Request::send_imm; }

// From one side of a pair to the other.
void exchange(std::size_t from, unsigned count) {
  Side &side = *sides[from], &peer = *sides[from ^ 1];
  if (peer.srq >= 0) count = 1;
  const std::size_t sent = side.sent.size() + count;
  std::size_t received = peer.received.size();
  for (unsigned i = 0; i < count; ++i) {
    const auto what = static_cast<Request>(below(static_cast<unsigned>(Request::count)));
    if (is_received(what)) {
      post_receive(peer);
      ++received;
    }
    post(side, what, 1 + below(slot));
  }
  wait([&] { return side.sent.size() == sent && peer.received.size() == received; },
       "completions of messages");
}

// An event of one queue, which a message on it brings. Others may come that were due to
// earlier messages: one that is armed for two rings may bring two.
void be_notified(std::size_t from) {
  Side &side = *sides[from];
  Queue &queue = *queues[side.send_cq];
  need(ibv_req_notify_cq(queue.cq, 0) == 0, "ibv_req_notify_cq");
  const std::size_t sent = side.sent.size() + 1;
  post(side, Request::write, 8);
  for (ibv_cq *which = nullptr; which != queue.cq;) {
    pollfd ready{channel->fd, POLLIN, 0};
    need(poll(&ready, 1, 60'000) == 1, "no event");
    void *value = nullptr;
    need(ibv_get_cq_event(channel, &which, &value) == 0, "ibv_get_cq_event");
    need(value != nullptr && static_cast<Queue *>(value)->cq == which, "the value of an event");
    const unsigned before = which->comp_events_completed;
    ibv_ack_cq_events(which, 1);
    need(which->comp_events_completed == before + 1, "comp_events_completed");
  }
  std::printf("event of cq %u\n", side.send_cq);
  wait([&] { return side.sent.size() == sent; }, "the completion of an event");
}

// Receives of a pair that goes are flushed, in their order.
void fail(std::size_t at) {
  Side &side = *sides[at];
  unsigned receives = 0;
  if (side.srq < 0)
    for (receives = below(4); side.posted_receives < receives; ++side.posted_receives)
      post_receive(side);
  const std::size_t received = side.received.size() + receives;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  need(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE) == 0, "ERR");
  const std::size_t sent = side.sent.size() + 1;
  post(side, Request::write, 4);
  wait([&] { return side.sent.size() == sent && side.received.size() == received; },
       "flushed completions");
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  need(ibv_query_qp(side.qp, &now, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
  std::printf("qp %u: state %d\n", side.name, now.qp_state);
}

void print(const Side &side) {
  std::uint64_t last = 0;
  for (const auto *list : {&side.sent, &side.received}) {
    for (const Seen &seen : *list)
      std::printf("qp %u %s %llu: %s\n", side.name, list == &side.sent ? "sent" : "received",
                  static_cast<unsigned long long>(seen.id), seen.what.c_str());
    for (last = 0; const Seen &seen : *list) {
      need(side.srq >= 0 || seen.id > last, "the order of a queue");
      last = seen.id;
    }
  }
}

void remove_pair(std::size_t at) {
  at &= ~std::size_t{1};
  if (below(3) == 0) fail(at + below(2));
  // Posted receives of both kinds of queues go with them, without completions.
  std::unique_ptr<Side> gone[2];
  {
    const std::lock_guard guard(seen_mutex);
    for (int i = 0; i < 2; ++i) gone[i] = std::move(sides[at + static_cast<std::size_t>(i)]);
    sides.erase(sides.begin() + static_cast<std::ptrdiff_t>(at),
                sides.begin() + static_cast<std::ptrdiff_t>(at) + 2);
  }
  for (const auto &side : gone) {
    print(*side);
    std::printf("destroy qp %u: %d\n", side->name, ibv_destroy_qp(side->qp));
  }
}

// A receive work queue, whose receives are flushed.
void work_queue() {
  ibv_cq *const cq = queues[below(static_cast<unsigned>(queues.size()))]->cq;
  ibv_wq_init_attr attr{};
  attr.wq_type = IBV_WQT_RQ;
  attr.max_wr = 8;
  attr.max_sge = 1;
  attr.pd = pd;
  attr.cq = cq;
  errno = 0;
  ibv_wq *const wq = ibv_create_wq(context, &attr);
  std::printf("ibv_create_wq: %s, errno %d\n", wq != nullptr ? "made" : "null",
              wq != nullptr ? 0 : errno);
  if (wq == nullptr) return;
  ibv_wq_attr change{};
  change.attr_mask = IBV_WQ_ATTR_STATE;
  change.wq_state = IBV_WQS_RDY;
  need(ibv_modify_wq(wq, &change) == 0, "ibv_modify_wq");
  ibv_sge piece = into();
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  need(ibv_post_wq_recv(wq, &wr, &bad) == 0, "ibv_post_wq_recv");
  std::printf("destroy wq: %d\n", ibv_destroy_wq(wq));
}

}  // namespace

int main(int argc, char **argv) {
  need(argc >= 3, "usage");
  dice.seed(static_cast<unsigned>(std::atoi(argv[1])));
  const int rounds = std::atoi(argv[2]);
  const bool threads = argc > 3;
  ibv_device **list = ibv_get_device_list(nullptr);
  need(list != nullptr && list[0] != nullptr, "no device");
  context = ibv_open_device(list[0]);
  need(context != nullptr, "ibv_open_device");
  ibv_free_device_list(list);
  pd = ibv_alloc_pd(context);
  channel = ibv_create_comp_channel(context);
  mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  need(pd != nullptr && channel != nullptr && mr != nullptr, "pd, channel or mr");
  ibv_srq_init_attr init{nullptr, {64, 1, 0}};
  for (ibv_srq *&srq : shared) need((srq = ibv_create_srq(pd, &init)) != nullptr, "ibv_create_srq");
  for (int i = 0; i < 3; ++i) add_queue(threads);

  for (int round = 0; round < rounds; ++round) {
    const auto pick = [&] { return below(static_cast<unsigned>(sides.size())); };
    const unsigned what = below(20);
    if (sides.size() < 2 || (what < 3 && sides.size() < 16)) {
      auto a = make_side(), b = make_side();
      connect(a->qp, b->qp->qp_num);
      connect(b->qp, a->qp->qp_num);
      const std::lock_guard guard(seen_mutex);
      sides.push_back(std::move(a));
      sides.push_back(std::move(b));
    } else if (what < 14) {
      exchange(pick(), 1 + below(8));
    } else if (what == 14) {
      remove_pair(pick());
    } else if (what == 15) {
      be_notified(pick());
    } else if (what == 16) {
      Queue &queue = *queues[below(static_cast<unsigned>(queues.size()))];
      const int cqe = static_cast<int>(100 + below(600));
      std::printf("resize: %d\n", ibv_resize_cq(queue.cq, cqe));
      std::printf("cqe %d\n", queue.cq->cqe);
    } else if (what == 17) {
      work_queue();
    } else if (what == 18) {
      Queue &queue = *queues[sides[pick()]->send_cq];
      std::printf("destroy cq: %d\n", ibv_destroy_cq(queue.cq));
    } else {
      const Side &side = *sides[pick()];
      ibv_qp_attr attr{};
      ibv_qp_init_attr made{};
      need(ibv_query_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &made) == 0, "ibv_query_qp");
      std::printf("qp %u: state %d, type %d, port %d\n", side.name, attr.qp_state,
                  static_cast<int>(made.qp_type), side.qp->state);
    }
  }
  while (!sides.empty()) remove_pair(0);
  for (const auto &queue : queues) {
    queue->stop = true;
    if (queue->poller != nullptr) queue->poller->join();
    std::printf("destroy cq: %d\n", ibv_destroy_cq(queue->cq));
  }
  for (ibv_srq *srq : shared) std::printf("destroy srq: %d\n", ibv_destroy_srq(srq));
  std::printf("destroy channel: %d\n", ibv_destroy_comp_channel(channel));
  std::printf("dereg: %d\n", ibv_dereg_mr(mr));
  std::printf("dealloc: %d\n", ibv_dealloc_pd(pd));
  std::printf("close: %d\n", ibv_close_device(context));
  return 0;
}
