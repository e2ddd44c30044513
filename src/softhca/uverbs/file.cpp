#include "uverbs/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/descriptor_table.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/memory_calls.h"
#include "engine/doorbells.h"
#include "engine/engine.h"
#include "engine/traps.h"
#include "uverbs/dispatch.h"
#include "uverbs/state.h"

namespace softhca {

// A descriptor of an event channel. Lives until the application closes it;
// `file` is null once the file is gone.
struct EventDescriptor {
  EventChannel *channel = nullptr;
  File *file = nullptr;
  ChannelKind kind = ChannelKind::async;
};

namespace {

// As the kernel numbers them.
constexpr u32 uverbs_major = 231;
constexpr u32 uverbs_base_minor = 192;

// What each descriptor of the process is to us: nothing, a file, or (bit 0
// set) an event descriptor.
constinit DescriptorTable g_descriptors;

constexpr uintptr_t event_tag = 1;
uintptr_t entry_of(File *f) { return reinterpret_cast<uintptr_t>(f); }
uintptr_t entry_of(EventDescriptor *e) { return reinterpret_cast<uintptr_t>(e) | event_tag; }
File *file_of(uintptr_t entry) {
  return (entry & event_tag) == 0 ? reinterpret_cast<File *>(entry) : nullptr;
}
EventDescriptor *event_of(uintptr_t entry) {
  return (entry & event_tag) != 0 ? reinterpret_cast<EventDescriptor *>(entry & ~event_tag)
                                  : nullptr;
}

// Files are used again but never freed: a thread that races with the close may
// still hold a pointer, and finds a closed file.
std::vector<File *> &files() {
  static auto &list = *new std::vector<File *>;
  return list;
}

File *take_file() {
  for (File *f : files())
    if (!f->open && f->away == 0) return f;
  files().push_back(new File);
  return files().back();
}

void close_file(File &f) {
  SOFTHCA_LOG(debug, "device %u: last close", f.device_number);
  f.objects.destroy_all();
  f.async = nullptr;
  for (EventDescriptor *e : f.events) {
    std::erase(process().context_channels, e->channel);
    e->file = nullptr;
  }
  f.events.clear();
  engine_remove_clock_page(f.bar + u64{uverbs::core_clock_page} * page_size);
  if (!f.inherited && f.has_context)
    for (u32 i = 0; i < f.bfregs.pages(); ++i) {
      doorbells_remove(f.page(i));
      doorbells_remove(f.page(uverbs::uncached_page + i));
    }
  f.bfregs.close();
  traps_unmapped(f.bar, u64{uverbs::bar_pages} * page_size);
  calls::munmap(f.bar, u64{uverbs::bar_pages} * page_size);
  f.bar = nullptr;
  f.uars.clear();
  f.transport_domain = nullptr;
  f.dm_used.reset();
  f.has_context = f.devx = f.inherited = f.open = false;
}

void close_event_descriptor(int fd, EventDescriptor *e) {
  g_descriptors.set(fd, 0);
  std::erase(process().context_channels, e->channel);
  if (File *f = e->file) {
    std::erase(f->events, e);
    if (f->async == e->channel) f->async = nullptr;
  }
  e->channel->close_application_end();
  e->channel->drop();
  delete e;
}

// The descriptor no longer means what we know of it.
void forget_descriptor(int fd) {
  const uintptr_t entry = g_descriptors.get(fd);
  if (entry == 0) return;
  if (EventDescriptor *e = event_of(entry)) return close_event_descriptor(fd, e);
  File *f = file_of(entry);
  g_descriptors.set(fd, 0);
  f->descriptors.erase(fd);
  if (f->descriptors.empty()) close_file(*f);
}

struct DeviceLock {
  DeviceLock() { process().mutex.lock(); }
  ~DeviceLock() {
    engine_nudge();
    process().mutex.unlock();
  }
  InsideDevice inside;  // before the lock, after the unlock
};

}  // namespace

EventChannel *File::channel(int fd, ChannelKind kind) const {
  const EventDescriptor *e = event_of(g_descriptors.get(fd));
  return e != nullptr && e->file == this && e->kind == kind ? e->channel : nullptr;
}

EventChannel *File::create_channel(ChannelKind kind) {
  EventChannel *channel = EventChannel::create();
  if (channel == nullptr) return nullptr;
  const int fd = channel->application_fd();
  forget_descriptor(fd);  // closed unnoticed
  auto *e = new EventDescriptor{channel, this, kind};
  if (!g_descriptors.set(fd, entry_of(e))) {
    delete e;
    close(fd);
    channel->drop();
    errno = ENOMEM;
    return nullptr;
  }
  events.push_back(e);
  if (kind == ChannelKind::async) {
    // Objects report to the first one, the device and its ports to all.
    if (async == nullptr) async = channel;
    process().context_channels.push_back(channel);
  }
  return channel;
}

void File::abandon_channel(EventChannel *channel) {
  const int fd = channel->application_fd();
  forget_descriptor(fd);
  close(fd);
}

u32 uverbs_device_count() { return static_cast<u32>(config().devices.size()); }

dev_t uverbs_device_number(u32 index) { return makedev(uverbs_major, uverbs_base_minor + index); }

int uverbs_open(u32 index, int flags) {
  InsideDevice inside;
  if (index >= uverbs_device_count()) {
    errno = ENODEV;
    return -1;
  }
  constexpr u64 bytes = u64{uverbs::bar_pages} * page_size;
  const u32 close_on_exec = (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0u;
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "softhca-uverbs", close_on_exec));
  void *bar = MAP_FAILED;
  {
    const FileSizeErrors errors;
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0)
      bar = calls::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (bar == MAP_FAILED) {
    const int error = errno;
    SOFTHCA_LOG(error, "device %u: no memory file of %llu bytes: %s%s", index,
                static_cast<unsigned long long>(bytes), strerror(error), limit_behind(error).text);
    if (fd >= 0) close(fd);
    errno = error;
    return -1;
  }

  DeviceLock lock;
  forget_descriptor(fd);
  File *f = take_file();
  if (!g_descriptors.set(fd, entry_of(f))) {
    calls::munmap(bar, bytes);
    close(fd);
    errno = ENOMEM;
    return -1;
  }
  f->open = true;
  f->device_number = index;
  f->descriptors = {fd};
  f->bar = static_cast<u8 *>(bar);
  SOFTHCA_LOG(debug, "device %u: open, descriptor %d", index, fd);
  return fd;
}

File *uverbs_file(int fd) { return file_of(g_descriptors.get(fd)); }

int uverbs_map_refused(unsigned long long page, size_t length, int protection, int flags) {
  using namespace uverbs;
  if (page >= dm_first_page) return 0;
  // Buffers in one piece were a matter of older kernels; libmlx5 asks for them with
  // MLX_QP_ALLOC_TYPE and the like, and takes other memory.
  if (page >> 8 == contiguous_command) return ENOSYS;
  if (page >> 8 == no_command || length != page_size || (flags & MAP_SHARED) == 0) return EINVAL;
  const bool clock = page == core_clock_page || page == clock_info_page;
  return clock && (protection & PROT_WRITE) != 0 ? EPERM : 0;
}

void uverbs_mapped() {
  DeviceLock lock;
  traps_look_again();
}

int uverbs_ioctl(File *file, ib_uverbs_ioctl_hdr *header) {
  const int before = errno;
  int error;
  {
    DeviceLock lock;
    error = file->open ? uverbs::dispatch(*file, header) : EBADF;
  }
  errno = error != 0 ? error : before;
  return error != 0 ? -1 : 0;
}

void uverbs_dup(int from, int to) {
  DeviceLock lock;
  File *f = uverbs_file(from);
  if (f == nullptr || from == to) return;
  if (g_descriptors.get(to) == entry_of(f)) return;
  forget_descriptor(to);
  if (g_descriptors.set(to, entry_of(f))) f->descriptors.insert(to);
}

void uverbs_close(int fd) {
  if (uverbs_file(fd) == nullptr) return;
  DeviceLock lock;
  if (uverbs_file(fd) != nullptr) forget_descriptor(fd);
}

void uverbs_event_fd_closing(int fd) {
  if (event_of(g_descriptors.get(fd)) == nullptr) return;
  DeviceLock lock;
  if (EventDescriptor *e = event_of(g_descriptors.get(fd))) close_event_descriptor(fd, e);
}

void uverbs_forked() {
  // Descriptors and objects remain: commands on them are legal in the child.
  ++uverbs::Object::current_generation;
  for (File *f : files()) {
    f->away = 0;  // the threads of those commands are the parent's
    if (f->open) f->inherited = true;
  }
  process().context_channels.clear();
  uverbs::port_subscriptions().clear();
  uverbs::forget_multicast();
}

}  // namespace softhca
