// Several devices, several contexts of one, imported and forked ones: each has a
// table and a state of its own.
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>

#include "rig.h"

namespace {

// rdma-core's own function is static and in no header.
int close_domain(ibv_xrcd *domain) { return ibv_close_xrcd(domain); }
using Domain = Owned<ibv_xrcd, close_domain>;

std::vector<Context> open_all(int times = 1) {
  std::vector<Context> all;
  int count = 0;
  ibv_device **list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  for (int t = 0; t < times; ++t)
    for (int i = 0; i < count; ++i) all.emplace_back(ibv_open_device(list[i]));
  ibv_free_device_list(list);
  for (const Context &context : all) REQUIRE(context);
  return all;
}

ibv_exp_device_attr query(ibv_context *context) {
  ibv_exp_device_attr attr{};
  CHECK(ibv_exp_query_device(context, &attr) == 0);
  return attr;
}

ibv_exp_qp_init_attr request(ibv_pd *pd, ibv_cq *cq) {
  ibv_exp_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd;
  return attr;
}

// Ends a child of fork() with status 0 if all went well, without running the parent's
// destructors.
[[noreturn]] void leave(bool good) { _exit(good ? 0 : 1); }

bool child_succeeded(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("every context of every device has its own table [row:verbs_get_exp_ctx]") {
  const auto all = open_all(3);
  CHECK(all.size() >= 6);
  std::set<const void *> tables, devices;
  for (const Context &context : all) {
    tables.insert(verbs_get_exp_ctx(context.get()));
    devices.insert(context->device);
    ibv_device_attr base{};
    REQUIRE(ibv_query_device(context.get(), &base) == 0);
    const auto attr = query(context.get());
    CHECK(attr.node_guid == base.node_guid);
    CHECK(attr.vendor_part_id == base.vendor_part_id);
  }
  CHECK(tables.count(nullptr) == 0);
  CHECK(tables.size() == all.size());
  CHECK(devices.size() >= 2);
}

// The same number may mean a queue pair of each device.
TEST_CASE("settings and objects of devices do not mix [row:ibv_exp_create_qp]") {
  const auto all = open_all();
  std::vector<Pd> pds;
  std::vector<Cq> cqs;
  std::vector<Qp> qps;
  for (const Context &context : all) {
    ibv_exp_cq_init_attr attr{};
    pds.emplace_back(ibv_alloc_pd(context.get()));
    cqs.emplace_back(ibv_exp_create_cq(context.get(), 16, nullptr, nullptr, 0, &attr));
    auto wanted = request(pds.back().get(), cqs.back().get());
    qps.emplace_back(ibv_exp_create_qp(context.get(), &wanted));
    REQUIRE(qps.back());
    CHECK(qps.back()->context == context.get());
  }
  auto mixed = request(pds[0].get(), cqs[1].get());
  errno = 0;
  CHECK(ibv_exp_create_qp(all[0].get(), &mixed) == nullptr);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(ibv_exp_create_qp(all[1].get(), &mixed) == nullptr);
  CHECK(errno == EINVAL);
}

// As in ib_uverbs_open_xrcd: each device has its own tree of files.
TEST_CASE("a file stands for an XRC domain of one device") {
  const auto all = open_all(2);
  const std::size_t devices = all.size() / 2;
  REQUIRE(devices >= 2);
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::tmpfile(), std::fclose);
  REQUIRE(file);
  const auto open = [&](std::size_t context, int flags) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fileno(file.get());
    attr.oflags = flags;
    errno = 0;
    return Domain(ibv_open_xrcd(all[context].get(), &attr));
  };
  const Domain made = open(0, O_CREAT);
  REQUIRE(made);
  CHECK_FALSE(open(1, 0));
  CHECK(errno == EAGAIN);
  CHECK(open(devices, 0));  // the first device again
  CHECK(open(1, O_CREAT | O_EXCL));
}

TEST_CASE("an imported context carries the table [row:verbs_get_exp_ctx]", "[rdma-core-31]") {
  const auto all = open_all();
  const int fd = dup(all[0]->cmd_fd);
  REQUIRE(fd >= 0);
  // By name: the program starts with older releases, too.
  const auto import =
      reinterpret_cast<decltype(&ibv_import_device)>(dlsym(RTLD_DEFAULT, "ibv_import_device"));
  REQUIRE(import != nullptr);
  Context imported(import(fd));
  REQUIRE(imported);
  CHECK(imported.get() != all[0].get());
  REQUIRE(verbs_get_exp_ctx(imported.get()) != nullptr);
  CHECK(verbs_get_exp_ctx(imported.get()) != verbs_get_exp_ctx(all[0].get()));
  CHECK(query(imported.get()).node_guid == query(all[0].get()).node_guid);
  const Pd pd(ibv_alloc_pd(imported.get()));
  ibv_exp_cq_init_attr attr{};
  const Cq cq(ibv_exp_create_cq(imported.get(), 16, nullptr, nullptr, 0, &attr));
  auto wanted = request(pd.get(), cq.get());
  const Qp qp(ibv_exp_create_qp(imported.get(), &wanted));
  CHECK(qp);
}

TEST_CASE("a context that mlx5dv opens carries the table [row:verbs_get_exp_ctx]") {
  ibv_device **list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  mlx5dv_context_attr dv{};
  dv.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  const Context by_dv(mlx5dv_open_device(list[0], &dv));
  ibv_free_device_list(list);
  REQUIRE(by_dv);
  CHECK(verbs_get_exp_ctx(by_dv.get()) != nullptr);
  CHECK(query(by_dv.get()).max_qp > 0);
}

TEST_CASE("a closed context leaves nothing to its successor [row:verbs_get_exp_ctx]") {
  std::set<const void *> seen;
  int again = 0;
  for (int i = 0; i < 30; ++i) {
    auto all = open_all();
    if (!seen.insert(all[0].get()).second) ++again;
    CHECK(ibv_exp_setenv(all[0].get(), "A", "1", 0) == 0);
    const Pd pd(ibv_alloc_pd(all[0].get()));
    ibv_exp_cq_init_attr attr{};
    const Cq cq(ibv_exp_create_cq(all[0].get(), 16, nullptr, nullptr, 0, &attr));
    auto wanted = request(pd.get(), cq.get());
    const Qp qp(ibv_exp_create_qp(all[0].get(), &wanted));
    CHECK(qp);
  }
#ifndef __SANITIZE_ADDRESS__  // keeps addresses from being given again
  CHECK(again > 0);           // or the test shows nothing
#endif
}

TEST_CASE("a child finds no lock of the library taken [row:ibv_exp_setenv]") {
  const auto mine = open_all();
  ibv_context *context = mine[0].get();
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  const auto set = [&] {
    while (!stop)
      if (ibv_exp_setenv(context, "A", "1", 1) != 0) ++failures;
  };
  std::thread one(set), two(set), domains([&] {
    while (!stop) {
      ibv_exp_res_domain_init_attr attr{};
      ibv_exp_res_domain *domain = ibv_exp_create_res_domain(context, &attr);
      ibv_exp_destroy_res_domain_attr none{};
      if (domain == nullptr || ibv_exp_destroy_res_domain(context, domain, &none) != 0) ++failures;
    }
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      leave(ibv_exp_setenv(context, "A", "2", 1) == 0);
    }
    CHECK(child_succeeded(child));
  }
  stop = true;
  for (std::thread *thread : {&one, &two, &domains}) thread->join();
  CHECK(failures == 0);
}

TEST_CASE("children open contexts of their own, whatever the parent's threads do") {
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::thread busy([&] {
    while (!stop) {
      ibv_device **list = ibv_get_device_list(nullptr);
      ibv_context *context = list != nullptr ? ibv_open_device(list[0]) : nullptr;
      if (list != nullptr) ibv_free_device_list(list);
      ibv_exp_device_attr attr{};
      if (context == nullptr || ibv_exp_query_device(context, &attr) != 0) ++failures;
      if (context != nullptr && ibv_close_device(context) != 0) ++failures;
    }
  });
  const auto mine = open_all();
  // This library cannot help a thread that forks while others hold locks of libibverbs:
  // children here use inherited objects only.
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      leave(ibv_exp_setenv(mine[0].get(), "A", "1", 1) == 0 &&
            verbs_get_exp_ctx(mine[0].get()) != nullptr);
    }
    CHECK(child_succeeded(child));
  }
  stop = true;
  busy.join();
  CHECK(failures == 0);

  const pid_t child = fork();
  if (child == 0) {
    ibv_device **list = ibv_get_device_list(nullptr);
    ibv_context *own = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    ibv_exp_device_attr attr{};
    leave(own != nullptr && ibv_exp_query_device(own, &attr) == 0 && attr.max_qp > 0 &&
          ibv_close_device(own) == 0);
  }
  CHECK(child_succeeded(child));
  CHECK(query(mine[0].get()).max_qp > 0);
}
