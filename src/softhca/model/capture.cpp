#include "model/capture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/limits.h"
#include "base/log.h"
#include "config/config.h"
#include "model/packets.h"

namespace softhca {

namespace {

// Blocks of pcapng, in the byte order of this machine (the format says which).
constexpr u32 section_header = 0x0a0d0d0a, interface_description = 1, enhanced_packet = 6;
constexpr u16 link_ethernet = 1, link_erf = 197;
// Native packets lie in records of the Extensible Record Format, as other tools
// write them: Wireshark knows the plain link type by number only.
constexpr u8 erf_infiniband = 21, erf_varying_length = 4;
constexpr u32 erf_bytes = 16;
constexpr u32 interface_ethernet = 0, interface_infiniband = 1;

class Block {
 public:
  explicit Block(Packet &to, u32 type) : to_(to), at_(to.size()) {
    put(type);
    put(u32{0});
  }
  ~Block() {
    const u32 length = static_cast<u32>(to_.size() - at_) + 4;
    std::memcpy(to_.data() + at_ + 4, &length, 4);
    put(length);
  }
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  template <class T>
  void put(T value) {
    bytes(&value, sizeof value);
  }
  void bytes(const void *p, size_t n) {
    const u8 *b = static_cast<const u8 *>(p);
    to_.insert(to_.end(), b, b + n);
  }
  void pad() { to_.resize(align_up(to_.size(), 4)); }

 private:
  Packet &to_;
  size_t at_;
};

void describe_interface(Packet &to, u16 link, const char *name) {
  Block b(to, interface_description);
  b.put(link);
  b.put(u16{0});
  b.put(u32{0});  // no limit on the length of packets
  const u16 length = static_cast<u16>(std::strlen(name));
  b.put(u16{2});  // if_name
  b.put(length);
  b.bytes(name, length);
  b.pad();
  b.put(u16{9});  // if_tsresol: nanoseconds
  b.put(u16{1});
  b.put(u32{9});
  b.put(u32{0});  // end of options
}

Packet file_header() {
  Packet out;
  {
    Block b(out, section_header);
    b.put(u32{0x1a2b3c4d});
    b.put(u16{1});
    b.put(u16{0});
    b.put(~u64{0});  // length of the section: not known
  }
  describe_interface(out, link_ethernet, "softhca-eth");
  describe_interface(out, link_erf, "softhca-ib");
  return out;
}

Packet erf_header(u64 ns, u32 packet_bytes) {
  constexpr u64 second = 1'000'000'000;
  // Seconds and their fraction in 32 bits each, little-endian; the rest is big-endian.
  const u64 time = ns / second << 32 | ((ns % second) << 32) / second;
  Packet h(erf_bytes);
  std::memcpy(h.data(), &time, 8);
  h[8] = erf_infiniband;
  h[9] = erf_varying_length;
  store_be16(h.data() + 10, static_cast<u16>(erf_bytes + packet_bytes));
  store_be16(h.data() + 14, static_cast<u16>(packet_bytes));
  return h;
}

int append(const std::string &path, const Packet &blocks) {
  // No descriptor stays open: a program may close all that it does not know.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  int error = flock(fd, LOCK_EX) == 0 ? 0 : errno;
  struct stat st;
  if (error == 0 && fstat(fd, &st) != 0) error = errno;
  u64 at = error == 0 ? static_cast<u64>(st.st_size) : 0;
  if (error == 0 && at == 0) {
    const Packet header = file_header();
    error = write_all(fd, header.data(), header.size(), 0);
    at = header.size();
  }
  if (error == 0) error = write_all(fd, blocks.data(), blocks.size(), at);
  flock(fd, LOCK_UN);
  close(fd);
  return error;
}

bool g_failed;

}  // namespace

bool capturing() {
  static const bool wanted = !config().pcap.empty();
  return wanted && !g_failed;
}

void capture(const PacketHeader &header, const u8 *payload) {
  const PacketTrain train = packets_of(header, payload);
  if (train.packets.empty()) return;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const u64 ns = static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
  Packet blocks;
  for (const Packet &p : train.packets) {
    Block b(blocks, enhanced_packet);
    b.put(train.ethernet ? interface_ethernet : interface_infiniband);
    b.put(static_cast<u32>(ns >> 32));
    b.put(static_cast<u32>(ns));
    const u32 bytes = static_cast<u32>(p.size());
    const Packet record = train.ethernet ? Packet{} : erf_header(ns, bytes);
    const u32 recorded = static_cast<u32>(record.size()) + bytes;
    b.put(recorded);
    b.put(recorded);
    b.bytes(record.data(), record.size());
    b.bytes(p.data(), p.size());
    b.pad();
  }
  const std::string &path = config().pcap;
  if (const int error = append(path, blocks); error != 0) {
    g_failed = true;
    SOFTHCA_LOG(error, "SOFTHCA_PCAP: %s: %s%s; nothing more is recorded", path.c_str(),
                strerror(error), limit_behind(error).text);
  }
}

}  // namespace softhca
