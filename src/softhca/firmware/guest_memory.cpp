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
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return errno;
  std::shared_ptr<int> file(new int(own), [](int *p) {
    close(*p);
    delete p;
  });
  const int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mmap(window_ + address, bytes, rights, MAP_SHARED | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED)
    return errno;
  forget(address, bytes);
  mappings_.push_back({address, bytes, offset, std::move(file), writable});
  return 0;
}

void GuestMemory::unmap(u64 address, u64 bytes) {
  if (bytes == 0 || (address | bytes) % page_size != 0 || !inside(address, bytes)) return;
  mmap(window_ + address, bytes, PROT_NONE, nothing | MAP_FIXED, -1, 0);
  forget(address, bytes);
}

void GuestMemory::unmap_all() {
  for (const Mapping &m : mappings_)
    mmap(window_ + m.address, m.bytes, PROT_NONE, nothing | MAP_FIXED, -1, 0);
  mappings_.clear();
  pages_.clear();
}

// What is not mapped any more, or mapped anew: of mappings that reach further the rest stays.
void GuestMemory::forget(u64 address, u64 bytes) {
  const u64 end = address + bytes;
  std::vector<Mapping> rest;
  for (const Mapping &m : mappings_) {
    const u64 m_end = m.address + m.bytes;
    if (m_end <= address || m.address >= end) {
      rest.push_back(m);
      continue;
    }
    if (m.address < address)
      rest.push_back({m.address, address - m.address, m.offset, m.fd, m.writable});
    if (m_end > end)
      rest.push_back({end, m_end - end, m.offset + (end - m.address), m.fd, m.writable});
  }
  mappings_ = std::move(rest);
  pages_.clear();
}

const GuestMemory::Mapping *GuestMemory::find(u64 address, u64 bytes) const {
  for (const Mapping &m : mappings_)
    if (address >= m.address && address - m.address < m.bytes &&
        bytes <= m.bytes - (address - m.address))
      return &m;
  return nullptr;
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
    const Mapping *m = pages[i] % page_size == 0 ? find(pages[i], length) : nullptr;
    if (m == nullptr && end > i + 1) {
      // A run may cross from one mapping to the next.
      end = i + 1;
      m = find(pages[i], page_bytes);
    }
    if (m == nullptr || !m->writable) return nullptr;
    if (mmap(at + i * page_bytes, (end - i) * page_bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, *m->fd,
             static_cast<off_t>(m->offset + pages[i] - m->address)) == MAP_FAILED)
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
