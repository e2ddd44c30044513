// What the tools write: whole files.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace ibvexp::tool {

// That of TMPDIR, or /tmp where there is none: a job may outlive the folder that was made for it.
inline std::filesystem::path temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : folder;
}

// Throws runtime_error, which names the file.
inline void write_file(const std::string &path, const std::string &text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file)
    throw std::runtime_error("cannot write " + path +
                             (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

// Throws the same error if write_file() would fail. For reports, before the work that they describe.
inline void check_writable(const std::string &path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool there = fs::exists(path, error);
  const fs::path asked = there ? fs::path(path) : fs::absolute(path).parent_path();
  if (there && fs::is_directory(path, error)) errno = EISDIR;
  else if (access(asked.c_str(), W_OK) == 0) return;
  throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace ibvexp::tool
