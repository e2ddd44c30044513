// Flow rules, legacy to modern. No calls.
//
// A rule is an attribute and the specifications behind it. The attribute has
// another size and a leading comp_mask today, and the plain IPv6 specification
// has grown, so everything is written anew.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace ibvexp::translate {

static_assert(sizeof(ibv_exp_flow_attr) == 24 && sizeof(ibv_flow_attr) == 20);
static_assert(int{IBV_EXP_FLOW_ATTR_NORMAL} == IBV_FLOW_ATTR_NORMAL &&
              int{IBV_EXP_FLOW_ATTR_ALL_DEFAULT} == IBV_FLOW_ATTR_ALL_DEFAULT &&
              int{IBV_EXP_FLOW_ATTR_MC_DEFAULT} == IBV_FLOW_ATTR_MC_DEFAULT &&
              int{IBV_EXP_FLOW_ATTR_SNIFFER} == IBV_FLOW_ATTR_SNIFFER);

// Sizes of a specification; 0: no such type, or none that rdma-core has.
struct FlowSpecShape {
  std::size_t legacy_size;
  std::uint32_t modern_type;
};

// type without the bit for inner headers.
constexpr FlowSpecShape shape_of_flow_spec(std::uint32_t type) {
  switch (type) {
    case IBV_EXP_FLOW_SPEC_ETH: return {sizeof(ibv_exp_flow_spec_eth), IBV_FLOW_SPEC_ETH};
    case IBV_EXP_FLOW_SPEC_IPV4: return {sizeof(ibv_exp_flow_spec_ipv4), IBV_FLOW_SPEC_IPV4};
    case IBV_EXP_FLOW_SPEC_IPV4_EXT:
      return {sizeof(ibv_exp_flow_spec_ipv4_ext), IBV_FLOW_SPEC_IPV4_EXT};
    case IBV_EXP_FLOW_SPEC_IPV6: return {sizeof(ibv_exp_flow_spec_ipv6), IBV_FLOW_SPEC_IPV6};
    case IBV_EXP_FLOW_SPEC_IPV6_EXT:
      return {sizeof(ibv_exp_flow_spec_ipv6_ext), IBV_FLOW_SPEC_IPV6};
    case IBV_EXP_FLOW_SPEC_TCP: return {sizeof(ibv_exp_flow_spec_tcp_udp), IBV_FLOW_SPEC_TCP};
    case IBV_EXP_FLOW_SPEC_UDP: return {sizeof(ibv_exp_flow_spec_tcp_udp), IBV_FLOW_SPEC_UDP};
    case IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL:
      return {sizeof(ibv_exp_flow_spec_tunnel), IBV_FLOW_SPEC_VXLAN_TUNNEL};
    case IBV_EXP_FLOW_SPEC_ACTION_TAG:
      return {sizeof(ibv_exp_flow_spec_action_tag), IBV_FLOW_SPEC_ACTION_TAG};
    case IBV_EXP_FLOW_SPEC_ACTION_DROP:
      return {sizeof(ibv_exp_flow_spec_action_drop), IBV_FLOW_SPEC_ACTION_DROP};
    default: return {0, 0};
  }
}

// The layouts that are copied as they are.
static_assert(sizeof(ibv_exp_flow_spec_eth) == sizeof(ibv_flow_spec_eth) &&
              sizeof(ibv_exp_flow_spec_ipv4) == sizeof(ibv_flow_spec_ipv4) &&
              sizeof(ibv_exp_flow_spec_ipv4_ext) == sizeof(ibv_flow_spec_ipv4_ext) &&
              sizeof(ibv_exp_flow_spec_ipv6_ext) == sizeof(ibv_flow_spec_ipv6) &&
              sizeof(ibv_exp_flow_spec_tcp_udp) == sizeof(ibv_flow_spec_tcp_udp) &&
              sizeof(ibv_exp_flow_spec_tunnel) == sizeof(ibv_flow_spec_tunnel) &&
              sizeof(ibv_exp_flow_spec_action_tag) == sizeof(ibv_flow_spec_action_tag) &&
              sizeof(ibv_exp_flow_spec_action_drop) == sizeof(ibv_flow_spec_action_drop));

// Type and size of the specification there. Programs lay them out one behind the other,
// wherever that is.
inline auto flow_spec_header(const char *at) {
  decltype(ibv_exp_flow_spec::hdr) header;
  std::memcpy(&header, at, sizeof(header));
  return header;
}

// (modern <- exp) Writes the specification there, whose type and size were found good. Returns the
// end of what was written.
inline char *write_flow_spec(const char *at, const decltype(ibv_exp_flow_spec::hdr) &header,
                             char *to) {
  const std::uint32_t inner = header.type & IBV_EXP_FLOW_SPEC_INNER;
  const FlowSpecShape shape = shape_of_flow_spec(header.type & ~inner);
  ibv_flow_spec spec;  // as much of it as there is of its type
  if ((header.type & ~inner) == IBV_EXP_FLOW_SPEC_IPV6) {
    // Addresses only; what has been added since is not compared.
    ibv_exp_flow_spec_ipv6 from;
    std::memcpy(&from, at, sizeof(from));
    spec.ipv6 = {};
    spec.ipv6.size = sizeof(spec.ipv6);
    std::memcpy(&spec.ipv6.val, &from.val, sizeof(from.val));
    std::memcpy(&spec.ipv6.mask, &from.mask, sizeof(from.mask));
  } else {
    std::memcpy(&spec, at, shape.legacy_size);
    spec.hdr.size = static_cast<std::uint16_t>(shape.legacy_size);
  }
  spec.hdr.type = static_cast<ibv_flow_spec_type>(shape.modern_type | inner);
  std::memcpy(to, &spec, spec.hdr.size);
  return to + spec.hdr.size;
}

// (modern <- exp) A rule whose specifications were found good, as one piece.
class ModernFlow {
 public:
  // Throws bad_alloc.
  explicit ModernFlow(const ibv_exp_flow_attr &from) : begin_(few_) {
    ibv_flow_attr attr{};
    attr.type = static_cast<ibv_flow_attr_type>(from.type);
    attr.priority = from.priority;
    attr.num_of_specs = from.num_of_specs;
    attr.port = from.port;
    const std::size_t most = sizeof(attr) + from.num_of_specs * sizeof(ibv_flow_spec);
    if (most > sizeof(few_)) {
      many_ = std::make_unique<char[]>(most);
      begin_ = many_.get();
    }
    char *end = begin_ + sizeof(attr);
    const auto *at = reinterpret_cast<const char *>(&from + 1);
    for (int i = 0; i < from.num_of_specs; ++i) {
      const auto header = flow_spec_header(at);
      end = write_flow_spec(at, header, end);
      at += header.size;
    }
    attr.size = static_cast<std::uint16_t>(end - begin_);
    std::memcpy(begin_, &attr, sizeof(attr));
  }
  ModernFlow(const ModernFlow &) = delete;
  ModernFlow &operator=(const ModernFlow &) = delete;

  ibv_flow_attr &attr() { return *reinterpret_cast<ibv_flow_attr *>(begin_); }
  const char *data() const { return begin_; }
  std::size_t size() const { return reinterpret_cast<const ibv_flow_attr *>(begin_)->size; }

 private:
  alignas(ibv_flow_attr) char few_[sizeof(ibv_flow_attr) + 4 * sizeof(ibv_flow_spec)];
  std::unique_ptr<char[]> many_;
  char *begin_;
};

}  // namespace ibvexp::translate
