// Each inline of the public header against a table of our own: which slot it
// calls with which arguments, how it reports a missing slot and a comp_mask
// out of range, and which of the two it looks at first.
// Here: the lookup itself, devices, memory.
#include "dispatch.h"

TEST_CASE("a table is found wherever it lies and however long it is", "[lookup]") {
  SECTION("below the context") {
    FakeDevice device(FakeDevice::Place::below);
    CHECK(verbs_get_exp_ctx(device.context()) == device.table());
  }
  SECTION("above the context") {
    FakeDevice device(FakeDevice::Place::above);
    CHECK(verbs_get_exp_ctx(device.context()) == device.table());
  }
  SECTION("longer than ours, of a later release") {
    FakeDevice device(FakeDevice::Place::below, sizeof(verbs_context_exp) + 64);
    using S = Spy<SLOT(exp_alloc_dm)>;
    S::install(device);
    CHECK(verbs_get_exp_ctx_op(device.context(), exp_alloc_dm) == device.table());
  }
  SECTION("shorter than ours, of MLNX_OFED 3.1") {
    FakeDevice device(FakeDevice::Place::below, 488);
    Spy<SLOT(exp_destroy_rwq_ind_table)>::install(device);  // first slot of that release
    Spy<SLOT(exp_query_gid_attr)>::install(device);         // in front of it
    CHECK(verbs_get_exp_ctx_op(device.context(), exp_destroy_rwq_ind_table));
    CHECK_FALSE(verbs_get_exp_ctx_op(device.context(), exp_query_gid_attr));
  }
  SECTION("other feature bits do not announce one") {
    FakeDevice device;
    auto *words = reinterpret_cast<ibvexp_context_words *>(device.context()) - 1;
    words->has_comp_mask = ~static_cast<uint64_t>(VERBS_CONTEXT_EXP);
    CHECK_FALSE(verbs_get_exp_ctx(device.context()));
  }
  SECTION("no context") { CHECK_FALSE(verbs_get_exp_ctx(nullptr)); }
}

TEST_CASE("the two words lie where rdma-core's verbs_context has them", "[lookup]") {
  STATIC_REQUIRE(offsetof(verbs_context, context) - offsetof(verbs_context, sz) == 8);
  STATIC_REQUIRE(sizeof(ibvexp_context_words) - offsetof(ibvexp_context_words, sz) == 8);
  STATIC_REQUIRE(sizeof(verbs_context) - offsetof(verbs_context, context) == sizeof(ibv_context));
}

TEST_CASE("verbs_set_exp_ctx_op fills slots that the table has", "[lookup]") {
  FakeDevice device;
  auto *table = device.table();
  verbs_set_exp_ctx_op(table, exp_free_dm, Spy<SLOT(exp_free_dm)>::slot);
  CHECK(table->exp_free_dm == Spy<SLOT(exp_free_dm)>::slot);

  device.resize(488);
  verbs_set_exp_ctx_op(table, exp_alloc_dm, Spy<SLOT(exp_alloc_dm)>::slot);
  CHECK(table->exp_alloc_dm == nullptr);

  verbs_context_exp *none = nullptr;
  verbs_set_exp_ctx_op(none, exp_free_dm, nullptr);
}

// --- devices

TEST_CASE("ibv_exp_query_device", "[device]") {
  Objects o;
  ibv_exp_device_attr attr{};
  auto call = [&] { return ibv_exp_query_device(o.context, &attr); };
  const Failure missing{ENOSYS, untouched};

  dispatches<SLOT(lib_exp_query_device)>(o.device, call, EIO, {o.context, &attr});
  reports_missing<SLOT(lib_exp_query_device)>(o.device, call, missing);

  SECTION("comp_mask has no bound, comp_mask_2 counts only if bit 31 opens it") {
    attr.comp_mask = 0x7fffffff;
    attr.comp_mask_2 = ~0ULL;
    dispatches<SLOT(lib_exp_query_device)>(o.device, call, 0, {o.context, &attr});
  }
  SECTION("RESERVED - 1 is everything") {
    attr.comp_mask = static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_RESERVED - 1);
    CHECK(attr.comp_mask == 0xffffffff);
    checks_mask<SLOT(lib_exp_query_device)>(o.device, call, "ibv_exp_query_device",
                                            attr.comp_mask_2, 0x3, EINVAL, First::slot, missing);
  }
}

TEST_CASE("ibv_exp_query_port", "[device]") {
  Objects o;
  ibv_exp_port_attr attr{};
  attr.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
  attr.mask1 = IBV_EXP_QUERY_PORT_MASK;
  auto call = [&] { return ibv_exp_query_port(o.context, 1, &attr); };
  using S = Spy<SLOT(lib_exp_query_port)>;

  dispatches<SLOT(lib_exp_query_port)>(o.device, call, EOPNOTSUPP, {o.context, 1, &attr});

  SECTION("comp_mask 0 is the base verb's exported symbol") {
    S::install(o.device);
    attr.comp_mask = 0;
    attr.link_layer = 77;
    base::port_result = ENODEV;
    CHECK(call() == ENODEV);
    CHECK(base::argument == &attr);
    CHECK(attr.link_layer == IBV_LINK_LAYER_UNSPECIFIED);
    CHECK(S::calls == 0);
  }
  SECTION("without a table the base verb answers") {
    o.device.detach();
    base::port_result = EIO;
    CHECK(call() == EIO);
    CHECK(base::argument == &attr);
  }
  SECTION("wrong masks, judged before the slot") {
    S::install(o.device);
    if (GENERATE(false, true)) o.device.detach();
    const uint32_t masks[][2] = {{2, 1}, {3, 1}, {1, 0x100000}, {0x80000000, 0}};
    for (auto &[comp_mask, mask1] : masks) {
      attr.comp_mask = comp_mask;
      attr.mask1 = mask1;
      fails(call, Failure{-EINVAL, EINVAL});
    }
    CHECK(S::calls == 0);
    CHECK(base::calls == 0);
  }
}

TEST_CASE("ibv_exp_query_gid_attr", "[device]") {
  Objects o;
  ibv_exp_gid_attr attr{};
  auto call = [&] { return ibv_exp_query_gid_attr(o.context, 2, 300, &attr); };
  const Failure missing{ENOSYS, untouched};

  dispatches<SLOT(exp_query_gid_attr)>(o.device, call, ENOENT, {o.context, 2, 300, &attr});
  reports_missing<SLOT(exp_query_gid_attr)>(o.device, call, missing);
  checks_mask<SLOT(exp_query_gid_attr)>(o.device, call, "ibv_exp_query_gid_attr", attr.comp_mask,
                                        0x3, EINVAL, First::slot, missing);
}

TEST_CASE("ibv_exp_query_values", "[device]") {
  Objects o;
  ibv_exp_values values{};
  auto call = [&] { return ibv_exp_query_values(o.context, IBV_EXP_VALUES_HW_CLOCK, &values); };
  const Failure missing{-ENOSYS, ENOSYS};

  dispatches<SLOT(drv_exp_query_values)>(o.device, call, -EIO,
                                         {o.context, IBV_EXP_VALUES_HW_CLOCK, &values});
  reports_missing<SLOT(drv_exp_query_values)>(o.device, call, missing);
  checks_mask<SLOT(drv_exp_query_values)>(o.device, call, "ibv_exp_query_values", values.comp_mask,
                                          0x7, EINVAL, First::slot, missing);
}

TEST_CASE("ibv_exp_cqe_ts_to_ns", "[device]") {
  // 8 cycles per ns on a 16-bit counter that is about to wrap.
  ibv_exp_clock_info info{};
  info.cycles = 0xfff0;
  info.nsec = 1000000;
  info.mask = 0xffff;
  info.shift = 3;
  info.mult = 1;

  CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xfff0) == 1000000);
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xfff8) == 1000001);
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 0x0000) == 1000002);  // across the wrap
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xffe0) == 999998);   // before the moment
  // The half of the range that counts forward, and the other.
  CHECK(ibv_exp_cqe_ts_to_ns(&info, (0xfff0 + 0x7fff) & 0xffff) == 1000000 + 0x7fff / 8);
  CHECK(ibv_exp_cqe_ts_to_ns(&info, (0xfff0 + 0x8000) & 0xffff) == 1000000 - 0x8000 / 8);

  SECTION("the lost fraction is added forward and taken off backward") {
    info.frac = 4;
    CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xfff4) == 1000001);
    CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xffe8) == 1000000);
  }
  SECTION("comp_mask out of range") {
    info.comp_mask = 1;
    StderrCapture err;
    errno = untouched;
    CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xfff0) == 0);
    CHECK(errno == EINVAL);
    CHECK(err.text().rfind("ibv_exp_cqe_ts_to_ns: invalid comp_mask !!!", 0) == 0);
  }
}

TEST_CASE("ibv_exp_open_device", "[device]") {
  Objects o;
  ibv_device device{};
  ibv_exp_open_device_attr attr{};
  attr.comp_mask = IBV_EXP_SET_ATTR_PEER_INFO;
  base::opened = o.context;
  auto call = [&] { return ibv_exp_open_device(&device, &attr); };
  using S = Spy<SLOT(drv_exp_set_context_attr)>;
  const auto null = static_cast<ibv_context *>(nullptr);

  SECTION("success") {
    S::install(o.device);
    CHECK(call() == o.context);
    CHECK((S::arguments == S::Arguments{o.context, &attr}));
    CHECK(base::closed == 0);
  }
  SECTION("the slot refuses: closed, its errno is kept") {
    S::install(o.device, 1);
    S::sets_errno = ENOTSUP;
    fails(call, Failure{null, ENOTSUP});
    CHECK(base::closed == 1);
  }
  SECTION("no slot: closed") {
    o.device.detach();
    fails(call, Failure{null, ENOSYS});
    CHECK(base::closed == 1);
  }
  SECTION("no device") {
    base::opened = nullptr;
    fails(call, Failure{null, untouched});
    CHECK(base::closed == 0);
  }
  SECTION("masks are judged before anything is opened") {
    StderrCapture err;
    attr.comp_mask = 0;
    fails(call, Failure{null, EINVAL});
    CHECK(err.text().empty());
    attr.comp_mask = 2;
    fails(call, Failure{null, EINVAL});
    CHECK(err.text().rfind("ibv_exp_open_device: invalid comp_mask !!!", 0) == 0);
    CHECK(base::calls == 0);
  }
}

TEST_CASE("ibv_exp_get_provider_func", "[device]") {
  Objects o;
  int post_send, poll_cq, post_recv;
  auto put = [](auto &op, void *p) { memcpy(&op, &p, sizeof(p)); };
  put(o.context->ops.post_send, &post_send);
  put(o.context->ops.poll_cq, &poll_cq);
  put(o.context->ops.post_recv, &post_recv);
  auto get = [&](ibv_exp_func_name name) { return ibv_exp_get_provider_func(o.context, name); };

  CHECK(get(IBV_POST_SEND_FUNC) == &post_send);
  CHECK(get(IBV_POLL_CQ_FUNC) == &poll_cq);
  CHECK(get(IBV_POST_RECV_FUNC) == &post_recv);

  Spy<SLOT(drv_exp_post_send)>::install(o.device);
  Spy<SLOT(drv_exp_ibv_poll_cq)>::install(o.device);
  CHECK(reinterpret_cast<drv_exp_post_send_func>(get(IBV_EXP_POST_SEND_FUNC)) ==
        Spy<SLOT(drv_exp_post_send)>::slot);
  CHECK(reinterpret_cast<drv_exp_poll_cq_func>(get(IBV_EXP_POLL_CQ_FUNC)) ==
        Spy<SLOT(drv_exp_ibv_poll_cq)>::slot);

  const Failure none{static_cast<void *>(nullptr), ENOSYS};
  fails([&] { return get(static_cast<ibv_exp_func_name>(5)); }, none);
  o.device.detach();
  fails([&] { return get(IBV_EXP_POST_SEND_FUNC); }, none);
  fails([&] { return get(IBV_EXP_POLL_CQ_FUNC); }, none);
}

TEST_CASE("ibv_exp_use_priv_env", "[device]") {
  Objects o;
  auto call = [&] { return ibv_exp_use_priv_env(o.context); };
  dispatches<SLOT(lib_exp_use_priv_env)>(o.device, call, -1, {o.context});
  reports_missing<SLOT(lib_exp_use_priv_env)>(o.device, call, Failure{-1, ENOSYS});
}

TEST_CASE("ibv_exp_setenv", "[device]") {
  Objects o;
  const char *name = "IBVEXP_TEST_VARIABLE", *value = "1";
  auto call = [&] { return ibv_exp_setenv(o.context, name, value, 1); };
  unsetenv(name);

  dispatches<SLOT(lib_exp_setenv)>(o.device, call, -1, {o.context, name, value, 1});
  CHECK(getenv(name) == nullptr);

  o.device.detach();
  CHECK(call() == 0);
  CHECK(std::string(getenv(name)) == value);
  unsetenv(name);
}

// --- memory

TEST_CASE("ibv_exp_reg_mr", "[mr]") {
  Objects o;
  ibv_exp_reg_mr_in in{};
  in.pd = &o.pd;
  auto call = [&] { return ibv_exp_reg_mr(&in); };
  const Failure missing{static_cast<ibv_mr *>(nullptr), ENOSYS};

  dispatches<SLOT(lib_exp_reg_mr)>(o.device, call, &o.mr, {&in});
  reports_missing<SLOT(lib_exp_reg_mr)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_reg_mr)>(o.device, call, "ibv_exp_reg_mr", in.comp_mask, 0x3, nullptr,
                                    First::slot, missing);
}

TEST_CASE("ibv_exp_reg_shared_mr never succeeds", "[mr]") {
  Objects o;
  ibv_exp_reg_shared_mr_in in{};
  in.pd = &o.pd;
  Spy<SLOT(lib_exp_ibv_reg_shared_mr)>::install(o.device, &o.mr);
  fails([&] { return ibv_exp_reg_shared_mr(&in); },
        Failure{static_cast<ibv_mr *>(nullptr), ENOSYS});
  CHECK(Spy<SLOT(lib_exp_ibv_reg_shared_mr)>::calls == 0);
}

TEST_CASE("ibv_exp_create_mr", "[mr]") {
  Objects o;
  ibv_exp_create_mr_in in{};
  in.pd = &o.pd;
  auto call = [&] { return ibv_exp_create_mr(&in); };
  const Failure missing{static_cast<ibv_mr *>(nullptr), ENOSYS};

  dispatches<SLOT(lib_exp_create_mr)>(o.device, call, &o.mr, {&in});
  CHECK(o.mr.pd == &o.pd);  // set by the inline
  reports_missing<SLOT(lib_exp_create_mr)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_create_mr)>(o.device, call, "ibv_exp_create_mr", in.comp_mask, 0,
                                       nullptr, First::slot, missing);
}

TEST_CASE("ibv_exp_query_mkey", "[mr]") {
  Objects o;
  ibv_exp_mkey_attr attr{};
  auto call = [&] { return ibv_exp_query_mkey(&o.mr, &attr); };
  const Failure missing{ENOSYS, ENOSYS};

  dispatches<SLOT(lib_exp_query_mkey)>(o.device, call, EIO, {&o.mr, &attr});
  reports_missing<SLOT(lib_exp_query_mkey)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_query_mkey)>(o.device, call, "ibv_exp_query_mkey", attr.comp_mask, 0,
                                        EINVAL, First::slot, missing);
}

TEST_CASE("ibv_exp_alloc_mkey_list_memory", "[mr]") {
  Objects o;
  ibv_exp_mkey_list_container_attr attr{};
  attr.pd = &o.pd;
  auto call = [&] { return ibv_exp_alloc_mkey_list_memory(&attr); };
  const Failure missing{static_cast<ibv_exp_mkey_list_container *>(nullptr), ENOSYS};

  dispatches<SLOT(lib_exp_alloc_mkey_list_memory)>(o.device, call, &o.list, {&attr});
  reports_missing<SLOT(lib_exp_alloc_mkey_list_memory)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_alloc_mkey_list_memory)>(
      o.device, call, "ibv_exp_alloc_mkey_list_memory", attr.comp_mask, 0, nullptr, First::slot,
      missing);
}

TEST_CASE("ibv_exp_dealloc_mkey_list_memory", "[mr]") {
  Objects o;
  auto call = [&] { return ibv_exp_dealloc_mkey_list_memory(&o.list); };
  dispatches<SLOT(lib_exp_dealloc_mkey_list_memory)>(o.device, call, EIO, {&o.list});
  reports_missing<SLOT(lib_exp_dealloc_mkey_list_memory)>(o.device, call, Failure{ENOSYS, ENOSYS});
}

TEST_CASE("ibv_exp_prefetch_mr", "[mr]") {
  Objects o;
  ibv_exp_prefetch_attr attr{};
  auto call = [&] { return ibv_exp_prefetch_mr(&o.mr, &attr); };
  const Failure missing{ENOSYS, ENOSYS};

  dispatches<SLOT(lib_exp_prefetch_mr)>(o.device, call, EFAULT, {&o.mr, &attr});
  reports_missing<SLOT(lib_exp_prefetch_mr)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_prefetch_mr)>(o.device, call, "ibv_exp_prefetch_mr", attr.comp_mask, 0,
                                         EINVAL, First::slot, missing);
}

TEST_CASE("ibv_exp_bind_mw", "[mr]") {
  Objects o;
  ibv_exp_mw_bind bind{};
  bind.mw = &o.mw;
  auto call = [&] { return ibv_exp_bind_mw(&bind); };
  const Failure missing{ENOSYS, ENOSYS};

  dispatches<SLOT(lib_exp_bind_mw)>(o.device, call, EPERM, {&bind});
  reports_missing<SLOT(lib_exp_bind_mw)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_bind_mw)>(o.device, call, "ibv_exp_bind_mw", bind.comp_mask, 0, EINVAL,
                                     First::slot, missing);
}

TEST_CASE("ibv_exp_alloc_dm", "[mr]") {
  Objects o;
  ibv_exp_alloc_dm_attr attr{};
  auto call = [&] { return ibv_exp_alloc_dm(o.context, &attr); };
  const Failure missing{static_cast<ibv_exp_dm *>(nullptr), untouched};

  dispatches<SLOT(exp_alloc_dm)>(o.device, call, &o.dm, {o.context, &attr});
  reports_missing<SLOT(exp_alloc_dm)>(o.device, call, missing);
  checks_mask<SLOT(exp_alloc_dm)>(o.device, call, "ibv_exp_alloc_dm", attr.comp_mask, 0, nullptr,
                                  First::mask, missing);
}

TEST_CASE("ibv_exp_free_dm", "[mr]") {
  Objects o;
  auto call = [&] { return ibv_exp_free_dm(&o.dm); };
  dispatches<SLOT(exp_free_dm)>(o.device, call, EBUSY, {&o.dm});
  reports_missing<SLOT(exp_free_dm)>(o.device, call, Failure{ENOSYS, untouched});
}

TEST_CASE("ibv_exp_memcpy_dm", "[mr]") {
  Objects o;
  ibv_exp_memcpy_dm_attr attr{};
  auto call = [&] { return ibv_exp_memcpy_dm(&o.dm, &attr); };
  const Failure missing{ENOSYS, untouched};

  dispatches<SLOT(exp_memcpy_dm)>(o.device, call, EIO, {&o.dm, &attr});
  reports_missing<SLOT(exp_memcpy_dm)>(o.device, call, missing);
  checks_mask<SLOT(exp_memcpy_dm)>(o.device, call, "ibv_exp_memcpy_dm", attr.comp_mask, 0, EINVAL,
                                   First::mask, missing);
}
