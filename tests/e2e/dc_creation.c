/*
 * Creates what DC needs and destroys it again, while something fails once.
 *
 *   dc_creation commands   a command, as the configuration of the software HCA says
 *   dc_creation memory     each allocation of libibverbs_exp in turn
 *
 * A failed attempt must say why, leave nothing behind and be followed by one that
 * succeeds. Prints "failed: STEP: ERRNO" of the first failure, "ok" at the end;
 * exit status 3 when something fails that is not the subject.
 */
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs_exp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak fail_alloc_arm
#pragma weak fail_alloc_disarm
void fail_alloc_arm(long nth);
int fail_alloc_disarm(void);

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;

static void setup_failed(const char *what) {
  printf("setup: %s: %d\n", what, errno);
  exit(3);
}

static void leaked(const char *what, int error) {
  printf("wrong: %s: %d\n", what, error);
  exit(1);
}

static void set_up(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};

  if (!list || !list[0]) setup_failed("device");
  context = ibv_open_device(list[0]);
  if (!context) setup_failed("ibv_open_device");
  pd = ibv_alloc_pd(context);
  cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
  srq = cq ? ibv_create_srq(pd, &attr) : NULL;
  if (!srq) setup_failed("objects");
}

static int descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;

  while (folder && readdir(folder)) ++count;
  closedir(folder);
  return count;
}

/* Without memory a device is not opened, and no file of it stays open. The device's own threads open
 * and close some meanwhile. */
static void open_without_memory(void) {
  enum { turns = 32 };
  struct ibv_device **list = ibv_get_device_list(NULL);
  int before, turn, fired = 1;
  long nth, refused = 0;

  if (!list || !list[0]) setup_failed("device");
  context = ibv_open_device(list[0]); /* opens what stays, too */
  if (!context || ibv_close_device(context)) setup_failed("ibv_open_device");
  before = descriptors();
  for (nth = 1; fired; ++nth) {
    for (turn = 0; turn < turns; ++turn) {
      fail_alloc_arm(nth);
      errno = 0;
      context = ibv_open_device(list[0]);
      fired = fail_alloc_disarm();
      if (!context) {
        if (!fired || errno != ENOMEM) leaked("ibv_open_device", errno);
        ++refused;
      } else if (ibv_close_device(context)) {
        leaked("ibv_close_device", errno);
      }
    }
  }
  if (!refused) leaked("ibv_open_device without memory", 0);
  if (descriptors() - before >= turns) leaked("descriptors", descriptors() - before);
  ibv_free_device_list(list);
}

static int bring_up(struct ibv_qp *qp) {
  struct ibv_exp_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  int error;

  error = ibv_exp_modify_qp(
      qp, &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY);
  if (error) return error;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  error = ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU);
  if (error) return error;
  attr.qp_state = IBV_QPS_RTS;
  return ibv_exp_modify_qp(qp, &attr,
                           IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                               IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC);
}

/* 0, or the errno of the step that failed; everything is gone in any case. A
 * destruction that fails is tried again. */
static int attempt(const char **step) {
  struct ibv_exp_dct_init_attr dct_attr = {
      .pd = pd,
      .cq = cq,
      .srq = srq,
      .dc_key = 1,
      .port = 1,
      .mtu = IBV_MTU_1024,
      .gid_index = 255,
      .access_flags = IBV_ACCESS_REMOTE_WRITE,
  };
  struct ibv_exp_qp_init_attr qp_attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = (enum ibv_qp_type)IBV_EXP_QPT_DC_INI,
      .cap = {.max_send_wr = 8, .max_send_sge = 1},
      .comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS,
      .pd = pd,
  };
  struct ibv_exp_device_attr device = {.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS};
  struct ibv_exp_dct_attr answer = {0};
  struct ibv_exp_dct *dct = NULL;
  struct ibv_qp *qp = NULL;
  int error, again;

  *step = "ibv_exp_query_device";
  error = ibv_exp_query_device(context, &device);
  if (!error && !(device.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT))
    error = ENOMEM; /* could not be tried */
  if (error) goto out;
  *step = "ibv_exp_create_dct";
  errno = 0;
  dct = ibv_exp_create_dct(context, &dct_attr);
  if (!dct) {
    error = errno;
    goto out;
  }
  *step = "ibv_exp_query_dct";
  error = ibv_exp_query_dct(dct, &answer);
  if (error) goto out;
  *step = "ibv_exp_create_qp";
  errno = 0;
  qp = ibv_exp_create_qp(context, &qp_attr);
  if (!qp) {
    error = errno;
    goto out;
  }
  *step = "ibv_exp_modify_qp";
  error = bring_up(qp);
out:
  if (qp) {
    again = ibv_destroy_qp(qp);
    if (again) {
      *step = "ibv_destroy_qp";
      error = again;
      if (ibv_destroy_qp(qp)) leaked("second ibv_destroy_qp", errno);
    }
  }
  if (dct) {
    again = ibv_exp_destroy_dct(dct);
    if (again) {
      *step = "ibv_exp_destroy_dct";
      error = again;
      if (ibv_exp_destroy_dct(dct)) leaked("second ibv_exp_destroy_dct", errno);
    }
  }
  return error;
}

static void tear_down(void) {
  int error;

  /* What is still there keeps these. */
  if ((error = ibv_destroy_srq(srq))) leaked("ibv_destroy_srq", error);
  if ((error = ibv_destroy_cq(cq))) leaked("ibv_destroy_cq", error);
  if ((error = ibv_dealloc_pd(pd))) leaked("ibv_dealloc_pd", error);
  if ((error = ibv_close_device(context))) leaked("ibv_close_device", error);
}

int main(int argc, char **argv) {
  int memory = argc > 1 && !strcmp(argv[1], "memory"), error, fired;
  const char *step = "";
  long nth;

  if (memory) open_without_memory();
  set_up();
  if (!memory) {
    error = attempt(&step);
    if (error) {
      printf("failed: %s: %d\n", step, error);
      error = attempt(&step);
      if (error) leaked(step, error);
    }
    tear_down();
    printf("ok\n");
    return 0;
  }
  for (nth = 1;; ++nth) {
    fail_alloc_arm(nth);
    error = attempt(&step);
    fired = fail_alloc_disarm();
    if (fired && error && error != ENOMEM) leaked("errno", error);
    if (!fired && error) leaked(step, error);
    if (!fired) break;
    error = attempt(&step);
    if (error) leaked("second attempt", error);
  }
  tear_down();
  printf("%ld allocations failed\nok\n", nth - 1);
  return nth > 1 ? 0 : 1;
}
