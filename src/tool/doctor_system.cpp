#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <infiniband/verbs_exp.h>
#include <link.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <type_traits>

#include "table/options.h"
#include "tool/doctor.h"
#include "tool/elf_head.h"
#include "tool/libraries.h"
#include "tool/own_machine.h"

namespace fs = std::filesystem;

namespace ibvexp::tool::doctor {

namespace {

// libibverbs.so.1.14.44.0 is of release 44.
std::optional<int> release_of(const std::string &file) {
  const std::size_t at = file.find(".so.");
  if (at == std::string::npos) return {};
  int abi, minor, release;
  if (std::sscanf(file.c_str() + at, ".so.%d.%d.%d", &abi, &minor, &release) != 3) return {};
  return release;
}

std::string read_line(const fs::path &file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

void look_at_kernel(System &out) {
  utsname names{};
  uname(&names);
  out.kernel.push_back({Grade::note, fmt::format("Linux {}", names.release), ""});
  const std::string abi = read_line("/sys/class/infiniband_verbs/abi_version");
  out.has_uverbs = !abi.empty();
  if (!out.has_uverbs)
    out.kernel.push_back({Grade::bad, "ib_uverbs is not loaded", "modprobe ib_uverbs mlx5_ib"});
  else out.kernel.push_back({Grade::good, fmt::format("ib_uverbs, ABI {}", abi), ""});
  std::error_code error;
  if (fs::exists("/sys/module/mlx5_ib", error))
    out.kernel.push_back({Grade::good, "mlx5_ib is loaded", ""});
  if (const std::string ofed = read_line("/sys/module/mlx5_ib/version"); !ofed.empty())
    out.kernel.push_back(
        {Grade::note, fmt::format("mlx5_ib is MLNX_OFED's, version {}", ofed), ""});
}

// Opened and not only asked about: containers hide devices behind nodes that look
// well.
std::string trouble_opening(const std::string &file) {
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::strerror(errno);
  close(fd);
  return "";
}

void look_at_nodes(System &out) {
  std::error_code error;
  for (const auto &entry : fs::directory_iterator("/sys/class/infiniband_verbs", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("uverbs")) continue;
    const std::string file = "/dev/infiniband/" + name;
    out.nodes.push_back({read_line(entry.path() / "ibdev"), file, trouble_opening(file)});
  }
}

void look_at_permissions(System &out) {
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  if (locked.rlim_cur == RLIM_INFINITY)
    out.permissions.push_back({Grade::good, "locked memory is unlimited", ""});
  else if (geteuid() != 0)
    out.permissions.push_back(
        {Grade::note, fmt::format("locked memory is limited to {} KiB", locked.rlim_cur / 1024),
         "memory registration may fail: raise memlock in limits.conf or the "
         "unit file"});
  for (const Node &n : out.nodes)
    if (n.error.empty()) out.permissions.push_back({Grade::good, n.file + " can be opened", ""});
    else
      out.permissions.push_back({Grade::bad, fmt::format("{}: {}", n.file, n.error),
                                 "udev rules of rdma-core make it readable and writable for all"});
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    const bool raw = (std::strtoull(line.c_str() + 7, nullptr, 16) >> CAP_NET_RAW & 1) != 0;
    if (!raw)
      out.permissions.push_back(
          {Grade::note, "no CAP_NET_RAW", "raw packet queue pairs and flow rules need it"});
  }
}

// As this library reads them.
Options options_here(std::vector<std::string> &complaints) {
  static std::vector<std::string> *heard;
  heard = &complaints;
  const Complain complain = [](const char *message) { heard->emplace_back(message); };
  complain_of_unknown(environ, complain);
  return parse_options([](const char *name) -> const char * { return std::getenv(name); },
                       complain);
}

void look_at_environment(System &out) {
  for (const Feature &f : features) {
    if (f.kind != Kind::environment) continue;
    const char *value = std::getenv(std::string(f.name).c_str());
    if (value == nullptr) continue;
    out.environment.push_back({f.answer.verdict == Verdict::unsupported ? Grade::bad : Grade::note,
                               fmt::format("{}={} ({})", f.name, value, name_of(f.answer.verdict)),
                               std::string(f.answer.note)});
  }
  for (const Option &o : options)
    if (const char *value = std::getenv(std::string(o.name).c_str()))
      out.environment.push_back({Grade::note, fmt::format("{}={}", o.name, value), ""});
  std::vector<std::string> complaints;
  const Options now = options_here(complaints);
  for (const std::string &complaint : complaints)
    out.environment.push_back({Grade::bad, complaint, ""});
  out.environment.push_back(
      {Grade::good,
       now.objects == ObjectsOf::native
           ? "objects on mlx5 devices: rdma-core's own"
           : fmt::format("objects on mlx5 devices: in the legacy provider's {} layout, driven by "
                         "this library",
                         now.layout == ObjectLayout::v3 ? "3.x" : "4.x"),
       ""});
  for (const char *name : {"LD_PRELOAD", "LD_LIBRARY_PATH", "IBV_DRIVERS", "RDMAV_DRIVERS",
                           "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE"})
    if (const char *value = std::getenv(name); value != nullptr && *value != '\0')
      out.environment.push_back({Grade::note, fmt::format("{}={}", name, value), ""});
}

std::string card_of(const std::string &device, const ibv_device_attr &attr) {
  if (attr.vendor_id == 0x2c9 || attr.vendor_id == 0x15b3) {
    switch (attr.vendor_part_id) {
      case 4113:
      case 4114: return "Connect-IB";
      case 4115:
      case 4116: return "ConnectX-4";
      case 4117:
      case 4118: return "ConnectX-4 Lx";
      case 4119:
      case 4120: return "ConnectX-5";
      case 4121:
      case 4122: return "ConnectX-5 Ex";
      case 4123:
      case 4124: return "ConnectX-6";
      case 4125: return "ConnectX-6 Dx";
      case 4127: return "ConnectX-6 Lx";
      case 4129: return "ConnectX-7";
      case 4131: return "ConnectX-8";
      case 41682:
      case 41683: return "BlueField";
      case 41686: return "BlueField-2";
      case 41692: return "BlueField-3";
      default: break;
    }
  }
  return fmt::format("{} {:#x}:{:#x}", device.starts_with("mlx") ? "Mellanox" : "vendor",
                     attr.vendor_id, attr.vendor_part_id);
}

// The software HCA is recognised by its GUIDs, preloaded or in a virtual machine: locally
// administered, and "SH" (softhca/config/identity.cpp).
std::string model_of(const std::string &device, const ibv_device_attr &attr) {
  constexpr std::uint64_t prefix = 0x025348;
  const bool emulated = be64toh(attr.node_guid) >> 40 == prefix;
  return (emulated ? "emulated " : "") + card_of(device, attr);
}

// The verbs that this needs, from the libraries that programs get.
struct Verbs {
  decltype(&ibv_get_device_list) get_device_list;
  decltype(&ibv_free_device_list) free_device_list;
  decltype(&ibv_get_device_name) get_device_name;
  decltype(&ibv_open_device) open_device;
  decltype(&ibv_close_device) close_device;
  decltype(&ibv_query_device) query_device;
  int (*query_port)(ibv_context *, std::uint8_t, _compat_ibv_port_attr *);
  bool (*is_mlx5)(ibv_device *) = nullptr;  // whatever its administrator named it
  int (*exp_query_device)(ibv_context *, ibv_exp_device_attr *) = nullptr;
  std::string exp_error;

  bool load() {
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (verbs == nullptr) return false;
    const auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(verbs, name));
      return function != nullptr;
    };
    if (!find(get_device_list, "ibv_get_device_list") ||
        !find(free_device_list, "ibv_free_device_list") ||
        !find(get_device_name, "ibv_get_device_name") || !find(open_device, "ibv_open_device") ||
        !find(close_device, "ibv_close_device") || !find(query_device, "ibv_query_device") ||
        !find(query_port, "ibv_query_port"))
      return false;
    if (void *mlx5 = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL); mlx5 != nullptr)
      is_mlx5 = reinterpret_cast<decltype(is_mlx5)>(dlsym(mlx5, "mlx5dv_is_supported"));
    void *exp = nullptr;
    try {
      exp = dlopen(find_libibverbs_exp().c_str(), RTLD_NOW | RTLD_LOCAL);
      if (exp == nullptr) exp_error = dlerror();
    } catch (const std::exception &e) {
      exp_error = e.what();
    }
    if (exp == nullptr) return true;
    exp_query_device =
        reinterpret_cast<decltype(exp_query_device)>(dlsym(exp, "ibv_exp_query_device"));
    // As programs open devices: with release 28 the library does it in another way.
    open_device = reinterpret_cast<decltype(open_device)>(dlsym(exp, "ibv_open_device"));
    close_device = reinterpret_cast<decltype(close_device)>(dlsym(exp, "ibv_close_device"));
    return true;
  }
};

// Bits that come back as those of MLNX_OFED 4.9 do, on devices without the feature as well: there
// the value says that.
std::uint32_t without_empty(const ibv_exp_device_attr &attr) {
  std::uint32_t bits = attr.comp_mask;
  const auto needs = [&](std::uint32_t bit, std::uint64_t value) {
    if (value == 0) bits &= ~bit;
  };
  needs(IBV_EXP_DEVICE_ATTR_UMR, attr.umr_caps.max_klm_list_size);
  needs(IBV_EXP_DEVICE_ATTR_ODP, attr.odp_caps.general_odp_caps);
  needs(IBV_EXP_DEVICE_ATTR_RX_HASH, attr.rx_hash_caps.max_rwq_indirection_tables);
  needs(IBV_EXP_DEVICE_ATTR_MAX_WQ_TYPE_RQ, attr.max_wq_type_rq);
  needs(IBV_EXP_DEVICE_ATTR_MP_RQ, attr.mp_rq_caps.supported_qps);
  needs(IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS, attr.tunnel_offloads_caps);
  return bits;
}

void look_at_ports(const Verbs &verbs, ibv_context *context, int count, Device &out) {
  static constexpr const char *states[] = {"NOP",   "DOWN",   "INIT",
                                           "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  for (int number = 1; number <= count; ++number) {
    ibv_port_attr port{};
    if (verbs.query_port(context, static_cast<std::uint8_t>(number),
                         reinterpret_cast<_compat_ibv_port_attr *>(&port)) != 0)
      continue;
    out.ports.push_back({number,
                         port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
                         port.state < std::size(states) ? states[port.state] : "?"});
  }
  bool active = false;
  for (const Port &p : out.ports) active = active || p.state == "ACTIVE";
  if (!active) out.warning = "no port is active";
}

Device look_at_device(const Verbs &verbs, ibv_device *device) {
  Device out;
  out.name = verbs.get_device_name(device);
  errno = 0;
  ibv_context *context = verbs.open_device(device);
  if (context == nullptr) {
    out.error = fmt::format("cannot be opened: {}", std::strerror(errno));
    return out;
  }
  ibv_device_attr attr{};
  if (const int error = verbs.query_device(context, &attr); error != 0) {
    out.error = fmt::format("does not answer: {}", std::strerror(error));
  } else {
    out.model = model_of(out.name, attr);
    out.mlx5 = verbs.is_mlx5 != nullptr && verbs.is_mlx5(device);
    out.firmware = attr.fw_ver;
    look_at_ports(verbs, context, attr.phys_port_cnt, out);
  }
  if (out.error.empty() && verbs.exp_query_device == nullptr) {
    out.error = fmt::format("libibverbs_exp cannot be loaded: {}", verbs.exp_error);
  } else if (out.error.empty()) {
    ibv_exp_device_attr exp{};
    exp.comp_mask = ~0u;
    exp.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
    if (const int error = verbs.exp_query_device(context, &exp); error != 0)
      out.error = fmt::format("no experimental verbs: {}", std::strerror(error));
    out.capabilities = exp.exp_device_cap_flags;
    out.answered = without_empty(exp);
    out.answered_2 = exp.comp_mask_2;
    if (out.error.empty() && !out.mlx5) out.warning = "not a ConnectX: base verbs only";
  }
  verbs.close_device(context);
  return out;
}

void look_at_devices(System &out) {
  Verbs verbs;
  if (!verbs.load()) return;
  int count = 0;
  ibv_device **list = verbs.get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i)
    out.devices.push_back(look_at_device(verbs, list[i]));
  if (list != nullptr) verbs.free_device_list(list);
}

}  // namespace

std::optional<int> System::rdma_core() const {
  return libraries.empty() ? std::nullopt : libraries.front().release;
}

bool System::usable() const {
  for (const Device &d : devices)
    if (d.error.empty()) return true;
  return false;
}

Library find_library(const std::string &name, const std::vector<fs::path> &folders) {
  Library found{name, "", "", {}, false};
  std::error_code error;
  for (const fs::path &folder : folders) {
    // The dynamic linker goes on behind those of another machine, too.
    const ElfHead file(folder / name);
    if (file.machine() != own_machine.elf) continue;
    found.file = fs::canonical(folder / name, error).string();
    found.has_experimental = file.has_name_with("ibv_exp_get_device_list");
    found.release = release_of(found.file);
    // Where the file name does not say it: the symbols of that release.
    if (!found.release && name == "libibverbs.so.1" && !file.has_name_with("IBVERBS_1.8"))
      found.release = 0;
    return found;
  }
  void *handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  link_map *map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
    // Not found is what the C library says of this name alone.
    const std::string why = dlerror();
    if (!why.starts_with(name + ": cannot open shared object file: No such file"))
      found.error = why;
    return found;
  }
  found.file = fs::canonical(map->l_name, error).string();
  if (error) found.file = map->l_name;
  found.release = release_of(found.file);
  // Exported by libibverbs itself in those days.
  found.has_experimental = dlsym(handle, "ibv_exp_get_device_list") != nullptr;
  return found;
}

std::vector<Library> libraries_for(const ElfHead &program) {
  std::vector<fs::path> folders;
  const auto add = [&](std::string_view folder) { folders.emplace_back(folder); };
  if (const char *path = std::getenv("LD_LIBRARY_PATH")) for_each_word(path, ':', add);
  if (program.run_path().find('$') == std::string::npos)
    for_each_word(program.run_path(), ':', add);
  return {find_library("libibverbs.so.1", folders), find_library("libmlx5.so.1", folders)};
}

System examine() {
  System out;
  for (const char *name : {"libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1"})
    out.libraries.push_back(find_library(name));
  const char *preloaded = std::getenv("LD_PRELOAD");
  out.soft = preloaded != nullptr && std::strstr(preloaded, "libsofthca.so") != nullptr;
  look_at_kernel(out);
  look_at_nodes(out);
  look_at_permissions(out);
  look_at_environment(out);
  // What comes after is called with structures of rdma-core.
  const Outcome libraries = conclude(out).outcome;
  if (libraries != Outcome::legacy_libibverbs && libraries != Outcome::no_rdma_core &&
      libraries != Outcome::old_rdma_core)
    look_at_devices(out);
  return out;
}

}  // namespace ibvexp::tool::doctor
