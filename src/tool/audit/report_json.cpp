// The audit for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tool/audit/outputs.h"
#include "tool/audit/totals.h"
#include "tool/audit/verdict.h"

namespace ibvexp::audit {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson subject_json(const Subject &s) {
  return {{"name", s.name},
          {"verdict", s.verdict},
          {"severity", name_of(s.severity)},
          {"effort", name_of(s.effort)},
          {"family", s.family},
          {"replacement", s.replacement},
          {"note", s.note},
          {"switch", s.switch_name}};
}

OrderedJson use_json(const Use &u, std::size_t subject) {
  OrderedJson out{
      {"subject", subject}, {"evidence", name_of(u.evidence)}, {"severity", name_of(u.severity)}};
  if (u.line != 0) out["line"] = u.line;
  if (u.column != 0) out["column"] = u.column;
  if (u.address != 0) out["address"] = fmt::format("{:#x}", u.address);
  if (u.offset >= 0) out["offset"] = u.offset;
  if (!u.source.empty()) out["source"] = u.source;
  if (u.evidence == Evidence::trace) out["count"] = u.count;
  if (u.suppressed) out["suppressed"] = true;
  if (u.known) out["known"] = true;
  if (!u.where.empty()) out["where"] = u.where;
  if (!u.detail.empty()) out["detail"] = u.detail;
  return out;
}

OrderedJson program_json(const Program &p) {
  OrderedJson out{{"name", p.name},
                  {"kind", name_of(p.kind)},
                  {"standing", name_of(p.standing)},
                  {"verdict", p.sentence}};
  if (!p.switches.empty()) out["switches"] = p.switches;
  if (!p.layout.empty()) out["layout"] = p.layout;
  if (!p.command.empty()) out["command"] = p.command;
  out["reasons"] = OrderedJson::array();
  for (const Reason &r : p.reasons)
    out["reasons"].push_back({{"name", r.subject->name},
                              {"severity", name_of(r.severity)},
                              {"count", r.count},
                              {"places", r.places}});
  return out;
}

}  // namespace

std::string as_json(const Report &report) {
  const Totals t = totals(report);
  OrderedJson out{{"format", "ibvexp-audit"}, {"version", 3}};
  for (std::size_t i = 0; i < severity_count; ++i)
    out["words"][std::string(all_words[i].name)] = all_words[i].meaning;
  out["tool"] = {{"name", "ibvexp audit"}, {"version", IBVEXP_VERSION}};
  out["date"] = report.date;
  out["inputs"] = report.inputs;
  for (const auto &[name, value] : report.run) out["run"][name] = value;
  out["read"] = {{"sources", report.sources},   {"build_files", report.build_files},
                 {"binaries", report.binaries}, {"traces", report.traces},
                 {"other", report.skipped},     {"errors", report.errors()}};
  OrderedJson counts{{"files", t.files}, {"uses", t.uses}};
  for (std::size_t i = 0; i < t.by_severity.size(); ++i)
    counts["severity"][std::string(all_words[i].name)] = t.by_severity[i];
  for (std::size_t i = 0; i < t.by_effort.size(); ++i)
    counts["effort"][std::string(effort_names[i])] = t.by_effort[i];
  out["counts"] = std::move(counts);
  out["programs"] = OrderedJson::array();
  for (const Program &p : judge(report)) out["programs"].push_back(program_json(p));
  out["subjects"] = OrderedJson::array();
  std::unordered_map<const Subject *, std::size_t> ids;
  OrderedJson files = OrderedJson::array();
  for (const FileReport &f : report.files) {
    OrderedJson file{{"path", f.path}, {"kind", name_of(f.kind)}};
    if (f.named) file["named"] = true;
    if (!f.error.empty()) file["error"] = f.error;
    if (!f.unjudged.empty()) file["unjudged"] = f.unjudged;
    if (!f.header_release.empty()) file["header"] = f.header_release;
    if (!f.layout.empty()) file["layout"] = f.layout;
    if (!f.libraries.empty()) file["libraries"] = f.libraries;
    if (!f.notes.empty()) file["notes"] = f.notes;
    file["uses"] = OrderedJson::array();
    for (const Use &u : f.uses) {
      const auto [it, fresh] = ids.try_emplace(u.subject, ids.size());
      if (fresh) out["subjects"].push_back(subject_json(*u.subject));
      file["uses"].push_back(use_json(u, it->second));
    }
    files.push_back(std::move(file));
  }
  out["files"] = std::move(files);
  // Paths and sources need not be UTF-8.
  return out.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace ibvexp::audit
