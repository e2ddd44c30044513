// How a page gets trapped (traps.h says what for):
//
//   traps_need    this page has to be trapped; its mappings are not known yet
//   traps_find    looks for them in /proc/self/maps (mappings.h), and calls the thread, which alone
//                 may use the userfaultfd: by an access to a page of its own
//   called        the thread registers what was found
//   traps_arm     takes the pages out, if all that is needed is registered
#include "engine/traps.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "base/memory_calls.h"
#include "base/thread.h"
#include "config/config.h"
#include "engine/engine.h"
#include "engine/mappings.h"
#include "engine/thread_priority.h"
#include "model/device.h"

// Missing in the headers of the oldest distributions.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

namespace softhca {

namespace {

constexpr unsigned close_range_unshare = 2;  // CLOSE_RANGE_UNSHARE

// A page that has to be trapped, and whether a mapping since then is.
struct Need {
  u8 *page;
  void (*fill)(u8 *page);
  const u8 *instead;
  bool mapped = false;
};

enum class State : u32 { none, starting, works, refused };

struct Traps {
  std::atomic<State> state{State::none};
  void (*sprung)() = nullptr;
  u8 *call = nullptr;  // the page that calls the thread
  std::vector<Mapping> mappings, fresh;
  std::vector<Need> needs;
  bool complete = true;  // nothing that is needed remains to be found
  u64 find_at_ns = 0, find_after_ns = 0;
};
Traps &traps() {
  static auto &t = *new Traps;
  return t;
}
// Whether every need is mapped, or the page that is mapped instead of it.
bool all_mapped(const std::vector<Need> &needs) {
  const auto mapped = [&](const u8 *page) {
    return std::any_of(needs.begin(), needs.end(),
                       [&](const Need &n) { return n.page == page && n.mapped; });
  };
  return std::all_of(needs.begin(), needs.end(),
                     [&](const Need &n) { return n.mapped || mapped(n.instead); });
}

// The page is to be in the file before it is put into a mapping: only such a
// page can be.
void touch(const u8 *page) { (void)__atomic_load_n(page, __ATOMIC_RELAXED); }

// How often mappings are looked for that are not there.
constexpr u64 shortest_retry_ns = 1'000'000, longest_retry_ns = 1'000'000'000;

class Thread {
 public:
  // 0 or errno.
  int begin() {
    // Tried first where a failure costs nothing: what does not know the one
    // call may misunderstand the other.
    const int probe = create();
    if (probe < 0) return errno;
    syscall(SYS_close, probe);
    if (syscall(SYS_close_range, 0u, ~0u, close_range_unshare) != 0) return errno;
    fd_ = create();
    if (fd_ < 0) return errno;
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_MINOR_SHMEM;
    if (control(UFFDIO_API, &api) != 0) return errno;
    return watch(traps().call, UFFDIO_REGISTER_MODE_MISSING);
  }

  void run() {
    for (;;) {
      uffd_msg m;
      const ssize_t n = syscall(SYS_read, fd_, &m, sizeof m);
      if (n < 0 && errno == EINTR) continue;
      if (n != sizeof m) return refuse("read");
      if (m.event == UFFD_EVENT_PAGEFAULT) fault(page_at(m.arg.pagefault.address));
    }
  }

 private:
  static int create() {
    return static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  }
  int control(unsigned long request, void *argument) const {
    return static_cast<int>(syscall(SYS_ioctl, fd_, request, argument));
  }
  int watch(u8 *address, u64 mode) const {
    uffdio_register r{};
    r.range = {number(address), page_size};
    r.mode = mode;
    return control(UFFDIO_REGISTER, &r) == 0 ? 0 : errno;
  }
  // Whatever is behind the address is the kernel's to find from now on.
  void let_go(u8 *address) const {
    uffdio_range range{number(address), page_size};
    control(UFFDIO_UNREGISTER, &range);
  }
  static void refuse(const char *what) {
    SOFTHCA_LOG(debug, "userfaultfd: %s: %s", what, strerror(errno));
    traps().state.store(State::refused);
  }

  void fault(u8 *address) {
    const std::lock_guard lock(process().mutex);
    Traps &t = traps();
    if (address == t.call) {
      called();
      uffdio_zeropage zero{};
      zero.range = {number(address), page_size};
      if (control(UFFDIO_ZEROPAGE, &zero) != 0) let_go(address);
      return;
    }
    const auto m = std::find_if(t.mappings.begin(), t.mappings.end(),
                                [&](const Mapping &x) { return x.address == address; });
    if (m == t.mappings.end()) return let_go(address);
    touch(m->page);
    t.sprung();
    m->trapped = false;
    uffdio_continue go_on{};
    go_on.range = {number(address), page_size};
    if (control(UFFDIO_CONTINUE, &go_on) != 0 && errno != EEXIST) {
      refuse("continue");
      let_go(address);
    }
  }

  void called() {
    Traps &t = traps();
    for (const Mapping &m : t.fresh) {
      if (watch(m.address, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR) != 0) {
        SOFTHCA_LOG(debug, "userfaultfd: page %p: %s", static_cast<void *>(m.address),
                    strerror(errno));
        continue;
      }
      std::erase_if(t.mappings, [&](const Mapping &x) { return x.address == m.address; });
      t.mappings.push_back(m);
      for (Need &n : t.needs) n.mapped |= n.page == m.page;
    }
    t.fresh.clear();
    t.complete = all_mapped(t.needs);
  }

  int fd_ = -1;
};

void *thread_main(void *) {
  pthread_setname_np(pthread_self(), "softhca-traps");
  if (config().raise_priority) raise_priority();
  InsideDevice inside;
  Thread thread;
  const int error = thread.begin();
  if (error != 0)
    SOFTHCA_LOG(debug, "userfaultfd unavailable (%s): polling doorbells instead", strerror(error));
  Traps &t = traps();
  t.state.store(error == 0 ? State::works : State::refused);
  t.state.notify_all();
  if (error == 0) thread.run();
  return nullptr;
}

}  // namespace

void traps_start(void (*sprung)()) {
  Traps &t = traps();
  if (t.state.load() != State::none) return;
  void *call =
      calls::mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (call == MAP_FAILED) return;
  t.call = static_cast<u8 *>(call);
  t.sprung = sprung;
  t.state.store(State::starting);
  if (start_thread(thread_main, nullptr) != 0) t.state.store(State::refused);
  t.state.wait(State::starting);
}

void traps_forget() {
  Traps &t = traps();
  t.state.store(State::none);
  t.mappings.clear();
  t.fresh.clear();
  t.needs.clear();
}

void traps_unmapped(const u8 *pages, size_t length) {
  Traps &t = traps();
  for (auto *list : {&t.mappings, &t.fresh})
    std::erase_if(*list,
                  [&](const Mapping &m) { return m.page >= pages && m.page < pages + length; });
}

void traps_need(u8 *page, void (*fill)(u8 *), const u8 *instead) {
  traps().needs.push_back({page, fill, instead});
  traps_look_again();
}

void traps_need_not(const u8 *page) {
  auto &needs = traps().needs;
  const auto it =
      std::find_if(needs.begin(), needs.end(), [&](const Need &n) { return n.page == page; });
  if (it != needs.end()) needs.erase(it);
  traps().complete = all_mapped(needs);
}

void traps_look_again() {
  Traps &t = traps();
  for (Need &n : t.needs) n.mapped = false;
  t.complete = t.needs.empty();
  t.find_at_ns = t.find_after_ns = 0;
}

bool traps_arm() {
  Traps &t = traps();
  if (t.state.load() != State::works || !t.complete) return false;
  for (const Need &n : t.needs) {
    bool touched = false;
    for (const Mapping &m : t.mappings) touched |= m.page == n.page && !m.trapped;
    if (!touched) continue;
    // Through the file, not the mapping: an address may be something else's by now.
    if (calls::madvise(n.page, page_size, MADV_REMOVE) != 0) return false;
    n.fill(n.page);
    for (Mapping &m : t.mappings) m.trapped |= m.page == n.page;
  }
  return true;
}

void traps_find(u64 now_ns) {
  Traps &t = traps();
  const auto due = [&] {
    return t.state.load() == State::works && !t.complete && now_ns >= t.find_at_ns;
  };
  {
    const std::lock_guard lock(process().mutex);
    if (!due()) return;
  }
  const std::vector<MapLine> lines = own_maps();
  {
    const std::lock_guard lock(process().mutex);
    if (!due()) return;
    // What is not mapped yet will be in a moment, or never.
    t.find_after_ns = std::clamp<u64>(t.find_after_ns * 2, shortest_retry_ns, longest_retry_ns);
    t.find_at_ns = now_ns + t.find_after_ns;
    for (const Need &n : t.needs) find_mappings(lines, n.page, t.fresh);
    if (t.fresh.empty()) return;
  }
  calls::madvise(t.call, page_size, MADV_DONTNEED);
  touch(t.call);
}

}  // namespace softhca
