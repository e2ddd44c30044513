// A device without a processor of its own moves on the thread that polls, as under libmlx5:
// the software HCA does so in the C library's spin locks, and there polling threads take
// turns on a processor.
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "pair.h"

namespace {

pid_t thread_named(const char *wanted) {
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name == wanted) return std::stoi(task.path().filename());
  }
  return 0;
}

// Another process, which stops a thread of this one.
class Stopper {
 public:
  Stopper() {
    REQUIRE(pipe2(orders_, O_CLOEXEC) == 0);
    REQUIRE(pipe2(answers_, O_CLOEXEC) == 0);
    process_ = fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) obey();
    prctl(PR_SET_PTRACER, process_);
  }
  ~Stopper() {
    for (const int fd : {orders_[0], orders_[1], answers_[0], answers_[1]}) close(fd);
    waitpid(process_, nullptr, 0);
  }
  // False: this is not allowed here.
  bool stop(pid_t thread) { return order(thread) == 1; }
  void go_on() { order(0); }

 private:
  char order(pid_t thread) {
    char answer = 0;
    REQUIRE(write(orders_[1], &thread, sizeof(thread)) == sizeof(thread));
    REQUIRE(read(answers_[0], &answer, 1) == 1);
    return answer;
  }
  // Where it stands between its turns: elsewhere it may hold the lock of the device, for which
  // the threads that poll would wait in vain.
  static bool stop_asleep(pid_t thread) {
    for (;;) {
      if (ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
          waitpid(thread, nullptr, __WALL) != thread)
        return false;
      if (is_asleep(thread)) return true;
      if (ptrace(PTRACE_CONT, thread, nullptr, nullptr) != 0) return false;
      sched_yield();
    }
  }
  static bool is_asleep(pid_t thread) {
    std::ifstream file("/proc/" + std::to_string(thread) + "/syscall");
    long number = -1;
    unsigned long word = 0, operation = 0;
    file >> number >> std::hex >> word >> operation;
    if (number == SYS_clock_nanosleep) return true;
    return number == SYS_futex && (operation & FUTEX_CMD_MASK) == FUTEX_WAIT;
  }
  [[noreturn]] void obey() {
    close(orders_[1]);
    pid_t stopped = 0;
    for (pid_t thread; read(orders_[0], &thread, sizeof(thread)) == sizeof(thread);) {
      char done = 1;
      if (thread != 0) {
        done = ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 && stop_asleep(thread);
        stopped = thread;
      } else {
        ptrace(PTRACE_DETACH, stopped, nullptr, nullptr);
      }
      if (write(answers_[1], &done, 1) != 1) break;
    }
    _exit(0);
  }

  int orders_[2], answers_[2];
  pid_t process_;
};

using Poll = std::function<int(ibv_cq *)>;

int poll_base(ibv_cq *cq) {
  ibv_wc wc;
  return ibv_poll_cq(cq, 1, &wc);
}
int poll_exp(ibv_cq *cq) {
  ibv_exp_wc wc;
  return ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
}

// A pair whose requests the device's own thread does not serve.
struct Alone {
  Stopper stopper;
  Pair pair{IBV_QPT_RC};
  pid_t thread = 0;

  Alone() {
    // It names itself when it begins.
    while ((thread = thread_named("softhca")) == 0) sched_yield();
  }

  bool completes(const Poll &poll) {
    if (!stopper.stop(thread)) {
      WARN("threads may not be stopped here");
      std::exit(77);
    }
    ibv_sge piece = pair.out.piece(0, 8);
    auto wr = pair.write(1, &piece);
    ibv_exp_send_wr *bad;
    const int posted = pair.post(wr, bad);
    bool done = false;
    for (int polls = 0; polls < 100'000 && !done; ++polls) done = poll(pair.cq.get()) == 1;
    stopper.go_on();
    REQUIRE(posted == 0);
    if (!done) pair.completions(1);
    return done;
  }
};

}  // namespace

TEST_CASE("a request completes on the thread that polls") {
  Alone alone;
  CHECK(alone.completes(poll_base));
  CHECK(alone.completes(poll_exp));
}

TEST_CASE("a request completes on the thread that polls by a family", "[family]") {
  Alone alone;
  ibv_context *context = alone.pair.context.get();
  ibv_exp_query_intf_params params{};
  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = alone.pair.cq.get();
  ibv_exp_query_intf_status status{};
  auto *family = static_cast<ibv_exp_cq_family_v1 *>(ibv_exp_query_intf(context, &params, &status));
  REQUIRE(family != nullptr);
  CHECK(alone.completes([&](ibv_cq *cq) { return family->poll_cnt(cq, 1); }));
  ibv_exp_release_intf_params release{};
  CHECK(ibv_exp_release_intf(context, family, &release) == 0);
}

// Counted in polls: how long one takes does not matter, only that the other thread gets
// its turn before this one's time slice ends.
TEST_CASE("two threads that poll answer each other on one processor") {
  constexpr int rounds = 200, most_polls = 5000;
  Pair pair(IBV_QPT_RC);
  Cq other_cq = pair.create_cq();
  auto attr = pair.qp_attr(IBV_QPT_RC);
  attr.send_cq = attr.recv_cq = other_cq.get();
  Qp there(ibv_exp_create_qp(pair.context.get(), &attr)), here = pair.create_qp(IBV_QPT_RC);
  REQUIRE(there);
  pair.connect(here.get(), there->qp_num);
  pair.connect(there.get(), here->qp_num);
  for (int i = 0; i < 2; ++i) {
    post_receive(here.get(), 0, pair.in.piece(0, 8));
    post_receive(there.get(), 0, pair.in.piece(8, 8));
  }

  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);

  // Waits for a message and sends one, in turn; counts the polls. Catch2 is for one thread.
  std::atomic<int> failures{0};
  const auto play = [&](ibv_qp *qp, ibv_cq *cq, bool serves) {
    long polls = 0;
    for (int round = 0; round < rounds; ++round) {
      for (int step = 0; step < 2; ++step) {
        if ((step == 0) == serves) {
          ibv_sge piece = pair.out.piece(0, 8);
          auto wr = request(1, IBV_EXP_WR_SEND, &piece);
          ibv_exp_send_wr *bad;
          failures += ibv_exp_post_send(qp, &wr, &bad) != 0;
          continue;
        }
        for (bool arrived = false; !arrived && failures == 0;) {
          ibv_wc wc;
          const int n = ibv_poll_cq(cq, 1, &wc);
          ++polls;
          if (n == 0) continue;
          failures += n < 0 || wc.status != IBV_WC_SUCCESS;
          arrived = n == 1 && wc.opcode == IBV_WC_RECV;
        }
        ibv_sge piece = pair.in.piece(serves ? 0 : 8, 8);
        ibv_recv_wr wr{}, *bad;
        wr.sg_list = &piece;
        wr.num_sge = 1;
        failures += ibv_post_recv(qp, &wr, &bad) != 0;
      }
    }
    return polls;
  };
  std::thread other([&] { play(there.get(), other_cq.get(), false); });
  const long polls = play(here.get(), pair.cq.get(), true);
  other.join();
  CHECK(sched_setaffinity(0, sizeof(before), &before) == 0);
  CHECK(failures == 0);
  CHECK(polls / rounds < most_polls);
}
