// What a device answers to plain verbs, right ones and wrong ones: a line for each
// question, the same on any device that follows the specification. run.py compares
// the kernel's Soft-RoCE with the software HCA.
//
//   statuses [DEVICE]
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int max_wait_ms = 3000;

[[noreturn]] void die(const char *what) {
  std::fprintf(stderr, "statuses: %s: %s\n", what, std::strerror(errno));
  std::exit(2);
}

void say(const std::string &question, const std::string &answer) {
  std::printf("%s: %s\n", question.c_str(), answer.c_str());
  std::fflush(stdout);
}

std::string name_of(int error) { return error == 0 ? "done" : strerrorname_np(error); }

// Calls that return errno, and those that return nothing but set it.
void number(const std::string &question, int result) {
  say(question, name_of(result < 0 ? errno : result));
}
template <class Object>
Object *object(const std::string &question, Object *made) {
  say(question, made != nullptr ? "done" : name_of(errno));
  return made;
}

ibv_context *context;
ibv_pd *pd;
ibv_gid gid;
int gid_index = -1;
constexpr std::uint8_t port = 1;

struct Memory {
  alignas(4096) std::array<char, 8192> bytes{};
  ibv_mr *mr;
  explicit Memory(int access) : mr(ibv_reg_mr(pd, bytes.data(), bytes.size(), access)) {
    if (mr == nullptr) die("ibv_reg_mr");
  }
  ~Memory() { ibv_dereg_mr(mr); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  ibv_sge part(std::uint32_t length, std::uint32_t offset = 0) const {
    return {reinterpret_cast<std::uint64_t>(bytes.data()) + offset, length, mr->lkey};
  }
};

struct Queue {
  ibv_cq *cq = ibv_create_cq(context, 32, nullptr, nullptr, 0);
  ibv_qp *qp = nullptr;

  explicit Queue(ibv_qp_type type = IBV_QPT_RC, ibv_srq *srq = nullptr,
                 ibv_comp_channel *events = nullptr) {
    if (events != nullptr) {
      ibv_destroy_cq(cq);
      cq = ibv_create_cq(context, 32, nullptr, events, 0);
    }
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {8, srq != nullptr ? 0u : 8u, 2, 2, 32};
    attr.qp_type = type;
    attr.sq_sig_all = 1;
    qp = ibv_create_qp(pd, &attr);
    if (cq == nullptr || qp == nullptr) die("queue");
  }
  ~Queue() {
    ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
  }
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;

  int init(int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port;
    attr.qp_access_flags = static_cast<unsigned>(access);
    attr.qkey = 0x1234;
    const int more = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | more);
  }
  int to_rtr(std::uint32_t peer, int slot = gid_index) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = port;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(slot);
    attr.ah_attr.grh.hop_limit = 1;
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD)
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return ibv_modify_qp(qp, &attr, mask);
  }
  int to_rts() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;
    attr.retry_cnt = 1;
    attr.rnr_retry = 0;
    attr.max_rd_atomic = 4;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC)
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &attr, mask);
  }
  int move(ibv_qp_state state) const {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }
  int receive(const ibv_sge &where, int pieces = 1, std::uint64_t id = 100) const {
    ibv_recv_wr wr{}, *bad;
    ibv_sge list[4] = {where, where, where, where};
    wr.wr_id = id;
    wr.sg_list = list;
    wr.num_sge = pieces;
    return ibv_post_recv(qp, &wr, &bad);
  }
  int send(ibv_send_wr wr, ibv_sge from, int pieces = 1) const {
    ibv_send_wr *bad;
    ibv_sge list[4] = {from, from, from, from};
    wr.wr_id = 200;
    wr.sg_list = list;
    wr.num_sge = pieces;
    return ibv_post_send(qp, &wr, &bad);
  }
  std::string state() const {
    static constexpr const char *names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    if (const int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init)) return name_of(error);
    return names[attr.qp_state];
  }
  // "status opcode length", or nothing in time.
  std::string completion(int wait_ms = max_wait_ms) const {
    ibv_wc wc{};
    for (int waited = 0; waited < wait_ms; ++waited) {
      if (ibv_poll_cq(cq, 1, &wc) == 1) {
        std::string out = wc.wr_id >= 200 ? "send " : "receive ";
        out += ibv_wc_status_str(wc.status);
        if (wc.status == IBV_WC_SUCCESS) {
          out += ", opcode " + std::to_string(wc.opcode);
          if (wc.opcode & IBV_WC_RECV) out += ", " + std::to_string(wc.byte_len) + " bytes";
          if (wc.wc_flags & IBV_WC_WITH_IMM)
            out += ", immediate " + std::to_string(be32toh(wc.imm_data));
          if (wc.wc_flags & IBV_WC_WITH_INV) out += ", invalidated";
        }
        return out;
      }
      poll(nullptr, 0, 1);
    }
    return "no completion";
  }
};

struct Pair {
  Queue a, b;
  explicit Pair(ibv_qp_type type = IBV_QPT_RC, ibv_srq *srq = nullptr,
                int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC)
      : a(type), b(type, srq) {
    const int none = type == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE : access;
    if (a.init(none) || b.init(none) || a.to_rtr(b.qp->qp_num) || b.to_rtr(a.qp->qp_num) ||
        a.to_rts() || b.to_rts())
      die("connecting");
  }
  // What becomes of a request and of both ends.
  void ends(const std::string &question, bool receives = false) const {
    say(question, a.completion());
    if (receives) say(question + ", receiver", b.completion());
    say(question + ", states", a.state() + " " + b.state());
  }
};

std::string event(int wait_ms = 1000) {
  pollfd look{context->async_fd, POLLIN, 0};
  std::string out;
  ibv_async_event e;
  while (poll(&look, 1, wait_ms) == 1 && ibv_get_async_event(context, &e) == 0) {
    out += (out.empty() ? "" : ", ") + std::string(ibv_event_type_str(e.event_type));
    ibv_ack_async_event(&e);
    wait_ms = 100;
  }
  return out.empty() ? "no event" : out;
}

constexpr int full = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;

ibv_send_wr to(ibv_wr_opcode opcode, const Memory &there, std::uint32_t offset = 0) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  const auto address = reinterpret_cast<std::uint64_t>(there.bytes.data()) + offset;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = there.mr->rkey;
  } else {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = there.mr->rkey;
  }
  return wr;
}
ibv_send_wr message(ibv_wr_opcode opcode = IBV_WR_SEND) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.imm_data = htobe32(77);
  return wr;
}

void queries() {
  ibv_port_attr attr{};
  number("query port 0", ibv_query_port(context, 0, &attr));
  number("query a port too many", ibv_query_port(context, 9, &attr));
  union ibv_gid some;
  errno = 0;
  number("query a GID too many", ibv_query_gid(context, port, 1 << 20, &some));
  std::uint16_t key;
  number("query the first P_Key", ibv_query_pkey(context, port, 0, &key));
  number("query a P_Key too many", ibv_query_pkey(context, port, 1 << 14, &key));
}

void creation() {
  ibv_device_attr most{};
  if (ibv_query_device(context, &most)) die("ibv_query_device");
  object("a completion queue of no entry", ibv_create_cq(context, 0, nullptr, nullptr, 0));
  object("a completion queue that is too long",
         ibv_create_cq(context, most.max_cqe + 1, nullptr, nullptr, 0));
  object("a completion vector too many",
         ibv_create_cq(context, 1, nullptr, nullptr, context->num_comp_vectors + 1));
  std::array<char, 64> bytes{};
  object("remote writing without local writing",
         ibv_reg_mr(pd, bytes.data(), bytes.size(), IBV_ACCESS_REMOTE_WRITE));
  object("remote atomics without local writing",
         ibv_reg_mr(pd, bytes.data(), bytes.size(), IBV_ACCESS_REMOTE_ATOMIC));
  object("memory that is not there",
         ibv_reg_mr(pd, reinterpret_cast<void *>(0x10000), 4096, IBV_ACCESS_LOCAL_WRITE));

  ibv_cq *cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  const auto queue = [&](const char *question, ibv_qp_type type, auto change) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = type;
    change(attr);
    if (ibv_qp *qp = object(question, ibv_create_qp(pd, &attr))) ibv_destroy_qp(qp);
  };
  queue("a queue pair of RC", IBV_QPT_RC, [](auto &) {});
  queue("a queue pair of UC", IBV_QPT_UC, [](auto &) {});
  queue("a queue pair of UD", IBV_QPT_UD, [](auto &) {});
  queue("a queue pair of no type", static_cast<ibv_qp_type>(77), [](auto &) {});
  queue("a send queue that is too long", IBV_QPT_RC,
        [&](auto &attr) { attr.cap.max_send_wr = static_cast<unsigned>(most.max_qp_wr) + 1; });
  queue("a receive queue that is too long", IBV_QPT_RC,
        [&](auto &attr) { attr.cap.max_recv_wr = static_cast<unsigned>(most.max_qp_wr) + 1; });
  queue("too many pieces to send", IBV_QPT_RC, [&](auto &attr) { attr.cap.max_send_sge = 1000; });
  queue("too much inline data", IBV_QPT_RC,
        [&](auto &attr) { attr.cap.max_inline_data = 1 << 20; });
  ibv_destroy_cq(cq);

  ibv_srq_init_attr srq{};
  srq.attr = {static_cast<unsigned>(most.max_srq_wr) + 1, 1, 0};
  object("a shared receive queue that is too long", ibv_create_srq(pd, &srq));

  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = gid;
  address.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  address.port_num = port;
  if (ibv_ah *ah = object("an address handle", ibv_create_ah(pd, &address))) ibv_destroy_ah(ah);
  address.port_num = 9;
  object("an address handle of a port too many", ibv_create_ah(pd, &address));
  address.port_num = port;
  address.is_global = 0;
  object("an address handle of RoCE without GRH", ibv_create_ah(pd, &address));
}

void in_use() {
  {
    const Queue q;
    number("a completion queue that is used is destroyed", ibv_destroy_cq(q.cq));
    number("a protection domain that is used is freed", ibv_dealloc_pd(pd));
  }
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  ibv_srq *srq = ibv_create_srq(pd, &init);
  {
    const Queue q(IBV_QPT_RC, srq);
    number("a shared receive queue that is used is destroyed", ibv_destroy_srq(srq));
  }
  number("then it is not", ibv_destroy_srq(srq));
}

void states() {
  const Queue q;
  const Memory memory(full);
  say("a new queue pair", q.state());
  number("RESET to RTR", q.to_rtr(1));
  number("RESET to RTS", q.to_rts());
  number("sending in RESET", q.send(message(), memory.part(8)));
  number("INIT", q.init());
  number("sending in INIT", q.send(message(), memory.part(8)));
  number("receiving in INIT", q.receive(memory.part(8)));
  number("INIT to RTS", q.to_rts());
  number("a GID that is not there", q.to_rtr(1, 200));
  {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    number("RTR without an address", ibv_modify_qp(q.qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 9;
    number("a port too many", ibv_modify_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
    attr.port_num = port;
    attr.pkey_index = 9999;
    number("a P_Key that is not there",
           ibv_modify_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX));
  }
  number("RTR", q.to_rtr(q.qp->qp_num));
  number("sending in RTR", q.send(message(), memory.part(8)));
  number("RTS", q.to_rts());
  number("RTS to INIT", q.init());
  number("ERR", q.move(IBV_QPS_ERR));
  say("the receive of before", q.completion());
  number("sending in ERR", q.send(message(), memory.part(8)));
  say("what is sent in ERR", q.completion());
  number("receiving in ERR", q.receive(memory.part(8)));
  say("what is received in ERR", q.completion());
  number("back to RESET", q.move(IBV_QPS_RESET));
  say("and then", q.state());
}

void posting() {
  const Pair pair;
  const Memory memory(full);
  number("too many pieces posted to send", pair.a.send(message(), memory.part(8), 4));
  number("too many pieces posted to receive", pair.a.receive(memory.part(8), 4));
  number("a message of no piece",
         pair.b.receive(memory.part(8)) | pair.a.send(message(), memory.part(0), 0));
  pair.ends("a message of no piece", true);
  ibv_send_wr wr = message();
  wr.send_flags = IBV_SEND_INLINE;
  number("more inline than granted", pair.a.send(wr, memory.part(4096)));
  wr.opcode = static_cast<ibv_wr_opcode>(99);
  number("no opcode", pair.a.send(wr, memory.part(8)));
  int error = 0, count = 0;
  while (error == 0 && count < 10000) {
    error = pair.b.receive(memory.part(8));
    ++count;
  }
  number("receiving until it is full", error);
}

void traffic(ibv_qp_type type, const std::string &name) {
  const Pair pair(type);
  const Memory here(full), there(full);
  pair.b.receive(there.part(100));
  pair.a.send(message(), here.part(64));
  pair.ends(name + " message", true);
  pair.b.receive(there.part(100));
  pair.a.send(message(IBV_WR_SEND_WITH_IMM), here.part(0));
  pair.ends(name + " message with immediate data", true);
  pair.a.send(to(IBV_WR_RDMA_WRITE, there), here.part(4096));
  pair.ends(name + " write");
  pair.b.receive(there.part(100));
  ibv_send_wr wr = to(IBV_WR_RDMA_WRITE_WITH_IMM, there);
  wr.imm_data = htobe32(5);
  pair.a.send(wr, here.part(16));
  pair.ends(name + " write with immediate data", true);
  if (type != IBV_QPT_RC) {
    pair.b.receive(there.part(8));
    pair.a.send(message(), here.part(64));
    say(name + " message that is too long", pair.a.completion());
    say(name + " message that is too long, receiver", pair.b.completion(300));
    say(name + " message that is too long, states", pair.a.state() + " " + pair.b.state());
    return;
  }
  pair.a.send(to(IBV_WR_RDMA_READ, there), here.part(4096));
  pair.ends("read");
  pair.a.send(to(IBV_WR_RDMA_READ, there), here.part(0), 0);
  pair.ends("read of nothing");
  pair.a.send(to(IBV_WR_ATOMIC_FETCH_AND_ADD, there, 8), here.part(8));
  pair.ends("fetch and add");
  pair.a.send(to(IBV_WR_ATOMIC_CMP_AND_SWP, there, 8), here.part(8));
  pair.ends("compare and swap");
}

// Each on a connection of its own.
void failures() {
  const Memory here(full), there(full), closed(IBV_ACCESS_LOCAL_WRITE);
  const auto fails = [&](const std::string &question, ibv_send_wr wr, ibv_sge from) {
    const Pair pair;
    number(question + ", posted", pair.a.send(wr, from));
    pair.ends(question);
    say(question + ", event", event(200));
  };
  fails(
      "a wrong remote key",
      [&] {
        ibv_send_wr wr = to(IBV_WR_RDMA_WRITE, there);
        wr.wr.rdma.rkey ^= 0x5500;
        return wr;
      }(),
      here.part(8));
  fails("a write past the end", to(IBV_WR_RDMA_WRITE, there, 8000), here.part(512));
  fails("a read past the end", to(IBV_WR_RDMA_READ, there, 8000), here.part(512));
  fails("a write where only local writing is allowed", to(IBV_WR_RDMA_WRITE, closed), here.part(8));
  fails("a read where only local writing is allowed", to(IBV_WR_RDMA_READ, closed), here.part(8));
  fails("an atomic where only local writing is allowed", to(IBV_WR_ATOMIC_FETCH_AND_ADD, closed),
        here.part(8));
  fails("an atomic across words", to(IBV_WR_ATOMIC_FETCH_AND_ADD, there, 4), here.part(8));
  fails("a message without a receive", message(), here.part(8));
  {
    ibv_sge wrong = here.part(8);
    wrong.lkey ^= 0x5500;
    fails("a wrong local key", to(IBV_WR_RDMA_WRITE, there), wrong);
  }
  fails("local memory past the end", to(IBV_WR_RDMA_WRITE, there), here.part(512, 8000));
  {
    const Memory readable(0);
    fails("a read into memory that may not be written", to(IBV_WR_RDMA_READ, there),
          readable.part(8));
  }
  {
    const Pair pair;
    pair.b.receive(there.part(8));
    pair.a.send(message(), here.part(64));
    pair.ends("a message that is too long", true);
    say("a message that is too long, event", event(200));
  }
  {
    const Pair pair;
    ibv_sge wrong = there.part(64);
    wrong.lkey ^= 0x5500;
    pair.b.receive(wrong);
    pair.a.send(message(), here.part(64));
    pair.ends("a receive with a wrong key", true);
  }
  {
    const Pair pair(IBV_QPT_RC, nullptr, 0);
    pair.a.send(to(IBV_WR_RDMA_WRITE, there), here.part(8));
    pair.ends("a write to a queue pair that allows none");
  }
  {
    const Pair pair(IBV_QPT_RC, nullptr, 0);
    pair.a.send(to(IBV_WR_RDMA_READ, there), here.part(8));
    pair.ends("a read from a queue pair that allows none");
  }
  {
    const Pair pair;
    pair.b.move(IBV_QPS_RESET);
    pair.a.send(message(), here.part(8));
    say("no answer", pair.a.completion());
    say("no answer, state", pair.a.state());
  }
  {
    const Pair pair;
    pair.b.receive(there.part(8), 1, 100);
    pair.b.receive(there.part(8), 1, 101);
    pair.b.move(IBV_QPS_ERR);
    say("flushed first", pair.b.completion());
    say("flushed second", pair.b.completion());
  }
}

void shared() {
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  ibv_srq *srq = ibv_create_srq(pd, &init);
  const Memory here(full), there(full);
  {
    const Pair pair(IBV_QPT_RC, srq);
    for (int i = 0; i < 4; ++i) {
      ibv_recv_wr wr{}, *bad;
      ibv_sge where = there.part(64);
      wr.wr_id = 100;
      wr.sg_list = &where;
      wr.num_sge = 1;
      ibv_post_srq_recv(srq, &wr, &bad);
    }
    number("receiving beside the shared queue", pair.b.receive(there.part(8)));
    ibv_srq_attr limit{};
    limit.srq_limit = 3;
    number("a limit", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    limit.srq_limit = 1000;
    number("a limit that is too high", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    for (int i = 0; i < 2; ++i) {
      pair.a.send(message(), here.part(8));
      pair.ends("message to a shared queue", true);
    }
    say("the limit is reached", event());
    ibv_query_srq(srq, &limit);
    say("the limit after that", std::to_string(limit.srq_limit));
    pair.b.move(IBV_QPS_ERR);
    say("a queue pair with a shared queue ends", event());
  }
  ibv_destroy_srq(srq);
}

void datagrams() {
  const Queue a(IBV_QPT_UD), b(IBV_QPT_UD);
  const Memory here(full), there(full);
  for (const Queue *q : {&a, &b})
    if (q->init() || q->to_rtr(0) || q->to_rts()) die("datagrams");
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = gid;
  address.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  address.grh.hop_limit = 1;
  address.port_num = port;
  ibv_ah *ah = ibv_create_ah(pd, &address);
  const auto send = [&](const std::string &question, std::uint32_t key, std::uint32_t room,
                        std::uint32_t length) {
    ibv_send_wr wr = message();
    wr.wr.ud = {ah, b.qp->qp_num, key};
    b.receive(there.part(room));
    number(question + ", posted", a.send(wr, here.part(length)));
    say(question, a.completion());
    say(question + ", receiver", b.completion(500));
    say(question + ", states", a.state() + " " + b.state());
  };
  send("datagram", 0x1234, 200, 64);
  send("datagram with a wrong Q_Key", 0x4321, 200, 64);
  send("datagram that is too long", 0x1234, 60, 64);
  number("a group for a connection", [&] {
    const Queue rc;
    union ibv_gid group {};
    group.raw[0] = 0xff;
    group.raw[1] = 0x0e;
    return ibv_attach_mcast(rc.qp, &group, 0);
  }());
  number("a group of no group", ibv_attach_mcast(a.qp, &gid, 0));
  ibv_destroy_ah(ah);
}

void notification() {
  ibv_comp_channel *events = ibv_create_comp_channel(context);
  {
    Queue a, b(IBV_QPT_RC, nullptr, events);
    const Memory here(full), there(full);
    if (a.init() || b.init() || a.to_rtr(b.qp->qp_num) || b.to_rtr(a.qp->qp_num) || a.to_rts() ||
        b.to_rts())
      die("connecting");
    pollfd look{events->fd, POLLIN, 0};
    const auto notified = [&](int wait_ms) {
      if (poll(&look, 1, wait_ms) != 1) return "no event";
      ibv_cq *cq;
      void *cookie;
      ibv_get_cq_event(events, &cq, &cookie);
      ibv_ack_cq_events(cq, 1);
      return "an event";
    };
    const auto send = [&](unsigned flags) {
      b.receive(there.part(64));
      ibv_send_wr wr = message();
      wr.send_flags = flags;
      a.send(wr, here.part(8));
      a.completion();
    };
    send(0);
    say("a completion without request", notified(300));
    b.completion();
    ibv_req_notify_cq(b.cq, 0);
    send(0);
    say("a completion after a request", notified(2000));
    b.completion();
    send(0);
    say("a second completion after a request", notified(300));
    b.completion();
    ibv_req_notify_cq(b.cq, 1);
    send(0);
    say("a completion that is not solicited", notified(300));
    b.completion();
    send(IBV_SEND_SOLICITED);
    say("a solicited completion", notified(2000));
    b.completion();
    number("a channel that is used is destroyed", ibv_destroy_comp_channel(events));
  }
  number("then it is not used", ibv_destroy_comp_channel(events));
}

void completion_queues() {
  const Pair pair;
  const Memory here(full), there(full);
  number("a completion queue becomes longer", ibv_resize_cq(pair.a.cq, 64));
  for (int i = 0; i < 3; ++i) pair.a.send(to(IBV_WR_RDMA_WRITE, there), here.part(8));
  poll(nullptr, 0, 200);
  number("a completion queue becomes shorter than what it holds", ibv_resize_cq(pair.a.cq, 1));
  say("what it held", pair.a.completion());
}

void windows() {
  const Pair pair;
  const Memory here(full), there(full | IBV_ACCESS_MW_BIND), without(full);
  ibv_mw *mw = object("a window of type 2", ibv_alloc_mw(pd, IBV_MW_TYPE_2));
  if (mw == nullptr) return;
  const auto bind = [&](const Memory &memory, std::uint64_t length) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = {memory.mr, reinterpret_cast<std::uint64_t>(memory.bytes.data()), length,
                            IBV_ACCESS_REMOTE_WRITE};
    return std::pair(wr.bind_mw.rkey, pair.b.send(wr, here.part(0), 0));
  };
  const auto [key, error] = bind(there, 4096);
  number("binding a window", error);
  say("binding a window", pair.b.completion());
  ibv_send_wr write = to(IBV_WR_RDMA_WRITE, there);
  write.wr.rdma.rkey = key;
  pair.a.send(write, here.part(8));
  pair.ends("a write through a window");
  write = to(IBV_WR_RDMA_WRITE, there, 4000);
  write.wr.rdma.rkey = key;
  pair.a.send(write, here.part(512));
  pair.ends("a write past the end of a window");
  number("a window is freed", ibv_dealloc_mw(mw));
}

}  // namespace

int main(int argc, char **argv) {
  int count = 0;
  ibv_device **list = ibv_get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i)
    if (argc < 2 || std::strcmp(argv[1], ibv_get_device_name(list[i])) == 0) {
      context = ibv_open_device(list[i]);
      break;
    }
  if (context == nullptr) die("no device");
  pd = ibv_alloc_pd(context);
  // RoCE v2: of several with an IPv4 address, the last.
  for (int i = 0; i < 8; ++i) {
    union ibv_gid at;
    if (ibv_query_gid(context, port, i, &at) == 0 && at.raw[10] == 0xff && at.raw[11] == 0xff) {
      gid = at;
      gid_index = i;
    }
  }
  if (pd == nullptr || gid_index < 0) die("no GID with an IPv4 address");
  queries();
  creation();
  in_use();
  states();
  posting();
  traffic(IBV_QPT_RC, "RC");
  traffic(IBV_QPT_UC, "UC");
  failures();
  shared();
  datagrams();
  notification();
  completion_queues();
  windows();
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
