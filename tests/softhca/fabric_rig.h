// A private fabric per test and processes that take part in it.
#pragma once

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "wire/directory.h"
#include "wire/fabric.h"

namespace rig {

using namespace softhca;

struct FabricName {
  std::string name;
  FabricName() {
    static int n = 0;
    name = "test-" + std::to_string(getpid()) + "-" + std::to_string(n++);
  }
  ~FabricName() {
    const std::string d = directory();
    if (DIR *dir = opendir(d.c_str())) {
      while (const dirent *e = readdir(dir)) unlink((d + "/" + e->d_name).c_str());
      closedir(dir);
    }
    rmdir(d.c_str());
  }
  std::string directory() const { return fabric_directory(name); }
};

// A forked process; killed if the test leaves it behind.
class Child {
 public:
  explicit Child(const std::function<int()> &body) {
    if (pipe(up_) != 0 || pipe(down_) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);  // never outlives a failed test by much
      current_ = this;
      _exit(body());
    }
    close(up_[1]);
    close(down_[0]);
  }
  ~Child() {
    if (pid_ > 0) kill9();
    close(up_[0]);
    close(down_[1]);
  }
  Child(const Child &) = delete;

  pid_t pid() const { return pid_; }
  void kill9() {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int status() {  // exit status, or 256 + signal
    int s = 0;
    waitpid(pid_, &s, 0);
    pid_ = -1;
    return WIFEXITED(s) ? WEXITSTATUS(s) : 256 + WTERMSIG(s);
  }
  // Parent's side of the two pipes.
  u32 hear() const {
    u32 v = ~0u;
    return read(up_[0], &v, 4) == 4 ? v : ~0u;
  }
  void notify(u32 v) const {
    if (write(down_[1], &v, 4) != 4) std::abort();
  }
  // Child's side.
  static void report(u32 v) {
    if (write(current_->up_[1], &v, 4) != 4) _exit(90);
  }
  static u32 await() {
    u32 v;
    if (read(current_->down_[0], &v, 4) != 4) _exit(91);
    return v;
  }

 private:
  int up_[2], down_[2];
  pid_t pid_ = -1;
  inline static Child *current_ = nullptr;
};

// Content that shows its sender, its number and every lost byte.
inline u8 pattern(u32 seed, u32 at) {
  return static_cast<u8>((seed * 2654435761u >> 13) + at * 31 + (at >> 8));
}
inline u32 size_of_message(u32 n) {
  constexpr u32 sizes[] = {0, 1, 63, 64, 65, 200, 1024, 4096, 9000, burst_bytes - 1, burst_bytes};
  return sizes[(n * 7 + n / 11) % std::size(sizes)];
}

inline Fabric::Reserve send(Fabric &f, u16 to, u32 number, u32 payload, u64 *position = nullptr,
                            PacketKind kind = PacketKind::datagram) {
  Fabric::Slot room;
  const auto r = f.reserve(to, payload, room);
  if (r != Fabric::Reserve::ok) return r;
  *room.header = PacketHeader{};
  room.header->kind = kind;
  room.header->payload = payload;
  room.header->psn = number;
  for (u32 i = 0; i < payload; ++i) room.payload[i] = pattern(number, i);
  const u64 at = f.commit(to, room);
  if (position != nullptr) *position = at;
  return r;
}

inline bool intact(const PacketHeader &h, const u8 *payload, u32 number) {
  if (h.psn != number || reinterpret_cast<uintptr_t>(payload) % 64 != 0) return false;
  for (u32 i = 0; i < h.payload; ++i)
    if (payload[i] != pattern(number, i)) return false;
  return true;
}

// Sends as soon as there is room; false when the peer has gone.
inline bool send_patiently(Fabric &f, u16 to, u32 number, u32 payload) {
  for (;;) switch (send(f, to, number, payload)) {
      case Fabric::Reserve::ok: return true;
      case Fabric::Reserve::no_peer: return false;
      case Fabric::Reserve::full: usleep(10);
    }
}

// Makes `sender`'s ring at `receiver` ready: announced and confirmed.
inline void introduce(Fabric &sender, Fabric &receiver) {
  Fabric::Slot room;
  const PacketHeader *h;
  const u8 *p;
  while (sender.reserve(receiver.slot(), 0, room) == Fabric::Reserve::full) receiver.receive(h, p);
}

}  // namespace rig
