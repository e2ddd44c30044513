// Objects that sequences of calls are made over: of two contexts, made when the first
// call asks for one, and given back in the end, each without an error.
#pragma once

#include <fcntl.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "bytes.h"

namespace fuzz {

// Users before what they use; with the call that ends them.
#define FUZZ_KINDS(X)                                              \
  X(ibv_exp_flow, ibv_exp_destroy_flow)                            \
  X(ibv_mw, ibv_dealloc_mw)                                        \
  X(ibv_exp_dct, ibv_exp_destroy_dct)                              \
  X(ibv_qp, ibv_destroy_qp)                                        \
  X(ibv_exp_rwq_ind_table, ibv_exp_destroy_rwq_ind_table)          \
  X(ibv_exp_wq, ibv_exp_destroy_wq)                                \
  X(ibv_srq, ibv_destroy_srq)                                      \
  X(ibv_mr, ibv_dereg_mr)                                          \
  X(ibv_exp_mkey_list_container, ibv_exp_dealloc_mkey_list_memory) \
  X(ibv_exp_dm, ibv_exp_free_dm)                                   \
  X(ibv_ah, ibv_destroy_ah)                                        \
  X(ibv_cq, ibv_destroy_cq)                                        \
  X(ibv_exp_res_domain, destroy_res_domain)                        \
  X(ibv_xrc_domain, ibv_close_xrc_domain)                          \
  X(ibv_xrcd, ibv_close_xrcd)                                      \
  X(ibv_comp_channel, ibv_destroy_comp_channel)                    \
  X(ibv_pd, ibv_dealloc_pd)

inline int destroy_res_domain(ibv_exp_res_domain *domain) {
  return ibv_exp_destroy_res_domain(domain->context, domain, nullptr);
}

// Of the kinds, devices and contexts are never made by a call.
enum class Kind : std::uint8_t {
#define X(type, release) type,
  FUZZ_KINDS(X)
#undef X
      ibv_context,
  ibv_device,
  none
};
inline constexpr std::size_t kinds = static_cast<std::size_t>(Kind::none);
constexpr std::size_t number(Kind kind) { return static_cast<std::size_t>(kind); }

template <class T>
inline constexpr Kind kind_of = Kind::none;
#define X(type, release) \
  template <>            \
  inline constexpr Kind kind_of<type> = Kind::type;
FUZZ_KINDS(X)
X(ibv_context, )
X(ibv_device, )
#undef X

inline Kind kind_named(std::string_view name) {
#define X(type, release) \
  if (name == #type) return Kind::type;
  FUZZ_KINDS(X)
  X(ibv_context, )
  X(ibv_device, )
#undef X
  return Kind::none;
}

// Which of them are this library's alone: it knows the last ones that were destroyed,
// and those that were never created.
constexpr bool is_own(Kind kind) {
  return kind == Kind::ibv_exp_flow || kind == Kind::ibv_exp_dct || kind == Kind::ibv_exp_wq ||
         kind == Kind::ibv_exp_rwq_ind_table || kind == Kind::ibv_exp_mkey_list_container ||
         kind == Kind::ibv_exp_dm || kind == Kind::ibv_exp_res_domain;
}
// Before rdma-core's stands one of ours, which knows that nothing is behind it any more.
constexpr bool has_front(Kind kind) {
  return kind == Kind::ibv_qp || kind == Kind::ibv_cq || kind == Kind::ibv_srq;
}

class World {
 public:
  static constexpr std::size_t buffer_bytes = 1 << 20;

  World() {
    // Nothing behind it for as long as any length of a piece.
    constexpr std::size_t behind = std::size_t{1} << 33;
    void *room =
        mmap(nullptr, behind, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PROMISE(room != MAP_FAILED);
    PROMISE(mprotect(room, buffer_bytes, PROT_READ | PROT_WRITE) == 0);
    buffer = static_cast<std::uint8_t *>(room);
    open();
  }

  void open() {
    int count = 0;
    ::ibv_device **list = ibv_get_device_list(&count);
    PROMISE(list != nullptr && count > 0);
    for (Side &side : sides_) {
      side.context = ibv_open_device(list[0]);
      PROMISE(side.context != nullptr);
      side.pd = ibv_alloc_pd(side.context);
      PROMISE(side.pd != nullptr);
    }
    ibv_free_device_list(list);
  }

  void close() {
    for (Side &side : sides_) {
      PROMISE(ibv_dealloc_pd(side.pd) == 0);
      PROMISE(ibv_close_device(side.context) == 0);
    }
  }

  ::ibv_context *context(int side) const { return sides_[side].context; }
  ::ibv_pd *pd(int side) const { return sides_[side].pd; }

  // One that is as it should be. Null where the device has none.
  void *good(Kind kind, int side, std::uint32_t which = 0) {
    if (kind == Kind::ibv_context) return context(side);
    if (kind == Kind::ibv_device) return context(side)->device;
    // What works together is mostly of the same domain.
    if (kind == Kind::ibv_pd && which % 8 != 7) return pd(side);
    return transient(kind, side, which);
  }
  // One that a call may end.
  void *transient(Kind kind, int side, std::uint32_t which) {
    auto &of = live_[number(kind)][side];
    if (of.empty()) {
      void *made = make(kind, side);
      if (made == nullptr) return nullptr;
      of.push_back(made);
    }
    return of[which % of.size()];
  }
  template <class T>
  T *good(int side, std::uint32_t which = 0) {
    return static_cast<T *>(good(kind_of<T>, side, which));
  }

  // One that was destroyed, the last of its kind, unless there is a new one since.
  void *stale(Kind kind) const { return stale_[number(kind)]; }
  // It names its context, and was never created.
  void *nobodys(int side) {
    nobodys_[0] = context(side);
    return nobodys_;
  }

  void add(Kind kind, void *object) {
    stale_[number(kind)] = nullptr;
    auto &of = live_[number(kind)][side_of(kind, object)];
    if (of.size() == 6) PROMISE(release(kind, object) == 0);
    else of.push_back(object);
  }
  // A call has destroyed it.
  void forget(Kind kind, void *object) {
    for (auto &of : live_[number(kind)])
      if (const auto at = std::find(of.begin(), of.end(), object); at != of.end()) {
        of.erase(at);
        stale_[number(kind)] = object;
        return;
      }
    PROMISE(!"destroyed what was never created");
  }
  bool has(Kind kind, void *object) const {
    for (const auto &of : live_[number(kind)])
      if (std::find(of.begin(), of.end(), object) != of.end()) return true;
    return false;
  }

  // Receive queue pairs of legacy XRC are known by number.
  std::vector<std::pair<::ibv_xrc_domain *, std::uint32_t>> receivers;
  std::vector<std::pair<::ibv_context *, void *>> families;

  // Everything goes, without an error.
  void clear() {
    for (const auto &[context, family] : families)
      PROMISE(ibv_exp_release_intf(context, family, nullptr) == 0);
    families.clear();
    for (const auto &[domain, receiver] : receivers)
      PROMISE(ibv_unreg_xrc_rcv_qp(domain, receiver) == 0);
    receivers.clear();
    for (std::size_t kind = 0; kind < kinds; ++kind)
      for (auto &of : live_[kind]) {
        while (!of.empty()) {
          PROMISE(release(static_cast<Kind>(kind), of.back()) == 0);
          of.pop_back();
        }
      }
    stale_.fill(nullptr);
  }

  std::uint8_t *buffer;

 private:
  struct Side {
    ::ibv_context *context;
    ::ibv_pd *pd;
  };

  int side_of(Kind kind, const void *object) const {
    const ::ibv_context *of = nullptr;
    switch (kind) {
#define X(type, call) \
  case Kind::type: of = static_cast<const ::type *>(object)->context; break;
      FUZZ_KINDS(X)
#undef X
      default: break;
    }
    PROMISE(of == context(0) || of == context(1));
    return of == context(1);
  }

  static int release(Kind kind, void *object) {
    switch (kind) {
#define X(type, call) \
  case Kind::type: return call(static_cast<::type *>(object));
      FUZZ_KINDS(X)
#undef X
      default: return -1;
    }
  }

  void *make(Kind kind, int side) {
    switch (kind) {
      case Kind::ibv_mw: return ibv_alloc_mw(pd(side), IBV_MW_TYPE_2);
      case Kind::ibv_qp: {
        ibv_exp_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = good<::ibv_cq>(side);
        attr.cap = {16, 16, 4, 4, 64};
        attr.qp_type = IBV_QPT_RC;
        attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
        attr.pd = pd(side);
        return ibv_exp_create_qp(context(side), &attr);
      }
      case Kind::ibv_cq: return ibv_create_cq(context(side), 64, nullptr, nullptr, 0);
      case Kind::ibv_srq: {
        ibv_srq_init_attr attr{nullptr, {16, 1, 0}};
        return ibv_create_srq(pd(side), &attr);
      }
      case Kind::ibv_mr:
        return ibv_reg_mr(pd(side), buffer, buffer_bytes,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND);
      case Kind::ibv_ah: {
        ibv_ah_attr attr{};
        attr.port_num = 1;
        attr.is_global = 1;
        attr.grh.sgid_index = 1;
        PROMISE(ibv_query_gid(context(side), 1, 1, &attr.grh.dgid) == 0);
        return ibv_create_ah(pd(side), &attr);
      }
      case Kind::ibv_pd: return ibv_alloc_pd(context(side));
      case Kind::ibv_comp_channel: return ibv_create_comp_channel(context(side));
      case Kind::ibv_xrcd: {
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = -1;
        attr.oflags = O_CREAT;
        return ibv_open_xrcd(context(side), &attr);
      }
      case Kind::ibv_xrc_domain: return ibv_open_xrc_domain(context(side), -1, O_CREAT);
      case Kind::ibv_exp_dct: {
        ibv_exp_dct_init_attr attr{};
        attr.pd = pd(side);
        attr.cq = good<::ibv_cq>(side);
        attr.srq = good<::ibv_srq>(side);
        attr.port = 1;
        attr.mtu = IBV_MTU_1024;
        attr.gid_index = 1;
        attr.hop_limit = 1;
        return ibv_exp_create_dct(context(side), &attr);
      }
      case Kind::ibv_exp_dm: {
        ibv_exp_alloc_dm_attr attr{};
        attr.length = 256;
        return ibv_exp_alloc_dm(context(side), &attr);
      }
      case Kind::ibv_exp_res_domain: {
        ibv_exp_res_domain_init_attr attr{};
        return ibv_exp_create_res_domain(context(side), &attr);
      }
      case Kind::ibv_exp_wq: {
        ibv_exp_wq_init_attr attr{};
        attr.max_recv_wr = 16;
        attr.max_recv_sge = 1;
        attr.pd = pd(side);
        attr.cq = good<::ibv_cq>(side);
        return ibv_exp_create_wq(context(side), &attr);
      }
      case Kind::ibv_exp_rwq_ind_table: {
        ibv_exp_rwq_ind_table_init_attr attr{};
        ::ibv_exp_wq *queue = good<::ibv_exp_wq>(side);
        attr.pd = pd(side);
        attr.ind_tbl = &queue;
        return queue == nullptr ? nullptr : ibv_exp_create_rwq_ind_table(context(side), &attr);
      }
      case Kind::ibv_exp_mkey_list_container: {
        ibv_exp_mkey_list_container_attr attr{};
        attr.pd = pd(side);
        attr.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR;
        attr.max_klm_list_size = 4;
        return ibv_exp_alloc_mkey_list_memory(&attr);
      }
      case Kind::ibv_exp_flow: {
        ibv_exp_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = good<::ibv_cq>(side);
        attr.cap = {4, 4, 1, 1, 0};
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
        attr.pd = pd(side);
        ::ibv_qp *qp = ibv_exp_create_qp(context(side), &attr);
        if (qp == nullptr) return nullptr;  // frames only
        add(Kind::ibv_qp, qp);
        if (!has(Kind::ibv_qp, qp)) return nullptr;
        ibv_exp_flow_attr rule{};
        rule.type = IBV_EXP_FLOW_ATTR_SNIFFER;
        rule.size = sizeof(rule);
        rule.port = 1;
        return ibv_exp_create_flow(qp, &rule);
      }
      default: return nullptr;
    }
  }

  std::array<Side, 2> sides_{};
  std::array<std::array<std::vector<void *>, 2>, kinds> live_;
  std::array<void *, kinds> stale_{};
  void *nobodys_[128] = {};
};

}  // namespace fuzz
