// Injected faults on the wire and in WQEs: whatever is dropped, duplicated or
// late, reliable services deliver every byte once and in order.
#include "fault/faults.h"

#include <fcntl.h>

#include <random>

#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// The configuration is read once per process, when the first device starts.
void write_and_read_configuration() {
  std::string doc = "{\"faults\": [\n";
  auto packet = [&](const char *match, const char *action, u64 nth, const char *more = "") {
    doc += std::string("{\"kind\": \"packet\", \"match\": \"") + match + "\", \"action\": \"" +
           action + "\", \"nth\": " + std::to_string(nth) + more + "},\n";
  };
  std::mt19937 random(7);
  for (const char *match : {"REQUEST", "ACK", "READ_RESPONSE", "ATOMIC_RESPONSE"}) {
    for (u64 nth = 2; nth < 400; nth += 1 + random() % 12) {
      switch (random() % 3) {
        case 0: packet(match, "drop", nth); break;
        case 1: packet(match, "duplicate", nth); break;
        default: packet(match, "delay", nth, ", \"delay_us\": 40"); break;
      }
    }
  }
  doc +=
      "{\"kind\": \"wqe\", \"match\": \"NOP\", \"nth\": 2, \"syndrome\": \"remote_aborted\", "
      "\"vendor_syndrome\": 51},\n";
  doc +=
      "{\"kind\": \"wqe\", \"match\": \"SEND_INV\", \"nth\": 1, \"syndrome\": "
      "\"local_protection\"},\n";
  doc += "{\"kind\": \"command\", \"match\": \"CQ/CREATE\", \"nth\": 2, \"error\": \"ENOMEM\"}\n]}";
  char path[] = "/tmp/softhca-faults-XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0 || write(fd, doc.data(), doc.size()) != static_cast<ssize_t>(doc.size())) abort();
  close(fd);
  setenv("SOFTHCA_CONFIG", path, 1);
  (void)config();
  unlink(path);
}

struct FaultsChosen {
  FaultsChosen() {
    [[maybe_unused]] static const bool once = (write_and_read_configuration(), true);
  }
};
class FaultyRig : FaultsChosen, public Rig {};

}  // namespace

TEST_CASE("RC survives drops, duplicates and delays", "[fault]") {
  FaultyRig rig;
  QpOptions o;
  o.retry = 7;
  o.rnr_retry = 7;
  Pair p(rig, o, o);
  Region from(65536, full_access), to(65536, full_access), back(65536, full_access);
  std::mt19937 random(1);
  u64 counter = 0;
  for (u32 round = 0; round < 300; ++round) {
    from.fill(round);
    const u32 bytes = 1 + random() % 60000;
    p.b.post_receive({{65536, to.key(), to.address()}});
    p.a.post(Wqe(WqeOpcode::send_imm).imm(swap32(round)).data(bytes, from.key(), from.address()));
    p.a.post(Wqe(WqeOpcode::rdma_read)
                 .remote(from.address(), from.key())
                 .data(bytes, back.key(), back.address()));
    p.a.post(Wqe(WqeOpcode::atomic_fa)
                 .remote(to.address(65528), to.key())
                 .be(1, 8)
                 .be(0, 8)
                 .data(8, back.key(), back.address(65528)));
    to.at<u64>(65528) = counter;
    Completion c;
    u32 done = 0;
    for (int i = 0; i < 200 && done < 3; ++i) {
      rig.step(20'000'000);
      usleep(50);  // injected delays run on the real clock
      while (p.a_cq.poll(c)) {
        REQUIRE(c.opcode() == static_cast<u8>(CqeOpcode::req));
        ++done;
      }
    }
    REQUIRE(done == 3);
    c = p.b_cq.expect();
    REQUIRE(c.byte_count() == bytes);
    REQUIRE(c.imm_raw() == swap32(round));
    REQUIRE(std::memcmp(from.data(), to.data(), std::min<u32>(bytes, 65528)) == 0);
    REQUIRE(std::memcmp(from.data(), back.data(), std::min<u32>(bytes, 65528)) == 0);
    REQUIRE(back.at<u64>(65528) == counter);
    REQUIRE(to.at<u64>(65528) == ++counter);  // executed exactly once
    p.b_cq.expect_none();
  }
}

TEST_CASE("A WQE completes with the syndrome asked for", "[fault]") {
  FaultyRig rig;
  Region from(64, full_access);
  {
    Pair p(rig);
    p.a.post(Wqe(WqeOpcode::nop));
    p.a.post(Wqe(WqeOpcode::nop));
    rig.step();
    CHECK(p.a_cq.expect().opcode() == static_cast<u8>(CqeOpcode::req));
    const Completion c = p.a_cq.expect();
    CHECK(c.opcode() == static_cast<u8>(CqeOpcode::req_err));
    CHECK(c.syndrome() == static_cast<u8>(Syndrome::remote_aborted));
    CHECK(c.vendor() == 51);
    CHECK(p.a.qp->state == QpState::err);
  }
  Pair p(rig);
  p.a.post(Wqe(WqeOpcode::send_inv).data(8, from.key(), from.address()));
  rig.step();
  const Completion c = p.a_cq.expect();
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::local_protection));
  CHECK(c.vendor() == 0x52);  // none given: what hardware reports
}

TEST_CASE("A command is failed by its number", "[fault]") {
  FaultyRig rig;
  CHECK(fault_command("CQ/CREATE") == 0);
  CHECK(fault_command("QP/CREATE") == 0);
  CHECK(fault_command("CQ/CREATE") == ENOMEM);
  CHECK(fault_command("CQ/CREATE") == 0);
}
