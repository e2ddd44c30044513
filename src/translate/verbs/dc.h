// The DC transport as a whole.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Whether initiators can be created: tried once per context.
bool has_dc(ContextState &state);

}  // namespace ibvexp::translate
