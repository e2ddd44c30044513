#include "translate/state/early_receives.h"

#include <cerrno>
#include <cstdint>

namespace ibvexp {

int EarlyReceives::keep(const ibv_qp_cap &granted, ibv_recv_wr *wr, ibv_recv_wr *&bad) {
  for (; wr != nullptr; wr = wr->next) {
    bad = wr;
    if (requests_.size() >= granted.max_recv_wr) return ENOMEM;
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > granted.max_recv_sge ||
        (wr->num_sge != 0 && wr->sg_list == nullptr))
      return EINVAL;
    // The second of the two may not fail.
    if (requests_.size() == requests_.capacity()) requests_.reserve(requests_.size() * 2 + 16);
    pieces_.insert(pieces_.end(), wr->sg_list, wr->sg_list + wr->num_sge);
    requests_.push_back(*wr);
  }
  return 0;
}

ibv_recv_wr *EarlyReceives::chain() {
  ibv_sge *piece = pieces_.data();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].sg_list = piece;
    piece += requests_[i].num_sge;
    requests_[i].next = i + 1 < requests_.size() ? &requests_[i + 1] : nullptr;
  }
  return requests_.empty() ? nullptr : requests_.data();
}

}  // namespace ibvexp
