// Faults under the memory verbs and legacy XRC: keys, windows, device memory, domains.
#include <infiniband/ofa_verbs.h>

#include "fault_harness.h"

namespace {

struct Scenario {
  ibv_device **list = nullptr;
  ibv_context *context = nullptr;
  ibv_pd *pd = nullptr;
  ibv_cq *cq = nullptr;
  ibv_exp_res_domain *domain = nullptr;
  ibv_qp *qp = nullptr, *peer = nullptr;
  alignas(4096) unsigned char bytes[8192];

  ibv_qp *create_qp(ibv_exp_res_domain *in) {
    ibv_exp_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    attr.pd = pd;
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
    attr.max_inl_send_klms = 8;
    if (in != nullptr) {
      attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_RES_DOMAIN;
      attr.res_domain = in;
    }
    return ibv_exp_create_qp(context, &attr);
  }

  void connect(ibv_qp *from, const ibv_qp *to) {
    ibv_port_attr port{};
    attempt("ibv_query_port", [&] { return ibv_query_port(context, 1, &port); });
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    attempt("to INIT", [&] {
      return ibv_exp_modify_qp(
          from, &attr,
          IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS);
    });
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = port.lid;
    attempt("to RTR", [&] {
      return ibv_exp_modify_qp(from, &attr,
                               IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU |
                                   IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
                                   IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER);
    });
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    attempt("to RTS", [&] {
      return ibv_exp_modify_qp(from, &attr,
                               IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN | IBV_EXP_QP_TIMEOUT |
                                   IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
                                   IBV_EXP_QP_MAX_QP_RD_ATOMIC);
    });
  }

  void complete(ibv_exp_wc_opcode opcode) {
    ibv_exp_wc wc{};
    int n = 0;
    while (n == 0) n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
    if (n < 0 || wc.status != IBV_WC_SUCCESS || wc.exp_opcode != opcode)
      give_up("completion", static_cast<int>(wc.status));
  }

  ibv_mr *reg(void *addr, std::size_t length, std::uint64_t access, ibv_exp_dm *dm = nullptr) {
    ibv_exp_reg_mr_in in{};
    in.pd = pd;
    in.addr = addr;
    in.length = length;
    in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | access;
    if (dm != nullptr) {
      in.comp_mask = IBV_EXP_REG_MR_DM;
      in.dm = dm;
    }
    return ibv_exp_reg_mr(&in);
  }

  void dereg(ibv_mr *mr) {
    attempt("ibv_dereg_mr", [&] { return ibv_dereg_mr(mr); });
  }

  void open() {
    list = list_devices();
    opening = true;
    context = make<ibv_context>("ibv_open_device", [&] { return ibv_open_device(list[0]); });
    opening = false;
    std::fputs(opened, stderr);
    ibv_free_device_list(list);
    ibv_exp_device_attr device{};
    attempt("ibv_exp_query_device", [&] {
      device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
      return ibv_exp_query_device(context, &device);
    });
    // What failed in the first query is asked again.
    attempt("ibv_exp_query_device", [&] { return ibv_exp_query_device(context, &device); });
    if ((device.exp_device_cap_flags & IBV_EXP_DEVICE_EXT_MASKED_ATOMICS) == 0)
      give_up("masked atomics, by ibv_exp_query_device", 0);
    pd = make<ibv_pd>("ibv_alloc_pd", [&] { return ibv_alloc_pd(context); });
    ibv_exp_cq_init_attr attr{};
    cq = make<ibv_cq>("ibv_exp_create_cq",
                      [&] { return ibv_exp_create_cq(context, 64, nullptr, nullptr, 0, &attr); });
    ibv_exp_res_domain_init_attr threads{};
    threads.comp_mask = IBV_EXP_RES_DOMAIN_THREAD_MODEL | IBV_EXP_RES_DOMAIN_MSG_MODEL;
    threads.thread_model = IBV_EXP_THREAD_SINGLE;
    threads.msg_model = IBV_EXP_MSG_FORCE_LOW_LATENCY;
    domain = make<ibv_exp_res_domain>("ibv_exp_create_res_domain",
                                      [&] { return ibv_exp_create_res_domain(context, &threads); });
    qp = make<ibv_qp>("ibv_exp_create_qp", [&] { return create_qp(domain); });
    peer = make<ibv_qp>("ibv_exp_create_qp", [&] { return create_qp(nullptr); });
    connect(qp, peer);
    connect(peer, qp);
  }

  void keys(ibv_mr *memory) {
    ibv_exp_create_mr_in in{};
    in.pd = pd;
    in.attr.max_klm_list_size = 8;
    in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
    ibv_mr *key = make<ibv_mr>("ibv_exp_create_mr", [&] { return ibv_exp_create_mr(&in); });
    ibv_exp_mkey_list_container_attr attr{};
    attr.pd = pd;
    attr.max_klm_list_size = 100;
    auto *room = make<ibv_exp_mkey_list_container>(
        "ibv_exp_alloc_mkey_list_memory", [&] { return ibv_exp_alloc_mkey_list_memory(&attr); });
    ibv_exp_mem_region piece{reinterpret_cast<std::uintptr_t>(bytes), memory, 100};
    for (const bool inlined : {true, false}) {
      ibv_exp_send_wr wr{}, *bad = nullptr;
      wr.exp_opcode = IBV_EXP_WR_UMR_FILL;
      wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
      if (inlined) wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
      wr.ext_op.umr.memory_objects = room;
      wr.ext_op.umr.modified_mr = key;
      wr.ext_op.umr.num_mrs = 1;
      wr.ext_op.umr.mem_list.mem_reg_list = &piece;
      attempt("UMR_FILL", [&] { return ibv_exp_post_send(qp, &wr, &bad); });
      complete(IBV_EXP_WC_UMR);
    }
    attempt("ibv_exp_dealloc_mkey_list_memory",
            [&] { return ibv_exp_dealloc_mkey_list_memory(room); });
    dereg(key);
  }

  void windows(ibv_mr *memory) {
    ibv_mw *mw = make<ibv_mw>("ibv_alloc_mw", [&] { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); });
    ibv_exp_mw_bind bind{};
    bind.qp = qp;
    bind.mw = mw;
    bind.exp_send_flags = IBV_EXP_SEND_SIGNALED;
    bind.bind_info.mr = memory;
    bind.bind_info.addr = reinterpret_cast<std::uintptr_t>(bytes);
    bind.bind_info.length = 64;
    bind.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE;
    attempt("ibv_exp_bind_mw", [&] { return ibv_exp_bind_mw(&bind); });
    complete(IBV_EXP_WC_BIND_MW);
    attempt("ibv_dealloc_mw", [&] { return ibv_dealloc_mw(mw); });
  }

  void device_memory() {
    ibv_exp_alloc_dm_attr attr{};
    attr.length = 4096;
    auto *dm =
        make<ibv_exp_dm>("ibv_exp_alloc_dm", [&] { return ibv_exp_alloc_dm(context, &attr); });
    ibv_exp_memcpy_dm_attr copy{};
    copy.host_addr = bytes;
    copy.length = 64;
    attempt("ibv_exp_memcpy_dm", [&] { return ibv_exp_memcpy_dm(dm, &copy); });
    ibv_mr *mr = make<ibv_mr>("ibv_exp_reg_mr (DM)", [&] { return reg(nullptr, 4096, 0, dm); });
    dereg(mr);
    attempt("ibv_exp_free_dm", [&] { return ibv_exp_free_dm(dm); });
  }

  void memory() {
    ibv_mr *allocated = make<ibv_mr>("ibv_exp_reg_mr (ALLOCATE)", [&] {
      return reg(nullptr, 4096, IBV_EXP_ACCESS_ALLOCATE_MR);
    });
    dereg(allocated);
    ibv_mr *paged = make<ibv_mr>("ibv_exp_reg_mr (ON_DEMAND)", [&] {
      return reg(bytes, sizeof(bytes), IBV_EXP_ACCESS_ON_DEMAND);
    });
    ibv_exp_prefetch_attr hint{};
    hint.addr = bytes;
    hint.length = sizeof(bytes);
    attempt("ibv_exp_prefetch_mr", [&] { return ibv_exp_prefetch_mr(paged, &hint); });
    dereg(paged);
    ibv_mr *mr = make<ibv_mr>("ibv_exp_reg_mr",
                              [&] { return reg(bytes, sizeof(bytes), IBV_EXP_ACCESS_MW_BIND); });
    keys(mr);
    windows(mr);
    attempt("ibv_exp_rereg_mr", [&] {
      return ibv_exp_rereg_mr(mr, IBV_EXP_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                              IBV_EXP_ACCESS_LOCAL_WRITE, nullptr);
    });
    dereg(mr);
  }

  // Two domains by one file, as of two processes.
  void old_xrc() {
    char name[] = "/tmp/memory-faults-xrc-XXXXXX";
    const int fd = mkstemp(name);
    unlink(name);
    const auto open_domain = [&] {
      return make<ibv_xrc_domain>("ibv_open_xrc_domain",
                                  [&] { return ibv_open_xrc_domain(context, fd, O_CREAT); });
    };
    ibv_xrc_domain *const here = open_domain(), *const there = open_domain();
    ibv_srq_init_attr attr{nullptr, {8, 1, 0}};
    ibv_srq *const srq = make<ibv_srq>("ibv_create_xrc_srq",
                                       [&] { return ibv_create_xrc_srq(pd, here, cq, &attr); });
    ibv_srq_attr limit{};
    limit.srq_limit = 1;
    attempt("ibv_modify_srq", [&] { return ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT); });
    attempt("ibv_query_srq", [&] { return ibv_query_srq(srq, &limit); });
    ibvexp_xrc_qp_init_attr init{};
    init.xrc_domain = here;
    std::uint32_t number = 0;
    attempt("ibv_create_xrc_rcv_qp", [&] { return -ibv_create_xrc_rcv_qp(&init.base, &number); });
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    // By one that is registered, and by one that is not.
    for (ibv_xrc_domain *by : {here, there})
      attempt("ibv_modify_xrc_rcv_qp", [&] {
        return ibv_modify_xrc_rcv_qp(
            by, number, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      });
    for (ibv_xrc_domain *by : {here, there})
      attempt("ibv_query_xrc_rcv_qp",
              [&] { return ibv_query_xrc_rcv_qp(by, number, &to, IBV_QP_STATE, &init.base); });
    attempt("ibv_reg_xrc_rcv_qp", [&] { return ibv_reg_xrc_rcv_qp(there, number); });
    for (ibv_xrc_domain *by : {here, there})
      attempt("ibv_unreg_xrc_rcv_qp", [&] { return ibv_unreg_xrc_rcv_qp(by, number); });
    attempt("ibv_destroy_srq", [&] { return ibv_destroy_srq(srq); });
    // EBUSY if anything was left behind.
    attempt("ibv_close_xrc_domain", [&] { return ibv_close_xrc_domain(here); });
    attempt("ibv_close_xrc_domain", [&] { return ibv_close_xrc_domain(there); });
    ::close(fd);
  }

  // With masked atomics.
  void masked_atomic() {
    ibv_mr *mr = make<ibv_mr>("ibv_exp_reg_mr (ATOMIC)", [&] {
      return reg(bytes, sizeof(bytes), IBV_EXP_ACCESS_REMOTE_ATOMIC | IBV_EXP_ACCESS_REMOTE_WRITE);
    });
    ibv_sge answer{reinterpret_cast<std::uintptr_t>(bytes + 64), 8, mr->lkey};
    ibv_exp_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &answer;
    wr.num_sge = 1;
    wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD;
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_EXT_ATOMIC_INLINE;
    wr.ext_op.masked_atomics.log_arg_sz = 3;
    wr.ext_op.masked_atomics.remote_addr = reinterpret_cast<std::uintptr_t>(bytes);
    wr.ext_op.masked_atomics.rkey = mr->rkey;
    wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add.add_val = 1;
    attempt("masked atomic", [&] { return ibv_exp_post_send(qp, &wr, &bad); });
    complete(IBV_EXP_WC_MASKED_FETCH_ADD);
    dereg(mr);
  }

  void close() {
    attempt("ibv_destroy_qp", [&] { return ibv_destroy_qp(qp); });
    attempt("ibv_destroy_qp", [&] { return ibv_destroy_qp(peer); });
    attempt("ibv_exp_destroy_res_domain",
            [&] { return ibv_exp_destroy_res_domain(context, domain, nullptr); });
    attempt("ibv_destroy_cq", [&] { return ibv_destroy_cq(cq); });
    // EBUSY if anything was left behind.
    attempt("ibv_dealloc_pd", [&] { return ibv_dealloc_pd(pd); });
    attempt("ibv_close_device", [&] { return ibv_close_device(context); });
  }

  void run() {
    open();
    memory();
    device_memory();
    old_xrc();
    masked_atomic();
    close();
  }
};

Scenario scenario;

}  // namespace

int main(int argc, char **argv) {
  return fault_main(argc, argv, [] { scenario.run(); });
}
