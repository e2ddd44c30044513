// The inline door alone: what a legacy binary finds in front of a context.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "rig.h"
#include "table/compat.h"

namespace {

using namespace ibvexp;

void *word(const verbs_context_exp *table, std::size_t offset) {
  void *value;
  std::memcpy(&value, reinterpret_cast<const char *>(table) + offset, sizeof(value));
  return value;
}

void check_table(ibv_context *context) {
  const verbs_context_exp *table = verbs_get_exp_ctx(context);
  REQUIRE(table != nullptr);
  for (const Slot &slot : slots) {
    INFO(slot.name);
    if (slot.fill == Fill::function) CHECK(word(table, offset_of(slot)) != nullptr);
    if (slot.fill == Fill::null) CHECK(word(table, offset_of(slot)) == nullptr);
  }
  CHECK(table->sz == sizeof(*table));
}

}  // namespace

TEST_CASE(
    "no slot is null but those that have to be "
    "[rows:owner=ibv_exp_ah_attr_attr_comp_mask][rows:owner=ll_address_type]") {
  const Context context = open_first();
  check_table(context.get());
  // A second look finds the same table.
  CHECK(verbs_get_exp_ctx(context.get()) == verbs_get_exp_ctx(context.get()));
}

// Recorded from the headers of each release: size of its table, and each slot's
// distance from the end.
TEST_CASE("every release finds its slots") {
  const Context context = open_first();
  const verbs_context_exp *ours = verbs_get_exp_ctx(context.get());
  REQUIRE(ours != nullptr);
  nlohmann::json releases;
  std::ifstream(SLOTS_JSON) >> releases;
  std::size_t checked = 0;
  for (const auto &[release, table] : releases.items()) {
    if (!table.contains("slots")) continue;
    // As the header of that release computes it.
    const auto *words = reinterpret_cast<const ibvexp_context_words *>(context.get()) - 1;
    const auto end = reinterpret_cast<std::uintptr_t>(context.get()) - (words->sz - 328);
    const auto *theirs = reinterpret_cast<const char *>(end - table["size"].get<std::size_t>());
    for (const auto &[name, distance] : table["slots"].items()) {
      const Slot *slot = find_slot(name);
      if (slot == nullptr || slot->fill != Fill::function) continue;
      const auto at = table["size"].get<std::size_t>() - distance.get<std::size_t>();
      void *found;
      std::memcpy(&found, theirs + at, sizeof(found));
      INFO(release << " " << name);
      CHECK(found == word(ours, offset_of(*slot)));
      CHECK(ours->sz >= distance.get<std::size_t>());
      ++checked;
    }
  }
  CHECK(checked > 100);
}

TEST_CASE("base verbs still find theirs below the context") {
  const Context context = open_first();
  ibv_device_attr_ex attr{};
  CHECK(ibv_query_device_ex(context.get(), nullptr, &attr) == 0);
  CHECK(attr.orig_attr.max_qp > 0);
}

// [row:context_exp]
TEST_CASE("contexts of other origins carry the table") {
  ibv_device **list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  mlx5dv_context_attr dv{};
  const Context by_dv(mlx5dv_open_device(list[0], &dv));
  ibv_free_device_list(list);
  REQUIRE(by_dv);
  check_table(by_dv.get());
}

TEST_CASE("a child process opens contexts of its own") {
  const Context context = open_first();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ibv_device **list = ibv_get_device_list(nullptr);
    ibv_context *own = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    ibv_exp_device_attr attr{};
    _exit(own != nullptr && ibv_exp_query_device(own, &attr) == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("threads open, use and close at the same time") {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        ibv_device **list = ibv_get_device_list(nullptr);
        ibv_context *context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        ibv_exp_device_attr attr{};
        if (context == nullptr || ibv_exp_query_device(context, &attr) != 0 || attr.max_qp == 0)
          ++failures;
        if (context != nullptr && ibv_close_device(context) != 0) ++failures;
      }
    });
  for (auto &thread : threads) thread.join();
  CHECK(failures == 0);
}

// A legacy binary asks for these two under a node that librdmacm gave up.
// [row:rdma_init_qp_attr]
TEST_CASE("legacy names of librdmacm lead to today's [row:rdma_establish]") {
  REQUIRE(dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr);
  const auto find = [](const char *name) { return dlvsym(RTLD_DEFAULT, name, "RDMACM_1.0"); };
  const auto establish = reinterpret_cast<decltype(&rdma_establish)>(find("rdma_establish"));
  const auto init = reinterpret_cast<decltype(&rdma_init_qp_attr)>(find("rdma_init_qp_attr"));
  const auto reset = reinterpret_cast<int (*)()>(find("rdma_lib_reset"));
  REQUIRE(establish != nullptr);
  REQUIRE(init != nullptr);
  REQUIRE(reset != nullptr);

  // An identifier with enough around it for librdmacm to find it wrong.
  alignas(16) char room[4096] = {};
  auto *id = reinterpret_cast<rdma_cm_id *>(room);
  rdma_event_channel channel{};
  channel.fd = -1;
  id->channel = &channel;
  ibv_qp qp{};
  id->qp = &qp;
  errno = 0;
  CHECK(establish(id) == -1);
  CHECK(errno == EINVAL);
  ibv_qp_attr attr{};
  int mask = 0;
  errno = 0;
  CHECK(init(id, &attr, &mask) == -1);
  CHECK(errno == EBADF);
  errno = 0;
  CHECK(init(nullptr, &attr, &mask) == -1);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(reset() == -1);
  CHECK(errno == ENOTSUP);
}

// UCX of that time imports one call of the legacy plug-in interface.
TEST_CASE("the kernel's half of ibv_modify_qp has its legacy name [row:cmd_modify_qp]") {
  const auto modify = reinterpret_cast<int (*)(ibv_qp *, ibv_qp_attr *, int, void *, std::size_t)>(
      dlvsym(RTLD_DEFAULT, "ibv_cmd_modify_qp", "IBVERBS_1.0"));
  REQUIRE(modify != nullptr);
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  std::uint64_t scratch[16];
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  CHECK(modify(qp.get(), &attr, IBV_QP_STATE, scratch, sizeof(scratch)) == EINVAL);
  rig.connect(qp.get(), qp->qp_num);
  attr.qp_state = IBV_QPS_ERR;
  CHECK(modify(qp.get(), &attr, IBV_QP_STATE, scratch, sizeof(scratch)) == 0);
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(qp.get(), &attr, IBV_QP_STATE, &init) == 0);
  CHECK(attr.qp_state == IBV_QPS_ERR);
}

// The table's functions are the symbols' functions; symbols also take what no
// inline would pass on.
TEST_CASE("symbols check their arguments") {
  const auto query = reinterpret_cast<int (*)(ibv_context *, ibv_exp_device_attr *)>(
      dlsym(RTLD_DEFAULT, "ibv_exp_query_device"));
  const auto create = reinterpret_cast<ibv_qp *(*)(ibv_context *, ibv_exp_qp_init_attr *)>(
      dlsym(RTLD_DEFAULT, "ibv_exp_create_qp"));
  const auto poll = reinterpret_cast<int (*)(ibv_cq *, int, ibv_exp_wc *, std::uint32_t)>(
      dlsym(RTLD_DEFAULT, "ibv_exp_poll_cq"));
  const auto post_task = reinterpret_cast<int (*)(ibv_context *, ibv_exp_task *, ibv_exp_task **)>(
      dlsym(RTLD_DEFAULT, "ibv_exp_post_task"));
  const Context context = open_first();
  CHECK(query(nullptr, nullptr) == EINVAL);
  CHECK(query(context.get(), nullptr) == EINVAL);
  errno = 0;
  CHECK(create(context.get(), nullptr) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(poll(nullptr, 1, nullptr, 104) == -EINVAL);
  ibv_exp_task task{}, *bad = nullptr;
  CHECK(post_task(nullptr, &task, &bad) == EINVAL);
  CHECK(bad == &task);
}
