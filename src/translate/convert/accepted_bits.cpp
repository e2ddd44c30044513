// What the rows accept is what is done: for each enum of flags, the bits that reach
// rdma-core through a conversion, found by trying each, and those that a verb sees
// to itself, named here with the place. A row that becomes native, translated or
// partial does not compile until its bit is handled.
#include <cstdint>

#include "table/feature_bits.h"
#include "translate/convert/access_convert.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/wq_convert.h"
#include "translate/convert/wr_convert.h"

namespace ibvexp::translate {

namespace {

// The bits that make a difference to what a conversion returns.
template <auto convert>
consteval std::uint64_t handled() {
  std::uint64_t out = 0;
  for (int n = 0; n < 64; ++n)
    if (convert(std::uint64_t{1} << n) != convert(0)) out |= std::uint64_t{1} << n;
  return out;
}

// Memory. verbs/mr.cpp allocates, and pages on demand have no order to relax.
static_assert(accepted<"ibv_exp_access_flags">() ==
              (handled<to_modern_access>() | IBV_EXP_ACCESS_ALLOCATE_MR | IBV_EXP_ACCESS_RELAXED));
// Windows take rights only; bind_mw() refuses the rest.
static_assert((handled<to_modern_window_access>() & ~accepted<"ibv_exp_access_flags">()) == 0);

// Work requests.
static_assert(accepted<"ibv_exp_send_flags">() == handled<to_modern_send_flags>());

// Queue pairs: flags of creation. UMR is how the queue pair is made.
constexpr auto create_flags = [](std::uint64_t flags) {
  const auto word = static_cast<std::uint32_t>(flags);
  return std::uint64_t{to_modern_create_flags(word)} << 32 | to_dv_create_flags(word);
};
static_assert(accepted<"ibv_exp_qp_create_flags">() ==
              (handled<create_flags>() | IBV_EXP_QP_CREATE_UMR));

// Members of creation. verbs/qp.cpp joins resource domains, grants inline receives
// and sizes of atomics, and takes the group that is none.
constexpr auto init_members = [](std::uint64_t mask) {
  ibv_exp_rx_hash_conf hash{};
  hash.rx_hash_function = 1;
  ibv_exp_qp_init_attr from{};
  from.comp_mask = static_cast<std::uint32_t>(mask);
  from.exp_create_flags = IBV_EXP_QP_CREATE_SCATTER_FCS;
  from.max_tso_header = 1;
  from.max_inl_send_klms = 1;
  from.associated_qpn = 1;
  from.rx_hash_conf = &hash;
  const ModernQpInit to = to_modern(from);
  return std::uint64_t{to.attr.comp_mask} << 32 | to.attr.create_flags << 1 | to.max_umr_pieces;
};
static_assert(accepted<"ibv_exp_qp_init_attr_comp_mask">() ==
              (handled<init_members>() | IBV_EXP_QP_INIT_ATTR_RES_DOMAIN |
               IBV_EXP_QP_INIT_ATTR_INL_RECV | IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG |
               IBV_EXP_QP_INIT_ATTR_QPG));

// Modification. verbs/qp_modify.cpp sets what spreads the packets.
static_assert(accepted<"ibv_exp_qp_attr_mask">() == handled<to_modern_qp_mask>());

// Fields that receive-side scaling hashes are handed over as they are. (INNER is a
// macro, not of the enum.)
static_assert(accepted<"ibv_exp_rx_hash_fields">() ==
              (std::uint64_t{IBV_RX_HASH_SRC_IPV4} | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
               IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP |
               IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP));

// Work queues. verbs/wq.cpp joins resource domains.
constexpr auto wq_flags = [](std::uint64_t flags) { return to_modern_wq_flags(flags, 0); };
constexpr auto vlan_offloads = [](std::uint64_t offloads) {
  return to_modern_wq_flags(0, static_cast<std::uint32_t>(offloads));
};
constexpr auto wq_init_members = [](std::uint64_t mask) {
  ibv_exp_wq_init_attr from{};
  from.comp_mask = static_cast<std::uint32_t>(mask);
  from.flags = IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS;
  from.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP;
  return std::uint64_t{to_modern(from).create_flags} << 32 | to_modern_strides(from).comp_mask;
};
constexpr auto wq_members = [](std::uint64_t mask) {
  ibv_exp_wq_attr from{};
  from.attr_mask = static_cast<std::uint32_t>(mask);
  return to_modern(from).attr_mask;
};
static_assert(accepted<"ibv_exp_wq_init_attr_flags">() == handled<wq_flags>());
static_assert(accepted<"ibv_exp_vlan_offloads">() == handled<vlan_offloads>());
static_assert(accepted<"ibv_exp_wq_init_attr_mask">() ==
              (handled<wq_init_members>() | IBV_EXP_CREATE_WQ_RES_DOMAIN));
static_assert(accepted<"ibv_exp_wq_attr_mask">() == handled<wq_members>());

// No flag of a flow rule is served.
static_assert(accepted<"ibv_exp_flow_flags">() == 0);

}  // namespace

}  // namespace ibvexp::translate
