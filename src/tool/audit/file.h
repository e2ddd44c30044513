// A file mapped into memory, read only.
#pragma once

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

  std::string_view text() const { return {static_cast<const char *>(data_), size_}; }

 private:
  void *data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ibvexp::audit
