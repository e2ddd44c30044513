#include "config/schema.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "base/prm.h"
#include "config/fault_names.h"
#include "config/identity.h"

namespace softhca {

namespace {

std::string join(const std::vector<std::string> &words) {
  std::string all;
  for (const std::string &w : words) all += (all.empty() ? "" : ", ") + w;
  return all;
}

template <class T, class M>
using Choices = std::vector<std::pair<const char *, M>>;

template <class T, class M>
Field<T> choice(const char *key, M T::*member, Choices<T, M> choices, const char *standard,
                const char *help) {
  std::vector<std::string> names;
  for (const auto &c : choices) names.emplace_back(c.first);
  return {key, join(names), standard, "", false, help, [=](const Json &j, T &t) {
            if (!j.is_string()) return false;
            for (const auto &c : choices) {
              if (j.get_ref<const std::string &>() != c.first) continue;
              t.*member = c.second;
              return true;
            }
            return false;
          }};
}

// A count: non-negative JSON integer.
template <class T, class M>
Field<T> number(const char *key, M T::*member, u64 low, u64 high, const char *standard,
                const char *derived, const char *help) {
  return {key,
          std::to_string(low) + ".." + std::to_string(high),
          standard,
          derived,
          false,
          help,
          [=](const Json &j, T &t) {
            if (!j.is_number_unsigned()) return false;
            const u64 v = j.get<u64>();
            if (v < low || v > high) return false;
            t.*member = static_cast<M>(v);
            return true;
          }};
}

template <class T>
Field<T> boolean(const char *key, bool T::*member, const char *standard, const char *help) {
  return {key, "true, false", standard, "", false, help, [=](const Json &j, T &t) {
            if (!j.is_boolean()) return false;
            t.*member = j.get<bool>();
            return true;
          }};
}

template <class T>
Field<T> text(const char *key, std::string T::*member, bool (*valid)(const std::string &),
              const char *allowed, const char *standard, const char *derived, const char *help) {
  return {key, allowed, standard, derived, false, help, [=](const Json &j, T &t) {
            if (!j.is_string() || !valid(j.get_ref<const std::string &>())) return false;
            t.*member = j.get<std::string>();
            return true;
          }};
}

// JSON numbers cannot be written in hexadecimal, so identifiers are strings.
template <class T>
Field<T> hex64(const char *key, u64 T::*member, const char *standard, const char *derived,
               const char *help) {
  return {key,
          "\"0x\" and 1..16 hexadecimal digits",
          standard,
          derived,
          false,
          help,
          [=](const Json &j, T &t) {
            if (!j.is_string()) return false;
            const std::string &s = j.get_ref<const std::string &>();
            if (s.size() < 3 || s.size() > 18 || s.compare(0, 2, "0x") != 0 ||
                s.find_first_not_of("0123456789abcdefABCDEF", 2) != std::string::npos)
              return false;
            t.*member = std::stoull(s, nullptr, 16);
            return true;
          }};
}

template <class T>
Field<T> required(Field<T> f) {
  f.required = true;
  return f;
}

bool plain_name(const std::string &s, size_t most) {
  return !s.empty() && s.size() <= most &&
         s.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
             std::string::npos;
}

bool is_fabric_name(const std::string &s) { return plain_name(s, 64); }
bool is_path(const std::string &s) { return s.size() < 4096; }
bool is_device_name(const std::string &s) { return plain_name(s, 32); }
bool is_netdev(const std::string &s) { return s.empty() || plain_name(s, 15); }
bool is_ipv4(const std::string &s) {
  std::array<u8, 4> ignored;
  return parse_ipv4(s, ignored);
}

Field<FaultRule> match(std::span<const std::string_view> names, const char *help) {
  std::vector<std::string> all{std::string(fault_match_any)};
  all.insert(all.end(), names.begin(), names.end());
  return {"match", join(all), "", "", true, help, [=](const Json &j, FaultRule &r) {
            if (!j.is_string()) return false;
            r.match = j.get<std::string>();
            for (const std::string &name : all)
              if (r.match == name) return true;
            return false;
          }};
}

Field<FaultRule> errno_name() {
  return {"error",
          "an errno name such as ENOMEM or EBUSY",
          "",
          "",
          true,
          "What the command answers",
          [](const Json &j, FaultRule &r) {
            if (!j.is_string()) return false;
            static constexpr std::pair<std::string_view, int> all[] = {
#define ERRNO_NAME(name) {#name, name},
#include "config/errno_names.def"
            };
            for (const auto &[name, number] : all) {
              if (j.get_ref<const std::string &>() != name) continue;
              r.error = number;
              return true;
            }
            return false;
          }};
}

Field<FaultRule> syndrome() {
  Choices<FaultRule, u8> choices;
#define SYNDROME(name) choices.emplace_back(#name, static_cast<u8>(Syndrome::name))
  SYNDROME(local_length);
  SYNDROME(local_qp_op);
  SYNDROME(local_protection);
  SYNDROME(flush);
  SYNDROME(mw_bind);
  SYNDROME(bad_response);
  SYNDROME(local_access);
  SYNDROME(remote_invalid_request);
  SYNDROME(remote_access);
  SYNDROME(remote_operation);
  SYNDROME(retry_exceeded);
  SYNDROME(rnr_retry_exceeded);
  SYNDROME(remote_aborted);
#undef SYNDROME
  return required(
      choice("syndrome", &FaultRule::syndrome, choices, "", "Syndrome of the error completion"));
}

Fields<FaultRule> fault_rule_fields(FaultRule::Kind kind) {
  constexpr u64 most = std::numeric_limits<u32>::max();
  const auto nth =
      number("nth", &FaultRule::nth, 1, most, "1", "", "Fires at the nth match in a process");
  const auto repeat = boolean("repeat", &FaultRule::repeat, "false", "Fires at all later ones too");
  constexpr u64 minute_us = 60'000'000;
  switch (kind) {
    case FaultRule::Kind::command:
      return {match(fault_command_names, "Command of libibverbs or libmlx5"), nth, repeat,
              errno_name()};
    case FaultRule::Kind::wqe:
      return {match(fault_wqe_names, "Work request; RECV: any receive"), nth, repeat, syndrome(),
              number("vendor_syndrome", &FaultRule::vendor_syndrome, 0, 255, "0", "",
                     "Vendor error; 0: what hardware reports with the syndrome")};
    case FaultRule::Kind::packet:
      return {match(fault_packet_names, "Message sent by this process"), nth, repeat,
              choice("action", &FaultRule::action,
                     {{"drop", FaultRule::Action::drop},
                      {"duplicate", FaultRule::Action::duplicate},
                      {"delay", FaultRule::Action::delay}},
                     "\"drop\"", "What happens to it"),
              number("delay_us", &FaultRule::delay_us, 0, minute_us, "0", "",
                     "Microseconds, with action delay")};
    case FaultRule::Kind::event: {
      Field<FaultRule> name = match(fault_event_names, "Async event raised by the device");
      name.allowed.erase(0, fault_match_any.size() + 2);  // one event, not all of them
      name.read = [read = name.read](const Json &j, FaultRule &r) {
        return read(j, r) && r.match != fault_match_any;
      };
      return {name,
              number("delay_us", &FaultRule::delay_us, 0, minute_us, "0", "",
                     "Microseconds after the first device is opened"),
              number("port", &FaultRule::port, 1, max_ports, "1", "", "Port of the event")};
    }
  }
  return {};
}

}  // namespace

const Fields<Config> &top_fields() {
  static const auto &fields = *new Fields<Config>{
      choice("log", &Config::log,
             {{"error", LogLevel::error},
              {"warn", LogLevel::warn},
              {"info", LogLevel::info},
              {"debug", LogLevel::debug},
              {"trace", LogLevel::trace}},
             "\"warn\"", "What is written to standard error"),
      text("fabric", &Config::fabric, is_fabric_name, "1..64 letters, digits, _ or -",
           "\"default\"", "", "Processes of one fabric see one another"),
      number("host", &Config::host, 1, max_hosts, "1", "",
             "Emulated host; LID, GUIDs, MAC and IPv4 addresses derive from it"),
      choice("wire", &Config::wire, {{"shared", Wire::shared}, {"udp", Wire::udp}}, "\"shared\"",
             "What reaches other hosts: memory shared on one machine, or RoCE v2 over UDP"),
      number("udp_port", &Config::udp_port, 1, 65535, "4791", "",
             "Port of the packets, with wire udp"),
      text("pcap", &Config::pcap, is_path, "\"\" or a file", "\"\"", "",
           "pcapng file that what is sent is appended to"),
      number("ring_bytes", &Config::ring_bytes, 65536, 16777216, "262144", "",
             "Receive buffer per pair of processes; rounded up to a power of two"),
      boolean("process_vm", &Config::process_vm, "true",
              "Reach application memory by process_vm_readv (faults become errors)"),
      boolean("inline_step", &Config::inline_step, "true",
              "Run the device inside the spin lock calls of libmlx5 and of what is linked with it "
              "(low latency)"),
      boolean("raise_priority", &Config::raise_priority, "true",
              "Where the process may (CAP_SYS_NICE), the device's thread goes before its others"),
      boolean("enforce_memlock", &Config::enforce_memlock, "false",
              "RLIMIT_MEMLOCK limits memory registration as in the kernel"),
  };
  return fields;
}

const Fields<DeviceConfig> &device_fields() {
  static const auto &fields = *new Fields<DeviceConfig>{
      text("name", &DeviceConfig::name, is_device_name, "1..32 letters, digits, _ or -", "",
           "mlx5_<index>", "Name of the device"),
      choice("model", &DeviceConfig::model,
             {{"cx4", Model::connectx4}, {"cx5", Model::connectx5}, {"cx6", Model::connectx6}},
             "\"cx6\"", "ConnectX generation: identity and capabilities"),
      hex64("node_guid", &DeviceConfig::node_guid, "", "from host and device",
            "Leave out in a file that several hosts share"),
      boolean("strict_ordering", &DeviceConfig::strict_ordering, "false",
              "What UMR, bind and invalidate do to a key comes after the next WQE, unless it has a "
              "fence"),
      [] {
        std::vector<std::string> names;
        for (const CapabilityName &c : capability_names()) names.emplace_back(c.name);
        return Field<DeviceConfig>{
            "hide",
            "list of " + join(names),
            "[]",
            "",
            false,
            "Capabilities taken away",
            [names](const Json &j, DeviceConfig &d) {
              if (!j.is_array()) return false;
              d.hide.clear();
              for (const Json &e : j) {
                if (!e.is_string() ||
                    std::find(names.begin(), names.end(), e.get<std::string>()) == names.end())
                  return false;
                d.hide.insert(e.get<std::string>());
              }
              return true;
            }};
      }(),
  };
  return fields;
}

const Fields<PortConfig> &port_fields() {
  static const auto &fields = *new Fields<PortConfig>{
      choice("link", &PortConfig::link,
             {{"ib", LinkLayer::infiniband}, {"eth", LinkLayer::ethernet}}, "\"ib\"",
             "Link layer: InfiniBand or Ethernet (RoCE); always eth with wire udp"),
      number("lid", &PortConfig::lid, 1, 0xbfff, "", "host + 256 * (2 * device + port - 1)",
             "InfiniBand LID, unique in the fabric"),
      [] {
        auto mtu = number("active_mtu", &PortConfig::active_mtu, 256, 4096, "4096", "",
                          "Bytes of payload per packet");
        mtu.allowed = "256, 512, 1024, 2048, 4096";
        mtu.read = [read = mtu.read](const Json &j, PortConfig &p) {
          return read(j, p) && (p.active_mtu & (p.active_mtu - 1)) == 0;
        };
        return mtu;
      }(),
      hex64("gid_prefix", &PortConfig::gid_prefix, "\"0xfe80000000000000\"", "",
            "InfiniBand subnet prefix"),
      boolean("active", &PortConfig::active, "true", "Port state ACTIVE, otherwise DOWN"),
      text("ipv4", &PortConfig::ipv4, is_ipv4, "a dotted quad", "", "10.<device>.<port>.<host>",
           "Ethernet: address behind the RoCE GIDs; with wire udp that of the interface"),
      text("netdev", &PortConfig::netdev, is_netdev, "\"\" or an interface name", "\"\"", "",
           "Network interface shown in sysfs; with wire udp it carries the packets"),
  };
  return fields;
}

const Fields<FaultRule> &fault_kind_fields() {
  static const auto &fields = *new Fields<FaultRule>{
      required(choice("kind", &FaultRule::kind,
                      {{"command", FaultRule::Kind::command},
                       {"wqe", FaultRule::Kind::wqe},
                       {"packet", FaultRule::Kind::packet},
                       {"event", FaultRule::Kind::event}},
                      "", "What the rule is about")),
  };
  return fields;
}

const Fields<FaultRule> &fault_fields(FaultRule::Kind kind) {
  static const auto &fields = *new std::array<Fields<FaultRule>, 4>{
      fault_rule_fields(FaultRule::Kind::command), fault_rule_fields(FaultRule::Kind::wqe),
      fault_rule_fields(FaultRule::Kind::packet), fault_rule_fields(FaultRule::Kind::event)};
  return fields[static_cast<size_t>(kind)];
}

const std::vector<CapabilityName> &capability_names() {
  static const auto &names = *new std::vector<CapabilityName>{
#define CAPABILITY(name, first, help) {#name, Model::first, help},
#include "config/capabilities.def"
#undef CAPABILITY
  };
  return names;
}

const std::vector<Option> &options() {
  static const auto &all = *new std::vector<Option>{
#define OPTION(name, scope, key, help) {Option::Scope::scope, #name, key, help},
#include "config/options.def"
#undef OPTION
  };
  return all;
}

}  // namespace softhca
