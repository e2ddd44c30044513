// The PCI function below a hostile driver: commands of every opcode with numbers of what is
// there, damaged and not, doorbells, work requests and doorbell records in memory of the
// guest, mailboxes in disorder, memory that goes away, accesses anywhere in BAR 0.
//
// It answers, keeps to the guest's memory, and goes on working. Counts commands and doorbells.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "base/fields.h"
#include "bytes.h"
#include "command_box.h"
#include "firmware/guest_memory.h"
#include "model/device.h"
#include "pci/function.h"

namespace {

using namespace softhca;
using test::Box;

constexpr u64 guest_bytes = 8 << 20, queue_at = 0x1000, boxes_at = 0x10000, box_bytes = 1024,
              data_at = 0x100000, uar_page = 0x20;
u64 commands_given = 0, doorbells_rung = 0;

// The one function of the process; it is reset between inputs.
class World {
 public:
  World() {
    const std::lock_guard lock(process().mutex);
    PROMISE(process().start() == 0 && guest_.reserve());
    file_ = memfd_create("guest", MFD_CLOEXEC);
    PROMISE(ftruncate(file_, guest_bytes) == 0);
    memory =
        static_cast<u8 *>(mmap(nullptr, guest_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    PROMISE(memory != MAP_FAILED);
    function_ = new pci::Function(process().devices.at(0), guest_);
  }

  void begin() {
    {
      const std::lock_guard lock(process().mutex);
      function_->reset();
      guest_.unmap_all();
      PROMISE(guest_.map(0, guest_bytes, file_, 0, true) == 0);
    }
    std::memset(memory + data_at, 0, 0x10000);
    write(0x10, 0, 4);
    write(0x14, queue_at, 4);
    page = create(Box(0x802));
    PROMISE(page == uar_page);
    pd = create(Box(0x800));
    eq = create(eq_box(place(0)).put64(88, ~u64{0} >> 1)) & 0xff;
    cq = create(cq_box(place(1), place(2)));
    for (u32 &qp : qps) qp = create(qp_box(place(3 + static_cast<u32>(&qp - qps)), place(2) + 64));
    for (const u32 qp : qps) connect(qp);
    physical = create(mkey(0)) << 8;
    paged = create(mkey(1).put(128 + 1, 1, 1).put(128 + 16, 1, 1).put(128 + 416, 32, 4)) << 8;
    xrcd = create(Box(0x80e));
    srq = create(rmp_box(place(9)));
  }

  // --- boxes of what a driver makes
  u64 place(u32 n) const { return data_at + n * 0x4000; }
  Box mkey(u32 mode, size_t octowords = 0) const {
    Box b(0x200, 272 + octowords * 16);
    b.put(128 + 17, 5, 31).put(128 + 22, 2, mode).put(128 + 32, 24, 0xffffff);
    return b.put(128 + 104, 24, pd).put(768, 32, static_cast<u32>(octowords));
  }
  Box eq_box(u64 ring) const {
    return Box(0x301, 280).put(128 + 99, 5, 6).put(128 + 104, 24, page).put64(272, ring);
  }
  Box cq_box(u64 ring, u64 record) const {
    Box b(0x400, 280);
    b.put(128 + 99, 5, 6).put(128 + 104, 24, page).put(128 + 184, 8, eq);
    return b.put64(16 + 56, record).put64(272, ring);
  }
  Box qp_box(u64 ring, u64 record) const {
    Box b(0x500, 280);
    b.put(192 + 19, 2, 3).put(192 + 40, 24, pd).put(192 + 73, 4, 2).put(192 + 81, 4, 4);
    b.put(192 + 104, 24, page).put(192 + 136, 24, 0xffffff).put(192 + 1000, 24, cq);
    return b.put(192 + 1256, 24, cq).put64(24 + 160, record).put64(272, ring);
  }
  Box rmp_box(u64 ring) const {
    Box b(0x90c, 280);
    b.put(32 * 8 + 8, 4, 1);
    constexpr u32 wq = 80 * 8;
    b.put(wq + 0, 4, 0).put(wq + 72, 24, pd).put(wq + 268, 4, 6).put(wq + 283, 5, 4);
    return b.put64(80 + 16, place(2) + 0x200).put64(272, ring);
  }
  void connect(u32 qp) {
    const u32 lid = process().devices.at(0).port(1).lid;
    const auto move = [&](u16 opcode) { return Box(opcode, 272).put(72, 24, qp); };
    give(move(0x502).put(192 + 1168, 3, 7).put(192 + 1164, 4, 1).put(192 + 192 + 296, 8, 1));
    give(move(0x503)
             .put(192 + 64, 3, 5)
             .put(192 + 67, 5, 30)
             .put(192 + 168, 24, qps[0] ^ qps[1] ^ qp)
             .put(192 + 192 + 48, 16, lid));
    give(move(0x504).put(192 + 909, 6, 0x3f));
  }

  // --- what a driver does
  // Its status; 0x100: it was not delivered.
  u32 give(const std::vector<u8> &in, size_t out_bytes = 16) {
    place_command(in, out_bytes);
    ring_command();
    return memory[queue_at + 63] != 0 ? 0x100 : memory[queue_at + 32];
  }
  u32 create(const std::vector<u8> &in) {
    return give(in) == 0 ? load_be32(memory + queue_at + 40) & 0xffffff : 0;
  }
  void place_command(const std::vector<u8> &in, size_t out_bytes) {
    u8 *e = memory + queue_at;
    std::memset(e, 0, 64);
    store_be32(e + 4, static_cast<u32>(in.size()));
    std::copy_n(in.begin(), std::min<size_t>(16, in.size()), e + 16);
    store_be32(e + 56, static_cast<u32>(out_bytes));
    e[63] = 1;
    u64 next = boxes_at;
    store_be64(e + 8, boxes(next, in.size(), in.data()));
    store_be64(e + 48, boxes(next, out_bytes, nullptr));
  }
  void ring_command() {
    ++commands_given;
    write(0x18, 1, 4);
  }
  void write(u64 offset, u64 value, u32 bytes) {
    u8 word[8];
    store_be64(word, bytes == 8 ? value : value << 32);
    const std::lock_guard lock(process().mutex);
    (void)function_->write_bar(offset, std::span<const u8>(word, bytes));
  }
  void read(u64 offset, u32 bytes) {
    u8 word[64];
    const std::lock_guard lock(process().mutex);
    (void)function_->read_bar(offset, std::span(word, bytes));
  }
  void ring(u64 offset, u64 value) {
    ++doorbells_rung;
    write(uar_page * page_size + offset, value, 8);
  }
  void remap(Bytes &in) {
    const u64 at = u64{in.below(guest_bytes / page_size)} * page_size;
    const u64 bytes = u64{in.below(64)} * page_size;
    const std::lock_guard lock(process().mutex);
    if (in.take<u8>() % 2 != 0) guest_.unmap(at, bytes);
    else
      (void)guest_.map(at, bytes, file_, u64{in.below(2048)} * page_size, in.take<u8>() % 4 != 0);
  }

  // What the function would touch lies in the guest's window.
  void check() const {
    const std::lock_guard lock(process().mutex);
    const u64 begin = guest_.host_address(0), end = begin + firmware::GuestMemory::window_bytes;
    SpanList spans;
    for (u32 k : {physical, paged}) {
      spans.clear();
      if (resolve(process().mkeys, k, 0, 4096, 0, {pd}, spans) != Syndrome::ok) continue;
      for (const Span &s : spans)
        PROMISE(s.kind != Span::Kind::application ||
                (s.address >= begin && s.length <= end - s.address));
    }
  }

  u8 *memory = nullptr;
  u32 page = 0, pd = 0, eq = 0, cq = 0, qps[4] = {}, physical = 0, paged = 0, xrcd = 0, srq = 0;

 private:
  u64 boxes(u64 &next, size_t length, const u8 *from) {
    const u64 first = next;
    u32 number = 0;
    for (size_t done = 16; done < length; done += 512, next += box_bytes) {
      u8 *box = memory + next;
      std::memset(box, 0, 576);
      if (from != nullptr) std::copy_n(from + done, std::min<size_t>(512, length - done), box);
      store_be64(box + 560, next + box_bytes);
      store_be32(box + 568, number++);
    }
    return first;
  }

  firmware::GuestMemory guest_;
  pci::Function *function_ = nullptr;
  int file_ = -1;
};

World &world() {
  static auto *const w = new World;
  return *w;
}

u32 some_number(Bytes &in) {
  World &w = world();
  const u32 known[] = {
      w.pd,         w.eq,   w.cq,  w.qps[0], w.qps[1], w.qps[2], w.qps[3], w.page, w.physical >> 8,
      w.paged >> 8, w.xrcd, w.srq, 0,        1,        2,        0xffffff};
  return known[in.take<u8>() % std::size(known)] + (in.take<u8>() % 16 == 0 ? 1 : 0);
}

// A command with its numbers right, in most cases; then some of its bytes are changed.
std::vector<u8> some_command(Bytes &in) {
  static constexpr u16 opcodes[] = {
      0x100, 0x101, 0x107, 0x108, 0x109, 0x10a, 0x201, 0x202, 0x203, 0x204, 0x205, 0x206, 0x302,
      0x303, 0x401, 0x402, 0x403, 0x501, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50b,
      0x50c, 0x50d, 0x50e, 0x600, 0x601, 0x705, 0x706, 0x707, 0x708, 0x710, 0x711, 0x712, 0x713,
      0x714, 0x717, 0x718, 0x719, 0x71a, 0x750, 0x754, 0x755, 0x761, 0x762, 0x763, 0x764, 0x765,
      0x770, 0x771, 0x772, 0x773, 0x800, 0x801, 0x802, 0x803, 0x805, 0x806, 0x807, 0x80e, 0x80f,
      0x816, 0x817, 0x900, 0x901, 0x902, 0x903, 0x904, 0x905, 0x906, 0x907, 0x908, 0x909, 0x90a,
      0x90b, 0x90c, 0x90d, 0x90e, 0x90f, 0x912, 0x913, 0x914, 0x915, 0x916, 0x917, 0x918, 0x92f,
      0x930, 0x931, 0x932, 0x933, 0x934, 0x936, 0x937, 0x938, 0x939, 0x93a, 0x93b, 0x93c, 0xa00,
      0xa01, 0xa03, 0xa04, 0xa06, 0xa08, 0xa0a};
  World &w = world();
  const u64 ring = w.place(in.below(24)), record = w.place(2) + in.below(64) * 64u;
  std::vector<u8> box;
  switch (in.take<u8>() % 16) {
    case 0: box = w.mkey(in.take<u8>() % 4, in.take<u8>() % 3); break;
    case 1: box = w.eq_box(ring); break;
    case 2: box = w.cq_box(ring, record); break;
    case 3: box = w.qp_box(ring, record); break;
    case 4: box = w.rmp_box(ring); break;
    case 5:
      box = Box(0x710, 80)
                .put(128 + 200, 24, w.pd)
                .put(128 + 72, 24, w.cq)
                .put(128 + 168, 24, w.srq)
                .put(128 + 325, 3, 3)
                .put(128 + 328, 8, 1);
      break;
    default:
      box = Box(opcodes[in.below(std::size(opcodes))], 272 + in.take<u8>() % 4 * 8);
      store_be32(box.data() + 8, some_number(in));
      store_be16(box.data() + 6, in.take<u8>() % 4);
      for (int n = in.take<u8>() % 4; n != 0; --n)
        store_be32(box.data() + 12 + in.below(60) * 4u,
                   in.take<u8>() % 2 != 0 ? some_number(in) : in.take<u32>());
  }
  for (int n = in.take<u8>() % 4; n != 0; --n)
    box[2 + in.below(270) % (box.size() - 2)] = in.take<u8>();
  if (in.take<u8>() % 16 == 0) box.resize(1 + in.below(600));
  return box;
}

// A work request at any place of a send queue, or a receive, and the record that announces it.
void some_request(Bytes &in) {
  World &w = world();
  static constexpr u8 opcodes[] = {0x00, 0x08, 0x09, 0x0a, 0x0b, 0x10,
                                   0x11, 0x12, 0x14, 0x25, 0x2f};
  const u32 which = in.take<u8>() % 4;
  const u32 qp = w.qps[which];
  const u16 index = in.take<u8>() % 16;
  u8 *wqe = w.memory + w.place(3 + which) + 4 * 16 + index * 64;
  const u32 segments = in.take<u8>() % 16;
  store_be32(wqe, u32{index} << 8 | opcodes[in.take<u8>() % std::size(opcodes)]);
  store_be32(wqe + 4, qp << 8 | segments);
  store_be32(wqe + 8, u32{in.take<u8>()});
  store_be32(wqe + 12, in.take<u8>() % 2 != 0 ? w.paged : in.take<u32>());
  for (u32 s = 1; s < segments && s < 12; ++s) {
    u8 *at = wqe + s * 16;
    switch (in.take<u8>() % 4) {
      case 0: in.take_into(at, 16); break;
      case 1:
        store_be64(at, w.place(in.below(24)));
        store_be32(at + 8, in.take<u8>() % 2 != 0 ? w.physical : w.paged);
        break;
      default:
        store_be32(at, in.below(5000));
        store_be32(at + 4, in.take<u8>() % 2 != 0 ? w.physical : w.paged);
        store_be64(at + 8, in.take<u8>() % 8 == 0 ? in.take<u64>() : w.place(in.below(24)));
    }
  }
  u8 *record = w.memory + w.place(2) + 64;
  store_be32(record + in.take<u8>() % 2 * 4, in.take<u8>() % 8 == 0 ? in.take<u32>() : index + 1u);
  w.ring(0x800 + in.take<u8>() % 4 * 0x100u, load_be64(wqe));
}

void step(Bytes &in) {
  World &w = world();
  switch (in.take<u8>() % 16) {
    case 0: w.ring(in.below(512) * 8, in.take<u64>()); break;
    case 1: w.ring(0x20, u64{in.take<u32>()} << 32 | some_number(in)); break;
    case 2: w.ring(0x40, u64{w.eq << 24 | in.take<u16>()} << 32); break;
    case 3:
      w.write(in.take<u32>() % (pci::Function::bar_bytes + 64), in.take<u64>(),
              in.take<u8>() % 2 != 0 ? 4 : 8);
      break;
    case 4: w.read(in.take<u32>() % (pci::Function::bar_bytes + 64), 1 + in.take<u8>() % 64); break;
    case 5:
      if (in.take<u8>() % 16 == 0) w.remap(in);
      break;
    case 6:
      w.place_command(some_command(in), 16 + in.below(600));
      in.take_into(w.memory + (in.take<u8>() % 2 != 0 ? queue_at : boxes_at) + in.below(600),
                   1 + in.take<u8>() % 8);
      w.ring_command();
      break;
    case 7:
    case 8:
    case 9: some_request(in); break;
    default: w.give(some_command(in), 16 + in.below(600));
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  setenv("SOFTHCA_LOG", "error", 1);
  setenv("SOFTHCA_FABRIC", ("fuzz-pci-" + std::to_string(getpid())).c_str(), 1);
  std::atexit([] {
    std::printf("%llu commands, %llu doorbells\n", static_cast<unsigned long long>(commands_given),
                static_cast<unsigned long long>(doorbells_rung));
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
  World &w = world();
  Bytes in(data, size);
  w.begin();
  for (int i = 0; i < 64 && !in.empty(); ++i) step(in);
  w.check();
  // It is alive.
  w.begin();
  PROMISE(w.give(Box(0x80d)) == 0);
  return 0;
}
