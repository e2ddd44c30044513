// Packets of RoCE v2 from strangers, at queue pairs that are connected to another host by
// wire = "udp" and have requests of their own on the way: any opcode, sequence and length,
// mostly with a right checksum.
//
// The device answers, or does not, and goes on working.
#include <cstdlib>
#include <string>

#include "bytes.h"
#include "config/config.h"
#include "model/bth.h"
#include "model/crc.h"
#include "model/packets.h"
#include "rig.h"
#include "wire/fabric.h"

namespace {

using namespace softhca;
using namespace softhca::test;

constexpr u32 peer_qpn = 0x17, qkey = 0x1234;
constexpr u32 first_psn = 0xfffff0;  // of TestQp, both ways
u8 own_gid[16], peer_gid[16];

struct World {
  Rig rig;
  Region memory{65536, full_access};
  TestCq cq{256};
  TestSrq shared{16, SrqType::xrc, &cq.cq, 7};

  u32 key(Bytes &in) {
    switch (in.take<u8>() % 8) {
      case 0: return 0;
      case 1: return in.take<u32>();
      default: return memory.key();
    }
  }
  u64 address(Bytes &in) { return memory.address(in.below(70000)); }
};

void append(std::vector<u8> &to, u64 value, u32 bytes) {
  while (bytes-- != 0) to.push_back(static_cast<u8>(value >> 8 * bytes));
}

// From the transport header to the end of the data.
std::vector<u8> packet(World &world, Bytes &in, const std::vector<u32> &qpns) {
  constexpr u8 services[] = {bth::rc, bth::rc, bth::uc, bth::ud, bth::xrc};
  const u8 operation = in.take<u8>() % 24, service = services[in.take<u8>() % 5];
  const u8 rare = in.take<u8>();
  const u32 data = in.take<u8>() % 4 == 0 ? in.below(1200) : 1024 * (in.take<u8>() % 2);
  const u32 pad = (0u - data) & 3;
  std::vector<u8> p;
  append(p, rare == 1 ? in.take<u8>() : operation | service, 1);
  append(p, (in.take<u8>() & 0xc0u) | pad << 4 | (rare == 2 ? in.take<u8>() : 0u), 1);
  append(p, rare == 3 ? in.take<u16>() : 0xffff, 2);
  append(p, qpns[in.take<u8>() % qpns.size()], 4);
  append(p, u64{in.take<u8>() & 0x80u} << 24 | ((first_psn + in.take<u8>() % 8) & 0xffffff), 4);
  if (service == bth::ud) append(p, rare == 4 ? in.take<u32>() : qkey, 4), append(p, peer_qpn, 4);
  if (service == bth::xrc) append(p, rare == 5 ? in.take<u32>() : world.shared.srq.srqn, 4);
  switch (operation) {
    case bth::write_first:
    case bth::write_only:
    case bth::write_only_imm:
    case bth::read_request:
      append(p, world.address(in), 8);
      append(p, world.key(in), 4);
      append(p, in.take<u8>() % 2 != 0 ? data : in.take<u32>() >> in.take<u8>() % 32, 4);
      break;
    case bth::compare_swap:
    case bth::fetch_add:
      append(p, world.address(in) & ~u64{7}, 8);
      append(p, world.key(in), 4);
      append(p, in.take<u64>(), 8);
      append(p, in.take<u64>(), 8);
      break;
    case bth::read_first:
    case bth::read_last:
    case bth::read_only:
    case bth::acknowledge:
    case bth::atomic_acknowledge: append(p, in.take<u32>() & 0x7f00000f, 4); break;
    default: break;
  }
  if (operation == bth::atomic_acknowledge) append(p, in.take<u64>(), 8);
  const bool bare = operation == bth::read_request || operation == bth::compare_swap ||
                    operation == bth::fetch_add || operation == bth::acknowledge ||
                    operation == bth::atomic_acknowledge;
  if (!bare || rare == 6) p.resize(p.size() + data + pad, rare);
  while (p.size() % 4 != 0) p.push_back(0);
  for (u32 i = rare == 7 ? in.take<u8>() % 8 : 0; i != 0; --i)
    p[in.below(p.size())] = in.take<u8>();
  if (rare == 8) p.resize(in.below(64));
  return p;
}

// As another process of this host passes it on.
void put(const std::vector<u8> &transport, bool damaged) {
  PacketHeader h{};
  h.kind = PacketKind::request;
  h.service = Service::rc;
  h.flags = packet_first | packet_last | packet_grh;
  h.npsn = 1;
  h.udp_sport = 0xc123;
  std::memcpy(h.sgid, peer_gid, 16);
  std::memcpy(h.dgid, own_gid, 16);
  // A packet of the same length has the headers that the checksum is made of.
  std::vector<u8> bytes = transport;
  if (transport.size() >= bth_bytes && transport.size() % 4 == 0) {
    h.payload = h.message_bytes = static_cast<u32>(transport.size()) - bth_bytes;
    Packet whole = packets_of(h, transport.data() + bth_bytes).packets.at(0);
    whole.resize(whole.size() - icrc_bytes);
    std::memcpy(whole.data() + whole.size() - transport.size(), transport.data(), transport.size());
    const u32 crc = invariant_crc(whole, true) ^ (damaged ? 0x80000 : 0);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<u8>(crc >> 8 * i));
  }
  h.kind = PacketKind::roce;
  h.payload = static_cast<u32>(bytes.size());
  Fabric &fabric = *process().fabric;
  Fabric::Slot room;
  if (fabric.reserve(fabric.slot(), h.payload, room) != Fabric::Reserve::ok) return;
  *room.header = h;
  if (!bytes.empty()) std::memcpy(room.payload, bytes.data(), bytes.size());
  fabric.commit(fabric.slot(), room);
}

void request(World &world, Bytes &in, TestQp &qp) {
  constexpr WqeOpcode opcodes[] = {WqeOpcode::send, WqeOpcode::rdma_write, WqeOpcode::rdma_read,
                                   WqeOpcode::atomic_fa};
  const WqeOpcode op = qp.qp->type == QpType::rc ? opcodes[in.take<u8>() % 4] : WqeOpcode::send;
  Wqe w(op);
  if (op != WqeOpcode::send) w.remote(0x1000, 0x77);
  if (op == WqeOpcode::atomic_fa) w.be(1, 8).be(0, 8);
  const u32 bytes = op == WqeOpcode::atomic_fa ? 8 : in.below(9000);
  qp.post(w.data(bytes, world.memory.key(), world.memory.address()));
}

TestQp queue_pair(Rig &rig, TestCq &cq, QpType type = QpType::rc) {
  QpOptions o;
  o.type = type;
  o.qkey = qkey;
  if (type == QpType::xrc_tgt) o.xrcd = 7;
  return TestQp(rig, cq, cq, o);
}

void connect(TestQp &qp, u32 to, const u8 *gid) {
  AddressVector &av = qp.qp->attr.av;
  av.is_global = true;
  av.sgid_index = 3;
  std::memcpy(av.dgid, gid, 16);
  qp.connect(to, 0);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  // An address of the loopback interface that no other run has.
  const u32 pid = static_cast<u32>(getpid());
  const u8 own[4] = {127, static_cast<u8>(100 + (pid >> 14) % 100), static_cast<u8>(pid >> 6),
                     static_cast<u8>((pid & 63) * 4 + 1)};
  own_gid[10] = own_gid[11] = peer_gid[10] = peer_gid[11] = 0xff;
  std::memcpy(own_gid + 12, own, 4);
  std::memcpy(peer_gid + 12, own, 4);
  ++peer_gid[15];
  std::string address;
  for (const u8 part : own) address += (address.empty() ? "" : ".") + std::to_string(part);
  const std::string file = "/tmp/fuzz-udp-" + std::to_string(pid) + ".json";
  std::FILE *f = std::fopen(file.c_str(), "w");
  std::fprintf(f, "{\"wire\": \"udp\", \"devices\": [{\"ports\": [{\"ipv4\": \"%s\"}]}]}",
               address.c_str());
  std::fclose(f);
  setenv("SOFTHCA_CONFIG", file.c_str(), 1);
  setenv("SOFTHCA_LOG", "error", 1);
  setenv("SOFTHCA_FABRIC", ("fuzz-" + std::to_string(pid)).c_str(), 1);
  PROMISE(config().wire == Wire::udp);
  std::remove(file.c_str());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
  Bytes in(data, size);
  World world;
  {
    Rig &rig = world.rig;
    TestCq &cq = world.cq;
    TestQp rc = queue_pair(rig, cq), uc = queue_pair(rig, cq, QpType::uc),
           ud = queue_pair(rig, cq, QpType::ud), xrc = queue_pair(rig, cq, QpType::xrc_tgt);
    const std::vector<u32> qpns = {rc.qp->qpn, rc.qp->qpn, uc.qp->qpn, ud.qp->qpn, xrc.qp->qpn, 0};
    for (TestQp *qp : {&rc, &uc, &ud, &xrc}) connect(*qp, peer_qpn, peer_gid);
    for (int i = 0; i < 4; ++i) world.shared.post(8192, world.memory.key(), world.memory.address());
    for (int i = 0; i < 48 && !in.empty(); ++i) {
      TestQp &qp = in.take<u8>() % 4 == 0 ? uc : rc;
      switch (in.take<u8>() % 12) {
        case 0: world.rig.step(in.take<u8>() % 8 == 0 ? 400'000'000 : 1000); break;
        case 1:
        case 2: {
          TestQp &to = in.take<u8>() % 4 == 0 ? ud : qp;
          const u32 bytes = in.below(9000), key = world.key(in);
          to.post_receive({{bytes, key, world.address(in)}});
          break;
        }
        case 3:
        case 4: request(world, in, qp); break;
        default: put(packet(world, in, qpns), in.take<u8>() == 1); break;
      }
      if (in.take<u8>() % 4 != 0) world.rig.step();
      Completion c;
      while (world.cq.poll(c)) PROMISE(c.opcode() <= 4 || c.opcode() == 0xd || c.opcode() == 0xe);
    }
    world.rig.step(400'000'000);
  }
  // It is alive.
  TestCq cq;
  TestQp a = queue_pair(world.rig, cq), b = queue_pair(world.rig, cq);
  connect(a, b.qp->qpn, own_gid);
  connect(b, a.qp->qpn, own_gid);
  Region from(100, full_access), to(100, full_access);
  from.fill(1);
  b.post_receive({{100, to.key(), to.address()}});
  a.post(Wqe(WqeOpcode::send).data(100, from.key(), from.address()));
  world.rig.step();
  PROMISE(cq.expect().opcode() <= 4);
  PROMISE(cq.expect().opcode() <= 4);
  PROMISE(std::memcmp(from.data(), to.data(), 100) == 0);
  return 0;
}
