// Lists the fabrics of this machine, for `ibvexp fabric`. The only header of the
// software HCA that other parts include, so it uses standard types
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softhca {

struct FabricEntry {
  std::string path;
  std::string name;
  unsigned uid = 0;
  bool readable = false;  // false: the members below are not filled
  bool used = false;      // a process holds its lock or a slot
  struct Member {
    std::uint16_t slot;
    std::uint32_t pid;
  };
  std::vector<Member> members;  // live processes that have a device open
};

// Fabrics of all users, in all folders that may hold them.
std::vector<FabricEntry> list_fabrics();

// Removes an unused directory. False with errno; EBUSY: it is in use.
bool remove_fabric(const std::string &path);

}  // namespace softhca
