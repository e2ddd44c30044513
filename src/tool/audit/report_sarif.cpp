// The audit for code review tools: SARIF 2.1.0 (OASIS), as GitHub's code scanning
// wants it: locations are relative and have a region, rules have help.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tool/audit/outputs.h"
#include "tool/audit/verdict.h"

namespace ibvexp::audit {
namespace {

using OrderedJson = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Where the documentation is installed.
constexpr std::string_view manual = "file:///usr/share/doc/ibvexp-tools/audit.md";
constexpr std::string_view root = "SRCROOT";

std::string encoded(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/+").find(c) != std::string_view::npos;
    if (plain) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string folder() {
  std::error_code none;
  return fs::current_path(none).string();
}

// Relative to where the audit runs.
OrderedJson artifact(const std::string &path) {
  const fs::path p(path);
  const fs::path relative =
      (p.is_absolute() ? p.lexically_relative(folder()) : p.lexically_normal());
  return {{"uri", encoded(relative.empty() ? path : relative.string())}, {"uriBaseId", root}};
}

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

std::string advice(const Subject &s) {
  std::string out = sentence(fmt::format("{}: {}", s.family, s.verdict));
  if (!s.switch_name.empty()) out += fmt::format(" IBVEXP_BEYOND={} serves it.", s.switch_name);
  if (!s.replacement.empty()) out += " " + sentence(fmt::format("On rdma-core: {}", s.replacement));
  if (!s.note.empty()) out += " " + sentence(std::string(s.note));
  return out;
}

// IbvExpCreateQp of ibv_exp_create_qp.
std::string pascal(std::string_view name) {
  std::string out;
  bool begins = true;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'),
               digit = c >= '0' && c <= '9';
    if (letter) {
      const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      out += begins ? static_cast<char>(small - 'a' + 'A') : small;
    } else if (digit) {
      out += c;
    }
    begins = !letter && !digit;
  }
  return out;
}

OrderedJson rule(const Subject &s) {
  const std::string help = advice(s);
  return {
      {"id", s.name},
      {"name", pascal(s.name)},
      {"shortDescription", {{"text", sentence(fmt::format("{} is {}", s.name, s.verdict))}}},
      {"fullDescription", {{"text", help}}},
      {"help", {{"text", help}, {"markdown", help}}},
      {"helpUri", manual},
      {"defaultConfiguration", {{"level", level(s.severity)}}},
      {"properties",
       {{"tags", {s.family, s.verdict}}, {"effort", name_of(s.effort)}, {"precision", "high"}}}};
}

// Of binaries, the bytes have no lines.
OrderedJson location(const FileReport &f, const Use &u) {
  OrderedJson physical{{"artifactLocation", artifact(f.path)}};
  OrderedJson region{{"startLine", 1}};
  if (f.kind != FileKind::binary && u.line != 0)
    region = {{"startLine", u.line}, {"startColumn", std::max(u.column, 1U)}};
  physical["region"] = std::move(region);
  if (u.address != 0) physical["address"] = {{"absoluteAddress", u.address}};
  OrderedJson out{{"physicalLocation", std::move(physical)}};
  if (f.kind == FileKind::binary && !u.where.empty())
    out["logicalLocations"] = {{{"fullyQualifiedName", u.where}, {"kind", "function"}}};
  return out;
}

OrderedJson result(const FileReport &f, const Use &u, std::size_t rule_index,
                   std::size_t occurrence) {
  const Subject &s = *u.subject;
  std::string text = fmt::format("'{}' ({}) is {}.", s.name, name_of(u.evidence), s.verdict);
  if (!s.replacement.empty())
    text += " " + sentence(fmt::format("On rdma-core: {}", s.replacement));
  if (f.kind == FileKind::binary) text += " " + sentence(fmt::format("At {}", place_of(f, u)));
  else if (!u.detail.empty()) text += " " + sentence(u.detail);
  OrderedJson out{{"ruleId", s.name},
                  {"ruleIndex", rule_index},
                  {"kind", level(u.severity) == "note" ? "informational" : "fail"},
                  {"level", level(u.severity) == "note" ? "none" : level(u.severity)},
                  {"message", {{"text", text}}},
                  {"locations", OrderedJson::array({location(f, u)})},
                  // Lines move; the how-manieth of a name in a file rarely does.
                  {"partialFingerprints",
                   {{"nameInFile/v1", fmt::format("{}:{}:{}", f.path, s.name, occurrence)}}}};
  if (u.known) out["baselineState"] = "unchanged";
  if (u.suppressed) out["suppressions"] = {{{"kind", "inSource"}}};
  return out;
}

}  // namespace

std::string as_sarif(const Report &report) {
  OrderedJson rules = OrderedJson::array(), results = OrderedJson::array(),
              notifications = OrderedJson::array();
  std::unordered_map<const Subject *, std::size_t> ids;
  for (const FileReport &f : report.files) {
    if (!f.error.empty())
      notifications.push_back(
          {{"level", "error"},
           {"message", {{"text", sentence(f.error)}}},
           {"locations", OrderedJson::array(
                             {{{"physicalLocation", {{"artifactLocation", artifact(f.path)}}}}})}});
    std::map<const Subject *, std::size_t> occurrences;
    for (const Use &u : f.uses) {
      const auto [it, fresh] = ids.try_emplace(u.subject, ids.size());
      if (fresh) rules.push_back(rule(*u.subject));
      results.push_back(result(f, u, it->second, ++occurrences[u.subject]));
    }
  }
  OrderedJson run{
      {"tool",
       {{"driver",
         {{"name", "ibvexp audit"},
          {"semanticVersion", IBVEXP_VERSION},
          {"informationUri", manual},
          {"rules", std::move(rules)}}}}},
      {"automationDetails", {{"id", "ibvexp-audit/"}}},
      {"columnKind", "utf16CodeUnits"},
      {"originalUriBaseIds", {{root, {{"uri", "file://" + encoded(folder()) + "/"}}}}},
      {"invocations",
       OrderedJson::array({{{"executionSuccessful", report.errors() == 0},
                            {"endTimeUtc", report.date},
                            {"toolExecutionNotifications", std::move(notifications)}}})},
      {"results", std::move(results)}};
  const OrderedJson out{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                        {"version", "2.1.0"},
                        {"runs", OrderedJson::array({std::move(run)})}};
  return out.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace ibvexp::audit
