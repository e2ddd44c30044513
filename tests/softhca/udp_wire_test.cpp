// wire = "udp", judged by a peer that is nothing but a socket and the packets of
// packets.h and unpack.h.
#include "model/udp_wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <filesystem>

#include "config/identity.h"
#include "model/bth.h"
#include "model/packets.h"
#include "rig.h"
#include "wire/directory.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// Addresses of the loopback interface that no other run of this test has.
std::array<u8, 4> address(u8 host) {
  const u32 pid = static_cast<u32>(getpid());
  return {127, static_cast<u8>(100 + (pid >> 14) % 100), static_cast<u8>(pid >> 6),
          static_cast<u8>((pid & 63) * 4 + host)};
}

std::string text(const std::array<u8, 4> &a) {
  return std::to_string(a[0]) + "." + std::to_string(a[1]) + "." + std::to_string(a[2]) + "." +
         std::to_string(a[3]);
}

// Before anything asks for the configuration.
struct Surroundings {
  std::string fabric = "udp-test-" + std::to_string(getpid());
  std::string file = "/tmp/" + fabric + ".json";
  Surroundings() {
    std::FILE *f = std::fopen(file.c_str(), "w");
    std::fprintf(f,
                 "{\"fabric\": \"%s\", \"wire\": \"udp\","
                 " \"devices\": [{\"ports\": [{\"ipv4\": \"%s\"}]}]}",
                 fabric.c_str(), text(address(1)).c_str());
    std::fclose(f);
    unsetenv("SOFTHCA_FABRIC");
    unsetenv("SOFTHCA_LINK");
    setenv("SOFTHCA_CONFIG", file.c_str(), 1);
  }
  ~Surroundings() {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    std::filesystem::remove_all(fabric_directory(fabric), ignored);
  }
};
const Surroundings surroundings;

constexpr u32 mtu = 1024, peer_qpn = 0x17;
constexpr u8 only = packet_first | packet_last;
constexpr u32 first_psn = 0xfffff0;  // of TestQp, both ways

void gid_of(const std::array<u8, 4> &ip, u8 *gid) {
  std::memset(gid, 0, 16);
  gid[10] = gid[11] = 0xff;
  std::memcpy(gid + 12, ip.data(), 4);
}

struct Heard {
  PacketHeader h;
  std::vector<u8> payload;
  bool wants_ack;
};

// Another host.
class Peer {
 public:
  explicit Peer(u8 host = 2) : own_(address(host)) {
    fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int bytes = 4 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    const sockaddr_in own = inet(own_);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr *>(&own), sizeof own) == 0);
  }
  ~Peer() { close(fd_); }
  Peer(const Peer &) = delete;

  PacketHeader record(const TestQp &to, PacketKind kind, u32 psn, u8 flags = only) const {
    PacketHeader h{};
    h.kind = kind;
    h.service = Service::rc;
    h.flags = flags;
    h.psn = psn;
    h.npsn = 1;
    h.dst_qpn = to.qp->qpn;
    h.udp_sport = config().udp_port;
    gid_of(own_, h.sgid);
    gid_of(address(1), h.dgid);
    return h;
  }
  // A write of so many bytes into the region.
  PacketHeader write(const TestQp &qp, const Region &to, u32 bytes) const {
    PacketHeader h = record(qp, PacketKind::request, first_psn);
    h.opcode = static_cast<u8>(WqeOpcode::rdma_write);
    h.remote_address = to.address();
    h.rkey = to.key();
    h.payload = h.message_bytes = bytes;
    return h;
  }
  static std::vector<Packet> packets(PacketHeader h, const u8 *payload) {
    h.npsn = std::max((h.payload + mtu - 1) / mtu, 1u);
    return packets_of(h, payload).packets;
  }
  void put(const Packet &p) const {
    constexpr u32 in_front = ether_bytes + ipv4_bytes + udp_bytes;
    const sockaddr_in to = inet(address(1));
    REQUIRE(sendto(fd_, p.data() + in_front, p.size() - in_front, 0,
                   reinterpret_cast<const sockaddr *>(&to),
                   sizeof to) == static_cast<ssize_t>(p.size() - in_front));
  }
  void send(const PacketHeader &h, const u8 *payload = nullptr) const {
    for (const Packet &p : packets(h, payload)) put(p);
  }
  // All that has come, checked.
  std::vector<Heard> hear() const {
    std::vector<Heard> all;
    u8 bytes[8192];
    for (ssize_t n; (n = recv(fd_, bytes, sizeof bytes, 0)) >= 0;) {
      RoceDatagram d;
      gid_of(address(1), d.sgid);
      gid_of(own_, d.dgid);
      d.source_port = config().udp_port;
      d.bytes = bytes;
      d.size = static_cast<u32>(n);
      Arrival a;
      REQUIRE(icrc_holds(d));
      REQUIRE(unpack(d, a));
      REQUIRE(a.header.dst_qpn == peer_qpn);
      all.push_back({a.header, {a.payload, a.payload + a.header.payload}, (bytes[8] & 0x80) != 0});
    }
    return all;
  }
  const u8 *gid() {
    gid_of(own_, gid_);
    return gid_;
  }

 private:
  static sockaddr_in inet(const std::array<u8, 4> &ip) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(config().udp_port);
    std::memcpy(&a.sin_addr, ip.data(), 4);
    return a;
  }
  std::array<u8, 4> own_;
  u8 gid_[16];
  int fd_;
};

// A queue pair that is connected to the peer.
struct Side {
  explicit Side(Rig &rig, Peer &peer, QpOptions o = {}) : qp(rig, cq, cq, o) {
    AddressVector &av = qp.qp->attr.av;
    av.is_global = true;
    av.sgid_index = 3;
    std::memcpy(av.dgid, peer.gid(), 16);
    qp.connect(peer_qpn, 0);
  }
  TestCq cq;
  TestQp qp;
};

void step(Rig &rig) { rig.step(100'000); }

}  // namespace

TEST_CASE("The port is its interface", "[udp_wire]") {
  const Config &c = config();
  REQUIRE(c.wire == Wire::udp);
  CHECK(c.devices[0].ports[0].link == LinkLayer::ethernet);
  CHECK(c.devices[0].ports[0].netdev == "lo");
  u8 own[16];
  gid_of(address(1), own);
  const auto gids = port_gids(c, 0, 1);
  REQUIRE(gids.size() == 4);
  CHECK(std::equal(own, own + 16, gids[3].gid.begin()));
}

TEST_CASE("A write of several packets arrives and is acknowledged", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region to(4096, full_access), from(4096, full_access);
  from.fill(3);
  s.qp.post_receive({});
  PacketHeader h = peer.record(s.qp, PacketKind::request, first_psn, only | packet_imm);
  h.opcode = static_cast<u8>(WqeOpcode::rdma_write_imm);
  h.imm = 0x01020304;
  h.remote_address = to.address(100);
  h.rkey = to.key();
  h.payload = h.message_bytes = 2500;
  peer.send(h, from.data());
  step(rig);
  CHECK(std::memcmp(to.data() + 100, from.data(), 2500) == 0);
  CHECK(to.data()[99] == 0);
  CHECK(to.data()[2600] == 0);
  const Completion c = s.cq.expect();
  CHECK(c.opcode() == static_cast<u8>(CqeOpcode::resp_rdma_write_imm));
  CHECK(c.byte_count() == 2500);
  CHECK(c.imm_raw() == 0x01020304);
  const auto heard = peer.hear();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].h.kind == PacketKind::ack);
  CHECK(heard[0].h.nak == Nak::none);
  CHECK(heard[0].h.psn == psn_add(first_psn, 2));
  CHECK(heard[0].h.message_bytes == 1);
}

TEST_CASE("A send of several packets fills the buffer", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region to(8192, full_access), from(8192, full_access);
  from.fill(4);
  s.qp.post_receive({{8192, to.key(), to.address()}});
  PacketHeader h = peer.record(s.qp, PacketKind::request, first_psn, only | packet_inv);
  h.opcode = static_cast<u8>(WqeOpcode::send_inv);
  h.imm = 0x12345600;  // a key that is not there
  h.payload = h.message_bytes = 5000;
  const auto packets = Peer::packets(h, from.data());
  REQUIRE(packets.size() == 5);
  for (u32 i = 0; i < 4; ++i) peer.put(packets[i]);
  peer.put(packets[2]);  // again
  step(rig);
  s.cq.expect_none();
  CHECK(std::memcmp(to.data(), from.data(), 4 * mtu) == 0);
  peer.put(packets[4]);
  step(rig);
  const Completion c = s.cq.expect();
  CHECK(c.opcode() == static_cast<u8>(CqeOpcode::resp_err));
  const auto heard = peer.hear();
  REQUIRE_FALSE(heard.empty());
  CHECK(heard.back().h.nak == Nak::remote_access);
}

TEST_CASE("A lost packet is asked for again, in the middle of a message too", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region to(8192, full_access), from(8192, full_access);
  from.fill(5);
  PacketHeader h = peer.write(s.qp, to, 4000);
  const auto packets = Peer::packets(h, from.data());
  REQUIRE(packets.size() == 4);
  for (const u32 i : {0u, 2u, 3u}) peer.put(packets[i]);
  step(rig);
  auto heard = peer.hear();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].h.nak == Nak::sequence);
  CHECK(heard[0].h.psn == psn_add(first_psn, 1));
  // Whoever wants to know how far it came asks.
  Packet asking = packets[1];
  asking[ether_bytes + ipv4_bytes + udp_bytes + 8] |= 0x80;
  asking.resize(asking.size() - icrc_bytes);
  const u32 crc = invariant_crc(asking, true);
  for (int i = 0; i < 4; ++i) asking.push_back(static_cast<u8>(crc >> 8 * i));
  peer.put(asking);
  step(rig);
  heard = peer.hear();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].h.nak == Nak::none);
  CHECK(heard[0].h.psn == psn_add(first_psn, 1));
  for (const u32 i : {2u, 3u}) peer.put(packets[i]);
  step(rig);
  CHECK(std::memcmp(to.data(), from.data(), 4000) == 0);
}

TEST_CASE("A read is answered packet by packet", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region from(65536, full_access);
  from.fill(6);
  PacketHeader h = peer.record(s.qp, PacketKind::request, first_psn);
  h.opcode = static_cast<u8>(WqeOpcode::rdma_read);
  h.remote_address = from.address(7);
  h.rkey = from.key();
  h.message_bytes = 40000;
  peer.send(h);
  step(rig);
  auto heard = peer.hear();
  REQUIRE(heard.size() == 40);
  for (u32 i = 0; i < 40; ++i) {
    const Heard &p = heard[i];
    CHECK(p.h.kind == PacketKind::read_response);
    CHECK(p.h.psn == psn_add(first_psn, i));
    CHECK(p.h.flags == (packet_grh | (i == 0 ? packet_first : 0) | (i == 39 ? packet_last : 0)));
    REQUIRE(p.payload.size() == (i == 39 ? 40000 - 39 * mtu : mtu));
    CHECK(std::memcmp(p.payload.data(), from.data() + 7 + i * mtu, p.payload.size()) == 0);
  }
  // The sequence goes on behind the answers; what was asked before is answered again.
  h.psn = psn_add(first_psn, 40);
  h.message_bytes = 0;
  peer.send(h);
  h.psn = psn_add(first_psn, 38);
  h.remote_address = from.address(7 + 38 * mtu);
  h.message_bytes = 40000 - 38 * mtu;
  peer.send(h);
  step(rig);
  heard = peer.hear();
  REQUIRE(heard.size() >= 2);
  CHECK(heard[heard.size() - 2].h.psn == psn_add(first_psn, 38));
  CHECK(heard.back().h.psn == psn_add(first_psn, 39));
}

TEST_CASE("Atomics travel both ways", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region memory(4096, full_access);
  memory.at<u64>(8) = 1000;
  u8 operands[16] = {};
  store_be64(operands, 5);
  PacketHeader h = peer.record(s.qp, PacketKind::request, first_psn);
  h.opcode = static_cast<u8>(WqeOpcode::atomic_fa);
  h.remote_address = memory.address(8);
  h.rkey = memory.key();
  h.atomic_size = 8;
  h.payload = 16;
  peer.send(h, operands);
  step(rig);
  peer.send(h, operands);  // again: not executed twice
  step(rig);
  CHECK(memory.at<u64>(8) == 1005);
  auto heard = peer.hear();
  REQUIRE(heard.size() == 2);
  for (const Heard &p : heard) {
    CHECK(p.h.kind == PacketKind::atomic_response);
    u64 original;
    std::memcpy(&original, p.payload.data(), 8);
    CHECK(original == 1000);
  }

  s.qp.post(Wqe(WqeOpcode::atomic_cs)
                .remote(0x1000, 0x99)
                .be(77, 8)
                .be(66, 8)
                .data(8, memory.key(), memory.address(64)));
  step(rig);
  heard = peer.hear();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].h.opcode == static_cast<u8>(WqeOpcode::atomic_cs));
  CHECK(load_be64(heard[0].payload.data()) == 77);
  CHECK(load_be64(heard[0].payload.data() + 8) == 66);
  h = peer.record(s.qp, PacketKind::atomic_response, heard[0].h.psn, 0);
  h.payload = 8;
  const u64 value = 0x1122334455667788;
  u8 bytes[8];
  std::memcpy(bytes, &value, 8);
  peer.send(h, bytes);
  step(rig);
  CHECK(s.cq.expect().opcode() == 0);
  CHECK(memory.at<u64>(64) == value);
}

TEST_CASE("A long message keeps to the window and asks for acknowledges", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  constexpr u32 bytes = 200'000, window = UdpPacing::packets(mtu), count = (bytes + mtu - 1) / mtu;
  static_assert(window < count);
  Region from(bytes, full_access);
  from.fill(8);
  s.qp.post(
      Wqe(WqeOpcode::rdma_write).remote(0x1000, 0x99).data(bytes, from.key(), from.address()));
  step(rig);
  auto heard = peer.hear();
  REQUIRE(heard.size() == window);
  CHECK(heard[0].h.message_bytes == bytes);
  std::vector<u8> got;
  for (u32 i = 0; i < count;) {
    for (const Heard &p : heard) {
      REQUIRE(p.h.psn == psn_add(first_psn, i));
      CHECK(p.wants_ack == ((i + 1) % (burst_bytes / mtu) == 0 || i + 1 == count));
      got.insert(got.end(), p.payload.begin(), p.payload.end());
      ++i;
    }
    PacketHeader ack = peer.record(s.qp, PacketKind::ack, heard.back().h.psn, 0);
    peer.send(ack);
    step(rig);
    if (i == count) break;
    s.cq.expect_none();
    heard = peer.hear();
    REQUIRE_FALSE(heard.empty());
  }
  CHECK(s.cq.expect().opcode() == 0);
  REQUIRE(got.size() == bytes);
  CHECK(std::memcmp(got.data(), from.data(), bytes) == 0);
}

TEST_CASE("What was acknowledged in part is not repeated", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  constexpr u32 bytes = 40 * mtu;
  Region from(bytes, full_access);
  s.qp.post(
      Wqe(WqeOpcode::rdma_write).remote(0x1000, 0x99).data(bytes, from.key(), from.address()));
  step(rig);
  REQUIRE(peer.hear().size() == 40);
  peer.send(peer.record(s.qp, PacketKind::ack, psn_add(first_psn, 15), 0));
  step(rig);
  rig.step(200'000'000);  // no more: the time-out
  const auto heard = peer.hear();
  REQUIRE(heard.size() == 24);
  CHECK(heard[0].h.psn == psn_add(first_psn, 16));
}

TEST_CASE("A long read is asked for piece by piece", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  constexpr u32 bytes = 150'000, piece = UdpPacing::packets(mtu) * mtu;
  Region to(bytes, full_access), remote(bytes, full_access);
  remote.fill(9);
  s.qp.post(Wqe(WqeOpcode::rdma_read).remote(0x100000, 0x99).data(bytes, to.key(), to.address()));
  s.qp.post(Wqe(WqeOpcode::rdma_write).remote(0x1000, 0x99).data(8, to.key(), to.address()));
  u32 offset = 0;
  while (offset < bytes) {
    step(rig);
    const auto heard = peer.hear();
    // Nothing overtakes it but what follows its last piece.
    REQUIRE(heard.size() == (offset + piece < bytes ? 1 : 2));
    const PacketHeader &r = heard[0].h;
    CHECK(r.opcode == static_cast<u8>(WqeOpcode::rdma_read));
    CHECK(r.psn == psn_add(first_psn, offset / mtu));
    CHECK(r.remote_address == 0x100000 + offset);
    REQUIRE(r.message_bytes == std::min(piece, bytes - offset));
    PacketHeader h = peer.record(s.qp, PacketKind::read_response, r.psn);
    h.payload = r.message_bytes;
    peer.send(h, remote.data() + offset);
    offset += r.message_bytes;
  }
  step(rig);
  CHECK(s.cq.expect().opcode() == 0);
  CHECK(std::memcmp(to.data(), remote.data(), bytes) == 0);
  s.cq.expect_none();
  peer.send(peer.record(s.qp, PacketKind::ack, psn_add(first_psn, (bytes + mtu - 1) / mtu), 0));
  step(rig);
  CHECK(s.cq.expect().opcode() == 0);
}

TEST_CASE("A piece of a read that is repeated ends where it did", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  constexpr u32 bytes = 150'000, piece = UdpPacing::packets(mtu) * mtu, lost = 20 * mtu;
  Region to(bytes, full_access), remote(bytes, full_access);
  remote.fill(9);
  s.qp.post(Wqe(WqeOpcode::rdma_read).remote(0x100000, 0x99).data(bytes, to.key(), to.address()));
  step(rig);
  REQUIRE(peer.hear().size() == 1);
  PacketHeader h = peer.record(s.qp, PacketKind::read_response, first_psn);
  h.payload = piece;
  const auto packets = Peer::packets(h, remote.data());
  for (u32 i = 0; i < packets.size(); ++i)
    if (i != lost / mtu) peer.put(packets[i]);
  step(rig);
  const auto heard = peer.hear();
  REQUIRE_FALSE(heard.empty());
  CHECK(heard.back().h.psn == psn_add(first_psn, lost / mtu));
  CHECK(heard.back().h.remote_address == 0x100000 + lost);
  CHECK(heard.back().h.message_bytes == piece - lost);
}

TEST_CASE("Answers to a read that are not as long as they have to be are dropped", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region to(4096, full_access), remote(4096, full_access);
  remote.fill(1);
  s.qp.post(Wqe(WqeOpcode::rdma_read).remote(0x1000, 0x99).data(3000, to.key(), to.address()));
  step(rig);
  REQUIRE(peer.hear().size() == 1);
  for (const u32 bytes : {1u, 1000u, 1028u, 4096u}) {
    PacketHeader h = peer.record(s.qp, PacketKind::read_response, first_psn, packet_first);
    h.payload = bytes / 4 * 4;
    peer.put(packets_of(h, remote.data()).packets[0]);
  }
  PacketHeader h = peer.record(s.qp, PacketKind::read_response, psn_add(first_psn, 77));
  h.payload = mtu;
  peer.send(h, remote.data());
  step(rig);
  s.cq.expect_none();
  CHECK(to.data()[1] == 0);
  h = peer.record(s.qp, PacketKind::read_response, first_psn);
  h.payload = 3000;
  peer.send(h, remote.data());
  step(rig);
  CHECK(s.cq.expect().opcode() == 0);
  CHECK(std::memcmp(to.data(), remote.data(), 3000) == 0);
}

TEST_CASE("Datagrams carry their sender and their network header", "[udp_wire]") {
  Rig rig;
  Peer peer;
  QpOptions o;
  o.type = QpType::ud;
  Side s(rig, peer, o);
  Region to(4096, full_access), from(4096, full_access);
  from.fill(2);
  s.qp.post_receive({{4096, to.key(), to.address()}});
  PacketHeader h = peer.record(s.qp, PacketKind::datagram, 1);
  h.service = Service::ud;
  h.opcode = static_cast<u8>(WqeOpcode::send);
  h.key = 0x1234;
  h.src_qpn = 0x23;
  h.payload = 100;
  peer.send(h, from.data());
  step(rig);
  const Completion c = s.cq.expect();
  CHECK(c.byte_count() == 140);
  CHECK(c.source_qpn() == 0x23);
  CHECK(std::memcmp(to.data() + 40, from.data(), 100) == 0);
  CHECK(std::memcmp(to.data() + 20 + 12, peer.gid() + 12, 4) == 0);
  CHECK(to.data()[20 + 8] == 64);  // hop limit
}

TEST_CASE("Packets that are not for a queue pair are dropped in silence", "[udp_wire]") {
  Rig rig;
  Peer peer, stranger(3);
  Side s(rig, peer);
  Region to(4096, full_access), from(4096, full_access);
  from.fill(7);
  PacketHeader h = peer.write(s.qp, to, 64);
  const Packet good = Peer::packets(h, from.data())[0];

  for (size_t i = ether_bytes + ipv4_bytes + udp_bytes; i < good.size(); i += 3) {
    if (i == ether_bytes + ipv4_bytes + udp_bytes + 4) continue;  // not covered
    Packet damaged = good;
    damaged[i] ^= 0x10;
    peer.put(damaged);
  }
  for (const size_t bytes : {43u, 53u, 58u, 70u}) peer.put({good.begin(), good.begin() + bytes});
  PacketHeader other = h;
  other.dst_qpn ^= 0x100;  // no QP of this process
  peer.send(other, from.data());
  other.dst_qpn = 5u << qpn_bits_per_slot;  // no process
  peer.send(other, from.data());
  other = h;
  other.service = Service::uc;
  peer.send(other, from.data());
  gid_of(address(3), h.sgid);  // the right ICRC of the wrong host
  stranger.send(h, from.data());
  step(rig);
  CHECK(to.data()[1] == 0);
  CHECK(peer.hear().empty());
  CHECK(stranger.hear().empty());
  CHECK(s.qp.qp->state == QpState::rts);
  peer.put(good);
  step(rig);
  CHECK(to.data()[1] != 0);
  CHECK(peer.hear().size() == 1);
}

TEST_CASE("A packet of the wrong length is an invalid request", "[udp_wire]") {
  Rig rig;
  Peer peer;
  for (const auto &[flags, bytes] :
       {std::pair<u8, u32>{packet_first, 512}, {packet_first, 2048}, {only, 2048}}) {
    Side s(rig, peer);
    Region to(4096, full_access), from(4096, full_access);
    from.fill(7);
    PacketHeader h = peer.record(s.qp, PacketKind::request, first_psn, flags);
    h.opcode = static_cast<u8>(WqeOpcode::rdma_write);
    h.remote_address = to.address();
    h.rkey = to.key();
    h.payload = bytes;
    h.message_bytes = 4096;
    peer.put(packets_of(h, from.data()).packets[0]);
    step(rig);
    const auto heard = peer.hear();
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].h.nak == Nak::invalid_request);
    CHECK(to.data()[1] == 0);
    CHECK(s.qp.qp->state == QpState::err);
  }
}

TEST_CASE("What another process passes on is checked as if it came by itself", "[udp_wire]") {
  Rig rig;
  Peer peer;
  Side s(rig, peer);
  Region to(4096, full_access), from(4096, full_access);
  from.fill(7);
  PacketHeader h = peer.write(s.qp, to, 64);
  Packet packet = Peer::packets(h, from.data())[0];
  constexpr u32 in_front = ether_bytes + ipv4_bytes + udp_bytes;
  const auto pass_on = [&](u32 bytes) {
    Fabric &fabric = *process().fabric;
    Fabric::Slot room;
    while (fabric.reserve(fabric.slot(), bytes, room) != Fabric::Reserve::ok) step(rig);
    *room.header = PacketHeader{};
    room.header->kind = PacketKind::roce;
    room.header->payload = bytes;
    room.header->udp_sport = h.udp_sport;
    std::memcpy(room.header->sgid, h.sgid, 16);
    std::memcpy(room.header->dgid, h.dgid, 16);
    std::memcpy(room.payload, packet.data() + in_front, bytes);
    fabric.commit(fabric.slot(), room);
    step(rig);
  };
  const u32 whole = static_cast<u32>(packet.size()) - in_front;
  for (const u32 bytes : {0u, 3u, 15u, whole - 4}) pass_on(bytes);
  packet[in_front + 60] ^= 1;
  pass_on(whole);
  CHECK(to.data()[1] == 0);
  packet[in_front + 60] ^= 1;
  pass_on(whole);
  CHECK(to.data()[1] != 0);
}
