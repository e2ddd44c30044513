// How one inline is put to the test: dispatches(), reports_missing() and
// checks_mask() say what is common to all calls, the tests say what is not.
#pragma once

#include "catch.h"
#include "fake_device.h"

// The library functions that inlines fall back to; base_verbs.cpp.
namespace base {
extern int calls;
extern const void *argument;
extern ibv_pd *pd;
extern ibv_qp qp;
extern ibv_context *opened;  // what ibv_open_device() answers
extern int port_result;      // what ibv_query_port() answers
extern int closed;

void reset();
}  // namespace base

constexpr int untouched = 4711;  // an errno that no call sets

// What a call says when it cannot be dispatched.
template <typename V>
struct Failure {
  V value;
  int error;  // errno afterwards
};
template <typename V>
Failure(V, int) -> Failure<V>;

// The slot is called once, with these arguments; its answer is returned and
// errno stays as it was.
template <auto Slot, typename Call>
void dispatches(FakeDevice &device, Call call, typename Spy<Slot>::Result answer,
                typename Spy<Slot>::Arguments expected) {
  using S = Spy<Slot>;
  S::install(device, answer);
  errno = untouched;
  if constexpr (std::is_void_v<decltype(call())>) call();
  else CHECK(call() == answer);
  CHECK(errno == untouched);
  CHECK(S::calls == 1);
  CHECK((S::arguments == expected));
}

template <typename Call, typename V>
void fails(Call call, Failure<V> failure) {
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
void checks_mask(FakeDevice &device, Call call, const char *function, Mask &mask, uint64_t highest,
                 V invalid, First first, Failure<W> missing) {
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
