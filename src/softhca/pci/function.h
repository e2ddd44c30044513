// The PCI function: configuration space, registers in BAR 0, doorbells and interrupts.
//
// BAR 0 is 32 MiB of pages, and memory of the device. The first ones hold the initialization segment and the tables of
// MSI-X; the others are UAR pages, each a doorbell of completion queues, two of event queues
// and BlueFlame registers. Every access of the guest comes here, so doorbells are neither
// lost nor reordered.
#pragma once

#include <map>
#include <span>

#include "firmware/hca.h"
#include "pci/command_queue.h"

namespace softhca::pci {

class Function final : public firmware::Interrupts {
 public:
  static constexpr u64 bar_bytes = 64u << 20;
  static constexpr u32 config_bytes = 4096, vectors = 64;

  Function(Device &, firmware::GuestMemory &);
  ~Function();

  // Accesses of the guest; false: out of bounds. Device lock held, as for all others.
  bool read_config(u64 offset, std::span<u8> to) const;
  bool write_config(u64 offset, std::span<const u8> from);
  bool read_bar(u64 offset, std::span<u8> to);
  bool write_bar(u64 offset, std::span<const u8> from);
  void reset();

  // The descriptor that interrupts by that vector are written to, which is ours from now on;
  // -1: none.
  void set_interrupt(u32 vector, int fd);
  void interrupt(u32 vector) override;
  void fail() override { reset(); }

 private:
  void write_segment(u32 offset, std::span<const u8> from);
  void write_doorbell(u32 offset, std::span<const u8> from);

  Device &device_;
  firmware::Hca hca_;
  CommandQueue commands_;
  std::array<u8, config_bytes> config_{};
  u32 arm_word_ = 0;  // of a doorbell in two halves
  struct Vector {
    int fd = -1;
    bool missed = false;  // came while there was no descriptor
  };
  std::array<Vector, vectors> vectors_;
};

}  // namespace softhca::pci
