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

// Pieces of memory by address, which do not overlap.
class Gone {
 public:
  explicit Gone(SpanList gone) : gone_(std::move(gone)) {
    std::sort(gone_.begin(), gone_.end(),
              [](const Span &a, const Span &b) { return a.address < b.address; });
  }
  void take_from(SpanList &spans) const {
    for (Span &s : spans)
      if (s.kind == Span::Kind::application && touches(s)) s.address = ~u64{0} - s.length;
  }

 private:
  bool touches(const Span &s) const {
    const auto next = std::lower_bound(
        gone_.begin(), gone_.end(), s.address,
        [](const Span &g, u64 address) { return g.address + g.length <= address; });
    return next != gone_.end() && next->address < s.address + s.length;
  }
  SpanList gone_;
};

void take_from(Responder &r, const Gone &gone) {
  gone.take_from(r.wqe.spans);
  gone.take_from(r.target);
  for (Response &response : r.responses) gone.take_from(response.spans);
}

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

void forget_pages(const SpanList &pages) {
  if (pages.empty()) return;
  const Gone gone(pages);
  for (const auto &[number, qp] : process().qps) {
    if (qp->send) {
      for (const auto &w : qp->send->inflight) gone.take_from(w->spans);
      for (const auto &w : qp->send->own) gone.take_from(w->spans);
    }
    if (!qp->responder) continue;
    take_from(*qp->responder, gone);
    for (const auto &[peer, connection] : qp->responder->connections) take_from(*connection, gone);
  }
}

}  // namespace softhca
