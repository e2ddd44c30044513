/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: memory. Registration, indirect keys (UMR), device
 * memory, prefetching, memory windows.
 */
#ifndef INFINIBAND_VERBS_EXP_MR_H
#define INFINIBAND_VERBS_EXP_MR_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Access flags. The first five equal IBV_ACCESS_*; the others do not (there
 * ON_DEMAND is bit 6). Remote write and remote atomic require local write.
 */
__extension__ enum ibv_exp_access_flags {
	IBV_EXP_ACCESS_LOCAL_WRITE           = 1 << 0,
	IBV_EXP_ACCESS_REMOTE_WRITE          = 1 << 1,
	IBV_EXP_ACCESS_REMOTE_READ           = 1 << 2,
	IBV_EXP_ACCESS_REMOTE_ATOMIC         = 1 << 3,
	IBV_EXP_ACCESS_MW_BIND               = 1 << 4,
	/* the library allocates contiguous memory; addr must be NULL */
	IBV_EXP_ACCESS_ALLOCATE_MR           = IBV_EXP_START_FLAG << 5,
	IBV_EXP_ACCESS_SHARED_MR_USER_READ   = IBV_EXP_START_FLAG << 6,
	IBV_EXP_ACCESS_SHARED_MR_USER_WRITE  = IBV_EXP_START_FLAG << 7,
	IBV_EXP_ACCESS_SHARED_MR_GROUP_READ  = IBV_EXP_START_FLAG << 8,
	IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE = IBV_EXP_START_FLAG << 9,
	IBV_EXP_ACCESS_SHARED_MR_OTHER_READ  = IBV_EXP_START_FLAG << 10,
	IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE = IBV_EXP_START_FLAG << 11,
	IBV_EXP_ACCESS_NO_RDMA               = IBV_EXP_START_FLAG << 12,
	/* window addresses start at 0 */
	IBV_EXP_ACCESS_MW_ZERO_BASED         = IBV_EXP_START_FLAG << 13,
	IBV_EXP_ACCESS_ON_DEMAND             = IBV_EXP_START_FLAG << 14, /* pages are not pinned */
	/* may cover more than was asked; needs ON_DEMAND */
	IBV_EXP_ACCESS_RELAXED               = IBV_EXP_START_FLAG << 15,
	/* addresses are physical */
	IBV_EXP_ACCESS_PHYSICAL_ADDR         = IBV_EXP_START_FLAG << 16,
	IBV_EXP_ACCESS_TUNNELED_ATOMIC       = IBV_EXP_START_FLAG << 17,
	/* PCI relaxed ordering; since MLNX_OFED 4.9 */
	IBV_EXP_ACCESS_RELAXED_ORDERING      = IBV_EXP_START_FLAG << 18,
	IBV_EXP_ACCESS_RESERVED              = IBV_EXP_START_FLAG << 19,
};

/* Part of the legacy header; no call takes it. */
enum {
	IBV_EXP_ACCESS_FLAGS_SHIFT = 15,
};

/* A region from address 0 of this length covers everything; needs ON_DEMAND. */
#define IBV_EXP_IMPLICIT_MR_SIZE (~((size_t)0))

/*
 * Registration
 */

enum ibv_exp_reg_mr_create_flags {
	IBV_EXP_REG_MR_CREATE_CONTIG = 1 << 0, /* allocate physically contiguous memory at addr */
};

enum ibv_exp_reg_mr_in_comp_mask {
	IBV_EXP_REG_MR_CREATE_FLAGS = 1 << 0,
	IBV_EXP_REG_MR_DM           = 1 << 1,
	IBV_EXP_REG_MR_RESERVED     = 1 << 2,
};

struct ibv_exp_reg_mr_in {
	struct ibv_pd *pd;
	void *addr; /* offset into the memory of dm if that is given */
	size_t length; /* bytes */
	uint64_t exp_access; /* IBV_EXP_ACCESS_* */
	uint32_t comp_mask; /* IBV_EXP_REG_MR_* */
	uint32_t create_flags; /* IBV_EXP_REG_MR_CREATE_CONTIG */
	struct ibv_exp_dm *dm; /* device memory */
};

/*
 * ibv_exp_reg_mr - register memory
 *
 * Free with ibv_dereg_mr(), which also frees memory that
 * IBV_EXP_ACCESS_ALLOCATE_MR allocated.
 *
 * Returns: the region, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range, or forbidden combination of access flags.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_mr *ibv_exp_reg_mr(struct ibv_exp_reg_mr_in *in);

enum ibv_exp_reg_shared_mr_comp_mask {
	IBV_EXP_REG_SHARED_MR_RESERVED = 1 << 0,
};

struct ibv_exp_reg_shared_mr_in {
	uint32_t mr_handle; /* ibv_mr.handle of the region to share */
	struct ibv_pd *pd;
	void *addr;
	uint64_t exp_access;
	uint32_t comp_mask;
};

/*
 * ibv_exp_reg_shared_mr - register memory of a region again
 *
 * Removed by the vendor in MLNX_OFED 4.3; the name remains.
 *
 * Returns: NULL with errno set, always.
 * Rule: legacy inline.
 */
IBVEXP_CALL struct ibv_mr *
ibv_exp_reg_shared_mr(struct ibv_exp_reg_shared_mr_in *mr_in);

/* What a provider's deregistration reports back to the library. */
enum ibv_exp_dereg_mr_comp_mask {
	IBV_EXP_DEREG_MR_RESERVED = 1 << 0,
};

struct ibv_exp_dereg_out {
	int need_dofork; /* the library has to undo its fork protection */
	uint32_t comp_mask;
};

/*
 * Re-registration under its experimental name. Part of the interface up to
 * MLNX_OFED 3.4 and of the migration guide; ibv_rereg_mr() since then. It has
 * no slot in the operation table any more.
 */
enum ibv_exp_rereg_mr_flags {
	IBV_EXP_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
	IBV_EXP_REREG_MR_CHANGE_PD          = 1 << 1,
	IBV_EXP_REREG_MR_CHANGE_ACCESS      = 1 << 2,
	IBV_EXP_REREG_MR_KEEP_VALID         = 1 << 3, /* the old region survives a failure */
	IBV_EXP_REREG_MR_FLAGS_SUPPORTED    = 0xf,
};

enum ibv_exp_rereg_mr_attr_mask {
	IBV_EXP_REREG_MR_ATTR_RESERVED = 1 << 0,
};

struct ibv_exp_rereg_mr_attr {
	uint32_t comp_mask;
};

/*
 * ibv_exp_rereg_mr - change a memory region
 *
 * @flags       IBV_EXP_REREG_MR_CHANGE_*, which of the following count
 * @pd          new protection domain
 * @addr        new start
 * @length      new length, bytes
 * @exp_access  new IBV_EXP_ACCESS_*
 * @attr        comp_mask must be 0; may be NULL
 *
 * After a failure the region must not be used, only deregistered. An external
 * function under either way to call.
 * Returns: 0, or a positive errno value.
 * Rule: legacy man.
 */
int ibv_exp_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
		     void *addr, size_t length, uint64_t exp_access,
		     struct ibv_exp_rereg_mr_attr *attr);

/*
 * Prefetching
 */

enum ibv_exp_prefetch_attr_flags {
	IBV_EXP_PREFETCH_WRITE_ACCESS = 1 << 0, /* pages are going to be written */
};

enum ibv_exp_prefetch_attr_comp_mask {
	IBV_EXP_PREFETCH_MR_RESERVED = 1 << 0,
};

struct ibv_exp_prefetch_attr {
	uint32_t flags; /* IBV_EXP_PREFETCH_* */
	void *addr;
	size_t length; /* bytes */
	uint32_t comp_mask;
};

/*
 * ibv_exp_prefetch_mr - bring pages of an on-demand region into memory
 *
 * A hint: it may succeed without doing anything.
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table. EFAULT: outside the region. EINVAL.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_prefetch_mr(struct ibv_mr *mr,
				    struct ibv_exp_prefetch_attr *attr);

/*
 * Indirect memory keys (UMR). Order of use: ibv_exp_create_mr(),
 * IBV_EXP_WR_UMR_FILL, use, IBV_EXP_WR_UMR_INVALIDATE, ibv_dereg_mr().
 */

enum ibv_exp_mr_create_flags {
	IBV_EXP_MR_SIGNATURE_EN      = 1 << 0,
	IBV_EXP_MR_INDIRECT_KLMS     = 1 << 1,
	IBV_EXP_MR_FIXED_BUFFER_SIZE = 1 << 2, /* all entries have one size */
};

struct ibv_exp_mr_init_attr {
	uint32_t max_klm_list_size; /* entries; a repeating pattern takes one for itself */
	uint32_t create_flags; /* IBV_EXP_MR_* */
	uint64_t exp_access_flags; /* IBV_EXP_ACCESS_* */
};

enum ibv_exp_create_mr_in_comp_mask {
	IBV_EXP_CREATE_MR_IN_RESERVED = 1 << 0,
};

struct ibv_exp_create_mr_in {
	struct ibv_pd *pd;
	struct ibv_exp_mr_init_attr attr;
	uint32_t comp_mask;
};

/*
 * ibv_exp_create_mr - create a memory key without memory
 *
 * The key becomes usable when a work request of opcode IBV_EXP_WR_UMR_FILL
 * has completed. Free with ibv_dereg_mr().
 *
 * Returns: the region, or NULL with errno set. ENOSYS: no operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_mr *ibv_exp_create_mr(struct ibv_exp_create_mr_in *in);

enum ibv_exp_mkey_attr_comp_mask {
	IBV_EXP_MKEY_ATTR_RESERVED = 1 << 0,
};

struct ibv_exp_mkey_attr {
	uint32_t max_klm_list_size; /* entries granted */
	uint32_t comp_mask;
};

/*
 * ibv_exp_query_mkey - read the attributes of an indirect memory key
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_query_mkey(struct ibv_mr *mr,
				   struct ibv_exp_mkey_attr *mkey_attr);

enum ibv_exp_mkey_list_type {
	IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR = 0,
};

enum ibv_exp_alloc_mkey_list_comp_mask {
	IBV_EXP_MKEY_LIST_CONTAINER_RESERVED = 1 << 0,
};

struct ibv_exp_mkey_list_container {
	uint32_t max_klm_list_size; /* entries */
	struct ibv_context *context;
};

struct ibv_exp_mkey_list_container_attr {
	struct ibv_pd *pd;
	uint32_t mkey_list_type; /* IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR */
	uint32_t max_klm_list_size; /* entries */
	uint32_t comp_mask;
};

/*
 * ibv_exp_alloc_mkey_list_memory - allocate room for the list of a UMR
 *
 * Needed for lists that do not fit into the work request. The room may be
 * used again when the request has completed. Free with
 * ibv_exp_dealloc_mkey_list_memory().
 *
 * Returns: the container, or NULL with errno set. ENOSYS: no operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_exp_mkey_list_container *
ibv_exp_alloc_mkey_list_memory(struct ibv_exp_mkey_list_container_attr *attr);

/*
 * ibv_exp_dealloc_mkey_list_memory - free the room for the list of a UMR
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline.
 */
IBVEXP_CALL int
ibv_exp_dealloc_mkey_list_memory(struct ibv_exp_mkey_list_container *mem);

/* What the new key consists of, ibv_exp_send_wr.ext_op.umr.umr_type. */
enum ibv_exp_umr_wr_type {
	IBV_EXP_UMR_MR_LIST            = 0, /* the pieces, one after the other */
	IBV_EXP_UMR_REPEAT             = 1, /* a pattern of blocks and gaps */
	IBV_EXP_UMR_MR_LIST_FIXED_SIZE = 2, /* pieces of equal size */
};

/* One piece of a list. */
struct ibv_exp_mem_region {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t length; /* bytes */
};

/*
 * One block of a repeating pattern. byte_count and stride are arrays with an
 * element per dimension; stride is the distance between starts, not the gap.
 */
struct ibv_exp_mem_repeat_block {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t *byte_count; /* bytes per repetition */
	size_t *stride; /* bytes from one repetition to the next */
};

/*
 * Memory windows
 */

struct ibv_exp_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr;
	uint64_t length; /* bytes */
	uint64_t exp_mw_access_flags; /* IBV_EXP_ACCESS_* */
};

enum ibv_exp_bind_mw_comp_mask {
	IBV_EXP_BIND_MW_RESERVED = 1 << 0,
};

struct ibv_exp_mw_bind {
	struct ibv_qp *qp;
	struct ibv_mw *mw;
	uint64_t wr_id;
	uint64_t exp_send_flags; /* IBV_EXP_SEND_* */
	struct ibv_exp_mw_bind_info bind_info;
	uint32_t comp_mask;
};

/*
 * ibv_exp_bind_mw - bind a type 1 memory window
 *
 * Posts a work request to mw_bind->qp (RC or UC). On return mw->rkey is the
 * new key; restore the old value if the completion reports an error.
 *
 * Threads: not concurrently on the same window.
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_bind_mw(struct ibv_exp_mw_bind *mw_bind);

/*
 * Device memory
 */

enum ibv_exp_dm_attr_comp_mask {
	IBV_EXP_ALLOC_DM_ATTR_RESERVED = 1 << 0,
};

struct ibv_exp_alloc_dm_attr {
	size_t length; /* bytes */
	uint32_t comp_mask;
};

enum ibv_exp_dm_comp_mask {
	IBV_EXP_DM_COMP_MASK_RESERVED = 1 << 0,
};

struct ibv_exp_dm {
	struct ibv_context *context;
	uint32_t handle;
	uint32_t comp_mask;
};

enum ibv_exp_dm_memcpy_dir {
	IBV_EXP_DM_CPY_TO_DEVICE = 0,
	IBV_EXP_DM_CPY_TO_HOST   = 1,
};

enum ibv_exp_dm_cpy_comp_mask {
	IBV_EXP_DM_CPY_COMP_MASK_RESERVED = 1 << 0,
};

struct ibv_exp_memcpy_dm_attr {
	enum ibv_exp_dm_memcpy_dir memcpy_dir;
	void *host_addr;
	uint64_t dm_offset; /* bytes */
	size_t length; /* bytes */
	uint32_t comp_mask;
};

/*
 * ibv_exp_alloc_dm - allocate memory on the device
 *
 * Register it with ibv_exp_reg_mr() and IBV_EXP_REG_MR_DM. Free with
 * ibv_exp_free_dm().
 *
 * Returns: the memory, or NULL; errno is set except when there is no
 * operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_exp_dm *
ibv_exp_alloc_dm(struct ibv_context *context,
		 struct ibv_exp_alloc_dm_attr *attr);

/*
 * ibv_exp_free_dm - free memory on the device
 *
 * Fails while regions of it exist.
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_free_dm(struct ibv_exp_dm *dm);

/*
 * ibv_exp_memcpy_dm - copy between the host and memory on the device
 *
 * dm_offset and length must suit the alignment that the device requires.
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table. EINVAL:
 * comp_mask out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_memcpy_dm(struct ibv_exp_dm *dm,
				  struct ibv_exp_memcpy_dm_attr *attr);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_MR_H */
