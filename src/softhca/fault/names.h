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
    "DEVICE/GET_CONTEXT",
    "DEVICE/QUERY_CONTEXT",
    "DEVICE/QUERY_PORT",
    "DEVICE/QUERY_GID_TABLE",
    "DEVICE/QUERY_GID_ENTRY",
    "DEVICE/INFO_HANDLES",
    "PD/DESTROY",
    "PD/QUERY",
    "CQ/CREATE",
    "CQ/DESTROY",
    "QP/CREATE",
    "QP/DESTROY",
    "SRQ/CREATE",
    "SRQ/DESTROY",
    "AH/DESTROY",
    "MR/DESTROY",
    "MR/ADVISE",
    "MR/QUERY",
    "MR/DM_MR_REG",
    "MR/REG_DMABUF_MR",
    "MW/DESTROY",
    "XRCD/DESTROY",
    "FLOW/DESTROY",
    "FLOW/CREATE",
    "FLOW_ACTION/ESP_CREATE",
    "FLOW_ACTION/DESTROY",
    "FLOW_MATCHER/CREATE",
    "FLOW_MATCHER/DESTROY",
    "WQ/CREATE",
    "WQ/DESTROY",
    "RWQ_IND_TBL/DESTROY",
    "DM/ALLOC",
    "DM/FREE",
    "DM/MAP_OP_ADDR",
    "DM/QUERY",
    "COUNTERS/CREATE",
    "COUNTERS/DESTROY",
    "COUNTERS/READ",
    "ASYNC_EVENT/ALLOC",
    "DEVX/OTHER",
    "DEVX/QUERY_UAR",
    "DEVX/QUERY_EQN",
    "DEVX_OBJ/CREATE",
    "DEVX_OBJ/DESTROY",
    "DEVX_OBJ/MODIFY",
    "DEVX_OBJ/QUERY",
    "DEVX_UMEM/REG",
    "DEVX_UMEM/DEREG",
    "VAR/ALLOC",
    "VAR/DESTROY",
    "PP/ALLOC",
    "PP/DESTROY",
    "UAR/ALLOC",
    "UAR/DESTROY",
    "WRITE/ALLOC_PD",
    "WRITE/REG_MR",
    "WRITE/REREG_MR",
    "WRITE/ALLOC_MW",
    "WRITE/CREATE_COMP_CHANNEL",
    "WRITE/RESIZE_CQ",
    "WRITE/CREATE_AH",
    "WRITE/OPEN_QP",
    "WRITE/MODIFY_QP",
    "WRITE/QUERY_QP",
    "WRITE/ATTACH_MCAST",
    "WRITE/DETACH_MCAST",
    "WRITE/MODIFY_SRQ",
    "WRITE/QUERY_SRQ",
    "WRITE/OPEN_XRCD",
    "WRITE/QUERY_DEVICE",
    "WRITE/EX_QUERY_DEVICE",
    "WRITE/EX_CREATE_QP",
    "WRITE/EX_MODIFY_QP",
    "WRITE/EX_MODIFY_CQ",
    "WRITE/EX_CREATE_FLOW",
    "WRITE/EX_DESTROY_FLOW",
    "WRITE/EX_MODIFY_WQ",
    "WRITE/EX_CREATE_RWQ_IND_TBL",
};

// Send opcodes; RECV stands for any receive work request.
inline constexpr std::string_view fault_wqe_names[] = {
    "NOP",       "SEND",      "SEND_IMM",  "SEND_INV",  "RDMA_WRITE", "RDMA_WRITE_IMM",
    "RDMA_READ", "ATOMIC_CS", "ATOMIC_FA", "MASKED_CS", "MASKED_FA",  "LOCAL_INV",
    "UMR",       "RECV",
};

inline constexpr std::string_view fault_packet_names[] = {
    "REQUEST", "ACK", "READ_RESPONSE", "ATOMIC_RESPONSE", "DATAGRAM",
};

// The unaffiliated events: those that belong to a port or to the device.
inline constexpr std::string_view fault_event_names[] = {
    "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR",          "LID_CHANGE",
    "PKEY_CHANGE",  "SM_CHANGE",   "CLIENT_REREGISTER", "GID_CHANGE",
};

}  // namespace softhca
