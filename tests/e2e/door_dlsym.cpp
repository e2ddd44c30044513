// The functions that the tests call, each looked up in a library that is loaded
// at the first call. By then contexts may exist that it has never seen, and
// nothing of libibverbs can be interposed any more.
#include <dlfcn.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace {

void *find(const char *name) {
  static void *library = [] {
    void *loaded = dlopen(EXP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    return loaded;
  }();
  void *function = dlsym(library, name);
  if (function == nullptr) {
    std::fprintf(stderr, "%s is not exported\n", name);
    std::abort();
  }
  return function;
}

template <class F>
struct Types;
template <class R, class... A>
struct Types<R (*)(A...)> {
  using Value = R;
  template <std::size_t n>
  using At = std::tuple_element_t<n, std::tuple<A...>>;
};

}  // namespace

#define OF(name) Types<decltype(&::name)>
#define CALL(name) reinterpret_cast<decltype(&::name)>(find(#name))
#define HEAD(name) extern "C" OF(name)::Value name
#define P(name, n, x) OF(name)::At<n> x
#define DOOR_1(name) \
  HEAD(name)(P(name, 0, a)) { return CALL(name)(a); }
#define DOOR_2(name) \
  HEAD(name)(P(name, 0, a), P(name, 1, b)) { return CALL(name)(a, b); }
#define DOOR_3(name) \
  HEAD(name)(P(name, 0, a), P(name, 1, b), P(name, 2, c)) { return CALL(name)(a, b, c); }
#define DOOR_4(name)                                                       \
  HEAD(name)(P(name, 0, a), P(name, 1, b), P(name, 2, c), P(name, 3, d)) { \
    return CALL(name)(a, b, c, d);                                         \
  }
#define DOOR_5(name)                                                                      \
  HEAD(name)(P(name, 0, a), P(name, 1, b), P(name, 2, c), P(name, 3, d), P(name, 4, e)) { \
    return CALL(name)(a, b, c, d, e);                                                     \
  }
#define DOOR_6(name)                                                                           \
  HEAD(name)                                                                                   \
  (P(name, 0, a), P(name, 1, b), P(name, 2, c), P(name, 3, d), P(name, 4, e), P(name, 5, f)) { \
    return CALL(name)(a, b, c, d, e, f);                                                       \
  }
#define DOOR_7(name)                                                                         \
  HEAD(name)                                                                                 \
  (P(name, 0, a), P(name, 1, b), P(name, 2, c), P(name, 3, d), P(name, 4, e), P(name, 5, f), \
   P(name, 6, g)) {                                                                          \
    return CALL(name)(a, b, c, d, e, f, g);                                                  \
  }

DOOR_3(ibv_exp_post_srq_ops)
DOOR_3(ibv_open_xrc_domain)
DOOR_1(ibv_close_xrc_domain)
DOOR_4(ibv_create_xrc_srq)
DOOR_2(ibv_create_xrc_rcv_qp)
DOOR_4(ibv_modify_xrc_rcv_qp)
DOOR_5(ibv_query_xrc_rcv_qp)
DOOR_2(ibv_reg_xrc_rcv_qp)
DOOR_2(ibv_unreg_xrc_rcv_qp)
DOOR_1(ibv_exp_get_device_list)
DOOR_1(ibv_exp_use_priv_env)
DOOR_1(ibv_exp_reg_mr)
DOOR_1(ibv_exp_destroy_dct)
DOOR_1(ibv_exp_destroy_wq)
DOOR_1(ibv_exp_destroy_flow)
DOOR_1(ibv_exp_destroy_rwq_ind_table)
DOOR_1(ibv_exp_dealloc_ec_calc)
DOOR_1(ibv_exp_reg_shared_mr)
DOOR_1(ibv_exp_free_dm)
DOOR_1(ibv_exp_bind_mw)
DOOR_1(ibv_exp_create_mr)
DOOR_1(ibv_exp_alloc_mkey_list_memory)
DOOR_1(ibv_exp_dealloc_mkey_list_memory)
DOOR_2(ibv_exp_alloc_ec_calc)
DOOR_2(ibv_exp_ec_encode_sync)
DOOR_2(ibv_exp_ec_poll)
DOOR_2(ibv_exp_query_device)
DOOR_2(ibv_exp_get_provider_func)
DOOR_2(ibv_exp_create_qp)
DOOR_2(ibv_exp_create_srq)
DOOR_2(ibv_exp_open_device)
DOOR_2(ibv_exp_prefetch_mr)
DOOR_2(ibv_exp_alloc_dm)
DOOR_2(ibv_exp_memcpy_dm)
DOOR_2(ibv_exp_query_mkey)
DOOR_2(ibv_exp_create_res_domain)
DOOR_2(ibv_exp_create_dct)
DOOR_2(ibv_exp_query_dct)
DOOR_2(ibv_exp_arm_dct)
DOOR_2(ibv_exp_create_wq)
DOOR_2(ibv_exp_modify_wq)
DOOR_2(ibv_exp_create_rwq_ind_table)
DOOR_2(ibv_exp_create_flow)
DOOR_2(ibv_exp_cqe_ts_to_ns)
DOOR_3(ibv_exp_ec_encode_async)
DOOR_3(ibv_exp_query_port)
DOOR_3(ibv_exp_modify_qp)
DOOR_3(ibv_exp_post_send)
DOOR_3(ibv_exp_destroy_res_domain)
DOOR_3(ibv_exp_post_task)
DOOR_3(ibv_exp_modify_cq)
DOOR_3(ibv_exp_query_intf)
DOOR_3(ibv_exp_query_values)
DOOR_3(ibv_exp_release_intf)
DOOR_4(ibv_exp_ec_decode_sync)
DOOR_4(ibv_exp_ec_encode_send)
DOOR_4(ibv_exp_ec_update_sync)
DOOR_4(ibv_exp_query_gid_attr)
DOOR_4(ibv_exp_setenv)
DOOR_4(ibv_exp_poll_cq)
DOOR_4(ibv_exp_poll_dc_info)
DOOR_5(ibv_exp_ec_decode_async)
DOOR_5(ibv_exp_ec_update_async)
DOOR_6(ibv_exp_create_cq)
DOOR_7(ibv_exp_rereg_mr)
