// The audit as lines for compilers' friends: editors, GitHub, documents, tables.
#include <fmt/format.h>

#include <map>

#include "tool/audit/outputs.h"
#include "tool/audit/printable.h"
#include "tool/audit/verdict.h"

namespace ibvexp::audit {
namespace {

std::string message(const Use &u) {
  const Subject &s = *u.subject;
  std::string out = fmt::format("{} is {}", s.name, s.verdict);
  if (u.severity == Severity::beyond) out += fmt::format(" (IBVEXP_BEYOND={})", s.switch_name);
  if (!s.replacement.empty()) out += fmt::format("; on rdma-core: {}", s.replacement);
  return out;
}

// What a reader has to look at.
template <class Fn>
void for_each_finding(const Report &report, Fn fn) {
  for (const FileReport &f : report.files)
    for (const Use &u : f.uses)
      if (u.severity >= Severity::unknown && counts(u)) fn(f, u);
}

// Of a workflow command of GitHub: https://docs.github.com/actions, "toolkit".
std::string escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    if (special) out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else out += printable({&c, 1});
  }
  return out;
}

// RFC 4180
std::string csv_field(std::string_view field) {
  const std::string text = printable(field);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string markdown(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_' || c == '<' || c == '[')
      out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string as_gcc(const Report &report) {
  std::string out;
  for_each_finding(report, [&](const FileReport &f, const Use &u) {
    if (f.kind == FileKind::binary || u.line == 0)
      out += fmt::format("{}: {}: {} [{}]\n", printable(f.path), level(u.severity), message(u),
                         printable(place_of(f, u)));
    else
      out +=
          fmt::format("{}:{}:{}: {}: {} [{}]\n", printable(f.path), u.line, std::max(u.column, 1U),
                      level(u.severity), message(u), name_of(u.severity));
  });
  for (const FileReport &f : report.files)
    if (!f.error.empty())
      out += fmt::format("{}: error: {} [unreadable]\n", printable(f.path), f.error);
  return out;
}

std::string as_github(const Report &report) {
  std::string out;
  const auto command = [&](Severity s) { return s >= Severity::refused ? "error" : "warning"; };
  for_each_finding(report, [&](const FileReport &f, const Use &u) {
    out += fmt::format("::{} file={}", command(u.severity), escaped(f.path, true));
    if (f.kind != FileKind::binary && u.line != 0)
      out += fmt::format(",line={},col={}", u.line, std::max(u.column, 1U));
    out += fmt::format(",title={}::{}\n", escaped(u.subject->name, true),
                       escaped(message(u) + " (" + place_of(f, u) + ")", false));
  });
  for (const FileReport &f : report.files)
    if (!f.error.empty())
      out += fmt::format("::error file={},title=unreadable::{}\n", escaped(f.path, true),
                         escaped(f.error, false));
  return out;
}

std::string as_markdown(const Report &report) {
  std::string out =
      "# Audit of experimental verbs\n\n| Program | Verdict | Command |\n| --- | --- | --- |\n";
  for (const Program &p : judge(report))
    out += fmt::format("| {} | {} | {} |\n", markdown(p.name), markdown(p.sentence),
                       p.command.empty() ? "" : "`" + printable(p.command) + "`");
  out += "\n| Severity | Name | Place | Instead |\n| --- | --- | --- | --- |\n";
  for_each_finding(report, [&](const FileReport &f, const Use &u) {
    const std::string place =
        f.kind == FileKind::binary ? f.path + ": " + place_of(f, u) : place_of(f, u);
    out += fmt::format("| {} | {} | {} | {} |\n", name_of(u.severity), markdown(u.subject->name),
                       markdown(place), markdown(u.subject->replacement));
  });
  for (const FileReport &f : report.files)
    if (!f.error.empty())
      out += fmt::format("| unreadable | | {} | {} |\n", markdown(f.path), markdown(f.error));
  out += fmt::format("\nibvexp {}, {}\n", IBVEXP_VERSION, report.date);
  return out;
}

std::string as_csv(const Report &report) {
  std::string out =
      "path,kind,line,column,address,function,name,severity,verdict,evidence,feature,replacement,"
      "suppressed,known,detail\r\n";
  for (const FileReport &f : report.files)
    for (const Use &u : f.uses) {
      const Subject &s = *u.subject;
      const std::string line = u.line != 0 ? std::to_string(u.line) : "";
      const std::string column = u.column != 0 ? std::to_string(u.column) : "";
      const std::string address = u.address != 0 ? fmt::format("{:#x}", u.address) : "";
      bool first = true;
      for (const std::string_view field :
           {std::string_view(f.path), name_of(f.kind), std::string_view(line),
            std::string_view(column), std::string_view(address), std::string_view(u.where), s.name,
            name_of(u.severity), s.verdict, name_of(u.evidence), s.family, s.replacement,
            std::string_view(u.suppressed ? "yes" : ""), std::string_view(u.known ? "yes" : ""),
            std::string_view(u.detail)}) {
        out += (first ? "" : ",") + csv_field(field);
        first = false;
      }
      out += "\r\n";
    }
  return out;
}

}  // namespace ibvexp::audit
