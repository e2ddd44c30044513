// What the tools write: whole files.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

namespace ibvexp::tool {

// Throws runtime_error, which names the file.
inline void write_file(const std::string &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace ibvexp::tool
