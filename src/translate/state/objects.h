// Objects of the legacy API that rdma-core has no structure for: what a program
// gets a pointer to, and what stands behind it.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/pointer_set.h"

namespace ibvexp::engine {
struct Endpoint;
}

namespace ibvexp {

// The last objects of a kind that were destroyed. A program that uses one once more,
// or destroys it twice, is to get an error: that takes its memory, in which
// the context is found. In any thread.
template <class Owner>
class Retired {
 public:
  Retired() = default;
  Retired(const Retired &) = delete;
  Retired &operator=(const Retired &) = delete;
  ~Retired() {
    for (auto &kept : last_) Owner{kept.load()};
  }
  void keep(Owner gone) { Owner{last_[next_++ % last_.size()].exchange(gone.release())}; }
  bool contains(const void *object) const {
    return std::any_of(last_.begin(), last_.end(),
                       [&](const auto &kept) { return kept.load() == object; });
  }

 private:
  std::array<std::atomic<typename Owner::pointer>, 16> last_{};
  std::atomic<std::size_t> next_{0};
};

// Objects handed out, by the address that the program knows. A handle that was
// destroyed, or never came from here, is not found. In any thread, without a lock.
template <class T>
class Handles {
 public:
  Handles() = default;
  Handles(const Handles &) = delete;
  Handles &operator=(const Handles &) = delete;
  ~Handles() {
    objects_.for_each(true, [](void *object) { delete static_cast<T *>(object); });
  }

  // Throws bad_alloc.
  T *add(std::unique_ptr<T> object) {
    objects_.insert(object.get());
    return object.release();
  }

  T *find(const void *handle) const {
    return objects_.contains(handle) ? as_object(handle) : nullptr;
  }

  // An object that is to be destroyed, or null.
  class Claim {
   public:
    Claim(const void *handle, PointerSet::Slot *place)
        : object_(as_object(handle)), place_(place) {}
    explicit operator bool() const { return place_ != nullptr; }
    T *get() const { return object_; }
    T *operator->() const { return object_; }
    T &operator*() const { return *object_; }

   private:
    friend Handles;
    T *object_;
    PointerSet::Slot *place_;
  };

  // It is not found from here on: of two threads that destroy an object one gets null. Afterwards
  // it goes or, if it could not be destroyed, is found again.
  Claim claim(const void *handle) { return {handle, objects_.claim(handle)}; }
  void retire(Claim gone) {
    PointerSet::remove(*gone.place_);
    retired_.keep(std::unique_ptr<T>(gone.object_));
  }
  // One that was claimed before.
  void retire(T *object) { retire(Claim(object, &objects_.claimed_place(object))); }
  // What became of it.
  Result<void> settle(Claim object, int error) {
    if (error == 0) [[likely]]
      retire(object);
    else PointerSet::put_back(*object.place_);
    return outcome(error);
  }

  // The caller makes sure that none is retired meanwhile.
  template <class F>
  void for_each(F f) const {
    objects_.for_each(false, [&](void *object) { f(*as_object(object)); });
  }

 private:
  static T *as_object(const void *handle) { return static_cast<T *>(const_cast<void *>(handle)); }

  PointerSet objects_;
  Retired<std::unique_ptr<T>> retired_;
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
  ibv_pd *pd_use = nullptr;  // with a command's: keeps the protection domain in use
  std::uint64_t dc_key = 0;
  ibv_qp_attr made_with{};                     // kernels do not tell the route
  std::uint64_t serial = 0;                    // names it in events
  bool subscribed = false;                     // to them
  std::uint32_t events = 0;                    // that the program was handed
  std::shared_ptr<engine::Endpoint> endpoint;  // if the engine drives what it receives with
};

// As the legacy provider had it: UCX up to 1.8 reads where the memory is mapped.
struct DeviceMemory {
  ibv_exp_dm handle{};     // first: its address is the object's
  std::size_t length = 0;  // asked for
  void *mapped = nullptr;  // null: not known
  ibv_dm *dm = nullptr;

  bool holds(std::uint64_t offset, std::size_t bytes) const {
    return bytes <= length && offset <= length - bytes;
  }
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
