// What no correct program asks for: null where an object has to be, unknown
// bits, objects of another context. Called through the table, since
// the inlines keep some of it from the library.
#include <fcntl.h>

#include <string>
#include <tuple>

#include "log_of.h"
#include "rig.h"
#include "table/compat.h"

using namespace ibvexp;

namespace {

// One object of each kind that slots take first.
struct Objects : Rig {
  Qp qp = create_qp(IBV_QPT_RC);
  Buffer buffer{pd.get(), 4096};
  ibv_srq_init_attr srq_attr{nullptr, {16, 1, 0}};
  Owned<ibv_srq, ibv_destroy_srq> srq{ibv_create_srq(pd.get(), &srq_attr)};
  const verbs_context_exp *table = verbs_get_exp_ctx(context.get());

  template <class T>
  T *get() {
    if constexpr (std::is_same_v<T, ibv_context>) return context.get();
    else if constexpr (std::is_same_v<T, ibv_qp>) return qp.get();
    else if constexpr (std::is_same_v<T, ibv_cq>) return cq.get();
    else if constexpr (std::is_same_v<T, ibv_mr>) return buffer.mr.get();
    else if constexpr (std::is_same_v<T, ibv_srq>) return srq.get();
    else if constexpr (std::is_same_v<T, ibv_pd>) return pd.get();
    else return nullptr;
  }
};

int number(int value) { return value; }
int number(const void *value) { return value != nullptr ? 0 : errno; }

// Calls a slot with an object and nothing else. -1 for slots whose first argument
// is none of ours.
template <class R, class First, class... Rest>
int with_nothing(R (*slot)(First *, Rest...), Objects &objects) {
  if constexpr (std::is_void_v<R> || sizeof...(Rest) == 0) {
    return -1;
  } else {
    First *first = objects.get<std::remove_const_t<First>>();
    if (first == nullptr) return -1;
    errno = 0;
    const R answer = slot(first, Rest{}...);
    const int got = number(answer);
    return got == -1 ? errno : got < 0 ? -got : got;
  }
}

}  // namespace

TEST_CASE("slots survive null arguments behind a good object [rows:entry,slot]") {
  Objects objects;
  REQUIRE(objects.table != nullptr);
  int checked = 0;
#define IBVEXP_SLOT(name, entry)                                                                \
  if (const int got = with_nothing(objects.table->name, objects); got != -1) {                  \
    INFO(#name);                                                                                \
    const bool refused = effective(row(EntryId::entry).answer).verdict == Verdict::unsupported; \
    /* An empty chain, no completion, and a release of nothing. */                              \
    const bool legal = std::string_view(#entry) == "ibv_exp_post_send" ||                       \
                       std::string_view(#entry) == "ibv_exp_poll_cq" ||                         \
                       std::string_view(#entry) == "ibv_exp_release_intf";                      \
    CHECK(got == (refused ? ENOTSUP : legal ? 0 : EINVAL));                                     \
    ++checked;                                                                                  \
  }
#include "table/slots.def"
  CHECK(checked > 30);
}

TEST_CASE("unknown bits are refused and change nothing [row:ibv_exp_create_qp]") {
  Objects objects;
  Rig &rig = objects;
  const verbs_context_exp &table = *objects.table;
  auto qp = rig.qp_attr(IBV_QPT_RC);
  ibv_exp_qp_attr qp_attr{};
  ibv_exp_cq_attr cq_attr{};
  ibv_exp_reg_mr_in reg{};
  reg.pd = rig.pd.get();
  reg.addr = objects.buffer.bytes.data();
  reg.length = 64;

  SECTION("create_qp: comp_mask") {
    qp.comp_mask |= 1u << GENERATE(13, 20, 31);
    CHECK(table.lib_exp_create_qp(rig.context.get(), &qp) == nullptr);
  }
  SECTION("create_qp: exp_create_flags") {
    qp.exp_create_flags = 1u << GENERATE(0, 1, 17, 31);
    CHECK(table.lib_exp_create_qp(rig.context.get(), &qp) == nullptr);
  }
  SECTION("modify_qp: mask") {
    const std::uint64_t bit = 1ull << GENERATE(21, 31);
    CHECK(table.lib_exp_modify_qp(objects.qp.get(), &qp_attr, bit) == EINVAL);
    errno = EINVAL;
  }
  SECTION("modify_qp: comp_mask") {
    qp_attr.comp_mask = 1u << GENERATE(2, 31);
    CHECK(table.lib_exp_modify_qp(objects.qp.get(), &qp_attr, IBV_EXP_QP_STATE) == EINVAL);
    errno = EINVAL;
  }
  SECTION("modify_cq: comp_mask") {
    cq_attr.comp_mask = 1u << 31;
    CHECK(table.lib_exp_modify_cq(objects.cq.get(), &cq_attr, IBV_EXP_CQ_MODERATION) == EINVAL);
    errno = EINVAL;
  }
  SECTION("reg_mr: comp_mask") {
    reg.comp_mask = 1u << 31;
    CHECK(table.lib_exp_reg_mr(&reg) == nullptr);
  }
  SECTION("reg_mr: access") {
    reg.exp_access = 1ull << GENERATE(6, 51, 62);
    CHECK(table.lib_exp_reg_mr(&reg) == nullptr);
  }
  SECTION("create_dct: comp_mask") {
    ibv_exp_dct_init_attr dct{};
    dct.pd = rig.pd.get();
    dct.cq = rig.cq.get();
    ibv_srq_init_attr init{nullptr, {4, 1, 0}};
    const Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(rig.pd.get(), &init));
    dct.srq = srq.get();
    dct.port = 1;
    dct.mtu = IBV_MTU_1024;
    dct.comp_mask = 1u << GENERATE(0, 31);
    ibv_exp_dct *made = table.create_dct(rig.context.get(), &dct);
    CHECK(made == nullptr);
  }
  SECTION("create_srq: comp_mask") {
    ibv_exp_create_srq_attr srq{};
    srq.pd = rig.pd.get();
    srq.comp_mask = 1u << GENERATE(5, 31);
    CHECK(table.exp_create_srq(rig.context.get(), &srq) == nullptr);
  }
  SECTION("query_port") {
    ibv_exp_port_attr port{};
    port.comp_mask = 1u << 31;
    CHECK(table.lib_exp_query_port(rig.context.get(), 1, &port) != 0);
    errno = EINVAL;
  }
  SECTION("query_gid_attr") {
    ibv_exp_gid_attr gid{};
    gid.comp_mask = 1u << 31;
    CHECK(table.exp_query_gid_attr(rig.context.get(), 1, 0, &gid) == EINVAL);
    errno = EINVAL;
  }
  CHECK(errno == EINVAL);
  CHECK(objects.qp->state == IBV_QPS_RESET);
}

// A caller of a later release has a longer structure, and says so by bits.
TEST_CASE("unknown parts of a query are left alone [row:ibv_exp_query_device]") {
  const Context context = open_first();
  alignas(8) unsigned char room[sizeof(ibv_exp_device_attr) + 256];
  std::memset(room, 0xee, sizeof(room));
  auto &attr = *reinterpret_cast<ibv_exp_device_attr *>(room);
  attr.comp_mask = ~0u;
  attr.comp_mask_2 = ~std::uint64_t{0};
  REQUIRE(verbs_get_exp_ctx(context.get())->lib_exp_query_device(context.get(), &attr) == 0);
  CHECK((attr.comp_mask_2 & ~std::uint64_t{IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1}) == 0);
  for (std::size_t i = sizeof(attr); i < sizeof(room); ++i) CHECK(room[i] == 0xee);
}

TEST_CASE("objects of another context are refused [row:ibv_exp_create_qp]") {
  Rig rig, other;
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(other.pd.get(), &init));
  auto attr = rig.qp_attr(IBV_QPT_RC);
  SECTION("protection domain") { attr.pd = other.pd.get(); }
  SECTION("send CQ") { attr.send_cq = other.cq.get(); }
  SECTION("receive CQ") { attr.recv_cq = other.cq.get(); }
  SECTION("shared receive queue") { attr.srq = srq.get(); }
  SECTION("no send CQ") { attr.send_cq = nullptr; }
  SECTION("no receive CQ") { attr.recv_cq = nullptr; }
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("the log says what is wrong with the domain of an XRC target") {
  Rig rig, other;
  ibv_xrcd_init_attr of{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  const Owned<ibv_xrcd, ibv_close_xrcd> foreign(ibv_open_xrcd(other.context.get(), &of));
  REQUIRE(foreign);
  auto attr = rig.qp_attr(IBV_QPT_XRC_RECV);
  const auto refused = [&] {
    return log_of([&] {
      errno = 0;
      CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
      CHECK(errno == EINVAL);
    });
  };
  CHECK(refused() == "ibvexp: ibv_exp_create_qp: xrcd 0x0: an XRC target needs an XRC domain\n");
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_XRCD;
  attr.xrcd = foreign.get();
  CHECK(refused() == "ibvexp: ibv_exp_create_qp: xrcd 0x0: of another context\n");
}
