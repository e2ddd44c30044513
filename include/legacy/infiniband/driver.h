/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of MLNX_OFED's provider header that programs used, too: rdma-core exports these
 * functions and declares them in no public header.
 */
#ifndef INFINIBAND_DRIVER_H
#define INFINIBAND_DRIVER_H

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where sysfs is mounted. The caller does not free the string. */
const char *ibv_get_sysfs_path(void);

/*
 * Reads the first line of @dir/@file, without its newline, as a null-terminated string.
 * Returns its length, or -1.
 */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

/*
 * After ibv_fork_init(): exclude memory from children of fork(), or include it again. Calls
 * nest, page by page. Return 0, or -1 with errno set.
 */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

/* Number of an XRC shared receive queue. Returns 0 or a positive errno value. */
static inline int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	return ibv_get_srq_num(srq, srq_num);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_DRIVER_H */
