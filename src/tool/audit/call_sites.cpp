#include "tool/audit/call_sites.h"

#include <fmt/core.h>

#include "tool/audit/binary/debug_info.h"
#include "tool/audit/binary/elf_image.h"

namespace ibvexp::audit {

struct CallSites::Module {
  explicit Module(const std::string &path) : image(path), debug(image) {}

  // The function around an address, by symbols alone.
  std::string function_at(std::uint64_t address) const {
    for (const NamedAddress &s : image.symbols())
      if (s.function && address >= s.address && address - s.address < s.size)
        return std::string(s.name);
    return {};
  }

  ElfImage image;
  DebugInfo debug;
};

CallSites::CallSites() = default;
CallSites::~CallSites() = default;

const std::string &CallSites::describe(const std::string &module, std::uint64_t offset) {
  const auto [it, fresh] = known_.try_emplace({module, offset});
  if (fresh) it->second = look_up(module, offset);
  return it->second;
}

std::string CallSites::look_up(const std::string &path, std::uint64_t offset) {
  const auto [it, fresh] = modules_.try_emplace(path);
  if (fresh) {
    try {
      it->second = std::make_unique<Module>(path);
    } catch (const InputError &) {
      // Gone since, or never a file.
    }
  }
  std::string bare = fmt::format("{}+{:#x}", path, offset);
  const Module *module = it->second.get();
  if (module == nullptr || !module->image.executable_at(offset)) return bare;
  const Place place = module->debug.place_of(offset);
  const std::string function =
      !place.function.empty() ? place.function : module->function_at(offset);
  if (place.line > 0)
    return fmt::format("{} ({}:{}) in {}", function.empty() ? "?" : function, place.file,
                       place.line, path);
  return function.empty() ? bare : fmt::format("{} in {}", function, bare);
}

}  // namespace ibvexp::audit
