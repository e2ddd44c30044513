// Threads that create, use and destroy objects of contexts that they share, with forks,
// signals, traces, resizing and failing creations in between: for TSan (./run races).
//
//   races SECONDS [SEED [THREADS]]
//
// What the API forbids at the same time is not done: no thread posts to a queue that is being
// destroyed. What it allows is: all threads poll, arm and resize completion queues at any time.
// Exit status 1 with a line that says what was wrong.
#include <infiniband/verbs_exp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937;

std::atomic<bool> over{false};
std::atomic<std::uint64_t> steps{0}, completions{0}, flushed{0}, signals_taken{0};

void require(bool good, const char *what) {
  if (good) return;
  const int error = errno;
  std::fprintf(stderr, "races: %s (errno %d)\n", what, error);
  std::abort();
}

ibv_context *open_first() {
  ibv_device **list = ibv_get_device_list(nullptr);
  require(list != nullptr && list[0] != nullptr, "ibv_get_device_list");
  ibv_context *context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  require(context != nullptr, "ibv_open_device");
  return context;
}

constexpr std::uint32_t most_outstanding = 16;
constexpr std::size_t slots = 6, queues = 3;

// A queue pair that is connected to itself. Shared: who posts; alone: who replaces it.
struct Slot {
  std::shared_mutex mutex;
  ibv_qp *qp = nullptr;
  std::atomic<std::uint32_t> generation{0}, outstanding{0};
};

struct World {
  ibv_context *context = open_first();
  ibv_port_attr port{};
  ibv_gid gid{};
  ibv_pd *pd = nullptr;
  ibv_mr *mr = nullptr;
  ibv_srq *srq = nullptr;
  ibv_comp_channel *channel = nullptr;
  std::array<ibv_cq *, queues> cqs{};
  std::array<Slot, slots> qps;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(1 << 16);

  World() {
    require(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
    require(ibv_query_gid(context, 1, ethernet() ? 1 : 0, &gid) == 0, "ibv_query_gid");
    pd = ibv_alloc_pd(context);
    mr = ibv_reg_mr(pd, bytes.data(), bytes.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    ibv_srq_init_attr shared{nullptr, {512, 1, 0}};
    srq = ibv_create_srq(pd, &shared);
    channel = ibv_create_comp_channel(context);
    require(pd != nullptr && mr != nullptr && srq != nullptr && channel != nullptr, "objects");
    for (std::size_t i = 0; i < queues; ++i) {
      ibv_exp_cq_init_attr attr{};
      cqs[i] = i == 0 ? ibv_create_cq(context, 512, this, channel, 0)
                      : ibv_exp_create_cq(context, 512, this, channel, 0, &attr);
      require(cqs[i] != nullptr, "a completion queue");
    }
    for (Slot &slot : qps) fill(slot, &slot - qps.data());
  }

  ~World() {
    for (Slot &slot : qps) require(ibv_destroy_qp(slot.qp) == 0, "ibv_destroy_qp at the end");
    require(ibv_destroy_srq(srq) == 0, "ibv_destroy_srq at the end");
    for (ibv_cq *cq : cqs) require(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq at the end");
    require(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel at the end");
    require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr at the end");
    require(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd at the end");
    require(ibv_close_device(context) == 0, "ibv_close_device at the end");
  }

  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }

  ibv_ah_attr address() const {
    ibv_ah_attr to{};
    to.port_num = 1;
    to.dlid = port.lid;
    to.is_global = ethernet();
    to.grh.dgid = gid;
    to.grh.sgid_index = ethernet() ? 1 : 0;
    to.grh.hop_limit = 1;
    return to;
  }

  void connect(ibv_qp *qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "to INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr = address();
    require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "to RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "to RTS");
  }

  void fill(Slot &slot, std::ptrdiff_t number) {
    const auto at = static_cast<std::size_t>(number);
    if (number % 2 == 0) {
      ibv_qp_init_attr init{};
      init.send_cq = cqs[at % queues];
      init.recv_cq = cqs[(at + 1) % queues];
      init.srq = srq;
      init.cap = {most_outstanding, 0, 1, 1, 64};
      init.qp_type = IBV_QPT_RC;
      slot.qp = ibv_create_qp(pd, &init);
    } else {
      ibv_exp_qp_init_attr init{};
      init.send_cq = cqs[at % queues];
      init.recv_cq = cqs[at % queues];
      init.srq = srq;
      init.cap = {most_outstanding, 0, 1, 1, 64};
      init.qp_type = IBV_QPT_RC;
      init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
      init.pd = pd;
      slot.qp = ibv_exp_create_qp(context, &init);
    }
    require(slot.qp != nullptr, "a queue pair");
    ++slot.generation;
    slot.outstanding = 0;
    connect(slot.qp);
  }
};

std::vector<World *> worlds;

std::size_t below(Random &random, std::size_t limit) { return random() % limit; }

// What any number of threads may do with the same objects.

void post(World &world, Random &random) {
  const std::size_t number = below(random, slots);
  Slot &slot = world.qps[number];
  const std::shared_lock guard(slot.mutex);
  if (++slot.outstanding > most_outstanding) {
    --slot.outstanding;
    return;
  }
  const std::uint32_t length = random() % 3 == 0 ? 8 : 64 + random() % 2048;
  const std::uint64_t id = std::uint64_t{slot.generation.load()} << 32 | number;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(world.bytes.data()) + random() % 4096, length,
                world.mr->lkey};
  const std::uint64_t to =
      reinterpret_cast<std::uintptr_t>(world.bytes.data()) + 32768 + random() % 4096;
  int error = 0;
  if (random() % 2 == 0) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = random() % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (wr.opcode == IBV_WR_RDMA_WRITE && length == 8) wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma.remote_addr = to;
    wr.wr.rdma.rkey = world.mr->rkey;
    error = ibv_post_send(slot.qp, &wr, &bad);
  } else {
    ibv_exp_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE;
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = to;
    wr.wr.rdma.rkey = world.mr->rkey;
    error = ibv_exp_post_send(slot.qp, &wr, &bad);
  }
  // Completions that have not been polled yet take room, too.
  if (error == ENOMEM) --slot.outstanding;
  else require(error == 0, "posting");
}

void post_message(World &world, Random &random) {
  const std::size_t number = below(random, slots);
  Slot &slot = world.qps[number];
  const std::shared_lock guard(slot.mutex);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(world.bytes.data()) + 49152, 64, world.mr->lkey};
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.wr_id = ~std::uint64_t{0};
  receive.sg_list = &piece;
  receive.num_sge = 1;
  if (ibv_post_srq_recv(world.srq, &receive, &bad_receive) != 0) return;
  if (++slot.outstanding > most_outstanding) {
    --slot.outstanding;
    return;
  }
  piece.addr = reinterpret_cast<std::uintptr_t>(world.bytes.data());
  ibv_exp_send_wr wr{}, *bad = nullptr;
  wr.wr_id = std::uint64_t{slot.generation.load()} << 32 | number;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.exp_opcode = IBV_EXP_WR_SEND;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  const int error = ibv_exp_post_send(slot.qp, &wr, &bad);
  if (error == ENOMEM) --slot.outstanding;
  else require(error == 0, "posting a message");
}

void account(World &world, std::uint64_t id, ibv_wc_status status) {
  if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) {
    std::fprintf(stderr, "races: request %#llx: %s\n", static_cast<unsigned long long>(id),
                 ibv_wc_status_str(status));
    std::abort();
  }
  ++(status == IBV_WC_SUCCESS ? completions : flushed);
  if (id == ~std::uint64_t{0}) return;
  require((id & 0xffffffff) < slots, "a completion of no request");
  Slot &slot = world.qps[id & 0xffffffff];
  if (slot.generation == id >> 32) --slot.outstanding;
}

void poll_one(World &world, Random &random) {
  ibv_cq *const cq = world.cqs[below(random, queues)];
  if (random() % 2 == 0) {
    std::array<ibv_wc, 8> wc;
    const int count = ibv_poll_cq(cq, static_cast<int>(1 + below(random, 8)), wc.data());
    require(count >= 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i)
      account(world, wc[static_cast<std::size_t>(i)].wr_id, wc[static_cast<std::size_t>(i)].status);
  } else {
    std::array<ibv_exp_wc, 8> wc;
    const int count =
        ibv_exp_poll_cq(cq, static_cast<int>(1 + below(random, 8)), wc.data(), sizeof(ibv_exp_wc));
    require(count >= 0, "ibv_exp_poll_cq");
    for (int i = 0; i < count; ++i)
      account(world, wc[static_cast<std::size_t>(i)].wr_id, wc[static_cast<std::size_t>(i)].status);
  }
}

void arm(World &world, Random &random) {
  require(ibv_req_notify_cq(world.cqs[below(random, queues)], 0) == 0, "ibv_req_notify_cq");
  pollfd ready{world.channel->fd, POLLIN, 0};
  static std::mutex one_at_a_time;  // or a thread would block for an event that another takes
  const std::unique_lock guard(one_at_a_time, std::try_to_lock);
  if (!guard.owns_lock() || poll(&ready, 1, 0) != 1) return;
  ibv_cq *cq = nullptr;
  void *of = nullptr;
  if (ibv_get_cq_event(world.channel, &cq, &of) != 0) {
    require(errno == EINTR, "ibv_get_cq_event");
    return;
  }
  require(of == &world, "an event's context");
  ibv_ack_cq_events(cq, 1);
}

void resize(World &world, Random &random) {
  const int error =
      ibv_resize_cq(world.cqs[below(random, queues)], static_cast<int>(400 + random() % 2000));
  require(error == 0 || error == EBUSY, "ibv_resize_cq");
}

void ask(World &world, Random &random) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
  require(ibv_exp_query_device(world.context, &attr) == 0, "ibv_exp_query_device");
  Slot &slot = world.qps[below(random, slots)];
  const std::shared_lock guard(slot.mutex);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(slot.qp, &now, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
  require(init.send_cq == slot.qp->send_cq, "ibv_query_qp: a completion queue");
}

// What one thread does with one object, beside everything else.

void replace(World &world, Random &random) {
  const std::size_t number = below(random, slots);
  Slot &slot = world.qps[number];
  const std::unique_lock guard(slot.mutex);
  require(ibv_destroy_qp(slot.qp) == 0, "ibv_destroy_qp");
  world.fill(slot, static_cast<std::ptrdiff_t>(number));
}

void reset(World &world, Random &random) {
  Slot &slot = world.qps[below(random, slots)];
  const std::unique_lock guard(slot.mutex);
  ibv_qp_attr attr{};
  if (random() % 2 == 0) {
    attr.qp_state = IBV_QPS_ERR;
    require(ibv_modify_qp(slot.qp, &attr, IBV_QP_STATE) == 0, "to ERR");
  }
  attr.qp_state = IBV_QPS_RESET;
  require(ibv_modify_qp(slot.qp, &attr, IBV_QP_STATE) == 0, "to RESET");
  ++slot.generation;
  slot.outstanding = 0;
  world.connect(slot.qp);
}

void targets(World &world, Random &random) {
  ibv_exp_dct_init_attr attr{};
  attr.pd = world.pd;
  attr.cq = world.cqs[below(random, queues)];
  attr.srq = world.srq;
  attr.dc_key = 1;
  attr.port = 1;
  attr.min_rnr_timer = 2;
  attr.mtu = IBV_MTU_1024;
  attr.gid_index = world.ethernet() ? 1 : 255;
  attr.hop_limit = 1;
  ibv_exp_dct *dct = ibv_exp_create_dct(world.context, &attr);
  require(dct != nullptr, "ibv_exp_create_dct");
  require(ibv_exp_destroy_dct(dct) == 0, "ibv_exp_destroy_dct");
}

// A creation that fails leaves nothing behind on its completion queue.
void fail(World &world, Random &random) {
  ibv_exp_qp_init_attr init{};
  init.send_cq = init.recv_cq = world.cqs[below(random, queues)];
  init.srq = world.srq;
  init.cap = {1 << 24, 0, 1, 1, 64};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  init.pd = world.pd;
  require(ibv_exp_create_qp(world.context, &init) == nullptr, "a queue pair that is too large");
}

void queue_of_its_own(World &world, Random &random) {
  ibv_cq *cq = ibv_create_cq(world.context, 16, nullptr, random() % 2 ? world.channel : nullptr, 0);
  require(cq != nullptr, "ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {8, 8, 1, 1, 0};
  init.qp_type = random() % 2 == 0 ? IBV_QPT_UD : IBV_QPT_RC;
  ibv_qp *qp = ibv_create_qp(world.pd, &init);
  require(qp != nullptr, "ibv_create_qp");
  ibv_exp_query_intf_params params{};
  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = IBV_EXP_INTF_QP_BURST;
  params.obj = qp;
  ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
  if (void *family = ibv_exp_query_intf(world.context, &params, &status)) {
    ibv_exp_release_intf_params release{};
    require(ibv_exp_release_intf(world.context, family, &release) == 0, "ibv_exp_release_intf");
  }
  ibv_wc wc;
  require(ibv_poll_cq(cq, 1, &wc) == 0, "a completion of nothing");
  require(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0, "destroying one's own");
}

void reopen(World &, Random &) {
  ibv_context *context = open_first();
  ibv_pd *pd = ibv_alloc_pd(context);
  require(pd != nullptr && ibv_dealloc_pd(pd) == 0, "a domain");
  require(ibv_close_device(context) == 0, "ibv_close_device");
}

// A child may leave; in some the destructors of libraries run.
void leave_child(World &, Random &random) {
  const bool exits = random() % 2 == 0;
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    if (exits) std::quick_exit(0);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) require(errno == EINTR, "waitpid");
  require(status == 0, "a child's status");
}

void send_signal(World &, Random &) { kill(getpid(), SIGUSR1); }

struct Action {
  void (*run)(World &, Random &);
  unsigned weight;
};
constexpr Action actions[] = {
    {post, 200},      {post_message, 80}, {poll_one, 400},       {arm, 30},
    {resize, 2},      {ask, 10},          {replace, 6},          {reset, 6},
    {targets, 4},     {fail, 4},          {queue_of_its_own, 6}, {reopen, 1},
    {leave_child, 1}, {send_signal, 1}};

void work(unsigned seed) {
  Random random(seed);
  unsigned total = 0;
  for (const Action &action : actions) total += action.weight;
  while (!over) {
    auto at = static_cast<unsigned>(below(random, total));
    const Action *action = actions;
    while (at >= action->weight) at -= (action++)->weight;
    action->run(*worlds[below(random, worlds.size())], random);
    ++steps;
  }
}

void note_signal(int) { signals_taken.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

int main(int argc, char **argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 10;
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 0)) : 1;
  const unsigned threads = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 8;
  // With IBVEXP_TRACE the library writes the trace at this signal, and hands it on.
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigaction(SIGUSR1, &action, nullptr);
  for (int i = 0; i < 2; ++i) worlds.push_back(new World);
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) all.emplace_back(work, seed * 1000 + i);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  std::uint64_t before = 0;
  auto moved = Clock::now();
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (steps != before) {
      before = steps;
      moved = Clock::now();
    }
    require(Clock::now() - moved < std::chrono::seconds(120), "nothing moves any more");
  }
  over = true;
  for (std::thread &thread : all) thread.join();
  for (const World *world : worlds) delete world;
  std::printf(
      "races: seed %u, %u threads, %d s: %llu steps, %llu completions, %llu flushed, "
      "%llu signals\n",
      seed, threads, seconds, static_cast<unsigned long long>(steps.load()),
      static_cast<unsigned long long>(completions.load()),
      static_cast<unsigned long long>(flushed.load()),
      static_cast<unsigned long long>(signals_taken.load()));
  return 0;
}
