// Queues of the driver above a PCI function: their place in the tables, and their rings.
#include <algorithm>
#include <cerrno>

#include "base/fields.h"
#include "base/log.h"
#include "engine/engine.h"
#include "firmware/resources.h"

namespace softhca::firmware {

// --- what commands name

Cq *GuestScope::use_cq(u32 number) {
  auto *r = use<CqResource>(Kind::cq, number);
  return r != nullptr ? &r->cq : nullptr;
}

Srq *GuestScope::use_srq(u32 number) {
  auto *r = use<SrqResource>(Kind::srq, number);
  return r != nullptr ? &r->srq : nullptr;
}

bool GuestScope::find_schedule(u32 number, std::shared_ptr<ScheduleElement> &element) const {
  element = nullptr;
  if (number == 0) return true;
  const auto *r = hca_.find<ScheduleResource>(Kind::schedule, number, uid_);
  if (r == nullptr || !r->leaf) return false;
  element = r->element;
  return true;
}

Status GuestScope::use_ring(const RingPlace &p, u64 bytes, RingUse, u8 *&at) {
  if (bytes == 0) {
    at = nullptr;
    return Status::ok;
  }
  if (p.umem_valid) {
    auto *umem = use<UmemResource>(Kind::umem, p.umem);
    if (umem == nullptr || umem->uid != uid_) return Status::bad_resource;
    const u64 offset = p.umem_offset + p.offset;
    if (offset < p.offset || offset > umem->bytes || bytes > umem->bytes - offset)
      return Status::bad_param;
    ring_ = umem->view;
    at = ring_->at() + umem->offset + offset;
    return Status::ok;
  }
  if (p.log_page > 30) return Status::bad_param;
  const u64 page = u64{1} << p.log_page;
  const u64 count = (p.offset + bytes + page - 1) >> p.log_page;
  if (p.pages_bytes < count * 8) return Status::bad_input_length;
  std::vector<u64> pages;
  for (u64 i = 0; i < count; ++i) pages.push_back(load_be64(p.pages + i * 8) & ~u64{page_size - 1});
  auto view = hca_.memory.view(pages, page);
  if (!view) return Status::bad_param;
  ring_ = std::move(view);
  at = ring_->at() + p.offset;
  return Status::ok;
}

Status GuestScope::use_record(const RecordPlace &p, u32 *&record) {
  constexpr u64 record_bytes = 8;
  if (p.address % record_bytes != 0) return Status::bad_param;
  if (p.umem_valid) {
    auto *umem = use<UmemResource>(Kind::umem, p.umem);
    if (umem == nullptr || umem->uid != uid_) return Status::bad_resource;
    if (p.address > umem->bytes || record_bytes > umem->bytes - p.address) return Status::bad_param;
    record_ = umem->view;
    u8 *at = record_->at() + umem->offset + p.address;
    if (reinterpret_cast<u64>(at) % record_bytes != 0) return Status::bad_param;
    record = reinterpret_cast<u32 *>(at);
    return Status::ok;
  }
  record_ = hca_.memory.page(p.address);
  if (!record_) return Status::bad_param;
  record = reinterpret_cast<u32 *>(record_->at() + p.address % page_size);
  return Status::ok;
}

// --- their ends

CqResource::CqResource(Hca &h, u32 n, u16 u) : Queue(h, Kind::cq, n, u) {
  cq.cqn = n;
  cq.user_handle = n;
  cq.arm = &armed;
  cq.completion.listener = this;
  cq.async.listener = this;
}
CqResource::~CqResource() { cq_forget(cq); }

QpResource::~QpResource() {
  if (qp == nullptr) return;
  hca.forget_page_faults(number);
  qp_set_state(*qp, QpState::reset);
  qp_unregister(qp);
}

SrqResource::~SrqResource() {
  if (srq.srqn != 0) srq_unregister(&srq);
}

// --- completion queues

Status Hca::cq_create(Command &c) {
  const u32 number = fresh(Kind::cq, process().next_cqn);
  auto r = std::make_unique<CqResource>(*this, number, c.uid());
  GuestScope scope(*this, c.uid(), *r);
  auto *eq = find<Resource>(Kind::eq, cq_event_queue(c));
  if (eq == nullptr) return Status::bad_resource;
  r->need(eq);
  r->eqn = eq->number;
  if (const Status s = firmware::create_cq(scope, c, r->cq); s != Status::ok) return s;
  std::copy_n(c.in.begin() + cq_context_at, cq_context_bytes, r->context.begin());
  cq_start(r->cq);
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::cq, number}] = std::move(r);
  return Status::ok;
}

Status Hca::cq_modify(Command &c) {
  constexpr u32 op_resize = 1, select_eqn = 1 << 3;
  auto *r = find<CqResource>(Kind::cq, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  Resource none(Kind::cq, 0, c.uid());
  std::shared_ptr<View> ring, record;
  GuestScope scope(*this, c.uid(), none, ring, record);
  if (c.op_mod() == op_resize) {
    const Status s = resize_cq(scope, c, r->cq);
    if (s == Status::ok) r->ring = std::move(ring);
    return s;
  }
  if (c.op_mod() != 0) return Status::bad_param;
  const Status s = modify_cq_fields(scope, c, r->cq);
  if (s == Status::ok && (load_be32(c.in.data() + 12) & select_eqn) != 0) {
    const u32 eqn = cq_event_queue(c);
    r->need_instead(find<Resource>(Kind::eq, r->eqn), find<Resource>(Kind::eq, eqn));
    r->eqn = eqn;
  }
  return s;
}

Status Hca::cq_query(Command &c) {
  const auto *r = find<CqResource>(Kind::cq, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  firmware::query_cq(r->cq, r->context, c);
  return Status::ok;
}

void Hca::arm_cq(u32 cqn, u32 word) {
  auto *r = find<CqResource>(Kind::cq, cqn);
  if (r == nullptr) return;
  r->armed = word;
  if (cq_check_arm(r->cq, device_clock_ns())) cq_watch(r->cq);
}

// --- queue pairs

Status Hca::qp_create(Command &c) {
  auto r = std::make_unique<QpResource>(*this, Kind::qp, c.uid());
  auto qp = std::make_unique<Qp>();
  GuestScope scope(*this, c.uid(), *r);
  if (const Status s = firmware::create_qp(scope, c, *qp); s != Status::ok) return s;
  qp->counts_when_rung = true;
  r->qp = qp_register(std::move(qp));
  if (r->qp == nullptr) return Status::no_resources;
  r->number = r->qp->qpn;
  r->qp->async.listener = r.get();
  std::copy_n(c.in.begin() + qp_context_at, qp_context_bytes, r->context.begin());
  store_be32(c.out.data() + number_at, r->number);
  const u32 number = r->number;
  const bool takes_anything = r->qp->general_services;
  resources_[{Kind::qp, number}] = std::move(r);
  if (takes_anything) count_multicast();
  return Status::ok;
}

Status Hca::qp_modify(Command &c) {
  auto *r = find<QpResource>(Kind::qp, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  Qp &qp = *r->qp;
  const bool works = qp.state >= QpState::rtr && qp.state != QpState::err;
  if (works && ends_qp(c.opcode())) engine_settle(&qp);
  Resource none(Kind::qp, 0, c.uid());
  std::shared_ptr<View> ring, record;
  GuestScope scope(*this, c.uid(), none, ring, record);
  bool accessed = false;
  const Status s = firmware::modify_qp(scope, c, qp, accessed);
  if (qp.state == QpState::reset) forget_page_faults(r->number);
  engine_nudge();
  return s;
}

Status Hca::qp_query(Command &c) {
  const auto *r = find<QpResource>(Kind::qp, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  firmware::query_qp(*r->qp, r->context, c);
  return Status::ok;
}

void Hca::ring_queue(u32 number) {
  auto *r = find<QpResource>(Kind::qp, number);
  if (r == nullptr) r = find<QpResource>(Kind::sq, number);
  if (r == nullptr) return;
  if (r->qp->dbrec != nullptr) r->qp->rung = static_cast<u16>(read_doorbell(&r->qp->dbrec[1]));
  qp_wake(*r->qp);
  engine_step(device_clock_ns());
  engine_nudge();
}

// --- DC targets

Status Hca::dct_create(Command &c) {
  auto r = std::make_unique<QpResource>(*this, Kind::dct, c.uid());
  auto qp = std::make_unique<Qp>();
  GuestScope scope(*this, c.uid(), *r);
  if (const Status s = firmware::create_dct(scope, c, *qp); s != Status::ok) return s;
  r->qp = qp_register(std::move(qp));
  if (r->qp == nullptr) return Status::no_resources;
  r->number = r->qp->qpn;
  r->qp->async.listener = r.get();
  qp_set_state(*r->qp, QpState::init);
  qp_set_state(*r->qp, QpState::rtr);
  store_be32(c.out.data() + number_at, r->number);
  const u32 number = r->number;
  resources_[{Kind::dct, number}] = std::move(r);
  return Status::ok;
}

// The driver destroys it when the event has come.
Status Hca::dct_drain(Command &c) {
  constexpr u8 drained = 0x1c;
  auto *r = find<QpResource>(Kind::dct, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  engine_settle();
  qp_set_state(*r->qp, QpState::err);
  EventEntry e{drained, 0, {}};
  store_be32(e.data.data() + 24, r->number);
  raise(e);
  return Status::ok;
}

Status Hca::dct_query(Command &c) {
  const auto *r = find<QpResource>(Kind::dct, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  firmware::query_dct(*r->qp, c);
  return Status::ok;
}

Status Hca::dct_arm(Command &c) {
  auto *r = find<QpResource>(Kind::dct, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  r->qp->dc_key_armed = true;
  return Status::ok;
}

// --- shared receive queues

namespace {

u32 start(SrqResource &r) {
  r.number = srq_register(&r.srq);
  r.srq.async.listener = &r;
  return r.number;
}

}  // namespace

Status Hca::rmp_create(Command &c) {
  auto r = std::make_unique<SrqResource>(*this, c.uid());
  GuestScope scope(*this, c.uid(), *r);
  if (const Status s = firmware::create_rmp(scope, c, r->srq, r->work_queue); s != Status::ok)
    return s;
  const u32 number = start(*r);
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::srq, number}] = std::move(r);
  return Status::ok;
}

Status Hca::rmp_modify(Command &c) {
  auto *r = find<SrqResource>(Kind::srq, number_in(c), c.uid());
  if (r == nullptr || r->srq.type != SrqType::basic) return Status::bad_resource;
  return firmware::modify_rmp(c, r->srq);
}

Status Hca::rmp_query(Command &c) {
  const auto *r = find<SrqResource>(Kind::srq, number_in(c), c.uid());
  if (r == nullptr || r->srq.type != SrqType::basic) return Status::bad_resource;
  firmware::query_rmp(r->srq, r->work_queue, c);
  return Status::ok;
}

Status Hca::xrq_create(Command &c) {
  auto r = std::make_unique<SrqResource>(*this, c.uid());
  GuestScope scope(*this, c.uid(), *r);
  if (const Status s = firmware::create_xrq(scope, c, r->srq, r->work_queue); s != Status::ok)
    return s;
  const u32 number = start(*r);
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::srq, number}] = std::move(r);
  return Status::ok;
}

Status Hca::xrq_query(Command &c) {
  const auto *r = find<SrqResource>(Kind::srq, number_in(c), c.uid());
  if (r == nullptr || !r->srq.tags) return Status::bad_resource;
  firmware::query_xrq(r->srq, r->work_queue, c);
  return Status::ok;
}

Status Hca::xrq_arm(Command &c) {
  auto *r = find<SrqResource>(Kind::srq, number_in(c), c.uid());
  if (r == nullptr || !r->srq.tags) return Status::bad_resource;
  return set_srq_limit(r->srq, load_be16(c.in.data() + 14));
}

// --- those of XRC (xrc_srqc of mlx5_ifc.h)

namespace {

constexpr u32 xrc_context_at = 16;
constexpr u32 xrc_log_size = 4, xrc_signature = 32, xrc_cyclic = 36, xrc_log_stride = 37,
              xrc_domain = 40, xrc_page_offset = 64, xrc_dbr_umem_valid = 71, xrc_cqn = 72,
              xrc_log_page = 130, xrc_user_index = 136, xrc_pd = 200, xrc_limit = 224;
constexpr u32 xrc_record_at = 40;
constexpr RingFields xrc_ring{
    .umem_offset_at = 80, .umem_id_at = 88, .umem_valid_bit = 736, .pages_at = 272};

}  // namespace

Status Hca::xrc_srq_create(Command &c) {
  const u8 *context = c.in.data() + xrc_context_at;
  auto r = std::make_unique<SrqResource>(*this, c.uid());
  GuestScope scope(*this, c.uid(), *r);
  Srq &srq = r->srq;
  if (get_field(context, xrc_signature, 1) != 0) return Status::bad_param;
  srq.type = SrqType::xrc;
  srq.cyclic = get_field(context, xrc_cyclic, 1) != 0;
  srq.pdn = get_field(context, xrc_pd, 24);
  srq.xrcd = get_field(context, xrc_domain, 24);
  srq.uidx = get_field(context, xrc_user_index, 24);
  srq.cq = scope.use_cq(get_field(context, xrc_cqn, 24));
  if (srq.cq == nullptr || !scope.use_pd(srq.pdn) || !scope.use_xrcd(srq.xrcd))
    return Status::bad_resource;
  srq.entries = 1u << get_field(context, xrc_log_size, 4);
  srq.stride = 16u << get_field(context, xrc_log_stride, 3);
  if (srq.stride < 32 || srq.stride > 512 || srq.entries > device.caps.max_srq_wr + 1)
    return Status::bad_param;
  srq.max_sge = srq.stride / 16 - 1;
  const RingPlace place = ring_place(c, xrc_ring, get_field(context, xrc_log_page, 6),
                                     get_field(context, xrc_page_offset, 6));
  if (const Status s =
          scope.use_ring(place, u64{srq.entries} * srq.stride, RingUse::read, srq.buffer);
      s != Status::ok)
    return s;
  // Records in umems have no field for their umem that is public.
  if (get_field(context, xrc_dbr_umem_valid, 1) != 0) return Status::bad_param;
  const RecordPlace record{false, 0, load_be64(context + xrc_record_at) & ~u64{3}};
  if (const Status s = scope.use_record(record, srq.dbrec); s != Status::ok) return s;
  std::copy_n(context, r->xrc_context.size(), r->xrc_context.begin());
  const u32 number = start(*r);
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::srq, number}] = std::move(r);
  return Status::ok;
}

Status Hca::xrc_srq_query(Command &c) {
  const auto *r = find<SrqResource>(Kind::srq, number_in(c), c.uid());
  if (r == nullptr || r->srq.type != SrqType::xrc) return Status::bad_resource;
  auto context = r->xrc_context;
  set_field(context.data(), 0, 4, 0);  // state: good
  set_field(context.data(), xrc_limit, 16, r->srq.limit);
  fill(c, xrc_context_at, context);
  return Status::ok;
}

Status Hca::xrc_srq_arm(Command &c) {
  auto *r = find<SrqResource>(Kind::srq, number_in(c), c.uid());
  if (r == nullptr || r->srq.type != SrqType::xrc) return Status::bad_resource;
  return set_srq_limit(r->srq, load_be16(c.in.data() + 14));
}

}  // namespace softhca::firmware
