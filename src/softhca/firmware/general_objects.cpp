// CREATE_GENERAL_OBJECT and what follows it, for the driver above a PCI function.
#include "base/fields.h"
#include "firmware/resources.h"
#include "firmware/schedule_fields.h"

namespace softhca::firmware {

namespace {

constexpr u32 type_at = 6, log_range_at = 12;

// Numbers that no queue pair gets.
struct ReservedQpns final : Resource {
  ReservedQpns(u32 first, u16 u) : Resource(Kind::reserved_qpns, first, u) {}
  ~ReservedQpns() override { qpns_release(number); }
};

u32 type_of(const Command &c) { return load_be16(c.in.data() + type_at); }

}  // namespace

Status Hca::general_object_create(Command &c) {
  const Capabilities &caps = device.caps;
  switch (type_of(c)) {
    case object_type_reserved_qpn:
      if (caps.reserved_qpns) return reserve_qpns(c);
      break;
    case object_type_scheduling_element:
      if (caps.qp_scheduling) return schedule_create(c);
      break;
    case object_type_av_qp_mapping:
      if (caps.av_qp_mapping) return map_address(c);
      break;
    default: break;
  }
  return Status::bad_op;
}

Status Hca::general_object_modify(Command &c) {
  if (type_of(c) != object_type_scheduling_element) return Status::bad_op;
  if (c.in.size() < schedule_end) return Status::bad_input_length;
  auto *r = find<ScheduleResource>(Kind::schedule, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  if (!schedule_known(c) || schedule_leaf(c) != r->leaf) return Status::bad_param;
  schedule_apply(c, *r->element);
  return Status::ok;
}

Status Hca::general_object_destroy(Command &c) {
  switch (type_of(c)) {
    case object_type_reserved_qpn: return destroy(Kind::reserved_qpns, c);
    case object_type_scheduling_element: return destroy(Kind::schedule, c);
    case object_type_av_qp_mapping: return destroy(Kind::address_map, c);
    default: return Status::bad_op;
  }
}

// Each connection that one DC target serves has a number of its own for the connection
// manager.
Status Hca::reserve_qpns(Command &c) {
  u32 first;
  if ((c.in[log_range_at] & 0x1f) != log_reserved_qpns) return Status::bad_param;
  if (!qpns_reserve(first)) return Status::no_resources;
  resources_[{Kind::reserved_qpns, first}] = std::make_unique<ReservedQpns>(first, c.uid());
  store_be32(c.out.data() + number_at, first);
  return Status::ok;
}

Status Hca::schedule_create(Command &c) {
  if (c.in.size() < schedule_end) return Status::bad_input_length;
  const u32 parent_number = load_be32(c.in.data() + schedule_parent_at);
  const bool leaf = schedule_leaf(c), root = parent_number == 0;
  auto *parent = root ? nullptr : find<ScheduleResource>(Kind::schedule, parent_number, c.uid());
  if (!schedule_known(c) || (root && (leaf || schedule_selects(c)))) return Status::bad_param;
  if (!root && (parent == nullptr || parent->leaf)) return Status::bad_resource;
  if (!root && parent->element->depth() == ScheduleElement::max_depth) return Status::no_resources;
  const u32 number = fresh(Kind::schedule);
  if (number == 0) return Status::no_resources;
  auto r = std::make_unique<ScheduleResource>(number, c.uid(), leaf, parent);
  schedule_apply(c, *r->element);
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::schedule, number}] = std::move(r);
  return Status::ok;
}

// Names the queue pair whose congestion control datagrams to an address are to follow: a
// hint, as there is no congestion on this wire.
Status Hca::map_address(Command &c) {
  constexpr u32 qpn_at = 16 + 12, end = 16 + 48;
  if (c.in.size() < end) return Status::bad_input_length;
  const u32 qpn = load_be32(c.in.data() + qpn_at);
  if (qpn == 0 || qpn > 0xffffff) return Status::bad_param;
  const u32 number = fresh(Kind::address_map);
  if (number == 0) return Status::no_resources;
  resources_[{Kind::address_map, number}] =
      std::make_unique<Resource>(Kind::address_map, number, c.uid());
  store_be32(c.out.data() + number_at, number);
  return Status::ok;
}

}  // namespace softhca::firmware
