// Each inline of the public header against a table of our own: which slot it
// calls with which arguments, how it reports a missing slot and a comp_mask
// out of range, and which of the two it looks at first.
#include "fake_device.h"

#include "catch.h"

// The library functions that inlines fall back to.
namespace base {
int calls;
const void *argument;
ibv_pd *pd;
ibv_qp qp;
ibv_context *opened;
int port_result;
int closed;

void reset() {
  calls = closed = port_result = 0;
  argument = nullptr;
  pd = nullptr;
  opened = nullptr;
}
} // namespace base

extern "C" {
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
  ++base::calls;
  base::pd = pd;
  base::argument = attr;
  return &base::qp;
}
int(ibv_query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *attr) {
  ++base::calls;
  base::argument = attr;
  return base::port_result;
}
struct ibv_context *ibv_open_device(struct ibv_device *) {
  ++base::calls;
  return base::opened;
}
int ibv_close_device(struct ibv_context *) {
  ++base::closed;
  errno = EIO; // must not hide the reason
  return 0;
}
}

namespace {

constexpr int untouched = 4711; // errno that nobody sets

// What a call says when it cannot be dispatched.
template <typename V> struct Failure {
  V value;
  int error; // errno afterwards
};
template <typename V> Failure(V, int) -> Failure<V>;

// The slot is called once, with these arguments; its answer is returned and
// errno stays as it was.
template <auto Slot, typename Call>
void dispatches(FakeDevice &device, Call call, typename Spy<Slot>::Result answer,
                typename Spy<Slot>::Arguments expected) {
  using S = Spy<Slot>;
  S::install(device, answer);
  errno = untouched;
  if constexpr (std::is_void_v<decltype(call())>)
    call();
  else
    CHECK(call() == answer);
  CHECK(errno == untouched);
  CHECK(S::calls == 1);
  CHECK((S::arguments == expected));
}

template <typename Call, typename V> void fails(Call call, Failure<V> failure) {
  errno = untouched;
  CHECK(call() == failure.value);
  CHECK(errno == failure.error);
}

// Three ways for a slot to be missing, one answer.
template <auto Slot, typename Call, typename V>
void reports_missing(FakeDevice &device, Call call, Failure<V> failure) {
  using S = Spy<Slot>;
  SECTION("slot is null") {
    S::install(device);
    S::remove(device);
    fails(call, failure);
  }
  SECTION("table ends before the slot") {
    S::install(device);
    device.resize(S::distance_from_end(device) - 8);
    fails(call, failure);
    CHECK(S::calls == 0);
    // The smallest table that has it is enough.
    device.resize(S::distance_from_end(device));
    call();
    CHECK(S::calls == 1);
  }
  SECTION("no table is attached") {
    S::install(device);
    device.detach();
    fails(call, failure);
    CHECK(S::calls == 0);
  }
  SECTION("context of an old library") {
    S::install(device);
    device.context()->abi_compat = nullptr;
    fails(call, failure);
    CHECK(S::calls == 0);
  }
}

enum class First { slot, mask };

// Masks up to `highest` reach the slot, others do not.
template <auto Slot, typename Call, typename Mask, typename V, typename W>
void checks_mask(FakeDevice &device, Call call, const char *function, Mask &mask,
                 uint64_t highest, V invalid, First first, Failure<W> missing) {
  using S = Spy<Slot>;
  SECTION("highest valid mask") {
    S::install(device);
    mask = static_cast<Mask>(highest);
    call();
    CHECK(S::calls == 1);
  }
  SECTION("mask out of range") {
    const Mask bad[] = {static_cast<Mask>(highest + 1), static_cast<Mask>(~Mask{})};
    for (Mask value : bad) {
      S::install(device);
      mask = value;
      StderrCapture err;
      errno = untouched;
      CHECK(call() == invalid);
      CHECK(errno == EINVAL);
      CHECK(S::calls == 0);
      CHECK(err.text().rfind(std::string(function) + ": invalid comp_mask !!!", 0) == 0);
    }
  }
  SECTION("mask out of range and no slot") {
    S::install(device);
    S::remove(device);
    mask = static_cast<Mask>(highest + 1);
    StderrCapture err;
    errno = untouched;
    if (first == First::slot) {
      CHECK(call() == missing.value);
      CHECK(errno == missing.error);
      CHECK(err.text().empty());
    } else {
      CHECK(call() == invalid);
      CHECK(errno == EINVAL);
    }
  }
}

// Objects with a context, as the library would have made them.
struct Objects {
  FakeDevice device;
  ibv_context *context = device.context();
  ibv_pd pd{};
  ibv_qp qp{};
  ibv_cq cq{};
  ibv_srq srq{};
  ibv_mr mr{};
  ibv_mw mw{};
  ibv_exp_dct dct{};
  ibv_exp_wq wq{};
  ibv_exp_rwq_ind_table ind_table{};
  ibv_exp_dm dm{};
  ibv_exp_flow flow{};
  ibv_exp_res_domain domain{};
  ibv_exp_ec_calc calc{};
  ibv_exp_mkey_list_container list{};

  Objects() {
    base::reset();
    pd.context = qp.context = cq.context = srq.context = mr.context = mw.context = context;
    dct.context = wq.context = ind_table.context = dm.context = flow.context = context;
    domain.context = list.context = context;
    calc.pd = &pd;
  }
};

#define SLOT(name) (&verbs_context_exp::name)

} // namespace

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
    Spy<SLOT(exp_destroy_rwq_ind_table)>::install(device); // first slot of that release
    Spy<SLOT(exp_query_gid_attr)>::install(device);        // in front of it
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
    o.device.detach(); // which needs no table
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
  wr.comp_mask = 0x2e333420; // seen in real programs: never set, never checked
  auto call = [&] { return ibv_exp_post_send(&o.qp, &wr, &bad); };

  dispatches<SLOT(drv_exp_post_send)>(o.device, call, ENOMEM, {&o.qp, &wr, &bad});
  reports_missing<SLOT(drv_exp_post_send)>(o.device, call, Failure{-ENOSYS, untouched});
  CHECK(bad == &wr);
}

TEST_CASE("ibv_exp_post_task", "[qp]") {
  Objects o;
  ibv_exp_task second{}, task{}, *bad = nullptr;
  task.next = &second;
  second.comp_mask = 0xffff; // only the first is checked
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

  dispatches<SLOT(lib_exp_modify_cq)>(o.device, call, EPERM,
                                      {&o.cq, &attr, IBV_EXP_CQ_MODERATION});
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
    if (GENERATE(false, true))
      o.device.detach();
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
  checks_mask<SLOT(drv_exp_query_values)>(o.device, call, "ibv_exp_query_values",
                                          values.comp_mask, 0x7, EINVAL, First::slot, missing);
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
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 0x0000) == 1000002); // across the wrap
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 0xffe0) == 999998);  // before the moment
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
  CHECK(o.mr.pd == &o.pd); // set by the inline
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
  checks_mask<SLOT(lib_exp_alloc_mkey_list_memory)>(o.device, call,
                                                    "ibv_exp_alloc_mkey_list_memory",
                                                    attr.comp_mask, 0, nullptr, First::slot,
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
  checks_mask<SLOT(exp_modify_wq)>(o.device, call, "ibv_exp_modify_wq", attr.attr_mask, 0x7,
                                   EINVAL, First::slot, missing);
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
  auto status = static_cast<ibv_exp_query_intf_status>(77);
  int family;
  auto call = [&] { return ibv_exp_query_intf(o.context, &params, &status); };
  const Failure missing{static_cast<void *>(nullptr), ENOSYS};

  dispatches<SLOT(exp_query_intf)>(o.device, call, &family, {o.context, &params, &status});
  reports_missing<SLOT(exp_query_intf)>(o.device, call, missing);
  checks_mask<SLOT(exp_query_intf)>(o.device, call, "ibv_exp_query_intf", params.comp_mask, 0,
                                    nullptr, First::slot, missing);
  CHECK(status == 77); // never written by the inline
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
  dispatches<SLOT(dealloc_ec_calc)>(
      o.device, [&] { ibv_exp_dealloc_ec_calc(&o.calc); }, {}, {&o.calc});
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
