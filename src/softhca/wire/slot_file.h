// The files of a fabric: who owns which slot, and is the owner alive.
//
// A slot's file is locked with flock() through the open file that a mapping of
// the owner keeps alive; no descriptor stays open, so a program that closes all
// its descriptors neither loses its slot nor makes us test a foreign one. The
// mapping is not inherited by fork(), hence neither is the lock.
//
// The memory is a System V segment that is removed as soon as it is mapped. On
// Linux others can still attach to it by its number while its owner has it,
// it cannot be shrunk below another process's mapping as a file can, it
// goes when its last user goes, however that one ends, and it counts against
// neither the size of /dev/shm nor RLIMIT_FSIZE.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/types.h"
#include "wire/layout.h"

namespace softhca {

// Which incarnation of a slot: a file is never locked again after its owner
// died, the next owner makes a new one.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity &) const = default;
};

std::string slot_path(const std::string &directory, u16 slot);

// What the owner of a slot holds.
struct OwnSlot {
  u16 number = 0;
  Control *control = nullptr;
  i32 memory = 0;        // identifier, for map_segment()
  void *lock = nullptr;  // a page of the slot's file that is never touched
  FileIdentity identity;
};

// Takes a free slot, removing what dead processes left in any slot. False and
// errno on failure, which is logged.
bool claim_slot(const std::string &directory, u32 ring_bytes, OwnSlot &own);
// Takes one more for the owner of `primary`, a number without memory of its own.
bool claim_further_slot(const std::string &directory, u32 ring_bytes, const OwnSlot &primary,
                        OwnSlot &own);
// Removes the file, then the memory and the lock.
void leave_slot(const std::string &directory, OwnSlot &own);
// Only the file and the lock: the owner is about to end and still running.
void abandon_slot(const std::string &directory, OwnSlot &own);

// The live process of another slot, as far as it was checked when it was mapped. With
// `primary` another number of the process in that slot, and nothing is mapped.
struct PeerSlot {
  u16 primary = 0;
  Control *control = nullptr;
  i32 memory = 0;
  u32 ring_bytes = 0;
  u32 pid = 0;
  FileIdentity identity;
};

// Maps the control block of the live process in `slot`; false when there is
// none (errno ESRCH) or it cannot be reached.
bool map_control(const std::string &directory, u16 slot, PeerSlot &peer);

// Maps the segment of `sender` in the memory of the slot's owner; with `allocate`, reserves
// its pages first so that touching it cannot fail. nullptr and errno on failure
// (ESRCH: the owner is gone).
u8 *map_segment(i32 memory, u16 sender, u32 ring_bytes, bool allocate);

// What a slot's file says, without looking at its owner's memory. False when
// there is no such file (ESRCH) or it makes no sense (EPROTO).
bool read_slot(const std::string &directory, u16 slot, SlotRecord &record);

// Identity of the live process in `slot`. False when there is none.
bool live_identity(const std::string &directory, u16 slot, FileIdentity &identity);

// Bitmap of slots that have a file, alive or not.
void existing_slots(const std::string &directory, u64 (&bits)[max_slots / 64]);

}  // namespace softhca
