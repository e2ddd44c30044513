// The command queue of a function: entries in memory of the guest, mailboxes behind them.
#pragma once

#include "firmware/hca.h"

namespace softhca::pci {

class CommandQueue {
 public:
  static constexpr u32 log_slots = 5, log_stride = 6, slots = 1u << log_slots;

  CommandQueue(firmware::Hca &hca, firmware::GuestMemory &memory) : hca_(hca), memory_(memory) {}
  // The low word of the register that has the queue's address: the address in units of 4 KiB, the
  // state of the interface in bits 8 to 10, then log_slots and log_stride (4 bits each).
  u32 low() const { return static_cast<u32>(address_) | state_ << state_at | geometry; }
  void write_low(u32 word);
  void write_high(u32 word) { high_ = word; }
  // After a reset or an internal error: there is no queue, and the driver, which reads the state
  // when it looks at the card's health, has to start the interface again.
  void disable();
  // The doorbell: a bit for each slot that holds a command. Nothing is executed unless the
  // interface is enabled. Device lock held.
  void ring(u32 mask);

 private:
  static constexpr u32 geometry = log_slots << 4 | log_stride;
  static constexpr u32 state_at = 8, states = 7;
  enum State : u32 { enabled = 0, disabled = 1 };

  void execute(u32 slot);

  firmware::Hca &hca_;
  firmware::GuestMemory &memory_;
  u32 high_ = 0;
  u64 address_ = 0;
  u32 state_ = disabled;
};

}  // namespace softhca::pci
