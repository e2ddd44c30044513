// What the functions of the interface families have in common.
#pragma once

#include <cstdint>

#include "translate/convert/clock_convert.h"
#include "translate/state/clock_info.h"

namespace ibvexp::queue {

// What else a caller of poll_length wants to know.
struct Wanted {
  bool multi_packet = false;
  bool flags = false;
  bool vlan = false;
  bool timestamp = false;
};

struct Outputs {
  void *buffer = nullptr;
  std::uint32_t *copied = nullptr;
  std::uint32_t *offset = nullptr;
  std::uint32_t *flags = nullptr;
  std::uint16_t *tci = nullptr;
  std::uint64_t *timestamp = nullptr;
};

// The time of day; 0 where the clock cannot be read.
[[gnu::cold, gnu::noinline]] inline std::uint64_t time_of_day(ibv_context *context,
                                                              std::uint64_t cycles) {
  const auto clock = translate::read_clock_info(context);
  return clock ? translate::cycles_to_ns(clock.value(), cycles) : 0;
}

// A burst of one piece each for a receive side that is libmlx5's. 0 or an errno value.
inline int receive_through_verbs(ibv_qp *qp, const ibv_sge *list, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_sge piece = list[i];
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    if (const int error = ibv_post_recv(qp, &wr, &bad); error != 0) return error;
  }
  return 0;
}

}  // namespace ibvexp::queue
