// What a port and a counter set count.
#include "model/counters.h"

#include "model/bth.h"
#include "model/packets.h"
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

using Counted = PortCounters<u64>;

// What has been counted on port 1 since it was made.
class Since {
 public:
  Since() : before_(port_counters(0, 1)) {}
  u64 packets(TrafficKind k) { return now().packets(k) - before_.packets(k); }
  u64 octets(TrafficKind k) { return now().octets(k) - before_.octets(k); }
  u64 operator[](QueueCounter c) { return now().queues[c] - before_.queues[c]; }

 private:
  static Counted now() { return port_counters(0, 1); }
  Counted before_;
};

// Of native InfiniBand without a global route, from the local route header to the invariant CRC.
constexpr u64 headers = lrh_bytes + bth_bytes + icrc_bytes;

Wqe write_of(Region &from, u32 bytes, Region &to, u32 key) {
  return Wqe(WqeOpcode::rdma_write)
      .remote(to.address(), key)
      .data(bytes, from.key(), from.address());
}

}  // namespace

TEST_CASE("A port counts packets and octets", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(4096, full_access), to(4096, full_access);
  Since since;
  p.a.post(write_of(from, 2501, to, to.key()));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 0);
  // Three packets of the path MTU of 1024 and an acknowledge, which come to the same port.
  const u64 octets = 3 * headers + reth_bytes + 2504 + headers + aeth_bytes;
  CHECK(since.packets(TrafficKind::sent_rdma) == 4);
  CHECK(since.packets(TrafficKind::received_rdma) == 4);
  CHECK(since.octets(TrafficKind::sent_rdma) == octets);
  CHECK(since.octets(TrafficKind::received_rdma) == octets);
  CHECK(since.packets(TrafficKind::sent_rdma_multicast) == 0);
}

TEST_CASE("A port that is down neither sends nor receives", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  Since since;
  rig.device().ports_up[0] = false;
  p.a.post(write_of(from, 64, to, to.key()));
  rig.step();
  rig.device().ports_up[0] = true;
  CHECK(since.packets(TrafficKind::sent_rdma) == 0);
  CHECK(since.packets(TrafficKind::received_rdma) == 0);
}

TEST_CASE("A datagram to a group is one packet for all its members", "[counters]") {
  Rig rig;
  QpOptions o;
  o.type = QpType::ud;
  Pair p(rig, o, o);
  Region from(64, full_access), to(128, full_access);
  const u8 group[16] = {0xff, 0x12, 1};
  const std::string name(reinterpret_cast<const char *>(group), 16);
  p.a.qp->multicast.insert(name);
  p.b.qp->multicast.insert(name);
  process().fabric->set_multicast_groups(2);
  p.b.post_receive({{128, to.key(), to.address()}});
  Since since;
  p.a.post(Wqe(WqeOpcode::send)
               .ud_av(o.qkey, multicast_qpn, 0xc001, group)
               .data(64, from.key(), from.address()));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(p.b_cq.expect().opcode() == static_cast<u8>(CqeOpcode::resp_send));
  CHECK(since.packets(TrafficKind::sent_rdma_multicast) == 1);
  CHECK(since.packets(TrafficKind::received_rdma_multicast) == 1);
  CHECK(since.octets(TrafficKind::sent_rdma_multicast) == headers + ipv6_bytes + deth_bytes + 64);
  CHECK(since.packets(TrafficKind::sent_rdma) == 0);
  // The one without a receive has dropped it.
  CHECK(since[QueueCounter::out_of_buffer] == 1);
  process().fabric->set_multicast_groups(0);
}

TEST_CASE("A responder counts the requests that it executes", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(4096, full_access), to(4096, full_access);
  Since since;
  p.a.post(write_of(from, 4096, to, to.key()));
  p.a.post(Wqe(WqeOpcode::rdma_read)
               .remote(to.address(), to.key())
               .data(4096, from.key(), from.address()));
  p.a.post(Wqe(WqeOpcode::atomic_fa)
               .remote(to.address(), to.key())
               .be(1, 8)
               .be(0, 8)
               .data(8, from.key(), from.address()));
  rig.step();
  for (int i = 0; i < 3; ++i) CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(since[QueueCounter::rx_write_requests] == 1);
  CHECK(since[QueueCounter::rx_read_requests] == 1);
  CHECK(since[QueueCounter::rx_atomic_requests] == 1);
  CHECK(since[QueueCounter::duplicate_request] == 0);
  CHECK(since[QueueCounter::req_cqe_error] == 0);
}

TEST_CASE("A missing receive is counted on both sides", "[counters]") {
  constexpr u64 second = 1'000'000'000;
  Rig rig;
  QpOptions o;
  o.rnr_retry = 2;
  Pair p(rig, o);
  Region from(64, full_access);
  Since since;
  p.a.post(Wqe(WqeOpcode::send).data(64, from.key(), from.address()));
  for (int i = 0; i < 4; ++i) rig.step(second);
  CHECK(p.a_cq.expect().syndrome() == static_cast<u8>(Syndrome::rnr_retry_exceeded));
  CHECK(since[QueueCounter::out_of_buffer] == 3);
  CHECK(since[QueueCounter::rnr_nak_retry_err] == 3);
  CHECK(since[QueueCounter::req_rnr_retries_exceeded] == 1);
  CHECK(since[QueueCounter::req_cqe_error] == 1);
}

TEST_CASE("Errors are counted where they are found, and what they flush", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  p.b.post_receive({{64, to.key(), to.address()}});
  Since since;
  SECTION("remote access") {
    p.a.post(write_of(from, 64, to, to.key() ^ 1));
    p.a.post(write_of(from, 64, to, to.key()));
    rig.step();
    CHECK(since[QueueCounter::req_remote_access_errors] == 1);
    CHECK(since[QueueCounter::resp_remote_access_errors] == 1);
    CHECK(since[QueueCounter::req_cqe_error] == 1);
    CHECK(since[QueueCounter::req_cqe_flush_error] == 1);
    CHECK(since[QueueCounter::resp_cqe_flush_error] == 1);
    CHECK(since[QueueCounter::resp_cqe_error] == 0);
  }
  SECTION("a message that is too long") {
    Region large(128, full_access);
    p.a.post(Wqe(WqeOpcode::send).data(128, large.key(), large.address()));
    rig.step();
    CHECK(since[QueueCounter::resp_local_length_error] == 1);
    CHECK(since[QueueCounter::resp_cqe_error] == 1);
    CHECK(since[QueueCounter::resp_remote_invalid_request] == 1);
    CHECK(since[QueueCounter::req_remote_invalid_request] == 1);
  }
  SECTION("local protection") {
    p.a.post(write_of(from, 64, to, to.key()).data(64, from.key() ^ 1, from.address()));
    rig.step();
    CHECK(since[QueueCounter::req_local_protection] == 1);
    CHECK(since[QueueCounter::req_cqe_error] == 1);
  }
}

TEST_CASE("A peer that is silent makes time-outs", "[counters]") {
  Rig rig;
  TestCq cq;
  QpOptions o;
  o.retry = 2;
  TestQp a(rig, cq, cq, o);
  a.connect(a.qp->qpn + 500, rig.device().port(1).lid);  // no such QP
  Region from(64, full_access);
  Since since;
  a.post(Wqe(WqeOpcode::rdma_write).remote(0x1000, 5).data(8, from.key(), from.address()));
  for (int i = 0; i < 4; ++i) rig.step(70'000'000);
  CHECK(cq.expect().syndrome() == static_cast<u8>(Syndrome::retry_exceeded));
  CHECK(since[QueueCounter::local_ack_timeout_err] == 3);
  CHECK(since[QueueCounter::req_transport_retries_exceeded] == 1);
  // They went out nevertheless.
  CHECK(since.packets(TrafficKind::sent_rdma) == 3);
  CHECK(since.packets(TrafficKind::received_rdma) == 0);
}

TEST_CASE("Packets out of order are counted by who sees them", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  PacketHeader h{};
  h.kind = PacketKind::request;
  h.service = Service::rc;
  h.opcode = static_cast<u8>(WqeOpcode::rdma_write);
  h.flags = packet_first | packet_last;
  h.src_qpn = p.a.qp->qpn;
  h.dst_qpn = p.b.qp->qpn;
  h.src_lid = h.dst_lid = rig.device().port(1).lid;
  h.npsn = 1;
  h.payload = h.message_bytes = 64;
  h.remote_address = to.address();
  h.rkey = to.key();
  Since since;
  h.psn = psn_add(0xfffff0, 5);
  qp_receive_request(*p.b.qp, h, from.data());
  CHECK(since[QueueCounter::out_of_sequence] == 1);
  CHECK(since[QueueCounter::rx_write_requests] == 0);
  h.psn = psn_add(0xfffff0, 0xffffff);
  qp_receive_request(*p.b.qp, h, from.data());
  CHECK(since[QueueCounter::duplicate_request] == 1);

  p.a.post(write_of(from, 64, to, to.key()));
  qp_set_state(*p.b.qp, QpState::reset);  // we answer for it
  rig.step();
  PacketHeader nak{};
  nak.kind = PacketKind::ack;
  nak.nak = Nak::sequence;
  nak.src_qpn = p.b.qp->qpn;
  nak.psn = 0xfffff0;
  qp_receive_response(*p.a.qp, nak, nullptr);
  CHECK(since[QueueCounter::packet_seq_err] == 1);
}

TEST_CASE("An acknowledge behind a missing answer is counted", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  qp_set_state(*p.b.qp, QpState::reset);  // we answer for it
  p.a.post(Wqe(WqeOpcode::rdma_read)
               .remote(to.address(), to.key())
               .data(64, from.key(), from.address()));
  p.a.post(write_of(from, 64, to, to.key()));
  rig.step();
  Since since;
  PacketHeader acknowledge{};
  acknowledge.kind = PacketKind::ack;
  acknowledge.src_qpn = p.b.qp->qpn;
  acknowledge.psn = psn_add(0xfffff0, 1);
  qp_receive_response(*p.a.qp, acknowledge, nullptr);
  CHECK(since[QueueCounter::implied_nak_seq_err] == 1);
}

TEST_CASE("A queue pair counts in the set that it was given", "[counters]") {
  Rig rig;
  Pair p(rig);
  Region from(64, full_access), to(64, full_access);
  p.b.qp->counters = std::make_shared<CounterSet>();
  Since since;
  p.a.post(write_of(from, 64, to, to.key()));
  rig.step();
  CHECK(p.a_cq.expect().opcode() == 0);
  CHECK(p.b.qp->counters->counters[QueueCounter::rx_write_requests].value() == 1);
  CHECK(since[QueueCounter::rx_write_requests] == 0);
}

TEST_CASE("Every record has as many octets as its packets", "[counters]") {
  const std::vector<u8> data(burst_bytes);
  PacketHeader h{};
  h.dgid[10] = h.dgid[11] = h.sgid[10] = h.sgid[11] = 0xff;  // IPv4
  u32 checked = 0;
  for (const bool ethernet : {false, true})
    for (const u8 grh : {u8{0}, u8{packet_grh}})
      for (const PacketKind kind : {PacketKind::request, PacketKind::ack, PacketKind::read_response,
                                    PacketKind::atomic_response, PacketKind::datagram})
        for (const Service service : {Service::rc, Service::uc, Service::xrc})
          for (const WqeOpcode op :
               {WqeOpcode::send, WqeOpcode::send_imm, WqeOpcode::send_inv, WqeOpcode::rdma_write,
                WqeOpcode::rdma_write_imm, WqeOpcode::rdma_read, WqeOpcode::atomic_cs})
            for (const u32 bytes : {0u, 3u, 16u, 2500u, 4096u})
              for (u8 ends = 0; ends < 4; ++ends) {
                h.kind = kind;
                h.service = service;
                h.opcode = static_cast<u8>(op);
                h.src_lid = h.dst_lid = ethernet ? u16{0} : u16{5};
                h.flags = static_cast<u8>(ends | grh);
                if ((ends & packet_last) != 0 &&
                    (op == WqeOpcode::send_imm || op == WqeOpcode::rdma_write_imm))
                  h.flags |= packet_imm;
                if ((ends & packet_last) != 0 && op == WqeOpcode::send_inv &&
                    kind == PacketKind::request)
                  h.flags |= packet_inv;
                h.atomic_size = 8;
                const bool asks = kind == PacketKind::request &&
                                  (op == WqeOpcode::rdma_read || op == WqeOpcode::atomic_cs);
                h.payload = kind == PacketKind::atomic_response            ? 8
                            : kind == PacketKind::ack                      ? 0
                            : asks && op == WqeOpcode::rdma_read           ? 0
                            : asks                                         ? 16
                            : kind == PacketKind::datagram && bytes > 4096 ? 4096
                                                                           : bytes;
                h.npsn = std::max<u32>((h.payload + 1023) / 1024, 1);
                if (kind == PacketKind::datagram) h.npsn = 1;
                CAPTURE(ethernet, grh, static_cast<int>(kind), static_cast<int>(service),
                        static_cast<int>(op), h.payload, ends);
                const PacketTrain train = packets_of(h, data.data());
                u64 octets = 0;
                for (const Packet &p : train.packets) octets += p.size() - (ethernet ? 0 : 2);
                const Traffic traffic = traffic_of(h);
                REQUIRE(traffic.packets == train.packets.size());
                REQUIRE(traffic.octets == octets);
                ++checked;
              }
  CHECK(checked == 2 * 2 * 5 * 3 * 7 * 5 * 4);
}
