// The memory of a guest: what its bus addresses stand for. All of it is mapped into one window
// of this process, at its addresses, so that the model reaches it as it reaches an
// application's. Rings and doorbell records, which the model touches without a check, are
// mapped once more: a guest that takes their memory away takes it from itself alone.
//
// Device lock held.
#pragma once

#include <sys/stat.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"

namespace softhca::firmware {

// Guest memory at one address of ours, as long as it lives.
class View {
 public:
  View(u8 *at, u64 bytes) : at_(at), bytes_(bytes) {}
  ~View();
  View(const View &) = delete;
  View &operator=(const View &) = delete;
  u8 *at() const { return at_; }

 private:
  u8 *at_;
  u64 bytes_;
};

class GuestMemory {
 public:
  // Reserves the window; false: no address space.
  bool reserve();
  // What the guest has at `address` from now on: `bytes` of a file. 0 or errno.
  int map(u64 address, u64 bytes, int fd, u64 offset, bool writable);
  void unmap(u64 address, u64 bytes);
  void unmap_all();

  // Where that address is mapped here, for accesses that are checked when they are made.
  u64 host_address(u64 address) const { return reinterpret_cast<u64>(window_) + address; }
  static constexpr u64 window_bytes = u64{1} << 40;
  // Behind it, for the largest page that begins inside.
  static constexpr u64 guard_bytes = u64{1} << 32;
  // Whether `bytes` from there on are addresses of the window.
  static bool inside(u64 address, u64 bytes) {
    return address < window_bytes && bytes <= window_bytes - address;
  }

  // False when not all of it is memory of the guest.
  bool read(u64 address, void *to, u64 bytes) const;
  bool write(u64 address, const void *from, u64 bytes) const;

  // Pages, one behind the other; nullptr when one is not writable memory of the guest.
  std::shared_ptr<View> view(std::span<const u64> pages, u64 page_bytes) const;
  // The page that holds a doorbell record, which others share.
  std::shared_ptr<View> page(u64 address);

 private:
  struct Mapping {
    u64 bytes, offset;
    std::shared_ptr<int> fd;
    bool writable;
  };
  // Below an IOMMU there may be one for each page.
  using Mappings = std::map<u64, Mapping>;  // by address; none overlaps another
  struct File {
    dev_t device;
    ino_t inode;
    int flags;  // as opened
    std::weak_ptr<int> fd;
  };
  std::shared_ptr<int> keep(int fd, const struct stat &);
  Mappings::const_iterator find(u64 address) const;
  void forget(u64 address, u64 bytes);
  bool show(u64 address, u64 bytes, u8 *at) const;

  u8 *window_ = nullptr;
  Mappings mappings_;
  std::vector<File> files_;
  std::map<u64, std::weak_ptr<View>> pages_;
};

}  // namespace softhca::firmware
