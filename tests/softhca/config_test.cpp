// Parsing of the configuration: defaults, precedence, derivation, refusals.
#include "config/config.h"

#include <cstdlib>
#include <set>

#include "catch.h"
#include "config/fault_names.h"
#include "config/identity.h"
#include "config/schema.h"
#include "fault/rules.h"

using namespace softhca;

namespace {

Config parsed(const std::string &document, const std::vector<std::string> &env = {}) {
  Config c;
  std::string error;
  const bool ok = parse_config(document, env, c, error);
  INFO(error);
  REQUIRE(ok);
  return c;
}

std::string refusal(const std::string &document, const std::vector<std::string> &env = {}) {
  Config c;
  std::string error;
  REQUIRE_FALSE(parse_config(document, env, c, error));
  return error;
}

std::string hex(const std::array<u8, 16> &gid) {
  std::string s;
  char byte[3];
  for (u8 b : gid) {
    std::snprintf(byte, sizeof byte, "%02x", b);
    s += byte;
  }
  return s;
}

}  // namespace

TEST_CASE("An empty document is one ConnectX-6 with an InfiniBand port") {
  for (const char *document : {"", "  \n", "{}", "// nothing\n{}"}) {
    const Config c = parsed(document);
    CHECK(c.fabric == "default");
    CHECK(c.host == 1);
    CHECK(c.log == LogLevel::warn);
    CHECK(c.faults.empty());
    REQUIRE(c.devices.size() == 1);
    CHECK(c.devices[0].name == "mlx5_0");
    CHECK(c.devices[0].model == Model::connectx6);
    CHECK(c.devices[0].hide.empty());
    REQUIRE(c.devices[0].ports.size() == 1);
    const PortConfig &p = c.devices[0].ports[0];
    CHECK(p.link == LinkLayer::infiniband);
    CHECK(p.lid == 1);
    CHECK(p.active_mtu == 4096);
    CHECK(p.gid_prefix == 0xfe80000000000000);
    CHECK(p.active);
    CHECK(p.netdev.empty());
  }
}

TEST_CASE("The defaults of the schema are those of the structures") {
  const Config c = parsed("{}");
  const Config d;
  CHECK(c.ring_bytes == d.ring_bytes);
  CHECK(c.process_vm == d.process_vm);
  CHECK(c.inline_step == d.inline_step);
  CHECK(c.raise_priority == d.raise_priority);
  CHECK(c.enforce_memlock == d.enforce_memlock);
  CHECK(c.devices[0].ports[0].active_mtu == PortConfig().active_mtu);
  CHECK(c.devices[0].ports[0].gid_prefix == PortConfig().gid_prefix);
  CHECK(c.devices[0].model == DeviceConfig().model);
}

TEST_CASE("All keys of a document are read") {
  const Config c = parsed(R"({
    // two devices, the first with two ports
    "fabric": "lab", "host": 7, "log": "debug", "ring_bytes": 100000,
    "process_vm": false, "inline_step": false, "raise_priority": false,
    "enforce_memlock": true,
    "devices": [
      {"name": "mlx5_bond", "model": "cx4", "node_guid": "0x1234567890abcdef",
       "hide": ["dc", "odp"],
       "ports": [
         {"link": "eth", "active_mtu": 1024, "ipv4": "192.168.5.6", "netdev": "eth0"},
         {"link": "ib", "lid": 99, "gid_prefix": "0xfec0000000000001", "active": false}]},
      {"model": "cx5"}]})");
  CHECK(c.fabric == "lab");
  CHECK(c.host == 7);
  CHECK(c.log == LogLevel::debug);
  CHECK(c.ring_bytes == 131072);
  CHECK_FALSE(c.process_vm);
  CHECK_FALSE(c.inline_step);
  CHECK_FALSE(c.raise_priority);
  CHECK(c.enforce_memlock);
  REQUIRE(c.devices.size() == 2);
  CHECK(c.devices[0].name == "mlx5_bond");
  CHECK(c.devices[0].node_guid == 0x1234567890abcdef);
  CHECK(c.devices[0].hide == std::set<std::string>{"dc", "odp"});
  REQUIRE(c.devices[0].ports.size() == 2);
  CHECK(c.devices[0].ports[0].link == LinkLayer::ethernet);
  CHECK(c.devices[0].ports[0].ipv4 == "192.168.5.6");
  CHECK(c.devices[0].ports[0].netdev == "eth0");
  CHECK(c.devices[0].ports[0].active_mtu == 1024);
  CHECK(c.devices[0].ports[1].lid == 99);
  CHECK_FALSE(c.devices[0].ports[1].active);
  CHECK(c.devices[1].name == "mlx5_1");
  CHECK(c.devices[1].model == Model::connectx5);
  CHECK(c.devices[1].ports[0].lid == 7 + 256 * 2);
}

TEST_CASE("Variables win over the document") {
  const std::string document = R"({"host": 3, "devices": [{"model": "cx5"}, {"ports": [{}, {}]}]})";
  const Config c = parsed(
      document, {"SOFTHCA_HOST=9", "SOFTHCA_LINK=eth", "SOFTHCA_MODEL=cx4", "SOFTHCA_FABRIC=123",
                 "SOFTHCA_LOG=trace", "HOME=/", "SOFTHCA_CONFIG=ignored here"});
  CHECK(c.host == 9);
  CHECK(c.fabric == "123");
  CHECK(c.log == LogLevel::trace);
  for (const DeviceConfig &d : c.devices) {
    CHECK(d.model == Model::connectx4);
    for (const PortConfig &p : d.ports) CHECK(p.link == LinkLayer::ethernet);
  }
  CHECK(c.devices[0].ports[0].lid == 9);

  SECTION("an empty variable counts as not set") { CHECK(parsed("", {"SOFTHCA_HOST="}).host == 1); }
}

TEST_CASE("A refusal names the key, the value and what is allowed") {
  struct {
    const char *document;
    const char *message;
  } const cases[] = {
      {R"({"hots": 1})",
       "hots: unknown key; allowed: log, fabric, host, wire, udp_port, pcap, ring_bytes, "
       "process_vm, inline_step, raise_priority, "
       "enforce_memlock, devices, faults"},
      {R"({"host": 0})", "host: 0 is not allowed; allowed: 1..250"},
      {R"({"host": 251})", "host: 251 is not allowed; allowed: 1..250"},
      {R"({"host": -1})", "host: -1 is not allowed; allowed: 1..250"},
      {R"({"host": "1"})", "host: \"1\" is not allowed; allowed: 1..250"},
      {R"({"host": 1.5})", "host: 1.5 is not allowed; allowed: 1..250"},
      {R"({"log": "loud"})",
       "log: \"loud\" is not allowed; allowed: error, warn, info, debug, trace"},
      {R"({"process_vm": 1})", "process_vm: 1 is not allowed; allowed: true, false"},
      {R"({"devices": []})",
       "devices: 0 elements is not allowed; allowed: a list of 1..16 objects"},
      {R"({"devices": {}})", "devices: {} is not allowed; allowed: a list of 1..16 objects"},
      {R"({"devices": [3]})", "devices[0]: 3 is not allowed; allowed: an object"},
      {R"({"devices": [{}, {"ports": [{}, {"link": "iwarp"}]}]})",
       "devices[1].ports[1].link: \"iwarp\" is not allowed; allowed: ib, eth"},
      {R"({"devices": [{"ports": [{}, {}, {}]}]})",
       "devices[0].ports: 3 elements is not allowed; allowed: a list of 1..2 objects"},
      {R"({"devices": [{"ports": [{"active_mtu": 1500}]}]})",
       "devices[0].ports[0].active_mtu: 1500 is not allowed; allowed: 256, 512, 1024, 2048, 4096"},
      {R"({"devices": [{"ports": [{"lid": 49152}]}]})",
       "devices[0].ports[0].lid: 49152 is not allowed; allowed: 1..49151"},
      {R"({"devices": [{"node_guid": "12"}]})",
       "devices[0].node_guid: \"12\" is not allowed; allowed: \"0x\" and 1..16 hexadecimal digits"},
      {R"({"devices": [{"name": "a/b"}]})",
       "devices[0].name: \"a/b\" is not allowed; allowed: 1..32 letters, digits, _ or -"},
      {R"({"devices": [{"name": "mlx5_1"}, {}]})",
       "devices[1].name: \"mlx5_1\" is not allowed; allowed: a name no other device has"},
      {R"({"devices": [{"ports": [{"lid": 5}]}, {"ports": [{"lid": 5}]}]})",
       "devices[1].ports[0].lid: 5 is not allowed; allowed: a LID no other port has"},
      {R"({"faults": [{"match": "SEND"}]})",
       "faults[0].kind: missing; allowed: command, wqe, packet, event"},
      {R"({"faults": [{"kind": "wqe", "match": "SEND"}]})",
       "faults[0].syndrome: missing; allowed: local_length, local_qp_op, local_protection, flush, "
       "mw_bind, bad_response, local_access, remote_invalid_request, remote_access, "
       "remote_operation, retry_exceeded, rnr_retry_exceeded, remote_aborted"},
      {R"({"faults": [{"kind": "wqe", "match": "SEND", "error": "EIO"}]})",
       "faults[0].error: unknown key; allowed: match, nth, repeat, syndrome, vendor_syndrome, "
       "kind"},
      {R"({"faults": [{"kind": "packet", "match": "SYN"}]})",
       "faults[0].match: \"SYN\" is not allowed; allowed: *, REQUEST, ACK, READ_RESPONSE, "
       "ATOMIC_RESPONSE, DATAGRAM, FRAME"},
      {R"({"faults": [{"kind": "packet", "match": "ACK", "action": "delay"}]})",
       "faults[0].delay_us: 0 is not allowed; allowed: 1 or more with action \"delay\""},
      {R"({"faults": [{"kind": "event", "match": "*"}]})",
       "faults[0].match: \"*\" is not allowed; allowed: DEVICE_FATAL, PORT_ACTIVE, PORT_ERR, "
       "LID_CHANGE, PKEY_CHANGE, SM_CHANGE, CLIENT_REREGISTER, GID_CHANGE"},
      {R"({"faults": [{"kind": "command", "match": "QP/CREATE", "error": "E"}]})",
       "faults[0].error: \"E\" is not allowed; allowed: an errno name such as ENOMEM or EBUSY"},
      {"[]", "document: [] is not allowed; allowed: an object"},
  };
  for (const auto &c : cases) CHECK(refusal(c.document) == c.message);

  CHECK(refusal("{\n\"host\": }").find("line 2, column 9") != std::string::npos);
  CHECK(refusal("", {"SOFTHCA_LINK=token-ring"}) ==
        "SOFTHCA_LINK: \"token-ring\" is not allowed; allowed: ib, eth");
  CHECK(refusal("", {"SOFTHCA_HOST=many"}) ==
        "SOFTHCA_HOST: \"many\" is not allowed; allowed: 1..250");
  CHECK(refusal("", {"SOFTHCA_LNIK=eth"}) ==
        "SOFTHCA_LNIK: unknown variable; allowed: SOFTHCA_CONFIG, SOFTHCA_FABRIC, SOFTHCA_HOST, "
        "SOFTHCA_LINK, SOFTHCA_LOG, SOFTHCA_MODEL, SOFTHCA_NETDEV, SOFTHCA_PCAP, "
        "SOFTHCA_UDP_PORT, SOFTHCA_WIRE");
}

TEST_CASE("Hostile documents are refused, not thrown") {
  refusal("\xff\xfe{");
  refusal(R"({"host": 1e400})");
  refusal(R"({"host": 18446744073709551616})");
  refusal(R"({"fabric": "\ud800"})");
  refusal("{\"fabric\": \"\xff\xff\"}");
  refusal(R"({"faults": [[]]})");
  refusal(R"({"devices": [{"hide": [1]}]})");
  refusal(R"({"devices": [{"hide": ["everything"]}]})");
}

TEST_CASE("Every variable names a key of the schema") {
  for (const Option &o : options()) {
    INFO(o.name);
    const auto has = [&](const auto &fields) {
      for (const auto &f : fields)
        if (f.key == o.key) return true;
      return false;
    };
    switch (o.scope) {
      case Option::Scope::file: CHECK(std::string(o.key).empty()); break;
      case Option::Scope::top: CHECK(has(top_fields())); break;
      case Option::Scope::device: CHECK(has(device_fields())); break;
      case Option::Scope::port: CHECK(has(port_fields())); break;
    }
  }
}

TEST_CASE("GIDs of an InfiniBand port") {
  const Config c = parsed(R"({"host": 17})");
  CHECK(node_guid(c, 0) == 0x0253480300110000);
  const auto gids = port_gids(c, 0, 1);
  REQUIRE(gids.size() == 1);
  CHECK(gids[0].type == 0);
  CHECK(hex(gids[0].gid) == "fe800000000000000253480300110000");
}

TEST_CASE("GIDs of an Ethernet port") {
  const Config c = parsed(R"({"host": 17, "devices": [{"ports": [{"link": "eth"}]},
                             {"ports": [{"link": "eth", "ipv4": "192.168.0.1"}]}]})");
  const auto gids = port_gids(c, 0, 1);
  REQUIRE(gids.size() == 4);
  CHECK(hex(gids[0].gid) == "fe80000000000000005348fffe110001");
  CHECK(hex(gids[1].gid) == hex(gids[0].gid));
  CHECK(hex(gids[2].gid) == "00000000000000000000ffff0a000111");
  CHECK(hex(gids[3].gid) == hex(gids[2].gid));
  for (size_t i = 0; i < 4; ++i) CHECK(gids[i].type == (i % 2 ? 2 : 1));
  CHECK(hex(port_gids(c, 1, 1)[2].gid) == "00000000000000000000ffffc0a80001");
}

TEST_CASE("Identities are unique in a fabric") {
  std::set<std::string> gids;
  std::set<u16> lids;
  size_t ports = 0;
  for (const char *link : {"ib", "eth"}) {
    for (u32 host : {1u, 2u, 249u, 250u}) {
      std::string devices;
      for (u32 d = 0; d < max_devices; ++d)
        devices += std::string(d ? "," : "") + R"({"ports": [{}, {}]})";
      const Config c =
          parsed("{\"devices\": [" + devices + "]}",
                 {"SOFTHCA_HOST=" + std::to_string(host), std::string("SOFTHCA_LINK=") + link});
      for (u32 d = 0; d < max_devices; ++d) {
        for (u32 p = 1; p <= max_ports; ++p) {
          for (const PortGid &g : port_gids(c, d, p))
            CHECK(gids.insert(hex(g.gid) + static_cast<char>('0' + g.type)).second);
          if (c.devices[d].ports[p - 1].link == LinkLayer::infiniband) {
            CHECK(lids.insert(c.devices[d].ports[p - 1].lid).second);
            ++ports;
          }
        }
      }
    }
  }
  CHECK(lids.size() == ports);
}

TEST_CASE("Fault rules count their matches") {
  const Config c = parsed(R"({"faults": [
    {"kind": "command", "match": "QP/CREATE", "nth": 2, "error": "ENOMEM"},
    {"kind": "command", "match": "*", "nth": 4, "repeat": true, "error": "EIO"},
    {"kind": "wqe", "match": "RDMA_WRITE", "syndrome": "remote_access", "vendor_syndrome": 9},
    {"kind": "packet", "match": "ACK", "action": "duplicate"},
    {"kind": "packet", "match": "ACK", "action": "delay", "delay_us": 5},
    {"kind": "packet", "match": "REQUEST", "nth": 2, "action": "drop"},
    {"kind": "event", "match": "PORT_ERR", "delay_us": 10, "port": 2}]})");
  FaultRules rules(c.faults);

  CHECK(rules.command("QP/CREATE") == 0);
  CHECK(rules.command("CQ/CREATE") == 0);
  CHECK(rules.command("QP/CREATE") == ENOMEM);
  CHECK(rules.command("QP/CREATE") == EIO);
  CHECK(rules.command("MR/DESTROY") == EIO);

  CHECK(rules.wqe("SEND").syndrome == 0);
  CHECK(rules.wqe("RDMA_WRITE").syndrome == 0x13);
  CHECK(rules.wqe("RDMA_WRITE").syndrome == 0);

  const PacketFault ack = rules.packet("ACK");
  CHECK(ack.duplicate);
  CHECK_FALSE(ack.drop);
  CHECK(ack.delay_ns == 5000);
  CHECK_FALSE(rules.packet("REQUEST").drop);
  CHECK(rules.packet("REQUEST").drop);
  CHECK_FALSE(rules.packet("REQUEST").drop);

  CHECK(rules.event(10'999, 1'000).name == nullptr);
  const EventFault event = rules.event(11'000, 1'000);
  REQUIRE(event.name != nullptr);
  CHECK(event.name == std::string("PORT_ERR"));
  CHECK(event.port == 2);
  CHECK(rules.event(12'000, 1'000).name == nullptr);
}

TEST_CASE("With wire udp a port is a network interface") {
  const Config c =
      parsed(R"({"wire": "udp", "devices": [{"ports": [{"link": "ib", "ipv4": "127.9.9.9"}]}]})");
  const PortConfig &p = c.devices[0].ports[0];
  CHECK(c.wire == Wire::udp);
  CHECK(c.udp_port == 4791);
  CHECK(p.link == LinkLayer::ethernet);
  CHECK(p.netdev == "lo");
  CHECK(p.ipv4 == "127.9.9.9");
  CHECK(p.active_mtu == 4096);
  CHECK(hex(port_gids(c, 0, 1)[3].gid) == "00000000000000000000ffff7f090909");
  CHECK(parsed("{}").wire == Wire::shared);
  CHECK(parsed("{}", {"SOFTHCA_UDP_PORT=5000"}).udp_port == 5000);

  CHECK(refusal(R"({"wire": "tcp"})") == "wire: \"tcp\" is not allowed; allowed: shared, udp");
  const std::string address =
      refusal(R"({"wire": "udp", "devices": [{"ports": [{"ipv4": "203.0.113.77"}]}]})");
  CHECK(address.find("devices[0].ports[0].ipv4: \"203.0.113.77\" is not an address here") == 0);
  const std::string interface = refusal("", {"SOFTHCA_WIRE=udp", "SOFTHCA_NETDEV=nosuch0"});
  CHECK(interface.find("devices[0].ports[0].netdev: \"nosuch0\" has no IPv4 address") == 0);
  const std::string twice = refusal(
      R"({"wire": "udp", "devices": [{"ports": [{"ipv4": "127.9.9.9"}, {"ipv4": "127.9.9.9"}]}]})");
  CHECK(twice.find("devices[0].ports[1].ipv4: \"127.9.9.9\" is not allowed") == 0);
}
