// Programs that write WQEs and read CQEs themselves, with what they found in the
// private structures, and use verbs for the rest.
#include <poll.h>

#include "dc_rig.h"
#include "private.h"
#include "skip.h"

namespace {

void barrier() { std::atomic_thread_fence(std::memory_order_seq_cst); }

template <class T>
void put(std::uint8_t *at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

// A send queue, as the inlines of the private header describe it.
class Sender {
 public:
  explicit Sender(ibv_qp *qp) : qp_(qp), of_(private_of(qp)) {
    REQUIRE(of_.gen_data.scur_post == 0);
    REQUIRE(of_.gen_data.bf != nullptr);
  }

  // Bytes behind the control segment, in units of 16.
  void post(std::uint8_t opcode, const std::vector<std::uint8_t> &segments) {
    REQUIRE(segments.size() % 16 == 0);
    REQUIRE(segments.size() + 16 <= std::size_t{64} * 2);
    const std::size_t bytes = 16 + segments.size();
    std::uint8_t control[16] = {};
    put(control, htobe32((index_ & 0xffff) << 8 | opcode));
    put(control + 4, htobe32(qp_->qp_num << 8 | static_cast<std::uint32_t>(bytes / 16)));
    control[11] = 8;  // a completion
    std::uint8_t entry[128] = {};
    std::copy(control, control + 16, entry);
    std::copy(segments.begin(), segments.end(), entry + 16);
    const auto blocks = static_cast<std::uint32_t>((bytes + 63) / 64);
    for (std::uint32_t i = 0; i < blocks; ++i)
      std::memcpy(block(index_ + i), entry + std::size_t{i} * 64, 64);
    index_ += blocks;
    barrier();
    static_cast<std::uint32_t *>(of_.gen_data.db)[1] = htobe32(index_ & 0xffff);
    barrier();
    ring(entry);
  }

  void write(const Buffer &from, std::uint32_t length, const Buffer &to, std::size_t offset) {
    std::vector<std::uint8_t> segments(32);
    put(&segments[0], htobe64(to.address(offset)));
    put(&segments[8], htobe32(to.mr->rkey));
    put(&segments[16], htobe32(length));
    put(&segments[20], htobe32(from.mr->lkey));
    put(&segments[24], htobe64(from.address()));
    post(MLX5_OPCODE_RDMA_WRITE, segments);
  }

  // A message behind that many bytes of address.
  void send(const Buffer &from, std::uint32_t length, std::vector<std::uint8_t> address = {}) {
    const std::size_t at = address.size();
    address.resize(at + 16);
    put(&address[at], htobe32(length));
    put(&address[at + 4], htobe32(from.mr->lkey));
    put(&address[at + 8], htobe64(from.address()));
    post(MLX5_OPCODE_SEND, address);
  }

  // Counted in the object, as the inlines do it.
  void show_posts() { of_.gen_data.scur_post = index_; }
  // After a reset.
  void restart() {
    CHECK(of_.gen_data.scur_post == 0);
    index_ = 0;
  }

 private:
  std::uint8_t *block(std::uint32_t index) const {
    return static_cast<std::uint8_t *>(of_.buf.buf) + of_.sq.offset +
           (std::size_t{index & (of_.sq.wqe_cnt - 1)} << of_.sq.wqe_shift);
  }
  void ring(const std::uint8_t *entry) {
    auto &bf = *of_.gen_data.bf;
    auto *reg = static_cast<std::uint8_t *>(bf.reg) + offset_;
    const std::uint32_t size = bf.uuarn > 0 ? bf.buf_size : 0;
    // Half of a register at a time.
    const std::size_t words = size != 0 ? 8 : 1;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, entry + 8 * i, 8);
      reinterpret_cast<volatile std::uint64_t *>(reg)[i] = word;
    }
    barrier();
    offset_ ^= bf.buf_size;
  }

  ibv_qp *qp_;
  Layout::mlx5_qp &of_;
  std::uint32_t index_ = 0, offset_ = 0;
};

// A completion queue read in place.
class Reader {
 public:
  explicit Reader(ibv_cq *cq)
      : of_(private_of(cq)), entries_(static_cast<std::uint32_t>(cq->cqe) + 1) {
    REQUIRE(of_.cons_index == 0);
  }

  const mlx5_cqe64 *next() {
    auto *cqe = static_cast<std::uint8_t *>(of_.active_buf->buf) +
                std::size_t{index_ & (entries_ - 1)} * of_.cqe_sz + (of_.cqe_sz - 64);
    const std::uint8_t op_own = __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE);
    if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != ((index_ & entries_) != 0))
      return nullptr;
    ++index_;
    return reinterpret_cast<const mlx5_cqe64 *>(cqe);
  }
  mlx5_cqe64 wait() {
    for (int turns = 0; turns < 50'000'000; ++turns)
      if (const mlx5_cqe64 *cqe = next()) return *cqe;
    FAIL("no completion");
    return {};
  }
  // The record, which says what may be overwritten.
  void release() {
    barrier();
    static_cast<std::uint32_t *>(of_.dbrec)[0] = htobe32(index_ & 0xffffff);
  }
  // As ibv_mlx5_exp_update_cq_ci() does, and its counterpart.
  void show_index() { of_.cons_index = index_; }
  void ask() { index_ = of_.cons_index; }
  std::uint32_t index() const { return index_; }

 private:
  Layout::mlx5_cq &of_;
  const std::uint32_t entries_;
  std::uint32_t index_ = 0;
};

std::uint8_t opcode(const mlx5_cqe64 &cqe) { return cqe.op_own >> 4; }
std::uint32_t number_in(const mlx5_cqe64 &cqe) { return be32toh(cqe.sop_drop_qpn) & 0xffffff; }

void receive(ibv_qp *qp, std::uint32_t index, const Buffer &into, std::uint32_t length) {
  auto &of = private_of(qp);
  auto *at = static_cast<std::uint8_t *>(of.buf.buf) + of.rq.offset +
             (std::size_t{index & (of.rq.wqe_cnt - 1)} << of.rq.wqe_shift);
  std::memset(at, 0, std::size_t{1} << of.rq.wqe_shift);
  put(at, htobe32(length));
  put(at + 4, htobe32(into.mr->lkey));
  put(at + 8, htobe64(into.address()));
  if (of.rq.wqe_shift > 4) put(at + 20, htobe32(0x100));  // the end of the list
  barrier();
  static_cast<std::uint32_t *>(of.gen_data.db)[0] = htobe32((index + 1) & 0xffff);
}

void fill(Buffer &buffer) { std::iota(buffer.bytes.begin(), buffer.bytes.end(), std::uint8_t{1}); }
bool same(const Buffer &a, const Buffer &b, std::size_t count, std::size_t offset = 0) {
  return std::equal(a.bytes.begin(), a.bytes.begin() + static_cast<std::ptrdiff_t>(count),
                    b.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
}

struct Connected : Rig {
  Qp a = create_qp(IBV_QPT_RC), b = create_qp(IBV_QPT_RC);
  Buffer out{pd.get(), 4096}, in{pd.get(), 4096};
  Connected() {
    connect(a.get(), b->qp_num);
    connect(b.get(), a->qp_num);
    fill(out);
  }
};

// The vector in an address handle, with the number of the receiver.
std::vector<std::uint8_t> vector_of(const ibv_ah *ah, std::uint32_t to) {
  const auto *av = reinterpret_cast<const std::uint8_t *>(ah + 1);
  std::vector<std::uint8_t> vector(av, av + 48);
  std::uint32_t word;
  std::memcpy(&word, &vector[8], 4);
  put(&vector[8], word | htobe32(to));
  return vector;
}

}  // namespace

TEST_CASE("RDMA writes, around the queues several times") {
  Connected rig;
  Sender sender(rig.a.get());
  Reader reader(rig.cq.get());
  for (std::uint32_t turn = 0; turn < 1000; ++turn) {
    sender.write(rig.out, 64, rig.in, (turn % 64) * 64);
    const mlx5_cqe64 cqe = reader.wait();
    REQUIRE(opcode(cqe) == MLX5_CQE_REQ);
    REQUIRE(number_in(cqe) == rig.a->qp_num);
    reader.release();
  }
  CHECK(same(rig.out, rig.in, 64, 63 * 64));
}

TEST_CASE("messages, both ends by hand") {
  Connected rig;
  Sender sender(rig.a.get());
  Reader reader(rig.cq.get());
  for (std::uint32_t turn = 0; turn < 300; ++turn) {
    receive(rig.b.get(), turn, rig.in, 256);
    // Longer than what comes inside the completion.
    sender.send(rig.out, 256);
    for (int i = 0; i < 2; ++i) {
      const mlx5_cqe64 cqe = reader.wait();
      REQUIRE((opcode(cqe) == MLX5_CQE_REQ || opcode(cqe) == MLX5_CQE_RESP_SEND));
    }
    reader.release();
  }
  CHECK(same(rig.out, rig.in, 256));
}

TEST_CASE("receives that are written by hand before the queue pair is in INIT") {
  Rig rig;
  const Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
  Buffer out(rig.pd.get(), 4096), in(rig.pd.get(), 4096);
  fill(out);
  constexpr std::uint32_t count = 8;
  for (std::uint32_t i = 0; i < count; ++i) receive(b.get(), i, in, 256);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Sender sender(a.get());
  Reader reader(rig.cq.get());
  for (std::uint32_t i = 0; i < count; ++i) {
    sender.send(out, 256);
    for (int side = 0; side < 2; ++side) {
      const mlx5_cqe64 cqe = reader.wait();
      REQUIRE((opcode(cqe) == MLX5_CQE_REQ || opcode(cqe) == MLX5_CQE_RESP_SEND));
      if (opcode(cqe) == MLX5_CQE_RESP_SEND) CHECK(be16toh(cqe.wqe_counter) == i);
    }
    reader.release();
  }
  CHECK(same(out, in, 256));
}

TEST_CASE("arming starts from the program's counter") {
  Rig rig;
  Channel channel(ibv_create_comp_channel(rig.context.get()));
  Cq cq(ibv_create_cq(rig.context.get(), 16, &rig, channel.get(), 0));
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.send_cq = cq.get();
  Qp a(ibv_exp_create_qp(rig.context.get(), &attr)), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  Sender sender(a.get());
  Reader reader(cq.get());
  for (int turn = 0; turn < 100; ++turn) {
    reader.show_index();
    REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
    // Nothing has happened since: there must be no event of the past.
    pollfd ready{channel->fd, POLLIN, 0};
    if (turn % 10 == 0) CHECK(::poll(&ready, 1, 5) == 0);
    sender.write(out, 8, in, 0);
    REQUIRE(::poll(&ready, 1, 10'000) == 1);
    ibv_cq *from = nullptr;
    void *context = nullptr;
    REQUIRE(ibv_get_cq_event(channel.get(), &from, &context) == 0);
    CHECK(from == cq.get());
    CHECK(context == &rig);
    ibv_ack_cq_events(from, 1);
    REQUIRE(opcode(reader.wait()) == MLX5_CQE_REQ);
    CHECK(reader.next() == nullptr);
    reader.release();
  }
}

TEST_CASE("a reset takes the completions of its queue pair, and the counter says so") {
  for (const bool destroy : {false, true}) {
    CAPTURE(destroy);
    Connected rig;
    Qp c = rig.create_qp(IBV_QPT_RC), d = rig.create_qp(IBV_QPT_RC);
    rig.connect(c.get(), d->qp_num);
    rig.connect(d.get(), c->qp_num);
    Sender mine(rig.a.get()), other(c.get());
    Reader reader(rig.cq.get());
    mine.write(rig.out, 64, rig.in, 0);
    reader.wait();
    reader.release();
    for (int i = 0; i < 5; ++i) {
      mine.write(rig.out, 64, rig.in, 0);
      other.write(rig.out, 64, rig.in, 64);
    }
    Reader ahead = reader;  // until all are there
    for (int i = 0; i < 10; ++i) ahead.wait();
    reader.show_index();
    if (destroy) {
      rig.a.reset();
    } else {
      ibv_qp_attr to{};
      to.qp_state = IBV_QPS_RESET;
      REQUIRE(ibv_modify_qp(rig.a.get(), &to, IBV_QP_STATE) == 0);
      CHECK(private_of(rig.a.get()).gen_data.scur_post == 0);
    }
    reader.ask();
    CHECK(reader.index() == 6);
    for (int i = 0; i < 5; ++i) {
      const mlx5_cqe64 cqe = reader.wait();
      CHECK(opcode(cqe) == MLX5_CQE_REQ);
      CHECK(number_in(cqe) == c->qp_num);
    }
    CHECK(reader.next() == nullptr);
    reader.release();
    // And on it goes.
    other.write(rig.out, 64, rig.in, 128);
    CHECK(number_in(reader.wait()) == c->qp_num);
    reader.release();
    reader.show_index();
  }
}

TEST_CASE("the counters of an object count what verbs post, until a reset") {
  SKIP_IF(!engine_drives(), "needs the engine");
  Connected rig;
  const auto &of = private_of(rig.a.get());
  for (std::uint64_t i = 0; i < 3; ++i) {
    ibv_sge piece = rig.out.piece(0, 64);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = i;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = rig.in.address();
    wr.wr.rdma.rkey = rig.in.mr->rkey;
    REQUIRE(ibv_post_send(rig.a.get(), &wr, &bad) == 0);
    CHECK(of.gen_data.scur_post == i + 1);
    post_receive(rig.a.get(), i, rig.in.piece(0, 64));
    CHECK(of.rq.head == i + 1);
    CHECK(rig.completions(1)[0].wr_id == i);
  }
  CHECK(of.rq.tail == 0);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(rig.a.get(), &to, IBV_QP_STATE) == 0);
  CHECK(of.gen_data.scur_post == 0);
  CHECK(of.rq.head == 0);
}

TEST_CASE("the counter of a shared queue counts what verbs post") {
  SKIP_IF(!engine_drives(), "needs the engine");
  Dc dc;
  const auto &of = private_of(dc.srq.get());
  const auto *record = static_cast<const std::uint32_t *>(of.db);
  const std::uint32_t before = be32toh(*record);
  for (std::uint32_t i = 1; i <= 3; ++i) {
    dc.receive(7);
    CHECK(of.counter == i);
    CHECK(be32toh(*record) == before + i);
  }
}

TEST_CASE("a queue pair is used again after a reset") {
  Connected rig;
  Sender sender(rig.a.get());
  Reader reader(rig.cq.get());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) {
      sender.write(rig.out, 64, rig.in, 0);
      reader.wait();
      reader.release();
    }
    reader.show_index();
    sender.show_posts();
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_modify_qp(rig.a.get(), &to, IBV_QP_STATE) == 0);
    REQUIRE(ibv_modify_qp(rig.b.get(), &to, IBV_QP_STATE) == 0);
    CHECK(rig.a->state == IBV_QPS_RESET);
    reader.ask();
    sender.restart();
    rig.connect(rig.a.get(), rig.b->qp_num);
    rig.connect(rig.b.get(), rig.a->qp_num);
  }
}

// As UCX does: a size of entries by the environment of the context, the queue by its
// base verb, a look at where it is, and only then this.
TEST_CASE("a queue whose place is known already stays there [row:IBV_EXP_CQ_IGNORE_OVERRUN]") {
  Rig rig;
  REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_CQE_SIZE", "128", 1) == 0);
  Cq cq(ibv_create_cq(rig.context.get(), 15, &rig, nullptr, 0));
  REQUIRE(cq);
  const auto before = facts_of(cq.get());
  CHECK(before.cqe_size == 128);
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
  REQUIRE(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  const auto after = facts_of(cq.get());
  CHECK(after.buf == before.buf);
  CHECK(after.dbrec == before.dbrec);
  CHECK(after.cqn == before.cqn);
  errno = 0;
  CHECK(ibv_create_cq(rig.context.get(), 0, nullptr, nullptr, 0) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE(
    "completions may overrun where the program says so in time "
    "[row:IBV_EXP_CQ_IGNORE_OVERRUN] [row:IBV_EXP_CQ_CAP_FLAGS] "
    "[row:IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS]") {
  Rig rig;
  Cq cq(ibv_create_cq(rig.context.get(), 15, &rig, nullptr, 0));
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
  ibv_cq *const held = cq.get();
  REQUIRE(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  CHECK(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  CHECK(cq.get() == held);
  CHECK(cq->cq_context == &rig);
  CHECK(cq->cqe == 15);
  CHECK(private_of(cq.get()).cqn == facts_of(cq.get()).cqn);

  auto with = rig.qp_attr(IBV_QPT_RC);
  with.send_cq = cq.get();
  Qp a(ibv_exp_create_qp(rig.context.get(), &with)), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  Sender sender(a.get());
  Reader reader(cq.get());
  // The record is never written.
  for (int i = 0; i < 200; ++i) {
    sender.write(out, 64, in, 0);
    REQUIRE(opcode(reader.wait()) == MLX5_CQE_REQ);
  }

  // Too late for others.
  const int late = switched_on("cq_ignore_overrun") ? 0 : ENOTSUP;
  CHECK(ibv_exp_modify_cq(rig.cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == late);
  CHECK(rig.cq->cq_context == &rig);
  Cq polled = rig.create_cq();
  ibv_wc none{};
  CHECK(ibv_poll_cq(polled.get(), 1, &none) == 0);
  // The engine knows that it has found nothing, libmlx5 does not say.
  CHECK(ibv_exp_modify_cq(polled.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) ==
        (engine_drives() ? 0 : ENOTSUP));
  // Nor back.
  attr.cq_cap_flags = 0;
  CHECK(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == late);
  CHECK(ibv_exp_modify_cq(polled.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) ==
        (engine_drives() ? late : 0));
}

TEST_CASE("without the flag an overrun is an error") {
  Rig rig;
  Cq cq(ibv_create_cq(rig.context.get(), 15, &rig, nullptr, 0));
  auto with = rig.qp_attr(IBV_QPT_RC);
  with.send_cq = cq.get();
  Qp a(ibv_exp_create_qp(rig.context.get(), &with)), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
  Sender sender(a.get());
  for (int i = 0; i < 40; ++i) sender.write(out, 64, in, 0);
  pollfd ready{rig.context->async_fd, POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 10'000) == 1);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(rig.context.get(), &event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == cq.get());
  ibv_ack_async_event(&event);
  a.reset();
}

TEST_CASE("completions have the size that the program asks its context for") {
  Rig rig;
  for (const char *size : {"128", "64"}) {
    CAPTURE(size);
    REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_CQE_SIZE", size, 1) == 0);
    Cq cq(ibv_create_cq(rig.context.get(), 64, &rig, nullptr, 0));
    REQUIRE(cq);
    CHECK(private_of(cq.get()).cqe_sz == static_cast<std::uint32_t>(std::atoi(size)));
    CHECK(cq->cq_context == &rig);
    auto with = rig.qp_attr(IBV_QPT_RC);
    with.send_cq = cq.get();
    Qp a(ibv_exp_create_qp(rig.context.get(), &with)), b = rig.create_qp(IBV_QPT_RC);
    rig.connect(a.get(), b->qp_num);
    rig.connect(b.get(), a->qp_num);
    Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
    Sender sender(a.get());
    Reader reader(cq.get());
    for (int i = 0; i < 200; ++i) {
      sender.write(out, 64, in, 0);
      REQUIRE(opcode(reader.wait()) == MLX5_CQE_REQ);
      reader.release();
    }
  }
}

TEST_CASE("datagrams by the vector of an address handle") {
  Dc rig;  // for its address handle
  Qp a = rig.create_qp(IBV_QPT_UD), b = rig.create_qp(IBV_QPT_UD);
  rig.connect(a.get(), 0);
  rig.connect(b.get(), 0);
  auto address = vector_of(rig.ah.get(), b->qp_num);
  put(&address[0], htobe32(0x11111111));
  put(&address[4], std::uint32_t{0});
  receive(b.get(), 0, rig.in, 512);
  Sender sender(a.get());
  Reader reader(rig.cq.get());
  sender.send(rig.out, 300, address);
  for (int i = 0; i < 2; ++i) {
    const mlx5_cqe64 cqe = reader.wait();
    if (opcode(cqe) == MLX5_CQE_REQ) continue;
    CHECK(opcode(cqe) == MLX5_CQE_RESP_SEND);
    CHECK(be32toh(cqe.byte_cnt) == 340);
  }
  CHECK(same(rig.out, rig.in, 300, 40));
}

TEST_CASE("to a target of DC, received from a shared queue by hand") {
  Dc rig;
  Dct dct = rig.make_dct();
  Qp dci = rig.make_dci();

  auto &of = private_of(rig.srq.get());
  REQUIRE(of.counter == 0);
  std::uint32_t head = of.head;
  for (std::uint32_t i = 0; i < 4; ++i) {
    auto *entry = static_cast<std::uint8_t *>(of.buf.buf) + (std::size_t{head} << of.wqe_shift);
    std::uint16_t next;
    std::memcpy(&next, entry + 2, sizeof(next));
    put(entry + 16, htobe32(1024));
    put(entry + 20, htobe32(rig.in.mr->lkey));
    put(entry + 24, htobe64(rig.in.address(i * 1024)));
    head = be16toh(next);
  }
  barrier();
  *static_cast<std::uint32_t *>(of.db) = htobe32(4);

  auto address = vector_of(rig.ah.get(), dct->dct_num);
  put(&address[0], htobe64(key));
  Sender sender(dci.get());
  Reader reader(rig.cq.get());
  for (int turn = 0; turn < 4; ++turn) {
    sender.send(rig.out, 700, address);
    int received = 0;
    for (int i = 0; i < 2; ++i) {
      const mlx5_cqe64 cqe = reader.wait();
      if (opcode(cqe) == MLX5_CQE_REQ) continue;
      REQUIRE(opcode(cqe) == MLX5_CQE_RESP_SEND);
      CHECK(be32toh(cqe.byte_cnt) == 700);
      ++received;
    }
    CHECK(received == 1);
    reader.release();
  }
  CHECK(same(rig.out, rig.in, 700, 3 * 1024));
}
