// ibvexp verify: the end-to-end checks of the library, run on a device of this
// machine and compared with the software HCA. The report says nothing of the site:
// no host names, addresses, GUIDs or values of memory.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>

#include "base/nearest.h"
#include "tool/command.h"
#include "tool/libraries.h"
#include "tool/own_machine.h"
#include "tool/plural.h"
#include "tool/verify.h"
#include "tool/verify_peer.h"
#include "tool/verify_run.h"
#include "tool/words.h"
#include "tool/write_file.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

using namespace verify;

struct VerifyOptions {
  std::string device, link, only, json, junit, report;
  int timeout = 120;
  std::string peer, address;
  bool listen = false;
  int port = PeerOptions{}.port, gid = PeerOptions{}.gid;

  [[nodiscard]] bool two_hosts() const { return listen || !peer.empty(); }
};

std::vector<Check> run_checks(const VerifyOptions &o, const Target &target, const Folder &folder) {
  const fs::path program = find_checks();
  std::vector<Check> out;
  for (const CheckFile &file : read_manifest(program.string() + ".txt")) {
    if (std::find(file.links.begin(), file.links.end(), target.link) == file.links.end()) continue;
    if (!o.only.empty() && file.name != o.only) continue;
    const Environment environment =
        environment_of(target, fmt::format("verify-{}-{}", getpid(), file.name), file.beyond);
    const fs::path results = folder.path / (file.name + ".xml");
    show_progress(target, file.name);
    run_quietly(environment,
                {program.string(), "-r", "xml", "-o", results.string(),
                 fmt::format("[#{}_test]", file.name)},
                o.timeout, folder.path / "output");
    for (Check &check : read_results(read_file(results), file.name))
      out.push_back(std::move(check));
  }
  show_progress(target, {});
  return out;
}

// Whether there are checks of that name. Throws std::runtime_error.
void check_only(const VerifyOptions &o) {
  if (o.only.empty()) return;
  std::vector<std::string> known;
  if (o.two_hosts())
    for (const Pair &pair : read_pairs(find_pairs())) known.push_back(pair.name);
  else
    for (const CheckFile &file : read_manifest(find_checks().string() + ".txt"))
      known.push_back(file.name);
  if (std::find(known.begin(), known.end(), o.only) != known.end()) return;
  const std::string_view meant =
      nearest(o.only, known, [](const std::string &name) { return std::string_view(name); });
  throw std::runtime_error(
      fmt::format("--only: no checks \"{}\"; {}: {}", o.only,
                  meant.empty() ? "known" : fmt::format("did you mean {}? Known", meant),
                  fmt::join(known, " ")));
}

// What doctor says, in a process of its own: the software HCA has to be preloaded.
nlohmann::json ask_doctor(const Target &target, const Folder &folder) {
  const fs::path output = folder.path / "doctor.json";
  // Standard error may have a line of an unknown variable.
  std::vector<std::string> command = {
      "sh", "-c", "exec \"$@\" 2>/dev/null", "sh", own_path().string(), "doctor", "--json"};
  if (target.soft) command.insert(command.end(), {"--device", "soft"});
  Environment environment = {{"IBVEXP_LOG_LEVEL", "error"}};
  if (target.soft) environment.push_back({"SOFTHCA_LINK", target.link});
  if (!target.device.empty()) environment.push_back({"IBVEXP_DEVICE", target.device});
  run_quietly(environment, command, 60, output);
  return nlohmann::json::parse(read_file(output));
}

// Whether doctor finds each row served. A device that reports no capability of a
// family has nothing of it, whatever else doctor expects to work there.
std::map<std::string, bool> rows_there(const nlohmann::json &rows) {
  const auto served = [](const nlohmann::json &row) {
    return row["here"] == "works" || row["here"] == name_of(Word::beyond);
  };
  std::map<std::string, int> missing, reported;  // capabilities by family
  for (const auto &row : rows) {
    const std::string name = row["name"], family = row["family"];
    if (!name.starts_with("IBV_EXP_DEVICE_") || name.starts_with("IBV_EXP_DEVICE_ATTR_")) continue;
    if (served(row)) ++reported[family];
    else if (row["here"] == "device") ++missing[family];
  }
  std::map<std::string, bool> out;
  for (const auto &row : rows) {
    const std::string family = row["family"];
    out[row["name"]] = served(row) && (!missing.contains(family) || reported.contains(family));
  }
  return out;
}

struct Report {
  explicit Report(nlohmann::json of_doctor) : doctor(std::move(of_doctor)) {}

  nlohmann::json doctor;
  std::vector<Check> expected, found;
  std::map<std::string, RowResult> rows;
};

std::string heading(const Report &r) {
  utsname names{};
  uname(&names);
  std::ifstream os_release("/etc/os-release");
  const std::string system = distribution(os_release);
  std::string device = "none";
  for (const auto &d : r.doctor["devices"])
    if (d["error"].get_ref<const std::string &>().empty())
      device = fmt::format("{}, firmware {}", d["model"].get<std::string>(),
                           d["firmware"].get<std::string>());
  const auto &release = r.doctor["libraries"][0]["release"];
  return fmt::format("libibverbs_exp {}, rdma-core {}, Linux {} on {}{}, {}", IBVEXP_VERSION,
                     release.is_number() ? std::to_string(release.get<int>()) : "?",
                     kernel_series(names.release), own_machine.name,
                     system.empty() ? "" : " (" + system + ")", device);
}

std::array<std::size_t, 3> count(const Report &r) {
  std::array<std::size_t, 3> out{};
  for (const auto &[name, row] : r.rows) ++out[static_cast<std::size_t>(row.judgement)];
  return out;
}

// Whether it says something: on the software HCA it passes.
bool comparable(const Report &r, const Check &c) {
  const auto same = std::find_if(r.expected.begin(), r.expected.end(), [&](const Check &e) {
    return e.file == c.file && e.name == c.name;
  });
  return same != r.expected.end() && same->outcome == verify::Outcome::passed;
}

std::vector<const Check *> differ_without_rows(const Report &r) {
  std::vector<const Check *> out;
  for (const Check &c : r.found)
    if (c.outcome != verify::Outcome::passed && c.rows.empty() && comparable(r, c))
      out.push_back(&c);
  return out;
}

std::string as_text(const Report &r) {
  std::string out = heading(r) + "\n";
  const auto passed = std::count_if(r.found.begin(), r.found.end(), [](const Check &c) {
    return c.outcome == verify::Outcome::passed;
  });
  out += fmt::format("{}, {} passed\n", plural(r.found.size(), "check"), passed);
  const auto counts = count(r);
  for (std::size_t j = 0; j < counts.size(); ++j)
    out += fmt::format("{:>6} {}\n", counts[j], in_words(static_cast<Judgement>(j), counts[j]));
  for (const Judgement j : {Judgement::differs, Judgement::absent, Judgement::as_expected}) {
    if (counts[static_cast<std::size_t>(j)] == 0) continue;
    out += fmt::format("\nRows: {}\n", judgement_names[static_cast<std::size_t>(j)]);
    for (const auto &[name, row] : r.rows) {
      if (row.judgement != j) continue;
      out += fmt::format("  {}\n", name);
      if (j == Judgement::as_expected) continue;
      for (const Check *c : row.checks)
        out += fmt::format("      {}: {}\n         {}\n", c->file, c->name, c->where);
    }
  }
  const std::vector<const Check *> others = differ_without_rows(r);
  if (!others.empty()) out += "\nChecks that differ and name no row\n";
  for (const Check *c : others)
    out += fmt::format("      {}: {}\n         {}\n", c->file, c->name, c->where);
  return out;
}

nlohmann::ordered_json as_json(const Report &r) {
  nlohmann::ordered_json out{
      {"format", "ibvexp-verify"}, {"version", IBVEXP_VERSION}, {"machine", heading(r)}};
  out["rows"] = nlohmann::ordered_json::array();
  for (const auto &[name, row] : r.rows) {
    nlohmann::ordered_json checks = nlohmann::ordered_json::array();
    for (const Check *c : row.checks)
      checks.push_back({{"file", c->file}, {"name", c->name}, {"failed", c->where}});
    out["rows"].push_back({{"name", name},
                           {"judgement", judgement_names[static_cast<std::size_t>(row.judgement)]},
                           {"checks", std::move(checks)}});
  }
  return out;
}

// Checks that fail on the software HCA, too, are skipped: they say nothing.
std::string as_junit(const Report &r) {
  pugi::xml_document document;
  pugi::xml_node suite = document.append_child("testsuite");
  suite.append_attribute("name") = "ibvexp verify";
  suite.append_attribute("tests") = r.found.size();
  pugi::xml_attribute failures = suite.append_attribute("failures");
  pugi::xml_attribute skips = suite.append_attribute("skipped");
  int failed = 0, skipped = 0;
  for (const Check &c : r.found) {
    pugi::xml_node node = suite.append_child("testcase");
    node.append_attribute("classname") = c.file.c_str();
    node.append_attribute("name") = c.name.c_str();
    if (c.outcome == verify::Outcome::passed) continue;
    if (comparable(r, c)) {
      ++failed;
      node.append_child("failure").append_attribute("message") = c.where.c_str();
    } else {
      ++skipped;
      node.append_child("skipped");
    }
  }
  failures = failed;
  skips = skipped;
  std::ostringstream out;
  document.save(out, "  ");
  return out.str();
}

PeerOptions peer_options(const VerifyOptions &o) {
  PeerOptions out{o.peer, o.address, o.port, o.gid, o.timeout, o.only};
  if (out.address.empty() && o.device == "soft") out.address = soft_peer_address;
  return out;
}

// Where two sides on software HCAs of one machine meet.
std::string soft_fabric() {
  const char *named = std::getenv("SOFTHCA_FABRIC");
  return named != nullptr ? named : "verify";
}

void compare_with_peer(Report &report, const VerifyOptions &o, const Target &target) {
  report.found = run_with_peer(target, peer_options(o), soft_fabric());
  if (target.soft) return;
  report.expected = run_with_soft_peer(target.link, peer_options(o));
  // A program that failed early has not come to all that it is about.
  for (Check &found : report.found)
    for (const Check &e : report.expected)
      if (e.name == found.name) found.rows = e.rows;
}

int run(const VerifyOptions &o) {
  check_only(o);
  const Folder folder;
  Target target{o.device == "soft", o.device == "soft" ? "" : o.device, o.link};
  for (const std::string &file : {o.report, o.json, o.junit})
    if (!file.empty()) check_writable(file);
  Report report(ask_doctor(target, folder));
  const int status = report.doctor["conclusion"]["status"];
  if (status != 0) {
    fmt::print(
        stderr, "ibvexp: {}. What to do: ibvexp doctor{}\n",
        report.doctor["conclusion"]["what"].get<std::string>(),
        target.soft ? " --device soft" : "; ibvexp verify --device soft checks the software HCA");
    return status;
  }
  const std::map<std::string, bool> there = rows_there(report.doctor["rows"]);
  if (!target.soft) {
    const auto &device = report.doctor["devices"][0];
    if (target.device.empty()) target.device = device["name"];
    if (target.link.empty()) target.link = device["ports"][0]["link"] == "Ethernet" ? "eth" : "ib";
  }

  if (target.link.empty() && o.two_hosts()) target.link = "ib";
  if (o.listen) {
    serve_peer(target, peer_options(o), soft_fabric());
    return exit_ok;
  }
  // The software HCA is what rows are judged by; on its own it has to pass all.
  const std::vector<std::string> links = target.link.empty()
                                             ? std::vector<std::string>{"ib", "eth"}
                                             : std::vector<std::string>{target.link};
  for (const std::string &link : links) {
    target.link = link;
    if (!o.peer.empty()) {
      compare_with_peer(report, o, target);
      continue;
    }
    for (Check &c : run_checks(o, target, folder)) report.found.push_back(std::move(c));
    if (!target.soft) report.expected = run_checks(o, {true, "", link}, folder);
  }
  if (report.found.empty())
    throw std::runtime_error(fmt::format("no checks{} are for link layer {}",
                                         o.only.empty() ? "" : " of " + o.only,
                                         fmt::join(links, ", ")));
  if (target.soft) {
    report.expected = report.found;
    for (Check &c : report.expected) c.outcome = verify::Outcome::passed;
  }
  report.rows = judge(report.expected, report.found, there);

  const std::string text = as_text(report);
  fmt::print("{}", text);
  if (!o.report.empty()) write_file(o.report, text);
  if (!o.json.empty()) write_file(o.json, as_json(report).dump(1) + "\n");
  if (!o.junit.empty()) write_file(o.junit, as_junit(report));
  const bool differs = count(report)[static_cast<std::size_t>(Judgement::differs)] != 0 ||
                       !differ_without_rows(report).empty();
  return differs ? exit_findings : exit_ok;
}

}  // namespace

void add_verify(CLI::App &app, Action &action) {
  CLI::App *sub = app.add_subcommand(
      "verify", "Run the library's own checks on a device and compare it with the software HCA");
  const auto o = std::make_shared<VerifyOptions>();
  sub->add_option("--device", o->device,
                  "soft for the software HCA, or a device (default: the first one)")
      ->type_name("soft|NAME");
  sub->add_option("--link", o->link, "Link layer of the software HCA (default: both)")
      ->check(CLI::IsMember({"ib", "eth"}));
  sub->add_option("--only", o->only, "Only this file of checks, or with --peer only this program")
      ->type_name("FILE");
  CLI::Option *listen =
      sub->add_flag("--listen", o->listen, "Wait for one --peer of another host and serve it");
  CLI::Option *peer = sub->add_option("--peer", o->peer,
                                      "Run the checks between two hosts; HOST runs verify --listen")
                          ->type_name("HOST")
                          ->excludes(listen);
  sub->add_option("--address", o->address,
                  "IP address of the peer's RDMA port, for the connection manager, if not HOST")
      ->needs(peer);
  sub->add_option("--port", o->port, "TCP port at which the hosts meet (default: 18514)")
      ->check(CLI::Range(1, 65535));
  sub->add_option("--gid", o->gid, "GID index between two hosts (default with Ethernet: 1)")
      ->check(CLI::Range(0, 255));
  sub->add_option("--timeout", o->timeout,
                  "Time limit in seconds of each file of checks or program")
      ->check(CLI::Range(1, 3600));
  sub->add_option("--report", o->report, "Write the printed report to FILE, too")
      ->type_name("FILE");
  sub->add_option("--json", o->json, "Write the rows to FILE")->type_name("FILE");
  sub->add_option("--junit", o->junit, "Write the checks to FILE, for CI")->type_name("FILE");
  sub->footer(
      "Exit status: 0 if no row differs, 1 if one does; without a usable device as ibvexp doctor. "
      "The report contains no host names, addresses or GUIDs.");
  sub->callback([&action, o] { action = [o] { return run(*o); }; });
}

}  // namespace ibvexp::tool
