#include "tool/migrate/edits.h"

#include <algorithm>

namespace ibvexp::migrate {

namespace {

constexpr auto legacy_header = "infiniband/verbs_exp.h";

bool mentions(const File &file, const char *prefix, const char *other) {
  return std::any_of(file.edits.begin(), file.edits.end(), [&](const Edit &e) {
    return e.text.find(prefix) != std::string::npos || e.text.find(other) != std::string::npos;
  });
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
void change_includes(File &file, bool whole) {
  std::string wanted;
  if (mentions(file, "ibvexp_", "IBVEXP_") && !includes(file, "ibvexp_migrate.h"))
    wanted += "#include <ibvexp_migrate.h>\n";
  if (mentions(file, "mlx5dv_", "MLX5DV_") && !includes(file, "infiniband/mlx5dv.h"))
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

void change_includes(Files &files) {
  const bool whole =
      std::all_of(files.begin(), files.end(), [](const auto &file) { return file.second.whole(); });
  for (auto &[path, file] : files) change_includes(file, whole);
}

}  // namespace ibvexp::migrate
