// Ports, as the driver above a PCI function asks for them.
#include <algorithm>

#include "base/fields.h"
#include "base/log.h"
#include "config/identity.h"
#include "firmware/resources.h"
#include "firmware/vport.h"
#include "model/path_migration.h"

namespace softhca::firmware {

namespace {

// Functions have one port.
constexpr u32 port_number = 1;

u32 named_port(const Command &c) { return get_field(c.in.data(), 76, 4); }
bool other_vport(const Command &c) { return get_field(c.in.data(), 64, 1) != 0; }

// In hca_vport_context: the capabilities, and which of them drivers may change: that the port has
// a connection manager.
constexpr u32 capabilities_at = 64, changeable_at = 68, connection_manager = 1 << 16;

}  // namespace

Status Hca::vport_context(Command &c) {
  if (named_port(c) > port_number || other_vport(c)) return Status::bad_param;
  if (device.ethernet(port_number)) return Status::bad_op;
  std::array<u8, vport_context_bytes> context{};
  describe_port(device, port_number, context.data());
  store_be32(context.data() + capabilities_at, port_capabilities_);
  store_be32(context.data() + changeable_at, connection_manager);
  fill(c, header_bytes, context);
  return Status::ok;
}

Status Hca::vport_modify(Command &c) {
  const u8 *context = c.in.data() + header_bytes;
  const u32 fields = load_be32(context), bits = load_be32(context + changeable_at);
  if (named_port(c) > port_number || other_vport(c) || fields != 0 ||
      (bits & ~connection_manager) != 0)
    return Status::bad_param;
  if (device.ethernet(port_number)) return Status::bad_op;
  port_capabilities_ = (port_capabilities_ & ~bits) | (load_be32(context + capabilities_at) & bits);
  return Status::ok;
}

Status Hca::vport_gid(Command &c) {
  constexpr u32 index_at = 14, count_at = 12;
  if (named_port(c) > port_number || other_vport(c)) return Status::bad_param;
  const u32 index = load_be16(c.in.data() + index_at);
  const std::vector<GidEntry> &gids = device.gids[port_number - 1];
  if (index >= gid_table_size(device.port(port_number).link)) return Status::bad_param;
  store_be16(c.out.data() + count_at, 1);
  if (index < gids.size() && gids[index].valid) fill(c, header_bytes, gids[index].gid);
  return Status::ok;
}

Status Hca::vport_pkey(Command &c) {
  constexpr u32 index_at = 14, all = 0xffff;
  if (named_port(c) > port_number || other_vport(c)) return Status::bad_param;
  const u32 index = load_be16(c.in.data() + index_at);
  if (index != all && index >= pkey_table_size(device.port(port_number).link))
    return Status::bad_param;
  std::array<u8, 4> entry{};
  store_be16(entry.data() + 2, the_pkey);
  if (index == 0 || index == all) fill(c, header_bytes, entry);
  return Status::ok;
}

Status Hca::vport_state(Command &c) {
  const u32 up = device.up(port_number) ? 1 : 0;
  set_field(c.out.data(), 120, 4, 1);
  set_field(c.out.data(), 124, 4, up);
  return Status::ok;
}

// query_vport_counter_out: packets and octets of each kind, behind those of errors, which are not counted.
Status Hca::vport_counter(Command &c) {
  using enum TrafficKind;
  static constexpr TrafficKind order[] = {received_rdma,
                                          sent_rdma,
                                          received_rdma_multicast,
                                          sent_rdma_multicast,
                                          received_broadcast_frames,
                                          sent_broadcast_frames,
                                          received_frames,
                                          sent_frames,
                                          received_multicast_frames,
                                          sent_multicast_frames};
  constexpr size_t first_at = 48, each = 16;
  if (other_vport(c)) return Status::bad_param;
  if (c.out.size() < first_at + each * std::size(order)) return Status::bad_output_length;
  PortCounters<u64> counted = port_counters(device.number, port_number);
  u8 *at = c.out.data() + first_at;
  for (const TrafficKind kind : order) {
    store_be64(at, counted.packets(kind));
    store_be64(at + 8, counted.octets(kind));
    at += each;
  }
  return Status::ok;
}

namespace {

// PPCNT: what an Ethernet port counts, with the check sequences of frames. Zero is what is not counted:
// errors and pauses of the link, and frames by their size (RFC 2819).
void fill_port_counters(u32 group, u32 priority, PortCounters<u64> counted, u8 *out) {
  using enum TrafficKind;
  enum : u32 { ieee_802_3 = 0, rfc_2863 = 1, rfc_2819 = 2, per_priority = 0x10 };
  struct Sum {
    u64 packets = 0, octets = 0;
  };
  const auto sum = [&](TrafficKind first) {
    constexpr u32 fcs_bytes = 4;
    Sum s;
    for (u32 i = 0; i < static_cast<u32>(received_rdma); ++i) {
      const auto kind = static_cast<TrafficKind>(static_cast<u32>(first) + i);
      s.packets += counted.packets(kind);
      s.octets += counted.octets(kind) + counted.packets(kind) * fcs_bytes;
    }
    return s;
  };
  const Sum sent = sum(sent_rdma), received = sum(received_rdma);
  const u64 sent_multicast =
      counted.packets(sent_rdma_multicast) + counted.packets(sent_multicast_frames);
  const u64 received_multicast =
      counted.packets(received_rdma_multicast) + counted.packets(received_multicast_frames);
  const u64 sent_broadcast = counted.packets(sent_broadcast_frames);
  const u64 received_broadcast = counted.packets(received_broadcast_frames);
  const auto put = [&](u32 index, u64 value) { store_be64(out + size_t{8} * index, value); };
  switch (group) {
    case ieee_802_3:
      put(0, sent.packets);
      put(1, received.packets);
      put(4, sent.octets);
      put(5, received.octets);
      put(6, sent_multicast);
      put(7, sent_broadcast);
      put(8, received_multicast);
      put(9, received_broadcast);
      break;
    case rfc_2863:
      put(0, received.octets);
      put(1, received.packets - received_multicast - received_broadcast);
      put(5, sent.octets);
      put(6, sent.packets - sent_multicast - sent_broadcast);
      put(9, received_multicast);
      put(10, received_broadcast);
      put(11, sent_multicast);
      put(12, sent_broadcast);
      break;
    case rfc_2819:
      put(1, received.octets);
      put(2, received.packets);
      put(3, received_broadcast);
      put(4, received_multicast);
      break;
    case per_priority:
      if (priority != 0) break;
      put(0, received.octets);
      put(4, received.packets);
      put(5, sent.octets);
      put(9, sent.packets);
      break;
    default: break;
  }
}

}  // namespace

Status Hca::access_register(Command &c) {
  enum : u16 {
    port_mtu = 0x5003,
    port_type_and_speed = 0x5004,
    port_status = 0x5006,
    port_counters_group = 0x5008,
    port_lanes = 0x500f,
    node_description = 0x6001,
    time_outs = 0x7004,
  };
  constexpr u32 register_at = 10, data_at = 16;
  const u16 which = load_be16(c.in.data() + register_at);
  const bool read = c.op_mod() == 1, ethernet = device.ethernet(port_number);
  // What is not set below is as it was asked.
  std::array<u8, 256> data{};
  std::copy_n(c.in.begin() + data_at, std::min(c.in.size() - data_at, data.size()), data.begin());
  const auto set = [&](u32 offset, u32 width, u32 value) {
    set_field(data.data(), offset, width, value);
  };
  switch (which) {
    case port_type_and_speed: {
      constexpr u32 widths = 7, width_4x = 4, speeds = 63, edr = active_speed_edr,
                    base_cr4_100g = 1 << 20;
      if (ethernet) {
        for (const u32 offset : {96u, 192u, 288u}) set(offset, 32, base_cr4_100g);
      } else {
        set(128, 16, widths);
        set(224, 16, widths);
        set(320, 16, width_4x);
        set(144, 16, speeds);
        set(240, 16, speeds);
        set(336, 16, edr);
      }
      break;
    }
    case port_mtu: {
      constexpr u32 largest_frame = 9978;
      const u32 mtu = device.port(port_number).active_mtu;
      const u32 wanted = get_field(data.data(), 64, 16);
      if (ethernet && !read) {
        if (wanted == 0 || wanted > largest_frame) return Status::bad_param;
        frame_bytes_ = wanted;
      }
      set(32, 16, ethernet ? largest_frame : 4096);
      if (read) set(64, 16, ethernet ? frame_bytes_ : mtu);
      set(96, 16, ethernet ? frame_bytes_ : mtu);
      break;
    }
    case port_lanes:
      for (const u32 offset : {60u, 92u, 124u}) set(offset, 4, 4);  // VL 0 to 7
      break;
    case port_status: {
      enum : u32 { is_up = 1, is_down = 2 };
      if (!read && get_field(data.data(), 32, 1) != 0) {
        const u32 wanted = get_field(data.data(), 20, 4);
        if (wanted != is_up && wanted != is_down) return Status::bad_param;
        enable_port(wanted == is_up);
      }
      set(20, 4, port_enabled_ ? is_up : is_down);
      set(28, 4, device.up(port_number) ? is_up : is_down);
      break;
    }
    case port_counters_group:
      if (!read || get_field(data.data(), 32, 1) != 0) return Status::bad_param;  // to clear them
      std::fill(data.begin() + 8, data.end(), u8{0});
      if (ethernet)
        fill_port_counters(get_field(data.data(), 26, 6), get_field(data.data(), 61, 3),
                           port_counters(device.number, port_number), data.data() + 8);
      break;
    case node_description:
      if (read) std::copy_n("softhca-pci", 11, data.begin());
      break;
    case time_outs: data.fill(0); break;  // the driver's own
    default: SOFTHCA_LOG(info, "unknown register %#x", which); return Status::bad_param;
  }
  fill(c, data_at, data);
  return Status::ok;
}

// By the driver, which hears of what becomes of the port.
void Hca::enable_port(bool enabled) {
  port_enabled_ = enabled;
  const bool up = enabled && device.port(port_number).active;
  if (up == device.up(port_number)) return;
  set_port(port_number, up);
  raise_port(port_number, up ? EventType::port_active : EventType::port_err);
}

void Hca::raise_port(u32 port, EventType type) {
  EventEntry e{port_change, port_change_subtype(type), {}};
  e.data[port_change_port_at] = static_cast<u8>(port << 4);
  if (e.subtype != 0) raise(e);
}

// Management datagrams of the port itself. Its agent answers what the port is: what else drivers
// need they learn by commands.
Status Hca::mad_interface(Command &c) {
  constexpr u32 mad_at = 16, class_at = 1, method_at = 3, status_at = 4, attribute_at = 16,
                data_at = 64;
  constexpr u8 get_method = 0x01, get_response = 0x81, by_lid = 0x01, directed = 0x81;
  constexpr u16 unsupported = 0x000c, port_info = 0x0015;
  std::array<u8, mad_bytes> mad;
  std::copy_n(c.in.begin() + mad_at, mad_bytes, mad.begin());
  const bool known = (mad[class_at] == by_lid || mad[class_at] == directed) &&
                     mad[method_at] == get_method &&
                     load_be16(mad.data() + attribute_at) == port_info;
  mad[method_at] = get_response;
  if (known) {
    std::fill_n(mad.begin() + data_at, 64, u8{0});
    describe_port_info(device, port_number, mad.data() + data_at);
  } else {
    store_be16(mad.data() + status_at, unsupported);
  }
  fill(c, mad_at, mad);
  return Status::ok;
}

Status Hca::roce_address(Command &c) {
  constexpr u32 index_at = 8, address_at = 16, version_at = 43;
  constexpr u8 version_2 = 2;
  const u32 index = load_be16(c.in.data() + index_at);
  if (!device.ethernet(port_number)) return Status::bad_op;
  if (index >= gid_table_size(LinkLayer::ethernet)) return Status::bad_param;
  std::vector<GidEntry> &gids = device.gids[port_number - 1];
  if (gids.size() <= index) gids.resize(index + 1);
  GidEntry &entry = gids[index];
  std::copy_n(c.in.begin() + address_at, entry.gid.size(), entry.gid.begin());
  entry.valid = entry.gid != Gid{};
  entry.type = c.in[version_at] == version_2 ? GidType::roce_v2 : GidType::roce_v1;
  return Status::ok;
}

Status Hca::multicast(Command &c) {
  constexpr u32 gid_at = 16;
  constexpr u16 attach = 0x806;
  auto *r = find<QpResource>(Kind::qp, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  if (r->qp->type != QpType::ud) return Status::bad_param;
  const std::string group(c.in.begin() + gid_at, c.in.begin() + gid_at + 16);
  std::set<std::string> &groups = r->qp->multicast;
  if (c.opcode() == attach && groups.size() >= device.caps.max_mcast_group)
    return Status::no_resources;
  const bool changed =
      c.opcode() == attach ? groups.insert(group).second : groups.erase(group) != 0;
  count_multicast();
  return changed || c.opcode() == attach ? Status::ok : Status::bad_resource;
}

// The fabric asks whether anything here wants datagrams whose destination's number names no slot:
// to groups, and to QP 1.
void Hca::count_multicast() {
  u32 groups = 0;
  for (const auto &[key, resource] : resources_)
    if (key.first == Kind::qp) {
      const Qp &qp = *static_cast<QpResource &>(*resource).qp;
      groups += static_cast<u32>(qp.multicast.size()) + (qp.general_services ? 1 : 0);
    }
  process().fabric->set_multicast_groups(groups);
}

}  // namespace softhca::firmware
