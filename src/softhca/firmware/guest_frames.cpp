// Queues of frames of the driver above a PCI function, and what names them.
#include <algorithm>

#include "base/fields.h"
#include "engine/engine.h"
#include "firmware/hca_caps.h"
#include "firmware/resources.h"

namespace softhca::firmware {

RqResource::RqResource(Hca &h, u32 n, u16 u) : Queue(h, Kind::rq, n, u) {
  wq.wqn = n;
  wq.user_handle = n;
  wq.async.listener = this;
}

// --- receive queues

Status Hca::rq_create(Command &c) {
  if (!device.caps.raw_ethernet) return Status::bad_op;
  const u32 number = fresh(Kind::rq);
  if (number == 0) return Status::no_resources;
  auto r = std::make_unique<RqResource>(*this, number, c.uid());
  GuestScope scope(*this, c.uid(), *r);
  if (const Status s = create_rq(scope, c, r->wq); s != Status::ok) return s;
  std::copy_n(c.in.begin() + frame_queue_at, frame_queue_bytes, r->context.begin());
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::rq, number}] = std::move(r);
  return Status::ok;
}

Status Hca::rq_modify(Command &c) {
  auto *r = find<RqResource>(Kind::rq, number_in(c), c.uid());
  return r != nullptr ? modify_rq(GuestScope(*this, c.uid(), *r), c, r->wq) : Status::bad_resource;
}

Status Hca::rq_query(Command &c) {
  const auto *r = find<RqResource>(Kind::rq, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  query_rq(r->wq, r->context, c);
  return Status::ok;
}

// --- send queues

// Drivers try write combining with one that names no TIS, on InfiniBand too.
Status Hca::sq_create(Command &c) {
  if (!device.caps.raw_ethernet && sq_tis(c) != 0) return Status::bad_op;
  auto r = std::make_unique<QpResource>(*this, Kind::sq, c.uid());
  auto qp = std::make_unique<Qp>();
  GuestScope scope(*this, c.uid(), *r);
  if (const Status s = create_sq(scope, c, *qp); s != Status::ok) return s;
  // The driver's own for work beside frames names none.
  if (sq_tis(c) != 0) {
    auto *tis = find<TisResource>(Kind::tis, sq_tis(c), c.uid());
    if (tis == nullptr) return Status::bad_resource;
    r->need(tis);
    qp->eth->transport_domain = tis->transport_domain;
  }
  qp->counts_when_rung = true;
  r->qp = qp_register(std::move(qp));
  if (r->qp == nullptr) return Status::no_resources;
  r->number = r->qp->qpn;
  r->qp->async.listener = r.get();
  r->frame_context.assign(c.in.begin() + frame_queue_at,
                          c.in.begin() + frame_queue_at + frame_queue_bytes);
  store_be32(c.out.data() + number_at, r->number);
  const u32 number = r->number;
  resources_[{Kind::sq, number}] = std::move(r);
  return Status::ok;
}

Status Hca::sq_modify(Command &c) {
  auto *r = find<QpResource>(Kind::sq, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  Rate rate;
  u32 index = 0;
  const bool paced = changes_rate(c, index);
  if (paced && index != 0) {
    const auto it = rates_.find(index);
    if (it == rates_.end()) return Status::bad_resource;
    rate = it->second;
  }
  if (r->qp->state == QpState::rts) engine_settle(r->qp);
  const Status s = modify_sq(c, *r->qp);
  if (s == Status::ok && paced) {
    r->qp->attr.rate_limit = rate.kbps;
    r->qp->eth->max_burst_bytes = rate.burst_bytes;
  }
  engine_nudge();
  return s;
}

Status Hca::rate_set(Command &c) {
  constexpr u32 index_bits = 80, kbps_at = 16, burst_at = 20;
  const u32 index = get_field(c.in.data(), index_bits, 16);
  if (!device.caps.packet_pacing) return Status::bad_op;
  if (index == 0 || index >= rate_entries) return Status::bad_param;
  const Rate rate{load_be32(c.in.data() + kbps_at), load_be32(c.in.data() + burst_at)};
  if (rate.kbps == 0) {
    rates_.erase(index);
    return Status::ok;
  }
  if (rate.kbps < device.caps.min_rate_kbps || rate.kbps > device.caps.max_rate_kbps)
    return Status::bad_param;
  rates_[index] = rate;
  return Status::ok;
}

Status Hca::sq_query(Command &c) {
  const auto *r = find<QpResource>(Kind::sq, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  query_sq(*r->qp, r->frame_context, c);
  return Status::ok;
}

// --- transport interfaces: what send queues name

namespace {

constexpr u32 tis_context_at = 32, tis_domain_bits = 296, queried_tis_at = 16;

}  // namespace

Status Hca::tis_create(Command &c) {
  const u8 *context = c.in.data() + tis_context_at;
  const u32 number = fresh(Kind::tis);
  if (number == 0) return Status::no_resources;
  auto r = std::make_unique<TisResource>(number, c.uid());
  r->transport_domain = get_field(context, tis_domain_bits, 24);
  auto *domain = find<Resource>(Kind::transport_domain, r->transport_domain, c.uid());
  if (domain == nullptr) return Status::bad_resource;
  r->need(domain);
  std::copy_n(context, r->context.size(), r->context.begin());
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::tis, number}] = std::move(r);
  return Status::ok;
}

// Priorities and the ports of bonds: there is one of each.
Status Hca::tis_modify(Command &c) {
  return find<Resource>(Kind::tis, number_in(c), c.uid()) != nullptr ? Status::ok
                                                                     : Status::bad_resource;
}

Status Hca::tis_query(Command &c) {
  const auto *r = find<TisResource>(Kind::tis, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  fill(c, queried_tis_at, r->context);
  return Status::ok;
}

// --- receivers

Status Hca::tir_create(Command &c) {
  if (!device.caps.raw_ethernet) return Status::bad_op;
  const u32 number = fresh(Kind::tir);
  if (number == 0) return Status::no_resources;
  auto r = std::make_unique<TirResource>(number, c.uid());
  Qp &receiver = r->receiver;
  receiver.device = &device;
  receiver.type = QpType::raw_packet;
  receiver.eth = std::make_unique<EthQp>();
  TirTarget target;
  if (const Status s = read_tir(c, *receiver.eth, target); s != Status::ok) return s;
  auto *domain = find<Resource>(Kind::transport_domain, target.transport_domain, c.uid());
  if (domain == nullptr) return Status::bad_resource;
  r->need(domain);
  if (target.direct) {
    auto *rq = find<RqResource>(Kind::rq, target.number, c.uid());
    if (rq == nullptr) return Status::bad_resource;
    r->need(rq);
    r->own.wqs = {&rq->wq};
    receiver.eth->rss->table = &r->own;
  } else {
    auto *rqt = find<RqtResource>(Kind::rqt, target.number, c.uid());
    if (rqt == nullptr) return Status::bad_resource;
    r->need(rqt);
    receiver.eth->rss->table = &rqt->table;
  }
  std::copy_n(c.in.begin() + frame_queue_at, r->context.size(), r->context.begin());
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::tir, number}] = std::move(r);
  return Status::ok;
}

Status Hca::tir_modify(Command &c) {
  auto *r = find<TirResource>(Kind::tir, number_in(c), c.uid());
  return r != nullptr ? firmware::modify_tir(c, *r->receiver.eth) : Status::bad_resource;
}

Status Hca::tir_query(Command &c) {
  const auto *r = find<TirResource>(Kind::tir, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  fill(c, frame_queue_at, r->context);
  return Status::ok;
}

// --- tables of receive queues

Status Hca::fill_rqt(const Command &c, Resource &owner, IndirectionTable &table) {
  std::vector<u32> numbers;
  if (const Status s = read_rqt(c, device.caps, numbers); s != Status::ok) return s;
  std::vector<RqResource *> rqs;
  for (const u32 number : numbers) {
    rqs.push_back(find<RqResource>(Kind::rq, number, c.uid()));
    if (rqs.back() == nullptr) return Status::bad_resource;
  }
  owner.need_nothing();
  table.wqs.clear();
  for (RqResource *rq : rqs) {
    owner.need(rq);
    table.wqs.push_back(&rq->wq);
  }
  return Status::ok;
}

Status Hca::rqt_create(Command &c) {
  const u32 number = fresh(Kind::rqt);
  if (number == 0) return Status::no_resources;
  auto r = std::make_unique<RqtResource>(number, c.uid());
  if (const Status s = fill_rqt(c, *r, r->table); s != Status::ok) return s;
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::rqt, number}] = std::move(r);
  return Status::ok;
}

Status Hca::rqt_modify(Command &c) {
  constexpr u64 change_list = 1;
  auto *r = find<RqtResource>(Kind::rqt, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  if (load_be64(c.in.data() + 16) != change_list) return Status::bad_param;
  return fill_rqt(c, *r, r->table);
}

Status Hca::rqt_query(Command &c) {
  constexpr u32 size_bits = 208, list_at = 240;
  const auto *r = find<RqtResource>(Kind::rqt, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  std::vector<u8> context(list_at + r->table.wqs.size() * 4);
  set_field(context.data(), size_bits, 16, static_cast<u32>(r->table.wqs.size()));
  for (size_t i = 0; i < r->table.wqs.size(); ++i)
    store_be32(context.data() + list_at + i * 4, r->table.wqs[i]->wqn);
  fill(c, frame_queue_at, context);
  return Status::ok;
}

// Frames of tunnels are known by the port of the standard.
Status Hca::vxlan_port(Command &c) {
  return load_be16(c.in.data() + 14) == softhca::vxlan_port ? Status::ok : Status::no_resources;
}

}  // namespace softhca::firmware
