#include "pci/command_queue.h"

#include <algorithm>

#include "base/log.h"

namespace softhca::pci {

namespace {

// An entry, and a mailbox.
constexpr u32 entry_bytes = 64, in_length_at = 4, in_mailbox_at = 8, in_at = 16, out_at = 32,
              out_mailbox_at = 48, out_length_at = 56, token_at = 60, status_at = 63,
              inline_bytes = 16;
constexpr u32 data_bytes = 512, next_at = 560, number_at = 568, mailbox_token_at = 573,
              mailbox_bytes = 576;
constexpr u32 shortest = 8;       // an opcode, a status
constexpr u32 longest = 1 << 23;  // of a command: a key of 4 GiB in small pages

// Delivery statuses; the owner's bit is the one below.
enum Delivery : u8 {
  delivered = 0x0,
  token_error = 0x2,
  bad_block_number = 0x3,
  bad_out_pointer = 0x4,
  bad_in_pointer = 0x5,
  bad_in_length = 0x7,
  bad_out_length = 0x8,
};

// One of a list of mailboxes, which each name the next one.
struct Mailboxes {
  const firmware::GuestMemory &memory;
  u64 next;
  u8 token;
  Delivery bad_pointer;
  u32 number = 0;

  Delivery take(u64 &at, u8 *data) {
    u8 box[mailbox_bytes];
    at = next;
    if (at % data_bytes != 0 || !memory.read(at, box, sizeof box)) return bad_pointer;
    if (box[mailbox_token_at] != token) return token_error;
    if (load_be32(box + number_at) != number) return bad_block_number;
    ++number;
    next = load_be64(box + next_at);
    std::copy_n(box, data_bytes, data);
    return delivered;
  }
};

Delivery read_input(Mailboxes boxes, std::vector<u8> &in) {
  for (size_t done = inline_bytes; done < in.size(); done += data_bytes) {
    u64 at;
    u8 data[data_bytes];
    if (const Delivery d = boxes.take(at, data); d != delivered) return d;
    std::copy_n(data, std::min<size_t>(data_bytes, in.size() - done),
                in.begin() + static_cast<std::ptrdiff_t>(done));
  }
  return delivered;
}

// The places of the output, before anything is executed that could not be answered.
Delivery find_output(Mailboxes boxes, size_t bytes, std::vector<u64> &places) {
  for (size_t done = inline_bytes; done < bytes; done += data_bytes) {
    u8 data[data_bytes];
    if (const Delivery d = boxes.take(places.emplace_back(), data); d != delivered) return d;
  }
  return delivered;
}

}  // namespace

void CommandQueue::write_low(u32 word) {
  constexpr u32 page = 4096;
  address_ = u64{high_} << 32 | (word & ~(page - 1));
  state_ = word >> state_at & states;
}

void CommandQueue::disable() {
  address_ = 0;
  state_ = disabled;
}

void CommandQueue::ring(u32 mask) {
  if (state_ != enabled) {
    SOFTHCA_LOG(warn, "doorbell %#x of the command queue, but the interface is disabled", mask);
    return;
  }
  for (u32 slot = 0; slot < slots; ++slot)
    if ((mask >> slot & 1) != 0) execute(slot);
}

void CommandQueue::execute(u32 slot) {
  const u64 at = address_ + (u64{slot} << log_stride);
  u8 entry[entry_bytes];
  if (!memory_.read(at, entry, sizeof entry)) {
    SOFTHCA_LOG(error, "command queue: address %#lx is not in the guest's memory", address_);
    return;
  }
  const u32 in_bytes = load_be32(entry + in_length_at),
            out_bytes = load_be32(entry + out_length_at);
  const u8 token = entry[token_at];
  const bool announced = hca_.commands_have_events();
  firmware::Command c;
  std::vector<u64> places;
  Delivery d = delivered;
  if (in_bytes < shortest || in_bytes > longest) d = bad_in_length;
  else if (out_bytes < shortest || out_bytes > longest) d = bad_out_length;
  if (d == delivered) {
    c.in.assign(entry + in_at, entry + in_at + inline_bytes);
    std::fill(c.in.begin() + std::min(in_bytes, inline_bytes), c.in.end(), u8{0});
    c.in.resize(std::max(in_bytes, inline_bytes));
    c.out.assign(std::max(out_bytes, inline_bytes), 0);
    d = read_input({memory_, load_be64(entry + in_mailbox_at), token, bad_in_pointer}, c.in);
  }
  if (d == delivered)
    d = find_output({memory_, load_be64(entry + out_mailbox_at), token, bad_out_pointer},
                    c.out.size(), places);
  if (d == delivered) {
    hca_.execute(c);
    size_t done = inline_bytes;
    for (const u64 place : places) {
      const size_t n = std::min<size_t>(data_bytes, c.out.size() - done);
      if (!memory_.write(place, c.out.data() + done, n)) d = bad_out_pointer;
      done += n;
    }
    if (!memory_.write(at + out_at, c.out.data(), inline_bytes)) d = bad_out_pointer;
  }
  if (d != delivered)
    SOFTHCA_LOG(warn, "command in slot %u: delivery status %#x (%u bytes in, %u out)", slot, d,
                in_bytes, out_bytes);
  // Last, for it gives the entry back to software.
  const u8 status = static_cast<u8>(d << 1);
  memory_.write(at + status_at, &status, 1);
  if (announced) hca_.commands_done(1u << slot);
}

}  // namespace softhca::pci
