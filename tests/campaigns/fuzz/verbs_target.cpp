// Sequences of calls over a pool of objects, through both doors: every slot of the
// operation table and every exported symbol, as the tables and the recorded layouts have
// them, and the base verbs that a program of the time calls in between. On the software
// HCA, in this process.
//
// Whatever is asked, a failure is an errno in the shape of the verb's row, a success leaves
// errno alone, and in the end everything can be given back.
#include <dlfcn.h>
#include <infiniband/peer_ops.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <set>

#include "../../support/entry_node.h"
#include "table/compat.h"
#include "verbs_requests.h"

namespace {

using namespace fuzz;
using ibvexp::Entry;
using ibvexp::EntryId;
using ibvexp::Node;
using ibvexp::row;

World *world;
Shapes *shapes;
bool shown = false;  // FUZZ_SHOW: each call, before and after

template <class T>
unsigned long shown_as(T value) {
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<std::uintptr_t>(value);
  else return static_cast<unsigned long>(value);
}

// How a verb is called.
struct Way {
  std::string_view name;
  const Entry *entry;  // null: a base verb
  bool slot;           // an inline has followed the first argument
};

// "ibv_exp_dm" for ibv_exp_dm.
template <class T>
std::string name_of_type() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const auto begin = text.find("T = ") + 4;
  return std::string(text.substr(begin, text.find_first_of(";]", begin) - begin));
}

bool ends_something(std::string_view name) {
  for (const char *word : {"destroy", "free", "dealloc", "close", "dereg"})
    if (name.find(word) != name.npos) return true;
  return false;
}

bool is_hot(const Way &way) {
  for (const char *name : {"ibv_exp_post_send", "ibv_exp_poll_cq", "post_send", "post_recv",
                           "post_srq_recv", "poll_cq", "req_notify_cq", "bind_mw"})
    if (way.name == name) return true;
  return false;
}

// Work requests. What a pointer of theirs means depends on opcode and queue pair.
class Chain {
 public:
  Chain(Request &request, Bytes &in) : request_(request), in_(in) {}

  template <class Wr>
  Wr *make(const ibv_qp *qp) {
    Wr *first = nullptr;
    for (int left = 1 + in_.take<std::uint8_t>() % 3; left != 0; --left) {
      Wr *wr = reinterpret_cast<Wr *>(request_.room(sizeof(Wr)));
      fill(*wr, qp);
      wr->next = first;
      first = wr;
      all_.insert(wr);
    }
    return first;
  }
  bool holds(const void *wr) const { return all_.count(wr) != 0; }

 private:
  ibv_sge *list() {
    return reinterpret_cast<ibv_sge *>(
        request_.structure(shapes->of("ibv_sge"), 0, false, Request::longest));
  }
  template <class T>
  T *object(Kind kind) {
    return static_cast<T *>(request_.object(kind, false, false));
  }

  template <class Wr>
  void fill_both(Wr &wr, const ibv_qp *qp) {
    wr.wr_id = in_.take<std::uint8_t>();
    wr.num_sge = static_cast<int>(request_.count(4));
    // Inline data and the beginnings of frames are read by the library.
    request_.is_read = true;
    wr.sg_list = in_.take<std::uint8_t>() < 250 ? list() : nullptr;
    request_.is_read = false;
    const int type = qp != nullptr ? qp->qp_type : 0;
    if (type == IBV_QPT_UD) {
      wr.wr.ud.ah = object<ibv_ah>(Kind::ibv_ah);
      wr.wr.ud.remote_qpn = static_cast<std::uint32_t>(request_.number(4));
      wr.wr.ud.remote_qkey = 0x11111111;
    } else {
      wr.wr.atomic.remote_addr = request_.address();
      wr.wr.atomic.rkey = static_cast<std::uint32_t>(request_.number(4));
      if (in_.take<std::uint8_t>() % 2 != 0) wr.wr.rdma.rkey = wr.wr.atomic.rkey;
    }
  }

  void fill(ibv_send_wr &wr, const ibv_qp *qp) {
    fill_both(wr, qp);
    wr.imm_data = in_.take<std::uint8_t>();
    wr.opcode = static_cast<ibv_wr_opcode>(in_.take<std::uint8_t>() % 16);
    wr.send_flags = in_.take<std::uint8_t>() % 32;
    if (wr.opcode == IBV_WR_BIND_MW) {
      wr.bind_mw.mw = request_.good<ibv_mw>();
      wr.bind_mw.bind_info.mr = request_.good<ibv_mr>();
      wr.bind_mw.bind_info.length = request_.number(8);
    } else {
      wr.tso.hdr = world->buffer;
      wr.tso.hdr_sz = static_cast<std::uint16_t>(request_.number(2));
      wr.tso.mss = static_cast<std::uint16_t>(request_.number(2));
    }
  }

  void fill(ibv_recv_wr &wr, const ibv_qp *) {
    wr.wr_id = in_.take<std::uint8_t>();
    wr.num_sge = static_cast<int>(request_.count(4));
    wr.sg_list = in_.take<std::uint8_t>() < 250 ? list() : nullptr;
  }

  void fill(ibv_exp_send_wr &wr, const ibv_qp *qp) {
    static constexpr int others[] = {IBV_EXP_WR_TSO,           IBV_EXP_WR_NOP,
                                     IBV_EXP_WR_UMR_FILL,      IBV_EXP_WR_SEND_ENABLE,
                                     IBV_EXP_WR_RECV_ENABLE,   IBV_EXP_WR_CQE_WAIT,
                                     IBV_EXP_WR_SEND_WITH_INV, IBV_EXP_WR_LOCAL_INV,
                                     IBV_EXP_WR_BIND_MW,       IBV_EXP_WR_UMR_INVALIDATE};
    fill_both(wr, qp);
    wr.ex.imm_data = in_.take<std::uint8_t>();
    const std::uint8_t opcode = in_.take<std::uint8_t>();
    wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(opcode < 128   ? opcode % 16
                                                   : opcode < 250 ? others[opcode % 10]
                                                                  : in_.take<int>());
    wr.exp_send_flags = in_.take<std::uint8_t>() % 64;
    if (in_.take<std::uint8_t>() % 8 == 0)
      wr.exp_send_flags |= std::uint64_t{1} << in_.take<std::uint8_t>() % 64;
    if (in_.take<std::uint8_t>() % 16 == 0)
      wr.comp_mask = static_cast<std::uint32_t>(request_.number(4));
    wr.task.wqe_enable.qp = object<ibv_qp>(Kind::ibv_qp);
    if (in_.take<std::uint8_t>() % 2 != 0) wr.task.cqe_wait.cq = object<ibv_cq>(Kind::ibv_cq);
    wr.dc.ah = object<ibv_ah>(Kind::ibv_ah);
    wr.dc.dct_access_key = in_.take<std::uint8_t>() % 2;
    wr.dc.dct_number = static_cast<std::uint32_t>(request_.number(4));
    const int what = wr.exp_opcode;
    if (what == IBV_EXP_WR_BIND_MW) {
      wr.bind_mw.mw = object<ibv_mw>(Kind::ibv_mw);
      wr.bind_mw.rkey = static_cast<std::uint32_t>(request_.number(4));
      wr.bind_mw.bind_info.mr = object<ibv_mr>(Kind::ibv_mr);
      wr.bind_mw.bind_info.addr = request_.address();
      wr.bind_mw.bind_info.length = request_.number(8);
      wr.bind_mw.bind_info.exp_mw_access_flags = request_.number(8);
    } else {
      wr.tso.hdr = world->buffer;
      wr.tso.hdr_sz = static_cast<std::uint16_t>(request_.number(2));
      wr.tso.mss = static_cast<std::uint16_t>(request_.number(2));
    }
    auto &umr = wr.ext_op.umr;
    if (what != IBV_EXP_WR_UMR_FILL && what != IBV_EXP_WR_UMR_INVALIDATE) {
      // Masked atomics, which lead nowhere.
      wr.ext_op.masked_atomics.log_arg_sz = static_cast<std::uint32_t>(request_.number(4));
      wr.ext_op.masked_atomics.remote_addr = request_.address();
      wr.ext_op.masked_atomics.rkey = static_cast<std::uint32_t>(request_.number(4));
      return;
    }
    umr.umr_type = in_.take<std::uint8_t>() < 250 ? in_.take<std::uint8_t>() % 2 : 7;
    umr.memory_objects = object<ibv_exp_mkey_list_container>(Kind::ibv_exp_mkey_list_container);
    umr.exp_access = request_.number(8);
    umr.modified_mr = object<ibv_mr>(Kind::ibv_mr);
    umr.base_addr = request_.address();
    umr.num_mrs = static_cast<std::uint32_t>(request_.count(4));
    const bool repeats = umr.umr_type == IBV_EXP_UMR_REPEAT;
    const Shape &of = shapes->of(repeats ? "ibv_exp_mem_repeat_block" : "ibv_exp_mem_region");
    std::uint8_t *at = request_.structure(of, 1, false, Request::longest);
    umr.mem_list.mem_reg_list = reinterpret_cast<ibv_exp_mem_region *>(at);
    if (!repeats) return;
    umr.mem_list.rb.repeat_count = reinterpret_cast<std::size_t *>(request_.list_of_numbers());
    umr.mem_list.rb.stride_dim = static_cast<std::uint32_t>(request_.count(4));
  }

  Request &request_;
  Bytes &in_;
  std::set<const void *> all_;
};

// A rule: specifications of any size, with room behind them.
ibv_exp_flow_attr *rule_of(Bytes &in, Request &request) {
  static constexpr std::pair<int, std::size_t> types[] = {
      {IBV_EXP_FLOW_SPEC_ETH, sizeof(ibv_exp_flow_spec_eth)},
      {IBV_EXP_FLOW_SPEC_IB, sizeof(ibv_exp_flow_spec_ib)},
      {IBV_EXP_FLOW_SPEC_IPV4, sizeof(ibv_exp_flow_spec_ipv4)},
      {IBV_EXP_FLOW_SPEC_IPV6, sizeof(ibv_exp_flow_spec_ipv6)},
      {IBV_EXP_FLOW_SPEC_IPV4_EXT, sizeof(ibv_exp_flow_spec_ipv4_ext)},
      {IBV_EXP_FLOW_SPEC_IPV6_EXT, sizeof(ibv_exp_flow_spec_ipv6_ext)},
      {IBV_EXP_FLOW_SPEC_TCP, sizeof(ibv_exp_flow_spec_tcp_udp)},
      {IBV_EXP_FLOW_SPEC_UDP, sizeof(ibv_exp_flow_spec_tcp_udp)},
      {IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL, sizeof(ibv_exp_flow_spec_tunnel)},
      {IBV_EXP_FLOW_SPEC_ACTION_TAG, sizeof(ibv_exp_flow_spec_action_tag)},
      {IBV_EXP_FLOW_SPEC_ACTION_DROP, sizeof(ibv_exp_flow_spec_action_drop)}};
  std::vector<std::uint8_t> bytes(sizeof(ibv_exp_flow_attr));
  ibv_exp_flow_attr head{};
  head.type = static_cast<ibv_exp_flow_attr_type>(in.take<std::uint8_t>() % 5);
  head.port = in.take<std::uint8_t>() % 16 != 0 ? 1 : in.take<std::uint8_t>();
  head.priority = static_cast<std::uint16_t>(in.take<std::uint8_t>() % 4);
  head.num_of_specs = in.take<std::uint8_t>() % 5;
  if (in.take<std::uint8_t>() % 16 == 0) head.flags = in.take<std::uint8_t>();
  if (in.take<std::uint8_t>() % 16 == 0) head.reserved = in.take<std::uint8_t>();
  for (int i = 0; i < head.num_of_specs; ++i) {
    const auto &[type, size] = types[in.take<std::uint8_t>() % std::size(types)];
    const std::uint8_t how = in.take<std::uint8_t>();
    const std::size_t at = bytes.size();
    const std::uint16_t said =
        how < 8 ? in.take<std::uint16_t>() : static_cast<std::uint16_t>(size);
    const std::uint32_t is = static_cast<std::uint32_t>(type) |
                             (how % 8 == 7 ? std::uint32_t{IBV_EXP_FLOW_SPEC_INNER} : 0u);
    bytes.resize(at + std::max<std::size_t>(size, std::min<std::size_t>(said, 256)));
    if (how >= 64) in.take_into(&bytes[at], std::min<std::size_t>(size, how / 4));
    std::memcpy(&bytes[at], &is, sizeof(is));
    std::memcpy(&bytes[at + sizeof(is)], &said, sizeof(said));
  }
  head.size = static_cast<std::uint16_t>(bytes.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::uint8_t *rule = request.room(bytes.size());
  std::memcpy(rule, bytes.data(), bytes.size());
  return reinterpret_cast<ibv_exp_flow_attr *>(rule);
}

// One call.
template <class R, class... Args>
class Call {
 public:
  Call(const Way &way, Bytes &in)
      : way_(way),
        in_(in),
        side_(in.take<std::uint8_t>() % 8 == 7),
        request_(in, *world, side_, way.entry == nullptr),
        chain_(request_, in) {
    request_.followed = way.slot;
    request_.ending = ends_something(way.name);
  }

  void make(R (*function)(Args...)) {
    if (fill(std::index_sequence_for<Args...>{}))
      make(function, std::index_sequence_for<Args...>{});
  }

 private:
  using Values = std::tuple<Args...>;

  template <std::size_t... n>
  bool fill(std::index_sequence<n...>) {
    return (fill_one<n>() && ...);
  }

  // False for what the device does not have, where nothing else may be there either.
  template <std::size_t n>
  bool fill_one() {
    using T = std::tuple_element_t<n, Values>;
    T &value = std::get<n>(values_);
    if constexpr (!std::is_pointer_v<T>) {
      value = static_cast<T>(request_.number(sizeof(T)));
      // How many there is room for.
      if (n == 1 && is_hot(way_))
        value = static_cast<T>(in_.take<std::uint8_t>() % (Request::longest + 1));
      // libmlx5 fills memory for sixteen millions before the device refuses them.
      if (n == 1 && (way_.name.find("create_cq") != way_.name.npos || way_.name == "ibv_resize_cq"))
        value = static_cast<T>(in_.take<std::uint8_t>() < 240 ? in_.below(4096) : ~0u >> 1);
      if (n == 3 && way_.name == "ibv_exp_poll_cq") {
        const std::uint8_t how = in_.take<std::uint8_t>();
        value = static_cast<T>(how < 64 ? how : how < 128 ? 88 + how % 64 : sizeof(ibv_exp_wc));
      }
      return true;
    } else {
      using Pointee = std::remove_cv_t<std::remove_pointer_t<T>>;
      void *pointer;
      constexpr Kind kind = kind_of<Pointee>;
      if constexpr (kind != Kind::none) {
        pointer = request_.object(kind, n == 0 && (way_.slot || is_hot(way_)), !is_hot(way_));
        if (n == 0 && pointer == nullptr && (way_.slot || way_.entry == nullptr)) return false;
        if (way_.entry == nullptr && n == 0 && has_front(kind) && !is_hot(way_) &&
            in_.take<std::uint8_t>() > 240)
          if (void *gone = world->stale(kind)) pointer = gone;
      } else if constexpr (std::is_same_v<Pointee, char>) {
        static constexpr const char *texts[] = {"MLX5_POST_SEND_PREFER_BF", "1",  "", "NAME",
                                                "MLX_QP_ALLOC_TYPE",        "yes"};
        pointer = const_cast<char *>(texts[in_.take<std::uint8_t>() % 6]);
      } else if constexpr (std::is_same_v<Pointee, ibv_exp_send_wr> ||
                           std::is_same_v<Pointee, ibv_send_wr> ||
                           std::is_same_v<Pointee, ibv_recv_wr>) {
        pointer = chain_.template make<Pointee>(first<ibv_qp>());
      } else if constexpr (std::is_same_v<Pointee, ibv_exp_flow_attr>) {
        pointer = rule_of(in_, request_);
      } else if constexpr (std::is_same_v<Pointee, void>) {
        pointer = n == 1 && !world->families.empty() && way_.name == "ibv_exp_release_intf"
                      ? world->families[in_.take<std::uint8_t>() % world->families.size()].second
                      : static_cast<void *>(world->buffer);
      } else if constexpr (std::is_pointer_v<Pointee>) {
        pointer = request_.room(64 * sizeof(void *));
      } else if constexpr (std::is_class_v<Pointee>) {
        pointer = request_.structure(shapes->of(name_of_type<Pointee>()), 2, n == 0,
                                     is_hot(way_) ? Request::longest : 1);
      } else {
        auto *numbers = request_.list_of_numbers();
        if (way_.name.find("xrc_rcv_qp") != std::string::npos && !world->receivers.empty())
          *numbers = world->receivers[in_.take<std::uint8_t>() % world->receivers.size()].second;
        pointer = numbers;
      }
      // Nothing at all.
      if (way_.entry != nullptr && kind == Kind::none && n != 0 && in_.take<std::uint8_t>() > 248)
        pointer = nullptr;
      value = static_cast<T>(pointer);
      return true;
    }
  }

  // The first argument if it is of that kind.
  template <class T>
  const T *first() const {
    if constexpr (std::is_same_v<std::tuple_element_t<0, Values>, T *>) return std::get<0>(values_);
    else return nullptr;
  }

  template <std::size_t... n>
  void make(R (*function)(Args...), std::index_sequence<n...>) {
    if (shown) {
      std::fprintf(stderr, "%s%s(", way_.slot ? "slot " : "", std::string(way_.name).c_str());
      (std::fprintf(stderr, n == 0 ? "%#lx" : ", %#lx", shown_as(std::get<n>(values_))), ...);
      std::fputs(")\n", stderr);
    }
    errno = 0;
    if constexpr (std::is_void_v<R>) {
      function(std::get<n>(values_)...);
    } else {
      // Where the inline holds the lock, and what it does behind.
      const bool locked = way_.slot && way_.name == "ibv_exp_create_cq";
      ibv_context *of = nullptr;
      if constexpr (std::is_same_v<R, ibv_cq *>)
        if constexpr (std::is_same_v<std::tuple_element_t<0, Values>, ibv_context *>)
          of = std::get<0>(values_);
      if (locked) pthread_mutex_lock(&of->mutex);
      const R got = function(std::get<n>(values_)...);
      if (locked) pthread_mutex_unlock(&of->mutex);
      if constexpr (std::is_same_v<R, ibv_cq *>)
        if (locked && got != nullptr && got->channel != nullptr) ++got->channel->refcnt;
      if (shown) std::fprintf(stderr, "  %#lx, errno %d\n", shown_as(got), errno);
      judge(got);
      keep(got);
    }
  }

  // By the shape of the row.
  template <class T>
  void judge(T got) {
    if (way_.entry == nullptr) return;
    const int error = errno;
    if constexpr (std::is_pointer_v<R>) {
      PROMISE((got != nullptr) == (error == 0));
    } else {
      using ibvexp::Shape;
      const Shape shape = way_.entry->shape;
      const long answer = static_cast<long>(got);
      if (shape == Shape::zero) return;
      if (answer == 0 || (shape == Shape::negative && answer > 0)) {
        PROMISE(error == 0);
        return;
      }
      PROMISE(error > 0 && error < 200);
      if (shape == Shape::minus_one) PROMISE(answer == -1);
      else if (shape == Shape::negative) PROMISE(answer == -error);
      else PROMISE(answer == error);
      if constexpr (sizeof...(Args) == 3)
        if constexpr (std::is_same_v<std::tuple_element_t<1, Values>, ibv_exp_send_wr *>)
          if (auto **bad = std::get<2>(values_); bad != nullptr)
            PROMISE(*bad == nullptr || chain_.holds(*bad));
    }
  }

  template <class T>
  void keep(T got) {
    if constexpr (std::is_same_v<R, ibv_device **>) {
      if (got != nullptr) ibv_free_device_list(got);
    } else if constexpr (std::is_same_v<R, void *>) {
      if (got != nullptr && way_.name == "ibv_exp_query_intf")
        world->families.emplace_back(std::get<0>(values_), got);
    } else if constexpr (std::is_pointer_v<R>) {
      constexpr Kind kind = kind_of<std::remove_pointer_t<R>>;
      if constexpr (number(kind) < number(Kind::ibv_context))
        if (got != nullptr) world->add(kind, got);
    } else if (got == 0) {
      if (ends_something(way_.name)) forget();
      if constexpr (sizeof...(Args) > 1) receivers();
    }
  }

  // What the call has ended: the first argument that can be.
  void forget() {
    bool done = false;
    std::apply([&](auto... argument) { (forget(argument, done), ...); }, values_);
  }
  template <class T>
  void forget(T argument, bool &done) {
    if constexpr (std::is_pointer_v<T>) {
      constexpr Kind kind = kind_of<std::remove_cv_t<std::remove_pointer_t<T>>>;
      if constexpr (number(kind) < number(Kind::ibv_context)) {
        if (!done) world->forget(kind, const_cast<void *>(static_cast<const void *>(argument)));
        done = true;
      }
    }
  }

  void receivers() {
    auto &all = world->receivers;
    if (way_.name == "ibv_exp_release_intf") {
      auto &families = world->families;
      for (auto at = families.begin(); at != families.end(); ++at)
        if constexpr (std::is_same_v<std::tuple_element_t<0, Values>, ibv_context *> &&
                      std::is_same_v<std::tuple_element_t<1, Values>, void *>)
          if (at->first == std::get<0>(values_) && at->second == std::get<1>(values_)) {
            families.erase(at);
            return;
          }
    }
    if constexpr (std::is_same_v<std::tuple_element_t<1, Values>, std::uint32_t *>) {
      if (way_.name == "ibv_create_xrc_rcv_qp")
        all.emplace_back(domain_of(std::get<0>(values_)), *std::get<1>(values_));
    } else if constexpr (std::is_same_v<std::tuple_element_t<1, Values>, std::uint32_t>) {
      const std::pair one(domain_of(std::get<0>(values_)), std::get<1>(values_));
      if (way_.name == "ibv_reg_xrc_rcv_qp") all.push_back(one);
      if (way_.name == "ibv_unreg_xrc_rcv_qp")
        if (const auto at = std::find(all.begin(), all.end(), one); at != all.end()) all.erase(at);
    }
  }
  template <class T>
  static ibv_xrc_domain *domain_of(T *first) {
    if constexpr (std::is_same_v<T, ibv_qp_init_attr>)
      return reinterpret_cast<ibvexp_xrc_qp_init_attr *>(first)->xrc_domain;
    else if constexpr (std::is_same_v<T, ibv_xrc_domain>) return first;
    else return nullptr;
  }

  const Way &way_;
  Bytes &in_;
  int side_;
  Request request_;
  Chain chain_;
  Values values_{};
};

using Step = std::function<void(Bytes &)>;
std::vector<Step> &steps() {
  static std::vector<Step> all;
  return all;
}

template <class R, class... Args>
void add(std::string_view name, const Entry *entry, bool slot, R (*function)(Args...)) {
  PROMISE(function != nullptr);
  steps().push_back([way = Way{name, entry, slot}, function](Bytes &in) {
    Call<R, Args...>(way, in).make(function);
  });
}

void add_slots() {
  const verbs_context_exp *table = verbs_get_exp_ctx(world->context(0));
  PROMISE(table != nullptr);
  std::set<const void *> known;  // a provider's half has the same function
#define IBVEXP_SLOT(name, entry)                                        \
  if (known.insert(reinterpret_cast<const void *>(table->name)).second) \
    add(#entry, &row(EntryId::entry), true, table->name);
#include "table/slots.def"
}

void add_symbols() {
#define ADD_SYMBOL(name)                                       \
  {                                                            \
    using F = std::remove_pointer_t<decltype(&::name)>;        \
    const Entry &entry = row(EntryId::name);                   \
    void *found = dlvsym(RTLD_DEFAULT, #name, node_of(entry)); \
    add(#name, &entry, false, reinterpret_cast<F *>(found));   \
  }
#define ADD_slot_and_symbol(name) ADD_SYMBOL(name)
#define ADD_symbol(name) ADD_SYMBOL(name)
#define ADD_inline_only(name)
#define ADD_absent(name)
#define IBVEXP_ENTRY(name, family, door, ...) ADD_##door(name)
#include "table/entries.def"
}

// What verbs.h calls through the context.
int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) { return ibv_post_send(qp, wr, bad); }
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) { return ibv_post_recv(qp, wr, bad); }
int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return ibv_post_srq_recv(srq, wr, bad);
}
int poll_cq(ibv_cq *cq, int most, ibv_wc *wc) { return ibv_poll_cq(cq, most, wc); }
int req_notify_cq(ibv_cq *cq, int solicited) { return ibv_req_notify_cq(cq, solicited); }
ibv_mw *alloc_mw(ibv_pd *pd, int type) {
  return ibv_alloc_mw(pd, type % 2 != 0 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
}
int dealloc_mw(ibv_mw *mw) { return ibv_dealloc_mw(mw); }
int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) { return ibv_bind_mw(qp, mw, bind); }
ibv_xrcd *open_xrcd(ibv_context *context) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = -1;
  attr.oflags = O_CREAT;
  return ibv_open_xrcd(context, &attr);
}
int close_xrcd(ibv_xrcd *xrcd) { return ibv_close_xrcd(xrcd); }

void add_base() {
#define ADD(name) add(#name, nullptr, false, &::name);
  ADD(ibv_alloc_pd)
  ADD(ibv_dealloc_pd)
  ADD(ibv_dereg_mr)
  ADD(ibv_create_cq)
  ADD(ibv_resize_cq)
  ADD(ibv_destroy_cq)
  ADD(ibv_create_srq)
  ADD(ibv_modify_srq)
  ADD(ibv_query_srq)
  ADD(ibv_destroy_srq)
  ADD(ibv_create_qp)
  ADD(ibv_modify_qp)
  ADD(ibv_query_qp)
  ADD(ibv_destroy_qp)
  ADD(ibv_create_ah)
  ADD(ibv_destroy_ah)
  ADD(ibv_create_comp_channel)
  ADD(ibv_destroy_comp_channel)
#undef ADD
#define ADD(name) add(#name, nullptr, false, &name);
  ADD(post_send)
  ADD(post_recv)
  ADD(post_srq_recv)
  ADD(poll_cq)
  ADD(req_notify_cq)
  ADD(alloc_mw)
  ADD(dealloc_mw)
  ADD(bind_mw)
  ADD(open_xrcd)
  ADD(close_xrcd)
#undef ADD
}

// A queue pair on its way to RTS, connected to one of ours: what random members would
// hardly find.
void connect_one(Bytes &in) {
  auto *qp = world->good<ibv_qp>(0, in.take<std::uint8_t>());
  const auto *peer = world->good<ibv_qp>(0, in.take<std::uint8_t>());
  if (qp == nullptr) return;
  const int type = qp->qp_type;
  ibv_port_attr port{};
  PROMISE(ibv_query_port(world->context(0), 1, &port) == 0);
  ibv_exp_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = 0x11111111;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (type != IBV_QPT_UC) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.timeout = 8;
  attr.retry_cnt = attr.rnr_retry = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.dlid = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 1;
    PROMISE(ibv_query_gid(world->context(0), 1, 1, &attr.ah_attr.grh.dgid) == 0);
  }
  const bool raw = type == IBV_QPT_RAW_PACKET, dc = type == IBV_EXP_QPT_DC_INI;
  const bool connected = type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_XRC_SEND;
  const bool reliable = connected && type != IBV_QPT_UC;
  std::uint64_t masks[3] = {IBV_EXP_QP_STATE | IBV_EXP_QP_PORT, IBV_EXP_QP_STATE, IBV_EXP_QP_STATE};
  if (!raw) masks[0] |= IBV_EXP_QP_PKEY_INDEX;
  if (connected) masks[0] |= IBV_EXP_QP_ACCESS_FLAGS;
  if (type == IBV_QPT_UD) masks[0] |= IBV_EXP_QP_QKEY, masks[2] |= IBV_EXP_QP_SQ_PSN;
  if (dc) masks[0] |= IBV_EXP_QP_DC_KEY;
  if (dc || connected) masks[1] |= IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU;
  if (connected) masks[1] |= IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN, masks[2] |= IBV_EXP_QP_SQ_PSN;
  if (reliable) masks[1] |= IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER;
  if (reliable || dc)
    masks[2] |= IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
                IBV_EXP_QP_MAX_QP_RD_ATOMIC;
  static constexpr ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
  for (int i = 0; i < 3; ++i) {
    attr.qp_state = states[i];
    if (ibv_exp_modify_qp(qp, &attr, masks[i]) != 0) return;
  }
}

}  // namespace

extern "C" const char *__lsan_default_suppressions() {
  // libmlx5 does not free what ibv_open_qp() makes: see src/translate/verbs/xrc.cpp.
  return "leak:ibv_open_qp\nleak:ibvexp::queue::open_native\n";
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  setenv("SOFTHCA_LOG", "error", 0);
  setenv("SOFTHCA_FABRIC", ("fuzz-" + std::to_string(getpid())).c_str(), 1);
  setenv("SOFTHCA_LINK", "eth", 0);
  shown = std::getenv("FUZZ_SHOW") != nullptr;
  world = new World;
  shapes = new Shapes(LAYOUTS_JSON);
  add_slots();
  add_symbols();
  add_base();
  for (int i = 0; i < 4; ++i) steps().emplace_back(connect_one);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes in(data, size);
  const bool last = in.take<std::uint8_t>() % 64 == 63;
  for (int i = 0; i < 48 && !in.empty(); ++i) steps()[in.take<std::uint8_t>() % steps().size()](in);
  world->clear();
  if (last) {
    world->close();
    world->open();
  }
  return 0;
}
