// What a fault rule may be hung on. The parser of the configuration checks
// `match` against these lists and the documentation prints them; the command
// layer and the model pass the same strings to the functions of faults.h.
#pragma once

#include <string_view>

namespace softhca {

// Matches every name of its kind.
inline constexpr std::string_view fault_match_any = "*";

// Ioctl methods as "OBJECT/METHOD", commands of the write interface as
// "WRITE/NAME" (the names of the kernel's headers without their prefixes).
inline constexpr std::string_view fault_command_names[] = {
    "AH/DESTROY",
    "ASYNC_EVENT/ALLOC",
    "COUNTERS/CREATE",
    "COUNTERS/DESTROY",
    "COUNTERS/READ",
    "CQ/CREATE",
    "CQ/DESTROY",
    "DEVICE/GET_CONTEXT",
    "DEVICE/INFO_HANDLES",
    "DEVICE/MLX5_QUERY_PORT",
    "DEVICE/QUERY_CONTEXT",
    "DEVICE/QUERY_GID_ENTRY",
    "DEVICE/QUERY_GID_TABLE",
    "DEVICE/QUERY_PORT",
    "DEVX/OTHER",
    "DEVX/QUERY_EQN",
    "DEVX/QUERY_UAR",
    "DEVX/SUBSCRIBE_EVENT",
    "DEVX_ASYNC_CMD_FD/ALLOC",
    "DEVX_ASYNC_EVENT_FD/ALLOC",
    "DEVX_OBJ/ASYNC_QUERY",
    "DEVX_OBJ/CREATE",
    "DEVX_OBJ/DESTROY",
    "DEVX_OBJ/MODIFY",
    "DEVX_OBJ/QUERY",
    "DEVX_UMEM/DEREG",
    "DEVX_UMEM/REG",
    "DM/ALLOC",
    "DM/FREE",
    "DM/MAP_OP_ADDR",
    "DM/QUERY",
    "FLOW/CREATE",
    "FLOW/DESTROY",
    "FLOW_ACTION/CREATE_MODIFY_HEADER",
    "FLOW_ACTION/CREATE_PACKET_REFORMAT",
    "FLOW_ACTION/DESTROY",
    "FLOW_ACTION/ESP_CREATE",
    "FLOW_ACTION/ESP_MODIFY",
    "FLOW_MATCHER/CREATE",
    "FLOW_MATCHER/DESTROY",
    "MR/ADVISE",
    "MR/DESTROY",
    "MR/DM_MR_REG",
    "MR/QUERY",
    "MR/REG_DMABUF_MR",
    "MW/DESTROY",
    "PD/DESTROY",
    "PD/QUERY",
    "PP/ALLOC",
    "PP/DESTROY",
    "QP/CREATE",
    "QP/DESTROY",
    "RWQ_IND_TBL/DESTROY",
    "SRQ/CREATE",
    "SRQ/DESTROY",
    "STEERING_ANCHOR/CREATE",
    "STEERING_ANCHOR/DESTROY",
    "UAR/ALLOC",
    "UAR/DESTROY",
    "VAR/ALLOC",
    "VAR/DESTROY",
    "WQ/CREATE",
    "WQ/DESTROY",
    "XRCD/DESTROY",
    "WRITE/ALLOC_MW",
    "WRITE/ALLOC_PD",
    "WRITE/ATTACH_MCAST",
    "WRITE/CREATE_AH",
    "WRITE/CREATE_COMP_CHANNEL",
    "WRITE/CREATE_QP",
    "WRITE/CREATE_SRQ",
    "WRITE/CREATE_XSRQ",
    "WRITE/DESTROY_QP",
    "WRITE/DESTROY_SRQ",
    "WRITE/DETACH_MCAST",
    "WRITE/EX_CREATE_FLOW",
    "WRITE/EX_CREATE_QP",
    "WRITE/EX_CREATE_RWQ_IND_TBL",
    "WRITE/EX_CREATE_WQ",
    "WRITE/EX_DESTROY_FLOW",
    "WRITE/EX_DESTROY_RWQ_IND_TBL",
    "WRITE/EX_DESTROY_WQ",
    "WRITE/EX_MODIFY_CQ",
    "WRITE/EX_MODIFY_QP",
    "WRITE/EX_MODIFY_WQ",
    "WRITE/EX_QUERY_DEVICE",
    "WRITE/MODIFY_QP",
    "WRITE/MODIFY_SRQ",
    "WRITE/OPEN_QP",
    "WRITE/OPEN_XRCD",
    "WRITE/QUERY_DEVICE",
    "WRITE/QUERY_PORT",
    "WRITE/QUERY_QP",
    "WRITE/QUERY_SRQ",
    "WRITE/REG_MR",
    "WRITE/REREG_MR",
    "WRITE/RESIZE_CQ",
};

// Send opcodes; RECV stands for any receive work request.
inline constexpr std::string_view fault_wqe_names[] = {
    "NOP",       "SEND",      "SEND_IMM",  "SEND_INV",     "RDMA_WRITE",    "RDMA_WRITE_IMM",
    "RDMA_READ", "ATOMIC_CS", "ATOMIC_FA", "MASKED_CS",    "MASKED_FA",     "LOCAL_INV",
    "UMR",       "TSO",       "MMO",       "TAG_MATCHING", "ENHANCED_MPSW", "WAIT",
    "SEND_EN",   "RECV_EN",   "RECV",
};

inline constexpr std::string_view fault_packet_names[] = {
    "REQUEST", "ACK", "READ_RESPONSE", "ATOMIC_RESPONSE", "DATAGRAM", "FRAME",
};

// The unaffiliated events: those that belong to a port or to the device.
inline constexpr std::string_view fault_event_names[] = {
    "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR",          "LID_CHANGE",
    "PKEY_CHANGE",  "SM_CHANGE",   "CLIENT_REREGISTER", "GID_CHANGE",
};

}  // namespace softhca
