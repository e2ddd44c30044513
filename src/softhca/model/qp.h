// Queue pairs: state, send queue (requester) and receive side (responder).
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "model/counters.h"
#include "model/cq.h"
#include "model/memory.h"
#include "model/schedule.h"
#include "model/srq.h"
#include "wire/packet.h"

namespace softhca {

struct Device;
struct EthQp;       // what a raw packet QP has beside, see eth_queue.h
struct SendEngine;  // requester state, allocated when the QP reaches RTS
struct Responder;   // responder state, allocated when the QP reaches RTR

enum class QpType : u8 { rc, uc, ud, xrc_ini, xrc_tgt, dci, dct, raw_packet };
// Values of enum ib_qp_state.
enum class QpState : u8 { reset = 0, init = 1, rtr = 2, rts = 3, sqd = 4, sqe = 5, err = 6 };
// Values of enum ib_mig_state, see model/path_migration.h.
enum class PathState : u8 { migrated = 0, rearm = 1, armed = 2 };

struct AddressVector {
  u8 dgid[16] = {};
  u32 flow_label = 0;
  u16 dlid = 0;
  u8 sgid_index = 0;
  u8 hop_limit = 0;
  u8 traffic_class = 0;
  u8 sl = 0;
  u8 src_path_bits = 0;
  u8 static_rate = 0;
  u8 port = 0;
  bool is_global = false;
};

// What modify_qp sets and query_qp returns; PSNs live in the engines.
struct QpAttributes {
  AddressVector av;
  AddressVector alt_av;
  u32 qkey = 0;
  u32 rq_psn = 0;
  u32 sq_psn = 0;
  u32 dest_qpn = 0;
  u32 access = 0;  // Access bits, remote ones
  u16 pkey_index = 0;
  u16 alt_pkey_index = 0;
  u8 port = 0;
  u8 alt_port = 0;
  u8 path_mtu = 0;  // enum ib_mtu: 1 = 256 .. 5 = 4096
  PathState path_state = PathState::migrated;
  u8 max_rd_atomic = 0;  // as requester; stored as power of two
  u8 max_dest_rd_atomic = 0;
  u8 min_rnr_timer = 0;
  u8 timeout = 0;
  u8 alt_timeout = 0;
  u8 retry_count = 0;
  u8 rnr_retry = 0;
  u32 rate_limit = 0;  // kbit/s, 0: as fast as the wire goes
  u16 udp_sport = 0;   // RoCE v2, 0: derived from the QP numbers
};

// Whether one side of a queue pair waits for pages, see model/paging.h.
enum class PageWait : u8 { none, waits, failed };

struct Qp {
  Device *device = nullptr;
  u32 qpn = 0;
  QpType type = QpType::rc;
  QpState state = QpState::reset;
  u32 pdn = 0;
  u32 uidx = unused_uidx;
  u64 user_handle = 0;
  u64 dc_key = 0;                 // DCT access key
  u64 dc_key_violations = 0;      // requests with a wrong one
  bool dc_key_armed = false;      // the next one is an event
  u32 max_errored_streams = 0;    // DCI with streams: so many stop the QP
  u32 xrcd = 0;                   // XRC_TGT
  bool for_keys = false;          // of a kernel's driver, for UMR alone: connected to nothing
  bool general_services = false;  // QP 1 of its port, as packets have it
  QpAttributes attr;
  u32 max_message_bytes = ~0u;  // beside what the device can do
  u32 cap_max_send_wr = 0, cap_max_send_sge = 0, cap_max_inline = 0;

  u32 *dbrec = nullptr;  // [0] receive, [1] send producer; null for DCT and XRC_TGT
  u8 *sq = nullptr;
  u32 sq_wqebbs = 0;  // power of two; 0: no send queue
  u8 *rq = nullptr;
  u32 rq_wqes = 0;             // power of two; 0: no receive queue
  u32 rq_stride = 0;           // bytes
  bool sq_signal_all = false;  // SQ_SIG_ALL of the creation flags
  bool wqe_signature = false;
  bool block_multicast_loopback = false;
  bool scatter_to_cqe_responder = false;  // small receives go into the CQE
  bool scatter_to_cqe_requester = false;  // and small READ / atomic results
  bool drain_sigerr = false;              // a wrong signature drains the send queue (SQD)
  // What requests, and what answers to READs of others, leave through.
  std::shared_ptr<ScheduleElement> request_schedule, response_schedule;
  std::shared_ptr<CounterSet> counters;  // null: its port's
  Cq *send_cq = nullptr;
  Cq *recv_cq = nullptr;
  Srq *srq = nullptr;
  EventSink async;
  std::vector<EventSink> more_async;  // XRC_TGT: other open handles (with their user handles)
  std::vector<u64> more_user_handles;
  std::set<std::string> multicast;  // attached groups, 16-byte GIDs

  // Cross-channel, see model/cross_channel.h. A managed queue runs up to what its master has
  // released, whatever its doorbell record says.
  bool master = false, slave_send = false, slave_receive = false;
  bool waits = false;                           // at a WAIT, and on the list of its CQ
  u16 send_released = 0, receive_released = 0;  // indices, as of the doorbell record

  // A driver whose doorbells are trapped one by one: its WQEs count when it rings. What it wrote
  // to other registers before has come by then, which its doorbell record overtakes.
  bool counts_when_rung = false;
  u16 rung = 0;         // the producer index, then
  u16 sq_consumed = 0;  // WQEBBs fetched, 16 bit
  u16 rq_consumed = 0;  // receive WQEs taken
  PageWait send_pages = PageWait::none, receive_pages = PageWait::none;
  bool last_wqe_raised = false;
  bool comm_est_raised = false;
  bool migration_refused = false;  // since it was armed: raised once
  std::unique_ptr<EthQp> eth;      // raw packet only
  std::unique_ptr<SendEngine> send;
  std::unique_ptr<Responder> responder;

  // Engine bookkeeping.
  bool hot = false;  // on the engine's list of active QPs
  bool ack_listed = false;
  u64 last_activity_ns = 0;
  size_t sweep_index = 0;  // position in the engine's table of all QPs

  Qp();
  ~Qp();
};

// Moves the QP to `state`: attributes are already validated and stored in
// qp.attr. Entering RESET clears both queues; ERR flushes them.
void qp_set_state(Qp &, QpState state);
// Live packet sequence numbers for query_qp.
u32 qp_live_sq_psn(const Qp &);
u32 qp_live_rq_psn(const Qp &);
// Raises an affiliated async event on the QP (all handles).
void qp_event(Qp &, EventType);
// Enters the error state on the device's own account: flush, async event if
// `event` is given.
void qp_fail(Qp &);
void qp_fail(Qp &, EventType event);

// Runs the send queue: fetches WQEs, transmits, checks timers. Returns
// whether anything moved.
bool qp_run_send(Qp &, u64 now_ns);
// When it has to be run again if neither a record nor a doorbell comes for it.
u64 qp_next_due(const Qp &, u64 now_ns);
// Lets an errored stream of a DCI go on. False when it is not errored.
bool qp_reset_stream(Qp &, u16 stream);
// The index behind the last WQE that the send queue may fetch.
u16 send_producer(const Qp &);
// Whether send WQEs are in flight: the QP needs attention until they are done.
bool qp_send_busy(const Qp &);
// Pushes queued acknowledges and read responses. True when all are out.
bool qp_run_responder(Qp &);
// A request or datagram for this QP.
void qp_receive_request(Qp &, const PacketHeader &, const u8 *payload);
// A multicast datagram to a group this QP is attached to.
void qp_receive_multicast(Qp &, const PacketHeader &, const u8 *payload);
// An acknowledge or response for this QP.
void qp_receive_response(Qp &, const PacketHeader &, const u8 *payload);
// A DC initiator has turned to another target.
void qp_dc_disconnect(Qp &, const PacketHeader &);
// Completes posted receives with flush errors (QP in error, own RQ).
bool qp_flush_receive(Qp &);

}  // namespace softhca
