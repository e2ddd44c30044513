// A multi-packet receive queue that gets the frames of a sender.
#pragma once

#include "families_rig.h"

// The inlines that release objects are another in each source.
namespace {

using WorkQueue = Owned<ibv_exp_wq, ibv_exp_destroy_wq>;
using Table = Owned<ibv_exp_rwq_ind_table, ibv_exp_destroy_rwq_ind_table>;

inline constexpr std::uint8_t log_stride = 6, log_strides = 9;
inline constexpr std::size_t stride = 1u << log_stride, strides = 1u << log_strides;
inline constexpr std::size_t entry_bytes = stride * strides;

// A work queue behind a scaling queue pair that gets the frames of a sender.
struct Receiver : FamilyRig {
  // A port does not give frames back to the context that they came from.
  FamilyRig sender;
  Cq send_cq = sender.create_cq(512), recv_cq;
  Qp out = sender.create_on(IBV_QPT_RAW_PACKET, send_cq.get(), send_cq.get());
  WorkQueue wq;
  Table table;
  Qp in;
  FlowRule rule;
  ibv_exp_qp_burst_family_v1 *send = nullptr;
  ibv_exp_wq_family *post = nullptr;
  ibv_exp_cq_family_v1 *poll = nullptr, *sent = nullptr;
  std::uint32_t entries;
  Buffer memory;
  Buffer frames{sender.pd.get(), 64 * 2048};
  std::uint32_t posted = 0;

  explicit Receiver(std::uint32_t depth = 4, ibv_exp_mp_rq_shifts shift = IBV_EXP_MP_RQ_NO_SHIFT,
                    std::uint32_t vlan = 0, std::uint32_t cq_flags = 0)
      : entries(depth), memory(pd.get(), depth * entry_bytes) {
    ibv_exp_cq_init_attr cq_attr{};
    cq_attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    cq_attr.flags = cq_flags;
    recv_cq.reset(ibv_exp_create_cq(context.get(), 1024, this, nullptr, 0, &cq_attr));
    REQUIRE(recv_cq);
    poll = cq_family(recv_cq.get());
    REQUIRE(poll != nullptr);
    auto attr = wq_attr(shift);
    if (vlan != 0) {
      attr.comp_mask |= IBV_EXP_CREATE_WQ_VLAN_OFFLOADS;
      attr.vlan_offloads = static_cast<std::uint16_t>(vlan);
    }
    wq.reset(ibv_exp_create_wq(context.get(), &attr));
    REQUIRE(wq);
    post = query<ibv_exp_wq_family>(IBV_EXP_INTF_WQ, wq.get());
    REQUIRE(post != nullptr);
    set_state(IBV_EXP_WQS_RDY);

    ibv_exp_wq *all[1] = {wq.get()};
    ibv_exp_rwq_ind_table_init_attr table_attr{};
    table_attr.pd = pd.get();
    table_attr.ind_tbl = all;
    table.reset(ibv_exp_create_rwq_ind_table(context.get(), &table_attr));
    REQUIRE(table);
    std::uint8_t key[40] = {1, 2, 3};
    ibv_exp_rx_hash_conf hash{};
    hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
    hash.rx_hash_key_len = sizeof(key);
    hash.rx_hash_key = key;
    hash.rwq_ind_tbl = table.get();
    ibv_exp_qp_init_attr qp{};
    qp.qp_type = IBV_QPT_RAW_PACKET;
    qp.comp_mask =
        IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH | IBV_EXP_QP_INIT_ATTR_PORT;
    qp.pd = pd.get();
    qp.rx_hash_conf = &hash;
    qp.port_num = 1;
    in.reset(ibv_exp_create_qp(context.get(), &qp));
    REQUIRE(in);
    rule = steer(in.get());

    to_state(out.get(), IBV_QPS_INIT);
    send = sender.burst(out.get());
    sent = sender.cq_family(send_cq.get());
    REQUIRE(send != nullptr);
    REQUIRE(sent != nullptr);
    ready(out.get());
  }

  ibv_exp_wq_init_attr wq_attr(ibv_exp_mp_rq_shifts shift) {
    ibv_exp_wq_init_attr attr{};
    attr.wq_type = IBV_EXP_WQT_RQ;
    attr.max_recv_wr = entries;
    attr.max_recv_sge = 1;
    attr.pd = pd.get();
    attr.cq = recv_cq.get();
    attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
    attr.mp_rq = {shift, log_strides, log_stride};
    return attr;
  }

  void set_state(ibv_exp_wq_state state) {
    ibv_exp_wq_attr attr{};
    attr.attr_mask = IBV_EXP_WQ_ATTR_STATE;
    attr.wq_state = state;
    REQUIRE(ibv_exp_modify_wq(wq.get(), &attr) == 0);
    CHECK(wq->state == state);
  }

  void post_entries(std::uint32_t n) {
    std::vector<ibv_sge> list;
    for (std::uint32_t i = 0; i < n; ++i, ++posted)
      list.push_back(memory.piece(posted % entries * entry_bytes, entry_bytes));
    REQUIRE(post->recv_burst(wq.get(), list.data(), n) == 0);
  }

  void transmit(const std::vector<Frame> &all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::memcpy(&frames.bytes[i * 2048], all[i].data(), all[i].size());
      const ibv_sge piece = frames.piece(i * 2048, static_cast<std::uint32_t>(all[i].size()));
      REQUIRE(send->send_pending(out.get(), piece.addr, piece.length, piece.lkey,
                                 i + 1 == all.size() ? IBV_EXP_QP_BURST_SIGNALED : 0) == 0);
    }
    REQUIRE(send->send_flush(out.get()) == 0);
    REQUIRE(poll_count(sent, send_cq.get(), 1) == 1);
  }
};

// What the device does with strides, kept beside it.
struct Ledger {
  std::size_t shift;
  std::size_t entry = 0, used = 0;

  // Where a frame comes to lie; whether a filler comes first.
  struct Place {
    bool filler;
    std::size_t offset;
    bool last;
  };
  Place place(std::size_t bytes) {
    const std::size_t need = (bytes + shift + stride - 1) / stride;
    Place at{};
    if (used + need > strides) {
      at.filler = true;
      ++entry;
      used = 0;
    }
    at.offset = used * stride + shift;
    used += need;
    at.last = used == strides;
    if (at.last) {
      ++entry;
      used = 0;
    }
    return at;
  }
};

}  // namespace
