// Completions that are out of the ordinary.
#pragma once

#include "translate/queue/engine/complete.h"

namespace ibvexp::engine {

// A completion of a multi-packet queue.
struct MultiPacket {
  bool is_one = false;
  bool ends_entry = false;
  Strides strides{};
  // For a shared queue:
  bool more = false;        // the message goes on
  bool written = false;     // by a WRITE, with its own count
  std::uint8_t opcode = 0;  // IBV_EXP_WC_TM_*; 0: that of the completion
};

struct Taken {
  Endpoint *of = nullptr;
  MultiPacket packet;
  bool receive = false;
};

enum class Take : std::uint8_t {
  one,     // reported
  silent,  // nothing that is reported to programs
  none,    // the device has not written it after all
  again,   // the entry has been rewritten
  refused  // has no place in what was asked for: it stays
};

// The completion at that index, whatever it is. multi_packet: the structure has room for strides.
Take take_other(CompletionQueue &queue, std::uint32_t index, bool multi_packet, ibv_wc &wc,
                Taken &taken);

}  // namespace ibvexp::engine
