// Conversions between the ages, without a device.
#include <catch.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/number_table.h"
#include "table/options.h"
#include "translate/convert/access_convert.h"
#include "translate/convert/device_convert.h"
#include "translate/convert/port_convert.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/wc_convert.h"
#include "translate/convert/wr_convert.h"
#include "translate/state/qp_state.h"

using namespace ibvexp;
using namespace ibvexp::translate;

namespace {

// A completion with everything set, as libmlx5 leaves members without meaning.
ibv_wc dirty(ibv_wc_opcode opcode, unsigned flags = 0) {
  ibv_wc wc;
  std::memset(&wc, 0xee, sizeof(wc));
  wc.wr_id = 5;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = opcode;
  wc.wc_flags = flags;
  wc.qp_num = 77;
  return wc;
}

}  // namespace

TEST_CASE("completions of sends have no receive members [row:IBV_EXP_WC_SEND]") {
  const auto wc = to_legacy(dirty(IBV_WC_SEND), {}, false);
  CHECK(wc.exp_opcode == IBV_EXP_WC_SEND);
  CHECK(wc.byte_len == 0);
  CHECK(wc.imm_data == 0);
  CHECK(wc.src_qp == 0);
  CHECK(wc.vendor_err == 0);
  CHECK(wc.exp_wc_flags == 0);
  for (const auto opcode : {IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD})
    CHECK(to_legacy(dirty(opcode), {}, false).byte_len == 0xeeeeeeee);
  CHECK(to_legacy(dirty(IBV_WC_SEND, IBV_WC_WITH_IMM), {}, false).exp_wc_flags ==
        IBV_EXP_WC_WITH_IMM);
}

TEST_CASE("opcodes of completions keep their numbers but for one [row:IBV_EXP_WC_LOCAL_INV]") {
  CHECK(to_legacy(IBV_WC_LOCAL_INV) == IBV_EXP_WC_LOCAL_INV);
  CHECK(to_legacy(IBV_WC_BIND_MW) == IBV_EXP_WC_BIND_MW);
  CHECK(to_legacy(IBV_WC_RECV) == IBV_EXP_WC_RECV);
  CHECK(to_legacy(IBV_WC_RECV_RDMA_WITH_IMM) == IBV_EXP_WC_RECV_RDMA_WITH_IMM);
  CHECK(to_legacy(IBV_WC_TSO) == IBV_EXP_WC_TSO);
  CHECK(to_legacy(IBV_WC_TM_ADD) == IBV_EXP_WC_TM_ADD);
  CHECK(to_legacy(IBV_WC_TM_DEL) == IBV_EXP_WC_TM_DEL);
  CHECK(to_legacy(IBV_WC_TM_SYNC) == IBV_EXP_WC_TM_SYNC);
  CHECK(to_legacy(IBV_WC_TM_RECV) == IBV_EXP_WC_TM_RECV);
  CHECK(to_legacy(IBV_WC_TM_NO_TAG) == IBV_EXP_WC_TM_NO_TAG);
}

// [row:IBV_EXP_WC_TM_MATCH][row:IBV_EXP_WC_TM_DATA_VALID][row:IBV_EXP_WC_TM_SYNC_REQ]
// [row:IBV_EXP_WC_TM_DEL_FAILED]
TEST_CASE("flags of tags [row:IBV_EXP_WC_TM_RNDV_INCOMPLETE]") {
  const auto flags = [](ibv_wc_opcode opcode, ibv_wc_status status, unsigned wc_flags) {
    ibv_wc from = dirty(opcode, wc_flags);
    from.status = status;
    const auto wc = to_legacy(from, {}, false);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.exp_opcode == to_legacy(opcode));
    // An operation on the list has received nothing.
    CHECK((wc.byte_len == 0) == (opcode != IBV_WC_TM_RECV));
    return wc.exp_wc_flags;
  };
  CHECK(flags(IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH) == IBV_EXP_WC_TM_MATCH);
  CHECK(flags(IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_DATA_VALID) == IBV_EXP_WC_TM_DATA_VALID);
  CHECK(flags(IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, 0) == IBV_EXP_WC_TM_RNDV_INCOMPLETE);
  CHECK(flags(IBV_WC_TM_ADD, IBV_WC_SUCCESS, IBV_WC_TM_SYNC_REQ) == IBV_EXP_WC_TM_SYNC_REQ);
  CHECK(flags(IBV_WC_TM_DEL, IBV_WC_TM_ERR, 0) == IBV_EXP_WC_TM_DEL_FAILED);
}

// [row:IBV_EXP_WC_GRH][row:IBV_EXP_WC_QP][row:IBV_EXP_WC_SRQ][row:IBV_EXP_WC_WITH_SL]
// [row:IBV_EXP_WC_WITH_SLID]
TEST_CASE("flags of receives [row:IBV_EXP_WC_WITH_INV]") {
  ibv_qp qp{};
  ibv_srq srq{};
  const auto plain = to_legacy(dirty(IBV_WC_RECV), {&qp, &srq}, false);
  CHECK(plain.exp_wc_flags == (IBV_EXP_WC_QP | IBV_EXP_WC_SRQ));
  CHECK(plain.sl == 0xee);
  CHECK(plain.slid == 0xeeee);
  CHECK(plain.qp == &qp);
  CHECK(plain.srq == &srq);
  CHECK(plain.imm_data == 0);

  const auto inv = to_legacy(dirty(IBV_WC_RECV, IBV_WC_WITH_INV | IBV_WC_GRH), {}, false);
  CHECK((inv.exp_wc_flags & IBV_EXP_WC_WITH_INV) != 0);
  CHECK((inv.exp_wc_flags & IBV_EXP_WC_GRH) != 0);
  CHECK((inv.exp_wc_flags & with_inv_3x) == 0);
  CHECK(inv.imm_data == 0xeeeeeeee);
  CHECK((to_legacy(dirty(IBV_WC_RECV, IBV_WC_WITH_INV), {}, true).exp_wc_flags & with_inv_3x) != 0);
  CHECK((to_legacy(dirty(IBV_WC_RECV, IBV_WC_WITH_IMM), {}, false).exp_wc_flags &
         IBV_EXP_WC_WITH_IMM) != 0);
}

TEST_CASE("failed requests keep four members") {
  ibv_wc from = dirty(IBV_WC_RECV, IBV_WC_WITH_IMM);
  from.status = IBV_WC_RNR_RETRY_EXC_ERR;
  const auto wc = to_legacy(from, {}, false);
  CHECK(wc.wr_id == 5);
  CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(wc.qp_num == 77);
  CHECK(wc.vendor_err == 0xeeeeeeee);
  CHECK(wc.exp_opcode == 0);
  CHECK(wc.exp_wc_flags == 0);
}

TEST_CASE("opcodes of requests, in both encodings, by type of queue pair") {
  for (const int opcode : {0x48, int{IBV_EXP_WR_SEND_WITH_INV}})
    CHECK(to_modern_opcode(opcode, IBV_QPT_RC).modern == IBV_WR_SEND_WITH_INV);
  for (const int opcode : {0x4a, int{IBV_EXP_WR_LOCAL_INV}})
    CHECK(to_modern_opcode(opcode, IBV_QPT_RC).modern == IBV_WR_LOCAL_INV);
  for (const int opcode : {0x4e, int{IBV_EXP_WR_BIND_MW}}) {
    CHECK(to_modern_opcode(opcode, IBV_QPT_RC).modern == IBV_WR_BIND_MW);
    CHECK(to_modern_opcode(opcode, IBV_QPT_UD).handling == Handling::illegal);
  }
  CHECK(to_modern_opcode(IBV_EXP_WR_RDMA_READ, IBV_QPT_UC).handling == Handling::illegal);
  for (const int opcode : {IBV_EXP_WR_RDMA_WRITE, IBV_EXP_WR_RDMA_WRITE_WITH_IMM}) {
    CHECK(to_modern_opcode(opcode, IBV_QPT_UC).handling == Handling::chained);
    for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_RAW_PACKET})
      CHECK(to_modern_opcode(opcode, type).handling == Handling::illegal);
  }
  CHECK(to_modern_opcode(IBV_EXP_WR_ATOMIC_CMP_AND_SWP, IBV_QPT_XRC_SEND).handling ==
        Handling::chained);
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD})
    for (const int opcode : {IBV_EXP_WR_ATOMIC_CMP_AND_SWP, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD})
      CHECK(to_modern_opcode(opcode, type).handling == Handling::illegal);
  CHECK(to_modern_opcode(IBV_EXP_WR_SEND, IBV_QPT_RAW_PACKET).handling == Handling::chained);
  CHECK(to_modern_opcode(IBV_EXP_WR_SEND_WITH_IMM, IBV_QPT_RAW_PACKET).handling ==
        Handling::illegal);
  CHECK(to_modern_opcode(IBV_EXP_WR_NOP, IBV_QPT_RC).handling == Handling::other);
  CHECK(to_modern_opcode(-1, IBV_QPT_RC).handling == Handling::other);
}

TEST_CASE("requests are copied member by member") {
  ibv_exp_send_wr from;
  std::memset(&from, 0xa5, sizeof(from));
  ibv_mw window{};
  ibv_mr region{};
  from.exp_send_flags = IBV_EXP_SEND_FENCE | IBV_EXP_SEND_INLINE | IBV_EXP_SEND_IP_CSUM;
  from.bind_mw.mw = &window;
  from.bind_mw.rkey = 9;
  from.bind_mw.bind_info = {&region, 0x1000, 0x2000,
                            IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_MW_ZERO_BASED};
  ibv_send_wr to;
  to_modern(from, IBV_WR_BIND_MW, to);
  CHECK(to.send_flags == (IBV_SEND_FENCE | IBV_SEND_INLINE | IBV_SEND_IP_CSUM));
  CHECK(to.bind_mw.mw == &window);
  CHECK(to.bind_mw.rkey == 9);
  CHECK(to.bind_mw.bind_info.mr == &region);
  CHECK(to.bind_mw.bind_info.addr == 0x1000);
  CHECK(to.bind_mw.bind_info.length == 0x2000);
  CHECK(to.bind_mw.bind_info.mw_access_flags == (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED));

  from.qp_type.xrc.remote_srqn = 321;
  from.wr.rdma.remote_addr = 0xabc;
  from.wr.rdma.rkey = 11;
  to_modern(from, IBV_WR_RDMA_WRITE, to);
  CHECK(to.qp_type.xrc.remote_srqn == 321);
  CHECK(to.wr.rdma.remote_addr == 0xabc);
  CHECK(to.wr.rdma.rkey == 11);
}

TEST_CASE("access flags move [row:IBV_EXP_ACCESS_ON_DEMAND]") {
  CHECK(to_modern_access(IBV_EXP_ACCESS_ON_DEMAND) == IBV_ACCESS_ON_DEMAND);
  CHECK(to_modern_access(IBV_EXP_ACCESS_MW_ZERO_BASED) == IBV_ACCESS_ZERO_BASED);
  CHECK(to_modern_access(IBV_EXP_ACCESS_RELAXED_ORDERING) == IBV_ACCESS_RELAXED_ORDERING);
  CHECK(to_modern_access(IBV_EXP_ACCESS_ALLOCATE_MR | IBV_EXP_ACCESS_RELAXED) == 0);
  CHECK(to_modern_access(0x1f) == 0x1f);
}

TEST_CASE("queue pair masks and flags move [row:IBV_EXP_QP_CREATE_SCATTER_FCS]") {
  CHECK(to_modern_qp_mask(IBV_EXP_QP_STATE | IBV_EXP_QP_DEST_QPN) ==
        (IBV_QP_STATE | IBV_QP_DEST_QPN));
  CHECK(to_modern_qp_mask(IBV_EXP_QP_RATE_LIMIT) == IBV_QP_RATE_LIMIT);
  CHECK(to_modern_qp_mask(IBV_EXP_QP_OOO_RW_DATA_PLACEMENT | IBV_EXP_QP_DC_KEY) == 0);

  ibv_exp_qp_init_attr from{};
  from.comp_mask = IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN;
  from.exp_create_flags = IBV_EXP_QP_CREATE_SCATTER_FCS | IBV_EXP_QP_CREATE_RX_END_PADDING |
                          IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE |
                          IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY;
  from.associated_qpn = 12;
  const auto to = to_modern(from);
  CHECK(to.attr.create_flags == (IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_PCI_WRITE_END_PADDING |
                                 IBV_QP_CREATE_SOURCE_QPN));
  CHECK(to.attr.comp_mask == IBV_QP_INIT_ATTR_CREATE_FLAGS);
  CHECK(to.attr.source_qpn == 12);
  CHECK(to.needs_dv);
  CHECK(to.dv.create_flags == MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE);
}

TEST_CASE("GID types: InfiniBand and RoCE v1 are one") {
  CHECK(to_legacy_gid_type(IBV_GID_TYPE_IB) == IBV_EXP_IB_ROCE_V1_GID_TYPE);
  CHECK(to_legacy_gid_type(IBV_GID_TYPE_ROCE_V1) == IBV_EXP_IB_ROCE_V1_GID_TYPE);
  CHECK(to_legacy_gid_type(IBV_GID_TYPE_ROCE_V2) == IBV_EXP_ROCE_V2_GID_TYPE);
}

TEST_CASE("device attributes are reported if asked for, known and allowed") {
  DeviceFacts facts{};
  facts.is_mlx5 = facts.engine = facts.scatter_to_cqe = true;
  facts.attr.orig_attr.max_qp = 4;
  facts.attr.orig_attr.device_cap_flags = IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW;
  facts.attr.odp_caps.general_caps = IBV_ODP_SUPPORT;
  facts.attr.max_dm_size = 4096;
  const Reportable all = [](FeatureId) { return true; };
  const Reportable none = [](FeatureId) { return false; };

  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE | IBV_EXP_DEVICE_ATTR_ODP;
  to_legacy(facts, all, attr);
  CHECK(attr.comp_mask == (IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE | IBV_EXP_DEVICE_ATTR_ODP));
  CHECK(attr.max_dm_size == 4096);
  CHECK(attr.max_qp == 4);

  attr.comp_mask = 0xffffffff;
  attr.comp_mask_2 = 0xdeadbeef;
  to_legacy(facts, none, attr);
  CHECK(attr.comp_mask == 0);
  CHECK(attr.comp_mask_2 == 0);

  CHECK(exp_capabilities(facts, all) ==
        (IBV_EXP_DEVICE_XRC | IBV_EXP_DEVICE_MEM_WINDOW | IBV_EXP_DEVICE_ODP |
         IBV_EXP_DEVICE_MR_ALLOCATE | IBV_EXP_DEVICE_NOP | IBV_EXP_DEVICE_EC_OFFLOAD |
         IBV_EXP_DEVICE_SHARED_MR));
  CHECK(exp_capabilities(facts, none) == 0);
  // Before rdma-core v36.
  facts.engine = false;
  CHECK((exp_capabilities(facts, all) & IBV_EXP_DEVICE_NOP) == 0);
}

TEST_CASE("objects are found by number") {
  NumberTable<int> table;
  int a = 1, b = 2;
  CHECK(table.find(0) == nullptr);
  table.set(0xffffff, &a);
  table.set(0x1000, &b);
  CHECK(table.find(0xffffff) == &a);
  CHECK(table.find(0x1000) == &b);
  CHECK(table.find(0x1001) == nullptr);
  table.set(0x1000, nullptr);
  CHECK(table.find(0x1000) == nullptr);
  table.set(0x2000, nullptr);
  table.set(0x40000, nullptr);
  // Each level by itself, and what is above 24 bits does not count.
  std::array<int, 24> objects{};
  for (std::uint32_t bit = 0; bit < 24; ++bit) table.set(1u << bit, &objects[bit]);
  for (std::uint32_t bit = 0; bit < 24; ++bit) {
    CHECK(table.find(1u << bit) == &objects[bit]);
    CHECK(table.find(1u << bit | 1u << 24) == &objects[bit]);
    CHECK(table.find(1u << bit | 3) == nullptr);
  }
  CHECK(table.find(0xffffff) == &a);
  CHECK(table.find(0) == nullptr);
}

TEST_CASE("a table that another thread looks into is filled and emptied") {
  NumberTable<int> table;
  int object = 0;
  std::atomic<bool> done{false};
  std::atomic<int> strange{0};
  std::thread reader([&] {
    for (std::uint32_t n = 0; !done; n = (n + 0x101) & 0xffffff) {
      const int *found = table.find(n);
      if (found != nullptr && found != &object) ++strange;
    }
  });
  for (std::uint32_t n = 0; n < 0x20000; n += 7) table.set(n, &object);
  for (std::uint32_t n = 0; n < 0x20000; n += 7) table.set(n, nullptr);
  done = true;
  reader.join();
  CHECK(strange == 0);
}

TEST_CASE("states of queue pairs are used again") {
  QpPool pool;
  QpState &first = pool.take();
  QpState &second = pool.take();
  CHECK(&first != &second);
  pool.give_back(first);
  CHECK(&pool.take() == &first);
}

TEST_CASE("options that do not parse keep their default and are reported") {
  static std::vector<std::string> complaints;
  complaints.clear();
  const Complain complain = [](const char *message) { complaints.emplace_back(message); };
  const auto parse = [&](Lookup lookup) { return parse_options(lookup, complain); };

  const Options none = parse([](const char *) -> const char * { return nullptr; });
  CHECK(none.log_level == LogLevel::warn);
  CHECK_FALSE(none.strict);
  CHECK(none.objects == ObjectsOf::own);
  CHECK(none.layout == ObjectLayout::v4);
  CHECK(complaints.empty());

  const Options good = parse([](const char *name) -> const char * {
    if (std::string_view(name) == "IBVEXP_LOG_LEVEL") return "debug";
    if (std::string_view(name) == "IBVEXP_STRICT") return "1";
    if (std::string_view(name) == "IBVEXP_LOG_FILE") return "/somewhere";
    if (std::string_view(name) == "IBVEXP_ENGINE") return "native";
    if (std::string_view(name) == "IBVEXP_LAYOUT") return "3.x";
    return nullptr;
  });
  CHECK(good.log_level == LogLevel::debug);
  CHECK(good.strict);
  CHECK(good.objects == ObjectsOf::native);
  CHECK(good.layout == ObjectLayout::v3);
  CHECK(good.log_file == std::string("/somewhere"));
  CHECK(complaints.empty());

  const Options bad = parse([](const char *name) -> const char * {
    if (std::string_view(name) == "IBVEXP_LOG_LEVEL") return "loud";
    if (std::string_view(name) == "IBVEXP_BEYOND") return "nothing_of_the_kind,peer_direct";
    return nullptr;
  });
  CHECK(bad.log_level == LogLevel::warn);
  REQUIRE(complaints.size() == 3);
  CHECK(complaints[0].find("error,warn,info,debug") != std::string::npos);
  CHECK(complaints[1].find("nothing_of_the_kind") != std::string::npos);
  CHECK(complaints[2].find("peer_direct") != std::string::npos);

  complaints.clear();
  parse([](const char *name) -> const char * {
    return std::string_view(name) == "IBVEXP_BEYOND" ? "masked_atomic" : nullptr;
  });
  REQUIRE(complaints.size() == 1);
  CHECK(complaints[0].ends_with("did you mean masked_atomics?"));

  complaints.clear();
  const Options all = parse([](const char *name) -> const char * {
    return std::string_view(name) == "IBVEXP_BEYOND" ? "auto" : nullptr;
  });
  CHECK(all.automatic);
  CHECK_FALSE(none.automatic);
  for (std::size_t i = 0; i < beyond_switches.size(); ++i)
    CHECK(all.beyond[i] == (beyond_switches[i].status == SwitchStatus::done));
  CHECK(complaints.empty());
}

TEST_CASE("variables that begin like the library's and are none are named") {
  static std::vector<std::string> complaints;
  complaints.clear();
  const char *const environment[] = {"IBVEXP_LOGLEVEL=debug", "IBVEXP_LOG_LEVEL=warn", "HOME=/",
                                     "IBVEXP_FOLLOW=",        "IBVEXP_QUITE_ELSE=1",   nullptr};
  complain_of_unknown(environment, [](const char *message) { complaints.emplace_back(message); });
  REQUIRE(complaints.size() == 2);
  CHECK(complaints[0] == "IBVEXP_LOGLEVEL: unknown variable; did you mean IBVEXP_LOG_LEVEL?");
  CHECK(complaints[1] == "IBVEXP_QUITE_ELSE: unknown variable; compat-matrix.md lists them");
}
