// Threads that open, use and close contexts at the same time: contexts of their
// own, and one that they share. For TSan above all (./run sanitize thread
// library); it counts what goes wrong, since Catch2 is for one thread.
#include <catch.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "door.h"

namespace {

constexpr int rounds = 12;

// Ends a job; the first message of a test shows.
struct Failed {
  const char *what;
};
void expect(bool good, const char *what) {
  if (!good) throw Failed{what};
}

// Runs all jobs at once, each in two threads.
void at_once(const std::vector<std::function<void()>> &jobs) {
  std::mutex mutex;
  std::string first;
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int copy = 0; copy < 2; ++copy)
    for (const auto &job : jobs)
      threads.emplace_back([&] {
        while (!go) std::this_thread::yield();
        try {
          for (int i = 0; i < rounds; ++i) job();
        } catch (const Failed &failed) {
          const std::lock_guard guard(mutex);
          if (first.empty()) first = failed.what;
        }
      });
  go = true;
  for (std::thread &thread : threads) thread.join();
  CHECK(first == "");
}

ibv_context *open_first() {
  ibv_device **list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "ibv_get_device_list");
  ibv_context *context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  expect(context != nullptr, "ibv_open_device");
  expect(verbs_get_exp_ctx(context) != nullptr, "no table");
  return context;
}

// A queue pair connected to itself, and memory: what most jobs stand on.
struct Loop {
  ibv_context *context;
  ibv_pd *pd;
  ibv_cq *cq, *receive_cq;
  ibv_qp *qp;
  ibv_mr *mr;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(4096);

  explicit Loop(ibv_context *of, std::uint64_t create_flags = 0) : context(of) {
    pd = ibv_alloc_pd(context);
    expect(pd != nullptr, "ibv_alloc_pd");
    ibv_exp_cq_init_attr cq_attr{};
    cq = ibv_exp_create_cq(context, 64, nullptr, nullptr, 0, &cq_attr);
    receive_cq = ibv_exp_create_cq(context, 64, nullptr, nullptr, 0, &cq_attr);
    expect(cq != nullptr && receive_cq != nullptr, "ibv_exp_create_cq");
    ibv_exp_qp_init_attr attr{};
    attr.send_cq = cq;
    attr.recv_cq = receive_cq;
    attr.cap = {16, 16, 1, 1, 64};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    attr.pd = pd;
    attr.exp_create_flags = static_cast<std::uint32_t>(create_flags);
    if ((create_flags & IBV_EXP_QP_CREATE_UMR) != 0) {
      attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
      attr.max_inl_send_klms = 4;
    }
    qp = ibv_exp_create_qp(context, &attr);
    expect(qp != nullptr, "ibv_exp_create_qp");
    ibv_exp_reg_mr_in in{};
    in.pd = pd;
    in.addr = bytes.data();
    in.length = bytes.size();
    in.exp_access =
        IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
    mr = ibv_exp_reg_mr(&in);
    expect(mr != nullptr, "ibv_exp_reg_mr");
    connect();
  }

  // What was made goes also when a job has failed: the test ends then.
  void release() {
    expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    expect(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
    expect(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(receive_cq) == 0, "ibv_destroy_cq");
    expect(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
  }

  void connect() {
    ibv_port_attr port{};
    expect(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    expect(ibv_exp_modify_qp(qp, &attr,
                             IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                                 IBV_EXP_QP_ACCESS_FLAGS) == 0,
           "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = port.lid;
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      attr.ah_attr.is_global = 1;
      attr.ah_attr.grh.sgid_index = 1;
      attr.ah_attr.grh.hop_limit = 1;
      expect(ibv_query_gid(context, 1, 1, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
    }
    expect(ibv_exp_modify_qp(qp, &attr,
                             IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU |
                                 IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
                                 IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER) == 0,
           "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    expect(ibv_exp_modify_qp(qp, &attr,
                             IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN | IBV_EXP_QP_TIMEOUT |
                                 IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
                                 IBV_EXP_QP_MAX_QP_RD_ATOMIC) == 0,
           "RTS");
  }

  void complete() {
    for (int n = 0; n == 0;) {
      ibv_exp_wc wc{};
      n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
      expect(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS), "ibv_exp_poll_cq");
      if (n == 0) std::this_thread::yield();
    }
  }

  // The first half to the second one.
  void write(std::uint32_t rkey, std::uint64_t address) {
    const auto half = static_cast<std::uint32_t>(bytes.size() / 2);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes.data()), half, mr->lkey};
    ibv_exp_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE;
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    expect(ibv_exp_post_send(qp, &wr, &bad) == 0, "ibv_exp_post_send");
    complete();
  }
  std::uint64_t second_half() const {
    return reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size() / 2;
  }
};

void send_data(ibv_context *context) {
  Loop loop(context);
  for (int i = 0; i < 4; ++i) loop.write(loop.mr->rkey, loop.second_half());
  loop.release();
}

void ask(ibv_context *context) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
  attr.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
  expect(ibv_exp_query_device(context, &attr) == 0, "ibv_exp_query_device");
  expect((attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT) != 0, "DC");
  ibv_exp_values values{};
  expect(ibv_exp_query_values(context, IBV_EXP_VALUES_HW_CLOCK, &values) == 0, "the clock");
  expect(ibv_exp_setenv(context, "A", "1", 1) == 0, "ibv_exp_setenv");
}

// Memory of the library's own, of the device, and a domain.
void take_memory(ibv_context *context) {
  ibv_pd *pd = ibv_alloc_pd(context);
  expect(pd != nullptr, "ibv_alloc_pd");
  ibv_exp_reg_mr_in in{};
  in.pd = pd;
  in.length = 8192;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  ibv_mr *mr = ibv_exp_reg_mr(&in);
  expect(mr != nullptr, "ibv_exp_reg_mr");
  ibv_exp_alloc_dm_attr dm_attr{};
  dm_attr.length = 64;
  ibv_exp_dm *dm = ibv_exp_alloc_dm(context, &dm_attr);
  expect(dm != nullptr, "ibv_exp_alloc_dm");
  ibv_exp_res_domain_init_attr domain_attr{};
  ibv_exp_res_domain *domain = ibv_exp_create_res_domain(context, &domain_attr);
  expect(domain != nullptr, "ibv_exp_create_res_domain");
  expect(ibv_exp_destroy_res_domain(context, domain, nullptr) == 0, "ibv_exp_destroy_res_domain");
  expect(ibv_exp_free_dm(dm) == 0, "ibv_exp_free_dm");
  expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  expect(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
}

// A key made by a work request, and data through it.
void use_key(ibv_context *context) {
  Loop loop(context, IBV_EXP_QP_CREATE_UMR);
  ibv_exp_create_mr_in in{};
  in.pd = loop.pd;
  in.attr.max_klm_list_size = 4;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE;
  ibv_mr *key = ibv_exp_create_mr(&in);
  expect(key != nullptr, "ibv_exp_create_mr");
  ibv_exp_mem_region region{loop.second_half(), loop.mr, loop.bytes.size() / 2};
  ibv_exp_send_wr wr{}, *bad = nullptr;
  wr.exp_opcode = IBV_EXP_WR_UMR_FILL;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_INLINE;
  wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST;
  wr.ext_op.umr.exp_access = in.attr.exp_access_flags;
  wr.ext_op.umr.modified_mr = key;
  wr.ext_op.umr.num_mrs = 1;
  wr.ext_op.umr.mem_list.mem_reg_list = &region;
  expect(ibv_exp_post_send(loop.qp, &wr, &bad) == 0, "UMR");
  loop.complete();
  loop.write(key->rkey, 0);
  expect(ibv_dereg_mr(key) == 0, "ibv_dereg_mr of a key");
  loop.release();
}

// Queues that the library drives itself.
void use_family(ibv_context *context) {
  Loop loop(context);
  const auto query = [&](ibv_exp_intf_family intf, void *object) {
    ibv_exp_query_intf_params params{};
    params.intf_scope = IBV_EXP_INTF_GLOBAL;
    params.intf = intf;
    params.obj = object;
    auto status = IBV_EXP_INTF_STAT_OK;
    void *family = ibv_exp_query_intf(context, &params, &status);
    expect(family != nullptr, "ibv_exp_query_intf");
    return family;
  };
  auto *burst = static_cast<ibv_exp_qp_burst_family *>(query(IBV_EXP_INTF_QP_BURST, loop.qp));
  auto *sent_poll = static_cast<ibv_exp_cq_family *>(query(IBV_EXP_INTF_CQ, loop.cq));
  auto *poll = static_cast<ibv_exp_cq_family *>(query(IBV_EXP_INTF_CQ, loop.receive_cq));
  const auto at = reinterpret_cast<std::uintptr_t>(loop.bytes.data());
  ibv_sge in{at + 2048, 2048, loop.mr->lkey}, out{at, 2048, loop.mr->lkey};
  expect(burst->recv_burst(loop.qp, &in, 1) == 0, "recv_burst");
  expect(burst->send_burst(loop.qp, &out, 1, IBV_EXP_QP_BURST_SIGNALED) == 0, "send_burst");
  for (int sent = 0, received = 0; sent == 0 || received == 0; std::this_thread::yield()) {
    std::uint32_t flags = 0, inl = 0;
    if (received == 0)
      received = poll->poll_length_flags(loop.receive_cq, nullptr, &inl, &flags) > 0;
    if (sent == 0) sent = sent_poll->poll_cnt(loop.cq, 1) > 0;
  }
  ibv_exp_release_intf_params release{};
  for (void *family : {static_cast<void *>(sent_poll), static_cast<void *>(poll)})
    expect(ibv_exp_release_intf(context, family, &release) == 0, "ibv_exp_release_intf");
  expect(ibv_exp_release_intf(context, burst, &release) == 0, "ibv_exp_release_intf");
  loop.release();
}

void serve_dc(ibv_context *context) {
  Loop loop(context);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {16, 1, 0};
  ibv_srq *srq = ibv_create_srq(loop.pd, &srq_attr);
  expect(srq != nullptr, "ibv_create_srq");
  ibv_exp_dct_init_attr attr{};
  attr.pd = loop.pd;
  attr.cq = loop.cq;
  attr.srq = srq;
  attr.dc_key = 1;
  attr.port = 1;
  attr.min_rnr_timer = 2;
  attr.mtu = IBV_MTU_1024;
  attr.gid_index = 1;
  attr.hop_limit = 1;
  ibv_exp_dct *dct = ibv_exp_create_dct(context, &attr);
  expect(dct != nullptr, "ibv_exp_create_dct");
  expect(ibv_exp_destroy_dct(dct) == 0, "ibv_exp_destroy_dct");
  expect(ibv_destroy_srq(srq) == 0, "ibv_destroy_srq");
  loop.release();
}

const std::vector<void (*)(ibv_context *)> all_jobs = [] {
  std::vector<void (*)(ibv_context *)> jobs = {send_data,  ask,      take_memory,
                                               use_family, serve_dc, use_key};
  return jobs;
}();

}  // namespace

TEST_CASE("threads open, use and close contexts of their own [row:verbs_get_exp_ctx]") {
  std::vector<std::function<void()>> jobs;
  for (const auto job : all_jobs)
    jobs.push_back([job] {
      ibv_context *context = open_first();
      job(context);
      expect(ibv_close_device(context) == 0, "ibv_close_device");
    });
  at_once(jobs);
}

TEST_CASE("threads share a context [row:ibv_exp_create_qp]") {
  ibv_context *const context = open_first();
  std::vector<std::function<void()>> jobs;
  for (const auto job : all_jobs) jobs.push_back([=] { job(context); });
  // Others come and go meanwhile.
  jobs.push_back([] { expect(ibv_close_device(open_first()) == 0, "ibv_close_device"); });
  at_once(jobs);
  CHECK(ibv_close_device(context) == 0);
}
