// Where the application has mapped the device's pages.
#pragma once

#include <vector>

#include "base/types.h"

namespace softhca {

inline u64 number(const void *p) { return reinterpret_cast<u64>(p); }
inline u8 *page_at(u64 address) { return reinterpret_cast<u8 *>(address & ~u64{page_size - 1}); }

// One page of one mapping.
struct Mapping {
  u8 *address;  // in the application's mapping
  u8 *page;     // the device's own
  bool trapped = false;
};

// A line of /proc/self/maps about one of the device's files.
struct MapLine {
  u64 begin, end, offset, inode;
};

std::vector<MapLine> own_maps();

// Where else the file that has `page` is mapped at that page: behind `out`.
void find_mappings(const std::vector<MapLine> &lines, u8 *page, std::vector<Mapping> &out);

}  // namespace softhca
