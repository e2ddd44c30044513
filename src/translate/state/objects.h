// Objects of the legacy API that rdma-core has no structure for: what a program
// gets a pointer to, and what stands behind it.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/owned.h"

namespace ibvexp::engine {
struct Endpoint;
}

namespace ibvexp {

// The last objects of a kind that were destroyed. A program that uses one once more,
// or destroys it twice, is to get an error: that takes its memory, in which
// the context is found. Serialised by the owner.
template <class Owner>
class Retired {
 public:
  void keep(Owner gone) { last_[next_++ % last_.size()] = std::move(gone); }
  bool contains(const void *object) const {
    return std::any_of(last_.begin(), last_.end(),
                       [&](const Owner &kept) { return kept && kept.get() == object; });
  }

 private:
  std::array<Owner, 16> last_;
  std::size_t next_ = 0;
};

// Objects handed out, by the address that the program knows. A handle that was
// destroyed, or never came from here, is not found. Serialised by the owner.
template <class T>
class Handles {
 public:
  // Throws bad_alloc.
  T *add(std::unique_ptr<T> object) {
    T *plain = object.get();
    objects_.emplace(plain, std::move(object));
    return plain;
  }

  T *find(const void *handle) const {
    const auto found = objects_.find(handle);
    return found != objects_.end() ? found->second.get() : nullptr;
  }

  // Out of the set, and back in when it could not be destroyed: neither
  // allocates. Into another set only after room was made there.
  using Node = typename std::unordered_map<const void *, std::unique_ptr<T>>::node_type;
  Node take(const void *handle) { return objects_.extract(handle); }

  template <class F>
  void for_each(F f) const {
    for (const auto &object : objects_) f(*object.second);
  }

  void put_back(Node node) { objects_.insert(std::move(node)); }
  void retire(Node node) { retired_.keep(std::move(node)); }
  void make_room() { objects_.reserve(objects_.size() + 1); }  // throws bad_alloc

 private:
  Retired<Node> retired_;
  std::unordered_map<const void *, std::unique_ptr<T>> objects_;
};

// A steering rule.
struct FlowRule : ibv_exp_flow {
  ibv_flow *real;
};

// A target of the DC transport.
struct DcTarget {
  ibv_exp_dct handle{};  // first: its address is the object's
  // One of the two: rdma-core's, or a command's, which can be armed (verbs/target_events.h).
  ibv_qp *qp = nullptr;
  mlx5dv_devx_obj *object = nullptr;
  std::uint64_t dc_key = 0;
  ibv_qp_attr made_with{};                     // kernels do not tell the route
  std::uint64_t serial = 0;                    // names it in events
  bool subscribed = false;                     // to them
  std::uint32_t events = 0;                    // that the program was handed
  std::shared_ptr<engine::Endpoint> endpoint;  // if the engine drives what it receives with
};

// A shared receive queue of legacy XRC; the handle leads to rdma-core's.
struct LegacySrq {
  ibv_srq_legacy handle{};  // first
};

// As the legacy provider had it: UCX up to 1.8 reads where the memory is mapped.
struct DeviceMemory {
  ibv_exp_dm handle{};     // first: its address is the object's
  std::size_t length = 0;  // asked for
  void *mapped = nullptr;  // null: not known
  ibv_dm *dm = nullptr;
};
static_assert(offsetof(DeviceMemory, length) == sizeof(ibv_exp_dm));
static_assert(offsetof(DeviceMemory, mapped) == sizeof(ibv_exp_dm) + 8);

// Registered room for the entries of a UMR that does not carry them inline.
struct KeyListMemory {
  ibv_exp_mkey_list_container handle{};  // first
  ibv_mr *mr = nullptr;
  void *entries = nullptr;
};

// Threads and doorbells that objects share. A thread domain of rdma-core takes
// effect through a parent domain, which belongs to one protection domain: there
// is one for each that was used with it.
struct ResDomain {
  struct Parent {
    ibv_pd *pd;      // the program's
    ibv_pd *parent;  // what objects are created with
    unsigned uses;
  };

  ibv_exp_res_domain handle{};  // first
  ibv_td *td = nullptr;         // null: locks stay
  unsigned uses = 0;            // objects, and calls that are about to make one
  bool destroyed = false;       // by the program: goes with its last user
  std::vector<Parent> parents;
};

// What an object holds of a resource domain.
struct DomainShare {
  ResDomain *domain;
  ibv_pd *pd;         // the program's, null for objects without one
  ibv_pd *modern_pd;  // what the object was created with
};

// A memory key without memory, until a UMR gives it some. A program releases it
// with ibv_dereg_mr(). Where that call does not come through this library, the
// members after the region make rdma-core take it for a region that the kernel
// knows nothing of (verbs_mr, mr_type): it is freed, and the key lasts until the
// context goes.
struct IndirectKey {
  ibv_mr mr;  // first
  int mr_type;
  int access;
  std::uint64_t unused[4];
  mlx5dv_mkey *mkey;
  std::uint32_t entries;  // granted
  std::uint32_t listed;   // of them, for lists: as asked, in fours
};
// From calloc(), as a region of rdma-core.
using OwnedKey = std::unique_ptr<IndirectKey, Destroys<std::free>>;

}  // namespace ibvexp
