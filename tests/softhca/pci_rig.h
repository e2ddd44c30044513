// The other end of a PCI function: a virtual machine monitor and a driver, in this process.
// They send what QEMU and mlx5_core send, over a socket, with a memory file as the guest's
// memory.
#pragma once

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fields.h"
#include "catch.h"
#include "command_box.h"
#include "firmware/guest_memory.h"
#include "model/device.h"
#include "pci/function.h"
#include "pci/vfio_user.h"

namespace softhca::test {

class Guest {
 public:
  static constexpr u64 bytes = 16 << 20, queue_at = 0x1000, boxes_at = 0x10000;
  static constexpr u16 version = 1, dma_map = 2, dma_unmap = 3, get_info = 4, set_irqs = 8,
                       region_read = 9, region_write = 10, reset = 13;

  Guest() {
    {
      const std::lock_guard lock(process().mutex);
      REQUIRE(process().start() == 0);
    }
    REQUIRE(memory_.reserve());
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    socket_ = ends[0];
    function_ = new pci::Function(process().devices.at(0), memory_);
    server_ = std::thread([this, fd = ends[1]] {
      served = pci::serve(fd, *function_, memory_);
      close(fd);
    });
    file_ = memfd_create("guest", MFD_CLOEXEC);
    REQUIRE(ftruncate(file_, bytes) == 0);
    memory = static_cast<u8 *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(map(0, bytes) == 0);
    write_register(0x10, 0);
    write_register(0x14, queue_at);
  }
  ~Guest() {
    close(socket_);
    server_.join();
    CHECK(served == 0);
    const std::lock_guard lock(process().mutex);
    delete function_;
    munmap(memory, bytes);
    close(file_);
  }
  Guest(const Guest &) = delete;
  Guest &operator=(const Guest &) = delete;

  // The error of the answer, which goes to `answer`; -1: the connection has ended.
  int message(u16 command, const std::vector<u8> &body, std::vector<u8> *answer = nullptr,
              int fd = -1) {
    struct Header {
      u16 id, command;
      u32 bytes, flags, error;
    } h{++id_, command, static_cast<u32>(sizeof h + body.size()), 0, 0};
    std::vector<u8> all(sizeof h);
    std::memcpy(all.data(), &h, sizeof h);
    all.insert(all.end(), body.begin(), body.end());
    iovec piece{all.data(), all.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr m{};
    m.msg_iov = &piece;
    m.msg_iovlen = 1;
    if (fd >= 0) {
      m.msg_control = control;
      m.msg_controllen = sizeof control;
      cmsghdr *c = CMSG_FIRSTHDR(&m);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof fd);
      std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (sendmsg(socket_, &m, MSG_NOSIGNAL) < 0) return -1;
    if (recv(socket_, &h, sizeof h, MSG_WAITALL) != sizeof h) return -1;
    CHECK(h.id == id_);
    std::vector<u8> rest(h.bytes - sizeof h);
    if (!rest.empty() && recv(socket_, rest.data(), rest.size(), MSG_WAITALL) < 0) return -1;
    if (answer != nullptr) *answer = std::move(rest);
    return static_cast<int>(h.error);
  }

  int map(u64 address, u64 length, u64 offset = 0) {
    const struct {
      u32 argsz, flags;
      u64 offset, address, bytes;
    } m{32, 3, offset, address, length};
    return message(dma_map, raw(m), nullptr, file_);
  }
  int unmap(u64 address, u64 length) {
    const struct {
      u32 argsz, flags;
      u64 address, bytes;
    } m{24, 0, address, length};
    return message(dma_unmap, raw(m));
  }
  // An interrupt's eventfd, which is the caller's.
  int interrupt(u32 vector) {
    const struct { u32 argsz, flags, index, start, count; } m{20, 0x24, 2, vector, 1};
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    REQUIRE(message(set_irqs, raw(m), nullptr, fd) == 0);
    return fd;
  }

  int access(u16 command, u64 offset, u32 region, u32 count, const std::vector<u8> &data,
             std::vector<u8> *answer = nullptr) {
    const struct {
      u64 offset;
      u32 region, count;
    } a{offset, region, count};
    std::vector<u8> body = raw(a);
    body.insert(body.end(), data.begin(), data.end());
    return message(command, body, answer);
  }
  void write_register(u64 offset, u32 value) {
    std::vector<u8> word(4);
    store_be32(word.data(), value);
    REQUIRE(access(region_write, offset, 0, 4, word) == 0);
  }
  void write_register64(u64 offset, u64 value) {
    std::vector<u8> word(8);
    store_be64(word.data(), value);
    REQUIRE(access(region_write, offset, 0, 8, word) == 0);
  }
  u32 read_register(u64 offset) {
    std::vector<u8> answer;
    REQUIRE(access(region_read, offset, 0, 4, {}, &answer) == 0);
    return load_be32(answer.data() + 16);
  }

  // Writes a command into slot 0 with its mailboxes; they are complete and right.
  void place(const std::vector<u8> &in, size_t out_bytes) {
    u8 *e = memory + queue_at;
    std::memset(e, 0, 64);
    store_be32(e + 4, static_cast<u32>(in.size()));
    std::copy_n(in.begin(), std::min<size_t>(16, in.size()), e + 16);
    store_be32(e + 56, static_cast<u32>(out_bytes));
    e[60] = token;
    e[63] = 1;
    u64 next = boxes_at;
    store_be64(e + 8, boxes(next, in.size(), in.data()));
    store_be64(e + 48, boxes(next, out_bytes, nullptr));
  }
  // Rings for slot 0: the delivery status.
  u32 ring() {
    write_register(0x18, 1);
    CHECK((memory[queue_at + 63] & 1) == 0);
    return memory[queue_at + 63] >> 1;
  }
  // The output box of a command that is delivered.
  std::vector<u8> command(const std::vector<u8> &in, size_t out_bytes = 16) {
    place(in, out_bytes);
    REQUIRE(ring() == 0);
    std::vector<u8> out(memory + queue_at + 32, memory + queue_at + 48);
    for (u64 at = load_be64(memory + queue_at + 48); out.size() < out_bytes;
         at = load_be64(memory + at + 560))
      out.insert(out.end(), memory + at,
                 memory + at + std::min<size_t>(512, out_bytes - out.size()));
    return out;
  }
  u32 status(const std::vector<u8> &in, size_t out_bytes = 16) { return command(in, out_bytes)[0]; }
  // The number of what a command makes.
  u32 create(const std::vector<u8> &in) {
    const std::vector<u8> out = command(in);
    REQUIRE(out[0] == 0);
    return load_be32(out.data() + 8) & 0xffffff;
  }

  u8 *memory = nullptr;
  int served = -1;
  static constexpr u8 token = 0x5a;

 private:
  template <class T>
  static std::vector<u8> raw(const T &t) {
    const auto *b = reinterpret_cast<const u8 *>(&t);
    return {b, b + sizeof t};
  }
  // A list of mailboxes from `next` on, for what does not fit the entry.
  u64 boxes(u64 &next, size_t length, const u8 *from) {
    const u64 first = next;
    u32 number = 0;
    for (size_t done = 16; done < length; done += 512, next += 1024) {
      u8 *box = memory + next;
      std::memset(box, 0, 576);
      if (from != nullptr) std::copy_n(from + done, std::min<size_t>(512, length - done), box);
      store_be64(box + 560, next + 1024);
      store_be32(box + 568, number++);
      box[573] = token;
    }
    return first;
  }

  firmware::GuestMemory memory_;
  pci::Function *function_ = nullptr;
  std::thread server_;
  int socket_ = -1, file_ = -1;
  u16 id_ = 0;
};

constexpr u64 uar = 0x20 * 4096;

// What a driver makes, with memory of its own each.
struct Driver {
  explicit Driver(Guest &g) : guest(g) {
    page = guest.create(Box(0x802));
    REQUIRE(page * 4096 == uar);
    pd = guest.create(Box(0x800));
    eq = create_eq();
    physical = guest.create(mkey(0)) << 8;
  }
  Box mkey(u32 mode, size_t octowords = 0) const {
    Box b(0x200, 272 + octowords * 16);
    b.put(128 + 22, 2, mode).put(128 + 20, 1, 1).put(128 + 21, 1, 1).put(128 + 32, 24, 0xffffff);
    b.put(128 + 416, 32, static_cast<u32>(octowords));
    return b.put(128 + 104, 24, pd).put(768, 32, static_cast<u32>(octowords));
  }
  Box eq_box(u64 ring) const {
    Box b(0x301, 280);
    b.put(128 + 99, 5, 6).put(128 + 104, 24, page).put(128 + 180, 12, 1);
    return b.put64(88, 0).put64(272, ring);
  }
  u32 create_eq() { return guest.create(eq_box(eq_ring)) & 0xff; }
  Box cq_box(u64 ring, u64 record) const {
    Box b(0x400, 280);
    b.put(128 + 99, 5, 6).put(128 + 104, 24, page).put(128 + 184, 8, eq);
    return b.put64(16 + 56, record).put64(272, ring);
  }
  Box qp_box(u32 cq, u64 ring, u64 record) const {
    Box b(0x500, 280);
    b.put(192 + 19, 2, 3).put(192 + 40, 24, pd).put(192 + 73, 4, 2).put(192 + 81, 4, 2);
    b.put(192 + 104, 24, page).put(192 + 136, 24, 0xffffff).put(192 + 1000, 24, cq);
    return b.put(192 + 1256, 24, cq).put64(24 + 160, record).put64(272, ring);
  }
  void connect(u32 qp, u32 to, u32 counter_set = 0) {
    const auto move = [&](u16 opcode) { return Box(opcode, 272).put(72, 24, qp); };
    const u32 lid = process().devices.at(0).port(1).lid;
    // Remote writes are served.
    REQUIRE(guest.status(move(0x502)
                             .put(192 + 96, 8, counter_set)
                             .put(192 + 1169, 1, 1)
                             .put(192 + 192 + 296, 8, 1)) == 0);
    REQUIRE(guest.status(move(0x503)
                             .put(192 + 64, 3, 5)
                             .put(192 + 67, 5, 30)
                             .put(192 + 168, 24, to)
                             .put(192 + 192 + 48, 16, lid)) == 0);
    // Seven retries of all kinds: without end when the other side is not ready.
    REQUIRE(guest.status(move(0x504).put(192 + 909, 3, 7).put(192 + 912, 3, 7)) == 0);
  }

  Guest &guest;
  static constexpr u64 eq_ring = 0x200000;
  u32 page = 0, pd = 0, eq = 0, physical = 0;
};

}  // namespace softhca::test
