// Fails every kernel command, or every allocation of the library and of rdma-core,
// that a scenario makes: once, each in its turn. The call that meets it says
// ENOMEM, loses nothing, and succeeds when it is made again.
//
//   PROGRAM commands|allocations
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs_exp.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

// Allocations. The functions of this program stand before those of libc for all
// libraries; who calls is seen by the return address.

extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);
void __libc_free(void *);
}

namespace {

struct Range {
  std::uintptr_t begin, end;
  bool holds(const void *address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at < end;
  }
};
Range ours{}, verbs{}, provider{};

// Counts down while armed; the allocation that meets 0 fails. While a device is opened
// only those of the library: libmlx5 copes with its own by opening it with fewer features.
long countdown = -1;
bool opening = false;
bool only_ours = false;
bool fired = false;
const void *failed_caller = nullptr;

// What the library holds.
constexpr std::size_t table_size = 1 << 16;
std::array<void *, table_size> held{};
long held_count = 0;

void **place_of(void *block) {
  std::size_t at = reinterpret_cast<std::uintptr_t>(block) >> 4;
  for (std::size_t i = 0; i < table_size; ++i, ++at)
    if (held[at % table_size] == block) return &held[at % table_size];
  return nullptr;
}

bool fails(const void *caller) {
  if (countdown < 0) return false;
  if ((only_ours || opening) && !ours.holds(caller)) return false;
  if (!ours.holds(caller) && !verbs.holds(caller) && !provider.holds(caller)) return false;
  if (countdown-- != 0) return false;
  fired = true;
  failed_caller = caller;
  errno = ENOMEM;
  return true;
}

void *note(void *block, const void *caller) {
  if (block == nullptr || !ours.holds(caller)) return block;
  std::size_t at = reinterpret_cast<std::uintptr_t>(block) >> 4;
  for (std::size_t i = 0; i < table_size; ++i, ++at) {
    void *&slot = held[at % table_size];
    if (slot != nullptr && slot != &held) continue;
    slot = block;
    ++held_count;
    break;
  }
  return block;
}

}  // namespace

extern "C" void *malloc(std::size_t size) {
  void *caller = __builtin_return_address(0);
  return fails(caller) ? nullptr : note(__libc_malloc(size), caller);
}
extern "C" void *calloc(std::size_t count, std::size_t size) {
  void *caller = __builtin_return_address(0);
  return fails(caller) ? nullptr : note(__libc_calloc(count, size), caller);
}
extern "C" void *realloc(void *block, std::size_t size) {
  return fails(__builtin_return_address(0)) ? nullptr : __libc_realloc(block, size);
}
extern "C" void *aligned_alloc(std::size_t alignment, std::size_t size) {
  void *caller = __builtin_return_address(0);
  return fails(caller) ? nullptr : note(__libc_memalign(alignment, size), caller);
}
extern "C" int posix_memalign(void **block, std::size_t alignment, std::size_t size) {
  if (fails(__builtin_return_address(0))) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block != nullptr ? 0 : ENOMEM;
}
extern "C" void free(void *block) {
  if (block != nullptr && held_count != 0) {
    if (void **slot = place_of(block); slot != nullptr) {
      *slot = &held;  // was in use: a search goes on behind it
      --held_count;
    }
  }
  __libc_free(block);
}

namespace {

void find_libraries() {
  dl_iterate_phdr(
      [](dl_phdr_info *info, std::size_t, void *) {
        const std::string path = info->dlpi_name, name = path.substr(path.rfind('/') + 1);
        Range *range = name.starts_with("libibverbs_exp.so") ? &ours
                       : name.starts_with("libibverbs.so")   ? &verbs
                       : name.starts_with("libmlx5")         ? &provider
                                                             : nullptr;
        for (int i = 0; range != nullptr && i < info->dlpi_phnum; ++i) {
          const auto &part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          range->begin = info->dlpi_addr + part.p_vaddr;
          range->end = range->begin + part.p_memsz;
        }
        return 0;
      },
      nullptr);
}

// One run through everything.

[[noreturn]] void give_up(const char *what, int error) {
  countdown = -1;
  Dl_info where{};
  if (failed_caller != nullptr) dladdr(failed_caller, &where);
  std::fprintf(stdout, "%s: errno %d", what, error);
  if (where.dli_fname != nullptr)
    std::fprintf(stdout, " (%s+%#tx, %s)", where.dli_fname,
                 static_cast<const char *>(failed_caller) - static_cast<char *>(where.dli_fbase),
                 where.dli_sname != nullptr ? where.dli_sname : "");
  std::fputc('\n', stdout);
  std::fflush(stdout);
  _exit(1);
}

// Makes a call until it succeeds: twice at most.
template <class Call>
void attempt(const char *what, Call call) {
  const int error = call();
  if (error == 0) return;
  if (error != ENOMEM) give_up(what, error);
  if (const int again = call(); again != 0) give_up((std::string(what) + ", again").c_str(), again);
}

template <class T, class Call>
T *make(const char *what, Call call) {
  T *made = nullptr;
  attempt(what, [&] {
    errno = 0;
    made = call();
    return made != nullptr ? 0 : errno != 0 ? errno : -1;
  });
  return made;
}

// libibverbs lists no device where it had no memory for one that netlink told of.
ibv_device **list_devices() {
  return make<ibv_device *>("ibv_get_device_list", [] {
    ibv_device **list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] != nullptr) return list;
    ibv_free_device_list(list);
    errno = ENOMEM;
    return static_cast<ibv_device **>(nullptr);
  });
}

// What libmlx5 meets before, it copes with in ways of its own: it opens a device
// with fewer features.
constexpr const char *opened = "device opened\n";

// A child per command, so that each meets its fault in a fresh process. True if
// there was one.
bool fail_command(void (*run)(), unsigned number) {
  char config[] = "/tmp/faults-XXXXXX", log[] = "/tmp/faults-log-XXXXXX";
  const int fd = mkstemp(config), said = mkstemp(log);
  dprintf(fd,
          "{\"faults\": [{\"kind\": \"command\", \"match\": \"*\", \"nth\": %u, "
          "\"error\": \"ENOMEM\"}]}",
          number);
  const pid_t child = fork();
  if (child == 0) {
    setenv("SOFTHCA_CONFIG", config, 1);
    setenv("SOFTHCA_LOG", "info", 1);
    dup2(said, STDERR_FILENO);
    run();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  char text[65536];
  const ssize_t size = pread(said, text, sizeof(text) - 1, 0);
  text[size > 0 ? size : 0] = '\0';
  unlink(config);
  unlink(log);
  close(fd);
  close(said);
  const char *fault = std::strstr(text, "fault: ");
  const char *open = std::strstr(text, opened);
  const bool late = fault == nullptr || (open != nullptr && open < fault);
  if (status != 0 && late) {
    std::printf("command %u: status 0x%x\n%s\n", number, static_cast<unsigned>(status), text);
    std::exit(1);
  }
  return fault != nullptr;
}

int fail_commands(void (*run)()) {
  unsigned number = 1;
  while (fail_command(run, number)) ++number;
  std::printf("%u commands failed in turn\n", number - 1);
  return number > 50 ? 0 : 1;
}

int fail_allocations(void (*run)()) {
  run();  // what is allocated once
  run();
  const long before = held_count;
  long number = 0;
  for (;; ++number) {
    fired = false;
    countdown = number;
    run();
    countdown = -1;
    if (!fired) break;
    if (held_count != before) {
      std::printf("allocation %ld: %ld blocks held, %ld before\n", number, held_count, before);
      return 1;
    }
  }
  std::printf("%ld allocations failed in turn\n", number);
  // Release 28 of rdma-core, which lacks this function, makes 36 and more.
  const bool old = dlvsym(RTLD_DEFAULT, "mlx5dv_pp_alloc", "MLX5_1.13") == nullptr;
  return number > (old ? 30 : 50) ? 0 : 1;
}

// run(): creates, uses and destroys, through attempt() and make().
int fault_main(int argc, char **argv, void (*run)()) {
  const char *mode = argc > 1 ? argv[1] : "";
  find_libraries();
  if (std::strcmp(mode, "commands") == 0) return fail_commands(run);
  if (std::strcmp(mode, "allocations") == 0) return fail_allocations(run);
  std::fprintf(stderr, "usage: %s commands|allocations\n", argv[0]);
  return 2;
}

}  // namespace
