// The audit as text: uses by file, then the sums.
#include <fmt/format.h>

#include <algorithm>

#include "tool/audit/outputs.h"
#include "tool/audit/printable.h"
#include "tool/audit/totals.h"
#include "tool/audit/verdict.h"

namespace ibvexp::audit {
namespace {

class Table {
 public:
  explicit Table(bool colour) : colour_(colour) {}

  std::string make(const Report &report) {
    for (const Program &p : judge(report)) program(p);
    for (const FileReport &f : report.files)
      if (f.error.empty()) file(f);
    summary(report);
    return std::move(out_);
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args &&...args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  std::string paint(std::string_view code, std::string_view text) const {
    return colour_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
  }

  std::string severity(Severity s, int width = 0) const {
    constexpr std::string_view colours[] = {"32", "36", "36", "36", "33", "31", "1;31"};
    static_assert(std::size(colours) == severity_count);
    return paint(colours[static_cast<std::size_t>(s)], fmt::format("{:<{}}", name_of(s), width));
  }

  // The verdict, what it rests on, and what to type.
  void program(const Program &p) {
    constexpr std::string_view colours[] = {"2", "1;32", "1;32", "1;33", "1;35", "1;31"};
    static_assert(std::size(colours) == std::size(standing_names));
    print("{}: {}\n", paint("1", printable(p.name)),
          paint(colours[static_cast<std::size_t>(p.standing)], printable(p.sentence)));
    constexpr std::size_t most = 8;
    std::size_t width = 0;
    for (const Reason &r : p.reasons) width = std::max(width, r.subject->name.size());
    for (std::size_t i = 0; i < std::min(most, p.reasons.size()); ++i) {
      const Reason &r = p.reasons[i];
      print("  {} {:<{}}  {}{}\n", severity(r.severity, 10), r.subject->name, width,
            clipped(printable(fmt::format("{}", fmt::join(r.places, ", ")))),
            r.count > r.places.size() ? ", ..." : "");
    }
    if (p.reasons.size() > most) print("  and {} more, below\n", p.reasons.size() - most);
    if (!p.command.empty()) print("  $ {}\n", printable(p.command));
    print("\n");
  }

  static std::string plural(std::size_t n, std::string_view one, std::string_view many = {}) {
    return fmt::format("{} {}{}", n, n == 1 || many.empty() ? one : many,
                       n == 1 || !many.empty() ? "" : "s");
  }

  static std::string position(const Use &u) {
    if (u.address != 0)
      return fmt::format("{:#x}{}{}{}", u.address, u.where.empty() ? "" : " in ", u.where,
                         u.source.empty() ? "" : fmt::format(" ({}:{})", u.source, u.line));
    if (u.evidence == Evidence::trace) return plural(u.count, "call");
    if (u.line != 0) return std::to_string(u.line);
    return std::string(name_of(u.evidence));
  }

  // The other formats have all of it.
  static std::string clipped(std::string text) {
    constexpr std::size_t most = 100;
    if (text.size() > most) text.replace(most - 4, text.size(), " ...");
    return text;
  }

  void file(const FileReport &f) {
    if (f.uses.empty() && f.notes.empty() && f.kind != FileKind::binary) return;
    print("{}", paint("1", printable(f.path)));
    if (f.kind != FileKind::source) print("  ({})", name_of(f.kind));
    if (!f.header_release.empty()) print("  compiled with headers of {}", f.header_release);
    print("\n");
    // One line per name, the worst first.
    std::vector<const Use *> uses;
    for (const Use &u : f.uses) uses.push_back(&u);
    const auto key = [](const Use *u) {
      return std::tuple(-static_cast<int>(u->severity), u->subject->name);
    };
    std::stable_sort(uses.begin(), uses.end(),
                     [&](const Use *a, const Use *b) { return key(a) < key(b); });
    for (std::size_t i = 0; i < uses.size();) {
      const Subject &s = *uses[i]->subject;
      const Severity worst = uses[i]->severity;
      std::string positions;
      std::string detail;
      bool hint = false;
      for (; i < uses.size() && uses[i]->subject == &s && uses[i]->severity == worst; ++i) {
        positions += (positions.empty() ? "" : ", ") + position(*uses[i]);
        hint = uses[i]->evidence == Evidence::hint;
        if (uses[i]->evidence == Evidence::trace) detail = uses[i]->detail;
      }
      print("  {} {:<38} {:<12} {}{}\n", severity(worst, 11), s.name,
            s.planned ? std::string(s.verdict) + "*" : std::string(s.verdict),
            hint                                                           ? "at "
            : f.kind == FileKind::source || f.kind == FileKind::build_file ? "line "
                                                                           : "",
            printable(positions));
      if (!detail.empty()) print("{:>14}{}\n", "", clipped(printable(detail)));
      if (!s.replacement.empty()) print("{:>14}{}: {}\n", "", name_of(s.effort), s.replacement);
    }
    if (f.uses.empty()) print("  no experimental verbs found\n");
    for (const std::string &note : f.notes) print("  {}\n", paint("2", "note: " + note));
    print("\n");
  }

  void summary(const Report &report) {
    const Totals t = totals(report);
    print("Read {}, {}, {}, {} in {:.1f} s", plural(report.sources, "source"),
          plural(report.build_files, "build file"), plural(report.binaries, "binary", "binaries"),
          plural(report.traces, "trace"), report.seconds);
    if (t.uses != 0 && report.read() > t.files)
      print("; {} without experimental verbs", report.read() - t.files);
    if (report.unjudged() != 0) print("; {} not judged", report.unjudged());
    if (report.errors() != 0) print("; {} could not be read", report.errors());
    print(".\n");
    if (t.uses == 0) {
      print("No experimental verbs{}.\n",
            report.errors() + report.unjudged() != 0 ? " in what could be judged" : "");
      return;
    }
    print("{} in {}:", plural(t.uses, "use"), plural(t.files, "file"));
    for (std::size_t i = 0; i < t.by_severity.size(); ++i)
      if (t.by_severity[i] != 0)
        print("  {} {}", t.by_severity[i], severity(static_cast<Severity>(i)));
    print("\nTo rewrite by hand:");
    for (std::size_t i = 0; i < t.by_effort.size(); ++i)
      if (t.by_effort[i] != 0) print("  {} {}", t.by_effort[i], effort_names[i]);
    print("\n");
    std::size_t width = 0;
    for (const auto &[family, counts] : t.by_family) width = std::max(width, family.size());
    for (const auto &[family, counts] : t.by_family) {
      print("  {:<{}}", family, width);
      for (std::size_t i = 0; i < counts.size(); ++i)
        if (counts[i] != 0) print("  {} {}", counts[i], severity(static_cast<Severity>(i)));
      print("\n");
    }
    const bool planned = std::any_of(report.files.begin(), report.files.end(), [](const auto &f) {
      return std::any_of(f.uses.begin(), f.uses.end(),
                         [](const Use &u) { return u.subject->planned; });
    });
    if (planned) print("* planned: refused with ENOTSUP by this release\n");
  }

  bool colour_;
  std::string out_;
};

}  // namespace

std::string as_table(const Report &report, bool colour) { return Table(colour).make(report); }

}  // namespace ibvexp::audit
