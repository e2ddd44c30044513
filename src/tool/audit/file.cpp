#include "tool/audit/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tool/audit/binary/elf_image.h"

namespace ibvexp::audit {

MappedFile::MappedFile(const std::string &path) {
  // A pipe would block; it is no file to audit either.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw InputError(std::strerror(errno));
  struct stat st {};
  const bool regular = fstat(fd_, &st) == 0 && S_ISREG(st.st_mode);
  const ssize_t got = regular ? pread(fd_, start_.data(), start_.size(), 0) : 0;
  const int error = errno;
  if (!regular || got < 0) close(fd_);
  if (!regular) throw InputError("not a regular file");
  if (got < 0) throw InputError(std::strerror(error));
  size_ = static_cast<std::size_t>(st.st_size);
  start_size_ = static_cast<std::size_t>(got);
}

std::string_view MappedFile::text() {
  // Mapping costs more than most files.
  if (size_ <= start_size_) return start();
  if (data_ == nullptr) {
    void *at = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (at == MAP_FAILED) throw InputError(std::strerror(errno));
    data_ = at;
  }
  return {static_cast<const char *>(data_), size_};
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
  close(fd_);
}

}  // namespace ibvexp::audit
