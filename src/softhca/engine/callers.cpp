#include "engine/callers.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/types.h"

namespace softhca {

namespace {

struct Code {
  u64 begin, end;
  bool operator==(const Code &) const = default;
};
struct Callers {
  std::vector<Code> code;
  const Callers *before;  // another thread may still be reading them
};
std::atomic<const Callers *> g_callers{nullptr};

constexpr const char *provider = "libmlx5.so";

bool is_linked_with_provider(const dl_phdr_info &info, const ElfW(Dyn) * entries) {
  const char *names = nullptr;
  for (auto *e = entries; e->d_tag != DT_NULL; ++e) {
    // The loader has made it an address, most often.
    const u64 at = e->d_un.d_ptr;
    if (e->d_tag == DT_STRTAB)
      names = reinterpret_cast<const char *>(at < info.dlpi_addr ? info.dlpi_addr + at : at);
  }
  if (names == nullptr) return false;
  for (auto *e = entries; e->d_tag != DT_NULL; ++e)
    if (e->d_tag == DT_NEEDED &&
        std::strncmp(names + e->d_un.d_val, provider, std::strlen(provider)) == 0)
      return true;
  return false;
}

bool drives_queues(const dl_phdr_info &info) {
  if (info.dlpi_name != nullptr && std::strstr(info.dlpi_name, provider) != nullptr) return true;
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      return is_linked_with_provider(
          info, reinterpret_cast<const ElfW(Dyn) *>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr));
  return false;
}

int add_code(dl_phdr_info *info, size_t, void *to) {
  if (!drives_queues(*info)) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &h = info->dlpi_phdr[i];
    if (h.p_type != PT_LOAD || (h.p_flags & PF_X) == 0) continue;
    const u64 begin = info->dlpi_addr + h.p_vaddr;
    static_cast<std::vector<Code> *>(to)->push_back({begin, begin + h.p_memsz});
  }
  return 0;
}

}  // namespace

void callers_find() {
  std::vector<Code> code;
  dl_iterate_phdr(add_code, &code);
  const Callers *before = g_callers.load();
  if (before == nullptr || before->code != code)
    g_callers.store(new Callers{std::move(code), before}, std::memory_order_release);
}

bool callers_have(const void *code) {
  const Callers *callers = g_callers.load(std::memory_order_acquire);
  const u64 at = reinterpret_cast<u64>(code);
  return callers != nullptr &&
         std::any_of(callers->code.begin(), callers->code.end(),
                     [&](const Code &c) { return at >= c.begin && at < c.end; });
}

}  // namespace softhca
