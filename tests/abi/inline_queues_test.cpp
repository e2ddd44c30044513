// Each inline of the public header against a table of our own: which slot it
// calls with which arguments, how it reports a missing slot and a comp_mask
// out of range, and which of the two it looks at first.
// Here: queues of every kind, and what goes with them.
#include "dispatch.h"

// --- queue pairs

TEST_CASE("ibv_exp_create_qp", "[qp]") {
  Objects o;
  ibv_exp_qp_init_attr attr{};
  attr.pd = &o.pd;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  auto call = [&] { return ibv_exp_create_qp(o.context, &attr); };
  const Failure missing{static_cast<ibv_qp *>(nullptr), ENOSYS};

  dispatches<SLOT(lib_exp_create_qp)>(o.device, call, &o.qp, {o.context, &attr});
  reports_missing<SLOT(lib_exp_create_qp)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_create_qp)>(o.device, call, "ibv_exp_create_qp", attr.comp_mask, 0x1fff,
                                       nullptr, First::slot, missing);

  SECTION("with nothing but a PD it is the base verb") {
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    Spy<SLOT(lib_exp_create_qp)>::install(o.device);
    CHECK(call() == &base::qp);
    CHECK(Spy<SLOT(lib_exp_create_qp)>::calls == 0);
    CHECK(base::calls == 1);
    CHECK(base::pd == &o.pd);
    CHECK(base::argument == &attr);
    o.device.detach();  // which needs no table
    CHECK(call() == &base::qp);
  }
  SECTION("without any bit it is not") {
    attr.comp_mask = 0;
    dispatches<SLOT(lib_exp_create_qp)>(o.device, call, &o.qp, {o.context, &attr});
    CHECK(base::calls == 0);
  }
}

TEST_CASE("ibv_exp_modify_qp", "[qp]") {
  Objects o;
  ibv_exp_qp_attr attr{};
  const uint64_t mask = IBV_EXP_QP_STATE | IBV_EXP_QP_DC_KEY;
  auto call = [&] { return ibv_exp_modify_qp(&o.qp, &attr, mask); };
  const Failure missing{ENOSYS, ENOSYS};

  dispatches<SLOT(lib_exp_modify_qp)>(o.device, call, EBUSY, {&o.qp, &attr, mask});
  reports_missing<SLOT(lib_exp_modify_qp)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_modify_qp)>(o.device, call, "ibv_exp_modify_qp", attr.comp_mask, 0x3,
                                       EINVAL, First::slot, missing);
}

TEST_CASE("ibv_exp_post_send", "[qp]") {
  Objects o;
  ibv_exp_send_wr wr{}, *bad = &wr;
  wr.comp_mask = 0x2e333420;  // seen in real programs: never set, never checked
  auto call = [&] { return ibv_exp_post_send(&o.qp, &wr, &bad); };

  dispatches<SLOT(drv_exp_post_send)>(o.device, call, ENOMEM, {&o.qp, &wr, &bad});
  reports_missing<SLOT(drv_exp_post_send)>(o.device, call, Failure{-ENOSYS, untouched});
  CHECK(bad == &wr);
}

TEST_CASE("ibv_exp_post_task", "[qp]") {
  Objects o;
  ibv_exp_task second{}, task{}, *bad = nullptr;
  task.next = &second;
  second.comp_mask = 0xffff;  // only the first is checked
  auto call = [&] { return ibv_exp_post_task(o.context, &task, &bad); };
  const Failure missing{ENOSYS, untouched};

  dispatches<SLOT(lib_exp_post_task)>(o.device, call, EAGAIN, {o.context, &task, &bad});
  reports_missing<SLOT(lib_exp_post_task)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_post_task)>(o.device, call, "ibv_exp_post_task", task.comp_mask, 0,
                                       EINVAL, First::slot, missing);
}

// --- completion queues

TEST_CASE("ibv_exp_create_cq", "[cq]") {
  Objects o;
  ibv_exp_cq_init_attr attr{};
  ibv_comp_channel channel{};
  int cookie;
  auto call = [&] { return ibv_exp_create_cq(o.context, 16, &cookie, &channel, 3, &attr); };
  const Failure missing{static_cast<ibv_cq *>(nullptr), ENOSYS};
  using S = Spy<SLOT(exp_create_cq)>;

  dispatches<SLOT(exp_create_cq)>(o.device, call, &o.cq, {o.context, 16, &channel, 3, &attr});
  reports_missing<SLOT(exp_create_cq)>(o.device, call, missing);
  checks_mask<SLOT(exp_create_cq)>(o.device, call, "ibv_exp_create_cq", attr.comp_mask, 0x7,
                                   nullptr, First::slot, missing);

  SECTION("it initialises the queue, the context's mutex held meanwhile") {
    channel.refcnt = 5;
    o.cq = {};
    o.cq.comp_events_completed = o.cq.async_events_completed = 9;
    S::install(o.device, &o.cq);
    call();
    CHECK(S::mutex_held);
    CHECK_FALSE(o.device.mutex_is_held());
    CHECK(o.cq.context == o.context);
    CHECK(o.cq.channel == &channel);
    CHECK(o.cq.cq_context == &cookie);
    CHECK(o.cq.comp_events_completed == 0);
    CHECK(o.cq.async_events_completed == 0);
    CHECK(channel.refcnt == 6);
    CHECK(pthread_mutex_trylock(&o.cq.mutex) == 0);
    pthread_mutex_unlock(&o.cq.mutex);
  }
  SECTION("a failure leaves the channel alone and releases the mutex") {
    channel.refcnt = 5;
    S::install(o.device, nullptr);
    S::sets_errno = ENOMEM;
    fails(call, Failure{static_cast<ibv_cq *>(nullptr), ENOMEM});
    CHECK(channel.refcnt == 5);
    CHECK_FALSE(o.device.mutex_is_held());
  }
  SECTION("no channel") {
    S::install(o.device, &o.cq);
    CHECK(ibv_exp_create_cq(o.context, 1, nullptr, nullptr, 0, &attr) == &o.cq);
    CHECK(o.cq.channel == nullptr);
  }
}

TEST_CASE("ibv_exp_modify_cq", "[cq]") {
  Objects o;
  ibv_exp_cq_attr attr{};
  auto call = [&] { return ibv_exp_modify_cq(&o.cq, &attr, IBV_EXP_CQ_MODERATION); };
  const Failure missing{ENOSYS, untouched};

  dispatches<SLOT(lib_exp_modify_cq)>(o.device, call, EPERM, {&o.cq, &attr, IBV_EXP_CQ_MODERATION});
  reports_missing<SLOT(lib_exp_modify_cq)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_modify_cq)>(o.device, call, "ibv_exp_modify_cq", attr.comp_mask, 0x3,
                                       EINVAL, First::slot, missing);
}

TEST_CASE("ibv_exp_poll_cq", "[cq]") {
  Objects o;
  ibv_exp_wc wc[2];
  auto call = [&] { return ibv_exp_poll_cq(&o.cq, 2, wc, 88); };

  dispatches<SLOT(drv_exp_ibv_poll_cq)>(o.device, call, 2, {&o.cq, 2, wc, 88});
  reports_missing<SLOT(drv_exp_ibv_poll_cq)>(o.device, call, Failure{-ENOSYS, untouched});
}

// --- DC targets

TEST_CASE("ibv_exp_create_dct", "[dct]") {
  Objects o;
  ibv_exp_dct_init_attr attr{};
  auto call = [&] { return ibv_exp_create_dct(o.context, &attr); };
  const Failure missing{static_cast<ibv_exp_dct *>(nullptr), ENOSYS};

  o.dct.context = nullptr;
  dispatches<SLOT(create_dct)>(o.device, call, &o.dct, {o.context, &attr});
  CHECK(o.dct.context == o.context);
  CHECK(Spy<SLOT(create_dct)>::mutex_held);
  CHECK_FALSE(o.device.mutex_is_held());
  reports_missing<SLOT(create_dct)>(o.device, call, missing);
  checks_mask<SLOT(create_dct)>(o.device, call, "ibv_exp_create_dct", attr.comp_mask, 0, nullptr,
                                First::slot, missing);

  SECTION("a failure releases the mutex") {
    Spy<SLOT(create_dct)>::install(o.device, nullptr);
    CHECK(call() == nullptr);
    CHECK_FALSE(o.device.mutex_is_held());
  }
}

TEST_CASE("ibv_exp_destroy_dct", "[dct]") {
  Objects o;
  auto call = [&] { return ibv_exp_destroy_dct(&o.dct); };
  dispatches<SLOT(destroy_dct)>(o.device, call, EBUSY, {&o.dct});
  CHECK(Spy<SLOT(destroy_dct)>::mutex_held);
  CHECK_FALSE(o.device.mutex_is_held());
  reports_missing<SLOT(destroy_dct)>(o.device, call, Failure{ENOSYS, ENOSYS});

  SECTION("the target is gone when the slot returns") {
    o.device.table()->destroy_dct = [](ibv_exp_dct *dct) {
      memset(dct, 0x5a, sizeof(*dct));
      return 0;
    };
    CHECK(call() == 0);
    CHECK_FALSE(o.device.mutex_is_held());
  }
}

TEST_CASE("ibv_exp_query_dct", "[dct]") {
  Objects o;
  ibv_exp_dct_attr attr{};
  auto call = [&] { return ibv_exp_query_dct(&o.dct, &attr); };
  const Failure missing{ENOSYS, ENOSYS};

  dispatches<SLOT(query_dct)>(o.device, call, EIO, {&o.dct, &attr});
  CHECK(Spy<SLOT(query_dct)>::mutex_held);
  CHECK_FALSE(o.device.mutex_is_held());
  reports_missing<SLOT(query_dct)>(o.device, call, missing);
  checks_mask<SLOT(query_dct)>(o.device, call, "ibv_exp_query_dct", attr.comp_mask, 0, EINVAL,
                               First::slot, missing);
}

TEST_CASE("ibv_exp_arm_dct", "[dct]") {
  Objects o;
  ibv_exp_arm_attr attr{};
  auto call = [&] { return ibv_exp_arm_dct(&o.dct, &attr); };
  const Failure missing{ENOSYS, ENOSYS};

  dispatches<SLOT(lib_exp_arm_dct)>(o.device, call, ENOTSUP, {&o.dct, &attr});
  CHECK(Spy<SLOT(lib_exp_arm_dct)>::mutex_held);
  CHECK_FALSE(o.device.mutex_is_held());
  reports_missing<SLOT(lib_exp_arm_dct)>(o.device, call, missing);
  checks_mask<SLOT(lib_exp_arm_dct)>(o.device, call, "ibv_exp_arm_dct", attr.comp_mask, 0, EINVAL,
                                     First::slot, missing);
}

TEST_CASE("ibv_exp_poll_dc_info", "[dct]") {
  Objects o;
  ibv_exp_dc_info_ent entries[2];
  auto call = [&] { return ibv_exp_poll_dc_info(o.context, entries, 2, 1); };
  dispatches<SLOT(drv_exp_poll_dc_info)>(o.device, call, 2, {o.context, entries, 2, 1});
  reports_missing<SLOT(drv_exp_poll_dc_info)>(o.device, call, Failure{-1, ENOSYS});
}

// --- work queues, RSS, shared receive queues

TEST_CASE("ibv_exp_create_wq", "[rq]") {
  Objects o;
  ibv_exp_wq_init_attr attr{};
  auto call = [&] { return ibv_exp_create_wq(o.context, &attr); };
  const Failure missing{static_cast<ibv_exp_wq *>(nullptr), ENOSYS};

  dispatches<SLOT(exp_create_wq)>(o.device, call, &o.wq, {o.context, &attr});
  reports_missing<SLOT(exp_create_wq)>(o.device, call, missing);
  checks_mask<SLOT(exp_create_wq)>(o.device, call, "ibv_exp_create_wq", attr.comp_mask, 0xf,
                                   nullptr, First::slot, missing);
}

TEST_CASE("ibv_exp_modify_wq", "[rq]") {
  Objects o;
  ibv_exp_wq_attr attr{};
  auto call = [&] { return ibv_exp_modify_wq(&o.wq, &attr); };
  const Failure missing{ENOSYS, untouched};

  dispatches<SLOT(exp_modify_wq)>(o.device, call, -EINVAL, {&o.wq, &attr});
  reports_missing<SLOT(exp_modify_wq)>(o.device, call, missing);
  checks_mask<SLOT(exp_modify_wq)>(o.device, call, "ibv_exp_modify_wq", attr.attr_mask, 0x7, EINVAL,
                                   First::slot, missing);
}

TEST_CASE("ibv_exp_destroy_wq", "[rq]") {
  Objects o;
  auto call = [&] { return ibv_exp_destroy_wq(&o.wq); };
  dispatches<SLOT(exp_destroy_wq)>(o.device, call, EBUSY, {&o.wq});
  reports_missing<SLOT(exp_destroy_wq)>(o.device, call, Failure{ENOSYS, untouched});
}

TEST_CASE("ibv_exp_create_rwq_ind_table", "[rq]") {
  Objects o;
  ibv_exp_rwq_ind_table_init_attr attr{};
  auto call = [&] { return ibv_exp_create_rwq_ind_table(o.context, &attr); };
  const Failure missing{static_cast<ibv_exp_rwq_ind_table *>(nullptr), ENOSYS};

  dispatches<SLOT(exp_create_rwq_ind_table)>(o.device, call, &o.ind_table, {o.context, &attr});
  reports_missing<SLOT(exp_create_rwq_ind_table)>(o.device, call, missing);
  checks_mask<SLOT(exp_create_rwq_ind_table)>(o.device, call, "ibv_exp_create_rwq_ind_table",
                                              attr.comp_mask, 0, nullptr, First::slot, missing);
}

TEST_CASE("ibv_exp_destroy_rwq_ind_table", "[rq]") {
  Objects o;
  auto call = [&] { return ibv_exp_destroy_rwq_ind_table(&o.ind_table); };
  dispatches<SLOT(exp_destroy_rwq_ind_table)>(o.device, call, EBUSY, {&o.ind_table});
  reports_missing<SLOT(exp_destroy_rwq_ind_table)>(o.device, call, Failure{ENOSYS, untouched});
}

TEST_CASE("ibv_exp_create_srq", "[rq]") {
  Objects o;
  ibv_exp_create_srq_attr attr{};
  auto call = [&] { return ibv_exp_create_srq(o.context, &attr); };
  const Failure missing{static_cast<ibv_srq *>(nullptr), ENOSYS};

  dispatches<SLOT(exp_create_srq)>(o.device, call, &o.srq, {o.context, &attr});
  reports_missing<SLOT(exp_create_srq)>(o.device, call, missing);
  checks_mask<SLOT(exp_create_srq)>(o.device, call, "ibv_exp_create_srq", attr.comp_mask, 0x1f,
                                    nullptr, First::slot, missing);
}

TEST_CASE("ibv_exp_post_srq_ops", "[rq]") {
  Objects o;
  ibv_exp_ops_wr op{}, *bad = nullptr;
  auto call = [&] { return ibv_exp_post_srq_ops(&o.srq, &op, &bad); };

  dispatches<SLOT(exp_post_srq_ops)>(o.device, call, ENOMEM, {&o.srq, &op, &bad});
  CHECK(bad == nullptr);
  reports_missing<SLOT(exp_post_srq_ops)>(o.device, call, Failure{ENOSYS, untouched});
  o.device.detach();
  call();
  CHECK(bad == &op);
}

// --- flow steering

TEST_CASE("ibv_exp_create_flow", "[flow]") {
  Objects o;
  ibv_exp_flow_attr attr{};
  auto call = [&] { return ibv_exp_create_flow(&o.qp, &attr); };

  dispatches<SLOT(lib_exp_ibv_create_flow)>(o.device, call, &o.flow, {&o.qp, &attr});
  reports_missing<SLOT(lib_exp_ibv_create_flow)>(
      o.device, call, Failure{static_cast<ibv_exp_flow *>(nullptr), untouched});

  SECTION("reserved is complained about and cleared, not refused") {
    Spy<SLOT(lib_exp_ibv_create_flow)>::install(o.device, &o.flow);
    attr.reserved = 7;
    StderrCapture err;
    CHECK(call() == &o.flow);
    CHECK(attr.reserved == 0);
    CHECK(err.text().rfind("ibv_exp_create_flow: ", 0) == 0);
  }
}

TEST_CASE("ibv_exp_destroy_flow", "[flow]") {
  Objects o;
  auto call = [&] { return ibv_exp_destroy_flow(&o.flow); };
  dispatches<SLOT(lib_exp_ibv_destroy_flow)>(o.device, call, -EBUSY, {&o.flow});
  reports_missing<SLOT(lib_exp_ibv_destroy_flow)>(o.device, call, Failure{-ENOSYS, untouched});
}

// --- accelerated verbs

TEST_CASE("ibv_exp_create_res_domain", "[intf]") {
  Objects o;
  ibv_exp_res_domain_init_attr attr{};
  auto call = [&] { return ibv_exp_create_res_domain(o.context, &attr); };
  const Failure missing{static_cast<ibv_exp_res_domain *>(nullptr), ENOSYS};

  dispatches<SLOT(exp_create_res_domain)>(o.device, call, &o.domain, {o.context, &attr});
  reports_missing<SLOT(exp_create_res_domain)>(o.device, call, missing);
  checks_mask<SLOT(exp_create_res_domain)>(o.device, call, "ibv_exp_create_res_domain",
                                           attr.comp_mask, 0x3, nullptr, First::slot, missing);
}

TEST_CASE("ibv_exp_destroy_res_domain", "[intf]") {
  Objects o;
  ibv_exp_destroy_res_domain_attr attr{};
  auto call = [&] { return ibv_exp_destroy_res_domain(o.context, &o.domain, &attr); };
  const Failure missing{ENOSYS, ENOSYS};
  using S = Spy<SLOT(exp_destroy_res_domain)>;

  dispatches<SLOT(exp_destroy_res_domain)>(o.device, call, EINVAL, {o.context, &o.domain, &attr});
  reports_missing<SLOT(exp_destroy_res_domain)>(o.device, call, missing);
  checks_mask<SLOT(exp_destroy_res_domain)>(o.device, call, "ibv_exp_destroy_res_domain",
                                            attr.comp_mask, 0, EINVAL, First::slot, missing);
  SECTION("no attributes") {
    S::install(o.device);
    CHECK(ibv_exp_destroy_res_domain(o.context, &o.domain, nullptr) == 0);
    CHECK((S::arguments == S::Arguments{o.context, &o.domain, nullptr}));
  }
}

TEST_CASE("ibv_exp_query_intf", "[intf]") {
  Objects o;
  ibv_exp_query_intf_params params{};
  auto status = IBV_EXP_INTF_STAT_INVAL_OBJ;
  int family;
  auto call = [&] { return ibv_exp_query_intf(o.context, &params, &status); };
  const Failure missing{static_cast<void *>(nullptr), ENOSYS};

  dispatches<SLOT(exp_query_intf)>(o.device, call, &family, {o.context, &params, &status});
  reports_missing<SLOT(exp_query_intf)>(o.device, call, missing);
  checks_mask<SLOT(exp_query_intf)>(o.device, call, "ibv_exp_query_intf", params.comp_mask, 0,
                                    nullptr, First::slot, missing);
  CHECK(status == IBV_EXP_INTF_STAT_INVAL_OBJ);  // never written by the inline
}

TEST_CASE("ibv_exp_release_intf", "[intf]") {
  Objects o;
  ibv_exp_release_intf_params params{};
  int family;
  auto call = [&] { return ibv_exp_release_intf(o.context, &family, &params); };
  const Failure missing{ENOSYS, ENOSYS};
  using S = Spy<SLOT(exp_release_intf)>;

  dispatches<SLOT(exp_release_intf)>(o.device, call, EINVAL, {o.context, &family, &params});
  reports_missing<SLOT(exp_release_intf)>(o.device, call, missing);
  checks_mask<SLOT(exp_release_intf)>(o.device, call, "ibv_exp_release_intf", params.comp_mask, 0,
                                      EINVAL, First::slot, missing);
  SECTION("no parameters") {
    S::install(o.device);
    CHECK(ibv_exp_release_intf(o.context, &family, nullptr) == 0);
    CHECK((S::arguments == S::Arguments{o.context, &family, nullptr}));
  }
}

// --- erasure coding

TEST_CASE("ibv_exp_alloc_ec_calc", "[ec]") {
  Objects o;
  ibv_exp_ec_calc_init_attr attr{};
  auto call = [&] { return ibv_exp_alloc_ec_calc(&o.pd, &attr); };
  const Failure missing{static_cast<ibv_exp_ec_calc *>(nullptr), ENOSYS};

  dispatches<SLOT(alloc_ec_calc)>(o.device, call, &o.calc, {&o.pd, &attr});
  reports_missing<SLOT(alloc_ec_calc)>(o.device, call, missing);
  checks_mask<SLOT(alloc_ec_calc)>(o.device, call, "ibv_exp_alloc_ec_calc", attr.comp_mask, 0x1ff,
                                   nullptr, First::slot, missing);
}

TEST_CASE("ibv_exp_dealloc_ec_calc", "[ec]") {
  Objects o;
  dispatches<SLOT(dealloc_ec_calc)>(o.device, [&] { ibv_exp_dealloc_ec_calc(&o.calc); }, {},
                                    {&o.calc});
  // It returns nothing: errno is all there is.
  reports_missing<SLOT(dealloc_ec_calc)>(
      o.device,
      [&] {
        ibv_exp_dealloc_ec_calc(&o.calc);
        return 0;
      },
      Failure{0, ENOSYS});
}

TEST_CASE("erasure coding operations", "[ec]") {
  Objects o;
  ibv_exp_ec_mem mem{};
  ibv_exp_ec_comp comp{};
  ibv_exp_ec_stripe data{}, code{};
  uint8_t first[4], second[4];
  const Failure positive{ENOSYS, untouched}, negative{-ENOSYS, untouched};

  SECTION("encode_async") {
    auto call = [&] { return ibv_exp_ec_encode_async(&o.calc, &mem, &comp); };
    dispatches<SLOT(ec_encode_async)>(o.device, call, EIO, {&o.calc, &mem, &comp});
    reports_missing<SLOT(ec_encode_async)>(o.device, call, positive);
  }
  SECTION("encode_sync") {
    auto call = [&] { return ibv_exp_ec_encode_sync(&o.calc, &mem); };
    dispatches<SLOT(ec_encode_sync)>(o.device, call, EIO, {&o.calc, &mem});
    reports_missing<SLOT(ec_encode_sync)>(o.device, call, positive);
  }
  SECTION("decode_async") {
    auto call = [&] { return ibv_exp_ec_decode_async(&o.calc, &mem, first, second, &comp); };
    dispatches<SLOT(ec_decode_async)>(o.device, call, EIO, {&o.calc, &mem, first, second, &comp});
    reports_missing<SLOT(ec_decode_async)>(o.device, call, positive);
  }
  SECTION("decode_sync") {
    auto call = [&] { return ibv_exp_ec_decode_sync(&o.calc, &mem, first, second); };
    dispatches<SLOT(ec_decode_sync)>(o.device, call, EIO, {&o.calc, &mem, first, second});
    reports_missing<SLOT(ec_decode_sync)>(o.device, call, positive);
  }
  SECTION("update_async") {
    auto call = [&] { return ibv_exp_ec_update_async(&o.calc, &mem, first, second, &comp); };
    dispatches<SLOT(ec_update_async)>(o.device, call, -EIO, {&o.calc, &mem, first, second, &comp});
    reports_missing<SLOT(ec_update_async)>(o.device, call, negative);
  }
  SECTION("update_sync") {
    auto call = [&] { return ibv_exp_ec_update_sync(&o.calc, &mem, first, second); };
    dispatches<SLOT(ec_update_sync)>(o.device, call, -EIO, {&o.calc, &mem, first, second});
    reports_missing<SLOT(ec_update_sync)>(o.device, call, negative);
  }
  SECTION("poll: a missing slot looks like a count, as it always did") {
    auto call = [&] { return ibv_exp_ec_poll(&o.calc, 8); };
    dispatches<SLOT(ec_poll)>(o.device, call, 3, {&o.calc, 8});
    reports_missing<SLOT(ec_poll)>(o.device, call, positive);
  }
  SECTION("encode_send") {
    auto call = [&] { return ibv_exp_ec_encode_send(&o.calc, &mem, &data, &code); };
    dispatches<SLOT(ec_encode_send)>(o.device, call, -EIO, {&o.calc, &mem, &data, &code});
    reports_missing<SLOT(ec_encode_send)>(o.device, call, negative);
  }
}

// --- peer-direct

TEST_CASE("peer-direct operations", "[peer]") {
  Objects o;
  ibv_exp_peer_commit commit{};
  ibv_exp_rollback_ctx rollback{};
  ibv_exp_peer_peek peek{};
  ibv_exp_peer_abort_peek abort_peek{};
  const Failure missing{ENOSYS, untouched};

  SECTION("commit") {
    auto call = [&] { return ibv_exp_peer_commit_qp(&o.qp, &commit); };
    dispatches<SLOT(exp_peer_commit_qp)>(o.device, call, -ENOSPC, {&o.qp, &commit});
    reports_missing<SLOT(exp_peer_commit_qp)>(o.device, call, missing);
  }
  SECTION("rollback uses the slot of the older name") {
    auto call = [&] { return ibv_exp_rollback_qp(&o.qp, &rollback); };
    dispatches<SLOT(exp_rollback_send)>(o.device, call, -ERANGE, {&o.qp, &rollback});
    reports_missing<SLOT(exp_rollback_send)>(o.device, call, missing);
  }
  SECTION("peek") {
    auto call = [&] { return ibv_exp_peer_peek_cq(&o.cq, &peek); };
    dispatches<SLOT(exp_peer_peek_cq)>(o.device, call, E2BIG, {&o.cq, &peek});
    reports_missing<SLOT(exp_peer_peek_cq)>(o.device, call, missing);
  }
  SECTION("abort peek") {
    auto call = [&] { return ibv_exp_peer_abort_peek_cq(&o.cq, &abort_peek); };
    dispatches<SLOT(exp_peer_abort_peek_cq)>(o.device, call, EINVAL, {&o.cq, &abort_peek});
    reports_missing<SLOT(exp_peer_abort_peek_cq)>(o.device, call, missing);
  }
}
