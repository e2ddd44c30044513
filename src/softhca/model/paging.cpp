#include "model/paging.h"

#include <algorithm>

#include "model/device.h"
#include "model/requester.h"
#include "model/responder.h"

namespace softhca {

namespace {

PageWait &wait_of(Qp &qp, PageSide side) {
  return side == PageSide::send ? qp.send_pages : qp.receive_pages;
}

// Pieces of memory of a key by address, which do not overlap.
class GonePages {
 public:
  GonePages(u32 index, SpanList gone) : index_(index), gone_(std::move(gone)) {
    std::sort(gone_.begin(), gone_.end(),
              [](const Span &a, const Span &b) { return a.address < b.address; });
  }
  bool operator()(const Span &s) const {
    if (s.kind != Span::Kind::application || s.memory_key != index_) return false;
    const auto next = std::lower_bound(
        gone_.begin(), gone_.end(), s.address,
        [](const Span &g, u64 address) { return g.address + g.length <= address; });
    return next != gone_.end() && next->address < s.address + s.length;
  }

 private:
  const u32 index_;
  SpanList gone_;
};

template <class Gone>
void take_from(SpanList &spans, const Gone &gone) {
  for (Span &s : spans)
    if (gone(s)) s.kind = Span::Kind::gone;
}

template <class Gone>
void take_from(const std::vector<std::unique_ptr<SignedPart>> &parts, const Gone &gone) {
  for (const auto &part : parts) take_from(part->memory, gone);
}

template <class Gone>
void take_from(const SendEngine &send, const Gone &gone) {
  for (const auto *list : {&send.inflight, &send.own})
    for (const auto &w : *list) {
      take_from(w->spans, gone);
      take_from(w->signed_parts, gone);
    }
}

template <class Gone>
void take_from(Responder &r, const Gone &gone) {
  take_from(r.wqe.spans, gone);
  take_from(r.wqe.signed_parts, gone);
  take_from(r.target, gone);
  for (Response &response : r.responses) take_from(response.spans, gone);
  for (const auto &[peer, connection] : r.connections) take_from(*connection, gone);
}

template <class Gone>
void take_from(const Qp &qp, PageSide side, const Gone &gone) {
  if (side == PageSide::send && qp.send) take_from(*qp.send, gone);
  if (side == PageSide::receive && qp.responder) take_from(*qp.responder, gone);
}

constexpr PageSide both_sides[] = {PageSide::send, PageSide::receive};

}  // namespace

bool wait_for_pages(Qp &qp, PageSide side, const PageFault &fault) {
  PageWait &wait = wait_of(qp, side);
  if (wait == PageWait::waits) return true;
  const bool asks = wait == PageWait::none && qp.async.listener != nullptr &&
                    qp.async.listener->page_fault(fault, side);
  wait = asks ? PageWait::waits : PageWait::none;
  return asks;
}

void pages_came(Qp &qp, PageSide side, bool failed) {
  PageWait &wait = wait_of(qp, side);
  if (wait != PageWait::waits) return;
  wait = failed ? PageWait::failed : PageWait::none;
  qp_wake(qp);
}

void forget_pages(u32 index, const SpanList &pages) {
  if (pages.empty()) return;
  const GonePages gone(index, pages);
  for (const auto &[number, qp] : process().qps)
    for (const PageSide side : both_sides) take_from(*qp, side, gone);
}

void forget_key(u32 index) { forget_key(index, ~0u, PageSide::send); }

void forget_key(u32 index, u32 qpn, PageSide spared) {
  const auto gone = [&](const Span &s) { return s.key == index || s.memory_key == index; };
  for (const auto &[number, qp] : process().qps)
    for (const PageSide side : both_sides)
      if (number != qpn || side != spared) take_from(*qp, side, gone);
}

}  // namespace softhca
