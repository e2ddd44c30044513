// The data of a request, piece by piece or byte by byte. No calls.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

namespace ibvexp::engine {

// Bytes of a gather list, from a place in it.
class Gather {
 public:
  Gather(const ibv_sge *list, std::uint32_t count) : list_(list), left_(count) { skip_empty(); }

  std::uint64_t remaining() const {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < left_; ++i) total += list_[i].length;
    return total - offset_;
  }

  // Copies out and moves on; returns how much there was.
  std::uint32_t take(void *to, std::uint32_t bytes) {
    std::uint32_t done = 0;
    while (done < bytes && left_ != 0) {
      const std::uint32_t here = list_->length - offset_;
      const std::uint32_t part = here < bytes - done ? here : bytes - done;
      std::memcpy(static_cast<std::uint8_t *>(to) + done,
                  reinterpret_cast<const void *>(list_->addr + offset_), part);
      done += part;
      offset_ += part;
      skip_empty();
    }
    return done;
  }

  // The next piece as it lies in memory; false at the end.
  bool piece(ibv_sge &out) {
    if (left_ == 0) return false;
    out = {list_->addr + offset_, list_->length - offset_, list_->lkey};
    offset_ = list_->length;
    skip_empty();
    return true;
  }

 private:
  void skip_empty() {
    while (left_ != 0 && offset_ == list_->length) {
      ++list_;
      --left_;
      offset_ = 0;
    }
  }

  const ibv_sge *list_;
  std::uint32_t left_;
  std::uint32_t offset_ = 0;
};

}  // namespace ibvexp::engine
