#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string_view>

#include "tool/migrate/conditions.h"
#include "tool/migrate/edits.h"

namespace ibvexp::migrate {

namespace {

// What a legacy header becomes, if that is not included already.
struct Successor {
  std::string_view legacy, modern;
};
constexpr auto successors = std::to_array<Successor>({
    {"infiniband/verbs_exp.h", "infiniband/verbs.h"},
    {"infiniband/ofa_verbs.h", "infiniband/verbs.h"},
    {"infiniband/mlx5_hw.h", "infiniband/mlx5dv.h"},
});

const Successor *successor_of(const std::string &header) {
  const auto found = std::find_if(successors.begin(), successors.end(),
                                  [&](const Successor &s) { return s.legacy == header; });
  return found == successors.end() ? nullptr : &*found;
}

// The words of the new text that begin so.
std::set<std::string> words(const File &file, const std::regex &pattern) {
  std::set<std::string> found;
  for (const Edit &edit : file.edits)
    for (std::sregex_iterator at(edit.text.begin(), edit.text.end(), pattern), end; at != end; ++at)
      found.insert(at->str());
  return found;
}

std::string read(const std::filesystem::path &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The headers of ours that declare what the new text names.
std::set<std::string> helpers(const File &file, const std::string &folder) {
  static const std::regex ours("(ibvexp|IBVEXP)_\\w+");
  std::set<std::string> found;
  for (const std::string &word : words(file, ours))
    for (const char *header :
         {"ibvexp_migrate.h", "ibvexp_requests.h", "ibvexp_families.h", "ibvexp_xrc.h"})
      if (std::regex_search(read(std::filesystem::path(folder) / header),
                            std::regex("\\b" + word + "\\b"))) {
        found.insert(header);
        break;
      }
  return found;
}

bool includes(const File &file, const std::string &name) {
  return std::any_of(file.includes.begin(), file.includes.end(),
                     [&](const auto &include) { return include.second.name == name; });
}

std::size_t start_of_line(const File &file, std::size_t at) {
  const std::size_t newline = file.text.rfind('\n', at);
  return newline == std::string::npos ? 0 : newline + 1;
}

void insert(File &file, Edit edit) {
  const auto place = std::find_if(file.edits.begin(), file.edits.end(),
                                  [&](const Edit &e) { return e.offset >= edit.offset; });
  file.edits.insert(place, std::move(edit));
}

// The first legacy header becomes its successor, unless that is there; others go.
void replace_headers(File &file) {
  std::set<std::string> there;
  for (const auto &[offset, include] : file.includes) there.insert(include.name);
  for (const auto &[offset, include] : file.includes) {
    const Successor *to = successor_of(include.name);
    if (to == nullptr) continue;
    const std::string modern(to->modern);
    if (there.insert(modern).second) {
      insert(file, {offset, include.length, "<" + modern + ">", Kind::include, include.name});
    } else {
      const std::size_t line = start_of_line(file, offset);
      insert(file, {line, file.text.find('\n', line) + 1 - line, "", Kind::include, include.name});
    }
  }
}

// The condition that all edits with such words stand under, or "".
std::string common_condition(const File &file, const std::regex &pattern) {
  std::string line;
  bool first = true;
  for (const Edit &edit : file.edits) {
    if (!std::regex_search(edit.text, pattern)) continue;
    const auto around = conditions_at(file.text, edit.offset);
    if (around.empty() || around.front().other_branch) return "";
    if (!first && around.front().line != line) return "";
    line = around.front().line;
    first = false;
  }
  return line;
}

// Behind the last include that no condition hides and that stands in front of the first use.
std::size_t behind_includes(const File &file, const std::regex &pattern) {
  std::size_t use = file.text.size();
  for (const Edit &edit : file.edits)
    if (std::regex_search(edit.text, pattern)) use = std::min(use, edit.offset);
  std::size_t place = start_of_line(file, file.includes.begin()->first);
  for (const auto &[offset, include] : file.includes)
    if (offset < use && conditions_at(file.text, offset).empty())
      place = file.text.find('\n', offset) + 1;
  return place;
}

// In front of the legacy header; in files without one behind the others, under the condition
// that the uses stand under.
void add_headers(File &file, const std::string &folder) {
  static const std::regex dv("(mlx5dv|MLX5DV)_\\w+"), tags("ibv_(tmh|rvh)|IBV_TMH_\\w+"),
      both("(mlx5dv|MLX5DV|ibvexp|IBVEXP|IBV_TMH)_\\w+|ibv_(tmh|rvh)");
  std::string wanted;
  for (const std::string &header : helpers(file, folder))
    if (!includes(file, header)) wanted += "#include <" + header + ">\n";
  if (!words(file, dv).empty() && !includes(file, "infiniband/mlx5dv.h") &&
      !includes(file, "infiniband/mlx5_hw.h"))
    wanted += "#include <infiniband/mlx5dv.h>\n";
  if (!words(file, tags).empty() && !includes(file, "infiniband/tm_types.h"))
    wanted += "#include <infiniband/tm_types.h>\n";
  if (wanted.empty() || file.includes.empty()) return;
  const auto at = std::find_if(file.includes.begin(), file.includes.end(), [](const auto &include) {
    return successor_of(include.second.name) != nullptr;
  });
  if (at != file.includes.end())
    return insert(file,
                  {start_of_line(file, at->first), 0, wanted, Kind::include, at->second.name});
  const std::string condition = common_condition(file, both);
  if (!condition.empty()) wanted = condition + "\n" + wanted + "#endif\n";
  insert(file, {behind_includes(file, both), 0, wanted, Kind::include, ""});
}

}  // namespace

void change_includes(Files &files, const std::string &helper) {
  const bool whole =
      std::all_of(files.begin(), files.end(), [](const auto &file) { return file.second.whole(); });
  for (auto &[path, file] : files) {
    if (file.alone()) continue;
    if (whole) replace_headers(file);
    add_headers(file, helper);
  }
}

}  // namespace ibvexp::migrate
