// The objects of CREATE_GENERAL_OBJECT.
#pragma once

#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

// DEVX_OBJ/CREATE of a general object.
int general_object_create(File &, Attrs &, Command &);

}  // namespace softhca::uverbs
