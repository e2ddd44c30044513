// Regions shared by several processes: refused by default, with the switch a file with access rights.
#include <grp.h>
#include <skip.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "pair.h"

namespace {

bool served() { return switched_on("shared_mr"); }

// Through the table, as the headers up to 4.2 did; later ones answer by themselves.
ibv_mr *reg_shared([[maybe_unused]] ibv_context *context, ibv_exp_reg_shared_mr_in &in) {
#ifdef EXP_LIBRARY
  return ibv_exp_reg_shared_mr(&in);
#else
  return verbs_get_exp_ctx(context)->lib_exp_ibv_reg_shared_mr(&in);
#endif
}

constexpr std::size_t length = 10000;
constexpr std::uint64_t rights = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE;
constexpr std::uint64_t for_user =
    IBV_EXP_ACCESS_SHARED_MR_USER_READ | IBV_EXP_ACCESS_SHARED_MR_USER_WRITE;

ibv_mr *allocate(ibv_pd *pd, std::uint64_t sharing = for_user) {
  ibv_exp_reg_mr_in in{};
  in.pd = pd;
  in.length = length;
  in.exp_access = rights | sharing | IBV_EXP_ACCESS_ALLOCATE_MR;
  return ibv_exp_reg_mr(&in);
}

ibv_mr *attach(ibv_pd *pd, std::uint32_t handle, std::uint64_t access = rights) {
  ibv_exp_reg_shared_mr_in in{};
  in.mr_handle = handle;
  in.pd = pd;
  in.exp_access = access;
  errno = 0;
  return reg_shared(pd->context, in);
}

std::string file_of(const ibv_context *context, std::uint32_t handle) {
  return std::string("/dev/shm/libibverbs_exp-") + context->device->name + "-" +
         std::to_string(handle);
}
std::string file_of(const ibv_mr *mr) { return file_of(mr->context, mr->handle); }

// Number of the file of that name; 0: there is none.
ino_t number_of(const std::string &file) {
  struct stat facts {};
  return stat(file.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

// Another process of the machine may have taken the handle meanwhile, with a file of its own.
void expect_gone(ibv_pd *pd, std::uint32_t handle, ino_t former) {
  const Mr mr(attach(pd, handle));
  if (!mr) CHECK(errno == EINVAL);
  else CHECK(number_of(file_of(pd->context, handle)) != former);
}

// Another process, and a way to tell each other a number.
struct OtherProcess {
  int to[2], from[2];
  pid_t pid;

  explicit OtherProcess(const std::function<void(OtherProcess &)> &does) {
    REQUIRE(pipe(to) == 0);
    REQUIRE(pipe(from) == 0);
    pid = fork();
    REQUIRE(pid >= 0);
    if (pid != 0) return;
    std::swap(to, from);
    try {
      does(*this);
    } catch (...) {
    }
    _exit(1);
  }
  ~OtherProcess() {
    if (pid > 0) kill_it();
    for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
  }
  void kill_it() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = 0;
  }
  void tell(std::uint32_t number) const {
    if (write(to[1], &number, sizeof(number)) != sizeof(number)) _exit(2);
  }
  std::uint32_t hear() const {
    std::uint32_t number = ~0u;
    return read(from[0], &number, sizeof(number)) == sizeof(number) ? number : ~0u;
  }
};

}  // namespace

TEST_CASE(
    "regions are shared on request only [row:ibv_exp_reg_shared_mr] "
    "[row:IBV_EXP_DEVICE_SHARED_MR] [row:IBV_EXP_ACCESS_SHARED_MR_USER_READ]") {
  Rig rig;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &device) == 0);
  CHECK(((device.exp_device_cap_flags & IBV_EXP_DEVICE_SHARED_MR) != 0) == served());
  const Mr mr(allocate(rig.pd.get()));
  if (!served()) {
    CHECK(!mr);
    CHECK(errno == ENOTSUP);
    CHECK(attach(rig.pd.get(), 1) == nullptr);
    CHECK(errno == ENOTSUP);
    return;
  }
  REQUIRE(mr);
  CHECK(mr->length == length);

  // The region's own process may attach as well: the same bytes at two addresses.
  const Mr again(attach(rig.pd.get(), mr->handle));
  REQUIRE(again);
  CHECK(again->addr != mr->addr);
  CHECK(again->length == length);
  static_cast<char *>(mr->addr)[length - 1] = 'x';
  CHECK(static_cast<char *>(again->addr)[length - 1] == 'x');

  CHECK(attach(rig.pd.get(), mr->handle + 7777) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(attach(rig.pd.get(), mr->handle, rights | for_user) == nullptr);
  CHECK(errno == EINVAL);
  ibv_exp_reg_mr_in own{};
  alignas(4096) char memory[4096];  // so that only whose it is speaks against it
  own.pd = rig.pd.get();
  own.addr = memory;
  own.length = sizeof(memory);
  own.exp_access = rights | for_user;
  CHECK(ibv_exp_reg_mr(&own) == nullptr);
  CHECK(errno == EINVAL);
}

// Only where ibv_dereg_mr() and ibv_close_device() come through the library.
TEST_CASE(
    "two processes share a region, and the device writes to both [row:ibv_exp_reg_shared_mr] "
    "[row:IBV_EXP_ACCESS_SHARED_MR_USER_WRITE]",
    "[engine]") {
  SKIP_IF(!served(), "regions are not shared");
  OtherProcess owner([](const OtherProcess &here) {
    const Context context = open_first();
    const Pd pd(ibv_alloc_pd(context.get()));
    ibv_mr *const mr = allocate(pd.get());
    if (mr == nullptr) return;
    here.tell(mr->handle);
    here.hear();
    here.tell(static_cast<std::uint8_t *>(mr->addr)[5000]);
    here.hear();
    here.tell(static_cast<std::uint32_t>(ibv_dereg_mr(mr)));
    here.hear();
  });
  const std::uint32_t handle = owner.hear();
  REQUIRE(handle != ~0u);
  Pair p(IBV_QPT_RC);
  const Mr mr(attach(p.pd.get(), handle));
  REQUIRE(mr);
  auto piece = p.out.piece(0, 100);
  auto wr = p.write(1, &piece);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(mr->addr) + 5000;
  wr.wr.rdma.rkey = mr->rkey;
  p.post(wr);
  p.complete(1);
  owner.tell(0);
  CHECK(owner.hear() == p.out.bytes[0]);

  // Once the owner has deregistered it, attached regions stay, and new ones are refused.
  const ino_t former = number_of(file_of(p.context.get(), handle));
  CHECK(former != 0);
  owner.tell(0);
  CHECK(owner.hear() == 0);
  p.post(wr);
  p.complete(1);
  CHECK(number_of(file_of(p.context.get(), handle)) != former);
  expect_gone(p.pd.get(), handle, former);
}

TEST_CASE(
    "a region for the processor alone is shared without remote access "
    "[row:IBV_EXP_ACCESS_NO_RDMA]",
    "[engine]") {
  Pair p(IBV_QPT_RC);
  if (!served()) {
    CHECK(attach(p.pd.get(), 1, rights | IBV_EXP_ACCESS_NO_RDMA) == nullptr);
    CHECK(errno == ENOTSUP);
    return;
  }
  std::uint64_t sharing = for_user;
  if (GENERATE(false, true)) sharing |= IBV_EXP_ACCESS_NO_RDMA;
  const Mr owner(allocate(p.pd.get(), sharing));
  REQUIRE(owner);
  const Mr mr(attach(p.pd.get(), owner->handle, rights | IBV_EXP_ACCESS_NO_RDMA));
  REQUIRE(mr);
  auto *const here = static_cast<std::uint8_t *>(mr->addr);
  static_cast<std::uint8_t *>(owner->addr)[5000] = 7;
  CHECK(here[5000] == 7);
  auto piece = p.out.piece(0, 100);
  auto wr = p.write(1, &piece);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(here) + 5000;
  wr.wr.rdma.rkey = mr->rkey;
  p.post(wr);
  CHECK(p.completions(1)[0].status == IBV_WC_REM_ACCESS_ERR);
  CHECK(here[5000] == 7);
}

TEST_CASE("a process that dies leaves nothing to attach to [row:ibv_exp_reg_shared_mr]") {
  SKIP_IF(!served(), "regions are not shared");
  OtherProcess owner([](const OtherProcess &here) {
    const Context context = open_first();
    const Pd pd(ibv_alloc_pd(context.get()));
    if (const ibv_mr *mr = allocate(pd.get())) here.tell(mr->handle);
    here.hear();
  });
  const std::uint32_t handle = owner.hear();
  REQUIRE(handle != ~0u);
  Rig rig;
  const std::string file = file_of(rig.context.get(), handle);
  const ino_t former = number_of(file);
  CHECK(former != 0);
  owner.kill_it();
  expect_gone(rig.pd.get(), handle, former);
  // The next process that shares a region removes the file.
  const Mr fresh(allocate(rig.pd.get()));
  REQUIRE(fresh);
  CHECK(number_of(file) != former);
}

TEST_CASE(
    "a region that its context's end takes along is found no more [row:ibv_exp_reg_shared_mr]",
    "[engine]") {
  SKIP_IF(!served(), "regions are not shared");
  OtherProcess owner([](const OtherProcess &here) {
    ibv_context *const context = open_first().release();
    if (const ibv_mr *mr = allocate(ibv_alloc_pd(context))) here.tell(mr->handle);
    here.hear();
    here.tell(static_cast<std::uint32_t>(ibv_close_device(context)));
    here.hear();
  });
  const std::uint32_t handle = owner.hear();
  REQUIRE(handle != ~0u);
  Rig rig;
  const ino_t former = number_of(file_of(rig.context.get(), handle));
  CHECK(former != 0);
  owner.tell(0);
  CHECK(owner.hear() == 0);
  CHECK(number_of(file_of(rig.context.get(), handle)) != former);
  expect_gone(rig.pd.get(), handle, former);
}

TEST_CASE(
    "contexts that share regions have different numbers for them [row:ibv_exp_reg_shared_mr]") {
  SKIP_IF(!served(), "regions are not shared");
  Rig first, second, third;
  const Mr a(allocate(first.pd.get())), b(allocate(second.pd.get())), c(allocate(third.pd.get()));
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(c);
  CHECK(a->handle != b->handle);
  CHECK(a->handle != c->handle);
  CHECK(b->handle != c->handle);
  static_cast<char *>(c->addr)[length - 1] = 'c';
  const Mr again(attach(first.pd.get(), c->handle));
  REQUIRE(again);
  CHECK(static_cast<char *>(again->addr)[length - 1] == 'c');
}

// A write to a page that the file system cannot give would be SIGBUS.
TEST_CASE("memory to share is reserved [row:ibv_exp_reg_shared_mr]") {
  SKIP_IF(!served(), "regions are not shared");
  struct statvfs all {};
  REQUIRE(statvfs("/dev/shm", &all) == 0);
  SKIP_IF(all.f_blocks == 0, "/dev/shm has no limit");
  Rig rig;
  ibv_exp_reg_mr_in in{};
  in.pd = rig.pd.get();
  in.length = (all.f_blocks + 1) * all.f_frsize;
  in.exp_access = rights | for_user | IBV_EXP_ACCESS_ALLOCATE_MR;
  errno = 0;
  CHECK(ibv_exp_reg_mr(&in) == nullptr);
  CHECK(errno == ENOMEM);
}

TEST_CASE(
    "regions begin to be shared when they are registered only "
    "[row:IBV_EXP_ACCESS_SHARED_MR_USER_READ]",
    "[engine]") {
  Rig rig;
  Buffer own(rig.pd.get(), 4096);
  errno = 0;
  CHECK(ibv_exp_rereg_mr(own.mr.get(), IBV_EXP_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         rights | for_user, nullptr) != 0);
  CHECK(errno == ENOTSUP);
  ibv_exp_create_mr_in key{};
  key.pd = rig.pd.get();
  key.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  key.attr.max_klm_list_size = 4;
  key.attr.exp_access_flags = rights | for_user;
  errno = 0;
  CHECK(ibv_exp_create_mr(&key) == nullptr);
  CHECK(errno == ENOTSUP);

  SKIP_IF(!served(), "regions are not shared");
  const Mr shared(allocate(rig.pd.get()));
  REQUIRE(shared);
  const std::string file = file_of(shared.get());
  const ino_t former = number_of(file);
  CHECK(former != 0);
  CHECK(ibv_exp_rereg_mr(shared.get(), IBV_EXP_REREG_MR_CHANGE_TRANSLATION, nullptr,
                         own.bytes.data(), 4096, 0, nullptr) == 0);
  CHECK(number_of(file) != former);
}

TEST_CASE(
    "the bits say who may [row:IBV_EXP_ACCESS_SHARED_MR_GROUP_READ] "
    "[row:IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE] [row:IBV_EXP_ACCESS_SHARED_MR_OTHER_READ] "
    "[row:IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE]") {
  SKIP_IF(!served(), "regions are not shared");
  Rig rig;
  const auto mode = [&](std::uint64_t bits) {
    const Mr mr(allocate(rig.pd.get(), bits));
    REQUIRE(mr);
    struct stat facts {};
    REQUIRE(stat(file_of(mr.get()).c_str(), &facts) == 0);
    return facts.st_mode & 07777;
  };
  CHECK(mode(for_user) == 0600);
  CHECK(mode(IBV_EXP_ACCESS_SHARED_MR_GROUP_READ) == 0040);
  CHECK(mode(IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE) == 0020);
  CHECK(mode(IBV_EXP_ACCESS_SHARED_MR_OTHER_READ) == 0004);
  CHECK(mode(IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE) == 0002);

  SKIP_IF(getuid() != 0, "another user is needed to ask");
  const Mr own(allocate(rig.pd.get()));
  const Mr open(allocate(rig.pd.get(), for_user | IBV_EXP_ACCESS_SHARED_MR_OTHER_READ));
  REQUIRE(own);
  REQUIRE(open);
  OtherProcess stranger([](const OtherProcess &here) {
    const Context context = open_first();
    const Pd pd(ibv_alloc_pd(context.get()));
    const std::uint32_t closed = here.hear(), readable = here.hear();
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) return;
    here.tell(attach(pd.get(), closed) == nullptr ? static_cast<std::uint32_t>(errno) : 0);
    here.tell(attach(pd.get(), readable) == nullptr ? static_cast<std::uint32_t>(errno) : 0);
    here.tell(attach(pd.get(), readable, 0) != nullptr);
    here.hear();
  });
  stranger.tell(own->handle);
  stranger.tell(open->handle);
  CHECK(stranger.hear() == EACCES);
  CHECK(stranger.hear() == EACCES);
  CHECK(stranger.hear() == 1);
}
