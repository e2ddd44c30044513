#include "tool/migrate/edits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace ibvexp::migrate {

namespace {

constexpr auto legacy_header = "infiniband/verbs_exp.h";

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
    for (const char *header : {"ibvexp_migrate.h", "ibvexp_requests.h", "ibvexp_families.h"})
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

// Beside the legacy header, or in front of the others.
void change_includes(File &file, bool whole, const std::string &folder) {
  static const std::regex dv("(mlx5dv|MLX5DV)_\\w+");
  std::string wanted;
  for (const std::string &header : helpers(file, folder))
    if (!includes(file, header)) wanted += "#include <" + header + ">\n";
  if (!words(file, dv).empty() && !includes(file, "infiniband/mlx5dv.h"))
    wanted += "#include <infiniband/mlx5dv.h>\n";
  const auto legacy = std::find_if(file.includes.begin(), file.includes.end(),
                                   [](const auto &i) { return i.second.name == legacy_header; });
  if (legacy != file.includes.end() && whole) {
    if (includes(file, "infiniband/verbs.h")) {
      const std::size_t line = start_of_line(file, legacy->first);
      insert(file, {line, file.text.find('\n', line) + 1 - line, "", Kind::include, legacy_header});
    } else {
      insert(file, {legacy->first, legacy->second.length, "<infiniband/verbs.h>", Kind::include,
                    legacy_header});
    }
  }
  if (wanted.empty() || file.includes.empty()) return;
  const auto &at = legacy != file.includes.end() ? legacy : file.includes.begin();
  insert(file, {start_of_line(file, at->first), 0, wanted, Kind::include, legacy_header});
}

}  // namespace

void change_includes(Files &files, const std::string &helper) {
  const bool whole =
      std::all_of(files.begin(), files.end(), [](const auto &file) { return file.second.whole(); });
  for (auto &[path, file] : files) change_includes(file, whole, helper);
}

}  // namespace ibvexp::migrate
