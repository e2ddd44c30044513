#include "exp/caller.h"

#include <link.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace ibvexp {

namespace {

struct Search {
  std::uintptr_t address;
  bool found;
};

bool is_wanted(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libmlx5.so") || name.starts_with("libmlx5-rdmav") ||
         name.starts_with("libibverbs.so");
}

int look(dl_phdr_info *object, std::size_t, void *context) {
  auto &search = *static_cast<Search *>(context);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    if (search.address - object->dlpi_addr - segment.p_vaddr >= segment.p_memsz) continue;
    search.found = is_wanted(object->dlpi_name);
    return 1;
  }
  return 0;
}

}  // namespace

bool is_of_rdma_core(const void *return_address) noexcept {
  // The last one that was not: a program makes its queues in one place. rdma-core's libraries stay
  // where they are.
  static std::atomic<const void *> other{nullptr};
  if (return_address == other.load(std::memory_order_relaxed)) return false;
  Search search{reinterpret_cast<std::uintptr_t>(return_address), false};
  dl_iterate_phdr(&look, &search);
  if (!search.found) other.store(return_address, std::memory_order_relaxed);
  return search.found;
}

}  // namespace ibvexp
