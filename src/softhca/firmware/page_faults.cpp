// Pages of the guest's keys that its driver brings when they are reached for.
#include <algorithm>

#include "base/fields.h"
#include "engine/engine.h"
#include "firmware/resources.h"

namespace softhca::firmware {

namespace {

constexpr u8 event_type = 0x0c;

}  // namespace

bool QpResource::page_fault(const PageFault &fault, PageSide side) {
  return hca.raise_page_fault(number, fault, side);
}

// Faults of local keys are reported as those of remote ones are: with the key and the addresses,
// so that the driver need not read the work request.
bool Hca::raise_page_fault(u32 qpn, const PageFault &fault, PageSide side) {
  constexpr u8 subtype_key = 1;
  constexpr u32 of_requester = 1, of_key = 4;
  constexpr u32 key_at = 4, packet_at = 10, length_at = 12, address_at = 16, token_at = 24;
  if (!has_taker(event_type)) return false;
  do {
    next_token_ = (next_token_ + 1) & 0xffffff;
  } while (page_faults_.contains(next_token_));
  page_faults_[next_token_] = {qpn, side};
  EventEntry e{event_type, subtype_key, {}};
  u8 *data = e.data.data();
  store_be32(data + key_at, fault.key);
  store_be16(data + packet_at, static_cast<u16>(std::min<u64>(fault.length, 0xffff)));
  store_be32(data + length_at, static_cast<u32>(std::min<u64>(fault.length, ~u32{0})));
  store_be64(data + address_at, fault.address);
  store_be32(data + token_at,
             (of_key | (side == PageSide::send ? of_requester : 0)) << 24 | next_token_);
  raise(e);
  return true;
}

void Hca::forget_page_faults(u32 qpn) {
  std::erase_if(page_faults_, [&](const auto &entry) { return entry.second.qpn == qpn; });
}

Status Hca::page_fault_resume(Command &c) {
  const bool failed = get_field(c.in.data(), 64, 1) != 0;
  const auto waiting = page_faults_.find(get_field(c.in.data(), 104, 24));
  if (waiting == page_faults_.end()) return Status::bad_param;
  const auto [qpn, side] = waiting->second;
  page_faults_.erase(waiting);
  for (const Kind kind : {Kind::qp, Kind::dct})
    if (auto *r = find<QpResource>(kind, qpn); r != nullptr) pages_came(*r->qp, side, failed);
  engine_nudge();
  return Status::ok;
}

}  // namespace softhca::firmware
