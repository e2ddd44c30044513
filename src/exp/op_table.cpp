// The operation table, filled slot by slot as slots.def says.
#include "exp/boundary.h"

namespace ibvexp {

namespace {

// Inlines call these with context->mutex held. libibverbs takes it to create a CQ with a channel, which
// this thread (queue/beside.h) or another one with our locks may do meanwhile: so it is released here.
constexpr bool holds_mutex(EntryId id) {
  return id == EntryId::ibv_exp_create_dct || id == EntryId::ibv_exp_destroy_dct ||
         id == EntryId::ibv_exp_query_dct || id == EntryId::ibv_exp_arm_dct;
}

template <EntryId id, bool counted, class R, class First, class... Rest>
struct Unlocked {
  static R call(First first, Rest... rest) noexcept {
    using Slot = SlotCall<id, counted, R, First, Rest...>;
    ibv_context *const context = first != nullptr ? context_of(first) : nullptr;
    if (context == nullptr) return Slot::call(first, rest...);
    pthread_mutex_t &mutex = context->mutex;
    const bool held = pthread_mutex_trylock(&mutex) != 0;
    pthread_mutex_unlock(&mutex);
    if (!held) return Slot::call(first, rest...);  // not called by the inline
    const R answer = Slot::call(first, rest...);
    pthread_mutex_lock(&mutex);
    return answer;
  }
  [[gnu::noinline]] static R call_traced(First first, Rest... rest) noexcept {
    return traced<id, Unlocked<id, true, R, First, Rest...>, R>(__builtin_return_address(0), first,
                                                                rest...);
  }
};

template <EntryId id, class Member>
struct Fills;

template <EntryId id, class R, class... Args>
struct Fills<id, R (*)(Args...)> {
  using Slot = std::conditional_t<holds_mutex(id), Unlocked<id, false, R, Args...>,
                                  SlotCall<id, false, R, Args...>>;
  static auto function() -> R (*)(Args...) {
    if constexpr (trace::compiled)
      if (trace::on()) return &Slot::call_traced;
    return &Slot::call;
  }
};

}  // namespace

void fill_table(verbs_context_exp &table) noexcept {
#define IBVEXP_SLOT(name, entry) \
  table.name = Fills<EntryId::entry, decltype(table.name)>::function();
#include "table/slots.def"
  // The other words stay null.
  table.sz = sizeof(table);
}

}  // namespace ibvexp
