// Flow steering: which receivers a frame reaches.
//
// Rules are those of this process. Frames of all processes of the fabric come
// to each process that has any rule for an Ethernet port; a rule of one
// process hides nothing from the rules of another.
#pragma once

#include "base/types.h"
#include "model/eth_frame.h"
#include "wire/packet.h"

namespace softhca {

struct Qp;

// The fields that rules can match, as bytes: a frame's key under the mask of a
// rule equals the rule's value or it does not.
struct FlowLayerKey {
  u8 dst_mac[6], src_mac[6];
  u8 ether_type[2];  // behind the VLAN tag
  u8 vlan_tci[2];
  u8 cvlan, svlan;  // 1: tagged so, outermost
  u8 ip_version;
  u8 protocol;
  u8 traffic_class;           // TOS of IPv4
  u8 src_ip[16], dst_ip[16];  // IPv4: the first four bytes
  u8 flow_label[4];
  u8 dst_port[2], src_port[2];
};
struct FlowKey {
  FlowLayerKey outer, inner;
  u8 tunnel;  // 1: VXLAN
  u8 vni[4];
};
static_assert(alignof(FlowKey) == 1, "compared as bytes, without padding");

enum class FlowKind : u8 { normal, leftovers, sniffer };

struct FlowRule {
  Qp *qp = nullptr;  // nullptr only if frames are dropped
  u32 device = 0;
  u8 port = 1;
  FlowKind kind = FlowKind::normal;
  u32 priority = 0;        // of the application, 0 is looked at first
  bool dont_trap = false;  // what comes behind sees the frame too
  bool drop = false;
  bool has_tag = false;
  u32 tag = 0;
  FlowKey value{}, mask{};

  // Set by flow_add().
  u32 level = 0;  // of kinds and priorities, in the order of evaluation
  u64 group = 0;  // of rules with one mask; older groups go first
};

FlowKey flow_key(const EthFrame &);
// `value` has no bits that `mask` does not have.
bool flow_matches(const FlowKey &value, const FlowKey &mask, const FlowKey &frame);

// Enters a rule, which the caller keeps until it removes it. EEXIST when its
// action contradicts that of another rule for the same frames.
int flow_add(FlowRule &);
void flow_remove(FlowRule &);
// In a forked child: the rules are the parent's.
void flow_forget();
// Announces to the fabric whether this process has flow rules.
void flow_announce();

// A frame from the wire. False: a receiver has no WQE for it at the moment, and
// it is worth waiting for one; nothing has been delivered.
bool receive_frame(const PacketHeader &, const u8 *payload, u64 now_ns);

}  // namespace softhca
