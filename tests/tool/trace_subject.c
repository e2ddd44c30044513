/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A legacy program whose calls can be counted by hand: trace_subject MODE
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs_exp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context *context;

static void need(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "trace_subject: %s: %s\n", what, strerror(errno));
    exit(1);
  }
}

static void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);

  need(list && list[0], "device");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  need(context != NULL, "ibv_open_device");
}

static void query(int times) {
  struct ibv_exp_device_attr attr;

  while (times-- > 0) {
    memset(&attr, 0, sizeof(attr));
    attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
    need(!ibv_exp_query_device(context, &attr), "ibv_exp_query_device");
  }
}

/* One refused verb, one refused flag, one mistake. */
static void be_refused(void) {
  struct ibv_exp_task task = {0}, *bad;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_exp_qp_init_attr attr = {0};

  task.task_type = IBV_EXP_TASK_SEND;
  need(ibv_exp_post_task(context, &task, &bad) == ENOTSUP, "ibv_exp_post_task");

  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd;
  attr.exp_create_flags = IBV_EXP_QP_CREATE_CROSS_CHANNEL;
  need(!ibv_exp_create_qp(context, &attr) && errno == ENOTSUP, "cross channel");
  attr.exp_create_flags = 1u << 30;
  need(!ibv_exp_create_qp(context, &attr) && errno == EINVAL, "unknown flag");
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
}

static void *symbol(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);

  need(found != NULL, name);
  return found;
}

/* A mistake or a refusal in each error shape. By symbol, since inlines check
 * some of it themselves. */
static void be_refused_in_all_shapes(void) {
  int (*query_gid_attr)(struct ibv_context *, uint8_t, unsigned, struct ibv_exp_gid_attr *);
  int (*post_task)(struct ibv_context *, struct ibv_exp_task *, struct ibv_exp_task **);
  int (*query_values)(struct ibv_context *, int, struct ibv_exp_values *);
  int (*set)(struct ibv_context *, const char *, const char *, int);
  struct ibv_exp_res_domain *(*create_res_domain)(struct ibv_context *,
                                                  struct ibv_exp_res_domain_init_attr *);
  void *(*query_intf)(struct ibv_context *, struct ibv_exp_query_intf_params *,
                      enum ibv_exp_query_intf_status *);
  uint64_t (*ts_to_ns)(struct ibv_exp_clock_info *, uint64_t);
  void (*dealloc_ec_calc)(struct ibv_exp_ec_calc *);
  struct ibv_exp_query_intf_params params = {0};
  enum ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
  struct ibv_exp_gid_attr gid = {0};
  struct ibv_exp_task task = {0}, *bad = NULL;
  struct ibv_exp_res_domain_init_attr domain = {0};

  *(void **)&query_gid_attr = symbol("ibv_exp_query_gid_attr");
  *(void **)&post_task = symbol("ibv_exp_post_task");
  *(void **)&query_values = symbol("ibv_exp_query_values");
  *(void **)&set = symbol("ibv_exp_setenv");
  *(void **)&create_res_domain = symbol("ibv_exp_create_res_domain");
  *(void **)&query_intf = symbol("ibv_exp_query_intf");
  *(void **)&ts_to_ns = symbol("ibv_exp_cqe_ts_to_ns");
  *(void **)&dealloc_ec_calc = symbol("ibv_exp_dealloc_ec_calc");

  gid.comp_mask = 1u << 31;
  need(query_gid_attr(context, 1, 0, &gid) == EINVAL, "positive");
  need(post_task(context, &task, &bad) == ENOTSUP && bad == &task, "positive_bad");
  need(query_values(context, IBV_EXP_VALUES_HW_CLOCK, NULL) == -EINVAL, "negative");
  need(set(context, NULL, "", 1) == -1 && errno == EINVAL, "minus_one");
  domain.comp_mask = 1u << 31;
  need(!create_res_domain(context, &domain) && errno == EINVAL, "null_errno");

  /* With a status of its own for each reason. */
  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = IBV_EXP_INTF_CQ;
  need(!query_intf(context, &params, &status) && status == IBV_EXP_INTF_STAT_INVAL_OBJ &&
           errno == EINVAL,
       "null_status");
  params.intf = IBV_EXP_INTF_QP_BURST;
  params.family_flags = IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK;
  need(!query_intf(context, &params, &status) &&
           status == IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED && errno == ENOTSUP,
       "null_status, refused");
  need(!query_intf(context, NULL, NULL) && errno == EINVAL, "null_status, unwanted");

  need(!ts_to_ns(NULL, 1) && errno == EINVAL, "zero");
  errno = 0;
  dealloc_ec_calc(NULL);
  need(errno == EINVAL, "void_errno");
}

/* A refusal that has no row but its verb's. */
static void keep_region_valid(void) {
  int (*rereg)(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, uint64_t,
               struct ibv_exp_rereg_mr_attr *);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  static char memory[64];
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

  *(void **)&rereg = symbol("ibv_exp_rereg_mr");
  need(rereg(mr, IBV_EXP_REREG_MR_KEEP_VALID, NULL, NULL, 0, 0, NULL) == ENOTSUP, "KEEP_VALID");
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
}

/* A queue pair that is connected to itself. */
static struct ibv_qp *create_loop(struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_exp_qp_attr to = {0};
  struct ibv_port_attr port;
  struct ibv_qp *qp;

  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd;
  qp = ibv_exp_create_qp(context, &attr);
  need(qp && !ibv_query_port(context, 1, &port), "ibv_exp_create_qp");

  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  need(!ibv_exp_modify_qp(
           qp, &to,
           IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS),
       "to INIT");
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_1024;
  to.dest_qp_num = qp->qp_num;
  to.ah_attr.dlid = port.lid;
  to.ah_attr.port_num = 1;
  need(!ibv_exp_modify_qp(qp, &to,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU |
                              IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
                              IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER),
       "to RTR");
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 14;
  need(!ibv_exp_modify_qp(qp, &to,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN | IBV_EXP_QP_TIMEOUT |
                              IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
                              IBV_EXP_QP_MAX_QP_RD_ATOMIC),
       "to RTS");
  return qp;
}

/* Three requests of which the second is refused. */
static void post_chain(void) {
  struct ibv_exp_send_wr wr[3], *bad = NULL;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_qp *qp = create_loop(pd, cq);
  struct ibv_exp_wc wc;
  int i, n;

  memset(wr, 0, sizeof(wr));
  for (i = 0; i < 3; ++i) {
    wr[i].wr_id = (unsigned)i;
    wr[i].next = i < 2 ? &wr[i + 1] : NULL;
    wr[i].exp_opcode = i == 1 ? IBV_EXP_WR_CQE_WAIT : IBV_EXP_WR_RDMA_WRITE;
    wr[i].exp_send_flags = IBV_EXP_SEND_SIGNALED;
  }
  need(ibv_exp_post_send(qp, wr, &bad) == ENOTSUP && bad == &wr[1], "chain");
  do n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
  while (n == 0);
  need(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
}

/* Posts a request that needs a switch, again and again. */
static void post_nops(int times) {
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_qp *qp = create_loop(pd, cq);
  struct ibv_exp_send_wr wr, *bad = NULL;
  int i, result;

  for (i = 0; i < times; ++i) {
    memset(&wr, 0, sizeof(wr));
    wr.exp_opcode = IBV_EXP_WR_NOP;
    result = ibv_exp_post_send(qp, &wr, &bad);
    need(!result || (result == ENOTSUP && bad == &wr), "NOP");
  }
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
}

/* Refused as a whole, unless a switch serves it. The inline of late headers makes no call. */
static void share_region(void) {
  struct ibv_mr *(*reg)(struct ibv_exp_reg_shared_mr_in *);
  struct ibv_exp_reg_shared_mr_in in = {0};

  *(void **)&reg = symbol("ibv_exp_reg_shared_mr");
  in.pd = ibv_alloc_pd(context);
  need(!reg(&in) && errno == ENOTSUP, "ibv_exp_reg_shared_mr");
  ibv_dealloc_pd(in.pd);
}

/* On a device that refuses the command. */
static void create_refused_queue(void) {
  struct ibv_exp_cq_init_attr attr = {0};

  need(!ibv_exp_create_cq(context, 16, NULL, NULL, 0, &attr) && errno == ENOTSUP,
       "ibv_exp_create_cq");
}

typedef int post_function(struct ibv_qp *, struct ibv_exp_send_wr *, struct ibv_exp_send_wr **);
typedef int poll_function(struct ibv_cq *, int, struct ibv_exp_wc *, uint32_t);

/* What callgrind collects: trace_cost_test.py names them. */
__attribute__((noinline)) void measured_post(post_function *post, struct ibv_qp *qp,
                                             struct ibv_exp_send_wr *wr) {
  struct ibv_exp_send_wr *bad;

  need(!post(qp, wr, &bad), "post");
}

__attribute__((noinline)) void measured_poll(poll_function *poll, struct ibv_cq *empty,
                                             struct ibv_exp_wc *wc) {
  need(poll(empty, 1, wc, sizeof(*wc)) == 0, "poll");
}

static void post_and_poll(post_function *post, poll_function *poll) {
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_cq *empty = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_qp *qp = create_loop(pd, cq);
  struct ibv_exp_send_wr wr;
  struct ibv_exp_wc wc;
  int i;

  memset(&wr, 0, sizeof(wr));
  wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  for (i = 0; i < 100; ++i) {
    measured_post(post, qp, &wr);
    while (!ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)))
      ;
    measured_poll(poll, empty, &wc);
  }
}

static void post_wild_pointer(void) {
  struct ibv_exp_send_wr *volatile wild = (struct ibv_exp_send_wr *)8, *bad;
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_qp_init_attr attr = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
  struct ibv_qp *qp = ibv_create_qp(ibv_alloc_pd(context), &attr);

  need(qp != NULL, "ibv_create_qp");
  ibv_exp_post_send(qp, wild, &bad);
}

static void *query_much(void *unused) {
  query(500);
  return unused;
}

static void in_threads(void) {
  pthread_t threads[4];
  int i;

  for (i = 0; i < 4; ++i) need(!pthread_create(&threads[i], NULL, query_much, NULL), "thread");
  for (i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

static volatile sig_atomic_t own_signals;
static void count_signal(int number) { own_signals += number == SIGUSR1; }

/* The child closes nothing and exits as MODE says; it makes two calls. */
static void with_child(int hard) {
  pid_t child;
  int status;

  query(1);
  child = fork();
  need(child >= 0, "fork");
  if (!child) {
    open_device();
    query(2);
    if (hard) _exit(0);
    exit(0);
  }
  need(waitpid(child, &status, 0) == child && status == 0, "child");
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  int is_known = 1;

  if (!strcmp(mode, "nothing")) return 0;
  if (!strcmp(mode, "own-signal")) signal(SIGUSR1, count_signal);
  open_device();
  if (!strcmp(mode, "query")) {
    query(3);
  } else if (!strcmp(mode, "refused")) {
    be_refused();
  } else if (!strcmp(mode, "shapes")) {
    be_refused_in_all_shapes();
  } else if (!strcmp(mode, "nops")) {
    post_nops(3);
  } else if (!strcmp(mode, "share")) {
    share_region();
  } else if (!strcmp(mode, "refused-queue")) {
    create_refused_queue();
  } else if (!strcmp(mode, "keep-valid")) {
    keep_region_valid();
  } else if (!strcmp(mode, "crash-own")) {
    volatile uintptr_t nowhere = 8;

    *(int *)nowhere = 1;
  } else if (!strcmp(mode, "crash-reader")) {
    const char *(*read)(void *);

    *(void **)&read = symbol("read_private_structures");
    need(!read((void *)8), "reader");
  } else if (!strcmp(mode, "wait")) {
    printf("%d\n", (int)getpid());
    fflush(stdout);
    pause();
  } else if (!strcmp(mode, "chain")) {
    post_chain();
  } else if (!strcmp(mode, "cost-slots")) {
    struct verbs_context_exp *table = verbs_get_exp_ctx(context);

    post_and_poll(table->drv_exp_post_send, table->drv_exp_ibv_poll_cq);
  } else if (!strcmp(mode, "cost-symbols")) {
    post_function *post;
    poll_function *poll;

    *(void **)&post = symbol("ibv_exp_post_send");
    *(void **)&poll = symbol("ibv_exp_poll_cq");
    post_and_poll(post, poll);
  } else if (!strcmp(mode, "threads")) {
    in_threads();
  } else if (!strcmp(mode, "fork")) {
    with_child(0);
  } else if (!strcmp(mode, "fork-hard")) {
    with_child(1);
  } else if (!strcmp(mode, "exec")) {
    query(1);
    argv[1] = "query";
    execv("/proc/self/exe", argv);
    need(0, "exec");
  } else if (!strcmp(mode, "kill")) {
    query(5);
    raise(SIGKILL);
  } else if (!strcmp(mode, "crash")) {
    post_wild_pointer();
  } else if (!strcmp(mode, "signal")) {
    query(1);
    raise(SIGUSR1);
    query(1);
    raise(SIGKILL);
  } else if (!strcmp(mode, "own-signal")) {
    query(1);
    raise(SIGUSR1);
    need(own_signals == 1, "own handler");
  } else if (!strcmp(mode, "chdir")) {
    need(!chdir("/"), "chdir");
    query(1);
  } else {
    is_known = 0;
  }
  need(is_known, "unknown mode");
  ibv_close_device(context);
  return 0;
}
