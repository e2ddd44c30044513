// Erasure coding, behind the switch erasure_coding. It is emulated: the processor calculates, since
// no request is known by which a device does. Keys of memory are not looked at.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_exp_ec_calc *> alloc_ec_calc(ContextState &state, ibv_pd *pd,
                                        ibv_exp_ec_calc_init_attr *attr);
Result<void> dealloc_ec_calc(ContextState &state, ibv_exp_ec_calc *calc);

Result<void> ec_encode_sync(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem);
Result<void> ec_encode_async(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                             ibv_exp_ec_comp *report);
Result<void> ec_decode_sync(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                            std::uint8_t *lost, std::uint8_t *matrix);
Result<void> ec_decode_async(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                             std::uint8_t *lost, std::uint8_t *matrix, ibv_exp_ec_comp *report);
// The data list: the code blocks as they were, then of each changed block the old and the new one.
Result<void> ec_update_sync(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                            std::uint8_t *changed, std::uint8_t *wanted);
Result<void> ec_update_async(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                             std::uint8_t *changed, std::uint8_t *wanted, ibv_exp_ec_comp *report);
Result<int> ec_poll(ContextState &state, ibv_exp_ec_calc *calc, int n);
Result<void> ec_encode_send(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                            ibv_exp_ec_stripe *data, ibv_exp_ec_stripe *code);

}  // namespace ibvexp::translate
