// Streams of a DC initiator: work requests carry the number of a stream, and a
// failure stops only the stream of the one that failed. They are executed in
// posting order, all of them.
#include <algorithm>

#include "model/device.h"
#include "model/requester.h"

namespace softhca {

namespace {

void flush(SendWqe &w) {
  w.done = true;
  w.flushed = true;
  w.status = Syndrome::flush;
  w.vendor = vendor_syndrome(w.status, false);
}

bool on_the_way(const SendWqe &w) { return w.requested || w.sent != 0; }

// The target has not got the failed message as a whole, hence nothing of what
// follows: all that begins anew on another connection.
void reconnect(Qp &qp) {
  SendEngine &send = *qp.send;
  if (send.connected) disconnect_target(qp);
  send.connected = false;
  for (auto &w : send.inflight) {
    if (w->done) continue;
    if (w->has_response() && w->requested) --send.responses_due;
    w->requested = false;
    w->sent = w->received = 0;
  }
  send.rnr_until_ns = 0;
  send.retries_left = qp.attr.retry_count;
  send.rnr_left = qp.attr.rnr_retry;
}

}  // namespace

bool stop_stream(Qp &qp, const SendWqe &failed) {
  SendEngine &send = *qp.send;
  if (qp.max_errored_streams == 0 || qp.state != QpState::rts) return false;
  send.errored_streams.insert(failed.stream);
  if (send.errored_streams.size() >= qp.max_errored_streams) return false;

  if (failed.lost) reconnect(qp);
  // What is on its way is behind the failure but will be executed.
  u32 psn = send.next_psn;
  bool renumber = false;
  size_t first = send.inflight.size();
  for (size_t i = 0; i < send.inflight.size(); ++i) {
    SendWqe &w = *send.inflight[i];
    if (w.done || on_the_way(w)) continue;
    first = std::min(first, i);
    if (!renumber) psn = failed.lost ? send.next_psn : w.first_psn;
    renumber = true;
    if (w.stream == failed.stream) {
      flush(w);
      continue;
    }
    w.first_psn = psn;
    psn = psn_add(psn, w.npsn);
  }
  if (renumber) send.next_psn = psn;
  send.cursor = std::min(send.cursor, first);
  send.blocked = false;
  return true;
}

bool qp_reset_stream(Qp &qp, u16 stream) {
  return qp.send && qp.send->errored_streams.erase(stream) != 0;
}

}  // namespace softhca
