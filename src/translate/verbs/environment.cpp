#include "translate/verbs/environment.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "trace/diagnose.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

namespace {

std::optional<std::string> find_own(ContextState &state, const char *name) {
  const MutexGuard guard(state.mutex);
  const auto found = state.environment.find(name);
  if (found == state.environment.end()) return {};
  return found->second;
}

bool is(const char *variable, const char *value) {
  const char *set = std::getenv(variable);
  return set != nullptr && std::strcmp(set, value) == 0;
}

bool has_large_completions() { return is("MLX5_CQE_SIZE", "128"); }
bool scatters() { return !is("MLX5_SCATTER_TO_CQE", "0"); }

}  // namespace

Result<void> setenv(ContextState &state, ibv_context *, const char *name, const char *value,
                    int overwrite) {
  constexpr EntryId id = EntryId::ibv_exp_setenv;
  if (name == nullptr) return invalid(id, "name", 0, "must not be null");
  if (value == nullptr) return invalid(id, "value", 0, "must not be null");
  {
    const MutexGuard guard(state.mutex);
    state.has_environment = true;
    if (overwrite != 0) state.environment.insert_or_assign(name, value);
    else if (!state.environment.try_emplace(name, value).second) return Error{EEXIST};
  }
  log(LogLevel::info, "ibv_exp_setenv: %s=%s kept in the context; rdma-core does not see it", name,
      value);
  return {};
}

// Every context has a store of its own from the start.
Result<void> use_priv_env(ibv_context *) { return {}; }

bool is_set_to_any(ContextState &state, const char *name, const char *process) {
  if (state.has_environment)
    if (const auto own = find_own(state, name)) return *own != "0";
  return process != nullptr && std::strcmp(process, "0") != 0;
}

std::string own_variable(ContextState &state, const char *name) {
  if (!state.has_environment) [[likely]]
    return {};
  return find_own(state, name).value_or(std::string());
}

std::string variable(ContextState &state, const char *name) {
  if (std::string own = own_variable(state, name); !own.empty()) return own;
  const char *value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::uint32_t scatter_to_connected() {
  if (!scatters()) return 0;
  return has_large_completions() ? 64 : 32;
}
std::uint32_t scatter_to_dct(std::uint32_t entry_size) {
  const bool large = entry_size != 0 ? entry_size == 128 : has_large_completions();
  return scatters() && large ? 64 : 0;
}

}  // namespace ibvexp::translate
