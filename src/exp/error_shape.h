// What a C caller is answered: a value, or an error in the shape of the entry point's row. No exception
// gets out.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cerrno>
#include <new>
#include <type_traits>

#include "base/log.h"
#include "base/nth.h"
#include "base/result.h"
#include "table/compat.h"

namespace ibvexp::detail {

// The error shape of a row, for a function of return type R, with errno in each of
// them. A slot may differ in type from the verb it serves (an int where the verb
// returns a pointer): it returns the number.
template <EntryId id, class R>
R fail(int error) noexcept {
  constexpr Shape shape = row(id).shape;
  errno = error;

  if constexpr (std::is_void_v<R>) return;
  else if constexpr (std::is_pointer_v<R>) return nullptr;
  else if constexpr (shape == Shape::minus_one) return -1;
  else if constexpr (shape == Shape::zero) return 0;
  else if constexpr (shape == Shape::negative) return -error;
  else return error;
}

// What a call that is refused as a whole answers through its arguments: it stops at
// the first request, and has a status. A handler that fails has set them itself.
template <EntryId id, class... Args>
void answer_arguments([[maybe_unused]] int error, [[maybe_unused]] Args... arguments) noexcept {
  constexpr Shape shape = row(id).shape;
  if constexpr (shape == Shape::positive_bad) {
    auto *bad = nth<2>(arguments...);
    if (bad != nullptr) *bad = nth<1>(arguments...);
  }
  if constexpr (shape == Shape::null_status) {
    auto *status = nth<2>(arguments...);
    if (status != nullptr)
      *status =
          error == ENOTSUP ? IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED : IBV_EXP_INTF_STAT_INVAL_PARARM;
  }
}

template <class R, class Answer>
R deliver(Answer answer) noexcept {
  if constexpr (std::is_void_v<R>) return;
  else if constexpr (std::is_same_v<Answer, Result<void>>) return R{};
  else return answer.value();
}

inline int error_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    return ENOMEM;
  } catch (...) {
    log(LogLevel::error, "internal error: unexpected exception");
    return EIO;
  }
}

}  // namespace ibvexp::detail
