// What a driver asks and says before it makes anything: interface steps, pages, capabilities.
#include <algorithm>
#include <cstring>

#include "base/fields.h"
#include "config/identity.h"
#include "firmware/hca.h"
#include "firmware/hca_caps.h"

namespace softhca::firmware {

namespace {

struct Setting {
  u32 offset, width, value;
};

void change(std::vector<u8> &page, std::span<const Setting> settings) {
  for (const Setting &s : settings) set_field(page.data(), s.offset, s.width, s.value);
}

// Fields of cmd_hca_cap that only a driver asks for.
constexpr Setting driver_settings[] = {
    {0xe0, 8, 22},     // log_max_eq_sz
    {0xfc, 4, 7},      // log_max_eq
    {0x109, 7, 40},    // log_max_mrw_sz
    {0x118, 1, 1},     // umr_extended_translation_offset
    {0x170, 16, 0},    // gid_table_size: 8
    {0x180, 1, 1},     // out_of_seq_cnt
    {0x181, 1, 1},     // vport_counters
    {0x182, 1, 1},     // retransmission_q_counters
    {0x184, 1, 1},     // modify_rq_counter_set_id
    {0x186, 10, 255},  // max_qp_cnt
    {0x190, 16, 0},    // pkey_table_size: 128
    {0x1b1, 1, 1},     // enhanced_error_q_counters
    {0x1cc, 4, 1},     // max_tc
    {0x210, 2, 0},     // cmdif_checksum
    {0x231, 1, 1},     // imaicl: memory windows
    {0x240, 1, 0},     // uar_4k
    {0x24a, 6, 5},     // uar_sz: of the pages, 32 MiB
    {0x258, 8, 12},    // log_pg_sz
    {0x323, 5, 20},    // log_max_transport_domain
    {0x463, 5, 10},    // log_max_uctx
    {0x46b, 5, 16},    // log_max_umem
    {0x470, 16, 32},   // max_num_eqs
    {0x490, 16, 0},    // log_uar_page_sz
    {0x6a0, 32, 1},    // uctx_cap: raw packets
};
constexpr Setting infiniband_settings[] = {
    {0x1a2, 1, 1},  // ib_virt
    {0x1a6, 1, 0},  // nic_flow_table
    {0x21c, 1, 0},  // eth_net_offloads
    {0x21d, 1, 0},  // roce
    {0x36b, 5, 8},  // log_max_sq: to try write combining
};

// Fields of cmd_hca_cap for Ethernet ports.
constexpr Setting ethernet_settings[] = {
    {0x1a6, 1, 1},   // nic_flow_table
    {0x373, 5, 16},  // log_max_tir
    {0x37b, 5, 16},  // log_max_tis
    {0x3a0, 1, 1},   // ext_stride_num_range
    {0x3a3, 5, 11},  // log_max_stride_sz_rq
    {0x3ab, 5, 4},   // log_min_stride_sz_rq
    {0x3b3, 5, 6},   // log_max_stride_sz_sq
    {0x3bb, 5, 6},   // log_min_stride_sz_sq
    {0x3db, 5, 15},  // log_max_wq_sz
    {0x3e1, 1, 1},   // disable_local_lb_uc
    {0x3e2, 1, 1},   // disable_local_lb_mc
    {0x3eb, 5, 12},  // log_max_vlan_list
    {0x3f3, 5, 7},   // log_max_current_mc_list
    {0x3fb, 5, 7},   // log_max_current_uc_list
};

// Fields of atomic_caps: operands of eight bytes can have the order of the host, and have it.
constexpr Setting atomic_settings[] = {{64, 2, 1}, {70, 1, 1}};

// Fields of device_mem_cap: where in BAR 0 the memory lies, in two words.
constexpr Setting device_memory_settings[] = {{64, 32, Hca::memic_at >> 32},
                                              {96, 32, Hca::memic_at & 0xffffffff}};
// Fields of qos_cap: rates of send queues of frames.
constexpr Setting infiniband_qos_settings[] = {{0, 1, 0}};

constexpr u32 type_general = 0, type_odp = 2, type_atomic = 3, type_qos = 0xc,
              type_device_memory = 0xf;

}  // namespace

Status Hca::query_issi(Command &c) {
  constexpr u32 supported_at = 108;
  constexpr u32 issi_0 = 1, issi_1 = 2;
  store_be32(c.out.data() + supported_at, issi_0 | issi_1);
  return Status::ok;
}

Status Hca::setup_issi(Command &c) {
  return load_be16(c.in.data() + 10) <= 1 ? Status::ok : Status::bad_param;
}

// Firmware keeps what it knows in pages that the driver lends it. This one needs none; it
// takes some, as every driver expects, and gives them back.
Status Hca::query_pages(Command &c) {
  enum : u32 { boot = 1, init = 2, regular = 3 };
  constexpr u32 count_at = 12;
  switch (c.op_mod()) {
    case boot: store_be32(c.out.data() + count_at, 16); return Status::ok;
    case init: store_be32(c.out.data() + count_at, 32); return Status::ok;
    case regular: return Status::ok;
    default: return Status::bad_param;
  }
}

Status Hca::manage_pages(Command &c) {
  enum : u32 { cannot_give = 0, give = 1, take = 2 };
  constexpr u32 in_count_at = 12, in_pages_at = 16, out_count_at = 8, out_pages_at = 16;
  constexpr u32 most = 1 << 20;
  const u32 count = load_be32(c.in.data() + in_count_at);
  switch (c.op_mod()) {
    case cannot_give: return Status::ok;
    case give:
      if (count > (c.in.size() - in_pages_at) / 8) return Status::bad_input_length;
      if (pages_.size() + count > most) return Status::bad_param;
      for (u32 i = 0; i < count; ++i) pages_.push_back(load_be64(&c.in[in_pages_at + i * 8]));
      return Status::ok;
    case take: {
      const size_t n = std::min<size_t>({count, pages_.size(), (c.out.size() - out_pages_at) / 8});
      for (size_t i = 0; i < n; ++i) {
        store_be64(&c.out[out_pages_at + i * 8], pages_.back());
        pages_.pop_back();
      }
      store_be32(&c.out[out_count_at], static_cast<u32>(n));
      return Status::ok;
    }
    default: return Status::bad_param;
  }
}

// The device's own pages, and what the driver of a kernel looks at besides.
Status Hca::query_cap(Command &c) {
  const u32 type = c.op_mod() >> 1;
  const bool current = (c.op_mod() & 1) != 0;
  std::vector<u8> page;
  if (const auto set = capabilities_.find(type); current && set != capabilities_.end()) {
    page = set->second;
  } else {
    page = hca_caps(device, type);
    if (page.empty()) return Status::bad_param;
    if (type == type_general) {
      change(page, driver_settings);
      if (device.ethernet(1)) change(page, ethernet_settings);
      else change(page, infiniband_settings);
      set_field(page.data(), 0x201, 1, device.caps.striding_rq ? 1 : 0);
    }
    if (type == type_atomic && device.caps.atomics) change(page, atomic_settings);
    if (type == type_qos && !device.ethernet(1)) change(page, infiniband_qos_settings);
    if (type == type_device_memory && device.caps.device_memory)
      change(page, device_memory_settings);
  }
  fill(c, header_bytes, page);
  return Status::ok;
}

Status Hca::set_cap(Command &c) {
  const u32 type = c.op_mod() >> 1;
  std::vector<u8> page = hca_caps(device, type);
  if (page.empty()) return Status::bad_param;
  // The atomic page has one field to set, which has that value already.
  if (type == type_atomic)
    return c.in.size() > header_bytes + 8 && c.in[header_bytes + 8] >> 6 == 1 ? Status::ok
                                                                              : Status::bad_param;
  if (type != type_general && type != type_odp) return Status::bad_param;
  std::copy_n(c.in.begin() + header_bytes, std::min(page.size(), c.in.size() - header_bytes),
              page.begin());
  capabilities_[type] = std::move(page);
  return Status::ok;
}

Status Hca::query_adapter(Command &c) {
  constexpr u32 vendor_at = 40, psid_at = 256, oui = 0x02c9;
  if (c.out.size() < psid_at + 16) return Status::bad_output_length;
  store_be32(c.out.data() + vendor_at, oui);
  const char *board = model_identity(device.config->model).board_id;
  std::copy_n(board, std::min<size_t>(std::strlen(board), 16), c.out.begin() + psid_at);
  return Status::ok;
}

}  // namespace softhca::firmware
