// Shared receive queues of strides: refused by default, on request by commands of the device.
#include <dlfcn.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <skip.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "rig.h"

namespace {

// The last queue pair that a command made, and the command.
struct {
  mlx5dv_devx_obj *object = nullptr;
  std::uint32_t number = 0;
  std::array<std::uint8_t, 272> in{};
} last_made;

// A field of a box, by its first bit and width.
std::uint32_t field(const void *box, std::size_t bit, unsigned width) {
  std::uint32_t word;
  std::memcpy(&word, static_cast<const std::uint8_t *>(box) + bit / 32 * 4, sizeof word);
  return static_cast<std::uint32_t>(std::uint64_t{be32toh(word)} >> (32 - bit % 32 - width)) &
         static_cast<std::uint32_t>((std::uint64_t{1} << width) - 1);
}

}  // namespace

// The library calls this one: it keeps queue pairs, for tests that ask the device about them.
extern "C" mlx5dv_devx_obj *mlx5dv_devx_obj_create(ibv_context *context, const void *in,
                                                   std::size_t inlen, void *out,
                                                   std::size_t outlen) {
  constexpr std::uint32_t create_qp = 0x500;
  static const auto real = reinterpret_cast<decltype(&mlx5dv_devx_obj_create)>(
      dlsym(RTLD_NEXT, "mlx5dv_devx_obj_create"));
  mlx5dv_devx_obj *const made = real(context, in, inlen, out, outlen);
  if (made != nullptr && field(in, 0, 16) == create_qp) {
    last_made.object = made;
    last_made.number = field(out, 72, 24);
    std::memcpy(last_made.in.data(), in, std::min(inlen, last_made.in.size()));
  }
  return made;
}

namespace {

using Srq = Owned<ibv_srq, ibv_destroy_srq>;

ibv_exp_create_srq_attr srq_attr(Rig &rig, ibv_cq *cq) {
  ibv_exp_create_srq_attr attr{};
  attr.base.attr.max_wr = 8;
  attr.base.attr.max_sge = 1;
  attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
  attr.pd = rig.pd.get();
  attr.cq = cq;
  attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_TM | IBV_EXP_CREATE_SRQ_MP_WR;
  attr.tm_cap.max_num_tags = 1;
  attr.tm_cap.max_ops = 1;
  attr.mp_wr.log_num_of_strides = 4;
  attr.mp_wr.log_stride_size = 6;
  return attr;
}

// With both switches, where the device says that its queues match tags and have strides.
bool served() {
  if (!switched_on("mp_srq") || !switched_on("tag_matching") || !engine_drives()) return false;
  const Context context = open_first();
  std::vector<std::uint32_t> in(4), out(4 + 1024);
  in[0] = htobe32(0x100u << 16);  // QUERY_HCA_CAP, general and current
  in[1] = htobe32(1);
  if (mlx5dv_devx_general_cmd(context.get(), in.data(), 16, out.data(), out.size() * 4) != 0)
    return false;
  const auto has = [&](std::size_t bit) {
    return (be32toh(out[4 + bit / 32]) >> (31 - bit % 32) & 1) != 0;
  };
  return has(0x5f0) && has(0x233);  // tag_matching, ib_cyclic_striding_wq
}

// A server with a queue of 16 strides of 64 bytes for each entry, and two clients.
struct Strides : Rig {
  static constexpr std::uint32_t stride = 64, count = 16, entry = stride * count;
  static constexpr std::uint32_t entries = 8;
  Cq srq_cq = create_cq();
  Srq srq;
  Qp clients[2], servers[2];
  Buffer out{pd.get(), 65536}, in{pd.get(), entries *entry};

  explicit Strides(bool base = false) {
    auto attr = srq_attr(*this, srq_cq.get());
    srq.reset(ibv_exp_create_srq(context.get(), &attr));
    REQUIRE(srq);
    CHECK(attr.base.attr.max_wr >= entries);
    for (int i = 0; i < 2; ++i) {
      clients[i] = create_qp(IBV_QPT_RC);
      servers[i] = base ? create_by_base_verb() : create_server();
      REQUIRE(servers[i]);
      connect(clients[i].get(), servers[i]->qp_num);
      connect(servers[i].get(), clients[i]->qp_num);
    }
    // Not the header of a tag.
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{0});
  }
  Qp create_server() {
    auto attr = qp_attr(IBV_QPT_RC);
    attr.srq = srq.get();
    return Qp(ibv_exp_create_qp(context.get(), &attr));
  }
  Qp create_by_base_verb() {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.srq = srq.get();
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    return Qp(ibv_create_qp(pd.get(), &attr));
  }
  void post(std::uint64_t id) {
    ibv_sge piece = in.piece(id * entry, entry);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }
  void start(std::uint32_t bytes, int client = 0, ibv_exp_wr_opcode opcode = IBV_EXP_WR_SEND) {
    ibv_sge piece = out.piece(0, bytes);
    auto wr = request(77, opcode, &piece);
    wr.ex.imm_data = htobe32(0x11223344);
    wr.wr.rdma.remote_addr = in.address();
    wr.wr.rdma.rkey = in.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(clients[client].get(), &wr, &bad) == 0);
  }
  void sent() {
    const auto wc = next_completion(cq.get());
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == 77);
  }
  void send(std::uint32_t bytes, int client = 0) {
    start(bytes, client);
    sent();
  }
  ibv_exp_wc take() { return next_completion(srq_cq.get()); }
  // A packet, at that stride of that entry, with those bytes of the message.
  ibv_exp_wc packet(std::uint64_t id, std::uint32_t at, std::uint32_t bytes,
                    std::uint32_t offset = 0) {
    const auto wc = take();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.exp_opcode == IBV_EXP_WC_TM_NO_TAG);
    CHECK(wc.wr_id == id);
    CHECK(wc.mp_wr.strides_offset == at);
    CHECK(wc.mp_wr.byte_len == bytes);
    const auto *to = in.bytes.data() + id * entry + at * stride;
    CHECK(std::equal(to, to + bytes, out.bytes.data() + offset));
    return wc;
  }
  bool none() {
    ibv_exp_wc wc{};
    return ibv_exp_poll_cq(srq_cq.get(), 1, &wc, sizeof(wc)) == 0;
  }
};

constexpr std::uint64_t more = IBV_EXP_WC_MP_WR_MORE_IN_MSG, consumed = IBV_EXP_WC_MP_WR_CONSUMED;
std::uint64_t stride_bits(const ibv_exp_wc &wc) { return wc.exp_wc_flags & (more | consumed); }

}  // namespace

TEST_CASE("the device says whether it has queues of strides [row:IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_MP_RQ;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  const ibv_exp_mp_rq_caps &caps = device.mp_rq_caps;
  CHECK(((caps.supported_qps & IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM) != 0) == served());
  if (!served()) return;
  for (const bool most : {false, true}) {
    auto attr = srq_attr(rig, rig.cq.get());
    attr.mp_wr.log_num_of_strides =
        most ? caps.max_single_wqe_log_num_of_strides : caps.min_single_wqe_log_num_of_strides;
    attr.mp_wr.log_stride_size =
        most ? caps.max_single_stride_log_num_of_bytes : caps.min_single_stride_log_num_of_bytes;
    CHECK(Srq(ibv_exp_create_srq(rig.context.get(), &attr)) != nullptr);
    (most ? ++attr.mp_wr.log_num_of_strides : --attr.mp_wr.log_num_of_strides);
    CHECK(ibv_exp_create_srq(rig.context.get(), &attr) == nullptr);
    CHECK(errno == EINVAL);
  }
}

TEST_CASE("queues of strides need their switch, and a device [row:IBV_EXP_CREATE_SRQ_MP_WR]") {
  SKIP_IF(served(), "they are served");
  Rig rig;
  auto attr = srq_attr(rig, rig.cq.get());
  errno = 0;
  CHECK(ibv_exp_create_srq(rig.context.get(), &attr) == nullptr);
  CHECK(errno == ENOTSUP);
}

TEST_CASE(
    "messages of all queue pairs fill the strides of an entry [row:IBV_EXP_CREATE_SRQ_MP_WR] "
    "[row:IBV_EXP_WC_MP_WR_CONSUMED]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t(GENERATE(false, true));
  t.post(0);
  t.post(1);
  t.send(100);
  auto wc = t.packet(0, 0, 100);
  CHECK(stride_bits(wc) == 0);
  CHECK(wc.qp_num == t.servers[0]->qp_num);
  CHECK(wc.src_qp == t.clients[0]->qp_num);
  CHECK((wc.exp_wc_flags & IBV_EXP_WC_SRQ) != 0);
  CHECK(wc.srq == t.srq.get());
  t.send(64, 1);
  wc = t.packet(0, 2, 64);
  CHECK(wc.qp_num == t.servers[1]->qp_num);
  t.start(10 * 64, 0, IBV_EXP_WR_SEND_WITH_IMM);
  t.sent();
  wc = t.packet(0, 3, 640);
  CHECK((wc.exp_wc_flags & IBV_EXP_WC_WITH_IMM) != 0);
  CHECK(wc.imm_data == htobe32(0x11223344));
  t.send(3 * 64 - 1, 1);
  CHECK(stride_bits(t.packet(0, 13, 191)) == consumed);
  t.send(1);
  CHECK(stride_bits(t.packet(1, 0, 1)) == 0);
  CHECK(t.none());
}

TEST_CASE("a long message comes in packets [row:IBV_EXP_WC_MP_WR_MORE_IN_MSG]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  for (std::uint64_t id = 0; id < 4; ++id) t.post(id);
  // 1024 bytes each: an entry.
  t.send(3 * 1024 + 5);
  for (std::uint64_t id = 0; id < 3; ++id)
    CHECK(stride_bits(t.packet(id, 0, 1024, static_cast<std::uint32_t>(id) * 1024)) ==
          (more | consumed));
  CHECK(stride_bits(t.packet(3, 0, 5, 3 * 1024)) == 0);
}

TEST_CASE("what does not fit leaves the rest of an entry [row:IBV_EXP_WC_RECV_NOP]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  t.post(4);
  t.post(2);
  t.send(700);
  t.packet(4, 0, 700);
  t.send(400);
  const auto rest = t.take();
  CHECK(rest.status == IBV_WC_SUCCESS);
  CHECK(rest.exp_opcode == IBV_EXP_WC_RECV_NOP);
  CHECK(rest.wr_id == 4);
  CHECK(rest.mp_wr.byte_len == 0);
  CHECK(stride_bits(rest) == consumed);
  t.packet(2, 0, 400);
}

TEST_CASE("entries go round [row:IBV_EXP_CREATE_SRQ_MP_WR]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  for (std::uint64_t id = 0; id < Strides::entries; ++id) t.post(id);
  std::uint64_t id = 0;
  std::uint32_t at = 0;
  for (int i = 0; i < 500; ++i) {
    const auto need = static_cast<std::uint32_t>(i % 5 + 1);
    const std::uint32_t bytes = need * 64 - static_cast<std::uint32_t>(i % 63);
    t.send(bytes, i % 2);
    if (at + need > Strides::count) {
      const auto rest = t.take();
      CHECK(rest.exp_opcode == IBV_EXP_WC_RECV_NOP);
      CHECK(rest.wr_id == id);
      CHECK(stride_bits(rest) == consumed);
      t.post(id);
      id = (id + 1) % Strides::entries;
      at = 0;
    }
    const auto wc = t.packet(id, at, bytes);
    at += need;
    CHECK(stride_bits(wc) == (at == Strides::count ? consumed : 0));
    if (at != Strides::count) continue;
    t.post(id);
    id = (id + 1) % Strides::entries;
    at = 0;
  }
}

TEST_CASE("data written with an immediate takes a stride [row:IBV_EXP_CREATE_SRQ_MP_WR]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  t.post(7);
  t.start(3000, 0, IBV_EXP_WR_RDMA_WRITE_WITH_IMM);
  t.sent();
  const auto wc = t.take();
  CHECK(wc.exp_opcode == IBV_EXP_WC_RECV_RDMA_WITH_IMM);
  CHECK(wc.byte_len == 3000);
  CHECK(wc.wr_id == 7);
  CHECK(std::equal(t.in.bytes.begin(), t.in.bytes.begin() + 3000, t.out.bytes.begin()));
  t.send(10);
  t.packet(7, 1, 10);
}

TEST_CASE("its queue pairs send, too, and begin again after a reset [row:ibv_exp_modify_qp]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  for (int turn = 0; turn < 2; ++turn) {
    ibv_sge piece = t.out.piece(0, 500);
    post_receive(t.clients[0].get(), 5, t.in.piece(0, 500));
    auto wr = request(78, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(t.servers[0].get(), &wr, &bad) == 0);
    auto wcs = t.completions(2);
    for (const auto &wc : wcs) {
      CHECK(wc.status == IBV_WC_SUCCESS);
      const bool sent = wc.exp_opcode == IBV_EXP_WC_SEND;
      CHECK(wc.wr_id == (sent ? 78 : 5));
      CHECK(wc.qp_num == (sent ? t.servers : t.clients)[0]->qp_num);
    }
    wr = request(79, IBV_EXP_WR_RDMA_READ, &piece);
    wr.wr.rdma.remote_addr = t.in.address();
    wr.wr.rdma.rkey = t.in.mr->rkey;
    REQUIRE(ibv_exp_post_send(t.servers[0].get(), &wr, &bad) == 0);
    CHECK(t.completions(1)[0].status == IBV_WC_SUCCESS);

    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(t.servers[0].get(), &now, IBV_QP_STATE | IBV_QP_CAP, &init) == 0);
    CHECK(now.qp_state == IBV_QPS_RTS);
    CHECK(now.dest_qp_num == t.clients[0]->qp_num);
    CHECK(init.srq == t.srq.get());
    CHECK(init.cap.max_send_wr >= 64);

    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(t.servers[0].get(), &to, IBV_QP_STATE) == 0);
    wr = request(80, IBV_EXP_WR_SEND, &piece);
    REQUIRE(ibv_exp_post_send(t.servers[0].get(), &wr, &bad) == 0);
    CHECK(t.completions(1)[0].status == IBV_WC_WR_FLUSH_ERR);
    to.qp_state = IBV_QPS_RESET;
    for (ibv_qp *qp : {t.servers[0].get(), t.clients[0].get()})
      REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
    CHECK(t.servers[0]->state == IBV_QPS_RESET);
    // What the device counts from, before anything is posted.
    mlx5dv_qp facts{};
    mlx5dv_obj object{};
    object.qp = {t.servers[0].get(), &facts};
    REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0);
    CHECK(facts.dbrec[0] == 0);
    CHECK(facts.dbrec[1] == 0);
    t.connect(t.clients[0].get(), t.servers[0]->qp_num);
    t.connect(t.servers[0].get(), t.clients[0]->qp_num);
  }
  t.post(0);
  t.send(10);
  t.packet(0, 0, 10);
}

TEST_CASE("its queue pairs have what was asked for [row:ibv_exp_modify_qp]") {
  SKIP_IF(!served(), "no queues of strides");
  const bool global = GENERATE(true, false);
  Strides t;
  const Cq receives = t.create_cq();
  auto init = t.qp_attr(IBV_QPT_RC);
  init.srq = t.srq.get();
  init.recv_cq = receives.get();
  init.sq_sig_all = 1;
  const Qp qp(ibv_exp_create_qp(t.context.get(), &init));
  REQUIRE(qp);
  REQUIRE(qp->qp_num == last_made.number);
  constexpr std::size_t qpc = 192, path = qpc + 192;
  std::array<std::uint32_t, 4> in{htobe32(0x50bu << 16), 0, htobe32(last_made.number), 0};
  std::array<std::uint8_t, 512> box;
  const auto ask = [&] {
    REQUIRE(mlx5dv_devx_obj_query(last_made.object, in.data(), sizeof in, box.data(), box.size()) ==
            0);
  };
  const auto has = [&](std::size_t bit, unsigned width) { return field(box.data(), bit, width); };
  const auto modify = [&](const ibv_qp_attr &attr, int mask) {
    auto given = attr;
    return ibv_modify_qp(qp.get(), &given, mask);
  };

  mlx5dv_qp rings{};
  mlx5dv_pd domain{};
  mlx5dv_cq sent{}, received{};
  mlx5dv_obj objects{};
  objects.qp = {qp.get(), &rings};
  objects.pd = {t.pd.get(), &domain};
  objects.cq = {t.cq.get(), &sent};
  REQUIRE(mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_PD | MLX5DV_OBJ_CQ) == 0);
  objects.cq = {receives.get(), &received};
  REQUIRE(mlx5dv_init_obj(&objects, MLX5DV_OBJ_CQ) == 0);
  ask();
  CHECK(has(qpc, 4) == 0);      // RESET
  CHECK(has(qpc + 8, 8) == 0);  // RC
  CHECK(has(qpc + 40, 24) == domain.pdn);
  CHECK(1u << has(qpc + 81, 4) == rings.sq.wqe_cnt);
  CHECK(has(qpc + 1000, 24) == sent.cqn);
  CHECK(has(qpc + 1256, 24) == received.cqn);
  std::uint32_t srqn = 0;
  REQUIRE(ibv_get_srq_num(t.srq.get(), &srqn) == 0);
  mlx5dv_srq shared{};
  shared.comp_mask = MLX5DV_SRQ_MASK_SRQN;
  objects.srq = {t.srq.get(), &shared};
  REQUIRE(mlx5dv_init_obj(&objects, MLX5DV_OBJ_SRQ) == 0);
  CHECK(shared.srqn == srqn);
  CHECK(has(qpc + 1381, 3) == 1);  // of an SRQ
  CHECK(has(qpc + 1384, 24) == srqn);
  // What the software HCA does not look at.
  const auto *command = last_made.in.data();
  CHECK(field(command, qpc + 19, 2) == 3);    // paths have migrated
  CHECK(field(command, qpc + 1667, 1) == 1);  // the doorbell record is in registered memory
  CHECK(field(command, 2144, 1) == 1);        // and the ring

  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.pkey_index = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  REQUIRE(modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  ask();
  CHECK(has(qpc, 4) == 1);
  CHECK(has(path + 16, 16) == 1);
  CHECK(has(path + 296, 8) == 1);
  CHECK(has(qpc + 1168, 3) == 0b100);

  attr.qp_state = IBV_QPS_RTR;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  attr.path_mtu = IBV_MTU_512;
  attr.dest_qp_num = 0x123456;
  attr.rq_psn = 0x654321;
  attr.max_dest_rd_atomic = 8;
  attr.min_rnr_timer = 21;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.dlid = 0x1357;
  attr.ah_attr.sl = 5;
  attr.ah_attr.src_path_bits = 0x55;
  attr.ah_attr.is_global = global;
  attr.ah_attr.grh.hop_limit = 77;
  attr.ah_attr.grh.traffic_class = 0x9c;
  attr.ah_attr.grh.flow_label = 0xabcde;
  for (std::uint8_t i = 0; i < 16; ++i) attr.ah_attr.grh.dgid.raw[i] = 0x10 + i;
  REQUIRE(modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
                           IBV_QP_ACCESS_FLAGS) == 0);
  ask();
  CHECK(has(qpc, 4) == 2);
  CHECK(has(qpc + 64, 3) == IBV_MTU_512);
  CHECK(has(qpc + 67, 5) == 30);  // bytes of a message, as a logarithm
  CHECK(has(qpc + 168, 24) == 0x123456);
  CHECK(has(qpc + 1160, 3) == 3);
  CHECK(has(qpc + 1168, 3) == 0b011);
  CHECK(has(qpc + 1187, 5) == 21);
  CHECK(has(qpc + 1192, 24) == 0x654321);
  CHECK(has(path + 40, 1) == (global ? 1 : 0));
  CHECK(has(path + 41, 7) == 0x55);
  CHECK(has(path + 48, 16) == 0x1357);
  CHECK(has(path + 292, 4) == 5);
  CHECK(has(path + 72, 8) == 0);
  CHECK(has(path + 88, 8) == (global ? 77 : 0));
  CHECK(has(path + 100, 8) == (global ? 0x9c : 0));
  CHECK(has(path + 108, 20) == (global ? 0xabcde : 0));
  if (global) CHECK(std::memcmp(&box[path / 8 + 16], attr.ah_attr.grh.dgid.raw, 16) == 0);

  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 19;
  attr.retry_cnt = 3;
  attr.rnr_retry = 6;
  attr.sq_psn = 0x765432;
  attr.max_rd_atomic = 2;
  REQUIRE(modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  ask();
  CHECK(has(qpc, 4) == 3);
  CHECK(has(path + 64, 5) == 19);
  CHECK(has(qpc + 904, 3) == 1);
  CHECK(has(qpc + 909, 3) == 3);
  CHECK(has(qpc + 912, 3) == 6);
  CHECK(has(qpc + 968, 24) == 0x765432);

  ibv_qp_attr now{};
  ibv_qp_init_attr made{};
  REQUIRE(ibv_query_qp(qp.get(), &now, IBV_QP_STATE | IBV_QP_AV, &made) == 0);
  CHECK(now.cur_qp_state == IBV_QPS_RTS);
  CHECK(now.path_mig_state == IBV_MIG_MIGRATED);
  CHECK(made.sq_sig_all == 1);
  for (const ibv_qp_cap &cap : {now.cap, made.cap}) {
    CHECK(cap.max_send_wr == init.cap.max_send_wr);
    CHECK(cap.max_send_sge == init.cap.max_send_sge);
    CHECK(cap.max_inline_data == init.cap.max_inline_data);
  }
  CHECK(now.pkey_index == 1);
  CHECK(now.port_num == 1);
  CHECK(now.qp_access_flags == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
  CHECK(now.path_mtu == IBV_MTU_512);
  CHECK(now.rq_psn == 0x654321);
  CHECK(now.sq_psn == 0x765432);
  CHECK(now.max_rd_atomic == 2);
  CHECK(now.max_dest_rd_atomic == 8);
  CHECK(now.min_rnr_timer == 21);
  CHECK(now.timeout == 19);
  CHECK(now.retry_cnt == 3);
  CHECK(now.rnr_retry == 6);
  CHECK(now.ah_attr.dlid == 0x1357);
  CHECK(now.ah_attr.grh.flow_label == 0xabcde);
}

TEST_CASE("a packet without room for it ends the connection [row:IBV_EXP_CREATE_SRQ_MP_WR]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  ibv_sge piece = t.in.piece(0, 100);  // less than the strides
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = 9;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  REQUIRE(ibv_post_srq_recv(t.srq.get(), &wr, &bad) == 0);
  t.post(1);
  t.start(200);
  const auto wc = t.take();
  CHECK(wc.status == IBV_WC_LOC_LEN_ERR);
  CHECK(wc.wr_id == 9);
  CHECK(next_completion(t.cq.get()).status == IBV_WC_REM_INV_REQ_ERR);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(t.servers[0].get(), &now, IBV_QP_STATE, &init) == 0);
  CHECK(now.qp_state == IBV_QPS_ERR);
  t.send(20, 1);
  t.packet(1, 0, 20);
}

TEST_CASE("strides have many sizes [row:IBV_EXP_CREATE_SRQ_MP_WR]") {
  SKIP_IF(!served(), "no queues of strides");
  Rig rig;
  const Cq srq_cq = rig.create_cq();
  auto attr = srq_attr(rig, srq_cq.get());
  const auto count = GENERATE(std::uint8_t{3}, std::uint8_t{10}, std::uint8_t{16});
  const auto bytes = GENERATE(std::uint8_t{6}, std::uint8_t{13});
  attr.mp_wr.log_num_of_strides = count;
  attr.mp_wr.log_stride_size = bytes;
  const Srq srq(ibv_exp_create_srq(rig.context.get(), &attr));
  REQUIRE(srq);
  if (count + bytes > 22) return;  // so much memory is not worth it
  const Buffer in(rig.pd.get(), std::size_t{1} << (count + bytes)), out(rig.pd.get(), 20);
  ibv_sge piece = in.piece(0, static_cast<std::uint32_t>(in.bytes.size()));
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.sg_list = &piece;
  receive.num_sge = 1;
  REQUIRE(ibv_post_srq_recv(srq.get(), &receive, &bad_receive) == 0);
  auto of = rig.qp_attr(IBV_QPT_RC);
  of.srq = srq.get();
  const Qp server(ibv_exp_create_qp(rig.context.get(), &of)), client = rig.create_qp(IBV_QPT_RC);
  REQUIRE(server);
  rig.connect(server.get(), client->qp_num);
  rig.connect(client.get(), server->qp_num);
  for (std::uint32_t i = 0; i < 8; ++i) {
    ibv_sge sent = out.piece(0, 20);
    auto wr = request(i, IBV_EXP_WR_SEND, &sent);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(client.get(), &wr, &bad) == 0);
    const auto wc = next_completion(srq_cq.get());
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.mp_wr.strides_offset == i);
    CHECK(((wc.exp_wc_flags & IBV_EXP_WC_MP_WR_CONSUMED) != 0) == (count == 3 && i == 7));
  }
}

TEST_CASE(
    "what queues of strides cannot do is refused [row:IBV_EXP_CREATE_SRQ_MP_WR] "
    "[row:ibv_exp_create_srq]") {
  SKIP_IF(!served(), "no queues of strides");
  Strides t;
  const auto refused = [&](ibv_exp_create_srq_attr attr, int error) {
    errno = 0;
    CHECK(ibv_exp_create_srq(t.context.get(), &attr) == nullptr);
    CHECK(errno == error);
  };
  for (const std::uint8_t count : {0, 2, 17, 255}) {
    auto attr = srq_attr(t, t.srq_cq.get());
    attr.mp_wr.log_num_of_strides = count;
    refused(attr, EINVAL);
  }
  for (const std::uint8_t bytes : {0, 5, 14, 255}) {
    auto attr = srq_attr(t, t.srq_cq.get());
    attr.mp_wr.log_stride_size = bytes;
    refused(attr, EINVAL);
  }
  auto attr = srq_attr(t, nullptr);
  refused(attr, EINVAL);
  attr = srq_attr(t, t.srq_cq.get());
  attr.base.attr.max_wr = 1u << 30;
  refused(attr, EINVAL);

  for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_UC}) {
    auto of = t.qp_attr(type);
    of.srq = t.srq.get();
    errno = 0;
    CHECK(ibv_exp_create_qp(t.context.get(), &of) == nullptr);
    CHECK(errno == ENOTSUP);
  }
  ibv_qp_init_attr_ex modern{};
  modern.qp_type = IBV_QPT_RC;
  modern.send_cq = modern.recv_cq = t.cq.get();
  modern.srq = t.srq.get();
  modern.cap = {4, 4, 1, 1, 0};
  modern.pd = t.pd.get();
  modern.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  modern.send_ops_flags = IBV_QP_EX_WITH_SEND;
  errno = 0;
  CHECK(ibv_create_qp_ex(t.context.get(), &modern) == nullptr);
  CHECK(errno == ENOTSUP);

  ibv_exp_dct_init_attr target{};
  target.pd = t.pd.get();
  target.cq = t.cq.get();
  target.srq = t.srq.get();
  target.dc_key = 1;
  target.port = 1;
  target.mtu = IBV_MTU_1024;
  target.min_rnr_timer = 12;
  errno = 0;
  CHECK(ibv_exp_create_dct(t.context.get(), &target) == nullptr);
  CHECK(errno == ENOTSUP);

  ibv_exp_ops_wr op{}, *bad_op = nullptr;
  op.opcode = IBV_EXP_WR_TAG_SYNC;
  CHECK(ibv_exp_post_srq_ops(t.srq.get(), &op, &bad_op) == ENOTSUP);
  CHECK(bad_op == &op);
  ibv_srq_attr limit{};
  limit.srq_limit = 2;
  CHECK(ibv_modify_srq(t.srq.get(), &limit, IBV_SRQ_LIMIT) == ENOTSUP);
  CHECK(ibv_destroy_srq(t.srq.get()) == EBUSY);

  // Base verbs have no room for strides: the completion stays.
  t.post(0);
  t.send(10);
  ibv_wc base{};
  int count = 0;
  for (int turns = 0; count == 0 && turns < 50'000'000; ++turns)
    count = ibv_poll_cq(t.srq_cq.get(), 1, &base);
  CHECK(count < 0);
  t.packet(0, 0, 10);

  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_PATH_MIG_STATE) == ENOTSUP);
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_MIN_RNR_TIMER) == ENOTSUP);
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_STATE) == EINVAL);
  change.cur_qp_state = IBV_QPS_INIT;
  change.qp_state = IBV_QPS_ERR;
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
  change.qp_state = IBV_QPS_SQD;
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_STATE) == ENOTSUP);
  change.qp_state = IBV_QPS_RESET;
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_STATE) == 0);
  change.qp_state = IBV_QPS_INIT;
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, IBV_QP_STATE) == EINVAL);
  change.port_num = 1;
  const int without_access = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, without_access) == EINVAL);
  CHECK(ibv_modify_qp(t.servers[0].get(), &change, without_access | IBV_QP_ACCESS_FLAGS) == 0);
}
