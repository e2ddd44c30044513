// Time stamps of completions, as what their queue was created for.
#pragma once

#include <cstdint>

#include "translate/convert/clock_convert.h"
#include "translate/state/clock_info.h"
#include "translate/state/cq_state.h"

namespace ibvexp::translate {

// For the completions of one batch: the clock is read at the first that needs it.
class Stamps {
 public:
  Stamps(ibv_context *context, StampKind kind) : context_(context), kind_(kind) {}

  // cycles: as the device wrote them; 0 for none. Expanded completions have lost theirs. Of
  // those with an error the word is no time, but the legacy provider reported it.
  void put(std::uint64_t cycles, ibv_exp_wc &wc) {
    if (kind_ == StampKind::none) [[likely]]
      return;
    if (cycles == 0) return;
    if (kind_ == StampKind::system_time) {
      if (wc.status != IBV_WC_SUCCESS || !read_clock()) return;
      cycles = cycles_to_ns(clock_, cycles);
    }
    wc.timestamp = cycles;
    wc.exp_wc_flags |= IBV_EXP_WC_WITH_TIMESTAMP;
  }

 private:
  enum class Clock : std::uint8_t { unread, known, none };

  bool read_clock() {
    if (read_ == Clock::unread) {
      const auto info = read_clock_info(context_);
      read_ = info ? Clock::known : Clock::none;
      if (info) clock_ = info.value();
    }
    return read_ == Clock::known;
  }

  ibv_context *context_;
  StampKind kind_;
  Clock read_ = Clock::unread;
  ibv_exp_clock_info clock_{};
};

}  // namespace ibvexp::translate
