#include "uverbs/objects.h"

#include <algorithm>
#include <ctime>

#include "engine/doorbells.h"
#include "engine/engine.h"
#include "uverbs/pacing.h"
#include "uverbs/privilege.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

namespace {

// Users before what they use, as the kernel does at the last close.
constexpr ObjectClass destruction_order[] = {
    ObjectClass::flow, ObjectClass::flow_matcher, ObjectClass::pacing, ObjectClass::ah,
    ObjectClass::mw,   ObjectClass::devx_object,  ObjectClass::qp,     ObjectClass::ind_table,
    ObjectClass::wq,   ObjectClass::srq,          ObjectClass::cq,     ObjectClass::mr,
    ObjectClass::dm,   ObjectClass::xrcd,         ObjectClass::umem,   ObjectClass::uar,
    ObjectClass::pd,
};

std::vector<std::unique_ptr<XrcDomain>> &domains() {
  static auto &list = *new std::vector<std::unique_ptr<XrcDomain>>;
  return list;
}

u32 next_domain = 1;
u32 multicast_groups;  // attachments of all QPs, for the fabric

void announce_groups() {
  if (Fabric *fabric = process().fabric) fabric->set_multicast_groups(multicast_groups);
}

std::string group_name(const Gid &gid) {
  return {reinterpret_cast<const char *>(gid.data()), gid.size()};
}

}  // namespace

int check_use(const Object *o, ObjectClass c) {
  if (o == nullptr) return ENOENT;
  const ObjectClass own = o->object_class;
  if (c != ObjectClass::any && own != c) return EINVAL;
  const bool queue = own == ObjectClass::cq || own == ObjectClass::qp || own == ObjectClass::srq ||
                     own == ObjectClass::wq;
  return queue && o->inherited() ? EIO : 0;
}

Object *ObjectTable::find(u32 handle) const {
  const auto it = objects_.find(handle);
  return it != objects_.end() ? it->second.get() : nullptr;
}

void ObjectTable::insert(u32 handle, std::unique_ptr<Object> object) {
  object->handle = handle;
  objects_[handle] = std::move(object);
}

int ObjectTable::destroy(Object *object) {
  if (const int error = object->can_destroy(); error != 0) return error;
  objects_.erase(object->handle);
  return 0;
}

void ObjectTable::destroy_all() {
  for (const ObjectClass c : destruction_order) {
    // The newest first: objects of firmware commands use older ones.
    const std::vector<u32> all = handles(c);
    for (auto handle = all.rbegin(); handle != all.rend(); ++handle) objects_.erase(*handle);
  }
  objects_.clear();
  next_ = 1;
}

std::vector<u32> ObjectTable::handles(ObjectClass c) const {
  std::vector<u32> found;
  for (const auto &[handle, object] : objects_)
    if (object->object_class == c) found.push_back(handle);
  std::sort(found.begin(), found.end());
  return found;
}

void attach_events(EventSink &sink, EventChannel *channel) {
  sink.channel = channel;
  if (channel != nullptr) channel->hold();
}

u32 detach_events(const Object &owner, EventSink &sink, u64 element) {
  if (sink.channel == nullptr) return 0;
  // Events that have not been read are taken back: the library waits until as
  // many as reported here have been acknowledged. A forked child must leave
  // the parent's queue alone.
  const u32 purged = owner.inherited() ? 0 : sink.channel->purge(element);
  const u32 reported = sink.posted - std::min(purged, sink.posted);
  sink.channel->drop();
  sink = {};
  return reported;
}

PdObject::PdObject(File &f, u32 number) : Object(f, kind), pdn(number) {
  f.pds.add(pdn, this, this);
}

PdObject::~PdObject() { file.pds.remove(pdn, this); }

DmObject::DmObject(File &f, u32 first, u64 bytes, u64 wanted)
    : Object(f, kind), first_page(first), length(bytes), requested(wanted) {
  const u32 pages = static_cast<u32>(align_up(length, page_size) / page_size);
  for (u32 i = 0; i < pages; ++i) f.dm_used.set(first_page + i);
  f.device().dm_used += u64{pages} * page_size;
}

DmObject::~DmObject() {
  const u32 pages = static_cast<u32>(align_up(length, page_size) / page_size);
  for (u32 i = 0; i < pages; ++i) file.dm_used.reset(first_page + i);
  file.device().dm_used -= u64{pages} * page_size;
}

u8 *DmObject::memory() const { return file.bar + (u64{dm_first_page} + first_page) * page_size; }

MrObject::~MrObject() { unpin(pinned); }

CqObject::~CqObject() {
  cq_forget(cq);
  file.cqs.remove(cq.cqn, this);
  end_completion_events();
  end_async_events();
}

XrcDomain *find_xrc_domain(u32 device, u64 dev, u64 inode) {
  for (const auto &d : domains())
    if (d->named && d->device == device && d->dev == dev && d->inode == inode) return d.get();
  return nullptr;
}

XrcDomain *make_xrc_domain(u32 device) {
  domains().push_back(std::make_unique<XrcDomain>());
  XrcDomain *d = domains().back().get();
  d->number = next_domain++;
  d->device = device;
  return d;
}

XrcdObject::~XrcdObject() {
  if (--domain->openers != 0) return;
  std::erase_if(domains(), [this](const auto &d) { return d.get() == domain; });
}

SrqObject::~SrqObject() {
  if (srq.srqn != 0) {
    srq_unregister(&srq);
    file.srqs.remove(srq.srqn, this);
  }
  end_events();
}

WqObject::~WqObject() {
  wq_forget(wq);
  end_events();
}

IndTableObject::IndTableObject(File &f, std::vector<WqObject *> entries)
    : Object(f, kind), wqs_(std::move(entries)) {
  for (WqObject *w : wqs_) {
    ++w->users;
    table.wqs.push_back(&w->wq);
  }
}

IndTableObject::~IndTableObject() {
  for (WqObject *w : wqs_) --w->users;
}

void send_posted_datagrams(Qp &qp) {
  constexpr u64 max_wait_ns = 100'000'000;
  if (qp.type != QpType::ud || qp.state != QpState::rts) return;
  qp_wake(qp);
  const u64 begin = device_clock_ns();
  while (qp.state == QpState::rts && (send_producer(qp) != qp.sq_consumed || qp_send_busy(qp))) {
    const u64 now = device_clock_ns();
    if (now > begin + max_wait_ns) return;
    if (engine_step(now)) continue;
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

QpObject::~QpObject() {
  if (qp != nullptr && process().started && !inherited()) send_posted_datagrams(*qp);
  while (!groups.empty()) leave(Group(groups.back()));
  end_events();
  pacing_release(file.device_number, pacing_index);
  if (bfreg) file.bfregs.give(*bfreg);
  if (thread_uar != nullptr && !inherited()) doorbells_remove(thread_uar);
  if (shared == nullptr) {
    if (qp != nullptr) qp_unregister(qp);
    return;
  }
  if (--shared->handles != 0) return;
  shared->domain->targets.erase(qp->qpn);
  qp_unregister(qp);
  delete shared;
}

int QpObject::can_destroy() const { return groups.empty() ? Object::can_destroy() : EBUSY; }

u32 QpObject::end_events() {
  if (qp == nullptr) return 0;
  if (shared == nullptr) return detach_events(*this, qp->async, user_handle);
  // A shared QP has no first owner: all handles are in the lists.
  const auto it =
      std::find(qp->more_user_handles.begin(), qp->more_user_handles.end(), user_handle);
  if (it == qp->more_user_handles.end()) return 0;
  const auto at = it - qp->more_user_handles.begin();
  const u32 reported = detach_events(*this, qp->more_async[static_cast<size_t>(at)], user_handle);
  qp->more_async.erase(qp->more_async.begin() + at);
  qp->more_user_handles.erase(it);
  return reported;
}

void QpObject::open_target(SharedQp *to, XrcdObject *domain, u64 user, EventChannel *events) {
  shared = to;
  ++shared->handles;
  qp = to->qp;
  xrcd.reset(domain);
  user_handle = user;
  qp->more_async.emplace_back();
  attach_events(qp->more_async.back(), events);
  qp->more_user_handles.push_back(user);
}

void QpObject::join(const Group &group) {
  groups.push_back(group);
  qp->multicast.insert(group_name(group.gid));
  ++multicast_groups;
  announce_groups();
}

bool QpObject::leave(const Group &group) {
  const auto it = std::find(groups.begin(), groups.end(), group);
  if (it == groups.end()) return false;
  groups.erase(it);
  const bool other_lid =
      std::any_of(groups.begin(), groups.end(), [&](const Group &g) { return g.gid == group.gid; });
  if (!other_lid) qp->multicast.erase(group_name(group.gid));
  if (!inherited()) {
    --multicast_groups;
    announce_groups();
  }
  return true;
}

UarObject::UarObject(File &f, u32 id)
    : Object(f, kind), page_id(id), page(f.bar + u64{id % uar_pages} * page_size) {
  f.uars.insert(id);
  doorbells_add(page);
}

UarObject::~UarObject() {
  if (!inherited()) doorbells_remove(page);
  file.uars.erase(page_id);
}

void forget_multicast() { multicast_groups = 0; }

}  // namespace softhca::uverbs
