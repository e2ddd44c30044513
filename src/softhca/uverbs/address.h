// Address vectors as commands carry them.
#pragma once

#include "model/qp.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

// Checks a route on port `av.port` (rdma_check_ah_attr, rdma_fill_sgid_attr,
// mlx5 set_path): port, GRH on Ethernet, source GID, static rate. 0 or EINVAL.
int check_address(const File &, const AddressVector &av);

// ib_uverbs_qp_dest and ib_uverbs_ah_attr name the same things.
template <class Wire>
void read_address(const Wire &from, AddressVector &to) {
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.port = from.port_num;
  to.is_global = from.is_global != 0;
}

}  // namespace softhca::uverbs
