// The rules of one process with their counters. faults.h is the device's view
// of the instance made from the configuration.
#pragma once

#include <string_view>
#include <vector>

#include "config/config.h"
#include "fault/faults.h"

namespace softhca {

class FaultRules {
 public:
  explicit FaultRules(const std::vector<FaultRule> &rules);

  bool empty() const { return rules_.empty(); }
  int command(std::string_view name);
  WqeFault wqe(std::string_view opcode);
  PacketFault packet(std::string_view kind);
  EventFault event(u64 now_ns, u64 open_ns);

 private:
  struct Counted {
    FaultRule rule;
    u64 matches = 0;
    bool done = false;  // events
  };
  // Counts the match for every rule it concerns; calls `apply` for those that fire.
  template <class F>
  void fire(FaultRule::Kind kind, std::string_view name, F apply);

  std::vector<Counted> rules_;
};

}  // namespace softhca
