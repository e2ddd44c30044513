// Completion queues that are resized while completions are unread: compressed ones, and
// entries of either size.
#include <infiniband/mlx5dv.h>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "rig.h"
#include "skip.h"

namespace {

struct Kind {
  const char *entry_bytes;
  std::uint32_t flags;
};
constexpr Kind kinds[] = {
    {"64", 0}, {"128", 0}, {"64", IBV_EXP_CQ_COMPRESSED_CQE}, {"128", IBV_EXP_CQ_COMPRESSED_CQE}};

// More than a completion has room for.
std::uint32_t length_of(std::uint64_t id) { return static_cast<std::uint32_t>(100 + id % 2); }

// Messages from left to right, which are received into a queue of its own.
struct Receiver : Rig {
  Cq received;
  Buffer buffer{pd.get(), 4096};
  Qp left, right;

  Receiver(const Kind &kind, int cqe) {
    REQUIRE(ibv_exp_setenv(context.get(), "MLX5_CQE_SIZE", kind.entry_bytes, 1) == 0);
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = kind.flags;
    received.reset(ibv_exp_create_cq(context.get(), cqe, nullptr, nullptr, 0, &attr));
    REQUIRE(received);
    left = create_qp(IBV_QPT_RC);
    auto init = qp_attr(IBV_QPT_RC);
    init.recv_cq = received.get();
    right.reset(ibv_exp_create_qp(context.get(), &init));
    REQUIRE(right);
    connect(left.get(), right->qp_num);
    connect(right.get(), left->qp_num);
  }

  // In one chain. Returns when all have been
  // received.
  void send(std::uint64_t first, std::uint64_t count) {
    ibv_sge pieces[] = {buffer.piece(0, length_of(0)), buffer.piece(0, length_of(1))};
    std::vector<ibv_exp_send_wr> chain;
    for (std::uint64_t id = first; id < first + count; ++id) {
      post_receive(right.get(), id, buffer.piece(2048, 1024));
      chain.push_back(request(id, IBV_EXP_WR_SEND, &pieces[id % 2]));
    }
    for (std::size_t i = 1; i < chain.size(); ++i) chain[i - 1].next = &chain[i];
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(left.get(), chain.data(), &bad) == 0);
    for (const auto &wc : completions(count)) REQUIRE(wc.status == IBV_WC_SUCCESS);
  }
};

}  // namespace

TEST_CASE("completions that are unread at a resize arrive in their order") {
  for (const Kind &kind : kinds) {
    CAPTURE(kind.entry_bytes, kind.flags);
    Receiver rig(kind, 100);
    std::uint64_t sent = 0, seen = 0;
    const auto see = [&](std::uint64_t count) {
      for (const std::uint64_t end = seen + count; seen < end;) {
        ibv_exp_wc wc[8];
        const int n = ibv_exp_poll_cq(rig.received.get(), 5, wc, sizeof(wc[0]));
        REQUIRE(n > 0);
        for (int i = 0; i < n; ++i, ++seen) {
          REQUIRE(wc[i].status == IBV_WC_SUCCESS);
          REQUIRE(wc[i].wr_id == seen);
          REQUIRE(wc[i].byte_len == length_of(wc[i].wr_id));
          REQUIRE(wc[i].qp == rig.right.get());
        }
      }
    };
    for (int round = 0; round < 12; ++round) {
      rig.send(sent, 32);
      sent += 32;
      if (round % 3 == 1) see(7);
      const int size = round % 2 == 0 ? 1000 : 100;
      REQUIRE(ibv_resize_cq(rig.received.get(), size) == 0);
      CHECK(rig.received->cqe >= size);
      if (round % 3 == 2) REQUIRE(ibv_resize_cq(rig.received.get(), size + 200) == 0);
      see(sent - seen);
    }
    // Less than what is unread.
    rig.send(sent, 32);
    sent += 32;
    CHECK(ibv_resize_cq(rig.received.get(), 3) == EINVAL);
    see(sent - seen);
  }
}

// As ibv_fork_init() keeps all memory of the device: IBV_FORK_SAFE calls it.
TEST_CASE("a child does not get the ring of a resized queue", "[fork]") {
  SKIP_IF(std::getenv("IBV_FORK_SAFE") == nullptr, "a test of its own has IBV_FORK_SAFE");
  Rig rig;
  const Cq cq(ibv_create_cq(rig.context.get(), 15, nullptr, nullptr, 0));
  REQUIRE(cq);
  const auto is_kept = [&] {
    mlx5dv_cq facts{};
    mlx5dv_obj object{};
    object.cq.in = cq.get();
    object.cq.out = &facts;
    REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
    const auto ring = reinterpret_cast<std::uintptr_t>(facts.buf);
    bool inside = false;
    std::ifstream maps("/proc/self/smaps");
    for (std::string line; std::getline(maps, line);) {
      std::uintptr_t first = 0, end = 0;
      if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2)
        inside = first <= ring && ring < end;
      if (inside && line.starts_with("VmFlags:")) return line.find(" dc") != std::string::npos;
    }
    return false;
  };
  CHECK(is_kept());
  REQUIRE(ibv_resize_cq(cq.get(), 1000) == 0);
  CHECK(is_kept());
  REQUIRE(ibv_resize_cq(cq.get(), 100) == 0);
  CHECK(is_kept());
}

TEST_CASE("a queue is not made smaller than the completions of what was just posted") {
  Rig rig;
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    Cq cq(ibv_create_cq(rig.context.get(), 15, nullptr, nullptr, 0));
    REQUIRE(cq);
    auto init = rig.qp_attr(IBV_QPT_RC);
    init.send_cq = cq.get();
    Qp left(ibv_exp_create_qp(rig.context.get(), &init));
    REQUIRE(left);
    const Qp right = rig.create_qp(IBV_QPT_RC);
    rig.connect(left.get(), right->qp_num);
    rig.connect(right.get(), left->qp_num);
    Buffer buffer(rig.pd.get(), 4096);
    ibv_sge piece = buffer.piece(0, 8);
    for (std::uint64_t id = 0; id < 8; ++id) {
      post_receive(right.get(), id, buffer.piece(2048, 1024));
      ibv_exp_send_wr wr = request(id, IBV_EXP_WR_SEND, &piece);
      ibv_exp_send_wr *bad = nullptr;
      REQUIRE(ibv_exp_post_send(left.get(), &wr, &bad) == 0);
    }
    CHECK(ibv_resize_cq(cq.get(), 1) == EINVAL);
    CHECK(cq->cqe >= 15);
    for (const auto &wc : rig.completions(8)) REQUIRE(wc.status == IBV_WC_SUCCESS);
    for (std::uint64_t id = 0; id < 8; ++id) {
      ibv_wc wc{};
      int n = 0;
      for (int turns = 0; n == 0 && turns < 50'000'000; ++turns) n = ibv_poll_cq(cq.get(), 1, &wc);
      REQUIRE(n == 1);
      CHECK(wc.status == IBV_WC_SUCCESS);
      CHECK(wc.wr_id == id);
    }
  }
}

TEST_CASE("queues are resized at any time, with threads that poll them") {
  for (const Kind &kind : kinds) {
    CAPTURE(kind.entry_bytes, kind.flags);
    Receiver rig(kind, 100);
    constexpr std::uint64_t messages = 1500;
    std::array<std::atomic<int>, messages> times{};
    std::atomic<std::uint64_t> seen{0};
    std::atomic<bool> failed{false};
    const auto poll = [&](const std::stop_token &stop) {
      while (!stop.stop_requested()) {
        ibv_exp_wc wc[4];
        const int n = ibv_exp_poll_cq(rig.received.get(), 4, wc, sizeof(wc[0]));
        for (int i = 0; i < n; ++i) {
          if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id >= messages) failed = true;
          else ++times[wc[i].wr_id];
        }
        if (n < 0) failed = true;
        else seen += static_cast<std::uint64_t>(n);
        if (n == 0) std::this_thread::yield();
      }
    };
    std::jthread pollers[] = {std::jthread(poll), std::jthread(poll)};
    std::mt19937 random(29);
    for (std::uint64_t sent = 0; sent < messages;) {
      const std::uint64_t count = std::min<std::uint64_t>(1 + random() % 30, messages - sent);
      rig.send(sent, count);
      sent += count;
      for (unsigned i = random() % 3; i != 0; --i) {
        const int size = static_cast<int>(64 + random() % 1000);
        const int error = ibv_resize_cq(rig.received.get(), size);
        // No room for what is unread.
        if (error != EINVAL) REQUIRE(error == 0);
      }
      for (int turns = 0; sent - seen > 30 && turns < 50'000'000; ++turns)
        std::this_thread::yield();
    }
    for (int turns = 0; seen < messages && turns < 50'000'000; ++turns) std::this_thread::yield();
    for (std::jthread &poller : pollers) {
      poller.request_stop();
      poller.join();
    }
    CHECK_FALSE(failed);
    CHECK(seen == messages);
    for (const auto &each : times) REQUIRE(each == 1);
  }
}
