// The state behind one open /dev/infiniband/uverbsN, and the layout of the
// memory file that the application maps.
#pragma once

#include <bitset>
#include <set>
#include <vector>

#include "base/types.h"
#include "model/device.h"
#include "uverbs/bfregs.h"
#include "uverbs/objects.h"

namespace softhca {

struct EventDescriptor;
namespace uverbs {
struct TransportDomain;
struct Umem;
}  // namespace uverbs

namespace uverbs {

// Creation flags of queue pairs that only the write() command carries: the kernel's
// IB_QP_CREATE_CROSS_CHANNEL, MANAGED_SEND and MANAGED_RECV.
constexpr u32 create_master = 1 << 2, create_slave_send = 1 << 3, create_slave_receive = 1 << 4;
constexpr u32 cross_channel_flags = create_master | create_slave_send | create_slave_receive;

// mmap offsets of the driver, in pages: command in bits 8-15, index in bits
// 0-7 (enum mlx5_ib_mmap_cmd). Dynamic UARs may have any offset: they share
// the pages of command 0.
constexpr u32 uar_pages = 256;
constexpr u32 contiguous_command = 1;  // of older kernels
constexpr u32 no_command = 4;
constexpr u32 uncached_page = 3 << 8;  // the same UARs, for who wants no write combining
constexpr u32 core_clock_page = 5 << 8;
constexpr u32 thread_uar_page = 6 << 8;  // of thread domains, before dynamic UARs
constexpr u32 clock_info_page = 7 << 8;
constexpr u32 dm_first_page = 8 << 8;
constexpr u32 dm_pages = 128;
constexpr u32 bar_pages = dm_first_page + 256;
constexpr u32 hca_core_clock_offset = 0;  // of the two clock words in their page

}  // namespace uverbs

class File {
 public:
  u32 device_number = 0;
  bool open = false;         // false: on the free list
  bool has_context = false;  // GET_CONTEXT was done
  bool devx = false;         // may issue firmware commands
  bool inherited = false;    // from the parent process of a fork
  u32 away = 0;              // commands that have given up the device's lock for a while
  std::set<int> descriptors;
  u8 *bar = nullptr;  // the whole memory file, mapped by the device
  uverbs::ObjectTable objects;
  EventChannel *async = nullptr;  // default for async events: the first descriptor
  std::bitset<uverbs::dm_pages> dm_used;
  u32 write_create_flags = 0;  // of the queue pair being made: those the ioctl does not have
  std::set<u32> uars;          // page numbers handed out
  std::shared_ptr<uverbs::TransportDomain> transport_domain;  // since the first raw packet QP
  uverbs::Bfregs bfregs;                                      // in use instead with old libraries
  std::vector<EventDescriptor *> events;
  // By the numbers that firmware commands use.
  uverbs::ByNumber<uverbs::Object> pds;
  uverbs::ByNumber<Cq> cqs;
  uverbs::ByNumber<Srq> srqs;
  uverbs::ByNumber<uverbs::Umem> umems;

  Device &device() const { return process().devices[device_number]; }
  const Capabilities &caps() const { return device().caps; }
  bool valid_port(u64 port) const { return port >= 1 && port <= device().port_count(); }

  // A page of the memory file, as the device maps it.
  u8 *page(u32 number) const { return bar + u64{number} * page_size; }
  // A UAR of this context: dynamic, or before there were such, one of those that it was opened with
  // or of thread domains.
  bool has_uar(u32 page) const {
    constexpr u32 first = uverbs::thread_uar_page,
                  pages = uverbs::Bfregs::dynamic / uverbs::Bfregs::per_page;
    if (!bfregs.in_use()) return uars.count(page) != 0;
    return page < bfregs.pages() || (page >= first && page < first + pages);
  }

  // The event channel behind one of this file's descriptors, or nullptr.
  EventChannel *channel(int fd, ChannelKind kind) const;
  // Makes one and its descriptor; nullptr and errno.
  EventChannel *create_channel(ChannelKind kind);
  // Undoes create_channel() when its result cannot be reported.
  void abandon_channel(EventChannel *);
};

}  // namespace softhca
