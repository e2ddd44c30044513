// Queues made by firmware commands, through libibverbs and libmlx5 with the software HCA
// preloaded.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "devx_rig.h"
#include "skip.h"

using namespace devx;

namespace {

struct Pair {
  explicit Pair(const Context &c) : cq(c), a(c, rc, cq.object.number), b(c, rc, cq.object.number) {
    a.connect(b.object.number, c);
    b.connect(a.object.number, c);
  }
  Cq cq;
  Qp a, b;
};

// Events that a program reads, and their cookies.
class Events {
 public:
  explicit Events(const Context &c, bool data = false)
      : channel_(mlx5dv_devx_create_event_channel(
            c.ctx, data ? static_cast<mlx5dv_devx_create_event_channel_flags>(0)
                        : MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA)) {
    REQUIRE(channel_ != nullptr);
    REQUIRE(fcntl(channel_->fd, F_SETFL, O_NONBLOCK) == 0);
  }
  ~Events() {
    if (channel_ != nullptr) close();
  }
  void close() {
    mlx5dv_devx_destroy_event_channel(channel_);
    channel_ = nullptr;
  }
  int subscribe(mlx5dv_devx_obj *object, uint16_t event, uint64_t cookie) {
    return mlx5dv_devx_subscribe_devx_event(channel_, object, sizeof event, &event, cookie);
  }
  int count(mlx5dv_devx_obj *object, uint16_t event, int counter) {
    return mlx5dv_devx_subscribe_devx_event_fd(channel_, counter, object, event);
  }
  // The cookie of the next event, 0 when there is none; its data follows.
  uint64_t next(int wait_ms, uint8_t *entry = nullptr) {
    pollfd p{channel_->fd, POLLIN, 0};
    if (poll(&p, 1, wait_ms) != 1) return 0;
    std::array<uint64_t, 9> message{};
    const size_t bytes = entry != nullptr ? sizeof message : sizeof(uint64_t);
    auto *header = reinterpret_cast<mlx5dv_devx_async_event_hdr *>(message.data());
    const ssize_t n = mlx5dv_devx_get_event(channel_, header, bytes);
    CHECK(n == static_cast<ssize_t>(bytes));
    if (entry != nullptr) std::memcpy(entry, message.data() + 1, 64);
    return message[0];
  }
  int fd() const { return channel_->fd; }

 private:
  mlx5dv_devx_event_channel *channel_;
};

constexpr int soon_ms = 2000, never_ms = 50;
constexpr uint16_t event_completion = 0x00, event_cq_error = 0x04, event_port = 0x09,
                   event_last_wqe = 0x13, event_limit = 0x14, event_key_violation = 0x1d;

}  // namespace

TEST_CASE("Queues of commands send, write, read and add", "[devx_test]") {
  const Context c;
  Pair p(c);
  const Memory from(c, 4096, 0x5a), to(c, 4096);

  p.b.receive(to.mr, 4096);
  p.a.send(from.mr, 4096);
  const mlx5_cqe64 *first = p.cq.wait(), *second = p.cq.wait();
  const bool received_first = first->op_own >> 4 == MLX5_CQE_RESP_SEND;
  const mlx5_cqe64 *received = received_first ? first : second;
  const mlx5_cqe64 *sent = received_first ? second : first;
  CHECK(received->op_own >> 4 == MLX5_CQE_RESP_SEND);
  CHECK(be32toh(received->byte_cnt) == 4096);
  CHECK((be32toh(received->srqn_uidx) & 0xffffff) == 0x1234);
  CHECK((be32toh(received->sop_drop_qpn) & 0xffffff) == p.b.object.number);
  CHECK(sent->op_own >> 4 == MLX5_CQE_REQ);
  CHECK((be32toh(sent->sop_drop_qpn) & 0xffffff) == p.a.object.number);
  CHECK(to.bytes == from.bytes);

  const Memory written(c, 1000, 0x11), target(c, 1000);
  p.a.access(MLX5_OPCODE_RDMA_WRITE, written.mr, 1000, target.mr);
  CHECK(p.cq.wait_opcode() == MLX5_CQE_REQ);
  CHECK(target.bytes == written.bytes);
  const Memory read(c, 1000);
  p.b.access(MLX5_OPCODE_RDMA_READ, read.mr, 1000, target.mr);
  CHECK(p.cq.wait_opcode() == MLX5_CQE_REQ);
  CHECK(read.bytes == written.bytes);

  const Memory counter(c, 8), before(c, 8);
  uint8_t *w = p.a.begin(MLX5_OPCODE_ATOMIC_FA, 4);
  auto *raddr = reinterpret_cast<mlx5_wqe_raddr_seg *>(w + 16);
  raddr->raddr = htobe64(reinterpret_cast<uint64_t>(counter.bytes.data()));
  raddr->rkey = htobe32(counter.mr->rkey);
  w[39] = 5;
  Qp::data(w + 48, before.mr, 8);
  p.a.ring(w);
  CHECK(p.cq.wait_opcode() == MLX5_CQE_REQ);
  CHECK(counter.bytes[0] == 5);
}

TEST_CASE("A key of commands comes with its translations", "[devx_test]") {
  const Context c;
  Pair p(c);
  // Two pieces of 4 KiB, in the other order, under one key that begins within the first.
  alignas(4096) static uint8_t pages[8192];
  ibv_mr *mr =
      ibv_reg_mr(c.pd, pages, sizeof pages, int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(mr != nullptr);
  constexpr uint32_t mkc = 128, translations = 2176, start = 0x798;
  Box in(272 + 32, 0x200);
  in.put(mkc + 18, 1, 1);  // remote write
  in.put(mkc + 20, 2, 3);  // local write and read
  in.put(mkc + 22, 2, 3);  // entries of one size
  in.put(mkc + 32, 24, 0xffffff);
  in.put(mkc + 56, 8, 0x42);
  in.put(mkc + 104, 24, c.pdn);
  in.put(mkc + 160, 32, start);
  in.put(mkc + 224, 32, 8192);
  in.put(mkc + 416, 32, 2);
  in.put(mkc + 475, 5, 12);
  in.put(768, 32, 2);
  for (uint32_t i = 0; i < 2; ++i) {
    const auto at = reinterpret_cast<uint64_t>(pages) + (i == 0 ? 4096 : 0);
    in.put(translations + i * 128 + 32, 32, mr->lkey);
    in.put(translations + i * 128 + 64, 32, static_cast<uint32_t>(at >> 32));
    in.put(translations + i * 128 + 96, 32, static_cast<uint32_t>(at));
  }
  {
    const Object key(c, in);
    REQUIRE(key.object != nullptr);
    const Memory from(c, 8192, 0x21);
    std::memset(pages, 0, sizeof pages);
    uint8_t *w = p.a.begin(MLX5_OPCODE_RDMA_WRITE, 3);
    auto *raddr = reinterpret_cast<mlx5_wqe_raddr_seg *>(w + 16);
    raddr->raddr = htobe64(start + 4095);
    raddr->rkey = htobe32(key.number << 8 | 0x42);
    Qp::data(w + 32, from.mr, 2);
    p.a.ring(w);
    CHECK(p.cq.wait_opcode() == MLX5_CQE_REQ);
    CHECK(pages[8191] == 0x21);
    CHECK(pages[0] == 0x21);
    CHECK(std::count(pages, pages + sizeof pages, 0x21) == 2);
  }
  Box cut(272 + 16);
  std::memcpy(cut.data(), in.data(), cut.size());
  CHECK(refused(c, cut) == bad_input_length);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("Short data read comes in the completion, where that was asked for", "[devx_test]") {
  const Context c;
  Cq cq(c);
  const bool asked = GENERATE(false, true);
  Qp a(c, rc, cq.object.number, {}, asked), b(c, rc, cq.object.number);
  a.connect(b.object.number, c);
  b.connect(a.object.number, c);
  const Memory to(c, 16), from(c, 16, 0x6b);
  a.access(MLX5_OPCODE_RDMA_READ, to.mr, 16, from.mr);
  const mlx5_cqe64 *cqe = cq.wait();
  CHECK(cqe->op_own >> 4 == MLX5_CQE_REQ);
  CHECK(((cqe->op_own & MLX5_INLINE_SCATTER_32) != 0) == asked);
  const auto *got = asked ? reinterpret_cast<const uint8_t *>(cqe) : to.bytes.data();
  CHECK(std::equal(from.bytes.begin(), from.bytes.end(), got));
}

TEST_CASE("Rings of commands wrap around", "[devx_test]") {
  const Context c;
  Pair p(c);
  const Memory from(c, 64, 1), to(c, 64);
  for (int i = 0; i < 300; ++i) {
    p.b.receive(to.mr, 64);
    p.a.send(from.mr, 64);
    for (int n = 0; n < 2; ++n) {
      const uint32_t opcode = p.cq.wait_opcode();
      REQUIRE((opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_RESP_SEND));
    }
  }
}

TEST_CASE("A query tells what a queue pair was made and connected with", "[devx_test]") {
  const Context c;
  Pair p(c);
  const Box out = p.a.query();
  CHECK(out.get(qpc, 4) == 3);  // RTS
  CHECK(out.get(qpc + 8, 8) == rc);
  CHECK(out.get(qpc + 40, 24) == c.pdn);
  CHECK(out.get(qpc + 64, 3) == IBV_MTU_1024);
  CHECK(out.get(qpc + 67, 5) == 30);
  CHECK(out.get(qpc + 73, 4) == 4);
  CHECK(out.get(qpc + 81, 4) == 6);
  CHECK(out.get(qpc + 104, 24) == c.uar->page_id);
  CHECK(out.get(qpc + 136, 24) == 0x1234);
  CHECK(out.get(qpc + 168, 24) == p.b.object.number);
  CHECK(out.get(qpc + 1000, 24) == p.cq.object.number);
  CHECK(out.get(qpc + 1160, 3) == 2);
  CHECK(out.get(qpc + 1168, 3) == 7);
  CHECK(out.get(qpc + 1824, 32) == p.a.umem.id());
  CHECK(out.get(primary_path + 48, 16) == c.port.lid);
  CHECK(out.get(primary_path + 40, 1) == (c.ethernet() ? 1 : 0));
  CHECK(std::memcmp(out.data() + (primary_path + 128) / 8, &c.gid, 16) == 0);

  Box cq_out(272);
  REQUIRE(p.cq.object.query(p.cq.object.command(0x402), cq_out) == 0);
  CHECK(cq_out.get(128 + 99, 5) == Cq::log_entries);
  CHECK(cq_out.get(128 + 184, 8) == c.eqn);
  CHECK(cq_out.get(128 + 360, 24) == 0);  // completions so far
}

TEST_CASE("Queue pairs go from state to state as commands say", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Qp qp(c, rc, cq.object.number);
  CHECK(qp.object.modify(qp.to_rtr(qp.object.number, c)) == EREMOTEIO);
  CHECK(qp.object.status == bad_qp_state);
  CHECK(qp.object.modify(qp.to_rts()) == EREMOTEIO);
  CHECK(qp.object.status == bad_qp_state);

  SECTION("a port that is not there") {
    Box in = qp.to_init();
    in.put(primary_path + 296, 8, 9);
    CHECK(qp.object.modify(in) == EREMOTEIO);
    CHECK(qp.object.status == bad_param);
    CHECK(qp.state() == 0);
  }
  SECTION("an MTU that is none") {
    REQUIRE(qp.object.modify(qp.to_init()) == 0);
    Box in = qp.to_rtr(qp.object.number, c);
    in.put(qpc + 64, 3, 6);
    CHECK(qp.object.modify(in) == EREMOTEIO);
    CHECK(qp.object.status == bad_param);
    CHECK(qp.state() == 1);
  }
  SECTION("optional parameters that the transition does not have") {
    Box in = qp.to_init();
    in.put(128, 32, 1u << 31);
    CHECK(qp.object.modify(in) == EREMOTEIO);
    CHECK(qp.object.status == bad_param);
  }
  SECTION("a box that is too short") {
    CHECK(qp.object.modify(qp.object.command(0x502, 64)) == EREMOTEIO);
    CHECK(qp.object.status == bad_input_length);
  }
  SECTION("through all of them and back") {
    qp.connect(qp.object.number, c);
    CHECK(qp.state() == 3);
    CHECK(qp.object.modify(qp.object.command(0x507)) == 0);
    CHECK(qp.state() == 6);
    CHECK(qp.object.modify(qp.object.command(0x50a)) == 0);
    CHECK(qp.state() == 0);
  }
  SECTION("access changes while it works") {
    qp.connect(qp.object.number, c);
    Box in = qp.object.command(0x505, 272);
    in.put(128, 32, 1 << 3);
    CHECK(qp.object.modify(in) == 0);
    CHECK(qp.query().get(qpc + 1168, 3) == 5);  // no WRITE
    in.put(128, 32, 1 << 7);                    // another path
    CHECK(qp.object.modify(in) == EREMOTEIO);
    CHECK(qp.object.status == bad_param);
  }
  SECTION("another number than its own, or another object's command") {
    Box in = qp.to_init();
    in.put(72, 24, qp.object.number + 1);
    CHECK(qp.object.modify(in) == EINVAL);
    CHECK(cq.object.modify(qp.to_init()) == EINVAL);
    Box out(272);
    CHECK(cq.object.query(qp.object.command(0x50b), out) == EINVAL);
  }
  SECTION("a command that is none") {
    CHECK(qp.object.modify(qp.object.command(0x500, 272)) == EINVAL);
    CHECK(qp.object.modify(qp.object.command(0x5ff, 272)) == EINVAL);
  }
}

TEST_CASE("A write posted before a command stops its queue pair arrives", "[devx_test]") {
  const Context c;
  const Memory to(c, 16);
  for (uint8_t round = 1; round <= 50; ++round) {
    Pair p(c);
    const Memory from(c, 16, round);
    p.a.access(MLX5_OPCODE_RDMA_WRITE, from.mr, 16, to.mr);
    REQUIRE(p.a.object.modify(p.a.object.command(round % 2 == 0 ? 0x507 : 0x50a)) == 0);
    REQUIRE(to.bytes == from.bytes);
  }
}

TEST_CASE("A message longer than the queue pair's own limit is refused", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Qp a(c, rc, cq.object.number), b(c, rc, cq.object.number);
  b.connect(a.object.number, c);
  REQUIRE(a.object.modify(a.to_init()) == 0);
  Box in = a.to_rtr(b.object.number, c);
  in.put(qpc + 67, 5, 11);
  REQUIRE(a.object.modify(in) == 0);
  REQUIRE(a.object.modify(a.to_rts()) == 0);
  const Memory from(c, 4096), to(c, 4096);
  a.access(MLX5_OPCODE_RDMA_WRITE, from.mr, 2048, to.mr);
  CHECK(cq.wait_opcode() == MLX5_CQE_REQ);
  a.access(MLX5_OPCODE_RDMA_WRITE, from.mr, 2049, to.mr);
  const mlx5_cqe64 *cqe = cq.wait();
  CHECK(cqe->op_own >> 4 == MLX5_CQE_REQ_ERR);
  CHECK(reinterpret_cast<const mlx5_err_cqe *>(cqe)->syndrome ==
        MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
}

TEST_CASE("Queue pairs of commands share what verbs made", "[devx_test]") {
  const Context c;
  ibv_cq *cq = ibv_create_cq(c.ctx, 64, nullptr, nullptr, 0);
  REQUIRE(cq != nullptr);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {16, 1, 0};
  ibv_srq *srq = ibv_create_srq(c.pd, &srq_attr);
  REQUIRE(srq != nullptr);
  mlx5dv_cq cq_out{};
  mlx5dv_srq srq_out{};
  srq_out.comp_mask = MLX5DV_SRQ_MASK_SRQN;
  mlx5dv_obj o{};
  o.cq = {cq, &cq_out};
  o.srq = {srq, &srq_out};
  REQUIRE(mlx5dv_init_obj(&o, MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ) == 0);
  const Memory from(c, 64, 0x77), to(c, 64);
  {
    Qp a(c, rc, cq_out.cqn), b(c, rc, cq_out.cqn, {1, srq_out.srqn});
    a.connect(b.object.number, c);
    b.connect(a.object.number, c);
    ibv_sge sge{reinterpret_cast<uint64_t>(to.bytes.data()), 64, to.mr->lkey};
    ibv_recv_wr wr{7, nullptr, &sge, 1}, *bad = nullptr;
    REQUIRE(ibv_post_srq_recv(srq, &wr, &bad) == 0);
    a.send(from.mr, 64);
    auto *ring = static_cast<uint8_t *>(cq_out.buf);
    for (int i = 0; i < 2; ++i)
      while (__atomic_load_n(ring + i * cq_out.cqe_size + 63, __ATOMIC_ACQUIRE) >> 4 ==
             MLX5_CQE_INVALID) {
      }
    CHECK(to.bytes == from.bytes);
    // The verbs know nothing of them, and firmware does not let go.
    CHECK(ibv_destroy_srq(srq) == EINVAL);
  }
  CHECK(ibv_destroy_srq(srq) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
}

TEST_CASE("What is in use is not destroyed", "[devx_test]") {
  const Context c;
  Cq cq(c);
  {
    Qp qp(c, rc, cq.object.number);
    CHECK(cq.object.destroy() == EINVAL);
    CHECK(cq.umem.deregister() == EINVAL);
    CHECK(qp.umem.deregister() == EINVAL);
    CHECK(ibv_dealloc_pd(c.pd) == EINVAL);
  }
  // A domain of commands.
  Object domain(c, Box(16, 0x800));
  REQUIRE(domain.object != nullptr);
  {
    const Umem umem(c, 12288, 0);  // work requests are only read
    Box in = create_qp(c, rc, cq.object.number, umem.id(), umem.id());
    in.put(qpc + 40, 24, domain.number);
    Object qp(c, in);
    REQUIRE(qp.object != nullptr);
    CHECK(domain.destroy() == EINVAL);
    CHECK(qp.destroy() == 0);
  }
  CHECK(domain.destroy() == 0);
}

TEST_CASE("A context closes with all that commands made", "[devx_test]") {
  // Theirs is not to end: the library's part of them stays.
  static auto *const c = new Context;
  static auto *const p = new Pair(*c);
  p->a.send(Memory(*c, 16).mr, 16);
  CHECK(ibv_close_device(c->ctx) == 0);
  const Context again;
  Pair works(again);
}

TEST_CASE("Firmware refuses queue pairs that are not right", "[devx_test]") {
  const Context c, stranger;
  const Cq cq(c), strange(stranger);
  const Umem umem(c, 12288), theirs(stranger, 12288);
  const auto with = [&](uint32_t bit, uint32_t width, uint32_t value) {
    Box in = create_qp(c, rc, cq.object.number, umem.id(), umem.id());
    in.put(bit, width, value);
    return refused(c, in);
  };
  CHECK(with(2112, 32, 0xfffffff) == bad_resource);    // no umem
  CHECK(with(2112, 32, theirs.id()) == bad_resource);  // another context's
  CHECK(with(2080, 32, 12288 - 4096) == bad_param);    // rings beyond its end
  CHECK(with(2048, 32, 0xffffffff) == bad_param);      // far beyond
  CHECK(with(qpc + 1824, 32, theirs.id()) == bad_resource);
  CHECK(with(qpc + 1312, 32, 8196) == bad_param);      // a record that is not aligned
  CHECK(with(qpc + 1312, 32, 12288) == bad_param);     // or beyond
  CHECK(with(qpc + 40, 24, 0xfffff) == bad_resource);  // no such domain
  CHECK(with(qpc + 40, 24, stranger.pdn) == bad_resource);
  CHECK(with(qpc + 1000, 24, 0xfffff) == bad_resource);  // no such CQ
  CHECK(with(qpc + 1256, 24, strange.object.number) == bad_resource);
  CHECK(with(qpc + 104, 24, 0xfffff) == bad_param);  // no such UAR
  CHECK(with(qpc + 8, 8, 0xb) == bad_param);         // no service
  CHECK(with(qpc + 1381, 3, 5) == bad_param);        // no kind of receive queue
  CHECK(with(qpc + 88, 2, 2) == bad_param);          // real-time stamps
  CHECK(with(qpc + 128, 2, 1) == bad_param);         // no send doorbell records
  CHECK(refused(c, Box(64, 0x500)) == bad_input_length);
  Box shared = create_qp(c, rc, cq.object.number, umem.id(), umem.id(), {1, 0xfffff});
  CHECK(refused(c, shared) == bad_resource);
}

TEST_CASE("Firmware refuses completion queues that are not right", "[devx_test]") {
  const Context c, stranger;
  const Umem umem(c, 8192), theirs(stranger, 8192), read_only(c, 8192, 0);
  const auto with = [&](uint32_t bit, uint32_t width, uint32_t value) {
    Box in = create_cq(c, 6, umem.id(), umem.id(), 4096);
    in.put(bit, width, value);
    return in;
  };
  CHECK(refused(c, with(704, 32, theirs.id())) == bad_resource);
  CHECK(refused(c, with(128 + 32, 32, theirs.id())) == bad_resource);
  CHECK(refused(c, with(704, 32, read_only.id())) == bad_param);
  CHECK(refused(c, with(128 + 99, 5, 8)) == bad_param);   // more than the umem has
  CHECK(refused(c, with(128 + 99, 5, 31)) == bad_param);  // than the device has
  CHECK(refused(c, with(128 + 104, 24, 0xfffff)) == bad_param);
  CHECK(refused(c, with(128 + 8, 3, 5)) == bad_param);  // no size of a completion
  CHECK(refused(c, with(128 + 480, 32, 4097)) == bad_param);
  // The kernel looks the event queue up.
  errno = 0;
  const Object none(c, with(128 + 184, 8, 0xff));
  CHECK(none.object == nullptr);
  CHECK(errno == ENOENT);
}

TEST_CASE("Commands are judged by the method that carries them", "[devx_test]") {
  const Context c;
  errno = 0;
  const Object none(c, Box(64, 0x502));  // makes nothing
  CHECK(none.object == nullptr);
  CHECK(errno == EINVAL);
  CHECK(refused(c, Box(1024, 0x900)) == bad_op);  // receive contexts are not there
  Box in(16, 0x500), out(16);
  CHECK(mlx5dv_devx_general_cmd(c.ctx, in.data(), in.size(), out.data(), out.size()) == EINVAL);
}

TEST_CASE("Memory for queues is registered as the kernel does it", "[devx_test]") {
  const Context c;
  alignas(4096) static uint8_t page[8192];
  const auto error = [&](void *address, size_t bytes, uint32_t access) {
    errno = 0;
    mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(c.ctx, address, bytes, access);
    if (umem == nullptr) return errno;
    CHECK(mlx5dv_devx_umem_dereg(umem) == 0);
    return 0;
  };
  CHECK(error(page, sizeof page, IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(error(page + 8, 8, IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(error(page, 0, IBV_ACCESS_LOCAL_WRITE) == EINVAL);
  CHECK(error(page, ~size_t{0}, IBV_ACCESS_LOCAL_WRITE) == EINVAL);
  CHECK(error(page, 4096, IBV_ACCESS_REMOTE_WRITE) == EINVAL);  // without local
  CHECK(error(page, 4096, IBV_ACCESS_REMOTE_ATOMIC) == EINVAL);
  CHECK(error(reinterpret_cast<void *>(4096), 4096, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  // Two have two numbers; the same memory may be in both.
  const Umem a(c, 4096), b(c, 4096);
  CHECK(a.id() != b.id());
}

TEST_CASE("Receive memory pools hand out their buffers in order", "[devx_test]") {
  const Context c;
  const auto order = GENERATE(Rmp::linked, Rmp::cyclic);
  Cq cq(c);
  Rmp pool(c, order);
  Qp a(c, rc, cq.object.number), b(c, rc, cq.object.number, {1, pool.object.number});
  a.connect(b.object.number, c);
  b.connect(a.object.number, c);
  const Memory from(c, 32, 0x42);
  std::vector<std::unique_ptr<Memory>> to;
  uint32_t expected = 0, posted = 0;
  for (int i = 0; i < 16; ++i) {
    to.push_back(std::make_unique<Memory>(c, 32));
    pool.post(posted, to.back()->mr, 32);
    posted = (posted + (order == Rmp::linked ? 3 : 1)) % Rmp::wqes;
  }
  for (int i = 0; i < 16; ++i) {
    a.send(from.mr, 32);
    for (int n = 0; n < 2; ++n) {
      const mlx5_cqe64 *cqe = cq.wait();
      if (cqe->op_own >> 4 == MLX5_CQE_REQ) continue;
      CHECK(be16toh(cqe->wqe_counter) == expected);
    }
    expected = (expected + (order == Rmp::linked ? 3 : 1)) % Rmp::wqes;
    CHECK(to[static_cast<size_t>(i)]->bytes == from.bytes);
  }

  Box out(32 + 240);
  REQUIRE(pool.object.query(pool.object.command(0x90f), out) == 0);
  CHECK(out.get(Rmp::wq, 4) == order);
  CHECK(out.get(Rmp::wq + 192, 32) == 16);  // taken
  Box striding = pool.command(c, 2);
  CHECK(refused(c, striding) == bad_param);
  Box tiny = pool.command(c, 1);
  tiny.put(Rmp::wq + 268, 4, 4);
  CHECK(refused(c, tiny) == bad_param);  // no room for data
}

TEST_CASE("Packets of messages fill the strides of a shared queue", "[devx_test]") {
  const Context c;
  SKIP_IF(c.ethernet(), "no queue matches tags on Ethernet");
  Box caps(16 + 4096), ask(16, 0x100);
  ask.put(48, 16, 1);  // the current ones of the device
  REQUIRE(mlx5dv_devx_general_cmd(c.ctx, ask.data(), ask.size(), caps.data(), caps.size()) == 0);
  CHECK(caps.get(128 + 0x225, 1) == 1);  // ib_striding_wq_cq_first_indication
  CHECK(caps.get(128 + 0x233, 1) == 1);  // ib_cyclic_striding_wq
  CHECK(caps.get(128 + 0x3a0, 1) == 1);  // ext_stride_num_range

  const auto type = GENERATE(Xrq::striding_linked, Xrq::striding_cyclic);
  constexpr uint32_t first_flag = 1u << 29, last_flag = 1u << 30, filler = 1u << 31;
  constexpr uint32_t wqe_bytes = Xrq::strides * Xrq::stride_bytes;
  Cq sends(c), receives(c);
  Xrq queue(c, receives.object.number);
  queue.object.create(c, queue.command(c, type));
  REQUIRE(queue.object.object != nullptr);
  Qp a(c, rc, sends.object.number), b(c, rc, sends.object.number, {1, queue.object.number});
  a.connect(b.object.number, c);
  b.connect(a.object.number, c);
  const Memory to(c, size_t{Xrq::wqes} * wqe_bytes);
  for (uint32_t i = 0; i < Xrq::wqes; ++i) queue.post(to.mr, i * wqe_bytes);

  // Three packets of 1024 bytes at most, since the path has no more: two messages for each WQE, and
  // two strides of the third one.
  constexpr uint32_t bytes = 2 * 1024 + 500, messages = 30;
  Memory from(c, bytes);
  uint32_t wqe = 0, stride = 0;
  for (uint32_t m = 0; m < messages; ++m) {
    for (uint32_t i = 16; i < bytes; ++i) from.bytes[i] = static_cast<uint8_t>(m + i * 7);
    a.send(from.mr, bytes);
    for (uint32_t done = 0; done < bytes; done += 1024) {
      const mlx5_cqe64 *cqe = receives.wait();
      const uint32_t piece = std::min(bytes - done, 1024u), count = be32toh(cqe->byte_cnt);
      CHECK(cqe->op_own >> 4 == MLX5_CQE_RESP_SEND);
      CHECK((cqe->app == 1 && cqe->app_op == 4));  // tag matching: a message without a tag
      CHECK(be32toh(cqe->srqn_uidx) == 0x123);
      CHECK((be32toh(cqe->sop_drop_qpn) & 0xffffff) == b.object.number);
      CHECK(count ==
            (piece | (done == 0 ? first_flag : 0) | (done + piece == bytes ? last_flag : 0)));
      CHECK((count & filler) == 0);
      CHECK(be16toh(cqe->wqe_counter) % Xrq::wqes == wqe);
      CHECK((uint32_t{cqe->rsvd20[2]} << 8 | cqe->rsvd20[3]) == stride);
      CHECK(std::memcmp(to.bytes.data() + wqe * wqe_bytes + stride * Xrq::stride_bytes,
                        from.bytes.data() + done, piece) == 0);
      if (++stride == Xrq::strides) stride = 0, ++wqe;
    }
    CHECK(sends.wait_opcode() == MLX5_CQE_REQ);
  }
  // 90 strides are 11 WQEs and two strides.
  Box out(16 + 128 + 192);
  REQUIRE(queue.object.query(queue.object.command(0x719), out) == 0);
  CHECK(out.get(Xrq::wq, 4) == type);
  CHECK(out.get(Xrq::wq + 192, 32) == 11);
}

TEST_CASE("A receive memory pool tells that it is nearly empty", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Rmp pool(c, Rmp::cyclic);
  Events events(c);
  REQUIRE(events.subscribe(pool.object.object, event_limit, 99) == 0);
  Qp a(c, rc, cq.object.number), b(c, rc, cq.object.number, {1, pool.object.number});
  a.connect(b.object.number, c);
  b.connect(a.object.number, c);
  const Memory memory(c, 32);
  for (uint32_t i = 0; i < 3; ++i) pool.post(i, memory.mr, 32);
  Box in(80 + 192, 0x90d);
  in.put(72, 24, pool.object.number);
  in.put(160, 32, 1);
  in.put(Rmp::wq + 48, 16, 2);
  REQUIRE(pool.object.modify(in) == 0);
  CHECK(events.next(never_ms) == 0);
  for (int i = 0; i < 2; ++i) {
    a.send(memory.mr, 16);
    cq.wait();
    cq.wait();
  }
  CHECK(events.next(soon_ms) == 99);
  CHECK(events.next(never_ms) == 0);
}

TEST_CASE("Capabilities list the events that programs can subscribe to", "[devx_test]") {
  const Context c;
  const Cq cq(c);
  Events events(c);
  std::array<uint8_t, 4112> page{};
  Box query(16, 0x100);
  query.put(48, 16, 0x14 << 1 | 1);  // device_event_cap
  REQUIRE(mlx5dv_devx_general_cmd(c.ctx, query.data(), query.size(), page.data(), page.size()) ==
          0);
  // Numbers of 64 bits, least significant last.
  const auto listed = [&](size_t at, uint16_t event) {
    return page[16 + at + event / 64 * 8 + 7 - event % 64 / 8] >> event % 8 & 1;
  };
  constexpr size_t of_objects = 0, of_none = 32;
  int any = 0;
  for (uint16_t event = 0; event < 256; ++event) {
    INFO("event " << event);
    CHECK((events.subscribe(cq.object.object, event, 1) == 0) == listed(of_objects, event));
    CHECK((events.subscribe(nullptr, event, 1) == 0) == listed(of_none, event));
    any += listed(of_objects, event);
  }
  CHECK(any != 0);
}

TEST_CASE("Dynamic connections of commands carry data and report wrong keys", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Rmp pool(c, Rmp::cyclic);
  constexpr uint32_t dctc = 128;
  Box in(80, 0x710);
  in.put(dctc + 40, 24, 0x4321);
  in.put(dctc + 72, 24, cq.object.number);
  in.put(dctc + 108, 2, 3);
  in.put(dctc + 147, 5, 1);
  in.put(dctc + 168, 24, pool.object.number);
  in.put(dctc + 200, 24, c.pdn);
  in.put(dctc + 288, 32, 0x1ee7a);
  in.put(dctc + 325, 3, IBV_MTU_1024);
  in.put(dctc + 328, 8, 1);
  in.put(dctc + 376, 8, 64);
  Object target(c, in);
  REQUIRE(target.object != nullptr);
  Events events(c);
  REQUIRE(events.subscribe(target.object, event_key_violation, 5) == 0);
  CHECK(pool.object.destroy() == EINVAL);

  Qp initiator(c, dci, cq.object.number);
  REQUIRE(initiator.object.modify(initiator.to_init()) == 0);
  Box rtr = initiator.to_rtr(0, c);
  REQUIRE(initiator.object.modify(rtr) == 0);
  CHECK(initiator.query().get(primary_path + 88, 8) == 64);  // hops of its packets
  Box rts = initiator.to_rts();
  rts.put(qpc + 909, 3, 1);
  REQUIRE(initiator.object.modify(rts) == 0);

  const Memory from(c, 32, 0x3c);
  Memory to(c, 32);
  // A LID fits into a short address vector, a GID does not.
  const auto send_short = [&] {
    uint8_t *w = initiator.begin(MLX5_OPCODE_SEND, 3);
    store32(w + 20, 0x1ee7a);
    store32(w + 24, target.number);
    w[30] = static_cast<uint8_t>(c.port.lid >> 8);
    w[31] = static_cast<uint8_t>(c.port.lid);
    Qp::data(w + 32, from.mr, 32);
    initiator.ring(w);
  };
  const auto send = [&](uint32_t key) {
    uint8_t *w = initiator.begin(MLX5_OPCODE_SEND, 5);
    uint8_t *av = w + 16;
    store32(av + 4, key);
    store32(av + 8, target.number | 1u << 31);
    av[14] = static_cast<uint8_t>(c.port.lid >> 8);
    av[15] = static_cast<uint8_t>(c.port.lid);
    av[27] = 64;
    if (c.ethernet()) store32(av + 28, 1u << 30);
    std::memcpy(av + 32, &c.gid, sizeof c.gid);
    Qp::data(w + 64, from.mr, 32);
    initiator.ring(w, 2);
  };
  pool.post(0, to.mr, 32);
  send(0x1ee7a);
  for (int i = 0; i < 2; ++i) {
    const uint32_t opcode = cq.wait_opcode();
    CHECK((opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_RESP_SEND));
  }
  CHECK(to.bytes == from.bytes);
  if (!c.ethernet()) {
    std::fill(to.bytes.begin(), to.bytes.end(), uint8_t{0});
    pool.post(1, to.mr, 32);
    send_short();
    for (int i = 0; i < 2; ++i) {
      const uint32_t opcode = cq.wait_opcode();
      CHECK((opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_RESP_SEND));
    }
    CHECK(to.bytes == from.bytes);
  }

  // Only an armed target tells, once.
  Box query(80);
  const auto violations = [&] {
    REQUIRE(target.query(target.command(0x713), query) == 0);
    return query.get(dctc + 384, 32);
  };
  CHECK(violations() == 0);
  REQUIRE(target.modify(target.command(0x714)) == 0);
  send(0xbad);
  CHECK(cq.wait_opcode() == MLX5_CQE_REQ_ERR);
  CHECK(events.next(soon_ms) == 5);
  CHECK(events.next(never_ms) == 0);
  CHECK(violations() >= 1);
}

TEST_CASE("Events of a queue pair reach those who subscribed", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Rmp pool(c, Rmp::cyclic);
  Events cookies(c), entries(c, true);
  const int counter = eventfd(0, EFD_NONBLOCK);
  REQUIRE(counter >= 0);
  Qp qp(c, rc, cq.object.number, {1, pool.object.number}), other(c, rc, cq.object.number);
  REQUIRE(cookies.subscribe(qp.object.object, event_last_wqe, 0x123456789abcdef0) == 0);
  REQUIRE(entries.subscribe(qp.object.object, event_last_wqe, 17) == 0);
  REQUIRE(entries.count(qp.object.object, event_last_wqe, counter) == 0);
  const auto fail = [&] {
    REQUIRE(qp.object.modify(qp.object.command(0x50a)) == 0);
    qp.connect(other.object.number, c);
    REQUIRE(qp.object.modify(qp.object.command(0x507)) == 0);
  };
  fail();
  uint8_t entry[64] = {};
  CHECK(entries.next(soon_ms, entry) == 17);
  CHECK(entry[1] == event_last_wqe);
  CHECK(load32(entry + 56) == qp.object.number);
  uint64_t counted = 0;
  CHECK(read(counter, &counted, sizeof counted) == sizeof counted);
  CHECK(counted == 1);
  // Cookies alone do not pile up: one is there until it is read.
  fail();
  fail();
  CHECK(entries.next(soon_ms, entry) == 17);
  CHECK(entries.next(soon_ms, entry) == 17);
  CHECK(cookies.next(soon_ms) == 0x123456789abcdef0);
  CHECK(cookies.next(never_ms) == 0);
  fail();
  CHECK(cookies.next(soon_ms) == 0x123456789abcdef0);
  // A file that is closed takes its subscriptions along.
  entries.close();
  fail();
  CHECK(cookies.next(soon_ms) == 0x123456789abcdef0);
  CHECK(read(counter, &counted, sizeof counted) == sizeof counted);
  CHECK(counted == 3);  // those before
  close(counter);
}

TEST_CASE("A completion queue of commands tells what it was armed for", "[devx_test]") {
  const Context c;
  Pair p(c);
  Events events(c);
  REQUIRE(events.subscribe(p.cq.object.object, event_completion, 1) == 0);
  const Memory from(c, 16), to(c, 16);
  const auto write = [&] { p.a.access(MLX5_OPCODE_RDMA_WRITE, from.mr, 16, to.mr); };
  write();
  p.cq.wait();
  CHECK(events.next(never_ms) == 0);
  p.cq.arm();
  CHECK(events.next(never_ms) == 0);
  write();
  CHECK(events.next(soon_ms) == 1);
  Box out(272);
  REQUIRE(p.cq.object.query(p.cq.object.command(0x402), out) == 0);
  CHECK(out.get(128 + 264, 24) == 2);  // completions at the event
  p.cq.wait();
  write();
  p.cq.wait();
  CHECK(events.next(never_ms) == 0);
}

TEST_CASE("A completion queue of commands that overflows says so", "[devx_test]") {
  const Context c;
  Pair p(c);
  Events events(c, true);
  REQUIRE(events.subscribe(p.cq.object.object, event_cq_error, 3) == 0);
  const Memory from(c, 16), to(c, 16);
  const bool ignored = GENERATE(false, true);
  if (ignored) {
    Box in = p.cq.object.command(0x403, 272);
    in.put(96, 32, 1 << 2);
    in.put(128 + 14, 1, 1);
    REQUIRE(p.cq.object.modify(in) == 0);
  }
  for (uint32_t i = 0; i < 2 * Cq::entries; ++i) {
    uint8_t *w = p.a.begin(MLX5_OPCODE_NOP, 1);
    p.a.ring(w);
    usleep(100);
  }
  uint8_t entry[64] = {};
  CHECK(events.next(ignored ? never_ms : soon_ms, entry) == (ignored ? 0 : 3));
  Box out(272);
  REQUIRE(p.cq.object.query(p.cq.object.command(0x402), out) == 0);
  CHECK(out.get(128, 4) == (ignored ? 0 : 0xa));
  if (ignored) return;
  CHECK(load32(entry + 32) == p.cq.object.number);
  CHECK(entry[43] == 1);  // overrun
}

TEST_CASE("Subscriptions that make no sense are refused", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Events events(c);
  CHECK(events.subscribe(cq.object.object, event_port, 1) == EINVAL);  // of ports only
  CHECK(events.subscribe(nullptr, event_last_wqe, 1) == EINVAL);       // of objects only
  CHECK(events.subscribe(nullptr, event_port, 1) == 0);
  CHECK(events.subscribe(cq.object.object, 0xfe, 1) == EINVAL);
  CHECK(events.count(cq.object.object, event_completion, 12345) == EBADF);
  const int no_counter = open("/dev/null", O_RDONLY);
  CHECK(events.count(cq.object.object, event_completion, no_counter) == EINVAL);
  close(no_counter);
  uint64_t nothing = 0;
  errno = 0;
  CHECK(read(events.fd(), &nothing, sizeof nothing) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("A query that is not waited for is answered through its descriptor", "[devx_test]") {
  const Context c;
  Pair p(c);
  mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(c.ctx);
  REQUIRE(answers != nullptr);
  const Box in = p.a.object.command(0x50b);
  REQUIRE(mlx5dv_devx_obj_query_async(p.a.object.object, in.data(), in.size(), 272, 0xabc,
                                      answers) == 0);
  std::vector<uint64_t> message((sizeof(uint64_t) + 272) / sizeof(uint64_t));
  auto *answer = reinterpret_cast<mlx5dv_devx_async_cmd_hdr *>(message.data());
  REQUIRE(mlx5dv_devx_get_async_cmd_comp(answers, answer, message.size() * sizeof(uint64_t)) == 0);
  CHECK(answer->wr_id == 0xabc);
  const auto *out = reinterpret_cast<const uint8_t *>(message.data() + 1);
  CHECK(out[0] == 0);
  CHECK(out[24] >> 4 == 3);  // RTS
  const Box wrong = p.b.object.command(0x50b);
  CHECK(mlx5dv_devx_obj_query_async(p.a.object.object, wrong.data(), wrong.size(), 272, 1,
                                    answers) == EINVAL);
  mlx5dv_devx_destroy_cmd_comp(answers);
}

TEST_CASE("A completion queue of commands gets another ring", "[devx_test]") {
  const Context c;
  Cq cq(c);
  Umem larger(c, 16384);
  Box in = cq.object.command(0x403, 272);
  in.put(48, 16, 1);
  in.put(96, 32, 1);
  in.put(128 + 99, 5, 8);
  in.put(704, 32, larger.id());
  REQUIRE(cq.object.modify(in) == 0);
  CHECK(cq.umem.at(0)[63] >> 4 == MLX5_CQE_RESIZE_CQ);
  CHECK(larger.deregister() == EINVAL);
  Box out(272);
  REQUIRE(cq.object.query(cq.object.command(0x402), out) == 0);
  CHECK(out.get(128 + 99, 5) == 8);
  in.put(128 + 99, 5, 9);
  CHECK(cq.object.modify(in) == EREMOTEIO);
  CHECK(cq.object.status == bad_param);
  CHECK(cq.object.destroy() == 0);
}

// With the events of port_events.json, seconds after the device was opened.
TEST_CASE("Port events reach verbs and those who subscribed", "[port_events]") {
  constexpr int in_time_ms = 30000;
  const Context c;
  Events events(c, true);
  REQUIRE(events.subscribe(nullptr, event_port, 42) == 0);
  // Those of firmware have subtypes, and none for another subnet manager.
  struct Expected {
    ibv_event_type type;
    uint8_t subtype;
  };
  for (const Expected &e : {Expected{IBV_EVENT_PORT_ERR, 1},
                            {IBV_EVENT_PORT_ACTIVE, 4},
                            {IBV_EVENT_SM_CHANGE, 0},
                            {IBV_EVENT_LID_CHANGE, 6},
                            {IBV_EVENT_PKEY_CHANGE, 7},
                            {IBV_EVENT_GID_CHANGE, 8},
                            {IBV_EVENT_CLIENT_REREGISTER, 9}}) {
    pollfd p{c.ctx->async_fd, POLLIN, 0};
    REQUIRE(poll(&p, 1, in_time_ms) == 1);
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(c.ctx, &event) == 0);
    CHECK(event.event_type == e.type);
    CHECK(event.element.port_num == 1);
    ibv_ack_async_event(&event);
    if (e.subtype == 0) continue;
    uint8_t entry[64] = {};
    CHECK(events.next(in_time_ms, entry) == 42);
    CHECK(entry[1] == event_port);
    CHECK(entry[3] == e.subtype);
    CHECK(entry[40] == 1 << 4);
  }
  CHECK(events.next(never_ms) == 0);
}
