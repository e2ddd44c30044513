// The part of sysfs and /dev that an mlx5 device shows, as real files: a
// directory per configuration below the fabric's directory, made once and
// shared by all processes with the same configuration.
//
//   class/infiniband/<device>        -> devices/pci.../infiniband/<device>
//   class/infiniband_verbs/uverbs<n> -> devices/pci.../infiniband_verbs/uverbs<n>
//   bus/pci/devices/<address>        -> devices/pci...
//   netdev/<interface>/device        -> devices/pci..., for /sys/class/net/<interface>/device
//   dev/infiniband/uverbs<n>            placeholders for directory listings
//
// Symbolic links and PCI directories are laid out as the kernel does it, so
// that programs which resolve .../device find a bus address.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace softhca {

struct TreeEntry {
  enum class Kind { file, link, directory } kind;
  std::string path;     // relative to the root, parents created on demand
  std::string content;  // file: content, link: target
};

// What the tree holds; `device_numbers` are those of the uverbs devices.
std::vector<TreeEntry> sysfs_entries(const Config &, const std::vector<dev_t> &device_numbers);

// Makes the tree below `directory` if it is not there and returns its path.
// Empty and errno on failure. Safe against concurrent callers.
std::string make_tree(const std::string &directory, const std::vector<TreeEntry> &entries);

// The tree of this process, made at the first call; nullptr and errno on failure.
const char *sysfs_root();

}  // namespace softhca
