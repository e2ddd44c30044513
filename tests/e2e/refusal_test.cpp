// What is refused, verb by verb: every entry point that is not supported, through
// its symbol and its slot, and every exported symbol with null pointers.
#include <dlfcn.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <rdma/rdma_cma.h>

#include <set>
#include <string>
#include <tuple>

#include "../support/entry_node.h"
#include "../support/refused.h"
#include "rig.h"
#include "table/compat.h"

using namespace ibvexp;

namespace {

constexpr int untouched = 4711;

// Room behind every pointer argument: zeros, and the context where the type has
// one.
struct Objects {
  Rig rig;
  ibv_mw window{};
  alignas(64) unsigned char room[8][1024] = {};

  template <class T>
  void fill(T &object) {
    if constexpr (requires { object.context = rig.context.get(); })
      object.context = rig.context.get();
    if constexpr (requires { object.pd = rig.pd.get(); }) object.pd = rig.pd.get();
    if constexpr (requires { object.mw = &window; }) {
      window.context = rig.context.get();
      object.mw = &window;
    }
  }

  template <class Argument>
  Argument make(std::size_t n) {
    if constexpr (std::is_same_v<Argument, ibv_context *>) return rig.context.get();
    else if constexpr (std::is_same_v<Argument, ibv_device *>) return rig.context->device;
    else if constexpr (std::is_same_v<Argument, ibv_pd *>) return rig.pd.get();
    else if constexpr (std::is_pointer_v<Argument>) {
      using T = std::remove_const_t<std::remove_pointer_t<Argument>>;
      auto *object = reinterpret_cast<T *>(room[n]);
      if constexpr (!std::is_void_v<T> && !std::is_pointer_v<T> && std::is_class_v<T>)
        if constexpr (requires { sizeof(T); }) fill(*object);
      return object;
    } else {
      return Argument{};
    }
  }
};

// The answer to a call, whatever its type.
struct Answer_ {
  long value;  // a pointer is 0 or not
  int error;   // errno afterwards
};

template <class R, class... Args>
Answer_ call(R (*function)(Args...), std::tuple<Args...> arguments) {
  errno = untouched;
  if constexpr (std::is_void_v<R>) {
    std::apply(function, arguments);
    return {0, errno};
  } else {
    const R value = std::apply(function, arguments);
    const int error = errno;
    if constexpr (std::is_pointer_v<R>) return {value != nullptr, error};
    else return {static_cast<long>(value), error};
  }
}

template <class... Args, std::size_t... n>
std::tuple<Args...> plausible(Objects &objects, std::index_sequence<n...>) {
  return {objects.make<Args>(n)...};
}

// returns_pointer: a slot whose verb returns NULL may itself return a number.
void check_shape(Shape shape, const Answer_ &got, int reason, bool returns_pointer) {
  CHECK(got.error == reason);
  switch (shape) {
    case Shape::positive:
    case Shape::positive_bad: CHECK(got.value == reason); break;
    case Shape::negative: CHECK(got.value == -reason); break;
    case Shape::minus_one: CHECK(got.value == -1); break;
    case Shape::null_errno:
    case Shape::null_status:
    case Shape::null: CHECK(got.value == (returns_pointer ? 0 : reason)); break;
    case Shape::void_errno:
    case Shape::zero: CHECK(got.value == 0); break;
    case Shape::no_symbol: CHECK(false);
  }
}

template <class F>
struct Signature;

template <class R, class... Args>
struct Signature<R(Args...)> {
  static constexpr bool starts_with_pointer = [] {
    if constexpr (sizeof...(Args) == 0) return false;
    else return std::is_pointer_v<std::tuple_element_t<0, std::tuple<Args...>>>;
  }();

  // With plausible arguments; the third one is examined afterwards.
  static void refused(const refused::Call &known, R (*function)(Args...), Objects &objects) {
    std::memset(objects.room, 0, sizeof(objects.room));
    const auto arguments = plausible<Args...>(objects, std::index_sequence_for<Args...>{});
    const Shape shape = known.shape;
    check_shape(shape, call(function, arguments), ENOTSUP, std::is_pointer_v<R>);
    if constexpr (sizeof...(Args) > 2) {
      if constexpr (std::is_pointer_v<
                        std::remove_pointer_t<std::tuple_element_t<2, std::tuple<Args...>>>>)
        if (shape == Shape::positive_bad) CHECK(*std::get<2>(arguments) == std::get<1>(arguments));
    }
  }

  // A verb that is refused as a whole may not look at its arguments.
  static void nulls(EntryId id, R (*function)(Args...), bool refused) {
    const Answer_ got = call(function, std::tuple<Args...>{});
    const bool all_the_same =
        refused && (got.error == ENOTSUP || got.value == ENOTSUP || got.value == -ENOTSUP);
    check_shape(row(id).shape, got, all_the_same ? ENOTSUP : EINVAL, std::is_pointer_v<R>);
  }
};

template <class F>
F *symbol(EntryId id) {
  auto *found = dlvsym(RTLD_DEFAULT, std::string(row(id).name).c_str(), node_of(row(id)));
  INFO(row(id).name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<F *>(found);
}

}  // namespace

TEST_CASE("unsupported entry points say so through their symbol [rows:entry,refused]") {
  Objects objects;
#define REFUSED_CALL(name, shape)                                                         \
  {                                                                                       \
    INFO(#name);                                                                          \
    using F = std::remove_pointer_t<decltype(&::name)>;                                   \
    Signature<F>::refused(*refused::find_call(#name), symbol<F>(EntryId::name), objects); \
  }
#define REFUSED_VALUE(owner, name)
#include "../unit/facts/refused.def"
}

TEST_CASE("unsupported entry points say so through their slot [rows:entry,refused]") {
  Objects objects;
  const verbs_context_exp *table = verbs_get_exp_ctx(objects.rig.context.get());
  REQUIRE(table != nullptr);
  int checked = 0;
#define IBVEXP_SLOT(name, entry)                                                          \
  if (const refused::Call *known = refused::find_call(#entry)) {                          \
    INFO(#name);                                                                          \
    Signature<std::remove_pointer_t<decltype(table->name)>>::refused(*known, table->name, \
                                                                     objects);            \
    ++checked;                                                                            \
  }
#include "table/slots.def"
  CHECK(checked > 20);
}

TEST_CASE("symbols survive null pointers [rows:entry,symbol]") {
  // Null is a legal argument of the first; the second takes none.
  const std::set<std::string_view> exempt = {"ibv_exp_get_device_list", "rdma_lib_reset"};
#define NULLS_SYMBOL(name)                                         \
  if (!exempt.contains(#name)) {                                   \
    INFO(#name);                                                   \
    using F = std::remove_pointer_t<decltype(&::name)>;            \
    if constexpr (Signature<F>::starts_with_pointer)               \
      Signature<F>::nulls(EntryId::name, symbol<F>(EntryId::name), \
                          refused::find_call(#name) != nullptr);   \
  }
#define NULLS_slot_and_symbol(name) NULLS_SYMBOL(name)
#define NULLS_symbol(name) NULLS_SYMBOL(name)
#define NULLS_inline_only(name)
#define NULLS_absent(name)
#define IBVEXP_ENTRY(name, family, door, ...) NULLS_##door(name)
#include "table/entries.def"
}
