// One object of each kind that a program can hold, as it should be, foreign (of
// another context, or never created) and stale (destroyed). Only objects of
// this library's own can be stale: rdma-core follows a pointer to one of its own
// that was destroyed, and so do the inlines that look for the operation table.
#pragma once

#include <fcntl.h>

#include <functional>
#include <map>
#include <string>

#include "rig.h"

class Objects {
 public:
  struct Kind {
    void *good = nullptr;
    bool own = false;  // of this library
    std::vector<void *> foreign;
    std::function<void *(bool foreign)> make;
    std::function<int(void *)> destroy;
  };

  Objects() {
    bare("ibv_context", mine_.rig.context.get(), theirs_.rig.context.get());
    bare("ibv_pd", mine_.rig.pd.get(), theirs_.rig.pd.get());
    bare("ibv_cq", mine_.rig.cq.get(), theirs_.rig.cq.get());
    bare("ibv_srq", mine_.srq.get(), theirs_.srq.get());
    bare("ibv_ah", mine_.ah.get(), theirs_.ah.get());
    bare("ibv_comp_channel", mine_.channel.get(), theirs_.channel.get());
    bare("ibv_mr", mine_.buffer.mr.get(), theirs_.buffer.mr.get());
    kinds_["ibv_device"].good = context()->device;
    add_base();
    add_legacy();
  }

  ~Objects() {
    // Objects are destroyed before the ones that they use.
    for (auto name = order_.rbegin(); name != order_.rend(); ++name) {
      INFO(*name);
      const Kind &kind = kinds_.at(*name);
      if (kind.good != nullptr) CHECK(kind.destroy(kind.good) == 0);
      if (!kind.foreign.empty() && kind.foreign.front() != nobodys_)
        CHECK(kind.destroy(kind.foreign.front()) == 0);
    }
  }

  const Kind *find(const std::string &name) const {
    const auto known = kinds_.find(name);
    return known != kinds_.end() ? &known->second : nullptr;
  }

  // A correct argument for each call.
  void *good(const Kind &kind) const {
    return kind.good != nullptr || kind.foreign.empty() ? kind.good : kind.foreign.front();
  }

  // One that has just been destroyed, or null. The library knows the last ones only.
  void *stale(const std::string &name) {
    Kind &kind = kinds_.at(name);
    if (!kind.own || kind.good == nullptr) return nullptr;
    void *object = kind.make(false);
    REQUIRE(object != nullptr);
    REQUIRE(kind.destroy(object) == 0);
    return object;
  }

  // A call destroyed it: the good one, or the good one of the other context.
  void renew(const std::string &name, void *object) {
    Kind &kind = kinds_.at(name);
    void *&place = object == kind.good ? kind.good : kind.foreign.at(0);
    REQUIRE(place == object);
    place = kind.make(&place != &kind.good);
    REQUIRE(place != nullptr);
  }

  // A queue pair in INIT that has not been used: requests posted to it are not
  // executed.
  void fresh_qp() {
    Kind &kind = kinds_.at("ibv_qp");
    REQUIRE(kind.destroy(kind.good) == 0);
    kind.good = kind.make(false);
    REQUIRE(kind.good != nullptr);
  }

  ibv_context *context() const { return mine_.rig.context.get(); }
  Buffer &buffer() { return mine_.buffer; }

  ibv_qp_type qp_type = IBV_QPT_RC;

 private:
  struct Side {
    Rig rig;
    Buffer buffer{rig.pd.get(), 1 << 16};
    ibv_srq_init_attr init{nullptr, {16, 1, 0}};
    Owned<ibv_srq, ibv_destroy_srq> srq{ibv_create_srq(rig.pd.get(), &init)};
    Channel channel{ibv_create_comp_channel(rig.context.get())};
    Owned<ibv_ah, ibv_destroy_ah> ah{make_ah()};

    ibv_context *context() { return rig.context.get(); }
    ibv_ah *make_ah() {
      ibv_ah_attr attr{};
      attr.port_num = 1;
      attr.is_global = 1;
      attr.grh.sgid_index = 1;
      REQUIRE(ibv_query_gid(context(), 1, 1, &attr.grh.dgid) == 0);
      ibv_ah *made = ibv_create_ah(rig.pd.get(), &attr);
      REQUIRE(made != nullptr);
      return made;
    }
  };

  void bare(const char *name, void *good, void *foreign) {
    kinds_[name].good = good;
    kinds_[name].foreign = {foreign};
  }

  template <class T>
  static std::function<int(void *)> by(int (*release)(T *)) {
    return [release](void *object) { return release(static_cast<T *>(object)); };
  }

  // make(side) returns null where the device has none.
  template <class Make>
  Kind &add(const char *name, Make make, std::function<int(void *)> destroy) {
    Kind &kind = kinds_[name];
    kind.make = [this, make](bool foreign) -> void * { return make(foreign ? theirs_ : mine_); };
    kind.destroy = std::move(destroy);
    kind.good = kind.make(false);
    if (void *foreign = kind.make(true)) kind.foreign.push_back(foreign);
    order_.emplace_back(name);
    return kind;
  }

  template <class Make>
  void add_own(const char *name, Make make, std::function<int(void *)> destroy) {
    Kind &kind = add(name, make, std::move(destroy));
    kind.own = true;
    // Has a context, but was never created. The only one on devices without this kind.
    nobodys_[0] = context();
    kind.foreign.push_back(nobodys_);
  }

  void add_base() {
    add(
        "ibv_qp",
        [this](Side &of) {
          auto attr = of.rig.qp_attr(qp_type);
          ibv_qp *qp = ibv_exp_create_qp(of.context(), &attr);
          if (qp == nullptr) return qp;
          ibv_exp_qp_attr init{};
          init.qp_state = IBV_QPS_INIT;
          init.port_num = 1;
          const auto last = qp_type == IBV_QPT_UD ? IBV_EXP_QP_QKEY : IBV_EXP_QP_ACCESS_FLAGS;
          REQUIRE(ibv_exp_modify_qp(qp, &init,
                                    std::uint64_t{IBV_EXP_QP_STATE} | IBV_EXP_QP_PKEY_INDEX |
                                        IBV_EXP_QP_PORT | last) == 0);
          return qp;
        },
        by(ibv_destroy_qp));
    add(
        "ibv_mw", [](Side &of) { return ibv_alloc_mw(of.rig.pd.get(), IBV_MW_TYPE_1); },
        [](void *mw) { return ibv_dealloc_mw(static_cast<ibv_mw *>(mw)); });
    add(
        "ibv_xrcd",
        [](Side &of) {
          ibv_xrcd_init_attr attr{};
          attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
          attr.fd = -1;
          attr.oflags = O_CREAT;
          return ibv_open_xrcd(of.context(), &attr);
        },
        by(ibv_close_xrcd));
  }

  void add_legacy() {
    add(
        "ibv_xrc_domain", [](Side &of) { return ibv_open_xrc_domain(of.context(), -1, O_CREAT); },
        by(ibv_close_xrc_domain));
    add_own(
        "ibv_exp_dct",
        [](Side &of) {
          ibv_exp_dct_init_attr attr{};
          attr.pd = of.rig.pd.get();
          attr.cq = of.rig.cq.get();
          attr.srq = of.srq.get();
          attr.port = 1;
          attr.mtu = IBV_MTU_1024;
          attr.gid_index = 1;
          attr.hop_limit = 1;
          return ibv_exp_create_dct(of.context(), &attr);
        },
        by(ibv_exp_destroy_dct));
    add_own(
        "ibv_exp_dm",
        [](Side &of) {
          ibv_exp_alloc_dm_attr attr{};
          attr.length = 4096;
          return ibv_exp_alloc_dm(of.context(), &attr);
        },
        by(ibv_exp_free_dm));
    add_own(
        "ibv_exp_res_domain",
        [](Side &of) {
          ibv_exp_res_domain_init_attr attr{};
          return ibv_exp_create_res_domain(of.context(), &attr);
        },
        [](void *domain) {
          auto *own = static_cast<ibv_exp_res_domain *>(domain);
          return ibv_exp_destroy_res_domain(own->context, own, nullptr);
        });
    add_own(
        "ibv_exp_wq",
        [](Side &of) {
          ibv_exp_wq_init_attr attr{};
          attr.max_recv_wr = 16;
          attr.max_recv_sge = 1;
          attr.pd = of.rig.pd.get();
          attr.cq = of.rig.cq.get();
          return ibv_exp_create_wq(of.context(), &attr);
        },
        by(ibv_exp_destroy_wq));
    add_own(
        "ibv_exp_rwq_ind_table",
        [this](Side &of) -> ibv_exp_rwq_ind_table * {
          const Kind &queues = kinds_.at("ibv_exp_wq");
          ibv_exp_rwq_ind_table_init_attr attr{};
          auto *queue =
              static_cast<ibv_exp_wq *>(&of == &mine_            ? queues.good
                                        : queues.foreign.empty() ? nullptr
                                                                 : queues.foreign.front());
          if (queue == nullptr) return nullptr;
          attr.ind_tbl = &queue;
          return ibv_exp_create_rwq_ind_table(of.context(), &attr);
        },
        by(ibv_exp_destroy_rwq_ind_table));
    add_own(
        "ibv_exp_mkey_list_container",
        [](Side &of) {
          ibv_exp_mkey_list_container_attr attr{};
          attr.pd = of.rig.pd.get();
          attr.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR;
          attr.max_klm_list_size = 4;
          return ibv_exp_alloc_mkey_list_memory(&attr);
        },
        by(ibv_exp_dealloc_mkey_list_memory));
    // Frames only.
    add_own(
        "ibv_exp_flow",
        [this](Side &of) -> ibv_exp_flow * {
          const ibv_qp_type was = std::exchange(qp_type, IBV_QPT_RAW_PACKET);
          ibv_qp *&qp = &of == &mine_ ? frames_[0] : frames_[1];
          auto attr = of.rig.qp_attr(IBV_QPT_RAW_PACKET);
          attr.cap.max_inline_data = 0;
          if (qp == nullptr) qp = ibv_exp_create_qp(of.context(), &attr);
          qp_type = was;
          if (qp == nullptr) return nullptr;
          ibv_exp_flow_attr rule{};
          rule.type = IBV_EXP_FLOW_ATTR_SNIFFER;
          rule.size = sizeof(rule);
          rule.port = 1;
          return ibv_exp_create_flow(qp, &rule);
        },
        by(ibv_exp_destroy_flow));
  }

  Side mine_, theirs_;
  struct Frames {
    ibv_qp *qp[2] = {};
    ibv_qp *&operator[](int i) { return qp[i]; }
    ~Frames() {
      for (ibv_qp *one : qp)
        if (one != nullptr) CHECK(ibv_destroy_qp(one) == 0);
    }
  } frames_;
  ibv_context *nobodys_[128] = {};
  std::map<std::string, Kind> kinds_;
  std::vector<std::string> order_;
};
