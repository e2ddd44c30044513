// Every slot and every exported symbol, called with each pointer null, foreign and
// stale, and with each number 0, 1, the largest and the one behind it: in the
// arguments, and in every member of the structures that they lead to. The calls are
// made from the tables and the recorded layouts, so that a new row is walked by
// being there. Nothing may crash, and at the end everything can be given back.
#include <dlfcn.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <set>
#include <utility>

#include "../support/entry_node.h"
#include "layouts.h"
#include "request_seeds.h"
#include "table/compat.h"
#include "walk_objects.h"

using namespace ibvexp;

namespace {

Layouts &layouts() {
  static Layouts all(LAYOUTS_JSON);
  return all;
}

// "ibv_exp_dm" for ibv_exp_dm.
template <class T>
std::string name_of_type() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const auto begin = text.find("T = ") + 4;
  return std::string(text.substr(begin, text.find_first_of(";]", begin) - begin));
}

// The variations of requests of one structure: numbers of its members.
std::vector<Seed> seeds_of(const std::string &structure) {
  std::vector<Seed> all = {{"", {}}};
  for (const Seed &seed : seeds)
    if (seed.structure == structure) all.push_back(seed);
  if (structure == "ibv_exp_send_wr")
    for (const int opcode : opcodes)
      all.push_back({"", {{"exp_opcode", static_cast<std::uint64_t>(opcode)}, {"num_sge", 1}}});
  if (const Layout *layout = layouts().find(structure))
    for (const Leaf &leaf : layout->leaves)
      if (leaf.path == "comp_mask")
        for (std::size_t n = 0, had = all.size(); n < had; ++n)
          for (unsigned bit = 0; bit < 24 && structure != "ibv_exp_send_wr"; ++bit) {
            Seed more = all[n];
            std::uint64_t mask = 0;
            for (const auto &[path, value] : more.members)
              if (path == std::string("comp_mask")) mask = value;
            if ((mask >> bit & 1) != 0) continue;
            more.members.emplace_back("comp_mask", mask | std::uint64_t{1} << bit);
            all.push_back(std::move(more));
          }
  return all;
}

std::vector<std::uint64_t> numbers(std::size_t size) {
  const unsigned bits = static_cast<unsigned>(size) * 8;
  const std::uint64_t largest = ~std::uint64_t{0} >> (64 - bits), sign = largest / 2;
  return {0, 1, sign, sign + 1, largest};
}

// A structure in memory of its own size, so that a sanitizer sees who goes beyond.
class Request {
 public:
  Request(const std::string &name, Objects &objects, int depth) : name_(name), objects_(objects) {
    const Layout *layout = layouts().find(name);
    if (layout != nullptr) leaves_ = layout->leaves;
    std::size_t size = layout != nullptr ? layout->size : 1024;
    if (name == "ibv_exp_flow_attr") size += 1024;  // specifications follow
    bytes_.resize(size);
    clear(depth);
  }

  void *data() { return bytes_.data(); }
  const std::vector<Leaf> &leaves() const { return leaves_; }
  std::map<std::string, std::unique_ptr<Request>> &inner() { return inner_; }

  void put(const Leaf &leaf, std::uint64_t value) {
    std::memcpy(bytes_.data() + leaf.offset, &value, leaf.size);
  }
  std::uint64_t get(const Leaf &leaf) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + leaf.offset, leaf.size);
    return value;
  }

  void plant(const Seed &seed) {
    for (const auto &[path, value] : seed.members)
      for (const Leaf &leaf : leaves_)
        if (leaf.path == path) put(leaf, value);
  }

  // What a pointer may be instead.
  std::vector<std::uint64_t> others(const Leaf &leaf) const {
    // A number over a pointer that is followed: it cannot be told from an object.
    if (leaf.pointee.empty() && objects_.qp_type == IBV_QPT_UD && is_over_pointer(leaf)) return {0};
    if (leaf.pointee.empty()) return numbers(leaf.size);
    std::vector<std::uint64_t> all = {0};
    if (const Objects::Kind *kind = objects_.find(leaf.pointee)) {
      for (void *foreign : kind->foreign) all.push_back(reinterpret_cast<std::uintptr_t>(foreign));
      if (void *stale = objects_.stale(leaf.pointee))
        all.push_back(reinterpret_cast<std::uintptr_t>(stale));
    } else if (leaf.path == "obj") {
      for (const char *name : {"ibv_qp", "ibv_cq", "ibv_mr", "ibv_pd", "ibv_exp_wq"})
        if (const Objects::Kind *one = objects_.find(name)) {
          all.push_back(reinterpret_cast<std::uintptr_t>(one->good));
          for (void *foreign : one->foreign)
            all.push_back(reinterpret_cast<std::uintptr_t>(foreign));
        }
    }
    return all;
  }

  // Good objects everywhere, numbers 0. Members of unions: the pointers that come
  // last in the structure win, which the seeds of requests choose among by opcode.
  void clear(int depth) {
    std::fill(bytes_.begin(), bytes_.end(), 0);
    for (const Leaf &leaf : leaves_) {
      if (leaf.pointee.empty() || leaf.path == "next") continue;
      put(leaf, reinterpret_cast<std::uintptr_t>(good(leaf, depth)));
    }
  }

 private:
  // Of a union: the address of a remote buffer and a datagram's address handle.
  bool is_over_pointer(const Leaf &leaf) const {
    return std::any_of(leaves_.begin(), leaves_.end(), [&](const Leaf &other) {
      return !other.pointee.empty() && other.offset < leaf.offset + leaf.size &&
             leaf.offset < other.offset + other.size;
    });
  }

  void *good(const Leaf &leaf, int depth) {
    if (const Objects::Kind *kind = objects_.find(leaf.pointee)) return kind->good;
    if (leaf.pointee == "*") {
      static void *queue[64];
      const Objects::Kind *queues = objects_.find("ibv_exp_wq");
      std::fill(std::begin(queue), std::end(queue), queues->good);
      return queue;
    }
    if (layouts().find(leaf.pointee) == nullptr) return objects_.buffer().bytes.data();
    if (depth == 0) return nullptr;
    auto &inner = inner_[leaf.path];
    if (inner == nullptr) inner = std::make_unique<Request>(leaf.pointee, objects_, depth - 1);
    else inner->clear(depth - 1);
    for (const Seed &seed : seeds)
      if (leaf.pointee == seed.structure) inner->plant(seed);
    for (const Leaf &piece : inner->leaves())
      if (leaf.pointee == "ibv_sge" && piece.path == "addr")
        inner->put(piece, objects_.buffer().address());
    return inner->data();
  }

  std::string name_;
  Objects &objects_;
  std::vector<Leaf> leaves_;
  std::vector<std::uint8_t> bytes_;
  std::map<std::string, std::unique_ptr<Request>> inner_;
};

bool destroys(std::string_view entry) {
  for (const char *word : {"destroy", "free", "dealloc", "close"})
    if (entry.find(word) != entry.npos) return true;
  return false;
}

// What a call made.
template <class T>
void give_back(T *) {}
void give_back(ibv_qp *qp) { CHECK(ibv_destroy_qp(qp) == 0); }
void give_back(ibv_cq *cq) { CHECK(ibv_destroy_cq(cq) == 0); }
void give_back(ibv_srq *srq) { CHECK(ibv_destroy_srq(srq) == 0); }
void give_back(ibv_mr *mr) { CHECK(ibv_dereg_mr(mr) == 0); }
void give_back(ibv_device **list) { ibv_free_device_list(list); }
void give_back(ibv_exp_dct *dct) { CHECK(ibv_exp_destroy_dct(dct) == 0); }
void give_back(ibv_exp_wq *wq) { CHECK(ibv_exp_destroy_wq(wq) == 0); }
void give_back(ibv_exp_dm *dm) { CHECK(ibv_exp_free_dm(dm) == 0); }
void give_back(ibv_exp_flow *flow) { CHECK(ibv_exp_destroy_flow(flow) == 0); }
void give_back(ibv_exp_rwq_ind_table *table) { CHECK(ibv_exp_destroy_rwq_ind_table(table) == 0); }
void give_back(ibv_xrc_domain *domain) { CHECK(ibv_close_xrc_domain(domain) == 0); }
void give_back(ibv_exp_res_domain *domain) {
  CHECK(ibv_exp_destroy_res_domain(domain->context, domain, nullptr) == 0);
}
void give_back(ibv_exp_mkey_list_container *list) {
  CHECK(ibv_exp_dealloc_mkey_list_memory(list) == 0);
}

template <class F>
class Walk;

template <class R, class... Args>
class Walk<R(Args...)> {
 public:
  // through_slot: an inline has followed the first argument to the context.
  Walk(const char *entry, R (*function)(Args...), Objects &objects, bool through_slot)
      : entry_(entry), function_(function), objects_(objects), through_slot_(through_slot) {}

  void walk() { walk(std::index_sequence_for<Args...>{}); }
  std::size_t calls() const { return calls_; }

 private:
  static constexpr std::size_t count = sizeof...(Args);
  using Values = std::array<std::uint64_t, count>;

  template <class T>
  static T as(std::uint64_t value) {
    if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(value);
    else return static_cast<T>(value);
  }

  // The kind of object or structure that an argument leads to, or nothing.
  template <class T>
  static std::string pointee() {
    if constexpr (!std::is_pointer_v<T>) return "";
    else if constexpr (std::is_pointer_v<std::remove_pointer_t<T>>) return "*";
    else return name_of_type<std::remove_cv_t<std::remove_pointer_t<T>>>();
  }

  template <std::size_t... n>
  void call(const Values &values, std::index_sequence<n...>) {
    ++calls_;
    if constexpr (std::is_void_v<R>) {
      function_(as<Args>(values[n])...);
    } else {
      // Where the inline holds the lock.
      const bool locked = through_slot_ && entry_ == "ibv_exp_create_cq";
      if (locked) pthread_mutex_lock(&objects_.context()->mutex);
      const R got = function_(as<Args>(values[n])...);
      if (locked) pthread_mutex_unlock(&objects_.context()->mutex);
      // So it does once more for the channel, and for the CQ's end to count it.
      if constexpr (std::is_same_v<R, ibv_cq *>)
        if (locked && got != nullptr && got->channel != nullptr) ++got->channel->refcnt;
      if constexpr (std::is_pointer_v<R>) {
        if (got != nullptr && entry_ != "ibv_exp_query_intf") give_back(got);
      } else if (got == 0 && destroys(entry_)) {
        forget(values);
      } else if (got == 0) {
        unregister(values);
      }
    }
    after();
  }

  // The first object among the arguments that was destroyed.
  void forget(const Values &values) {
    const std::array<std::string, count> kinds = {pointee<Args>()...};
    for (std::size_t n = 0; n < count; ++n) {
      const Objects::Kind *kind = objects_.find(kinds[n]);
      if (kind == nullptr || !kind->make) continue;
      objects_.renew(kinds[n], reinterpret_cast<void *>(values[n]));
      return;
    }
  }

  // Receive queue pairs of legacy XRC are known by number.
  void unregister(const Values &values) {
    if (entry_ != "ibv_create_xrc_rcv_qp") return;
    const Objects::Kind &domains = *objects_.find("ibv_xrc_domain");
    const auto leave = [&](void *domain) {
      return ibv_unreg_xrc_rcv_qp(static_cast<ibv_xrc_domain *>(domain),
                                  *as<std::uint32_t *>(values[1]));
    };
    if (leave(domains.good) != 0) CHECK(leave(domains.foreign.front()) == 0);
  }

  void after() {
    if (entry_ == "ibv_exp_post_send" || entry_ == "ibv_exp_modify_qp" ||
        entry_ == "ibv_exp_bind_mw") {
      objects_.fresh_qp();
    }
  }

  template <class T>
  std::uint64_t base(std::size_t n) {
    const std::string kind = pointee<T>();
    if constexpr (!std::is_pointer_v<T>) {
      return entry_ == "ibv_exp_poll_cq" && n == 3 ? sizeof(ibv_exp_wc) : 1;
    } else {
      if (kind == "*") return reinterpret_cast<std::uintptr_t>(out_);
      if (kind == "char") return reinterpret_cast<std::uintptr_t>("NAME");
      if (const Objects::Kind *object = objects_.find(kind))
        return reinterpret_cast<std::uintptr_t>(objects_.good(*object));
      if (requests_[n] == nullptr) requests_[n] = std::make_unique<Request>(kind, objects_, 2);
      return reinterpret_cast<std::uintptr_t>(requests_[n]->data());
    }
  }

  template <std::size_t... n>
  void walk(std::index_sequence<n...> all) {
    (walk_argument<Args>(n, all), ...);
    for (std::size_t i = 0; i < count; ++i)
      if (requests_[i] != nullptr) walk_request(i, all);
  }

  template <std::size_t... n>
  Values fresh(std::index_sequence<n...>) {
    return {base<Args>(n)...};
  }

  template <class T, std::size_t... n>
  void walk_argument(std::size_t at, std::index_sequence<n...> all) {
    INFO("argument " << at);
    Leaf leaf{"", 0, sizeof(T), pointee<T>()};
    std::vector<std::uint64_t> values = Request("", objects_, 0).others(leaf);
    for (const std::uint64_t value : values) {
      if (through_slot_ && at == 0 && value == 0 && std::is_pointer_v<T>) continue;
      Values arguments = fresh(all);
      arguments[at] = value;
      call(arguments, all);
    }
    call(fresh(all), all);
  }

  template <std::size_t... n>
  void walk_request(std::size_t at, std::index_sequence<n...> all) {
    const std::array<std::string, count> kinds = {pointee<Args>()...};
    Request &request = *requests_[at];
    const std::vector<Seed> all_seeds = seeds_of(kinds[at]);
    for (const Seed &seed : all_seeds) vary(request, request, at == 0, seed, all);
    for (const auto &[path, inner] : request.inner()) {
      INFO("behind " << path);
      for (const Seed &seed : all_seeds) vary(request, *inner, false, seed, all);
    }
  }

  // Each member in turn of a request or of what it leads to.
  template <std::size_t... n>
  void vary(Request &request, Request &changed, bool first, const Seed &seed,
            std::index_sequence<n...> all) {
    for (const Leaf &leaf : changed.leaves()) {
      INFO("member " << leaf.path);
      // What the inline has followed.
      if (through_slot_ && first && (leaf.path == "pd" || leaf.path == "mw")) continue;
      for (const std::uint64_t value : changed.others(leaf)) {
        INFO("value " << value);
        request.clear(2);
        request.plant(seed);
        changed.put(leaf, value);
        call(fresh(all), all);
      }
    }
  }

  std::string_view entry_;
  R (*function_)(Args...);
  Objects &objects_;
  bool through_slot_;
  std::size_t calls_ = 0;
  std::array<std::unique_ptr<Request>, count> requests_;
  void *out_[64] = {};
};

template <class F>
std::size_t walk(const char *entry, F *function, Objects &objects, bool through_slot) {
  Walk<F> walk(entry, function, objects, through_slot);
  walk.walk();
  return walk.calls();
}

}  // namespace

TEST_CASE("slots survive any arguments [rows:entry,slot]") {
  Objects objects;
  objects.qp_type = GENERATE(IBV_QPT_RC, IBV_QPT_UD);
  objects.fresh_qp();
  const verbs_context_exp *table = verbs_get_exp_ctx(objects.context());
  REQUIRE(table != nullptr);
  std::set<const void *> walked;  // provider's halves have the same function
  std::size_t calls = 0;
#define IBVEXP_SLOT(name, entry)                                           \
  if (walked.insert(reinterpret_cast<const void *>(table->name)).second) { \
    INFO(#name);                                                           \
    calls += walk(#entry, table->name, objects, true);                     \
  }
#include "table/slots.def"
  CHECK(calls > 10'000);
}

TEST_CASE("symbols survive any arguments [rows:entry,symbol]") {
  Objects objects;
  std::size_t calls = 0;
#define WALK_SYMBOL(name)                                                   \
  {                                                                         \
    INFO(#name);                                                            \
    using F = std::remove_pointer_t<decltype(&::name)>;                     \
    auto *found = dlvsym(RTLD_DEFAULT, #name, node_of(row(EntryId::name))); \
    REQUIRE(found != nullptr);                                              \
    calls += walk(#name, reinterpret_cast<F *>(found), objects, false);     \
  }
#define WALK_slot_and_symbol(name) WALK_SYMBOL(name)
#define WALK_symbol(name) WALK_SYMBOL(name)
#define WALK_inline_only(name)
#define WALK_absent(name)
#define IBVEXP_ENTRY(name, family, door, ...) WALK_##door(name)
#include "table/entries.def"
  CHECK(calls > 10'000);
}
