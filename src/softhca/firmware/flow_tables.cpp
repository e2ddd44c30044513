// Flow tables of the driver above a PCI function: tables, groups of entries with one mask, and
// entries.
#include <algorithm>

#include "base/fields.h"
#include "base/log.h"
#include "firmware/flow_match.h"
#include "firmware/hca_caps.h"
#include "firmware/resources.h"
#include "model/flow_table.h"

namespace softhca::firmware {

namespace {

enum TableType : u32 { nic_receive = 0, sniffed_received = 5, sniffed_sent = 6 };

bool root_of(u32 type, FlowRoot &root) {
  switch (type) {
    case nic_receive: root = FlowRoot::receive; return true;
    case sniffed_received: root = FlowRoot::sniff_received; return true;
    case sniffed_sent: root = FlowRoot::sniff_sent; return true;
    default: return false;
  }
}

// What all of these commands begin with, bits.
constexpr u32 other_vport_bit = 64, type_bits = 128, table_bits = 168;
u32 type_in(const Command &c) { return get_field(c.in.data(), type_bits, 8); }
u32 table_in(const Command &c) { return get_field(c.in.data(), table_bits, 24); }

struct TableResource final : Resource {
  TableResource(u32 n, u16 u) : Resource(Kind::flow_table, n, u) {}
  ~TableResource() override {
    if (flow_root(root) == &table) flow_set_root(root, nullptr);
    if (next != nullptr) --next->users;
  }
  void set_next(TableResource *t) {
    if (next != nullptr) --next->users;
    next = t;
    if (next != nullptr) ++next->users;
    table.miss = next != nullptr ? &next->table : nullptr;
  }
  FlowTable table;
  FlowRoot root = FlowRoot::receive;  // of its type
  u32 type = 0, log_size = 0;
  TableResource *next = nullptr;  // for frames that nothing matches
  std::map<u32, u32> entries;     // numbers by index
};

struct GroupResource final : Resource {
  GroupResource(u32 n, u16 u) : Resource(Kind::flow_group, n, u) {}
  TableResource *table = nullptr;
  u32 first = 0, last = 0;
  std::array<u8, match_bytes> mask{};
};

struct EntryResource final : Resource {
  EntryResource(u32 n, u16 u, TableResource &t, u32 i)
      : Resource(Kind::flow_entry, n, u), table(t), index(i) {}
  ~EntryResource() override {
    // Unless another has taken its place, or it never had it.
    const auto it = table.entries.find(index);
    if (it == table.entries.end() || it->second != number) return;
    table.entries.erase(it);
    table.table.entries.erase(index);
  }
  TableResource &table;
  u32 index;
  FlowEntry entry;
};

// flow_table_context of mlx5_ifc.h, bits of the boxes that carry one.
constexpr u32 owner_bits = 192, miss_action_bits = 196, level_bits = 200, log_size_bits = 216,
              miss_table_bits = 232;
enum MissAction : u32 { miss_default = 0, miss_forward = 1 };

}  // namespace

// The table for frames that nothing in another matches. Levels rise on the way.
static Status choose_next(const Hca &hca, const Command &c, TableResource &table) {
  const u32 action = get_field(c.in.data(), miss_action_bits, 4);
  if (action == miss_default) {
    table.set_next(nullptr);
    return Status::ok;
  }
  auto *next = hca.find<TableResource>(Kind::flow_table,
                                       get_field(c.in.data(), miss_table_bits, 24), c.uid());
  if (next == nullptr) return Status::bad_resource;
  if (action != miss_forward || next->type != table.type || next->table.level <= table.table.level)
    return Status::bad_param;
  table.set_next(next);
  return Status::ok;
}

Status Hca::flow_table_create(Command &c) {
  constexpr u32 max_log_size = 24;
  const u32 number = fresh(Kind::flow_table);
  if (number == 0) return Status::no_resources;
  auto t = std::make_unique<TableResource>(number, c.uid());
  t->type = type_in(c);
  t->table.level = get_field(c.in.data(), level_bits, 8);
  t->log_size = get_field(c.in.data(), log_size_bits, 8);
  // No reformats, no tables of software's own.
  if (!device.caps.raw_ethernet || !root_of(t->type, t->root) ||
      get_field(c.in.data(), other_vport_bit, 1) != 0 || t->log_size > max_log_size ||
      get_field(c.in.data(), owner_bits, 4) != 0)
    return Status::bad_param;
  if (const Status s = choose_next(*this, c, *t); s != Status::ok) return s;
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::flow_table, number}] = std::move(t);
  return Status::ok;
}

Status Hca::flow_table_destroy(Command &c) {
  auto *t = find<TableResource>(Kind::flow_table, table_in(c), c.uid());
  if (t == nullptr || t->type != type_in(c)) return Status::bad_resource;
  if (t->users != 0) return Status::bad_resource_state;
  resources_.erase({Kind::flow_table, t->number});
  return Status::ok;
}

Status Hca::flow_table_modify(Command &c) {
  constexpr u16 change_miss = 1;
  auto *t = find<TableResource>(Kind::flow_table, table_in(c), c.uid());
  if (t == nullptr || t->type != type_in(c)) return Status::bad_resource;
  if (load_be16(c.in.data() + 14) != change_miss) return Status::bad_param;
  return choose_next(*this, c, *t);
}

Status Hca::flow_root_set(Command &c) {
  enum : u32 { set = 0, unset = 1 };
  FlowRoot root;
  if (!root_of(type_in(c), root) || c.op_mod() > unset) return Status::bad_param;
  if (c.op_mod() == unset) {
    flow_set_root(root, nullptr);
    return Status::ok;
  }
  auto *t = find<TableResource>(Kind::flow_table, table_in(c), c.uid());
  if (t == nullptr || t->type != type_in(c)) return Status::bad_resource;
  flow_set_root(root, &t->table);
  return Status::ok;
}

Status Hca::flow_group_create(Command &c) {
  constexpr u32 first_at = 28, last_at = 36, criteria_at = 63, mask_at = 64, group_type_bits = 140;
  constexpr u8 criteria_known = 7;  // headers, miscellaneous, inner headers
  auto *t = find<TableResource>(Kind::flow_table, table_in(c), c.uid());
  if (t == nullptr || t->type != type_in(c)) return Status::bad_resource;
  const u32 first = load_be32(c.in.data() + first_at), last = load_be32(c.in.data() + last_at);
  const u8 *mask = c.in.data() + mask_at;
  if (first > last || last >> t->log_size != 0 || (c.in[criteria_at] & ~criteria_known) != 0 ||
      get_field(c.in.data(), group_type_bits, 4) != 0)
    return Status::bad_param;
  if (!match_is_known(mask)) {
    SOFTHCA_LOG(info, "CREATE_FLOW_GROUP: the mask has unsupported fields");
    return Status::bad_param;
  }
  const u32 number = fresh(Kind::flow_group);
  if (number == 0) return Status::no_resources;
  auto g = std::make_unique<GroupResource>(number, c.uid());
  g->need(t);
  g->table = t;
  g->first = first;
  g->last = last;
  std::copy_n(mask, match_bytes, g->mask.begin());
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::flow_group, number}] = std::move(g);
  return Status::ok;
}

Status Hca::flow_group_destroy(Command &c) {
  constexpr u32 group_at = 24;
  auto *g = find<GroupResource>(Kind::flow_group, load_be32(c.in.data() + group_at), c.uid());
  if (g == nullptr || g->table->number != table_in(c)) return Status::bad_resource;
  if (g->users != 0) return Status::bad_resource_state;
  resources_.erase({Kind::flow_group, g->number});
  return Status::ok;
}

namespace {

// flow_context of mlx5_ifc.h: bits of it, the value in bytes, and what follows it.
constexpr u32 flow_at = 64, group_bits = 32, tag_bits = 72, action_bits = 112, extended_bit = 128,
              destinations_bits = 136;
constexpr u32 value_at = 64, list_at = flow_at + 768, destination_bytes = 8;
enum Action : u32 { action_allow = 1, action_drop = 2, action_forward = 4 };

// Reads the destinations of an entry. What it needs is kept in `e`.
Status read_destinations(const Hca &hca, const Command &c, const TableResource &table,
                         EntryResource &e) {
  enum : u8 { to_table = 1, to_receiver = 2 };
  constexpr u32 max_destinations = 1 << log_max_destinations;
  const u8 *flow = c.in.data() + flow_at;
  const u32 count = get_field(flow, destinations_bits, 24);
  if ((c.in.size() - list_at) / destination_bytes < count) return Status::bad_input_length;
  if (get_field(flow, extended_bit, 1) != 0 || count > max_destinations) return Status::bad_param;
  for (u32 i = 0; i < count; ++i) {
    const u32 word = load_be32(c.in.data() + list_at + i * destination_bytes);
    const u32 number = word & 0xffffff;
    if (word >> 24 == to_receiver) {
      auto *tir = hca.find<TirResource>(Kind::tir, number, c.uid());
      if (tir == nullptr) return Status::bad_resource;
      e.need(tir);
      e.entry.receivers.push_back(&tir->receiver);
    } else if (word >> 24 == to_table) {
      auto *next = hca.find<TableResource>(Kind::flow_table, number, c.uid());
      if (next == nullptr) return Status::bad_resource;
      if (next->type != table.type || next->table.level <= table.table.level)
        return Status::bad_param;
      e.need(next);
      e.entry.tables.push_back(&next->table);
    } else {
      SOFTHCA_LOG(info, "SET_FLOW_TABLE_ENTRY: unsupported destination type %u", word >> 24);
      return Status::bad_param;
    }
  }
  return Status::ok;
}

Status read_entry(const Hca &hca, const Command &c, GroupResource &group, EntryResource &e) {
  const u8 *flow = c.in.data() + flow_at;
  const u32 action = get_field(flow, action_bits, 16);
  if ((action & ~(action_allow | action_drop | action_forward)) != 0) {
    SOFTHCA_LOG(info, "SET_FLOW_TABLE_ENTRY: unsupported action %#x", action);
    return Status::bad_param;
  }
  e.need(&group);
  e.entry.tag = get_field(flow, tag_bits, 24);
  e.entry.drop = (action & action_drop) != 0;
  if (read_match(flow + value_at, group.mask.data(), e.entry.value, e.entry.mask) != 0)
    return Status::bad_param;
  return (action & action_forward) != 0 ? read_destinations(hca, c, *group.table, e) : Status::ok;
}

}  // namespace

Status Hca::flow_entry_set(Command &c) {
  enum : u32 { add = 0, change = 1 };
  constexpr u32 level_bit = 192, index_at = 32;
  auto *t = find<TableResource>(Kind::flow_table, table_in(c), c.uid());
  if (t == nullptr || t->type != type_in(c)) return Status::bad_resource;
  auto *group = find<GroupResource>(Kind::flow_group,
                                    get_field(c.in.data() + flow_at, group_bits, 32), c.uid());
  if (group == nullptr || group->table != t) return Status::bad_resource;
  const u32 index = load_be32(c.in.data() + index_at);
  if (index < group->first || index > group->last || c.op_mod() > change ||
      get_field(c.in.data(), level_bit, 1) != 0)
    return Status::bad_param;
  const auto old = t->entries.find(index);
  if ((old != t->entries.end()) != (c.op_mod() == change)) return Status::bad_resource_state;
  const u32 number = fresh(Kind::flow_entry);
  if (number == 0) return Status::no_resources;
  auto e = std::make_unique<EntryResource>(number, c.uid(), *t, index);
  if (const Status s = read_entry(*this, c, *group, *e); s != Status::ok) return s;
  if (old != t->entries.end()) resources_.erase({Kind::flow_entry, u32{old->second}});
  t->entries[index] = number;
  t->table.entries[index] = &e->entry;
  resources_[{Kind::flow_entry, number}] = std::move(e);
  return Status::ok;
}

Status Hca::flow_entry_delete(Command &c) {
  constexpr u32 index_at = 32;
  auto *t = find<TableResource>(Kind::flow_table, table_in(c), c.uid());
  if (t == nullptr || t->type != type_in(c)) return Status::bad_resource;
  const auto it = t->entries.find(load_be32(c.in.data() + index_at));
  if (it == t->entries.end()) return Status::bad_resource;
  resources_.erase({Kind::flow_entry, u32{it->second}});
  return Status::ok;
}

}  // namespace softhca::firmware
