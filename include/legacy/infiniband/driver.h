/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Of MLNX_OFED's header for providers, what programs used as well: rdma-core exports the same
 * functions and declares them nowhere.
 */
#ifndef INFINIBAND_DRIVER_H
#define INFINIBAND_DRIVER_H

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where sysfs is mounted. The string stays. */
const char *ibv_get_sysfs_path(void);

/*
 * The first line of @dir/@file, with a null behind it instead of the line's end.
 * Returns its length, or -1.
 */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

/*
 * Keeps memory out of children, and gives it back to them, where ibv_fork_init() was
 * called. Counted for each page. 0, or -1 with errno set.
 */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

/* The number of a shared receive queue of XRC: 0 or a positive errno value. */
static inline int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	return ibv_get_srq_num(srq, srq_num);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_DRIVER_H */
