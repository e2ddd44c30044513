#include "firmware/guest_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "model/memory.h"

namespace softhca::firmware {

namespace {

constexpr int nothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

u8 *reserve_addresses(u64 bytes) {
  void *at = mmap(nullptr, bytes, PROT_NONE, nothing, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<u8 *>(at);
}

}  // namespace

View::~View() { munmap(at_, bytes_); }

bool GuestMemory::reserve() {
  window_ = reserve_addresses(window_bytes + guard_bytes);
  return window_ != nullptr;
}

int GuestMemory::map(u64 address, u64 bytes, int fd, u64 offset, bool writable) {
  if (bytes == 0 || (address | bytes | offset) % page_size != 0 || !inside(address, bytes))
    return EINVAL;
  // Behind the end of a file there is nothing to touch.
  struct stat file_status;
  if (fstat(fd, &file_status) != 0) return errno;
  const u64 length = static_cast<u64>(file_status.st_size);
  if (S_ISREG(file_status.st_mode) && (offset > length || bytes > length - offset)) return EINVAL;
  const auto file = keep(fd, file_status);
  if (!file) return errno;
  const int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mmap(window_ + address, bytes, rights, MAP_SHARED | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED)
    return errno;
  forget(address, bytes);
  mappings_[address] = {bytes, offset, file, writable};
  return 0;
}

// A descriptor of our own of the file, one for all of its mappings; null with errno.
std::shared_ptr<int> GuestMemory::keep(int fd, const struct stat &status) {
  std::erase_if(files_, [](const File &f) { return f.fd.expired(); });
  const int flags = fcntl(fd, F_GETFL);
  for (const File &f : files_)
    if (f.device == status.st_dev && f.inode == status.st_ino && f.flags == flags)
      if (auto known = f.fd.lock()) return known;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  std::shared_ptr<int> file(new int(own), [](int *p) {
    close(*p);
    delete p;
  });
  files_.push_back({status.st_dev, status.st_ino, flags, file});
  return file;
}

void GuestMemory::unmap(u64 address, u64 bytes) {
  if (bytes == 0 || (address | bytes) % page_size != 0 || !inside(address, bytes)) return;
  mmap(window_ + address, bytes, PROT_NONE, nothing | MAP_FIXED, -1, 0);
  forget(address, bytes);
}

void GuestMemory::unmap_all() {
  for (const auto &[address, m] : mappings_)
    mmap(window_ + address, m.bytes, PROT_NONE, nothing | MAP_FIXED, -1, 0);
  mappings_.clear();
  pages_.clear();
}

// What is not mapped any more, or mapped anew: of mappings that reach further the rest stays.
void GuestMemory::forget(u64 address, u64 bytes) {
  const u64 end = address + bytes;
  auto i = find(address);
  if (i == mappings_.end()) i = mappings_.lower_bound(address);
  while (i != mappings_.end() && i->first < end) {
    const auto [begin, m] = *i;
    i = mappings_.erase(i);
    if (begin < address) mappings_[begin] = {address - begin, m.offset, m.fd, m.writable};
    if (begin + m.bytes > end)
      mappings_[end] = {begin + m.bytes - end, m.offset + (end - begin), m.fd, m.writable};
  }
  pages_.clear();
}

// The mapping that holds the address.
GuestMemory::Mappings::const_iterator GuestMemory::find(u64 address) const {
  auto i = mappings_.upper_bound(address);
  if (i == mappings_.begin()) return mappings_.end();
  --i;
  return address - i->first < i->second.bytes ? i : mappings_.end();
}

// Maps what the guest has there once more; false: not all of it is writable memory of the guest.
bool GuestMemory::show(u64 address, u64 bytes, u8 *at) const {
  while (bytes != 0) {
    const auto found = find(address);
    if (found == mappings_.end() || !found->second.writable) return false;
    const auto &[begin, m] = *found;
    const u64 length = std::min(bytes, begin + m.bytes - address);
    if (mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *m.fd,
             static_cast<off_t>(m.offset + address - begin)) == MAP_FAILED)
      return false;
    address += length;
    at += length;
    bytes -= length;
  }
  return true;
}

bool GuestMemory::read(u64 address, void *to, u64 bytes) const {
  return inside(address, bytes) && read_application(host_address(address), to, bytes);
}

bool GuestMemory::write(u64 address, const void *from, u64 bytes) const {
  return inside(address, bytes) && write_application(host_address(address), from, bytes);
}

std::shared_ptr<View> GuestMemory::view(std::span<const u64> pages, u64 page_bytes) const {
  if (pages.empty() || page_bytes % page_size != 0 || pages.size() > window_bytes / page_bytes)
    return nullptr;
  const u64 bytes = pages.size() * page_bytes;
  // A page behind it that nothing may touch.
  u8 *at = reserve_addresses(bytes + page_size);
  if (at == nullptr) return nullptr;
  auto view = std::make_shared<View>(at, bytes + page_size);
  for (size_t i = 0, end; i < pages.size(); i = end) {
    for (end = i + 1; end < pages.size() && pages[end] == pages[end - 1] + page_bytes;) ++end;
    const u64 length = (end - i) * page_bytes;
    if (pages[i] % page_size != 0 || !inside(pages[i], length) ||
        !show(pages[i], length, at + i * page_bytes))
      return nullptr;
  }
  return view;
}

std::shared_ptr<View> GuestMemory::page(u64 address) {
  const u64 begin = address & ~u64{page_size - 1};
  std::weak_ptr<View> &known = pages_[begin];
  if (auto view = known.lock()) return view;
  auto view = this->view(std::span(&begin, 1), page_size);
  known = view;
  return view;
}

}  // namespace softhca::firmware
