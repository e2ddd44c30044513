#include "tool/layout.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tool/audited.h"
#include "tool/loaded.h"
#include "tool/script.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

// The programs behind a script, and behind scripts that it starts. Of another program none.
std::vector<fs::path> started_by_script(const fs::path &file) {
  std::vector<fs::path> out;
  const auto add_those_of = [&](const fs::path &script) {
    std::ifstream in(script, std::ios::binary);
    if (in.get() != '#' || in.get() != '!') return;
    in.seekg(0);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    for (fs::path &program : started_by(script, text).programs)
      if (std::ranges::find(out, program) == out.end()) out.push_back(std::move(program));
  };
  add_those_of(file);
  for (std::size_t i = 0; i < out.size(); ++i) add_those_of(fs::path(out[i]));
  return out;
}

}  // namespace

std::optional<LayoutReader> find_layout(const fs::path &program, std::vector<fs::path> loaded) {
  for (const fs::path &started : started_by_script(program))
    std::ranges::move(loaded_with(started), std::back_inserter(loaded));
  Words of_verbs;
  for (const fs::path &file : loaded)
    if (!is_provider(file) && names_verbs(ElfHead(file))) of_verbs.push_back(file.string());
  if (of_verbs.empty()) return {};
  const nlohmann::json report = audited(of_verbs, false);
  for (const auto &f : report.at("files"))
    if (f.contains("layout")) return LayoutReader{f.at("path"), f.at("layout")};
  return {};
}

}  // namespace ibvexp::tool
