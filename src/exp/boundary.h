// Between C callers and the functions in src/translate. A call comes in by a slot of the table
// (SlotCall) or by a symbol (SymbolCall, which attaches the context and goes on as the slot does):
//
//   call          the engine's queues first, for work requests and completions
//   call_any      is the row served, is a switch on, are the objects there
//   serve         arguments with fronts become rdma-core's objects, then the handler
//   refuse, fail  the answer in the row's shape (error_shape.h)
//
// With tracing on, `traced` stands around each of the two.
#pragma once

#include <algorithm>
#include <iterator>
#include <tuple>
#include <type_traits>

#include "base/log.h"
#include "base/nth.h"
#include "base/uncancelled.h"
#include "exp/attachment.h"
#include "exp/context_of.h"
#include "exp/error_shape.h"
#include "exp/handlers.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "trace/tally.h"
#include "trace/trace_observe.h"
#include "translate/queue/front.h"

namespace ibvexp {

namespace detail {

// Reports to the trace, and to `ibvexp run` what it calls a refusal. A call that is not
// counted has no code for the trace.
template <EntryId id, bool counted>
int reported(int error) noexcept {
  if (error == ENOTSUP) trace::count_refusal(trace::row_index(id));
  if constexpr (counted) trace::fail(error);
  return error;
}

template <class... Args>
concept StartsWithContext = sizeof...(Args) > 0 &&
                            requires(std::tuple_element_t<0, std::tuple<Args..., int>> first) {
  context_of(first);
};

// Called for each work request and completion: trusted.
constexpr bool is_hot(EntryId id) {
  return id == EntryId::ibv_exp_post_send || id == EntryId::ibv_exp_poll_cq;
}

// What the engine answers to such a call.
template <EntryId id>
constexpr bool is_good(int answer) {
  return id == EntryId::ibv_exp_post_send ? answer == 0 : answer >= 0;
}

// Verbs that reach no cancellation point but commands to the kernel, or take care of it themselves.
constexpr EntryId by_command[] = {EntryId::ibv_exp_query_port,
                                  EntryId::ibv_exp_query_gid_attr,
                                  EntryId::ibv_exp_modify_qp,
                                  EntryId::ibv_exp_modify_cq,
                                  EntryId::ibv_exp_modify_wq,
                                  EntryId::ibv_exp_create_flow,
                                  EntryId::ibv_exp_destroy_flow,
                                  EntryId::ibv_exp_create_rwq_ind_table,
                                  EntryId::ibv_exp_destroy_rwq_ind_table,
                                  EntryId::ibv_exp_alloc_dm,
                                  EntryId::ibv_exp_free_dm,
                                  EntryId::ibv_exp_memcpy_dm,
                                  EntryId::ibv_exp_rereg_mr,
                                  EntryId::ibv_exp_prefetch_mr};
constexpr bool is_by_command(EntryId id) {
  return std::ranges::find(by_command, id) != std::end(by_command);
}

// Arguments as handlers take them: rdma-core's objects. What structures name is the
// verb's own business.
template <EntryId id, class T>
[[gnu::always_inline]] inline T unwrapped(T argument) noexcept {
  if constexpr (is_hot(id)) {
    return argument;  // they look behind it themselves
  } else if constexpr (std::is_same_v<T, ibv_cq *> || std::is_same_v<T, ibv_qp *> ||
                       std::is_same_v<T, ibv_srq *> || std::is_same_v<T, ibv_exp_wq *>) {
    return queue::behind(argument);
  } else {
    return argument;
  }
}

// The state of a call: it came through our table, or through a symbol, which has attached. Null
// where its object has no context, or the call none.
template <class... Args>
[[gnu::always_inline]] inline ContextState *state_of(Args... arguments) noexcept {
  if constexpr (StartsWithContext<Args...>) {
    ibv_context *const context = context_of(nth<0>(arguments...));
    return context != nullptr ? attached(context) : nullptr;
  } else {
    return nullptr;
  }
}

// An object that was destroyed: its front has nothing behind it.
template <class T>
bool is_gone(T argument) noexcept {
  if constexpr (std::is_same_v<T, ibv_qp *> || std::is_same_v<T, ibv_cq *> ||
                std::is_same_v<T, ibv_srq *> || std::is_same_v<T, ibv_exp_wq *>)
    return queue::front_of(argument) != nullptr && queue::behind(argument) == nullptr;
  else return false;
}

// Calls the handler, with the state of the context if it takes one.
template <EntryId id, class... Args>
[[gnu::always_inline]] inline auto serve(ContextState *state, Args... arguments) {
  if constexpr (requires { handler<id>(*state, arguments...); }) {
    static_assert(StartsWithContext<Args...>, "whose state?");
    return handler<id>(*state, arguments...);
  } else {
    return handler<id>(arguments...);
  }
}

// At level debug: what a verb answered.
inline void log_answer(const char *verb, int error) noexcept {
  if (!log_enabled(LogLevel::debug)) [[likely]]
    return;
  if (error == 0) log(LogLevel::debug, "%s: done", verb);
  else log(LogLevel::debug, "%s: failed, errno %d", verb, error);
}

}  // namespace detail

// A call that is counted. What the arguments show is looked at before and after.
template <EntryId id, class Inner, class R, class... Args>
[[gnu::noinline, gnu::cold]] R traced(const void *site, Args... arguments) noexcept {
  trace::Call call(id, site);
  (call.argument(arguments), ...);
  call.begin();
  trace::before<id>(call, arguments...);
  call.asked();
  if constexpr (std::is_void_v<R>) {
    Inner::call(arguments...);
    trace::after<id>(call, 0, arguments...);
  } else {
    const R result = Inner::call(arguments...);
    trace::after<id>(call, result, arguments...);
    return result;
  }
}

// What an inline reaches through the table: context and object are real, for the
// inline has followed them.
template <EntryId id, bool counted, class R, class... Args>
struct SlotCall {
  static constexpr bool served = !std::is_same_v<decltype(handler<id>), const Unserved>;
  static constexpr Answer answer = row(id).answer;
  // Refused unless a switch asks for it, and the switch works.
  static constexpr bool on_request = answer.verdict == Verdict::beyond &&
                                     is_switch(answer.beyond) &&
                                     info(answer.beyond).status == SwitchStatus::done;
  static_assert(served == (answer.verdict != Verdict::unsupported &&
                           (answer.verdict != Verdict::beyond || on_request)),
                "a row promises an answer exactly if handlers.h serves it");

  // Work requests and completions go to the engine before anything else has a claim on
  // registers.
  [[gnu::always_inline]] static inline R call(Args... arguments) noexcept {
    if constexpr (detail::is_hot(id)) {
      static_assert(served && !on_request);
      if (auto *queue = translate::driven_queue(arguments...)) [[likely]] {
        // engine::poll has logged any failure already.
        if constexpr (id == EntryId::ibv_exp_poll_cq && !counted)
          return translate::run(*queue, arguments...);
        const int answer = translate::run(*queue, arguments...);
        if (detail::is_good<id>(answer)) [[likely]]
          return answer;
        return fail_hot(answer, nth<0>(arguments...));
      }
      return call_elsewhere(arguments...);
    } else if constexpr (row(id).door == Door::symbol) {
      return call_any(arguments...);  // the exported function is the only caller
    } else {
      return call_elsewhere(arguments...);
    }
  }

  template <class Object>
  [[gnu::noinline, gnu::cold]] static R fail_hot(int answer, Object *object) noexcept {
    return failed(translate::refuse(answer, object).code);
  }

  [[gnu::noinline]] static R call_elsewhere(Args... arguments) noexcept {
    return call_any(arguments...);
  }

  [[gnu::always_inline]] static inline R call_any(Args... arguments) noexcept {
    ContextState *const state = detail::state_of(arguments...);
    // The program has called an experimental verb.
    if constexpr (!detail::is_hot(id))
      if (state != nullptr) state->is_legacy = true;
    if constexpr (!served) {
      return refuse(unsupported(id).code, arguments...);
    } else {
      if constexpr (on_request) {
        if (!switched_on(answer.beyond)) return refuse(unsupported(id).code, arguments...);
        opened_by(answer.beyond, row(id).name);
      }
      if constexpr (!detail::is_hot(id)) {
        if ((detail::is_gone(arguments) || ...)) [[unlikely]]
          return refuse(invalid(id, "object", 0, "destroyed before").code, arguments...);
        // What is no object of the kind may have none.
        if constexpr (detail::StartsWithContext<Args...>) {
          if (state == nullptr) [[unlikely]]
            return refuse(invalid(id, "context", 0, "must not be null").code, arguments...);
        }
      }
      return run(state, detail::unwrapped<id>(arguments)...);
    }
  }

  // With rdma-core's objects.
  [[gnu::always_inline]] static inline R run(ContextState *state, Args... arguments) noexcept {
    if constexpr (detail::is_hot(id)) {
      return answer_of<false>(state, arguments...);
    } else if constexpr (detail::is_by_command(id)) {
      if (state->watched) [[unlikely]]
        return run_watched(state, arguments...);
      return answer_of<false>(state, arguments...);
    } else {
      const Uncancelled whole;
      return answer_of<true>(state, arguments...);
    }
  }

  [[gnu::noinline, gnu::cold]] static R run_watched(ContextState *state,
                                                    Args... arguments) noexcept {
    const Uncancelled whole;
    decide_watched(*state);
    return answer_of<true>(state, arguments...);
  }

  template <bool logged>
  [[gnu::always_inline]] static inline R answer_of(ContextState *state,
                                                   Args... arguments) noexcept {
    try {
      const auto result = detail::serve<id>(state, arguments...);
      if constexpr (logged) detail::log_answer(row(id).name.data(), result.error());
      if (result) [[likely]]
        return detail::deliver<R>(result);
      return failed(result.error());
    } catch (...) {
      return refuse(detail::error_of_exception(), arguments...);
    }
  }

  static R refuse(int error, Args... arguments) noexcept {
    detail::answer_arguments<id>(error, arguments...);
    return failed(error);
  }
  [[gnu::noinline, gnu::cold]] static R failed(int error) noexcept {
    return detail::fail<id, R>(detail::reported<id, counted>(error));
  }

  // In the table's slot when tracing is on.
  [[gnu::noinline]] static R call_traced(Args... arguments) noexcept {
    return traced<id, SlotCall<id, true, R, Args...>, R>(__builtin_return_address(0), arguments...);
  }
};

// What programs call by name: anything may be null, and the context may not
// have been seen before. Entry points that begin with something that has no
// context check it themselves.
template <EntryId id, bool counted, class R, class... Args>
struct SymbolCall {
  using Inner = SlotCall<id, counted, R, Args...>;

  // Part of the exported function, whose return address shows the caller.
  [[gnu::always_inline]] static inline R enter(Args... arguments) noexcept {
    if constexpr (trace::compiled)
      if (trace::on()) [[unlikely]]
        return traced<id, SymbolCall<id, true, R, Args...>, R>(__builtin_return_address(0),
                                                               arguments...);
    return call(arguments...);
  }

  [[gnu::always_inline]] static inline R call(Args... arguments) noexcept {
    if constexpr (detail::StartsWithContext<Args...>) {
      if (const int error = prepare(nth<0>(arguments...)); error != 0) [[unlikely]]
        return Inner::refuse(error, arguments...);
    }
    return Inner::call(arguments...);
  }

 private:
  template <class First>
  static int prepare(First *first) noexcept {
    if (first == nullptr) [[unlikely]]
      return invalid(id, "first argument", 0, "must not be null").code;
    ibv_context *context = context_of(first);
    if (context == nullptr) [[unlikely]]
      return invalid(id, "context", 0, "must not be null").code;
    if (find_state(context) != nullptr) [[likely]]
      return 0;
    const Uncancelled whole;
    try {
      return attach(context).error();
    } catch (...) {
      return detail::error_of_exception();
    }
  }
};

// Names the calls above by a function type, as decltype gives it.
template <EntryId id, class F>
struct Through;

template <EntryId id, class R, class... Args>
struct Through<id, R(Args...)> {
  using Symbol = SymbolCall<id, false, R, Args...>;
  using Value = R;
  static constexpr std::size_t arity = sizeof...(Args);
  template <std::size_t n>
  using Argument = std::tuple_element_t<n, std::tuple<Args...>>;
};

}  // namespace ibvexp
