// Receive queues of Ethernet frames, and how frames are spread over them.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/types.h"
#include "model/counters.h"
#include "model/cq.h"
#include "model/eth_frame.h"
#include "model/event.h"
#include "model/strides.h"

namespace softhca {

struct Device;
struct Qp;

// Values of enum ib_wq_state.
enum class WqState : u8 { reset = 0, ready = 1, error = 2 };

// What a receiver wants done to each frame.
struct ReceiveOffloads {
  bool strip_vlan = false;   // the tag moves into the completion
  bool scatter_fcs = false;  // the frame check sequence follows the frame
  bool tunnel = false;       // completions describe the inner headers
};

// How long a queue has been without WQEs for frames that wait.
struct Starvation {
  u64 since_ns = 0;  // 0: there is room
  bool given_up = false;
};

// A receive work queue. Cyclic: one frame per WQE. Striding: a WQE is divided
// into strides, and frames take as many as they need, one behind the other.
struct Wq {
  const Device *device = nullptr;
  std::shared_ptr<CounterSet> counters;  // null: its port's
  u32 wqn = 0;
  u64 user_handle = 0;
  u32 pdn = 0;
  u32 uidx = 0;
  WqState state = WqState::reset;
  const u8 *buffer = nullptr;
  u32 *dbrec = nullptr;  // [0] number of WQEs posted, 16 bit
  u32 entries = 0;       // power of two
  u32 stride = 0;        // bytes per WQE
  bool signature = false;
  Strides strides;
  bool two_byte_shift = false;  // frames start two bytes in: their IP headers are aligned
  ReceiveOffloads offloads;
  Cq *cq = nullptr;
  EventSink async;

  u16 consumed = 0;  // WQEs used up
  Starvation starvation;

  u16 available() const { return static_cast<u16>(read_doorbell(&dbrec[0]) - consumed); }
};

void wq_set_state(Wq &, WqState);
// Before deletion.
void wq_forget(Wq &);
// Completes with flush errors what was posted to queues in error.
bool flush_failed_wqs();

struct IndirectionTable {
  std::vector<Wq *> wqs;  // a power of two of them
};

// Bits of the hash fields of an RSS QP (enum mlx5_rx_hash_fields).
enum HashField : u32 {
  hash_src_ipv4 = 1 << 0,
  hash_dst_ipv4 = 1 << 1,
  hash_src_ipv6 = 1 << 2,
  hash_dst_ipv6 = 1 << 3,
  hash_src_tcp = 1 << 4,
  hash_dst_tcp = 1 << 5,
  hash_src_udp = 1 << 6,
  hash_dst_udp = 1 << 7,
  hash_ipsec_spi = 1 << 8,
  hash_inner = 1u << 31,
};
constexpr u32 hash_ipv4 = hash_src_ipv4 | hash_dst_ipv4, hash_ipv6 = hash_src_ipv6 | hash_dst_ipv6;
constexpr u32 hash_tcp = hash_src_tcp | hash_dst_tcp, hash_udp = hash_src_udp | hash_dst_udp;
constexpr u32 toeplitz_key_bytes = 40;

struct Rss {
  std::array<u8, toeplitz_key_bytes> key{};
  u32 fields = 0;
  const IndirectionTable *table = nullptr;
};

struct RssResult {
  u32 hash = 0;
  u8 type = 0;  // which fields it was made of, as in completions
};

u32 toeplitz(const u8 *key, const u8 *input, u32 bytes);
RssResult rss_hash(const Rss &, const EthFrame &);

// What a raw packet QP has beside the queues of every QP.
struct EthQp {
  ReceiveOffloads offloads;
  std::unique_ptr<Rss> rss;  // receives through a table; has no queues itself
  Starvation starvation;
  u32 max_burst_bytes = 0;  // packet pacing; 0: the device's default
  // For queues behind flow tables: their transport domain, and which of its frames they
  // want.
  u32 transport_domain = 0;
  bool own_unicast = false, own_multicast = false;
};

// Whether a frame should stay on the wire because what `qp` receives with has
// no WQE for it. Links pause for a while before frames are lost (802.3x); a
// queue that stays empty gets no such grace again until it has been filled.
bool frame_must_wait(Qp &, const EthFrame &, u64 now_ns);
// Delivers a frame to what `qp` receives with: its own queue, or a WQ of its
// table. Without a posted WQE the frame is lost.
void deliver_frame(Qp &, const EthFrame &, u32 flow_tag);

}  // namespace softhca
