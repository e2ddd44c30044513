// The only place that touches memory of the application through addresses the
// application chose. A bad address gives false, never a signal.
//
// Queue buffers and doorbell records are different: their range is checked
// once at creation (probe) and then accessed directly, as pinned memory is.
#pragma once

#include <vector>

#include "base/types.h"

namespace softhca {

// A piece of resolved memory. `direct` memory is the device's own (device
// memory, inline data) and is copied without checks; `null` swallows writes
// and reads as zeroes; `gone` was taken away since: copies fail.
struct Span {
  enum class Kind : u8 { application, direct, null, gone };
  u64 address = 0;
  u64 length = 0;
  Kind kind = Kind::application;
  // Numbers of memory keys: the one that the request names, and the one whose memory it is.
  u32 key = 0, memory_key = 0;
};
using SpanList = std::vector<Span>;

u64 total_length(const SpanList &spans);

// Copy `length` bytes between `spans` (starting `offset` bytes in) and a
// device buffer. False on a memory fault; the copy may then be partial.
bool read_spans(const SpanList &spans, u64 offset, void *to, u64 length);
bool write_spans(const SpanList &spans, u64 offset, const void *from, u64 length);

bool read_application(u64 address, void *to, u64 length);
bool write_application(u64 address, const void *from, u64 length);

// How application memory is reached. The default is process_vm; the others
// take over by themselves where a sandbox denies it.
enum class MemoryAccess : u8 {
  process_vm,  // process_vm_readv/writev on ourselves: one system call per copy
  pipe,        // through a pipe: the kernel copies, so faults are errors here too
  plain,       // checked, then copied: a mapping removed in between is a crash
};
void set_memory_access(bool process_vm);  // false: never use process_vm
void force_memory_access(MemoryAccess);   // for tests
MemoryAccess memory_access();

// Pins in spirit: populates the range and says whether it is mapped with the
// rights needed. Returns 0, EFAULT, EINVAL (wraps around) or ENOMEM.
int probe(u64 address, u64 length, bool writable);

}  // namespace softhca
