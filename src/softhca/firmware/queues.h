// The commands that create, modify and query queues, for DEVX and for a PCI function's driver.
// The caller registers a queue that was filled here with the model.
#pragma once

#include <span>

#include "firmware/scope.h"
#include "firmware/work_queue.h"
#include "model/eth_queue.h"
#include "model/srq.h"

namespace softhca::firmware {

// Puts `bytes` into the output box at `at`, as far as there is room.
void fill(Command &, u32 at, std::span<const u8> bytes);

// Completion queues: CREATE, MODIFY of both kinds and QUERY.
constexpr u32 cq_context_at = 16, cq_context_bytes = 64;
u32 cq_event_queue(const Command &);  // that CREATE_CQ and MODIFY_CQ name
u32 cq_uar_page(const Command &);
Status create_cq(Scope &, const Command &, Cq &);
Status modify_cq_fields(Scope &, const Command &, Cq &);
Status resize_cq(Scope &, const Command &, Cq &);
// `context` is the one that created it.
void query_cq(const Cq &, std::span<const u8> context, Command &);

// Queue pairs. What the driver alone may make is `privileged`.
constexpr u32 qp_context_at = 24;
Status create_qp(Scope &, const Command &, Qp &);
// QUERY_QP's answer, except fields that only the creating context holds.
void query_qp(const Qp &, std::span<const u8> context, Command &);
// Whether opcode is that of a transition, and of one to ERR or RESET, which carry no context.
bool modifies_qp(u16 opcode);
bool ends_qp(u16 opcode);
// `accessed` is set if the command changes the access bits.
Status modify_qp(Scope &, const Command &, Qp &, bool &accessed);

// DC targets. create_dct leaves them in INIT; the caller moves them to RTR.
constexpr u32 dct_context_at = 16, dct_context_bytes = 64;
Status create_dct(Scope &, const Command &, Qp &);
void query_dct(const Qp &, Command &);

// Shared receive queues: receive memory pools (RMP), and queues that match tags (XRQ).
Status create_rmp(Scope &, const Command &, Srq &, WorkQueue &);
Status modify_rmp(const Command &, Srq &);
void query_rmp(const Srq &, const WorkQueue &, Command &);
Status create_xrq(Scope &, const Command &, Srq &, WorkQueue &);
void query_xrq(const Srq &, const WorkQueue &, Command &);
// Raises an event when fewer work requests than `limit` are left.
Status set_srq_limit(Srq &, u32 limit);

// Strides of WQEs from the context of a work queue. False: the device has no strides of that size.
bool read_strides(const u8 *context, Strides &);

// Queues of frames: RQ and SQ. They begin in RST.
constexpr u32 frame_queue_at = 32, frame_queue_bytes = 240;  // rqc, sqc
Status create_rq(Scope &, const Command &, Wq &);
Status modify_rq(const Scope &, const Command &, Wq &);
void query_rq(const Wq &, std::span<const u8> context, Command &);
u32 sq_tis(const Command &);  // that CREATE_SQ names
Status create_sq(Scope &, const Command &, Qp &);
Status modify_sq(const Command &, Qp &);
// Whether MODIFY_SQ changes the entry of the rate table, and to which; 0: no limit.
bool changes_rate(const Command &, u32 &index);
void query_sq(const Qp &, std::span<const u8> context, Command &);

// Where frames are received (TIR): in one RQ, or those of a table (RQT).
struct TirTarget {
  bool direct = true;
  u32 number = 0;  // of the RQ or the RQT
  u32 transport_domain = 0;
};
Status read_tir(const Command &, EthQp &, TirTarget &);
Status modify_tir(const Command &, EthQp &);
// The RQs of a table.
Status read_rqt(const Command &, const Capabilities &, std::vector<u32> &rqs);

}  // namespace softhca::firmware
