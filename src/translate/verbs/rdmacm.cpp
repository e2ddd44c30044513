#include "translate/verbs/rdmacm.h"

#include "base/keep_errno.h"
#include "base/real.h"
#include "trace/diagnose.h"

namespace ibvexp::translate {

namespace {

// The same call under the version node of today. librdmacm is not linked: who
// has an identifier has it loaded.
template <class... Args>
Result<void> forward(EntryId id, const char *name, Args... arguments) {
  auto *function = reinterpret_cast<int (*)(Args...)>(find_real(name, "RDMACM_1.2"));
  if (function == nullptr) return unsupported(id);
  const KeepErrno keep;
  if (function(arguments...) != 0) return keep.reason();
  return {};
}

}  // namespace

Result<void> establish(rdma_cm_id *id) {
  constexpr EntryId entry = EntryId::rdma_establish;
  if (id == nullptr) return invalid(entry, "id", 0, "must not be null");
  return forward(entry, "rdma_establish", id);
}

Result<void> init_qp_attr(rdma_cm_id *id, ibv_qp_attr *attr, int *mask) {
  constexpr EntryId entry = EntryId::rdma_init_qp_attr;
  if (id == nullptr || attr == nullptr || mask == nullptr)
    return invalid(entry, "arguments", 0, "must not be null");
  return forward(entry, "rdma_init_qp_attr", id, attr, mask);
}

}  // namespace ibvexp::translate
