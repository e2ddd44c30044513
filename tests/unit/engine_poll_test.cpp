// Completions as a device writes them, reported in both layouts; receive requests as it
// reads them.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "engine_rig.h"
#include "log_of.h"
#include "translate/queue/engine/complete.h"
#include "translate/queue/engine/post_shared.h"
#include "translate/queue/engine/take.h"

using namespace engine_rig;

namespace {
unsigned libc_locks;
}

// In front of the C library's.
extern "C" int pthread_spin_trylock(pthread_spinlock_t *) {
  ++libc_locks;
  return EBUSY;
}

namespace {

constexpr std::uint32_t user_index = 0x00abcd;

// A completion queue of four entries, and a queue pair that completes there.
struct PollRig {
  static constexpr std::uint32_t entries = 4;
  const std::uint32_t entry_bytes;
  alignas(128) std::uint8_t memory[entries * 128] = {};
  std::uint32_t records[2] = {};
  alignas(64) std::uint8_t page[64] = {};
  SendRig sends{Transport::rc};
  std::uint32_t receive_records[2] = {};
  alignas(64) std::uint8_t receives[4 * 32] = {};
  ibvexp::NumberTable<Endpoint> table;
  Endpoint endpoint;
  ibv_qp qp{};
  ibv_srq srq{};
  CompletionQueue queue;
  std::uint32_t produced = 0;

  explicit PollRig(std::uint32_t bytes = 64) : entry_bytes(bytes) {
    for (std::uint32_t i = 0; i < entries; ++i) cqe(i)[63] = 0xf0;
    mlx5dv_cq of{};
    of.buf = memory;
    of.dbrec = records;
    of.cqe_cnt = entries;
    of.cqe_size = entry_bytes;
    of.cqn = 0x77;
    of.cq_uar = page;
    open(queue, of);
    queue.endpoints = &table;
    mlx5dv_qp qp_of{};
    qp_of.dbrec = sends.records;
    qp_of.sq = {sends.memory, SendRig::blocks, 64};
    qp_of.rq = {receives, 4, 32};
    qp_of.bf = {sends.page, 512};
    QpFacts facts;
    facts.number = number;
    facts.granted = {4, 4, 4, 2, 100};
    open(endpoint.send, qp_of, facts);
    open(endpoint.receive, qp_of, facts);
    endpoint.send.select(true);
    endpoint.set_user_index(user_index);
    qp.qp_num = number;
    endpoint.qp = &qp;
    endpoint.set_flags();
    table.set(user_index, &endpoint);
  }

  std::uint8_t *cqe(std::uint32_t index) {
    return memory + (index % entries + 1) * entry_bytes - 64;
  }

  struct Fields {
    std::uint8_t opcode = 0;
    std::uint16_t counter = 0;
    std::uint32_t bytes = 0;
    std::uint8_t send_opcode = 0;
    std::uint32_t index = user_index;
    std::uint8_t format = 0;
    std::uint32_t imm = 0;     // as a number
    std::uint32_t source = 0;  // with flags
    std::uint8_t syndrome = 0, vendor = 0;
    std::uint64_t timestamp = 0;
  };
  std::uint8_t *add(const Fields &f) {
    std::uint8_t *at = cqe(produced);
    std::memset(at, 0, 63);
    at[17] = 0x85;
    store(at + 22, be(std::uint16_t{0x1234}));
    store(at + 24, be(f.source));
    store(at + 32, be(f.index | 0xee000000u) & ~0xeeu);
    store(at + 36, be(f.imm));
    store(at + 44, be(f.bytes));
    store(at + 48, be(f.timestamp));
    if (f.syndrome != 0) {
      at[54] = f.vendor;
      at[55] = f.syndrome;
    }
    store(at + 56, be(std::uint32_t{f.send_opcode} << 24 | number));
    store(at + 60, be(f.counter));
    at[63] = static_cast<std::uint8_t>(f.opcode << 4 | f.format << 2 | (produced / entries & 1));
    ++produced;
    return at;
  }

  void post_sends(int count) {
    for (int i = 0; i < count; ++i) {
      Request wr(IBV_WR_SEND, IBV_SEND_SIGNALED);
      wr.wr_id = 100 + static_cast<std::uint64_t>(i);
      REQUIRE(endpoint.send.post(endpoint.send, &wr, nullptr) == 0);
    }
  }
  int post_receives(int count, std::uint64_t first = 200, std::vector<ibv_sge> list = {}) {
    for (int i = 0; i < count; ++i) {
      ibv_recv_wr wr{};
      wr.wr_id = first + static_cast<std::uint64_t>(i);
      wr.sg_list = list.data();
      wr.num_sge = static_cast<int>(list.size());
      if (const int error = post_receive(endpoint.receive, &wr, nullptr)) return error;
    }
    return 0;
  }
  std::uint32_t consumed() const { return be(records[0]); }
};

// In every size that a release had, and one that none had; nothing is written
// beyond. What a field has that means nothing for the completion: what was there.
constexpr std::uint8_t before = 0xa5;
constexpr std::uint32_t kept = 0xa5a5a5a5;
constexpr std::uint64_t kept_word = 0xa5a5a5a5a5a5a5a5;

template <class Check>
void each_size(const PollRig::Fields &fields, bool receive, Check check) {
  for (const std::uint32_t size : {88u, 104u, 96u, 48u}) {
    CAPTURE(size);
    PollRig rig;
    rig.post_sends(1);
    rig.post_receives(1);
    rig.add(fields);
    Bytes memory(2 * size + 64, before);
    auto *wc = reinterpret_cast<ibv_exp_wc *>(memory.data());
    REQUIRE(poll(rig.queue, 2, wc, size) == 1);
    CHECK(Bytes(memory.begin() + size, memory.end()) == Bytes(size + 64, before));
    ibv_exp_wc whole{};
    std::memcpy(static_cast<void *>(&whole), wc, std::min<std::size_t>(size, sizeof(whole)));
    CHECK(whole.wr_id == (receive ? 200 : 100));
    CHECK(whole.qp_num == number);
    if (size > 80) {
      CHECK(whole.qp == &rig.qp);
      CHECK(whole.timestamp == kept_word);
    }
    if (size > 80) {
      CHECK(reinterpret_cast<std::uintptr_t>(whole.srq) == kept_word);
      CHECK(reinterpret_cast<std::uintptr_t>(whole.dct) == kept_word);
    }
    if (size == sizeof(whole)) CHECK(whole.tm_info.tag == kept_word);
    check(whole, size);
    CHECK(rig.consumed() == 1);
  }
}

std::uint64_t qp_flag() { return IBV_EXP_WC_QP; }

}  // namespace

TEST_CASE("engine: completions of requests") {
  struct Row {
    std::uint8_t opcode;
    int wc;
    std::uint32_t bytes;
  };
  const Row rows[] = {{0x0a, IBV_WC_SEND, kept},       {0x0b, IBV_WC_SEND, kept},
                      {0x01, IBV_WC_SEND, kept},       {0x08, IBV_WC_RDMA_WRITE, kept},
                      {0x09, IBV_WC_RDMA_WRITE, kept}, {0x10, IBV_WC_RDMA_READ, 77},
                      {0x11, IBV_WC_COMP_SWAP, 8},     {0x12, IBV_WC_FETCH_ADD, 8},
                      {0x00, int(kept), kept}};
  for (const Row &row : rows) {
    CAPTURE(int{row.opcode});
    const unsigned immediate = row.opcode == 0x0b || row.opcode == 0x09 ? IBV_WC_WITH_IMM : 0;
    PollRig::Fields fields;
    fields.send_opcode = row.opcode;
    fields.bytes = 77;
    each_size(fields, false, [&](const ibv_exp_wc &wc, std::uint32_t size) {
      CHECK(wc.status == IBV_WC_SUCCESS);
      CHECK(int{wc.exp_opcode} == row.wc);
      CHECK(wc.byte_len == row.bytes);
      CHECK(wc.vendor_err == kept);
      CHECK(wc.imm_data == kept);
      CHECK(wc.src_qp == kept);
      CHECK(wc.pkey_index == std::uint16_t(kept));
      CHECK(wc.sl == before);
      if (size > 80) CHECK(wc.exp_wc_flags == (qp_flag() | immediate));
    });
    PollRig rig;
    rig.post_sends(1);
    rig.add(fields);
    ibv_wc wc;
    std::memset(&wc, before, sizeof(wc));
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
    CHECK(wc.wr_id == 100);
    CHECK(int{wc.opcode} == row.wc);
    CHECK(wc.byte_len == row.bytes);
    CHECK(wc.imm_data == kept);
    CHECK(wc.slid == std::uint16_t(kept));
    CHECK(wc.wc_flags == immediate);
    CHECK(wc.qp_num == number);
    CHECK(rig.endpoint.send.done == 1);
  }
}

TEST_CASE("engine: completions of messages") {
  struct Row {
    std::uint8_t opcode;
    int wc;
    unsigned flags;
    std::uint64_t exp_flags;
    std::uint32_t imm;  // as it lies in memory
  };
  const Row rows[] = {
      {1, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM, IBV_EXP_WC_WITH_IMM, be(0x01020304u)},
      {2, IBV_WC_RECV, 0, 0, kept},
      {3, IBV_WC_RECV, IBV_WC_WITH_IMM, IBV_EXP_WC_WITH_IMM, be(0x01020304u)},
      {4, IBV_WC_RECV, IBV_WC_WITH_INV, IBV_EXP_WC_WITH_INV, 0x01020304},
  };
  for (const Row &row : rows) {
    CAPTURE(int{row.opcode});
    PollRig::Fields fields;
    fields.opcode = row.opcode;
    fields.bytes = 99;
    fields.imm = 0x01020304;
    fields.source = 0x15654321;  // with GRH, service level 5
    each_size(fields, true, [&](const ibv_exp_wc &wc, std::uint32_t size) {
      CHECK(int{wc.exp_opcode} == row.wc);
      CHECK(wc.byte_len == 99);
      CHECK(wc.imm_data == row.imm);
      CHECK(wc.src_qp == 0x654321);
      CHECK(wc.sl == 5);
      CHECK(wc.slid == 0x1234);
      CHECK(wc.dlid_path_bits == 5);
      CHECK(wc.pkey_index == 0x0304);
      std::uint64_t flags = row.exp_flags | IBV_EXP_WC_QP | IBV_EXP_WC_GRH;
      // 3.x and 4.0 have another bit for it.
      if (size == 88 && row.opcode == 4) flags |= std::uint64_t{IBV_EXP_START_FLAG} << 2;
      if (size > 80) CHECK(wc.exp_wc_flags == flags);
    });
    PollRig rig;
    rig.post_receives(1);
    rig.add(fields);
    ibv_wc wc;
    std::memset(&wc, before, sizeof(wc));
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
    CHECK(wc.wr_id == 200);
    CHECK(wc.wc_flags == (row.flags | IBV_WC_GRH));
    CHECK(wc.byte_len == 99);
    CHECK(wc.imm_data == row.imm);
    CHECK(rig.endpoint.receive.counters->tail == 1);
  }
}

TEST_CASE("engine: checksums of frames") {
  constexpr std::uint8_t network = 0x02, transport = 0x04, ipv4 = 2 << 2, ipv6 = 1 << 2;
  struct Row {
    std::uint8_t checks, headers;
    bool good;
  };
  const Row rows[] = {{network | transport, ipv4, true},
                      {network, ipv4, false},
                      {transport, ipv4, false},
                      {network | transport, ipv6, false}};
  for (const Row &row : rows) {
    CAPTURE(int{row.checks}, int{row.headers});
    PollRig rig;
    rig.endpoint.frames = true;
    rig.endpoint.set_flags();
    rig.post_receives(1);
    PollRig::Fields fields;
    fields.opcode = 2;
    std::uint8_t *at = rig.add(fields);
    at[28] = row.checks;
    at[29] = row.headers;
    ibv_wc wc{};
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
    CHECK(((wc.wc_flags & IBV_WC_IP_CSUM_OK) != 0) == row.good);
  }
}

TEST_CASE("engine: there is no completion in less than the base structure") {
  PollRig rig;
  rig.post_sends(1);
  rig.add({});
  ibv_exp_wc wc;
  CHECK(poll(rig.queue, 1, &wc, 47) == -EINVAL);
  CHECK(rig.consumed() == 0);
  PollRig empty;
  CHECK(poll(empty.queue, 1, &wc, 47) == 0);
}

TEST_CASE("engine: an empty queue, and one that goes round") {
  for (const std::uint32_t bytes : {64u, 128u}) {
    CAPTURE(bytes);
    PollRig rig(bytes);
    ibv_wc wc[8];
    CHECK(poll(rig.queue, 8, wc) == 0);
    for (std::uint64_t round = 0; round < 11; ++round) {
      rig.post_sends(3);
      for (int i = 0; i < 3; ++i) {
        PollRig::Fields fields;
        fields.send_opcode = 0x0a;
        fields.counter = static_cast<std::uint16_t>(3 * round + i);
        rig.add(fields);
      }
      REQUIRE(poll(rig.queue, 2, wc) == 2);
      REQUIRE(poll(rig.queue, 8, wc + 2) == 1);
      CHECK(wc[0].wr_id == 100);
      CHECK(wc[2].wr_id == 102);
      CHECK(rig.consumed() == 3 * round + 3);
      CHECK(poll(rig.queue, 8, wc) == 0);
    }
  }
}

TEST_CASE("engine: a closed queue is empty, wherever it was") {
  for (std::uint32_t taken = 0; taken < 8; ++taken) {
    CAPTURE(taken);
    PollRig rig;
    ibv_wc wc[4];
    for (std::uint32_t i = 0; i < taken; ++i) {
      rig.post_sends(1);
      PollRig::Fields fields;
      fields.send_opcode = 0x0a;
      fields.counter = static_cast<std::uint16_t>(i);
      rig.add(fields);
      REQUIRE(poll(rig.queue, 4, wc) == 1);
    }
    close(rig.queue);
    CHECK(is_closed(rig.queue));
    // Nor is what lies behind it taken for a completion of a queue that is not known.
    int found = -1;
    CHECK(log_of([&] { found = poll(rig.queue, 4, wc); }).empty());
    CHECK(found == 0);
  }
}

TEST_CASE("engine: of the polls that find nothing one in 32 takes a lock of the C library") {
  PollRig rig;
  ibv_wc wc;
  ibv_exp_wc exp;
  const unsigned before = libc_locks;
  for (int i = 0; i < 320; ++i) poll(rig.queue, 1, &wc);
  CHECK(libc_locks == before + 10);
  for (int i = 0; i < 320; ++i) poll(rig.queue, 1, &exp, sizeof(exp));
  CHECK(libc_locks == before + 20);
  rig.queue.stamps = ibvexp::StampKind::system_time;
  for (int i = 0; i < 320; ++i) poll(rig.queue, 1, &exp, sizeof(exp));
  CHECK(libc_locks == before + 30);
  for (int i = 0; i < 64; ++i) {
    rig.post_sends(1);
    PollRig::Fields fields;
    fields.send_opcode = 0x0a;
    fields.counter = static_cast<std::uint16_t>(i);
    rig.add(fields);
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
  }
  CHECK(libc_locks == before + 30);
}

TEST_CASE("engine: the index goes on behind 24 and 32 bits") {
  PollRig rig;
  for (const std::uint32_t from : {0xfffffcu, 0xfffffffcu}) {
    rig.queue.release(from);
    rig.produced = from;
    for (std::uint32_t i = 0; i < 4; ++i) rig.cqe(i)[63] = 0xf0;
    for (std::uint32_t i = 0; i < 8; ++i) {
      PollRig::Fields fields;
      fields.opcode = 2;
      rig.post_receives(1, i);
      rig.add(fields);
      ibv_wc wc{};
      REQUIRE(poll(rig.queue, 1, &wc) == 1);
      CHECK(wc.wr_id == i);
      CHECK(rig.consumed() == ((from + i + 1) & 0xffffff));
    }
  }
}

TEST_CASE("engine: failed and flushed requests") {
  PollRig rig;
  rig.post_sends(2);
  rig.post_receives(1);
  PollRig::Fields send, receive;
  send.opcode = 13;
  send.counter = 1;  // the first was silent
  send.send_opcode = 0x08;
  send.syndrome = 0x13;
  send.vendor = 0x88;
  receive.opcode = 14;
  receive.syndrome = 0x05;
  rig.add(send);
  rig.add(receive);
  ibv_exp_wc wc[2];
  std::memset(static_cast<void *>(wc), before, sizeof(wc));
  REQUIRE(poll(rig.queue, 2, wc, sizeof(wc[0])) == 2);
  CHECK(wc[0].wr_id == 101);
  CHECK(wc[0].status == IBV_WC_REM_ACCESS_ERR);
  CHECK(wc[0].exp_opcode == IBV_EXP_WC_RDMA_WRITE);
  CHECK(wc[0].vendor_err == 0x88);
  CHECK(wc[0].qp == &rig.qp);
  CHECK(wc[0].qp_num == number);
  CHECK(rig.endpoint.send.done == 2);
  CHECK(wc[1].wr_id == 200);
  CHECK(wc[1].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(wc[1].exp_opcode == kept);
  for (const ibv_exp_wc &each : wc) {
    CHECK(each.exp_wc_flags == IBV_EXP_WC_QP);
    CHECK(each.byte_len == kept);
    CHECK(each.imm_data == kept);
    CHECK(each.timestamp == kept_word);
  }
  CHECK(rig.endpoint.receive.limit() - rig.endpoint.receive.counters->head == 4);
}

TEST_CASE("engine: failed requests of a queue with time stamps") {
  for (const std::uint32_t size : {88u, 104u, 96u}) {
    CAPTURE(size);
    PollRig rig;
    rig.queue.stamps = ibvexp::StampKind::cycles;
    rig.post_sends(1);
    PollRig::Fields send;
    send.opcode = 13;
    send.syndrome = 0x13;
    send.vendor = 0x88;
    rig.add(send);
    ibv_exp_wc wc{};
    REQUIRE(poll(rig.queue, 1, &wc, size) == 1);
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
    CHECK(wc.exp_wc_flags == (IBV_EXP_WC_QP | IBV_EXP_WC_WITH_TIMESTAMP));
    CHECK(wc.timestamp == 0x8813);  // the word of the entry
  }
}

TEST_CASE("engine: failed requests by the base verb") {
  PollRig rig;
  rig.post_sends(1);
  rig.post_receives(1);
  PollRig::Fields send, receive;
  send.opcode = 13;
  send.syndrome = 0x13;
  receive.opcode = 14;
  receive.syndrome = 0x05;
  rig.add(send);
  rig.add(receive);
  ibv_wc wc[2];
  std::memset(wc, before, sizeof(wc));
  REQUIRE(poll(rig.queue, 2, wc) == 2);
  CHECK(wc[0].status == IBV_WC_REM_ACCESS_ERR);
  CHECK(wc[1].wr_id == 200);
  CHECK(wc[1].status == IBV_WC_WR_FLUSH_ERR);
  // As libmlx5 has it.
  for (const ibv_wc &each : wc) {
    CHECK(each.opcode == kept);
    CHECK(each.byte_len == kept);
    CHECK(each.wc_flags == 0);
  }
}

TEST_CASE("engine: data inside completions") {
  Bytes front(20), back(44);
  const std::vector<ibv_sge> list{piece_of(front), piece_of(back)};
  const Bytes data = counted(40);
  for (const std::uint8_t format : {1, 2}) {
    CAPTURE(int{format});
    PollRig rig(128);
    REQUIRE(rig.post_receives(1, 200, list) == 0);
    PollRig::Fields fields;
    fields.opcode = 2;
    fields.format = format;
    fields.bytes = format == 1 ? 32 : 40;
    std::uint8_t *at = rig.add(fields);
    const std::uint32_t length = fields.bytes;
    const std::uint8_t kept[32] = {};
    static_cast<void>(kept);
    if (format == 1) std::memcpy(at, data.data(), 16);  // what does not hide a field
    else std::memcpy(at - 64, data.data(), length);
    ibv_wc wc{};
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.byte_len == length);
    CHECK(Bytes(front.begin(), front.begin() + 16) == Bytes(data.begin(), data.begin() + 16));
    if (format == 2)
      CHECK(Bytes(back.begin(), back.begin() + 20) == Bytes(data.begin() + 20, data.end()));
  }
  // The answer to a read, whose entry passes the end of the ring.
  PollRig rig(128);
  *rig.endpoint.send.posted = 7;
  Request wr(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {{1, 1, 1}, piece_of(front), piece_of(back)});
  std::uint8_t first = 0;
  wr.pieces[0].addr = reinterpret_cast<std::uintptr_t>(&first);
  REQUIRE(rig.endpoint.send.post(rig.endpoint.send, &wr, nullptr) == 0);
  PollRig::Fields fields;
  fields.format = 2;
  fields.counter = 7;
  fields.bytes = 40;
  fields.send_opcode = 0x10;
  std::memcpy(rig.add(fields) - 64, data.data(), 40);
  ibv_wc wc{};
  REQUIRE(poll(rig.queue, 1, &wc) == 1);
  CHECK(wc.byte_len == 40);
  CHECK(first == 1);
  CHECK(front == Bytes(data.begin() + 1, data.begin() + 21));
  CHECK(Bytes(back.begin(), back.begin() + 19) == Bytes(data.begin() + 21, data.end()));
}

TEST_CASE("engine: the answer to an atomic inside its completion") {
  PollRig rig(128);
  Bytes answer(8);
  const Bytes data = counted(8);
  Request wr(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, {piece_of(answer)});
  REQUIRE(rig.endpoint.send.post(rig.endpoint.send, &wr, nullptr) == 0);
  PollRig::Fields fields;
  fields.format = 2;
  fields.bytes = 77;
  fields.send_opcode = 0x12;
  std::memcpy(rig.add(fields) - 64, data.data(), 8);
  ibv_wc wc{};
  REQUIRE(poll(rig.queue, 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(answer == data);
}

TEST_CASE("engine: more data in a completion than there is room for") {
  Bytes room(20);
  SECTION("a message") {
    PollRig rig(128);
    REQUIRE(rig.post_receives(1, 200, {piece_of(room)}) == 0);
    PollRig::Fields fields;
    fields.opcode = 2;
    fields.format = 2;
    fields.bytes = 21;
    rig.add(fields);
    ibv_wc wc{};
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
    CHECK(wc.wr_id == 200);
    CHECK(wc.status == IBV_WC_LOC_LEN_ERR);
  }
  SECTION("an answer") {
    PollRig rig(128);
    Request wr(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {piece_of(room)});
    REQUIRE(rig.endpoint.send.post(rig.endpoint.send, &wr, nullptr) == 0);
    PollRig::Fields fields;
    fields.format = 2;
    fields.bytes = 21;
    fields.send_opcode = 0x10;
    rig.add(fields);
    ibv_wc wc{};
    REQUIRE(poll(rig.queue, 1, &wc) == 1);
    CHECK(wc.wr_id == wr.wr_id);
    CHECK(wc.status == IBV_WC_LOC_LEN_ERR);
  }
  SECTION("a list ends where it says") {
    Bytes stale(20);
    const auto piece = [](Bytes &of) {
      return pointer(reinterpret_cast<std::uintptr_t>(of.data()), 20, 7);
    };
    const Bytes list = piece(room) + end_of_list() + piece(stale), data = counted(40);
    CHECK_FALSE(scatter_inline(list.data(), 3, data.data(), 40));
    CHECK(room == Bytes(data.begin(), data.begin() + 20));
    CHECK(stale == Bytes(20));
  }
}

namespace {

// Two completions, and behind them an entry of before that names queue 0x1111.
void add_two_and_unwritten(PollRig &rig) {
  rig.post_sends(2);
  rig.add({});
  rig.add({0, 1});
  store(rig.cqe(2) + 32, be(0x1111u));
  rig.cqe(2)[63] = GENERATE(0x01, 0xf0, 0xf1);
}

}  // namespace

// Its number may have been given to a queue that completes elsewhere, which will not be
// taken out of this one when it goes.
TEST_CASE("an entry that the device has not written makes no queue the latest") {
  PollRig rig;
  Endpoint elsewhere;
  elsewhere.set_user_index(0x1111);
  rig.table.set(0x1111, &elsewhere);
  add_two_and_unwritten(rig);
  ibv_wc wc[4];
  REQUIRE(poll(rig.queue, 4, wc) == 2);
  CHECK(rig.queue.last == &rig.endpoint);
}

TEST_CASE("an entry that the device has not written is of no queue") {
  // It names a queue that completes elsewhere, and may go at any moment.
  void *gone = mmap(nullptr, sizeof(Endpoint), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  PollRig rig;
  rig.table.set(0x1111, static_cast<Endpoint *>(gone));
  add_two_and_unwritten(rig);
  ibv_wc wc[4];
  CHECK(poll(rig.queue, 4, wc) == 2);
  munmap(gone, sizeof(Endpoint));
}

namespace {

// A shared receive queue in its memory, whose entries are linked one to the next.
template <std::uint16_t entries, std::uint32_t stride, std::uint32_t pieces>
struct SharedRig {
  alignas(64) std::uint8_t memory[entries * stride] = {};
  std::uint32_t record = 0;
  SharedQueue queue;

  SharedRig() {
    for (std::uint16_t i = 0; i < entries; ++i)
      store(memory + stride * i + 2, be(static_cast<std::uint16_t>(i + 1)));
    mlx5dv_srq of{};
    of.buf = memory;
    of.dbrec = &record;
    of.stride = stride;
    of.tail = entries - 1;
    open(queue, of, entries - 1, pieces);
  }
};

}  // namespace

TEST_CASE("engine: a shared receive queue") {
  PollRig rig;
  SharedRig<4, 64, 3> of;
  SharedQueue &shared = of.queue;
  // With the processor's shuffle and without.
  if (GENERATE(false, true)) {
    shared.shuffles = false;
    shared.post = post_for(shared);
  }
  const std::uint8_t *const memory = of.memory;
  const std::uint32_t &record = of.record;
  rig.endpoint.shared = &shared;
  rig.endpoint.srq = &rig.srq;
  rig.endpoint.set_flags();

  ibv_sge pieces[2] = {{0x10, 1, 2}, {0x20, 3, 4}};
  ibv_recv_wr wr[4] = {};
  for (int i = 0; i < 4; ++i) {
    wr[i].wr_id = static_cast<std::uint64_t>(300 + i);
    wr[i].sg_list = pieces;
    wr[i].num_sge = i % 3;
    wr[i].next = i < 3 ? &wr[i + 1] : nullptr;
  }
  ibv_recv_wr *bad = nullptr;
  CHECK(post_receive(shared, wr, &bad) == ENOMEM);
  CHECK(bad == &wr[3]);
  CHECK(be(record) == 3);
  CHECK(Bytes(memory + 64 + 16, memory + 64 + 48) == pointer(0x10, 1, 2) + end_of_list());
  CHECK(Bytes(memory + 128 + 16, memory + 192) ==
        pointer(0x10, 1, 2) + pointer(0x20, 3, 4) + end_of_list());

  // They complete in any order, and are posted again in that order.
  for (const std::uint16_t index : {std::uint16_t{1}, std::uint16_t{0}}) {
    PollRig::Fields fields;
    fields.opcode = 2;
    fields.counter = index;
    rig.add(fields);
  }
  ibv_exp_wc wc[2];
  REQUIRE(poll(rig.queue, 2, wc, sizeof(wc[0])) == 2);
  CHECK(wc[0].wr_id == 301);
  CHECK(wc[1].wr_id == 300);
  CHECK(wc[0].srq == &rig.srq);
  CHECK((wc[0].exp_wc_flags & (IBV_EXP_WC_QP | IBV_EXP_WC_SRQ)) ==
        (std::uint64_t{IBV_EXP_WC_QP} | IBV_EXP_WC_SRQ));
  CHECK(shared.counters->head == 3);
  CHECK(shared.counters->tail == 0);
  wr[0].next = nullptr;
  CHECK(post_receive(shared, wr, &bad) == 0);
  CHECK(shared.counters->head == 1);
  wr[1].next = nullptr;
  CHECK(post_receive(shared, &wr[1], &bad) == 0);
  CHECK(shared.counters->head == 0);
  CHECK(post_receive(shared, &wr[1], &bad) == ENOMEM);
  CHECK(bad == &wr[1]);
  wr[0].num_sge = 4;
  CHECK(post_receive(shared, wr, &bad) == EINVAL);

  // A failed request has nothing to do with it.
  rig.post_sends(1);
  PollRig::Fields failed;
  failed.opcode = 13;
  failed.syndrome = 0x13;
  rig.add(failed);
  REQUIRE(poll(rig.queue, 1, wc, sizeof(wc[0])) == 1);
  CHECK((wc[0].exp_wc_flags & IBV_EXP_WC_SRQ) == 0);

  // Unread completions of a queue pair that is reset give their entries back, but
  // for a program that posts by itself.
  PollRig::Fields unread;
  unread.opcode = 2;
  unread.counter = 2;
  rig.add(unread);
  rig.queue.last = &rig.endpoint;
  clean(rig.queue, rig.endpoint);
  CHECK(rig.queue.last == no_endpoint());
  CHECK(shared.counters->tail == 2);
  *shared.counter = 0;
  shared.posted = false;
  unread.counter = 3;
  rig.add(unread);
  clean(rig.queue, rig.endpoint);
  CHECK(shared.counters->tail == 2);
}

TEST_CASE("engine: a shared receive queue whose entries have room for one piece") {
  SharedRig<8, 32, 1> of;
  SharedQueue &shared = of.queue;
  ibv_sge pieces[2] = {{0x10, 1, 2}, {0x20, 0, 4}};
  ibv_recv_wr wr[4] = {};
  for (int i = 0; i < 4; ++i) {
    wr[i].wr_id = static_cast<std::uint64_t>(300 + i);
    wr[i].sg_list = pieces;
    wr[i].num_sge = 1;
    wr[i].next = i < 3 ? &wr[i + 1] : nullptr;
  }
  // One without bytes among them, and one without a piece.
  wr[1].sg_list = pieces + 1;
  wr[2].num_sge = 0;
  ibv_recv_wr *bad = nullptr;
  REQUIRE(post_receive(shared, wr, &bad) == 0);
  CHECK(be(of.record) == 4);
  CHECK(shared.counters->head == 4);
  for (unsigned i = 0; i < 4; ++i) {
    CHECK(shared.ids[i] == 300 + i);
    CHECK(Bytes(of.memory + 32 * i + 16, of.memory + 32 * i + 32) ==
          (i % 3 == 0 ? pointer(0x10, 1, 2) : end_of_list()));
  }

  // What stands in front of a bad one is posted.
  wr[1].sg_list = pieces;
  wr[1].num_sge = 2;
  CHECK(post_receive(shared, wr, &bad) == EINVAL);
  CHECK(bad == &wr[1]);
  CHECK(be(of.record) == 5);
  wr[1].num_sge = 1;
  wr[1].sg_list = nullptr;
  CHECK(post_receive(shared, &wr[1], &bad) == EINVAL);
  CHECK(bad == &wr[1]);
  wr[1].sg_list = pieces;
  wr[2].num_sge = 1;
  CHECK(post_receive(shared, wr, &bad) == ENOMEM);
  CHECK(bad == &wr[2]);
  CHECK(be(of.record) == 7);
  CHECK(post_receive(shared, &wr[3], &bad) == ENOMEM);
  CHECK(bad == &wr[3]);
  CHECK(post_receive(shared, nullptr, &bad) == 0);
  CHECK(be(of.record) == 7);
}

TEST_CASE("engine: a shared receive queue that takes no piece") {
  SharedRig<4, 32, 0> of;
  ibv_sge piece{0x10, 1, 2};
  ibv_recv_wr first{}, second{}, *bad = nullptr;
  second.sg_list = &piece;
  second.num_sge = 1;
  first.next = &second;
  CHECK(post_receive(of.queue, &first, &bad) == EINVAL);
  CHECK(bad == &second);
  CHECK(be(of.record) == 1);
  bad = nullptr;
  CHECK(post_receive(of.queue, &second, &bad) == EINVAL);
  CHECK(bad == &second);
}

TEST_CASE("engine: messages of a shared queue, one after the other and among others") {
  PollRig rig;
  SharedRig<8, 64, 3> of;
  SharedQueue &shared = of.queue;
  rig.endpoint.shared = &shared;
  rig.endpoint.set_flags();
  ibv_recv_wr wr[5] = {};
  for (int i = 0; i < 5; ++i) {
    wr[i].wr_id = static_cast<std::uint64_t>(300 + i);
    wr[i].next = i < 4 ? &wr[i + 1] : nullptr;
  }
  REQUIRE(post_receive(shared, wr, nullptr) == 0);
  rig.post_sends(1);
  PollRig::Fields sent;
  sent.send_opcode = 0x0a;
  std::uint16_t next = 0;
  const auto add_message = [&] {
    PollRig::Fields message;
    message.opcode = 2;
    message.counter = next++;
    rig.add(message);
  };
  for (int i = 0; i < 3; ++i) add_message();
  ibv_wc wc[8];
  REQUIRE(poll(rig.queue, 2, wc) == 2);
  CHECK(wc[1].wr_id == 301);
  CHECK(rig.consumed() == 2);
  CHECK(shared.counters->tail == 1);
  // One is left, and others come.
  add_message();
  rig.add(sent);
  add_message();
  REQUIRE(poll(rig.queue, 8, wc) == 4);
  CHECK(wc[0].wr_id == 302);
  CHECK(wc[1].wr_id == 303);
  CHECK(wc[2].opcode == IBV_WC_SEND);
  CHECK(wc[3].wr_id == 304);
  CHECK(rig.consumed() == 6);
  CHECK(shared.counters->tail == 4);
  CHECK(poll(rig.queue, 8, wc) == 0);
}

TEST_CASE("engine: entries of a shared queue are free again, however many were posted") {
  PollRig rig;
  SharedRig<2, 64, 3> of;
  SharedQueue &shared = of.queue;
  rig.endpoint.shared = &shared;
  rig.endpoint.set_flags();
  *shared.counter = 0xffff;
  ibv_recv_wr wr{};
  REQUIRE(post_receive(shared, &wr, nullptr) == 0);
  REQUIRE(*shared.counter == 0);
  PollRig::Fields received;
  received.opcode = 2;
  rig.add(received);
  clean(rig.queue, rig.endpoint);
  CHECK(shared.counters->tail == 0);
}

TEST_CASE("engine: receive requests") {
  PollRig rig;
  std::vector<ibv_sge> list{{0x10, 1, 2}, {0x30, 0, 4}};
  REQUIRE(rig.post_receives(1, 200, list) == 0);
  // A piece without bytes takes no place.
  CHECK(Bytes(rig.receives, rig.receives + 32) == pointer(0x10, 1, 2) + end_of_list());
  REQUIRE(rig.post_receives(1, 200, {list[1]}) == 0);
  CHECK(Bytes(rig.receives + 32, rig.receives + 48) == end_of_list());
  rig.endpoint.receive.counters->head = 1;
  list[1].length = 5;
  REQUIRE(rig.post_receives(1, 200, list) == 0);
  CHECK(Bytes(rig.receives + 32, rig.receives + 64) == pointer(0x10, 1, 2) + pointer(0x30, 5, 4));
  CHECK(be(rig.sends.records[0]) == 2);
  CHECK(rig.post_receives(1, 200, {list[0], list[0], list[0]}) == EINVAL);
  ibv_recv_wr without_list{}, *bad = nullptr;
  without_list.num_sge = 1;
  CHECK(post_receive(rig.endpoint.receive, &without_list, &bad) == EINVAL);
  CHECK(bad == &without_list);
  CHECK(rig.post_receives(2, 200, list) == 0);
  CHECK(rig.post_receives(1, 200, list) == ENOMEM);
  CHECK(be(rig.sends.records[0]) == 4);
  // The doorbell record wraps at 16 bits.
  *rig.endpoint.receive.counters = {0xffff, 0xffff};
  CHECK(rig.post_receives(1, 200, list) == 0);
  CHECK(be(rig.sends.records[0]) == 0);
  // The doorbell record of a raw packet queue pair stays as it is before RTR.
  rig.endpoint.receive.reset();
  ibv_qp frames{};
  frames.state = IBV_QPS_INIT;
  rig.endpoint.receive.held_for = &frames;
  rig.sends.records[0] = 0;
  CHECK(rig.post_receives(1, 200, list) == 0);
  CHECK(rig.sends.records[0] == 0);
  CHECK(rig.post_receives(1, 200, {list[0]}) == 0);
  CHECK(rig.sends.records[0] == 0);
  frames.state = IBV_QPS_RTR;
  rig.endpoint.receive.ring();
  CHECK(be(rig.sends.records[0]) == 2);
  rig.endpoint.receive.held_for = nullptr;
  *rig.endpoint.receive.counters = {0x10001, 0x10001};
  rig.endpoint.receive.ring();
  CHECK(be(rig.sends.records[0]) == 1);
  *rig.endpoint.receive.counters = {0xffff, 0xffff};
  CHECK(rig.post_receives(1, 200, {list[0]}) == 0);
  CHECK(be(rig.sends.records[0]) == 0);
}

TEST_CASE("engine: receives of the families") {
  PollRig rig;
  const ibv_sge list[] = {{0x10, 1, 2}, {0x30, 5, 4}, {0x50, 0x80000000u, 6}};
  ReceiveQueue &queue = rig.endpoint.receive;
  CHECK(post_list(rig.endpoint, list, 2) == 0);
  CHECK(Bytes(rig.receives, rig.receives + 32) == pointer(0x10, 1, 2) + pointer(0x30, 5, 4));
  const ibv_sge three[] = {list[0], list[1], list[0]};
  CHECK(post_list(rig.endpoint, three, 3) == EINVAL);
  CHECK(post_list(rig.endpoint, list + 2, 1) == EINVAL);
  CHECK(be(rig.sends.records[0]) == 1);
  // All or none.
  CHECK(post_pieces(rig.endpoint, list, 3) == EINVAL);
  CHECK(queue.counters->head == 1);
  CHECK(post_pieces(rig.endpoint, list, 2) == 0);
  CHECK(Bytes(rig.receives + 32, rig.receives + 64) == pointer(0x10, 1, 2) + end_of_list());
  CHECK(be(rig.sends.records[0]) == 3);
  CHECK(post_pieces(rig.endpoint, list, 2) == ENOMEM);
  CHECK(post_pieces(rig.endpoint, list, 0) == 0);
  CHECK(post_list(rig.endpoint, list, 1) == 0);
  CHECK(post_list(rig.endpoint, list, 1) == ENOMEM);
}

TEST_CASE("engine: receives of the families, where the program reads completions itself") {
  PollRig rig;
  rig.endpoint.completes_on[1] = &rig.queue;
  const std::vector<ibv_sge> list(5, {0x10, 1, 2});
  CHECK(post_pieces(rig.endpoint, list.data(), 5) == ENOMEM);
  CHECK(post_pieces(rig.endpoint, list.data(), 4) == 0);
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == ENOMEM);
  // Of others, and a request.
  PollRig::Fields stranger, request, own;
  stranger.opcode = own.opcode = 2;
  stranger.index = 5;
  rig.add(stranger);
  rig.add(request);
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == ENOMEM);
  // The device is done with as many as it says, and no more; one in error is done as well.
  own.counter = 1;
  rig.add(own);
  CHECK(post_pieces(rig.endpoint, list.data(), 3) == ENOMEM);
  CHECK(post_pieces(rig.endpoint, list.data(), 2) == 0);
  CHECK(post_list(rig.endpoint, list.data(), 1) == ENOMEM);
  own.opcode = 14;
  own.syndrome = 5;
  own.counter = 2;
  rig.add(own);
  CHECK(post_list(rig.endpoint, list.data(), 1) == 0);
  CHECK(post_list(rig.endpoint, list.data(), 1) == ENOMEM);
  // Verbs count what was polled.
  CHECK(rig.post_receives(1, 200, {list[0]}) == ENOMEM);
  CHECK(rig.post_receives(1, 200, {list[0], list[0]}) == ENOMEM);
  // Over and over, and where the counter in completions wraps.
  std::uint32_t done = 3;
  own.opcode = 2;
  own.syndrome = 0;
  for (; done < 70'000; ++done) {
    own.counter = static_cast<std::uint16_t>(done);
    rig.add(own);
    REQUIRE(post_pieces(rig.endpoint, list.data(), 1) == 0);
    REQUIRE(post_pieces(rig.endpoint, list.data(), 1) == ENOMEM);
  }
  // What the library polls counts again from where that was.
  rig.endpoint.receive.reset();
  CHECK(post_pieces(rig.endpoint, list.data(), 4) == 0);
}

TEST_CASE("engine: receives of strides, where the program reads completions itself") {
  PollRig rig;
  rig.endpoint.completes_on[1] = &rig.queue;
  rig.endpoint.receive.strides = 8;
  const std::vector<ibv_sge> list(4, {0x10, 64, 2});
  REQUIRE(post_pieces(rig.endpoint, list.data(), 4) == 0);
  PollRig::Fields own;
  own.opcode = 2;
  own.counter = 3;  // strides 3 and 4
  own.bytes = 2 << 16 | 100;
  std::uint8_t *at = rig.add(own);
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == ENOMEM);
  own.counter = 5;  // 5 to 7
  own.bytes = 3 << 16 | 100;
  rig.add(own);
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == 0);
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == ENOMEM);
  // In the third entry the two before it are done.
  own.counter = 0;
  at = rig.add(own);
  store(at + 2, be(std::uint16_t{2}));
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == 0);
  CHECK(post_pieces(rig.endpoint, list.data(), 1) == ENOMEM);
}

TEST_CASE("engine: completions of a queue that went hide nothing, and are reported once") {
  PollRig rig;
  rig.post_receives(1);
  PollRig::Fields stranger, own;
  stranger.index = 5;
  own.opcode = 2;
  rig.add(stranger);
  rig.add(stranger);
  rig.add(own);
  ibv_wc wc{};
  int found = 0;
  const std::string log = log_of([&] { found = poll(rig.queue, 1, &wc); });
  REQUIRE(found == 1);
  CHECK(wc.wr_id == 200);
  CHECK(rig.consumed() == 3);
  CHECK(log.find("(user index 5) that was not created through this library is dropped") !=
        std::string::npos);
  CHECK(std::count(log.begin(), log.end(), '\n') == 1);
}

TEST_CASE("engine: the entry of a resize is no completion") {
  PollRig rig;
  rig.post_receives(1);
  PollRig::Fields resize, own;
  resize.opcode = 5;
  own.opcode = 2;
  rig.add(resize);
  rig.add(own);
  ibv_wc wc[2];
  REQUIRE(poll(rig.queue, 2, wc) == 1);
  CHECK(wc[0].wr_id == 200);
  CHECK(rig.consumed() == 2);
}

TEST_CASE("engine: a queue is cleaned of one that is reset") {
  for (const std::uint32_t bytes : {64u, 128u}) {
    CAPTURE(bytes);
    PollRig rig(bytes);
    Endpoint other;
    std::uint64_t ids[4] = {1, 2, 3, 4};
    other.set_user_index(9);
    other.receive.mask = 3;
    other.receive.ids = ibvexp::make_zeros<std::uint64_t>(4);
    std::copy(ids, ids + 4, other.receive.ids.get());
    rig.table.set(9, &other);
    // From the third slot on, over the end.
    rig.queue.release(2);
    rig.produced = 2;
    PollRig::Fields mine, others;
    mine.opcode = others.opcode = 2;
    others.index = 9;
    rig.add(mine);
    others.bytes = 11;
    rig.add(others);
    rig.add(mine);
    others.bytes = 12;
    rig.add(others);
    clean(rig.queue, rig.endpoint);
    CHECK(*rig.queue.consumed == 4);
    CHECK(rig.consumed() == 4);
    ibv_wc wc[4];
    REQUIRE(poll(rig.queue, 4, wc) == 2);
    CHECK(wc[0].byte_len == 11);
    CHECK(wc[1].byte_len == 12);
    CHECK(rig.consumed() == 6);
    // Nothing left to do.
    clean(rig.queue, rig.endpoint);
    CHECK(rig.consumed() == 6);
  }
}

TEST_CASE("engine: arming") {
  PollRig rig;
  rig.queue.release(0x1000005);
  arm(rig.queue, 6 * arm_step, *rig.queue.consumed, true);
  CHECK(be(rig.records[1]) == 0x21000005);
  CHECK(Bytes(rig.page + 0x20, rig.page + 0x28) == big(0x2100000500000077, 8));
  arm(rig.queue, 6 * arm_step, *rig.queue.consumed, false);
  CHECK(be(rig.records[1]) == 0x20000005);
}

TEST_CASE("engine: time stamps") {
  PollRig rig;
  rig.queue.stamps = ibvexp::StampKind::cycles;
  rig.post_receives(1);
  rig.post_sends(1);
  PollRig::Fields fields;
  fields.opcode = 2;
  fields.timestamp = 0x123456789a;
  rig.add(fields);
  fields.opcode = 0;
  fields.send_opcode = 0x0a;
  rig.add(fields);
  ibv_exp_wc wc[2];
  REQUIRE(poll(rig.queue, 2, wc, sizeof(wc[0])) == 2);
  for (const ibv_exp_wc &each : wc) {
    CHECK(each.timestamp == 0x123456789a);
    CHECK((each.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
    CHECK((each.exp_wc_flags & (IBV_EXP_WC_WITH_SL | IBV_EXP_WC_WITH_SLID)) == 0);
  }
  // 3.x and 4.0 have another bit for a message that invalidates a key.
  rig.post_receives(2);
  fields.opcode = 4;
  rig.add(fields);
  rig.add(fields);
  constexpr std::uint64_t then = std::uint64_t{IBV_EXP_START_FLAG} << 2;
  REQUIRE(poll(rig.queue, 1, wc, sizeof(wc[0])) == 1);
  CHECK((wc[0].exp_wc_flags & (then | IBV_EXP_WC_WITH_INV)) == IBV_EXP_WC_WITH_INV);
  REQUIRE(poll(rig.queue, 1, wc, 88) == 1);
  CHECK((wc[0].exp_wc_flags & (then | IBV_EXP_WC_WITH_INV)) ==
        (then | std::uint64_t{IBV_EXP_WC_WITH_INV}));
  // With the time of day, too.
  rig.queue.stamps = ibvexp::StampKind::system_time;
  rig.post_receives(1);
  fields.timestamp = 0;
  rig.add(fields);
  REQUIRE(poll(rig.queue, 1, wc, 88) == 1);
  CHECK((wc[0].exp_wc_flags & then) != 0);
}

TEST_CASE("engine: compressed completions") {
  PollRig rig;
  // A title that stands for three, over the end of the queue; the array of what
  // differs lies in the slot behind it.
  rig.queue.release(2);
  rig.produced = 2;
  REQUIRE(rig.post_receives(4) == 0);
  PollRig::Fields title;
  title.opcode = 2;
  title.format = 3;
  title.bytes = 3;
  rig.add(title);
  std::uint8_t *array = rig.cqe(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    store(array + 8 * i, std::uint32_t{0});
    store(array + 8 * i + 4, be(100 + i));
  }
  ibv_wc wc[4];
  REQUIRE(poll(rig.queue, 2, wc) == 2);
  REQUIRE(poll(rig.queue, 4, wc + 2) == 1);
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(wc[i].wr_id == 200 + i);
    CHECK(wc[i].byte_len == 100 + i);
    CHECK(wc[i].opcode == IBV_WC_RECV);
  }
  CHECK(rig.consumed() == 5);
  CHECK(poll(rig.queue, 4, wc) == 0);
}

TEST_CASE("engine: compressed completions that all have a place") {
  PollRig rig;
  ibv_exp_wc wc[4];
  // In turn over the end of the queue, so that nothing of a turn is left in the next.
  for (std::uint32_t turn = 0; turn < 4; ++turn) {
    REQUIRE(rig.post_receives(4, 200 + 10 * turn) == 0);
    PollRig::Fields title;
    title.opcode = 2;
    title.format = 3;
    title.bytes = 3;
    title.timestamp = 0x1234;
    title.counter = static_cast<std::uint16_t>(4 * turn);
    // The array has neither kind nor immediate value: both are the title's for all.
    const bool immediate = turn % 2 == 1;
    if (immediate) title.opcode = 3;
    title.imm = 0xabc;
    const std::uint32_t first = rig.produced;
    rig.add(title);
    std::uint8_t *array = rig.cqe(first + 1);
    std::memset(array, 0xf1 ^ static_cast<int>(turn & 1), 64);
    for (std::uint32_t i = 0; i < 3; ++i) store(array + 8 * i + 4, be(100 + 10 * turn + i));
    rig.produced = first + 3;
    title.format = 0;
    title.bytes = 77;
    rig.add(title);
    // There is no room for all at once, and then there is.
    const int at_first = turn == 3 ? 2 : 4;
    REQUIRE(poll(rig.queue, at_first, wc, sizeof(wc[0])) == at_first);
    REQUIRE(poll(rig.queue, 4, wc + at_first, sizeof(wc[0])) == 4 - at_first);
    for (std::uint32_t i = 0; i < 4; ++i) {
      CHECK(wc[i].status == IBV_WC_SUCCESS);
      CHECK(wc[i].wr_id == 200 + 10 * turn + i);
      CHECK(wc[i].byte_len == (i < 3 ? 100 + 10 * turn + i : 77));
      CHECK(wc[i].exp_opcode == IBV_EXP_WC_RECV);
      CHECK(((wc[i].exp_wc_flags & IBV_EXP_WC_WITH_IMM) != 0) == immediate);
      if (immediate) CHECK(wc[i].imm_data == be(std::uint32_t{0xabc}));
      CHECK(wc[i].qp == &rig.qp);
    }
    CHECK(rig.consumed() == 4 * turn + 4);
    CHECK(poll(rig.queue, 4, wc, sizeof(wc[0])) == 0);
  }
}

TEST_CASE("engine: compressed completions are as many as the queue has places, and one at least") {
  for (const std::uint32_t written : {0u, 5u, 0x80000000u, 0xffffffffu}) {
    CAPTURE(written);
    PollRig rig;
    REQUIRE(rig.post_receives(4) == 0);
    PollRig::Fields title;
    title.opcode = 2;
    title.format = 3;
    title.bytes = written;
    rig.add(title);
    std::memset(rig.cqe(1), 0, 63);
    const int count = written == 0 ? 1 : 4;
    ibv_wc wc[8];
    Taken taken;
    CHECK(take_other(rig.queue, 0, false, wc[0], taken) == Take::again);
    REQUIRE(take_other(rig.queue, 0, false, wc[0], taken) == Take::one);  // or never
    REQUIRE(poll(rig.queue, 8, wc) == count);
    CHECK(rig.consumed() == static_cast<std::uint32_t>(count));
  }
  PollRig rig;  // more than the queue has, but no more than asked for
  REQUIRE(rig.post_receives(4) == 0);
  PollRig::Fields title;
  title.opcode = 2;
  title.format = 3;
  title.bytes = 7;
  rig.add(title);
  std::memset(rig.cqe(1), 0, 64);
  ibv_wc wc[8];
  CHECK(poll(rig.queue, 8, wc) == 4);
}

TEST_CASE("engine: what lay in the places of compressed completions is none of the next turn") {
  PollRig rig;
  REQUIRE(rig.post_receives(4) == 0);
  PollRig::Fields title;
  title.opcode = 2;
  title.format = 3;
  title.bytes = 4;
  rig.add(title);
  std::uint8_t *array = rig.cqe(1);
  std::memset(array, 0, 64);
  array[63] = 0x21;  // by chance as a message of the next turn has it
  ibv_wc wc[4];
  REQUIRE(poll(rig.queue, 4, wc) == 4);
  rig.produced = 4;
  REQUIRE(rig.post_receives(2) == 0);
  title.format = 0;
  rig.add(title);
  CHECK(poll(rig.queue, 4, wc) == 1);
  CHECK(rig.consumed() == 5);
}

TEST_CASE("engine: compressed completions of a shared queue name its entries in turn") {
  PollRig rig;
  SharedRig<4, 32, 1> of;
  SharedQueue &shared = of.queue;
  rig.endpoint.shared = &shared;
  rig.endpoint.set_flags();
  for (std::uint64_t i = 0; i < 3; ++i) {
    ibv_recv_wr wr{};
    wr.wr_id = 300 + i;
    REQUIRE(post_receive(shared, &wr, nullptr) == 0);
  }
  PollRig::Fields title;
  title.opcode = 2;
  title.format = 3;
  title.bytes = 3;
  rig.add(title);
  std::memset(rig.cqe(1), 0, 64);
  ibv_wc wc[3];
  REQUIRE(poll(rig.queue, 3, wc) == 3);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(wc[i].wr_id == 300 + i);
}

TEST_CASE("engine: compressed completions of a queue that goes") {
  PollRig rig;
  PollRig::Fields title;
  title.opcode = 2;
  title.format = 3;
  title.bytes = 3;
  rig.add(title);
  std::memset(rig.cqe(1), 0, 64);
  clean(rig.queue, rig.endpoint);
  CHECK(rig.consumed() == 3);
  ibv_wc wc;
  CHECK(poll(rig.queue, 1, &wc) == 0);
}

TEST_CASE("engine: multi-packet queues") {
  PollRig rig;
  ReceiveQueue &queue = rig.endpoint.receive;
  queue.strides = 8;
  queue.log_stride_bytes = 6;
  queue.shift = 2;
  rig.qp.qp_num = 0x4321;
  rig.endpoint.set_flags();
  REQUIRE(rig.post_receives(2) == 0);
  PollRig::Fields packet;
  packet.opcode = 2;
  packet.bytes = 3u << 16 | 130;  // three strides
  rig.add(packet);
  packet.counter = 3;
  packet.bytes = 1u << 31 | 5u << 16;  // the rest is filled up
  rig.add(packet);

  // ibv_wc has no place for them: they stay.
  ibv_wc plain;
  errno = 0;
  CHECK(poll(rig.queue, 1, &plain) == -1);
  CHECK(errno == ENOTSUP);
  ibv_exp_wc wc[2];
  CHECK(poll(rig.queue, 2, wc, sizeof(wc[0])) == -ENOTSUP);
  rig.queue.reports_strides = true;
  REQUIRE(poll(rig.queue, 2, wc, sizeof(wc[0])) == 2);
  CHECK(wc[0].wr_id == 200);
  CHECK(wc[0].qp_num == 0x4321);
  CHECK(wc[0].mp_wr.strides_offset == 0);
  CHECK(wc[0].mp_wr.byte_len == 128);
  CHECK((wc[0].exp_wc_flags & IBV_EXP_WC_MP_WR_CONSUMED) == 0);
  CHECK(wc[1].exp_opcode == IBV_EXP_WC_RECV_NOP);
  CHECK(wc[1].wr_id == 200);
  CHECK((wc[1].exp_wc_flags & IBV_EXP_WC_MP_WR_CONSUMED) != 0);
  CHECK(queue.counters->tail == 1);
  CHECK(rig.consumed() == 2);
}

TEST_CASE("engine: a shared queue of strides, whose packets complete in any order") {
  PollRig rig;
  SharedRig<4, 32, 1> of;
  SharedQueue &shared = of.queue;
  rig.endpoint.shared = &shared;
  rig.endpoint.receive.strides = 8;
  rig.endpoint.receive.log_stride_bytes = 6;
  rig.endpoint.set_flags();
  shared.strides_used = ibvexp::make_zeros<std::uint32_t>(4);
  ibv_sge piece{0x1000, 512, 7};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = 40;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  REQUIRE(post_receive(shared, &wr, &bad) == 0);
  const std::int32_t tail = shared.counters->tail;
  const auto add = [&](std::uint16_t stride, std::uint32_t count, std::uint8_t outcome,
                       std::uint8_t opcode = 2) {
    PollRig::Fields packet;
    packet.opcode = opcode;
    packet.bytes = count;
    std::uint8_t *const at = rig.add(packet);
    store(at + 20, be(stride));
    at[41] = outcome;
  };
  constexpr std::uint32_t first = 1u << 29, last = 1u << 30, filler = 1u << 31;
  add(3, first | 65, 3);          // two strides, and more to come
  add(0, first | last | 192, 4);  // three
  add(5, 700, 0, 1);              // written: one, with its own count
  add(6, filler, 0);              // and the rest
  ibv_wc plain;
  CHECK(poll(rig.queue, 1, &plain) == -1);
  ibv_exp_wc wc[4];
  REQUIRE(poll(rig.queue, 4, wc, sizeof(wc[0])) == 4);
  constexpr std::uint64_t bits = IBV_EXP_WC_MP_WR_MORE_IN_MSG | IBV_EXP_WC_MP_WR_CONSUMED;
  for (const ibv_exp_wc &one : wc) CHECK(one.wr_id == 40);
  CHECK(wc[0].exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc[0].mp_wr.strides_offset == 3);
  CHECK(wc[0].mp_wr.byte_len == 65);
  CHECK((wc[0].exp_wc_flags & bits) == IBV_EXP_WC_MP_WR_MORE_IN_MSG);
  CHECK(wc[1].exp_opcode == IBV_EXP_WC_TM_NO_TAG);
  CHECK(wc[1].mp_wr.strides_offset == 0);
  CHECK(wc[1].mp_wr.byte_len == 192);
  CHECK((wc[1].exp_wc_flags & bits) == 0);
  CHECK(wc[2].exp_opcode == IBV_EXP_WC_RECV_RDMA_WITH_IMM);
  CHECK(wc[2].byte_len == 700);
  CHECK((wc[2].exp_wc_flags & bits) == 0);
  CHECK(wc[3].exp_opcode == IBV_EXP_WC_RECV_NOP);
  CHECK(wc[3].mp_wr.byte_len == 0);
  CHECK((wc[3].exp_wc_flags & bits) == IBV_EXP_WC_MP_WR_CONSUMED);
  // The entry went back once.
  CHECK(tail != shared.counters->tail);
  CHECK(shared.counters->tail == 0);
  CHECK(shared.strides_used[0] == 0);
}

TEST_CASE("engine: what has no place is met after what is in front of it") {
  PollRig rig;
  rig.endpoint.receive.strides = 8;
  rig.endpoint.receive.log_stride_bytes = 6;
  rig.endpoint.set_flags();
  rig.post_sends(1);
  REQUIRE(rig.post_receives(1) == 0);
  PollRig::Fields sent, packet;
  sent.send_opcode = 0x0a;
  packet.opcode = 2;
  packet.bytes = 1u << 16 | 64;
  rig.add(sent);
  rig.add(packet);
  ibv_wc wc[2];
  CHECK(poll(rig.queue, 2, wc) == 1);
  errno = 0;
  CHECK(poll(rig.queue, 2, wc) == -1);
  CHECK(errno == ENOTSUP);
}
