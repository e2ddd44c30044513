// The audit as text: uses by file, then the sums.
#include <fmt/format.h>

#include <algorithm>

#include "tool/audit/outputs.h"
#include "tool/audit/printable.h"
#include "tool/audit/totals.h"
#include "tool/audit/verdict.h"
#include "tool/plural.h"

namespace ibvexp::audit {
namespace {

class Table {
 public:
  Table(bool colour, std::size_t width) : colour_(colour), width_(width) {}

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
    const std::string name = printable(p.name);
    print("{}: {}\n", paint("1", name),
          paint(colours[static_cast<std::size_t>(p.standing)],
                wrapped(printable(p.sentence), name.size() + 2, 4)));
    constexpr std::size_t most = 8;
    std::size_t width = 0;
    for (const Reason &r : p.reasons) width = std::max(width, r.subject->name.size());
    for (std::size_t i = 0; i < std::min(most, p.reasons.size()); ++i) {
      const Reason &r = p.reasons[i];
      const std::string places =
          fmt::format("{}{}", fmt::join(r.places, ", "), r.count > r.places.size() ? ", ..." : "");
      print("  {} {:<{}}  {}\n", severity(r.severity, 10), r.subject->name, width,
            clipped(printable(places), 15 + width));
    }
    if (p.reasons.size() > most) print("  and {} more, below\n", p.reasons.size() - most);
    if (!p.command.empty()) print("  $ {}\n", printable(p.command));
    print("\n");
  }

  static std::string position(const Use &u) {
    if (u.address != 0)
      return fmt::format("{:#x}{}{}{}", u.address, u.where.empty() ? "" : " in ", u.where,
                         u.source.empty() ? "" : fmt::format(" ({}:{})", u.source, u.line));
    if (u.evidence == Evidence::trace) return tool::plural(u.count, "call");
    if (u.line != 0) return std::to_string(u.line);
    return std::string(name_of(u.evidence));
  }

  // To the end of a line, in which it begins at that column. The other formats have all of it.
  std::string clipped(std::string text, std::size_t column) const {
    const std::size_t most = std::max(width_, column + least_) - column;
    if (text.size() > most) text.replace(most - 4, text.size(), " ...");
    return text;
  }

  // On lines of which the first begins at that column, and the others are indented.
  std::string wrapped(std::string_view text, std::size_t column, std::size_t indent) const {
    std::string out;
    for_each_word(text, ' ', [&](std::string_view word) {
      if (column + 1 + word.size() > width_ && column > indent) {
        out += fmt::format("\n{:>{}}", "", indent);
        column = indent;
      } else if (!out.empty()) {
        out += ' ';
        ++column;
      }
      out += word;
      column += word.size();
    });
    return out;
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
    constexpr std::size_t indent = 14;  // of what stands below a name
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
      const std::string name = fmt::format("{:<38} {:<12} ", s.name, s.verdict);
      const std::string_view what = hint ? "at "
                                    : f.kind == FileKind::source || f.kind == FileKind::build_file
                                        ? "line "
                                        : "";
      print("  {} {}{}\n", severity(worst, 11), name,
            wrapped(std::string(what) + printable(positions), indent + name.size(), indent));
      if (!detail.empty()) print("{:>{}}{}\n", "", indent, clipped(printable(detail), indent));
      if (!s.replacement.empty())
        print("{:>{}}{}\n", "", indent,
              wrapped(fmt::format("{}: {}", name_of(s.effort), s.replacement), indent, indent + 2));
    }
    if (f.uses.empty()) print("  no experimental verbs found\n");
    for (const std::string &note : f.notes)
      print("  {}\n", paint("2", wrapped("note: " + note, 2, 4)));
    print("\n");
  }

  void summary(const Report &report) {
    const Totals t = totals(report);
    std::string read =
        fmt::format("Read {}, {}, {}, {} in {:.1f} s", tool::plural(report.sources, "source"),
                    tool::plural(report.build_files, "build file"),
                    tool::plural(report.binaries, "binary", "binaries"),
                    tool::plural(report.traces, "trace"), report.seconds);
    if (t.uses != 0 && report.read() > t.files)
      read += fmt::format("; {} without experimental verbs", report.read() - t.files);
    if (report.unjudged() != 0) read += fmt::format("; {} not judged", report.unjudged());
    if (report.errors() != 0) read += fmt::format("; {} could not be read", report.errors());
    print("{}.\n", wrapped(read, 0, 2));
    if (t.uses == 0) {
      print("No experimental verbs{}.\n",
            report.errors() + report.unjudged() != 0 ? " in what could be judged" : "");
      return;
    }
    print("{} in {}:", tool::plural(t.uses, "use"), tool::plural(t.files, "file"));
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
  }

  static constexpr std::size_t least_ = 20;  // of a text beside a long name
  bool colour_;
  std::size_t width_;
  std::string out_;
};

}  // namespace

std::string as_table(const Report &report, bool colour, std::size_t width) {
  return Table(colour, width).make(report);
}

}  // namespace ibvexp::audit
