#include "tool/loaded.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "table/compat.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

std::string with_origin(std::string folder, const fs::path &file) {
  const std::string origin = file.parent_path().string();
  for (const std::string_view variable : {"$ORIGIN", "${ORIGIN}"})
    if (const std::size_t at = folder.find(variable); at != std::string::npos)
      folder.replace(at, variable.size(), origin.empty() ? "." : origin);
  return folder;
}

// Of LD_LIBRARY_PATH, of the file, of the system.
std::vector<fs::path> folders_of(const fs::path &file, const ElfHead &head) {
  std::vector<fs::path> out;
  const auto add = [&](std::string_view folder) {
    out.emplace_back(with_origin(std::string(folder), file));
  };
  if (const char *path = std::getenv("LD_LIBRARY_PATH")) for_each_word(path, ':', add);
  for_each_word(head.run_path(), ':', add);
  const std::string machine =
      head.machine() == EM_AARCH64 ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
  for (const std::string &folder :
       {"/lib/" + machine, "/usr/lib/" + machine, std::string("/lib64"), std::string("/usr/lib64"),
        std::string("/lib"), std::string("/usr/lib"), std::string("/usr/local/lib")})
    out.emplace_back(folder);
  return out;
}

fs::path find(const std::string &name, const std::vector<fs::path> &folders) {
  if (name.find('/') != std::string::npos) return name;
  for (const fs::path &folder : folders) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) return folder / name;
  }
  return {};
}

}  // namespace

std::vector<fs::path> libraries_of(const fs::path &file) {
  const ElfHead head(file);
  const std::vector<fs::path> folders = folders_of(file, head);
  std::vector<fs::path> out;
  for (const std::string &name : head.needed())
    if (fs::path found = find(name, folders); !found.empty()) out.push_back(std::move(found));
  return out;
}

bool is_provider(const fs::path &library) {
  const std::string name = library.filename().string();
  for (const std::string_view ours : {"libibverbs", "libmlx5", "librdmacm", "libsofthca"})
    if (name.starts_with(ours)) return true;
  return false;
}

std::vector<fs::path> loaded_with(const fs::path &program) {
  std::vector<fs::path> out{program};
  if (const char *preloaded = std::getenv("LD_PRELOAD")) {
    std::string list = preloaded;
    std::ranges::replace(list, ' ', ':');
    const std::vector<fs::path> folders = folders_of(program, ElfHead(program));
    for_each_word(list, ':', [&](std::string_view name) {
      if (fs::path found = find(std::string(name), folders); !found.empty())
        out.push_back(std::move(found));
    });
  }
  std::set<fs::path> known(out.begin(), out.end());
  for (std::size_t i = 0; i < out.size(); ++i)
    for (fs::path &library : libraries_of(fs::path(out[i])))
      if (known.insert(library).second) out.push_back(std::move(library));
  return out;
}

}  // namespace ibvexp::tool
