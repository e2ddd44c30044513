// Settings that a program makes for one context or in the environment of the process.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Kept in the context. Never in the process environment: a program that replaces
// the allocator and clears the environment from a destructor dies of that.
Result<void> setenv(ContextState &state, ibv_context *context, const char *name, const char *value,
                    int overwrite);

Result<void> use_priv_env(ibv_context *context);

// The answer where one of the two is set. process: the value in the process environment, or null.
bool is_set_to_any(ContextState &state, const char *name, const char *process);
// Whether a switch of the legacy provider is on, here or in the process
// environment: set, and not to 0. Not for data paths.
inline bool is_set(ContextState &state, const char *name) {
  const char *const process = std::getenv(name);
  if (process == nullptr && !state.has_environment) [[likely]]
    return false;
  return is_set_to_any(state, name, process);
}

// A variable that the program has set for this context; empty if it has not.
std::string own_variable(ContextState &state, const char *name);

// A variable as the legacy provider saw it: that of the context, else that of the
// process. Empty if neither has it.
std::string variable(ContextState &state, const char *name);

// Bytes of small receives that land in the completion itself: half of it on connected queue pairs;
// on DC targets with large ones only. The kernel does not say what it grants; it decides by the
// size of the completion, which the environment can double. entry_size: of the CQ; 0: not known.
std::uint32_t scatter_to_connected();
std::uint32_t scatter_to_dct(std::uint32_t entry_size);

}  // namespace ibvexp::translate
