#include "tool/audit/config.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ibvexp::audit {
namespace {

using Json = nlohmann::json;

Config::Ignored ignored(const Json &item) {
  if (item.is_string()) return {item, ""};
  for (const auto &[key, value] : item.items())
    if (key != "name" && key != "path")
      throw std::runtime_error("ignore: unknown key \"" + key + "\"; known: name path");
  return {item.at("name"), item.value("path", "")};
}

void set(Config &out, const std::string &key, const Json &value) {
  if (key == "exclude") out.exclude = value.get<std::vector<std::string>>();
  else if (key == "fail-on") out.fail_on = value.get<std::vector<std::string>>();
  else if (key == "recursive") out.recursive = value;
  else if (key == "baseline") out.baseline = value;
  else if (key == "ignore")
    std::transform(value.begin(), value.end(), std::back_inserter(out.ignore), ignored);
  else
    throw std::runtime_error("unknown key \"" + key +
                             "\"; known: exclude fail-on recursive baseline ignore");
}

}  // namespace

Config read_config(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  try {
    Config out;
    const Json json = Json::parse(file);
    if (!json.is_object()) throw std::runtime_error("not a JSON object");
    for (const auto &[key, value] : json.items()) set(out, key, value);
    if (!out.baseline.empty())
      out.baseline = (std::filesystem::path(path).parent_path() / out.baseline).string();
    return out;
  } catch (const std::exception &e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

void suppress(Report &report, const Config &config) {
  for (FileReport &f : report.files)
    for (Use &u : f.uses)
      for (const Config::Ignored &i : config.ignore)
        if (u.subject->name == i.name &&
            (i.path.empty() || fnmatch(i.path.c_str(), f.path.c_str(), 0) == 0 ||
             fnmatch(("*/" + i.path).c_str(), f.path.c_str(), 0) == 0))
          u.suppressed = true;
}

}  // namespace ibvexp::audit
