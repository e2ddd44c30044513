// fork() and vfork(). A child shares neither engine nor wire with its parent,
// but may go on using control verbs on inherited descriptors.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "cm/cm_file.h"
#include "engine/engine.h"
#include "model/device.h"
#include "preload/calls.h"
#include "preload/heap.h"
#include "preload/real.h"
#include "uverbs/file.h"
#include "wire/directory.h"

namespace softhca {

namespace {

// Where a device has been opened.
std::atomic<pid_t> g_pid{0};

thread_local bool g_holds = false;

// A thread that is inside the device (an allocator's hook that forks, say)
// holds the lock already.
void before() {
  if (g_pid.load(std::memory_order_relaxed) != 0 && !inside_device()) {
    process().mutex.lock();
    g_holds = true;
  }
  heap_stop();
}

void in_parent() {
  heap_go_on();
  if (!g_holds) return;
  g_holds = false;
  process().mutex.unlock();
}

void in_child() {
  heap_go_on();
  if (g_pid.load(std::memory_order_relaxed) == 0) return;
  g_holds = false;
  // Only the forking thread exists here, so no other thread can hold the lock; a
  // fresh one also forgets waiters that were not copied.
  new (&process().mutex) std::mutex;
  g_pid.store(getpid(), std::memory_order_relaxed);
  in_device_void([] {
    uverbs_forked();
    engine_forget();
    cm_forked();
  });
}

}  // namespace

using Handler = void (*)();

// Sanitizers come here before they are ready for code of theirs.
#define UNINSTRUMENTED \
  __attribute__((no_sanitize("thread"), no_sanitize("address"), no_sanitize("undefined")))

namespace {

int (*g_register)(Handler, Handler, Handler, void *) = nullptr;

// The last registered is the first to be called before fork(), and a device has to be
// the last to stop: a library's handler may wait for its threads, which may be waiting
// for us. So no handler is registered before ours.
UNINSTRUMENTED void register_first() {
  if (__atomic_load_n(&g_register, __ATOMIC_ACQUIRE) != nullptr) return;
  void *next = dlsym(RTLD_NEXT, "__register_atfork");
  if (next == nullptr) next = next_definition("__register_atfork");
  decltype(g_register) found, none = nullptr;
  __builtin_memcpy(&found, &next, sizeof(found));
  if (__atomic_compare_exchange_n(&g_register, &none, found, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    found(before, in_parent, in_child, nullptr);
}

// Before main(), see leave_fabrics_at_exit(). Any thread may be in the heap when another one
// forks, with a device or without.
[[gnu::constructor]] void prepare() {
  leave_fabrics_at_exit();
  register_first();
}

}  // namespace

// pthread_atfork(), of which every library has a copy, comes here.
extern "C" [[gnu::visibility("default")]] UNINSTRUMENTED int interposed_register_atfork(
    Handler prepare, Handler parent, Handler child, void *library) __asm__("__register_atfork");
int interposed_register_atfork(Handler prepare, Handler parent, Handler child, void *library) {
  register_first();
  return g_register(prepare, parent, child, library);
}

void prepare_for_fork() {
  register_first();
  pid_t none = 0;
  g_pid.compare_exchange_strong(none, getpid(), std::memory_order_relaxed);
}

bool own_process() { return g_pid.load(std::memory_order_relaxed) == getpid(); }

}  // namespace softhca
