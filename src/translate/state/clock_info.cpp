#include "translate/state/clock_info.h"

#include <cerrno>

#include "base/keep_errno.h"
#include "translate/convert/clock_convert.h"

namespace ibvexp::translate {

namespace {

// The kernel may be writing the page for a moment.
constexpr int attempts = 1000;

}  // namespace

Result<ibv_exp_clock_info> read_clock_info(ibv_context *context) {
  // libmlx5 of rdma-core 28 takes any context for one of its own.
  if (!mlx5dv_is_supported(context->device)) return Error{ENOTSUP};
  mlx5dv_clock_info info{};
  int error = EBUSY;
  for (int i = 0; i < attempts && error == EBUSY; ++i)
    error = mlx5dv_get_clock_info(context, &info);
  if (const auto read = outcome(error); !read) return read.failure();
  return to_legacy(info);
}

}  // namespace ibvexp::translate
