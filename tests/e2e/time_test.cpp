// Time: completions with time stamps, the device's clock, and queues whose
// entries have another size or are compressed.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "page_end.h"
#include "rig.h"

namespace {

std::uint64_t read_clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

// The device goes on from the time at which it was opened, when the system's clock is set, too.
const std::uint64_t wall_ahead_ns = [] {
  std::uint64_t most = 0;
  for (int i = 0; i < 10; ++i) {  // a pause in between makes it less
    const std::uint64_t wall = read_clock(CLOCK_REALTIME);
    most = std::max(most, wall - read_clock(CLOCK_MONOTONIC));
  }
  return most;
}();
std::uint64_t wall_clock_ns() { return read_clock(CLOCK_MONOTONIC) + wall_ahead_ns; }

// A pair of connected queue pairs over a queue created with flags.
struct TimeRig : Rig {
  explicit TimeRig(std::uint32_t flags, int entries = 64) {
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = flags;
    errno = EDOM;
    cq.reset(ibv_exp_create_cq(context.get(), entries, this, nullptr, 0, &attr));
    REQUIRE(cq);
    CHECK(errno == EDOM);
    CHECK(cq->cq_context == this);
    CHECK(cq->cqe >= entries);
  }
  void pair(ibv_qp_type type = IBV_QPT_RC) {
    left = create_qp(type);
    right = create_qp(type);
    connect(left.get(), right->qp_num);
    connect(right.get(), left->qp_num);
  }
  // A message from left to right; both completions, the sender's first.
  std::vector<ibv_exp_wc> exchange(std::uint64_t id) {
    post_receive(right.get(), id, buffer.piece(2048, 1024));
    ibv_sge piece = buffer.piece(0, 100);
    auto wr = request(id, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(left.get(), &wr, &bad) == 0);
    auto both = completions(2);
    if ((both[0].exp_opcode & IBV_EXP_WC_RECV) != 0) std::swap(both[0], both[1]);
    return both;
  }
  Buffer buffer{pd.get(), 4096};
  Qp left, right;
};

ibv_exp_clock_info clock_of(ibv_context *context) {
  ibv_exp_values values{};
  REQUIRE(ibv_exp_query_values(context, IBV_EXP_VALUES_CLOCK_INFO, &values) == 0);
  CHECK(values.comp_mask == IBV_EXP_VALUES_CLOCK_INFO);
  return values.clock_info;
}

void refused(ibv_context *context, std::uint32_t flags, int reason) {
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = flags;
  errno = 0;
  CHECK(ibv_exp_create_cq(context, 16, nullptr, nullptr, 0, &attr) == nullptr);
  CHECK(errno == reason);
}

}  // namespace

TEST_CASE("completions carry the time [row:IBV_EXP_CQ_TIMESTAMP]") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP);
  rig.pair();
  std::uint64_t last = 0;
  // More than the queue has entries: it wraps.
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto before = clock_of(rig.context.get());
    const auto both = rig.exchange(i);
    for (const ibv_exp_wc &wc : both) {
      CHECK(wc.status == IBV_WC_SUCCESS);
      CHECK(wc.wr_id == i);
      // [row:IBV_EXP_WC_WITH_TIMESTAMP] [row:ts_poll_timestamp]
      REQUIRE((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
      CHECK((wc.exp_wc_flags & (IBV_EXP_WC_WITH_SL | IBV_EXP_WC_WITH_SLID)) == 0);
      CHECK((wc.exp_wc_flags & IBV_EXP_WC_QP) != 0);
    }
    CHECK(both[0].qp == rig.left.get());
    CHECK(both[1].qp == rig.right.get());
    CHECK(both[0].exp_opcode == IBV_EXP_WC_SEND);
    CHECK(both[1].exp_opcode == IBV_EXP_WC_RECV);
    CHECK(both[1].byte_len == 100);
    CHECK(both[1].qp_num == rig.right->qp_num);
    // The message arrives before it is acknowledged, and after the last one.
    CHECK(both[1].timestamp > last);
    CHECK(both[0].timestamp >= both[1].timestamp);
    CHECK(((both[1].timestamp - before.cycles) & before.mask) < before.mask / 2);
    last = both[0].timestamp;
  }
}

TEST_CASE("completions carry the time of day [row:IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME]") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME);
  rig.pair();
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::uint64_t before = wall_clock_ns();
    const auto both = rig.exchange(i);
    const std::uint64_t after = wall_clock_ns();
    constexpr std::uint64_t slack = 20'000'000;
    for (const ibv_exp_wc &wc : both) {
      REQUIRE((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
      CHECK(wc.timestamp + slack >= before);
      CHECK(wc.timestamp <= after + slack);
    }
  }
}

TEST_CASE("completions carry the time when a family drives their queue", "[engine]") {
  const std::uint32_t flag = GENERATE(std::uint32_t{IBV_EXP_CQ_TIMESTAMP},
                                      std::uint32_t{IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME});
  TimeRig rig(flag);
  ibv_exp_query_intf_params params{};
  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = rig.cq.get();
  ibv_exp_query_intf_status status{};
  REQUIRE(ibv_exp_query_intf(rig.context.get(), &params, &status) != nullptr);
  rig.pair();
  const auto now = [&] {
    ibv_exp_values values{};
    const bool cycles = flag == IBV_EXP_CQ_TIMESTAMP;
    REQUIRE(ibv_exp_query_values(rig.context.get(),
                                 cycles ? IBV_EXP_VALUES_HW_CLOCK : IBV_EXP_VALUES_HW_CLOCK_NS,
                                 &values) == 0);
    return cycles ? values.hwclock : values.hwclock_ns;
  };
  constexpr std::uint64_t slack = 1000;
  std::uint64_t last = now();
  // It wraps, too.
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto both = rig.exchange(i);
    for (const ibv_exp_wc &wc : both) {
      REQUIRE(wc.status == IBV_WC_SUCCESS);
      CHECK(wc.wr_id == i);
      REQUIRE((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
      CHECK((wc.exp_wc_flags & (IBV_EXP_WC_WITH_SL | IBV_EXP_WC_WITH_SLID)) == 0);
    }
    CHECK(both[1].timestamp + slack >= last);
    CHECK(both[0].timestamp + slack >= both[1].timestamp);
    last = now();
    CHECK(both[0].timestamp <= last + slack);
  }
}

TEST_CASE("modern queue pairs complete with the time as well", "[engine]") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP);
  rig.pair();  // the engine's
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = rig.cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = rig.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  const Qp modern(ibv_create_qp_ex(rig.context.get(), &init));
  REQUIRE(modern);
  rig.connect(modern.get(), modern->qp_num);
  Buffer buffer(rig.pd.get(), 128);
  const std::uint64_t before = clock_of(rig.context.get()).cycles;
  post_receive(modern.get(), 1, buffer.piece(64, 64));
  ibv_qp_ex *const ex = ibv_qp_to_qp_ex(modern.get());
  ibv_wr_start(ex);
  ex->wr_id = 2;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  const ibv_sge piece = buffer.piece(0, 64);
  ibv_wr_set_sge(ex, piece.lkey, piece.addr, piece.length);
  REQUIRE(ibv_wr_complete(ex) == 0);
  for (const ibv_exp_wc &wc : rig.completions(2)) {
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
    CHECK(wc.timestamp > before);
  }
}

TEST_CASE("a queue with time stamps reports all that others report") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP);
  rig.pair();
  const auto post = [&](ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(rig.left.get(), &wr, &bad) == 0);
  };
  ibv_sge piece = rig.buffer.piece(0, 8);
  auto wr = request(1, IBV_EXP_WR_RDMA_READ, &piece);
  wr.wr.rdma.remote_addr = rig.buffer.address(1024);
  wr.wr.rdma.rkey = rig.buffer.mr->rkey;
  post(wr);
  auto wc = rig.completions(1)[0];
  CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_READ);
  CHECK(wc.byte_len == 8);

  wr = request(2, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &piece);
  wr.wr.atomic.remote_addr = rig.buffer.address(1024);
  wr.wr.atomic.rkey = rig.buffer.mr->rkey;
  wr.wr.atomic.compare_add = 1;
  post(wr);
  wc = rig.completions(1)[0];
  CHECK(wc.exp_opcode == IBV_EXP_WC_FETCH_ADD);
  CHECK(wc.byte_len == 8);

  post_receive(rig.right.get(), 3, rig.buffer.piece(2048, 8));
  wr = request(3, IBV_EXP_WR_RDMA_WRITE_WITH_IMM, &piece);
  wr.wr.rdma.remote_addr = rig.buffer.address(1024);
  wr.wr.rdma.rkey = rig.buffer.mr->rkey;
  wr.ex.imm_data = 0x12345678;
  post(wr);
  auto both = rig.completions(2);
  if (both[0].exp_opcode != IBV_EXP_WC_RECV_RDMA_WITH_IMM) std::swap(both[0], both[1]);
  CHECK(both[0].exp_opcode == IBV_EXP_WC_RECV_RDMA_WITH_IMM);
  CHECK((both[0].exp_wc_flags & IBV_EXP_WC_WITH_IMM) != 0);
  CHECK(both[0].imm_data == 0x12345678);
  CHECK(both[1].exp_opcode == IBV_EXP_WC_RDMA_WRITE);

  // An error has no time: the bytes are the syndrome's.
  wr = request(4, IBV_EXP_WR_RDMA_WRITE, &piece);
  wr.wr.rdma.remote_addr = rig.buffer.address(1024);
  wr.wr.rdma.rkey = rig.buffer.mr->rkey ^ 0x100000;
  post(wr);
  wc = rig.completions(1)[0];
  CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(wc.wr_id == 4);
  CHECK(wc.vendor_err == 0x88);
  CHECK(wc.qp == rig.left.get());
  // No time, but reported as one: the reasons of a failure lie there.
  CHECK((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
}

TEST_CASE("wc_size limits what is written of a time stamp") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP);
  rig.pair();
  post_receive(rig.right.get(), 1, rig.buffer.piece(2048, 1024));
  ibv_sge piece = rig.buffer.piece(0, 100);
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(rig.left.get(), &wr, &bad) == 0);
  constexpr std::uint32_t old_size = 88;
  int seen = 0;
  for (int turns = 0; seen < 2 && turns < 50'000'000; ++turns) {
    std::uint8_t room[2 * old_size + 8];
    std::memset(room, 0xee, sizeof(room));
    const int n = ibv_exp_poll_cq(rig.cq.get(), 2, reinterpret_cast<ibv_exp_wc *>(room), old_size);
    REQUIRE(n >= 0);
    for (std::size_t i = static_cast<std::size_t>(n) * old_size; i < sizeof(room); ++i)
      REQUIRE(room[i] == 0xee);
    for (int i = 0; i < n; ++i) {
      const auto *wc = reinterpret_cast<const ibv_exp_wc *>(room + i * old_size);
      CHECK((wc->exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
      CHECK(wc->timestamp != 0);
    }
    seen += n;
  }
  CHECK(seen == 2);
}

TEST_CASE("a queue with time stamps serves the base verbs as well") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP);
  rig.pair();
  for (std::uint64_t i = 0; i < 6; ++i) {
    post_receive(rig.right.get(), i, rig.buffer.piece(2048, 1024));
    ibv_sge piece = rig.buffer.piece(0, 100);
    auto wr = request(i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(rig.left.get(), &wr, &bad) == 0);
    if (i % 2 == 0) {
      for (const auto &wc : rig.completions(2)) CHECK(wc.wr_id == i);
      continue;
    }
    int seen = 0;
    for (int turns = 0; seen < 2 && turns < 50'000'000; ++turns) {
      ibv_wc wc{};
      const int n = ibv_poll_cq(rig.cq.get(), 1, &wc);
      REQUIRE(n >= 0);
      if (n == 1) CHECK(wc.wr_id == i);
      seen += n;
    }
    REQUIRE(seen == 2);
  }
}

TEST_CASE("a queue with time stamps is for a vector that there is") {
  const Context context = open_first();
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_TIMESTAMP;
  const int vectors = context->num_comp_vectors;
  errno = 0;
  CHECK(ibv_exp_create_cq(context.get(), 8, nullptr, nullptr, vectors, &attr) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(Cq(ibv_exp_create_cq(context.get(), 8, nullptr, nullptr, vectors - 1, &attr)));
}

TEST_CASE("a queue that is in use stays as it is") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP);
  rig.pair();
  CHECK(ibv_destroy_cq(rig.cq.get()) == EBUSY);
  // The queue pairs of now, and those to come.
  for (int round = 0; round < 2; ++round) {
    for (const auto &wc : rig.exchange(7)) {
      CHECK(wc.status == IBV_WC_SUCCESS);
      CHECK((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
    }
    rig.pair();
  }
}

TEST_CASE("a queue with time stamps is resized") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP, 15);
  rig.pair();
  for (std::uint64_t i = 0; i < 20; ++i) rig.exchange(i);
  for (const int size : {500, 20, 100}) {
    REQUIRE(ibv_resize_cq(rig.cq.get(), size) == 0);
    for (std::uint64_t i = 0; i < 150; ++i) {
      const auto both = rig.exchange(i);
      REQUIRE(both[0].wr_id == i);
      REQUIRE(both[1].wr_id == i);
      REQUIRE((both[1].exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
    }
  }
  CHECK(ibv_resize_cq(rig.cq.get(), 1 << 30) != 0);
  for (std::uint64_t i = 0; i < 150; ++i) REQUIRE(rig.exchange(i)[0].wr_id == i);
}

TEST_CASE("a queue with time stamps notifies") {
  Rig rig;
  Channel channel(ibv_create_comp_channel(rig.context.get()));
  REQUIRE(channel);
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_TIMESTAMP;
  Cq cq(ibv_exp_create_cq(rig.context.get(), 16, &rig, channel.get(), 0, &attr));
  REQUIRE(cq);
  CHECK(channel->refcnt == 1);
  REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
  auto qp_attr = rig.qp_attr(IBV_QPT_UD);
  qp_attr.send_cq = qp_attr.recv_cq = cq.get();
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &qp_attr));
  REQUIRE(qp);
  rig.connect(qp.get(), 0);
  Buffer buffer(rig.pd.get(), 4096);
  post_receive(qp.get(), 1, buffer.piece(0, 100));
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(qp.get(), &error, IBV_QP_STATE) == 0);
  ibv_cq *reported = nullptr;
  void *event_context = nullptr;
  REQUIRE(ibv_get_cq_event(channel.get(), &reported, &event_context) == 0);
  CHECK(reported == cq.get());
  CHECK(event_context == &rig);
  ibv_ack_cq_events(reported, 1);
}

TEST_CASE(
    "time stamps are reported where queues have them "
    "[row:IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK]") {
  const Context context = open_first();
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK;
  REQUIRE(ibv_exp_query_device(context.get(), &device) == 0);
  CHECK((device.comp_mask & IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK) != 0);
  for (const int flag : {IBV_EXP_CQ_TIMESTAMP, IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME}) {
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = static_cast<std::uint32_t>(flag);
    errno = 0;
    const Cq made(ibv_exp_create_cq(context.get(), 16, nullptr, nullptr, 0, &attr));
    CHECK(made);
    CHECK(errno == 0);
  }
}

TEST_CASE("flags of completion queues that are refused [row:IBV_EXP_CQ_AS_NOTIFY]") {
  const Context context = open_first();
  refused(context.get(), IBV_EXP_CQ_AS_NOTIFY, ENOTSUP);
  if (!switched_on("cross_channel"))
    refused(context.get(), IBV_EXP_CQ_CREATE_CROSS_CHANNEL, ENOTSUP);
  refused(context.get(), IBV_EXP_CQ_TIMESTAMP | IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME, EINVAL);
  refused(context.get(), IBV_EXP_CQ_TIMESTAMP | IBV_EXP_CQ_AS_NOTIFY, ENOTSUP);
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_TIMESTAMP;
  for (const int cqe : {0, -1, 1 << 30}) {
    errno = 0;
    CHECK(ibv_exp_create_cq(context.get(), cqe, nullptr, nullptr, 0, &attr) == nullptr);
    CHECK(errno == EINVAL);
  }
}

// [row:IBV_EXP_VALUES_HW_CLOCK][row:IBV_EXP_VALUES_HW_CLOCK_NS]
TEST_CASE("the clock is read in every unit [row:ibv_exp_query_values]") {
  const Context context = open_first();
  ibv_exp_device_attr device{};
  device.comp_mask =
      IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK | IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK;
  REQUIRE(ibv_exp_query_device(context.get(), &device) == 0);
  CHECK(device.comp_mask ==
        (IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK | IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK));
  REQUIRE(device.hca_core_clock > 0);

  // What hca_core_clock says is how fast the clock runs. [row:ts_query_core_clock]
  const auto read = [&](int what) {
    ibv_exp_values values;
    std::memset(&values, 0xee, sizeof(values));
    values.comp_mask = 0;
    errno = EDOM;
    REQUIRE(ibv_exp_query_values(context.get(), what, &values) == 0);
    CHECK(errno == EDOM);
    CHECK(values.comp_mask == static_cast<std::uint32_t>(what));
    return values;
  };
  CHECK(read(IBV_EXP_VALUES_HW_CLOCK).hwclock_ns == 0xeeeeeeeeeeeeeeee);
  // A busy machine may stop either clock's reader: some measurement is undisturbed.
  const auto eventually = [](auto measure) {
    for (int i = 0; i < 50; ++i) {
      if (measure()) return true;
      // Time for the one who keeps the clock.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  };
  CHECK(eventually([&] {
    const auto start = read(IBV_EXP_VALUES_HW_CLOCK);
    const auto start_time = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto end = read(IBV_EXP_VALUES_HW_CLOCK);
    const double elapsed_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_time)
            .count();
    const double cycles =
        static_cast<double>((end.hwclock - start.hwclock) & device.timestamp_mask);
    const double ratio = cycles / elapsed_ms / static_cast<double>(device.hca_core_clock);
    return ratio > 0.99 && ratio < 1.01;
  }));

  // Nanoseconds are those of the wall clock, whether cycles are asked for or not.
  for (const int what :
       {int{IBV_EXP_VALUES_HW_CLOCK_NS}, IBV_EXP_VALUES_HW_CLOCK_NS | IBV_EXP_VALUES_HW_CLOCK})
    CHECK(eventually([&] {
      const std::uint64_t before = wall_clock_ns();
      const auto now = read(what);
      const std::uint64_t after = wall_clock_ns();
      return now.hwclock_ns + 1'000'000 >= before && now.hwclock_ns <= after + 1'000'000;
    }));
  const auto all = read(IBV_EXP_VALUES_RESERVED - 1);
  CHECK(ibv_exp_cqe_ts_to_ns(&const_cast<ibv_exp_values &>(all).clock_info, all.hwclock) ==
        all.hwclock_ns);
  CHECK(all.clock_info.comp_mask == 0);
}

TEST_CASE("bad questions about the clock are refused [row:IBV_EXP_VALUES_RESERVED]") {
  const Context context = open_first();
  ibv_exp_values values{};
  // Unknown ones are ignored, as the legacy provider did.
  CHECK(ibv_exp_query_values(context.get(), IBV_EXP_VALUES_RESERVED, &values) == 0);
  CHECK(values.comp_mask == 0);
  values.comp_mask = IBV_EXP_VALUES_RESERVED;
  const int answer = ibv_exp_query_values(context.get(), IBV_EXP_VALUES_HW_CLOCK, &values);
  // The inline returns it without a sign, as it always did.
  CHECK((answer == EINVAL || answer == -EINVAL));
}

TEST_CASE("cycles become nanoseconds on both sides of a wrap [row:ibv_exp_cqe_ts_to_ns]") {
  ibv_exp_clock_info info{};
  info.mask = (std::uint64_t{1} << 48) - 1;
  info.cycles = 1000;
  info.nsec = 1'700'000'000'000'000'000;
  info.mult = 3 << 20;
  info.shift = 20;
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 1000) == info.nsec);
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 1001) == info.nsec + 3);
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 900) == info.nsec - 300);
  // Before zero: the counter had wrapped since.
  CHECK(ibv_exp_cqe_ts_to_ns(&info, info.mask) == info.nsec - 3003);
  std::uint64_t last = 0;
  for (int step = -5000; step < 5000; ++step) {
    const auto ts = static_cast<std::uint64_t>(1000 + step) & info.mask;
    const std::uint64_t ns = ibv_exp_cqe_ts_to_ns(&info, ts);
    REQUIRE(ns > last);
    last = ns;
  }
  info.comp_mask = 1;
  errno = 0;
  CHECK(ibv_exp_cqe_ts_to_ns(&info, 1000) == 0);
  CHECK(errno == EINVAL);
#ifdef IBVEXP_EXTERN_CALLS
  // The inline shifts by what it is given.
  info.comp_mask = 0;
  for (const std::uint32_t shift : {64u, 128u, ~0u}) {
    info.shift = shift;
    errno = 0;
    CHECK(ibv_exp_cqe_ts_to_ns(&info, 1000) == 0);
    CHECK(errno == EINVAL);
  }
#endif
}

// [row:env_mlx5_cqe_size]
TEST_CASE("entries have the size that the context's environment says") {
  Rig rig;
  const auto inline_receive = [&](ibv_cq *cq) {
    // With masked atomics RC queue pairs have no inline receive.
    auto attr = rig.qp_attr(switched_on("masked_atomics") ? IBV_QPT_UC : IBV_QPT_RC);
    attr.recv_cq = cq;
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_INL_RECV;
    attr.max_inl_recv = 64;
    const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(qp);
    return attr.max_inl_recv;
  };
  CHECK(inline_receive(rig.cq.get()) == 32);
  REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_CQE_SIZE", "128", 1) == 0);
  CHECK(std::getenv("MLX5_CQE_SIZE") == nullptr);
  const Cq large = rig.create_cq(16);
  CHECK(inline_receive(large.get()) == 64);
  // The first one stays if the caller wants that, which is an error here.
  REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_CQE_SIZE", "64", 0) == -1);
  CHECK(inline_receive(rig.create_cq(16).get()) == 64);

  // Messages that fit into the entry come through it.
  rig.cq.reset();
  rig.cq = rig.create_cq(16);
  const Qp left = rig.create_qp(IBV_QPT_RC), right = rig.create_qp(IBV_QPT_RC);
  rig.connect(left.get(), right->qp_num);
  rig.connect(right.get(), left->qp_num);
  Buffer buffer(rig.pd.get(), 4096);
  for (std::uint32_t length = 1; length <= 100; ++length) {
    for (std::uint32_t i = 0; i < length; ++i)
      buffer.bytes[i] = static_cast<std::uint8_t>(i + length);
    post_receive(right.get(), length, buffer.piece(2048, 256));
    ibv_sge piece = buffer.piece(0, length);
    auto wr = request(length, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(left.get(), &wr, &bad) == 0);
    for (const auto &wc : rig.completions(2)) REQUIRE(wc.status == IBV_WC_SUCCESS);
    REQUIRE(std::memcmp(buffer.bytes.data(), buffer.bytes.data() + 2048, length) == 0);
  }
  REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_CQE_SIZE", "64", 1) == 0);
  CHECK(inline_receive(rig.create_cq(16).get()) == 32);
  REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_CQE_SIZE", "100", 1) == 0);
  CHECK(inline_receive(rig.create_cq(16).get()) == 32);
}

TEST_CASE("a CQ overrun is an event, not a crash") {
  TimeRig rig(IBV_EXP_CQ_TIMESTAMP, 3);
  rig.pair();
  ibv_sge piece = rig.buffer.piece(0, 8);
  for (std::uint64_t i = 0; i < 12; ++i) {
    post_receive(rig.right.get(), i, rig.buffer.piece(2048, 64));
    auto wr = request(i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(rig.left.get(), &wr, &bad) == 0);
  }
  // What had room is there, and the device says that the rest is lost.
  pollfd ready{rig.context->async_fd, POLLIN, 0};
  REQUIRE(poll(&ready, 1, 60'000) == 1);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(rig.context.get(), &event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == rig.cq.get());
  ibv_ack_async_event(&event);
  int seen = 0;
  for (int turns = 0; turns < 1000; ++turns) {
    ibv_exp_wc wc[8];
    const int n = ibv_exp_poll_cq(rig.cq.get(), 8, wc, sizeof(wc[0]));
    REQUIRE(n >= 0);
    seen += n;
  }
  CHECK(seen == rig.cq->cqe + 1);
  // Others may follow, of the queue pairs.
  ready.revents = 0;
  while (poll(&ready, 1, 100) == 1) {
    REQUIRE(ibv_get_async_event(rig.context.get(), &event) == 0);
    ibv_ack_async_event(&event);
  }
}

TEST_CASE(
    "values are written into the structure of 4.0, which is shorter [row:ibv_exp_query_values]") {
  const Context context = open_first();
  const PageEnd end;
  auto &values = end.make<ibv_exp_values>(offsetof(ibv_exp_values, clock_info));
  REQUIRE(ibv_exp_query_values(context.get(), IBV_EXP_VALUES_HW_CLOCK | IBV_EXP_VALUES_HW_CLOCK_NS,
                               &values) == 0);
  CHECK(values.comp_mask == (IBV_EXP_VALUES_HW_CLOCK | IBV_EXP_VALUES_HW_CLOCK_NS));
  CHECK(values.hwclock != 0);
  CHECK(values.hwclock_ns != 0);
}
