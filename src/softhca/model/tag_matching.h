// Tag matching: besides its WQEs the SRQ has a list of tagged buffers. A message whose
// header has a matching tag goes into the first such buffer, without its header;
// every other one goes, whole, into an SRQ WQE. A rendezvous message contains
// only the address of the data, which the device then reads.
//
// Hardware and software count unexpected messages. While the counts differ,
// buffers that are added do not match: software may know, or be about to find,
// an older message for them.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "base/prm.h"
#include "base/types.h"

namespace softhca {

struct PacketHeader;
struct Qp;
struct ReceiveWqe;
struct SendWqe;
struct Srq;

// What became of a message or list operation (CQE app_op).
enum class TagOutcome : u8 {
  none = 0,
  consumed = 0x1,  // matched; `expected` follows when the data is there
  expected = 0x2,
  unexpected = 0x3,
  untagged = 0x4,
  append = 0x5,
  remove = 0x6,
  noop = 0x7,
  consumed_message = 0xa,     // matched, and the data is there
  software_rendezvous = 0xb,  // matched; the buffer holds the message itself
  canceled = 0xc,             // matched, but the data will not come
};

struct TagList {
  struct Entry {
    u64 tag = 0, mask = 0;
    std::array<u8, wqe_ds> buffer{};  // data segment
    bool deferred = false;            // added out of phase
  };
  explicit TagList(u32 log_size) : entries(size_t{1} << log_size) {}

  std::vector<Entry> entries;
  std::vector<u16> order;  // indices of those in the list, oldest first
  u16 append_next = 0;     // index that the next addition gets
  u16 hardware_phase = 0;  // count of unexpected messages
  u16 software_phase = 0;  // ... of which software has handled so many

  bool listed(u16 index) const;
  // Takes the first entry that matches out of the list.
  std::optional<u16> consume(u64 tag);
  bool remove(u16 index);
  // False: the next index is not free, or `next` is none.
  bool append(const Entry &, u16 next);
  void synchronize(u16 count);
};

// The longest rendezvous message, headers and meta-data.
inline constexpr u32 max_rendezvous_header = 64;

// Executes a TAG_MATCHING WQE (linearised) and writes its completion.
Syndrome execute_tag_operation(Qp &, const u8 *wqe, u32 ds);

// The first packet of a Send to a tag matching SRQ: decides where the message
// goes. True: to a buffer of the list. False: to an SRQ WQE, which the caller
// takes; `out.tag` says what the message is.
bool match_tag(Qp &, Srq &, const PacketHeader &, const u8 *payload, ReceiveWqe &out);
// Reports the completion of such a message, and starts the READ of a rendezvous.
void complete_tagged(Qp &, Srq &, ReceiveWqe &, CqeOpcode, const PacketHeader &, u32 bytes);
// The device's own READ for a rendezvous completed or failed.
void complete_rendezvous(Qp &, SendWqe &);

}  // namespace softhca
