// Programs that post and poll without libmlx5, and so give the device no time
// of their own.
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <fstream>
#include <future>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "direct_rig.h"
#include "skip.h"

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

// On hardware microseconds pass until a WQE is fetched, and a command takes longer.
TEST_CASE("A write posted before its queue pair is stopped arrives", "[direct_test]") {
  Context c;
  Memory from(c, 64), to(c, 64);
  for (const ibv_qp_state stopped : {IBV_QPS_ERR, IBV_QPS_RESET})
    for (int round = 0; round < 50; ++round) {
      Rc a(c), b(c);
      a.connect(b.qp->qp_num, c.port.lid);
      b.connect(a.qp->qp_num, c.port.lid);
      from.bytes[7] = static_cast<uint8_t>(round + 1);
      to.bytes[7] = 0;
      a.write(from, 64, to.address(), to.mr->rkey);
      ibv_qp_attr attr{};
      attr.qp_state = stopped;
      REQUIRE(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
      CAPTURE(stopped);
      REQUIRE(to.bytes[7] == round + 1);
      if (stopped == IBV_QPS_ERR) REQUIRE(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
    }
}

// Posts to others overwrite the doorbell registers that would announce it.
TEST_CASE("A write posted before one of many queue pairs is stopped arrives", "[direct_test]") {
  Context c;
  Memory from(c, 64), to(c, 64), elsewhere(c, 64);
  constexpr size_t others = 400, loud = 24;
  std::deque<Rc> idle;
  while (idle.size() < others) {
    Rc &q = idle.emplace_back(c);
    q.connect(q.qp->qp_num, c.port.lid);
  }
  const auto post_to_all = [&](Rc &a) {
    a.write(from, 64, to.address(), to.mr->rkey);
    for (size_t i = 0; i < loud; ++i) {
      idle[i].write(from, 64, elsewhere.address(), elsewhere.mr->rkey);
    }
  };
  for (int round = 1; round <= 20; ++round) {
    CAPTURE(round);
    from.bytes[7] = static_cast<uint8_t>(round);
    {
      Rc b(c), a(c);  // destroyed in reverse order
      a.connect(b.qp->qp_num, c.port.lid);
      b.connect(a.qp->qp_num, c.port.lid);
      // The device leaves them alone once they have been idle.
      a.nop();
      a.wait();
      usleep(10'000);
      post_to_all(a);
      if (round % 3 != 0) {
        ibv_qp_attr attr{};
        attr.qp_state = round % 3 == 1 ? IBV_QPS_ERR : IBV_QPS_RESET;
        REQUIRE(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
        REQUIRE(to.bytes[7] == round);
      }
    }
    REQUIRE(to.bytes[7] == round);
    for (size_t i = 0; i < loud; ++i) idle[i].wait();
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

// Two pipes: what two processes say to each other by other ways.
struct Lines {
  Lines() { REQUIRE((pipe(there) == 0 && pipe(back) == 0)); }
  ~Lines() {
    for (const int fd : {there[0], there[1], back[0], back[1]}) close(fd);
  }
  Lines(const Lines &) = delete;
  int there[2], back[2];  // to the child, and from it
};

// Also in children, where nothing is reported. `to`: of an RDMA WRITE.
void post(const Rc &from, ibv_wr_opcode opcode, const Memory &data, uint32_t bytes,
          const Address &to = {}) {
  ibv_sge sge{data.address(), bytes, data.mr->lkey};
  ibv_send_wr wr{}, *bad;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = to.at;
  wr.wr.rdma.rkey = to.rkey;
  if (ibv_post_send(from.qp, &wr, &bad) != 0) std::abort();
}
int next_status(const Rc &of) {
  ibv_wc wc;
  while (ibv_poll_cq(of.cq, 1, &wc) == 0) {
  }
  return wc.status;
}

// What another process's first write to memory of this one, which is deregistered as soon
// as it is posted or before, comes to.
struct FirstWrite {
  int status = -1;  // of its completion
  bool arrived = false;
};
FirstWrite write_first(bool deregister_before) {
  FirstWrite result;
  const Lines lines;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int status = 1;
    {
      Context c;
      Rc qp(c);
      Memory from(c, 4096), other(c, 64);
      from.bytes[99] = 42;
      Address mine{qp.qp->qp_num, 0, c.port.lid, 0}, peer;
      put(lines.back[1], &mine, sizeof mine);
      hear(lines.there[0], &peer, sizeof peer);
      qp.connect(peer.qpn, peer.lid);
      post(qp, IBV_WR_RDMA_WRITE, from, 4096, peer);
      other.deregister();  // the device looks at what was posted before
      put(lines.back[1], &mine, 1);
      status = next_status(qp);
    }
    _exit(status);
  }
  int ended = 0;
  {
    Context c;
    Rc qp(c);
    Memory to(c, 4096);
    Address mine{qp.qp->qp_num, to.mr->rkey, c.port.lid, to.address()}, peer;
    hear(lines.back[0], &peer, sizeof peer);
    qp.connect(peer.qpn, peer.lid);
    if (deregister_before) to.deregister();
    put(lines.there[1], &mine, sizeof mine);
    char posted;
    hear(lines.back[0], &posted, 1);
    if (!deregister_before) to.deregister();
    result.arrived = to.bytes[99] == 42;
    REQUIRE(waitpid(child, &ended, 0) == child);
  }
  if (WIFEXITED(ended)) result.status = WEXITSTATUS(ended);
  return result;
}

}  // namespace

// The first record between two processes has to wait for the receiver to let
// its sender in. What the sender says by other ways is faster.
TEST_CASE("A first write of another process comes before a deregistration", "[direct_test]") {
  for (int i = 0; i < 40; ++i) {
    const FirstWrite w = write_first(false);
    CHECK(w.arrived);
    CHECK(w.status == IBV_WC_SUCCESS);
  }
}

// There is no way back yet when the negative acknowledge is due.
TEST_CASE("A first write to memory that is gone is refused", "[direct_test]") {
  CHECK(write_first(true).status == IBV_WC_REM_ACCESS_ERR);
}

// Its acknowledge has to be on its way before the program sees the message.
TEST_CASE("A process may end with its first message", "[direct_test]") {
  for (int i = 0; i < 10; ++i) {
    const Lines lines;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Context c;
      Rc qp(c);
      Memory to(c, 4096);
      Address mine{qp.qp->qp_num, 0, c.port.lid, 0}, peer;
      hear(lines.there[0], &peer, sizeof peer);
      qp.connect(peer.qpn, peer.lid);
      ibv_sge sge{to.address(), 4096, to.mr->lkey};
      ibv_recv_wr wr{}, *bad;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      if (ibv_post_recv(qp.qp, &wr, &bad) != 0) std::abort();
      put(lines.back[1], &mine, sizeof mine);
      _exit(next_status(qp));
    }
    {
      Context c;
      Rc qp(c);
      Memory from(c, 64);
      Address mine{qp.qp->qp_num, 0, c.port.lid, 0}, peer;
      put(lines.there[1], &mine, sizeof mine);
      hear(lines.back[0], &peer, sizeof peer);
      qp.connect(peer.qpn, peer.lid);
      post(qp, IBV_WR_SEND, from, 64);
      CHECK(next_status(qp) == IBV_WC_SUCCESS);
    }
    int ended = -1;
    REQUIRE(waitpid(child, &ended, 0) == child);
    CHECK(ended == 0);
  }
}

namespace {

// How often the threads of a process have gone to sleep.
uint64_t sleeps(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  uint64_t sum = 0;
  DIR *dir = opendir(tasks.c_str());
  while (const dirent *e = readdir(dir)) {
    std::ifstream status(tasks + "/" + e->d_name + "/status");
    const std::string key = "voluntary_ctxt_switches:";
    for (std::string line; std::getline(status, line);)
      if (line.compare(0, key.size(), key) == 0) sum += std::stoull(line.substr(key.size()));
  }
  closedir(dir);
  return sum;
}

// Whether this machine lets the device rest: without it, it looks for doorbells.
bool traps_possible() {
  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

void nap_ms(long ms) {
  const timespec t{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&t, nullptr);
}

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// What the device's clock shows, in the nanoseconds of CLOCK_MONOTONIC.
uint64_t device_ns(const Context &c) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  REQUIRE(ibv_query_rt_values_ex(c.ctx, &values) == 0);
  return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(values.raw_clock.tv_nsec);
}

}  // namespace

namespace {

// Registers memory in a thread of its own, which the kernel stops where it brings in the pages:
// madvise(), held by a filter with a listener.
class HeldRegistration {
 public:
  explicit HeldRegistration(ibv_pd *pd) : memory_(4096) {
    std::promise<int> filter;
    thread_ = std::thread([&, pd] {
      filter_ = hold_populate();
      filter.set_value(filter_);
      if (filter_ >= 0)
        mr_ = ibv_reg_mr(pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
    });
    holds_ =
        filter.get_future().get() >= 0 && ioctl(filter_, SECCOMP_IOCTL_NOTIF_RECV, &held_) == 0;
  }
  ~HeldRegistration() {
    if (thread_.joinable()) (void)end();
  }
  HeldRegistration(const HeldRegistration &) = delete;

  // False where the kernel has no such filters.
  bool holds() const { return holds_; }
  // Lets it go on to its end.
  ibv_mr *end() {
    if (holds_) {
      seccomp_notif_resp go_on{};
      go_on.id = held_.id;
      go_on.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      CHECK(ioctl(filter_, SECCOMP_IOCTL_NOTIF_SEND, &go_on) == 0);
    }
    thread_.join();
    close(filter_);
    return mr_;
  }

 private:
  static int hold_populate() {
    constexpr unsigned populate_write = 23;  // MADV_POPULATE_WRITE, of Linux 5.14
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, populate_write, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return static_cast<int>(
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  }

  std::vector<uint8_t> memory_;
  int filter_ = -1;
  ibv_mr *mr_ = nullptr;
  bool holds_ = false;
  seccomp_notif held_{};
  std::thread thread_;
};

}  // namespace

TEST_CASE("The device takes commands while memory is registered", "[direct_test]") {
  Context c;
  HeldRegistration registration(c.pd);
  std::future<int> asked = std::async(std::launch::async, [&] {
    ibv_device_attr attr;
    return ibv_query_device(c.ctx, &attr);
  });
  // For ever, if it waits for the registration.
  const bool answered = asked.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  const bool held = registration.holds();
  ibv_mr *const mr = registration.end();
  SKIP_IF(!held, "no seccomp filter with a listener here");
  CHECK(answered);
  CHECK(asked.get() == 0);
  REQUIRE(mr != nullptr);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("A registration does not end in a device that was opened meanwhile", "[direct_test]") {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  ibv_device **const list = ibv_get_device_list(nullptr);
  REQUIRE((list != nullptr && list[0] != nullptr));
  ibv_context *const first = ibv_open_device(list[0]);
  REQUIRE(first != nullptr);
  ibv_pd *const pd = ibv_alloc_pd(first);
  REQUIRE(pd != nullptr);
  bool held;
  {
    HeldRegistration registration(pd);
    held = registration.holds();
    if (held) {
      CHECK(dup2(nothing, first->cmd_fd) == first->cmd_fd);  // closes the device
      const Context second;                                  // its domain has the same handle
      CHECK(registration.end() == nullptr);
    }
  }
  CHECK(ibv_close_device(first) == 0);
  ibv_free_device_list(list);
  close(nothing);
  SKIP_IF(!held, "no seccomp filter with a listener here");
}

namespace {

// As this process reads it, and as another one does.
uint64_t counter(const Context &c, const std::string &name) {
  const std::string path = std::string("/sys/class/infiniband/") +
                           ibv_get_device_name(c.ctx->device) + "/ports/1/" + name;
  std::ifstream file(path);
  uint64_t here = ~uint64_t{0};
  file >> here;
  FILE *const cat = popen(("cat " + path).c_str(), "r");
  REQUIRE(cat != nullptr);
  unsigned long long there = 0;
  CHECK(fscanf(cat, "%llu", &there) == 1);
  CHECK(pclose(cat) == 0);
  CHECK(here == there);
  return here;
}

}  // namespace

TEST_CASE("sysfs shows what a port has counted", "[direct_test]") {
  Context c;
  Rc a(c), b(c);
  a.connect(b.qp->qp_num, c.port.lid);
  b.connect(a.qp->qp_num, c.port.lid);
  Memory from(c, 4096), to(c, 4096);
  const uint64_t packets = counter(c, "counters/port_xmit_packets"),
                 words = counter(c, "counters/port_rcv_data"),
                 writes = counter(c, "hw_counters/rx_write_requests");
  a.write(from, 4096, to.address(), to.mr->rkey);
  a.wait();
  // Four packets and an acknowledge; headers of 24 bytes, 16 of the write's, 4 of the acknowledge's.
  CHECK(counter(c, "counters/port_xmit_packets") == packets + 5);
  CHECK(counter(c, "counters/port_rcv_data") == words + (5 * 24 + 16 + 4 + 4096) / 4);
  CHECK(counter(c, "hw_counters/rx_write_requests") == writes + 1);
  CHECK(counter(c, "counters/symbol_error") == 0);
}

TEST_CASE("A connection has packets of 256 to 4096 bytes", "[direct_test]") {
  Context c;
  for (const int mtu : {0, 1, 5, 6}) {
    CAPTURE(mtu);
    const Rc rc(c);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    REQUIRE(ibv_modify_qp(rc.qp, &a,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
            0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = static_cast<ibv_mtu>(mtu);
    a.ah_attr.dlid = c.port.lid;
    a.ah_attr.port_num = 1;
    CHECK(ibv_modify_qp(rc.qp, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
          (mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 0 : EINVAL));
  }
}

TEST_CASE("Processes with idle devices sleep", "[direct_test]") {
  SKIP_IF(!traps_possible(), "no userfaultfd here");
  constexpr int processes = 31;
  std::vector<pid_t> children;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Context c;
      Rc a(c), b(c);
      a.connect(b.qp->qp_num, c.port.lid);
      b.connect(a.qp->qp_num, c.port.lid);
      Memory from(c, 64), to(c, 64);
      a.write(from, 64, to.address(), to.mr->rkey);
      a.wait();
      put(ready[1], "", 1);
      for (;;) pause();
    }
    children.push_back(child);
  }
  char one;
  for (int i = 0; i < processes; ++i) hear(ready[0], &one, 1);
  // On a machine with other work the devices come to rest later.
  uint64_t woken = 1;
  for (int second = 0; woken != 0 && second < 20; ++second) {
    nap_ms(1000);
    std::vector<uint64_t> before;
    for (const pid_t child : children) before.push_back(sleeps(child));
    nap_ms(1000);
    woken = 0;
    for (size_t i = 0; i < children.size(); ++i) woken += sleeps(children[i]) - before[i];
  }
  CHECK(woken == 0);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("A doorbell ends the rest of the device", "[direct_test]") {
  Context c;
  Rc a(c), b(c);
  a.connect(b.qp->qp_num, c.port.lid);
  b.connect(a.qp->qp_num, c.port.lid);
  Memory from(c, 64), to(c, 64);
  for (int round = 0; round < 20; ++round) {
    nap_ms(round % 4 * 10);
    from.bytes[5] = static_cast<uint8_t>(round + 1);
    a.write(from, 64, to.address(), to.mr->rkey);
    REQUIRE(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
    REQUIRE(to.bytes[5] == round + 1);
  }
}

// Posts that fall into the moment in which the device goes to rest.
TEST_CASE("No doorbell is missed around the beginning of a rest", "[direct_test]") {
  Context c;
  Rc a(c), b(c);
  a.connect(b.qp->qp_num, c.port.lid);
  b.connect(a.qp->qp_num, c.port.lid);
  Memory from(c, 64), to(c, 64);
  uint32_t random = 1;
  for (int round = 0; round < 1500; ++round) {
    random = random * 1664525 + 1013904223;
    const timespec t{0, static_cast<long>(random >> 8) % 700'000};
    nanosleep(&t, nullptr);
    a.write(from, 64, to.address(), to.mr->rkey);
    const uint64_t deadline = now_ns() + 10'000'000'000;
    const mlx5_cqe64 *cqe = nullptr;
    while (cqe == nullptr && now_ns() < deadline) cqe = a.poll();
    REQUIRE(cqe != nullptr);
  }
}

// The device's threads and the program have one processor, and a request that is not answered
// keeps the rests short.
TEST_CASE("A post gets through between short rests on one processor", "[direct_test]") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    Context c;
    Rc a(c), b(c), alone(c), unconnected(c);
    a.connect(b.qp->qp_num, c.port.lid);
    b.connect(a.qp->qp_num, c.port.lid);
    alone.connect(unconnected.qp->qp_num, c.port.lid);
    Memory from(c, 64), to(c, 64);
    for (int round = 0; round < 100; ++round) {
      if (round % 10 == 0) alone.write(from, 64, to.address(), to.mr->rkey);
      nap_ms(1);
      a.write(from, 64, to.address(), to.mr->rkey);
      if (a.wait()->op_own >> 4 != MLX5_CQE_REQ) std::abort();
    }
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("An event comes of what ended the rest of the device", "[direct_test]") {
  Context c;
  ibv_comp_channel *channel = ibv_create_comp_channel(c.ctx);
  REQUIRE(channel != nullptr);
  {
    Rc a(c, channel);
    a.connect(a.qp->qp_num, c.port.lid);
    for (int round = 0; round < 10; ++round) {
      REQUIRE(ibv_req_notify_cq(a.cq, 0) == 0);
      nap_ms(5);
      a.nop();
      pollfd p{channel->fd, POLLIN, 0};
      REQUIRE(poll(&p, 1, 10'000) == 1);
      ibv_cq *cq;
      void *context;
      REQUIRE(ibv_get_cq_event(channel, &cq, &context) == 0);
      ibv_ack_cq_events(cq, 1);
      REQUIRE(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
    }
  }
  CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("A device opened while another one rests gets its own traps", "[direct_test]") {
  Context first;
  Rc a(first), b(first);
  a.connect(b.qp->qp_num, first.port.lid);
  b.connect(a.qp->qp_num, first.port.lid);
  Memory from(first, 64), to(first, 64);
  for (int round = 0; round < 5; ++round) {
    nap_ms(10);
    Context second;
    Rc d(second), e(second);
    d.connect(e.qp->qp_num, second.port.lid);
    e.connect(d.qp->qp_num, second.port.lid);
    Memory there(second, 64), here(second, 64);
    nap_ms(10);
    d.write(there, 64, here.address(), here.mr->rkey);
    REQUIRE(d.wait()->op_own >> 4 == MLX5_CQE_REQ);
    nap_ms(10);
    a.write(from, 64, to.address(), to.mr->rkey);
    REQUIRE(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
  }
}

TEST_CASE("Pages are mapped as the driver lets them", "[direct_test]") {
  Context c;
  const auto attempt = [&](off_t command, size_t pages, int protection, int flags) {
    errno = 0;
    void *p = mmap(nullptr, pages * 4096, protection, flags, c.ctx->cmd_fd, command << 8 << 12);
    const int error = errno;
    if (p != MAP_FAILED) munmap(p, pages * 4096);
    return p != MAP_FAILED ? 0 : error;
  };
  constexpr int both = PROT_READ | PROT_WRITE;
  CHECK(attempt(0, 1, PROT_WRITE, MAP_SHARED) == 0);
  CHECK(attempt(0, 2, PROT_WRITE, MAP_SHARED) == EINVAL);
  CHECK(attempt(0, 1, PROT_WRITE, MAP_PRIVATE) == EINVAL);
  CHECK(attempt(1, 1, both, MAP_SHARED) == ENOSYS);
  CHECK(attempt(1, 16, both, MAP_SHARED) == ENOSYS);
  CHECK(attempt(4, 1, both, MAP_SHARED) == EINVAL);
  CHECK(attempt(5, 1, PROT_READ, MAP_SHARED) == 0);
  CHECK(attempt(5, 1, both, MAP_SHARED) == EPERM);
  CHECK(attempt(7, 1, PROT_READ, MAP_SHARED) == 0);
  CHECK(attempt(7, 2, PROT_READ, MAP_SHARED) == EINVAL);
}

TEST_CASE("Queues that are to lie in one piece have memory of their own", "[direct_test]") {
  setenv("MLX_QP_ALLOC_TYPE", "PREFER_CONTIG", 1);
  setenv("MLX_CQ_ALLOC_TYPE", "PREFER_CONTIG", 1);
  Context c;
  Rc a(c), b(c);
  unsetenv("MLX_QP_ALLOC_TYPE");
  unsetenv("MLX_CQ_ALLOC_TYPE");
  a.connect(b.qp->qp_num, c.port.lid);
  b.connect(a.qp->qp_num, c.port.lid);
  Memory from(c, 4096), to(c, 4096);
  from.bytes[3] = 0x5a;
  a.write(from, 64, to.address(), to.mr->rkey);
  b.write(from, 32, to.address() + 2048, to.mr->rkey);
  CHECK(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
  CHECK(b.wait()->op_own >> 4 == MLX5_CQE_REQ);
  CHECK(to.bytes[3] == 0x5a);
  CHECK(to.bytes[2048 + 3] == 0x5a);
}

namespace {

// The device goes on from the time at which it was opened, when the system's clock is set, too.
const uint64_t wall_ahead_ns = [] {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000 + uint64_t(t.tv_nsec) - now_ns();
}();

// Whether the device shows the time now, and converts it to that of the day.
bool clock_is_current(const Context &c) {
  const uint64_t before = now_ns(), shown = device_ns(c), after = now_ns();
  CHECK(shown < after + 1'000'000);
  // It may have been written just before the engine went to rest or woke.
  const bool current = shown + 5'000'000 > before;
  nap_ms(20);
  mlx5dv_clock_info info{};
  REQUIRE(mlx5dv_get_clock_info(c.ctx, &info) == 0);
  const uint64_t now = now_ns(), wall = now + wall_ahead_ns,
                 converted = mlx5dv_ts_to_ns(&info, now);
  return current && converted + 50'000'000 > wall && converted < wall + 50'000'000;
}

}  // namespace

TEST_CASE("The clock goes on while the device rests", "[direct_test]") {
  Context c;
  // A clock that stood still would be late each time; a machine with other work makes it late now and
  // then.
  int current = 0;
  for (int round = 0; round < 40 && current < 5; ++round) {
    nap_ms(50);
    if (clock_is_current(c)) ++current;
  }
  CHECK(current == 5);
}

TEST_CASE("A process forks while its device rests", "[direct_test]") {
  Context c;
  Rc a(c), b(c);
  a.connect(b.qp->qp_num, c.port.lid);
  b.connect(a.qp->qp_num, c.port.lid);
  Memory from(c, 64), to(c, 64);
  for (int round = 0; round < 5; ++round) {
    nap_ms(20);
    const uint64_t before = now_ns();
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);
      // Not kept current for a child, but a time that was.
      const uint64_t shown = device_ns(c);
      *static_cast<volatile uint64_t *>(a.dv.bf.reg) = 0;
      _exit(shown != 0 && shown < now_ns() && shown + 1'000'000'000 > before ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    a.write(from, 64, to.address(), to.mr->rkey);
    REQUIRE(a.wait()->op_own >> 4 == MLX5_CQE_REQ);
  }
}

namespace {

// A library with a lock that fork() waits for, as ours has, and a thread that uses the
// device under it.
struct Library {
  std::mutex lock;
  std::atomic<bool> on{false}, forking{false};
} library;

void before_fork() {
  if (!library.on) return;
  library.forking = true;
  library.lock.lock();
}
void after_fork() {
  if (library.on) library.lock.unlock();
}

// When it is loaded: no device has been opened.
[[gnu::constructor]] void load() { pthread_atfork(before_fork, after_fork, nullptr); }

}  // namespace

TEST_CASE("A device under a library works until the library is ready to fork", "[direct_test]") {
  Context c;
  std::atomic<bool> holds{false};
  int failed = -1;
  std::thread user([&] {
    const std::lock_guard guard(library.lock);
    holds = true;
    while (!library.forking) std::this_thread::yield();
    ibv_device_attr attr{};
    failed = ibv_query_device(c.ctx, &attr);
  });
  while (!holds) std::this_thread::yield();
  library.on = true;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  library.on = false;
  user.join();
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(failed == 0);
}
