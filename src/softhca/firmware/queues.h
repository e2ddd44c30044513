// The commands that make, change and describe queues, for whoever gives them. A queue that was
// filled here still has to be registered with the model.
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
// `context` is that of its creation.
void query_cq(const Cq &, std::span<const u8> context, Command &);

// Queue pairs. What the driver alone may make is `privileged`.
constexpr u32 qp_context_at = 24;
Status create_qp(Scope &, const Command &, Qp &);
// All of QUERY_QP's answer but what only the context of its creation holds.
void query_qp(const Qp &, std::span<const u8> context, Command &);
// Whether opcode is that of a transition, and of one to ERR or RESET, which carry no context.
bool modifies_qp(u16 opcode);
bool ends_qp(u16 opcode);
// `accessed`: its access bits are those of this command from now on.
Status modify_qp(Scope &, const Command &, Qp &, bool &accessed);

// DC targets. Created, they are in INIT; the caller moves them to RTR.
constexpr u32 dct_context_at = 16, dct_context_bytes = 64;
Status create_dct(Scope &, const Command &, Qp &);
void query_dct(const Qp &, Command &);

// Shared receive queues: receive memory pools (RMP), and queues that match tags (XRQ).
Status create_rmp(Scope &, const Command &, Srq &, WorkQueue &);
Status modify_rmp(const Command &, Srq &);
void query_rmp(const Srq &, const WorkQueue &, Command &);
Status create_xrq(Scope &, const Command &, Srq &, WorkQueue &);
void query_xrq(const Srq &, const WorkQueue &, Command &);
// An event when fewer work requests than that are left.
Status set_srq_limit(Srq &, u32 limit);

// Strides of WQEs from the context of a work queue. False: there are none of that size.
bool read_strides(const u8 *context, Strides &);

// Queues of frames: RQ and SQ. They begin in RST.
constexpr u32 frame_queue_at = 32, frame_queue_bytes = 240;  // rqc, sqc
Status create_rq(Scope &, const Command &, Wq &);
Status modify_rq(const Command &, Wq &);
void query_rq(const Wq &, std::span<const u8> context, Command &);
u32 sq_tis(const Command &);  // that CREATE_SQ names
Status create_sq(Scope &, const Command &, Qp &);
Status modify_sq(const Command &, Qp &);
// Whether MODIFY_SQ names another entry of the table of rates, and which; 0: no limit.
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
