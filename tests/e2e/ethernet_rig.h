// Raw packet queue pairs and flow rules for tests.
#pragma once

#include <initializer_list>

#include "frames.h"
#include "rig.h"

using Rule = Owned<ibv_exp_flow, ibv_exp_destroy_flow>;

// An attribute and its specifications, one behind the other.
class RuleAttr {
 public:
  explicit RuleAttr(ibv_exp_flow_attr_type type = IBV_EXP_FLOW_ATTR_NORMAL) {
    bytes_.resize(sizeof(ibv_exp_flow_attr));
    attr().type = type;
    attr().size = sizeof(ibv_exp_flow_attr);
    attr().port = 1;
  }
  template <class Spec>
  RuleAttr &add(Spec spec, unsigned type) {
    spec.type = static_cast<ibv_exp_flow_spec_type>(type);
    spec.size = sizeof(spec);
    const auto *at = reinterpret_cast<const char *>(&spec);
    bytes_.insert(bytes_.end(), at, at + sizeof(spec));
    ++attr().num_of_specs;
    attr().size = static_cast<std::uint16_t>(bytes_.size());
    return *this;
  }
  RuleAttr &dst(const frames::Mac &mac) {
    ibv_exp_flow_spec_eth eth{};
    std::memcpy(eth.val.dst_mac, mac, 6);
    std::memset(eth.mask.dst_mac, 0xff, 6);
    return add(eth, IBV_EXP_FLOW_SPEC_ETH);
  }
  RuleAttr &udp_port(std::uint16_t port, unsigned modifier = 0) {
    ibv_exp_flow_spec_tcp_udp udp{};
    udp.val.dst_port = htobe16(port);
    udp.mask.dst_port = 0xffff;
    return add(udp, IBV_EXP_FLOW_SPEC_UDP | modifier);
  }
  RuleAttr &tag(std::uint32_t id) {
    ibv_exp_flow_spec_action_tag tag{};
    tag.tag_id = id;
    return add(tag, IBV_EXP_FLOW_SPEC_ACTION_TAG);
  }
  RuleAttr &drop() { return add(ibv_exp_flow_spec_action_drop{}, IBV_EXP_FLOW_SPEC_ACTION_DROP); }
  RuleAttr &priority(std::uint16_t p) {
    attr().priority = p;
    return *this;
  }
  ibv_exp_flow_attr &attr() { return *reinterpret_cast<ibv_exp_flow_attr *>(bytes_.data()); }

 private:
  std::vector<char> bytes_;
};

// A raw packet queue pair with a completion queue and buffers of its own.
struct RawQueue {
  static constexpr std::uint32_t slot = 2048, depth = 64;

  explicit RawQueue(Rig &rig, std::uint32_t create_flags = 0, std::uint16_t tso_header = 0,
                    std::uint32_t cq_flags = 0)
      : rig(rig), buffer(rig.pd.get(), depth * slot), out(rig.pd.get(), 1 << 18) {
    ibv_exp_cq_init_attr cq_attr{};
    cq_attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    cq_attr.flags = cq_flags;
    cq.reset(ibv_exp_create_cq(rig.context.get(), 256, this, nullptr, 0, &cq_attr));
    REQUIRE(cq);
    auto attr = rig.qp_attr(IBV_QPT_RAW_PACKET);
    attr.send_cq = attr.recv_cq = cq.get();
    attr.exp_create_flags = create_flags;
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER;
    attr.max_tso_header = tso_header;
    qp.reset(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(qp);
    to(IBV_QPS_INIT, IBV_EXP_QP_PORT);
    to(IBV_QPS_RTR);
    to(IBV_QPS_RTS);
  }
  void to(ibv_qp_state state, std::uint64_t mask = 0) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    REQUIRE(ibv_exp_modify_qp(qp.get(), &attr, mask | IBV_EXP_QP_STATE) == 0);
  }
  void post(std::uint32_t n = 1) {
    for (std::uint32_t i = 0; i < n; ++i, ++posted)
      post_receive(qp.get(), posted, buffer.piece((posted % depth) * slot, slot));
  }
  Rule rule(RuleAttr attr) {
    Rule made(ibv_exp_create_flow(qp.get(), &attr.attr()));
    REQUIRE(made);
    CHECK(made->context == rig.context.get());
    return made;
  }
  std::vector<ibv_exp_wc> completions(std::size_t wanted) {
    std::vector<ibv_exp_wc> all;
    for (int turns = 0; all.size() < wanted && turns < 50'000'000; ++turns) {
      ibv_exp_wc wc[4];
      std::memset(wc, 0xee, sizeof(wc));
      const int n = ibv_exp_poll_cq(cq.get(), 4, wc, sizeof(wc[0]));
      REQUIRE(n >= 0);
      all.insert(all.end(), wc, wc + n);
    }
    REQUIRE(all.size() == wanted);
    return all;
  }
  // Waits for its completion.
  ibv_exp_wc send(const frames::Bytes &frame, std::uint64_t flags = 0) {
    std::copy(frame.begin(), frame.end(), out.bytes.begin());
    ibv_sge piece = out.piece(0, static_cast<std::uint32_t>(frame.size()));
    auto wr = request(77, IBV_EXP_WR_SEND, &piece);
    wr.exp_send_flags |= flags;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(qp.get(), &wr, &bad) == 0);
    const auto wc = completions(1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == 77);
    CHECK(wc.exp_opcode == IBV_EXP_WC_SEND);
    CHECK(wc.qp == qp.get());
    return wc;
  }
  // The next frame to arrive, which is to be this one.
  ibv_exp_wc expect(const frames::Bytes &frame) {
    const auto wc = completions(1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.exp_opcode == IBV_EXP_WC_RECV);
    CHECK(wc.byte_len == frame.size());
    const bool same = std::memcmp(at(wc.wr_id), frame.data(), frame.size()) == 0;
    CHECK(same);
    return wc;
  }
  const std::uint8_t *at(std::uint64_t wr_id) const {
    return buffer.bytes.data() + (wr_id % depth) * slot;
  }
  bool empty() {
    ibv_exp_wc wc;
    return ibv_exp_poll_cq(cq.get(), 1, &wc, sizeof(wc)) == 0;
  }

  Rig &rig;
  Buffer buffer, out;
  Cq cq;
  Qp qp;
  std::uint32_t posted = 0;
};

struct OwnRig {
  Rig own;
};
// One that sends from a context of its own: a port does not give frames back to the context
// that they came from.
struct RawSender : OwnRig, RawQueue {
  explicit RawSender(std::uint16_t tso_header = 0) : RawQueue(own, 0, tso_header) {}
};

inline frames::Bytes udp_frame(std::uint16_t port = 5000, std::size_t payload = 100,
                               const frames::Mac &dst = frames::ours) {
  return frames::Builder(dst)
      .ipv4(0x0a000001, 0x0a000002, frames::udp)
      .udp(1000, port)
      .payload(payload)
      .build();
}
