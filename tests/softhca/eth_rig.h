// Raw packet QPs, work queues and flow rules for tests of the Ethernet side,
// and frames to send through them.
#pragma once

#include <cstdlib>

#include "model/eth_flow.h"
#include "model/eth_frame.h"
#include "model/eth_queue.h"
#include "rig.h"

namespace softhca::test {

// The configuration is read when the first device starts.
struct EthernetChosen {
  EthernetChosen() { setenv("SOFTHCA_LINK", "eth", 1); }
};
class EthRig : EthernetChosen, public Rig {};

inline constexpr u8 multicast_mac[6] = {0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};
inline constexpr u8 unicast_mac[6] = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
inline constexpr u8 source_mac[6] = {0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8};

// Builds a frame from the outside in; lengths and checksums at the end.
class FrameBuilder {
 public:
  explicit FrameBuilder(const u8 *dst = multicast_mac) { mac(dst); }
  FrameBuilder &mac(const u8 *dst) {
    bytes_.insert(bytes_.end(), dst, dst + 6);
    bytes_.insert(bytes_.end(), source_mac, source_mac + 6);
    return *this;
  }
  FrameBuilder &vlan(u16 tci, u16 type = ethertype_cvlan) { return be16(type).be16(tci); }
  FrameBuilder &ipv4(u32 src, u32 dst, u8 protocol) {
    be16(ethertype_ipv4);
    be16(0x4500)
        .be16(0)
        .be16(0x1234)
        .be16(0x4000)
        .be16(static_cast<u16>(64 << 8 | protocol))
        .be16(0);
    return be32(src).be32(dst);
  }
  FrameBuilder &ipv6(u8 src_last, u8 dst_last, u8 protocol) {
    be16(ethertype_ipv6);
    be32(6u << 28 | 0x12345).be16(0).be16(static_cast<u16>(protocol << 8 | 64));
    for (const u8 last : {src_last, dst_last}) {
      bytes_.resize(bytes_.size() + 15, 0x20);
      bytes_.push_back(last);
    }
    return *this;
  }
  FrameBuilder &udp(u16 src, u16 dst) {
    udp_at_.push_back(bytes_.size());
    return be16(src).be16(dst).be16(0).be16(0);
  }
  FrameBuilder &tcp(u16 src, u16 dst, u32 sequence, u8 flags) {
    return be16(src)
        .be16(dst)
        .be32(sequence)
        .be32(1)
        .be16(static_cast<u16>(0x5000 | flags))
        .be16(100)
        .be32(0);
  }
  FrameBuilder &vxlan(u32 vni, u32 flags = 0x08000000) { return be32(flags).be32(vni << 8); }
  FrameBuilder &payload(size_t n, u8 seed = 1) {
    for (size_t i = 0; i < n; ++i) bytes_.push_back(static_cast<u8>(i * 3 + seed));
    return *this;
  }
  // With lengths, without checksums.
  std::vector<u8> raw() const {
    std::vector<u8> b = bytes_;
    lengths(b, 0);
    for (const size_t at : udp_at_) store_be16(b.data() + at + 4, static_cast<u16>(b.size() - at));
    return b;
  }
  std::vector<u8> build() const {
    std::vector<u8> b = raw();
    const EthFrame f = parse_frame(b.data(), static_cast<u32>(b.size()));
    if (f.tunnel) write_checksums(b.data(), f.inner, true, true);
    write_checksums(b.data(), f.outer, true, true);
    return b;
  }

 private:
  FrameBuilder &be16(u16 v) {
    bytes_.push_back(static_cast<u8>(v >> 8));
    bytes_.push_back(static_cast<u8>(v));
    return *this;
  }
  FrameBuilder &be32(u32 v) { return be16(static_cast<u16>(v >> 16)).be16(static_cast<u16>(v)); }
  static void lengths(std::vector<u8> &b, size_t l2) {
    size_t at = l2 + 12;
    u16 type = load_be16(b.data() + at);
    for (; type == ethertype_svlan || type == ethertype_cvlan; type = load_be16(b.data() + at))
      at += 4;
    const size_t l3 = at + 2;
    size_t l4 = 0;
    if (type == ethertype_ipv4) {
      store_be16(b.data() + l3 + 2, static_cast<u16>(b.size() - l3));
      if (b[l3 + 9] == 17) l4 = l3 + 20;
    } else if (type == ethertype_ipv6) {
      store_be16(b.data() + l3 + 4, static_cast<u16>(b.size() - l3 - 40));
      if (b[l3 + 6] == 17) l4 = l3 + 40;
    }
    if (l4 != 0 && load_be16(b.data() + l4 + 2) == vxlan_port) lengths(b, l4 + 16);
  }
  std::vector<u8> bytes_;
  std::vector<size_t> udp_at_;
};

inline std::vector<u8> udp_frame(size_t payload = 100, const u8 *dst = multicast_mac,
                                 u16 dport = 5678) {
  return FrameBuilder(dst)
      .ipv4(0x01010101, 0x02020202, 17)
      .udp(1234, dport)
      .payload(payload)
      .build();
}

// A raw packet QP with room to receive and to send.
struct RawQp {
  explicit RawQp(Rig &rig, u32 depth = 16)
      : qp(rig, cq, cq, options(depth)),
        buffer(depth * slot_bytes, full_access),
        out(512 * 1024, full_access) {
    qp.qp->eth = std::make_unique<EthQp>();
    qp.qp->attr.port = 1;
    for (const QpState s : {QpState::init, QpState::rtr, QpState::rts}) qp_set_state(*qp.qp, s);
  }
  static QpOptions options(u32 depth) {
    QpOptions o;
    o.type = QpType::raw_packet;
    o.rq_wqes = depth;
    return o;
  }
  void post(u32 n = 1, u32 bytes = slot_bytes) {
    for (u32 i = 0; i < n; ++i, ++posted)
      qp.post_receive(
          {{bytes, buffer.key(), buffer.address(u64{posted % qp.qp->rq_wqes} * slot_bytes)}});
  }
  // Ethernet segment without inline headers, unless `header` says so.
  static Wqe wqe(WqeOpcode op, u8 checksums = 0, u16 mss = 0, const std::vector<u8> &header = {}) {
    std::vector<u8> s(header.size() <= 2 ? 16 : 16 + align_up(header.size() - 2, 16));
    s[4] = checksums;
    store_be16(s.data() + 6, mss);
    store_be16(s.data() + 12, static_cast<u16>(header.size()));
    std::copy(header.begin(), header.end(), s.begin() + 14);
    Wqe w(op);
    w.raw(s.data(), s.size());
    return w;
  }
  u16 send(const std::vector<u8> &frame, u8 checksums = 0) {
    std::copy(frame.begin(), frame.end(), out.data());
    return qp.post(wqe(WqeOpcode::send, checksums)
                       .data(static_cast<u32>(frame.size()), out.key(), out.address()));
  }
  const u8 *slot(u32 n) { return buffer.data() + (n % qp.qp->rq_wqes) * slot_bytes; }
  bool holds(u32 n, const std::vector<u8> &bytes) {
    return std::memcmp(slot(n), bytes.data(), bytes.size()) == 0;
  }

  static constexpr u32 slot_bytes = 2048;
  TestCq cq;
  TestQp qp;
  Region buffer, out;
  u32 posted = 0;
};

// A work queue of its own CQ. Striding: `log_strides` of 2^log_bytes each.
struct TestWq {
  explicit TestWq(u32 entries = 8, u32 log_bytes = 0, u32 log_strides = 0)
      : memory(entries * slot_bytes, full_access), queue(entries * 32) {
    wq.device = &process().devices.at(0);
    wq.wqn = 7;
    wq.pdn = pdn;
    wq.uidx = 0x777;
    wq.buffer = queue.data();
    wq.dbrec = dbrec;
    wq.entries = entries;
    wq.strides = {log_bytes, log_strides};
    wq.stride = wq.strides.on() ? 32 : 16;
    wq.cq = &cq.cq;
    wq_set_state(wq, WqState::ready);
  }
  ~TestWq() { wq_forget(wq); }
  void post(u32 n = 1, u32 bytes = slot_bytes) {
    for (u32 i = 0; i < n; ++i, ++posted) {
      const u32 at = posted & (wq.entries - 1);
      u8 *s = queue.data() + at * wq.stride + (wq.strides.on() ? 16 : 0);
      store_be32(s, bytes);
      store_be32(s + 4, memory.key());
      store_be64(s + 8, memory.address(u64{at} * slot_bytes));
    }
    __atomic_store_n(&dbrec[0], swap32(posted), __ATOMIC_RELEASE);
  }
  static constexpr u32 slot_bytes = 4096;
  TestCq cq;
  Region memory;
  std::vector<u8> queue;
  alignas(64) u32 dbrec[2] = {};
  u16 posted = 0;
  Wq wq;
};

// A rule that lives as long as this object. Matches everything as it is.
struct TestRule {
  explicit TestRule(Qp *qp, u32 priority = 0) {
    rule.qp = qp;
    rule.priority = priority;
  }
  ~TestRule() { flow_remove(rule); }
  TestRule &dst(const u8 *mac) {
    std::memcpy(rule.value.outer.dst_mac, mac, 6);
    std::memset(rule.mask.outer.dst_mac, 0xff, 6);
    return *this;
  }
  TestRule &dst_port(u16 port) {
    store_be16(rule.value.outer.dst_port, port);
    store_be16(rule.mask.outer.dst_port, 0xffff);
    return *this;
  }
  int add() { return flow_add(rule); }
  FlowRule rule;
};

}  // namespace softhca::test
