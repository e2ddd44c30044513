// A file, read only: its beginning, and all of it mapped into memory if it is asked for.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace ibvexp::audit {

class MappedFile {
 public:
  // Throws InputError.
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  // The first bytes: enough for all magic numbers.
  std::string_view start() const { return {start_.data(), start_size_}; }
  std::size_t size() const { return size_; }
  // Throws InputError.
  std::string_view text();

 private:
  int fd_ = -1;
  void *data_ = nullptr;
  std::size_t size_ = 0, start_size_ = 0;
  std::array<char, 4096> start_;
};

}  // namespace ibvexp::audit
