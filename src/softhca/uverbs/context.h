#pragma once

#include "base/types.h"

namespace softhca::uverbs {

u32 completion_vectors();

}  // namespace softhca::uverbs
