// Access to application memory: every way of it must copy what is there,
// refuse what is not, and never raise a signal.
#include "model/memory.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <thread>

#include "catch.h"
#include "skip.h"

using namespace softhca;

namespace {

constexpr u64 page = page_size;

// `pages` of anonymous memory between two pages without access.
class Region {
 public:
  explicit Region(u64 pages, int protection = PROT_READ | PROT_WRITE) : pages_(pages) {
    base_ = static_cast<u8 *>(
        mmap(nullptr, (pages + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(data(), pages * page, PROT_READ | PROT_WRITE);
    for (u64 i = 0; i < pages * page; ++i) data()[i] = static_cast<u8>(i * 7 + i / 256);
    mprotect(data(), pages * page, protection);
  }
  ~Region() { munmap(base_, (pages_ + 2) * page); }
  Region(const Region &) = delete;
  u8 *data() const { return base_ + page; }
  u64 at(u64 offset = 0) const { return reinterpret_cast<u64>(data()) + offset; }
  u64 size() const { return pages_ * page; }

 private:
  u8 *base_;
  u64 pages_;
};

struct Access {
  explicit Access(MemoryAccess a) { force_memory_access(a); }
  ~Access() { force_memory_access(MemoryAccess::process_vm); }
};

MemoryAccess each_way() {
  return GENERATE(MemoryAccess::process_vm, MemoryAccess::pipe, MemoryAccess::plain);
}

template <class F>
int in_child(F &&body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int s = 0;
  waitpid(pid, &s, 0);
  return WIFEXITED(s) ? WEXITSTATUS(s) : 256 + WTERMSIG(s);
}

// Answers `calls` with `error`, as a container's seccomp profile does.
bool deny(std::initializer_list<int> calls, int error) {
  std::vector<sock_filter> f;
  f.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (int nr : calls) {
    f.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<u32>(nr), 0, 1));
    f.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<u32>(error)));
  }
  f.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(f.size()), f.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool round_trip() {
  Region r(40);
  std::vector<u8> copy(r.size() - 100);
  if (!read_application(r.at(50), copy.data(), copy.size())) return false;
  if (std::memcmp(copy.data(), r.data() + 50, copy.size()) != 0) return false;
  for (u8 &b : copy) b = static_cast<u8>(~b);
  if (!write_application(r.at(50), copy.data(), copy.size())) return false;
  if (std::memcmp(copy.data(), r.data() + 50, copy.size()) != 0) return false;
  u8 byte;
  return !read_application(r.at(r.size()), &byte, 1) && !write_application(8, &byte, 1);
}

}  // namespace

TEST_CASE("application memory is copied both ways", "[memory]") {
  const Access a(each_way());
  CHECK(round_trip());
}

TEST_CASE("faults are refusals", "[memory]") {
  const Access a(each_way());
  Region r(3), fixed(1, PROT_READ), hidden(1, PROT_NONE);
  u8 buffer[3 * page + 16] = {};
  const auto both = [&](u64 address, u64 length) {
    return std::pair(read_application(address, buffer, length),
                     write_application(address, buffer, length));
  };
  const std::pair yes(true, true), no(false, false), read_only(true, false);
  CHECK(both(r.at(), r.size()) == yes);
  CHECK(both(r.at(r.size()), 1) == no);
  CHECK(both(r.at(r.size() - 1), 2) == no);  // starts well, ends badly
  CHECK(both(r.at() - 1, 2) == no);
  CHECK(both(0, 1) == no);
  CHECK(both(~u64{0} - 10, 11) == no);
  CHECK(both(~u64{0} - 10, 12) == no);    // wraps to 0
  CHECK(both(~u64{0} - 10, 4096) == no);  // wraps around
  CHECK(both(u64{1} << 63, 8) == no);     // not canonical
  CHECK(both(fixed.at(100), 50) == read_only);
  CHECK(both(hidden.at(100), 50) == no);
  CHECK(both(0, 0) == yes);  // nothing is asked for
  CHECK(both(hidden.at(), 0) == yes);
  munmap(r.data() + page, page);  // a hole
  CHECK(both(r.at(), r.size()) == no);
  CHECK(both(r.at(), page) == yes);
  CHECK(both(r.at(2 * page), page) == yes);
}

TEST_CASE("after a fault the next copy is clean", "[memory]") {
  const Access a(each_way());
  Region r(20), fixed(1, PROT_READ);
  std::vector<u8> buffer(r.size());
  for (int i = 0; i < 50; ++i) {
    CHECK_FALSE(write_application(fixed.at(), buffer.data(), page));
    CHECK_FALSE(read_application(r.at(r.size() - 100), buffer.data(), 200));
    CHECK(round_trip());
  }
  for (u64 k = 0; k < page; ++k) REQUIRE(fixed.data()[k] == static_cast<u8>(k * 7 + k / 256));
}

TEST_CASE("a file shrunk under its mapping is a refusal", "[memory]") {
  const Access a(each_way());
  char path[] = "/tmp/softhca-test-XXXXXX";
  const int fd = mkstemp(path);
  unlink(path);
  REQUIRE(ftruncate(fd, 2 * page) == 0);
  void *p = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(ftruncate(fd, page) == 0);
  const u64 at = reinterpret_cast<u64>(p);
  u8 buffer[2 * page] = {};
  CHECK(read_application(at, buffer, page));
  CHECK_FALSE(read_application(at, buffer, 2 * page));
  CHECK_FALSE(write_application(at + page, buffer, 1));
  CHECK(probe(at, 2 * page, false) == EFAULT);
  munmap(p, 2 * page);
  close(fd);
}

TEST_CASE("span lists are walked from any offset", "[memory]") {
  const Access a(each_way());
  Region r(4);
  u8 own[300];
  for (u32 i = 0; i < sizeof own; ++i) own[i] = static_cast<u8>(200 + i);
  const SpanList spans = {
      {r.at(10), 100},           {r.at(500), 0},
      {0, 50, Span::Kind::null}, {reinterpret_cast<u64>(own), 300, Span::Kind::direct},
      {r.at(4000), 1000},        {r.at(0), 1}};
  std::vector<u8> flat;
  for (const Span &s : spans)
    for (u64 i = 0; i < s.length; ++i)
      flat.push_back(s.kind == Span::Kind::null ? u8{0} : reinterpret_cast<u8 *>(s.address)[i]);
  REQUIRE(total_length(spans) == flat.size());
  std::vector<u8> got(flat.size() + 1);
  for (u64 offset = 0; offset <= flat.size(); offset += 7)
    for (u64 length : {u64{0}, u64{1}, u64{60}, u64{333}, flat.size() - offset}) {
      if (offset + length > flat.size()) continue;
      REQUIRE(read_spans(spans, offset, got.data(), length));
      REQUIRE(std::equal(got.begin(), got.begin() + static_cast<long>(length),
                         flat.begin() + static_cast<long>(offset)));
    }
  CHECK_FALSE(read_spans(spans, 0, got.data(), flat.size() + 1));
  CHECK_FALSE(read_spans(spans, flat.size(), got.data(), 1));
  CHECK_FALSE(read_spans(spans, ~u64{0}, got.data(), 1));

  std::vector<u8> fresh(flat.size());
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i] = static_cast<u8>(i * 13);
  REQUIRE(write_spans(spans, 0, fresh.data(), fresh.size()));
  CHECK(std::memcmp(r.data() + 10, fresh.data(), 100) == 0);
  CHECK(std::memcmp(own, fresh.data() + 150, 300) == 0);
  CHECK(std::memcmp(r.data() + 4000, fresh.data() + 450, 1000) == 0);
  CHECK(r.data()[0] == fresh[1450]);
  CHECK(r.data()[110] == static_cast<u8>(110 * 7));
}

TEST_CASE("more pieces than one system call takes", "[memory]") {
  const Access a(each_way());
  Region r(16);
  SpanList spans;
  for (u64 i = 0; i < 3 * IOV_MAX; ++i) spans.push_back({r.at(i * 16 + i % 3), i % 5});
  std::vector<u8> flat, got(total_length(spans));
  for (const Span &s : spans)
    flat.insert(flat.end(), reinterpret_cast<u8 *>(s.address),
                reinterpret_cast<u8 *>(s.address) + s.length);
  REQUIRE(read_spans(spans, 0, got.data(), got.size()));
  CHECK(got == flat);
  spans[2 * IOV_MAX] = {r.at(r.size()), 5};
  CHECK_FALSE(read_spans(spans, 0, got.data(), total_length(spans)));
  spans[2 * IOV_MAX] = {~u64{0} - 1, 5};
  CHECK_FALSE(read_spans(spans, 0, got.data(), total_length(spans)));
}

TEST_CASE("large copies", "[memory]") {
  const Access a(each_way());
  constexpr u64 size = 96 << 20;
  Region r(size / page);
  std::vector<u8> copy(size);
  REQUIRE(read_application(r.at(), copy.data(), size));
  CHECK(std::memcmp(copy.data(), r.data(), size) == 0);
  copy[size - 1] ^= 1;
  REQUIRE(write_application(r.at(), copy.data(), size));
  CHECK(r.data()[size - 1] == copy[size - 1]);
}

TEST_CASE("a forked child sees its own memory", "[memory]") {
  const Access a(each_way());
  Region r(1);
  REQUIRE(write_application(r.at(), "parent", 6));  // the parent's pipe exists
  CHECK(in_child([&] {
          char seen[6];
          if (!write_application(r.at(), "child!", 6) || !read_application(r.at(), seen, 6))
            return 1;
          return std::memcmp(seen, "child!", 6) == 0 && round_trip() ? 0 : 2;
        }) == 0);
  CHECK(std::memcmp(r.data(), "parent", 6) == 0);
  CHECK(round_trip());
}

TEST_CASE("copies work without privileges", "[memory]") {
  SKIP_IF(geteuid() != 0, "without privileges every other test shows it");
  CHECK(in_child([] {
          if (setgid(65534) != 0 || setuid(65534) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) return 1;
          if (!round_trip() || memory_access() != MemoryAccess::process_vm) return 2;
          // An undumpable process may still reach itself.
          if (prctl(PR_SET_DUMPABLE, 0) != 0) return 3;
          return round_trip() ? 0 : 4;
        }) == 0);
}

TEST_CASE("what a sandbox denies is replaced", "[memory]") {
  const int error = GENERATE(EPERM, ENOSYS);
  CHECK(in_child([&] {
          if (!deny({SYS_process_vm_readv, SYS_process_vm_writev}, error)) return 1;
          if (!round_trip()) return 2;
          return memory_access() == MemoryAccess::pipe ? 0 : 3;
        }) == 0);
  CHECK(in_child([&] {
#ifdef SYS_pipe  // not on AArch64
          if (!deny({SYS_pipe}, error)) return 1;
#endif
          if (!deny({SYS_process_vm_readv, SYS_process_vm_writev, SYS_pipe2}, error)) return 1;
          const int quiet = open("/dev/null", O_WRONLY);
          dup2(quiet, 2);  // the announced error line
          if (!round_trip()) return 2;
          return memory_access() == MemoryAccess::plain ? 0 : 3;
        }) == 0);
}

TEST_CASE("the configuration can forbid process_vm", "[memory]") {
  set_memory_access(false);
  CHECK(memory_access() == MemoryAccess::pipe);
  CHECK(round_trip());
  set_memory_access(true);
  CHECK(memory_access() == MemoryAccess::process_vm);
}

TEST_CASE("the pipe survives a program that closes and reuses descriptors", "[memory]") {
  CHECK(in_child([] {
          force_memory_access(MemoryAccess::pipe);
          if (!round_trip()) return 1;
          for (int fd = 3; fd < 64; ++fd) close(fd);
          char path[] = "/tmp/softhca-test-XXXXXX";
          const int file = mkstemp(path);
          unlink(path);
          for (int i = 0; i < 60; ++i) (void)!dup(file);
          if (!round_trip()) return 2;
          return lseek(file, 0, SEEK_END) == 0 ? 0 : 3;  // nothing went into the file
        }) == 0);
}

TEST_CASE("threads copy at the same time", "[memory]") {
  const Access a(each_way());
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) good += round_trip();
    });
  for (auto &t : threads) t.join();
  CHECK(good == 80);
}

TEST_CASE("probe says what could be pinned", "[memory]") {
  const auto check = [] {
    Region r(4), fixed(2, PROT_READ), hidden(1, PROT_NONE);
    int wrong = 0;
    const auto expect = [&](int got, int want) { wrong += got != want; };
    expect(probe(r.at(), r.size(), true), 0);
    expect(probe(r.at(1), r.size() - 1, true), 0);
    expect(probe(r.at(page - 1), 2, true), 0);
    expect(probe(r.at(), r.size() + 1, false), EFAULT);
    expect(probe(r.at() - 1, 2, false), EFAULT);
    expect(probe(fixed.at(), fixed.size(), false), 0);
    expect(probe(fixed.at(), fixed.size(), true), EFAULT);
    expect(probe(hidden.at(), 1, false), EFAULT);
    expect(probe(hidden.at(), 0, true), 0);
    expect(probe(0, 1, false), EFAULT);
    expect(probe(~u64{0} - 5, 10, false), EINVAL);
    expect(probe(~u64{0} - 5, 3, false), EINVAL);
    expect(probe(u64{1} << 63, 8, false), EFAULT);
    munmap(r.data() + page, page);
    expect(probe(r.at(), r.size(), false), EFAULT);
    expect(probe(r.at(), page, true), 0);
    // Two mappings side by side are one range.
    mprotect(r.data() + 2 * page, page, PROT_READ);
    expect(probe(r.at(2 * page), 2 * page, false), 0);
    expect(probe(r.at(2 * page), 2 * page, true), EFAULT);
    return wrong;
  };
  SECTION("populating") { CHECK(check() == 0); }
  SECTION("on a kernel without MADV_POPULATE") {
    CHECK(in_child([&] { return deny({SYS_madvise}, EINVAL) ? check() : 99; }) == 0);
  }
}

TEST_CASE("probe populates", "[memory]") {
  void *p = mmap(nullptr, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned char present[8] = {};
  REQUIRE(probe(reinterpret_cast<u64>(p), 8 * page, true) == 0);
  REQUIRE(mincore(p, 8 * page, present) == 0);
  for (unsigned char c : present) CHECK((c & 1) == 1);
  munmap(p, 8 * page);
}
