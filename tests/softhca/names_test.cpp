// The names that fault rules may use are those that the device calls.
#include <algorithm>
#include <set>
#include <string>

#include "catch.h"
#include "config/fault_names.h"
#include "model/requester.h"
#include "uverbs/dispatch.h"

using namespace softhca;

TEST_CASE("Fault rules know every command of the command layer, and no other") {
  using namespace softhca::uverbs;
  std::set<std::string> handled;
  for (const Family *f :
       {&context_family,     &device_family,    &pd_family,        &mr_family,       &mw_family,
        &cq_family,          &qp_create_family, &qp_modify_family, &qp_query_family, &srq_family,
        &xrc_family,         &ah_family,        &mcast_family,     &dm_family,       &devx_family,
        &devx_events_family, &umem_family,      &uar_family,       &wq_family,       &rwq_family,
        &flow_family,        &matcher_family,   &pacing_family,    &refused_family,  &old_family}) {
    for (const Method &m : f->methods) handled.insert(m.name);
    for (const WriteCommand &c : f->commands) handled.insert(c.name);
  }
  const std::set<std::string> known(std::begin(fault_command_names), std::end(fault_command_names));
  CHECK(known.size() == std::size(fault_command_names));
  for (const std::string &name : handled) {
    INFO(name);
    CHECK(known.count(name) == 1);
  }
  for (const std::string &name : known) {
    INFO(name);
    CHECK(handled.count(name) == 1);
  }
}

TEST_CASE("Fault rules know every opcode that a WQE can have") {
  const auto known = [](const char *name) {
    return std::find(std::begin(fault_wqe_names), std::end(fault_wqe_names), name) !=
           std::end(fault_wqe_names);
  };
  for (int opcode = 0; opcode < 256; ++opcode) {
    const std::string name = opcode_name(static_cast<WqeOpcode>(opcode));
    // Signatures are not there.
    if (name == "UNKNOWN" || name == "SET_PSV") continue;
    INFO(name);
    CHECK(known(name.c_str()));
  }
}
