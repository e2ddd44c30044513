// DC targets that report requests with a wrong key: made by commands, armed, with their event.
#include <fcntl.h>
#include <skip.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "dc_rig.h"

namespace {

constexpr auto key_violation = static_cast<ibv_event_type>(IBV_EXP_EVENT_DCT_KEY_VIOLATION);

const ibv_exp_dct *target_of(const ibv_async_event &event) {
  return reinterpret_cast<const ibv_exp_dct *>(event.element.qp);
}

// The state that the kernel reports of a thread.
bool waits_or_ended(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = line.rfind(')');
  return name_end == line.npos || line.at(name_end + 2) != 'R';
}

struct Armed : Dc {
  Dct dct = make_dct();
  Qp dci = make_dci();

  void set_waiting(bool waits) {
    const int flags = fcntl(context->async_fd, F_GETFL);
    REQUIRE(fcntl(context->async_fd, F_SETFL, waits ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) ==
            0);
  }
  int arm() {
    ibv_exp_arm_attr attr{};
    return ibv_exp_arm_dct(dct.get(), &attr);
  }
  ibv_wc_status write(std::uint64_t with) {
    auto piece = out.piece(0, 100);
    auto wr = to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
    aim(wr);
    wr.dc.dct_access_key = with;
    post(dci.get(), wr);
    return take().status;
  }
  void violate() {
    CHECK(write(key + 1) == IBV_WC_RETRY_EXC_ERR);
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, IBV_EXP_QP_STATE) == 0);
    to_rts(dci.get());
  }
  // Events of the target; those of others are passed over.
  int events() {
    int count = 0;
    ibv_async_event event{};
    while (ibv_get_async_event(context.get(), &event) == 0) {
      if (event.event_type == key_violation) {
        ++count;
        CHECK(target_of(event) == dct.get());
      }
      ibv_ack_async_event(&event);
    }
    CHECK(errno == EAGAIN);
    return count;
  }
  std::uint32_t violations() {
    ibv_exp_dct_attr attr{};
    REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
    CHECK(attr.dc_key == key);
    CHECK(attr.state == IBV_EXP_DCT_STATE_ACTIVE);
    return attr.key_violations;
  }
};

}  // namespace

TEST_CASE(
    "an armed target reports one wrong key "
    "[row:ibv_exp_arm_dct] [row:event_dct_key_violation]",
    "[engine]") {
  Armed dc;
  dc.set_waiting(false);
  CHECK(dc.violations() == 0);
  dc.violate();
  CHECK(dc.events() == 0);
  const std::uint32_t unarmed = dc.violations();
  CHECK(unarmed > 0);

  REQUIRE(dc.arm() == 0);
  CHECK(dc.write(key) == IBV_WC_SUCCESS);
  CHECK(dc.events() == 0);
  dc.violate();
  dc.violate();
  CHECK(dc.events() == 1);
  CHECK(dc.violations() > unarmed);
  REQUIRE(dc.arm() == 0);
  dc.violate();
  CHECK(dc.events() == 1);
  CHECK(dc.write(key) == IBV_WC_SUCCESS);
}

TEST_CASE("what a target uses is busy as long as there is one [row:ibv_exp_create_dct]") {
  Dc dc;
  Cq cq = dc.create_cq();
  Pd pd(ibv_alloc_pd(dc.context.get()));
  auto attr = dc.dct_attr();
  attr.cq = cq.get();
  attr.pd = pd.get();
  Dct dct(ibv_exp_create_dct(dc.context.get(), &attr));
  REQUIRE(dct);
  CHECK(ibv_destroy_srq(dc.srq.get()) == EBUSY);
  CHECK(ibv_destroy_cq(cq.get()) == EBUSY);
  CHECK(ibv_dealloc_pd(pd.get()) == EBUSY);
  dct.reset();
  CHECK(ibv_dealloc_pd(pd.release()) == 0);
  CHECK(ibv_destroy_srq(dc.srq.release()) == 0);
  CHECK(ibv_destroy_cq(cq.release()) == 0);
}

TEST_CASE("a thread that waits already gets the event of a later target [row:ibv_exp_arm_dct]",
          "[engine]") {
  Armed dc;
  // A device that delivers none would be waited for without end.
  dc.set_waiting(false);
  REQUIRE(dc.arm() == 0);
  dc.violate();
  REQUIRE(dc.events() == 1);
  dc.set_waiting(true);
  dc.dct.reset();
  ibv_async_event event{};
  std::thread waiting([&] {
    while (ibv_get_async_event(dc.context.get(), &event) == 0 && event.event_type != key_violation)
      ibv_ack_async_event(&event);
  });
  dc.dct = dc.make_dct();
  REQUIRE(dc.arm() == 0);
  dc.violate();
  waiting.join();
  REQUIRE(event.event_type == key_violation);
  CHECK(target_of(event) == dc.dct.get());

  // Its target stays until the event is acknowledged.
  std::atomic<bool> acknowledged{false};
  bool early = true;
  std::atomic<pid_t> id{0};
  std::thread destroying([&] {
    id = static_cast<pid_t>(syscall(SYS_gettid));
    dc.dct.reset();
    early = !acknowledged;
  });
  while (id == 0 || !waits_or_ended(id)) std::this_thread::yield();
  acknowledged = true;
  ibv_ack_async_event(&event);
  destroying.join();
  CHECK(!early);
}

TEST_CASE("events of other objects come as without the switch [row:ibv_exp_arm_dct]") {
  Dc dc;
  auto attr = dc.qp_attr(IBV_QPT_RC);
  attr.srq = dc.srq.get();
  const Qp qp(ibv_exp_create_qp(dc.context.get(), &attr));
  REQUIRE(qp);
  dc.connect(qp.get(), qp->qp_num);
  ibv_exp_qp_attr failed{};
  failed.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_exp_modify_qp(qp.get(), &failed, IBV_EXP_QP_STATE) == 0);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(dc.context.get(), &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(event.element.qp == qp.get());
  ibv_ack_async_event(&event);
}

TEST_CASE("an event of a target that is gone is no event [row:ibv_exp_arm_dct]", "[engine]") {
  Armed dc;
  dc.set_waiting(false);
  REQUIRE(dc.arm() == 0);
  dc.violate();
  dc.dct.reset();
  dc.dct = dc.make_dct();
  CHECK(dc.events() == 0);
}

TEST_CASE("what cannot be armed is refused [row:ibv_exp_arm_dct]") {
  Armed dc;
  ibv_exp_arm_attr attr{};
  attr.comp_mask = IBV_EXP_ARM_ATTR_RESERVED;
  CHECK(ibv_exp_arm_dct(dc.dct.get(), &attr) == EINVAL);
  ibv_exp_dct other = *dc.dct;
  attr.comp_mask = 0;
  CHECK(ibv_exp_arm_dct(&other, &attr) == EINVAL);
  if (!switched_on("key_violations")) CHECK(dc.arm() == ENOTSUP);
}

// Where the configuration refuses the commands.
TEST_CASE("a target that cannot be armed serves [row:ibv_exp_arm_dct]", "[no-commands]") {
  SKIP_IF(std::getenv("SOFTHCA_CONFIG") == nullptr, "the device takes commands");
  Armed dc;
  dc.set_waiting(false);
  CHECK(dc.arm() == ENOTSUP);
  CHECK(dc.violations() == 0);
  CHECK(dc.write(key) == IBV_WC_SUCCESS);
  dc.violate();
  CHECK(dc.events() == 0);
}
