// The fabrics of this machine, for people and tools: `ibvexp fabric` is made of
// this. The only header of the software HCA that others include, so it names
// types of the language alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softhca {

struct FabricEntry {
  std::string path;
  std::string name;
  unsigned uid = 0;
  bool readable = false;  // ours to look into; nothing below is known otherwise
  bool used = false;      // a process holds its lock or a slot
  struct Member {
    std::uint16_t slot;
    std::uint32_t pid;
  };
  std::vector<Member> members;  // live processes that have a device open
};

// Fabrics of all users, in all folders where they may lie.
std::vector<FabricEntry> list_fabrics();

// Removes an unused directory. False with errno; EBUSY: it is in use.
bool remove_fabric(const std::string &path);

}  // namespace softhca
