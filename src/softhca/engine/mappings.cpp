#include "engine/mappings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

namespace softhca {

std::vector<MapLine> own_maps() {
  std::vector<MapLine> lines;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return lines;
  std::string text;
  char buffer[16384];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  close(fd);
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    MapLine l;
    if (line.find("/memfd:softhca-uverbs") == std::string::npos) continue;
    if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64, &l.begin,
               &l.end, &l.offset, &l.inode) == 4)
      lines.push_back(l);
  }
  return lines;
}

void find_mappings(const std::vector<MapLine> &lines, u8 *page, std::vector<Mapping> &out) {
  const auto own = std::find_if(lines.begin(), lines.end(), [&](const MapLine &l) {
    return number(page) >= l.begin && number(page) < l.end;
  });
  if (own == lines.end()) return;
  const u64 offset = own->offset + (number(page) - own->begin);
  for (const MapLine &l : lines)
    if (&l != &*own && l.inode == own->inode && offset >= l.offset &&
        offset - l.offset < l.end - l.begin)
      out.push_back({page_at(l.begin + (offset - l.offset)), page});
}

}  // namespace softhca
