// What the handles of an open file stand for. Each class owns its share of the
// device: constructing one takes it, destroying one gives it back, so a
// creation that fails half-way unwinds by itself.
//
// `users` counts the objects that need this one; the kernel's EBUSY rules
// follow from it. Ref<> keeps the count. Objects of firmware commands name
// others by number, unknown to the kernel: it is firmware that then refuses to
// destroy what they need (Hold).
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "model/device.h"
#include "model/eth_queue.h"
#include "uverbs/subscriptions.h"

namespace softhca {
class File;
// What an application reads from a descriptor.
enum class ChannelKind : u8 { async, completion, devx_events, devx_answers };
}  // namespace softhca

namespace softhca::uverbs {

struct Tis;

// The object numbers of the ioctl interface.
enum class ObjectClass : u16 {
  none = 0,
  any = 0xffff,  // in an attribute specification
  pd = UVERBS_OBJECT_PD,
  cq = UVERBS_OBJECT_CQ,
  qp = UVERBS_OBJECT_QP,
  srq = UVERBS_OBJECT_SRQ,
  ah = UVERBS_OBJECT_AH,
  mr = UVERBS_OBJECT_MR,
  mw = UVERBS_OBJECT_MW,
  xrcd = UVERBS_OBJECT_XRCD,
  flow = UVERBS_OBJECT_FLOW,
  ind_table = UVERBS_OBJECT_RWQ_IND_TBL,
  wq = UVERBS_OBJECT_WQ,
  dm = UVERBS_OBJECT_DM,
  devx_object = MLX5_IB_OBJECT_DEVX_OBJ,
  flow_matcher = MLX5_IB_OBJECT_FLOW_MATCHER,
  pacing = MLX5_IB_OBJECT_PP,
  uar = MLX5_IB_OBJECT_UAR,
  umem = MLX5_IB_OBJECT_DEVX_UMEM,
};

class Object {
 public:
  Object(File &f, ObjectClass c) : file(f), object_class(c) {}
  virtual ~Object() = default;
  Object(const Object &) = delete;
  Object &operator=(const Object &) = delete;
  // 0, or the errno with which the kernel refuses to destroy it now.
  // EINVAL is how the kernel names firmware's BAD_RES_STATE.
  // What posts to it, if anything: see settle().
  virtual Qp *queue_pair() const { return nullptr; }
  virtual int can_destroy() const { return users != 0 ? EBUSY : held != 0 ? EINVAL : 0; }
  // Made by the parent of a fork. Its queues are in memory that the child may
  // not even have: it can be destroyed and nothing else.
  bool inherited() const { return generation != current_generation; }

  File &file;
  const ObjectClass object_class;
  const u32 generation = current_generation;
  u32 handle = 0;
  u32 users = 0;
  u32 held = 0;                              // by objects of firmware commands
  static inline u32 current_generation = 0;  // forks since the first process
};

// 0 if `o` may be used as an object of class `c`: ENOENT when there is none,
// EINVAL when it is of another, EIO for queues inherited through a fork.
int check_use(const Object *o, ObjectClass c);

// A counted use of another object.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T *to) : to_(to) {
    if (to_ != nullptr) ++to_->users;
  }
  ~Ref() {
    if (to_ != nullptr) --to_->users;
  }
  Ref(const Ref &) = delete;
  Ref &operator=(const Ref &) = delete;
  void reset(T *to) {
    if (to != nullptr) ++to->users;
    if (to_ != nullptr) --to_->users;
    to_ = to;
  }
  T *get() const { return to_; }
  T *operator->() const { return to_; }
  explicit operator bool() const { return to_ != nullptr; }

 private:
  T *to_ = nullptr;
};

// What an object of a firmware command needs.
class Hold {
 public:
  Hold() = default;
  ~Hold() { reset(nullptr); }
  Hold(const Hold &) = delete;
  Hold &operator=(const Hold &) = delete;
  void swap(Hold &other) { std::swap(to_, other.to_); }
  void reset(Object *to) {
    if (to != nullptr) ++to->held;
    if (to_ != nullptr) --to_->held;
    to_ = to;
  }

 private:
  Object *to_ = nullptr;
};

// What firmware commands can name by a number, and the object behind it.
template <class T>
class ByNumber {
 public:
  struct Entry {
    Object *owner = nullptr;
    T *thing = nullptr;
    explicit operator bool() const { return owner != nullptr; }
  };
  void add(u32 number, Object *owner, T *thing) { entries_[number] = {owner, thing}; }
  void remove(u32 number, const Object *owner) {
    const auto it = entries_.find(number);
    if (it != entries_.end() && it->second.owner == owner) entries_.erase(it);
  }
  // Empty for numbers that are not there, and for queues inherited through a fork.
  Entry find(u32 number) const {
    const auto it = entries_.find(number);
    return it != entries_.end() && !it->second.owner->inherited() ? it->second : Entry{};
  }
  void clear() { entries_.clear(); }

 private:
  std::unordered_map<u32, Entry> entries_;
};

// The handles of one file.
class ObjectTable {
 public:
  Object *find(u32 handle) const;
  template <class T>
  T *get(u32 handle, int &error) const {
    Object *o = find(handle);
    error = check_use(o, T::kind);
    return error == 0 ? static_cast<T *>(o) : nullptr;
  }
  u32 reserve() { return next_++; }
  void insert(u32 handle, std::unique_ptr<Object> object);
  // 0 or EBUSY.
  int destroy(Object *object);
  // In dependency order: users before what they use.
  void destroy_all();
  std::vector<u32> handles(ObjectClass c) const;

 private:
  std::unordered_map<u32, std::unique_ptr<Object>> objects_;
  u32 next_ = 1;
};

// Puts `sink` on `channel` (nullptr: events are not reported).
void attach_events(EventSink &sink, EventChannel *channel);
// Takes it off again: queued events of `element` are removed. Returns how many
// the application has read, for which the destroying library call waits.
u32 detach_events(const Object &owner, EventSink &sink, u64 element);

struct PdObject : Object {
  static constexpr ObjectClass kind = ObjectClass::pd;
  PdObject(File &f, u32 number);
  ~PdObject() override;
  u32 pdn;
};

struct DmObject : Object {
  static constexpr ObjectClass kind = ObjectClass::dm;
  DmObject(File &f, u32 first, u64 bytes, u64 wanted);
  ~DmObject() override;
  u8 *memory() const;
  u32 first_page;
  u64 length;  // as allocated: a multiple of 64
  u64 requested;
};

// A memory key of ours: given back when the owner goes.
class OwnedMkey {
 public:
  explicit OwnedMkey(Mkey *k) : key_(k) {}
  ~OwnedMkey() {
    if (key_ != nullptr) process().mkeys.destroy(key_);
  }
  OwnedMkey(const OwnedMkey &) = delete;
  OwnedMkey &operator=(const OwnedMkey &) = delete;
  Mkey *get() const { return key_; }
  Mkey *operator->() const { return key_; }
  explicit operator bool() const { return key_ != nullptr; }

 private:
  Mkey *key_;
};

struct MrObject : Object {
  static constexpr ObjectClass kind = ObjectClass::mr;
  MrObject(File &f, PdObject *p, DmObject *d = nullptr)
      : Object(f, kind), pd(p), dm(d), key(process().mkeys.create(p->pdn)) {}
  ~MrObject() override;
  Ref<PdObject> pd;
  Ref<DmObject> dm;
  OwnedMkey key;
  u64 pinned = 0;  // bytes counted against RLIMIT_MEMLOCK
};

struct MwObject : Object {
  static constexpr ObjectClass kind = ObjectClass::mw;
  MwObject(File &f, PdObject *p) : Object(f, kind), pd(p), key(process().mkeys.create(p->pdn)) {}
  Ref<PdObject> pd;
  OwnedMkey key;
};

// What a firmware command has made.
struct DevxObject : Object {
  static constexpr ObjectClass kind = ObjectClass::devx_object;
  explicit DevxObject(File &f) : Object(f, kind) {}
  // `subscriptions` has a new entry.
  virtual void subscribed(u8 /*event*/) {}
  Subscriptions subscriptions;
};

struct DevxMkey : DevxObject {
  DevxMkey(File &f, Mkey *k) : DevxObject(f), key(k) {}
  OwnedMkey key;
};

struct CqObject : Object {
  static constexpr ObjectClass kind = ObjectClass::cq;
  explicit CqObject(File &f) : Object(f, kind) {}
  ~CqObject() override;
  // Ends event reporting; see detach_events().
  u32 end_completion_events() { return detach_events(*this, cq.completion, cq.user_handle); }
  u32 end_async_events() { return detach_events(*this, cq.async, cq.user_handle); }
  Cq cq;
};

// One XRC domain of a device, shared by every file that opened the same inode.
struct XrcDomain {
  u32 number = 0;
  u32 device = 0;
  u32 openers = 0;
  bool named = false;  // by dev and inode; else private
  u64 dev = 0, inode = 0;
  std::unordered_map<u32, struct SharedQp *> targets;  // XRC_TGT QPs by number
};
// The domain of an inode, or nullptr.
XrcDomain *find_xrc_domain(u32 device, u64 dev, u64 inode);
XrcDomain *make_xrc_domain(u32 device);

struct XrcdObject : Object {
  static constexpr ObjectClass kind = ObjectClass::xrcd;
  XrcdObject(File &f, XrcDomain *d) : Object(f, kind), domain(d) { ++domain->openers; }
  ~XrcdObject() override;
  XrcDomain *domain;
};

struct SrqObject : Object {
  static constexpr ObjectClass kind = ObjectClass::srq;
  SrqObject(File &f, PdObject *p) : Object(f, kind), pd(p) {}
  ~SrqObject() override;
  u32 end_events() { return detach_events(*this, srq.async, srq.user_handle); }
  Ref<PdObject> pd;
  Ref<CqObject> cq;
  Ref<XrcdObject> xrcd;
  Srq srq;
};

struct WqObject : Object {
  static constexpr ObjectClass kind = ObjectClass::wq;
  WqObject(File &f, PdObject *p, CqObject *c) : Object(f, kind), pd(p), cq(c) {}
  ~WqObject() override;
  u32 end_events() { return detach_events(*this, wq.async, wq.user_handle); }
  Ref<PdObject> pd;
  Ref<CqObject> cq;
  Wq wq;
};

struct IndTableObject : Object {
  static constexpr ObjectClass kind = ObjectClass::ind_table;
  IndTableObject(File &f, std::vector<WqObject *> entries);  // which may repeat
  ~IndTableObject() override;
  IndirectionTable table;

 private:
  std::vector<WqObject *> wqs_;
};

// An XRC_TGT QP lives as long as any handle on it, in whatever file.
struct SharedQp {
  Qp *qp = nullptr;
  XrcDomain *domain = nullptr;
  u32 handles = 0;
  u32 requested_access = 0;
};

struct QpObject : Object {
  static constexpr ObjectClass kind = ObjectClass::qp;
  struct Group {
    Gid gid;
    u16 mlid;
    bool operator==(const Group &) const = default;
  };

  explicit QpObject(File &f) : Object(f, kind) {}
  ~QpObject() override;
  Qp *queue_pair() const override { return qp; }
  int can_destroy() const override;
  // Becomes one more handle on a shared target QP.
  void open_target(SharedQp *to, XrcdObject *domain, u64 user, EventChannel *events);
  void join(const Group &);
  bool leave(const Group &);  // false: not joined
  u32 end_events();
  // What modify_qp asked for, before the device's own restrictions.
  u32 &requested_access() { return shared != nullptr ? shared->requested_access : access_; }

  Qp *qp = nullptr;
  SharedQp *shared = nullptr;  // XRC_TGT only
  u64 user_handle = 0;
  Ref<PdObject> pd;
  Ref<CqObject> send_cq, recv_cq;
  Ref<SrqObject> srq;
  Ref<XrcdObject> xrcd;
  u16 pacing_index = 0;       // of a rate limit, 0: none
  Ref<IndTableObject> table;  // RSS
  std::shared_ptr<Tis> tis;   // raw packet, with a send queue
  // With old libraries: a register of the context, or the page of a thread domain.
  std::optional<u32> bfreg;
  u8 *thread_uar = nullptr;
  std::vector<Group> groups;  // multicast attachments

 private:
  u32 access_ = 0;
};
// A program need not wait for the completion of a datagram before it destroys the QP:
// a real device has sent it within microseconds (mckey relies on it). Here a
// first record has to wait for the receiver's process to look at its ring.
void send_posted_datagrams(Qp &);
// In a forked child: the parent's multicast attachments are not its own.
void forget_multicast();

struct AhObject : Object {
  static constexpr ObjectClass kind = ObjectClass::ah;
  AhObject(File &f, PdObject *p) : Object(f, kind), pd(p) {}
  Ref<PdObject> pd;
};

struct UarObject : Object {
  static constexpr ObjectClass kind = ObjectClass::uar;
  UarObject(File &f, u32 id);
  ~UarObject() override;
  u32 page_id;
  u8 *page;  // as the device maps it
};

}  // namespace softhca::uverbs
