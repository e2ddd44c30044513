/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Creates and destroys objects among few and among many others; create_bench.py counts the
 * instructions.
 *
 *   create_bench base|exp [-g GID-INDEX] [-n OBJECTS]
 */
#include <unistd.h>

#include "crowd.h"

/* Counted one by one: the least is that in which no allocator has to grow. */
#define COUNTED 8

static int many = 30000;
static struct ibv_cq *shared_cq;
static struct ibv_srq *shared_srq;
static char bytes[4096];
/* Of the kind at hand, and queue pairs for the families. */
static void **made, **queues, **completions;

struct kind {
  const char *name;
  void *(*create)(int i);
  int (*destroy)(void *object);
};

static void *create_cq(int i) {
  (void)i;
  return ibv_create_cq(context, 1, NULL, NULL, 0);
}
static void *create_exp_cq(int i) {
  struct ibv_exp_cq_init_attr attr = {0};

  (void)i;
  return ibv_exp_create_cq(context, 1, NULL, NULL, 0, &attr);
}
static int destroy_cq(void *object) { return ibv_destroy_cq(object); }

static void *create_srq(int i) {
  struct ibv_srq_init_attr attr = {0};

  (void)i;
  attr.attr.max_wr = attr.attr.max_sge = 1;
  return ibv_create_srq(pd, &attr);
}
static void *create_exp_srq(int i) {
  struct ibv_exp_create_srq_attr attr = {0};

  (void)i;
  attr.base.attr.max_wr = attr.base.attr.max_sge = 1;
  attr.pd = pd;
  return ibv_exp_create_srq(context, &attr);
}
static int destroy_srq(void *object) { return ibv_destroy_srq(object); }

static void *create_base_qp(int i) {
  struct ibv_qp_init_attr attr = {0};

  (void)i;
  attr.send_cq = attr.recv_cq = shared_cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  return ibv_create_qp(pd, &attr);
}
static void *create_exp_qp_of(enum ibv_qp_type type) {
  struct ibv_exp_qp_init_attr attr = {0};

  attr.send_cq = attr.recv_cq = shared_cq;
  attr.srq = type == IBV_QPT_RC ? NULL : shared_srq;
  attr.qp_type = type;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  attr.pd = pd;
  return ibv_exp_create_qp(context, &attr);
}
static void *create_exp_qp(int i) {
  (void)i;
  return create_exp_qp_of(IBV_QPT_RC);
}
static void *create_dci(int i) {
  (void)i;
  return create_exp_qp_of((enum ibv_qp_type)IBV_EXP_QPT_DC_INI);
}
static int destroy_qp(void *object) { return ibv_destroy_qp(object); }

static void *create_dct(int i) {
  (void)i;
  return create_target(shared_cq, shared_srq);
}
static int destroy_dct(void *object) { return ibv_exp_destroy_dct(object); }

static void *create_wq(int i) {
  struct ibv_exp_wq_init_attr attr = {0};

  (void)i;
  attr.wq_type = IBV_EXP_WQT_RQ;
  attr.max_recv_wr = attr.max_recv_sge = 1;
  attr.pd = pd;
  attr.cq = shared_cq;
  return ibv_exp_create_wq(context, &attr);
}
static int destroy_wq(void *object) { return ibv_exp_destroy_wq(object); }

static void *create_key(int i) {
  struct ibv_exp_create_mr_in in = {0};

  (void)i;
  in.pd = pd;
  in.attr.max_klm_list_size = 4;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE;
  return ibv_exp_create_mr(&in);
}
static void *reg_mr(int i) {
  (void)i;
  return ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
}
static void *reg_exp_mr(int i) {
  struct ibv_exp_reg_mr_in in = {0};

  (void)i;
  in.pd = pd;
  in.addr = bytes;
  in.length = sizeof(bytes);
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  return ibv_exp_reg_mr(&in);
}
static int dereg_mr(void *object) { return ibv_dereg_mr(object); }

static void *create_domain(int i) {
  struct ibv_exp_res_domain_init_attr attr = {0};

  (void)i;
  return ibv_exp_create_res_domain(context, &attr);
}
static int destroy_domain(void *object) {
  return ibv_exp_destroy_res_domain(context, object, NULL);
}

static void *query_family_of(enum ibv_exp_intf_family family, void *object) {
  struct ibv_exp_query_intf_params params = {0};
  enum ibv_exp_query_intf_status status;

  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = family;
  params.obj = object;
  return ibv_exp_query_intf(context, &params, &status);
}
static void *query_burst(int i) { return query_family_of(IBV_EXP_INTF_QP_BURST, queues[i]); }
static void *query_completions(int i) { return query_family_of(IBV_EXP_INTF_CQ, completions[i]); }
static int release_family(void *object) {
  struct ibv_exp_release_intf_params params = {0};

  return (int)ibv_exp_release_intf(context, object, &params);
}

static void *create_one(const struct kind *kind, int i) {
  void *object = kind->create(i);

  if (!object) die(kind->name);
  return object;
}

/* Among none and among many. */
static void measure(const struct kind *kind, void **objects) {
  int i;

  for (i = 0; i < many; ++i) {
    if (i >= COUNTED && i < many - COUNTED) {
      objects[i] = create_one(kind, i);
      continue;
    }
    begin();
    objects[i] = kind->create(i);
    end("create", kind->name, i < COUNTED ? 1 : many);
    if (!objects[i]) die(kind->name);
  }
}

static void take_back(const struct kind *kind, void **objects) {
  int i, error;

  for (i = many - 1; i >= 0; --i) {
    if (i >= COUNTED && i < many - COUNTED) {
      check(kind->destroy(objects[i]), kind->name);
      continue;
    }
    begin();
    error = kind->destroy(objects[i]);
    end("destroy", kind->name, i < COUNTED ? 1 : many);
    check(error, kind->name);
  }
}

static void measure_all(const struct kind *kinds, int count) {
  int i;

  for (i = 0; i < count; ++i) {
    measure(&kinds[i], made);
    take_back(&kinds[i], made);
  }
}

static void measure_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  int i;

  if (!list || !list[0]) die("no device");
  for (i = 0; i < COUNTED; ++i) {
    struct ibv_context *other;

    begin();
    other = ibv_open_device(list[0]);
    if (other) ibv_close_device(other);
    end("open-close", "device", 1);
    if (!other) die("ibv_open_device");
  }
  ibv_free_device_list(list);
}

static void *create_handle(int i) {
  (void)i;
  return ibv_create_ah(pd, &path);
}
static int destroy_handle(void *object) { return ibv_destroy_ah(object); }

/* Of queue pairs, from RESET to RTS and back, one state after the other. */
static int modify(struct ibv_qp *qp, const struct ibv_qp_attr *to, int mask, int use_exp) {
  struct ibv_exp_qp_attr exp = {0};
  struct ibv_qp_attr attr = *to;

  if (!use_exp) {
    begin();
    mask = ibv_modify_qp(qp, &attr, mask);
  } else {
    memcpy(&exp, &attr, offsetof(struct ibv_qp_attr, rate_limit));
    begin();
    mask = ibv_exp_modify_qp(qp, &exp, (uint64_t)mask);
  }
  return mask;
}
static void measure_states(int use_exp) {
  struct ibv_qp *const qp = create_base_qp(0);
  struct ibv_qp_attr attr = {0};
  int i, error;

  if (!qp) die("ibv_create_qp");
  attr.port_num = 1;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.ah_attr = path;
  for (i = 0; i < COUNTED; ++i) {
    attr.qp_state = IBV_QPS_INIT;
    error = modify(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
                   use_exp);
    end("modify", "init", 1);
    check(error, "to INIT");
    attr.qp_state = IBV_QPS_RTR;
    error = modify(qp, &attr,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                   use_exp);
    end("modify", "rtr", 1);
    check(error, "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    error = modify(qp, &attr,
                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                   use_exp);
    end("modify", "rts", 1);
    check(error, "to RTS");
    attr.qp_state = IBV_QPS_RESET;
    error = modify(qp, &attr, IBV_QP_STATE, use_exp);
    end("modify", "reset", 1);
    check(error, "to RESET");
  }
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
}

/* All that the verb can be asked for. */
static void measure_query(int use_exp) {
  struct ibv_device_attr_ex attr;
  struct ibv_exp_device_attr exp;
  int i, error;

  for (i = 0; i < COUNTED; ++i) {
    memset(&exp, 0, sizeof(exp));
    exp.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
    exp.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
    begin();
    error =
        use_exp ? ibv_exp_query_device(context, &exp) : ibv_query_device_ex(context, NULL, &attr);
    end("query", "device", 1);
    check(error, "the device's attributes");
  }
}

static void measure_families(void) {
  static const struct kind qp = {"qp", create_exp_qp, destroy_qp},
                           cq = {"cq", create_cq, destroy_cq},
                           burst = {"burst", query_burst, release_family},
                           poll = {"poll", query_completions, release_family};
  int i;

  for (i = 0; i < many; ++i) {
    queues[i] = create_one(&qp, i);
    to_init(queues[i]);
    completions[i] = create_one(&cq, i);
  }
  measure(&burst, made);
  take_back(&burst, made);
  measure(&poll, made);
  take_back(&poll, made);
  for (i = 0; i < many; ++i) {
    check(ibv_destroy_qp(queues[i]), "ibv_destroy_qp");
    check(ibv_destroy_cq(completions[i]), "ibv_destroy_cq");
  }
}

int main(int argc, char **argv) {
  static const struct kind base[] = {{"cq", create_cq, destroy_cq},
                                     {"srq", create_srq, destroy_srq},
                                     {"qp", create_base_qp, destroy_qp},
                                     {"mr", reg_mr, dereg_mr},
                                     {"ah", create_handle, destroy_handle}};
  static const struct kind exp[] = {{"cq", create_exp_cq, destroy_cq},
                                    {"srq", create_exp_srq, destroy_srq},
                                    {"qp", create_exp_qp, destroy_qp},
                                    {"mr", reg_exp_mr, dereg_mr},
                                    {"dci", create_dci, destroy_qp},
                                    {"dct", create_dct, destroy_dct},
                                    {"wq", create_wq, destroy_wq},
                                    {"key", create_key, dereg_mr},
                                    {"domain", create_domain, destroy_domain}};
  const int use_exp = argc > 1 && !strcmp(argv[1], "exp");
  int option;

  while ((option = getopt(argc - 1, argv + 1, "g:n:")) != -1) {
    if (option == 'g') gid_index = atoi(optarg);
    else if (option == 'n') many = atoi(optarg);
    else return 2;
  }
  made = calloc((size_t)many, sizeof(*made));
  queues = calloc((size_t)many, sizeof(*queues));
  completions = calloc((size_t)many, sizeof(*completions));
  if (!made || !queues || !completions) die("memory");
  expect(many >= 2 * COUNTED, "too few objects");
  open_device();
  shared_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  if (!shared_cq) die("ibv_create_cq");
  shared_srq = create_srq(0);
  if (!shared_srq) die("ibv_create_srq");
  count_harness();
  measure_device();
  measure_states(use_exp);
  measure_query(use_exp);
  if (!use_exp) {
    measure_all(base, sizeof(base) / sizeof(base[0]));
    return 0;
  }
  measure_all(exp, sizeof(exp) / sizeof(exp[0]));
  measure_families();
  return 0;
}
