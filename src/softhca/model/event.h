// Event channels: the file descriptors that an application reads completion
// and async events from. A channel is a socket pair (one message per event)
// plus an overflow queue, because the kernel's list has no limit.
#pragma once

#include <deque>
#include <vector>

#include "base/prm.h"
#include "base/types.h"

namespace softhca {

class EventChannel {
 public:
  // nullptr and errno when no descriptors are left. The descriptor for the
  // application is close-on-exec.
  static EventChannel *create();
  ~EventChannel();  // closes the device's end only
  int application_fd() const { return app_fd_; }

  // Reference counting: the file descriptor and each object that reports here.
  void hold() { ++holders_; }
  void drop();  // deletes at zero
  // The application has closed its end: events are discarded from now on.
  void close_application_end() { app_fd_ = -1; }

  void post_completion(u64 cq_handle);           // 8 bytes
  void post_async(u64 element, EventType type);  // 16 bytes
  void flush();                                  // retries the overflow queue
  bool has_overflow() const { return !overflow_.empty(); }

  // Removes queued events of `element`; returns how many were removed. 0 when
  // the application's end is gone, or its number names another file by now.
  u32 purge(u64 element);

 private:
  EventChannel(int app, int dev, u64 cookie) : app_fd_(app), dev_fd_(dev), app_cookie_(cookie) {}
  void post(const void *event, size_t size);
  bool application_end_is_ours() const;
  int app_fd_;
  int dev_fd_;
  u64 app_cookie_;  // identity of the socket behind app_fd_
  u32 holders_ = 1;
  std::deque<std::vector<u8>> overflow_;
};

// Where an object's events go and how many were posted. The destroy commands
// report the number that the application has read or will still acknowledge.
struct EventSink {
  EventChannel *channel = nullptr;
  u32 posted = 0;
};

}  // namespace softhca
