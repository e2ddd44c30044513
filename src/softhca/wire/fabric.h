// The wire: processes of one fabric exchange records through rings in shared
// memory. Each process owns a slot (1..max_slots-1) with a control file that
// holds one single-producer ring per sender, so a killed sender can damage
// nothing but its own ring. A slot is held by an flock, which the kernel
// releases at death; stale files are reclaimed by the next start.
//
// Thread safety: all members are called with the device lock held, except
// pending(), wait() and wake().
#pragma once

#include <string>

#include "base/types.h"
#include "wire/packet.h"

namespace softhca {

constexpr u32 max_slots = 512;         // processes in one fabric
constexpr u32 qpn_bits_per_slot = 15;  // QP numbers: slot << 15 | n

constexpr u16 slot_of_qpn(u32 qpn) {
  return static_cast<u16>((qpn & 0xffffff) >> qpn_bits_per_slot);
}

class Fabric {
 public:
  enum class Reserve { ok, full, no_peer };

  // A record being written. `payload` points at room for the bytes asked for.
  struct Slot {
    PacketHeader *header = nullptr;
    u8 *payload = nullptr;
    void *ring = nullptr;
    u64 next_head = 0;
  };

  // Claims a slot in fabric `name`; nullptr and errno on failure (ENOSPC when
  // all slots are taken, or shared memory is exhausted).
  static Fabric *join(const std::string &name, u32 ring_bytes);
  // Gives up the slot, removes its file and deletes this object; no thread may
  // be in wait(). With `forked`, only forgets what the child inherited: the
  // parent's files stay.
  void leave(bool forked);

  u16 slot() const;
  // One more slot of this process, whose records come to it: for more QP numbers. 0 and
  // errno when there is none.
  u16 further_slot();

  // Room for a record of `payload` bytes (at most burst_bytes) to `dst`.
  // full: try again later; no_peer: no process holds that slot.
  Reserve reserve(u16 dst, u32 payload, Slot &out);
  // Publishes the record; wakes the receiver if it sleeps. Returns the
  // position to pass to consumed().
  u64 commit(u16 dst, Slot &slot);
  // Whether the receiver has taken everything up to `position`. True when the
  // peer is gone.
  bool consumed(u16 dst, u64 position);
  // Whether a live process holds the slot. Costs system calls; use on time-outs.
  bool alive(u16 dst);

  // Next received record, or false. The pointers stay valid until release().
  bool receive(const PacketHeader *&header, const u8 *&payload);
  void release();
  // Whether its sender has published nothing behind it yet. False without such a record.
  bool is_last() const;
  // Leaves it instead: the next receive() looks at other senders first.
  void hold();
  // Whether the last receive() has left a record that wants an answer, which its
  // sender has yet to let in.
  bool waits_for_way_back() const;
  // Whether a sender has been let in and its first record, for which it came,
  // is still to arrive; and the end of waiting for it.
  bool expects_first() const;
  void expect_no_first();

  // Multicast interest: number of groups this process is attached to, and the
  // slots of live processes with any interest, own slot included.
  void set_multicast_groups(u32 n);
  u32 multicast_slots(u16 *out, u32 capacity);
  // The same for Ethernet frames: number of flow rules of this process.
  void set_flow_rules(u32 n);
  u32 ethernet_slots(u16 *out, u32 capacity);

  // Whether receive() would find something: a look at shared words that needs no lock.
  bool pending() const;
  // Sleeps until a record arrives, wake() is called or `ns` (~0: for ever) have
  // passed. Returns at once when there is something to receive or wake() was
  // called since the last wait(). May also return early for no reason.
  void wait(u64 ns);
  void wake();

 private:
  struct State;
  explicit Fabric(State *s) : s_(s) {}
  State *s_;
};

}  // namespace softhca
