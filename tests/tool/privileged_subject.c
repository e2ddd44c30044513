/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A relinked program that may be started with the rights of others: it says whether it was,
 * and makes a call that is refused, so that there is something to log and to trace.
 */
#include <infiniband/ofa_verbs.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(void) {
  printf("secure %lu\n", getauxval(AT_SECURE));
  return ibv_unreg_xrc_rcv_qp(NULL, 1) != 0 ? 0 : 1;
}
