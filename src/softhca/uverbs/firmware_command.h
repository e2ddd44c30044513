// The commands of user space (mlx5dv_devx_*): how they come and how the answers go. One that
// firmware does not know or refuses fails with EREMOTEIO.
#pragma once

#include "firmware/command.h"
#include "uverbs/attrs.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

using namespace firmware;

struct Command : firmware::Command {
  u16 out_id = 0;
};

// Reads the input box of attribute `in_id` and makes room for the output box.
int read_command(const File &, const Attrs &, u16 in_id, u16 out_id, Command &);
// Returns the output box with `status`; what the method is to return.
int reply(const Attrs &, Command &, Status);

}  // namespace softhca::uverbs
