#pragma once

#include "base/types.h"

namespace softhca::uverbs {

u32 completion_vectors();
// Event queues, of which each vector has one: the first ones are the driver's.
inline constexpr u32 first_completion_eqn = 8;

}  // namespace softhca::uverbs
