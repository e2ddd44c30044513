// Completions that are out of the ordinary.
#pragma once

#include "translate/queue/engine/complete.h"

namespace ibvexp::engine {

// A completion of a multi-packet queue.
struct MultiPacket {
  bool is_one = false;
  bool ends_entry = false;
  direct::Strides strides{};
};

struct Taken {
  Endpoint *of = nullptr;
  MultiPacket packet;
  bool receive = false;
};

enum class Take : std::uint8_t {
  one,     // told
  silent,  // nothing that a program is told of
  none,    // the device has not written it after all
  again,   // the entry has been rewritten
  refused  // cannot be told in this way: it stays
};

// The completion at that index, whatever it is. multi_packet: strides can be told.
Take take_other(CompletionQueue &queue, std::uint32_t index, bool multi_packet, ibv_wc &wc,
                Taken &taken);

}  // namespace ibvexp::engine
