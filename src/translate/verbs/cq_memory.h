// Completion queues whose buffer this library knows.
//
// mlx5dv_init_obj() would show the buffer, too, but makes libmlx5 stop cleaning
// the queue when a queue pair goes, and its own polling then fails. Instead such
// queues take their memory from us, through a parent domain with allocators.
#pragma once

#include "base/result.h"
#include "translate/state/context_state.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace ibvexp::translate {

// Creates a queue that takes its memory from here. attr gets the parent domain.
// The ring of state then says where the entries lie, until the queue goes. With an
// rdma-core that has no such allocators the memory is libmlx5's, and the ring does
// not know it.
Result<ibv_cq_ex *> create_cq_in_memory(ContextState &context, CqState &state,
                                        ibv_cq_init_attr_ex &attr, mlx5dv_cq_init_attr &dv);

// Before a context closes: frees what such queues had in common.
void release_cq_memory(ContextState *context);

}  // namespace ibvexp::translate
