// Traps: a page of the device that the application touches wakes the engine.
//
// libmlx5 shows us its posts through its locks; programs that write WQEs
// themselves write a doorbell register and nothing else, and whoever reads the
// clock only reads memory. While the engine rests, these pages are taken out of
// the application's mappings; the first access to one stops in the kernel
// (userfaultfd), a thread of ours puts the page back and wakes the engine, and
// the access goes on. No thread polls doorbells meanwhile.
//
// The thread has a descriptor table of its own, which holds nothing but the
// userfaultfd: no program that closes descriptors closes this one. Touching a page
// of the same kind is also how the thread gets its orders.
//
// The application's mappings are found in /proc/self/maps: memory hooks hide
// calls of mmap(). Where any of this is refused (an old kernel, a container's
// filter, valgrind), arming fails and the engine goes on looking. The device lock
// is held except where noted.
#pragma once

#include <cstddef>

#include "base/types.h"

namespace softhca {

// Starts the thread, which calls `sprung` with the lock held before the
// application goes on; no descriptor of the process is valid there. Without success everything below does nothing.
void traps_start(void (*sprung)());
// In a forked child: traps and mappings are the parent's.
void traps_forget();

// The device's pages are about to go.
void traps_unmapped(const u8 *pages, size_t length);
// A page that must be trapped while the engine rests. It is zero when it has
// been taken out of the mappings, and `fill` is called before the program can read it.
// A mapping of `instead` serves as well.
void traps_need(u8 *page, void (*fill)(u8 *page), const u8 *instead = nullptr);
void traps_need_not(const u8 *page);

// The application has mapped something: there may be more to trap.
void traps_look_again();

// Traps every page that is needed and was touched. False when one cannot be.
bool traps_arm();
// Behind that, lock not held: looks for mappings that are not known yet.
void traps_find(u64 now_ns);

}  // namespace softhca
