#include "pci/vfio_user.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include "base/log.h"
#include "model/device.h"

namespace softhca::pci {

namespace {

// The protocol, little-endian (docs/interop/vfio-user.rst of QEMU).
enum Message : u16 {
  version = 1,
  dma_map = 2,
  dma_unmap = 3,
  get_info = 4,
  get_region_info = 5,
  get_irq_info = 7,
  set_irqs = 8,
  region_read = 9,
  region_write = 10,
  reset = 13,
};
struct Header {
  u16 id, command;
  u32 bytes, flags, error;
};
constexpr u32 flag_reply = 1, flag_no_reply = 1 << 4, flag_error = 1 << 5;
constexpr u32 longest_message = (1 << 20) + 4096, max_data = 1 << 20, max_descriptors = 8;

struct DmaMap {
  u32 argsz, flags;
  u64 offset, address, bytes;
};
struct DmaUnmap {
  u32 argsz, flags;
  u64 address, bytes;
};
constexpr u32 dma_writable = 2, unmap_everything = 2;
struct DeviceInfo {
  u32 argsz, flags, regions, irqs;
};
struct RegionInfo {
  u32 argsz, flags, index, capability_offset;
  u64 bytes, offset;
};
struct IrqInfo {
  u32 argsz, flags, index, count;
};
struct IrqSet {
  u32 argsz, flags, index, start, count;
};
struct Access {
  u64 offset;
  u32 region, count;
};
constexpr u32 regions = 9, irqs = 5, region_bar = 0, region_config = 7, irq_msix = 2;
constexpr u32 device_reset = 1, device_pci = 2, region_readable = 1, region_writable = 2;
constexpr u32 irq_eventfd = 1, irq_no_resize = 8;

class Connection {
 public:
  Connection(int socket, Function &f, firmware::GuestMemory &m)
      : socket_(socket), function_(f), memory_(m) {}
  ~Connection() { drop_descriptors(); }
  int run();

 private:
  // 0 or errno; ECONNRESET at the end.
  int receive(void *to, size_t bytes);
  int send_all(const void *from, size_t bytes) const;
  void drop_descriptors();

  // Each fills `answer_`. 0 or errno.
  int handle(u16 command);
  int map();
  int unmap();
  int region_info();
  int irq_info();
  int set_interrupts();
  int read_region();
  int write_region();

  template <class T>
  bool take(T &to) const {
    if (body_.size() < sizeof to) return false;
    std::memcpy(&to, body_.data(), sizeof to);
    return true;
  }
  template <class T>
  void put(const T &from) {
    const auto *bytes = reinterpret_cast<const u8 *>(&from);
    answer_.insert(answer_.end(), bytes, bytes + sizeof from);
  }

  const int socket_;
  Function &function_;
  firmware::GuestMemory &memory_;
  std::vector<u8> body_, answer_;
  std::vector<int> descriptors_;
};

int Connection::receive(void *to, size_t bytes) {
  auto *at = static_cast<u8 *>(to);
  while (bytes != 0) {
    alignas(cmsghdr) char control[CMSG_SPACE(max_descriptors * sizeof(int))];
    iovec piece{at, bytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? ECONNRESET : errno;
    for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        descriptors_.push_back(fd);
      }
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

int Connection::send_all(const void *from, size_t bytes) const {
  const auto *at = static_cast<const u8 *>(from);
  while (bytes != 0) {
    const ssize_t n = send(socket_, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

void Connection::drop_descriptors() {
  for (const int fd : descriptors_) close(fd);
  descriptors_.clear();
}

int Connection::map() {
  DmaMap m;
  if (!take(m)) return EINVAL;
  // Memory without a descriptor, as of other devices, is none that the device reaches.
  if (descriptors_.empty()) return 0;
  const int error =
      memory_.map(m.address, m.bytes, descriptors_[0], m.offset, (m.flags & dma_writable) != 0);
  if (error != 0)
    SOFTHCA_LOG(error, "guest memory at %#lx, %#lx bytes: %s", m.address, m.bytes, strerror(error));
  return error;
}

int Connection::unmap() {
  DmaUnmap m;
  if (!take(m)) return EINVAL;
  if ((m.flags & unmap_everything) != 0) memory_.unmap_all();
  else memory_.unmap(m.address, m.bytes);
  put(m);
  return 0;
}

int Connection::region_info() {
  RegionInfo r;
  if (body_.size() < 12) return EINVAL;
  std::memcpy(&r, body_.data(), 12);
  if (r.index >= regions) return EINVAL;
  const u64 bytes = r.index == region_bar      ? Function::bar_bytes
                    : r.index == region_config ? u64{Function::config_bytes}
                                               : 0;
  put(RegionInfo{sizeof r, bytes != 0 ? region_readable | region_writable : 0, r.index, 0, bytes,
                 0});
  return 0;
}

int Connection::irq_info() {
  IrqInfo i;
  if (body_.size() < 12) return EINVAL;
  std::memcpy(&i, body_.data(), 12);
  if (i.index >= irqs) return EINVAL;
  const u32 count = i.index == irq_msix ? Function::vectors : 0;
  put(IrqInfo{sizeof i, count != 0 ? irq_eventfd | irq_no_resize : 0, i.index, count});
  return 0;
}

int Connection::set_interrupts() {
  IrqSet s;
  if (!take(s)) return EINVAL;
  if (s.index != irq_msix) return 0;
  if (s.start > Function::vectors || s.count > Function::vectors - s.start) return EINVAL;
  if (descriptors_.empty()) {
    const u32 first = s.count == 0 ? 0 : s.start;
    const u32 end = s.count == 0 ? Function::vectors : s.start + s.count;
    for (u32 v = first; v < end; ++v) function_.set_interrupt(v, -1);
    return 0;
  }
  if (descriptors_.size() > s.count) return EINVAL;
  for (u32 i = 0; i < descriptors_.size(); ++i)
    function_.set_interrupt(s.start + i, descriptors_[i]);
  descriptors_.clear();
  return 0;
}

int Connection::read_region() {
  Access a;
  if (!take(a) || a.count > max_data) return EINVAL;
  put(a);
  answer_.resize(sizeof a + a.count);
  const std::span<u8> to(answer_.data() + sizeof a, a.count);
  const bool done = a.region == region_bar      ? function_.read_bar(a.offset, to)
                    : a.region == region_config ? function_.read_config(a.offset, to)
                                                : false;
  return done ? 0 : EINVAL;
}

int Connection::write_region() {
  Access a;
  if (!take(a) || a.count > body_.size() - sizeof a) return EINVAL;
  const std::span<const u8> from(body_.data() + sizeof a, a.count);
  const bool done = a.region == region_bar      ? function_.write_bar(a.offset, from)
                    : a.region == region_config ? function_.write_config(a.offset, from)
                                                : false;
  put(a);
  return done ? 0 : EINVAL;
}

int Connection::handle(u16 command) {
  switch (command) {
    case version: {
      constexpr std::string_view capabilities =
          R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,)"
          R"("pgsizes":4096,"max_dma_maps":65535}})";
      put(u32{0});  // 0.0
      answer_.insert(answer_.end(), capabilities.begin(), capabilities.end());
      answer_.push_back(0);
      return 0;
    }
    case dma_map: return map();
    case dma_unmap: return unmap();
    case get_info:
      put(DeviceInfo{sizeof(DeviceInfo), device_pci | device_reset, regions, irqs});
      return 0;
    case get_region_info: return region_info();
    case get_irq_info: return irq_info();
    case set_irqs: return set_interrupts();
    case region_read: return read_region();
    case region_write: return write_region();
    case reset: function_.reset(); return 0;
    default: SOFTHCA_LOG(warn, "vfio-user message %u is not served", command); return ENOTSUP;
  }
}

int Connection::run() {
  for (;;) {
    Header h;
    if (const int error = receive(&h, sizeof h); error != 0) return error == ECONNRESET ? 0 : error;
    if (h.bytes < sizeof h || h.bytes > longest_message) {
      SOFTHCA_LOG(error, "vfio-user message %u: bad length, %u bytes", h.command, h.bytes);
      return EPROTO;
    }
    body_.resize(h.bytes - sizeof h);
    if (const int error = receive(body_.data(), body_.size()); error != 0)
      return error == ECONNRESET ? 0 : error;
    answer_.clear();
    int error;
    {
      const std::lock_guard lock(process().mutex);
      try {
        error = handle(h.command);
      } catch (const std::bad_alloc &) {
        error = ENOMEM;
      }
    }
    drop_descriptors();
    if ((h.flags & flag_no_reply) != 0) continue;
    if (error != 0) answer_.clear();
    const Header reply{h.id, h.command, static_cast<u32>(sizeof h + answer_.size()),
                       flag_reply | (error != 0 ? flag_error : 0), static_cast<u32>(error)};
    const auto *bytes = reinterpret_cast<const u8 *>(&reply);
    answer_.insert(answer_.begin(), bytes, bytes + sizeof reply);
    if (const int failed = send_all(answer_.data(), answer_.size()); failed != 0)
      return failed == EPIPE ? 0 : failed;
  }
}

}  // namespace

int serve(int socket, Function &function, firmware::GuestMemory &memory) {
  return Connection(socket, function, memory).run();
}

}  // namespace softhca::pci
