// Address vectors as commands carry them.
#pragma once

#include "model/qp.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

// Whether the address is part of the queue pair.
inline bool has_route(QpType t) {
  return t == QpType::rc || t == QpType::uc || t == QpType::xrc_ini || t == QpType::xrc_tgt;
}

// Checks a route on port `av.port` (rdma_check_ah_attr, rdma_fill_sgid_attr,
// mlx5 set_path): port, GRH on Ethernet, source GID, static rate. 0 or EINVAL.
int check_address(const File &, const AddressVector &av);

// Whether the MAC address behind `av.dgid` can be found from the source GID, both of which are
// IPv4 addresses, or neither (rdma_resolve_ip). `av` has been checked.
bool can_resolve(const File &, const AddressVector &av);

// ib_uverbs_qp_dest and ib_uverbs_ah_attr name the same things.
template <class Wire>
void read_address(const Wire &from, AddressVector &to) {
  to.dlid = from.dlid;
  to.sl = from.sl & 0xf;
  to.src_path_bits = from.src_path_bits & 0x7f;
  to.static_rate = from.static_rate;
  to.port = from.port_num;
  to.is_global = from.is_global != 0;
}

}  // namespace softhca::uverbs
