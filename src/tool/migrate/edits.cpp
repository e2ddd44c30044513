#include "tool/migrate/edits.h"

#include <fmt/core.h>

#include <algorithm>
#include <regex>

#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

namespace {

bool covers(const Edit &edit, std::size_t offset, std::size_t length) {
  return edit.offset <= offset && offset + length <= edit.offset + edit.length;
}

// Whether the comment of something lost is one of those right above a line: from an earlier run.
bool stands_above(const std::string &text, std::size_t line, const std::string &comment) {
  while (line > 0) {
    const std::size_t newline = line < 2 ? std::string::npos : text.rfind('\n', line - 2);
    const std::size_t start = newline == std::string::npos ? 0 : newline + 1;
    const std::string_view previous(text.data() + start, line - start);
    if (previous == comment) return true;
    if (previous.find("/* IBVEXP1") == std::string_view::npos) return false;
    line = start;
  }
  return false;
}

// Comments that say what is left, by the start of the line that they stand above.
std::map<std::size_t, std::string> comments(const File &file) {
  std::map<std::size_t, std::string> above;
  for (const Finding &finding : file.findings) {
    const auto start_of_line = [&](std::size_t at) {
      const std::size_t newline = at == 0 ? std::string::npos : file.text.rfind('\n', at - 1);
      return newline == std::string::npos ? 0 : newline + 1;
    };
    std::size_t line = start_of_line(finding.offset);
    // Where its line is removed with others: above all of them.
    for (const Edit &edit : file.edits)
      if (edit.offset <= line && line < edit.offset + edit.length)
        line = start_of_line(edit.offset);
    // Not into a macro: above its first line.
    while (line >= 2 && file.text[line - 2] == '\\') line = start_of_line(line - 1);
    const std::size_t text = file.text.find_first_not_of(" \t", line);
    const std::string comment =
        fmt::format("{}/* {} {}: {} */\n", file.text.substr(line, text - line), id_of(finding.kind),
                    finding.legacy, advice(finding));
    std::string &all = above[line];
    const bool again = finding.kind == Kind::lost && stands_above(file.text, line, comment);
    if (!again && all.find(comment) == std::string::npos) all += comment;
  }
  return above;
}

}  // namespace

std::string advice(const Finding &finding) {
  switch (finding.kind) {
    case Kind::lost: return std::string(loss(finding.legacy));
    case Kind::not_compiled:
      return "not compiled with these flags; run ibvexp migrate again with flags that compile it";
    case Kind::conflict:
      return "means different things to the sources that read it; " + advice(finding.legacy);
    case Kind::build_left:
      return "asks for the experimental header: convert this probe by hand when the sources are "
             "done";
    case Kind::in_macro: return "in the body of a macro; " + advice(finding.legacy);
    case Kind::portable:
      return "left alone: without this macro it compiles with rdma-core alone, and would not after "
             "conversion; build it without, or convert both branches by hand";
    default: return advice(finding.legacy);
  }
}

std::string id_of(Kind kind) { return fmt::format("IBVEXP{}", static_cast<int>(kind)); }

void File::add(Edit edit) {
  if (std::find(edits.begin(), edits.end(), edit) == edits.end()) edits.push_back(std::move(edit));
}

void File::settle() {
  std::stable_sort(edits.begin(), edits.end(), [](const Edit &a, const Edit &b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    if ((a.length == 0) != (b.length == 0)) return a.length == 0;
    return a.length > b.length;
  });
  std::vector<Edit> kept;
  for (Edit &edit : edits) {
    if (kept.empty() || edit.offset >= kept.back().offset + kept.back().length) {
      kept.push_back(std::move(edit));
      continue;
    }
    Edit &last = kept.back();
    if (covers(last, edit.offset, edit.length) && edit.length < last.length) continue;
    // Neighbours that go: the text between them as well.
    if (last.text.empty() && edit.text.empty()) {
      last.length = std::max(last.offset + last.length, edit.offset + edit.length) - last.offset;
      continue;
    }
    // The same place, or places that overlap, with different ideas.
    findings.insert({last.offset, Kind::conflict, last.legacy});
    const std::size_t end = std::max(last.offset + last.length, edit.offset + edit.length);
    last.length = end - last.offset;
    last.text = text.substr(last.offset, last.length);
    last.kind = Kind::conflict;
  }
  std::erase_if(kept, [](const Edit &e) { return e.kind == Kind::conflict; });
  edits = std::move(kept);

  // What was removed with its statement needs no comment, unless that says so.
  std::erase_if(findings, [&](const Finding &f) {
    return f.kind != Kind::lost && std::any_of(edits.begin(), edits.end(), [&](const Edit &e) {
             return e.offset != f.offset && covers(e, f.offset, 1);
           });
  });
  std::set<std::size_t> explained;
  for (const Finding &finding : findings) explained.insert(finding.offset);
  for (const auto &[offset, name] : uses) {
    const bool reached = std::any_of(edits.begin(), edits.end(),
                                     [&, at = offset](const Edit &e) { return covers(e, at, 1); });
    if (!reached && !explained.contains(offset))
      findings.insert({offset, Kind::not_compiled, name});
    if (reached)
      std::erase_if(findings, [&, at = offset](const Finding &f) {
        return f.offset == at && f.kind != Kind::lost;
      });
  }
  remove_blanks();
  remove_blank_lines();
}

// Nor does what goes leave blanks at the end of a line.
void File::remove_blanks() {
  std::size_t reached = 0;
  for (Edit &edit : edits) {
    const std::size_t end = edit.offset + edit.length;
    const bool last =
        edit.text.empty() && edit.length > 0 && end < text.size() && text[end] == '\n';
    const std::size_t before =
        last && edit.offset > 0 ? text.find_last_not_of(" \t", edit.offset - 1) : std::string::npos;
    if (before != std::string::npos && text[before] != '\n') {
      edit.offset = std::max(before + 1, reached);
      edit.length = end - edit.offset;
    }
    reached = end;
  }
}

// Removed lines take along the blank line behind them where that would follow an opening
// brace or another blank line.
void File::remove_blank_lines() {
  const auto line_start = [&](std::size_t at) { return at == 0 || text[at - 1] == '\n'; };
  std::size_t opens = 0;  // the end of the text in front that stays
  std::size_t reached = 0;
  for (Edit &edit : edits) {
    if (edit.offset != reached) opens = edit.offset;
    reached = edit.offset + edit.length;
    const bool lines =
        edit.text.empty() && edit.length > 0 && line_start(edit.offset) && line_start(reached);
    if (!lines) {
      opens = reached;
      continue;
    }
    const std::size_t last = text.find_last_not_of(" \t\n", opens == 0 ? 0 : opens - 1);
    const bool after_brace = opens > 0 && last != std::string::npos && text[last] == '{';
    const bool after_blank = opens > 1 && text[opens - 2] == '\n';
    const std::size_t end = text.find_first_not_of(" \t", reached);
    if ((after_brace || after_blank) && end != std::string::npos && text[end] == '\n') {
      edit.length = end + 1 - edit.offset;
      reached = end + 1;
    }
  }
}

void File::take_out_comments() {
  static const std::regex comment("^[ \\t]*/\\* IBVEXP(11\\d\\d) (\\S+): .* \\*/$");
  std::vector<Finding> above;
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t newline = std::min(text.find('\n', line), text.size());
    const std::string words = text.substr(line, newline - line);
    std::smatch match;
    if (std::regex_match(words, match, comment)) {
      above.push_back({0, static_cast<Kind>(std::stoi(match[1])), match[2]});
      add({line, std::min(newline + 1, text.size()) - line, "", Kind::layout, ""});
    } else if (!above.empty() && words.find("/* IBVEXP1") == std::string::npos) {
      for (Finding &finding : above) finding.offset = line;
      if (!above.empty()) earlier[line] = std::move(above);
      above.clear();
    }
    line = newline + 1;
  }
}

bool File::leave_again(std::size_t offset) {
  const std::size_t newline = offset == 0 ? std::string::npos : text.rfind('\n', offset - 1);
  const auto found = earlier.find(newline == std::string::npos ? 0 : newline + 1);
  if (found == earlier.end()) return false;
  findings.insert(found->second.begin(), found->second.end());
  return true;
}

void File::leave_alone(const std::string &macros) {
  edits.clear();
  findings = {{uses.empty() ? 0 : uses.begin()->first, Kind::portable, macros}};
}

bool File::alone() const {
  return findings.size() == 1 && findings.begin()->kind == Kind::portable;
}

std::size_t File::left() const {
  return static_cast<std::size_t>(std::count_if(
      findings.begin(), findings.end(), [](const Finding &f) { return f.kind != Kind::lost; }));
}

std::set<std::size_t> File::places() const {
  std::set<std::size_t> all;
  for (const auto &[offset, name] : uses) all.insert(offset);
  for (const Finding &f : findings) {
    if (f.kind == Kind::not_compiled) all.erase(f.offset);
    else if (f.kind != Kind::lost) all.insert(f.offset);
  }
  return all;
}

std::size_t File::left_places() const {
  if (alone()) return places().size();
  std::set<std::size_t> left;
  for (const Finding &f : findings)
    if (f.kind != Kind::lost && f.kind != Kind::not_compiled) left.insert(f.offset);
  return left.size();
}

std::size_t File::not_compiled() const {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding &f) { return f.kind == Kind::not_compiled; }));
}

std::string File::result() const { return alone() ? text : with(comments(*this)); }

std::string File::changed() const { return with({}); }

std::string File::with(const std::map<std::size_t, std::string> &above) const {
  std::string out;
  std::size_t at = 0;
  auto next_comment = above.begin();
  // The text up to there, with the comments above its lines.
  const auto copy_to = [&](std::size_t end) {
    for (; next_comment != above.end() && next_comment->first <= end; ++next_comment) {
      out.append(text, at, next_comment->first - at);
      out += next_comment->second;
      at = next_comment->first;
    }
    out.append(text, at, end - at);
  };
  for (const Edit &edit : edits) {
    copy_to(edit.offset);
    at = edit.offset + edit.length;
    // Comments above lines that are removed.
    for (; next_comment != above.end() && next_comment->first < at; ++next_comment)
      out += next_comment->second;
    out += edit.text;
  }
  copy_to(text.size());
  return out;
}

}  // namespace ibvexp::migrate
