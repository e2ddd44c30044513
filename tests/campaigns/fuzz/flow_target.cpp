// Flow rules of any content to ibv_exp_create_flow(), and what rdma-core gets of them: a
// rule that can be walked to its end.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "bytes.h"
#include "translate/convert/flow_convert.h"
#include "translate/state/context_state.h"
#include "translate/verbs/flow.h"

namespace {

using namespace ibvexp;

ibv_flow made;
int refusal = 0;
std::size_t wanted = 0;

// The provider's.
ibv_flow *create_flow(ibv_qp *qp, ibv_flow_attr *attr) {
  PROMISE(attr->comp_mask == 0 && attr->num_of_specs == wanted);
  const auto *at = reinterpret_cast<const char *>(attr + 1);
  const char *const end = reinterpret_cast<const char *>(attr) + attr->size;
  for (std::size_t i = 0; i < wanted; ++i) {
    decltype(ibv_flow_spec::hdr) header;
    PROMISE(end - at >= static_cast<std::ptrdiff_t>(sizeof(header)));
    std::memcpy(&header, at, sizeof(header));
    PROMISE(header.size >= sizeof(header) && end - at >= header.size);
    PROMISE(header.size <= sizeof(ibv_flow_spec));
    at += header.size;
  }
  PROMISE(at == end);
  if (refusal != 0) {
    errno = refusal;
    return nullptr;
  }
  made.context = qp->context;
  return &made;
}
int query_port(ibv_context *, std::uint8_t port_num, ibv_port_attr *port, std::size_t) {
  port->link_layer = port_num % 2 == 0 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  return 0;
}
int destroy_flow(ibv_flow *flow) {
  PROMISE(flow == &made);
  return refusal;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes in(data, size);
  static verbs_context device{};
  device.sz = sizeof(device);
  device.context.abi_compat = reinterpret_cast<void *>(~std::uintptr_t{0});
  device.ibv_create_flow = create_flow;
  device.ibv_destroy_flow = destroy_flow;
  device.query_port = query_port;
  ContextState state(&device.context);
  ibv_qp qp{};
  qp.context = &device.context;

  ibv_exp_flow_attr head{};
  if (in.below(4) == 0) in.take_into(&head, sizeof(head));
  else head.type = static_cast<ibv_exp_flow_attr_type>(in.below(5));
  head.num_of_specs = static_cast<std::uint8_t>(in.below(12));
  wanted = head.num_of_specs;
  std::vector<std::uint8_t> rule(sizeof(head));
  for (std::size_t i = 0; i < wanted; ++i) {
    static constexpr std::uint32_t types[] = {0x20, 0x30, 0x31, 0x32,   0x33,   0x34,  0x40,
                                              0x41, 0x50, 0x21, 0x1000, 0x1001, 0x1002};
    std::uint32_t type = types[in.below(13)] | (in.below(4) == 0 ? IBV_EXP_FLOW_SPEC_INNER : 0);
    if (in.below(16) == 0) type = in.take<std::uint32_t>();
    const std::size_t needs =
        translate::shape_of_flow_spec(type & ~std::uint32_t{IBV_EXP_FLOW_SPEC_INNER}).legacy_size;
    std::size_t bytes = needs;
    if (in.below(8) == 0) bytes = in.below(200);
    // Memory as large as the specification says, or as it is.
    const std::size_t at = rule.size();
    rule.resize(at + std::max<std::size_t>(bytes, 8));
    in.take_into(&rule[at], rule.size() - at);
    const auto said = static_cast<std::uint16_t>(bytes);
    std::memcpy(&rule[at], &type, sizeof(type));
    std::memcpy(&rule[at + 4], &said, sizeof(said));
  }
  std::memcpy(rule.data(), &head, sizeof(head));
  rule.shrink_to_fit();

  refusal = in.below(4) == 0 ? EOPNOTSUPP : 0;
  const auto got =
      translate::create_flow(state, &qp, reinterpret_cast<ibv_exp_flow_attr *>(rule.data()));
  if (!got) {
    PROMISE(got.error() > 0);
    return 0;
  }
  PROMISE(refusal == 0);
  PROMISE(static_cast<bool>(translate::destroy_flow(state, got.value())));
  PROMISE(!translate::destroy_flow(state, got.value()));
  return 0;
}
