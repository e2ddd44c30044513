// The files of a fabric: who owns which slot, and is the owner alive.
//
// A slot's file is locked with flock() through the open file that the owner's
// mapping keeps alive; no descriptor stays open, so a program that closes all
// its descriptors neither loses its slot nor makes us test a foreign one. The
// mapping is not inherited by fork(), hence neither is the lock.
#pragma once

#include <string>
#include <sys/types.h>

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

// Takes a free slot, removing what dead processes left in any slot. Returns
// the mapped control block and sets `slot`; nullptr and errno on failure.
Control *claim_slot(const std::string &directory, u32 ring_bytes, u16 &slot);

// Maps the control block of the live process in `slot`; nullptr when there is
// none (errno ESRCH) or it cannot be reached.
Control *map_control(const std::string &directory, u16 slot, FileIdentity &identity);

// Maps the segment of `sender` in the file of `slot`, which must still be
// `identity`; with `allocate`, reserves its memory first so that touching it
// cannot fail. nullptr and errno on failure (ESRCH: another file by now).
u8 *map_segment(const std::string &directory, u16 slot, const FileIdentity &identity, u16 sender,
                u32 ring_bytes, bool allocate);

// Identity of the live process in `slot`. False when there is none.
bool live_identity(const std::string &directory, u16 slot, FileIdentity &identity);

// Bitmap of slots that have a file, alive or not.
void existing_slots(const std::string &directory, u64 (&bits)[max_slots / 64]);

}  // namespace softhca
