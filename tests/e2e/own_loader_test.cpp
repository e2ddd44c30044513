// Programs that load libibverbs themselves and look base verbs up in it, as spead2 does,
// with experimental verbs from the inlines of their headers.
#include <dlfcn.h>

#include <string>

#include "rig.h"

namespace {

void *opened(const char *name, int flags = RTLD_NOW | RTLD_LOCAL) {
  void *library = dlopen(name, flags);
  INFO(name);
  REQUIRE(library != nullptr);
  return library;
}

template <class F>
F *look_up(void *library, const char *name) {
  return reinterpret_cast<F *>(dlsym(library, name));
}

#define LOOKED_UP(library, name) look_up<decltype(name)>(library, #name)

}  // namespace

TEST_CASE("base verbs from a library that the program loads go with experimental ones") {
  void *const verbs = opened("libibverbs.so.1");
  ibv_device **list = LOOKED_UP(verbs, ibv_get_device_list)(nullptr);
  REQUIRE(list != nullptr);
  ibv_context *const context = LOOKED_UP(verbs, ibv_open_device)(list[0]);
  REQUIRE(context != nullptr);
  LOOKED_UP(verbs, ibv_free_device_list)(list);

  ibv_exp_device_attr caps{};
  CHECK(ibv_exp_query_device(context, &caps) == 0);
  ibv_pd *const pd = LOOKED_UP(verbs, ibv_alloc_pd)(context);
  ibv_exp_cq_init_attr of_cq{};
  ibv_cq *const cq = ibv_exp_create_cq(context, 8, nullptr, nullptr, 0, &of_cq);
  REQUIRE(cq != nullptr);
  ibv_exp_qp_init_attr of_qp{};
  of_qp.send_cq = of_qp.recv_cq = cq;
  of_qp.cap = {8, 8, 1, 1, 0};
  of_qp.qp_type = IBV_QPT_RC;
  of_qp.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  of_qp.pd = pd;
  ibv_qp *const qp = ibv_exp_create_qp(context, &of_qp);
  REQUIRE(qp != nullptr);

  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  CHECK(LOOKED_UP(verbs, ibv_modify_qp)(
            qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  ibv_qp_init_attr of{};
  attr = {};
  CHECK(LOOKED_UP(verbs, ibv_query_qp)(qp, &attr, IBV_QP_STATE, &of) == 0);
  CHECK(attr.qp_state == IBV_QPS_INIT);

  CHECK(LOOKED_UP(verbs, ibv_destroy_qp)(qp) == 0);
  CHECK(LOOKED_UP(verbs, ibv_destroy_cq)(cq) == 0);
  CHECK(LOOKED_UP(verbs, ibv_dealloc_pd)(pd) == 0);
  CHECK(LOOKED_UP(verbs, ibv_close_device)(context) == 0);
  CHECK(dlclose(verbs) == 0);
}

TEST_CASE("a name looked up is the one that the linker finds") {
  for (const char *library : {"libibverbs.so.1", "libmlx5.so.1"}) {
    void *const verbs = opened(library);
    for (const char *name : {"ibv_open_device", "ibv_modify_qp", "mlx5dv_init_obj"}) {
      INFO(library << ' ' << name);
      CHECK(dlsym(verbs, name) == dlsym(RTLD_DEFAULT, name));
    }
    CHECK(dlvsym(verbs, "ibv_create_cq", "IBVERBS_1.1") ==
          dlvsym(RTLD_DEFAULT, "ibv_create_cq", "IBVERBS_1.1"));
    // Not one of ours.
    CHECK(dlsym(verbs, "ibv_wc_status_str") == dlsym(RTLD_DEFAULT, "ibv_wc_status_str"));
    CHECK(dlsym(verbs, "no_such_verb") == nullptr);
    CHECK(dlclose(verbs) == 0);
  }
  void *const loaded = opened("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(dlsym(loaded, "ibv_open_device") != nullptr);
  dlclose(loaded);
}

TEST_CASE("other libraries are opened as by the C library") {
  void *const program = opened(nullptr);
  CHECK(dlsym(program, "ibv_open_device") == dlsym(RTLD_DEFAULT, "ibv_open_device"));
  dlclose(program);
  CHECK(dlopen("no_such_library.so.1", RTLD_NOW) == nullptr);
  CHECK(std::string(dlerror()).find("no_such_library.so.1") != std::string::npos);

  // Found in a folder that only the caller's RUNPATH names.
  CHECK(dlopen(PLUG_IN, RTLD_NOW) == nullptr);
  void *const opener = opened(PLUG_IN_OPENER);
  const auto open = look_up<void *(const char *, int)>(opener, "open_plug_in");
  REQUIRE(open != nullptr);
  CHECK(open(PLUG_IN, RTLD_NOW) != nullptr);
}
