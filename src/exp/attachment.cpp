#include "exp/attachment.h"

#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "base/keep_errno.h"
#include "base/lock.h"
#include "base/log.h"
#include "trace/tally.h"
#include "translate/verbs/cross_channel.h"
#include "translate/verbs/shared_region.h"
#include "translate/verbs/target_events.h"
#include "translate/verbs/xrc.h"

namespace ibvexp {

// Not a standard layout, but a plain one: no bases, no virtual functions.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(Attachment, table) == sizeof(ContextState),
              "find_state() expects the state directly below the table");
#pragma GCC diagnostic pop

namespace {

// Attaching and detaching, of all contexts. Never held across a call into
// rdma-core.
Mutex attaching;

// Attachments of contexts that were closed without our seeing it, as when the library
// was loaded too late to see ibv_close_device, are found when their address is
// used again.
std::unordered_map<ibv_context *, Attachment *> &attachments() {
  // Never destroyed: contexts may be closed from destructors at exit.
  static auto *all = new std::unordered_map<ibv_context *, Attachment *>;
  return *all;
}

ibvexp_context_words *words_of(ibv_context *context) {
  return reinterpret_cast<ibvexp_context_words *>(context) - 1;
}

// A legacy inline in another thread may read the words at any time. It has to
// see the size before the bit.
void store(std::uint64_t &word, std::uint64_t value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// Whether every command is an ioctl(), in which no thread is cancelled: to kernels before 5.10
// libibverbs writes some, and it reads a file for a GID. The method that is asked for, without what
// it has to be given, came last.
bool takes_all_by_ioctl(const ibv_context *context) noexcept {
  if (!mlx5dv_is_supported(context->device)) return false;
  ib_uverbs_ioctl_hdr command{};
  command.length = sizeof(command);
  command.object_id = UVERBS_OBJECT_DEVICE;
  command.method_id = UVERBS_METHOD_QUERY_GID_ENTRY;
  command.driver_id = RDMA_DRIVER_MLX5;
  const KeepErrno keep;
  return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &command) != 0 && errno == EINVAL;
}

}  // namespace

void decide_watched(ContextState &state) noexcept {
  if (state.watched_decided.exchange(true, std::memory_order_relaxed)) return;
  if (!log_enabled(LogLevel::debug) && takes_all_by_ioctl(state.context)) state.watched = false;
}

Attachment::Attachment(ibv_context *context) : state(context), table() { fill_table(table); }

Result<ContextState *> attach(ibv_context *context) {
  if (ContextState *state = find_state(context)) return state;
  if (context->abi_compat != __VERBS_ABI_IS_EXTENDED) return Error{ENOTSUP};

  trace::note_crashes();
  trace::count_opener();
  const MutexGuard guard(attaching);
  ibvexp_context_words &words = *words_of(context);
  if ((words.has_comp_mask & VERBS_CONTEXT_EXP) != 0) {
    if (ContextState *state = find_state(context)) return state;
    log(LogLevel::error,
        "libibverbs_exp is loaded twice, and its other copy serves this context: remove one of "
        "them from LD_PRELOAD or the link");
    return Error{ENOTSUP};
  }

  auto fresh = std::make_unique<Attachment>(context);
  Attachment *&known = attachments()[context];
  delete known;
  known = nullptr;

  fresh->old_mask = words.has_comp_mask;
  fresh->old_size = words.sz;
  const auto table_end = reinterpret_cast<std::uintptr_t>(&fresh->table + 1);
  store(words.sz, reinterpret_cast<std::uintptr_t>(context) + sizeof(*context) - table_end);
  store(words.has_comp_mask, words.has_comp_mask | VERBS_CONTEXT_EXP);
  known = fresh.release();
  return &known->state;
}

void detach(ibv_context *context) noexcept {
  const KeepErrno keep;
  if (find_state(context) == nullptr) return;
  Attachment *gone = nullptr;
  {
    const MutexGuard guard(attaching);
    const auto found = attachments().find(context);
    if (found == attachments().end() || found->second == nullptr) return;
    gone = found->second;
    ibvexp_context_words &words = *words_of(context);
    store(words.has_comp_mask, gone->old_mask);
    store(words.sz, gone->old_size);
    attachments().erase(found);
  }
  translate::forget_domains(context);
  translate::stop_target_events(gone->state);
  translate::free_channel_page(gone->state);
  for (auto &region : gone->state.owned_memory) translate::stop_sharing(gone->state, region.second);
  delete gone;
}

}  // namespace ibvexp
