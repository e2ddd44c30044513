// The door through which a test program calls: inlines and the operation table,
// or, with IBVEXP_EXTERN_CALLS, functions of those names. door_dlsym.cpp brings
// them for the program that loads the library at run time.
#pragma once

#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

#ifndef IBVEXP_EXTERN_CALLS
// The calls that are no inlines are there when the library is.
#pragma weak ibv_exp_get_device_list
#pragma weak ibv_exp_rereg_mr
#pragma weak ibv_open_xrc_domain
#pragma weak ibv_close_xrc_domain
#pragma weak ibv_create_xrc_srq
#pragma weak ibv_create_xrc_rcv_qp
#pragma weak ibv_modify_xrc_rcv_qp
#pragma weak ibv_query_xrc_rcv_qp
#pragma weak ibv_reg_xrc_rcv_qp
#pragma weak ibv_unreg_xrc_rcv_qp
#endif
