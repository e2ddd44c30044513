#include "tool/migrate/build_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace fs = std::filesystem;

namespace ibvexp::migrate {

namespace {

const std::regex legacy("infiniband/verbs_exp\\.h|\\b(ibv_exp_|IBV_EXP_)\\w+");
// A library behind which mlx5's is named, in Make and Autoconf, CMake, and Meson.
const std::regex library("-libverbs\\b|(target_link_libraries *\\([^)]*)\\bibverbs\\b");

bool is_build_file(const fs::path &path) {
  static constexpr std::array names{"configure.ac", "configure.in", "CMakeLists.txt", "meson.build",
                                    "Makefile.am",  "Makefile",     "GNUmakefile"};
  const std::string name = path.filename(), suffix = path.extension();
  if ((name == "Makefile" || name == "GNUmakefile") &&
      (fs::exists(path.parent_path() / "Makefile.am") ||
       fs::exists(path.parent_path() / "CMakeCache.txt")))
    return false;
  return std::find(names.begin(), names.end(), name) != names.end() || suffix == ".m4" ||
         suffix == ".cmake";
}

std::string read(const fs::path &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<fs::path> folders_of(const std::vector<std::string> &sources) {
  constexpr int most = 4;
  std::set<fs::path> folders;
  for (const std::string &source : sources) {
    fs::path folder = fs::canonical(source).parent_path();
    for (int i = 0; i < most; ++i, folder = folder.parent_path()) {
      folders.insert(folder);
      if (fs::exists(folder / "m4")) folders.insert(folder / "m4");
      if (fs::exists(folder / ".git") || folder == folder.root_path()) break;
    }
  }
  return folders;
}

}  // namespace

bool needs_mlx5(const Files &files) {
  static const std::regex ours("\\b(mlx5dv_|ibvexp_)\\w+");
  return std::any_of(files.begin(), files.end(), [&](const auto &file) {
    return std::any_of(file.second.edits.begin(), file.second.edits.end(),
                       [&](const Edit &edit) { return std::regex_search(edit.text, ours); });
  });
}

namespace {

// An #include is one of a probe's program.
bool is_comment(const std::string &line) {
  static const std::regex include("^[ \t]*#[ \t]*include[ \t]*[<\"]");
  const std::size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos) return true;
  return line[at] == '#' ? !std::regex_search(line, include) : line.compare(at, 4, "dnl ") == 0;
}

// What stands for a legacy name in a probe: nothing if that takes more than one name.
std::string successor(const std::string &name, const Rules &rules) {
  if (name == "infiniband/verbs_exp.h") return "infiniband/verbs.h";
  std::string modern(Rules::name_by_table(name));
  if (const NameRule *rule = rules.name(name)) modern = rule->modern;
  return modern.starts_with("IBV_") && modern.find(' ') == std::string::npos ? modern : "";
}

void probes(File &file, std::size_t begin, const std::string &line, bool whole,
            const Rules &rules) {
  std::vector<Edit> edits;
  bool all = whole;
  for (std::sregex_iterator at(line.begin(), line.end(), legacy), end; at != end; ++at) {
    const std::string name = at->str(), modern = successor(name, rules);
    all = all && !modern.empty();
    edits.push_back(
        {begin + static_cast<std::size_t>(at->position()), name.size(), modern, Kind::build, name});
  }
  if (edits.empty()) return;
  if (all)
    for (Edit &edit : edits) file.add(std::move(edit));
  else file.findings.insert({edits.front().offset, Kind::build_left, edits.front().legacy});
}

}  // namespace

Files change_build_files(const std::vector<std::string> &sources, bool with_mlx5, bool whole,
                         const Rules &rules) {
  Files found;
  for (const fs::path &folder : folders_of(sources)) {
    std::error_code unreadable;
    for (const auto &entry : fs::directory_iterator(folder, unreadable)) {
      if (!entry.is_regular_file() || !is_build_file(entry.path())) continue;
      File file;
      file.text = read(entry.path());
      const bool names_mlx5 = file.text.find("mlx5") != std::string::npos;
      for (std::size_t begin = 0; begin < file.text.size();) {
        const std::size_t end = std::min(file.text.find('\n', begin), file.text.size());
        const std::string line = file.text.substr(begin, end - begin);
        std::smatch linked;
        if (!is_comment(line)) {
          probes(file, begin, line, whole, rules);
          if (with_mlx5 && !names_mlx5 && std::regex_search(line, linked, library)) {
            const std::size_t at = begin + static_cast<std::size_t>(linked.position()) +
                                   static_cast<std::size_t>(linked[1].length());
            file.add({at, 0, linked[1].matched ? "mlx5 " : "-lmlx5 ", Kind::build, "-lmlx5"});
          }
        }
        begin = end + 1;
      }
      if (!file.edits.empty() || !file.findings.empty())
        found.emplace(entry.path(), std::move(file));
    }
  }
  return found;
}

}  // namespace ibvexp::migrate
