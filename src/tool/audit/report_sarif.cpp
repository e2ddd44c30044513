// The audit for code review tools: SARIF 2.1.0 (OASIS).
#include "tool/audit/outputs.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <unordered_map>

namespace ibvexp::audit {
namespace {

using Json = nlohmann::ordered_json;

std::string_view level(Severity s) {
  if (s >= Severity::refused) return "error";
  if (s >= Severity::unknown) return "warning";
  return "note";
}

// A relative URI reference, or a file URI of an absolute path.
std::string uri(const std::string &path) {
  std::string out = path.starts_with('/') ? "file://" : "";
  std::string_view rest = path;
  while (rest.starts_with("./")) rest.remove_prefix(2);
  for (const char c : rest) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/+").find(c) != std::string_view::npos;
    if (plain) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Json rule(const Subject &s) {
  std::string text = fmt::format("{}: {}{}.", s.family, s.verdict, s.planned ? " (planned)" : "");
  if (!s.replacement.empty()) text += fmt::format(" On rdma-core: {}.", s.replacement);
  Json out{{"id", s.name},
           {"shortDescription", {{"text", text}}},
           {"defaultConfiguration", {{"level", level(s.severity)}}}};
  if (!s.note.empty()) out["fullDescription"] = {{"text", s.note}};
  out["properties"] = {{"verdict", s.verdict}, {"effort", name_of(s.effort)}};
  return out;
}

Json location(const FileReport &f, const Use &u) {
  Json physical{{"artifactLocation", {{"uri", uri(f.path)}}}};
  if (f.kind == FileKind::binary) {
    if (u.address != 0) physical["address"] = {{"absoluteAddress", u.address}};
  } else if (u.line != 0) {
    physical["region"] = {{"startLine", u.line}, {"startColumn", std::max(u.column, 1U)}};
  }
  Json out{{"physicalLocation", std::move(physical)}};
  if (f.kind == FileKind::binary && !u.where.empty())
    out["logicalLocations"] = {{{"name", u.where}, {"kind", "function"}}};
  return out;
}

Json result(const FileReport &f, const Use &u, std::size_t rule_index) {
  const Subject &s = *u.subject;
  std::string text = fmt::format("{} ({}) is {}.", s.name, name_of(u.evidence), s.verdict);
  if (!s.replacement.empty()) text += fmt::format(" On rdma-core: {}.", s.replacement);
  if (!u.detail.empty()) text += fmt::format(" {}.", u.detail);
  return {{"ruleId", s.name},
          {"ruleIndex", rule_index},
          {"level", level(u.severity)},
          {"message", {{"text", text}}},
          {"locations", Json::array({location(f, u)})}};
}

}  // namespace

std::string as_sarif(const Report &report) {
  Json rules = Json::array(), results = Json::array(), notifications = Json::array();
  std::unordered_map<const Subject *, std::size_t> ids;
  for (const FileReport &f : report.files) {
    if (!f.error.empty())
      notifications.push_back(
          {{"level", "error"},
           {"message", {{"text", f.error}}},
           {"locations", Json::array({{{"physicalLocation",
                                        {{"artifactLocation", {{"uri", uri(f.path)}}}}}}})}});
    for (const Use &u : f.uses) {
      const auto [it, fresh] = ids.try_emplace(u.subject, ids.size());
      if (fresh) rules.push_back(rule(*u.subject));
      results.push_back(result(f, u, it->second));
    }
  }
  Json run{
      {"tool",
       {{"driver",
         {{"name", "ibvexp audit"}, {"version", IBVEXP_VERSION}, {"rules", std::move(rules)}}}}},
      {"columnKind", "utf16CodeUnits"},
      {"invocations", Json::array({{{"executionSuccessful", report.errors() == 0},
                                    {"toolExecutionNotifications", std::move(notifications)}}})},
      {"results", std::move(results)}};
  const Json out{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                 {"version", "2.1.0"},
                 {"runs", Json::array({std::move(run)})}};
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ibvexp::audit
