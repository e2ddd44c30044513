#include "tool/migrate/edits.h"

#include <fmt/core.h>

#include <algorithm>

#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

namespace {

bool covers(const Edit &edit, std::size_t offset, std::size_t length) {
  return edit.offset <= offset && offset + length <= edit.offset + edit.length;
}

// Whether the comment is one of those right above a line: from an earlier run.
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
    // Not into a macro: the line before continues.
    if (line >= 2 && file.text[line - 2] == '\\') continue;
    const std::size_t text = file.text.find_first_not_of(" \t", line);
    const std::string comment =
        fmt::format("{}/* {} {}: {} */\n", file.text.substr(line, text - line), id_of(finding.kind),
                    finding.legacy, advice(finding));
    std::string &all = above[line];
    if (!stands_above(file.text, line, comment) && all.find(comment) == std::string::npos)
      all += comment;
  }
  return above;
}

}  // namespace

std::string advice(const Finding &finding) {
  return finding.kind == Kind::lost ? std::string(loss(finding.legacy)) : advice(finding.legacy);
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
  remove_blank_lines();
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

std::size_t File::left() const {
  return static_cast<std::size_t>(std::count_if(
      findings.begin(), findings.end(), [](const Finding &f) { return f.kind != Kind::lost; }));
}

std::size_t File::converted() const {
  return static_cast<std::size_t>(std::count_if(uses.begin(), uses.end(), [&](const auto &use) {
    return std::any_of(edits.begin(), edits.end(),
                       [&](const Edit &e) { return covers(e, use.first, 1); });
  }));
}

std::size_t File::not_compiled() const {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding &f) { return f.kind == Kind::not_compiled; }));
}

std::string File::result() const {
  const auto above = comments(*this);
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
