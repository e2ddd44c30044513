#include "base/lock.h"

namespace ibvexp {

std::atomic<std::uint32_t> fork_generation{1};

pthread_rwlock_t fork_gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
thread_local constinit unsigned held_mutexes = 0;

namespace {

// A thread that forks under a mutex of ours would wait for itself.
void before_fork() {
  if (held_mutexes == 0) pthread_rwlock_wrlock(&fork_gate);
}

void after_fork_in_parent() {
  if (held_mutexes == 0) pthread_rwlock_unlock(&fork_gate);
}

// The only thread has another number than the one that took the gate, by which the
// C library knows who may give it back.
void after_fork_in_child() {
  fork_gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  if (held_mutexes != 0) pthread_rwlock_rdlock(&fork_gate);
  if (fork_generation.fetch_add(1, std::memory_order_relaxed) + 1 == 0) fork_generation = 1;
}

[[gnu::constructor]] void survive_fork() {
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace

}  // namespace ibvexp
