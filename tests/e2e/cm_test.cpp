// Identifiers of the connection manager: contexts that librdmacm opens, and
// queue pairs made on them with experimental attributes. The library is
// preloaded; rdma_create_qp_exp is reached as by a legacy binary.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "log_of.h"
#include "rig.h"

namespace {

using EventChannel = std::unique_ptr<rdma_event_channel, decltype(&rdma_destroy_event_channel)>;
using Id = Owned<rdma_cm_id, rdma_destroy_id>;

struct Bound {
  EventChannel events{rdma_create_event_channel(), rdma_destroy_event_channel};
  Id id;

  explicit Bound(rdma_port_space space = RDMA_PS_TCP) {
    REQUIRE(events);
    rdma_cm_id *made = nullptr;
    REQUIRE(rdma_create_id(events.get(), &made, nullptr, space) == 0);
    id.reset(made);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = inet_addr("10.0.1.1");
    REQUIRE(rdma_bind_addr(made, reinterpret_cast<sockaddr *>(&here)) == 0);
    REQUIRE(made->verbs != nullptr);
  }
};

ibv_exp_qp_init_attr request() {
  ibv_exp_qp_init_attr attr{};
  attr.cap = {16, 16, 1, 1, 0};
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  return attr;
}

void refused(rdma_cm_id *id, ibv_exp_qp_init_attr *attr, int reason) {
  errno = 0;
  CHECK(rdma_create_qp_exp(id, attr) == -1);
  CHECK(errno == reason);
}

// Nothing was left behind.
void untouched(const rdma_cm_id *id) {
  CHECK(id->qp == nullptr);
  CHECK(id->send_cq == nullptr);
  CHECK(id->recv_cq == nullptr);
  CHECK(id->send_cq_channel == nullptr);
  CHECK(id->recv_cq_channel == nullptr);
}

}  // namespace

TEST_CASE("contexts of librdmacm carry the table [row:verbs_get_exp_ctx]") {
  const Bound bound;
  CHECK(verbs_get_exp_ctx(bound.id->verbs) != nullptr);
  ibv_exp_device_attr attr{};
  CHECK(ibv_exp_query_device(bound.id->verbs, &attr) == 0);
  CHECK(attr.max_qp > 0);
}

TEST_CASE("an identifier completes the request [row:rdma_create_qp_exp]") {
  const Bound bound;
  rdma_cm_id *id = bound.id.get();
  auto attr = request();
  REQUIRE(rdma_create_qp_exp(id, &attr) == 0);
  REQUIRE(id->qp != nullptr);
  CHECK(id->qp->qp_type == IBV_QPT_RC);
  CHECK(id->qp->state == IBV_QPS_INIT);
  CHECK(id->qp->pd == id->pd);
  REQUIRE(id->send_cq != nullptr);
  REQUIRE(id->recv_cq != nullptr);
  CHECK(id->qp->send_cq == id->send_cq);
  CHECK(id->qp->recv_cq == id->recv_cq);
  CHECK(id->send_cq->channel == id->send_cq_channel);
  CHECK(attr.cap.max_send_wr >= 16);
  // What the identifier lent is not the caller's.
  CHECK(attr.pd == nullptr);
  CHECK(attr.send_cq == nullptr);
  CHECK(attr.comp_mask == IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS);

  SECTION("once") {
    auto again = request();
    refused(id, &again, EINVAL);
    CHECK(id->qp != nullptr);
  }
  rdma_destroy_qp(id);
  untouched(id);
  // And once more.
  REQUIRE(rdma_create_qp_exp(id, &attr) == 0);
  rdma_destroy_qp(id);
}

TEST_CASE("datagrams are ready to send [row:rdma_create_qp_exp]") {
  const Bound bound(RDMA_PS_UDP);
  rdma_cm_id *id = bound.id.get();
  auto attr = request();
  REQUIRE(rdma_create_qp_exp(id, &attr) == 0);
  CHECK(id->qp->qp_type == IBV_QPT_UD);
  CHECK(id->qp->state == IBV_QPS_RTS);
  rdma_destroy_qp(id);
}

TEST_CASE("the caller's own queues are used [row:rdma_create_qp_exp]") {
  const Bound bound;
  rdma_cm_id *id = bound.id.get();
  Cq cq(ibv_create_cq(id->verbs, 32, nullptr, nullptr, 0));
  Pd pd(ibv_alloc_pd(id->verbs));
  auto attr = request();
  attr.send_cq = attr.recv_cq = cq.get();
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_PD;
  attr.pd = pd.get();
  REQUIRE(rdma_create_qp_exp(id, &attr) == 0);
  CHECK(id->qp->send_cq == cq.get());
  CHECK(id->pd == pd.get());
  CHECK(id->send_cq == nullptr);
  rdma_destroy_qp(id);
}

TEST_CASE("what fails leaves an identifier as it was [row:rdma_create_qp_exp]") {
  const Bound bound;
  rdma_cm_id *id = bound.id.get();
  auto attr = request();
  int reason = ENOTSUP;
  if (!switched_on("cross_channel")) {
    SECTION("cross-channel") { attr.exp_create_flags = IBV_EXP_QP_CREATE_CROSS_CHANNEL; }
  }
  SECTION("unknown flags") {
    attr.exp_create_flags = 1u << 30;
    reason = EINVAL;
  }
  SECTION("no such type") {
    attr.qp_type = static_cast<ibv_qp_type>(77);
    reason = EINVAL;
  }
  SECTION("more than the device has") {
    attr.cap.max_send_sge = 1000;
    reason = EINVAL;
  }
  SECTION("queues other than those of the identifier") {
    Cq own(ibv_create_cq(id->verbs, 32, nullptr, nullptr, 0));
    Cq other(ibv_create_cq(id->verbs, 32, nullptr, nullptr, 0));
    const auto kept = GENERATE(&rdma_cm_id::send_cq, &rdma_cm_id::recv_cq);
    attr.send_cq = attr.recv_cq = other.get();
    id->*kept = own.get();
    const std::string log = log_of([&] { refused(id, &attr, EINVAL); });
    CHECK(log.find("differs from") != std::string::npos);
    CHECK(id->qp == nullptr);
    CHECK(id->*kept == own.get());
    id->*kept = nullptr;
    return;
  }
  SECTION("protection domain of another context") {
    const Context other = open_first();
    const Pd foreign(ibv_alloc_pd(other.get()));
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_PD;
    attr.pd = foreign.get();
    refused(id, &attr, EINVAL);
    untouched(id);
    return;
  }
  refused(id, &attr, reason);
  untouched(id);
}

TEST_CASE("identifiers that cannot have one [row:rdma_create_qp_exp]") {
  const EventChannel events(rdma_create_event_channel(), rdma_destroy_event_channel);
  rdma_cm_id *made = nullptr;
  REQUIRE(rdma_create_id(events.get(), &made, nullptr, RDMA_PS_TCP) == 0);
  const Id id(made);
  auto attr = request();
  refused(made, &attr, EINVAL);  // bound to no device
  refused(nullptr, &attr, EINVAL);
  refused(made, nullptr, EINVAL);
}
