/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One process talks to many over the dynamically connected transport, in the
 * style of programs written for MLNX_OFED. Each target process has a number of
 * DC targets on one shared receive queue; the initiator has queue pairs of
 * random depths, and every request of each goes to another target, at random:
 * sends, writes and reads of random length, inline or not, signaled or not.
 * Every byte is verified, and every completion is the one that was due.
 *
 *   exp_dc [-n REQUESTS] [-P PROCESSES] [-T TARGETS] [-g GID] [-r SEED]
 */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs_exp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DC_KEY 0x1ee7cafe5ca1ab1eull
enum {
  LONGEST = 2048, /* bytes of a message */
  REGION = 16384, /* bytes that each initiator writes at each process */
  RECEIVES = 256,
  INITIATORS = 4,
  MOST_PROCESSES = 16,
  MOST_TARGETS = 64,
};

static struct {
  long requests;
  int processes, targets, gid_index;
  unsigned seed;
} options = {20000, 4, 16, -1, 1};

static const char *role = "initiator";
static struct ibv_context *context;
static struct ibv_port_attr port;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* What a target process reports. */
struct place {
  uint32_t dct[MOST_TARGETS];
  uint32_t lid, rkey;
  uint64_t address;
  union ibv_gid gid;
};

/* In front of each message; the rest follows from the number. */
struct header {
  uint32_t number, length, target;
};

/* What was sent to a process, or arrived there. */
struct tally {
  uint64_t messages, numbers, bytes;
};

static void die(const char *what) {
  fprintf(stderr, "exp_dc: %s: %s: %s\n", role, what, strerror(errno));
  exit(1);
}

static void wrong(const char *what, long number) {
  fprintf(stderr, "exp_dc: %s: %s (%ld)\n", role, what, number);
  exit(1);
}

static void check(int error, const char *what) {
  if (error) {
    errno = error;
    die(what);
  }
}

static uint32_t draw(void) {
  static uint64_t state;

  if (!state) state = options.seed;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state >> 33);
}

static unsigned char letter(uint32_t number, uint32_t i) {
  return (unsigned char)(number * 167 + i * 13 + (i >> 8));
}

static void transfer(int fd, void *data, size_t size, int out) {
  ssize_t done = out ? send(fd, data, size, MSG_NOSIGNAL) : recv(fd, data, size, MSG_WAITALL);

  if (done != (ssize_t)size) die("the other side is gone");
}

static void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_exp_device_attr attr = {.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS};
  struct ibv_exp_cq_init_attr cq_attr = {0};

  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  if (!context) die("ibv_open_device");
  ibv_free_device_list(list);
  check(ibv_exp_query_device(context, &attr), "ibv_exp_query_device");
  if (!(attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT)) {
    printf("the device has no DC transport\n");
    exit(77);
  }
  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  pd = ibv_alloc_pd(context);
  cq = ibv_exp_create_cq(context, 2048, NULL, NULL, 0, &cq_attr);
  if (!pd || !cq) die("resources");
}

static struct ibv_mr *make_memory(size_t size) {
  struct ibv_exp_reg_mr_in in = {.pd = pd, .length = size};
  struct ibv_mr *mr;

  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                  IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_ALLOCATE_MR;
  mr = ibv_exp_reg_mr(&in);
  if (!mr) die("ibv_exp_reg_mr");
  memset(mr->addr, 0, size);
  return mr;
}

static int take(struct ibv_exp_wc *wc) {
  int n = ibv_exp_poll_cq(cq, 1, wc, sizeof(*wc));

  if (n < 0) die("ibv_exp_poll_cq");
  return n;
}

/* Target processes */

static void post_receive(struct ibv_srq *srq, struct ibv_mr *mr, uint64_t slot) {
  struct ibv_sge sge = {(uintptr_t)mr->addr + slot * LONGEST, LONGEST, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

  check(ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

/* Returns whether it was the last one. */
static int receive(const struct ibv_exp_wc *wc, struct ibv_exp_dct **dct, const unsigned char *data,
                   struct tally *tally) {
  struct header header;
  uint32_t i;

  if (wc->status != IBV_WC_SUCCESS || wc->exp_opcode != IBV_EXP_WC_RECV)
    wrong("receive failed", wc->status);
  memcpy(&header, data, sizeof(header));
  if (header.length != wc->byte_len) wrong("a message of another length", wc->byte_len);
  if (!(wc->exp_wc_flags & IBV_EXP_WC_DCT) || wc->dct != dct[header.target] ||
      wc->qp_num != dct[header.target]->dct_num)
    wrong("a message for another target", wc->qp_num);
  for (i = sizeof(header); i < header.length; ++i)
    if (data[i] != letter(header.number, i)) wrong("a wrong byte", i);
  if (!header.number) return 1;
  ++tally->messages;
  tally->numbers += header.number;
  tally->bytes += header.length;
  return 0;
}

static void serve(int fd) {
  struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
  struct ibv_exp_dct *dct[MOST_TARGETS];
  struct tally tally = {0};
  struct place place = {0};
  struct ibv_mr *messages, *region;
  struct ibv_exp_wc wc;
  struct ibv_srq *srq;
  int i, last = 0;

  role = "target";
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* not without the initiator */
  open_device();
  srq = ibv_create_srq(pd, &srq_attr);
  if (!srq) die("ibv_create_srq");
  messages = make_memory(RECEIVES * LONGEST);
  region = make_memory(INITIATORS * REGION);
  for (i = 0; i < RECEIVES; ++i) post_receive(srq, messages, (uint64_t)i);

  for (i = 0; i < options.targets; ++i) {
    struct ibv_exp_dct_init_attr attr = {
        .pd = pd,
        .cq = cq,
        .srq = srq,
        .dc_key = DC_KEY,
        .port = 1,
        .access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
        .min_rnr_timer = 2,
        .mtu = IBV_MTU_1024,
        .hop_limit = 1,
        .gid_index = (uint8_t)options.gid_index,
        .inline_size = 64,
    };

    dct[i] = ibv_exp_create_dct(context, &attr);
    if (!dct[i]) die("ibv_exp_create_dct");
    place.dct[i] = dct[i]->dct_num;
  }
  place.lid = port.lid;
  place.rkey = region->rkey;
  place.address = (uintptr_t)region->addr;
  if (options.gid_index >= 0)
    check(ibv_query_gid(context, 1, options.gid_index, &place.gid), "ibv_query_gid");
  transfer(fd, &place, sizeof(place), 1);

  while (!last) {
    if (!take(&wc)) continue;
    last = receive(&wc, dct, (unsigned char *)messages->addr + wc.wr_id * LONGEST, &tally);
    post_receive(srq, messages, wc.wr_id);
  }
  transfer(fd, &tally, sizeof(tally), 1);
  transfer(fd, &i, sizeof(i), 0); /* until all are done */

  for (i = 0; i < options.targets; ++i) check(ibv_exp_destroy_dct(dct[i]), "ibv_exp_destroy_dct");
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  check(ibv_dereg_mr(messages), "ibv_dereg_mr");
  check(ibv_dereg_mr(region), "ibv_dereg_mr");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  exit(0);
}

/* The initiator */

static struct place places[MOST_PROCESSES];
static struct ibv_ah *ahs[MOST_PROCESSES];
static struct tally sent[MOST_PROCESSES];

static struct initiator {
  struct ibv_qp *qp;
  uint32_t depth;
  uint64_t posted, completed; /* requests */
  struct ibv_mr *slots;       /* a message per request under way */
  unsigned char *expected;    /* what reads will bring, by slot */
  struct slot {
    uint32_t read; /* bytes, or 0 */
    int signaled;
  } * slot;
  unsigned char *shadow[MOST_PROCESSES]; /* what was written */
} initiators[INITIATORS];

static void bring_up(struct ibv_qp *qp) {
  struct ibv_exp_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .dct_key = DC_KEY};

  check(ibv_exp_modify_qp(
            qp, &attr,
            IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY),
        "to INIT");
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = options.gid_index >= 0;
  attr.ah_attr.grh.sgid_index = options.gid_index < 0 ? 0 : (uint8_t)options.gid_index;
  check(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV),
        "to RTR");
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  check(ibv_exp_modify_qp(qp, &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                              IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC),
        "to RTS");
}

static void create_initiator(struct initiator *it, uint32_t depth) {
  struct ibv_exp_qp_init_attr attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = (enum ibv_qp_type)IBV_EXP_QPT_DC_INI,
      .cap = {.max_send_wr = depth, .max_send_sge = 1, .max_inline_data = 64},
      .comp_mask = IBV_EXP_QP_INIT_ATTR_PD,
      .pd = pd,
  };
  int i;

  it->qp = ibv_exp_create_qp(context, &attr);
  if (!it->qp) die("ibv_exp_create_qp");
  bring_up(it->qp);
  it->depth = attr.cap.max_send_wr;
  it->slots = make_memory((size_t)it->depth * LONGEST);
  it->expected = calloc(it->depth, LONGEST);
  it->slot = calloc(it->depth, sizeof(*it->slot));
  for (i = 0; i < options.processes; ++i) it->shadow[i] = calloc(1, REGION);
}

static void complete(const struct ibv_exp_wc *wc) {
  struct initiator *it = initiators;
  uint64_t at;

  while (it < initiators + INITIATORS && it->qp != wc->qp) ++it;
  if (it == initiators + INITIATORS || !(wc->exp_wc_flags & IBV_EXP_WC_QP))
    wrong("a completion of no initiator", wc->qp_num);
  if (wc->status != IBV_WC_SUCCESS) wrong(ibv_wc_status_str(wc->status), (long)wc->wr_id);
  for (;; ++it->completed) {
    at = it->completed % it->depth;
    if (it->completed == it->posted) wrong("a completion too many", (long)wc->wr_id);
    if (it->slot[at].signaled) break;
  }
  if (wc->wr_id != it->completed) wrong("a completion out of order", (long)wc->wr_id);
  if (it->slot[at].read &&
      (wc->exp_opcode != IBV_EXP_WC_RDMA_READ || wc->byte_len != it->slot[at].read ||
       memcmp((char *)it->slots->addr + at * LONGEST, it->expected + at * LONGEST,
              it->slot[at].read)))
    wrong("a read brought something else", (long)wc->wr_id);
  ++it->completed;
}

static void poll_once(void) {
  struct ibv_exp_wc wc;

  if (take(&wc)) complete(&wc);
}

/* Until there is a free slot. A full queue has to say that it is. */
static void make_room(struct initiator *it) {
  struct ibv_exp_send_wr wr = {.exp_opcode = IBV_EXP_WR_RDMA_WRITE}, *bad = NULL;

  wr.dc.ah = ahs[0];
  while (it->posted - it->completed >= it->depth) {
    if (ibv_exp_post_send(it->qp, &wr, &bad) != ENOMEM || bad != &wr)
      wrong("a full queue took a request", (long)it->posted);
    poll_once();
  }
}

/* number: of a message, 0 for the last one, or negative for no message. */
static void post_one(struct initiator *it, int process, long number, uint32_t length) {
  uint64_t at = it->posted % it->depth;
  unsigned char *data = (unsigned char *)it->slots->addr + at * LONGEST;
  uint32_t offset = draw() % (REGION - LONGEST), target = draw() % options.targets, i;
  struct ibv_sge sge = {(uintptr_t)data, length, it->slots->lkey};
  struct ibv_exp_send_wr wr, *bad = NULL;
  unsigned char *shadow = it->shadow[process] + offset;
  int mine = (int)(it - initiators);

  make_room(it);
  /* Not cleared: programs never did, and only some members count. */
  memset(&wr, 0xa5, sizeof(wr));
  wr.wr_id = it->posted;
  wr.next = NULL;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.exp_send_flags = 0;
  wr.dc.ah = ahs[process];
  wr.dc.dct_number = places[process].dct[target];
  wr.dc.dct_access_key = DC_KEY;
  wr.wr.rdma.remote_addr = places[process].address + (uint64_t)mine * REGION + offset;
  wr.wr.rdma.rkey = places[process].rkey;
  it->slot[at].read = 0;

  if (number >= 0) {
    struct header header = {(uint32_t)number, length, target};

    wr.exp_opcode = IBV_EXP_WR_SEND;
    memcpy(data, &header, sizeof(header));
    for (i = sizeof(header); i < length; ++i) data[i] = letter(header.number, i);
  } else if (draw() % 2) {
    wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE;
    /* Or it might overtake a read of the same place. */
    wr.exp_send_flags = IBV_EXP_SEND_FENCE;
    for (i = 0; i < length; ++i) data[i] = letter((uint32_t)it->posted, i);
    memcpy(shadow, data, length);
  } else {
    wr.exp_opcode = IBV_EXP_WR_RDMA_READ;
    it->slot[at].read = length;
    memcpy(it->expected + at * LONGEST, shadow, length);
  }
  if (wr.exp_opcode != IBV_EXP_WR_RDMA_READ && length <= 64 && draw() % 2) {
    wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
    sge.lkey = 0;
  }
  /* At least one of a queue's worth. */
  it->slot[at].signaled =
      it->slot[at].read || it->posted % it->depth == it->depth - 1 || draw() % 4 == 0 || !number;
  if (it->slot[at].signaled) wr.exp_send_flags |= IBV_EXP_SEND_SIGNALED;

  check(ibv_exp_post_send(it->qp, &wr, &bad), "ibv_exp_post_send");
  ++it->posted;
}

static void finish(struct initiator *it) {
  while (it->completed < it->posted) {
    if (!it->slot[(it->posted - 1) % it->depth].signaled) return; /* nothing will say so */
    poll_once();
  }
}

/* The last write of each queue has no completion; reading all of it back shows them. */
static void read_back(struct initiator *it) {
  int process, piece;

  for (process = 0; process < options.processes; ++process)
    for (piece = 0; piece < REGION / LONGEST; ++piece) {
      uint64_t at = it->posted % it->depth;
      uint32_t offset = (uint32_t)piece * LONGEST;
      struct ibv_sge sge = {(uintptr_t)it->slots->addr + at * LONGEST, LONGEST, it->slots->lkey};
      struct ibv_exp_send_wr wr =
                                 {
                                     .wr_id = it->posted,
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .exp_opcode = IBV_EXP_WR_RDMA_READ,
                                     .exp_send_flags = IBV_EXP_SEND_SIGNALED,
                                 },
                             *bad;

      wr.wr.rdma.rkey = places[process].rkey;
      wr.wr.rdma.remote_addr =
          places[process].address + offset + (uint64_t)(it - initiators) * REGION;
      wr.dc.ah = ahs[process];
      wr.dc.dct_number = places[process].dct[0];
      wr.dc.dct_access_key = DC_KEY;
      make_room(it);
      it->slot[at].read = LONGEST;
      it->slot[at].signaled = 1;
      memcpy(it->expected + at * LONGEST, it->shadow[process] + offset, LONGEST);
      check(ibv_exp_post_send(it->qp, &wr, &bad), "ibv_exp_post_send");
      ++it->posted;
    }
  finish(it);
}

static void try_wrong_key(void) {
  struct ibv_exp_qp_attr attr = {.qp_state = IBV_QPS_RESET};
  struct ibv_exp_send_wr wr = {.wr_id = 4711, .exp_opcode = IBV_EXP_WR_SEND}, *bad;
  struct ibv_exp_wc wc;

  wr.dc.ah = ahs[0];
  wr.dc.dct_number = places[0].dct[0];
  wr.dc.dct_access_key = ~DC_KEY;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  check(ibv_exp_post_send(initiators[0].qp, &wr, &bad), "ibv_exp_post_send");
  while (!take(&wc))
    ;
  if (wc.status == IBV_WC_SUCCESS || wc.wr_id != 4711) wrong("a wrong key was accepted", wc.status);
  printf("wrong key: %s\n", ibv_wc_status_str(wc.status));
  check(ibv_exp_modify_qp(initiators[0].qp, &attr, IBV_EXP_QP_STATE), "to RESET");
  bring_up(initiators[0].qp);
}

static void initiate(const int *fds) {
  struct tally arrived;
  long number;
  int i;

  open_device();
  for (i = 0; i < options.processes; ++i) {
    struct ibv_ah_attr attr = {.port_num = 1};

    transfer(fds[i], &places[i], sizeof(places[i]), 0);
    attr.dlid = (uint16_t)places[i].lid;
    if (options.gid_index >= 0) {
      attr.is_global = 1;
      attr.grh.dgid = places[i].gid;
      attr.grh.sgid_index = (uint8_t)options.gid_index;
      attr.grh.hop_limit = 1;
    }
    ahs[i] = ibv_create_ah(pd, &attr);
    if (!ahs[i]) die("ibv_create_ah");
  }
  printf("seed %u, send queues of", options.seed);
  for (i = 0; i < INITIATORS; ++i) {
    /* 1..256; the edges often. */
    uint32_t depth = draw() % 2 ? 1u << draw() % 9 : 1 + draw() % 256;

    create_initiator(&initiators[i], depth);
    printf(" %u", depth);
  }
  printf(" requests\n");
  fflush(stdout);
  try_wrong_key();

  for (number = 1; number <= options.requests; ++number) {
    struct initiator *it = &initiators[draw() % INITIATORS];
    int process = (int)(draw() % (unsigned)options.processes);
    uint32_t length = draw() % 3 ? 16 + draw() % 100 : 16 + draw() % (LONGEST - 16);

    if (draw() % 2) {
      post_one(it, process, number, length);
      ++sent[process].messages;
      sent[process].numbers += (uint64_t)number;
      sent[process].bytes += length;
    } else {
      post_one(it, process, -1, length);
    }
    if (draw() % 4 == 0) poll_once();
  }
  for (i = 0; i < INITIATORS; ++i) read_back(&initiators[i]);
  for (i = 0; i < options.processes; ++i) {
    post_one(&initiators[INITIATORS - 1], i, 0, sizeof(struct header));
    finish(&initiators[INITIATORS - 1]);
    transfer(fds[i], &arrived, sizeof(arrived), 0);
    if (memcmp(&arrived, &sent[i], sizeof(arrived)))
      wrong("messages were lost or came twice", (long)arrived.messages);
  }
  for (i = 0; i < options.processes; ++i) transfer(fds[i], &i, sizeof(i), 1);

  for (i = 0; i < INITIATORS; ++i) {
    check(ibv_destroy_qp(initiators[i].qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(initiators[i].slots), "ibv_dereg_mr");
  }
  for (i = 0; i < options.processes; ++i) check(ibv_destroy_ah(ahs[i]), "ibv_destroy_ah");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
}

int main(int argc, char **argv) {
  int fds[MOST_PROCESSES], failed = 0, option, status, i;

  while ((option = getopt(argc, argv, "n:P:T:g:r:")) != -1) {
    switch (option) {
      case 'n': options.requests = atol(optarg); break;
      case 'P': options.processes = atoi(optarg); break;
      case 'T': options.targets = atoi(optarg); break;
      case 'g': options.gid_index = atoi(optarg); break;
      case 'r': options.seed = (unsigned)atoi(optarg); break;
      default: return 2;
    }
  }
  if (options.processes < 1 || options.processes > MOST_PROCESSES || options.targets < 1 ||
      options.targets > MOST_TARGETS)
    return 2;

  /* Before a process opens a device: processes do not share one. */
  for (i = 0; i < options.processes; ++i) {
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) die("socketpair");
    switch (fork()) {
      case -1: die("fork"); break;
      case 0:
        close(pair[0]);
        serve(pair[1]);
        break;
      default: close(pair[1]); fds[i] = pair[0];
    }
  }
  initiate(fds);
  for (i = 0; i < options.processes; ++i)
    if (wait(&status) < 0 || status) failed = 1;
  if (!failed)
    printf("%ld requests to %d targets in %d processes: all bytes verified\n", options.requests,
           options.processes * options.targets, options.processes);
  return failed;
}
