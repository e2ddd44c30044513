// Flow rules as objects, made from verbs or from raw match parameters.
#pragma once

#include "model/eth_flow.h"
#include "uverbs/objects.h"

namespace softhca::uverbs {

// Match parameters of the device: what rules of this matcher look at.
struct MatcherObject : Object {
  static constexpr ObjectClass kind = ObjectClass::flow_matcher;
  explicit MatcherObject(File &f) : Object(f, kind) {}
  std::vector<u8> mask;  // struct mlx5_ifc_fte_match_param
  FlowRule rule;         // mask and priority of its rules
};

struct FlowObject : Object {
  static constexpr ObjectClass kind = ObjectClass::flow;
  FlowObject(File &f, QpObject *q) : Object(f, kind), qp(q) {}
  ~FlowObject() override {
    for (const auto &rule : rules) flow_remove(*rule);
  }
  int add(const FlowRule &rule) {
    auto own = std::make_unique<FlowRule>(rule);
    if (const int error = flow_add(*own); error != 0) return error;
    rules.push_back(std::move(own));
    return 0;
  }
  Ref<QpObject> qp;
  Ref<MatcherObject> matcher;
  std::vector<std::unique_ptr<FlowRule>> rules;
};

}  // namespace softhca::uverbs
