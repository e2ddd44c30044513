#include "tool/layout.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "tool/audited.h"
#include "tool/libraries.h"
#include "tool/loaded.h"
#include "tool/script.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

constexpr const char *no_release = "none";

// A line for each answer: the build IDs of the audit that gave it and of the file, and the
// release. A cache that cannot be written is none.
class Answers {
 public:
  Answers() : audit_(ElfHead(running_file().parent_path() / "ibvexp-audit").build_id()) {
    if (audit_.empty()) return;
    const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
    if (cache != nullptr && *cache == '/') file_ = cache;
    else if (home != nullptr) file_ = fs::path(home) / ".cache";
    if (!file_.empty()) file_ /= "libibverbs_exp/layouts";
    std::ifstream text(file_);
    for (std::string audit, id, release; text >> audit >> id >> release;)
      if (audit == audit_ && (release == no_release || release == "3.x" || release == "4.x"))
        known_[id] = release;
  }

  // Empty if there is none.
  std::string of(const ElfHead &file) const {
    const auto found = known_.find(file.build_id());
    return found == known_.end() ? std::string() : found->second;
  }

  void add(const ElfHead &file, const std::string &release) const {
    if (file_.empty() || file.build_id().empty()) return;
    std::error_code ignored;
    fs::create_directories(file_.parent_path(), ignored);
    std::ofstream(file_, std::ios::app) << audit_ + " " + file.build_id() + " " + release + "\n";
  }

 private:
  std::string audit_;
  fs::path file_;
  std::map<std::string, std::string> known_;
};

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

// Whether it lies where distributions put libraries.
bool of_system(std::string_view file) {
  return file.starts_with("/usr/lib") || file.starts_with("/lib");
}

}  // namespace

std::optional<LayoutReader> find_layout(const fs::path &program, std::vector<fs::path> loaded) {
  for (const fs::path &started : started_by_script(program))
    std::ranges::move(loaded_with(started), std::back_inserter(loaded));
  std::optional<Answers> answers;
  std::map<std::string, std::string> found;  // by file; empty: not known yet
  Words to_audit;
  const bool of_verbs =
      std::ranges::any_of(loaded, [](const fs::path &part) { return names_verbs(ElfHead(part)); });
  for (const fs::path &part : loaded) {
    if (!of_verbs || is_provider(part)) continue;
    std::error_code ignored;
    const std::string file = fs::canonical(part, ignored).string();
    // A library of the program may call verbs by inlines alone, and name none.
    const ElfHead head(part);
    if (found.contains(file) || (of_system(file) && !names_verbs(head))) continue;
    if (!answers) answers.emplace();
    if ((found[file] = answers->of(head)).empty()) to_audit.push_back(file);
  }
  if (!to_audit.empty()) {
    for (const std::string &file : to_audit) found[file] = no_release;
    const nlohmann::json report = audited(to_audit, false);
    for (const auto &f : report.at("files"))
      if (f.contains("layout"))
        found[f.at("path").get<std::string>()] = f.at("layout").get<std::string>();
    for (const std::string &file : to_audit) answers->add(ElfHead(file), found[file]);
  }
  for (const auto &[file, release] : found)
    if (release != no_release) return LayoutReader{file, release};
  return {};
}

}  // namespace ibvexp::tool
