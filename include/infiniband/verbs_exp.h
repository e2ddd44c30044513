/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs (ibv_exp_*) on top of rdma-core.
 *
 * This is the programming interface that MLNX_OFED 3.1 to 4.9 shipped in a
 * header of the same name, declared again so that it lives beside the modern
 * <infiniband/verbs.h>. Every structure has the layout of MLNX_OFED 4.9 on
 * 64-bit Linux, every constant its value, so objects can be exchanged with
 * programs that were compiled against the original.
 *
 * Include this file, and <infiniband/peer_ops.h> for peer-direct. The order
 * relative to <infiniband/verbs.h> does not matter. The verbs_exp_*.h parts
 * are an arrangement for the reader and cannot be included on their own.
 *
 *   verbs_exp_base.h    names of the legacy verbs.h that rdma-core dropped,
 *                       comp_mask checking
 *   verbs_exp_device.h  device attributes, ports, GIDs, clock, environment
 *   verbs_exp_mr.h      memory regions, UMR, device memory, windows, ODP
 *   verbs_exp_cq.h      completion queues and work completions
 *   verbs_exp_qp.h      queue pairs, work requests, DC targets
 *   verbs_exp_rq.h      work queues, RSS, shared receive queues, tag matching
 *   verbs_exp_flow.h    flow steering
 *   verbs_exp_intf.h    resource domains and accelerated function families
 *   verbs_exp_ec.h      erasure coding
 *   verbs_exp_table.h   the operation table and how it is found
 *   verbs_exp_inline*.h the dispatching bodies
 *   ofa_verbs.h         XRC domains as they were before libibverbs 1.2
 *
 * TWO WAYS TO CALL
 *
 * By default each call is a static inline that finds the operation table in
 * front of the ibv_context and jumps through it, exactly as the original did:
 * the same program text works whether the library was linked or preloaded,
 * and it has no undefined ibv_exp_* symbol. Because of the latter, a linker
 * run with --as-needed drops libibverbs_exp: link with --no-as-needed.
 *
 * With IBVEXP_EXTERN_CALLS defined before the first inclusion, the same names
 * are ordinary external functions of libibverbs_exp. Use this for function
 * pointers that must compare equal, for foreign-language bindings and
 * wherever a missing library should fail at link time. Only
 * verbs_get_exp_ctx() stays inline.
 *
 * RULES COMMON TO ALL CALLS
 *
 * Errors. Three answers mean three things. ENOSYS: the context carries no
 * operation table, or one older than the call (only the inlines say this).
 * ENOTSUP: the library knows the request and cannot honour it. EINVAL: a
 * comp_mask or flag bit, or a value, that the library does not know. How the
 * number is delivered differs from call to call, is part of the binary
 * interface and is stated with each call under "Returns".
 *
 * comp_mask. A bit announces that the member it names was set (on input) or
 * filled (on output); members without their bit are neither read nor written.
 * The inlines refuse a mask above the last bit of this header with one line
 * on stderr and EINVAL.
 *
 * Threads. Calls on different objects may run at the same time. Calls on the
 * same object may as well, with the limits stated there, unless the object
 * belongs to a resource domain whose thread model says otherwise.
 *
 * Ownership. Attribute structures and everything they point to belong to the
 * caller and may be reused as soon as the call returns. Objects returned
 * belong to the library; free each with the call named in its description,
 * before the objects it was made from.
 *
 * "Rule:" names where a description comes from: the legacy inline, the legacy
 * manual page of the call (man), the RDMA Aware Networks Programming manual
 * rev. 1.7 (manual), or the InfiniBand architecture itself.
 */
#ifndef INFINIBAND_VERBS_EXP_H
#define INFINIBAND_VERBS_EXP_H

#ifdef __cplusplus
/*
 * The legacy headers could be included inside extern "C", and C++ programs
 * did so. rdma-core's verbs.h includes <limits>, whose templates cannot stand
 * there: have it included already.
 */
extern "C++" {
#include <limits>
}
#endif

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include <infiniband/verbs_exp_base.h>
#include <infiniband/verbs_exp_device.h>
#include <infiniband/verbs_exp_mr.h>
#include <infiniband/verbs_exp_cq.h>
#include <infiniband/verbs_exp_qp.h>
#include <infiniband/verbs_exp_rq.h>
#include <infiniband/verbs_exp_flow.h>
#include <infiniband/verbs_exp_intf.h>
#include <infiniband/verbs_exp_ec.h>
#include <infiniband/verbs_exp_table.h>
#ifndef IBVEXP_EXTERN_CALLS
#include <infiniband/verbs_exp_inline.h>
#endif

/* The legacy verbs.h brought these declarations along. */
#include <infiniband/ofa_verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_cm_id;

/*
 * rdma_create_qp_exp - create a queue pair on a connection identifier
 *
 * Does what rdma_create_qp_ex() does, with experimental attributes: takes the
 * identifier's default protection domain when @qp_init_attr names none, makes
 * completion queues when it names none, chooses the QP type that fits the
 * identifier's port space, creates the QP on id->verbs and moves it to INIT
 * (connected types) or RTS (datagrams). On success id->qp and id->pd are set
 * and the QP belongs to the identifier: free it with rdma_destroy_qp(). On
 * failure everything made on the way is released.
 *
 * @id            identifier with a device (id->verbs set) and no QP yet
 * @qp_init_attr  as for ibv_exp_create_qp(); granted capabilities are written
 *                back
 *
 * Threads: not concurrently with other calls on the same identifier.
 * Returns: 0, or -1 with errno set (EINVAL: the identifier has a QP already).
 * Rule: librdmacm of MLNX_OFED 4.9, whose <rdma/rdma_cma.h> declared it.
 */
int rdma_create_qp_exp(struct rdma_cm_id *id,
		       struct ibv_exp_qp_init_attr *qp_init_attr);

/*
 * rdma_lib_reset - restart librdmacm in a forked child
 *
 * Legacy librdmacm dropped all resources inherited from the parent and
 * started again. rdma-core's librdmacm has no such operation.
 *
 * Returns: 0, or -1 with errno set (ENOTSUP: cannot be honoured).
 * Rule: librdmacm of MLNX_OFED 4.9.
 */
int rdma_lib_reset(void);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_H */
