#include "preload/sysfs_tree.h"

#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/limits.h"
#include "base/log.h"
#include "cm/cm_file.h"
#include "config/identity.h"
#include "engine/engine.h"
#include "preload/counter_file.h"
#include "umad/umad.h"
#include "uverbs/file.h"
#include "wire/directory.h"

namespace softhca {

namespace fs = std::filesystem;

namespace {

// A PCI domain that no machine has; paths.h redirects its directory.
std::string pci_address(u32 device) {
  char text[16];
  std::snprintf(text, sizeof text, "5348:%02x:00.0", device);
  return text;
}

template <class... Args>
std::string format(const char *pattern, Args... args) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string guid_text(u64 guid) {
  return format("%04x:%04x:%04x:%04x", static_cast<u32>(guid >> 48),
                static_cast<u32>(guid >> 32 & 0xffff), static_cast<u32>(guid >> 16 & 0xffff),
                static_cast<u32>(guid & 0xffff));
}

std::string gid_text(const std::array<u8, 16> &gid) {
  return guid_text(load_be64(gid.data())) + ':' + guid_text(load_be64(gid.data() + 8));
}

// All CPUs are local to the device: groups of 32, most significant first.
std::string cpu_mask() {
  long cpus = sysconf(_SC_NPROCESSORS_CONF);
  if (cpus < 1) cpus = 1;
  std::string text;
  for (long low = (cpus - 1) / 32 * 32; low >= 0; low -= 32) {
    const long here = std::min(cpus - low, 32L);
    const u32 bits = here == 32 ? ~0u : (1u << here) - 1;
    text += format(text.empty() ? "%x" : ",%08x", bits);
  }
  return text;
}

class TreeWriter {
 public:
  TreeWriter(const Config &c, const std::vector<dev_t> &numbers) : config_(c), numbers_(numbers) {}

  std::vector<TreeEntry> entries() {
    file("class/infiniband_verbs/abi_version", "6");
    file("class/misc/rdma_cm/abi_version", std::to_string(RDMA_USER_CM_ABI_VERSION));
    file("class/misc/rdma_cm/dev",
         format("%u:%u", major(cm_device_number()), minor(cm_device_number())));
    file("dev/infiniband/rdma_cm", "");
    file("class/infiniband_mad/abi_version", "5");
    for (u32 d = 0; d < config_.devices.size(); ++d) device(d);
    for (u32 n = 0; n < umad_count(); ++n) umad(n);
    neighbours("class", "/sys/class");
    neighbours("class/misc", "/sys/class/misc");
    neighbours("bus/pci/devices", "/sys/bus/pci/devices");
    return std::move(entries_);
  }

 private:
  void file(const std::string &path, const std::string &line) {
    entries_.push_back({TreeEntry::Kind::file, path, line + '\n'});
  }
  void link(const std::string &path, const std::string &target) {
    entries_.push_back({TreeEntry::Kind::link, path, target});
  }

  // In a listing that ours is part of, what else this machine has.
  void neighbours(const std::string &ours, const std::string &theirs) {
    std::set<std::string> taken;
    for (const TreeEntry &e : entries_)
      if (e.path.compare(0, ours.size() + 1, ours + '/') == 0)
        taken.insert(
            e.path.substr(ours.size() + 1, e.path.find('/', ours.size() + 1) - ours.size() - 1));
    std::set<std::string> names;
    std::error_code ec;
    for (const fs::directory_entry &entry : fs::directory_iterator(theirs, ec))
      names.insert(entry.path().filename());
    for (const std::string &name : names)
      if (taken.count(name) == 0) link(ours + '/' + name, theirs + '/' + name);
  }

  void device(u32 d) {
    const DeviceConfig &dc = config_.devices[d];
    const std::string uverbs = "uverbs" + std::to_string(d);
    const std::string pci = format("devices/pci5348:%02x/", d) + pci_address(d);
    const std::string ib = pci + "/infiniband/" + dc.name;
    const std::string verbs = pci + "/infiniband_verbs/" + uverbs;
    const bool ethernet = dc.ports[0].link == LinkLayer::ethernet;
    const ModelIdentity &model = model_identity(dc.model);

    // What libibverbs matches a provider by; upper-case digits, "sv" follows.
    const std::string alias = format("pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc%02Xi00", pci_vendor,
                                     model.part_id, pci_vendor, 8u, ethernet ? 0u : 7u);
    file(pci + "/modalias", alias);
    file(pci + "/vendor", format("0x%04x", pci_vendor));
    file(pci + "/device", format("0x%04x", model.part_id));
    file(pci + "/subsystem_vendor", format("0x%04x", pci_vendor));
    file(pci + "/subsystem_device", "0x0008");
    file(pci + "/class", ethernet ? "0x020000" : "0x020700");
    file(pci + "/revision", "0x00");
    file(pci + "/numa_node", "0");
    // What programs read that go by bus addresses.
    file(pci + "/uevent",
         format("DRIVER=mlx5_core\nPCI_CLASS=%s\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:0008\n",
                ethernet ? "20000" : "20700", pci_vendor, model.part_id, pci_vendor) +
             "PCI_SLOT_NAME=" + pci_address(d) + "\nMODALIAS=" + alias);
    std::string regions;  // six of memory, the ROM and those of virtual functions: none
    for (int i = 0; i < 13; ++i)
      regions += std::string(i == 0 ? "" : "\n") +
                 "0x0000000000000000 0x0000000000000000 0x0000000000000000";
    file(pci + "/resource", regions);
    link(pci + "/driver", "../../../bus/pci/drivers/mlx5_core");
    link(pci + "/subsystem", "../../../bus/pci");
    link("bus/pci/devices/" + pci_address(d), "../../../" + pci);
    link("bus/pci/drivers/mlx5_core/" + pci_address(d), "../../../../" + pci);
    file(pci + "/local_cpus", cpu_mask());
    file(pci + "/local_cpulist", format("0-%ld", std::max(sysconf(_SC_NPROCESSORS_CONF), 1L) - 1));

    file(verbs + "/ibdev", dc.name);
    file(verbs + "/dev", format("%u:%u", major(numbers_[d]), minor(numbers_[d])));
    file(verbs + "/abi_version", "1");
    link(verbs + "/device", "../../../" + pci_address(d));
    link("class/infiniband_verbs/" + uverbs, "../../" + verbs);
    file("dev/infiniband/" + uverbs, "");

    file(ib + "/node_type", "1: CA");
    file(ib + "/node_guid", guid_text(node_guid(config_, d)));
    file(ib + "/sys_image_guid", guid_text(node_guid(config_, d)));
    file(ib + "/fw_ver", model.fw_version());
    file(ib + "/hca_type", model.hca_type);
    file(ib + "/board_id", model.board_id);
    file(ib + "/hw_rev", "0");
    file(ib + "/node_desc", format("softhca host %u", config_.host));
    link(ib + "/device", "../../../" + pci_address(d));
    link("class/infiniband/" + dc.name, "../../" + ib);

    for (u32 p = 1; p <= dc.ports.size(); ++p) {
      port(ib + "/ports/" + std::to_string(p), d, p);
      if (const std::string &netdev = dc.ports[p - 1].netdev; !netdev.empty()) {
        link(pci + "/net/" + netdev, "/sys/class/net/" + netdev);
        link("netdev/" + netdev + "/device", "../../" + pci);
      }
    }
  }

  void umad(u32 n) {
    const UmadPort at = umad_port(n);
    const std::string name = "umad" + std::to_string(n);
    const std::string dir = format("devices/pci5348:%02x/", at.device) + pci_address(at.device) +
                            "/infiniband_mad/" + name;
    file(dir + "/ibdev", config_.devices[at.device].name);
    file(dir + "/port", std::to_string(at.port));
    file(dir + "/dev", format("%u:%u", major(umad_device_number(n)), minor(umad_device_number(n))));
    link(dir + "/device", "../../../" + pci_address(at.device));
    link("class/infiniband_mad/" + name, "../../" + dir);
    file("dev/infiniband/" + name, "");
  }

  void port(const std::string &dir, u32 d, u32 p) {
    const PortConfig &pc = config_.devices[d].ports[p - 1];
    const bool ethernet = pc.link == LinkLayer::ethernet;
    file(dir + "/state", pc.active ? "4: ACTIVE" : "1: DOWN");
    file(dir + "/phys_state", pc.active ? "5: LinkUp" : "3: Disabled");
    file(dir + "/link_layer", ethernet ? "Ethernet" : "InfiniBand");
    file(dir + "/rate", "100 Gb/sec (4X EDR)");
    file(dir + "/lid", format("0x%x", ethernet ? 0u : u32{pc.lid}));
    file(dir + "/lid_mask_count", "0");
    file(dir + "/sm_lid", ethernet ? "0x0" : "0x1");
    file(dir + "/sm_sl", "0");
    file(dir + "/cap_mask", format("0x%08x", port_cap_mask(pc.link)));

    // Reading an empty entry gives a zero GID, its type and interface do not exist.
    const auto gids = port_gids(config_, d, p);
    for (u32 i = 0; i < gid_table_size(pc.link); ++i) {
      const std::string index = std::to_string(i);
      const bool valid = i < gids.size();
      file(dir + "/gids/" + index, gid_text(valid ? gids[i].gid : std::array<u8, 16>{}));
      if (!valid) continue;
      file(dir + "/gid_attrs/types/" + index, gids[i].type == 2 ? "RoCE v2" : "IB/RoCE v1");
      if (!pc.netdev.empty()) file(dir + "/gid_attrs/ndevs/" + index, pc.netdev);
    }
    if (pc.netdev.empty())
      entries_.push_back({TreeEntry::Kind::directory, dir + "/gid_attrs/ndevs", ""});
    for (u32 i = 0; i < pkey_table_size(pc.link); ++i)
      file(dir + "/pkeys/" + std::to_string(i), i == 0 ? "0xffff" : "0x0000");

    for (const char *counter : zero_counters) file(dir + "/counters/" + counter, "0");
    // What these show is made when they are opened, counter_file.h.
    for (const char *counter : traffic_counters) file(dir + "/counters/" + counter, "");
    for (const char *counter : queue_counter_names)
      if (counter != nullptr) file(dir + "/hw_counters/" + counter, "");
    file(dir + "/hw_counters/lifespan", "10");
  }

  const Config &config_;
  const std::vector<dev_t> &numbers_;
  std::vector<TreeEntry> entries_;
};

// FNV-1a: the name of a tree only has to differ when its content does.
u64 content_hash(const std::vector<TreeEntry> &entries) {
  u64 hash = 0xcbf29ce484222325;
  const auto add = [&hash](const std::string &s) {
    for (const char c : s) hash = (hash ^ static_cast<u8>(c)) * 0x100000001b3;
    hash = (hash ^ 0xff) * 0x100000001b3;  // no character: ends the string
  };
  for (const TreeEntry &e : entries) {
    add(e.path);
    add(e.content);
  }
  return hash;
}

int write_file(const fs::path &path, const std::string &content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (fd < 0) return errno;
  const int error = write_all(fd, content.data(), content.size(), 0);
  ::close(fd);
  return error;
}

// libibverbs lists devices in directory order, which on a tmpfs is that of
// creation or its reverse, by kernel release. Makes it that of the numbers.
int order_links(const fs::path &directory) {
  std::error_code ec;
  std::vector<std::pair<fs::path, fs::path>> links;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory, ec))
    if (entry.is_symlink(ec)) links.emplace_back(entry.path(), fs::read_symlink(entry.path(), ec));
  if (ec || links.size() < 2 || links[0].first.native() < links[1].first.native())
    return ec.value();
  for (const auto &[path, target] : links) fs::remove(path, ec);
  // They were made in ascending order: now in descending order. The names
  // differ in length from ten devices on, so the list itself is the order.
  for (const auto &[path, target] : links)
    if (!ec) fs::create_symlink(target, path, ec);
  return ec.value();
}

int write_entries(const fs::path &root, const std::vector<TreeEntry> &entries) {
  std::error_code ec;
  // GID and P_Key tables are mostly the same line: one inode for each content.
  std::map<std::string, fs::path> written;
  for (const TreeEntry &e : entries) {
    const fs::path path = root / e.path;
    fs::create_directories(e.kind == TreeEntry::Kind::directory ? path : path.parent_path(), ec);
    if (ec) return ec.value();
    if (e.kind == TreeEntry::Kind::link) {
      fs::create_symlink(e.content, path, ec);
      if (ec) return ec.value();
    } else if (e.kind == TreeEntry::Kind::file) {
      const auto [first, fresh] = written.try_emplace(e.content, path);
      if (!fresh) {
        fs::create_hard_link(first->second, path, ec);
        if (!ec) continue;
      }
      if (const int error = write_file(path, e.content)) return error;
    }
  }
  if (const int error = order_links(root / "class/infiniband_verbs")) return error;
  return order_links(root / "class/infiniband");
}

// Removes what processes that died while making a tree left behind.
void remove_abandoned(const fs::path &directory) {
  std::error_code ec;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory, ec)) {
    const std::string name = entry.path().filename();
    const size_t at = name.rfind(".new.");
    if (name.compare(0, 6, "sysfs-") != 0 || at == std::string::npos) continue;
    const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str() + at + 5, nullptr, 10));
    std::error_code ignored;
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::vector<TreeEntry> sysfs_entries(const Config &c, const std::vector<dev_t> &device_numbers) {
  return TreeWriter(c, device_numbers).entries();
}

std::string make_tree(const std::string &directory, const std::vector<TreeEntry> &entries) {
  const fs::path root =
      fs::path(directory) /
      format("sysfs-%016llx", static_cast<unsigned long long>(content_hash(entries)));
  std::error_code ec;
  if (fs::is_directory(root, ec)) return root;

  remove_abandoned(directory);
  static std::atomic<u32> attempt{0};
  const fs::path fresh =
      root.string() + format(".new.%d.%u", static_cast<int>(getpid()), attempt.fetch_add(1));
  fs::remove_all(fresh, ec);  // of an earlier process with our number
  int error = write_entries(fresh, entries);
  if (error == 0) {
    fs::rename(fresh, root, ec);
    // A concurrent process may have been faster: its tree is the same.
    if (ec && !fs::is_directory(root)) error = ec.value();
  }
  if (error != 0 || ec) fs::remove_all(fresh, ec);
  errno = error;
  return error == 0 ? root.string() : std::string();
}

const char *sysfs_root() {
  // Published once and never freed, for programs that list devices from an
  // exit handler. No lock: one that another thread holds during fork() would
  // stay locked in the child, and making the tree twice does no harm.
  static std::atomic<const std::string *> published{nullptr};
  if (const std::string *root = published.load(std::memory_order_acquire)) return root->c_str();

  InsideDevice inside;
  try {
    const Config &c = config();
    const std::string directory = fabric_directory(c.fabric);
    if (directory.empty()) return nullptr;  // said
    std::vector<dev_t> numbers;
    for (u32 d = 0; d < uverbs_device_count(); ++d) numbers.push_back(uverbs_device_number(d));
    auto root = std::make_unique<std::string>(make_tree(directory, sysfs_entries(c, numbers)));
    if (root->empty()) {
      const int error = errno;
      SOFTHCA_LOG(error, "sysfs cannot be made below %s: %s%s", directory.c_str(), strerror(error),
                  limit_behind(error, directory.c_str()).text);
      errno = error;
      return nullptr;
    }
    const std::string *none = nullptr;
    if (published.compare_exchange_strong(none, root.get())) return root.release()->c_str();
    return none->c_str();
  } catch (const std::exception &e) {
    SOFTHCA_LOG(error, "sysfs cannot be made: %s", e.what());
    errno = ENOMEM;
    return nullptr;
  }
}

}  // namespace softhca
