// The command queue of a function: entries in memory of the guest, mailboxes behind them.
#pragma once

#include "firmware/hca.h"

namespace softhca::pci {

class CommandQueue {
 public:
  static constexpr u32 log_slots = 5, log_stride = 6, slots = 1u << log_slots;

  CommandQueue(firmware::Hca &hca, firmware::GuestMemory &memory) : hca_(hca), memory_(memory) {}
  void place(u64 address) { address_ = address; }
  // The doorbell: a bit for each slot that holds a command. Device lock held.
  void ring(u32 mask);

 private:
  void execute(u32 slot);

  firmware::Hca &hca_;
  firmware::GuestMemory &memory_;
  u64 address_ = 0;
};

}  // namespace softhca::pci
