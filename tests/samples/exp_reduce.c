/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A barrier and an allreduce over four processes in the style of programs written for MLNX_OFED,
 * in two ways. By the program: it posts, waits and posts at each step. Left to the device: it
 * posts both steps with one ibv_exp_post_task() and is woken when the last message is there; a
 * master waits for the first one and releases what follows. Devices that calculate are rare, so
 * in both ways messages carry all numbers, and the processor adds them up at the end.
 *
 *   exp_reduce [-m program|device] [-n ROUNDS] [-g GID_INDEX]
 *
 * Without -m in both ways.
 */
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loopback.h"

/* With each step twice as many processes have met: 0 and 1, 2 and 3; then 0 and 2, 1 and 3. */
enum { ranks = 4, steps = 2, numbers = 32, period = 16, depth = 4 * period };

struct counts {
  long operations, steps, posts, results, wakeups;
};

/* Memory of all four, to meet before there are connections and to verify barriers. */
static struct common {
  uint32_t met, entered[ranks], qp_num[ranks][steps];
  struct counts counts;
} * common;

static int rank, by_device, rounds = 50;
static struct counts counts;
/* Of this round and of the next one, whose receives are posted already. */
static int64_t all[2][ranks][numbers];
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct ibv_cq *arrived[steps], *done;
static struct ibv_qp *to[steps], *master;

static struct ibv_qp *create(struct ibv_cq *send_cq, struct ibv_cq *recv_cq, uint32_t flags) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = depth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.exp_create_flags = flags;
  attr.pd = pd;
  made = ibv_exp_create_qp(context, &attr);
  if (!made) die("ibv_exp_create_qp");
  return made;
}

static struct ibv_cq *create_cq(void) {
  struct ibv_exp_cq_init_attr attr = {0};
  struct ibv_cq *made = ibv_exp_create_cq(context, 2 * depth, NULL, channel, 0, &attr);

  if (!made) die("ibv_exp_create_cq");
  return made;
}

/* Waits until all four processes have called it, for the time-th time. */
static void meet(uint32_t time) {
  __atomic_add_fetch(&common->met, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&common->met, __ATOMIC_SEQ_CST) < time * ranks) usleep(1000);
}

static int partner(int step) { return rank ^ (1 << step); }
/* The numbers of so many processes are known before a step, this one's among them. */
static int64_t *known_by(int who, int round, int step) {
  return all[round % 2][who & ~((1 << step) - 1)];
}

static struct ibv_sge piece(int64_t *at, int step) {
  return (struct ibv_sge){(uintptr_t)at, (uint32_t)(sizeof(all[0][0]) << step), mr->lkey};
}

static void describe_receive(struct ibv_recv_wr *wr, struct ibv_sge *into, int round, int step) {
  memset(wr, 0, sizeof(*wr));
  *into = piece(known_by(partner(step), round, step), step);
  wr->sg_list = into;
  wr->num_sge = 1;
}

static void post_receive(int round, int step) {
  struct ibv_recv_wr wr, *bad;
  struct ibv_sge into;

  describe_receive(&wr, &into, round, step);
  ++counts.posts;
  check(ibv_post_recv(to[step], &wr, &bad), "ibv_post_recv");
}

/* A barrier's messages are empty. One send per period is signalled, for those before it. */
static void describe_send(struct ibv_exp_send_wr *wr, struct ibv_sge *from, int round, int step,
                          int barrier) {
  memset(wr, 0, sizeof(*wr));
  *from = piece(known_by(rank, round, step), step);
  wr->sg_list = from;
  wr->num_sge = barrier ? 0 : 1;
  wr->exp_opcode = IBV_EXP_WR_SEND;
  wr->exp_send_flags = round % period == 0 ? IBV_EXP_SEND_SIGNALED : 0;
}

static void take(struct ibv_cq *from) {
  struct ibv_exp_wc wc;
  struct ibv_cq *ready;
  void *of;
  int n, armed = 0;

  while (!(n = ibv_exp_poll_cq(from, 1, &wc, sizeof(wc)))) {
    if (armed) {
      check(ibv_get_cq_event(channel, &ready, &of), "ibv_get_cq_event");
      ibv_ack_cq_events(ready, 1);
      ++counts.wakeups;
    }
    check(ibv_req_notify_cq(from, 0), "ibv_req_notify_cq");
    armed = 1;
  }
  check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
  expect(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
  ++counts.results;
}

static void step_by_step(int round, int barrier) {
  struct ibv_exp_send_wr wr;
  struct ibv_sge from;
  int step;

  for (step = 0; step < steps; ++step) post_receive(round + 1, step);
  for (step = 0; step < steps; ++step) {
    describe_send(&wr, &from, round, step, barrier);
    ++counts.posts;
    post(to[step], &wr);
    ++counts.steps;
    take(arrived[step]);
  }
}

/* The master releases the sends of each step, and waits for what arrives in it. */
static void at_once(int round, int barrier) {
  struct ibv_exp_task tasks[2 * steps + 1], *bad;
  struct ibv_exp_send_wr sends[steps], orders[2 * steps];
  struct ibv_recv_wr receives[steps];
  struct ibv_sge into[steps], from[steps];
  int step, i;

  memset(tasks, 0, sizeof(tasks));
  memset(orders, 0, sizeof(orders));
  for (step = 0; step < steps; ++step) {
    struct ibv_exp_send_wr *enable = &orders[2 * step], *wait = &orders[2 * step + 1];
    struct ibv_exp_task *receive = &tasks[2 * step], *send = &tasks[2 * step + 1];

    describe_receive(&receives[step], &into[step], round + 1, step);
    receive->task_type = IBV_EXP_TASK_RECV;
    receive->item.qp = to[step];
    receive->item.recv_wr = &receives[step];
    describe_send(&sends[step], &from[step], round, step, barrier);
    send->task_type = IBV_EXP_TASK_SEND;
    send->item.qp = to[step];
    send->item.send_wr = &sends[step];

    enable->exp_opcode = IBV_EXP_WR_SEND_ENABLE;
    enable->task.wqe_enable.qp = to[step];
    enable->task.wqe_enable.wqe_count = 1;
    wait->exp_opcode = IBV_EXP_WR_CQE_WAIT;
    wait->task.cqe_wait.cq = arrived[step];
    wait->task.cqe_wait.cq_count = 1;
    enable->exp_send_flags = wait->exp_send_flags = IBV_EXP_SEND_WAIT_EN_LAST;
    enable->next = wait;
    wait->next = step + 1 < steps ? wait + 1 : NULL;
  }
  orders[2 * steps - 1].exp_send_flags |= IBV_EXP_SEND_SIGNALED;
  tasks[2 * steps].task_type = IBV_EXP_TASK_SEND;
  tasks[2 * steps].item.qp = master;
  tasks[2 * steps].item.send_wr = orders;
  for (i = 0; i < 2 * steps; ++i) tasks[i].next = &tasks[i + 1];
  ++counts.posts;
  check(ibv_exp_post_task(context, tasks, &bad), "ibv_exp_post_task");
  ++counts.steps;
  take(done);
}

/* Polls completions that nothing waits for, so that the queues do not overflow. */
static void clear_queues(void) {
  struct ibv_exp_wc wc[period];
  int step, i;

  for (step = 0; step < steps; ++step) {
    take(cq);
    if (!by_device) continue;
    expect(ibv_exp_poll_cq(arrived[step], period, wc, sizeof(wc[0])) == period,
           "a message is missing");
    for (i = 0; i < period; ++i) expect(wc[i].status == IBV_WC_SUCCESS, "a message has failed");
    counts.results += period;
  }
}

/* callgrind counts this function: ./run bench cross. */
static __attribute__((noinline)) void go_together(int round, int barrier) {
  if (by_device) at_once(round, barrier);
  else step_by_step(round, barrier);
  if (round % period == period - 1) clear_queues();
}

static int64_t number(int who, int round, int i) {
  return (int64_t)(who + 1) * (1000003 * (round + 1) + 17 * i) - 5 * who;
}

static void verify_barrier(int round) {
  int who;

  __atomic_store_n(&common->entered[rank], (uint32_t)round + 1, __ATOMIC_SEQ_CST);
  go_together(round, 1);
  for (who = 0; who < ranks; ++who)
    expect(__atomic_load_n(&common->entered[who], __ATOMIC_SEQ_CST) > (uint32_t)round,
           "left a barrier before all have entered it");
}

static void verify_reduction(int round) {
  int64_t sum, wanted;
  int who, i;

  for (i = 0; i < numbers; ++i) all[round % 2][rank][i] = number(rank, round, i);
  go_together(round, 0);
  for (i = 0; i < numbers; ++i) {
    for (sum = wanted = who = 0; who < ranks; ++who) {
      sum += all[round % 2][who][i];
      wanted += number(who, round, i);
    }
    expect(sum == wanted, "a sum is wrong");
  }
}

static void create_all(void) {
  struct ibv_exp_device_attr device = {0};
  int step;

  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  if (by_device && !(device.exp_device_cap_flags & IBV_EXP_DEVICE_CROSS_CHANNEL)) {
    if (!rank) fprintf(stderr, "the device has no cross-channel\n");
    exit(77);
  }
  channel = ibv_create_comp_channel(context);
  if (!channel) die("ibv_create_comp_channel");
  mr = reg(all, sizeof(all), 0);
  done = create_cq();
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  cq = create_cq();
  for (step = 0; step < steps; ++step) {
    arrived[step] = create_cq();
    to[step] = create(cq, arrived[step], by_device ? IBV_EXP_QP_CREATE_MANAGED_SEND : 0);
    common->qp_num[rank][step] = to[step]->qp_num;
  }
  meet(1);
  for (step = 0; step < steps; ++step) {
    struct ibv_qp far = {.qp_num = common->qp_num[partner(step)][step]};

    connect_qp(to[step], &far);
    post_receive(0, step);
  }
  if (by_device) {
    master = create(done, done, IBV_EXP_QP_CREATE_CROSS_CHANNEL);
    connect_qp(master, master);
  }
  meet(2);
}

static void destroy_all(void) {
  int step;

  meet(3); /* no request needs an acknowledgement anymore */
  if (master) check(ibv_destroy_qp(master), "ibv_destroy_qp");
  for (step = 0; step < steps; ++step) {
    check(ibv_destroy_qp(to[step]), "ibv_destroy_qp");
    check(ibv_destroy_cq(arrived[step]), "ibv_destroy_cq");
  }
  check(ibv_destroy_cq(done), "ibv_destroy_cq");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
}

static void be(int which) {
  int round;

  rank = which;
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* not without the others */
  start(0, NULL);
  create_all();
  memset(&counts, 0, sizeof(counts));
  for (round = 0; round < 2 * rounds; ++round) {
    if (round % 2) verify_reduction(round);
    else verify_barrier(round);
    ++counts.operations;
  }
  if (!rank) common->counts = counts;
  destroy_all();
  exit(0);
}

static void run(int device) {
  pid_t children[ranks], ended;
  int status = 0, i, left;

  by_device = device;
  memset(common, 0, sizeof(*common));
  fflush(stdout);
  for (i = 0; i < ranks; ++i) {
    children[i] = fork();
    if (children[i] < 0) die("fork");
    if (!children[i]) be(i);
  }
  for (left = ranks; left; --left) {
    ended = wait(&status);
    if (ended < 0) die("wait");
    for (i = 0; i < ranks; ++i)
      if (children[i] == ended) children[i] = 0;
    if (!status) continue;
    for (i = 0; i < ranks; ++i)
      if (children[i]) kill(children[i], SIGTERM);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  printf("%s: %ld operations, %ld steps, %ld posts, %ld completions, %ld wakeups\n",
         by_device ? "left to the device" : "by the program", common->counts.operations,
         common->counts.steps, common->counts.posts, common->counts.results,
         common->counts.wakeups);
}

int main(int argc, char **argv) {
  int option, device = -1;

  while ((option = getopt(argc, argv, "m:n:g:")) != -1) {
    switch (option) {
      case 'm': device = !strcmp(optarg, "device"); break;
      case 'n': rounds = atoi(optarg); break;
      case 'g': gid_index = atoi(optarg); break;
      default: exit(2);
    }
  }
  common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (common == MAP_FAILED) die("mmap");
  if (device != 1) run(0);
  if (device != 0) run(1);
  printf("%d barriers and %d allreduces of %d processes, all sums verified\n", rounds, rounds,
         ranks);
  return 0;
}
