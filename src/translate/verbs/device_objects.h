// Whether a device makes objects that not all devices have. The device is asked, and only where it
// cannot be an object is made for a try: once for each device of the process.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Initiators of the DC transport.
bool has_dc(ContextState &state);

// Indirect keys of the largest size that is reported.
bool makes_indirect_keys(ContextState &state);

// Masters of cross-channel (cross_channel.h).
bool makes_masters(ContextState &state);

}  // namespace ibvexp::translate
