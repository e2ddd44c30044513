#pragma once

#include "uverbs/state.h"

namespace softhca::uverbs {

// ib_check_mr_access: 0, EINVAL or EOPNOTSUPP.
int check_mr_access(const File &, u32 access);

}  // namespace softhca::uverbs
