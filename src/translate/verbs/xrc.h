// XRC as OFED 1.x had it (ofa_verbs.h): domains, and receive queue pairs that
// are known by number.
//
// A domain is rdma-core's own object under its old name: whatever takes an
// ibv_xrcd takes it. A receive queue pair is a hidden one of rdma-core's; every
// registration of this process is a handle on it, and it goes with the last
// handle in any process.
#pragma once

#include <infiniband/ofa_verbs.h>

#include <cstdint>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// The context of an open domain, without reading it; null if it is not open.
ibv_context *context_of_domain(const ibv_xrc_domain *domain) noexcept;
// The context is being closed.
void forget_domains(const ibv_context *context) noexcept;

Result<ibv_xrc_domain *> open_xrc_domain(ibv_context *context, int fd, int oflag);
Result<void> close_xrc_domain(ibv_xrc_domain *domain);

Result<void> create_xrc_rcv_qp(ibv_qp_init_attr *attr, std::uint32_t *number);
Result<void> modify_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number, ibv_qp_attr *attr,
                               int mask);
Result<void> query_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number, ibv_qp_attr *attr,
                              int mask, ibv_qp_init_attr *init);
Result<void> reg_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number);
// (exp <- modern) An event of such a queue pair: its number, with the flag that says so. The
// program holds no object that it could acknowledge it with, so that is done here.
void show_xrc_receiver(ibv_async_event &event) noexcept;

Result<void> unreg_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number);

}  // namespace ibvexp::translate
