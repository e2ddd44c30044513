// Finds the handler of an ioctl message and runs it.
#pragma once

#include <span>

#include "uverbs/attrs.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

// 0 or an errno. Device lock held.
int dispatch(File &file, const ib_uverbs_ioctl_hdr *message);

// The methods and commands of each family, from the file of that name.
struct Family {
  std::span<const Method> methods;
  std::span<const WriteCommand> commands;
};
extern const Family context_family, device_family, pd_family, mr_family, mw_family, cq_family,
    qp_create_family, qp_modify_family, qp_query_family, srq_family, xrc_family, ah_family,
    mcast_family, dm_family, devx_family, devx_events_family, umem_family, uar_family, wq_family,
    rwq_family, flow_family, matcher_family, pacing_family, refused_family, old_family;

// Ends a creation: reports the handle in attribute `id` and enters the object.
// When the answer cannot be delivered, the object is destroyed again.
int commit(File &, Attrs &, u16 id, std::unique_ptr<Object> object);

// Destroys the object of attribute `id`, see ObjectTable::destroy().
int destroy(File &, Attrs &, u16 id);
// The same for what packets may name: those already sent come first, see
// engine_settle().
int destroy_settled(File &, Attrs &, u16 id);
void settle(const Object &);

// Handler of everything that is refused on purpose, see refused.cpp.
int refuse(File &, Attrs &);

}  // namespace softhca::uverbs
