#include "pci/function.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "config/identity.h"

namespace softhca::pci {

namespace {

// --- configuration space, little-endian

constexpr u32 command_at = 0x04, bar_at = 0x10, subsystem_at = 0x2c, capabilities_at = 0x34,
              interrupt_line_at = 0x3c, power_at = 0x40, msix_at = 0x50, express_at = 0x60;
constexpr u32 msix_table = 0x2000, msix_pending = 0x3000;  // in BAR 0
constexpr u16 class_infiniband = 0x0207, class_ethernet = 0x0200;

void put16(u8 *at, u32 v) {
  at[0] = static_cast<u8>(v);
  at[1] = static_cast<u8>(v >> 8);
}
void put32(u8 *at, u32 v) {
  put16(at, v);
  put16(at + 2, v >> 16);
}

// What software may write, byte by byte.
u8 writable(u32 offset) {
  if (offset == command_at) return 0x46;      // memory, bus master, parity
  if (offset == command_at + 1) return 0x05;  // SERR, no INTx
  if (offset == bar_at + 3) return 0xfc;      // 64 MiB
  if (offset >= bar_at + 4 && offset < bar_at + 8) return 0xff;
  if (offset == interrupt_line_at) return 0xff;
  if (offset == power_at + 4) return 0x03;                                // power state
  if (offset == msix_at + 3) return 0xc0;                                 // enable, mask all
  if (offset == express_at + 8 || offset == express_at + 9) return 0xff;  // device control
  if (offset == express_at + 16) return 0xff;                             // link control
  return 0;
}

// --- the initialization segment, big-endian

constexpr u32 segment_bytes = 0x2000, queue_high_at = 0x10, queue_low_at = 0x14, doorbell_at = 0x18,
              timer_at = 0x1000, health_counter_at = 0x1010;
constexpr u32 command_interface = 5;

// --- a UAR page

constexpr u32 first_uar = 4 * page_size, arm_at = 0x20, events_arm_at = 0x40, events_at = 0x48,
              blueflame_at = 0x800, blueflame_bytes = 256;

}  // namespace

Function::Function(Device &device, firmware::GuestMemory &memory)
    : device_(device), hca_(device, memory, *this), commands_(hca_, memory) {
  u8 *c = config_.data();
  put16(c, pci_vendor);
  put16(c + 2, model_identity(device.config->model).part_id);
  put16(c + 6, 0x10);  // has capabilities
  put16(c + 10, device.ethernet(1) ? class_ethernet : class_infiniband);
  put32(c + bar_at, 0xc);  // 64 bits, prefetchable
  put16(c + subsystem_at, pci_vendor);
  put16(c + subsystem_at + 2, 0x0007);
  c[capabilities_at] = power_at;
  c[power_at] = 0x01;
  c[power_at + 1] = msix_at;
  put16(c + power_at + 2, 3);
  put16(c + power_at + 4, 8);  // no soft reset
  c[msix_at] = 0x11;
  c[msix_at + 1] = express_at;
  put16(c + msix_at + 2, vectors - 1);
  put32(c + msix_at + 4, msix_table);
  put32(c + msix_at + 8, msix_pending);
  c[express_at] = 0x10;
  put16(c + express_at + 2, 2);                        // an endpoint, version 2
  put32(c + express_at + 4, 1u << 28 | 1u << 15 | 2);  // function level reset, 512 bytes
  put16(c + express_at + 8, 2u << 12 | 2u << 5);
  put32(c + express_at + 12, 16u << 4 | 4);  // 16 lanes of 16 GT/s
  put16(c + express_at + 18, 16u << 4 | 4);
  put32(c + express_at + 44, 0x1e);
}

Function::~Function() {
  for (const Vector &v : vectors_)
    if (v.fd >= 0) close(v.fd);
}

void Function::reset() {
  hca_.reset();
  commands_.disable();
}

bool Function::read_config(u64 offset, std::span<u8> to) const {
  if (offset > config_bytes || to.size() > config_bytes - offset) return false;
  std::copy_n(config_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
  return true;
}

bool Function::write_config(u64 offset, std::span<const u8> from) {
  if (offset > config_bytes || from.size() > config_bytes - offset) return false;
  constexpr u32 flr_at = express_at + 9;
  for (size_t i = 0; i < from.size(); ++i) {
    const u32 at = static_cast<u32>(offset + i);
    u8 value = from[i];
    if (at == flr_at && (value & 0x80) != 0) {
      reset();
      value &= 0x7f;
    }
    const u8 mask = writable(at);
    config_[at] = static_cast<u8>((config_[at] & ~mask) | (value & mask));
  }
  return true;
}

bool Function::read_bar(u64 offset, std::span<u8> to) {
  if (offset > bar_bytes || to.size() > bar_bytes - offset) return false;
  if (const u8 *memory = hca_.device_memory(offset, to.size()); memory != nullptr) {
    std::copy_n(memory, to.size(), to.begin());
    return true;
  }
  std::fill(to.begin(), to.end(), u8{0});
  if (offset >= segment_bytes) return true;
  // Registers, of which an access may see several.
  u8 segment[segment_bytes / 2 + 0x20] = {};
  const ModelIdentity &model = model_identity(device_.config->model);
  store_be32(segment, u32{model.fw_minor} << 16 | model.fw_major);
  store_be32(segment + 4, command_interface << 16 | model.fw_sub);
  store_be32(segment + queue_low_at, commands_.low());
  const u64 now = device_clock_ns();
  store_be64(segment + timer_at, now);
  constexpr u64 beat_ns = 10'000'000;
  store_be32(segment + health_counter_at, static_cast<u32>(now / beat_ns & 0xffffff));
  for (size_t i = 0; i < to.size() && offset + i < sizeof segment; ++i) to[i] = segment[offset + i];
  return true;
}

bool Function::write_bar(u64 offset, std::span<const u8> from) {
  if (offset > bar_bytes || from.size() > bar_bytes - offset) return false;
  if (u8 *memory = hca_.device_memory(offset, from.size()); memory != nullptr)
    std::copy(from.begin(), from.end(), memory);
  else if (offset < first_uar) write_segment(static_cast<u32>(offset), from);
  else write_doorbell(static_cast<u32>(offset % page_size), from);
  return true;
}

void Function::write_segment(u32 offset, std::span<const u8> from) {
  if (from.size() != 4) return;
  const u32 word = load_be32(from.data());
  switch (offset) {
    case queue_high_at: commands_.write_high(word); break;
    case queue_low_at: commands_.write_low(word); break;
    case doorbell_at: commands_.ring(word); break;
    default: break;
  }
}

// Words of eight bytes come as one access or as two.
void Function::write_doorbell(u32 offset, std::span<const u8> from) {
  const size_t n = from.size();
  if (n < 4 || n % 4 != 0 || offset % 4 != 0) return;
  const u32 word = load_be32(from.data());
  if (offset == arm_at || offset == arm_at + 4) {
    u32 raw;
    std::memcpy(&raw, from.data(), 4);
    if (offset == arm_at) arm_word_ = raw;
    if (offset == arm_at && n < 8) return;
    const u32 cqn = offset == arm_at ? load_be32(from.data() + 4) : word;
    return hca_.arm_cq(cqn & 0xffffff, arm_word_);
  }
  if (offset == events_arm_at || offset == events_at)
    return hca_.consume_events(word >> 24, word & 0xffffff, offset == events_arm_at);
  if (offset < blueflame_at) return;
  // The beginning of a send WQE, whose second word names the queue. The rest is in the ring.
  for (size_t i = 0; i < n; i += 4)
    if ((offset + i) % blueflame_bytes == 4) hca_.ring_queue(load_be32(from.data() + i) >> 8);
}

void Function::set_interrupt(u32 vector, int fd) {
  if (vector >= vectors) {
    if (fd >= 0) close(fd);
    return;
  }
  Vector &v = vectors_[vector];
  if (v.fd >= 0) close(v.fd);
  v.fd = fd;
  if (fd >= 0 && v.missed) interrupt(vector);
}

void Function::interrupt(u32 vector) {
  if (vector >= vectors) return;
  Vector &v = vectors_[vector];
  const u64 one = 1;
  v.missed = v.fd < 0 || write(v.fd, &one, sizeof one) != sizeof one;
}

}  // namespace softhca::pci
