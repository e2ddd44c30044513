// Multi-packet receive queues: frames of many sizes share buffers, and the CQ
// family says where each one is.
#include "mprq_rig.h"
#include "skip.h"

// [row:IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1]
TEST_CASE("frames of all sizes are found in their strides") {
  for (const auto shift : {IBV_EXP_MP_RQ_NO_SHIFT, IBV_EXP_MP_RQ_2BYTES_SHIFT}) {
    Receiver t(4, shift);
    Ledger ledger{shift == IBV_EXP_MP_RQ_2BYTES_SHIFT ? 2u : 0u};
    t.post_entries(4);
    std::size_t total = 0;
    bool filler_seen = false, exact_end_seen = false;
    for (unsigned round = 0; round < 40; ++round) {
      std::vector<Frame> frames;
      Ledger ahead = ledger;
      for (unsigned i = 0; i < 16; ++i) {
        std::size_t payload = 18 + (round * 16 + i) * 131 % 1400;
        // Every other entry is filled to its end.
        const std::size_t left = (strides - ahead.used) * stride;
        if (ahead.entry % 2 == 1 && left >= 128 && left <= 1400) payload = left - 42 - ledger.shift;
        frames.push_back(make_udp(payload, round * 16 + i));
        ahead.place(frames.back().size());
      }
      t.transmit(frames);
      for (const Frame &frame : frames) {
        const std::size_t entry_before = ledger.entry;
        const auto at = ledger.place(frame.size());
        std::uint32_t offset = 0, flags = 0;
        if (at.filler) {
          filler_seen = true;
          // No packet, but the buffer is the program's again.
          int length = -2;
          length = eventually([&] {
            const int n = t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
            return n != 0 ? n : flags != 0 ? 1'000'000 : 0;
          });
          REQUIRE(length == 1'000'000);
          CHECK(flags == IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1);
          t.post_entries(1);
        }
        const std::size_t entry = at.filler ? entry_before + 1 : entry_before;
        const int length = eventually(
            [&] { return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags); });
        REQUIRE(length == static_cast<int>(frame.size()));
        REQUIRE(offset == at.offset);
        CHECK((flags & IBV_EXP_CQ_RX_IP_CSUM_OK) != 0);
        CHECK(((flags & IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1) != 0) == at.last);
        const std::size_t place = entry % t.entries * entry_bytes + offset;
        CHECK(std::memcmp(&t.memory.bytes[place], frame.data(), frame.size()) == 0);
        total += frame.size();
        if (at.last) {
          exact_end_seen = true;
          t.post_entries(1);
        }
      }
    }
    CHECK(total > 400'000);
    CHECK(filler_seen);
    CHECK(exact_end_seen);
  }
}

TEST_CASE("ordinary polling of a multi-packet queue is refused") {
  SKIP_IF(switched_on("mp_rq_poll"), "it is served");
  Receiver t;
  t.post_entries(2);
  t.transmit({make_udp(100, 1)});
  ibv_wc base{};
  errno = 0;
  CHECK(eventually([&] { return ibv_poll_cq(t.recv_cq.get(), 1, &base); }) == -1);
  ibv_exp_wc wc{};
  CHECK(ibv_exp_poll_cq(t.recv_cq.get(), 1, &wc, sizeof(wc)) == -ENOTSUP);
  // The functions for queues of single packets leave it alone as well.
  std::uint32_t offset = 0, flags = 0;
  CHECK(t.poll->poll_length(t.recv_cq.get(), nullptr, nullptr) == -1);
  CHECK(t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags) == 142);
  CHECK(t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags) == 0);
  CHECK(flags == 0);
}

TEST_CASE("timestamps and stripped tags of multi-packet queues") {
  Receiver t(4, IBV_EXP_MP_RQ_NO_SHIFT, IBV_EXP_RECEIVE_WQ_CVLAN_STRIP);
  t.post_entries(2);
  Frame frame = make_udp(100, 1), tagged = frame;
  const std::uint8_t tag[4] = {0x81, 0x00, 0x61, 0x23};
  tagged.insert(tagged.begin() + 12, tag, tag + 4);
  t.transmit({tagged, tagged, frame, tagged});
  std::uint32_t offset = 0, flags = 0;
  std::uint16_t tci = 0;
  std::uint64_t first = 0, second = 0;
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq_cvlan(t.recv_cq.get(), &offset, &flags, &tci);
          }) == 142);
  CHECK((flags & IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1) != 0);
  CHECK(tci == 0x6123);
  CHECK(std::memcmp(&t.memory.bytes[offset], frame.data(), frame.size()) == 0);
  tci = 0;
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq_cvlan_ts(t.recv_cq.get(), &offset, &flags, &tci,
                                                            &first);
          }) == 142);
  CHECK(tci == 0x6123);
  CHECK((flags & IBV_EXP_CQ_RX_WITH_TIMESTAMP) != 0);
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq_ts(t.recv_cq.get(), &offset, &flags, &second);
          }) == 142);
  CHECK((flags & IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1) == 0);
  CHECK(second >= first);
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
          }) == 142);
}

TEST_CASE("compressed completions of a multi-packet queue") {
  Receiver t(4, IBV_EXP_MP_RQ_NO_SHIFT, 0, IBV_EXP_CQ_COMPRESSED_CQE);
  Ledger ledger{0};
  t.post_entries(4);
  unsigned without_time = 0;
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<Frame> frames;
    for (unsigned i = 0; i < 32; ++i)
      frames.push_back(make_udp(i % 8 < 6 ? 20 : 300, round * 32 + i));
    t.transmit(frames);
    for (const Frame &frame : frames) {
      std::uint32_t offset = 0, flags = 0;
      std::uint64_t time = 0;
      const std::size_t entry_before = ledger.entry;
      const auto at = ledger.place(frame.size());
      const auto next = [&] {
        return eventually([&] {
          const int n = t.poll->poll_length_flags_mp_rq_ts(t.recv_cq.get(), &offset, &flags, &time);
          return n != 0 ? n : (flags & IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1) != 0 ? 1'000'000 : 0;
        });
      };
      if (at.filler) {
        REQUIRE(next() == 1'000'000);
        t.post_entries(1);
      }
      REQUIRE(next() == static_cast<int>(frame.size()));
      REQUIRE(offset == at.offset);
      const std::size_t entry = (entry_before + at.filler) % t.entries;
      CHECK(std::memcmp(&t.memory.bytes[entry * entry_bytes + offset], frame.data(),
                        frame.size()) == 0);
      without_time += (flags & IBV_EXP_CQ_RX_WITH_TIMESTAMP) == 0;
      if (at.last) t.post_entries(1);
    }
  }
  // Those that were compressed have lost it.
  CHECK(without_time > 0);
}

TEST_CASE("a queue out of strides loses frames and goes on") {
  Receiver t(2);
  // The last frame goes to another queue: when it is there, those before it have come and gone.
  Cq last_cq = t.create_cq(16);
  Qp last = t.create_on(IBV_QPT_RAW_PACKET, last_cq.get(), last_cq.get());
  t.ready(last.get());
  const FlowRule last_rule = t.steer(last.get(), 2);
  Buffer last_memory(t.pd.get(), 2048);
  post_receive(last.get(), 1, last_memory.piece(0, 2048));
  t.post_entries(1);
  // More than an entry holds: some frames arrive, the rest has no place.
  std::vector<Frame> frames;
  for (unsigned i = 0; i < 40; ++i) frames.push_back(make_udp(1300, i));
  frames.push_back(make_udp(1300, 40, 2));
  t.transmit(frames);
  frames.pop_back();
  ibv_wc wc{};
  REQUIRE(eventually([&] { return ibv_poll_cq(last_cq.get(), 1, &wc); }) == 1);
  REQUIRE(wc.status == IBV_WC_SUCCESS);
  std::uint32_t offset = 0, flags = 0;
  unsigned got = 0;
  const std::size_t fit = strides / ((1342 + stride - 1) / stride);
  while (got < fit) {
    const int length = eventually(
        [&] { return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags); });
    REQUIRE(length == 1342);
    CHECK(std::memcmp(&t.memory.bytes[offset], frames[got].data(), 1342) == 0);
    ++got;
  }
  CHECK(t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags) == 0);
  // With memory it receives again: first the end of the entry is reported.
  t.post_entries(1);
  const Frame fresh = make_udp(900, 77);
  t.transmit({fresh});
  bool found = false;
  for (int turns = 0; turns < 60 && !found; ++turns) {
    const int length = eventually([&] {
      const int n = t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
      return n != 0 ? n : (flags & IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1) != 0 ? 1'000'000 : 0;
    });
    REQUIRE(length > 0);
    found = length == static_cast<int>(fresh.size());
    if (found)
      CHECK(std::memcmp(&t.memory.bytes[entry_bytes + offset], fresh.data(), fresh.size()) == 0);
  }
  CHECK(found);
}

TEST_CASE("an overrun of the completion queue ends receiving, and nothing else") {
  FamilyRig rig;
  Receiver t(4);
  // The queue of the rig's size fills up, since it is not polled.
  t.post_entries(4);
  for (unsigned round = 0; round < 80; ++round) {
    std::vector<Frame> frames(16, make_udp(18, round));
    t.transmit(frames);
  }
  std::uint32_t offset = 0, flags = 0;
  unsigned got = 0;
  while (t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags) > 0) ++got;
  CHECK(got >= 1000);
  CHECK(got <= 1280);
}

TEST_CASE("destruction with frames on their way, unread and unposted") {
  for (int round = 0; round < 6; ++round) {
    Receiver t;
    t.post_entries(3);
    std::vector<Frame> frames(32, make_udp(200, 3));
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const ibv_sge piece = t.frames.piece(i * 2048, 242);
      std::memcpy(&t.frames.bytes[i * 2048], frames[i].data(), 242);
      REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, 0) == 0);
    }
    REQUIRE(t.send->send_flush(t.out.get()) == 0);
    if (round % 2 != 0) {
      std::uint32_t offset = 0, flags = 0;
      CHECK(eventually([&] {
              return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
            }) == 242);
    }
    // Frames may still arrive.
    t.rule.reset();
    t.in.reset();
    t.table.reset();
    t.wq.reset();
    std::uint32_t offset = 0, flags = 0;
    CHECK(t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags) == 0);
  }
}

TEST_CASE("reset and ready again") {
  Receiver t;
  t.post_entries(2);
  t.transmit({make_udp(100, 1), make_udp(100, 2)});
  std::uint32_t offset = 0, flags = 0;
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
          }) == 142);
  t.set_state(IBV_EXP_WQS_RESET);
  t.set_state(IBV_EXP_WQS_RDY);
  CHECK(t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags) == 0);
  t.posted = 0;
  t.post_entries(4);
  const Frame frame = make_udp(300, 3);
  t.transmit({frame});
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
          }) == 342);
  CHECK(std::memcmp(&t.memory.bytes[offset], frame.data(), frame.size()) == 0);
}

namespace {

void exchange_a_frame(Receiver &t) {
  const Frame frame = make_udp(300, 3);
  t.transmit({frame});
  std::uint32_t offset = 0, flags = 0;
  REQUIRE(eventually([&] {
            return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
          }) == 342);
  CHECK(std::memcmp(&t.memory.bytes[offset], frame.data(), frame.size()) == 0);
}

}  // namespace

TEST_CASE("what was posted before the queue is ready counts") {
  Receiver t;
  t.set_state(IBV_EXP_WQS_RESET);
  t.posted = 0;
  t.post_entries(2);
  t.set_state(IBV_EXP_WQS_RDY);
  exchange_a_frame(t);
}

TEST_CASE("an error of the queue is left to ibv_poll_cq") {
  Receiver t;
  ibv_sge wrong = t.memory.piece(0, entry_bytes);
  wrong.lkey ^= 0x5500;  // no such key
  REQUIRE(t.post->recv_burst(t.wq.get(), &wrong, 1) == 0);
  t.transmit({make_udp(100, 1)});
  std::uint32_t offset = 0, flags = 0;
  CHECK(eventually([&] {
          return t.poll->poll_length_flags_mp_rq(t.recv_cq.get(), &offset, &flags);
        }) == -1);
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(t.recv_cq.get(), 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
  CHECK(wc.vendor_err != 0);
}

TEST_CASE(
    "sizes out of the reported range are refused "
    "[row:mprq_query_max_single_stride_log_num_of_bytes]"
    "[row:mprq_query_min_single_stride_log_num_of_bytes]"
    "[row:mprq_query_max_single_wqe_log_num_of_strides]"
    "[row:mprq_query_min_single_wqe_log_num_of_strides]"
    "[row:mprq_query_supported_qps][row:mprq_query_allowed_shifts]") {
  FamilyRig t;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_MP_RQ;
  REQUIRE(ibv_exp_query_device(t.context.get(), &device) == 0);
  REQUIRE(device.comp_mask == IBV_EXP_DEVICE_ATTR_MP_RQ);
  const ibv_exp_mp_rq_caps &caps = device.mp_rq_caps;
  CHECK(caps.supported_qps == IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ);
  CHECK(caps.allowed_shifts == IBV_EXP_MP_RQ_2BYTES_SHIFT);
  const auto attempt = [&](int shift, unsigned log_count, unsigned log_bytes,
                           ibv_cq *cq = nullptr) {
    ibv_exp_wq_init_attr attr{};
    attr.wq_type = IBV_EXP_WQT_RQ;
    attr.max_recv_wr = 2;
    attr.max_recv_sge = 1;
    attr.pd = t.pd.get();
    attr.cq = cq != nullptr ? cq : t.cq.get();
    attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
    attr.mp_rq = {static_cast<ibv_exp_mp_rq_shifts>(shift), static_cast<std::uint8_t>(log_count),
                  static_cast<std::uint8_t>(log_bytes)};
    errno = 0;
    const WorkQueue made(ibv_exp_create_wq(t.context.get(), &attr));
    if (!made) CHECK(errno == EINVAL);
    return made != nullptr;
  };
  const unsigned least_count = caps.min_single_wqe_log_num_of_strides,
                 most_count = caps.max_single_wqe_log_num_of_strides,
                 least_bytes = caps.min_single_stride_log_num_of_bytes,
                 most_bytes = caps.max_single_stride_log_num_of_bytes;
  CHECK(attempt(0, least_count, least_bytes));
  CHECK(attempt(1, most_count, most_bytes));
  CHECK_FALSE(attempt(2, least_count, least_bytes));
  CHECK_FALSE(attempt(0, least_count - 1, least_bytes));
  CHECK_FALSE(attempt(0, most_count + 1, least_bytes));
  CHECK_FALSE(attempt(0, least_count, least_bytes - 1));
  CHECK_FALSE(attempt(0, least_count, most_bytes + 1));
  // On a completion queue that others share, too.
  Cq shared = t.create_cq();
  Qp datagram = t.create_on(IBV_QPT_UD, shared.get(), shared.get());
  REQUIRE(datagram);
  CHECK(attempt(0, least_count, least_bytes, shared.get()));
}

// [row:IBV_EXP_WQT_RQ]
TEST_CASE("memory shorter than the strides is refused where checks are asked for") {
  Receiver t;
  auto *checked = t.query<ibv_exp_wq_family>(IBV_EXP_INTF_WQ, t.wq.get(), 0,
                                             IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS);
  REQUIRE(checked != nullptr);
  ibv_sge list[2] = {t.memory.piece(0, entry_bytes), t.memory.piece(entry_bytes, entry_bytes - 1)};
  CHECK(checked->recv_burst(t.wq.get(), list, 2) == EINVAL);
  list[1].length = entry_bytes;
  // Nothing of the refused ones stayed: there is room for four.
  CHECK(checked->recv_burst(t.wq.get(), list, 2) == 0);
  CHECK(checked->recv_burst(t.wq.get(), list, 2) == 0);
  CHECK(checked->recv_burst(t.wq.get(), list, 1) == ENOMEM);
  exchange_a_frame(t);
}

TEST_CASE("an ordinary work queue is served by the same families") {
  FamilyRig t;
  ibv_exp_wq_init_attr attr{};
  attr.wq_type = IBV_EXP_WQT_RQ;
  attr.max_recv_wr = 16;
  attr.max_recv_sge = 2;
  attr.pd = t.pd.get();
  attr.cq = t.cq.get();
  WorkQueue wq(ibv_exp_create_wq(t.context.get(), &attr));
  REQUIRE(wq);
  auto *post = t.query<ibv_exp_wq_family>(IBV_EXP_INTF_WQ, wq.get(), 0,
                                          IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS);
  REQUIRE(post != nullptr);
  CHECK(t.query<ibv_exp_wq_family>(IBV_EXP_INTF_WQ, wq.get(), 1) == nullptr);
  CHECK(t.status == IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED);
  Buffer memory(t.pd.get(), 1 << 16);
  ibv_sge list[3] = {memory.piece(0, 100), memory.piece(1000, 2000), memory.piece(4000, 10)};
  CHECK(post->recv_sg_list(wq.get(), list, 2) == EINVAL);  // not ready
  ibv_exp_wq_attr state{};
  state.attr_mask = IBV_EXP_WQ_ATTR_STATE;
  state.wq_state = IBV_EXP_WQS_RDY;
  REQUIRE(ibv_exp_modify_wq(wq.get(), &state) == 0);
  CHECK(post->recv_sg_list(wq.get(), list, 3) == EINVAL);  // more than asked for
  CHECK(post->recv_sg_list(wq.get(), nullptr, 1) == EINVAL);
  CHECK(post->recv_burst(wq.get(), nullptr, 1) == EINVAL);
  CHECK(post->recv_sg_list(wq.get(), list, 2) == 0);
  std::vector<ibv_sge> many(16, memory.piece(0, 64));
  CHECK(post->recv_burst(wq.get(), many.data(), 16) == ENOMEM);
  CHECK(post->recv_burst(wq.get(), many.data(), 15) == 0);
}

// As ATP and eRPC do.
TEST_CASE("strides whose completions the program reads itself are posted again and again") {
  Receiver t(2);
  ByHand completions(t.recv_cq.get());
  Ledger ledger{0};
  t.post_entries(2);
  unsigned seed = 0;
  for (unsigned round = 0; round < 150; ++round) {
    std::vector<Frame> frames;
    for (unsigned i = 0; i < 16; ++i, ++seed)
      frames.push_back(make_udp(18 + seed * 131 % 1400, seed));
    t.transmit(frames);
    for (const Frame &frame : frames) {
      const auto at = ledger.place(frame.size());
      if (at.filler) {
        completions.next();
        t.post_entries(1);
      }
      const std::size_t place = (ledger.entry - at.last) % t.entries * entry_bytes + at.offset;
      completions.next();
      REQUIRE(std::memcmp(&t.memory.bytes[place], frame.data(), frame.size()) == 0);
      if (at.last) t.post_entries(1);
    }
    // What is not done is not posted over.
    ibv_sge more = t.memory.piece(0, entry_bytes);
    REQUIRE(t.post->recv_burst(t.wq.get(), &more, 1) == ENOMEM);
    REQUIRE(t.post->recv_sg_list(t.wq.get(), &more, 1) == ENOMEM);
  }
  CHECK(ledger.entry > 20);
}
