// The exported symbols of the legacy API, one line each: number of parameters
// and name. Types come from the public header, behaviour and error shape from
// the row in entries.def. A test compares this list with the rows.
#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <rdma/rdma_cma.h>

#include "exp/boundary.h"

using namespace ibvexp;

namespace {

template <EntryId id, auto symbol>
using Of = Through<id, std::remove_pointer_t<decltype(symbol)>>;

}  // namespace

#define IBVEXP_OF(name) Of<EntryId::name, &::name>
#define IBVEXP_PARAMETER(name, n) IBVEXP_OF(name)::Argument<n>
#define IBVEXP_HEAD(name) extern "C" [[gnu::visibility("default")]] IBVEXP_OF(name)::Value name

#define IBVEXP_EXPORT_0(name) \
  IBVEXP_HEAD(name)           \
  (void) { return IBVEXP_OF(name)::Symbol::enter(); }
#define IBVEXP_EXPORT_1(name) \
  IBVEXP_HEAD(name)           \
  (IBVEXP_PARAMETER(name, 0) a) { return IBVEXP_OF(name)::Symbol::enter(a); }
#define IBVEXP_EXPORT_2(name)                                  \
  IBVEXP_HEAD(name)                                            \
  (IBVEXP_PARAMETER(name, 0) a, IBVEXP_PARAMETER(name, 1) b) { \
    return IBVEXP_OF(name)::Symbol::enter(a, b);               \
  }
#define IBVEXP_EXPORT_3(name)                                                               \
  IBVEXP_HEAD(name)                                                                         \
  (IBVEXP_PARAMETER(name, 0) a, IBVEXP_PARAMETER(name, 1) b, IBVEXP_PARAMETER(name, 2) c) { \
    return IBVEXP_OF(name)::Symbol::enter(a, b, c);                                         \
  }
#define IBVEXP_EXPORT_4(name)                                                             \
  IBVEXP_HEAD(name)                                                                       \
  (IBVEXP_PARAMETER(name, 0) a, IBVEXP_PARAMETER(name, 1) b, IBVEXP_PARAMETER(name, 2) c, \
   IBVEXP_PARAMETER(name, 3) d) {                                                         \
    return IBVEXP_OF(name)::Symbol::enter(a, b, c, d);                                    \
  }
#define IBVEXP_EXPORT_5(name)                                                             \
  IBVEXP_HEAD(name)                                                                       \
  (IBVEXP_PARAMETER(name, 0) a, IBVEXP_PARAMETER(name, 1) b, IBVEXP_PARAMETER(name, 2) c, \
   IBVEXP_PARAMETER(name, 3) d, IBVEXP_PARAMETER(name, 4) e) {                            \
    return IBVEXP_OF(name)::Symbol::enter(a, b, c, d, e);                                 \
  }
#define IBVEXP_EXPORT_6(name)                                                               \
  IBVEXP_HEAD(name)                                                                         \
  (IBVEXP_PARAMETER(name, 0) a, IBVEXP_PARAMETER(name, 1) b, IBVEXP_PARAMETER(name, 2) c,   \
   IBVEXP_PARAMETER(name, 3) d, IBVEXP_PARAMETER(name, 4) e, IBVEXP_PARAMETER(name, 5) f) { \
    return IBVEXP_OF(name)::Symbol::enter(a, b, c, d, e, f);                                \
  }
#define IBVEXP_EXPORT_7(name)                                                             \
  IBVEXP_HEAD(name)                                                                       \
  (IBVEXP_PARAMETER(name, 0) a, IBVEXP_PARAMETER(name, 1) b, IBVEXP_PARAMETER(name, 2) c, \
   IBVEXP_PARAMETER(name, 3) d, IBVEXP_PARAMETER(name, 4) e, IBVEXP_PARAMETER(name, 5) f, \
   IBVEXP_PARAMETER(name, 6) g) {                                                         \
    return IBVEXP_OF(name)::Symbol::enter(a, b, c, d, e, f, g);                           \
  }

// Devices, contexts and ports
IBVEXP_EXPORT_1(ibv_exp_get_device_list)
IBVEXP_EXPORT_2(ibv_exp_query_device)
IBVEXP_EXPORT_3(ibv_exp_query_port)
IBVEXP_EXPORT_4(ibv_exp_query_gid_attr)
IBVEXP_EXPORT_4(ibv_exp_setenv)
IBVEXP_EXPORT_1(ibv_exp_use_priv_env)
IBVEXP_EXPORT_2(ibv_exp_open_device)
IBVEXP_EXPORT_2(ibv_exp_get_provider_func)

// Queue pairs
IBVEXP_EXPORT_2(ibv_exp_create_qp)
IBVEXP_EXPORT_3(ibv_exp_modify_qp)
IBVEXP_EXPORT_3(ibv_exp_post_send)
IBVEXP_EXPORT_3(ibv_exp_post_task)

// Dynamically connected transport
IBVEXP_EXPORT_2(ibv_exp_create_dct)
IBVEXP_EXPORT_1(ibv_exp_destroy_dct)
IBVEXP_EXPORT_2(ibv_exp_query_dct)
IBVEXP_EXPORT_2(ibv_exp_arm_dct)
IBVEXP_EXPORT_4(ibv_exp_poll_dc_info)

// Legacy XRC
IBVEXP_EXPORT_3(ibv_open_xrc_domain)
IBVEXP_EXPORT_1(ibv_close_xrc_domain)
IBVEXP_EXPORT_4(ibv_create_xrc_srq)
IBVEXP_EXPORT_2(ibv_create_xrc_rcv_qp)
IBVEXP_EXPORT_4(ibv_modify_xrc_rcv_qp)
IBVEXP_EXPORT_5(ibv_query_xrc_rcv_qp)
IBVEXP_EXPORT_2(ibv_reg_xrc_rcv_qp)
IBVEXP_EXPORT_2(ibv_unreg_xrc_rcv_qp)

// Completion queues and time
IBVEXP_EXPORT_6(ibv_exp_create_cq)
IBVEXP_EXPORT_3(ibv_exp_modify_cq)
IBVEXP_EXPORT_4(ibv_exp_poll_cq)
IBVEXP_EXPORT_2(ibv_exp_cqe_ts_to_ns)
IBVEXP_EXPORT_3(ibv_exp_query_values)

// Memory
IBVEXP_EXPORT_1(ibv_exp_reg_mr)
IBVEXP_EXPORT_7(ibv_exp_rereg_mr)
IBVEXP_EXPORT_1(ibv_exp_reg_shared_mr)
IBVEXP_EXPORT_2(ibv_exp_prefetch_mr)
IBVEXP_EXPORT_2(ibv_exp_alloc_dm)
IBVEXP_EXPORT_1(ibv_exp_free_dm)
IBVEXP_EXPORT_2(ibv_exp_memcpy_dm)
IBVEXP_EXPORT_1(ibv_exp_bind_mw)
IBVEXP_EXPORT_1(ibv_exp_create_mr)
IBVEXP_EXPORT_2(ibv_exp_query_mkey)
IBVEXP_EXPORT_1(ibv_exp_alloc_mkey_list_memory)
IBVEXP_EXPORT_1(ibv_exp_dealloc_mkey_list_memory)

// Flow steering, work queues, shared receive queues
IBVEXP_EXPORT_2(ibv_exp_create_flow)
IBVEXP_EXPORT_1(ibv_exp_destroy_flow)
IBVEXP_EXPORT_2(ibv_exp_create_wq)
IBVEXP_EXPORT_2(ibv_exp_modify_wq)
IBVEXP_EXPORT_1(ibv_exp_destroy_wq)
IBVEXP_EXPORT_2(ibv_exp_create_rwq_ind_table)
IBVEXP_EXPORT_1(ibv_exp_destroy_rwq_ind_table)
IBVEXP_EXPORT_2(ibv_exp_create_srq)
IBVEXP_EXPORT_3(ibv_exp_post_srq_ops)

// Accelerated verbs and resource domains
IBVEXP_EXPORT_3(ibv_exp_query_intf)
IBVEXP_EXPORT_3(ibv_exp_release_intf)
IBVEXP_EXPORT_2(ibv_exp_create_res_domain)
IBVEXP_EXPORT_3(ibv_exp_destroy_res_domain)

// Erasure coding
IBVEXP_EXPORT_2(ibv_exp_alloc_ec_calc)
IBVEXP_EXPORT_1(ibv_exp_dealloc_ec_calc)
IBVEXP_EXPORT_3(ibv_exp_ec_encode_async)
IBVEXP_EXPORT_2(ibv_exp_ec_encode_sync)
IBVEXP_EXPORT_5(ibv_exp_ec_decode_async)
IBVEXP_EXPORT_4(ibv_exp_ec_decode_sync)
IBVEXP_EXPORT_5(ibv_exp_ec_update_async)
IBVEXP_EXPORT_4(ibv_exp_ec_update_sync)
IBVEXP_EXPORT_2(ibv_exp_ec_poll)
IBVEXP_EXPORT_4(ibv_exp_ec_encode_send)

// PeerDirect
IBVEXP_EXPORT_2(ibv_exp_peer_commit_qp)
IBVEXP_EXPORT_2(ibv_exp_rollback_qp)
IBVEXP_EXPORT_2(ibv_exp_peer_peek_cq)
IBVEXP_EXPORT_2(ibv_exp_peer_abort_peek_cq)

// Connection manager
IBVEXP_EXPORT_2(rdma_create_qp_exp)
IBVEXP_EXPORT_1(rdma_establish)
IBVEXP_EXPORT_3(rdma_init_qp_attr)
IBVEXP_EXPORT_0(rdma_lib_reset)
