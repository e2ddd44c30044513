// Faults under the verbs of Ethernet: completion queues, work queues, tables, queue
// pairs that scale, flow rules, interface families. On Ethernet ports.
#include <sched.h>

#include "fault_harness.h"

namespace {

struct Scenario {
  ibv_context *context = nullptr;
  ibv_pd *pd = nullptr;
  ibv_comp_channel *channel = nullptr;
  ibv_cq *plain_cq = nullptr, *timed_cq = nullptr, *packed_cq = nullptr, *send_cq = nullptr;
  ibv_exp_wq *wqs[2] = {};
  ibv_exp_rwq_ind_table *tables[2] = {};
  ibv_qp *hashes[2] = {}, *sender = nullptr;
  ibv_exp_flow *rules[2] = {};
  ibv_mr *mr = nullptr;
  ibv_exp_wq_family *post[2] = {};
  ibv_exp_qp_burst_family *send = nullptr;
  alignas(4096) unsigned char bytes[1 << 17];

  ibv_cq *cq(const char *what, std::uint32_t flags, ibv_comp_channel *on = nullptr) {
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = flags;
    return make<ibv_cq>(what,
                        [&] { return ibv_exp_create_cq(context, 64, nullptr, on, 0, &attr); });
  }

  template <class Family>
  Family *family(const char *what, ibv_exp_intf_family which, void *object) {
    ibv_exp_query_intf_params params{};
    params.intf_scope = IBV_EXP_INTF_GLOBAL;
    params.intf = which;
    params.obj = object;
    return make<Family>(what, [&] {
      ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
      void *found = ibv_exp_query_intf(context, &params, &status);
      if ((found != nullptr) != (status == IBV_EXP_INTF_STAT_OK)) give_up(what, -2);
      return static_cast<Family *>(found);
    });
  }

  void open() {
    ibv_device **list = list_devices();
    opening = true;
    context = make<ibv_context>("ibv_open_device", [&] { return ibv_open_device(list[0]); });
    opening = false;
    std::fputs(opened, stderr);
    ibv_free_device_list(list);
    pd = make<ibv_pd>("ibv_alloc_pd", [&] { return ibv_alloc_pd(context); });
    mr = make<ibv_mr>("ibv_reg_mr",
                      [&] { return ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE); });
    channel = make<ibv_comp_channel>("ibv_create_comp_channel",
                                     [&] { return ibv_create_comp_channel(context); });
    plain_cq = cq("ibv_exp_create_cq", 0, channel);
    timed_cq = cq("ibv_exp_create_cq (TIMESTAMP)", IBV_EXP_CQ_TIMESTAMP, channel);
    if (channel->refcnt != 2) give_up("users of the channel", channel->refcnt);
    packed_cq = cq("ibv_exp_create_cq (COMPRESSED)", IBV_EXP_CQ_COMPRESSED_CQE);
    send_cq = cq("ibv_exp_create_cq", 0);
    ibv_exp_cq_attr moderation{};
    moderation.comp_mask = IBV_EXP_CQ_ATTR_MODERATION;
    moderation.moderation.cq_count = 1;
    attempt("ibv_exp_modify_cq",
            [&] { return ibv_exp_modify_cq(plain_cq, &moderation, IBV_EXP_CQ_MODERATION); });
  }

  // One of single packets, one of many.
  void receivers() {
    for (int i = 0; i < 2; ++i) {
      ibv_exp_wq_init_attr attr{};
      attr.wq_type = IBV_EXP_WQT_RQ;
      attr.max_recv_wr = 4;
      attr.max_recv_sge = 1;
      attr.pd = pd;
      attr.cq = i == 0 ? plain_cq : timed_cq;
      if (i == 1) {
        attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
        attr.mp_rq = {IBV_EXP_MP_RQ_NO_SHIFT, 9, 6};
      }
      wqs[i] =
          make<ibv_exp_wq>("ibv_exp_create_wq", [&] { return ibv_exp_create_wq(context, &attr); });
      post[i] = family<ibv_exp_wq_family>("ibv_exp_query_intf (WQ)", IBV_EXP_INTF_WQ, wqs[i]);
      ibv_exp_wq_attr state{};
      state.attr_mask = IBV_EXP_WQ_ATTR_STATE;
      state.wq_state = IBV_EXP_WQS_RDY;
      attempt("ibv_exp_modify_wq", [&] { return ibv_exp_modify_wq(wqs[i], &state); });
      ibv_sge room{reinterpret_cast<std::uintptr_t>(bytes) + static_cast<unsigned>(i + 1) * 32768,
                   32768, mr->lkey};
      attempt("recv_burst", [&] { return post[i]->recv_burst(wqs[i], &room, 1); });

      ibv_exp_rwq_ind_table_init_attr table{};
      table.pd = pd;
      table.ind_tbl = &wqs[i];
      tables[i] = make<ibv_exp_rwq_ind_table>("ibv_exp_create_rwq_ind_table", [&] {
        return ibv_exp_create_rwq_ind_table(context, &table);
      });
      std::uint8_t key[40] = {1, 2, 3};
      ibv_exp_rx_hash_conf hash{};
      hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
      hash.rx_hash_key_len = sizeof(key);
      hash.rx_hash_key = key;
      hash.rwq_ind_tbl = tables[i];
      ibv_exp_qp_init_attr qp{};
      qp.qp_type = IBV_QPT_RAW_PACKET;
      qp.comp_mask =
          IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH | IBV_EXP_QP_INIT_ATTR_PORT;
      qp.pd = pd;
      qp.rx_hash_conf = &hash;
      qp.port_num = 1;
      hashes[i] = make<ibv_qp>("ibv_exp_create_qp (RX_HASH)",
                               [&] { return ibv_exp_create_qp(context, &qp); });

      struct {
        ibv_exp_flow_attr attr;
        ibv_exp_flow_spec_eth eth;
      } rule{};
      rule.attr.type = IBV_EXP_FLOW_ATTR_NORMAL;
      rule.attr.size = sizeof(rule);
      rule.attr.num_of_specs = 1;
      rule.attr.port = 1;
      rule.eth.type = IBV_EXP_FLOW_SPEC_ETH;
      rule.eth.size = sizeof(rule.eth);
      rule.eth.val.dst_mac[0] = 2;
      rule.eth.val.dst_mac[5] = static_cast<std::uint8_t>(i);
      std::memset(rule.eth.mask.dst_mac, 0xff, 6);
      rules[i] = make<ibv_exp_flow>("ibv_exp_create_flow",
                                    [&] { return ibv_exp_create_flow(hashes[i], &rule.attr); });
    }
  }

  void to(ibv_qp_state state, std::uint64_t mask) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    attempt("ibv_exp_modify_qp",
            [&] { return ibv_exp_modify_qp(sender, &attr, mask | IBV_EXP_QP_STATE); });
  }

  // Both receivers get a frame.
  void traffic() {
    ibv_exp_qp_init_attr attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = packed_cq;
    attr.cap = {8, 8, 1, 1, 0};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    attr.pd = pd;
    sender = make<ibv_qp>("ibv_exp_create_qp", [&] { return ibv_exp_create_qp(context, &attr); });
    to(IBV_QPS_INIT, IBV_EXP_QP_PORT);
    send =
        family<ibv_exp_qp_burst_family>("ibv_exp_query_intf (QP)", IBV_EXP_INTF_QP_BURST, sender);
    auto *sent = family<ibv_exp_cq_family_v1>("ibv_exp_query_intf (CQ)", IBV_EXP_INTF_CQ, send_cq);
    auto *single =
        family<ibv_exp_cq_family_v1>("ibv_exp_query_intf (CQ)", IBV_EXP_INTF_CQ, plain_cq);
    auto *many = family<ibv_exp_cq_family_v1>("ibv_exp_query_intf (CQ)", IBV_EXP_INTF_CQ, timed_cq);
    to(IBV_QPS_RTR, 0);
    to(IBV_QPS_RTS, 0);
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < 100; ++k) bytes[k] = static_cast<unsigned char>(k * 3 + i);
      const unsigned char head[14] = {2, 0, 0, 0,    0,   static_cast<unsigned char>(i), 2, 0, 0,
                                      0, 0, 9, 0x88, 0xb5};
      std::memcpy(bytes, head, sizeof(head));
      ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes), 100, mr->lkey};
      attempt("send_burst",
              [&] { return send->send_burst(sender, &piece, 1, IBV_EXP_QP_BURST_SIGNALED); });
      while (sent->poll_cnt(send_cq, 1) == 0) sched_yield();
      std::uint32_t offset = 0, flags = 0;
      std::int32_t length = 0;
      while (length == 0) {
        length = i == 0 ? single->poll_length(plain_cq, nullptr, nullptr)
                        : many->poll_length_flags_mp_rq(timed_cq, &offset, &flags);
        if (length == 0) sched_yield();
      }
      const unsigned char *at = bytes + (i + 1) * 32768 + offset;
      if (length != 100 || std::memcmp(at, bytes, 100) != 0) give_up("a frame", length);
    }
  }

  void close() {
    attempt("ibv_destroy_qp", [&] { return ibv_destroy_qp(sender); });
    for (int i = 0; i < 2; ++i) {
      attempt("ibv_exp_destroy_flow", [&] { return -ibv_exp_destroy_flow(rules[i]); });
      attempt("ibv_destroy_qp", [&] { return ibv_destroy_qp(hashes[i]); });
      attempt("ibv_exp_destroy_rwq_ind_table",
              [&] { return ibv_exp_destroy_rwq_ind_table(tables[i]); });
      attempt("ibv_exp_destroy_wq", [&] { return ibv_exp_destroy_wq(wqs[i]); });
    }
    for (ibv_cq *each : {plain_cq, timed_cq, packed_cq, send_cq})
      attempt("ibv_destroy_cq", [&] { return ibv_destroy_cq(each); });
    attempt("ibv_destroy_comp_channel", [&] { return ibv_destroy_comp_channel(channel); });
    attempt("ibv_dereg_mr", [&] { return ibv_dereg_mr(mr); });
    // EBUSY if anything was left behind.
    attempt("ibv_dealloc_pd", [&] { return ibv_dealloc_pd(pd); });
    attempt("ibv_close_device", [&] { return ibv_close_device(context); });
  }

  void run() {
    open();
    receivers();
    traffic();
    close();
  }
};

Scenario scenario;

}  // namespace

int main(int argc, char **argv) {
  return fault_main(argc, argv, [] { scenario.run(); });
}
