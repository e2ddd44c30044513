// How an interposed function enters the device.
#pragma once

#include <cerrno>
#include <utility>

#include "engine/engine.h"

namespace softhca {

// Runs `body` as the device: what it calls passes through the interposers.
// errno changes only when the result is negative.
template <class Body>
auto in_device(Body body) {
  const int saved = errno;
  auto result = [&] {
    InsideDevice inside;
    return body();
  }();
  if (result >= 0) errno = saved;
  return result;
}

template <class Body>
void in_device_void(Body body) {
  in_device([&] {
    body();
    return 0;
  });
}

// Call when a device is opened: fork() then waits until the device is in a consistent state,
// and close() is checked for its descriptors.
void prepare_for_fork();
void device_opened();

// False in a child of vfork(): it borrows our memory until it calls exec, so
// what it does to its descriptors must not be recorded here.
bool own_process();

}  // namespace softhca
