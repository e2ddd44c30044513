// What SOFTHCA_CONFIG and the SOFTHCA_* environment variables say. Read once,
// before the first device is opened; immutable afterwards.
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/types.h"

namespace softhca {

enum class LinkLayer { infiniband, ethernet };
enum class Wire { shared, udp };
enum class Model { connectx4, connectx5, connectx6 };

struct PortConfig {
  LinkLayer link = LinkLayer::infiniband;
  u16 lid = 1;            // InfiniBand only; unique in the fabric
  u32 active_mtu = 4096;  // bytes: 256, 512, 1024, 2048 or 4096
  u64 gid_prefix = 0xfe80000000000000;
  bool active = true;
  std::array<u8, 6> mac{};  // of the interface that carries the packets; all 0: derived
  std::string ipv4;         // Ethernet: address behind the RoCE GIDs, dotted quad
  std::string netdev;       // name shown in sysfs; empty: no network interface
};

struct DeviceConfig {
  std::string name;  // "mlx5_0"
  Model model = Model::connectx6;
  u64 node_guid = 0;
  std::vector<PortConfig> ports;
  bool strict_ordering = false;  // effects on memory keys wait for a fence
  std::set<std::string> hide;    // capability names taken away, see docs/softhca-config.md
};

// One injected fault. `match` names what it applies to; it fires for the
// `nth` match (1-based) and, with `repeat`, for all later ones.
struct FaultRule {
  enum class Kind { command, wqe, packet, event } kind = Kind::command;
  std::string match;  // command: "QP/CREATE"; wqe: "SEND"; packet: "REQUEST"; event: "PORT_ERR"
  u64 nth = 1;
  bool repeat = false;
  int error = 0;    // command: errno to answer
  u8 syndrome = 0;  // wqe: CQE syndrome
  u8 vendor_syndrome = 0;
  enum class Action { drop, duplicate, delay } action = Action::drop;  // packet
  u64 delay_us = 0;  // packet delay, or event: time after open
  u32 port = 1;      // event
};

struct Config {
  LogLevel log = LogLevel::warn;
  std::string fabric = "default";  // processes of one fabric see one another
  u16 host = 1;                    // 1..250
  std::string pcap;                // file that records what is sent; empty: none
  std::vector<DeviceConfig> devices;
  std::vector<FaultRule> faults;
  u32 ring_bytes = 256 * 1024;   // receive ring per pair of processes
  bool process_vm = true;        // use process_vm_readv/writev for our own memory
  bool inline_step = true;       // run the device inside spin lock calls
  bool raise_priority = true;    // of the device's thread
  bool enforce_memlock = false;  // RLIMIT_MEMLOCK limits memory registration
  Wire wire = Wire::shared;      // what carries packets to other hosts
  u16 udp_port = 4791;           // with Wire::udp
};

// The configuration of this process. The first call reads it; an invalid one
// is reported and ends the process with status 78 (EX_CONFIG).
const Config &config();

// Parses a document (JSON with // comments). On failure returns false and
// writes key, value and allowed values into `error`. `env` entries such as
// "SOFTHCA_LINK=eth" are applied afterwards and win. For tests.
bool parse_config(const std::string &document, const std::vector<std::string> &env, Config &out,
                  std::string &error);

}  // namespace softhca
