// Capability words that programs read before they choose a path, compared with
// rdma-core's own answers; and compressed completions.
#include <infiniband/mlx5dv.h>

#include "log_of.h"
#include "rig.h"

namespace {

constexpr std::uint64_t everything =
    std::uint64_t{IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1} << 32 | 0xffffffff;

ibv_exp_device_attr ask(ibv_context *context, std::uint64_t what) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(what) | IBV_EXP_DEVICE_ATTR_COMP_MASK_2;
  attr.comp_mask_2 = static_cast<std::uint32_t>(what >> 32);
  REQUIRE(ibv_exp_query_device(context, &attr) == 0);
  return attr;
}

// Whether the device wrote compressed completions into a queue: its memory is read.
bool was_compressed(ibv_cq *cq) {
  mlx5dv_cq shown{};
  mlx5dv_obj object{};
  object.cq.in = cq;
  object.cq.out = &shown;
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  for (std::uint32_t i = 0; i < shown.cqe_cnt; ++i) {
    // The last byte of an entry has its format.
    const auto *entry = static_cast<const std::uint8_t *>(shown.buf) + (i + 1) * shown.cqe_size;
    const unsigned what = entry[-1];
    if (what >> 4 != MLX5_CQE_INVALID && (what >> 2 & 3) == 3) return true;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "offload words are those of the device [row:tso_query_caps] [row:IBV_EXP_SW_PARSING] "
    "[row:IBV_EXP_SW_PARSING_CSUM] [row:IBV_EXP_SW_PARSING_LSO] [row:ts_query_mask]") {
  const Context context = open_first();
  ibv_device_attr_ex modern{};
  REQUIRE(ibv_query_device_ex(context.get(), nullptr, &modern) == 0);
  mlx5dv_context dv{};
  dv.comp_mask = MLX5DV_CONTEXT_MASK_SWP;
  REQUIRE(mlx5dv_query_device(context.get(), &dv) == 0);

  const auto attr = ask(context.get(), everything);
  CHECK(attr.timestamp_mask == modern.completion_timestamp_mask);
  CHECK(attr.tso_caps.max_tso == modern.tso_caps.max_tso);
  CHECK(attr.tso_caps.supported_qpts == modern.tso_caps.supported_qpts);

  static_assert(int{IBV_EXP_SW_PARSING} == MLX5DV_SW_PARSING &&
                int{IBV_EXP_SW_PARSING_CSUM} == MLX5DV_SW_PARSING_CSUM &&
                int{IBV_EXP_SW_PARSING_LSO} == MLX5DV_SW_PARSING_LSO);
  CHECK(attr.sw_parsing_caps.sw_parsing_offloads == dv.sw_parsing_caps.sw_parsing_offloads);
  CHECK(attr.sw_parsing_caps.supported_qpts == dv.sw_parsing_caps.supported_qpts);
}

TEST_CASE(
    "checksum bits of datagrams are in the ordinary word [row:csum_devcap_rc_ip_csum] "
    "[row:csum_devcap_ud_ip_csum]") {
  const Context context = open_first();
  ibv_device_attr ordinary{};
  REQUIRE(ibv_query_device(context.get(), &ordinary) == 0);
  ibv_device_attr_ex modern{};
  REQUIRE(ibv_query_device_ex(context.get(), nullptr, &modern) == 0);
  constexpr unsigned bits = IBV_DEVICE_UD_IP_CSUM | IBV_DEVICE_RC_IP_CSUM;
  CHECK((ordinary.device_cap_flags & bits) == (modern.orig_attr.device_cap_flags & bits));
}

TEST_CASE(
    "tunneled atomics are not reported [row:tunatomic_query] "
    "[row:IBV_EXP_TUNNELED_ATOMIC_SUPPORTED]") {
  const Context context = open_first();
  const auto attr = ask(context.get(), everything);
  CHECK((attr.tunneled_atomic_caps & IBV_EXP_TUNNELED_ATOMIC_SUPPORTED) == 0);
}

TEST_CASE(
    "compression is refused where the device lacks it, or libmlx5 would poll "
    "[row:IBV_EXP_CQ_COMPRESSED_CQE]",
    "[no-compression]") {
  Rig rig;
  mlx5dv_context device{};
  device.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
  REQUIRE(mlx5dv_query_device(rig.context.get(), &device) == 0);
  const bool refused = device.cqe_comp_caps.max_num == 0 || !engine_drives();
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_COMPRESSED_CQE;
  Cq cq;
  int reason = 0;
  const std::string said = log_of([&] {
    errno = 0;
    cq.reset(ibv_exp_create_cq(rig.context.get(), 8, nullptr, nullptr, 0, &attr));
    reason = errno;
  });
  CHECK((cq == nullptr) == refused);
  CHECK(reason == (refused ? ENOTSUP : 0));
  const char *const why = engine_drives() ? "the device does not compress completions"
                                          : "libmlx5 polls this CQ and cannot read compressed";
  CHECK((said.find(why) != std::string::npos) == refused);
}

TEST_CASE(
    "compressed completions are reported one by one [row:IBV_EXP_CQ_COMPRESSED_CQE]"
    "[row:cqecomp_env]") {
  // Longer than what fits into a completion, which would not be compressed.
  constexpr int messages = 48, bytes = 128;
  const auto length = [](std::size_t i) { return static_cast<std::uint32_t>(bytes - i % 64); };
  Rig rig;
  ibv_exp_cq_init_attr attr{};
  const bool by_flag = GENERATE(true, false) && engine_drives();
  if (by_flag) {
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = IBV_EXP_CQ_COMPRESSED_CQE;
  } else {
    REQUIRE(ibv_exp_setenv(rig.context.get(), "MLX5_ENABLE_CQE_COMPRESSION", "1", 1) == 0);
  }
  Cq receives(ibv_exp_create_cq(rig.context.get(), 256, nullptr, nullptr, 0, &attr));
  REQUIRE(receives);
  auto right_attr = rig.qp_attr(IBV_QPT_RC);
  right_attr.recv_cq = receives.get();
  Qp right(ibv_exp_create_qp(rig.context.get(), &right_attr));
  REQUIRE(right);
  Qp left = rig.create_qp(IBV_QPT_RC);
  rig.connect(left.get(), right->qp_num);
  rig.connect(right.get(), left->qp_num);
  Buffer out(rig.pd.get(), messages * bytes), in(rig.pd.get(), messages * bytes);
  for (std::size_t i = 0; i < out.bytes.size(); ++i)
    out.bytes[i] = static_cast<std::uint8_t>(7 * i);

  std::uint64_t next = 0;
  for (int turn = 0; turn < 4; ++turn) {
    std::fill(in.bytes.begin(), in.bytes.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < messages; ++i)
      post_receive(right.get(), next + i, in.piece(i * bytes, bytes));
    // At once, so that they arrive together.
    ibv_sge pieces[messages];
    ibv_exp_send_wr chain[messages];
    for (std::size_t i = 0; i < messages; ++i) {
      pieces[i] = out.piece(i * bytes, length(i));
      chain[i] = request(i, IBV_EXP_WR_SEND, &pieces[i]);
      if (i != 0) chain[i - 1].next = &chain[i];
    }
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(left.get(), chain, &bad) == 0);
    for (const ibv_exp_wc &wc : rig.completions(messages)) REQUIRE(wc.status == IBV_WC_SUCCESS);

    // Reading unpacks them. The device may write them a moment after it answered; it
    // writes none where libmlx5 polls.
    bool compressed = false;
    for (int tries = 0; !compressed && tries < 10'000; ++tries)
      compressed = was_compressed(receives.get());
    CHECK(compressed == engine_drives());
    std::size_t got = 0;
    for (int tries = 0; got < messages && tries < 50'000'000; ++tries) {
      ibv_exp_wc wc[5];
      const int n = ibv_exp_poll_cq(receives.get(), 5, wc, sizeof(wc[0]));
      REQUIRE(n >= 0);
      for (int i = 0; i < n; ++i, ++got) {
        REQUIRE(wc[i].status == IBV_WC_SUCCESS);
        REQUIRE(wc[i].wr_id == next + got);
        REQUIRE(wc[i].byte_len == length(got));
        REQUIRE(wc[i].exp_opcode == IBV_EXP_WC_RECV);
        REQUIRE(wc[i].qp_num == right->qp_num);
      }
    }
    REQUIRE(got == messages);
    next += messages;
    for (std::size_t i = 0; i < messages; ++i)
      REQUIRE(std::memcmp(&in.bytes[i * bytes], &out.bytes[i * bytes], length(i)) == 0);
  }
}

TEST_CASE(
    "limits of DC come with DC [row:IBV_EXP_DEVICE_DC_RD_REQ] "
    "[row:IBV_EXP_DEVICE_DC_RD_RES]") {
  const Context context = open_first();
  const std::uint64_t limits = std::uint64_t{IBV_EXP_DEVICE_DC_RD_REQ} | IBV_EXP_DEVICE_DC_RD_RES;
  const auto attr = ask(context.get(), limits | IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS);
  REQUIRE((attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT) != 0);
  // Programs require both.
  CHECK((attr.comp_mask & limits) == limits);
  CHECK(attr.max_dc_req_rd_atom > 0);
  CHECK(attr.max_dc_res_rd_atom > 0);
}
