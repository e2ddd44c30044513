/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A library of which an assertion names the source that reads private structures.
 */
#include <infiniband/verbs.h>
#include <stdio.h>

const char *read_private_structures(struct ibv_cq *cq);
const char *read_private_structures(struct ibv_cq *cq) {
  struct ibv_wc wc;

  if (!cq) fprintf(stderr, "%s: no queue\n", "src/uct/ib/mlx5/ib_mlx5_hw.c");
  return cq && ibv_poll_cq(cq, 1, &wc) == 1 ? ibv_wc_status_str(wc.status) : NULL;
}
