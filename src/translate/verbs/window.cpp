#include "translate/verbs/window.h"

#include "base/keep_errno.h"
#include "trace/diagnose.h"
#include "translate/convert/wr_convert.h"
#include "translate/queue/fronts.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId binding = EntryId::ibv_exp_bind_mw;

Result<void> check(ContextState &state, const ibv_exp_mw_bind &bind, const ibv_qp *qp) {
  if (bind.comp_mask != 0) return invalid(binding, "comp_mask", bind.comp_mask, "unknown bits");
  if (qp == nullptr) return invalid(binding, "qp", 0, "must not be null");
  if (qp->context != bind.mw->context) return invalid(binding, "qp", 0, "of another context");
  if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC)
    return invalid(binding, "qp", static_cast<std::uint32_t>(qp->qp_type),
                   "only RC and UC queue pairs bind windows");
  if (const QpNotes *known = queue::notes_of(&state, qp); known != nullptr && known->no_windows)
    return invalid(binding, "qp", qp->qp_num,
                   "the queue pair was created with MLX5_SHUT_UP_MW set");
  if (bind.mw->type != IBV_MW_TYPE_1)
    return invalid(binding, "mw", bind.mw->type,
                   "a window of type 2 is bound by a work request (IBV_EXP_WR_BIND_MW)");
  if ((bind.exp_send_flags & state.refused_send_flags) != 0)
    return check_bits(binding, "exp_send_flags", bind.exp_send_flags,
                      bits_of<"ibv_exp_send_flags">());

  const std::uint64_t access = bind.bind_info.exp_mw_access_flags;
  if ((access & IBV_EXP_ACCESS_MW_ZERO_BASED) != 0)
    return unsupported(binding, FeatureId::bind_mw_zero_based, "exp_mw_access_flags", access);
  if (const auto bits =
          check_bits(binding, "exp_mw_access_flags", access, bits_of<"ibv_exp_access_flags">());
      !bits)
    return bits;
  if ((access & ~access_rights) != 0)
    return invalid(binding, "exp_mw_access_flags", access, "not an access flag of a memory window");
  return {};
}

}  // namespace

Result<void> bind_mw(ContextState &state, ibv_exp_mw_bind *bind) {
  ibv_qp *const qp = queue::behind(bind->qp);
  if (const auto checked = check(state, *bind, qp); !checked) return checked;
  ibv_mw_bind modern{};
  modern.wr_id = bind->wr_id;
  modern.send_flags = to_modern_send_flags(bind->exp_send_flags);
  modern.bind_info.mr = bind->bind_info.mr;
  modern.bind_info.addr = bind->bind_info.addr;
  modern.bind_info.length = bind->bind_info.length;
  modern.bind_info.mw_access_flags = to_modern_window_access(bind->bind_info.exp_mw_access_flags);
  const KeepErrno keep;
  // Changes mw->rkey.
  const int error = ibv_bind_mw(queue::shown(qp), bind->mw, &modern);
  if (error != 0) return Error{error > 0 ? error : keep.reason().code};
  return {};
}

}  // namespace ibvexp::translate
