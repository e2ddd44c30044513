// Random programs of valid requests. What their completions say and what they leave in memory is
// written to the file that PROGRAMS_OUT names, line by line, for differential.py to compare. Lines
// begin with the number of the program; FIRST and COUNT of the environment say which are run.
#include <cstdio>
#include <map>
#include <random>

#include "dc_rig.h"

namespace {

constexpr std::uint64_t of_receive = std::uint64_t{1} << 32;  // in a wr_id
constexpr std::uint32_t memory_size = 24576, half = memory_size / 2;
constexpr std::uint32_t longest = 1500, fetch_room = 640, receive_room = 1664, grh_bytes = 40;

enum class Kind { rc, rc_shared, uc, ud, dc, keys };

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  // From 0 on, below n.
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  bool once_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// What one program uses, whichever it needs.
class Program : Dc {
 public:
  Program(std::uint64_t number, std::FILE *out)
      : random_(number), number_(number), out_(out), kind_(static_cast<Kind>(random_.below(6))) {
    for (Buffer *memory : {&from_, &to_})
      for (auto &byte : memory->bytes) byte = static_cast<std::uint8_t>(random_.below(256));
    stamped_ = random_.once_in(4);
    if (stamped_) {
      ibv_exp_cq_init_attr attr{};
      attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
      attr.flags = IBV_EXP_CQ_TIMESTAMP;
      stamps_.reset(ibv_exp_create_cq(context.get(), 64, nullptr, nullptr, 0, &attr));
      REQUIRE(stamps_);
    }
    make_pair();
  }

  void run() {
    std::fprintf(out_, "%lu kind %d stamped %d signal_all %d\n", number_, int(kind_), stamped_,
                 signal_all_);
    const std::uint32_t steps = 3 + random_.below(10);
    for (std::uint32_t step = 0; step < steps; ++step) {
      if (kind_ == Kind::keys && random_.once_in(2)) fill_key();
      else post_chain();
      await();
    }
    if (random_.once_in(6)) {
      fail();
      await();
    }
    print();
  }

 private:
  ibv_cq *queue() { return stamped_ ? stamps_.get() : cq.get(); }

  ibv_exp_qp_init_attr attributes(ibv_qp_type type) {
    auto attr = qp_attr(type);
    attr.send_cq = attr.recv_cq = queue();
    attr.cap = {32, 32, 4, 4, 64};
    attr.sq_sig_all = signal_all_;
    return attr;
  }

  void make_pair() {
    signal_all_ = random_.once_in(4);
    ibv_qp_type type = IBV_QPT_RC;
    if (kind_ == Kind::uc) type = IBV_QPT_UC;
    if (kind_ == Kind::ud) type = IBV_QPT_UD;
    if (kind_ == Kind::dc) {
      auto target = dct_attr();
      target.cq = queue();
      target_.reset(ibv_exp_create_dct(context.get(), &target));
      REQUIRE(target_);
      auto attr = attributes(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
      attr.srq = srq.get();
      a_.reset(ibv_exp_create_qp(context.get(), &attr));
      REQUIRE(a_);
      to_rts(a_.get());
      return;
    }
    auto attr = attributes(type);
    if (kind_ == Kind::keys) {
      attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
      attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
      attr.max_inl_send_klms = 8;
      ibv_exp_create_mr_in in{};
      in.pd = pd.get();
      in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
      in.attr.max_klm_list_size = 8;
      in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE;
      key_.reset(ibv_exp_create_mr(&in));
      REQUIRE(key_);
    }
    if (kind_ == Kind::rc_shared) attr.srq = srq.get();
    a_.reset(ibv_exp_create_qp(context.get(), &attr));
    b_.reset(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(a_);
    REQUIRE(b_);
    connect(a_.get(), b_->qp_num);
    connect(b_.get(), a_->qp_num);
  }

  bool shares() const { return kind_ == Kind::rc_shared || kind_ == Kind::dc; }

  // One receive for a message of that many bytes.
  void receive(std::uint32_t bytes) {
    bytes += kind_ == Kind::ud ? grh_bytes : 0;
    bytes = std::max(bytes, 1u);
    ibv_sge pieces[4];
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = of_receive | next_++;
    wr.sg_list = pieces;
    const std::uint32_t most = shares() ? 1 : 4;
    std::uint32_t left = bytes, at = received_ + random_.below(64);
    while (left != 0) {
      const bool last = wr.num_sge + 1 == static_cast<int>(most);
      const std::uint32_t part = last ? left : 1 + random_.below(left);
      pieces[wr.num_sge++] = to_.piece(at, part);
      at += part;
      left -= part;
    }
    const int error =
        shares() ? ibv_post_srq_recv(srq.get(), &wr, &bad) : ibv_post_recv(b_.get(), &wr, &bad);
    REQUIRE(error == 0);
    ++awaited_;
  }

  struct Request {
    ibv_exp_send_wr wr;
    ibv_sge pieces[4];
  };

  void spread(Request &request, std::uint32_t bytes, bool fetches) {
    request.wr.sg_list = request.pieces;
    request.wr.num_sge = 0;
    std::uint32_t left = bytes, at = fetches ? fetched_ : random_.below(64);
    const int most = kind_ == Kind::dc ? 2 : 4;
    while (left != 0) {
      const bool last = request.wr.num_sge + 1 == most;
      const std::uint32_t part = last ? left : 1 + random_.below(left);
      request.pieces[request.wr.num_sge++] = from_.piece(at, part);
      at += part;
      left -= part;
    }
  }

  bool has(ibv_exp_wr_opcode opcode) const {
    switch (opcode) {
      case IBV_EXP_WR_SEND:
      case IBV_EXP_WR_SEND_WITH_IMM: return true;
      case IBV_EXP_WR_RDMA_WRITE:
      case IBV_EXP_WR_RDMA_WRITE_WITH_IMM: return kind_ != Kind::ud;
      default: return kind_ != Kind::ud && kind_ != Kind::uc;
    }
  }

  ibv_exp_wr_opcode choose_opcode(bool last) {
    // A write over UC is there when a message behind it is.
    if (last && kind_ == Kind::uc) return IBV_EXP_WR_SEND;
    constexpr ibv_exp_wr_opcode all[] = {IBV_EXP_WR_SEND,
                                         IBV_EXP_WR_SEND_WITH_IMM,
                                         IBV_EXP_WR_RDMA_WRITE,
                                         IBV_EXP_WR_RDMA_READ,
                                         IBV_EXP_WR_RDMA_WRITE_WITH_IMM,
                                         IBV_EXP_WR_ATOMIC_CMP_AND_SWP,
                                         IBV_EXP_WR_ATOMIC_FETCH_AND_ADD};
    for (;;)
      if (const auto opcode = all[random_.below(7)]; has(opcode)) return opcode;
  }

  void fill(Request &request, bool last) {
    ibv_exp_send_wr &wr = request.wr;
    const auto opcode = choose_opcode(last);
    wr = ::request(next_++, opcode, request.pieces);
    wr.exp_send_flags = random_.once_in(2) ? std::uint64_t{IBV_EXP_SEND_SIGNALED} : 0;
    if (random_.once_in(4)) wr.exp_send_flags |= IBV_EXP_SEND_SOLICITED;
    if (random_.once_in(8)) wr.exp_send_flags |= IBV_EXP_SEND_FENCE;
    wr.ex.imm_data = random_.below(1u << 31);
    const bool atomic = opcode >= IBV_EXP_WR_ATOMIC_CMP_AND_SWP;
    const bool short_one = random_.once_in(3);
    std::uint32_t bytes = random_.below(short_one ? 65 : kind_ == Kind::ud ? 900 : longest);
    if (opcode == IBV_EXP_WR_RDMA_READ) bytes %= fetch_room;
    if (atomic) bytes = 8;
    const bool fetches = atomic || opcode == IBV_EXP_WR_RDMA_READ;
    spread(request, bytes, fetches);
    if (atomic) request.pieces[0] = from_.piece(fetched_, 8), wr.num_sge = 1;
    if (bytes <= 64 && !fetches && random_.once_in(2)) wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
    const std::uint64_t remote = to_.address(atomic ? 8 * random_.below(64) : random_.below(512));
    if (atomic) {
      wr.wr.atomic.remote_addr = remote;
      wr.wr.atomic.rkey = to_.mr->rkey;
      std::memcpy(&wr.wr.atomic.compare_add, reinterpret_cast<void *>(remote), 8);
      if (random_.once_in(2)) ++wr.wr.atomic.compare_add;
      wr.wr.atomic.swap = random_.below(1u << 30);
    } else if (opcode == IBV_EXP_WR_RDMA_WRITE || opcode == IBV_EXP_WR_RDMA_READ ||
               opcode == IBV_EXP_WR_RDMA_WRITE_WITH_IMM) {
      wr.wr.rdma.remote_addr = remote;
      wr.wr.rdma.rkey = to_.mr->rkey;
    } else if (kind_ == Kind::ud) {
      wr.wr.ud.ah = ah.get();
      wr.wr.ud.remote_qpn = b_->qp_num;
      wr.wr.ud.remote_qkey = 0x11111111;
    }
    if (kind_ == Kind::dc) {
      wr.dc.ah = ah.get();
      wr.dc.dct_number = target_->dct_num;
      wr.dc.dct_access_key = ::key;
    }
    if (opcode == IBV_EXP_WR_SEND || opcode == IBV_EXP_WR_SEND_WITH_IMM ||
        opcode == IBV_EXP_WR_RDMA_WRITE_WITH_IMM)
      receive(opcode == IBV_EXP_WR_RDMA_WRITE_WITH_IMM ? 0 : bytes);
    // Through the key that was filled.
    if (filled_ != 0 && !fetches && (wr.exp_send_flags & IBV_EXP_SEND_INLINE) == 0 && bytes != 0 &&
        bytes <= filled_ && random_.once_in(2)) {
      request.pieces[0] = {random_.below(filled_ - bytes + 1), bytes, key_->lkey};
      wr.num_sge = 1;
    }
  }

  void post_chain() {
    const std::uint32_t count = 1 + random_.below(6);
    std::vector<Request> chain(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      fetched_ = half + i * fetch_room;
      received_ = half + i * receive_room;
      fill(chain[i], i + 1 == count);
      chain[i].wr.next = i + 1 < count ? &chain[i + 1].wr : nullptr;
    }
    chain.back().wr.exp_send_flags |= IBV_EXP_SEND_SIGNALED;
    for (const Request &request : chain)
      awaited_ += signal_all_ || (request.wr.exp_send_flags & IBV_EXP_SEND_SIGNALED) != 0;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a_.get(), &chain[0].wr, &bad) == 0);
  }

  void fill_key() {
    const bool repeats = random_.once_in(3);
    const std::uint32_t pieces = 1 + random_.below(repeats ? 3 : 5);
    std::vector<ibv_exp_mem_region> list(pieces);
    std::vector<ibv_exp_mem_repeat_block> blocks(pieces);
    std::vector<std::size_t> bytes(pieces), strides(pieces);
    std::size_t repetitions = 1 + random_.below(4);
    filled_ = 0;
    for (std::uint32_t i = 0; i < pieces; ++i) {
      const std::uint32_t length = 1 + random_.below(200), at = random_.below(1024);
      list[i] = {from_.address(at), from_.mr.get(), length};
      bytes[i] = length;
      strides[i] = length + random_.below(100);
      blocks[i] = {from_.address(at), from_.mr.get(), &bytes[i], &strides[i]};
      filled_ += length;
    }
    ibv_exp_send_wr wr = ::request(next_++, IBV_EXP_WR_UMR_FILL, nullptr, 0);
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_INLINE;
    auto &umr = wr.ext_op.umr;
    std::memset(&umr, 0, sizeof(umr));
    umr.umr_type = repeats ? IBV_EXP_UMR_REPEAT : IBV_EXP_UMR_MR_LIST;
    umr.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
    umr.modified_mr = key_.get();
    umr.num_mrs = pieces;
    if (repeats) {
      umr.mem_list.rb.mem_repeat_block_list = blocks.data();
      umr.mem_list.rb.repeat_count = &repetitions;
      umr.mem_list.rb.stride_dim = 1;
      filled_ *= static_cast<std::uint32_t>(repetitions);
    } else {
      umr.mem_list.mem_reg_list = list.data();
    }
    ++awaited_;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a_.get(), &wr, &bad) == 0);
  }

  // The last request of a program: to memory that is not there.
  void fail() {
    if (kind_ == Kind::ud || kind_ == Kind::uc) return;
    Request request;
    request.wr = ::request(next_++, IBV_EXP_WR_RDMA_WRITE, request.pieces);
    request.pieces[0] = from_.piece(0, 64);
    request.wr.wr.rdma.remote_addr = to_.address(memory_size);
    request.wr.wr.rdma.rkey = to_.mr->rkey;
    if (kind_ == Kind::dc) {
      request.wr.dc.ah = ah.get();
      request.wr.dc.dct_number = target_->dct_num;
      request.wr.dc.dct_access_key = ::key;
    }
    ++awaited_;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a_.get(), &request.wr, &bad) == 0);
  }

  // By one verb or the other, any number at once.
  void await() {
    for (std::uint64_t turns = 0; awaited_ != 0; ++turns) {
      REQUIRE(turns < 50'000'000);
      const int most = 1 + static_cast<int>(random_turn_ = (random_turn_ * 5 + 3) % 8);
      if (!stamped_ && number_ % 3 == 0) {
        ibv_wc wc[8];
        std::memset(wc, 0, sizeof(wc));
        const int n = ibv_poll_cq(queue(), most, wc);
        REQUIRE(n >= 0);
        for (int i = 0; i < n; ++i) note(wc[i]);
        awaited_ -= static_cast<std::uint32_t>(n);
      } else {
        ibv_exp_wc wc[8];
        std::memset(wc, 0, sizeof(wc));
        const int n = ibv_exp_poll_cq(queue(), most, wc, sizeof(wc[0]));
        REQUIRE(n >= 0);
        for (int i = 0; i < n; ++i) note(wc[i]);
        awaited_ -= static_cast<std::uint32_t>(n);
      }
    }
  }

  // Queues by name: their numbers are another's business.
  char name_of(std::uint32_t number) const {
    if (number == a_->qp_num) return 'a';
    if (b_ && number == b_->qp_num) return 'b';
    return target_ && number == target_->dct_num ? 't' : '-';
  }
  char name_of(const ibv_qp *qp) const {
    return qp == nullptr ? '-' : qp == a_.get() ? 'a' : qp == b_.get() ? 'b' : '?';
  }

  template <class... Values>
  void line(std::uint64_t id, const char *format, Values... values) {
    char text[400];
    std::snprintf(text, sizeof(text), format, values...);
    lines_[id] = text;
  }

  void note(const ibv_wc &wc) {
    const bool good = wc.status == IBV_WC_SUCCESS, receive = (wc.wr_id & of_receive) != 0;
    const unsigned immediate = IBV_WC_WITH_IMM | IBV_WC_WITH_INV;
    const bool counts = receive || wc.opcode == IBV_WC_RDMA_READ || wc.opcode == IBV_WC_COMP_SWAP ||
                        wc.opcode == IBV_WC_FETCH_ADD;
    line(wc.wr_id, "base status %d opcode %d bytes %u imm %#x qp %c from %c flags %#x error %u",
         int(wc.status), good ? int(wc.opcode) : 0, good && counts ? wc.byte_len : 0,
         good && receive && (wc.wc_flags & immediate) != 0 ? wc.imm_data : 0, name_of(wc.qp_num),
         good && receive && kind_ == Kind::ud ? name_of(wc.src_qp) : '-', good ? wc.wc_flags : 0,
         good ? 0 : wc.vendor_err);
  }

  void note(const ibv_exp_wc &wc) {
    const bool good = wc.status == IBV_WC_SUCCESS, receive = (wc.wr_id & of_receive) != 0;
    const std::uint64_t immediate = IBV_EXP_WC_WITH_IMM | IBV_EXP_WC_WITH_INV;
    const bool counts = receive || wc.exp_opcode == IBV_EXP_WC_RDMA_READ ||
                        wc.exp_opcode == IBV_EXP_WC_COMP_SWAP ||
                        wc.exp_opcode == IBV_EXP_WC_FETCH_ADD;
    const bool stamp = (wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0;
    std::uint64_t flags = wc.exp_wc_flags;
    // ibv_wc_read_wc_flags() of rdma-core says nothing of the immediate data of requests.
    if (stamped_ && !receive) flags &= ~std::uint64_t{IBV_EXP_WC_WITH_IMM};
    // The opcode of a failed request: the base verbs say none.
    line(wc.wr_id,
         "status %d opcode %d bytes %u imm %#x qp %c object %c srq %d dct %d from %c sl %d slid %d "
         "path %d pkey %d flags %#lx time %d error %u",
         int(wc.status), good ? int(wc.exp_opcode) : 0, good && counts ? wc.byte_len : 0,
         good && receive && (flags & immediate) != 0 ? wc.imm_data : 0, name_of(wc.qp_num),
         name_of(wc.qp), wc.srq == srq.get(), wc.dct != nullptr && wc.dct == target_.get(),
         good && receive && kind_ == Kind::ud ? name_of(wc.src_qp) : '-',
         good && receive ? wc.sl : 0, good && receive ? wc.slid : 0,
         good && receive ? wc.dlid_path_bits : 0,
         // There is no reader of the P_Key index beside the time.
         good && receive && !stamped_ ? wc.pkey_index : 0, flags, stamp == (wc.timestamp != 0),
         good ? 0 : wc.vendor_err);
  }

  void print() {
    for (const auto &[id, text] : lines_)
      std::fprintf(out_, "%lu %s %lu: %s\n", number_,
                   (id & of_receive) != 0 ? "receive" : "request", id & ~of_receive, text.c_str());
    for (const Buffer *memory : {&from_, &to_}) {
      std::fprintf(out_, "%lu memory ", number_);
      for (const std::uint8_t byte : memory->bytes) std::fprintf(out_, "%02x", byte);
      std::fputc('\n', out_);
    }
  }

  Random random_;
  std::uint64_t number_;
  std::FILE *out_;
  Kind kind_;
  bool stamped_ = false, signal_all_ = false;
  Buffer from_{pd.get(), memory_size}, to_{pd.get(), memory_size};
  Cq stamps_;
  Mr key_;
  Dct target_;
  Qp a_, b_;
  std::uint32_t filled_ = 0;  // bytes of the key
  std::uint64_t next_ = 0;
  // Where the data of the next request go that it fetches or that are received: requests of a chain do
  // not share a place, since short data come inside a completion, and are put there by a poll.
  std::uint32_t fetched_ = half, received_ = half;
  std::uint32_t awaited_ = 0, random_turn_ = 0;
  std::map<std::uint64_t, std::string> lines_;
};

std::uint64_t number_in(const char *variable) {
  const char *text = std::getenv(variable);
  REQUIRE(text != nullptr);
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("random programs") {
  const char *path = std::getenv("PROGRAMS_OUT");
  REQUIRE(path != nullptr);
  std::FILE *out = std::fopen(path, "w");
  REQUIRE(out != nullptr);
  const std::uint64_t first = number_in("FIRST");
  for (std::uint64_t number = first; number < first + number_in("COUNT"); ++number) {
    INFO("program " << number);
    Program(number, out).run();
  }
  REQUIRE(std::fclose(out) == 0);
}
