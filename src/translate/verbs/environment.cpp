#include "translate/verbs/environment.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "trace/diagnose.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<void> setenv(ContextState &state, ibv_context *, const char *name, const char *value,
                    int overwrite) {
  constexpr EntryId id = EntryId::ibv_exp_setenv;
  if (name == nullptr) return invalid(id, "name", 0, "must not be null");
  if (value == nullptr) return invalid(id, "value", 0, "must not be null");
  {
    const MutexGuard guard(state.mutex);
    if (overwrite != 0) state.environment.insert_or_assign(name, value);
    else if (!state.environment.try_emplace(name, value).second) return Error{EEXIST};
  }
  log(LogLevel::info, "ibv_exp_setenv: %s=%s kept in the context; rdma-core does not see it", name,
      value);
  return {};
}

// Every context has a store of its own from the start.
Result<void> use_priv_env(ibv_context *) { return {}; }

bool is_set(ContextState &state, const char *name) {
  const char *process = std::getenv(name);
  const MutexGuard guard(state.mutex);
  const auto own = state.environment.find(name);
  if (own != state.environment.end()) return own->second != "0";
  return process != nullptr && std::strcmp(process, "0") != 0;
}

std::string own_variable(ContextState &state, const char *name) {
  const MutexGuard guard(state.mutex);
  const auto found = state.environment.find(name);
  return found != state.environment.end() ? found->second : std::string();
}

std::string variable(ContextState &state, const char *name) {
  if (std::string own = own_variable(state, name); !own.empty()) return own;
  const char *value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace ibvexp::translate
