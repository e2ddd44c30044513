#include "fault/faults.h"

#include "base/log.h"
#include "config/fault_names.h"
#include "fault/rules.h"

namespace softhca {

FaultRules::FaultRules(const std::vector<FaultRule> &rules) {
  for (const FaultRule &r : rules) rules_.push_back({r});
}

template <class F>
void FaultRules::fire(FaultRule::Kind kind, std::string_view name, F apply) {
  for (Counted &c : rules_) {
    const FaultRule &r = c.rule;
    if (r.kind != kind || (r.match != name && r.match != fault_match_any)) continue;
    ++c.matches;
    if (c.matches != r.nth && !(r.repeat && c.matches > r.nth)) continue;
    SOFTHCA_LOG(info, "fault: %.*s number %llu", static_cast<int>(name.size()), name.data(),
                static_cast<unsigned long long>(c.matches));
    apply(r);
  }
}

// Where several rules fire at once, the first one of the file wins.
int FaultRules::command(std::string_view name) {
  int error = 0;
  fire(FaultRule::Kind::command, name, [&](const FaultRule &r) {
    if (!error) error = r.error;
  });
  return error;
}

WqeFault FaultRules::wqe(std::string_view opcode) {
  WqeFault fault;
  fire(FaultRule::Kind::wqe, opcode, [&](const FaultRule &r) {
    if (!fault.syndrome) fault = {r.syndrome, r.vendor_syndrome};
  });
  return fault;
}

// Messages are the exception: a message may be duplicated and late.
PacketFault FaultRules::packet(std::string_view kind) {
  PacketFault fault;
  fire(FaultRule::Kind::packet, kind, [&](const FaultRule &r) {
    switch (r.action) {
      case FaultRule::Action::drop: fault.drop = true; break;
      case FaultRule::Action::duplicate: fault.duplicate = true; break;
      case FaultRule::Action::delay: fault.delay_ns = r.delay_us * 1000; break;
    }
  });
  return fault;
}

EventFault FaultRules::event(u64 now_ns, u64 open_ns) {
  for (Counted &c : rules_) {
    if (c.rule.kind != FaultRule::Kind::event || c.done) continue;
    if (now_ns < open_ns + c.rule.delay_us * 1000) continue;
    c.done = true;
    SOFTHCA_LOG(info, "fault: event %s on port %u", c.rule.match.c_str(), c.rule.port);
    return {c.rule.match.c_str(), c.rule.port};
  }
  return {};
}

namespace {

// Never destroyed: the engine thread may outlive static destructors.
FaultRules &configured() {
  static FaultRules &rules = *new FaultRules(config().faults);
  return rules;
}

}  // namespace

int fault_command(const char *name) { return configured().command(name); }
WqeFault fault_wqe(const char *opcode) { return configured().wqe(opcode); }
PacketFault fault_packet(const char *kind) { return configured().packet(kind); }
EventFault fault_event(u64 now_ns, u64 open_ns) { return configured().event(now_ns, open_ns); }
bool faults_configured() { return !configured().empty(); }

}  // namespace softhca
