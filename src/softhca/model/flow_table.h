// Flow tables as drivers build them: the first entry (by index) that matches decides where a
// frame goes; frames without a match go to the miss table.
//
// Device lock held. The caller keeps an entry or a table as long as another one points to it.
#pragma once

#include <map>
#include <vector>

#include "model/eth_flow.h"

namespace softhca {

struct FlowTable;

struct FlowEntry {
  FlowKey value{}, mask{};
  u32 tag = 0;  // of completions
  bool drop = false;
  std::vector<Qp *> receivers;  // with rules for spreading frames over queues
  std::vector<const FlowTable *> tables;
};

struct FlowTable {
  u32 level = 0;  // that of a table behind it is higher
  std::map<u32, FlowEntry *> entries;
  const FlowTable *miss = nullptr;  // nullptr: frames without a match are lost
  mutable u64 last_walk = 0;        // a frame passes each table once
};

// Where frames begin: those from the wire, and copies of those from and to the wire.
enum class FlowRoot : u8 { receive, sniff_received, sniff_sent };
void flow_set_root(FlowRoot, const FlowTable *);
const FlowTable *flow_root(FlowRoot);

// Whether frames of this process may come back to it, if their receivers allow it.
struct LocalLoopback {
  bool unicast = false, multicast = false;
};
void flow_set_loopback(LocalLoopback);

struct FlowDelivery {
  Qp *qp;
  u32 tag;
};

// Appends the receivers of a frame. `sender` is the queue of this process that sent it,
// nullptr if another process did.
void steer_by_tables(const EthFrame &, const FlowKey &, const Qp *sender,
                     std::vector<FlowDelivery> &);

}  // namespace softhca
