// libmlx5 takes a spin lock around everything that it posts and polls: there, and in the
// spin locks of what is linked with it (engine/callers.h), the device runs on the
// application's own thread.
#include <pthread.h>

#include <cerrno>

#include "engine/engine.h"
#include "preload/real.h"

using namespace softhca;

REAL(int, pthread_spin_lock, pthread_spinlock_t *);
REAL(int, pthread_spin_trylock, pthread_spinlock_t *);
REAL(int, pthread_spin_unlock, pthread_spinlock_t *);

namespace {

inline void step(const void *caller) {
  const int saved = errno;
  engine_hook(caller);
  errno = saved;
}

}  // namespace

INTERPOSE(int, pthread_spin_lock, pthread_spinlock_t *lock) {
  step(__builtin_return_address(0));
  return real_pthread_spin_lock(lock);
}

INTERPOSE(int, pthread_spin_trylock, pthread_spinlock_t *lock) {
  step(__builtin_return_address(0));
  return real_pthread_spin_trylock(lock);
}

INTERPOSE(int, pthread_spin_unlock, pthread_spinlock_t *lock) {
  const int result = real_pthread_spin_unlock(lock);
  step(__builtin_return_address(0));
  return result;
}
