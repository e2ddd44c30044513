#include "uverbs/privilege.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "config/config.h"

namespace softhca::uverbs {

namespace {

u64 g_pinned;

}  // namespace

bool has_capability(u32 number) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[number / 32].effective >> (number % 32) & 1) != 0;
}

int pin(u64 bytes) {
  if (bytes / page_size > 0xffffffff) return EINVAL;
  if (config().enforce_memlock && !has_capability(CAP_IPC_LOCK)) {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == 0) return EPERM;
    if (limit.rlim_cur != RLIM_INFINITY && g_pinned + bytes > limit.rlim_cur) return ENOMEM;
  }
  g_pinned += bytes;
  return 0;
}

void unpin(u64 bytes) { g_pinned -= bytes; }

}  // namespace softhca::uverbs
