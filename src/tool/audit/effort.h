// The one place that says how much work a row is in a migration by hand. The
// tables give verdict and modern counterpart; the class follows from them:
//
//   none     nothing to write: no-ops, constants of validation
//   rename   rdma-core has the same thing under another name
//   adapt    other calls or structures of libibverbs take its place
//   rework   the replacement is mlx5dv, DEVX or a work request built by hand
//   replace  there is no counterpart: the program must do without
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

constexpr Effort effort_of(const Answer &a) {
  const auto names = [&](std::string_view word) {
    return a.target.find(word) != std::string_view::npos;
  };
  switch (a.verdict) {
    case Verdict::noop:
    case Verdict::sentinel: return Effort::none;
    case Verdict::native: return Effort::rename;
    case Verdict::query_only:
      if (a.target.empty()) return Effort::none;
      break;
    default: break;
  }
  if (a.target.empty()) return Effort::replace;
  if (names("mlx5dv") || names("MLX5DV") || names("devx") || names("WQE") || names("wqe"))
    return Effort::rework;
  return Effort::adapt;
}

// What becomes of a request by that name. A partial row counts as fine: what it
// refuses has rows of its own, and they count where a program asks for it.
constexpr Severity severity_of(const Answer &a) {
  const Effective now = effective(a);
  const bool reported = now.verdict == Verdict::query_only;
  if (reported && !reportable(a)) return Severity::off;
  if (now.verdict != Verdict::unsupported) return Severity::works;
  if (effective(a, true).verdict != Verdict::unsupported) return Severity::beyond;
  return a.refusal == 0 ? Severity::off : Severity::refused;
}

}  // namespace ibvexp::audit
