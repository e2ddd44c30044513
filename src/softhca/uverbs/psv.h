// CREATE_PSV: the signatures that transfers begin with.
#pragma once

#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

// DEVX_OBJ/CREATE of one PSV, or of several at once.
int psv_create(File &, Attrs &, Command &);

}  // namespace softhca::uverbs
