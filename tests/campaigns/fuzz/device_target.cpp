// The device model: work requests of any content in send and receive queues of every
// transport, doorbells that no library would ring, and records of a hostile peer.
//
// It answers with completions, and goes on working.
#include "bytes.h"
#include "model/packets.h"
#include "rig.h"
#include "wire/fabric.h"

namespace {

using namespace softhca;
using namespace softhca::test;

struct World {
  Rig rig;
  Region memory{65536, full_access}, indirect{4096, full_access};
  u16 lid = rig.device().port(1).lid;

  World() {
    indirect.mkey().kind = Mkey::Kind::indirect;
    indirect.mkey().max_entries = 16;
  }
  u32 key(Bytes &in) {
    switch (in.take<u8>() % 8) {
      case 0: return indirect.key();
      case 1: return 0;
      case 2: return in.take<u32>();
      case 3: return 0x100;
      default: return memory.key();
    }
  }
  u64 address(Bytes &in) { return memory.address(in.below(70000)); }
};

void put_request(World &world, Bytes &in, TestQp &qp) {
  constexpr u8 opcodes[] = {0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x10,
                            0x11, 0x12, 0x14, 0x15, 0x1b, 0x20, 0x25, 0x2f};
  const u8 first = in.take<u8>();
  Wqe w(static_cast<WqeOpcode>(first < 128 ? opcodes[first % 16] : in.take<u8>()),
        in.take<u8>() % 4 == 0 ? in.take<u8>() : 0);
  w.imm(in.take<u8>() % 2 != 0 ? swap32(world.key(in)) : in.take<u32>());
  w.fence(in.take<u8>() % 8);
  for (u32 units = in.take<u8>() % 12; units != 0; --units) {
    u8 s[16];
    switch (in.take<u8>() % 4) {
      case 0:
        in.take_into(s, 16);
        w.raw(s, 16);
        break;
      case 1: w.remote(world.address(in), world.key(in)); break;
      case 2: {
        const u32 bytes = in.below(9000), lkey = world.key(in);
        w.data(bytes, lkey, world.address(in));
        break;
      }
      default: w.be(in.take<u64>(), 8).be(in.take<u8>() % 3, 8); break;
    }
  }
  qp.post(w);
}

void put_record(World &world, Bytes &in, const std::vector<u32> &qpns, u32 srqn) {
  PacketHeader h{};
  in.take_into(&h, sizeof(h));
  const u8 plausible = in.take<u8>();
  if (plausible % 4 != 0) {
    h.kind = static_cast<PacketKind>(static_cast<u8>(h.kind) % 10);
    h.service = static_cast<Service>(static_cast<u8>(h.service) % 7);
    h.dst_qpn = qpns[h.dst_qpn % qpns.size()];
    h.src_qpn = qpns[h.src_qpn % qpns.size()];
    h.dst_lid = world.lid;
    h.port = 1;
    h.psn = (0xfffff0 + h.psn % 24) & 0xffffff;
    h.npsn %= 4;
    h.remote_address = world.memory.address(h.remote_address % 70000);
    h.rkey = world.memory.key();
    h.key = 0x1234;
    h.xrc_srqn = srqn;
    h.connection %= 2;
    h.offset %= 64;
  }
  constexpr u32 sizes[] = {0, 1, 15, 16, 31, 32, 64, 100, 4096, burst_bytes};
  h.payload = sizes[in.below(10)];
  if (plausible % 2 != 0) h.message_bytes = h.payload;
  Fabric &fabric = *process().fabric;
  Fabric::Slot room;
  const u16 own = fabric.slot();
  if (fabric.reserve(own, h.payload, room) != Fabric::Reserve::ok) return;
  *room.header = h;
  const u8 fill = in.take<u8>();
  std::memset(room.payload, fill, h.payload);
  in.take_into(room.payload, std::min<u32>(h.payload, in.below(64)));
  fabric.commit(own, room);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  setenv("SOFTHCA_LOG", "error", 1);
  setenv("SOFTHCA_FABRIC", ("fuzz-" + std::to_string(getpid())).c_str(), 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
  Bytes in(data, size);
  World world;
  constexpr QpType types[] = {QpType::rc, QpType::uc, QpType::ud, QpType::xrc_ini, QpType::dci};
  {
    TestCq cq(256);
    TestSrq srq(16, SrqType::basic), shared(16, SrqType::xrc, &cq.cq, 7);
    QpOptions o, other;
    o.type = other.type = types[in.below(5)];
    if (o.type == QpType::xrc_ini) other.type = QpType::xrc_tgt, other.xrcd = 7;
    if (o.type == QpType::dci) other.type = QpType::dct, other.srq = &srq.srq;
    if (o.type == QpType::rc && in.below(2) != 0) other.srq = &srq.srq;
    o.dc_key = other.dc_key = 0x1234;
    TestQp a(world.rig, cq, cq, o), b(world.rig, cq, cq, other);
    a.connect(b.qp->qpn, world.lid);
    b.connect(a.qp->qpn, world.lid);
    const std::vector<u32> qpns = {a.qp->qpn, b.qp->qpn, 0, 0xffffff};
    for (TestSrq *each : {&srq, &shared})
      for (int i = 0; i < 4; ++i) each->post(8192, world.memory.key(), world.memory.address());
    for (int i = 0; i < 48 && !in.empty(); ++i) {
      switch (in.take<u8>() % 16) {
        case 0: a.ring(in.take<u16>()); break;
        case 1:
          if (b.qp->rq_wqes != 0) b.ring_receive(in.take<u16>());
          break;
        case 2: world.rig.step(400'000'000); break;
        case 3:
        case 4:
        case 5:
          if (b.qp->rq_wqes != 0) {
            const u32 bytes = in.below(9000), key = world.key(in);
            b.post_receive({{bytes, key, world.address(in)}});
          }
          break;
        case 6:
        case 7:
        case 8:
        case 9: put_record(world, in, qpns, shared.srq.srqn); break;
        default:
          put_request(world, in, a);
          if (in.take<u8>() % 4 == 0) break;  // together with the next
          world.rig.step();
          break;
      }
      Completion c;
      while (cq.poll(c)) PROMISE(c.opcode() <= 4 || c.opcode() == 0xd || c.opcode() == 0xe);
    }
    world.rig.step(400'000'000);
    world.indirect.mkey().entries.clear();
  }
  // It is alive.
  Pair pair(world.rig);
  Region from(100, full_access), to(100, full_access);
  from.fill(1);
  pair.b.post_receive({{100, to.key(), to.address()}});
  pair.a.post(Wqe(WqeOpcode::send).data(100, from.key(), from.address()));
  world.rig.step();
  PROMISE(pair.a_cq.expect().opcode() == 0);
  PROMISE(std::memcmp(from.data(), to.data(), 100) == 0);
  return 0;
}
