// ibvexp fabric: the fabrics of the software HCA on this machine, and what dead
// processes left of them.
#include <fmt/core.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "softhca/wire/listing.h"
#include "tool/command.h"

namespace ibvexp::tool {

namespace {

using softhca::FabricEntry;

std::string user_name(unsigned uid) {
  const passwd *user = getpwuid(uid);
  return user != nullptr ? user->pw_name : std::to_string(uid);
}

// "1234 ib_send_bw"
std::string process_name(std::uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name.empty() ? std::to_string(pid) : fmt::format("{} {}", pid, name);
}

std::string members(const FabricEntry &e) {
  std::string text;
  for (const FabricEntry::Member &m : e.members)
    text += (text.empty() ? "" : ", ") + process_name(m.pid);
  return text;
}

int list() {
  const std::vector<FabricEntry> all = softhca::list_fabrics();
  if (all.empty()) fmt::print("no fabrics\n");
  for (const FabricEntry &e : all) {
    const std::string who = members(e);
    fmt::print("{:<24} {:<12} {:<12} {}{}\n", e.name, user_name(e.uid),
               !e.readable ? "not ours"
               : e.used    ? "in use"
                           : "left behind",
               e.path, who.empty() ? "" : ": " + who);
  }
  return exit_ok;
}

int clean(const std::vector<std::string> &names) {
  int status = exit_ok;
  for (const std::string &name : names) {
    const auto all = softhca::list_fabrics();
    if (std::any_of(all.begin(), all.end(),
                    [&](const FabricEntry &e) { return e.name == name && e.uid == geteuid(); }))
      continue;
    fmt::print(stderr, "ibvexp: there is no fabric {}\n", name);
    status = exit_findings;
  }
  for (const FabricEntry &e : softhca::list_fabrics()) {
    const bool named = std::find(names.begin(), names.end(), e.name) != names.end();
    if (e.uid != geteuid() || (!names.empty() && !named)) continue;
    if (softhca::remove_fabric(e.path)) {
      fmt::print("removed {}\n", e.path);
    } else if (errno == EBUSY) {
      const std::string who = members(e);
      fmt::print("in use  {}{}\n", e.path, who.empty() ? "" : ": " + who);
      if (named) status = exit_findings;
    } else {
      fmt::print(stderr, "ibvexp: {}: {}\n", e.path, std::strerror(errno));
      status = exit_trouble;
    }
  }
  return status;
}

}  // namespace

void add_fabric(CLI::App &app, Action &action) {
  CLI::App *sub =
      app.add_subcommand("fabric", "List or remove the software HCA's fabrics on this machine");
  sub->require_subcommand(1);
  sub->add_subcommand("list", "List fabrics and the processes that use them")->callback([&action] {
    action = list;
  });
  CLI::App *cleaning = sub->add_subcommand("clean", "Remove this user's unused fabrics");
  const auto names = std::make_shared<std::vector<std::string>>();
  cleaning->add_option("NAME", *names, "Only these fabrics");
  cleaning->footer("Exit status: 1 if a fabric that was named is in use or does not exist.");
  cleaning->callback([&action, names] { action = [names] { return clean(*names); }; });
}

}  // namespace ibvexp::tool
