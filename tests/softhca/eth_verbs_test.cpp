// The Ethernet commands through libibverbs and libmlx5, with the software HCA
// preloaded: refusals as the kernel has them, and one frame through all of it.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "catch.h"
#include "owned.h"
#include "skip.h"

namespace {

using Qp = Owned<ibv_qp, ibv_destroy_qp>;
using Wq = Owned<ibv_wq, ibv_destroy_wq>;
using Table = Owned<ibv_rwq_ind_table, ibv_destroy_rwq_ind_table>;
using Flow = Owned<ibv_flow, ibv_destroy_flow>;

bool may_use_raw_sockets() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_NET_RAW & 1) != 0;
}

// Meson takes 77 for "skipped".
[[maybe_unused]] const bool allowed = may_use_raw_sockets() || (_exit(77), false);

struct Context {
  Context() {
    ibv_device **list = ibv_get_device_list(nullptr);
    REQUIRE(list != nullptr);
    REQUIRE(list[0] != nullptr);
    // libmlx5 before release 29 is a user of DEVX only where it is asked for.
    mlx5dv_context_attr attr{};
    attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    ctx = mlx5dv_open_device(list[0], &attr);
    ibv_free_device_list(list);
    REQUIRE(ctx != nullptr);
    pd = ibv_alloc_pd(ctx);
    cq = ibv_create_cq(ctx, 64, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    REQUIRE((pd != nullptr && cq != nullptr && mr != nullptr));
  }
  ~Context() {
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(ctx) == 0);
  }
  Qp raw(uint32_t flags = 0) {
    ibv_qp_init_attr_ex a{};
    a.qp_type = IBV_QPT_RAW_PACKET;
    a.send_cq = a.recv_cq = cq;
    a.cap = {16, 16, 1, 1, 0};
    a.pd = pd;
    a.comp_mask =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    a.create_flags = flags;
    a.max_tso_header = 64;
    return Qp(ibv_create_qp_ex(ctx, &a));
  }
  Qp started() {
    Qp qp = raw();
    REQUIRE(qp);
    ibv_qp_attr a{};
    a.port_num = 1;
    a.qp_state = IBV_QPS_INIT;
    REQUIRE(ibv_modify_qp(qp.get(), &a, IBV_QP_STATE | IBV_QP_PORT) == 0);
    a.qp_state = IBV_QPS_RTR;
    REQUIRE(ibv_modify_qp(qp.get(), &a, IBV_QP_STATE) == 0);
    a.qp_state = IBV_QPS_RTS;
    REQUIRE(ibv_modify_qp(qp.get(), &a, IBV_QP_STATE) == 0);
    return qp;
  }
  Wq wq(uint32_t log_bytes = 0, uint32_t log_strides = 0, bool ready = true) {
    ibv_wq_init_attr a{};
    a.wq_type = IBV_WQT_RQ;
    a.max_wr = 16;
    a.max_sge = 1;
    a.pd = pd;
    a.cq = cq;
    mlx5dv_wq_init_attr m{};
    m.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
    m.striding_rq_attrs = {log_bytes, log_strides, 0};
    Wq wq(log_bytes != 0 ? mlx5dv_create_wq(ctx, &a, &m) : ibv_create_wq(ctx, &a));
    if (wq && ready) CHECK(state(wq, IBV_WQS_RDY) == 0);
    return wq;
  }
  static int state(Wq &wq, ibv_wq_state to) {
    ibv_wq_attr a{};
    a.attr_mask = IBV_WQ_ATTR_STATE;
    a.wq_state = to;
    return ibv_modify_wq(wq.get(), &a);
  }
  Table table(std::vector<ibv_wq *> wqs, uint32_t log_size) {
    ibv_rwq_ind_table_init_attr a{log_size, wqs.data(), 0};
    return Table(ibv_create_rwq_ind_table(ctx, &a));
  }
  Qp rss(Table &t, uint64_t fields, uint8_t key_bytes = 40,
         uint8_t function = IBV_RX_HASH_FUNC_TOEPLITZ) {
    ibv_qp_init_attr_ex a{};
    a.qp_type = IBV_QPT_RAW_PACKET;
    a.pd = pd;
    a.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
    a.rwq_ind_tbl = t.get();
    a.rx_hash_conf = {function, key_bytes, key, fields};
    return Qp(ibv_create_qp_ex(ctx, &a));
  }
  ibv_wc poll() {
    ibv_wc wc{};
    for (int i = 0; i < 1'000'000; ++i)
      if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
    FAIL("no completion");
    return wc;
  }

  std::vector<uint8_t> memory = std::vector<uint8_t>(64 * 1024);
  uint8_t key[128] = {0x6d, 0x5a, 0x56, 0xda};
  ibv_context *ctx;
  ibv_pd *pd;
  ibv_cq *cq;
  ibv_mr *mr;
};

// A rule with one Ethernet specification, and room for one more.
struct Rule {
  struct Layout {
    ibv_flow_attr attr;
    ibv_flow_spec_eth eth;
    union {
      ibv_flow_spec_ipv6 ipv6;
      ibv_flow_spec_ipv4_ext ipv4;
      ibv_flow_spec_ipv4 addresses;
      ibv_flow_spec_action_tag tag;
      ibv_flow_spec_action_drop drop;
      ibv_flow_spec_tcp_udp ports;
    };
  };
  Rule() {
    std::memset(&l, 0, sizeof l);
    l.attr.type = IBV_FLOW_ATTR_NORMAL;
    l.attr.size = sizeof l;
    l.attr.num_of_specs = 1;
    l.attr.port = 1;
    l.eth.type = IBV_FLOW_SPEC_ETH;
    l.eth.size = sizeof l.eth;
  }
  Flow create(Qp &qp) { return Flow(ibv_create_flow(qp.get(), &l.attr)); }
  int refusal(Qp &qp) {
    Flow f = create(qp);
    return f ? 0 : errno;
  }
  Layout l;
};

}  // namespace

TEST_CASE("Capabilities say what the device does") {
  Context c;
  ibv_device_attr_ex a{};
  REQUIRE(ibv_query_device_ex(c.ctx, nullptr, &a) == 0);
  CHECK((a.raw_packet_caps & (IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_SCATTER_FCS |
                              IBV_RAW_PACKET_CAP_IP_CSUM)) == 7);
  CHECK(a.rss_caps.supported_qpts == 1u << IBV_QPT_RAW_PACKET);
  CHECK(a.rss_caps.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ);
  CHECK(a.tso_caps.max_tso == 262144);
  CHECK(a.packet_pacing_caps.qp_rate_limit_max == 100'000'000);
  mlx5dv_context m{};
  m.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS;
  REQUIRE(mlx5dv_query_device(c.ctx, &m) == 0);
  CHECK(m.striding_rq_caps.max_single_stride_log_num_of_bytes == 13);
  CHECK(m.tunnel_offloads_caps == MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN);
}

// As the kernel fills the table: each address for both versions of RoCE, the port's own first.
TEST_CASE("GID entries are found by their index", "[rdma-core-34]") {
  Context c;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(c.ctx, 1, &port) == 0);
  // By name: the program starts with releases that do not have it.
  const auto query =
      reinterpret_cast<decltype(&_ibv_query_gid_ex)>(dlsym(RTLD_DEFAULT, "_ibv_query_gid_ex"));
  REQUIRE(query != nullptr);
  const auto entry = [&](uint32_t index, ibv_gid_entry &e) {
    return query(c.ctx, 1, index, &e, 0, sizeof e);
  };
  ibv_gid_entry e[4] = {};
  for (uint32_t i = 0; i < 4; ++i) {
    REQUIRE(entry(i, e[i]) == 0);
    CHECK(e[i].gid_index == i);
    CHECK(e[i].port_num == 1);
    CHECK(e[i].gid_type ==
          static_cast<uint32_t>(i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2));
    CHECK(std::memcmp(&e[i].gid, &e[i / 2 * 2].gid, sizeof e[i].gid) == 0);
  }
  CHECK((e[0].gid.raw[0] == 0xfe && e[0].gid.raw[1] == 0x80));
  CHECK((e[2].gid.raw[10] == 0xff && e[2].gid.raw[12] == 10));  // ::ffff:10.x.x.x
  ibv_gid_entry none{};
  CHECK(entry(static_cast<uint32_t>(port.gid_tbl_len) - 1, none) == ENODATA);
  CHECK(entry(static_cast<uint32_t>(port.gid_tbl_len), none) == EINVAL);
}

// libibverbs sends addresses alone in a shorter form than the kernel's own.
TEST_CASE("A rule may compare IPv4 addresses alone") {
  Context c;
  Qp qp = c.raw();
  REQUIRE(qp);
  Rule r;
  r.l.attr.num_of_specs = 2;
  r.l.addresses.type = IBV_FLOW_SPEC_IPV4;
  r.l.addresses.size = sizeof r.l.addresses;
  r.l.addresses.val.dst_ip = htobe32(0x0a000001);
  r.l.addresses.mask.dst_ip = 0xffffffff;
  CHECK(r.refusal(qp) == 0);
}

TEST_CASE("Flow rules are refused as the kernel refuses them") {
  Context c;
  Qp qp = c.raw();
  REQUIRE(qp);
  Rule r;
  SECTION("priority") {
    r.l.attr.priority = 16;
    CHECK(r.refusal(qp) == ENOMEM);
  }
  SECTION("port") {
    r.l.attr.port = 2;
    CHECK(r.refusal(qp) == EINVAL);
  }
  SECTION("unknown flag") {
    r.l.attr.flags = 1 << 3;
    CHECK(r.refusal(qp) == EINVAL);
  }
  SECTION("loop-back flag") {
    r.l.attr.flags = 1 << 0;
    CHECK(r.refusal(qp) == EINVAL);
  }
  SECTION("egress") {
    r.l.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
    CHECK(r.refusal(qp) == EOPNOTSUPP);
  }
  SECTION("defaults that do not trap") {
    r.l.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
    r.l.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
    CHECK(r.refusal(qp) == EINVAL);
  }
  SECTION("IP version against Ethernet type") {
    r.l.attr.num_of_specs = 2;
    r.l.eth.val.ether_type = htons(0x0800);
    r.l.eth.mask.ether_type = 0xffff;
    r.l.ipv6.type = IBV_FLOW_SPEC_IPV6;
    r.l.ipv6.size = sizeof r.l.ipv6;
    CHECK(r.refusal(qp) == EINVAL);
    r.l.eth.val.ether_type = htons(0x86dd);
    CHECK(r.refusal(qp) == 0);
    r.l.ipv6.mask.hop_limit = 1;
    CHECK(r.refusal(qp) == EOPNOTSUPP);
  }
  SECTION("a value that is not compared") {
    r.l.eth.val.ether_type = htons(0x0800);
    CHECK(r.refusal(qp) == EINVAL);
    r.l.eth.mask.ether_type = 0xffff;
    CHECK(r.refusal(qp) == 0);
  }
  SECTION("tag") {
    r.l.attr.num_of_specs = 2;
    r.l.tag.type = IBV_FLOW_SPEC_ACTION_TAG;
    r.l.tag.size = sizeof r.l.tag;
    r.l.tag.tag_id = 1 << 24;
    CHECK(r.refusal(qp) == EINVAL);
    r.l.tag.tag_id = (1 << 24) - 1;
    CHECK(r.refusal(qp) == 0);
  }
  SECTION("QP of another type") {
    ibv_qp_init_attr a{};
    a.qp_type = IBV_QPT_RC;
    a.send_cq = a.recv_cq = c.cq;
    a.cap = {1, 1, 1, 1, 0};
    Qp rc(ibv_create_qp(c.pd, &a));
    REQUIRE(rc);
    CHECK(r.refusal(rc) == EINVAL);
  }
}

TEST_CASE("What a rule or a table needs cannot be destroyed") {
  Context c;
  Wq wq = c.wq();
  Table table = c.table({wq.get(), wq.get()}, 1);
  Qp qp = c.rss(table, IBV_RX_HASH_SRC_IPV4);
  REQUIRE(qp);
  Rule r;
  Flow flow = r.create(qp);
  REQUIRE(flow);
  CHECK(ibv_destroy_qp(qp.get()) == EBUSY);
  CHECK(ibv_destroy_rwq_ind_table(table.get()) == EBUSY);
  CHECK(ibv_destroy_wq(wq.get()) == EBUSY);
  CHECK(ibv_destroy_cq(c.cq) == EBUSY);
}

// flow_matcher_cleanup() in drivers/infiniband/hw/mlx5/fs.c.
TEST_CASE("A matcher is not destroyed while a rule uses it") {
  constexpr size_t mask_bytes = 192, destination_at = 8;  // of fte_match_param
  Context c;
  Qp qp = c.raw();
  REQUIRE(qp);
  struct Parameters {
    size_t bytes = mask_bytes;
    uint64_t words[mask_bytes / 8] = {};
  } mask, value;
  auto *const mask_of = reinterpret_cast<mlx5dv_flow_match_parameters *>(&mask);
  auto *const value_of = reinterpret_cast<mlx5dv_flow_match_parameters *>(&value);
  std::memset(reinterpret_cast<uint8_t *>(mask.words) + destination_at, 0xff, 6);
  std::memset(reinterpret_cast<uint8_t *>(value.words) + destination_at, 0x02, 6);
  mlx5dv_flow_matcher_attr a{};
  a.type = IBV_FLOW_ATTR_NORMAL;
  a.match_criteria_enable = 1;  // headers outside of tunnels
  a.match_mask = mask_of;
  mlx5dv_flow_matcher *matcher = mlx5dv_create_flow_matcher(c.ctx, &a);
  REQUIRE(matcher != nullptr);
  mlx5dv_flow_action_attr to{};
  to.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP;
  to.qp = qp.get();
  Flow flow(mlx5dv_create_flow(matcher, value_of, 1, &to));
  REQUIRE(flow);
  CHECK(mlx5dv_destroy_flow_matcher(matcher) == EBUSY);
  flow.reset();
  CHECK(mlx5dv_destroy_flow_matcher(matcher) == 0);
}

TEST_CASE("RSS QPs and work queues have their rules") {
  Context c;
  Wq wq = c.wq();
  Table two = c.table({wq.get(), wq.get()}, 1), one = c.table({wq.get()}, 0);
  const auto refusal = [&](Table &t, uint64_t fields, uint8_t key = 40, uint8_t function = 1) {
    Qp qp = c.rss(t, fields, key, function);
    return qp ? 0 : errno;
  };
  CHECK(refusal(two, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6) == EINVAL);
  CHECK(refusal(two, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP) == EINVAL);
  CHECK(refusal(two, 0) == EINVAL);
  CHECK(refusal(one, 0) == 0);
  CHECK(refusal(two, IBV_RX_HASH_SRC_IPV4, 39) == EINVAL);
  CHECK(refusal(two, IBV_RX_HASH_SRC_IPV4, 40, 2) == EOPNOTSUPP);
  CHECK(refusal(two, IBV_RX_HASH_SRC_IPV4 | (1u << 31)) == EOPNOTSUPP);

  Qp qp = c.rss(two, IBV_RX_HASH_SRC_IPV4);
  REQUIRE(qp);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  CHECK(ibv_modify_qp(qp.get(), &a, IBV_QP_STATE) != 0);

  Wq fresh = c.wq(0, 0, false);
  CHECK(Context::state(fresh, IBV_WQS_ERR) != 0);
  CHECK(Context::state(fresh, IBV_WQS_RDY) == 0);
  CHECK(Context::state(fresh, IBV_WQS_ERR) == 0);
  CHECK(Context::state(fresh, IBV_WQS_RDY) != 0);
  CHECK(Context::state(fresh, IBV_WQS_RESET) == 0);
  CHECK_FALSE(c.wq(14, 9));
  CHECK(c.wq(6, 9));
}

TEST_CASE("Rate limits have a range, and bursts need one") {
  Context c;
  Qp qp = c.started();
  const auto limit = [&](uint32_t rate, uint32_t burst) {
    ibv_qp_rate_limit_attr a{};
    a.rate_limit = rate;
    a.max_burst_sz = burst;
    return ibv_modify_qp_rate_limit(qp.get(), &a);
  };
  CHECK(limit(1000, 0) == 0);
  CHECK(limit(1000, 3000) == 0);
  CHECK(limit(100'000'001, 0) == EINVAL);
  CHECK(limit(0, 3000) == EINVAL);
  CHECK(limit(0, 0) == 0);
}

TEST_CASE("Entries of the rate table are shared by equal rates") {
  const auto alloc =
      reinterpret_cast<decltype(&mlx5dv_pp_alloc)>(dlsym(RTLD_DEFAULT, "mlx5dv_pp_alloc"));
  const auto release =
      reinterpret_cast<decltype(&mlx5dv_pp_free)>(dlsym(RTLD_DEFAULT, "mlx5dv_pp_free"));
  SKIP_IF(alloc == nullptr || release == nullptr, "this release of libmlx5 does not have them");
  Context c;
  // set_pp_rate_limit_context of mlx5_ifc.h: the rate, then the burst. What is not given is 0.
  uint8_t rate[48] = {0, 0, 0x10, 0};
  mlx5dv_pp *whole = alloc(c.ctx, sizeof rate, rate, 0);
  mlx5dv_pp *start = alloc(c.ctx, 4, rate, 0);
  REQUIRE((whole != nullptr && start != nullptr));
  CHECK(start->index == whole->index);
  rate[6] = 1;
  mlx5dv_pp *other = alloc(c.ctx, sizeof rate, rate, 0);
  REQUIRE(other != nullptr);
  CHECK(other->index != whole->index);
  CHECK(alloc(c.ctx, sizeof rate + 1, rate, 0) == nullptr);
  for (mlx5dv_pp *p : {whole, start, other}) release(p);
}

TEST_CASE("A frame goes through all layers, in order of states") {
  Context c;
  Qp a = c.started(), b = c.started();
  Rule r;
  r.l.eth.mask.dst_mac[0] = r.l.eth.mask.dst_mac[5] = 0xff;
  r.l.eth.val.dst_mac[0] = 1;
  r.l.eth.val.dst_mac[5] = 0x77;
  Flow flow = r.create(b);
  REQUIRE(flow);

  ibv_sge in{reinterpret_cast<uint64_t>(c.memory.data()) + 4096, 2048, c.mr->lkey};
  ibv_recv_wr receive{77, nullptr, &in, 1}, *bad_receive;
  REQUIRE(ibv_post_recv(b.get(), &receive, &bad_receive) == 0);
  // Ethernet, IPv4 and UDP, with the checksums left to the device.
  const uint8_t frame[60] = {1,  0, 0,  0, 0, 0x77, 2, 0,  0,  0,  0, 1,  8,   0,   0x45,
                             0,  0, 46, 0, 1, 0,    0, 64, 17, 0,  0, 10, 0,   0,   1,
                             10, 0, 0,  2, 0, 1,    0, 2,  0,  26, 0, 0,  'p', 'a', 'y'};
  std::memcpy(c.memory.data(), frame, sizeof frame);
  ibv_sge out{reinterpret_cast<uint64_t>(c.memory.data()), sizeof frame, c.mr->lkey};
  ibv_send_wr send{}, *bad_send;
  send.wr_id = 78;
  send.sg_list = &out;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
  REQUIRE(ibv_post_send(a.get(), &send, &bad_send) == 0);
  ibv_wc first = c.poll(), second = c.poll();
  if (first.wr_id == 77) std::swap(first, second);
  CHECK(first.wr_id == 78);
  CHECK(first.status == IBV_WC_SUCCESS);
  CHECK(second.wr_id == 77);
  CHECK(second.status == IBV_WC_SUCCESS);
  CHECK(second.opcode == IBV_WC_RECV);
  CHECK(second.byte_len == sizeof frame);
  CHECK((second.wc_flags & IBV_WC_IP_CSUM_OK) != 0);
  CHECK(std::memcmp(c.memory.data() + 4096 + 42, "pay", 3) == 0);
}

namespace {

using DevxObject = Owned<mlx5dv_devx_obj, mlx5dv_devx_obj_destroy>;
constexpr size_t tisc_in = 0x20, tisc_out = 0x10, tisc_bytes = 0xa0, domain_in_tisc = 0x24;

uint32_t load32(const uint8_t *p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return ntohl(v);
}
void store32(uint8_t *p, uint32_t v) {
  v = htonl(v);
  std::memcpy(p, &v, sizeof v);
}

struct Answer {
  DevxObject object;
  uint8_t status;
  uint32_t number;
};
Answer create(ibv_context *ctx, uint16_t opcode, uint32_t domain = 0) {
  uint8_t in[tisc_in + tisc_bytes] = {}, out[16] = {};
  store32(in, uint32_t{opcode} << 16);
  store32(in + tisc_in + domain_in_tisc, domain);
  DevxObject object(mlx5dv_devx_obj_create(ctx, in, sizeof in, out, sizeof out));
  return {std::move(object), out[0], load32(out + 8)};
}
constexpr uint16_t alloc_transport_domain = 0x816, create_tis = 0x912;

// The transport domain that QUERY_TIS shows, 0 if it is refused.
template <class Query>
uint32_t domain_of(uint32_t tisn, Query query) {
  uint8_t in[16] = {}, out[tisc_out + tisc_bytes] = {};
  store32(in, 0x915u << 16);
  store32(in + 8, tisn);
  return query(in, sizeof in, out, sizeof out) == 0 ? load32(out + tisc_out + domain_in_tisc) : 0;
}

}  // namespace

TEST_CASE("Transport domains hold what sends into them") {
  Context c;
  Answer domain = create(c.ctx, alloc_transport_domain);
  REQUIRE(domain.object);
  CHECK(domain.number != 0);
  const Answer none = create(c.ctx, create_tis, domain.number + 100);
  CHECK_FALSE(none.object);
  CHECK(errno == EREMOTEIO);
  CHECK(none.status == 5);  // bad resource
  Answer tis = create(c.ctx, create_tis, domain.number);
  Answer other = create(c.ctx, create_tis, domain.number);
  REQUIRE((tis.object && other.object));
  CHECK(tis.number != other.number);
  const auto query = [&](auto... boxes) {
    return mlx5dv_devx_obj_query(tis.object.get(), boxes...);
  };
  CHECK(domain_of(tis.number, query) == domain.number);
  CHECK(domain_of(other.number, query) == 0);  // not this object's
  CHECK(mlx5dv_devx_obj_destroy(domain.object.get()) != 0);
  tis.object.reset();
  other.object.reset();
  domain.object.reset();
}

TEST_CASE("The TIS of a raw packet QP is found through the QP") {
  Context c;
  const Qp first = c.raw(), second = c.raw();
  REQUIRE((first && second));
  uint32_t tisn[2], domains[2];
  int i = 0;
  for (ibv_qp *qp : {first.get(), second.get()}) {
    mlx5dv_qp dv{};
    dv.comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES;
    mlx5dv_obj o{};
    o.qp = {qp, &dv};
    REQUIRE(mlx5dv_init_obj(&o, MLX5DV_OBJ_QP) == 0);
    REQUIRE((dv.comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES) != 0);
    CHECK(dv.sqn == qp->qp_num);
    tisn[i] = dv.tisn;
    domains[i++] =
        domain_of(dv.tisn, [&](auto... boxes) { return mlx5dv_devx_qp_query(qp, boxes...); });
  }
  CHECK(tisn[0] != tisn[1]);
  CHECK(domains[0] != 0);
  CHECK(domains[0] == domains[1]);  // the context's
  CHECK(domain_of(tisn[0], [&](auto... boxes) {
          return mlx5dv_devx_qp_query(second.get(), boxes...);
        }) == 0);
  // More may be sent into it.
  CHECK(create(c.ctx, create_tis, domains[0]).object);
}

namespace {

enum ElementType : uint8_t { scheduler = 0, queue_group = 4 };

// A scheduling element, as mlx5dv_sched_node_create and _leaf_create ask for it.
Answer create_element(ibv_context *ctx, ElementType type, uint32_t parent, uint32_t limit = 0) {
  uint8_t in[80] = {}, out[16] = {};
  store32(in, 0xa00u << 16);
  store32(in + 4, 0x26);
  in[23] = limit != 0 ? 2 : 0;  // which fields count
  in[24] = 3;                   // of the network card
  in[48] = type;
  store32(in + 56, parent);
  store32(in + 72, limit);
  DevxObject object(mlx5dv_devx_obj_create(ctx, in, sizeof in, out, sizeof out));
  return {std::move(object), out[0], load32(out + 8)};
}

// MODIFY_SQ: firmware's status.
uint8_t join(ibv_qp *qp, uint32_t leaf) {
  uint8_t in[32 + 0xf0] = {}, out[16] = {};
  store32(in, 0x905u << 16);
  store32(in + 8, 1u << 28 | qp->qp_num);
  in[23] = 1 << 2;
  store32(in + 64, leaf);
  const int error = mlx5dv_devx_qp_modify(qp, in, sizeof in, out, sizeof out);
  CHECK(error == (out[0] == 0 ? 0 : EREMOTEIO));
  return out[0];
}

}  // namespace

TEST_CASE("Scheduling elements make trees that raw packet QPs join") {
  constexpr uint8_t bad_param = 3, bad_resource = 5, no_resources = 0xf, bad_state = 0x10;
  Context c;
  Answer root = create_element(c.ctx, scheduler, 0);
  REQUIRE(root.object);
  CHECK(create_element(c.ctx, queue_group, 0).status == bad_param);    // QPs need a scheduler
  CHECK(create_element(c.ctx, scheduler, 0, 10).status == bad_param);  // the root has no limit
  CHECK(create_element(c.ctx, scheduler, root.number + 100).status == bad_resource);
  Answer leaf = create_element(c.ctx, queue_group, root.number, 10);
  REQUIRE(leaf.object);
  CHECK(create_element(c.ctx, scheduler, leaf.number).status == bad_resource);
  CHECK(mlx5dv_devx_obj_destroy(root.object.get()) != 0);  // there is one below
  {
    std::vector<Answer> tree;
    uint32_t parent = root.number;
    for (int depth = 2; depth <= 16; ++depth) {
      tree.push_back(create_element(c.ctx, scheduler, parent));
      REQUIRE(tree.back().object);
      parent = tree.back().number;
    }
    CHECK(create_element(c.ctx, queue_group, parent, 10).status == no_resources);
    while (!tree.empty()) tree.pop_back();
  }

  const Qp qp = c.started(), early = c.raw();
  CHECK(join(early.get(), leaf.number) == bad_state);
  CHECK(join(qp.get(), root.number) == bad_resource);
  CHECK(join(qp.get(), leaf.number) == 0);
  CHECK(join(qp.get(), 0) == 0);
  CHECK(join(qp.get(), leaf.number) == 0);
  // The QP keeps what it leaves through.
  leaf.object.reset();
  root.object.reset();
  CHECK(join(qp.get(), leaf.number) == bad_resource);
}
