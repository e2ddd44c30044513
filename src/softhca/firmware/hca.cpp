// Which command is executed by whom, and the objects that have a number and nothing else.
#include "firmware/hca.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "base/fields.h"
#include "base/log.h"
#include "config/identity.h"
#include "engine/engine.h"
#include "firmware/resources.h"
#include "model/flow_table.h"

namespace softhca::firmware {

Resource::~Resource() { need_nothing(); }

void Resource::need(Resource *r) {
  ++r->users;
  needs.push_back(r);
}

void Resource::need_instead(Resource *of_before, Resource *r) {
  need(r);
  needs.erase(std::find(needs.begin(), needs.end(), of_before));
  --of_before->users;
}

void Resource::need_nothing() {
  for (Resource *r : needs) --r->users;
  needs.clear();
}

struct Hca::Handler {
  u16 opcode;
  const char *name;
  u16 in_bytes, out_bytes;  // at least
  Status (Hca::*run)(Command &);
  Kind kind = Kind::pd;  // of `alloc` and `destroy`
};

const Hca::Handler *Hca::handler_of(u16 opcode) {
  // By opcode.
  static constexpr Handler handlers[] = {
      {0x100, "QUERY_HCA_CAP", 16, 16, &Hca::query_cap},
      {0x101, "QUERY_ADAPTER", 16, 16, &Hca::query_adapter},
      {0x102, "INIT_HCA", 16, 16, &Hca::nothing},
      {0x103, "TEARDOWN_HCA", 16, 16, &Hca::nothing},
      {0x104, "ENABLE_HCA", 16, 16, &Hca::nothing},
      {0x105, "DISABLE_HCA", 16, 16, &Hca::nothing},
      {0x107, "QUERY_PAGES", 16, 16, &Hca::query_pages},
      {0x108, "MANAGE_PAGES", 16, 16, &Hca::manage_pages},
      {0x109, "SET_HCA_CAP", 16, 16, &Hca::set_cap},
      {0x10a, "QUERY_ISSI", 16, 112, &Hca::query_issi},
      {0x10b, "SET_ISSI", 16, 16, &Hca::setup_issi},
      {0x10d, "SET_DRIVER_VERSION", 16, 16, &Hca::nothing},
      {0x200, "CREATE_MKEY", 272, 16, &Hca::mkey_create},
      {0x201, "QUERY_MKEY", 16, 80, &Hca::mkey_query},
      {0x202, "DESTROY_MKEY", 16, 16, &Hca::destroy, Kind::mkey},
      {0x203, "QUERY_SPECIAL_CONTEXTS", 16, 16, &Hca::special_contexts},
      {0x204, "PAGE_FAULT_RESUME", 16, 16, &Hca::page_fault_resume},
      {0x205, "ALLOC_MEMIC", 32, 16, &Hca::memic_alloc},
      {0x206, "DEALLOC_MEMIC", 32, 16, &Hca::memic_free},
      {0x301, "CREATE_EQ", 272, 16, &Hca::eq_create},
      {0x302, "DESTROY_EQ", 16, 16, &Hca::destroy, Kind::eq},
      {0x303, "QUERY_EQ", 16, 80, &Hca::eq_query},
      {0x400, "CREATE_CQ", 96, 16, &Hca::cq_create},
      {0x401, "DESTROY_CQ", 16, 16, &Hca::destroy, Kind::cq},
      {0x402, "QUERY_CQ", 16, 16, &Hca::cq_query},
      {0x403, "MODIFY_CQ", 96, 16, &Hca::cq_modify},
      {0x500, "CREATE_QP", 272, 16, &Hca::qp_create},
      {0x501, "DESTROY_QP", 16, 16, &Hca::destroy, Kind::qp},
      {0x502, "RST2INIT_QP", 16, 16, &Hca::qp_modify},
      {0x503, "INIT2RTR_QP", 16, 16, &Hca::qp_modify},
      {0x504, "RTR2RTS_QP", 16, 16, &Hca::qp_modify},
      {0x505, "RTS2RTS_QP", 16, 16, &Hca::qp_modify},
      {0x506, "SQERR2RTS_QP", 16, 16, &Hca::qp_modify},
      {0x507, "2ERR_QP", 16, 16, &Hca::qp_modify},
      {0x50a, "2RST_QP", 16, 16, &Hca::qp_modify},
      {0x50b, "QUERY_QP", 16, 16, &Hca::qp_query},
      {0x50c, "SQD_RTS_QP", 16, 16, &Hca::qp_modify},
      {0x50d, "MAD_IFC", 272, 272, &Hca::mad_interface},
      {0x50e, "INIT2INIT_QP", 16, 16, &Hca::qp_modify},
      {0x600, "CREATE_PSV", 16, 16, &Hca::psv_create},
      {0x601, "DESTROY_PSV", 16, 16, &Hca::destroy, Kind::psv},
      {0x705, "CREATE_XRC_SRQ", 272, 16, &Hca::xrc_srq_create},
      {0x706, "DESTROY_XRC_SRQ", 16, 16, &Hca::destroy, Kind::srq},
      {0x707, "QUERY_XRC_SRQ", 16, 16, &Hca::xrc_srq_query},
      {0x708, "ARM_XRC_SRQ", 16, 16, &Hca::xrc_srq_arm},
      {0x710, "CREATE_DCT", 80, 16, &Hca::dct_create},
      {0x711, "DESTROY_DCT", 16, 16, &Hca::destroy, Kind::dct},
      {0x712, "DRAIN_DCT", 16, 16, &Hca::dct_drain},
      {0x713, "QUERY_DCT", 16, 16, &Hca::dct_query},
      {0x714, "ARM_DCT_FOR_KEY_VIOLATION", 16, 16, &Hca::dct_arm},
      {0x717, "CREATE_XRQ", 16, 16, &Hca::xrq_create},
      {0x718, "DESTROY_XRQ", 16, 16, &Hca::destroy, Kind::srq},
      {0x719, "QUERY_XRQ", 16, 16, &Hca::xrq_query},
      {0x71a, "ARM_XRQ", 16, 16, &Hca::xrq_arm},
      {0x750, "QUERY_VPORT_STATE", 16, 16, &Hca::vport_state},
      {0x754, "QUERY_NIC_VPORT_CONTEXT", 16, 272, &Hca::nic_vport_context},
      {0x755, "MODIFY_NIC_VPORT_CONTEXT", 512, 16, &Hca::nic_vport_modify},
      {0x761, "SET_ROCE_ADDRESS", 48, 16, &Hca::roce_address},
      {0x762, "QUERY_HCA_VPORT_CONTEXT", 16, 140, &Hca::vport_context},
      {0x763, "MODIFY_HCA_VPORT_CONTEXT", 96, 16, &Hca::vport_modify},
      {0x764, "QUERY_HCA_VPORT_GID", 16, 16, &Hca::vport_gid},
      {0x765, "QUERY_HCA_VPORT_PKEY", 16, 16, &Hca::vport_pkey},
      {0x770, "QUERY_VPORT_COUNTER", 16, 16, &Hca::vport_counter},
      {0x771, "ALLOC_Q_COUNTER", 16, 16, &Hca::alloc_counter},
      {0x772, "DEALLOC_Q_COUNTER", 16, 16, &Hca::destroy, Kind::counter},
      {0x773, "QUERY_Q_COUNTER", 16, 16, &Hca::query_counter},
      {0x780, "SET_PP_RATE_LIMIT", 64, 16, &Hca::rate_set},
      {0x800, "ALLOC_PD", 16, 16, &Hca::alloc, Kind::pd},
      {0x801, "DEALLOC_PD", 16, 16, &Hca::destroy, Kind::pd},
      {0x802, "ALLOC_UAR", 16, 16, &Hca::alloc, Kind::uar},
      {0x803, "DEALLOC_UAR", 16, 16, &Hca::destroy, Kind::uar},
      {0x805, "ACCESS_REG", 16, 16, &Hca::access_register},
      {0x806, "ATTACH_TO_MCG", 32, 16, &Hca::multicast},
      {0x807, "DETACH_FROM_MCG", 32, 16, &Hca::multicast},
      {0x80d, "NOP", 16, 16, &Hca::nothing},
      {0x80e, "ALLOC_XRCD", 16, 16, &Hca::alloc, Kind::xrcd},
      {0x80f, "DEALLOC_XRCD", 16, 16, &Hca::destroy, Kind::xrcd},
      {0x816, "ALLOC_TRANSPORT_DOMAIN", 16, 16, &Hca::alloc, Kind::transport_domain},
      {0x817, "DEALLOC_TRANSPORT_DOMAIN", 16, 16, &Hca::destroy, Kind::transport_domain},
      {0x827, "ADD_VXLAN_UDP_DPORT", 16, 16, &Hca::vxlan_port},
      {0x828, "DELETE_VXLAN_UDP_DPORT", 16, 16, &Hca::nothing},
      {0x900, "CREATE_TIR", 272, 16, &Hca::tir_create},
      {0x901, "MODIFY_TIR", 272, 16, &Hca::tir_modify},
      {0x902, "DESTROY_TIR", 16, 16, &Hca::destroy, Kind::tir},
      {0x903, "QUERY_TIR", 16, 16, &Hca::tir_query},
      {0x904, "CREATE_SQ", 272, 16, &Hca::sq_create},
      {0x905, "MODIFY_SQ", 272, 16, &Hca::sq_modify},
      {0x906, "DESTROY_SQ", 16, 16, &Hca::destroy, Kind::sq},
      {0x907, "QUERY_SQ", 16, 16, &Hca::sq_query},
      {0x908, "CREATE_RQ", 272, 16, &Hca::rq_create},
      {0x909, "MODIFY_RQ", 272, 16, &Hca::rq_modify},
      {0x90a, "DESTROY_RQ", 16, 16, &Hca::destroy, Kind::rq},
      {0x90b, "QUERY_RQ", 16, 16, &Hca::rq_query},
      {0x90c, "CREATE_RMP", 272, 16, &Hca::rmp_create},
      {0x90d, "MODIFY_RMP", 16, 16, &Hca::rmp_modify},
      {0x90e, "DESTROY_RMP", 16, 16, &Hca::destroy, Kind::srq},
      {0x90f, "QUERY_RMP", 16, 16, &Hca::rmp_query},
      {0x912, "CREATE_TIS", 192, 16, &Hca::tis_create},
      {0x913, "MODIFY_TIS", 192, 16, &Hca::tis_modify},
      {0x914, "DESTROY_TIS", 16, 16, &Hca::destroy, Kind::tis},
      {0x915, "QUERY_TIS", 16, 16, &Hca::tis_query},
      {0x916, "CREATE_RQT", 272, 16, &Hca::rqt_create},
      {0x917, "MODIFY_RQT", 272, 16, &Hca::rqt_modify},
      {0x918, "DESTROY_RQT", 16, 16, &Hca::destroy, Kind::rqt},
      {0x919, "QUERY_RQT", 16, 16, &Hca::rqt_query},
      {0x92f, "SET_FLOW_TABLE_ROOT", 64, 16, &Hca::flow_root_set},
      {0x930, "CREATE_FLOW_TABLE", 64, 16, &Hca::flow_table_create},
      {0x931, "DESTROY_FLOW_TABLE", 64, 16, &Hca::flow_table_destroy},
      {0x933, "CREATE_FLOW_GROUP", 1024, 16, &Hca::flow_group_create},
      {0x934, "DESTROY_FLOW_GROUP", 64, 16, &Hca::flow_group_destroy},
      {0x936, "SET_FLOW_TABLE_ENTRY", 832, 16, &Hca::flow_entry_set},
      {0x938, "DELETE_FLOW_TABLE_ENTRY", 64, 16, &Hca::flow_entry_delete},
      {0x93c, "MODIFY_FLOW_TABLE", 64, 16, &Hca::flow_table_modify},
      {0xa00, "CREATE_GENERAL_OBJECT", 16, 16, &Hca::general_object_create},
      {0xa01, "MODIFY_GENERAL_OBJECT", 16, 16, &Hca::general_object_modify},
      {0xa03, "DESTROY_GENERAL_OBJECT", 16, 16, &Hca::general_object_destroy},
      {0xa04, "CREATE_UCTX", 64, 16, &Hca::uctx_create},
      {0xa06, "DESTROY_UCTX", 16, 16, &Hca::uctx_destroy},
      {0xa08, "CREATE_UMEM", 48, 16, &Hca::umem_create},
      {0xa0a, "DESTROY_UMEM", 16, 16, &Hca::destroy, Kind::umem},
  };
  const auto *found = std::lower_bound(std::begin(handlers), std::end(handlers), opcode,
                                       [](const Handler &h, u16 o) { return h.opcode < o; });
  return found != std::end(handlers) && found->opcode == opcode ? found : nullptr;
}

Hca::Hca(Device &d, GuestMemory &m, Interrupts &i) : device(d), memory(m), interrupts_(i) {
  reset();
  process().mkeys.bus_at = m.host_address(0);
  process().mkeys.bus_bytes = GuestMemory::window_bytes;
  process().port_listener = [this](u32 port, EventType type) {
    if (type == EventType::device_fatal) interrupts_.fail();
    else raise_port(port, type);
  };
  if (d.caps.device_memory) memic_.resize(d.caps.max_dm_bytes);
}
Hca::~Hca() {
  process().port_listener = nullptr;
  reset();
}

void Hca::reset() {
  // Users go before what they need.
  while (!resources_.empty())
    std::erase_if(resources_, [](const auto &entry) { return entry.second->users == 0; });
  next_.clear();
  pages_.clear();
  capabilities_.clear();
  nic_vport_.clear();
  frame_bytes_ = ordinary_frame;
  rates_.clear();
  flow_set_loopback({true, true});
  // A driver of Ethernet ports fills the table of GIDs.
  if (device.ethernet(1)) device.gids[0].clear();
  page_faults_.clear();
  administrator = {};
  port_capabilities_ = port_cap_mask(device.port(1).link);
  if (!port_enabled_) enable_port(true);
}

void Hca::execute(Command &c) {
  const Handler *h = handler_of(c.opcode());
  if (h == nullptr) {
    SOFTHCA_LOG(info, "unknown firmware command %#x", c.opcode());
    return answer(c, Status::bad_op);
  }
  SOFTHCA_LOG(debug, "%s, op_mod %#x, uid %u", h->name, c.op_mod(), c.uid());
  if (c.in.size() < h->in_bytes) return answer(c, Status::bad_input_length);
  if (c.out.size() < h->out_bytes) return answer(c, Status::bad_output_length);
  const std::string_view name(h->name);
  const bool makes = name.starts_with("CREATE_") || name.starts_with("ALLOC_");
  Status status = Status::no_resources;
  try {
    if (!makes || resources_.size() < most_objects) status = (this->*h->run)(c);
  } catch (const std::bad_alloc &) {
    SOFTHCA_LOG(error, "%s: out of memory", h->name);
  }
  if (status != Status::ok) SOFTHCA_LOG(info, "%s refused: object %#x", h->name, number_in(c));
  answer(c, status);
}

Status Hca::nothing(Command &) { return Status::ok; }

u32 Hca::fresh(Kind kind) {
  // UAR pages stand behind the function's registers; user contexts have 16 bits, event queues
  // seven, counter sets eight.
  constexpr u32 first_uar = 0x20, uar_limit = 8192, number_limit = 1 << 24;
  const u32 first = kind == Kind::uar ? first_uar : 1;
  const u32 limit = kind == Kind::uar                              ? uar_limit
                    : kind == Kind::eq                             ? 128
                    : kind == Kind::counter                        ? 256
                    : kind == Kind::uctx || kind == Kind::schedule ? u32{shared_uid}
                                                                   : number_limit;
  u32 &next = next_[kind];
  for (u32 tries = 0; tries < limit; ++tries) {
    if (next < first || next >= limit) next = first;
    const u32 number = next++;
    if (!resources_.contains({kind, number})) return number;
  }
  return 0;
}

u32 Hca::fresh(Kind kind, u32 &counter) const {
  u32 number;
  do {
    number = counter++ & 0xffffff;
  } while (number == 0 || resources_.contains({kind, number}));
  return number;
}

Status Hca::alloc(Command &c) {
  const Kind kind = handler_of(c.opcode())->kind;
  // Protection domains are known to the model, as are those of programs on the host.
  const u32 number = kind == Kind::pd ? fresh(kind, process().next_pdn) : fresh(kind);
  if (number == 0) return Status::no_resources;
  resources_[{kind, number}] = std::make_unique<Resource>(kind, number, c.uid());
  store_be32(c.out.data() + number_at, number);
  return Status::ok;
}

// Counter sets have numbers of eight bits, which also the command to free one has.
Status Hca::alloc_counter(Command &c) {
  const u32 number = fresh(Kind::counter);
  if (number == 0) return Status::no_resources;
  resources_[{Kind::counter, number}] = std::make_unique<CounterResource>(number, c.uid());
  store_be32(c.out.data() + number_at, number);
  return Status::ok;
}

Status Hca::query_counter(Command &c) {
  constexpr u32 other_vport_bit = 64, clear_bit = 192, number_bit = 248;
  static constexpr u32 bits[] = {
#define SOFTHCA_QUEUE_COUNTER(name, bit, shown) bit,
#include "model/queue_counters.def"
#undef SOFTHCA_QUEUE_COUNTER
  };
  if (c.in.size() * 8 < number_bit + 8) return Status::bad_input_length;
  if (get_field(c.in.data(), other_vport_bit, 1) != 0) return Status::bad_param;
  auto *r = find<CounterResource>(Kind::counter, get_field(c.in.data(), number_bit, 8), c.uid());
  if (r == nullptr) return Status::bad_resource;
  const bool clear = get_field(c.in.data(), clear_bit, 1) != 0;
  for (size_t i = 0; i < std::size(bits); ++i) {
    Count &counter = r->set->counters.all[i];
    if (c.out.size() * 8 >= bits[i] + 32)
      set_field(c.out.data(), bits[i], 32, static_cast<u32>(counter.value()));
    if (clear) counter.clear();
  }
  return Status::ok;
}

Status Hca::destroy(Command &c) { return destroy(handler_of(c.opcode())->kind, c); }

Status Hca::destroy(Kind kind, Command &c) {
  const u32 number = number_in(c);
  Resource *r = find<Resource>(kind, number);
  if (r == nullptr || (c.uid() != 0 && r->uid != c.uid())) return Status::bad_resource;
  if (r->users != 0) return Status::bad_resource_state;
  // What was sent to it takes effect before.
  if (kind == Kind::qp || kind == Kind::dct || kind == Kind::mkey || kind == Kind::sq)
    engine_settle();
  resources_.erase({kind, number});
  if (kind == Kind::qp) count_multicast();
  return Status::ok;
}

Status Hca::uctx_create(Command &c) {
  const u32 number = fresh(Kind::uctx);
  if (number == 0) return Status::no_resources;
  resources_[{Kind::uctx, number}] = std::make_unique<Resource>(Kind::uctx, number, u16{0});
  store_be16(c.out.data() + 10, static_cast<u16>(number));
  return Status::ok;
}

// All that its program left goes with it.
Status Hca::uctx_destroy(Command &c) {
  const u16 uid = load_be16(c.in.data() + 10);
  if (uid == 0 || resources_.erase({Kind::uctx, uid}) == 0) return Status::bad_resource;
  while (std::erase_if(resources_, [&](const auto &entry) {
           return entry.second->uid == uid && entry.second->users == 0;
         }) != 0) {
  }
  return Status::ok;
}

}  // namespace softhca::firmware
