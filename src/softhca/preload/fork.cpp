// fork() and vfork(). A child shares neither engine nor wire with its parent,
// but may go on using control verbs on inherited descriptors.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "cm/cm_file.h"
#include "engine/engine.h"
#include "model/device.h"
#include "preload/calls.h"
#include "uverbs/file.h"
#include "wire/directory.h"

namespace softhca {

namespace {

std::atomic<pid_t> g_pid{0};

// A thread that is inside the device (an allocator's hook that forks, say)
// holds the lock already.
void before() {
  if (!inside_device()) process().mutex.lock();
}

void in_parent() {
  if (!inside_device()) process().mutex.unlock();
}

void in_child() {
  // Only the forking thread exists here, so nobody else can hold the lock; a
  // fresh one also forgets waiters that were not copied.
  new (&process().mutex) std::mutex;
  g_pid.store(getpid(), std::memory_order_relaxed);
  in_device_void([] {
    uverbs_forked();
    engine_forget();
    cm_forked();
  });
}

// Before main(), see leave_fabrics_at_exit().
[[gnu::constructor]] void prepare_for_exit() { leave_fabrics_at_exit(); }

}  // namespace

void prepare_for_fork() {
  static const bool once = [] {
    g_pid.store(getpid(), std::memory_order_relaxed);
    pthread_atfork(before, in_parent, in_child);
    return true;
  }();
  (void)once;
}

bool own_process() { return g_pid.load(std::memory_order_relaxed) == getpid(); }

}  // namespace softhca
