#include "tool/audit/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tool/audit/subjects.h"
#include "tool/plural.h"

namespace ibvexp::audit {
namespace {

constexpr std::size_t most_places = 5;
constexpr std::size_t most_names = 5;

bool is_of_provider(const Subject &s) {
  return s.severity == Severity::fails && s.family == info(Family::provider).title;
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
    strided_queues_ = strided_queues_ || use.subject->name == "IBV_EXP_CREATE_WQ_MP_RQ";
    strided_srqs_ = strided_srqs_ || use.subject->name == "IBV_EXP_CREATE_SRQ_MP_WR";
    const bool offered = use.severity == Severity::off && !use.subject->switch_name.empty();
    if ((use.severity < Severity::layout && !offered) || use.suppressed) return;
    // A verb that refuses some requests is no reason beside what it refused.
    if (use.evidence == Evidence::trace && use.subject->verdict == "partial")
      vague_.push_back({&file, &use});
    else count(file, use);
  }

  void cannot(const std::string &why) { obstacles_.insert(why); }
  void unjudged(const std::string &why) { unjudged_.insert(why); }
  void layout(std::string_view release) {
    if (!release.empty()) program_.layout = release;
  }

  void startable() { startable_ = true; }
  void unread(std::vector<std::string> libraries) { unread_ = std::move(libraries); }
  bool used() const { return used_; }

  Program judge() {
    if (reasons_.empty())
      for (const auto &[file, use] : vague_) count(*file, *use);
    // What the completions of such shared receive queues say comes with the queues.
    if (strided_srqs_ && !strided_queues_)
      std::erase_if(reasons_, [](const auto &r) {
        return r.first->switch_name == name_of(Beyond::mp_rq_poll);
      });
    for (auto &[subject, reason] : reasons_) {
      program_.reasons.push_back(std::move(reason));
      if (!subject->switch_name.empty() && program_.reasons.back().severity == Severity::beyond)
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
    // A capability that a switch reports is more of the program, too.
    const Severity severity = use.severity == Severity::off ? Severity::beyond : use.severity;
    r.severity = std::max(r.severity, severity);
    ++r.count;
    if (r.places.size() < most_places) r.places.push_back(place_of(file, use));
  }

  Standing standing() const {
    const Severity worst =
        program_.reasons.empty() ? Severity::works : program_.reasons.front().severity;
    if (!obstacles_.empty() || worst == Severity::fails) return Standing::fails;
    if (!unjudged_.empty()) return Standing::unjudged;
    if (!used_) return Standing::unused;
    switch (worst) {
      case Severity::refused: return Standing::off;
      case Severity::beyond: return Standing::beyond;
      default: return Standing::works;
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

  std::string why_it_fails() const {
    std::set<std::string_view> why(obstacles_.begin(), obstacles_.end());
    for (const Reason &r : program_.reasons)
      if (r.severity == Severity::fails)
        why.insert(is_of_provider(*r.subject) ? provider_plugin().note : r.subject->note);
    std::string all = fmt::format("{}", fmt::join(why, " "));
    if (all.ends_with('.')) all.pop_back();
    if (all.starts_with("It ")) all.front() = 'i';
    return all;
  }

  std::string sentence() const {
    switch (program_.standing) {
      case Standing::unused: return "uses no experimental verbs" + but_unread();
      case Standing::fails: return "does not work: " + why_it_fails();
      case Standing::unjudged: return fmt::format("not judged: {}", fmt::join(unjudged_, "; "));
      default: break;
    }
    std::string out = "works";
    if (!names(Severity::layout).empty())
      out += fmt::format(" (on structures of libmlx5{}{})", program_.layout.empty() ? "" : " ",
                         program_.layout);
    if (const auto off = names(Severity::refused); !off.empty())
      out += fmt::format(", {} off: {}", tool::plural(off.size(), "feature"), listed(off));
    if (const auto more = names(Severity::beyond); !program_.switches.empty())
      out += fmt::format("{} --beyond {} adds {}", names(Severity::refused).empty() ? "," : ";",
                         fmt::join(program_.switches, ","), listed(more));
    return out + but_unread();
  }

  // No all-clear for what was not looked at.
  std::string but_unread() const {
    if (unread_.empty()) return {};
    const std::vector<std::string_view> all(unread_.begin(), unread_.end());
    return fmt::format("; not read: {} (--recursive)", listed(all));
  }

  static bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

  // A shell takes it as one word.
  static std::string quoted(const std::string &word) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             std::string_view("/._-+,=:@%").find(c) != std::string_view::npos;
    });
    if (plain) return word;
    // Terminals and logs get no control characters; what bash reads as them can still be typed.
    if (std::any_of(word.begin(), word.end(), is_control)) {
      std::string out = "$'";
      for (const char c : word)
        out += is_control(c)            ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c))
               : c == '\'' || c == '\\' ? std::string{'\\', c}
                                        : std::string(1, c);
      return out + "'";
    }
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  }

  std::string command() const {
    if (program_.standing < Standing::works || program_.standing > Standing::off) return {};
    std::string out;
    // The default needs no word.
    if (program_.layout == "3.x") out = "IBVEXP_LAYOUT=3.x ";
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
  std::set<std::string> switches_, obstacles_, unjudged_;
  std::vector<std::string> unread_;  // libraries
  bool used_ = false, startable_ = false;
  bool strided_queues_ = false, strided_srqs_ = false;
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
          return is_of_provider(*u.subject) && u.severity == Severity::fails;
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

// Those of C and C++ programs and of rdma-core have no verbs of the program.
std::vector<std::string> libraries_that_count(const FileReport &binary) {
  std::vector<std::string> out;
  for (const std::string &library : binary.libraries) {
    constexpr std::string_view others[] = {
        "libc.so",    "libm.so",    "libpthread.so", "libdl.so",     "librt.so",
        "libutil.so", "ld-linux",   "libgcc_s.so",   "libstdc++.so", "libatomic.so",
        "libgomp.so", "libnuma.so", "libnl-",        "libz.so",      "libibverbs.so",
        "libmlx5.so", "libmlx4.so", "librdmacm.so",  "libibumad.so", "libibverbs_exp.so"};
    const std::string_view name = std::string_view(library).substr(library.rfind('/') + 1);
    if (std::none_of(std::begin(others), std::end(others),
                     [&](std::string_view other) { return name.starts_with(other); }))
      out.push_back(library);
  }
  return out;
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
  if (!binary.unjudged.empty()) judge.unjudged(binary.unjudged);
  if (!report.loads.contains(binary.path)) judge.unread(libraries_that_count(binary));
  if (binary.program && !binary.member) judge.startable();
  return judge.judge();
}

// The static library that an object file is a member of, as lib.a(x.o), or in an archive as
// all.tar(lib.a/x.o); empty: of none.
std::string static_library_of(const FileReport &f) {
  if (!f.member || f.kind != FileKind::binary || f.program) return {};
  if (const std::size_t at = f.path.find(".a("); at != std::string::npos)
    return f.path.substr(0, at + 2);
  const std::size_t at = f.path.rfind(".a/");
  return at == std::string::npos ? std::string() : f.path.substr(0, at + 2) + ")";
}

Program judge_nothing(const FileReport &f) {
  Judge judge(f.path, f.kind);
  judge.unjudged(f.unjudged);
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
    if (!f.unjudged.empty()) tree.unjudged(fmt::format("{}: {}", f.path, f.unjudged));
  }
  out.reserve(trees.size() + providers.size());
  for (auto &[folder, provider] : providers) out.push_back(provider.judge());
  for (auto &[input, tree] : trees) out.push_back(tree.judge());

  for (const FileReport &f : report.files)
    if (f.kind == FileKind::binary && f.error.empty() && static_library_of(f).empty() &&
        (f.named || !f.uses.empty() || !f.unjudged.empty()))
      out.push_back(judge_binary(report, f, files));
    else if (f.kind != FileKind::binary && !f.unjudged.empty() && (!is_source(f) || f.uses.empty()))
      out.push_back(judge_nothing(f));

  // Members of a static library are one program's parts.
  std::map<std::string, Judge> static_libraries;
  for (const FileReport &f : report.files)
    if (const std::string name = static_library_of(f); !name.empty() && !f.uses.empty()) {
      Judge &library = static_libraries.try_emplace(name, name, FileKind::binary).first->second;
      for (const Use &u : f.uses) library.add(f, u);
      library.layout(f.layout);
    }
  for (auto &[name, judge] : static_libraries) out.push_back(judge.judge());

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
