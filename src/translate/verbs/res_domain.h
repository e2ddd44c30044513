// Resource domains.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "trace/diagnose.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_exp_res_domain *> create_res_domain(ContextState &state, ibv_context *context,
                                               ibv_exp_res_domain_init_attr *attr);
Result<void> destroy_res_domain(ContextState &state, ibv_context *context,
                                ibv_exp_res_domain *domain, ibv_exp_destroy_res_domain_attr *attr);

// An object's use of a resource domain, while the object is created or destroyed.
// Released by the destructor unless kept.
class DomainUse {
 public:
  explicit DomainUse(ContextState &state) : state_(state) {}
  DomainUse(const DomainUse &) = delete;
  DomainUse &operator=(const DomainUse &) = delete;
  ~DomainUse() { leave(); }

  // Joins the domain that a request to `entry` names, for an object of pd (null for objects
  // without a PD).
  Result<void> enter(EntryId entry, ibv_exp_res_domain *domain, ibv_pd *pd);

  // What to create the object with.
  ibv_pd *pd() const { return share_.modern_pd; }
  // Whether calls on the object are never concurrent.
  bool unlocked() const { return share_.domain != nullptr && share_.domain->td != nullptr; }

  // The object was created, or could not be destroyed. Throws bad_alloc. Does not hold the domain
  // for objects whose destruction this library does not see.
  void keep(const void *object);

  // Takes over what keep() recorded, if anything, so that this use releases it: the object
  // is about to be destroyed.
  void take(const void *object);
  explicit operator bool() const { return share_.domain != nullptr; }
  const DomainShare &share() const { return share_; }

 private:
  void leave() noexcept;

  using Shares = std::unordered_map<const void *, DomainShare>;
  ContextState &state_;
  DomainShare share_{};
  Shares::node_type node_;  // room to keep it again
};

}  // namespace ibvexp::translate
