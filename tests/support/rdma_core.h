// The rdma-core that a test program runs with.
#pragma once

#include <link.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace support {

// Release of the libibverbs in this process: libibverbs.so.1.14.44.0 is of 44.
// Without one, newer than any.
inline int rdma_core_release() {
  // Where an old one is played (e2e/old_rdma_core.c).
  if (const char *played = std::getenv("OLD_RDMA_CORE")) return std::atoi(played);
  int release = INT_MAX;
  dl_iterate_phdr(
      [](dl_phdr_info *info, std::size_t, void *out) {
        char file[PATH_MAX];
        if (std::strstr(info->dlpi_name, "/libibverbs.so.") == nullptr ||
            realpath(info->dlpi_name, file) == nullptr)
          return 0;
        const char *name = std::strstr(file, "/libibverbs.so.");
        return static_cast<int>(name != nullptr && std::sscanf(name, "/libibverbs.so.%*d.%*d.%d",
                                                               static_cast<int *>(out)) == 1);
      },
      &release);
  return release;
}

}  // namespace support
