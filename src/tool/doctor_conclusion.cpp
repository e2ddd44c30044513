// What all findings come to. The first obstacle counts: behind it nothing is seen.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tool/doctor.h"

namespace ibvexp::tool::doctor {

namespace {

constexpr const char *packages = "apt-get install ibverbs-providers, dnf install libibverbs";

std::string summary(const System &system) {
  std::string devices;
  for (const Device &d : system.devices)
    if (d.error.empty())
      devices += fmt::format("{}{} ({}{}{})", devices.empty() ? "" : ", ", d.name, d.model,
                             d.warning.empty() ? "" : "; ", d.warning);
  return fmt::format("{}, rdma-core {}", devices,
                     system.rdma_core() ? std::to_string(*system.rdma_core()) : "of unknown age");
}

}  // namespace

const char *Conclusion::name() const {
  switch (outcome) {
    case Outcome::works: return "works";
    case Outcome::no_device: return "no device";
    case Outcome::no_rdma_core: return "no rdma-core";
    case Outcome::old_rdma_core: return "rdma-core too old";
    case Outcome::legacy_libibverbs: return "legacy libibverbs";
    case Outcome::no_provider: return "no provider";
    case Outcome::no_access: return "no access";
    case Outcome::device_fails: return "device fails";
  }
  return "";
}

std::optional<Conclusion> trouble_with(const std::vector<Library> &libraries) {
  for (const Library &l : libraries) {
    const Outcome none = l.name == "libmlx5.so.1" ? Outcome::no_provider : Outcome::no_rdma_core;
    if (l.name == "librdmacm.so.1") continue;  // only programs of the connection manager need it
    if (!l.error.empty())
      return Conclusion{none, fmt::format("{} does not load: {}", l.name, l.error),
                        "remove that file or its folder from LD_LIBRARY_PATH, or reinstall it"};
    if (l.file.empty()) return Conclusion{none, l.name + " is not installed", packages};
    if (l.has_experimental)
      return Conclusion{
          Outcome::legacy_libibverbs,
          fmt::format("{} is MLNX_OFED's own library and comes before rdma-core's", l.file),
          "take its folder out of LD_LIBRARY_PATH or /etc/ld.so.conf.d, or uninstall "
          "MLNX_OFED; programs find its experimental verbs there, not these"};
    if (l.release && *l.release < oldest_rdma_core)
      return Conclusion{Outcome::old_rdma_core,
                        *l.release == 0 ? l.file + " is older than rdma-core"
                                        : fmt::format("{} is of rdma-core {}, which is too old",
                                                      l.file, *l.release),
                        fmt::format("install rdma-core {} or newer; if it is installed, take the "
                                    "folder of that file out of LD_LIBRARY_PATH or of the program "
                                    "(patchelf --remove-rpath PROGRAM)",
                                    oldest_rdma_core)};
  }
  return {};
}

Conclusion conclude(const System &system) {
  if (auto trouble = trouble_with(system.libraries)) return *trouble;
  if (system.usable()) return {Outcome::works, summary(system), ""};
  for (const Node &n : system.nodes)
    if (!n.error.empty())
      return {Outcome::no_access, fmt::format("{} of {}: {}", n.file, n.device, n.error),
              "rdma-core's udev rules make it readable and writable for all; in a container, pass "
              "it on "
              "(--device /dev/infiniband)"};
  for (const Node &n : system.nodes)
    if (std::none_of(system.devices.begin(), system.devices.end(),
                     [&](const Device &d) { return d.name == n.device; }))
      return {Outcome::no_provider,
              fmt::format("libibverbs finds no provider for {}: there is none in its "
                          "libibverbs.d, or it is of another release",
                          n.device),
              fmt::format("packages of one release: {}", packages)};
  for (const Device &d : system.devices)
    return {Outcome::device_fails, fmt::format("{} {}", d.name, d.error), ""};
  if (system.soft)
    return {Outcome::no_device, "the software HCA does not start",
            "standard error says why; SOFTHCA_* variables and the room in /dev/shm count "
            "(in a container --shm-size=64m)"};
  return {Outcome::no_device,
          fmt::format("there is no RDMA device{}",
                      system.has_uverbs ? "" : ", and ib_uverbs is not loaded"),
          "ibvexp run --device soft -- PROGRAM takes the software HCA; with a ConnectX in the "
          "machine: modprobe ib_uverbs mlx5_ib"};
}

}  // namespace ibvexp::tool::doctor
