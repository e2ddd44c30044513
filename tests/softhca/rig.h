// Drives the device model without libibverbs: queues in plain memory, WQEs
// written byte by byte as the format demands, completions read as raw CQEs.
// The device lock is held throughout, so the engine thread stays away and
// step() alone moves the device: the tests are deterministic.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/prm.h"
#include "catch.h"
#include "config/config.h"
#include "engine/engine.h"
#include "model/device.h"
#include "model/mkey.h"
#include "model/qp.h"

namespace softhca::test {

inline constexpr u32 pdn = 77;

// The process-wide device, joined to a fabric of its own.
class Rig {
 public:
  Rig() : lock_(process().mutex) {
    REQUIRE(process().start() == 0);
    clock_ = device_clock_ns();
  }
  Device &device() { return process().devices.at(0); }

  // Runs the device until nothing moves; `advance_ns` is then added to its
  // clock, so that timers expire without waiting.
  void step(u64 advance_ns = 0) {
    for (int quiet = 0; quiet < 3;) quiet = engine_step(clock_) ? 0 : quiet + 1;
    clock_ += advance_ns;
    if (advance_ns != 0) step();
  }

 private:
  std::unique_lock<std::mutex> lock_;
  u64 clock_;
};

// Memory registered with a key of its own.
class Region {
 public:
  Region(size_t bytes, u32 access, u32 pd = pdn) : bytes_(bytes) {
    memory_ = static_cast<u8 *>(std::aligned_alloc(4096, align_up(bytes, 4096)));
    std::memset(memory_, 0, bytes);
    key_ = process().mkeys.create(pd);
    key_->access = access;
    key_->start = key_->host_base = address();
    key_->length = bytes;
  }
  ~Region() {
    process().mkeys.destroy(key_);
    std::free(memory_);
  }
  Region(const Region &) = delete;
  Region &operator=(const Region &) = delete;

  u8 *data() { return memory_; }
  u64 address(u64 offset = 0) const { return reinterpret_cast<u64>(memory_) + offset; }
  u32 key() const { return key_->key(); }
  Mkey &mkey() { return *key_; }
  size_t size() const { return bytes_; }
  void fill(unsigned seed) {
    for (size_t i = 0; i < bytes_; ++i) memory_[i] = static_cast<u8>(i * 7 + seed + (i >> 8));
  }
  template <class T>
  T &at(u64 offset) {
    return *reinterpret_cast<T *>(memory_ + offset);
  }

 private:
  size_t bytes_;
  u8 *memory_;
  Mkey *key_;
};

inline constexpr u32 full_access =
    access_local_write | access_remote_write | access_remote_read | access_remote_atomic;

// A CQE as software reads it.
struct Completion {
  u8 raw[64] = {};
  u8 inline_half[64] = {};  // first half of a 128-byte CQE
  u8 opcode() const { return raw[63] >> 4; }
  u8 format() const { return raw[63] >> 2 & 3; }
  bool solicited() const { return (raw[63] & 2) != 0; }
  u8 syndrome() const { return raw[55]; }
  u8 vendor() const { return raw[54]; }
  u32 uidx() const { return load_be32(raw + 32); }
  u32 byte_count() const { return load_be32(raw + 44); }
  u32 imm_raw() const {
    u32 v;
    std::memcpy(&v, raw + 36, 4);
    return v;
  }
  u64 timestamp() const { return load_be64(raw + 48); }
  u8 sent_opcode() const { return raw[56]; }
  u32 qpn() const { return load_be32(raw + 56) & 0xffffff; }
  u16 wqe_counter() const { return load_be16(raw + 60); }
  u32 flags_rqpn() const { return load_be32(raw + 24); }
  u32 source_qpn() const { return flags_rqpn() & 0xffffff; }
};

class TestCq {
 public:
  explicit TestCq(u32 entries = 64, u32 cqe_size = 64) : buffer_(entries * cqe_size, 0xf0) {
    static u32 next = 100;
    cq.cqn = next++;
    cq.user_handle = cq.cqn;
    cq.buffer = buffer_.data();
    cq.dbrec = dbrec_;
    cq.entries = entries;
    cq.cqe_size = cqe_size;
    cq_start(cq);
  }
  ~TestCq() { cq_forget(cq); }

  // Takes the next completion; false when there is none.
  bool poll(Completion &c) {
    const u8 *entry = cq.buffer + (consumer_ & (cq.entries - 1)) * cq.cqe_size;
    const u8 *cqe = cq.cqe_size == 128 ? entry + 64 : entry;
    const u8 op_own = __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE);
    if (op_own >> 4 == 15 || (op_own & 1) != ((consumer_ / cq.entries) & 1)) return false;
    std::memcpy(c.raw, cqe, 64);
    if (cq.cqe_size == 128) std::memcpy(c.inline_half, entry, 64);
    ++consumer_;
    dbrec_[0] = swap32(consumer_ & 0xffffff);
    return true;
  }
  Completion expect() {
    Completion c;
    REQUIRE(poll(c));
    return c;
  }
  void expect_none() {
    Completion c;
    REQUIRE_FALSE(poll(c));
  }
  void arm(bool solicited_only, u32 sn = 0) {
    dbrec_[1] = swap32((sn & 3) << 28 | (solicited_only ? 1u << 24 : 0) | (consumer_ & 0xffffff));
    cq_watch(cq);
  }
  u32 consumed() const { return consumer_; }

  Cq cq;

 private:
  std::vector<u8> buffer_;
  alignas(64) u32 dbrec_[2] = {};
  u32 consumer_ = 0;
};

// Writes one send WQE, 16-byte unit by unit.
class Wqe {
 public:
  Wqe(WqeOpcode op, u8 opmod = 0) : op_(op), opmod_(opmod) { bytes_.resize(16); }
  Wqe &imm(u32 network) {
    imm_ = network;
    return *this;
  }
  Wqe &unsignaled() {
    fm_ce_se_ &= static_cast<u8>(~0xc);
    return *this;
  }
  Wqe &solicited() {
    fm_ce_se_ |= 2;
    return *this;
  }
  Wqe &stream(u16 id) {
    stream_ = id;
    return *this;
  }
  Wqe &fence() { return fence(2); }
  Wqe &small_fence() { return fence(1); }
  Wqe &fence(u8 mode) {
    fm_ce_se_ = static_cast<u8>((fm_ce_se_ & 0x1f) | mode << 5);
    return *this;
  }
  Wqe &remote(u64 address, u32 rkey) {
    u8 s[16] = {};
    store_be64(s, address);
    store_be32(s + 8, rkey);
    return raw(s, 16);
  }
  Wqe &modifier(u8 opmod) {
    opmod_ = opmod;
    return *this;
  }
  Wqe &data(u32 bytes, u32 lkey, u64 address) {
    u8 s[16];
    store_be32(s, bytes);
    store_be32(s + 4, lkey);
    store_be64(s + 8, address);
    return raw(s, 16);
  }
  Wqe &inline_data(const void *p, u32 n) {
    std::vector<u8> s(align_up(n + 4, 16));
    store_be32(s.data(), n | 0x80000000);
    std::memcpy(s.data() + 4, p, n);
    return raw(s.data(), s.size());
  }
  Wqe &av(u64 key, u32 qpn, u16 dlid, const u8 *dgid = nullptr) {
    u8 s[48] = {};
    store_be64(s, key);
    store_be32(s + 8, qpn | 0x80000000);
    store_be16(s + 14, dlid);
    if (dgid != nullptr) {
      s[27] = 1;
      store_be32(s + 28, 1u << 30);
      std::memcpy(s + 32, dgid, 16);
    }
    return raw(s, 48);
  }
  Wqe &ud_av(u32 qkey, u32 qpn, u16 dlid, const u8 *dgid = nullptr) {
    return av(u64{qkey} << 32, qpn, dlid, dgid);
  }
  Wqe &xrc(u32 srqn) {
    u8 s[16] = {};
    store_be32(s, srqn);
    return raw(s, 16);
  }
  Wqe &be(u64 v, u32 size) {  // operand of an atomic, big-endian
    for (u32 i = 0; i < size; ++i)
      bytes_.push_back(size - 1 - i < 8 ? static_cast<u8>(v >> (size - 1 - i) * 8) : 0);
    return *this;
  }
  Wqe &pad() {
    bytes_.resize(align_up(bytes_.size(), 16));
    return *this;
  }
  Wqe &raw(const void *p, size_t n) {
    const u8 *b = static_cast<const u8 *>(p);
    bytes_.insert(bytes_.end(), b, b + n);
    return *this;
  }
  std::vector<u8> bytes(u16 index, u32 qpn) const {
    std::vector<u8> b = bytes_;
    const u32 ds = static_cast<u32>(b.size() / 16);
    store_be32(b.data(), u32{opmod_} << 24 | u32{index} << 8 | static_cast<u8>(op_));
    store_be32(b.data() + 4, qpn << 8 | ds);
    store_be16(b.data() + 9, stream_);
    b[11] = fm_ce_se_;
    std::memcpy(b.data() + 12, &imm_, 4);
    b.resize(align_up(b.size(), 64));
    return b;
  }

 private:
  WqeOpcode op_;
  u8 opmod_;
  u8 fm_ce_se_ = 2 << 2;  // always a CQE
  u16 stream_ = 0;
  u32 imm_ = 0;
  std::vector<u8> bytes_;
};

struct QpOptions {
  QpType type = QpType::rc;
  Srq *srq = nullptr;
  u32 sq_wqebbs = 64;
  u32 rq_wqes = 16;
  u32 access = full_access;
  u32 pd = pdn;
  u64 dc_key = 0;
  u32 xrcd = 0;
  u8 timeout = 14, retry = 1, rnr_retry = 1, max_rd = 4, rnr_timer = 1;
  u32 qkey = 0x1234;
};

class TestQp {
 public:
  static constexpr u32 stride = 64;

  TestQp(Rig &rig, TestCq &send_cq, TestCq &recv_cq, const QpOptions &o = {})
      : options_(o), sq_(o.sq_wqebbs * wqe_bb), rq_(o.rq_wqes * stride) {
    auto q = std::make_unique<Qp>();
    q->device = &rig.device();
    q->type = o.type;
    q->pdn = o.pd;
    static u32 uidx = 0x500;
    q->uidx = uidx++;
    q->user_handle = q->uidx;
    q->dc_key = o.dc_key;
    q->xrcd = o.xrcd;
    q->send_cq = &send_cq.cq;
    q->recv_cq = &recv_cq.cq;
    q->srq = o.srq;
    const bool queues = o.type != QpType::dct && o.type != QpType::xrc_tgt;
    if (queues) {
      q->dbrec = dbrec_;
      q->sq = sq_.data();
      q->sq_wqebbs = o.sq_wqebbs;
      if (o.srq == nullptr && o.type != QpType::dci && o.type != QpType::xrc_ini) {
        q->rq = rq_.data();
        q->rq_wqes = o.rq_wqes;
        q->rq_stride = stride;
      }
    }
    qp = qp_register(std::move(q));
    REQUIRE(qp != nullptr);
  }
  ~TestQp() { qp_unregister(qp); }
  TestQp(const TestQp &) = delete;
  TestQp &operator=(const TestQp &) = delete;

  void connect(u32 remote_qpn, u16 dlid) {
    qp->attr.port = 1;
    qp->attr.access = options_.access;
    qp->attr.qkey = options_.qkey;
    qp_set_state(*qp, QpState::init);
    qp->attr.dest_qpn = remote_qpn;
    qp->attr.av.dlid = dlid;
    qp->attr.path_mtu = 3;
    qp->attr.rq_psn = qp->attr.sq_psn = 0xfffff0;  // wraps soon
    qp->attr.min_rnr_timer = options_.rnr_timer;
    qp->attr.max_dest_rd_atomic = 16;
    qp_set_state(*qp, QpState::rtr);
    qp->attr.timeout = options_.timeout;
    qp->attr.retry_count = options_.retry;
    qp->attr.rnr_retry = options_.rnr_retry;
    qp->attr.max_rd_atomic = options_.max_rd;
    if (qp->sq_wqebbs != 0) qp_set_state(*qp, QpState::rts);
  }

  // Returns the index of the WQE as its completion will show it.
  u16 post(const Wqe &w) {
    const u16 at = producer_;
    const std::vector<u8> b = w.bytes(at, qp->qpn);
    for (size_t i = 0; i < b.size(); i += wqe_bb, ++producer_)
      std::memcpy(sq_.data() + (producer_ & (qp->sq_wqebbs - 1)) * wqe_bb, b.data() + i, wqe_bb);
    __atomic_store_n(&dbrec_[1], swap32(producer_), __ATOMIC_RELEASE);
    return at;
  }
  // Doorbells with any value, right or wrong.
  void ring(u16 producer) { __atomic_store_n(&dbrec_[1], swap32(producer), __ATOMIC_RELEASE); }
  void ring_receive(u16 producer) {
    __atomic_store_n(&dbrec_[0], swap32(producer), __ATOMIC_RELEASE);
  }

  void post_receive(std::initializer_list<std::tuple<u32, u32, u64>> sges) {
    u8 *w = rq_.data() + (received_ & (qp->rq_wqes - 1)) * stride;
    std::memset(w, 0, stride);
    for (const auto &[bytes, lkey, address] : sges) {
      store_be32(w, bytes);
      store_be32(w + 4, lkey);
      store_be64(w + 8, address);
      w += 16;
    }
    if (sges.size() < stride / 16) store_be32(w + 4, terminator_lkey);
    ++received_;
    __atomic_store_n(&dbrec_[0], swap32(received_), __ATOMIC_RELEASE);
  }

  Qp *qp;

 private:
  QpOptions options_;
  std::vector<u8> sq_, rq_;
  alignas(64) u32 dbrec_[2] = {};
  u16 producer_ = 0, received_ = 0;
};

class TestSrq {
 public:
  explicit TestSrq(u32 entries = 16, SrqType type = SrqType::basic, Cq *cq = nullptr, u32 xrcd = 0)
      : buffer_(entries * 64) {
    srq.type = type;
    srq.pdn = pdn;
    srq.cq = cq;
    srq.xrcd = xrcd;
    srq.uidx = 0x900;
    srq.buffer = buffer_.data();
    srq.dbrec = dbrec_;
    srq.entries = entries;
    srq.stride = 64;
    srq.max_sge = 3;
    for (u32 i = 0; i < entries; ++i)
      store_be16(buffer_.data() + i * 64 + 2, static_cast<u16>((i + 1) % entries));
    srq_register(&srq);
  }
  ~TestSrq() { srq_unregister(&srq); }
  void post(u32 bytes, u32 lkey, u64 address) {
    u8 *w = buffer_.data() + (posted_ % srq.entries) * 64 + 16;
    std::memset(w, 0, 48);
    store_be32(w, bytes);
    store_be32(w + 4, lkey);
    store_be64(w + 8, address);
    store_be32(w + 16 + 4, terminator_lkey);
    ++posted_;
    __atomic_store_n(&dbrec_[0], swap32(posted_), __ATOMIC_RELEASE);
  }
  Srq srq;

 private:
  std::vector<u8> buffer_;
  alignas(64) u32 dbrec_[2] = {};
  u16 posted_ = 0;
};

// Two connected QPs of one process, each with its own CQ.
struct Pair {
  explicit Pair(Rig &rig, QpOptions a_options = {}, QpOptions b_options = {}, u32 cqe_size = 64)
      : a_cq(64, cqe_size),
        b_cq(64, cqe_size),
        a(rig, a_cq, a_cq, a_options),
        b(rig, b_cq, b_cq, b_options) {
    const u16 lid = rig.device().port(1).lid;
    a.connect(b.qp->qpn, lid);
    b.connect(a.qp->qpn, lid);
  }
  TestCq a_cq, b_cq;
  TestQp a, b;
};

}  // namespace softhca::test
