// What counts against RLIMIT_MEMLOCK, where the configuration says that it holds. As ib_umem_get()
// in drivers/infiniband/core/umem.c: EPERM when nothing may be locked, ENOMEM beyond the limit,
// and pages that cannot be brought in are given back.
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "catch.h"
#include "owned.h"

namespace {

// Below what old systems let anyone lock: 64 KiB.
constexpr size_t page = 4096, most = 8 * page;

// This thread without the right to lock what it likes, and with a limit, as long as it lives.
class Limited {
 public:
  Limited() {
    REQUIRE(syscall(SYS_capget, &header_, before_) == 0);
    __user_cap_data_struct now[_LINUX_CAPABILITY_U32S_3] = {before_[0], before_[1]};
    now[0].effective &= ~(1u << CAP_IPC_LOCK);
    REQUIRE(syscall(SYS_capset, &header_, now) == 0);
    REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit_) == 0);
    set(most);
  }
  ~Limited() {
    setrlimit(RLIMIT_MEMLOCK, &limit_);
    syscall(SYS_capset, &header_, before_);
  }
  Limited(const Limited &) = delete;
  Limited &operator=(const Limited &) = delete;
  void set(size_t bytes) const {
    const rlimit now{bytes, limit_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &now) == 0);
  }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[_LINUX_CAPABILITY_U32S_3] = {};
  rlimit limit_{};
};

using Mr = Owned<ibv_mr, ibv_dereg_mr>;

struct Unmap {
  void operator()(void *memory) const { munmap(memory, most); }
};
std::unique_ptr<void, Unmap> map(int protection) {
  void *memory = mmap(nullptr, most, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return std::unique_ptr<void, Unmap>(memory);
}

}  // namespace

TEST_CASE("What is registered counts until it is not, and what cannot be does not count") {
  ibv_device **list = ibv_get_device_list(nullptr);
  REQUIRE((list != nullptr && list[0] != nullptr));
  const Owned<ibv_context, ibv_close_device> context(ibv_open_device(list[0]));
  ibv_free_device_list(list);
  REQUIRE(context);
  const Owned<ibv_pd, ibv_dealloc_pd> pd(ibv_alloc_pd(context.get()));
  REQUIRE(pd);
  const auto memory = map(PROT_READ | PROT_WRITE), none = map(PROT_NONE);
  const auto add = [&](void *at, size_t bytes) {
    errno = 0;
    return Mr(ibv_reg_mr(pd.get(), at, bytes, IBV_ACCESS_LOCAL_WRITE));
  };

  const Limited limited;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(add(none.get(), most));
    CHECK(errno == EFAULT);
  }
  Mr whole = add(memory.get(), most);
  CHECK(whole);
  CHECK_FALSE(add(memory.get(), page));
  CHECK(errno == ENOMEM);
  whole.reset();
  CHECK(add(memory.get(), page));
  CHECK_FALSE(add(memory.get(), most + 1));
  CHECK(errno == ENOMEM);
  limited.set(0);
  CHECK_FALSE(add(memory.get(), page));
  CHECK(errno == EPERM);
}
