// Multi-packet receive queues through ibv_exp_poll_cq: IBVEXP_BEYOND=mp_rq_poll.
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "log_of.h"
#include "mprq_rig.h"
#include "skip.h"

namespace {

// The next completions of a queue, as structures of the caller's age.
std::vector<ibv_exp_wc> take(ibv_cq *cq, std::size_t wanted,
                             std::uint32_t wc_size = sizeof(ibv_exp_wc)) {
  std::vector<ibv_exp_wc> all;
  std::vector<std::uint8_t> room(8 * sizeof(ibv_exp_wc));
  while (all.size() < wanted) {
    std::fill(room.begin(), room.end(), 0xee);
    auto *wcs = reinterpret_cast<ibv_exp_wc *>(room.data());
    const int most = static_cast<int>(std::min<std::size_t>(8, wanted - all.size()));
    const int n = eventually([&] { return ibv_exp_poll_cq(cq, most, wcs, wc_size); });
    REQUIRE(n > 0);
    for (int i = 0; i < n; ++i) {
      ibv_exp_wc wc{};
      std::memcpy(&wc, room.data() + static_cast<std::size_t>(i) * wc_size, wc_size);
      all.push_back(wc);
    }
  }
  return all;
}

}  // namespace

// The first of this file: the log has it once.
TEST_CASE("IBVEXP_BEYOND=auto names the switch that a completion needs [row:mprq_poll_mp_wr]") {
  const char *const beyond = std::getenv("IBVEXP_BEYOND");
  SKIP_IF(beyond == nullptr || std::string_view(beyond) != "auto", "other switches");
  Receiver t;
  t.post_entries(1);
  t.transmit({make_udp(100, 1)});
  CHECK(log_of([&] { take(t.recv_cq.get(), 1); }) ==
        "ibvexp: IBVEXP_BEYOND=auto: a request needs mp_rq_poll (ibv_exp_wc.mp_wr)\n");
}

// [row:IBV_EXP_MP_RQ_NO_SHIFT]
TEST_CASE(
    "packets are reported with their strides [row:mprq_poll_mp_wr][row:mprq_create_wq]"
    "[row:IBV_EXP_WC_MP_WR_CONSUMED][row:IBV_EXP_WC_RECV_NOP]") {
  // The structure of 3.x and 4.0 as well.
  const std::uint32_t wc_size = GENERATE(88u, static_cast<std::uint32_t>(sizeof(ibv_exp_wc)));
  for (const auto shift : {IBV_EXP_MP_RQ_NO_SHIFT, IBV_EXP_MP_RQ_2BYTES_SHIFT}) {
    Receiver t(4, shift);
    Ledger ledger{shift == IBV_EXP_MP_RQ_2BYTES_SHIFT ? 2u : 0u};
    t.post_entries(4);
    unsigned fillers = 0, ends = 0;
    for (unsigned round = 0; round < 24; ++round) {
      std::vector<Frame> frames;
      std::vector<Ledger::Place> places;
      std::vector<std::size_t> entries;
      std::size_t reported = 0;
      for (unsigned i = 0; i < 16; ++i) {
        std::size_t payload = 18 + (round * 16 + i) * 131 % 1400;
        const std::size_t left = (strides - ledger.used) * stride;
        if (ledger.entry % 2 == 1 && left >= 128 && left <= 1400)
          payload = left - 42 - ledger.shift;  // to the end
        frames.push_back(make_udp(payload, round * 16 + i));
        const std::size_t before = ledger.entry;
        places.push_back(ledger.place(frames.back().size()));
        entries.push_back(before + places.back().filler);
        reported += 1u + places.back().filler;
      }
      t.transmit(frames);
      const auto all = take(t.recv_cq.get(), reported, wc_size);
      auto wc = all.begin();
      for (std::size_t i = 0; i < frames.size(); ++i, ++wc) {
        if (places[i].filler) {
          CHECK(wc->status == IBV_WC_SUCCESS);
          CHECK(wc->exp_opcode == IBV_EXP_WC_RECV_NOP);
          CHECK(wc->exp_wc_flags == IBV_EXP_WC_MP_WR_CONSUMED);
          CHECK(wc->mp_wr.byte_len == 0);
          ++fillers;
          t.post_entries(1);
          ++wc;
        }
        REQUIRE(wc->status == IBV_WC_SUCCESS);
        CHECK(wc->exp_opcode == IBV_EXP_WC_RECV);
        REQUIRE(wc->mp_wr.byte_len == frames[i].size());
        CHECK(wc->mp_wr.strides_offset == places[i].offset / stride);
        CHECK((wc->exp_wc_flags & IBV_EXP_WC_RX_IP_CSUM_OK) != 0);
        CHECK((wc->exp_wc_flags & IBV_EXP_WC_RX_IPV4_PACKET) != 0);
        // A packet never needs another completion. [row:IBV_EXP_WC_MP_WR_MORE_IN_MSG]
        CHECK((wc->exp_wc_flags & IBV_EXP_WC_MP_WR_MORE_IN_MSG) == 0);
        CHECK(((wc->exp_wc_flags & IBV_EXP_WC_MP_WR_CONSUMED) != 0) == places[i].last);
        const std::size_t at =
            entries[i] % t.entries * entry_bytes + wc->mp_wr.strides_offset * stride + ledger.shift;
        CHECK(std::memcmp(&t.memory.bytes[at], frames[i].data(), frames[i].size()) == 0);
        if (places[i].last) {
          ++ends;
          t.post_entries(1);
        }
      }
    }
    CHECK(fillers > 0);
    CHECK(ends > 0);
  }
}

TEST_CASE("queues of single packets on the same CQ keep their byte_len") {
  Receiver t;
  t.post_entries(2);
  Qp plain = t.create_on(IBV_QPT_RAW_PACKET, t.recv_cq.get(), t.recv_cq.get());
  REQUIRE(plain);
  t.ready(plain.get());
  FlowRule rule = t.steer(plain.get(), 7);
  Buffer rooms(t.pd.get(), 8 * 2048);
  for (std::uint64_t i = 0; i < 8; ++i)
    post_receive(plain.get(), 100 + i, rooms.piece(i * 2048, 2048));
  std::vector<Frame> frames;
  for (unsigned i = 0; i < 16; ++i)
    frames.push_back(make_udp(60 + i * 50, i, i % 2 == 0 ? std::uint8_t{1} : std::uint8_t{7}));
  t.transmit(frames);
  // And the completion of a sent frame that matches no flow rule.
  Buffer own(t.pd.get(), 2048);
  const Frame unwanted = make_udp(60, 0, 9);
  std::memcpy(own.bytes.data(), unwanted.data(), unwanted.size());
  ibv_sge piece = own.piece(0, static_cast<std::uint32_t>(unwanted.size()));
  auto wr = request(55, IBV_EXP_WR_SEND, &piece);
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(plain.get(), &wr, &bad) == 0);

  unsigned many = 0, single = 0, sent = 0;
  std::size_t used = 0;
  for (const ibv_exp_wc &wc : take(t.recv_cq.get(), 17)) {
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    if (wc.exp_opcode == IBV_EXP_WC_SEND) {
      CHECK(wc.wr_id == 55);
      CHECK(wc.qp == plain.get());
      ++sent;
    } else if (wc.qp == plain.get()) {
      const Frame &frame = frames[2 * single + 1];
      CHECK(wc.wr_id == 100 + single);
      CHECK(wc.byte_len == frame.size());
      CHECK(std::memcmp(&rooms.bytes[single * 2048], frame.data(), frame.size()) == 0);
      ++single;
    } else {
      const Frame &frame = frames[2 * many];
      CHECK(wc.qp == nullptr);
      CHECK(wc.mp_wr.byte_len == frame.size());
      CHECK(wc.mp_wr.strides_offset == used);
      CHECK(std::memcmp(&t.memory.bytes[used * stride], frame.data(), frame.size()) == 0);
      used += (frame.size() + stride - 1) / stride;
      ++many;
    }
  }
  CHECK(many == 8);
  CHECK(single == 8);
  CHECK(sent == 1);
}

TEST_CASE("the family and ibv_exp_poll_cq take turns, the base verb takes none") {
  Receiver t;
  t.post_entries(2);
  std::vector<Frame> frames;
  for (unsigned i = 0; i < 12; ++i) frames.push_back(make_udp(100 + i, i));
  t.transmit(frames);
  for (unsigned i = 0; i < 12; ++i) {
    if (i % 2 == 0) {
      std::uint32_t offset = 0, flags = 0;
      REQUIRE(eventually([&] {
                return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
              }) == static_cast<int>(frames[i].size()));
      continue;
    }
    ibv_wc base{};
    CHECK(eventually([&] { return ibv_poll_cq(t.recv_cq.get(), 1, &base); }) == -1);
    CHECK(take(t.recv_cq.get(), 1)[0].mp_wr.byte_len == frames[i].size());
  }
}

TEST_CASE("failed entries are reported and given back") {
  Receiver t;
  ibv_sge wrong = t.memory.piece(0, entry_bytes);
  wrong.lkey ^= 0x5500;  // no such key
  REQUIRE(t.post->recv_burst(t.wq.get(), &wrong, 1) == 0);
  t.post_entries(3);
  CHECK(t.post->recv_burst(t.wq.get(), &wrong, 1) == ENOMEM);
  t.transmit({make_udp(100, 1)});
  const auto wc = take(t.recv_cq.get(), 1)[0];
  CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
  CHECK(wc.vendor_err != 0);
  CHECK(wc.exp_wc_flags == 0);
  CHECK(wc.qp_num == t.wq->wq_num);
  // The others are flushed.
  for (const auto &flushed : take(t.recv_cq.get(), 3)) CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
  t.set_state(IBV_EXP_WQS_RESET);
  t.set_state(IBV_EXP_WQS_RDY);
  t.posted = 0;
  t.post_entries(4);
  const Frame frame = make_udp(200, 9);
  t.transmit({frame});
  const auto good = take(t.recv_cq.get(), 1)[0];
  CHECK(good.mp_wr.byte_len == frame.size());
  CHECK(std::memcmp(t.memory.bytes.data(), frame.data(), frame.size()) == 0);
}

TEST_CASE("packets in shared buffers carry the time") {
  const std::uint32_t flag = GENERATE(std::uint32_t{IBV_EXP_CQ_TIMESTAMP},
                                      std::uint32_t{IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME});
  Receiver t(4, IBV_EXP_MP_RQ_NO_SHIFT, 0, flag);
  t.post_entries(4);
  const auto now = [&] {
    ibv_exp_values values{};
    const bool cycles = flag == IBV_EXP_CQ_TIMESTAMP;
    REQUIRE(ibv_exp_query_values(t.context.get(),
                                 cycles ? IBV_EXP_VALUES_HW_CLOCK : IBV_EXP_VALUES_HW_CLOCK_NS,
                                 &values) == 0);
    return cycles ? values.hwclock : values.hwclock_ns;
  };
  std::uint64_t last = now();
  for (unsigned i = 0; i < 20; ++i) {
    t.transmit({make_udp(100, i)});
    const auto wc = take(t.recv_cq.get(), 1)[0];
    REQUIRE((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0);
    CHECK((wc.exp_wc_flags & (IBV_EXP_WC_WITH_SL | IBV_EXP_WC_WITH_SLID)) == 0);
    // The clock was read before the packet came, and after.
    constexpr std::uint64_t slack = 1000;
    CHECK(wc.timestamp + slack >= last);
    last = now();
    CHECK(wc.timestamp <= last + slack);
  }
}

TEST_CASE("the family gives the time of day on a queue that was created for it") {
  Receiver t(4, IBV_EXP_MP_RQ_NO_SHIFT, 0, IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME);
  t.post_entries(4);
  const auto now = [&] {
    ibv_exp_values values{};
    REQUIRE(ibv_exp_query_values(t.context.get(), IBV_EXP_VALUES_HW_CLOCK_NS, &values) == 0);
    return values.hwclock_ns;
  };
  const std::uint64_t before = now();
  t.transmit({make_udp(100, 1)});
  std::uint32_t offset = 0, flags = 0;
  std::uint64_t reported = 0;
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq_ts(t.recv_cq.get(), &offset, &flags, &reported);
          }) == 142);
  CHECK((flags & IBV_EXP_CQ_RX_WITH_TIMESTAMP) != 0);
  CHECK(reported + 1000 >= before);
  CHECK(reported <= now() + 1000);
}
