#include "translate/verbs/flow.h"

#include <cerrno>
#include <memory>

#include "base/log.h"
#include "trace/diagnose.h"
#include "translate/convert/flow_convert.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_flow;
// ENOTSUPP of the legacy kernel, for InfiniBand and for kinds of rules that it did not know.
// It got to programs as it was, though user space has no such number.
constexpr int not_supported_by_kernel = 524;
constexpr EntryId destroying = EntryId::ibv_exp_destroy_flow;

Result<void> check_spec(const decltype(ibv_exp_flow_spec::hdr) &header) {
  const std::uint32_t inner = header.type & IBV_EXP_FLOW_SPEC_INNER;
  const std::uint32_t type = header.type & ~inner;
  if (type == IBV_EXP_FLOW_SPEC_IB)
    return unsupported(creating, FeatureId::IBV_EXP_FLOW_SPEC_IB, "specification", header.type);
  const FlowSpecShape shape = shape_of_flow_spec(type);
  const bool action = type == IBV_EXP_FLOW_SPEC_ACTION_TAG || type == IBV_EXP_FLOW_SPEC_ACTION_DROP;
  if (shape.legacy_size == 0 || (inner != 0 && action))
    return invalid(creating, "specification", header.type,
                   "not a value of enum ibv_exp_flow_spec_type");
  if (header.size < shape.legacy_size)
    return invalid(creating, "size of a specification", header.size,
                   "smaller than the structure of its type");
  // It says where the next one begins: programs may lay them out as an array.
  if (header.size > sizeof(ibv_exp_flow_spec))
    return invalid(creating, "size of a specification", header.size,
                   "larger than every specification");
  return {};
}

Result<void> check(const ibv_exp_flow_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (const auto flags =
          check_bits(creating, "flags", attr->flags, bits_of<"ibv_exp_flow_flags">());
      !flags)
    return flags;
  if (attr->type < IBV_EXP_FLOW_ATTR_NORMAL || attr->type > IBV_EXP_FLOW_ATTR_SNIFFER) {
    static_cast<void>(invalid(creating, "type", static_cast<unsigned>(attr->type),
                              "not a value of enum ibv_exp_flow_attr_type"));
    return Error{not_supported_by_kernel};
  }
  const auto *at = reinterpret_cast<const char *>(attr + 1);
  for (int i = 0; i < attr->num_of_specs; ++i) {
    const auto header = flow_spec_header(at);
    if (const auto checked = check_spec(header); !checked) return checked;
    at += header.size;
  }
  // Inlines clear it and say so.
  if (attr->reserved != 0)
    log(LogLevel::warn, "ibv_exp_create_flow: reserved is not 0; taken as 0");
  return {};
}

bool is_infiniband(ibv_context *context, std::uint8_t port_num) {
  ibv_port_attr port{};
  return ibv_query_port(context, port_num, &port) == 0 &&
         port.link_layer == IBV_LINK_LAYER_INFINIBAND;
}

}  // namespace

Result<ibv_exp_flow *> create_flow(ContextState &state, ibv_qp *qp, ibv_exp_flow_attr *attr) {
  if (const auto checked = check(attr); !checked) return checked.failure();
  ModernFlow modern(*attr);
  auto fresh = std::make_unique<FlowRule>();

  const KeepErrno keep;
  Owned<ibv_flow, ibv_destroy_flow> rule(ibv_create_flow(qp, &modern.attr()));
  if (!rule) {
    const Error reason = keep.reason();
    return reason.code == EOPNOTSUPP && is_infiniband(qp->context, attr->port)
               ? Error{not_supported_by_kernel}
               : reason;
  }
  fresh->real = rule.get();
  fresh->context = qp->context;
  fresh->handle = rule->handle;

  FlowRule *handle = state.flow_rules.add(std::move(fresh));
  static_cast<void>(rule.release());
  return handle;
}

Result<void> destroy_flow(ContextState &state, ibv_exp_flow *flow) {
  const auto rule = state.flow_rules.claim(flow);
  if (!rule) return invalid(destroying, "flow_id", 0, "not a rule of this library");
  const KeepErrno keep;
  return state.flow_rules.settle(rule, ibv_destroy_flow(rule->real));
}

}  // namespace ibvexp::translate
