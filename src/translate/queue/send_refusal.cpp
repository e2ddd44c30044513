#include "translate/queue/send_refusal.h"

#include <infiniband/verbs_exp.h>

#include <cerrno>

#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"

namespace ibvexp::translate {

namespace {

// The rows of all opcodes that are not basic.
const FeatureId *feature_of(int opcode) {
  switch (opcode) {
#define IBVEXP_OPCODE(name)                          \
  case name: {                                       \
    static constexpr FeatureId id = FeatureId::name; \
    return &id;                                      \
  }
    IBVEXP_OPCODE(IBV_EXP_WR_TSO)
    IBVEXP_OPCODE(IBV_EXP_WR_SEND_ENABLE)
    IBVEXP_OPCODE(IBV_EXP_WR_RECV_ENABLE)
    IBVEXP_OPCODE(IBV_EXP_WR_CQE_WAIT)
    IBVEXP_OPCODE(IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP)
    IBVEXP_OPCODE(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD)
    IBVEXP_OPCODE(IBV_EXP_WR_NOP)
    IBVEXP_OPCODE(IBV_EXP_WR_UMR_FILL)
    IBVEXP_OPCODE(IBV_EXP_WR_UMR_INVALIDATE)
#undef IBVEXP_OPCODE
    default: return nullptr;
  }
}

}  // namespace

bool opcode_served(int opcode) {
  const FeatureId *id = feature_of(opcode);
  return id != nullptr && effective_now(feature_row(*id).answer).verdict != Verdict::unsupported;
}

int refuse_opcode(int opcode) {
  const FeatureId *id = feature_of(opcode);
  if (id == nullptr) return EINVAL;
  // Served on other queue pairs.
  if (opcode_served(opcode)) return EINVAL;
  return unsupported(EntryId::ibv_exp_post_send, *id, "exp_opcode", static_cast<unsigned>(opcode))
      .code;
}

int refuse_send_flags(std::uint64_t flags, std::uint64_t refused) {
  for (const FeatureBit &b : bits_of<"ibv_exp_send_flags">())
    if ((flags & refused & b.bit) != 0)
      return unsupported(EntryId::ibv_exp_post_send, b.id, "exp_send_flags", flags).code;
  return ENOTSUP;
}

}  // namespace ibvexp::translate
