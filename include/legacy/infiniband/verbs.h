/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The installed <infiniband/verbs.h> with the experimental verbs behind it, as
 * MLNX_OFED had it: for programs that include nothing else. Put its directory in
 * front of the system's (pkg-config --cflags libibverbs_exp-legacy).
 */
#pragma GCC system_header
#ifdef __cplusplus
extern "C++" {  /* see verbs_exp.h */
#include <limits>
}
#endif
#include_next <infiniband/verbs.h>

#ifndef IBVEXP_LEGACY_VERBS_H
#define IBVEXP_LEGACY_VERBS_H
#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

/* rdma-core made a macro of it, which changes members and functions that programs call so. */
#undef ibv_reg_mr

/* rdma-core dropped it; programs of that time count on it. */
#ifndef container_of
#include <stddef.h>
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#endif
#endif
