#include "model/flow_table.h"

#include <algorithm>

#include "config/identity.h"
#include "model/device.h"
#include "model/eth_queue.h"

namespace softhca {

namespace {

struct Roots {
  const FlowTable *tables[3] = {};
  LocalLoopback loopback;
};

Roots &roots() {
  static Roots r;
  return r;
}

bool is_multicast(const EthFrame &f) { return (f.data[0] & 1) != 0; }

bool names_destination(const FlowEntry &e) {
  return std::all_of(std::begin(e.mask.outer.dst_mac), std::end(e.mask.outer.dst_mac),
                     [](u8 b) { return b == 0xff; });
}

class Walk {
 public:
  Walk(const EthFrame &f, const FlowKey &key, const Qp *sender, std::vector<FlowDelivery> &out)
      : frame_(f), key_(key), sender_(sender), out_(out) {
    static u64 walks = 0;
    number_ = ++walks;
  }

  // `named`: an entry on the way here matched the frame's very destination. Levels rise
  // from table to table, so that every walk ends.
  void visit(const FlowTable *table, bool named) {
    for (; table != nullptr && table->last_walk != number_; table = table->miss) {
      table->last_walk = number_;
      const FlowEntry *e = match(*table);
      if (e == nullptr) continue;
      take(*e, named || names_destination(*e));
      return;
    }
  }

 private:
  const FlowEntry *match(const FlowTable &table) const {
    for (const auto &[index, entry] : table.entries)
      if (flow_matches(entry->value, entry->mask, key_)) return entry;
    return nullptr;
  }

  void take(const FlowEntry &e, bool named) {
    if (e.drop) return;
    for (Qp *qp : e.receivers)
      if (sender_ == nullptr || comes_back(*qp, named)) out_.push_back({qp, e.tag});
    for (const FlowTable *next : e.tables) visit(next, named);
  }

  // Receivers of the sender's own transport domain want that only if they say so. Unicast
  // frames come back for an address that is known here.
  bool comes_back(const Qp &receiver, bool named) const {
    const bool multicast = is_multicast(frame_);
    const LocalLoopback &port = roots().loopback;
    if (!(multicast ? port.multicast : port.unicast)) return false;
    const EthQp &eth = *receiver.eth;
    if (eth.transport_domain == sender_->eth->transport_domain &&
        !(multicast ? eth.own_multicast : eth.own_unicast))
      return false;
    if (multicast || named) return true;
    const Device &device = *receiver.device;
    return std::memcmp(port_mac(config(), device.number, 1).data(), frame_.data, 6) == 0;
  }

  const EthFrame &frame_;
  const FlowKey &key_;
  const Qp *sender_;
  std::vector<FlowDelivery> &out_;
  u64 number_;
};

}  // namespace

void flow_set_root(FlowRoot which, const FlowTable *table) {
  roots().tables[static_cast<u32>(which)] = table;
  flow_announce();
}

const FlowTable *flow_root(FlowRoot which) { return roots().tables[static_cast<u32>(which)]; }

void flow_set_loopback(LocalLoopback l) { roots().loopback = l; }

void steer_by_tables(const EthFrame &f, const FlowKey &key, const Qp *sender,
                     std::vector<FlowDelivery> &out) {
  const FlowTable *copies =
      flow_root(sender != nullptr ? FlowRoot::sniff_sent : FlowRoot::sniff_received);
  // Sniffers see frames that leave as well.
  Walk(f, key, nullptr, out).visit(copies, false);
  Walk(f, key, sender, out).visit(flow_root(FlowRoot::receive), false);
}

}  // namespace softhca
