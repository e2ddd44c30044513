// Drives the device: from the application's own threads whenever libmlx5, or what is linked
// with it, takes or drops a spin lock, and from one thread of our own for programs that
// sleep, that are only targets, or that use no locks. With nothing to do that thread rests
// until it is woken: by records of other processes, by traps (traps.h), by commands and by
// these locks.
#pragma once

#include "base/types.h"
#include "model/driver.h"

namespace softhca {

struct PacketHeader;
struct Qp;

// One pass over rings, active QPs and watched CQs. Device lock held.
bool engine_step(u64 now_ns);

// Before something is taken away that packets may name: what was sent to this
// process takes effect, as on hardware, where it does within microseconds of
// being posted; and what was posted to the queue pair is sent. Device lock held.
void engine_settle(Qp * = nullptr);

// Something was done that the engine has to look at. Device lock held.
void engine_nudge();

// In a forked child: nothing of the parent's engine may be used again.
void engine_forget();

// Called by the preload layer around spin locks with the address of the code that takes
// them: runs one step if its locks are the device's (callers.h) and no other thread is stepping.
void engine_hook(const void *caller);

// True while the calling thread is inside the device: interposed functions
// must then pass through.
bool inside_device();
struct InsideDevice {
  InsideDevice();
  ~InsideDevice();
  bool outer;
  int cancel;  // the thread's state
};

// The connection manager stands above: what it does with messages, and at every
// step with the time; tick() says whether anything moved, due() when it is to be
// called next if nothing happens. Device lock held.
void engine_set_cm(void (*receive)(const PacketHeader &, const u8 *payload),
                   bool (*tick)(u64 now_ns), u64 (*due)(u64 now_ns));

// Clock page and clock info page, kept current by the engine. Both live in
// the file behind the command descriptor, see uverbs/file.h.
void engine_add_clock_page(u8 *core_clock_page, u8 *clock_info_page);
void engine_remove_clock_page(u8 *core_clock_page);

}  // namespace softhca
