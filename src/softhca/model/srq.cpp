#include "model/srq.h"

#include "model/tag_matching.h"

namespace softhca {

Srq::Srq() = default;
Srq::~Srq() = default;

u16 srq_available(const Srq &srq) {
  return static_cast<u16>(read_doorbell(&srq.dbrec[0]) - srq.consumed);
}

void srq_check_limit(Srq &srq) {
  if (srq.limit == 0 || srq_available(srq) >= srq.limit) return;
  srq.limit = 0;
  srq.async.report(srq.user_handle, EventType::srq_limit);
}

}  // namespace softhca
