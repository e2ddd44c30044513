#include "exp/announce.h"

#include <dlfcn.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/real.h"
#include "table/options.h"
#include "translate/state/context_state.h"

namespace ibvexp {

namespace {

// The file of libibverbs, whose name has its release at the end; where it is not to be
// found, what is asked for.
std::string file_of_libibverbs() {
  Dl_info info{};
  char file[PATH_MAX];
  const bool found = dladdr(reinterpret_cast<void *>(real().ibv_open_device), &info) != 0 &&
                     info.dli_fname != nullptr && realpath(info.dli_fname, file) != nullptr;
  return found ? file : "libibverbs.so.1";
}

std::string switches() {
  std::string out;
  for (std::size_t i = 0; i < beyond_switches.size(); ++i)
    if (process_options().beyond[i])
      out += (out.empty() ? "" : ",") + std::string(beyond_switches[i].name);
  return out.empty() ? "none" : out;
}

bool is_new(const std::string &device) {
  static std::mutex mutex;
  static auto *const known = new std::set<std::string>;  // devices may be opened at exit
  const std::scoped_lock lock(mutex);
  return known->insert(device).second;
}

}  // namespace

void announce_library() noexcept {
  if (!log_enabled(LogLevel::info)) return;
  const KeepErrno keep;
  const Options &o = process_options();
  log(LogLevel::info, "libibverbs_exp " IBVEXP_VERSION ", %s, engine %s, layout %s, switches %s",
      file_of_libibverbs().c_str(), o.objects == ObjectsOf::own ? "own" : "native",
      o.layout == ObjectLayout::v4 ? "4.x" : "3.x", switches().c_str());
}

void announce_device(const ContextState &state) noexcept {
  if (!log_enabled(LogLevel::info)) return;
  const KeepErrno keep;
  const char *name = state.context->device->name;
  if (!is_new(name)) return;
  log(LogLevel::info, "%s: opened, queues driven by %s", name,
      state.behind != nullptr ? "this library" : "rdma-core");
}

}  // namespace ibvexp
