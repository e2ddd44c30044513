// Receive work queues and indirection tables.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_exp_wq *> create_wq(ContextState &state, ibv_context *context,
                               ibv_exp_wq_init_attr *attr);
Result<void> modify_wq(ContextState &state, ibv_exp_wq *wq, ibv_exp_wq_attr *attr);
Result<void> destroy_wq(ContextState &state, ibv_exp_wq *wq);

Result<ibv_exp_rwq_ind_table *> create_rwq_ind_table(ContextState &state, ibv_context *context,
                                                     ibv_exp_rwq_ind_table_init_attr *attr);
Result<void> destroy_rwq_ind_table(ContextState &state, ibv_exp_rwq_ind_table *table);

}  // namespace ibvexp::translate
