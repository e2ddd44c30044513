#include "firmware/hca_caps.h"

#include "base/fields.h"
#include "config/identity.h"
#include "firmware/command.h"

namespace softhca::firmware {

namespace {

constexpr size_t page_bytes = 4096;

// Page types (bits 1.. of op_mod).
enum Type : u32 {
  general = 0,
  ethernet_offloads = 1,
  odp = 2,
  atomic = 3,
  roce = 4,
  flow_tables = 7,
  qos = 0xc,
  device_memory = 0xf,
  device_event = 0x14,
  general_2 = 0x20,
  last = 0x20
};

u32 log2_up(u64 n) { return n <= 1 ? 0 : 64 - static_cast<u32>(__builtin_clzll(n - 1)); }

class Page {
 public:
  Page() : bytes_(page_bytes) {}
  void set(u32 offset, u32 width, u32 value) { set_field(bytes_.data(), offset, width, value); }
  std::vector<u8> take() { return std::move(bytes_); }

 private:
  std::vector<u8> bytes_;
};

// Fields of cmd_hca_cap that providers and middleware look at; all others stay
// zero, which means "not there".
std::vector<u8> general_page(const Device &device) {
  const Capabilities &c = device.caps;
  const LinkLayer link = device.port(1).link;
  Page p;
  if (c.reserved_qpns) {
    p.set(0x20, 1, 1);  // hca_cap_2
    // general_obj_types, 64 bits from 0x400, least significant last
    p.set(0x400 + 63 - object_type_reserved_qpn, 1, 1);
  }
  if (c.qp_scheduling) p.set(0x400 + 63 - object_type_scheduling_element, 1, 1);
  if (c.av_qp_mapping) p.set(0x400 + 63 - object_type_av_qp_mapping, 1, 1);
  if (c.dma_memcpy) {
    p.set(0x6b, 5, c.log_max_memcpy);  // log_dma_mmo_max_size
    p.set(0x153, 1, 1);                // dma_mmo_sq
  }
  p.set(0x80, 8, log2_up(c.max_srq_wr + 1));  // log_max_srq_sz
  p.set(0x88, 8, log2_up(c.max_qp_wr));       // log_max_qp_sz
  p.set(0x90, 1, 1);                          // event_cap
  p.set(0x9b, 5, log2_up(c.max_qp));          // log_max_qp
  p.set(0xab, 5, log2_up(c.max_srq));         // log_max_srq
  p.set(0xc8, 8, log2_up(c.max_cqe));         // log_max_cq_sz
  p.set(0xdb, 5, log2_up(c.max_cq));          // log_max_cq
  p.set(0xea, 6, log2_up(c.max_mr));          // log_max_mkey
  if (c.umr) {
    p.set(0x100, 8, 4);   // max_indirection
    p.set(0x108, 1, 1);   // fixed_buffer_size: KSM keys
    p.set(0x118, 1, 1);   // umr_extended_translation_offset
    p.set(0x11a, 6, 16);  // log_max_klm_list_size
  } else {
    p.set(0x209, 1, 1);  // umr_indirect_mkey_disabled
  }
  if (c.signature) {
    p.set(0x112, 6, 2);  // log_max_bsf_list_size
    p.set(0x148, 1, 1);  // sig_crc32c
    p.set(0x20f, 1, 1);  // drain_sigerr
    p.set(0x212, 1, 1);  // sigerr_cqe
    p.set(0x217, 1, 1);  // sho
    p.set(0x480, 1, 1);  // sigerr_domain_and_sig_type
  }
  p.set(0x119, 1, c.null_mkey);
  p.set(0x122, 1, c.dci_streams || c.qp_scheduling);  // qpc_extension
  p.set(0x12a, 6, log2_up(c.max_rd_atomic));          // log_max_ra_req_dc
  p.set(0x13a, 6, log2_up(c.max_rd_atomic));          // log_max_ra_res_dc
  p.set(0x14a, 6, log2_up(c.max_rd_atomic));          // log_max_ra_req_qp
  p.set(0x151, 1, link == LinkLayer::ethernet);       // rts2rts_qp_udp_sport
  p.set(0x15a, 6, log2_up(c.max_rd_atomic));          // log_max_ra_res_qp
  p.set(0x160, 1, c.raw_ethernet);                    // end_pad
  p.set(0x1a8, 1, c.device_memory);
  p.set(0x1ab, 5, 16);                                  // local_ca_ack_delay
  p.set(0x1b6, 2, link == LinkLayer::ethernet);         // port_type
  p.set(0x1b8, 8, device.port_count());                 // num_ports
  p.set(0x1c3, 5, log2_up(c.max_message_bytes));        // log_max_msg
  p.set(0x1fc, 4, 1);                                   // cqe_version
  p.set(0x200, 1, 1);                                   // compact_address_vector
  p.set(0x20c, 1, c.dc);                                // dc_req_sctr_data_cqe
  p.set(0x215, 1, 1);                                   // sctr_data_cqe
  p.set(0x21a, 1, c.dc);                                // dct
  p.set(0x21b, 1, c.packet_pacing || c.qp_scheduling);  // qos
  p.set(0x21c, 1, c.raw_ethernet);                      // eth_net_offloads
  p.set(0x21d, 1, link == LinkLayer::ethernet);         // roce
  p.set(0x21e, 1, c.atomics);                           // atomic
  p.set(0x220, 1, 1);                                   // cq_oi
  p.set(0x221, 1, 1);                                   // cq_resize
  p.set(0x222, 1, c.cq_moderation);
  p.set(0x227, 1, c.odp);             // pg
  p.set(0x228, 1, 1);                 // block_lb_mc
  p.set(0x22c, 1, c.cross_channel);   // cd
  p.set(0x22e, 1, c.path_migration);  // apm
  p.set(0x23c, 1, c.xrc);
  p.set(0x23d, 1, 1);                           // ud
  p.set(0x23e, 1, 1);                           // uc
  p.set(0x23f, 1, 1);                           // rc
  p.set(0x240, 1, 1);                           // uar_4k
  p.set(0x252, 1, 1);                           // umem_uid_0
  p.set(0x260, 1, 1);                           // bf
  p.set(0x26b, 5, 9);                           // log_bf_reg_size
  p.set(0x290, 16, 1024);                       // max_wqe_sz_sq
  p.set(0x2b0, 16, 512);                        // max_wqe_sz_rq
  p.set(0x2d0, 16, 1024);                       // max_wqe_sz_sq_dc
  p.set(0x2e7, 25, c.max_mcast_attach);         // max_qp_mcg
  p.set(0x318, 8, log2_up(c.max_mcast_group));  // log_max_mcg
  p.set(0x32b, 5, log2_up(c.max_pd));           // log_max_pd
  p.set(0x33b, 5, c.xrc ? 16 : 0);              // log_max_xrcd
  p.set(0x383, 5, log2_up(c.max_srq));          // log_max_rmp
  if (c.raw_ethernet) {
    p.set(0x363, 5, log2_up(c.max_rq));                   // log_max_rq
    p.set(0x36b, 5, log2_up(c.max_qp));                   // log_max_sq
    p.set(0x38b, 5, log2_up(c.max_indirection_tables));   // log_max_rqt
    p.set(0x393, 5, log2_up(c.max_indirection_entries));  // log_max_rqt_size
  }
  p.set(0x4e0, 32, c.timestamps ? 1'000'000 : 0);  // device_frequency_khz
  if (c.dci_streams) {
    p.set(0x58b, 5, c.log_max_streams);          // log_max_dci_stream_channels
    p.set(0x593, 5, c.log_max_errored_streams);  // log_max_dci_errored_streams
  }
  p.set(0x5bc, 1, c.cqe_compression);      // mini_cqe_resp_stride_index
  p.set(0x5bd, 1, 1);                      // cqe_128_always
  p.set(0x5be, 1, c.cqe_128_compression);  // cqe_compression_128b
  p.set(0x5bf, 1, c.cqe_compression);
  p.set(0x5d0, 16, c.cqe_compression ? 64 : 0);  // cqe_compression_max_num
  if (c.tag_matching) {
    p.set(0x5f0, 1, 1);                   // tag_matching
    p.set(0x5f1, 1, 1);                   // rndv_offload_rc
    p.set(0x5f3, 5, c.log_max_tags);      // log_tag_matching_list_sz
    p.set(0x5fb, 5, log2_up(c.max_srq));  // log_max_xrq
    p.set(0x225, 1, c.striding_srq);      // ib_striding_wq_cq_first_indication
    p.set(0x233, 1, c.striding_srq);      // ib_cyclic_striding_wq
    p.set(0x3a0, 1, c.striding_srq);      // ext_stride_num_range
  }
  return p.take();
}

// per_protocol_networking_offload_caps
std::vector<u8> ethernet_page(const Capabilities &c) {
  constexpr u32 no_inline_headers = 2;
  Page p;
  if (!c.raw_ethernet) return p.take();
  p.set(0x00, 1, 1);                                   // csum_cap
  p.set(0x01, 1, 1);                                   // vlan_cap
  p.set(0x07, 1, 1);                                   // wqe_vlan_insert
  p.set(0x08, 1, 1);                                   // self_lb_en_modifiable
  p.set(0x0b, 5, c.tso ? log2_up(c.max_tso) : 0);      // max_lso_cap
  p.set(0x10, 2, c.multi_packet_send ? 1 : 0);         // multi_pkt_send_wqe
  p.set(0x12, 2, no_inline_headers);                   // wqe_inline_mode
  p.set(0x14, 4, log2_up(c.max_indirection_entries));  // rss_ind_tbl_cap
  p.set(0x19, 1, 1);                                   // scatter_fcs
  p.set(0x1a, 1, c.multi_packet_send ? 1 : 0);         // enhanced_multi_pkt_send_wqe
  p.set(0x1f, 1, 1);                                   // tunnel_stateless_vxlan
  return p.take();
}

// roce_cap
std::vector<u8> roce_page(const Device &device) {
  constexpr u32 version_1 = 1, version_2 = 4, ipv4 = 2, ipv6 = 4;
  Page p;
  if (!device.ethernet(1)) return p.take();
  p.set(140, 4, ipv4 | ipv6);            // l3_type
  p.set(152, 8, version_1 | version_2);  // roce_version
  p.set(176, 16, 4791);                  // r_roce_dest_udp_port
  p.set(192, 16, 0xffff);                // r_roce_max_src_udp_port
  p.set(208, 16, 0xc000);                // r_roce_min_src_udp_port
  p.set(240, 16, gid_table_size(LinkLayer::ethernet));
  return p.take();
}

// flow_table_nic_cap: of tables for what arrives, and for sniffers.
std::vector<u8> flow_tables_page(const Capabilities &c) {
  // Bits of addresses, types, tags, IP and ports, and of VXLAN's number.
  constexpr u32 outer_fields = 0xfe0dfc40, inner_fields = 0xfe0dfc00;
  constexpr u32 properties = 512, sniff_received = 1536, sniff_sent = 3072;
  Page p;
  if (!c.raw_ethernet) return p.take();
  p.set(0, 1, 1);  // nic_rx_multi_path_tirs
  p.set(1, 1, 1);  // nic_rx_multi_path_tirs_fts
  p.set(2, 1, 1);  // allow_sniffer_and_nic_rx_shared_tir
  for (const u32 at : {properties, sniff_received, sniff_sent}) {
    p.set(at + 0, 1, 1);     // ft_support
    p.set(at + 3, 1, 1);     // flow_modify_en
    p.set(at + 4, 1, 1);     // modify_root
    p.set(at + 5, 1, 1);     // identified_miss_table_mode
    p.set(at + 6, 1, 1);     // flow_table_modify
    p.set(at + 34, 6, 20);   // log_max_ft_size
    p.set(at + 56, 8, 64);   // max_ft_level
    p.set(at + 120, 8, 16);  // log_max_ft_num
    p.set(at + 152, 8, log_max_destinations);
    p.set(at + 184, 8, 20);                  // log_max_flow
    for (const u32 fields : {256u, 384u}) {  // and under a mask
      p.set(at + fields, 32, outer_fields);
      p.set(at + fields + 32, 32, inner_fields);
    }
  }
  return p.take();
}

std::vector<u8> odp_page(const Capabilities &c) {
  Page p;
  if (!c.odp) return p.take();
  const auto transport = [&](u32 offset, u32 what) {
    // The bits of ib_odp_transport_cap_bits, first one first.
    for (u32 bit = 0; bit < 6; ++bit) p.set(offset + bit, 1, what >> bit & 1);
  };
  const u32 connected = odp_connected | (c.atomics ? odp_atomic : 0);
  transport(0x80, connected);     // RC
  transport(0xc0, odp_datagram);  // UD
  if (c.xrc) transport(0xe0, connected);
  if (c.dc) transport(0x100, connected);
  return p.take();
}

std::vector<u8> atomic_page(const Capabilities &c) {
  constexpr u32 compare_swap = 1, fetch_add = 2, extended_compare_swap = 4, extended_fetch_add = 8;
  constexpr u32 bytes_8 = 8, bytes_4_to_32 = 4 | 8 | 16 | 32;
  Page p;
  if (!c.atomics) return p.take();
  u32 operations = compare_swap | fetch_add;
  if (c.extended_atomics) operations |= extended_compare_swap | extended_fetch_add;
  const u32 sizes = c.extended_atomics ? bytes_4_to_32 : bytes_8;
  p.set(0x90, 16, operations);
  p.set(0xb0, 16, sizes);  // atomic_size_qp
  p.set(0xd0, 16, sizes);  // atomic_size_dc
  return p.take();
}

std::vector<u8> qos_page(const Capabilities &c) {
  Page p;
  if (c.qp_scheduling) {
    p.set(0x08, 1, 1);                  // nic_sq_scheduling
    p.set(0x09, 1, 1);                  // nic_bw_share
    p.set(0x0a, 1, 1);                  // nic_rate_limit
    p.set(0x21, 1, 1);                  // nic_qp_scheduling
    p.set(0x100, 16, 1 << 0 | 1 << 4);  // nic_element_type: schedulers and groups of queues
    p.set(0x110, 16, 1 << 0);           // nic_tsar_type: weighted round robin
  }
  if (!c.packet_pacing) return p.take();
  p.set(0x00, 1, 1);                 // packet_pacing
  p.set(0x05, 1, 1);                 // packet_pacing_burst_bound
  p.set(0x06, 1, 1);                 // packet_pacing_typical_size
  p.set(0x0b, 1, 1);                 // packet_pacing_uid
  p.set(0x40, 32, c.max_rate_kbps);  // packet_pacing_max_rate
  p.set(0x60, 32, c.min_rate_kbps);  // packet_pacing_min_rate
  p.set(0x90, 16, rate_entries);     // packet_pacing_rate_table_size
  return p.take();
}

std::vector<u8> device_memory_page(const Capabilities &c) {
  Page p;
  if (!c.device_memory) return p.take();
  p.set(0x00, 1, 1);                // memic
  p.set(0x2b, 5, 6);                // log_min_memic_alloc_size
  p.set(0x80, 32, c.max_dm_bytes);  // memic_bar_size
  p.set(0xa0, 32, c.max_dm_bytes);  // max_memic_size
  return p.take();
}

// device_event_cap: numbers of 64 bits, least significant last.
std::vector<u8> device_event_page() {
  constexpr u32 unaffiliated = 256;
  Page p;
  const auto set = [&p](u32 offset, u8 event) {
    p.set(offset + event / 64 * 64 + 63 - event % 64, 1, 1);
  };
  for (const u8 event : object_events) set(0, event);
  for (const u8 event : port_events) set(unaffiliated, event);
  return p.take();
}

std::vector<u8> general_page_2(const Capabilities &c) {
  Page p;
  if (c.reserved_qpns) p.set(0x93, 5, log_reserved_qpns);  // log_reserved_qpn_granularity
  return p.take();
}

}  // namespace

std::vector<u8> hca_caps(const Device &device, u32 type) {
  switch (type) {
    case general: return general_page(device);
    case ethernet_offloads: return ethernet_page(device.caps);
    case odp: return odp_page(device.caps);
    case atomic: return atomic_page(device.caps);
    case roce: return roce_page(device);
    case flow_tables: return flow_tables_page(device.caps);
    case general_2: return general_page_2(device.caps);
    case qos: return qos_page(device.caps);
    case device_memory: return device_memory_page(device.caps);
    case device_event: return device_event_page();
    default: break;
  }
  // Pages of features that are not there are zero; only firmware's future is
  // an error.
  if (type > last) return {};
  return Page().take();
}

}  // namespace softhca::firmware
