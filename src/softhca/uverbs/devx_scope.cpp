#include "uverbs/devx_scope.h"

#include "uverbs/context.h"
#include "uverbs/devx_umem.h"
#include "uverbs/schedule_object.h"

namespace softhca::uverbs {

template <class T>
T *DevxScope::use(const ByNumber<T> &things, u32 number) {
  const auto found = things.find(number);
  if (!found) return nullptr;
  needs_.objects.emplace_back().reset(found.owner);
  return found.thing;
}

bool DevxScope::use_pd(u32 number) { return use(file_.pds, number) != nullptr; }
Cq *DevxScope::use_cq(u32 number) { return use(file_.cqs, number); }
Srq *DevxScope::use_srq(u32 number) { return use(file_.srqs, number); }
bool DevxScope::use_xrcd(u32) { return false; }

bool DevxScope::uar_exists(u32 page) const { return file_.has_uar(page); }

bool DevxScope::eq_exists(u32 number) const {
  return number >= first_completion_eqn && number < first_completion_eqn + completion_vectors();
}

bool DevxScope::find_schedule(u32 number, std::shared_ptr<ScheduleElement> &element) const {
  return uverbs::find_schedule(file_, number, element);
}

// The kernel sets the bits that say that rings and records lie in umems.
Status DevxScope::use_ring(const RingPlace &p, u64 bytes, RingUse use, u8 *&at) {
  return claim_umem(file_, p.umem, p.umem_offset + p.offset, bytes,
                    use == RingUse::write ? UmemUse::write : UmemUse::read, needs_.rings, at);
}

Status DevxScope::use_record(const RecordPlace &p, u32 *&record) {
  return claim_umem_doorbell(file_, p.umem, p.address, needs_.objects.emplace_back(), record);
}

}  // namespace softhca::uverbs
