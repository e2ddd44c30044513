// The directories of fabrics: where they lie, who uses them, and their end.
//
// A directory is named after its user and its fabric. Each process that uses it
// holds a shared lock on its file "users", by a mapping as slots are held
// (slot_file.h), but one that children of fork() inherit with what they know
// of the directory. Who gets the exclusive lock is alone and may remove it all.
#pragma once

#include <string>

#include "wire/slot_file.h"

namespace softhca {

// Directory of a fabric: below /dev/shm, where that is missing or not ours to
// write to below $TMPDIR or /tmp; private to the user, made on demand and in
// use from now on. Empty when it cannot be made: errno says why, and so does
// one line of the log. Needs no lock.
std::string fabric_directory(const std::string &name);

// At the end of a process: gives up its slots and then the directories it
// uses, and removes unused ones, those that killed processes of
// the user left included. Calls after the first do nothing. May run beside
// threads that still use the device: memory stays, names go.
void leave_fabrics();
// Has leave_fabrics() called at exit(), once. Before main(): after everything
// else that happens there.
void leave_fabrics_at_exit();
// The slots that leave_fabrics() gives up.
void remember_slot(const std::string &directory, OwnSlot &own);
void forget_slot(OwnSlot &own);

}  // namespace softhca
