// Tag matching: refused by default, on request a list of tags beside the shared receive queue.
#include <skip.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "log_of.h"
#include "rig.h"

namespace {

bool served() { return switched_on("tag_matching"); }

using Srq = Owned<ibv_srq, ibv_destroy_srq>;

// Where completions of the shared queue go, and those of requests.
enum class Layout { apart, together, stamped, modern };

// A client, and a server whose queue pair receives from a queue that matches tags.
struct Tags : Rig {
  static constexpr std::size_t size = 65536;
  Layout layout;
  Cq tag_cq;
  Srq srq;
  Qp other;  // of a modern interface, and completes there
  Qp client, server;
  Buffer out{pd.get(), size}, in{pd.get(), size}, plain{pd.get(), size};

  explicit Tags(Layout as = Layout::apart, bool server_sends = true) : layout(as) {
    if (layout == Layout::stamped) {
      ibv_exp_cq_init_attr attr{};
      attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
      attr.flags = IBV_EXP_CQ_TIMESTAMP;
      tag_cq.reset(ibv_exp_create_cq(context.get(), 256, nullptr, nullptr, 0, &attr));
      REQUIRE(tag_cq);
    } else if (layout != Layout::together) {
      tag_cq = create_cq();
    }
    if (layout == Layout::modern) {
      other = create_modern(tag_cq.get());
      REQUIRE(other);
      connect(other.get(), other->qp_num);
    }
    client = create_qp(IBV_QPT_RC);
    auto attr = srq_attr();
    srq.reset(ibv_exp_create_srq(context.get(), &attr));
    REQUIRE(srq);
    auto of_server = qp_attr(IBV_QPT_RC);
    of_server.srq = srq.get();
    if (!server_sends) of_server.cap.max_send_wr = 0;
    server.reset(ibv_exp_create_qp(context.get(), &of_server));
    REQUIRE(server);
    connect(client.get(), server->qp_num);
    connect(server.get(), client->qp_num);
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{1});
  }

  Qp create_modern(ibv_cq *on) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = on;
    attr.cap = {4, 4, 1, 1, 0};
    attr.pd = pd.get();
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
    return Qp(ibv_create_qp_ex(context.get(), &attr));
  }

  ibv_cq *tagged() const { return layout == Layout::together ? cq.get() : tag_cq.get(); }

  ibv_exp_create_srq_attr srq_attr() {
    ibv_exp_create_srq_attr attr{};
    attr.base.attr.max_wr = 16;
    attr.base.attr.max_sge = 1;
    attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
    attr.pd = pd.get();
    attr.cq = tagged();
    attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_TM;
    attr.tm_cap.max_num_tags = 31;
    attr.tm_cap.max_ops = 16;
    return attr;
  }

  ibv_exp_wc take(ibv_cq *from) {
    ibv_exp_wc wc;
    std::memset(&wc, 0xee, sizeof(wc));
    int count = 0;
    for (int turns = 0; count == 0 && turns < 50'000'000; ++turns)
      count = ibv_exp_poll_cq(from, 1, &wc, sizeof(wc));
    REQUIRE(count == 1);
    CHECK(wc.status == IBV_WC_SUCCESS);
    return wc;
  }
  ibv_exp_wc take() { return take(tagged()); }
  bool none() {
    ibv_exp_wc wc{};
    return ibv_exp_poll_cq(tagged(), 1, &wc, sizeof(wc)) == 0;
  }

  int post(ibv_exp_ops_wr &op, ibv_exp_ops_wr *&bad) {
    bad = nullptr;
    return ibv_exp_post_srq_ops(srq.get(), &op, &bad);
  }
  void post(ibv_exp_ops_wr &op) {
    ibv_exp_ops_wr *bad;
    REQUIRE(post(op, bad) == 0);
  }
  static ibv_exp_ops_wr operation(ibv_exp_ops_wr_opcode opcode, std::uint64_t id) {
    ibv_exp_ops_wr op{};
    op.wr_id = id;
    op.opcode = opcode;
    op.flags = IBV_EXP_OPS_SIGNALED;
    return op;
  }
  ibv_exp_ops_wr addition(std::uint64_t tag, std::uint64_t id, ibv_sge &piece) {
    auto op = operation(IBV_EXP_WR_TAG_ADD, 1000 + id);
    op.tm.add.recv_wr_id = id;
    op.tm.add.sg_list = &piece;
    op.tm.add.num_sge = 1;
    op.tm.add.tag = tag;
    op.tm.add.mask = ~std::uint64_t{0};
    return op;
  }
  // Returns its handle.
  std::uint32_t add(std::uint64_t tag, std::uint64_t id, std::size_t at, std::uint32_t length) {
    ibv_sge piece = in.piece(at, length);
    auto op = addition(tag, id, piece);
    post(op);
    const auto wc = take();
    CHECK(wc.exp_opcode == IBV_EXP_WC_TM_ADD);
    CHECK(wc.wr_id == 1000 + id);
    return op.tm.handle;
  }
  void receive(std::uint64_t id, std::size_t at) {
    ibv_sge piece = plain.piece(at, 4096);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }

  void header(std::uint8_t opcode, std::uint64_t tag, std::uint32_t priv) {
    ibv_exp_tmh tmh{};
    tmh.opcode = opcode;
    tmh.app_ctx = htobe32(priv);
    tmh.tag = htobe64(tag);
    std::memcpy(out.bytes.data(), &tmh, sizeof(tmh));
  }
  void send(std::uint32_t length) {
    auto piece = out.piece(0, length);
    auto wr = request(77, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(client.get(), &wr, &bad) == 0);
    // Where everything is together, the two may come in either order.
    if (layout != Layout::together) CHECK(take(cq.get()).wr_id == 77);
  }
  // A message of that many bytes behind its header.
  void send(std::uint8_t opcode, std::uint64_t tag, std::uint32_t bytes, std::uint32_t priv = 0) {
    header(opcode, tag, priv);
    send(static_cast<std::uint32_t>(sizeof(ibv_exp_tmh)) + bytes);
  }
  void rendezvous(std::uint64_t tag, const Buffer &data, std::uint32_t length) {
    header(IBV_EXP_TMH_RNDV, tag, 5);
    ibv_exp_tmh_rvh rvh{};
    rvh.va = htobe64(data.address());
    rvh.rkey = htobe32(data.mr->rkey);
    rvh.len = htobe32(length);
    std::memcpy(out.bytes.data() + sizeof(ibv_exp_tmh), &rvh, sizeof(rvh));
    send(sizeof(ibv_exp_tmh) + sizeof(rvh));
  }
  bool has_sent(std::size_t at, std::size_t bytes) const {
    const auto *from = out.bytes.data() + sizeof(ibv_exp_tmh);
    return std::equal(from, from + bytes, in.bytes.data() + at);
  }
};

std::uint64_t tag_bits(const ibv_exp_wc &wc) {
  return wc.exp_wc_flags &
         (IBV_EXP_WC_TM_MATCH | IBV_EXP_WC_TM_DATA_VALID | IBV_EXP_WC_TM_DEL_FAILED |
          IBV_EXP_WC_TM_RNDV_INCOMPLETE | IBV_EXP_WC_TM_SYNC_REQ);
}

constexpr std::uint64_t match = IBV_EXP_WC_TM_MATCH, valid = IBV_EXP_WC_TM_DATA_VALID;

// As the device is; false where tags are not matched.
bool matches(ibv_exp_tm_caps &caps) {
  const Context context = open_first();
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_TM_CAPS;
  REQUIRE(ibv_exp_query_device(context.get(), &device) == 0);
  caps = device.tm_caps;
  CHECK((device.comp_mask != 0) == (caps.capability_flags != 0));
  return device.comp_mask != 0;
}
bool matches() {
  ibv_exp_tm_caps caps;
  return matches(caps);
}

}  // namespace

TEST_CASE(
    "tags are matched on request only [row:IBV_EXP_DEVICE_ATTR_TM_CAPS] [row:IBV_EXP_TM_CAP_RC] "
    "[row:IBV_EXP_SRQT_TAG_MATCHING] [row:IBV_EXP_CREATE_SRQ_TM]") {
  ibv_exp_tm_caps caps;
  const bool has = matches(caps);
  if (!served()) {
    CHECK(!has);
    Rig rig;
    ibv_exp_create_srq_attr attr{};
    attr.base.attr = {16, 1, 0};
    attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
    attr.pd = rig.pd.get();
    attr.cq = rig.cq.get();
    attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_TM;
    attr.tm_cap.max_num_tags = 31;
    CHECK(ibv_exp_create_srq(rig.context.get(), &attr) == nullptr);
    CHECK(errno == ENOTSUP);
    return;
  }
  SKIP_IF(!has, "the device does not match tags");
  CHECK(caps.capability_flags == IBV_EXP_TM_CAP_RC);
  CHECK(caps.max_num_tags >= 31);
  CHECK(caps.max_ops >= 16);
  CHECK(caps.max_sge == 1);
  CHECK(caps.max_rndv_hdr_size >= 32);
  const Tags t;
}

TEST_CASE(
    "messages go where their tag says [row:ibv_exp_post_srq_ops] [row:IBV_EXP_WR_TAG_ADD] "
    "[row:IBV_EXP_OPS_SIGNALED] [row:IBV_EXP_WC_TM_ADD] [row:IBV_EXP_WC_TM_RECV] "
    "[row:IBV_EXP_WC_TM_MATCH] [row:IBV_EXP_WC_TM_DATA_VALID]") {
  SKIP_IF(!matches(), "tags are not matched");
  Tags t(GENERATE(Layout::apart, Layout::together, Layout::stamped));
  const auto skip_sent = [&](ibv_exp_wc wc) {
    return t.layout == Layout::together && wc.exp_opcode == IBV_EXP_WC_SEND ? t.take() : wc;
  };
  t.add(0x11, 1, 0, 4096);
  t.add(0x22, 2, 4096, 4096);
  t.send(IBV_EXP_TMH_EAGER, 0x22, 100, 0xabcd);
  auto wc = skip_sent(t.take());
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 2);
  CHECK(wc.byte_len == 100);
  CHECK(wc.tm_info.tag == 0x22);
  CHECK(wc.tm_info.priv == 0xabcd);
  CHECK(tag_bits(wc) == (match | valid));
  CHECK(wc.qp_num == t.server->qp_num);
  CHECK(((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0) == (t.layout == Layout::stamped));
  CHECK(t.has_sent(4096, 100));
  if (t.layout == Layout::together) return;

  // Several packets: the match first, then the data.
  t.send(IBV_EXP_TMH_EAGER, 0x11, 4000);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 1);
  CHECK(tag_bits(wc) == match);
  CHECK(wc.tm_info.tag == 0x11);
  CHECK(wc.byte_len == 0);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 1);
  CHECK(tag_bits(wc) == valid);
  CHECK(wc.byte_len == 4000);
  CHECK(t.has_sent(0, 4000));
  CHECK(t.none());
}

TEST_CASE(
    "what has no tag in the list arrives whole, and counts [row:IBV_EXP_WC_TM_NO_TAG] "
    "[row:IBV_EXP_WR_TAG_SYNC] [row:IBV_EXP_OPS_TM_SYNC] [row:IBV_EXP_WC_TM_SYNC] "
    "[row:IBV_EXP_WC_TM_SYNC_REQ]") {
  SKIP_IF(!matches(), "tags are not matched");
  Tags t;
  t.receive(50, 0);
  t.receive(51, 4096);
  t.receive(52, 8192);
  t.send(IBV_EXP_TMH_NO_TAG, 1, 30);
  auto wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_NO_TAG);
  CHECK(wc.wr_id == 50);
  CHECK(wc.byte_len == sizeof(ibv_exp_tmh) + 30);
  CHECK(std::equal(t.plain.bytes.begin(), t.plain.bytes.begin() + 46, t.out.bytes.begin()));

  t.send(IBV_EXP_TMH_EAGER, 7, 30);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 51);
  CHECK(wc.byte_len == sizeof(ibv_exp_tmh) + 30);
  CHECK(tag_bits(wc) == 0);

  // The device has counted one that the program has not told of: what is added does not match.
  ibv_sge piece = t.in.piece(0, 4096);
  auto add = t.addition(8, 3, piece);
  t.post(add);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_ADD);
  CHECK(tag_bits(wc) == IBV_EXP_WC_TM_SYNC_REQ);
  t.send(IBV_EXP_TMH_EAGER, 8, 30);
  CHECK(t.take().wr_id == 52);

  auto sync = Tags::operation(IBV_EXP_WR_TAG_SYNC, 9);
  sync.flags |= IBV_EXP_OPS_TM_SYNC;
  sync.tm.unexpected_cnt = 2;
  t.post(sync);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_SYNC);
  CHECK(wc.wr_id == 9);
  t.send(IBV_EXP_TMH_EAGER, 8, 30);
  wc = t.take();
  CHECK(wc.wr_id == 3);
  CHECK(tag_bits(wc) == (match | valid));
}

TEST_CASE(
    "a tag is taken out of the list, or was matched before [row:IBV_EXP_WR_TAG_DEL] "
    "[row:IBV_EXP_WC_TM_DEL] [row:IBV_EXP_WC_TM_DEL_FAILED]") {
  SKIP_IF(!matches(), "tags are not matched");
  Tags t;
  const std::uint32_t first = t.add(1, 1, 0, 4096), second = t.add(2, 2, 4096, 4096);
  CHECK(first != second);
  auto gone = Tags::operation(IBV_EXP_WR_TAG_DEL, 5);
  gone.tm.handle = first;
  t.post(gone);
  auto wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_DEL);
  CHECK(wc.wr_id == 5);
  CHECK(tag_bits(wc) == 0);

  // Both are posted before the program has seen that the tag was matched.
  t.send(IBV_EXP_TMH_EAGER, 2, 100);
  gone.tm.handle = second;
  t.post(gone);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 2);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_DEL);
  CHECK(tag_bits(wc) == IBV_EXP_WC_TM_DEL_FAILED);
}

TEST_CASE(
    "the device fetches what a rendezvous names [row:IBV_EXP_WC_TM_RNDV_INCOMPLETE] "
    "[row:IBV_EXP_WC_TM_DATA_VALID]") {
  SKIP_IF(!matches(), "tags are not matched");
  // The device reads by itself, also for a queue pair without a send queue.
  Tags t(Layout::apart, GENERATE(true, false));
  const Buffer data(t.pd.get(), 50000), answer(t.pd.get(), 64);
  post_receive(t.client.get(), 60, answer.piece(0, 64));
  t.add(3, 3, 0, 60000);
  t.rendezvous(3, data, 50000);
  auto wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 3);
  CHECK(tag_bits(wc) == match);
  CHECK(wc.byte_len == 0);
  CHECK(wc.tm_info.tag == 3);
  CHECK(wc.tm_info.priv == 5);
  wc = t.take();
  CHECK(wc.wr_id == 3);
  CHECK(tag_bits(wc) == valid);
  CHECK(wc.byte_len == 50000);
  CHECK(std::equal(data.bytes.begin(), data.bytes.end(), t.in.bytes.begin()));
  wc = t.take(t.cq.get());
  CHECK(wc.wr_id == 60);
  CHECK(answer.bytes[0] == IBV_EXP_TMH_FIN);

  // What does not fit is the program's to fetch: the buffer has the headers.
  t.add(4, 4, 0, 1000);
  t.rendezvous(4, data, 50000);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 4);
  CHECK(tag_bits(wc) == (match | valid | IBV_EXP_WC_TM_RNDV_INCOMPLETE));
  CHECK(wc.byte_len == sizeof(ibv_exp_tmh) + sizeof(ibv_exp_tmh_rvh));
  CHECK(std::equal(t.in.bytes.begin(), t.in.bytes.begin() + 32, t.out.bytes.begin()));
}

TEST_CASE(
    "what cannot be matched is refused [row:ibv_exp_post_srq_ops] [row:ibv_exp_create_srq] "
    "[row:IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS] [row:tm_create_dct]") {
  SKIP_IF(!matches(), "tags are not matched");
  Tags t;
  const auto says = [](const char *why, auto run) {
    CHECK(log_of(run).find(why) != std::string::npos);
  };
  const auto refused = [&](const ibv_exp_create_srq_attr &attr, int error) {
    auto copy = attr;
    errno = 0;
    CHECK(ibv_exp_create_srq(t.context.get(), &copy) == nullptr);
    CHECK(errno == error);
  };
  auto attr = t.srq_attr();
  attr.tm_cap.max_num_tags = 0;
  says("max_num_tags 0x0: must be 1 or more, with IBV_EXP_CREATE_SRQ_TM",
       [&] { refused(attr, EINVAL); });
  attr = t.srq_attr();
  attr.cq = nullptr;
  refused(attr, EINVAL);
  attr = t.srq_attr();
  attr.comp_mask |= IBV_EXP_CREATE_SRQ_MP_WR;
  refused(attr, switched_on("mp_srq") ? EINVAL : ENOTSUP);

  ibv_sge piece = t.in.piece(0, 100);
  auto good = t.addition(1, 1, piece), wrong = good;
  wrong.opcode = static_cast<ibv_exp_ops_wr_opcode>(3);
  good.next = &wrong;
  ibv_exp_ops_wr *bad;
  says("opcode 0x3: must be IBV_EXP_WR_TAG_ADD, IBV_EXP_WR_TAG_DEL or IBV_EXP_WR_TAG_SYNC",
       [&] { CHECK(t.post(good, bad) == EINVAL); });
  CHECK(bad == &wrong);
  CHECK(t.take().exp_opcode == IBV_EXP_WC_TM_ADD);

  ibv_sge two[2] = {t.in.piece(0, 64), t.in.piece(64, 64)};
  wrong = t.addition(5, 1, two[0]);
  for (const int pieces : {2, -1}) {
    wrong.tm.add.num_sge = pieces;
    CHECK(t.post(wrong, bad) == EINVAL);
    CHECK(bad == &wrong);
  }

  wrong = Tags::operation(IBV_EXP_WR_TAG_DEL, 1);
  for (const std::uint32_t handle : {32u, 12345u, ~0u}) {
    wrong.tm.handle = handle;
    CHECK(t.post(wrong, bad) == EINVAL);
    CHECK(bad == &wrong);
  }

  ibv_srq_init_attr basic{};
  basic.attr = {16, 1, 0};
  const Srq plain(ibv_create_srq(t.pd.get(), &basic));
  REQUIRE(plain);
  good.next = nullptr;
  says("does not match tags",
       [&] { CHECK(ibv_exp_post_srq_ops(plain.get(), &good, &bad) == EINVAL); });
  CHECK(bad == &good);
  CHECK(ibv_exp_post_srq_ops(plain.get(), &good, nullptr) == EINVAL);

  ibv_wc wc{};
  errno = 0;
  CHECK(ibv_poll_cq(t.tagged(), 1, &wc) == -1);
  CHECK(errno == ENOTSUP);
  CHECK(ibv_poll_cq(t.cq.get(), 1, &wc) == 0);

  // How a DC target answers is taken, a target is not.
  ibv_exp_srq_dc_offload_params offload{};
  attr = t.srq_attr();
  attr.comp_mask |= IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS;
  attr.dc_offload_params = &offload;
  const Srq with(ibv_exp_create_srq(t.context.get(), &attr));
  REQUIRE(with);
  ibv_exp_dct_init_attr target{};
  target.pd = t.pd.get();
  target.cq = t.cq.get();
  target.srq = with.get();
  target.port = 1;
  target.mtu = IBV_MTU_1024;
  CHECK(ibv_exp_create_dct(t.context.get(), &target) == nullptr);
  CHECK(errno == ENOTSUP);
}

TEST_CASE("tags are matched where modern queue pairs complete [row:ibv_exp_create_srq]",
          "[engine]") {
  SKIP_IF(!matches(), "tags are not matched");
  Tags t(Layout::modern);
  t.add(0x1234, 7, 64, 1024);
  t.send(IBV_EXP_TMH_EAGER, 0x1234, 500);
  auto wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 7);
  CHECK(tag_bits(wc) == (match | valid));
  CHECK(wc.tm_info.tag == 0x1234);
  CHECK(t.has_sent(64, 500));

  ibv_qp_ex *const qp = ibv_qp_to_qp_ex(t.other.get());
  REQUIRE(qp != nullptr);
  ibv_wr_start(qp);
  qp->wr_id = 99;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, t.in.mr->rkey, t.in.address(4096));
  ibv_wr_set_sge(qp, t.out.mr->lkey, t.out.address(), 32);
  REQUIRE(ibv_wr_complete(qp) == 0);
  wc = t.take();
  CHECK(wc.wr_id == 99);
  CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_WRITE);
  CHECK(wc.qp_num == t.other->qp_num);
  CHECK(std::equal(t.in.bytes.begin() + 4096, t.in.bytes.begin() + 4128, t.out.bytes.begin()));

  t.receive(3, 0);
  t.send(IBV_EXP_TMH_EAGER, 0x9999, 100);
  wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_TM_RECV);
  CHECK(wc.wr_id == 3);
  CHECK(tag_bits(wc) == 0);
  CHECK(t.none());
}

TEST_CASE("a completion queue is as before where tags cannot be matched [row:ibv_exp_create_srq]",
          "[engine]") {
  SKIP_IF(!matches(), "tags are not matched");
  Tags t;
  const auto refused = [&](ibv_cq *cq, int error) {
    auto attr = t.srq_attr();
    attr.cq = cq;
    errno = 0;
    CHECK(ibv_exp_create_srq(t.context.get(), &attr) == nullptr);
    CHECK(errno == error);
  };
  const Cq cq(ibv_create_cq(t.context.get(), 16, nullptr, nullptr, 0));
  REQUIRE(cq);
  // The program reads the ring by itself from here on: it stays as it is.
  mlx5dv_cq facts{};
  mlx5dv_obj object{};
  object.cq = {cq.get(), &facts};
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  const Qp qp = t.create_modern(cq.get());
  REQUIRE(qp);
  refused(cq.get(), ENOTSUP);
  ibv_wc wc{};
  CHECK(ibv_poll_cq(cq.get(), 1, &wc) == 0);

  ibv_cq *const gone = ibv_create_cq(t.context.get(), 4, nullptr, nullptr, 0);
  REQUIRE(gone != nullptr);
  REQUIRE(ibv_destroy_cq(gone) == 0);
  refused(gone, EINVAL);
}
