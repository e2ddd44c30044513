// What only mlx5dv reaches: reserved QP numbers and firmware objects, through
// libibverbs and libmlx5 with the software HCA preloaded.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <vector>

#include "catch.h"

namespace {

// By name: the program starts with releases that do not have them.
const auto reserve_qpn = reinterpret_cast<decltype(&mlx5dv_reserved_qpn_alloc)>(
    dlsym(RTLD_DEFAULT, "mlx5dv_reserved_qpn_alloc"));
const auto give_qpn_back = reinterpret_cast<decltype(&mlx5dv_reserved_qpn_dealloc)>(
    dlsym(RTLD_DEFAULT, "mlx5dv_reserved_qpn_dealloc"));

struct Context {
  Context() {
    ibv_device **list = ibv_get_device_list(nullptr);
    REQUIRE(list != nullptr);
    REQUIRE(list[0] != nullptr);
    mlx5dv_context_attr attr{};
    attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    ctx = mlx5dv_open_device(list[0], &attr);
    ibv_free_device_list(list);
    REQUIRE(ctx != nullptr);
  }
  ~Context() { CHECK(ibv_close_device(ctx) == 0); }
  ibv_context *ctx;
};

void store16(uint8_t *p, uint32_t v) {
  p[0] = static_cast<uint8_t>(v >> 8);
  p[1] = static_cast<uint8_t>(v);
}

// CREATE_GENERAL_OBJECT, refused: returns the firmware's status.
uint8_t refused_object(ibv_context *ctx, uint32_t type, uint8_t log_range) {
  uint8_t in[32] = {}, out[16] = {};
  store16(in, 0xa00);
  store16(in + 6, type);
  in[12] = log_range;
  errno = 0;
  CHECK(mlx5dv_devx_obj_create(ctx, in, sizeof in, out, sizeof out) == nullptr);
  CHECK(errno == EREMOTEIO);
  return out[0];
}

// The numbers of `count` QPs that exist together.
std::vector<uint32_t> create_qps(ibv_context *ctx, int count) {
  ibv_pd *pd = ibv_alloc_pd(ctx);
  ibv_cq *cq = ibv_create_cq(ctx, 16, nullptr, nullptr, 0);
  REQUIRE((pd != nullptr && cq != nullptr));
  std::vector<ibv_qp *> qps;
  std::vector<uint32_t> numbers;
  for (int i = 0; i < count; ++i) {
    ibv_qp_init_attr a{};
    a.qp_type = IBV_QPT_RC;
    a.send_cq = a.recv_cq = cq;
    a.cap = {1, 1, 1, 1, 0};
    qps.push_back(ibv_create_qp(pd, &a));
    REQUIRE(qps.back() != nullptr);
    numbers.push_back(qps.back()->qp_num);
  }
  for (ibv_qp *qp : qps) CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  return numbers;
}

}  // namespace

TEST_CASE("Reserved QP numbers are not given out", "[mlx5_verbs_test][rdma-core-34]") {
  Context c;
  std::set<uint32_t> reserved;
  std::vector<uint32_t> order;
  for (int i = 0; i < 200; ++i) {
    uint32_t qpn = 0;
    REQUIRE(reserve_qpn(c.ctx, &qpn) == 0);
    CHECK(qpn < 1u << 24);
    CHECK(reserved.insert(qpn).second);
    order.push_back(qpn);
  }

  for (uint32_t qpn : create_qps(c.ctx, 100)) CHECK(reserved.count(qpn) == 0);

  const uint32_t strange = *std::max_element(order.begin(), order.end()) + 4096;
  CHECK(give_qpn_back(c.ctx, strange) == EINVAL);
  for (uint32_t qpn : order) CHECK(give_qpn_back(c.ctx, qpn) == 0);
  CHECK(give_qpn_back(c.ctx, order[0]) == EINVAL);
}

// More than the device has: every block that goes back can be had again, also
// as numbers of QPs.
TEST_CASE("Reserved QP numbers end and come back", "[mlx5_verbs_test][rdma-core-34]") {
  Context c;
  for (int round = 0; round < 2; ++round) {
    std::vector<uint32_t> all;
    uint32_t qpn = 0;
    while (all.size() < 1u << 19 && reserve_qpn(c.ctx, &qpn) == 0) all.push_back(qpn);
    CHECK(all.size() > 1u << 17);
    CHECK(all.size() < 1u << 19);
    for (uint32_t n : all) REQUIRE(give_qpn_back(c.ctx, n) == 0);
  }
  CHECK(create_qps(c.ctx, 100).size() == 100);
}

// What libibverbs asks the kernel for, UVERBS_METHOD_QUERY_MR, in a context of the same file.
TEST_CASE("An imported region is the one that was registered", "[mlx5_verbs_test][rdma-core-34]") {
  Context c;
  const auto import =
      reinterpret_cast<decltype(&ibv_import_mr)>(dlsym(RTLD_DEFAULT, "ibv_import_mr"));
  const auto forget =
      reinterpret_cast<decltype(&ibv_unimport_mr)>(dlsym(RTLD_DEFAULT, "ibv_unimport_mr"));
  REQUIRE((import != nullptr && forget != nullptr));
  ibv_pd *pd = ibv_alloc_pd(c.ctx);
  REQUIRE(pd != nullptr);
  std::vector<uint8_t> bytes(5000);
  ibv_mr *mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  ibv_mr *same = import(pd, mr->handle);
  REQUIRE(same != nullptr);
  CHECK(same->lkey == mr->lkey);
  CHECK(same->rkey == mr->rkey);
  CHECK(same->length == bytes.size());
  forget(same);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

// pagefault_real_mr() in drivers/infiniband/hw/mlx5/odp.c: EFAULT outside of the region.
TEST_CASE("What is fetched before use lies in its region", "[mlx5_verbs_test]") {
  Context c;
  ibv_pd *pd = ibv_alloc_pd(c.ctx);
  REQUIRE(pd != nullptr);
  std::vector<uint8_t> bytes(3 * 4096);
  ibv_mr *mr =
      ibv_reg_mr(pd, bytes.data() + 4096, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  REQUIRE(mr != nullptr);
  const auto fetch = [&](ptrdiff_t from, uint32_t length) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(bytes.data() + 4096) + static_cast<uintptr_t>(from),
                  length, mr->lkey};
    return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &piece,
                         1);
  };
  CHECK(fetch(0, 4096) == 0);
  CHECK(fetch(1, 4095) == 0);
  CHECK(fetch(-1, 4096) == EFAULT);
  CHECK(fetch(1, 4096) == EFAULT);
  CHECK(fetch(0, 4097) == EFAULT);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("Tag matching SRQs: what is refused", "[mlx5_verbs_test]") {
  Context c;
  ibv_device_attr_ex attr{};
  REQUIRE(ibv_query_device_ex(c.ctx, nullptr, &attr) == 0);
  REQUIRE(attr.tm_caps.flags == IBV_TM_CAP_RC);
  ibv_pd *pd = ibv_alloc_pd(c.ctx);
  ibv_cq_init_attr_ex cq_attr{};
  cq_attr.cqe = 64;
  cq_attr.wc_flags = int{IBV_WC_STANDARD_FLAGS} | int{IBV_WC_EX_WITH_TM_INFO};
  ibv_cq_ex *cq = ibv_create_cq_ex(c.ctx, &cq_attr);
  REQUIRE((pd != nullptr && cq != nullptr));

  ibv_srq_init_attr_ex srq_attr{};
  srq_attr.attr = {16, 1, 0};
  srq_attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  srq_attr.srq_type = IBV_SRQT_TM;
  srq_attr.pd = pd;
  srq_attr.cq = ibv_cq_ex_to_cq(cq);
  srq_attr.tm_cap = {attr.tm_caps.max_num_tags + 1, 4};
  errno = 0;
  CHECK(ibv_create_srq_ex(c.ctx, &srq_attr) == nullptr);
  CHECK(errno == EINVAL);

  srq_attr.attr = {16, 1, 0};
  srq_attr.tm_cap = {attr.tm_caps.max_num_tags, 4};
  ibv_srq *srq = ibv_create_srq_ex(c.ctx, &srq_attr);
  REQUIRE(srq != nullptr);
  for (ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_UC}) {
    ibv_qp_init_attr a{};
    a.qp_type = type;
    a.srq = srq;
    a.send_cq = a.recv_cq = ibv_cq_ex_to_cq(cq);
    a.cap = {1, 0, 1, 0, 0};
    errno = 0;
    CHECK(ibv_create_qp(pd, &a) == nullptr);
    CHECK(errno == EINVAL);
  }
  CHECK(ibv_dealloc_pd(pd) == EBUSY);
  CHECK(ibv_destroy_srq(srq) == 0);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("Firmware refuses general objects it does not know", "[mlx5_verbs_test]") {
  constexpr uint8_t bad_op = 2, bad_param = 3;
  Context c;
  CHECK(refused_object(c.ctx, 0x0d, 0) == bad_op);     // a virtio queue
  CHECK(refused_object(c.ctx, 0x2c, 9) == bad_param);  // not the granularity
}
