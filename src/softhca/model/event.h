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

  bool open() const { return app_fd_ >= 0; }

  void post_completion(u64 cq_handle);           // 8 bytes
  void post_async(u64 element, EventType type);  // 16 bytes
  void post(const void *message, size_t size);
  // Unless the last one of that name has not been read yet. All messages of the
  // channel then have the same size and come this way.
  void post_once(u64 name, const void *message, size_t size);
  void flush();  // retries the overflow queue
  bool has_overflow() const { return !overflow_.empty(); }
  // Bytes of system memory that messages not yet read take.
  size_t unread() const;

  bool cookies_only = false;  // of events of firmware's objects: their data is not wanted

  // Removes queued events of `element`; returns how many were removed. 0 when
  // the application's end is gone, or its number names another file by now.
  u32 purge(u64 element);

 private:
  EventChannel(int app, int dev, u64 cookie) : app_fd_(app), dev_fd_(dev), app_cookie_(cookie) {}
  bool application_end_is_ours() const;
  int app_fd_;
  int dev_fd_;
  u64 app_cookie_;  // identity of the socket behind app_fd_
  u32 holders_ = 1;
  std::deque<std::vector<u8>> overflow_;
  std::deque<u64> names_;      // of post_once(): those that are perhaps still there
  size_t message_memory_ = 0;  // system memory that one of them takes
};

// The events of queues as the device's own event queues name them.
enum class QueueEvent : u8 {
  completion = 0x00,
  path_migrated = 0x01,
  established = 0x02,
  sq_drained = 0x03,
  cq_error = 0x04,
  catastrophic = 0x05,
  path_failed = 0x07,
  invalid_request = 0x10,
  access_error = 0x11,
  srq_catastrophic = 0x12,
  last_wqe = 0x13,
  limit = 0x14,
  dct_key_violation = 0x1d,
};

struct PageFault;
enum class PageSide : u8 { send, receive };

// Receives the events of an object that no verb has made.
class EventListener {
 public:
  virtual void raise(QueueEvent) = 0;
  // False: the pages are not going to come.
  virtual bool page_fault(const PageFault &, PageSide) { return false; }
  // A management datagram to the subnet manager's port. False: there is no answer.
  virtual bool administrate(const u8 * /*request*/, u8 * /*answer*/) { return false; }

 protected:
  ~EventListener() = default;
};

// Where an object's events go and how many were posted. The destroy commands
// report the number that the application has read or will still acknowledge.
struct EventSink {
  EventChannel *channel = nullptr;
  u32 posted = 0;
  EventListener *listener = nullptr;

  bool heard() const { return channel != nullptr || listener != nullptr; }
  void report_completion(u64 cq_handle);
  void report(u64 element, EventType type);
};

}  // namespace softhca
