// The audit as one HTML file: the template with the report as JSON in it, and as plain HTML
// for readers without scripts (Jenkins, mail).
#include <fmt/format.h>

#include <string>

#include "report_template.h"
#include "tool/audit/outputs.h"
#include "tool/audit/printable.h"
#include "tool/audit/verdict.h"

namespace ibvexp::audit {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else out += c;
  }
  return out;
}

// What has to be looked at; the rest of long reports is in the JSON.
constexpr std::size_t most_rows = 1000;

std::string findings(const Report &report) {
  std::string rows;
  std::size_t count = 0;
  for (const FileReport &f : report.files)
    for (const Use &u : f.uses) {
      if (u.severity < Severity::unknown || !counts(u) || ++count > most_rows) continue;
      const std::string place =
          f.kind == FileKind::binary ? f.path + ": " + place_of(f, u) : place_of(f, u);
      rows += fmt::format(
          "<tr><td class=\"{0}\">{0}</td><td><code>{1}</code></td><td>{2}</td>"
          "<td>{3}</td></tr>\n",
          name_of(u.severity), escaped(u.subject->name), escaped(place),
          escaped(u.subject->replacement));
    }
  if (count == 0) return {};
  if (count > most_rows)
    rows += fmt::format("<tr><td colspan=\"4\">and {} more</td></tr>\n", count - most_rows);
  return "<h2>Uses to look at</h2>\n<table>\n<tr><th>Becomes</th><th>Name</th><th>Place</th>"
         "<th>On rdma-core</th></tr>\n" +
         rows + "</table>\n";
}

std::string plain(const Report &report) {
  std::string out = "<section class=\"card\" id=\"plain\">\n<h2>Will it run?</h2>\n<table>\n";
  for (const Program &p : judge(report))
    out += fmt::format(
        "<tr><td>{}</td><td class=\"{}\"><strong>{}</strong></td><td><code>{}</code>"
        "</td></tr>\n",
        escaped(p.name), name_of(p.standing), escaped(p.sentence), escaped(p.command));
  out += "</table>\n" + findings(report);
  for (const auto &[name, value] : report.run)
    out += fmt::format("<div>{}: {}</div>\n", escaped(name), escaped(value));
  for (const FileReport &f : report.files)
    if (!f.error.empty())
      out +=
          fmt::format("<div>{}: could not be read: {}</div>\n", escaped(f.path), escaped(f.error));
  return out + fmt::format("<p>ibvexp {}, {}</p>\n</section>", IBVEXP_VERSION, report.date);
}

void put(std::string &page, std::string_view mark, const std::string &text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string as_html(const Report &report) {
  std::string data = as_json(report);
  // "</script" would end the element the data is in, "<!--" would hide its end.
  for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos; at += 6)
    data.replace(at, 1, "\\u003c");
  std::string out(report_template);
  put(out, "@REPORT@", data);
  put(out, "@PLAIN@", plain(report));
  return out;
}

}  // namespace ibvexp::audit
