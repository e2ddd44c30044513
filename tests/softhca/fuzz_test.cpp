// Malformed work requests and garbage commands: an error completion or an
// errno, never a crash, and the device works afterwards. FUZZ_ROUNDS
// and FUZZ_SEED make longer campaigns out of the short default.
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>

#include <random>

#include "model/tag_matching.h"
#include "rig.h"
#include "uverbs/file.h"

using namespace softhca;
using namespace softhca::test;

namespace {

u64 from_environment(const char *name, u64 fallback) {
  const char *v = std::getenv(name);
  return v != nullptr ? std::strtoull(v, nullptr, 0) : fallback;
}
u64 rounds() { return from_environment("FUZZ_ROUNDS", 20000); }
u64 seed() { return from_environment("FUZZ_SEED", 1); }

void check_alive(Rig &rig) {
  Pair p(rig);
  Region from(100, full_access), to(100, full_access);
  from.fill(1);
  p.b.post_receive({{100, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(100, from.key(), from.address()));
  rig.step();
  REQUIRE(p.a_cq.expect().opcode() == 0);
  REQUIRE(std::memcmp(from.data(), to.data(), 100) == 0);
}

}  // namespace

TEST_CASE("Fuzzed send and receive WQEs", "[fuzz]") {
  Rig rig;
  std::mt19937_64 random(seed());
  Region memory(65536, full_access);
  // A key whose translation points at itself and at others, for UMR to mangle.
  Region indirect(4096, full_access);
  indirect.mkey().kind = Mkey::Kind::indirect;
  indirect.mkey().max_entries = 16;
  const QpType types[] = {QpType::rc, QpType::uc, QpType::ud, QpType::xrc_ini, QpType::dci};
  const u8 opcodes[] = {0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x10,
                        0x11, 0x12, 0x14, 0x15, 0x1b, 0x20, 0x25, 0x2f};
  const u32 keys[] = {memory.key(), indirect.key(), 0x100, 0, 0xffffffff};

  for (u64 round = 0; round < rounds(); ++round) {
    QpOptions o;
    o.type = types[random() % std::size(types)];
    TestCq cq(256);
    TestQp a(rig, cq, cq, o);
    QpOptions other;
    other.type = o.type == QpType::xrc_ini ? QpType::xrc_tgt
                 : o.type == QpType::dci   ? QpType::rc
                                           : o.type;
    TestQp b(rig, cq, cq, other);
    const u16 lid = rig.device().port(1).lid;
    a.connect(b.qp->qpn, lid);
    b.connect(a.qp->qpn, lid);
    if (other.type != QpType::xrc_tgt)
      b.post_receive({{static_cast<u32>(random() % 5000), keys[random() % 5],
                       memory.address(random() % 70000)},
                      {static_cast<u32>(random()), keys[random() % 5], random()}});

    for (u32 n = 1 + random() % 3; n != 0; --n) {
      Wqe w(static_cast<WqeOpcode>(random() % 8 == 0 ? random()
                                                     : opcodes[random() % std::size(opcodes)]),
            static_cast<u8>(random() % 4 == 0 ? random() : 0));
      w.imm(random() % 2 != 0 ? swap32(keys[random() % 2]) : static_cast<u32>(random()));
      for (u32 units = random() % 12; units != 0; --units) {
        u8 s[16];
        switch (random() % 4) {
          case 0:
            for (u8 &byte : s) byte = static_cast<u8>(random());
            w.raw(s, 16);
            break;
          case 1: w.remote(memory.address(random() % 70000), keys[random() % 5]); break;
          case 2:
            w.data(static_cast<u32>(random() % 9000), keys[random() % 5],
                   memory.address(random() % 70000));
            break;
          default: w.be(random(), 8).be(random() % 3, 8); break;
        }
      }
      a.post(w);
    }
    // Now and then a doorbell that no library would ring.
    if (random() % 16 == 0) a.ring(static_cast<u16>(random()));
    if (random() % 16 == 0) b.ring_receive(static_cast<u16>(random()));
    rig.step();
    if (round % 64 == 0) rig.step(400'000'000);
  }
  indirect.mkey().entries.clear();
  check_alive(rig);
}

namespace {

// Records as no device of ours sends them, into our own ring.
void forge(std::mt19937_64 &random, const std::vector<u32> &qpns, const std::vector<u32> &keys,
           const std::vector<u32> &srqns, u64 address, u16 lid) {
  PacketHeader h{};
  const bool plausible = random() % 4 != 0;
  if (!plausible)
    for (size_t i = 0; i < sizeof h; i += 8) {
      const u64 v = random();
      std::memcpy(reinterpret_cast<u8 *>(&h) + i, &v, 8);
    }
  const u8 opcodes[] = {0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x14, 0x15};
  const u32 sizes[] = {0, 1, 15, 16, 31, 32, 64, 100, 4096, burst_bytes};
  h.kind = static_cast<PacketKind>(random() % 10);
  h.service = static_cast<Service>(random() % 7);
  h.opcode = random() % 8 == 0 ? static_cast<u8>(random()) : opcodes[random() % std::size(opcodes)];
  h.flags = static_cast<u8>(random() % 3 == 0 ? random() : random() % 4);
  h.nak = static_cast<Nak>(random() % 8);
  h.timer = static_cast<u8>(random());
  h.dst_qpn = qpns[random() % qpns.size()];
  h.src_qpn = random() % 8 == 0 ? static_cast<u32>(random()) : qpns[random() % qpns.size()];
  h.dst_lid = lid;
  h.port = static_cast<u8>(random() % 4 == 0 ? random() : 1);
  h.psn = psn_add(0xfffff0, static_cast<u32>(random() % 24));
  h.npsn = static_cast<u32>(random() % 4 == 0 ? random() : random() % 4);
  h.payload = sizes[random() % std::size(sizes)];
  h.message_bytes = static_cast<u32>(random() % 2 == 0 ? h.payload : random());
  h.remote_address = random() % 2 == 0 ? address + random() % 70000 : random();
  h.rkey = keys[random() % keys.size()];
  h.imm = random() % 2 == 0 ? keys[random() % keys.size()] : static_cast<u32>(random());
  h.key = random() % 2 == 0 ? 0x1234 : 0;
  h.xrc_srqn = srqns[random() % srqns.size()];
  h.connection = static_cast<u32>(random() % 2);
  h.offset = static_cast<u32>(random() % 4 == 0 ? random() : random() % 3 * 16);
  h.atomic_size = static_cast<u8>(random() % 4 == 0 ? random() : 8);

  Fabric &fabric = *process().fabric;
  Fabric::Slot room;
  const u16 own = fabric.slot();
  if (fabric.reserve(own, h.payload, room) != Fabric::Reserve::ok) return;
  *room.header = h;
  for (u32 i = 0; i < h.payload; ++i)
    room.payload[i] = static_cast<u8>(random() % 3 == 0 ? random() : random() % 4);
  fabric.commit(own, room);
}

}  // namespace

TEST_CASE("A message that turns into another one on its way is refused", "[fuzz]") {
  Rig rig;
  Pair p(rig);
  Region from(100, full_access), to(100, full_access), window(64, full_access);
  p.b.post_receive({{100, to.key(), to.address()}});
  p.a.post(Wqe(WqeOpcode::send).data(100, from.key(), from.address()));
  rig.step();
  REQUIRE(p.b_cq.expect().byte_count() == 100);

  // The buffer belongs to the application again: what begins as an RDMA WRITE
  // and ends as a SEND must not reach it.
  PacketHeader h{};
  h.kind = PacketKind::request;
  h.service = Service::rc;
  h.opcode = static_cast<u8>(WqeOpcode::rdma_write);
  h.flags = packet_first;
  h.src_qpn = p.a.qp->qpn;
  h.dst_qpn = p.b.qp->qpn;
  h.dst_lid = rig.device().port(1).lid;
  h.psn = 0xfffff1;
  h.npsn = 1;
  h.message_bytes = 64;
  h.remote_address = window.address();
  h.rkey = window.key();
  h.payload = 32;
  const auto put = [&] {
    Fabric::Slot room;
    REQUIRE(process().fabric->reserve(process().fabric->slot(), 32, room) == Fabric::Reserve::ok);
    *room.header = h;
    std::memset(room.payload, 0xee, 32);
    process().fabric->commit(process().fabric->slot(), room);
  };
  put();
  h.opcode = static_cast<u8>(WqeOpcode::send);
  h.flags = packet_last;
  h.psn = 0xfffff2;
  put();
  rig.step();
  CHECK(window.data()[0] == 0xee);
  CHECK(to.data()[0] == 0);
  p.b_cq.expect_none();
  CHECK(p.b.qp->state == QpState::err);
}

TEST_CASE("Fuzzed records of a hostile peer", "[fuzz]") {
  Rig rig;
  std::mt19937_64 random(seed());
  Region memory(65536, full_access);
  const u16 lid = rig.device().port(1).lid;
  for (u64 round = 0; round < rounds() / 100; ++round) {
    TestCq cq(256);
    TestSrq basic, tagged, shared(16, SrqType::xrc, &cq.cq, 7);
    tagged.srq.tags = std::make_unique<TagList>(3);
    tagged.srq.cq = &cq.cq;
    for (u16 i = 0; i < 3; ++i) {
      TagList::Entry entry;
      store_be32(entry.buffer.data(), 4096);
      store_be32(entry.buffer.data() + 4, memory.key());
      store_be64(entry.buffer.data() + 8, memory.address());
      tagged.srq.tags->append(entry, static_cast<u16>(i + 1));
    }
    std::vector<std::unique_ptr<TestQp>> qps;
    std::vector<u32> qpns = {0, 0xffffff, static_cast<u32>(random())};
    const auto add = [&](QpType type, Srq *srq = nullptr) {
      QpOptions o;
      o.type = type;
      o.srq = srq;
      o.xrcd = type == QpType::xrc_tgt ? 7 : 0;
      qps.push_back(std::make_unique<TestQp>(rig, cq, cq, o));
      qpns.push_back(qps.back()->qp->qpn);
    };
    for (const QpType type :
         {QpType::rc, QpType::uc, QpType::ud, QpType::xrc_ini, QpType::xrc_tgt, QpType::dci})
      add(type);
    add(QpType::rc, &basic.srq);
    add(QpType::rc, &tagged.srq);
    add(QpType::dct, &basic.srq);
    for (auto &qp : qps) qp->connect(qps[random() % qps.size()]->qp->qpn, lid);
    for (TestSrq *srq : {&basic, &tagged, &shared})
      for (int i = 0; i < 8; ++i)
        srq->post(8192, random() % 8 == 0 ? 1 : memory.key(), memory.address());
    for (u32 i = 0; i < 400; ++i) {
      if (i % 40 == 0)
        for (auto &qp : qps) {
          const QpType type = qp->qp->type;
          if (qp->qp->sq_wqebbs != 0 && random() % 2 == 0) {
            Wqe w(random() % 2 == 0 ? WqeOpcode::rdma_read : WqeOpcode::send);
            if (type == QpType::dci) w.av(0x1234, qpns.back(), lid);
            if (type == QpType::xrc_ini) w.xrc(shared.srq.srqn);
            if (type == QpType::rc || type == QpType::uc)
              qp->post(w.remote(memory.address(), memory.key())
                           .data(100, memory.key(), memory.address()));
            else qp->post(w.data(100, memory.key(), memory.address()));
          }
          if (qp->qp->rq_wqes != 0) qp->post_receive({{9000, memory.key(), memory.address()}});
        }
      forge(random, qpns, {memory.key(), memory.key(), 0, 0xffffffff, 0x100},
            {shared.srq.srqn, tagged.srq.srqn, basic.srq.srqn, 0}, memory.address(), lid);
      rig.step();
      Completion c;
      while (cq.poll(c)) {
      }
    }
    rig.step(400'000'000);
  }
  check_alive(rig);
}

namespace {

// One ioctl as the library builds it.
class Command {
 public:
  Command(u16 object, u16 method) {
    header().object_id = object;
    header().method_id = method;
    header().driver_id = 1;  // RDMA_DRIVER_MLX5
  }
  ib_uverbs_ioctl_hdr &header() { return *reinterpret_cast<ib_uverbs_ioctl_hdr *>(bytes_); }
  void add(u16 id, u16 length, u64 data, u16 flags = 0) {
    ib_uverbs_attr &a = header().attrs[header().num_attrs++];
    a.attr_id = id;
    a.len = length;
    a.flags = flags;
    a.data = data;
  }
  int issue(File *f) {
    header().length =
        static_cast<u16>(sizeof(ib_uverbs_ioctl_hdr) + header().num_attrs * sizeof(ib_uverbs_attr));
    return uverbs_ioctl(f, &header());
  }

 private:
  alignas(8) u8 bytes_[sizeof(ib_uverbs_ioctl_hdr) + 24 * sizeof(ib_uverbs_attr)] = {};
};

}  // namespace

TEST_CASE("Fuzzed commands", "[fuzz]") {
  const int fd = uverbs_open(0, O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  File *file = uverbs_file(fd);
  REQUIRE(file != nullptr);
  std::mt19937_64 random(seed());

  // Readable and writable, read-only, and no memory at all.
  const size_t bytes = 1 << 16;
  auto *good = static_cast<u8 *>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  auto *read_only =
      static_cast<u8 *>(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  auto *gone =
      static_cast<u8 *>(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const u64 pointers[] = {reinterpret_cast<u64>(good),
                          reinterpret_cast<u64>(read_only),
                          reinterpret_cast<u64>(gone),
                          0,
                          1,
                          ~u64{0},
                          ~u64{0} << 47};

  {  // a context, so that the other commands get past the first check
    Command c(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
    u8 request[32] = {}, reply[128];
    request[18] = 1;  // max_cqe_version
    c.add(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, reinterpret_cast<u64>(reply));
    c.add(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, reinterpret_cast<u64>(reply + 8));
    c.add(UVERBS_ATTR_UHW_IN, sizeof request, reinterpret_cast<u64>(request));
    c.add(UVERBS_ATTR_UHW_OUT, 72, reinterpret_cast<u64>(reply + 16));
    (void)c.issue(file);
  }
  for (u64 round = 0; round < rounds() * 5; ++round) {
    for (size_t i = 0; i < 512; i += 8) {
      const u64 v = random() % 4 == 0 ? random() : random() % 8;
      std::memcpy(good + i, random() % 8 == 0 ? &pointers[random() % 7] : &v, 8);
    }
    Command c(static_cast<u16>(random() % 4 == 0 ? 0x1000 + random() % 12 : random() % 18),
              static_cast<u16>(random() % 3 == 0 ? 0x1000 + random() % 4 : random() % 8));
    if (random() % 3 == 0) {  // a command of the write interface
      c.header().object_id = UVERBS_OBJECT_DEVICE;
      c.header().method_id = UVERBS_METHOD_INVOKE_WRITE;
      c.add(UVERBS_ATTR_CORE_IN, static_cast<u16>(random() % 300),
            pointers[random() % 7 < 5 ? 0 : random() % 7]);
      c.add(UVERBS_ATTR_CORE_OUT, static_cast<u16>(random() % 400),
            pointers[random() % 7 < 5 ? 0 : random() % 7]);
      c.add(UVERBS_ATTR_WRITE_CMD, 0, (random() % 62) | (random() % 2 != 0 ? 0x80000000u : 0),
            UVERBS_ATTR_F_MANDATORY);
    }
    for (u64 n = random() % 18; n != 0; --n) {
      const u64 id = random() % 16;
      const u64 extra = random() % 4;
      c.add(static_cast<u16>(extra == 0 ? 0x1000 + id % 6 : id),
            static_cast<u16>(random() % 8 == 0 ? random() : random() % 64),
            random() % 2 != 0 ? pointers[random() % 7] : random() % 6,
            static_cast<u16>(random() % 4));
    }
    if (random() % 64 == 0) c.header().reserved1 = random();
    (void)c.issue(file);
    if (random() % 256 == 0) {  // a header that lies about its length
      c.header().length = static_cast<u16>(random());
      (void)uverbs_ioctl(file, &c.header());
    }
  }
  for (u64 p : pointers) (void)uverbs_ioctl(file, reinterpret_cast<ib_uverbs_ioctl_hdr *>(p));
  uverbs_close(fd);
  close(fd);
  {
    Rig rig;
    check_alive(rig);
  }
  munmap(good, bytes);
  munmap(read_only, bytes);
  munmap(gone, bytes);
}
