#include "tool/audit/baseline.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ibvexp::audit {
namespace {

using Json = nlohmann::json;

Json read_report(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  Json out = Json::parse(file, nullptr, false);
  if (!out.is_object() || out.value("format", "") != "ibvexp-audit")
    throw std::runtime_error(path + ": not a report of ibvexp audit --json");
  if (out.value("version", 0) != 3)
    throw std::runtime_error(path + ": a report of another version; make it again");
  return out;
}

// Lines move: a use is known by its file and name.
using Key = std::pair<std::string, std::string>;

struct Count {
  std::size_t uses = 0;
  std::string severity;
};

std::map<Key, Count> count_uses(const Json &report, const std::string &path) {
  std::map<Key, Count> out;
  try {
    for (const Json &file : report.at("files"))
      for (const Json &use : file.at("uses")) {
        const Json &subject = report.at("subjects").at(use.at("subject").get<std::size_t>());
        Count &c = out[{file.at("path"), subject.at("name")}];
        ++c.uses;
        c.severity = use.at("severity");
      }
  } catch (const Json::exception &e) {
    throw std::runtime_error(path + ": damaged report: " + e.what());
  }
  return out;
}

std::map<std::string, std::string> verdicts(const Json &report) {
  std::map<std::string, std::string> out;
  for (const Json &p : report.at("programs")) out[p.at("name")] = p.at("verdict");
  return out;
}

}  // namespace

void mark_known(Report &report, const std::string &baseline) {
  std::map<Key, Count> known = count_uses(read_report(baseline), baseline);
  for (FileReport &f : report.files)
    for (Use &u : f.uses) {
      const auto it = known.find({f.path, std::string(u.subject->name)});
      if (it == known.end() || it->second.uses == 0) continue;
      --it->second.uses;
      u.known = true;
    }
}

Difference compare(const std::string &old_path, const std::string &new_path) {
  const Json before = read_report(old_path), after = read_report(new_path);
  const std::map<Key, Count> a = count_uses(before, old_path), b = count_uses(after, new_path);
  Difference out;
  Json json{{"format", "ibvexp-audit-diff"}, {"version", 1}};
  json["programs"] = json["added"] = json["removed"] = Json::array();

  const auto old_verdicts = verdicts(before), new_verdicts = verdicts(after);
  const auto changed = [&](const std::string &name, const std::string &from,
                           const std::string &to) {
    json["programs"].push_back({{"name", name}, {"old", from}, {"new", to}});
    out.text += fmt::format("{}: {} -> {}\n", name, from.empty() ? "(not there)" : from,
                            to.empty() ? "(not there)" : to);
  };
  for (const auto &[name, from] : old_verdicts) {
    const auto it = new_verdicts.find(name);
    if (it == new_verdicts.end()) changed(name, from, "");
    else if (it->second != from) changed(name, from, it->second);
  }
  for (const auto &[name, to] : new_verdicts)
    if (!old_verdicts.contains(name)) changed(name, "", to);

  const auto uses = [&](const char *list, char sign, const std::map<Key, Count> &some,
                        const std::map<Key, Count> &others) {
    for (const auto &[key, count] : some) {
      const auto it = others.find(key);
      const std::size_t rest = it == others.end() ? 0 : it->second.uses;
      if (count.uses <= rest) continue;
      const std::size_t n = count.uses - rest;
      json[list].push_back(
          {{"path", key.first}, {"name", key.second}, {"severity", count.severity}, {"uses", n}});
      out.text +=
          fmt::format("{} {}: {} {} ({})\n", sign, key.first, n, key.second, count.severity);
      if (sign == '+') out.added.push_back(count.severity);
    }
  };
  uses("added", '+', b, a);
  uses("removed", '-', a, b);
  if (out.text.empty()) out.text = "No difference.\n";
  out.json = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  return out;
}

}  // namespace ibvexp::audit
