#include "tool/audit/verdict.h"

#include "tool/audit/subjects.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace ibvexp::audit {
namespace {

constexpr std::size_t most_places = 5;
constexpr std::size_t most_names = 5;

bool is_of_provider(const Subject &s) {
  return s.severity == Severity::impossible && s.family == info(Family::provider).title;
}

// What one program is judged by.
class Judge {
 public:
  explicit Judge(std::string name, FileKind kind) {
    program_.name = std::move(name);
    program_.kind = kind;
  }

  void add(const FileReport &file, const Use &use) {
    used_ = true;
    if (use.severity < Severity::by_switch || use.suppressed) return;
    // A verb that refuses some requests is no reason beside what it refused.
    if (use.evidence == Evidence::trace && use.subject->verdict == "partial")
      vague_.push_back({&file, &use});
    else count(file, use);
  }

  void cannot(const std::string &why) { obstacles_.insert(why); }
  void layout(std::string_view release) {
    if (!release.empty()) program_.layout = release;
  }

  void startable() { startable_ = true; }
  bool used() const { return used_; }

  Program judge() {
    if (reasons_.empty())
      for (const auto &[file, use] : vague_) count(*file, *use);
    for (auto &[subject, reason] : reasons_) {
      program_.reasons.push_back(std::move(reason));
      if (!subject->switch_name.empty() && program_.reasons.back().severity == Severity::by_switch)
        switches_.emplace(subject->switch_name);
    }
    std::stable_sort(program_.reasons.begin(), program_.reasons.end(),
                     [](const Reason &a, const Reason &b) {
                       return std::tuple(-static_cast<int>(a.severity), a.subject->name) <
                              std::tuple(-static_cast<int>(b.severity), b.subject->name);
                     });
    program_.switches.assign(switches_.begin(), switches_.end());
    program_.standing = standing();
    program_.sentence = sentence();
    program_.command = command();
    return std::move(program_);
  }

 private:
  void count(const FileReport &file, const Use &use) {
    Reason &r =
        reasons_.try_emplace(use.subject, Reason{use.subject, use.severity, 0, {}}).first->second;
    r.severity = std::max(r.severity, use.severity);
    ++r.count;
    if (r.places.size() < most_places) r.places.push_back(place_of(file, use));
  }

  Standing standing() const {
    if (!used_) return Standing::unused;
    const Severity worst =
        program_.reasons.empty() ? Severity::fine : program_.reasons.front().severity;
    if (!obstacles_.empty() || worst == Severity::impossible) return Standing::cannot;
    switch (worst) {
      case Severity::layout: return Standing::layouts;
      case Severity::refused: return Standing::refused;
      case Severity::by_switch: return Standing::switches;
      default: return Standing::runs;
    }
  }

  std::vector<std::string_view> names(Severity s) const {
    std::vector<std::string_view> out;
    for (const Reason &r : program_.reasons)
      if (r.severity == s) out.push_back(r.subject->name);
    return out;
  }

  static std::string listed(const std::vector<std::string_view> &names) {
    const std::size_t shown = std::min(names.size(), most_names);
    std::string out = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
    if (names.size() > shown) out += fmt::format(" and {} more", names.size() - shown);
    return out;
  }

  std::string beyond() const {
    return fmt::format("IBVEXP_BEYOND={}", fmt::join(program_.switches, ","));
  }

  std::string refused() const {
    const auto all = names(Severity::refused);
    const bool happened = program_.kind == FileKind::trace;
    return fmt::format("{} request{} {} refused: {}", all.size(), all.size() == 1 ? "" : "s",
                       !happened         ? "will be"
                       : all.size() == 1 ? "was"
                                         : "were",
                       listed(all));
  }

  std::string sentence() const {
    std::string out;
    switch (program_.standing) {
      case Standing::unused: return "uses no experimental verbs";
      case Standing::runs: return "runs";
      case Standing::switches: return "runs with switches: " + beyond();
      case Standing::refused: out = "runs, but " + refused(); break;
      case Standing::layouts:
        out =
            "needs private layouts" + (program_.layout.empty() ? "" : " (" + program_.layout + ")");
        if (!names(Severity::refused).empty()) out += "; " + refused();
        break;
      case Standing::cannot: {
        std::vector<std::string_view> why(obstacles_.begin(), obstacles_.end());
        for (const Reason &r : program_.reasons)
          if (r.severity == Severity::impossible)
            why.push_back(is_of_provider(*r.subject) ? provider_plugin().note : r.subject->note);
        std::string all;
        for (const std::string_view w : std::set(why.begin(), why.end()))
          all += (all.empty() ? "" : " ") + std::string(w);
        if (all.ends_with('.')) all.pop_back();
        if (all.starts_with("It ")) all.front() = 'i';
        return "cannot run, because " + all;
      }
    }
    if (!program_.switches.empty()) out += "; more is served with " + beyond();
    return out;
  }

  // A shell takes it as one word.
  static std::string quoted(const std::string &word) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             std::string_view("/._-+,=:@%").find(c) != std::string_view::npos;
    });
    if (plain) return word;
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  }

  std::string command() const {
    if (program_.standing == Standing::unused || program_.standing == Standing::cannot) return {};
    std::string out;
    // Where the release does not show, it is most likely the one of the default.
    if (program_.standing == Standing::layouts && !program_.layout.empty())
      out = "IBVEXP_LAYOUT=" + program_.layout + " ";
    out += "ibvexp run ";
    if (!program_.switches.empty())
      out += fmt::format("--beyond {} ", fmt::join(program_.switches, ","));
    // Without a slash a shell looks for it elsewhere.
    const std::string here = program_.name.find('/') == std::string::npos ? "./" : "";
    return out + "-- " + (startable_ ? quoted(here + program_.name) : "PROGRAM");
  }

  Program program_;
  std::map<const Subject *, Reason> reasons_;
  std::vector<std::pair<const FileReport *, const Use *>> vague_;
  std::set<std::string> switches_, obstacles_;
  bool used_ = false, startable_ = false;
};

bool is_source(const FileReport &f) {
  return f.kind == FileKind::source || f.kind == FileKind::build_file;
}

std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "." : path.substr(0, slash);
}

bool is_inside(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// Folders with sources of a legacy provider. Trees bring copies of it, which are not
// the program: judged apart where other sources are left to judge.
std::set<std::string_view> provider_folders(const Report &report) {
  std::set<std::string_view> folders;
  for (const FileReport &f : report.files)
    if (f.kind == FileKind::source && !f.named &&
        std::any_of(f.uses.begin(), f.uses.end(), [](const Use &u) {
          return is_of_provider(*u.subject) && u.severity == Severity::impossible;
        }))
      folders.insert(folder_of(f.path));
  std::set<std::size_t> others;
  for (const FileReport &f : report.files)
    if (f.kind == FileKind::source && !f.uses.empty() &&
        std::none_of(folders.begin(), folders.end(),
                     [&](std::string_view folder) { return is_inside(f.path, folder); }))
      others.insert(f.input);
  std::erase_if(folders, [&](std::string_view folder) {
    return std::any_of(report.files.begin(), report.files.end(), [&](const FileReport &f) {
      return is_inside(f.path, folder) && !others.contains(f.input);
    });
  });
  return folders;
}

// A binary, with what it loads if that is audited as well.
Program judge_binary(const Report &report, const FileReport &binary,
                     const std::map<std::string_view, const FileReport *> &files) {
  Judge judge(binary.path, FileKind::binary);
  std::vector<std::string_view> parts{binary.path};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (const auto found = files.find(parts[i]); found != files.end()) {
      for (const Use &u : found->second->uses) judge.add(*found->second, u);
      judge.layout(found->second->layout);
    }
    const auto loads = report.loads.find(std::string(parts[i]));
    if (loads == report.loads.end()) continue;
    for (const std::string &library : loads->second)
      if (std::find(parts.begin(), parts.end(), library) == parts.end()) parts.push_back(library);
  }
  if (judge.used() && !binary.cannot_run.empty()) judge.cannot(binary.cannot_run);
  if (binary.program && !binary.member) judge.startable();
  return judge.judge();
}

}  // namespace

std::string place_of(const FileReport &file, const Use &use) {
  if (file.kind == FileKind::trace) return use.detail;
  if (file.kind != FileKind::binary)
    return use.line != 0 ? fmt::format("{}:{}", file.path, use.line) : file.path;
  std::string out;
  if (use.address != 0) {
    out = use.where.empty() ? fmt::format("{:#x}", use.address)
          : use.offset >= 0 ? fmt::format("{}+{:#x}", use.where, use.offset)
                            : use.where;
  } else {
    out = name_of(use.evidence);
  }
  if (!use.source.empty()) out += fmt::format(" ({}:{})", use.source, use.line);
  return out;
}

std::vector<Program> judge(const Report &report) {
  std::vector<Program> out;
  std::map<std::string_view, const FileReport *> files;
  for (const FileReport &f : report.files) files.emplace(f.path, &f);

  // Sources by the folder that was named; files that were named belong together.
  std::map<std::size_t, Judge> trees;
  std::map<std::string_view, Judge> providers;
  const std::set<std::string_view> folders = provider_folders(report);
  std::size_t named_sources = 0;
  for (const FileReport &f : report.files) named_sources += is_source(f) && f.named ? 1 : 0;
  constexpr std::size_t all_named = SIZE_MAX;
  for (const FileReport &f : report.files) {
    if (!is_source(f) || f.uses.empty()) continue;
    const std::string name = !f.named            ? report.inputs.at(f.input)
                             : named_sources > 1 ? fmt::format("{} files", named_sources)
                                                 : f.path;
    const auto folder = std::find_if(folders.begin(), folders.end(),
                                     [&](std::string_view d) { return is_inside(f.path, d); });
    Judge &tree =
        folder != folders.end()
            ? providers.try_emplace(*folder, std::string(*folder), FileKind::source).first->second
            : trees.try_emplace(f.named ? all_named : f.input, name, FileKind::source)
                  .first->second;
    for (const Use &u : f.uses) tree.add(f, u);
  }
  out.reserve(trees.size() + providers.size());
  for (auto &[folder, provider] : providers) out.push_back(provider.judge());
  for (auto &[input, tree] : trees) out.push_back(tree.judge());

  for (const FileReport &f : report.files)
    if (f.kind == FileKind::binary && f.error.empty() && (f.named || !f.uses.empty()))
      out.push_back(judge_binary(report, f, files));

  std::map<std::string, Judge> traced;
  for (const FileReport &f : report.files)
    if (f.kind == FileKind::trace)
      for (const Use &u : f.uses)
        traced.try_emplace(u.where, u.where, FileKind::trace).first->second.add(f, u);
  for (auto &[name, judge] : traced) {
    judge.startable();
    out.push_back(judge.judge());
  }
  // The worst first.
  std::stable_sort(out.begin(), out.end(),
                   [](const Program &a, const Program &b) { return a.standing > b.standing; });
  return out;
}

}  // namespace ibvexp::audit
