// Subscribers to the events of an object that a firmware command made
// (MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT), and how they get them.
#pragma once

#include <array>
#include <list>

#include "model/event.h"

namespace softhca::uverbs {

// An entry of a hardware event queue (mlx5_eqe).
using EventEntry = std::array<u8, 64>;

class Subscriptions {
 public:
  Subscriptions() = default;
  ~Subscriptions() { clear(); }
  Subscriptions(const Subscriptions &) = delete;
  Subscriptions &operator=(const Subscriptions &) = delete;

  // Events of number `event` go to `channel` with `cookie`, or count up the eventfd
  // `counter`, which is taken over, unless it is -1.
  void add(u8 event, EventChannel *channel, u64 cookie, int counter);
  bool empty() const { return entries_.empty(); }
  bool has(u8 event) const;
  void deliver(u8 event, const EventEntry &entry);
  void clear();

 private:
  struct Entry {
    u8 event;
    EventChannel *channel;
    u64 cookie;
    int counter;
    u64 name;  // no two have the same
  };
  static void release(const Entry &);
  std::list<Entry> entries_;
};

// The events of ports, which belong to no object.
Subscriptions &port_subscriptions();

}  // namespace softhca::uverbs
