// Devices and ports.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// ibv_get_device_list(), less the devices that IBVEXP_DEVICE leaves out.
ibv_device **shown_devices(int *count) noexcept;

// What the device can do decides about its queue pairs and targets: the reason where it does not
// answer, and otherwise state.device() is known.
Result<void> ask_device_now(ContextState &state);
inline Result<void> ask_device(ContextState &state) {
  if (state.knows_device()) [[likely]]
    return {};
  return ask_device_now(state);
}

// What ibv_query_device_ex() says, asked once for each device.
Result<const ibv_device_attr_ex *> extended_device(ContextState &state);

Result<ibv_device **> get_device_list(int *num_devices);
Result<void> query_device(ContextState &state, ibv_context *context, ibv_exp_device_attr *attr);
Result<void> query_port(ibv_context *context, std::uint8_t port_num, ibv_exp_port_attr *attr);

}  // namespace ibvexp::translate
