/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs that watch memory (UCX, libfabric) write jumps over the first instructions of
 * libc's functions for it, while other threads run. So the device's threads call none of
 * these functions: neither by themselves nor through malloc. This program does the same
 * as such a watcher, counts who comes there, and sleeps while its device works and peers
 * come and go. It has one thread of its own; every other is the device's.
 *
 *   own_memory            prints what a thread of the device called, and fails then
 *   own_memory LID QPN    a peer: sends datagrams there and ends
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { peers = 12, messages = 64, bytes = 4096, grh = 40, qkey = 0x11111111 };

static pid_t own_thread;
static struct watched {
  const char *name;
  unsigned calls;
} watched[32];

static void count(const char *name) {
  size_t i;

  if (!own_thread || syscall(SYS_gettid) == own_thread) return;
  for (i = 0; i < sizeof(watched) / sizeof(watched[0]); ++i) {
    const char *none = NULL;

    if (__atomic_load_n(&watched[i].name, __ATOMIC_ACQUIRE) != name &&
        !__atomic_compare_exchange_n(&watched[i].name, &none, name, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
      continue;
    __atomic_fetch_add(&watched[i].calls, 1, __ATOMIC_RELAXED);
    return;
  }
}

/* Those of libc are weak, for watchers. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
void *malloc(size_t n) { return count("malloc"), __libc_malloc(n); }
void *calloc(size_t n, size_t of) { return count("calloc"), __libc_calloc(n, of); }
void *realloc(void *p, size_t n) { return count("realloc"), __libc_realloc(p, n); }
void *memalign(size_t to, size_t n) { return count("memalign"), __libc_memalign(to, n); }
void *aligned_alloc(size_t to, size_t n) { return count("aligned_alloc"), __libc_memalign(to, n); }
int posix_memalign(void **p, size_t to, size_t n) {
  count("posix_memalign");
  *p = __libc_memalign(to, n);
  return *p ? 0 : ENOMEM;
}
void free(void *p) {
  if (p) count("free");
  __libc_free(p);
}

static void die(const char *what) {
  fprintf(stderr, "own_memory: %s: %s\n", what, strerror(errno));
  exit(1);
}

#if defined(__x86_64__)
static void *watched_mmap(void *at, size_t n, int rights, int flags, int fd, off_t offset) {
  count("mmap");
  return (void *)syscall(SYS_mmap, at, n, rights, flags, fd, offset);
}
static int watched_munmap(void *at, size_t n) {
  return count("munmap"), (int)syscall(SYS_munmap, at, n);
}
static int watched_madvise(void *at, size_t n, int advice) {
  return count("madvise"), (int)syscall(SYS_madvise, at, n, advice);
}
static void *watched_shmat(int id, const void *at, int flags) {
  count("shmat");
  return (void *)syscall(SYS_shmat, id, at, flags);
}
static int watched_shmdt(const void *at) { return count("shmdt"), (int)syscall(SYS_shmdt, at); }
extern void *__curbrk;
static int watched_brk(void *end) {
  count("brk");
  __curbrk = (void *)syscall(SYS_brk, end);
  return __curbrk < end ? -1 : 0;
}

/* mov $to, %rax; jmp *%rax */
static void watch(const char *name, uintptr_t to) {
  uint8_t code[12] = {0x48, 0xb8, [10] = 0xff, 0xe0};
  void *from = dlsym(RTLD_DEFAULT, name);
  const uintptr_t page = (uintptr_t)from & ~(uintptr_t)4095;

  if (!from) die(name);
  memcpy(code + 2, &to, sizeof(to));
  if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    perror("own_memory: libc may not be written here");
    exit(77);
  }
  memcpy(from, code, sizeof(code));
}
#endif

struct side {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_mr *mr;
  struct ibv_qp *qp;
  uint16_t lid;
  char memory[bytes];
};

static void open_side(struct side *s) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_port_attr port;
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD, .cap = {messages, messages, 1, 1, 0}};
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};

  if (!list || !list[0] || !(s->context = ibv_open_device(list[0]))) die("ibv_open_device");
  ibv_free_device_list(list);
  s->pd = ibv_alloc_pd(s->context);
  s->channel = ibv_create_comp_channel(s->context);
  s->cq = ibv_create_cq(s->context, 2 * messages, NULL, s->channel, 0);
  s->mr = ibv_reg_mr(s->pd, s->memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  init.send_cq = init.recv_cq = s->cq;
  s->qp = ibv_create_qp(s->pd, &init);
  if (!s->mr || !s->qp || ibv_query_port(s->context, 1, &port) != 0) die("objects");
  s->lid = port.lid;
  if (ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
    die("INIT");
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(s->qp, &attr, IBV_QP_STATE)) die("RTR");
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)) die("RTS");
}

static void post_receives(struct side *s, int n) {
  struct ibv_sge piece = {(uintptr_t)s->memory, bytes, s->mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

  while (n-- > 0)
    if (ibv_post_recv(s->qp, &wr, &bad)) die("ibv_post_recv");
}

static void post_send(struct side *s, struct ibv_ah *ah, uint32_t qpn) {
  struct ibv_sge piece = {(uintptr_t)s->memory, bytes / 2, s->mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = qkey;
  if (ibv_post_send(s->qp, &wr, &bad)) die("ibv_post_send");
}

/* Sleeps until that many completions have come: the device works on its own thread. */
static void take(struct side *s, int wanted) {
  struct ibv_wc wc;
  struct ibv_cq *cq;
  void *of;

  while (wanted > 0) {
    int n;

    if (ibv_req_notify_cq(s->cq, 0)) die("ibv_req_notify_cq");
    while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 1) {
      if (wc.status != IBV_WC_SUCCESS) die(ibv_wc_status_str(wc.status));
      --wanted;
    }
    if (wanted <= 0) break;
    if (n < 0 || ibv_get_cq_event(s->channel, &cq, &of)) die("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
  }
}

static int be_peer(char **argv) {
  static struct side s;
  struct ibv_ah_attr to = {.dlid = (uint16_t)atoi(argv[1]), .port_num = 1};
  struct ibv_ah *ah;
  int i;

  open_side(&s);
  ah = ibv_create_ah(s.pd, &to);
  if (!ah) die("ibv_create_ah");
  for (i = 0; i < messages / 4; ++i) post_send(&s, ah, (uint32_t)strtoul(argv[2], NULL, 0));
  take(&s, messages / 4);
  return 0;
}

int main(int argc, char **argv) {
  static struct side s;
  struct ibv_ah_attr to = {.port_num = 1};
  struct ibv_ah *ah;
  char lid[16], qpn[16];
  int i, status;
  unsigned bad = 0;

  if (argc == 3) return be_peer(argv);
  own_thread = (pid_t)syscall(SYS_gettid);
#if defined(__x86_64__)
  watch("mmap", (uintptr_t)watched_mmap);
  watch("munmap", (uintptr_t)watched_munmap);
  watch("madvise", (uintptr_t)watched_madvise);
  watch("shmat", (uintptr_t)watched_shmat);
  watch("shmdt", (uintptr_t)watched_shmdt);
  watch("brk", (uintptr_t)watched_brk);
#endif
  open_side(&s);
  post_receives(&s, messages);
  to.dlid = s.lid;
  ah = ibv_create_ah(s.pd, &to);
  if (!ah) die("ibv_create_ah");
  snprintf(lid, sizeof(lid), "%d", s.lid);
  snprintf(qpn, sizeof(qpn), "%#x", s.qp->qp_num);
  for (i = 0; i < peers; ++i) {
    const pid_t peer = fork();

    if (peer == 0) {
      char *const arguments[] = {argv[0], lid, qpn, NULL};

      execv("/proc/self/exe", arguments);
      _exit(127);
    }
    /* Its messages, and some of our own to ourselves. */
    post_send(&s, ah, s.qp->qp_num);
    take(&s, messages / 4 + 2);
    post_receives(&s, messages / 4 + 1);
    if (waitpid(peer, &status, 0) != peer || status != 0) die("a peer failed");
  }
  usleep(300000);
  for (i = 0; watched[i].name; ++i) {
    printf("a thread of the device called %s() %u times\n", watched[i].name, watched[i].calls);
    ++bad;
  }
  return bad != 0;
}
