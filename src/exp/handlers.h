// Which function serves an entry point. An entry point that is not listed is
// refused in its own error shape; boundary.h asserts that this list and the
// verdicts in entries.def agree.
#pragma once

#include "exp/identifier.h"
#include "table/compat.h"
#include "translate/queue/poll.h"
#include "translate/queue/post.h"
#include "translate/verbs/clock.h"
#include "translate/verbs/cq.h"
#include "translate/verbs/cross_channel.h"
#include "translate/verbs/dct.h"
#include "translate/verbs/device.h"
#include "translate/verbs/device_memory.h"
#include "translate/verbs/environment.h"
#include "translate/verbs/erasure_coding.h"
#include "translate/verbs/flow.h"
#include "translate/verbs/gid.h"
#include "translate/verbs/indirect_key.h"
#include "translate/verbs/intf.h"
#include "translate/verbs/mr.h"
#include "translate/verbs/provider_func.h"
#include "translate/verbs/qp.h"
#include "translate/verbs/rdmacm.h"
#include "translate/verbs/res_domain.h"
#include "translate/verbs/shared_region.h"
#include "translate/verbs/srq.h"
#include "translate/verbs/tag_matching.h"
#include "translate/verbs/window.h"
#include "translate/verbs/wq.h"
#include "translate/verbs/xrc.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp {

struct Unserved {};

template <EntryId>
inline constexpr Unserved handler{};

// The same name behind a slot and a symbol may have two parameter lists; the
// arguments choose. Whether the function takes the state of the context first is
// for boundary.h to find out.
#define IBVEXP_SERVES(entry, function)                       \
  template <>                                                \
  inline constexpr auto handler<EntryId::entry> =            \
      [](auto &&...arguments) __attribute__((always_inline)) \
          ->decltype(translate::function(arguments...)) {    \
    return translate::function(arguments...);                \
  }

IBVEXP_SERVES(ibv_exp_get_device_list, get_device_list);
IBVEXP_SERVES(ibv_exp_query_device, query_device);
IBVEXP_SERVES(ibv_exp_query_port, query_port);
IBVEXP_SERVES(ibv_exp_query_gid_attr, query_gid_attr);
IBVEXP_SERVES(ibv_exp_setenv, setenv);
IBVEXP_SERVES(ibv_exp_use_priv_env, use_priv_env);
IBVEXP_SERVES(ibv_exp_get_provider_func, get_provider_func);
IBVEXP_SERVES(ibv_exp_create_qp, create_qp);
IBVEXP_SERVES(ibv_exp_modify_qp, modify_qp);
IBVEXP_SERVES(ibv_exp_post_send, post_send);
IBVEXP_SERVES(ibv_exp_post_task, post_task);
IBVEXP_SERVES(ibv_exp_create_dct, create_dct);
IBVEXP_SERVES(ibv_exp_destroy_dct, destroy_dct);
IBVEXP_SERVES(ibv_exp_query_dct, query_dct);
IBVEXP_SERVES(ibv_exp_arm_dct, arm_dct);
IBVEXP_SERVES(ibv_exp_create_cq, create_cq);
IBVEXP_SERVES(ibv_exp_modify_cq, modify_cq);
IBVEXP_SERVES(ibv_exp_poll_cq, poll_cq);
IBVEXP_SERVES(ibv_exp_query_values, query_values);
IBVEXP_SERVES(ibv_exp_cqe_ts_to_ns, cqe_ts_to_ns);
IBVEXP_SERVES(ibv_exp_reg_mr, reg_mr);
IBVEXP_SERVES(ibv_exp_reg_shared_mr, reg_shared_mr);
IBVEXP_SERVES(ibv_exp_rereg_mr, rereg_mr);
IBVEXP_SERVES(ibv_exp_prefetch_mr, prefetch_mr);
IBVEXP_SERVES(ibv_exp_alloc_dm, alloc_dm);
IBVEXP_SERVES(ibv_exp_free_dm, free_dm);
IBVEXP_SERVES(ibv_exp_memcpy_dm, memcpy_dm);
IBVEXP_SERVES(ibv_exp_bind_mw, bind_mw);
IBVEXP_SERVES(ibv_exp_create_mr, create_mr);
IBVEXP_SERVES(ibv_exp_query_mkey, query_mkey);
IBVEXP_SERVES(ibv_exp_alloc_mkey_list_memory, alloc_mkey_list_memory);
IBVEXP_SERVES(ibv_exp_dealloc_mkey_list_memory, dealloc_mkey_list_memory);
IBVEXP_SERVES(ibv_exp_create_res_domain, create_res_domain);
IBVEXP_SERVES(ibv_exp_destroy_res_domain, destroy_res_domain);
IBVEXP_SERVES(ibv_exp_create_srq, create_srq);
IBVEXP_SERVES(ibv_exp_post_srq_ops, post_srq_ops);
IBVEXP_SERVES(ibv_open_xrc_domain, open_xrc_domain);
IBVEXP_SERVES(ibv_close_xrc_domain, close_xrc_domain);
IBVEXP_SERVES(ibv_create_xrc_srq, create_xrc_srq);
IBVEXP_SERVES(ibv_create_xrc_rcv_qp, create_xrc_rcv_qp);
IBVEXP_SERVES(ibv_modify_xrc_rcv_qp, modify_xrc_rcv_qp);
IBVEXP_SERVES(ibv_query_xrc_rcv_qp, query_xrc_rcv_qp);
IBVEXP_SERVES(ibv_reg_xrc_rcv_qp, reg_xrc_rcv_qp);
IBVEXP_SERVES(ibv_unreg_xrc_rcv_qp, unreg_xrc_rcv_qp);
IBVEXP_SERVES(ibv_exp_create_flow, create_flow);
IBVEXP_SERVES(ibv_exp_destroy_flow, destroy_flow);
IBVEXP_SERVES(ibv_exp_create_wq, create_wq);
IBVEXP_SERVES(ibv_exp_modify_wq, modify_wq);
IBVEXP_SERVES(ibv_exp_destroy_wq, destroy_wq);
IBVEXP_SERVES(ibv_exp_create_rwq_ind_table, create_rwq_ind_table);
IBVEXP_SERVES(ibv_exp_destroy_rwq_ind_table, destroy_rwq_ind_table);
IBVEXP_SERVES(ibv_exp_query_intf, query_intf);
IBVEXP_SERVES(ibv_exp_release_intf, release_intf);
IBVEXP_SERVES(ibv_exp_alloc_ec_calc, alloc_ec_calc);
IBVEXP_SERVES(ibv_exp_dealloc_ec_calc, dealloc_ec_calc);
IBVEXP_SERVES(ibv_exp_ec_encode_sync, ec_encode_sync);
IBVEXP_SERVES(ibv_exp_ec_encode_async, ec_encode_async);
IBVEXP_SERVES(ibv_exp_ec_decode_sync, ec_decode_sync);
IBVEXP_SERVES(ibv_exp_ec_decode_async, ec_decode_async);
IBVEXP_SERVES(ibv_exp_ec_update_sync, ec_update_sync);
IBVEXP_SERVES(ibv_exp_ec_update_async, ec_update_async);
IBVEXP_SERVES(ibv_exp_ec_poll, ec_poll);
IBVEXP_SERVES(ibv_exp_ec_encode_send, ec_encode_send);
IBVEXP_SERVES(rdma_establish, establish);
IBVEXP_SERVES(rdma_init_qp_attr, init_qp_attr);

#undef IBVEXP_SERVES

template <>
inline constexpr auto handler<EntryId::rdma_create_qp_exp> =
    [](auto... arguments) -> decltype(create_qp_on(arguments...)) {
  return create_qp_on(arguments...);
};

}  // namespace ibvexp
