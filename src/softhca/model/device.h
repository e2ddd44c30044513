// The emulated hardware of this process: devices (one per configured HCA) and
// the objects that the data path needs to find by number.
//
// Everything here is protected by Process::mutex. The singleton is never
// destroyed: the engine thread may outlive static destructors.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "config/config.h"
#include "model/cq.h"
#include "model/event.h"
#include "model/full_ring_wait.h"
#include "model/mkey.h"
#include "model/qp.h"
#include "model/srq.h"
#include "wire/fabric.h"

namespace softhca {

struct Wq;

using Gid = std::array<u8, 16>;
enum class GidType : u8 { ib = 0, roce_v1 = 1, roce_v2 = 2 };  // values of ib_uverbs_gid_type
struct GidEntry {
  Gid gid{};
  GidType type = GidType::ib;
  bool valid = false;
};

// How many QPs a process can have, as cards report it: the numbers of eight slots.
inline constexpr u32 log_max_qps = 18;

// What a model can do. Filled from the model and the configuration's `hide`
// list; the uverbs layer reports it, nothing else may.
struct Capabilities {
  u32 vendor_part_id = 4123;
  u32 max_qp = 1u << log_max_qps;
  u32 max_qp_wr = 32768;
  u32 max_sge = 30;
  u32 max_sge_rd = 30;
  u32 max_cq = 1 << 24;
  u32 max_cqe = 4194303;
  u32 max_mr = 1 << 24;
  u32 max_pd = 1 << 24;
  u32 max_mw = 1 << 24;
  u32 max_srq = 1 << 23;
  u32 max_srq_wr = 32767;
  u32 max_srq_sge = 31;
  u32 max_rd_atomic = 16;
  u32 max_mcast_group = 2097152;
  u32 max_mcast_attach = 240;
  u32 max_dm_bytes = 131072;
  u32 max_message_bytes = 1u << 30;
  u32 max_inline_mask = 0;
  u32 max_tso = 1u << 18;
  u32 max_rq = 1u << 23;
  u32 max_indirection_tables = 1u << 20;
  u32 max_indirection_entries = 2048;
  u32 min_rate_kbps = 1, max_rate_kbps = 100'000'000;
  u32 log_max_memcpy = 20;
  u32 log_max_tags = 7;
  u8 log_max_streams = 3, log_max_errored_streams = 3;  // of a DCI
  bool dc = true;
  bool xrc = true;
  bool atomics = true;
  bool extended_atomics = true;  // masked, 4..32 bytes
  bool odp = true;
  bool device_memory = true;
  bool umr = true;
  bool cqe_128_compression = true;
  bool cqe_compression = true;
  bool memory_windows = true;
  bool timestamps = true;
  bool null_mkey = true;
  bool cq_moderation = true;
  bool raw_ethernet = true;  // raw packet QPs, WQs, RSS, flow steering
  bool striding_rq = true;
  bool tso = true;
  bool multi_packet_send = true;  // several packets in a WQE
  bool packet_pacing = true;
  bool reserved_qpns = true;
  bool tag_matching = true;
  bool striding_srq = true;
  bool dci_streams = true;
  bool dma_memcpy = true;
  bool signature = true;
  bool av_qp_mapping = true;
  bool qp_scheduling = true;
  bool cross_channel = true;
  bool path_migration = true;  // to another path, InfiniBand only
};

struct Device {
  const DeviceConfig *config = nullptr;
  u32 number = 0;  // index of the device in the configuration
  Capabilities caps;
  std::vector<bool> ports_up;               // as configured, until an event changes it
  std::vector<std::vector<GidEntry>> gids;  // per port (index 0 = port 1)
  u64 dm_used = 0;                          // bytes of device memory handed out

  const PortConfig &port(u32 number_from_1) const { return config->ports[number_from_1 - 1]; }
  bool up(u32 number_from_1) const { return ports_up[number_from_1 - 1]; }
  u32 port_count() const { return static_cast<u32>(config->ports.size()); }
  bool ethernet(u32 port_number) const { return port(port_number).link == LinkLayer::ethernet; }
};

// The doorbell record of a QP, and where it stood when the QP was last run:
// what the engine needs of an idle QP, side by side with those of the others.
struct IdleDoorbell {
  Qp *qp = nullptr;
  const u32 *record = nullptr;
  u16 sent = 0, received = 0;
  bool watch_sent = false, watch_received = false;  // neither while the QP is active
};

struct Process {
  std::mutex mutex;
  bool started = false;  // fabric joined, engine running
  Fabric *fabric = nullptr;
  std::vector<Device> devices;
  MkeyTable mkeys;
  FullRingWait full_ring_wait;
  std::unordered_map<u32, Qp *> qps;    // by number
  std::unordered_map<u32, Srq *> srqs;  // by number
  std::unordered_map<u32, Cq *> cqs;    // by number
  std::vector<IdleDoorbell> sweep;      // of all QPs with a doorbell record
  std::vector<Qp *> hot;                // QPs with work or recent doorbells
  std::vector<Qp *> ack_pending;        // responders with something to push
  std::vector<Cq *> watched;            // CQs whose arming is to be checked
  std::vector<Cq *> compressing;        // CQs with held-back completions
  std::vector<EventChannel *> overflowing;
  std::vector<Wq *> failed_wqs;                  // receive queues of frames in the error state
  std::vector<EventChannel *> context_channels;  // async channel of every open context
  std::function<void(u32 port, EventType)> port_listener;  // beside them
  size_t sweep_cursor = 0;
  size_t sweep_eager = 0;      // QPs to look at without waiting for their time
  u64 swept_ns = 0;            // until when idle QPs have had their share
  u64 qp_visits = 0;           // doorbell records looked at, and active QPs run
  std::vector<u16> qpn_slots;  // whose numbers QPs get, the fabric's own first
  u32 next_qpn = 0, next_srqn = 1, next_cqn = 1, next_pdn = 1;
  std::deque<u32> free_qpns;          // oldest first: numbers rest before reuse
  std::deque<u32> free_qpn_blocks;    // reserved once and given back, oldest first
  u64 open_ns = 0;                    // device clock when the first context opened
  std::atomic<u64> last_event_ns{0};  // newest completion event (engine policy)

  // Joins the fabric and starts the engine; errno on failure. Lock held.
  int start();
};

Process &process();

// Device clock in nanoseconds; what CQE timestamps and the clock page show.
u64 device_clock_ns();

// Numbering and registration. Lock held.
Qp *qp_register(std::unique_ptr<Qp> qp);  // assigns qp.qpn; nullptr when none is free
void qp_unregister(Qp *);                 // removes it from all lists and deletes it
// A block of consecutive QP numbers that no QP gets, or false when none is
// left; and its return.
inline constexpr u32 log_reserved_qpns = 5;
bool qpns_reserve(u32 &first);
void qpns_release(u32 first);
u32 srq_register(Srq *);  // assigns and returns srqn
void srq_unregister(Srq *);
void cq_watch(Cq &);   // check its arming at the next step
void cq_forget(Cq &);  // before deletion
void qp_wake(Qp &);    // run it at the next step
void qp_rest(Qp &);    // not again before its doorbell record changes

}  // namespace softhca
