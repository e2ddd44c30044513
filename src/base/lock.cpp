#include "base/lock.h"

namespace ibvexp {

std::atomic<std::uint32_t> fork_generation{1};

namespace {

// A thread that holds a mutex has it shared, a thread that forks exclusively.
pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

// Mutexes that this thread holds: only the first may wait at the gate.
[[gnu::tls_model("initial-exec")]] thread_local unsigned held = 0;

// A thread that forks under a mutex of ours would wait for itself.
void before_fork() {
  if (held == 0) pthread_rwlock_wrlock(&gate);
}

void after_fork_in_parent() {
  if (held == 0) pthread_rwlock_unlock(&gate);
}

// The only thread has another number than the one that took the gate, by which the
// C library knows who may give it back.
void after_fork_in_child() {
  gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  if (held != 0) pthread_rwlock_rdlock(&gate);
  if (fork_generation.fetch_add(1, std::memory_order_relaxed) + 1 == 0) fork_generation = 1;
}

[[gnu::constructor]] void survive_fork() {
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace

void Mutex::lock() {
  if (held++ == 0) [[likely]]
    pthread_rwlock_rdlock(&gate);
  pthread_mutex_lock(&mutex_);
}

void Mutex::unlock() {
  pthread_mutex_unlock(&mutex_);
  if (--held == 0) [[likely]]
    pthread_rwlock_unlock(&gate);
}

}  // namespace ibvexp
