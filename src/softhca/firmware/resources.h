// What the commands of a PCI function make.
#pragma once

#include "firmware/hca.h"
#include "firmware/qp_context.h"
#include "model/paging.h"

namespace softhca::firmware {

// A queue, whose events go to an event queue.
struct Queue : Resource, EventListener {
  Queue(Hca &h, Kind k, u32 n, u16 u) : Resource(k, n, u), hca(h) {}
  void raise(QueueEvent) override;
  Hca &hca;
  std::shared_ptr<View> ring, record;
};

struct CqResource final : Queue {
  CqResource(Hca &, u32 number, u16 uid);
  ~CqResource() override;
  void raise(QueueEvent) override;
  Cq cq;
  u32 armed = 0;  // what the doorbell said last, see Cq::arm
  u32 eqn = 0;
  std::array<u8, cq_context_bytes> context{};
};

struct QpResource final : Queue {
  QpResource(Hca &h, Kind k, u16 u) : Queue(h, k, 0, u) {}
  ~QpResource() override;
  bool page_fault(const PageFault &, PageSide) override;
  bool administrate(const u8 *request, u8 *answer) override {
    return hca.administrator.answer(request, answer);
  }
  Qp *qp = nullptr;
  std::array<u8, qp_context_bytes> context{};
  std::vector<u8> frame_context;  // of an SQ
};

struct SrqResource final : Queue {
  SrqResource(Hca &h, u16 u) : Queue(h, Kind::srq, 0, u) {}
  ~SrqResource() override;
  Srq srq;
  WorkQueue work_queue{};
  std::array<u8, 64> xrc_context{};
};

struct RqResource final : Queue {
  RqResource(Hca &, u32 number, u16 uid);
  ~RqResource() override { wq_forget(wq); }
  Wq wq;
  std::array<u8, frame_queue_bytes> context{};
};

// A table of RQs.
struct RqtResource final : Resource {
  RqtResource(u32 n, u16 u) : Resource(Kind::rqt, n, u) {}
  IndirectionTable table;
};

// What is behind a flow table: receives as a queue pair without queues of its own.
struct TirResource final : Resource {
  TirResource(u32 n, u16 u) : Resource(Kind::tir, n, u) {}
  Qp receiver;
  IndirectionTable own;  // of one RQ
  std::array<u8, 240> context{};
};

struct TisResource final : Resource {
  TisResource(u32 n, u16 u) : Resource(Kind::tis, n, u) {}
  u32 transport_domain = 0;
  std::array<u8, 160> context{};
};

struct MkeyResource final : Resource {
  MkeyResource(Hca &h, Mkey *k, u16 u) : Resource(Kind::mkey, k->index, u), hca(h), key(k) {}
  ~MkeyResource() override {
    hca.translations -= key->max_entries;
    process().mkeys.destroy(key);
  }
  Hca &hca;
  Mkey *key;
  std::array<u8, 64> context{};
};

struct UmemResource final : Resource {
  UmemResource(u32 n, u16 u) : Resource(Kind::umem, n, u) {}
  std::shared_ptr<View> view;
  u64 offset = 0, bytes = 0;  // of what it spans, in the view
};

struct CounterResource final : Resource {
  CounterResource(u32 n, u16 u)
      : Resource(Kind::counter, n, u), set(std::make_shared<CounterSet>()) {
    set->number = static_cast<u8>(n);
  }
  std::shared_ptr<CounterSet> set;  // queue pairs keep what they count in
};

struct ScheduleResource final : Resource {
  ScheduleResource(u32 n, u16 u, bool of_queues, ScheduleResource *above)
      : Resource(Kind::schedule, n, u),
        leaf(of_queues),
        element(std::make_shared<ScheduleElement>(above != nullptr ? above->element : nullptr)) {
    if (above != nullptr) need(above);
  }
  const bool leaf;
  std::shared_ptr<ScheduleElement> element;  // queue pairs keep what they leave through
};

// What numbers and addresses in a command of the driver stand for.
class GuestScope : public Scope {
 public:
  GuestScope(Hca &h, u16 uid, Resource &user, std::shared_ptr<View> &ring,
             std::shared_ptr<View> &record)
      : Scope(h.device), hca_(h), uid_(uid), user_(user), ring_(ring), record_(record) {}
  explicit GuestScope(Hca &h, u16 uid, Queue &q) : GuestScope(h, uid, q, q.ring, q.record) {}
  bool of_driver() const override { return true; }
  bool use_pd(u32 number) override { return use<Resource>(Kind::pd, number) != nullptr; }
  Cq *use_cq(u32 number) override;
  Srq *use_srq(u32 number) override;
  bool use_xrcd(u32 number) override { return use<Resource>(Kind::xrcd, number) != nullptr; }
  bool uar_exists(u32 page) const override {
    return hca_.find<Resource>(Kind::uar, page) != nullptr;
  }
  bool eq_exists(u32 number) const override {
    return hca_.find<Resource>(Kind::eq, number) != nullptr;
  }
  bool find_schedule(u32, std::shared_ptr<ScheduleElement> &) const override;
  std::shared_ptr<CounterSet> find_counters(u32 number) const override {
    const auto *r = hca_.find<CounterResource>(Kind::counter, number);
    return r != nullptr ? r->set : nullptr;
  }
  Status use_ring(const RingPlace &, u64 bytes, RingUse, u8 *&at) override;
  Status use_record(const RecordPlace &, u32 *&record) override;

 private:
  template <class T>
  T *use(Kind kind, u32 number) {
    T *r = hca_.find<T>(kind, number, uid_);
    if (r != nullptr) user_.need(r);
    return r;
  }
  Hca &hca_;
  const u16 uid_;
  Resource &user_;
  std::shared_ptr<View> &ring_, &record_;
};

}  // namespace softhca::firmware
