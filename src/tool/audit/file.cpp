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
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw InputError(std::strerror(errno));
  struct stat st {};
  const bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  if (regular && st.st_size > 0) {
    size_ = static_cast<std::size_t>(st.st_size);
    data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (!regular) throw InputError("not a regular file");
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw InputError(std::strerror(error));
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace ibvexp::audit
