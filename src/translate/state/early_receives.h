// Receives that a program posts to a queue pair before INIT, kept until then: see
// queue/receive_in_reset.h.
#pragma once

#include <infiniband/verbs.h>

#include <vector>

namespace ibvexp {

// What was posted to one queue pair. Serialised by the owner.
class EarlyReceives {
 public:
  // Copies a chain within the limits that the queue was granted, as far as it goes: 0,
  // or the legacy errno value (ENOMEM: the queue is full, EINVAL: too many pieces) with
  // bad at the request that it is about. Throws bad_alloc.
  int keep(const ibv_qp_cap &granted, ibv_recv_wr *wr, ibv_recv_wr *&bad);

  bool empty() const { return requests_.empty(); }

  // Linked up for posting, and valid until the next change; null if there are none.
  ibv_recv_wr *chain();

 private:
  std::vector<ibv_recv_wr> requests_;
  std::vector<ibv_sge> pieces_;
};

}  // namespace ibvexp
