/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Posting and polling through base or experimental verbs. Before it: MOST_AT_ONCE, the most requests
 * or completions of a call.
 */
#ifndef POSTING_H
#define POSTING_H

#include "counting.h"

static int use_exp;
static struct ibv_send_wr base_wr[MOST_AT_ONCE];
static struct ibv_exp_send_wr exp_wr[MOST_AT_ONCE];

/* Not inlined, for the program's own share to be the inlines' alone. */
static __attribute__((noinline)) int post_base(struct ibv_qp *on) {
  struct ibv_send_wr *bad;

  return ibv_post_send(on, base_wr, &bad);
}
static __attribute__((noinline)) int post_exp(struct ibv_qp *on) {
  struct ibv_exp_send_wr *bad;

  return ibv_exp_post_send(on, exp_wr, &bad);
}
static __attribute__((noinline)) int poll_base(struct ibv_cq *on, int count) {
  static struct ibv_wc wc[MOST_AT_ONCE];

  return ibv_poll_cq(on, count, wc);
}
static __attribute__((noinline)) int poll_exp(struct ibv_cq *on, int count) {
  static struct ibv_exp_wc wc[MOST_AT_ONCE];

  return ibv_exp_poll_cq(on, count, wc, sizeof(wc[0]));
}
static int post_some(struct ibv_qp *on) { return use_exp ? post_exp(on) : post_base(on); }
static int poll_some(struct ibv_cq *on, int count) {
  return use_exp ? poll_exp(on, count) : poll_base(on, count);
}

/* Polls so many, a few in each call. False: they were not all there at once, which is not what is
   to be measured. */
static inline int count_polls(struct ibv_cq *on, const char *name, int count, int left) {
  int n;

  for (; left; left -= n) {
    begin();
    n = poll_some(on, count);
    if (n != count) break;
    end("poll", name, count);
  }
  if (!left) return 1;
  give_up();
  expect(n >= 0, "poll");
  for (left -= n; left; left -= n) n = poll_some(on, count);
  return 0;
}

#endif
