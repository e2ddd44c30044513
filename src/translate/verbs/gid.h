// Entries of a port's GID table.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

#include "base/result.h"

namespace ibvexp::translate {

Result<void> query_gid_attr(ibv_context *context, std::uint8_t port_num, unsigned index,
                            ibv_exp_gid_attr *attr);

}  // namespace ibvexp::translate
