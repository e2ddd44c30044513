#include "uverbs/subscriptions.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace softhca::uverbs {

namespace {

// Wakes who waits for an eventfd. A counter that is full says enough.
void count_up(int fd) {
  pollfd p{fd, POLLOUT, 0};
  const u64 one = 1;
  if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0) [[maybe_unused]]
    const ssize_t written = write(fd, &one, sizeof one);
}

void post(EventChannel &channel, u64 name, u64 cookie, const EventEntry &entry) {
  if (channel.cookies_only) return channel.post_once(name, &cookie, sizeof cookie);
  std::array<u8, sizeof cookie + sizeof(EventEntry)> message;
  std::memcpy(message.data(), &cookie, sizeof cookie);
  std::copy(entry.begin(), entry.end(), message.begin() + sizeof cookie);
  channel.post(message.data(), message.size());
}

}  // namespace

void Subscriptions::add(u8 event, EventChannel *channel, u64 cookie, int counter) {
  static u64 next_name = 1;
  channel->hold();
  entries_.push_back({event, channel, cookie, counter, next_name++});
}

bool Subscriptions::has(u8 event) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [event](const Entry &e) { return e.event == event; });
}

void Subscriptions::deliver(u8 event, const EventEntry &entry) {
  // Closing the file of events ends its subscriptions, eventfds included.
  std::erase_if(entries_, [](const Entry &e) {
    if (e.channel->open()) return false;
    release(e);
    return true;
  });
  for (const Entry &e : entries_) {
    if (e.event != event) continue;
    if (e.counter >= 0) count_up(e.counter);
    else post(*e.channel, e.name, e.cookie, entry);
  }
}

void Subscriptions::clear() {
  for (const Entry &e : entries_) release(e);
  entries_.clear();
}

void Subscriptions::release(const Entry &e) {
  e.channel->drop();
  if (e.counter >= 0) close(e.counter);
}

Subscriptions &port_subscriptions() {
  static auto &all = *new Subscriptions;
  return all;
}

}  // namespace softhca::uverbs
