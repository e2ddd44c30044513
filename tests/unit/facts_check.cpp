// Compares the lists in facts/ with the specification they were made from, or
// makes them anew:
//
//   facts_check SOURCE_DIR FACTS_DIR [--write]
//
// SOURCE_DIR holds the specification (spec/) and the measured legacy interface
// (abi/). It is not part of this repository; without it the comparison is skipped
// (exit 77).
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int skipped = 77;

Json load(const fs::path &path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// Detail "beyond": the table knows a route outside the migration guide.
std::string migration_rows(const Json &table) {
  std::string out = "# Rows of migration-table.json: id, and whether it names a beyond route.\n";
  for (const Json &row : table) {
    out += row["id"].get<std::string>();
    if (row["beyond"].is_object()) out += " beyond";
    out += "\n";
  }
  return out;
}

std::string migration_verdicts(const Json &table) {
  std::string out = "# Rows of migration-table.json: id and the guide's verdict.\n";
  for (const Json &row : table)
    out += row["id"].get<std::string>() + " " + row["verdict"].get<std::string>() + "\n";
  return out;
}

std::string entry_points(const Json &verbs) {
  std::string out = "# Entry points of verbs.json: name and kind.\n";
  for (const Json &e : verbs["entry_points"])
    out += e["name"].get<std::string>() + " " + e["kind"].get<std::string>() + "\n";
  return out;
}

std::string slots(const Json &verbs) {
  std::string out = "# Slots of verbs.json: name and offset.\n";
  for (const Json &s : verbs["context_slots"])
    out += s["slot"].get<std::string>() + " " + std::to_string(s["offset"].get<int>()) + "\n";
  return out;
}

std::string constants(const Json &verbs) {
  std::string out = "# Constants of verbs.json: name and enum.\n";
  for (const Json &e : verbs["enums"])
    for (const Json &c : e["constants"])
      out += c["name"].get<std::string>() + " " + e["enum"].get<std::string>() + "\n";
  for (const Json &m : verbs["other_macros"]) out += m["name"].get<std::string>() + " macro\n";
  return out;
}

// Enumerators and macros of the last release's headers that belong to the
// experimental API by name, wherever they are declared.
std::string header_names(const Json &abi) {
  std::set<std::string> names;
  const auto add = [&](const Json &constants) {
    for (const auto &[name, value] : constants.items())
      if (name.find("_EXP_") != std::string::npos) names.insert(name);
  };
  for (const Json &e : abi["enums"]) add(e["constants"]);
  for (const Json &e : abi["anonymous_enums"]) add(e["constants"]);
  add(abi["macro_constants"]);
  std::string out = "# Constants of the MLNX_OFED 4.9 headers with EXP in their name.\n";
  for (const std::string &name : names) out += name + "\n";
  return out;
}

std::string lost_symbols(const Json &abi) {
  std::string out = "# Symbols of the legacy libibverbs that rdma-core 44 does not export.\n";
  for (const auto &[name, symbol] : abi["exported_symbols"].items())
    if (symbol.value("absent_from_rdma_core_44", false) &&
        symbol.value("defined_in_legacy_library", false))
      out += name + "\n";
  return out;
}

// How a verb that is not supported answers, in the words of Shape.
std::string shape(const std::string &answer) {
  const auto says = [&](const char *word) { return answer.find(word) != std::string::npos; };
  if (says("-1, errno")) return "minus_one";
  if (says("NULL")) return "null_errno";
  if (says("*bad_")) return "positive_bad";
  if (says("void")) return "void_errno";
  if (says("-ENOTSUP")) return "negative";
  return "positive";
}

// Of the constants that the guide gives up, some are answered by another rule: groups
// of queue pairs are refused by their type, since programs set the bit and ask for
// none; the argument of atomics sizes the queue; completion queues that nothing has used
// yet may be switched to ignoring overruns; and MLNX_OFED 4.9 did not look at the scope of
// an interface (tests/truth).
const std::set<std::string> answered_otherwise{
    "IBV_EXP_INTF_EXPERIMENTAL",        "IBV_EXP_INTF_VENDOR",
    "IBV_EXP_INTF_VENDOR_EXPERIMENTAL", "IBV_EXP_QP_INIT_ATTR_QPG",
    "IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG", "IBV_EXP_CQ_CAP_FLAGS",
    "IBV_EXP_CQ_IGNORE_OVERRUN",        "IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS"};

std::string refused(const Json &verbs) {
  std::string out =
      "// What legacy programs are refused, always with ENOTSUP: verbs with the shape of their\n"
      "// answer, and constants with the enum that they belong to. From verbs.json, and not from\n"
      "// src/table, which the tests compare with it.\n"
      "//\n"
      "// clang-format off\n";
  for (const Json &e : verbs["entry_points"]) {
    const auto answer = e["on_unsupported"].get<std::string>();
    // The legacy library's own interface with its providers is absent.
    if (e["policy"] != "enotsup" || answer.starts_with("symbol not provided")) continue;
    out += "REFUSED_CALL(" + e["name"].get<std::string>() + ", " + shape(answer) + ")\n";
  }
  for (const Json &e : verbs["enums"]) {
    auto owner = e["enum"].get<std::string>();
    if (owner == "anon:IBV_EXP_PEER_PEEK_ABSOLUTE") owner = "peer_peek_whence";
    for (const Json &c : e["constants"]) {
      const auto name = c["name"].get<std::string>();
      if (c["policy"] == "enotsup" && !answered_otherwise.contains(name))
        out += "REFUSED_VALUE(" + owner + ", " + name + ")\n";
    }
  }
  return out;
}

bool equal(const fs::path &path, const std::string &want) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream have;
  have << file.rdbuf();
  if (file && have.str() == want) return true;
  std::cerr << path.string() << " differs from the specification; facts_check --write renews it\n";
  return false;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 3 || argc > 4 || (argc == 4 && std::string(argv[3]) != "--write")) {
    std::cerr << "usage: facts_check SOURCE_DIR FACTS_DIR [--write]\n";
    return 2;
  }
  const fs::path source = argv[1], facts = argv[2];
  if (!fs::exists(source / "spec") || !fs::exists(source / "abi")) {
    std::cout << "no specification in " << source.string() << ", nothing to compare with\n";
    return skipped;
  }

  const Json verbs = load(source / "spec" / "verbs.json");
  const Json guide = load(source / "spec" / "migration-table.json");
  const std::pair<const char *, std::string> files[] = {
      {"migration_rows.txt", migration_rows(guide)},
      {"migration_verdicts.txt", migration_verdicts(guide)},
      {"entry_points.txt", entry_points(verbs)},
      {"slots.txt", slots(verbs)},
      {"constants.txt", constants(verbs)},
      {"refused.def", refused(verbs)},
      {"header_names.txt", header_names(load(source / "abi" / "mlnx-ofed-4.9.json"))},
      // Which symbols the library really defined was measured for 4.6 only.
      {"lost_symbols.txt", lost_symbols(load(source / "abi" / "mlnx-ofed-4.6.json"))},
  };
  bool ok = true;
  for (const auto &[name, text] : files) {
    if (argc == 4) std::ofstream(facts / name, std::ios::binary) << text;
    ok = equal(facts / name, text) && ok;
  }
  return ok ? 0 : 1;
}
